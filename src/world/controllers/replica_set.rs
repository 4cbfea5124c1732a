//! `ReplicaSets`: a replacement for each pod that ends or begins to.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use domain::time::{Monotonic, Now};
use serde_json::{Map, Value, json};

use super::driver::{Controller, sync_each};
use super::owner::Dependents;
use super::pod;
use crate::world::api_server::ApiServer;
use crate::world::api_server::kinds::{PODS, REPLICA_SETS};
use crate::world::api_server::refusal::Refusal;
use crate::world::api_server::store::{Actor, Change, Key};

const NAME: &str = "replicaset-controller";

/// The controller.
#[derive(Debug)]
pub struct ReplicaSets {
    by: Actor,
    pods: Dependents,
    dirty: BTreeSet<Key>,
}

impl Default for ReplicaSets {
    fn default() -> Self {
        Self { by: Actor::new(NAME), pods: Dependents::new("ReplicaSet"), dirty: BTreeSet::new() }
    }
}

impl Controller for ReplicaSets {
    fn name(&self) -> &'static str {
        NAME
    }

    fn watches(&self) -> &'static [&'static str] {
        &[REPLICA_SETS, PODS]
    }

    fn reconcile(&mut self, server: &ApiServer, changes: &[Arc<Change>], now: Now) -> Option<Monotonic> {
        for change in changes {
            if &*change.resource == PODS {
                self.pods.apply(change, &mut self.dirty);
            } else {
                self.dirty.insert(change.key.clone());
            }
        }
        sync_each(&mut self.dirty, now, |key| sync(server, &self.by, &self.pods, key))
    }
}

fn sync(server: &ApiServer, by: &Actor, pods: &Dependents, key: &Key) -> Result<(), Refusal> {
    let Ok(set) = server.get(REPLICA_SETS, key) else { return Ok(()) };
    let mut active: Vec<(&Key, &Arc<Value>)> = pods.of(&set).filter(|(_, pod)| pod::is_active(pod)).collect();
    pod::write_status(server, by, REPLICA_SETS, key, status(&set, &active))?;
    if pod::is_terminating(&set) {
        return Ok(());
    }
    let wanted = pod::replicas(&set);
    for _ in active.len()..wanted {
        let mut pod = pod::from_template(&set);
        pod["metadata"]["generateName"] = json!(pod::prefix(&set));
        server.create(by, PODS, &key.namespace, pod)?;
    }
    let surplus = active.len().saturating_sub(wanted);
    if surplus == 0 {
        return Ok(());
    }
    // Those go first whose loss costs least.
    active.sort_by_cached_key(|(key, pod)| {
        let created = pod["metadata"]["creationTimestamp"].as_str().map(str::to_owned);
        let is_running = pod["status"]["phase"] == "Running";
        (pod::node_name(pod).is_some(), is_running, pod::is_ready(pod), Reverse(created), (*key).clone())
    });
    active.iter().take(surplus).try_for_each(|(key, pod)| pod::delete(server, by, key, pod))
}

fn status(set: &Value, active: &[(&Key, &Arc<Value>)]) -> Map<String, Value> {
    let ready = active.iter().filter(|(_, pod)| pod::is_ready(pod)).count();
    Map::from_iter([
        ("replicas".to_owned(), active.len().into()),
        ("fullyLabeledReplicas".to_owned(), pod::count(active.len())),
        ("readyReplicas".to_owned(), pod::count(ready)),
        ("availableReplicas".to_owned(), pod::count(ready)),
        ("observedGeneration".to_owned(), set["metadata"]["generation"].clone()),
    ])
}
