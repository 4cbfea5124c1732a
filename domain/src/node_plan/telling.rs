//! What people are told, in words that an operator understands without the source.

use std::time::Duration;

use jiff::Timestamp;

use super::start_of;
use crate::drain::Outcome;
use crate::drain::pod::PodName;
use crate::fingerprint::fingerprint;
use crate::notification::{NotifiedEvent, Topic};
use crate::policy::{Action, Judgement, Ruling};
use crate::record::{DrainRecord, DrainResult, RecordedEvent, Untold};
use crate::scheduled_event::{EventId, EventStatus, EventType, NotBefore, ScheduledEvent};
use crate::time::{Now, spoken, stamp};

/// How many characters of a note receivers outside the cluster are told.
const LONGEST_UNTOLD: usize = 320;

/// Something to tell people about, once for each key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// What makes it the same announcement when it is made again, also by another life of the agent.
    pub key: String,
    /// A reason in CamelCase, as Kubernetes Events have them.
    pub reason: String,
    /// Whether someone should look at it.
    pub warning: bool,
    /// What happened, why, and what comes next.
    pub note: String,
    /// What receivers outside the cluster know it by; `None` if they are not told.
    pub topic: Option<Topic>,
    /// The event that it is about, if it is about one.
    pub event: Option<NotifiedEvent>,
}

impl Announcement {
    pub(super) fn new(key: impl Into<String>, reason: impl Into<String>, note: impl Into<String>) -> Self {
        Self { key: key.into(), reason: reason.into(), warning: false, note: note.into(), topic: None, event: None }
    }

    pub(super) fn warning_if(self, warning: bool) -> Self {
        Self { warning, ..self }
    }

    pub(super) fn on(self, topic: Topic) -> Self {
        Self { topic: Some(topic), ..self }
    }

    /// What stands in the record until it is told; `uid` is the node's.
    pub(super) fn untold(&self, topic: Topic, uid: &str, at: Timestamp) -> Untold {
        Untold {
            id: format!("{:016x}", fingerprint(&format!("{uid}/{}/{}", self.reason, self.key))),
            topic,
            reason: self.reason.clone(),
            warning: self.warning,
            note: self.note.chars().take(LONGEST_UNTOLD).collect(),
            at,
            event: self.event.clone(),
        }
    }
}

/// An event is listed, in this state, and this is what the policy says.
pub(super) fn sighting(event: &ScheduledEvent, judgement: &Judgement, now: Now) -> Announcement {
    let status = match &event.status {
        EventStatus::Other(_) => "Listed",
        status => status.as_str(),
    };
    let when = match event.not_before {
        NotBefore::At(at) if at > now.wall => {
            format!(", not before {} (in {})", stamp(at), spoken(now.until(at)))
        }
        NotBefore::At(at) => format!(", due since {}", stamp(at)),
        NotBefore::Absent => String::new(),
        NotBefore::Unreadable => ", at a time that could not be read".into(),
    };
    let source = &event.source;
    let description = match event.description.trim() {
        "" => String::new(),
        text => format!(" Azure: \u{201c}{}\u{201d}", text.chars().take(400).collect::<String>()),
    };
    let has_started = if event.status == EventStatus::Started { " has started" } else { "" };
    let mut note = format!("{} by {source}{has_started}{when}: {judgement}.{description}", event.event_type);
    if let Judgement::Ruled(ruling) = judgement {
        let start = start_of(ruling, event, now.wall);
        if ruling.action > Action::None && start > now.wall {
            note = format!("{note} Begins at {}.", stamp(start));
        }
    }
    let acts = judgement.action() > Action::None;
    let key = format!("{}/{status}", event.id.as_str().to_ascii_lowercase());
    Announcement {
        topic: acts.then_some(Topic::Event),
        event: Some(event.into()),
        ..Announcement::new(key, format!("{}{status}", type_in_reason(&event.event_type)), note).warning_if(acts)
    }
}

/// There is less time than the rule wants for a drain.
pub(super) fn too_late(event: &EventId, ruling: &Ruling) -> Announcement {
    let key = format!("{}/too-late", event.as_str().to_ascii_lowercase());
    let least = ruling.start.at_least.map_or_else(String::new, |least| format!(", which wants {}", spoken(least)));
    let note = format!(
        "The node is cordoned, but not drained any more: too little time is left for rule {}/{}{least}.",
        ruling.policy, ruling.rule
    );
    Announcement::new(key, "NodeDrainError", note).on(Topic::Failed).warning_if(true)
}

