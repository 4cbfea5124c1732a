//! What people are told through webhooks.

use std::fmt;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::record::RecordedEvent;
use crate::scheduled_event::{NotBefore, ScheduledEvent};

/// What a notification is about; a receiver names those that it wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Topic {
    /// A scheduled event was announced, has changed or is over.
    Event,
    /// The node is cordoned or drained for an event.
    Drain,
    /// Pods cannot be evicted.
    Blocked,
    /// Something was not achieved: pods were left at the deadline, or a write is denied.
    Failed,
    /// The node was given back.
    Released,
}

impl Topic {
    /// All topics.
    pub const ALL: [Self; 5] = [Self::Event, Self::Drain, Self::Blocked, Self::Failed, Self::Released];

    /// The word for policy files and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Event => "event",
            Self::Drain => "drain",
            Self::Blocked => "blocked",
            Self::Failed => "failed",
            Self::Released => "released",
        }
    }
}

impl fmt::Display for Topic {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.as_str())
    }
}

/// The scheduled event that a notification is about, in Azure's words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NotifiedEvent {
    /// Its `EventId`.
    pub id: String,
    /// Its type, such as `Redeploy`.
    #[serde(rename = "type")]
    pub event_type: String,
    /// Who asked for it.
    pub source: String,
    /// How far it has come.
    pub status: String,
    /// The moment before which it does not begin, if it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
}

impl From<&ScheduledEvent> for NotifiedEvent {
    fn from(event: &ScheduledEvent) -> Self {
        Self {
            id: event.id.as_str().into(),
            event_type: event.event_type.to_string(),
            source: event.source.to_string(),
            status: event.status.to_string(),
            not_before: match event.not_before {
                NotBefore::At(at) => Some(at),
                NotBefore::Absent | NotBefore::Unreadable => None,
            },
        }
    }
}

impl From<&RecordedEvent> for NotifiedEvent {
    fn from(event: &RecordedEvent) -> Self {
        Self {
            id: event.id.as_str().into(),
            event_type: event.event_type.to_string(),
            source: event.source.to_string(),
            status: event.status.to_string(),
            not_before: event.not_before,
        }
    }
}

/// Something that people are told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Notification {
    /// The same when the same is told again, also by another life of this process.
    pub id: String,
    /// What it is about.
    pub topic: Topic,
    /// A reason in CamelCase, as Events on the node have it.
    pub reason: String,
    /// Whether someone should look at it.
    pub warning: bool,
    /// What happened, in words.
    pub note: String,
    /// When.
    pub at: Timestamp,
    /// The name of the node.
    pub node: String,
    /// The scheduled event behind it, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<NotifiedEvent>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_is_written_in_files_as_it_is_named() {
        for topic in Topic::ALL {
            assert_eq!(serde_json::to_string(&topic).unwrap(), format!("\"{topic}\""));
        }
    }
}
