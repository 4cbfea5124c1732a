//! What a role did to a node and why: the durable state of the agent, one annotation on the node itself.
//!
//! The record is written in the same patch as the cordon, so that neither exists without the other, and everything the
//! agent must remember over its own death is in it. A record that cannot be read is never guessed at: see
//! [`RecordError`].

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::marks::Claims;
use crate::notification::{NotifiedEvent, Topic};
use crate::policy::{Action, Ruling};
use crate::scheduled_event::{EventId, EventSource, EventStatus, EventType, ScheduledEvent, VmName};

/// The annotation with the agent's record.
pub const AGENT_ANNOTATION: &str = "remediator.dev/agent";

/// The annotation with the repairer's record; the agent reads only its claims.
pub const REPAIR_ANNOTATION: &str = "remediator.dev/repair";

/// The annotation by which a person stops remediator on a node: nothing of ours is begun or undone while it is there.
pub const HOLD_ANNOTATION: &str = "remediator.dev/hold";

/// The largest record, in bytes. Every watcher of nodes receives it with every change of the node.
pub const MOST_BYTES: usize = 4096;

/// How many pods that stayed are named in the record; all of them are counted.
pub const MOST_PODS_NAMED: usize = 20;

/// The format of the records that this version writes.
const VERSION: u32 = 1;

/// What the agent did to its node and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    version: u32,
    /// The virtual machine for which it was done.
    pub vm: VmName,
    /// The boot of the node at the first act; another one later tells that the machine did restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// The marks on the node that the agent needs.
    #[serde(default)]
    pub claims: Claims,
    /// The events that made or will make the agent act, in the order in which they were first seen.
    pub events: Vec<RecordedEvent>,
    /// The last drain, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<DrainRecord>,
    /// How often someone took the cordon away during the last drain and the agent put it back.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cordon_restored: u32,
    /// When the agent gave up putting the cordon back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncordoned_at: Option<Timestamp>,
    /// Whether an admission policy has refused the marks beside the cordon: they are not tried again for these events.
    #[serde(default, skip_serializing_if = "is_false")]
    pub marks_refused: bool,
    /// Whether the autoscaler was removing the node: if it gives that up, it takes any cordon away.
    #[serde(default, skip_serializing_if = "is_false")]
    pub removed_by_autoscaler: bool,
    /// What receivers outside the cluster still have to be told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub untold: Vec<Untold>,
    #[serde(flatten)]
    unknown: Unknown,
}

/// Members that another version has written: kept, so that a version between two others loses nothing.
type Unknown = serde_json::Map<String, serde_json::Value>;

/// An event that made or will make the agent act.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedEvent {
    /// The event's key.
    pub id: EventId,
    /// What is going to happen to the machine.
    #[serde(rename = "type")]
    pub event_type: EventType,
    /// Who asked for it.
    pub source: EventSource,
    /// How far it had come when it was last listed.
    pub status: EventStatus,
    /// When it was first seen.
    pub seen_at: Timestamp,
    /// The last `NotBefore` that was in the future when it was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// When it was first listed without a `NotBefore` in the future although none had passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without_notice_since: Option<Timestamp>,
    /// What is done about it: fixed at the first act. `None` while its time has not come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ruling: Option<Ruling>,
    /// In writing only: where in the list the first event with the same ruling stands, which is not repeated then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ruling_of: Option<usize>,
    /// When that was fixed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ruled_at: Option<Timestamp>,
    /// How the drain for it ended; `None` if it has not, or needs none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drained: Option<DrainResult>,
    /// When Azure was told that it may start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved_at: Option<Timestamp>,
    #[serde(flatten)]
    unknown: Unknown,
}

impl RecordedEvent {
    /// An event that is seen for the first time.
    pub fn new(event: &ScheduledEvent, seen_at: Timestamp) -> Self {
        Self {
            id: event.id.clone(),
            event_type: event.event_type.clone(),
            source: event.source.clone(),
            status: event.status.clone(),
            seen_at,
            not_before: None,
            without_notice_since: None,
            ruling: None,
            ruling_of: None,
            ruled_at: None,
            drained: None,
            approved_at: None,
            unknown: Unknown::new(),
        }
    }

    /// Whether a drain for it is still to come or to end.
    pub fn is_to_be_drained(&self) -> bool {
        self.drained.is_none() && self.drains()
    }

    /// Whether the node is drained for it.
    pub fn drains(&self) -> bool {
        self.ruling.as_ref().is_some_and(|ruling| ruling.action == Action::Drain)
    }
}

