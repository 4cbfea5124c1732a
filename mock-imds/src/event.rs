//! A scheduled event: what is asked for ([`EventSpec`]), what becomes of it (the state machine), how it is changed.
//!
//! ```text
//!              approved (and other tenants, and the rest of the deletion), or NotBefore
//!  Scheduled ─────────────────────────────────────────────────────────────────────────▶ Started ──▶ Finished
//!      │                                                                                   ▲
//!      ├──────────▶ Cancelled                              hardware failure: published as ─┘
//! ```
//!
//! The machine is a function of what it was told and when: nothing here reads a clock, so an event that nobody looked
//! at for an hour has the same history as one that was polled every second.
//!
//! The rules are those of <https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events> and, for the
//! coupling of deletions,
//! <https://learn.microsoft.com/azure/virtual-machine-scale-sets/virtual-machine-scale-sets-terminate-notification>.

use std::{fmt, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize, Serializer};
use serde_saphyr::{Location, Spanned};

use crate::{
    clock::{Period, Wait, later, whole_second_at_or_after},
    document::Entry,
};

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

    /// The notice that Azure documents as the least for the type.
    fn usual_notice(&self) -> Duration {
        match self {
            Self::Freeze | Self::Reboot | Self::Other(_) => Duration::from_mins(15),
            Self::Redeploy => Duration::from_mins(10),
            Self::Preempt => Duration::from_secs(30),
            Self::Terminate => Duration::from_mins(5),
        }
    }

    /// How long such an event is usually listed as Started.
    fn usual_time_started(&self) -> Duration {
        match self {
            Self::Freeze => Duration::from_mins(5),
            Self::Reboot | Self::Redeploy | Self::Other(_) => Duration::from_mins(10),
            Self::Preempt | Self::Terminate => Duration::from_mins(1),
        }
    }

    fn usual_description(&self, source: EventSource) -> &'static str {
        match (self, source) {
            (Self::Freeze | Self::Reboot, EventSource::Platform) => "Host server is undergoing maintenance.",
            (Self::Redeploy, EventSource::Platform) => "Host server is undergoing an emergency repair.",
            (Self::Reboot, EventSource::User) => {
                "Virtual machine is going to be restarted as requested by authorized user."
            }
            (Self::Redeploy, EventSource::User) => {
                "Virtual machine is going to be redeployed as requested by authorized user."
            }
            _ => "",
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

/// An event to be published. What is not said takes the value that Azure usually has for the type.
///
/// ```
/// use std::time::Duration;
/// use mock_imds::{EventSource, EventSpec};
///
/// let spec = EventSpec::redeploy("aks-np1-12345678-vmss_0")
///     .notice(Duration::from_mins(10))
///     .source(EventSource::User)
///     .until_finished();
/// # let _ = spec;
/// ```
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EventSpec {
    pub(crate) name: Option<Spanned<String>>,
    pub(crate) id: Option<Spanned<String>>,
    #[serde(rename = "type")]
    kind: EventType,
    pub(crate) vms: Vec<Spanned<String>>,
    resources: Option<Vec<String>>,
    notice: Option<Period>,
    #[serde(default)]
    started: bool,
    #[serde(default)]
    late: Wait,
    #[serde(default)]
    other_tenants: Period,
    started_for: Option<Wait>,
    source: Option<EventSource>,
    description: Option<String>,
    duration_in_seconds: Option<i64>,
    deletion: Option<String>,
}

/// A value that no file says.
pub(crate) fn unplaced<T>(value: T) -> Spanned<T> {
    Spanned::new(value, Location::UNKNOWN, Location::UNKNOWN)
}

impl EventSpec {
    /// An event of the given type for one VM.
    pub fn new(kind: EventType, vm: impl Into<String>) -> Self {
        Self {
            name: None,
            id: None,
            kind,
            vms: vec![unplaced(vm.into())],
            resources: None,
            notice: None,
            started: false,
            late: Wait::default(),
            other_tenants: Period::default(),
            started_for: None,
            source: None,
            description: None,
            duration_in_seconds: None,
            deletion: None,
        }
    }

    /// A pause of a few seconds, 15 minutes ahead.
    pub fn freeze(vm: impl Into<String>) -> Self {
        Self::new(EventType::Freeze, vm)
    }

    /// A restart, 15 minutes ahead.
    pub fn reboot(vm: impl Into<String>) -> Self {
        Self::new(EventType::Reboot, vm)
    }

    /// A move to another host, 10 minutes ahead.
    pub fn redeploy(vm: impl Into<String>) -> Self {
        Self::new(EventType::Redeploy, vm)
    }

    /// A spot eviction, 30 seconds ahead.
    pub fn preempt(vm: impl Into<String>) -> Self {
        Self::new(EventType::Preempt, vm)
    }

    /// A deletion, 5 minutes ahead.
    pub fn terminate(vm: impl Into<String>) -> Self {
        Self::new(EventType::Terminate, vm)
    }

    /// A failed host: a Reboot that is Started from the beginning.
    pub fn hardware_failure(vm: impl Into<String>) -> Self {
        Self::reboot(vm).started().description("Virtual machine has encountered a failure.")
    }

    /// Names the event for [`Mock`](crate::Mock)'s methods and for other steps of a scenario.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(unplaced(name.into()));
        self
    }

    /// Sets the `EventId`; else it is made from the seed.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(unplaced(id.into()));
        self
    }

    /// Adds a VM of the same placement group.
    #[must_use]
    pub fn also(mut self, vm: impl Into<String>) -> Self {
        self.vms.push(unplaced(vm.into()));
        self
    }

    /// Sets what `Resources` says, if it is not the names of the VMs.
    #[must_use]
    pub fn resources(mut self, resources: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.resources = Some(resources.into_iter().map(Into::into).collect());
        self
    }

    /// Sets the time from publication to `NotBefore`.
    #[must_use]
    pub fn notice(mut self, notice: Duration) -> Self {
        self.notice = Some(Period(notice));
        self
    }

    /// Published as Started at once, without notice.
    #[must_use]
    pub fn started(mut self) -> Self {
        self.started = true;
        self
    }

    /// Starts so long after `NotBefore` and is listed as Scheduled, with a past `NotBefore`, until then.
    #[must_use]
    pub fn late(mut self, late: Duration) -> Self {
        self.late = Wait::For(Period(late));
        self
    }

    /// Never starts because of `NotBefore`: only approval or [`Mock::start`](crate::Mock::start) starts it.
    #[must_use]
    pub fn until_started(mut self) -> Self {
        self.late = Wait::Forever;
        self
    }

    /// After the approval, other tenants of the host take so long to agree (at most until `NotBefore`).
    #[must_use]
    pub fn other_tenants(mut self, wait: Duration) -> Self {
        self.other_tenants = Period(wait);
        self
    }

    /// Vanishes so long after it started.
    #[must_use]
    pub fn started_for(mut self, time: Duration) -> Self {
        self.started_for = Some(Wait::For(Period(time)));
        self
    }

    /// Once started, is listed until [`Mock::finish`](crate::Mock::finish).
    #[must_use]
    pub fn until_finished(mut self) -> Self {
        self.started_for = Some(Wait::Forever);
        self
    }

    /// Sets `EventSource`.
    #[must_use]
    pub fn source(mut self, source: EventSource) -> Self {
        self.source = Some(source);
        self
    }

    /// Sets `Description`.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// Sets `DurationInSeconds`: 0 is no impact, -1 is unknown.
    #[must_use]
    pub fn duration_in_seconds(mut self, seconds: i64) -> Self {
        self.duration_in_seconds = Some(seconds);
        self
    }

    /// Couples the event with others of the same deletion: an approved one waits while another is pending.
    #[must_use]
    pub fn deletion(mut self, deletion: impl Into<String>) -> Self {
        self.deletion = Some(deletion.into());
        self
    }

    /// The event, published now with this identifier to this group, with phases at `speed` times the pace.
    pub(crate) fn publish(&self, id: EventId, group: String, now: Timestamp, speed: f64) -> Event {
        let source = self.source.unwrap_or(match self.kind {
            EventType::Terminate => EventSource::User,
            _ => EventSource::Platform,
        });
        let notice = self.notice.unwrap_or(Period(self.kind.usual_notice()));
        let vms: Vec<String> = self.vms.iter().map(|vm| vm.value.clone()).collect();
        Event {
            id,
            name: self.name.as_ref().map(|name| name.value.clone()),
            resources: self.resources.clone().unwrap_or_else(|| vms.clone()),
            vms,
            group,
            kind: self.kind.clone(),
            source,
            description: self.description.clone().unwrap_or_else(|| self.kind.usual_description(source).to_owned()),
            duration_in_seconds: self.duration_in_seconds.unwrap_or(match self.kind {
                EventType::Freeze => 5,
                _ => -1,
            }),
            deletion: self.deletion.clone(),
            phase: if self.started { Phase::Started } else { Phase::Scheduled },
            published: now,
            phase_since: now,
            not_before: whole_second_at_or_after(later(now, notice.at_speed(speed))),
            approved: None,
            plan: Plan {
                late: self.late,
                other_tenants: Wait::For(self.other_tenants),
                started_for: self.started_for.unwrap_or(Wait::For(Period(self.kind.usual_time_started()))),
                speed,
            },
        }
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
    pub(crate) fn contradiction(&self) -> Option<&'static str> {
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
    plan: Plan,
}

