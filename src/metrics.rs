//! Every metric of the process. Labels have few values, known beforehand: never a pod, an event or an error's text.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use domain::node_plan::Stage;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// How a poll of the metadata service ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct PollLabels {
    /// `ok`, `timeout`, `unreachable`, `body`, or `status`.
    pub result: &'static str,
    /// The HTTP status code, 0 if there was none.
    pub code: u16,
}

/// A scheduled event and what is done about it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct EventLabels {
    /// The type, `Other` if unknown to this version.
    pub event_type: &'static str,
    /// `none`, `cordon` or `drain`.
    pub action: &'static str,
    /// `act`, or `observe` where that is only what would be done.
    pub mode: &'static str,
}

/// An event's type.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TypeLabels {
    event_type: &'static str,
}

/// A request to the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RequestLabels {
    /// `get`, `list`, `watch`, `create`, `update`, `patch` or `delete`.
    pub verb: &'static str,
    /// As in the URL: `nodes`, `nodes/status`, `pods`, `pods/eviction`, `events`, `leases`, `noderepairs` and so on.
    pub resource: &'static str,
}

/// A request to the API server and how it was answered.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RequestResultLabels {
    /// See [`RequestLabels`].
    pub verb: &'static str,
    /// See [`RequestLabels`].
    pub resource: &'static str,
    /// `ok`, `timeout`, `transport`, or the status code of a refusal.
    pub result: String,
}

/// What came of something.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ResultLabels {
    /// What came of it.
    pub result: &'static str,
}

/// A receiver of notifications, and what came of one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct NotificationLabels {
    /// The receiver's name in the policy.
    pub receiver: String,
    /// `delivered`, `retried`, `failed` or `dropped`.
    pub result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StageLabels {
    stage: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabels {
    version: &'static str,
}

/// From a spot machine's seconds to the days ahead at which degraded hardware is announced.
const SPANS: [f64; 9] = [1.0, 5.0, 15.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 86_400.0];

type HistogramFamily<L> = Family<L, Histogram, fn() -> Histogram>;

/// The metrics, ready to be counted and read.
pub struct Metrics {
    registry: Registry,
    /// Polls of the scheduled-events endpoint.
    pub polls: Family<PollLabels, Counter>,
    poll_age: Gauge<f64, AtomicU64>,
    /// Scheduled events of the own machine, each counted once.
    pub events: Family<EventLabels, Counter>,
    /// Requests to the API server.
    pub requests: Family<RequestResultLabels, Counter>,
    request_seconds: HistogramFamily<RequestLabels>,
    /// Answers to evictions and deletions.
    pub evictions: Family<ResultLabels, Counter>,
    /// Pods whose eviction is refused at the moment.
    pub blocked_pods: Gauge,
    /// Pods that still have to go.
    pub remaining_pods: Gauge,
    /// Drains that have ended.
    pub drains: Family<ResultLabels, Counter>,
    drain_seconds: HistogramFamily<ResultLabels>,
    drain_spare_seconds: HistogramFamily<ResultLabels>,
    notice_seconds: HistogramFamily<TypeLabels>,
    /// Events that Azure was told may start, or could not be told.
    pub approvals: Family<ResultLabels, Counter>,
    /// Changes of the policy files.
    pub policy_reloads: Family<ResultLabels, Counter>,
    /// Which set of policies is in force: 1 at the start, one more with every change.
    pub policy_generation: Gauge,
    /// Whether this node holds a slot for its drain.
    pub slot_held: Gauge,
    /// Kubernetes Events that were written, could not be, or found no room in the queue.
    pub told: Family<ResultLabels, Counter>,
    /// Notifications to receivers: delivered, tried once more, given up, or without room in the queue.
    pub notifications: Family<NotificationLabels, Counter>,
    stage: Family<StageLabels, Gauge>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("remediator");
        let polls = Family::default();
        registry.register("imds_polls", "Polls of the scheduled-events endpoint, by how they ended", polls.clone());
        let poll_age = Gauge::default();
        registry.register_with_unit(
            "imds_last_good_poll_age",
            "Time since the last good answer of the scheduled-events endpoint, or since the start",
            Unit::Seconds,
            poll_age.clone(),
        );
        let events = Family::default();
        registry.register("scheduled_events", "Scheduled events of this machine, each counted once", events.clone());
        let requests = Family::default();
        registry.register("api_requests", "Requests to the API server, by how they were answered", requests.clone());
        let request_seconds: HistogramFamily<RequestLabels> =
            Family::new_with_constructor(|| Histogram::new([0.005, 0.025, 0.1, 0.5, 2.0, 10.0]));
        registry.register_with_unit(
            "api_request_duration",
            "How long the API server took to answer",
            Unit::Seconds,
            request_seconds.clone(),
        );
        let evictions = Family::default();
        registry.register("evictions", "Answers to evictions and deletions of pods", evictions.clone());
        let blocked_pods = Gauge::default();
        registry.register("blocked_pods", "Pods whose eviction is refused at the moment", blocked_pods.clone());
        let remaining_pods = Gauge::default();
        registry.register("remaining_pods", "Pods that the running drain still has to move", remaining_pods.clone());
        let drains = Family::default();
        registry.register("drains", "Drains that have ended, by result", drains.clone());
        let drain_seconds: HistogramFamily<ResultLabels> =
            Family::new_with_constructor(|| Histogram::new([1.0, 5.0, 15.0, 30.0, 60.0, 300.0, 900.0, 3600.0]));
        registry.register_with_unit("drain_duration", "How long drains took", Unit::Seconds, drain_seconds.clone());
        let drain_spare_seconds: HistogramFamily<ResultLabels> = Family::new_with_constructor(|| Histogram::new(SPANS));
        registry.register_with_unit(
            "drain_spare_time",
            "How long before their deadline drains ended",
            Unit::Seconds,
            drain_spare_seconds.clone(),
        );
        let notice_seconds: HistogramFamily<TypeLabels> = Family::new_with_constructor(|| Histogram::new(SPANS));
        registry.register_with_unit(
            "scheduled_event_notice",
            "How far ahead the NotBefore of events was when they were first seen",
            Unit::Seconds,
            notice_seconds.clone(),
        );
        let approvals = Family::default();
        registry.register("approvals", "Events that Azure was told may start before their time", approvals.clone());
        let policy_reloads = Family::default();
        registry.register(
            "policy_reloads",
            "Changes of policy files, by whether they could be used",
            policy_reloads.clone(),
        );
        let policy_generation = Gauge::default();
        policy_generation.set(1);
        registry.register(
            "policy_generation",
            "Which set of policies is in force: 1 at the start, one more with every change",
            policy_generation.clone(),
        );
        let slot_held = Gauge::default();
        registry.register(
            "drain_slot_held",
            "1 while this node holds one of its pool's slots for drains",
            slot_held.clone(),
        );
        let told = Family::default();
        registry.register("recorded_events", "Kubernetes Events, by whether they could be written", told.clone());
        let notifications = Family::default();
        registry.register("notifications", "Notifications, by receiver and what came of them", notifications.clone());
        let stage = Family::default();
        registry.register("agent_stage", "1 for what the agent is doing about its node, else 0", stage.clone());
        let build: Family<BuildLabels, Gauge> = Family::default();
        build.get_or_create(&BuildLabels { version: env!("CARGO_PKG_VERSION") }).set(1);
        registry.register("build_info", "The version that is running", build);
        Self {
            registry,
            polls,
            poll_age,
            events,
            requests,
            request_seconds,
            evictions,
            blocked_pods,
            remaining_pods,
            drains,
            drain_seconds,
            drain_spare_seconds,
            notice_seconds,
            approvals,
            policy_reloads,
            policy_generation,
            slot_held,
            told,
            notifications,
            stage,
        }
    }
}

