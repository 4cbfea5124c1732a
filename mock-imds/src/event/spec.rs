//! What is asked for: an event to be published, and what Azure usually has where nothing is asked.

use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use serde_saphyr::Spanned;

use super::life::{Event, EventId, EventSource, EventType, Phase, Plan};
use crate::{
    clock::{Period, Wait, later, whole_second_at_or_after},
    place::unplaced,
};

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

impl EventSpec {
    /// The VMs that it names, each with its place in the file that it came from.
    pub fn vms(&self) -> &[Spanned<String>] {
        &self.vms
    }

    /// What it may be called by: its name, its identifier, or neither.
    pub fn called(&self) -> impl Iterator<Item = &str> {
        self.name.iter().chain(&self.id).map(|name| name.value.as_str())
    }

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

impl EventType {
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