/// How the life of an event goes on if nobody interferes.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Plan {
    late: Wait,
    other_tenants: Wait,
    started_for: Wait,
    speed: f64,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn published(spec: &EventSpec) -> Event {
        spec.publish(EventId("e".to_owned()), "g".to_owned(), at(0), 1.0)
    }

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn what_comes_next_and_when() {
        let spec = || EventSpec::redeploy("a").notice(seconds(600)).started_for(seconds(60));
        let approved = |spec: EventSpec, second| Event { approved: Some(at(second)), ..published(&spec) };
        let in_phase = |spec: EventSpec, phase, second| {
            let mut event = published(&spec);
            event.enter(phase, at(second));
            event
        };
        let started = |second| Some((at(second), Phase::Started));
        let cases = [
            ("unapproved: starts at NotBefore", published(&spec()), started(600)),
            ("unapproved and late: starts after NotBefore", published(&spec().late(seconds(30))), started(630)),
            ("to be started by hand: does not start", published(&spec().until_started()), None),
            ("approved: starts at once", approved(spec(), 20), started(20)),
            ("approved, others agree later", approved(spec().other_tenants(seconds(90)), 20), started(110)),
            ("approved, others never agree in time", approved(spec().other_tenants(seconds(900)), 20), started(600)),
            ("approved, by hand: starts all the same", approved(spec().until_started(), 20), started(20)),
            ("started: vanishes", in_phase(spec(), Phase::Started, 600), Some((at(660), Phase::Finished))),
            ("started until finished: stays", in_phase(spec().until_finished(), Phase::Started, 600), None),
            ("a hardware failure vanishes", published(&spec().started()), Some((at(60), Phase::Finished))),
            ("finished: nothing", in_phase(spec(), Phase::Finished, 700), None),
            ("cancelled: nothing", in_phase(spec(), Phase::Cancelled, 100), None),
            ("degraded hardware: days ahead", published(&spec().notice(seconds(6 * 86_400))), started(6 * 86_400)),
        ];
        for (case, event, expected) in cases {
            assert_eq!(event.next_phase(std::iter::empty()), expected, "{case}");
        }
    }

    #[test]
    fn an_approved_deletion_waits_for_the_rest_of_it() {
        let spec = EventSpec::terminate("a").notice(seconds(300)).deletion("scale-in");
        let mine = Event { approved: Some(at(10)), ..published(&spec) };
        let other = published(&spec);
        let in_phase = |phase, second| {
            let mut event = other.clone();
            event.enter(phase, at(second));
            event
        };
        let cases = [
            ("pending: waits until both time out", other.clone(), 300),
            ("approved later", Event { approved: Some(at(40)), ..other.clone() }, 40),
            ("approved before", Event { approved: Some(at(5)), ..other.clone() }, 10),
            ("other started before", in_phase(Phase::Started, 5), 10),
            ("other timed out earlier", Event { not_before: at(60), ..other.clone() }, 60),
        ];
        for (case, other, expected) in cases {
            assert_eq!(mine.next_phase([&other].into_iter()), Some((at(expected), Phase::Started)), "{case}");
        }
    }

    #[test]
    fn speed_shortens_every_phase_and_keeps_not_before_true() {
        let spec = EventSpec::redeploy("a").notice(seconds(600)).started_for(seconds(600));
        let mut event = spec.publish(EventId("e".to_owned()), "g".to_owned(), at(0), 60.0);
        assert_eq!(event.not_before, at(10));
        assert_eq!(event.next_phase(std::iter::empty()), Some((at(10), Phase::Started)));
        event.enter(Phase::Started, at(10));
        assert_eq!(event.next_phase(std::iter::empty()), Some((at(20), Phase::Finished)));
    }

    #[test]
    fn what_is_not_said_is_as_azure_usually_has_it() {
        let maintenance = "Host server is undergoing maintenance.";
        let repair = "Host server is undergoing an emergency repair.";
        let restart = "Virtual machine is going to be restarted as requested by authorized user.";
        for (spec, notice, source, duration, description) in [
            (EventSpec::freeze("a"), 900, "Platform", 5, maintenance),
            (EventSpec::reboot("a"), 900, "Platform", -1, maintenance),
            (EventSpec::reboot("a").source(EventSource::User), 900, "User", -1, restart),
            (EventSpec::redeploy("a"), 600, "Platform", -1, repair),
            (EventSpec::preempt("a"), 30, "Platform", -1, ""),
            (EventSpec::terminate("a"), 300, "User", -1, ""),
        ] {
            let entry = published(&spec).entry();
            assert_eq!(
                (entry.not_before, entry.source, entry.duration_in_seconds, entry.description.as_str()),
                (Some(at(notice)), source, duration, description),
                "{}",
                entry.kind
            );
        }
    }

    #[test]
    fn not_before_is_empty_once_started() {
        let mut event = published(&EventSpec::reboot("a"));
        assert_eq!(event.entry().not_before, Some(at(900)));
        event.enter(Phase::Started, at(900));
        assert_eq!(event.entry().not_before, None);
    }

    #[test]
    fn a_change_that_contradicts_itself_is_refused() {
        let change = |json: &str| serde_json::from_str::<EventChange>(json).unwrap().contradiction();
        assert!(change(r#"{"status":"Finished"}"#).is_some());
        assert!(change(r#"{"notBefore":"2026-04-29T18:00:00Z","notice":"5m"}"#).is_some());
        assert!(change(r#"{"status":"Started","description":"x"}"#).is_none());
    }
}