/// How a drain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DrainResult {
    /// Every pod that the policy wants gone is gone.
    Drained,
    /// Some pod stayed, or nobody could tell.
    Incomplete,
}

impl DrainResult {
    /// The word for metrics, logs and keys.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Drained => "drained",
            Self::Incomplete => "incomplete",
        }
    }
}

impl fmt::Display for DrainResult {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

/// A drain, running or done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DrainRecord {
    /// When it began, in whichever life of the agent.
    pub started_at: Timestamp,
    /// When it had to be done, as last written.
    pub deadline: Timestamp,
    /// When it ended; `None` while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// The pods that stayed, by `namespace/name`: the first [`MOST_PODS_NAMED`] of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<String>,
    /// How many pods stayed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_count: u32,
    /// Whether it was told that pods hold the drain up.
    #[serde(default, skip_serializing_if = "is_false")]
    pub blocked_told: bool,
    #[serde(flatten)]
    unknown: Unknown,
}

impl DrainRecord {
    /// A drain that is running.
    pub fn new(started_at: Timestamp, deadline: Timestamp) -> Self {
        Self {
            started_at,
            deadline,
            finished_at: None,
            left: Vec::new(),
            left_count: 0,
            blocked_told: false,
            unknown: Unknown::new(),
        }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes the field by reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes the field by reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}

/// Something that receivers outside the cluster are to be told. It stands in the record until they have been told, or
/// could not be: so the next life of the agent tells what this one could not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Untold {
    /// What makes it the same message when it is sent again.
    pub id: String,
    /// What it is about.
    pub topic: Topic,
    /// A reason in CamelCase.
    pub reason: String,
    /// Whether someone should look at it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub warning: bool,
    /// What happened, cut to a length that a record has room for.
    pub note: String,
    /// When.
    pub at: Timestamp,
    /// The event that it is about, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<NotifiedEvent>,
}

/// Why a record cannot be used. The agent then holds: it neither acts nor undoes, and says so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// It was written by a newer version.
    #[error(
        "annotation {AGENT_ANNOTATION} was written by a newer remediator (format {0}): upgrade this agent, or set \
         annotation {HOLD_ANNOTATION}, take the agent's marks off the node by hand, and then remove both annotations"
    )]
    Newer(u32),
    /// It is damaged.
    #[error(
        "annotation {AGENT_ANNOTATION} is damaged ({0}): set annotation {HOLD_ANNOTATION}, take the agent's marks off \
         the node by hand, and then remove both annotations"
    )]
    Damaged(String),
    /// It is about another machine.
    #[error(
        "annotation {AGENT_ANNOTATION} is about machine {recorded}, but this is {own}: is NODE_NAME or --node right? If so, \
         set annotation {HOLD_ANNOTATION}, take the agent's marks off the node by hand, and then remove both annotations"
    )]
    OtherMachine {
        /// The machine in the record.
        recorded: VmName,
        /// This machine.
        own: VmName,
    },
    /// The other role's record is damaged, so nobody knows whether it needs the cordon.
    #[error(
        "annotation {REPAIR_ANNOTATION} is damaged ({0}), so the cordon stays: remove that annotation if no repair of \
         this node is under way"
    )]
    OtherRole(String),
}

impl Record {
    /// An empty record for a virtual machine.
    pub fn new(vm: VmName) -> Self {
        Self {
            version: VERSION,
            vm,
            boot_id: None,
            claims: Claims::default(),
            events: Vec::new(),
            drain: None,
            cordon_restored: 0,
            uncordoned_at: None,
            marks_refused: false,
            removed_by_autoscaler: false,
            untold: Vec::new(),
            unknown: Unknown::new(),
        }
    }

