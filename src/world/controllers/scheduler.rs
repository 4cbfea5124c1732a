//! The scheduler: gives each pod the node that fits and has the fewest pods.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use domain::time::{Monotonic, Now};
use serde_json::Value;

use super::driver::{Controller, RETRY};
use super::taint::{self, NO_EXECUTE, NO_SCHEDULE};
use super::{condition, node_affinity, pod, quantity};
use crate::world::api_server::kinds::{NODES, PODS};
use crate::world::api_server::store::{Actor, Change, Key};
use crate::world::api_server::{ApiServer, Part};

const NAME: &str = "kube-scheduler";

/// How many pods a node takes that does not say (`maxPods` of
/// <https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/>).
const DEFAULT_PODS: u64 = 110;

/// The scheduler. Pods that fit nowhere are tried again when nodes or pods have made room, but not more than once a second.
#[derive(Debug)]
pub struct Scheduler {
    by: Actor,
    nodes: BTreeMap<String, Place>,
    /// The nodes, the emptiest first.
    by_load: BTreeSet<(u64, String)>,
    bound: BTreeMap<Key, (String, Request)>,
    /// What is known of nodes that pods are bound to, whether or not they exist.
    used: BTreeMap<String, Used>,
    pending: BTreeMap<Key, Pending>,
    arrivals: u64,
    has_room: bool,
    tried_again: Monotonic,
}

/// A node.
#[derive(Debug)]
struct Place {
    node: Arc<Value>,
    room: Request,
    pods: u64,
}

/// What a pod wants or a node has, in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Request {
    cpu: u64,
    memory: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Used {
    requests: Request,
    pods: u64,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    /// Important pods first, then in the order of their coming.
    turn: (Reverse<i64>, u64),
    /// Whether it fitted nowhere.
    is_stuck: bool,
}

impl Default for Scheduler {
    fn default() -> Self {
        Self {
            by: Actor::new(NAME),
            nodes: BTreeMap::new(),
            by_load: BTreeSet::new(),
            bound: BTreeMap::new(),
            used: BTreeMap::new(),
            pending: BTreeMap::new(),
            arrivals: 0,
            has_room: false,
            tried_again: Monotonic::default(),
        }
    }
}

impl Controller for Scheduler {
    fn name(&self) -> &'static str {
        NAME
    }

    fn watches(&self) -> &'static [&'static str] {
        &[NODES, PODS]
    }

    fn reconcile(&mut self, server: &ApiServer, changes: &[Arc<Change>], now: Now) -> Option<Monotonic> {
        for change in changes {
            if &*change.resource == NODES {
                self.see_node(change);
            } else {
                self.see_pod(change);
            }
        }
        let tries_stuck = self.has_room && now.monotonic >= self.tried_again + RETRY;
        let mut turns: Vec<_> = self
            .pending
            .iter()
            .filter(|(_, pending)| tries_stuck || !pending.is_stuck)
            .map(|(key, pending)| (pending.turn, key.clone()))
            .collect();
        turns.sort();
        if tries_stuck {
            self.has_room = false;
            self.tried_again = now.monotonic;
        }
        // Pods of one workload fail for the same reasons: a node is not asked again for each of them.
        let mut refused: BTreeMap<String, String> = BTreeMap::new();
        for (_, key) in turns {
            self.schedule(server, &key, &mut refused, now);
        }
        let waits = self.has_room && self.pending.values().any(|pending| pending.is_stuck);
        waits.then_some(self.tried_again + RETRY)
    }
}

impl Scheduler {
    fn see_node(&mut self, change: &Change) {
        let name = &change.key.name;
        let before = change.before.as_deref().map(place);
        if let Some(old) = self.nodes.remove(name) {
            let pods = self.used.get(name).map_or(0, |used| used.pods);
            self.by_load.remove(&(pods, name.clone()));
            drop(old);
        }
        let Some(node) = &change.after else { return };
        self.has_room |= before != Some(place(node));
        let allocatable = &node["status"]["allocatable"];
        let amount = |resource: &str| quantity::thousandths(&allocatable[resource]);
        let room = Request { cpu: amount("cpu").unwrap_or(u64::MAX), memory: amount("memory").unwrap_or(u64::MAX) };
        let pods = amount("pods").map_or(DEFAULT_PODS, |pods| pods / 1000);
        self.nodes.insert(name.clone(), Place { node: Arc::clone(node), room, pods });
        self.by_load.insert((self.used.get(name).map_or(0, |used| used.pods), name.clone()));
    }

