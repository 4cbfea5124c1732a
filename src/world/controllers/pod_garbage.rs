//! The pod garbage collector: every 20 s it frees the pods of nodes that do not exist, and those that terminate on nodes
//! that somebody has declared out of service.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use domain::time::{Monotonic, Now};
use serde_json::{Value, json};

use super::condition;
use super::driver::Controller;
use super::pod::{self, PodsByNode};
use super::taint::{self, OUT_OF_SERVICE};
use crate::world::api_server::kinds::{NODES, PODS};
use crate::world::api_server::store::{Actor, Change, Key};
use crate::world::api_server::{ApiServer, Deletion, Part};

const NAME: &str = "pod-garbage-collector";

/// From one look to the next.
const PERIOD: Duration = Duration::from_secs(20);
/// How long a node must have been missing.
const QUARANTINE: Duration = Duration::from_secs(40);

/// The controller.
#[derive(Debug)]
pub struct PodGarbage {
    by: Actor,
    pods: PodsByNode,
    /// All nodes, and whether each is out of service.
    nodes: BTreeMap<String, bool>,
    unbound: BTreeSet<Key>,
    /// Nodes that pods are bound to and that do not exist, with when that was noticed.
    missing: BTreeMap<String, Monotonic>,
    looks: Option<Monotonic>,
}

impl Default for PodGarbage {
    fn default() -> Self {
        Self {
            by: Actor::new(NAME),
            pods: PodsByNode::default(),
            nodes: BTreeMap::new(),
            unbound: BTreeSet::new(),
            missing: BTreeMap::new(),
            looks: None,
        }
    }
}

impl Controller for PodGarbage {
    fn name(&self) -> &'static str {
        NAME
    }

    fn watches(&self) -> &'static [&'static str] {
        &[NODES, PODS]
    }

    fn reconcile(&mut self, server: &ApiServer, changes: &[Arc<Change>], now: Now) -> Option<Monotonic> {
        for change in changes {
            self.see(change);
        }
        let mut looks = *self.looks.get_or_insert(now.monotonic);
        if looks <= now.monotonic {
            self.look(server, now);
            looks = now.monotonic + PERIOD;
            self.looks = Some(looks);
        }
        Some(looks)
    }
}

impl PodGarbage {
    fn see(&mut self, change: &Change) {
        if &*change.resource == PODS {
            self.pods.apply(change);
            let is_stray = |pod: &Value| pod::node_name(pod).is_none() && pod::is_terminating(pod);
            if change.after.as_deref().is_some_and(is_stray) {
                self.unbound.insert(change.key.clone());
            } else {
                self.unbound.remove(&change.key);
            }
        } else if let Some(node) = &change.after {
            let has_taint = taint::taints(node).iter().any(|taint| taint["key"] == OUT_OF_SERVICE);
            self.nodes.insert(change.key.name.clone(), has_taint && !condition::is_true(node, "Ready"));
        } else {
            self.nodes.remove(&change.key.name);
        }
    }

    fn look(&mut self, server: &ApiServer, now: Now) {
        for (node, _) in self.nodes.iter().filter(|(_, is_out_of_service)| **is_out_of_service) {
            for (key, pod) in self.pods.on(node).filter(|(_, pod)| pod::is_terminating(pod)) {
                self.free(server, key, pod, false, now);
            }
        }
        for key in &self.unbound {
            if let Ok(pod) = server.get(PODS, key) {
                self.free(server, key, &pod, false, now);
            }
        }
        let missing: Vec<String> =
            self.pods.nodes().filter(|node| !self.nodes.contains_key(*node)).map(str::to_owned).collect();
        self.missing.retain(|node, _| missing.contains(node));
        for node in missing {
            let noticed = *self.missing.entry(node.clone()).or_insert(now.monotonic);
            if now.monotonic.since(noticed) < QUARANTINE || server.get(NODES, &Key::new("", &node)).is_ok() {
                continue;
            }
            for (key, pod) in self.pods.on(&node) {
                self.free(server, key, pod, true, now);
            }
        }
    }

    /// Takes the object away, whatever is left of its grace. Who refuses has it tried again at the next look.
    fn free(&self, server: &ApiServer, key: &Key, pod: &Value, is_orphan: bool, now: Now) {
        let uid = pod["metadata"]["uid"].clone();
        let failed = server.update(&self.by, PODS, key, Part::Status, |pod| {
            if pod["metadata"]["uid"] == uid && !pod::is_finished(pod) {
                pod["status"]["phase"] = json!("Failed");
                if is_orphan {
                    pod::say_disrupted(pod, "DeletionByPodGC", "PodGC: node no longer exists", now.wall);
                }
            }
            Ok(())
        });
        let uid = uid.as_str().map(str::to_owned);
        if failed.is_ok() {
            let _ = server.delete(&self.by, PODS, key, &Deletion { grace: Some(0), uid, ..Deletion::default() });
        }
    }
}
