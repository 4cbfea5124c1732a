//! `StatefulSets`: pods with names of their own, each made again when its object is gone and not before. The template of
//! living pods is not rolled out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use domain::time::{Monotonic, Now};
use serde_json::{Map, Value, json};

use super::deployment::template_hash;
use super::driver::{Controller, sync_each};
use super::owner::Dependents;
use super::pod;
use crate::world::api_server::ApiServer;
use crate::world::api_server::kinds::{PODS, STATEFUL_SETS};
use crate::world::api_server::refusal::Refusal;
use crate::world::api_server::store::{Actor, Change, Key};

const NAME: &str = "statefulset-controller";

/// The controller.
#[derive(Debug)]
pub struct StatefulSets {
    by: Actor,
    pods: Dependents,
    dirty: BTreeSet<Key>,
}

impl Default for StatefulSets {
    fn default() -> Self {
        Self { by: Actor::new(NAME), pods: Dependents::new("StatefulSet"), dirty: BTreeSet::new() }
    }
}

impl Controller for StatefulSets {
    fn name(&self) -> &'static str {
        NAME
    }

    fn watches(&self) -> &'static [&'static str] {
        &[STATEFUL_SETS, PODS]
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
    let Ok(set) = server.get(STATEFUL_SETS, key) else { return Ok(()) };
    let prefix = pod::prefix(&set);
    let by_ordinal: BTreeMap<usize, (&Key, &Arc<Value>)> = pods
        .of(&set)
        .filter_map(|(key, pod)| Some((key.name.strip_prefix(&prefix)?.parse().ok()?, (key, pod))))
        .collect();
    pod::write_status(server, by, STATEFUL_SETS, key, status(&set, &by_ordinal))?;
    if pod::is_terminating(&set) {
        return Ok(());
    }
    let is_ordered = set["spec"]["podManagementPolicy"] != "Parallel";
    let wanted = pod::replicas(&set);
    for ordinal in 0..wanted {
        let is_up = match by_ordinal.get(&ordinal) {
            None => {
                server.create(by, PODS, &key.namespace, new_pod(&set, ordinal))?;
                false
            }
            Some((key, pod)) if pod::is_finished(pod) && !pod::is_terminating(pod) => {
                pod::delete(server, by, key, pod)?;
                false
            }
            Some((_, pod)) => !pod::is_terminating(pod) && pod::is_ready(pod),
        };
        if is_ordered && !is_up {
            return Ok(());
        }
    }
    for (_, (key, pod)) in by_ordinal.range(wanted..).rev() {
        if !pod::is_terminating(pod) {
            pod::delete(server, by, key, pod)?;
        }
        if is_ordered {
            return Ok(());
        }
    }
    Ok(())
}

fn new_pod(set: &Value, ordinal: usize) -> Value {
    let mut pod = pod::from_template(set);
    let name = format!("{}{ordinal}", pod::prefix(set));
    pod["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] = json!(name);
    pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"] = json!(ordinal.to_string());
    pod["metadata"]["labels"]["controller-revision-hash"] = json!(revision(set));
    pod["spec"]["hostname"] = json!(name);
    if set["spec"]["serviceName"].is_string() {
        pod["spec"]["subdomain"] = set["spec"]["serviceName"].clone();
    }
    pod["metadata"]["generateName"] = json!(pod::prefix(set));
    pod["metadata"]["name"] = json!(name);
    pod
}

fn revision(set: &Value) -> String {
    format!("{}{}", pod::prefix(set), template_hash(&set["spec"]["template"]))
}

fn status(set: &Value, pods: &BTreeMap<usize, (&Key, &Arc<Value>)>) -> Map<String, Value> {
    let active = || pods.values().filter(|(_, pod)| pod::is_active(pod));
    let ready = active().filter(|(_, pod)| pod::is_ready(pod)).count();
    Map::from_iter([
        ("replicas".to_owned(), pods.len().into()),
        ("currentReplicas".to_owned(), pod::count(active().count())),
        ("updatedReplicas".to_owned(), pod::count(active().count())),
        ("readyReplicas".to_owned(), pod::count(ready)),
        ("availableReplicas".to_owned(), ready.into()),
        ("currentRevision".to_owned(), revision(set).into()),
        ("updateRevision".to_owned(), revision(set).into()),
        ("observedGeneration".to_owned(), set["metadata"]["generation"].clone()),
    ])
}