    fn see_pod(&mut self, change: &Change) {
        let key = &change.key;
        let living = change.after.as_deref().filter(|pod| !pod::is_finished(pod));
        match living.map(|pod| (pod, pod::node_name(pod))) {
            Some((pod, Some(node))) => {
                self.pending.remove(key);
                if self.bound.get(key).is_none_or(|(known, _)| known != node) {
                    self.release(key);
                    self.occupy(key.clone(), node.to_owned(), Request::of(pod));
                }
            }
            Some((pod, None)) => {
                self.release(key);
                let is_ours = pod["spec"]["schedulerName"].as_str().is_none_or(|name| name == "default-scheduler");
                if !is_ours || pod::is_terminating(pod) {
                    self.pending.remove(key);
                } else if !self.pending.contains_key(key) {
                    self.arrivals += 1;
                    let turn = (Reverse(pod["spec"]["priority"].as_i64().unwrap_or_default()), self.arrivals);
                    self.pending.insert(key.clone(), Pending { turn, is_stuck: false });
                }
            }
            None => {
                self.pending.remove(key);
                self.release(key);
            }
        }
    }

    fn occupy(&mut self, key: Key, node: String, request: Request) {
        let used = self.used.entry(node.clone()).or_default();
        let is_known = self.by_load.remove(&(used.pods, node.clone()));
        used.pods += 1;
        used.requests.cpu += request.cpu;
        used.requests.memory += request.memory;
        if is_known {
            self.by_load.insert((used.pods, node.clone()));
        }
        self.bound.insert(key, (node, request));
    }

    fn release(&mut self, key: &Key) {
        let Some((node, request)) = self.bound.remove(key) else { return };
        let Some(used) = self.used.get_mut(&node) else { return };
        let is_known = self.by_load.remove(&(used.pods, node.clone()));
        used.pods -= 1;
        used.requests.cpu -= request.cpu;
        used.requests.memory -= request.memory;
        let pods = used.pods;
        if pods == 0 {
            self.used.remove(&node);
        }
        if is_known {
            self.by_load.insert((pods, node));
        }
        self.has_room = true;
    }

    fn schedule(&mut self, server: &ApiServer, key: &Key, refused: &mut BTreeMap<String, String>, now: Now) {
        let Ok(pod) = server.get(PODS, key) else { return };
        let request = Request::of(&pod);
        let wish = wish(&pod, request);
        let found = match refused.get(&wish) {
            Some(message) => Err(message.clone()),
            None => self.find(&pod["spec"], request),
        };
        match found {
            Ok(node) => {
                if bind(server, &self.by, key, &pod, &node, now) {
                    self.pending.remove(key);
                    self.occupy(key.clone(), node, request);
                }
            }
            Err(message) => {
                if let Some(pending) = self.pending.get_mut(key) {
                    pending.is_stuck = true;
                }
                // A pod that is gone by now needs no condition.
                let _ = server.update(&self.by, PODS, key, Part::Status, |pod| {
                    let unschedulable = condition::new("PodScheduled", "False", "Unschedulable", &message);
                    condition::set(pod, unschedulable, now.wall);
                    Ok(())
                });
                refused.insert(wish, message);
            }
        }
    }

    /// The node for a pod, or why there is none.
    fn find(&self, spec: &Value, request: Request) -> Result<String, String> {
        if self.nodes.is_empty() {
            return Err("no nodes available to schedule pods".to_owned());
        }
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        if let Some(name) = node_affinity::only_node(spec) {
            match self.nodes.get(name).map(|place| self.refusal(name, place, spec, request)) {
                Some(None) => return Ok(name.to_owned()),
                Some(Some(reason)) => *reasons.entry(reason).or_default() += 1,
                None => {}
            }
            let others = self.nodes.len() - reasons.len();
            if others > 0 {
                *reasons.entry("node(s) didn't satisfy plugin(s) [NodeAffinity]").or_default() += others;
            }
        } else {
            for (_, name) in &self.by_load {
                let Some(place) = self.nodes.get(name) else { continue };
                match self.refusal(name, place, spec, request) {
                    None => return Ok(name.clone()),
                    Some(reason) => *reasons.entry(reason).or_default() += 1,
                }
            }
        }
        let mut texts: Vec<String> = reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        texts.sort();
        Err(format!("0/{} nodes are available: {}.", self.nodes.len(), texts.join(", ")))
    }

