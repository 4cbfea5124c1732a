//! `DaemonSets`: one pod on each node that its template allows.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use domain::time::{Monotonic, Now};
use serde_json::{Map, Value, json};

use super::deployment::template_hash;
use super::driver::{Controller, sync_each};
use super::owner::controller_of;
use super::taint::{self, NO_EXECUTE, NO_SCHEDULE};
use super::{node_affinity, pod};
use crate::world::api_server::ApiServer;
use crate::world::api_server::kinds::{DAEMON_SETS, NODES, PODS};
use crate::world::api_server::refusal::Refusal;
use crate::world::api_server::store::{Actor, Change, Key};

const NAME: &str = "daemonset-controller";

/// What the pods of a `DaemonSet` bear in addition to what their template says
/// (<https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/#taints-and-tolerations>).
const TOLERATED: [(&str, &str); 6] = [
    (taint::NOT_READY, NO_EXECUTE),
    (taint::UNREACHABLE, NO_EXECUTE),
    ("node.kubernetes.io/disk-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/memory-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/pid-pressure", NO_SCHEDULE),
    (taint::UNSCHEDULABLE, NO_SCHEDULE),
];

/// The controller.
#[derive(Debug)]
pub struct DaemonSets {
    by: Actor,
    nodes: BTreeMap<String, Arc<Value>>,
    sets: BTreeMap<Key, DaemonSet>,
    dirty: BTreeSet<Key>,
}

/// A set, with its pods by the node that they are on or for.
#[derive(Debug)]
struct DaemonSet {
    object: Arc<Value>,
    pods: BTreeMap<String, BTreeMap<Key, Arc<Value>>>,
    /// What each node adds to the total, so that a change of one node costs no look at all others.
    tallies: BTreeMap<String, Tally>,
    total: Tally,
    /// The nodes to be looked at.
    dirty: BTreeSet<String>,
}

/// How many nodes are to have a pod, have it, have one that they should not have, and have one that is Ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    desired: usize,
    current: usize,
    misplaced: usize,
    ready: usize,
}

impl Default for DaemonSets {
    fn default() -> Self {
        Self { by: Actor::new(NAME), nodes: BTreeMap::new(), sets: BTreeMap::new(), dirty: BTreeSet::new() }
    }
}

impl Controller for DaemonSets {
    fn name(&self) -> &'static str {
        NAME
    }

    fn watches(&self) -> &'static [&'static str] {
        &[NODES, DAEMON_SETS, PODS]
    }

    fn reconcile(&mut self, server: &ApiServer, changes: &[Arc<Change>], now: Now) -> Option<Monotonic> {
        for change in changes {
            match &*change.resource {
                PODS => self.see_pod(change),
                NODES => self.see_node(change),
                _ => self.see_set(change),
            }
        }
        let Self { by, nodes, sets, dirty } = self;
        sync_each(dirty, now, |key| match sets.get_mut(key) {
            Some(set) => set.sync(server, by, nodes, key),
            None => Ok(()),
        })
    }
}

impl DaemonSets {
    fn see_node(&mut self, change: &Change) {
        let name = &change.key.name;
        match &change.after {
            Some(node) => drop(self.nodes.insert(name.clone(), Arc::clone(node))),
            None => drop(self.nodes.remove(name)),
        }
        if place(change.before.as_deref()) != place(change.after.as_deref()) {
            for (key, set) in &mut self.sets {
                set.dirty.insert(name.clone());
                self.dirty.insert(key.clone());
            }
        }
    }

