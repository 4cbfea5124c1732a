//! Deployments: a `ReplicaSet` for the pods of the template as it is. When the template changes, the pods of the old one
//! stay until as many new ones are Ready; a paced rollout is not imitated.

use std::collections::BTreeSet;
use std::sync::Arc;

use domain::time::{Monotonic, Now};
use serde_json::{Map, Value, json};

use super::condition;
use super::driver::{Controller, sync_each};
use super::owner::{Dependents, controller_reference};
use super::pod;
use crate::world::api_server::kinds::{DEPLOYMENTS, REPLICA_SETS};
use crate::world::api_server::refusal::Refusal;
use crate::world::api_server::store::{Actor, Change, Key};
use crate::world::api_server::{ApiServer, Part};

const NAME: &str = "deployment-controller";

/// The label by which the pods of one template are told from those of another.
const TEMPLATE_HASH: &str = "pod-template-hash";

/// What the hash is written with: no word comes of it.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// The controller.
#[derive(Debug)]
pub struct Deployments {
    by: Actor,
    sets: Dependents,
    dirty: BTreeSet<Key>,
}

impl Default for Deployments {
    fn default() -> Self {
        Self { by: Actor::new(NAME), sets: Dependents::new("Deployment"), dirty: BTreeSet::new() }
    }
}

impl Controller for Deployments {
    fn name(&self) -> &'static str {
        NAME
    }

    fn watches(&self) -> &'static [&'static str] {
        &[DEPLOYMENTS, REPLICA_SETS]
    }

    fn reconcile(&mut self, server: &ApiServer, changes: &[Arc<Change>], now: Now) -> Option<Monotonic> {
        for change in changes {
            if &*change.resource == REPLICA_SETS {
                self.sets.apply(change, &mut self.dirty);
            } else {
                self.dirty.insert(change.key.clone());
            }
        }
        sync_each(&mut self.dirty, now, |key| sync(server, &self.by, &self.sets, key, now))
    }
}

fn sync(server: &ApiServer, by: &Actor, sets: &Dependents, key: &Key, now: Now) -> Result<(), Refusal> {
    let Ok(deployment) = server.get(DEPLOYMENTS, key) else { return Ok(()) };
    let hash = template_hash(&deployment["spec"]["template"]);
    let (current, old): (Vec<_>, Vec<_>) =
        sets.of(&deployment).partition(|(_, set)| set["metadata"]["labels"][TEMPLATE_HASH] == hash);
    write_status(server, by, key, &deployment, &current, &old, now)?;
    if pod::is_terminating(&deployment) {
        return Ok(());
    }
    let wanted = pod::replicas(&deployment);
    let Some((current_key, current)) = current.first() else {
        return server.create(by, REPLICA_SETS, &key.namespace, new_set(&deployment, &hash)).map(drop);
    };
    scale(server, by, current_key, wanted)?;
    let is_complete = number(current, "availableReplicas") >= wanted;
    if is_complete { old.iter().try_for_each(|(key, _)| scale(server, by, key, 0)) } else { Ok(()) }
}

fn new_set(deployment: &Value, hash: &str) -> Value {
    let mut spec = json!({
        "replicas": pod::replicas(deployment),
        "selector": deployment["spec"]["selector"],
        "template": deployment["spec"]["template"],
    });
    spec["selector"]["matchLabels"][TEMPLATE_HASH] = json!(hash);
    spec["template"]["metadata"]["labels"][TEMPLATE_HASH] = json!(hash);
    json!({
        "metadata": {
            "name": format!("{}{hash}", pod::prefix(deployment)),
            "labels": spec["template"]["metadata"]["labels"],
            "ownerReferences": [controller_reference(deployment)],
        },
        "spec": spec,
    })
}

fn scale(server: &ApiServer, by: &Actor, key: &Key, replicas: usize) -> Result<(), Refusal> {
    let scaled = server.update(by, REPLICA_SETS, key, Part::Main, |set| {
        set["spec"]["replicas"] = json!(replicas);
        Ok(())
    });
    scaled.map(drop)
}

fn number(set: &Value, field: &str) -> usize {
    set["status"][field].as_u64().and_then(|number| usize::try_from(number).ok()).unwrap_or_default()
}

fn write_status(
    server: &ApiServer,
    by: &Actor,
    key: &Key,
    deployment: &Value,
    current: &[(&Key, &Arc<Value>)],
    old: &[(&Key, &Arc<Value>)],
    now: Now,
) -> Result<(), Refusal> {
    let sum = |field: &str| current.iter().chain(old).map(|(_, set)| number(set, field)).sum::<usize>();
    let wanted = pod::replicas(deployment);
    let available = sum("availableReplicas");
    let mut seen = Value::clone(deployment);
    let availability = if available >= wanted {
        condition::new("Available", "True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    } else {
        condition::new(
            "Available",
            "False",
            "MinimumReplicasUnavailable",
            "Deployment does not have minimum availability.",
        )
    };
    condition::set(&mut seen, availability, now.wall);
    let status = Map::from_iter([
        ("replicas".to_owned(), pod::count(sum("replicas"))),
        ("updatedReplicas".to_owned(), pod::count(current.iter().map(|(_, set)| number(set, "replicas")).sum())),
        ("readyReplicas".to_owned(), pod::count(sum("readyReplicas"))),
        ("availableReplicas".to_owned(), pod::count(available)),
        ("unavailableReplicas".to_owned(), pod::count(wanted.saturating_sub(available))),
        ("observedGeneration".to_owned(), deployment["metadata"]["generation"].clone()),
        ("conditions".to_owned(), seen["status"]["conditions"].take()),
    ]);
    pod::write_status(server, by, DEPLOYMENTS, key, status)
}

/// A name for a template that is the same for the same template (FNV-1a of its text).
pub fn template_hash(template: &Value) -> String {
    let hash = template
        .to_string()
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let digit = |place: u32| usize::try_from(hash / 27_u64.pow(place) % 27).unwrap_or_default();
    (0..10).map(|place| char::from(LETTERS[digit(place)])).collect()
}