    /// Why a pod cannot go there.
    fn refusal(&self, name: &str, place: &Place, spec: &Value, request: Request) -> Option<&'static str> {
        let node = &place.node;
        let tolerations = taint::tolerations(spec);
        let cordon = serde_json::json!({"key": taint::UNSCHEDULABLE, "effect": NO_SCHEDULE});
        if node["spec"]["unschedulable"] == true && !taint::is_tolerated(&cordon, tolerations) {
            return Some("node(s) were unschedulable");
        }
        let keeps_off = |taint: &&Value| taint["effect"] == NO_SCHEDULE || taint["effect"] == NO_EXECUTE;
        if taint::taints(node).iter().filter(keeps_off).any(|taint| !taint::is_tolerated(taint, tolerations)) {
            return Some("node(s) had untolerated taint(s)");
        }
        if !node_affinity::matches(spec, node) {
            return Some("node(s) didn't match Pod's node affinity/selector");
        }
        let used = self.used.get(name).copied().unwrap_or_default();
        if used.pods >= place.pods {
            return Some("Too many pods");
        }
        if request.cpu > place.room.cpu.saturating_sub(used.requests.cpu) && request.cpu > 0 {
            return Some("Insufficient cpu");
        }
        if request.memory > place.room.memory.saturating_sub(used.requests.memory) && request.memory > 0 {
            return Some("Insufficient memory");
        }
        None
    }
}

impl Request {
    fn of(pod: &Value) -> Self {
        let containers = |field: &str| pod["spec"][field].as_array().into_iter().flatten().map(Self::of_container);
        let start = containers("initContainers")
            .fold(Self::default(), |max, one| Self { cpu: max.cpu.max(one.cpu), memory: max.memory.max(one.memory) });
        let run = containers("containers")
            .fold(Self::default(), |sum, one| Self { cpu: sum.cpu + one.cpu, memory: sum.memory + one.memory });
        Self { cpu: start.cpu.max(run.cpu), memory: start.memory.max(run.memory) }
    }

    fn of_container(container: &Value) -> Self {
        let requests = &container["resources"]["requests"];
        let amount = |resource: &str| quantity::thousandths(&requests[resource]).unwrap_or_default();
        Self { cpu: amount("cpu"), memory: amount("memory") }
    }
}

/// What decides whether pods fit on a node.
fn place(node: &Value) -> [&Value; 4] {
    let spec = &node["spec"];
    [&node["metadata"]["labels"], &spec["taints"], &spec["unschedulable"], &node["status"]["allocatable"]]
}

/// What decides where a pod fits.
fn wish(pod: &Value, request: Request) -> String {
    let spec = &pod["spec"];
    let Request { cpu, memory } = request;
    format!("{} {} {} {cpu} {memory}", spec["nodeSelector"], spec["affinity"]["nodeAffinity"], spec["tolerations"])
}

/// Binds the pod, as the subresource `binding` does: one write that is no change of the pod's specification in the sense
/// of its generation.
fn bind(server: &ApiServer, by: &Actor, key: &Key, seen: &Value, node: &str, now: Now) -> bool {
    let mut locked = server.store().lock();
    let Some(pod) = locked.get(PODS, key) else { return false };
    let is_same = pod["metadata"]["uid"] == seen["metadata"]["uid"];
    if !is_same || pod::is_terminating(&pod) || pod::node_name(&pod).is_some() {
        return false;
    }
    let mut bound = Value::clone(&pod);
    bound["spec"]["nodeName"] = node.into();
    let scheduled = serde_json::json!({"type": "PodScheduled", "status": "True"});
    condition::set(&mut bound, scheduled, now.wall);
    locked.commit(by, PODS, key.clone(), Some(bound), now.wall).is_some()
}
