//! What controllers read from pods, and how they make them.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{condition, owner};
use crate::world::api_server::kinds::PODS;
use crate::world::api_server::refusal::Refusal;
use crate::world::api_server::store::{Actor, Change, Key};
use crate::world::api_server::{ApiServer, Deletion, Part};

/// The node that it is bound to.
pub fn node_name(pod: &Value) -> Option<&str> {
    pod["spec"]["nodeName"].as_str().filter(|name| !name.is_empty())
}

/// Whether somebody has deleted the object.
pub fn is_terminating(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// Whether its work is done, well or not.
pub fn is_finished(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// Whether it counts as one of its workload's replicas.
pub fn is_active(pod: &Value) -> bool {
    !is_finished(pod) && !is_terminating(pod)
}

/// Whether it is Ready.
pub fn is_ready(pod: &Value) -> bool {
    condition::is_true(pod, "Ready")
}

/// A pod made from the template of a workload, which owns it.
pub fn from_template(workload: &Value) -> Value {
    let template = &workload["spec"]["template"];
    let mut metadata = Map::new();
    for field in ["labels", "annotations"] {
        if template["metadata"][field].is_object() {
            metadata.insert(field.to_owned(), template["metadata"][field].clone());
        }
    }
    metadata.insert("ownerReferences".to_owned(), json!([owner::controller_reference(workload)]));
    json!({"metadata": metadata, "spec": template["spec"], "status": {"phase": "Pending"}})
}

/// `metadata.generateName` for the pods of a workload.
pub fn prefix(workload: &Value) -> String {
    format!("{}-", workload["metadata"]["name"].as_str().unwrap_or_default())
}

/// How many pods a workload is to have.
pub fn replicas(workload: &Value) -> usize {
    let replicas = workload["spec"]["replicas"].as_u64().unwrap_or(1);
    usize::try_from(replicas).unwrap_or(usize::MAX)
}

/// Deletes the pod with its own grace, if it is still the one that `pod` shows.
pub fn delete(server: &ApiServer, by: &Actor, key: &Key, pod: &Value) -> Result<(), Refusal> {
    let uid = pod["metadata"]["uid"].as_str().map(str::to_owned);
    match server.delete(by, PODS, key, &Deletion { uid, ..Deletion::default() }) {
        // Gone, or another one by now.
        Err(refusal) if matches!(refusal.code, 404 | 409) => Ok(()),
        result => result.map(drop),
    }
}

/// Says on the pod why it is about to be deleted
/// (<https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions>).
pub fn say_disrupted(pod: &mut Value, reason: &str, message: &str, now: Timestamp) {
    condition::set(pod, condition::new("DisruptionTarget", "True", reason, message), now);
}

/// A count in a status as most of them are written: none stands for 0.
pub fn count(number: usize) -> Value {
    if number == 0 { Value::Null } else { number.into() }
}

/// Writes what a workload's controller has seen, if it is new. Null takes a field away.
pub fn write_status(
    server: &ApiServer,
    by: &Actor,
    resource: &str,
    key: &Key,
    fields: Map<String, Value>,
) -> Result<(), Refusal> {
    let written = server.update(by, resource, key, Part::Status, |object| {
        for (field, value) in fields {
            object["status"][field] = value;
        }
        if let Some(status) = object["status"].as_object_mut() {
            status.retain(|_, value| !value.is_null());
        }
        Ok(())
    });
    match written {
        Err(refusal) if refusal.code == 404 => Ok(()),
        result => result.map(drop),
    }
}

/// Pods by the node that they are bound to.
#[derive(Debug, Default)]
pub struct PodsByNode(BTreeMap<String, BTreeMap<Key, Arc<Value>>>);

impl PodsByNode {
    /// Takes in a change of a pod.
    pub fn apply(&mut self, change: &Change) {
        if let Some(node) = change.before.as_deref().and_then(node_name) {
            let is_elsewhere = change.after.as_deref().and_then(node_name) != Some(node);
            if is_elsewhere && let Some(pods) = self.0.get_mut(node) {
                pods.remove(&change.key);
                if pods.is_empty() {
                    self.0.remove(node);
                }
            }
        }
        let Some(pod) = &change.after else { return };
        let Some(node) = node_name(pod) else { return };
        let pods = match self.0.get_mut(node) {
            Some(pods) => pods,
            None => self.0.entry(node.to_owned()).or_default(),
        };
        pods.insert(change.key.clone(), Arc::clone(pod));
    }

    /// The pods of one node.
    pub fn on(&self, node: &str) -> impl Iterator<Item = (&Key, &Arc<Value>)> {
        self.0.get(node).into_iter().flatten()
    }

    /// The nodes that have pods, whether or not they exist.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}
