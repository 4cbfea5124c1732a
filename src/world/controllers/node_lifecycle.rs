//! The node lifecycle controller: says when a kubelet has fallen silent, and taints nodes by their conditions.
//!
//! Its pace is that of
//! <https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/controller/nodelifecycle/node_lifecycle_controller.go> with the
//! default flags.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use domain::time::{Monotonic, Now};
use serde_json::{Value, json};

use super::driver::Controller;
use super::taint::{self, NO_EXECUTE, NO_SCHEDULE, NOT_READY, UNREACHABLE, UNSCHEDULABLE};
use super::{condition, pod, timestamp};
use crate::world::api_server::kinds::{LEASES, NODES, PODS};
use crate::world::api_server::store::{Actor, Change, Key};
use crate::world::api_server::{ApiServer, Part};

const NAME: &str = "node-controller";

/// Where kubelets keep their leases.
pub const LEASE_NAMESPACE: &str = "kube-node-lease";

/// How often all nodes are looked at (`--node-monitor-period`).
const PERIOD: Duration = Duration::from_secs(5);
/// How long a kubelet may be silent (`--node-monitor-grace-period`).
const SILENCE: Duration = Duration::from_secs(50);
/// How long it may be silent that has never posted anything (`--node-startup-grace-period`).
const STARTUP_SILENCE: Duration = Duration::from_secs(60);
/// From one node of a zone that is tainted `NoExecute` to the next (`--node-eviction-rate`).
const PACE: Duration = Duration::from_secs(10);
/// The same while more than half of a large cluster's zone is unhealthy (`--secondary-node-eviction-rate`).
const SLOW_PACE: Duration = Duration::from_secs(100);
/// Up to this many nodes a cluster is not large, and no more nodes are tainted then (`--large-cluster-size-threshold`).
const SMALL_CLUSTER: usize = 50;

/// The conditions that a kubelet's silence makes unknown.
const CONDITIONS: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// Which taint stands for which condition.
const TAINTS: [(&str, &str, &str); 6] = [
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
];

/// The controller.
#[derive(Debug)]
pub struct NodeLifecycle {
    by: Actor,
    nodes: BTreeMap<String, Health>,
    zones: BTreeMap<Arc<str>, Zone>,
    /// Whether no zone has a node left that is Ready: then the fault is rather here, and no pod is sent away.
    all_is_down: bool,
    monitors: Option<Monotonic>,
}

/// What is known of a node.
#[derive(Debug)]
struct Health {
    node: Arc<Value>,
    /// Read from the node once, because all nodes are looked at every few seconds.
    zone: Arc<str>,
    ready: Ready,
    lease: Option<Arc<Value>>,
    /// When the kubelet was last heard of.
    heard: Monotonic,
    /// Whether it waits for a `NoExecute` taint.
    is_queued: bool,
}

/// The condition `Ready`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ready {
    Missing,
    True,
    False,
    Unknown,
}

/// A failure domain.
#[derive(Debug, Default)]
struct Zone {
    /// Nodes to be tainted `NoExecute`, in the order in which that was noticed, and some that no longer wait for it.
    queue: VecDeque<String>,
    /// When the last was.
    tainted: Option<Monotonic>,
    /// From one to the next; none at all if `None`.
    pace: Option<Duration>,
}

impl Default for NodeLifecycle {
    fn default() -> Self {
        Self {
            by: Actor::new(NAME),
            nodes: BTreeMap::new(),
            zones: BTreeMap::new(),
            all_is_down: false,
            monitors: None,
        }
    }
}

impl Controller for NodeLifecycle {
    fn name(&self) -> &'static str {
        NAME
    }

    fn watches(&self) -> &'static [&'static str] {
        &[NODES]
    }

    fn reconcile(&mut self, server: &ApiServer, changes: &[Arc<Change>], now: Now) -> Option<Monotonic> {
        let mut changed = BTreeSet::new();
        for change in changes {
            changed.insert(change.key.name.as_str());
            self.see(change, now);
        }
        for name in changed {
            self.taint_no_schedule(server, name, now);
        }
        let mut monitors = *self.monitors.get_or_insert(now.monotonic);
        if monitors <= now.monotonic {
            self.hear_leases(server, now);
            self.declare_silent(server, now);
            self.judge_zones(server, now);
            self.queue_no_execute(server, now);
            monitors = now.monotonic + PERIOD;
            self.monitors = Some(monitors);
        }
        let next = self.taint_no_execute(server, now);
        Some(next.map_or(monitors, |next| next.min(monitors)))
    }
}

impl NodeLifecycle {
    fn see(&mut self, change: &Change, now: Now) {
        let name = &change.key.name;
        let Some(node) = &change.after else {
            self.nodes.remove(name);
            return;
        };
        // Only a kubelet changes this: what this controller writes leaves it as it is.
        let heartbeat = |node: &Value| Some(condition::find(node, "Ready")?["lastHeartbeatTime"].clone());
        match self.nodes.get_mut(name) {
            Some(health) => {
                if heartbeat(&health.node) != heartbeat(node) {
                    health.heard = now.monotonic;
                }
                health.see(Arc::clone(node));
            }
            None => drop(self.nodes.insert(name.clone(), Health::new(Arc::clone(node), now))),
        }
    }