    /// Reads the annotation's text.
    pub fn from_annotation(text: &str) -> Result<Self, RecordError> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let damaged = |error: serde_json::Error| RecordError::Damaged(error.to_string());
        match serde_json::from_str(text).map_err(damaged)? {
            Version { version: VERSION } => {
                serde_json::from_str::<Self>(text).map_err(damaged)?.with_rulings_repeated()
            }
            Version { version: 0 } => Err(RecordError::Damaged("there is no format 0".into())),
            Version { version } => Err(RecordError::Newer(version)),
        }
    }

    /// The annotation's text, at most [`MOST_BYTES`] long: where names of pods would not fit, only their number is
    /// kept, and what is untold is cut short.
    pub fn to_annotation(&self) -> String {
        let mut record = self.clone();
        record.write_rulings_once();
        loop {
            // A record holds only texts, numbers and times, and no map, so nothing in it can fail to be written.
            let text = serde_json::to_string(&record).unwrap_or_default();
            if text.len() <= MOST_BYTES {
                return text;
            }
            let shorter = record.drain.as_mut().and_then(|drain| drain.left.pop()).is_some();
            if !shorter && !record.shorten_untold() {
                return text;
            }
        }
    }

    /// Events of one rule have the same ruling, and nothing in a record is as long.
    fn write_rulings_once(&mut self) {
        for index in 1..self.events.len() {
            let (earlier, later) = self.events.split_at_mut(index);
            let Some(event) = later.first_mut().filter(|event| event.ruling.is_some()) else { continue };
            event.ruling_of = earlier.iter().position(|first| first.ruling == event.ruling);
            event.ruling = event.ruling.take().filter(|_| event.ruling_of.is_none());
        }
    }

    fn with_rulings_repeated(mut self) -> Result<Self, RecordError> {
        for index in 0..self.events.len() {
            let Some(first) = self.events[index].ruling_of.take() else { continue };
            let ruling = self.events.get(first).and_then(|event| event.ruling.clone());
            let missing =
                || RecordError::Damaged(format!("event {index} refers to the ruling of event {first}, which has none"));
            self.events[index].ruling = Some(ruling.ok_or_else(missing)?);
        }
        Ok(self)
    }

    /// Takes away from what is untold: first of the notes, then the oldest altogether; `false` if nothing is left.
    fn shorten_untold(&mut self) -> bool {
        const SHORT: usize = 80;
        if let Some(long) = self.untold.iter_mut().find(|untold| untold.note.chars().count() > 2 * SHORT) {
            long.note = long.note.chars().take(SHORT).chain(['…']).collect();
            return true;
        }
        let some = !self.untold.is_empty();
        if some {
            self.untold.remove(0);
        }
        some
    }

    /// The recorded event with this key.
    pub fn event(&self, id: &EventId) -> Option<&RecordedEvent> {
        self.events.iter().find(|event| event.id == *id)
    }
}

