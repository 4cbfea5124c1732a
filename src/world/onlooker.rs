//! Turns what happens in the world into lines of the timeline: what Azure says, what the agents log, and what becomes of
//! nodes and pods.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use jiff::Timestamp;
use mock_imds::{Mock, Phase};
use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, Registry};

use super::api_server::kinds::{NODES, PODS};
use super::api_server::store::{Actor, Change};
use super::controllers::{condition, pod};
use super::timeline::{Row, Timeline, Tone, Who};
use crate::clock::Clock;

/// The actor for whom a person at the keyboard stands.
pub const PERSON: &str = "person";

/// The stages of an agent that nothing else tells of.
const STAGES: [&str; 3] = ["waiting", "held", "awaiting-ready"];

/// The node of an agent, kept with its span.
struct OfNode(String);

/// Makes lines of what agents log.
pub struct AgentLog {
    timeline: Timeline,
    clock: Clock,
}

impl AgentLog {
    /// Lines for this timeline, by this clock.
    pub fn new(timeline: Timeline, clock: Clock) -> Self {
        Self { timeline, clock }
    }

    /// Listens to the agents and to nobody else. Their spans are for those who look closely, hence the level.
    pub fn alone(self) -> impl Subscriber + Send + Sync {
        let agents = Targets::new().with_target(env!("CARGO_CRATE_NAME"), LevelFilter::DEBUG);
        Registry::default().with(self.with_filter(agents))
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    node: Option<String>,
    pod: Option<String>,
    reason: Option<String>,
    stage: Option<String>,
    rest: String,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.take(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.take(field, value.to_owned());
    }
}

impl Fields {
    fn take(&mut self, field: &Field, value: String) {
        match field.name() {
            "message" => self.message = value,
            "node" => self.node = Some(value),
            "pod" => self.pod = Some(value),
            "reason" => self.reason = Some(value),
            "stage" => self.stage = Some(value),
            // Writing to a String cannot fail.
            name => drop(write!(self.rest, "{}{name} {value}", if self.rest.is_empty() { "" } else { ", " })),
        }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for AgentLog {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some((span, node)) = context.span(id).zip(fields.node) {
            span.extensions_mut().insert(OfNode(node));
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let node = context.event_scope(event).and_then(|mut scope| {
            scope.find_map(|span| span.extensions().get::<OfNode>().map(|OfNode(node)| node.clone()))
        });
        let Some(node) = node.filter(|_| *event.metadata().level() <= Level::INFO) else { return };
        let mut fields = Fields::default();
        event.record(&mut fields);
        let warns = *event.metadata().level() <= Level::WARN;
        let Fields { message, node: _, pod, reason, stage, rest } = fields;
        let at = self.clock.now().wall;
        if let Some(pod) = pod {
            let tone = if warns { Tone::Warning } else { Tone::Plain };
            let what = shortened(&message);
            let pod = pod.split_once('/').map_or(pod.as_str(), |(_, name)| name).to_owned();
            return self.timeline.add_pod(at, &node, Who::Agent, tone, what, pod);
        }
        // The agent says much about itself that is no part of the story.
        let text = match (reason, stage, warns) {
            (Some(reason), ..) => format!("{reason}: {message}"),
            // Other stages begin or end with something that is told for itself.
            (None, Some(stage), _) if STAGES.contains(&stage.as_str()) => message,
            (None, None, true) if rest.is_empty() => message,
            (None, None, true) => format!("{message} ({rest})"),
            (None, Some(_), _) | (None, None, false) => return,
        };
        let tone = if warns { Tone::Warning } else { Tone::Plain };
        self.timeline.add(Row { at, node: Some(node), who: Who::Agent, tone, text });
    }
}

/// Hundreds of pods are told about in the same words, of which a line needs the first.
fn shortened(message: &str) -> &str {
    message
        .split_once(": the node's machine has a scheduled event")
        .map_or(message, |(first, _)| first)
        .trim_end_matches('.')
}

/// Makes lines of what happens to nodes and pods.
pub struct ClusterNews {
    timeline: Timeline,
    /// Nothing is told before the story begins.
    begins: Timestamp,
    boots: BTreeMap<String, String>,
}

impl ClusterNews {
    /// Lines for this timeline, from a time on.
    pub fn new(timeline: Timeline, begins: Timestamp) -> Self {
        Self { timeline, begins, boots: BTreeMap::new() }
    }

    /// A write to the cluster.
    pub fn see(&mut self, change: &Change) {
        match &*change.resource {
            NODES => self.see_node(change),
            PODS if change.at > self.begins => self.see_pod(change),
            _ => {}
        }
    }

    fn see_node(&mut self, change: &Change) {
        let name = &change.key.name;
        let boot = |node: &Value| node["status"]["nodeInfo"]["bootID"].as_str().map(str::to_owned);
        let known = self.boots.get(name).cloned();
        if let Some(boot) = change.after.as_deref().and_then(boot) {
            self.boots.insert(name.clone(), boot);
        }
        if change.at <= self.begins {
            return;
        }
        let tell = |who: Who, tone: Tone, text: &str| {
            self.timeline.add(Row { at: change.at, node: Some(name.clone()), who, tone, text: text.to_owned() });
        };
        let (Some(before), Some(after)) = (change.before.as_deref(), change.after.as_deref()) else {
            let text = if change.after.is_some() { "the Node is registered" } else { "the Node object is gone" };
            return tell(Who::Kubernetes, Tone::Plain, text);
        };
        let who = if change.by == Actor::new(PERSON) || change.by.as_str().starts_with("kubectl") {
            Who::Person
        } else {
            Who::Kubernetes
        };
        let cordoned = |node: &Value| node["spec"]["unschedulable"] == true;
        if who == Who::Person && cordoned(before) != cordoned(after) {
            tell(who, Tone::Plain, if cordoned(after) { "cordoned the node" } else { "uncordoned the node" });
        }
        let ready = |node: &Value| ready_status(node).to_owned();
        let rebooted = boot(after).is_some_and(|boot| known.is_some_and(|known| known != boot));
        // A machine that is away for less than a minute was Ready all the time, as far as anybody knows.
        if rebooted || ready(before) != ready(after) {
            match (ready(after).as_str(), rebooted) {
                ("True", true) => tell(Who::Kubernetes, Tone::Good, "Ready again, after a reboot"),
                ("True", false) => tell(Who::Kubernetes, Tone::Good, "Ready"),
                ("Unknown", _) => tell(Who::Kubernetes, Tone::Plain, "the kubelet is silent: Ready is Unknown"),
                _ => tell(Who::Kubernetes, Tone::Plain, "not Ready"),
            }
        }
    }

    fn see_pod(&self, change: &Change) {
        let Some(after) = change.after.as_deref() else { return };
        let was_ready = change.before.as_deref().is_some_and(pod::is_ready);
        if let Some(node) = pod::node_name(after).filter(|_| pod::is_ready(after) && !was_ready) {
            let name = change.key.name.clone();
            self.timeline.add_pod(change.at, node, Who::Kubernetes, Tone::Quiet, "running and Ready", name);
        }
    }
}

fn ready_status(object: &Value) -> &str {
    condition::status(object, "Ready").unwrap_or("Unknown")
}

/// Makes lines of what Azure does.
pub struct AzureNews {
    timeline: Timeline,
    azure: Mock,
    node_of: BTreeMap<String, String>,
    seen: u64,
}

impl AzureNews {
    /// Lines for this timeline; `node_of` says which node a machine is.
    pub fn new(timeline: Timeline, azure: Mock, node_of: BTreeMap<String, String>) -> Self {
        Self { timeline, azure, node_of, seen: 0 }
    }

    /// Tells what has changed; says which events did, and which phase they have entered with that.
    pub fn see(&mut self) -> Vec<(mock_imds::Event, Option<Phase>)> {
        let mut entered = Vec::new();
        for change in self.azure.changes_after(self.seen) {
            self.seen = change.number;
            let event = change.event.as_ref().and_then(|id| self.azure.event(id).ok());
            let Some(event) = event else {
                let (who, tone) = (Who::Fault, Tone::Quiet);
                let text = format!("metadata service: {} {}", change.what.to_lowercase(), change.detail);
                self.timeline.add(Row { at: change.time, node: None, who, tone, text });
                continue;
            };
            let (phase, text) = match change.what {
                "Scheduled" => (Some(Phase::Scheduled), announced(&event)),
                "Started" => (Some(Phase::Started), format!("{} begins", event.kind)),
                "Finished" => (Some(Phase::Finished), format!("{} is over", event.kind)),
                "Cancelled" => (Some(Phase::Cancelled), format!("{} is withdrawn", event.kind)),
                other => (None, format!("{} {}: {}", event.kind, other.to_lowercase(), change.detail)),
            };
            for vm in &event.vms {
                let node = self.node_of.get(vm).cloned();
                let text = text.clone();
                self.timeline.add(Row { at: change.time, node, who: Who::Azure, tone: Tone::Plain, text });
            }
            entered.push((event, phase));
        }
        entered
    }
}

fn announced(event: &mock_imds::Event) -> String {
    let notice = domain::time::spoken(event.not_before.duration_since(event.published).try_into().unwrap_or_default());
    let lasting = match event.duration_in_seconds {
        seconds if seconds >= 0 => format!(", lasting {seconds}s"),
        _ => String::new(),
    };
    match event.description.as_str() {
        "" => format!("{} in {notice}{lasting}", event.kind),
        description => format!("{} in {notice}{lasting}: {description}", event.kind),
    }
}