    fn hear_leases(&mut self, server: &ApiServer, now: Now) {
        let locked = server.store().lock();
        let mut leases = locked.list(LEASES, Some(LEASE_NAMESPACE)).peekable();
        // Both are in the order of their names.
        for (name, health) in &mut self.nodes {
            while leases.next_if(|(key, _)| key.name < *name).is_some() {}
            let Some((_, lease)) = leases.next_if(|(key, _)| key.name == *name) else { continue };
            if health.lease.as_ref().is_some_and(|known| Arc::ptr_eq(known, lease)) {
                continue;
            }
            let renewed = |lease: &Value| lease["spec"]["renewTime"].clone();
            if health.lease.as_ref().is_none_or(|known| renewed(known) != renewed(lease)) {
                health.heard = now.monotonic;
            }
            health.lease = Some(Arc::clone(lease));
        }
    }

    fn declare_silent(&mut self, server: &ApiServer, now: Now) {
        let mut fallen: BTreeSet<&str> = BTreeSet::new();
        let mut silent: Vec<String> = Vec::new();
        for (name, health) in &mut self.nodes {
            let limit = if health.ready == Ready::Missing { STARTUP_SILENCE } else { SILENCE };
            let is_known = |kind: &&str| condition::status(&health.node, kind) != Some("Unknown");
            if now.monotonic.since(health.heard) < limit || !CONDITIONS.iter().any(is_known) {
                continue;
            }
            if health.ready == Ready::True {
                fallen.insert(name);
            }
            let written = server.update(&self.by, NODES, &Key::new("", name), Part::Status, |node| {
                for kind in CONDITIONS {
                    make_unknown(node, kind, now);
                }
                Ok(())
            });
            if let Ok(node) = written {
                health.see(node);
                silent.push(name.clone());
            }
        }
        if !fallen.is_empty() {
            mark_pods_not_ready(server, &self.by, &fallen, now);
        }
        for name in silent {
            self.taint_no_schedule(server, &name, now);
        }
    }

    /// Brings the `NoSchedule` taints of this controller in line with conditions and cordon, and leaves all others.
    fn taint_no_schedule(&mut self, server: &ApiServer, name: &str, now: Now) {
        let Some(health) = self.nodes.get_mut(name) else { return };
        let mut wanted: BTreeSet<&str> = TAINTS
            .iter()
            .filter(|(kind, status, _)| condition::status(&health.node, kind) == Some(status))
            .map(|(_, _, key)| *key)
            .collect();
        if health.node["spec"]["unschedulable"] == true {
            wanted.insert(UNSCHEDULABLE);
        }
        health.retaint(server, &self.by, NO_SCHEDULE, &wanted, now);
    }

    /// Counts the zones' nodes, and sets the pace at which they are tainted.
    fn judge_zones(&mut self, server: &ApiServer, now: Now) {
        let mut counts: BTreeMap<Arc<str>, (usize, usize)> = BTreeMap::new();
        for health in self.nodes.values() {
            let (ready, others) = counts.entry(Arc::clone(&health.zone)).or_default();
            *(if health.ready == Ready::True { ready } else { others }) += 1;
        }
        self.zones.retain(|zone, _| counts.contains_key(zone));
        for (zone, (ready, others)) in &counts {
            let is_mostly_down = *ready > 0 && *others > 2 && others * 100 >= (ready + others) * 55;
            self.zones.entry(Arc::clone(zone)).or_default().pace = if !is_mostly_down {
                Some(PACE)
            } else if self.nodes.len() > SMALL_CLUSTER {
                Some(SLOW_PACE)
            } else {
                None
            };
        }
        let was_down = self.all_is_down;
        self.all_is_down = !counts.is_empty() && counts.values().all(|(ready, others)| *ready == 0 && *others > 0);
        if self.all_is_down && !was_down {
            for health in self.nodes.values_mut() {
                health.is_queued = false;
                health.retaint(server, &self.by, NO_EXECUTE, &BTreeSet::new(), now);
            }
        }
    }

    fn queue_no_execute(&mut self, server: &ApiServer, now: Now) {
        for (name, health) in &mut self.nodes {
            let Some(key) = health.wanted_no_execute() else {
                health.is_queued = false;
                health.retaint(server, &self.by, NO_EXECUTE, &BTreeSet::new(), now);
                continue;
            };
            if !health.is_queued && !self.all_is_down && !taint::has(&health.node, key, NO_EXECUTE) {
                health.is_queued = true;
                self.zones.entry(Arc::clone(&health.zone)).or_default().queue.push_back(name.clone());
            }
        }
    }

