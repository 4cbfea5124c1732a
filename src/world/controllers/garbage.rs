//! The garbage collector: deletes in the background what has lost all its owners.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use domain::time::{Monotonic, Now};

use super::driver::{Controller, sync_each};
use super::node_lifecycle::LEASE_NAMESPACE;
use super::owner::{Owner, owners};
use crate::world::api_server::kinds::{
    DAEMON_SETS, DEPLOYMENTS, DISRUPTION_BUDGETS, LEASES, NODES, PODS, REPLICA_SETS, STATEFUL_SETS,
};
use crate::world::api_server::refusal::Refusal;
use crate::world::api_server::store::{Actor, Change, Key};
use crate::world::api_server::{ApiServer, Deletion};

const NAME: &str = "generic-garbage-collector";

/// The resources whose objects are owned or own others, with the kinds by which they are referred to.
const RESOURCES: [(&str, &str); 7] = [
    (PODS, "Pod"),
    (REPLICA_SETS, "ReplicaSet"),
    (DEPLOYMENTS, "Deployment"),
    (STATEFUL_SETS, "StatefulSet"),
    (DAEMON_SETS, "DaemonSet"),
    (DISRUPTION_BUDGETS, "PodDisruptionBudget"),
    (NODES, "Node"),
];

/// The controller for all but leases.
#[derive(Debug)]
pub struct Garbage {
    by: Actor,
    /// What refers to the object with this UID, as index into [`RESOURCES`] and key.
    dependents: BTreeMap<String, BTreeSet<(usize, Key)>>,
    /// What may have lost its owners, by resource.
    doubtful: [BTreeSet<Key>; RESOURCES.len()],
}

impl Default for Garbage {
    fn default() -> Self {
        Self { by: Actor::new(NAME), dependents: BTreeMap::new(), doubtful: Default::default() }
    }
}

impl Controller for Garbage {
    fn name(&self) -> &'static str {
        NAME
    }

    fn watches(&self) -> &'static [&'static str] {
        &[PODS, REPLICA_SETS, DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS, DISRUPTION_BUDGETS, NODES]
    }

    fn reconcile(&mut self, server: &ApiServer, changes: &[Arc<Change>], now: Now) -> Option<Monotonic> {
        for change in changes {
            self.see(change);
        }
        let by = &self.by;
        let each = RESOURCES.iter().zip(&mut self.doubtful);
        each.filter_map(|((resource, _), keys)| sync_each(keys, now, |key| delete_if_orphan(server, by, resource, key)))
            .min()
    }
}

impl Garbage {
    fn see(&mut self, change: &Change) {
        let Some(index) = RESOURCES.iter().position(|(resource, _)| *resource == &*change.resource) else { return };
        let references = |object: &Option<Arc<serde_json::Value>>| -> BTreeSet<String> {
            object.iter().flat_map(|object| owners(object)).map(|owner| owner.uid.to_owned()).collect()
        };
        let (before, after) = (references(&change.before), references(&change.after));
        for uid in before.difference(&after) {
            if let Some(dependents) = self.dependents.get_mut(uid) {
                dependents.remove(&(index, change.key.clone()));
                if dependents.is_empty() {
                    self.dependents.remove(uid);
                }
            }
        }
        // Its owner may have gone before it came.
        if after.difference(&before).next().is_some() {
            self.doubtful[index].insert(change.key.clone());
        }
        for uid in after.difference(&before) {
            self.dependents.entry(uid.clone()).or_default().insert((index, change.key.clone()));
        }
        let gone = if change.after.is_none() { change.before.as_deref() } else { None };
        let of_gone = gone.and_then(|gone| self.dependents.get(gone["metadata"]["uid"].as_str()?));
        for (index, key) in of_gone.into_iter().flatten() {
            self.doubtful[*index].insert(key.clone());
        }
    }
}

fn delete_if_orphan(server: &ApiServer, by: &Actor, resource: &str, key: &Key) -> Result<(), Refusal> {
    let Ok(object) = server.get(resource, key) else { return Ok(()) };
    let mut referred = owners(&object).peekable();
    if referred.peek().is_none() || referred.any(|owner| may_exist(server, &key.namespace, owner)) {
        return Ok(());
    }
    let uid = object["metadata"]["uid"].as_str().map(str::to_owned);
    match server.delete(by, resource, key, &Deletion { uid, ..Deletion::default() }) {
        Err(refusal) if matches!(refusal.code, 404 | 409) => Ok(()),
        result => result.map(drop),
    }
}

/// Owners of kinds that nobody knows count as there.
fn may_exist(server: &ApiServer, namespace: &str, owner: Owner<'_>) -> bool {
    let Some((resource, _)) = RESOURCES.iter().find(|(_, kind)| *kind == owner.kind) else { return true };
    let known = server.kind(resource);
    if known.as_ref().is_none_or(|kind| kind.api_version() != owner.api_version) {
        return true;
    }
    let namespace = if known.is_some_and(|kind| kind.namespaced) { namespace } else { "" };
    let found = server.get(resource, &Key::new(namespace, owner.name));
    found.is_ok_and(|object| object["metadata"]["uid"] == owner.uid)
}

/// The same for the leases of nodes, whose many renewals are not worth watching: a lease has its node's name.
#[derive(Debug)]
pub struct Leases(Actor);

impl Default for Leases {
    fn default() -> Self {
        Self(Actor::new(NAME))
    }
}

impl Controller for Leases {
    fn name(&self) -> &'static str {
        NAME
    }

    fn watches(&self) -> &'static [&'static str] {
        &[NODES]
    }

    fn reconcile(&mut self, server: &ApiServer, changes: &[Arc<Change>], now: Now) -> Option<Monotonic> {
        let gone = changes.iter().filter(|change| change.after.is_none());
        let mut keys = gone.map(|change| Key::new(LEASE_NAMESPACE, &change.key.name)).collect();
        sync_each(&mut keys, now, |key| delete_if_orphan(server, &self.0, LEASES, key))
    }
}
