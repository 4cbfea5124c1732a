//! Whether an event is started early, by telling Azure that nothing is to be waited for.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::scheduled_event::EventSource;

/// Whether an event is started early. That starts it for all the machines that it concerns
/// (<https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events#start-an-event>).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Approve {
    /// It comes in its own time.
    #[default]
    Never,
    /// As soon as every node of the cluster that it concerns is drained, or needs no drain.
    WhenDrained,
    /// As soon as it is seen.
    Immediately,
}

impl Approve {
    /// The word of policy files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::WhenDrained => "whenDrained",
            Self::Immediately => "immediately",
        }
    }
}

/// The same, by who asked for the event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ApproveBySource {
    /// For events that Azure asks for.
    pub platform: Approve,
    /// For events that someone with rights on the machine asks for.
    pub user: Approve,
}

impl ApproveBySource {
    /// What holds for events of this source; one that this version does not know is never started early.
    pub fn of(self, source: &EventSource) -> Approve {
        match source {
            EventSource::Platform => self.platform,
            EventSource::User => self.user,
            EventSource::Other(_) => Approve::Never,
        }
    }
}
