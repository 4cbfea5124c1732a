//! A published event: its type, source and identifier, its phases and what moves it on, and how it is changed.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize, Serializer};

use crate::clock::{Period, Wait, later, whole_second_at_or_after};

/// What kind of impact an event has.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub enum EventType {
    /// The VM pauses for a few seconds; memory and open files survive.
    Freeze,
    /// The VM restarts; memory is lost.
    Reboot,
    /// The VM moves to another host; memory and ephemeral disks are lost.
    Redeploy,
    /// The spot VM is evicted.
    Preempt,
    /// The VM is deleted.
    Terminate,
    /// A type that no client knows yet.
    #[serde(rename = "other")]
    Other(String),
}

impl EventType {
    /// As the document spells it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Freeze => "Freeze",
            Self::Reboot => "Reboot",
            Self::Redeploy => "Redeploy",
            Self::Preempt => "Preempt",
            Self::Terminate => "Terminate",
            Self::Other(name) => name,
        }
    }
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for EventType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// Who caused an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
pub enum EventSource {
    /// Azure itself.
    Platform,
    /// Somebody with rights on the VM.
    User,
}

impl EventSource {
    /// As the document spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Platform => "Platform",
            Self::User => "User",
        }
    }
}

/// Where an event is in its life. Only `Scheduled` and `Started` are ever listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
pub enum Phase {
    /// Announced.
    Scheduled,
    /// Its impact has begun.
    Started,
    /// Over, no longer listed.
    Finished,
    /// Withdrawn before it started, no longer listed.
    Cancelled,
}

impl Phase {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "Scheduled",
            Self::Started => "Started",
            Self::Finished => "Finished",
            Self::Cancelled => "Cancelled",
        }
    }
}

/// The identifier that the document gives an event: a GUID, compared without letter case by Azure.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct EventId(pub(crate) String);

impl EventId {
    /// As the document spells it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for EventId {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a change to a published event may say; what it does not say stays as it is.
///
/// The status may go from Scheduled to Started only; an event ends through [`Mock::finish`](crate::Mock::finish) or
/// [`Mock::cancel`](crate::Mock::cancel).
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EventChange {
    /// The new status: `Started`, or `Scheduled` if it is that already.
    pub status: Option<Phase>,
    /// The new `NotBefore`, as a time.
    pub not_before: Option<Timestamp>,
    /// The new `NotBefore`, counted from now.
    pub notice: Option<Period>,
    /// The new `Description`.
    pub description: Option<String>,
    /// The new `DurationInSeconds`.
    pub duration_in_seconds: Option<i64>,
    /// The new `Resources`.
    pub resources: Option<Vec<String>>,
}

impl EventChange {
    /// What is contradictory in it, if anything.
    pub fn contradiction(&self) -> Option<&'static str> {
        if self.not_before.is_some() && self.notice.is_some() {
            return Some("`notBefore` and `notice` say the same thing; give one of them");
        }
        matches!(self.status, Some(Phase::Finished | Phase::Cancelled))
            .then_some("a status can be changed to `Started` only; to end an event, finish or cancel it")
    }
}

/// An event that was published.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// Its `EventId`.
    pub id: EventId,
    /// Its name in the scenario, if it has one.
    pub name: Option<String>,
    /// Its `EventType`.
    #[serde(rename = "type")]
    pub kind: EventType,
    /// The VMs that it is about.
    pub vms: Vec<String>,
    /// Their placement group, or their name if they have none: whose document lists it.
    pub group: String,
    /// What its `Resources` says.
    pub resources: Vec<String>,
    /// Its `EventSource`.
    pub source: EventSource,
    /// Its `Description`.
    pub description: String,
    /// Its `DurationInSeconds`.
    pub duration_in_seconds: i64,
    /// The deletion that it is coupled with, if any.
    pub deletion: Option<String>,
    /// Where it is in its life.
    pub phase: Phase,
    /// Since when it is there.
    pub phase_since: Timestamp,
    /// When it was published.
    pub published: Timestamp,
    /// Its `NotBefore`.
    pub not_before: Timestamp,
    /// When it was first approved.
    pub approved: Option<Timestamp>,
    #[serde(skip)]
    pub(super) plan: Plan,
}

