//! Taint eviction: deletes pods from nodes with a `NoExecute` taint that they do not bear, or not for ever.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use domain::time::{Monotonic, Now};
use serde_json::Value;

use super::driver::{Controller, sync_each};
use super::pod::{self, PodsByNode};
use super::taint::{self, NO_EXECUTE};
use crate::world::api_server::kinds::{NODES, PODS};
use crate::world::api_server::refusal::Refusal;
use crate::world::api_server::store::{Actor, Change, Key};
use crate::world::api_server::{ApiServer, Part};

const NAME: &str = "taint-eviction-controller";

/// The controller.
#[derive(Debug)]
pub struct TaintEviction {
    by: Actor,
    pods: PodsByNode,
    /// The taints of nodes that have some.
    taints: BTreeMap<String, Vec<Value>>,
    evictions: BTreeMap<Key, Eviction>,
    agenda: BTreeSet<(Monotonic, Key)>,
    due: BTreeSet<Key>,
}

/// A pod that is to go.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Eviction {
    uid: String,
    /// Since when it bears a taint for a time only.
    since: Monotonic,
    at: Monotonic,
}

impl Default for TaintEviction {
    fn default() -> Self {
        Self {
            by: Actor::new(NAME),
            pods: PodsByNode::default(),
            taints: BTreeMap::new(),
            evictions: BTreeMap::new(),
            agenda: BTreeSet::new(),
            due: BTreeSet::new(),
        }
    }
}

impl Controller for TaintEviction {
    fn name(&self) -> &'static str {
        NAME
    }

    fn watches(&self) -> &'static [&'static str] {
        &[NODES, PODS]
    }

    fn reconcile(&mut self, server: &ApiServer, changes: &[Arc<Change>], now: Now) -> Option<Monotonic> {
        for change in changes {
            if &*change.resource == PODS {
                self.pods.apply(change);
                self.see_pod(&change.key, change.after.as_deref(), now);
            } else {
                self.see_node(change, now);
            }
        }
        while self.agenda.first().is_some_and(|(at, _)| *at <= now.monotonic) {
            let Some((_, key)) = self.agenda.pop_first() else { break };
            self.evictions.remove(&key);
            self.due.insert(key);
        }
        let by = &self.by;
        let retry = sync_each(&mut self.due, now, |key| evict(server, by, key, now));
        self.agenda.first().map(|(at, _)| *at).into_iter().chain(retry).min()
    }
}

impl TaintEviction {
    fn see_node(&mut self, change: &Change, now: Now) {
        let name = &change.key.name;
        let taints: Vec<Value> = change.after.as_deref().map(no_execute).unwrap_or_default();
        let known = self.taints.get(name).map_or(&[][..], Vec::as_slice);
        if taints == known {
            return;
        }
        if taints.is_empty() {
            self.taints.remove(name);
        } else {
            self.taints.insert(name.clone(), taints);
        }
        let pods: Vec<(Key, Arc<Value>)> =
            self.pods.on(name).map(|(key, pod)| (key.clone(), Arc::clone(pod))).collect();
        for (key, pod) in pods {
            self.see_pod(&key, Some(&pod), now);
        }
    }

    fn see_pod(&mut self, key: &Key, pod: Option<&Value>, now: Now) {
        let known = self.evictions.remove(key);
        if let Some(known) = &known {
            self.agenda.remove(&(known.at, key.clone()));
        }
        let taints = pod.and_then(pod::node_name).and_then(|node| self.taints.get(node));
        let (Some(pod), Some(taints)) = (pod.filter(|pod| pod::is_active(pod)), taints) else { return };
        let Some(patience) = patience(taints, taint::tolerations(&pod["spec"])) else { return };
        let uid = pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let since = known.filter(|known| known.uid == uid).map_or(now.monotonic, |known| known.since);
        let at = since + patience;
        self.agenda.insert((at, key.clone()));
        self.evictions.insert(key.clone(), Eviction { uid, since, at });
    }
}

/// The taints that send pods away.
fn no_execute(node: &Value) -> Vec<Value> {
    taint::taints(node).iter().filter(|taint| taint["effect"] == NO_EXECUTE).cloned().collect()
}

/// How long a pod may stay on a node with these taints; `None` if for ever.
fn patience(taints: &[Value], tolerations: &[Value]) -> Option<Duration> {
    let mut least: Option<Duration> = None;
    for taint in taints {
        let Some(toleration) = tolerations.iter().find(|toleration| taint::bears(toleration, taint)) else {
            return Some(Duration::ZERO);
        };
        if let Some(seconds) = toleration["tolerationSeconds"].as_i64() {
            let patience = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
            least = Some(least.map_or(patience, |least| least.min(patience)));
        }
    }
    least
}

fn evict(server: &ApiServer, by: &Actor, key: &Key, now: Now) -> Result<(), Refusal> {
    let Ok(pod) = server.get(PODS, key) else { return Ok(()) };
    let uid = pod["metadata"]["uid"].clone();
    let marked = server.update(by, PODS, key, Part::Status, |pod| {
        if pod["metadata"]["uid"] == uid {
            let message = "Taint manager: deleting due to NoExecute taint";
            pod::say_disrupted(pod, "DeletionByTaintManager", message, now.wall);
        }
        Ok(())
    });
    if marked.is_err_and(|refusal| refusal.code == 404) {
        return Ok(());
    }
    pod::delete(server, by, key, &pod)
}
