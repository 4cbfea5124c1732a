//! Why the mock refuses.

use serde_saphyr::Spanned;

use crate::event::{EventId, Phase};

/// Why the mock does not do what it was told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MockError {
    /// There is no such VM.
    #[error("there is no VM `{name}`; give one of {known}")]
    UnknownVm {
        /// What was asked for.
        name: String,
        /// The VMs that there are.
        known: String,
    },
    /// No listed event has this identifier or name.
    #[error("no event `{key}` is listed; GET /mock/events shows those that are")]
    UnknownEvent {
        /// What was asked for.
        key: String,
    },
    /// The event is not in the phase that this needs.
    #[error("event {id} is {}: only a Scheduled event can be {verb}", phase.as_str())]
    NotScheduled {
        /// The event.
        id: EventId,
        /// Where it is in its life.
        phase: Phase,
        /// What was to be done with it.
        verb: &'static str,
    },
    /// No fault has this number or name.
    #[error("no fault `{key}` is set; GET /mock/faults shows those that are")]
    UnknownFault {
        /// What was asked for.
        key: String,
    },
    /// What was given makes no sense.
    #[error("{0}")]
    Invalid(String),
}

impl From<Spanned<String>> for MockError {
    fn from(wrong: Spanned<String>) -> Self {
        Self::Invalid(wrong.value)
    }
}