impl Metrics {
    /// A request to the API server was answered, or was not.
    pub fn request(&self, labels: RequestLabels, result: String, took: Duration) {
        let RequestLabels { verb, resource } = labels;
        self.requests.get_or_create(&RequestResultLabels { verb, resource, result }).inc();
        self.request_seconds.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// A drain has ended, so long before its deadline.
    pub fn drain_ended(&self, result: &'static str, took: Duration, spare: Duration) {
        let labels = ResultLabels { result };
        self.drains.get_or_create(&labels).inc();
        self.drain_seconds.get_or_create(&labels).observe(took.as_secs_f64());
        self.drain_spare_seconds.get_or_create(&labels).observe(spare.as_secs_f64());
    }

    /// An event was seen for the first time, with so much notice.
    pub fn event_seen(&self, labels: &EventLabels, notice: Duration) {
        self.events.get_or_create(labels).inc();
        let event_type = labels.event_type;
        self.notice_seconds.get_or_create(&TypeLabels { event_type }).observe(notice.as_secs_f64());
    }

    /// No drain is running.
    pub fn no_drain(&self) {
        self.blocked_pods.set(0);
        self.remaining_pods.set(0);
    }

    /// The agent is doing this now.
    pub fn stage(&self, current: &Stage) {
        for stage in Stage::WORDS {
            self.stage.get_or_create(&StageLabels { stage }).set(i64::from(stage == current.word()));
        }
    }

    /// All metrics in the OpenMetrics text format.
    pub fn render(&self, last_good_poll: Duration) -> String {
        self.poll_age.set(last_good_poll.as_secs_f64());
        let mut text = String::new();
        match encode(&mut text, &self.registry) {
            Ok(()) => text,
            // Writing to a String cannot fail; should a metric refuse to be written, the rest is worth having.
            Err(_) => text + "# EOF\n",
        }
    }
}