/// Azure was told that an event may start.
pub(super) fn approved(event: &ScheduledEvent) -> Announcement {
    let key = format!("{}/approved", event.id.as_str().to_ascii_lowercase());
    let note = format!("{} need not wait any longer: Azure was told that it may start.", event.event_type);
    let reason = format!("{}Approved", type_in_reason(&event.event_type));
    Announcement { event: Some(event.into()), ..Announcement::new(key, reason, note).on(Topic::Event) }
}

/// An event is gone.
pub(super) fn farewell(event: &RecordedEvent, wall: Timestamp) -> Announcement {
    let due = event.without_notice_since.is_some()
        || event.approved_at.is_some()
        || event.not_before.is_some_and(|not_before| not_before <= wall);
    let (word, note) = match event.status {
        EventStatus::Started => ("Ended", format!("{} is over.", event.event_type)),
        _ if due => ("Ended", format!("{} is no longer listed; nobody saw whether it took place.", event.event_type)),
        _ => ("Cancelled", format!("{} was cancelled before it started.", event.event_type)),
    };
    let key = format!("{}/{word}", event.id.as_str().to_ascii_lowercase());
    let reason = format!("{}{word}", type_in_reason(&event.event_type));
    Announcement { event: Some(event.into()), ..Announcement::new(key, reason, note).on(Topic::Event) }
}

/// A drain has ended.
pub(super) fn drain_ended(drain: &DrainRecord, outcome: &Outcome, at: Timestamp) -> Announcement {
    let Outcome { result, left, evicted, deleted } = outcome;
    let lasted = spoken(Duration::try_from(at.duration_since(drain.started_at)).unwrap_or_default());
    let pods = if *evicted == 1 { "pod" } else { "pods" };
    let went = match deleted {
        0 => format!("{evicted} {pods} evicted"),
        _ => format!("{evicted} {pods} evicted, {deleted} deleted without asking their disruption budget"),
    };
    let (reason, topic, note) = match (result, left.as_slice()) {
        (DrainResult::Drained, []) => ("NodeDrainEnd", Topic::Drain, format!("Drained in {lasted}: {went}.")),
        (DrainResult::Drained, left) => {
            let note = format!("Drained in {lasted}: {went}; left as asked for: {}.", naming(left));
            ("NodeDrainEnd", Topic::Drain, note)
        }
        (DrainResult::Incomplete, []) => {
            let note = format!("Drain ended after {lasted} before anyone could list what was left.");
            ("NodeDrainError", Topic::Failed, note)
        }
        (DrainResult::Incomplete, left) => {
            let note = format!("Drain ended after {lasted}: {went}; left: {}.", naming(left));
            ("NodeDrainError", Topic::Failed, note)
        }
    };
    let warning = *result == DrainResult::Incomplete || *deleted > 0 || !left.is_empty();
    Announcement::new(format!("drain/{}/{result}", drain.started_at), reason, note).on(topic).warning_if(warning)
}

/// Pods hold a drain up.
pub(super) fn drain_blocked(drain: &DrainRecord, blocked: &[(PodName, String)]) -> Announcement {
    let (pods, hold) = if blocked.len() == 1 { ("pod", "holds") } else { ("pods", "hold") };
    let note = format!("{} {pods} {hold} the drain up: {}.", blocked.len(), naming(blocked));
    let key = format!("drain/{}/blocked", drain.started_at);
    Announcement::new(key, "NodeDrainBlocked", note).on(Topic::Blocked).warning_if(true)
}

/// The type at the front of a reason, which must be one word.
fn type_in_reason(event_type: &EventType) -> String {
    let word: String = event_type.as_str().chars().filter(char::is_ascii_alphanumeric).take(60).collect();
    if word.is_empty() { "Event".into() } else { word }
}

fn naming(left: &[(PodName, String)]) -> String {
    const MOST: usize = 5;
    let mut text: Vec<String> = left.iter().take(MOST).map(|(name, why)| format!("{name} ({why})")).collect();
    if left.len() > MOST {
        text.push(format!("and {} more", left.len() - MOST));
    }
    text.join(", ")
}