    /// Taints whose turn it is; returns when the next may be.
    fn taint_no_execute(&mut self, server: &ApiServer, now: Now) -> Option<Monotonic> {
        let mut next: Option<Monotonic> = None;
        for zone in self.zones.values_mut() {
            let Some(pace) = zone.pace else { continue };
            while !zone.queue.is_empty() {
                if let Some(turn) = zone.tainted.map(|last| last + pace).filter(|turn| *turn > now.monotonic) {
                    next = Some(next.map_or(turn, |next| next.min(turn)));
                    break;
                }
                let health = zone.queue.pop_front().and_then(|name| self.nodes.get_mut(&name));
                let Some(health) = health.filter(|health| health.is_queued) else { continue };
                health.is_queued = false;
                let Some(key) = health.wanted_no_execute() else { continue };
                health.retaint(server, &self.by, NO_EXECUTE, &BTreeSet::from([key]), now);
                zone.tainted = Some(now.monotonic);
            }
        }
        next
    }
}

impl Health {
    fn new(node: Arc<Value>, now: Now) -> Self {
        let zone = zone_of(&node);
        let mut health =
            Self { node, zone, ready: Ready::Missing, lease: None, heard: now.monotonic, is_queued: false };
        health.see(Arc::clone(&health.node));
        health
    }

    fn see(&mut self, node: Arc<Value>) {
        self.ready = match condition::status(&node, "Ready") {
            None => Ready::Missing,
            Some("True") => Ready::True,
            Some("False") => Ready::False,
            Some(_) => Ready::Unknown,
        };
        if self.node["metadata"]["labels"] != node["metadata"]["labels"] {
            self.zone = zone_of(&node);
        }
        self.node = node;
    }

    fn wanted_no_execute(&self) -> Option<&'static str> {
        match self.ready {
            Ready::False => Some(NOT_READY),
            Ready::Unknown => Some(UNREACHABLE),
            Ready::True | Ready::Missing => None,
        }
    }

    /// Makes these the taints of this controller that the node has with an effect, in one write if any is needed.
    fn retaint(&mut self, server: &ApiServer, by: &Actor, effect: &str, wanted: &BTreeSet<&str>, now: Now) {
        let is_unwanted = |taint: &Value| {
            let key = taint["key"].as_str().unwrap_or_default();
            taint["effect"] == effect && is_ours(key, effect) && !wanted.contains(key)
        };
        let is_right = |node: &Value| {
            wanted.iter().all(|key| taint::has(node, key, effect)) && !taint::taints(node).iter().any(is_unwanted)
        };
        if is_right(&self.node) {
            return;
        }
        let name = self.node["metadata"]["name"].as_str().unwrap_or_default();
        let written = server.update(by, NODES, &Key::new("", name), Part::Main, |node| {
            let mut taints = taint::taints(node).to_vec();
            taints.retain(|taint| !is_unwanted(taint));
            for key in wanted.iter().filter(|key| !taint::has(node, key, effect)) {
                taints.push(json!({"key": key, "effect": effect, "timeAdded": timestamp::seconds(now.wall)}));
            }
            match node["spec"].as_object_mut() {
                Some(spec) if taints.is_empty() => drop(spec.remove("taints")),
                _ => node["spec"]["taints"] = taints.into(),
            }
            Ok(())
        });
        // A node that is gone will be heard of.
        if let Ok(node) = written {
            self.see(node);
        }
    }
}

/// Whether this controller looks after the taint; it leaves all others alone.
fn is_ours(key: &str, effect: &str) -> bool {
    match effect {
        NO_EXECUTE => matches!(key, NOT_READY | UNREACHABLE),
        _ => key == UNSCHEDULABLE || TAINTS.iter().any(|(_, _, ours)| *ours == key),
    }
}

fn zone_of(node: &Value) -> Arc<str> {
    let label = |key: &str| node["metadata"]["labels"][key].as_str().unwrap_or_default();
    format!("{}:{}", label("topology.kubernetes.io/region"), label("topology.kubernetes.io/zone")).into()
}

fn make_unknown(node: &mut Value, kind: &str, now: Now) {
    let unknown = match condition::find(node, kind).cloned() {
        Some(known) if known["status"] == "Unknown" => return,
        Some(mut known) => {
            known["status"] = json!("Unknown");
            known["reason"] = json!("NodeStatusUnknown");
            known["message"] = json!("Kubelet stopped posting node status.");
            known
        }
        None => condition::new(kind, "Unknown", "NodeStatusNeverUpdated", "Kubelet never posted node status."),
    };
    condition::set(node, unknown, now.wall);
}

/// Takes Ready from the pods of nodes that have just fallen silent. One look at all pods serves all these nodes.
fn mark_pods_not_ready(server: &ApiServer, by: &Actor, nodes: &BTreeSet<&str>, now: Now) {
    let is_concerned = |pod: &Value| pod::node_name(pod).is_some_and(|node| nodes.contains(node)) && pod::is_ready(pod);
    let keys: Vec<Key> = {
        let locked = server.store().lock();
        locked.list(PODS, None).filter(|(_, pod)| is_concerned(pod)).map(|(key, _)| key.clone()).collect()
    };
    for key in keys {
        // A pod that is gone by now cannot be Ready.
        let _ = server.update(by, PODS, &key, Part::Status, |pod| {
            let ready = condition::find(pod, "Ready").cloned().unwrap_or_default();
            let mut not_ready = ready;
            not_ready["status"] = json!("False");
            condition::set(pod, not_ready, now.wall);
            Ok(())
        });
    }
}
