//! Namespaces: the default service account of each, and the end of one with all that is in it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use domain::time::{Monotonic, Now};
use serde_json::{Value, json};

use super::driver::{Controller, RETRY};
use super::node_lifecycle::LEASE_NAMESPACE;
use super::pod;
use crate::world::api_server::kinds::{NAMESPACES, PODS, SERVICE_ACCOUNTS, built_in};
use crate::world::api_server::store::{Actor, Change, Key};
use crate::world::api_server::{ApiServer, Deletion, Part};

const NAME: &str = "namespace-controller";

/// From the deletion of a namespace to that of what is in it.
const PATIENCE: Duration = Duration::from_secs(5);

/// Until the rest is looked at again when things in a namespace need time to go; half of what they need if that is known.
const RECHECK: Duration = Duration::from_secs(2);

/// Makes the namespaces that every cluster has.
pub fn create_system_namespaces(server: &ApiServer) {
    let by = Actor::new("kube-apiserver");
    for name in ["default", LEASE_NAMESPACE, "kube-public", "kube-system"] {
        // It is there already: all is well.
        let _ = server.create(&by, NAMESPACES, "", json!({"metadata": {"name": name}}));
    }
}

/// The controller.
#[derive(Debug)]
pub struct Namespaces {
    by: Actor,
    /// Namespaces that lack their service account.
    bare: BTreeSet<String>,
    /// Namespaces that end, with when to look at them next.
    ending: BTreeMap<String, Monotonic>,
}

impl Default for Namespaces {
    fn default() -> Self {
        Self { by: Actor::new(NAME), bare: BTreeSet::new(), ending: BTreeMap::new() }
    }
}

impl Controller for Namespaces {
    fn name(&self) -> &'static str {
        NAME
    }

    fn watches(&self) -> &'static [&'static str] {
        &[NAMESPACES]
    }

    fn reconcile(&mut self, server: &ApiServer, changes: &[Arc<Change>], now: Now) -> Option<Monotonic> {
        for change in changes {
            let name = change.key.name.clone();
            match change.after.as_deref() {
                Some(namespace) if pod::is_terminating(namespace) => {
                    self.bare.remove(&name);
                    self.ending.entry(name).or_insert(now.monotonic + PATIENCE);
                }
                Some(_) if change.before.is_none() => drop(self.bare.insert(name)),
                Some(_) => {}
                None => {
                    self.bare.remove(&name);
                    self.ending.remove(&name);
                }
            }
        }
        let by = &self.by;
        self.bare.retain(|name| {
            let account = json!({"metadata": {"name": "default"}});
            let made = server.create(by, SERVICE_ACCOUNTS, name, account);
            made.is_err_and(|refusal| refusal.reason != "AlreadyExists")
        });
        for (name, due) in &mut self.ending {
            if *due <= now.monotonic {
                *due = now.monotonic + end(server, by, name);
            }
        }
        let retry = (!self.bare.is_empty()).then(|| now.monotonic + RETRY);
        self.ending.values().copied().chain(retry).min()
    }
}

/// Deletes what is in a namespace, pods first so that nothing is taken from under them, and lets the namespace go when
/// nothing is left (<https://kubernetes.io/docs/concepts/overview/working-with-objects/namespaces/>). Returns when to look
/// again.
fn end(server: &ApiServer, by: &Actor, namespace: &str) -> Duration {
    let mut longest_grace = 0;
    let mut is_empty = true;
    let (pods, others): (Vec<_>, Vec<_>) =
        built_in().into_iter().filter(|kind| kind.namespaced).partition(|kind| kind.is_called(PODS));
    for kind in pods.iter().chain(&others) {
        let resource = kind.resource();
        for object in server.list(&resource, Some(namespace)) {
            let key = Key::new(namespace, object["metadata"]["name"].as_str().unwrap_or_default());
            let object = if pod::is_terminating(&object) {
                object
            } else {
                // What is refused now is tried again at the next look.
                server.delete(by, &resource, &key, &Deletion::default()).unwrap_or(object)
            };
            if server.get(&resource, &key).is_ok() {
                is_empty = false;
                longest_grace = longest_grace.max(grace(&object));
            }
        }
        if resource == PODS && !is_empty {
            break;
        }
    }
    if is_empty {
        // The finalizer that every namespace has in its spec, taken away by the subresource `finalize`. Whoever has others
        // in its metadata takes them away himself.
        let _ = server.update(by, NAMESPACES, &Key::new("", namespace), Part::Main, |namespace| {
            namespace["spec"]["finalizers"] = json!([]);
            Ok(())
        });
    }
    RECHECK.max(Duration::from_secs(longest_grace / 2 + 1))
}

fn grace(object: &Value) -> u64 {
    object["metadata"]["deletionGracePeriodSeconds"].as_u64().unwrap_or_default()
}