/// How the life of an event goes on if nobody interferes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Plan {
    pub(super) late: Wait,
    pub(super) other_tenants: Wait,
    pub(super) started_for: Wait,
    pub(super) speed: f64,
}

/// What a document says about one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) id: String,
    pub(crate) status: &'static str,
    pub(crate) kind: EventType,
    pub(crate) resources: Vec<String>,
    pub(crate) not_before: Option<Timestamp>,
    pub(crate) description: String,
    pub(crate) source: &'static str,
    pub(crate) duration_in_seconds: i64,
}

impl Event {
    /// Whether documents list it.
    pub fn is_listed(&self) -> bool {
        matches!(self.phase, Phase::Scheduled | Phase::Started)
    }

    /// Whether `key` is its identifier (in any letter case) or its name.
    pub(crate) fn is_called(&self, key: &str) -> bool {
        self.id.0.eq_ignore_ascii_case(key) || self.name.as_deref() == Some(key)
    }

    /// When its next phase begins by itself, and which that is.
    ///
    /// `deletion` are the other listed events of the same deletion. The instant may be past: what held the event back
    /// may have ended later than what it was waiting for.
    pub(crate) fn next_phase<'a>(&self, deletion: impl Iterator<Item = &'a Self>) -> Option<(Timestamp, Phase)> {
        match self.phase {
            Phase::Scheduled => {
                let agreed = self.agreed().and_then(|own| {
                    deletion.map(Self::ready).try_fold(own, |latest, other| other.map(|other| latest.max(other)))
                });
                earliest(agreed, self.timeout()).map(|at| (at, Phase::Started))
            }
            Phase::Started => {
                self.plan.started_for.end(self.phase_since, self.plan.speed).map(|at| (at, Phase::Finished))
            }
            Phase::Finished | Phase::Cancelled => None,
        }
    }

    /// When everybody who is asked has agreed to the start.
    fn agreed(&self) -> Option<Timestamp> {
        self.approved.and_then(|at| self.plan.other_tenants.end(at, self.plan.speed))
    }

    /// When it starts without approval.
    fn timeout(&self) -> Option<Timestamp> {
        self.plan.late.end(self.not_before, self.plan.speed)
    }

    /// Since when it holds back no other event of its deletion.
    fn ready(&self) -> Option<Timestamp> {
        match self.phase {
            Phase::Scheduled => earliest(self.agreed(), self.timeout()),
            Phase::Started | Phase::Finished | Phase::Cancelled => Some(self.phase_since),
        }
    }

    pub(crate) fn enter(&mut self, phase: Phase, at: Timestamp) {
        self.phase = phase;
        self.phase_since = at;
    }

    pub(crate) fn apply(&mut self, change: &EventChange, now: Timestamp) {
        if let Some(not_before) = change.not_before {
            self.not_before = whole_second_at_or_after(not_before);
        }
        if let Some(notice) = change.notice {
            self.not_before = whole_second_at_or_after(later(now, notice.at_speed(self.plan.speed)));
        }
        if let Some(description) = &change.description {
            self.description.clone_from(description);
        }
        if let Some(seconds) = change.duration_in_seconds {
            self.duration_in_seconds = seconds;
        }
        if let Some(resources) = &change.resources {
            self.resources.clone_from(resources);
        }
        if change.status == Some(Phase::Started) && self.phase == Phase::Scheduled {
            self.enter(Phase::Started, now);
        }
    }

    /// What a document says about it.
    pub(crate) fn entry(&self) -> Entry {
        Entry {
            id: self.id.0.clone(),
            status: self.phase.as_str(),
            kind: self.kind.clone(),
            resources: self.resources.clone(),
            not_before: (self.phase == Phase::Scheduled).then_some(self.not_before),
            description: self.description.clone(),
            source: self.source.as_str(),
            duration_in_seconds: self.duration_in_seconds,
        }
    }
}

fn earliest(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    one.into_iter().chain(other).min()
}
