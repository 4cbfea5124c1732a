//! Which events a rule is about.

use std::time::Duration;

use regex_lite::Regex;

use crate::scheduled_event::{EventSource, EventStatus, EventType, ScheduledEvent};
use crate::time::{Now, spoken};

/// The events that a rule is about. An empty list, or a bound that is not given, matches every event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Match {
    /// The types, of which an event must have one.
    pub types: Vec<TypeMatch>,
    /// The sources, of which an event must have one.
    pub sources: Vec<EventSource>,
    /// The states, in one of which an event must be.
    pub statuses: Vec<EventStatus>,
    /// How long the impact lasts; an event of unknown duration does not match any bound.
    pub duration: Bounds,
    /// How far ahead the impact is; an event that gives no notice, because it has started or names no time, has none left
    /// and so is below any bound.
    pub notice: Bounds,
    /// What Azure's own words must contain.
    pub description: Option<DescriptionMatch>,
}

/// Bounds on a length of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// It is shorter than this.
    pub below: Option<Duration>,
    /// It is at least this long.
    pub at_least: Option<Duration>,
}

impl Bounds {
    fn hold(self, length: Duration) -> bool {
        self.below.is_none_or(|below| length < below) && self.at_least.is_none_or(|least| length >= least)
    }

    fn is_given(self) -> bool {
        self != Self::default()
    }

    /// Whether every length within the other bounds is within these.
    fn cover(self, other: Self) -> bool {
        self.at_least.is_none_or(|least| other.at_least.is_some_and(|other| other >= least))
            && self.below.is_none_or(|below| other.below.is_some_and(|other| other <= below))
    }
}

/// An event type that a rule names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TypeMatch {
    /// This type.
    Is(EventType),
    /// Any type that this version does not know, written `Unknown`.
    Unknown,
}

impl TypeMatch {
    pub(super) fn matches(&self, event_type: &EventType) -> bool {
        match self {
            Self::Is(wanted) => wanted == event_type,
            Self::Unknown => matches!(event_type, EventType::Other(_)),
        }
    }
}

/// What the description of an event must contain.
#[derive(Clone, Debug)]
pub enum DescriptionMatch {
    /// This text, in any letter case.
    Contains(String),
    /// Something that this expression matches.
    Matches(Regex),
}

impl DescriptionMatch {
    fn holds(&self, description: &str) -> bool {
        match self {
            Self::Contains(text) => description.to_lowercase().contains(&text.to_lowercase()),
            Self::Matches(expression) => expression.is_match(description),
        }
    }
}

/// An expression is what it is written as.
impl PartialEq for DescriptionMatch {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Contains(a), Self::Contains(b)) => a == b,
            (Self::Matches(a), Self::Matches(b)) => a.as_str() == b.as_str(),
            _ => false,
        }
    }
}

impl Eq for DescriptionMatch {}

impl Match {
    /// Why the event does not match now, in words; `None` if it does.
    pub fn mismatch(&self, event: &ScheduledEvent, now: Now) -> Option<String> {
        if !self.types.is_empty() && !self.types.iter().any(|wanted| wanted.matches(&event.event_type)) {
            return Some(format!("type is {}", event.event_type));
        }
        if !self.sources.is_empty() && !self.sources.contains(&event.source) {
            return Some(format!("source is {}", event.source));
        }
        if !self.statuses.is_empty() && !self.statuses.contains(&event.status) {
            return Some(format!("status is {}", event.status));
        }
        match event.duration {
            None if self.duration.is_given() => return Some("duration is unknown".into()),
            Some(lasts) if !self.duration.hold(lasts) => return Some(format!("duration is {}", spoken(lasts))),
            _ => {}
        }
        let ahead = event.notice(now.wall).map(|at| now.until(at)).unwrap_or_default();
        if !self.notice.hold(ahead) {
            return Some(format!("notice is {}", spoken(ahead)));
        }
        if self.description.as_ref().is_some_and(|wanted| !wanted.holds(&event.description)) {
            return Some("description is another".into());
        }
        None
    }

    /// Whether this is known to match every event that the other matches.
    pub fn covers(&self, other: &Self) -> bool {
        all_in(&other.types, &self.types)
            && all_in(&other.sources, &self.sources)
            && all_in(&other.statuses, &self.statuses)
            && self.duration.cover(other.duration)
            && self.notice.cover(other.notice)
            && (self.description.is_none() || self.description == other.description)
    }
}

/// Whether a list matches nothing that another does not; an empty one matches everything.
fn all_in<T: PartialEq>(narrow: &[T], wide: &[T]) -> bool {
    wide.is_empty() || (!narrow.is_empty() && narrow.iter().all(|one| wide.contains(one)))
}