    fn see_set(&mut self, change: &Change) {
        let key = &change.key;
        let Some(object) = &change.after else {
            self.sets.remove(key);
            return;
        };
        self.dirty.insert(key.clone());
        let of_set = |field: fn(&Value) -> &Value| self.sets.get(key).map(|set| field(&set.object) == field(object));
        let is_known = of_set(|object| &object["metadata"]["uid"]) == Some(true);
        let is_same = of_set(|object| &object["metadata"]["generation"]) == Some(true);
        let set = match self.sets.entry(key.clone()) {
            Entry::Occupied(entry) if is_known => entry.into_mut(),
            entry => entry.insert_entry(DaemonSet::new(Arc::clone(object))).into_mut(),
        };
        if !is_known || !is_same {
            set.dirty.extend(self.nodes.keys().cloned());
        }
        set.object = Arc::clone(object);
    }

    fn see_pod(&mut self, change: &Change) {
        for (pod, is_there) in [(&change.before, false), (&change.after, true)] {
            let Some(pod) = pod else { continue };
            let Some(owner) = controller_of(pod).filter(|owner| owner.kind == "DaemonSet") else { continue };
            let key = Key::new(&change.key.namespace, owner.name);
            let Some(set) = self.sets.get_mut(&key).filter(|set| set.object["metadata"]["uid"] == owner.uid) else {
                continue;
            };
            let node = target(pod).unwrap_or_default();
            let pods = set.pods.entry(node.to_owned()).or_default();
            if is_there {
                pods.insert(change.key.clone(), Arc::clone(pod));
            } else {
                pods.remove(&change.key);
            }
            if pods.is_empty() {
                set.pods.remove(node);
            }
            set.dirty.insert(node.to_owned());
            self.dirty.insert(key);
        }
    }
}

/// What decides whether a pod may be on a node: heartbeats, which are most of the changes, are no part of it.
fn place(node: Option<&Value>) -> Option<(&Value, &Value)> {
    node.map(|node| (&node["metadata"]["labels"], &node["spec"]["taints"]))
}

/// Whether a node is to have a pod of the set, and whether it may keep one that it has.
fn verdict(set: &Value, node: &Value) -> (bool, bool) {
    let spec = &set["spec"]["template"]["spec"];
    let is_elsewhere = pod::node_name(&set["spec"]["template"]).is_some_and(|name| node["metadata"]["name"] != name);
    if is_elsewhere || !node_affinity::matches(spec, node) {
        return (false, false);
    }
    let own = taint::tolerations(spec);
    let bears = |taint: &Value| {
        TOLERATED.iter().any(|(key, effect)| taint["key"] == *key && taint["effect"] == *effect)
            || taint::is_tolerated(taint, own)
    };
    let bears_all = |effect: &str| taint::taints(node).iter().filter(|taint| taint["effect"] == effect).all(bears);
    let may_stay = bears_all(NO_EXECUTE);
    (may_stay && bears_all(NO_SCHEDULE), may_stay)
}

/// The node that a pod of a set is on or for.
fn target(pod: &Value) -> Option<&str> {
    pod::node_name(pod).or_else(|| node_affinity::only_node(&pod["spec"]))
}

impl DaemonSet {
    fn new(object: Arc<Value>) -> Self {
        Self {
            object,
            pods: BTreeMap::new(),
            tallies: BTreeMap::new(),
            total: Tally::default(),
            dirty: BTreeSet::new(),
        }
    }

    fn sync(
        &mut self,
        server: &ApiServer,
        by: &Actor,
        nodes: &BTreeMap<String, Arc<Value>>,
        key: &Key,
    ) -> Result<(), Refusal> {
        let dirty = std::mem::take(&mut self.dirty);
        for name in &dirty {
            self.count(name, nodes.get(name));
        }
        pod::write_status(server, by, DAEMON_SETS, key, self.status())?;
        if pod::is_terminating(&self.object) {
            return Ok(());
        }
        let mut result = Ok(());
        for name in dirty {
            if let Err(refusal) = self.populate(server, by, &name, nodes.get(&name), &key.namespace) {
                self.dirty.insert(name);
                result = Err(refusal);
            }
        }
        result
    }