/// The claims in the other role's annotation.
pub fn claims_of_other_role(annotation: Option<&str>) -> Result<Claims, RecordError> {
    #[derive(Deserialize)]
    struct Claiming {
        #[serde(default)]
        claims: Claims,
    }
    let Some(text) = annotation else { return Ok(Claims::default()) };
    match serde_json::from_str(text) {
        Ok(Claiming { claims }) => Ok(claims),
        Err(error) => Err(RecordError::OtherRole(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::marks::Claim;

    fn record() -> Record {
        let at: Timestamp = "2026-04-11T22:00:00Z".parse().unwrap();
        let mut record = Record::new(VmName::new("aks-np1-12345678-vmss_24"));
        record.claims.cordon = Some(Claim::Ours);
        let body = r#"{"Events":[{"EventId":"C7061BAC-AFDC-4513-B24B-AA5F13A16123","EventType":"Redeploy","Resources":["vm"]}]}"#;
        let document = crate::scheduled_event::decode(body.as_bytes()).unwrap();
        let event = RecordedEvent::new(&document.events[0], at);
        record.events.push(RecordedEvent { not_before: Some(at), drained: Some(DrainResult::Incomplete), ..event });
        let left = vec!["prod/db-1".into()];
        record.drain = Some(DrainRecord { finished_at: Some(at), left, left_count: 1, ..DrainRecord::new(at, at) });
        record
    }

    #[test]
    fn a_record_survives_being_written_and_read() {
        assert_eq!(Record::from_annotation(&record().to_annotation()), Ok(record()));
    }

    #[test]
    fn a_record_never_grows_beyond_its_limit_and_keeps_the_count() {
        let mut record = record();
        let long = format!("{}/{}", "n".repeat(63), "p".repeat(253));
        let drain = record.drain.as_mut().unwrap();
        drain.left = vec![long; MOST_PODS_NAMED];
        drain.left_count = 250;
        let text = record.to_annotation();
        assert!(text.len() <= MOST_BYTES, "{} bytes", text.len());
        let drain = Record::from_annotation(&text).unwrap().drain.unwrap();
        assert_eq!(drain.left_count, 250);
        assert!(drain.left.len() > 5, "as many names as fit are kept");
    }

    #[test]
    fn a_ruling_that_several_events_share_is_written_once_and_read_for_each() {
        let ruling = |rule: &str| Ruling {
            policy: "default".into(),
            rule: rule.into(),
            action: crate::policy::Action::Cordon,
            profile: None,
            start: crate::policy::Start::default(),
            approve: crate::policy::Approve::default(),
            marking: crate::marks::Marking::default(),
            nodes_at_once: None,
        };
        let mut record = record();
        let event = record.events.remove(0);
        for rule in [Some("a"), None, Some("b"), Some("a"), Some("b"), Some("a")] {
            record.events.push(RecordedEvent { ruling: rule.map(ruling), ..event.clone() });
        }
        let text = record.to_annotation();
        assert_eq!(text.matches(r#""policy":"default""#).count(), 2, "{text}");
        assert_eq!(Record::from_annotation(&text), Ok(record));
        let nobodys = text.replace(r#""rulingOf":2"#, r#""rulingOf":1"#);
        assert!(matches!(Record::from_annotation(&nobodys), Err(RecordError::Damaged(_))));
        let beyond = text.replace(r#""rulingOf":2"#, r#""rulingOf":9"#);
        assert!(matches!(Record::from_annotation(&beyond), Err(RecordError::Damaged(_))));
    }

    #[test]
    fn messages_are_cut_short_before_they_fill_a_record_in_any_script() {
        for letter in ["a", "要", "\u{1f525}"] {
            let mut record = record();
            let untold = |number: usize| Untold {
                id: number.to_string(),
                topic: Topic::Failed,
                reason: "NodeDrainError".into(),
                warning: true,
                note: letter.repeat(480),
                at: record.events[0].seen_at,
                event: None,
            };
            record.untold = (0..8).map(untold).collect();
            let text = record.to_annotation();
            assert!(text.len() <= MOST_BYTES, "{letter}: {} bytes", text.len());
            let read = Record::from_annotation(&text).unwrap();
            assert!(read.untold.len() >= 4, "{letter}: the notes go before the messages");
            assert_eq!(read.untold.last().unwrap().id, "7", "{letter}: the newest is kept");
            assert_eq!(read.to_annotation(), text, "{letter}: what was cut once is not cut again");
        }
    }

    #[test]
    fn a_damaged_record_or_one_of_a_newer_version_is_not_guessed_at() {
        assert_eq!(Record::from_annotation(r#"{"version":2,"anything":1}"#), Err(RecordError::Newer(2)));
        for text in ["", "{", "[]", r#"{"version":0}"#, r#"{"version":1,"vm":"a"}"#, r#"{"vm":"a","events":[]}"#] {
            assert!(matches!(Record::from_annotation(text), Err(RecordError::Damaged(_))), "{text}");
        }
    }

    #[test]
    fn the_claim_of_the_other_role_is_read_from_any_version_of_its_record() {
        let cordon = |text| claims_of_other_role(text).map(|claims| claims.cordon);
        assert_eq!(cordon(None), Ok(None));
        assert_eq!(cordon(Some("{}")), Ok(None));
        let ours = r#"{"version":9,"claims":{"cordon":"ours","lock":"ours"},"step":"reboot"}"#;
        assert_eq!(cordon(Some(ours)), Ok(Some(Claim::Ours)));
        assert!(matches!(cordon(Some("?")), Err(RecordError::OtherRole(_))));
    }

    #[test]
    fn what_another_version_has_written_beside_is_kept() {
        let text = r#"{"version":1,"vm":"vm","claims":{"cordon":"ours","lock":"ours"},"events":[{"id":"e","type":"Reboot","source":"User","status":"Started","seenAt":"2026-04-11T22:00:00Z","asked":true}],"drain":{"startedAt":"2026-04-11T22:00:00Z","deadline":"2026-04-11T22:00:00Z","slot":"a"},"slot":7,"weight":2.1000000000000002e+27}"#;
        assert_eq!(Record::from_annotation(text).unwrap().to_annotation(), text);
    }

    proptest::proptest! {
        #[test]
        fn a_mangled_record_is_a_record_or_an_error(from in 0_usize..600, length in 0_usize..30, insert in "[ -~]{0,8}") {
            let mut text: Vec<char> = record().to_annotation().chars().collect();
            let from = from.min(text.len());
            let to = (from + length).min(text.len());
            text.splice(from..to, insert.chars());
            let text: String = text.into_iter().collect();
            if let Ok(record) = Record::from_annotation(&text) {
                proptest::prop_assert_eq!(Record::from_annotation(&record.to_annotation()), Ok(record));
            }
        }
    }
}