    /// Brings the tallies up to date for one node.
    fn count(&mut self, name: &str, node: Option<&Arc<Value>>) {
        let pods = self.pods.get(name);
        let has_one = usize::from(pods.is_some());
        let is_ready = |pod: &Arc<Value>| pod::is_active(pod) && pod::is_ready(pod);
        let tally = match node.map(|node| verdict(&self.object, node)) {
            None => Tally::default(),
            Some((false, _)) => Tally { misplaced: has_one, ..Tally::default() },
            Some((true, _)) => Tally {
                desired: 1,
                current: has_one,
                misplaced: 0,
                ready: usize::from(pods.into_iter().flat_map(BTreeMap::values).any(is_ready)),
            },
        };
        let old = if node.is_some() { self.tallies.insert(name.to_owned(), tally) } else { self.tallies.remove(name) };
        let old = old.unwrap_or_default();
        let total = &mut self.total;
        total.desired = total.desired + tally.desired - old.desired;
        total.current = total.current + tally.current - old.current;
        total.misplaced = total.misplaced + tally.misplaced - old.misplaced;
        total.ready = total.ready + tally.ready - old.ready;
    }

    /// Makes the pod that a node lacks, and deletes those that it should not have.
    fn populate(
        &self,
        server: &ApiServer,
        by: &Actor,
        name: &str,
        node: Option<&Arc<Value>>,
        namespace: &str,
    ) -> Result<(), Refusal> {
        let there = self.pods.get(name);
        let mut living =
            there.into_iter().flatten().filter(|(_, pod)| !pod::is_terminating(pod)).map(|(key, pod)| (key, &**pod));
        let Some(node) = node else {
            // Of pods on nodes that are gone the pod garbage collector takes care; those that were never bound have nobody.
            let mut unbound = living.filter(|(_, pod)| pod::node_name(pod).is_none());
            return unbound.try_for_each(|(key, pod)| pod::delete(server, by, key, pod));
        };
        let (is_wanted, may_stay) = verdict(&self.object, node);
        if there.is_none() && is_wanted {
            return server.create(by, PODS, namespace, new_pod(&self.object, name)).map(drop);
        }
        let mut kept = 0;
        living.try_for_each(|(key, pod)| {
            if may_stay && !pod::is_finished(pod) && kept == 0 {
                kept += 1;
                return Ok(());
            }
            pod::delete(server, by, key, pod)
        })
    }

    fn status(&self) -> Map<String, Value> {
        let Tally { desired, current, misplaced, ready } = self.total;
        Map::from_iter([
            ("desiredNumberScheduled".to_owned(), desired.into()),
            ("currentNumberScheduled".to_owned(), current.into()),
            ("updatedNumberScheduled".to_owned(), current.into()),
            ("numberMisscheduled".to_owned(), misplaced.into()),
            ("numberReady".to_owned(), ready.into()),
            ("numberAvailable".to_owned(), ready.into()),
            ("numberUnavailable".to_owned(), (desired - ready).into()),
            ("observedGeneration".to_owned(), self.object["metadata"]["generation"].clone()),
        ])
    }
}

fn new_pod(set: &Value, node: &str) -> Value {
    let mut pod = pod::from_template(set);
    pod["metadata"]["generateName"] = json!(pod::prefix(set));
    pod["metadata"]["labels"]["controller-revision-hash"] = json!(template_hash(&set["spec"]["template"]));
    node_affinity::pin(&mut pod["spec"], node);
    let mut tolerations = taint::tolerations(&pod["spec"]).to_vec();
    for (key, effect) in TOLERATED {
        let toleration = json!({"key": key, "operator": "Exists", "effect": effect});
        // One of the template for the same taint, but for a time only, is replaced.
        tolerations.retain(|known| ["key", "operator", "effect"].iter().any(|field| known[field] != toleration[field]));
        tolerations.push(toleration);
    }
    pod["spec"]["tolerations"] = tolerations.into();
    pod
}
