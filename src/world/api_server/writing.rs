//! What happens to an object on its way into the store.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::kinds::{Kind, NAMESPACES, NODES, PODS, Status};
use super::refusal::{Cause, Refusal};
use super::store::{Actor, Key, Locked};
use super::{Deletion, Part, defaults, field_managers, validation};
use crate::world::uuid::uuid;

/// What the server says to someone whose version of an object is old.
const MODIFIED: &str = "the object has been modified; please apply your changes to the latest version and try again";

/// How many generated names are tried before the server gives up.
const NAME_ATTEMPTS: usize = 8;

/// The longest beginning that a generated name keeps: names have 63 characters at most.
const LONGEST_PREFIX: usize = 58;

/// Metadata that belongs to the server: whatever a writer says about it is dropped.
const OF_THE_SERVER: [&str; 7] = [
    "uid",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
];

/// A write: by whom, when, and how.
pub(super) struct Writing<'a, 'b> {
    /// The store.
    pub(super) locked: &'a mut Locked<'b>,
    /// Who writes.
    pub(super) by: &'a Actor,
    /// The field manager, if it is to be remembered.
    pub(super) manager: Option<&'a str>,
    /// When.
    pub(super) now: Timestamp,
    /// Whether it only pretends to write.
    pub(super) dry_run: bool,
    /// Whether the object is checked before it is taken.
    pub(super) is_checked: bool,
}

impl Writing<'_, '_> {
    /// Creates an object.
    pub(super) fn create(&mut self, kind: &Kind, namespace: &str, mut object: Value) -> Result<Arc<Value>, Refusal> {
        let resource = kind.stored();
        let namespace = if kind.namespaced { namespace } else { "" };
        object["apiVersion"] = json!(kind.stored_api_version());
        object["kind"] = json!(kind.kind);
        if kind.status == Status::Custom
            && let Some(object) = object.as_object_mut()
        {
            object.remove("status");
        }
        let uid = uuid(self.locked.dice());
        let name = self.name_of_new(&resource, namespace, &mut object)?;
        let fields = metadata(&mut object);
        for field in OF_THE_SERVER.iter().chain(&["resourceVersion", "namespace"]) {
            fields.remove(*field);
        }
        if kind.namespaced {
            fields.insert("namespace".into(), namespace.into());
        }
        fields.insert("uid".into(), uid.into());
        fields.insert("creationTimestamp".into(), seconds(self.now).into());
        if kind.generation {
            fields.insert("generation".into(), 1.into());
        }
        defaults::tidy(&mut object);
        defaults::fill(&resource, &mut object);
        self.admit(kind, &resource, namespace, &name, &mut object)?;
        if self.is_checked {
            let causes = validation::of_new(kind, &resource, &object);
            if !causes.is_empty() {
                return Err(Refusal::invalid(&kind.stored_qualified(), &name, &causes));
            }
        }
        let key = Key::new(namespace, &name);
        if let Some(other) = self.locked.get(&resource, &key) {
            let mut refusal = Refusal::already_exists(&kind.resource(), &name);
            if other["metadata"]["deletionTimestamp"].is_string() {
                refusal.message.insert_str(0, "object is being deleted: ");
            }
            return Err(refusal);
        }
        if resource == NODES {
            field_managers::note(&json!({}), &mut object, self.manager, self.now);
        }
        if self.dry_run {
            return Ok(Arc::new(object));
        }
        self.commit(&resource, key, Some(object))
    }

    /// Changes one part of an object.
    pub(super) fn update(
        &mut self,
        kind: &Kind,
        key: &Key,
        part: Part,
        change: impl FnOnce(&mut Value) -> Result<(), Refusal>,
    ) -> Result<Arc<Value>, Refusal> {
        let resource = kind.stored();
        let before = self.existing(kind, key)?;
        let mut after = Value::clone(&before);
        change(&mut after)?;
        let claimed = &after["metadata"]["resourceVersion"];
        let is_old = |version: &str| !version.is_empty() && before["metadata"]["resourceVersion"] != version;
        if claimed.as_str().is_some_and(is_old) {
            return Err(Refusal::conflict(&kind.resource(), &key.name, MODIFIED));
        }
        keep_what_is_not_the_writers(kind, key, &before, &mut after)?;
        keep_other_part(kind, part, &before, &mut after);
        defaults::tidy(&mut after);
        if part == Part::Main {
            defaults::fill_changed(&resource, &mut after);
        }
        if after == *before {
            return Ok(before);
        }
        if self.is_checked {
            let causes = validation::of_change(kind, &resource, &before, &after);
            if !causes.is_empty() {
                return Err(Refusal::invalid(&kind.stored_qualified(), &key.name, &causes));
            }
        }
        if kind.generation && is_another_spec(&resource, &before, &after) {
            let generation = before["metadata"]["generation"].as_i64().unwrap_or_default() + 1;
            after["metadata"]["generation"] = generation.into();
        }
        if resource == NODES {
            field_managers::note(&before, &mut after, self.manager, self.now);
        }
        if self.dry_run {
            return Ok(Arc::new(after));
        }
        if is_done_with(&resource, &after) {
            self.commit(&resource, key.clone(), None)?;
            return Ok(Arc::new(after));
        }
        self.commit(&resource, key.clone(), Some(after))
    }

    /// Deletes an object, gracefully where that is the rule (`BeforeDelete` in
    /// <https://github.com/kubernetes/apiserver/blob/v0.36.3/pkg/registry/rest/delete.go>).
    pub(super) fn delete(&mut self, kind: &Kind, key: &Key, deletion: &Deletion) -> Result<Arc<Value>, Refusal> {
        let resource = kind.stored();
        let before = self.existing(kind, key)?;
        check_preconditions(kind, key, deletion, &before)?;
        if resource == NAMESPACES && has_any(&before["spec"]["finalizers"]) {
            return self.terminate_namespace(key, &before);
        }
        let has_finalizers = has_any(&before["metadata"]["finalizers"]);
        let marked = if resource == PODS {
            match new_end(&before, deletion.grace, self.now) {
                End::Unchanged => return Ok(before),
                End::Now if has_finalizers => return Ok(before),
                End::Now => None,
                End::At(ends_at, grace) => Some(mark(&before, ends_at, grace)),
            }
        } else if has_finalizers {
            if before["metadata"]["deletionTimestamp"].is_string() {
                return Ok(before);
            }
            Some(mark(&before, self.now, 0))
        } else {
            None
        };
        let stays = marked.as_ref().is_some_and(|after| has_finalizers || after.1 > 0);
        if self.dry_run {
            return Ok(marked.map_or(before, |(after, _)| Arc::new(after)));
        }
        // Also what goes at once is marked first, where the kind knows grace: watches see both.
        let marked = marked.map(|(after, _)| self.commit(&resource, key.clone(), Some(after))).transpose()?;
        match marked {
            Some(marked) if stays => Ok(marked),
            _ => self.commit(&resource, key.clone(), None),
        }
    }

    /// The object that a write is for.
    pub(super) fn existing(&self, kind: &Kind, key: &Key) -> Result<Arc<Value>, Refusal> {
        self.locked.get(&kind.stored(), key).ok_or_else(|| kind.not_found(&key.name))
    }

    /// Takes an object as it is.
    pub(super) fn commit(&mut self, resource: &str, key: Key, object: Option<Value>) -> Result<Arc<Value>, Refusal> {
        let name = key.name.clone();
        self.locked.commit(self.by, resource, key, object, self.now).ok_or_else(|| Refusal::not_found(resource, &name))
    }

    /// A namespace stays until its contents are gone, of which a controller takes care.
    fn terminate_namespace(&mut self, key: &Key, before: &Arc<Value>) -> Result<Arc<Value>, Refusal> {
        if before["metadata"]["deletionTimestamp"].is_string() {
            return Ok(Arc::clone(before));
        }
        let mut after = Value::clone(before);
        after["metadata"]["deletionTimestamp"] = seconds(self.now).into();
        after["status"]["phase"] = json!("Terminating");
        if self.dry_run {
            return Ok(Arc::new(after));
        }
        self.commit(NAMESPACES, key.clone(), Some(after))
    }

    /// The name of a new object, which may have to be made up.
    fn name_of_new(&mut self, resource: &str, namespace: &str, object: &mut Value) -> Result<String, Refusal> {
        let fields = metadata(object);
        if let Some(name) = fields.get("name").and_then(Value::as_str).filter(|name| !name.is_empty()) {
            return Ok(name.to_owned());
        }
        let prefix = fields.get("generateName").and_then(Value::as_str).unwrap_or_default();
        if prefix.is_empty() {
            return Ok(String::new());
        }
        let prefix: String = prefix.chars().take(LONGEST_PREFIX).collect();
        for _ in 0..NAME_ATTEMPTS {
            let name = format!("{prefix}{}", self.name_suffix());
            if self.locked.get(resource, &Key::new(namespace, &name)).is_none() {
                fields.insert("name".into(), name.clone().into());
                return Ok(name);
            }
        }
        Err(Refusal::already_exists(resource, &prefix))
    }

    /// The built-in admission of new objects: namespaces that are there and stay, priority classes that are there.
    fn admit(
        &self,
        kind: &Kind,
        resource: &str,
        namespace: &str,
        name: &str,
        object: &mut Value,
    ) -> Result<(), Refusal> {
        if kind.namespaced {
            self.admit_to_namespace(resource, namespace, name)?;
        }
        if resource == PODS {
            defaults::set_priority(self.locked, object).map_err(|why| Refusal::forbidden(PODS, name, &why))?;
        }
        Ok(())
    }

    /// Nothing new may come into a namespace that is not there or is going.
    pub(super) fn admit_to_namespace(&self, resource: &str, namespace: &str, name: &str) -> Result<(), Refusal> {
        let Some(found) = self.locked.get(NAMESPACES, &Key::new("", namespace)) else {
            return if self.is_checked { Err(Refusal::not_found(NAMESPACES, namespace)) } else { Ok(()) };
        };
        if found["metadata"]["deletionTimestamp"].is_null() {
            return Ok(());
        }
        let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
        let mut refusal = Refusal::forbidden(resource, name, &why);
        if let Some(details) = &mut refusal.details {
            details["causes"] = json!([{
                "reason": "NamespaceTerminating",
                "message": format!("namespace {namespace} is being terminated"),
                "field": "metadata.namespace",
            }]);
        }
        Err(refusal)
    }

    /// The end of a generated name, of letters that spell no word.
    fn name_suffix(&mut self) -> String {
        const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        let dice = self.locked.dice();
        (0..5).map(|_| char::from(LETTERS[dice.usize(..LETTERS.len())])).collect()
    }
}

/// Undoes what nobody but the server may change.
fn keep_what_is_not_the_writers(kind: &Kind, key: &Key, before: &Value, after: &mut Value) -> Result<(), Refusal> {
    for field in ["apiVersion", "kind"] {
        after[field] = before[field].clone();
    }
    let fields = metadata(after);
    if let Some(uid) = fields.get("uid").and_then(Value::as_str)
        && before["metadata"]["uid"] != uid
    {
        let cause = Cause::invalid("metadata.uid", format_args!("\"{uid}\""), "field is immutable");
        // The real server checks metadata twice, and says so twice.
        let causes = [cause.clone(), cause];
        return Err(Refusal::invalid(&kind.stored_qualified(), &key.name, &causes));
    }
    for field in OF_THE_SERVER.iter().chain(&["name", "namespace", "resourceVersion"]) {
        match before["metadata"].get(field) {
            Some(value) => drop(fields.insert((*field).into(), value.clone())),
            None => drop(fields.remove(*field)),
        }
    }
    Ok(())
}

/// Seconds as the API writes them, without fractions.
pub(super) fn seconds(at: Timestamp) -> String {
    format!("{at:.0}")
}

/// The object's metadata, which every object that is stored has.
pub(super) fn metadata(object: &mut Value) -> &mut Map<String, Value> {
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    match &mut object["metadata"] {
        Value::Object(metadata) => metadata,
        _ => unreachable!("it was made an object above"),
    }
}

/// Whether a list is there and has something in it.
fn has_any(list: &Value) -> bool {
    list.as_array().is_some_and(|list| !list.is_empty())
}

/// Whether the spec has changed; that a pod is bound to its node does not count.
fn is_another_spec(resource: &str, before: &Value, after: &Value) -> bool {
    if resource == PODS && before["spec"]["nodeName"] != after["spec"]["nodeName"] {
        let (mut before, mut after) = (before["spec"].clone(), after["spec"].clone());
        before["nodeName"] = Value::Null;
        after["nodeName"] = Value::Null;
        return before != after;
    }
    before["spec"] != after["spec"]
}

/// Whether nothing holds an object that is being deleted any more.
fn is_done_with(resource: &str, object: &Value) -> bool {
    let metadata = &object["metadata"];
    metadata["deletionTimestamp"].is_string()
        && !has_any(&metadata["finalizers"])
        && metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or_default() == 0
        && (resource != NAMESPACES || !has_any(&object["spec"]["finalizers"]))
}

/// A write to one part leaves the other part as it was.
fn keep_other_part(kind: &Kind, part: Part, before: &Value, after: &mut Value) {
    let kept: &[&str] = match (part, kind.status) {
        (Part::Main, Status::None) => &[],
        (Part::Main, _) => &["status"],
        (Part::Status, Status::Custom) => &["spec", "metadata"],
        (Part::Status, _) => &["spec"],
    };
    let Some(after) = after.as_object_mut() else { return };
    for field in kept {
        match before.get(field) {
            Some(value) => drop(after.insert((*field).into(), value.clone())),
            None => drop(after.remove(*field)),
        }
    }
}

/// Whether the object is the one that was meant.
pub(super) fn check_preconditions(kind: &Kind, key: &Key, deletion: &Deletion, before: &Value) -> Result<(), Refusal> {
    let metadata = &before["metadata"];
    // Refusals about preconditions name the kind where all others name the resource.
    let conflict = |what: &str| Err(Refusal::conflict(&kind.stored_qualified(), &key.name, what));
    if let Some(uid) = deletion.uid.as_deref().filter(|uid| metadata["uid"] != **uid) {
        let found = metadata["uid"].as_str().unwrap_or_default();
        return conflict(&format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({found}). The object might have been \
             deleted and then recreated"
        ));
    }
    if let Some(version) =
        deletion.resource_version.as_deref().filter(|version| metadata["resourceVersion"] != **version)
    {
        let found = metadata["resourceVersion"].as_str().unwrap_or_default();
        return conflict(&format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({found}). \
             The object might have been modified"
        ));
    }
    Ok(())
}

/// What a deletion means for the end of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Nothing: it is being deleted already, and as soon as that.
    Unchanged,
    /// What is stored says that it is to go now.
    Now,
    /// It ends then, with this grace in seconds.
    At(Timestamp, i64),
}

/// A grace can only become shorter, and it counts from the first deletion; one that is over already becomes a second from
/// now.
fn new_end(pod: &Value, grace: Option<i64>, now: Timestamp) -> End {
    let grace = grace.map(|grace| if grace < 0 { 1 } else { grace });
    let ends_at = pod["metadata"]["deletionTimestamp"].as_str().and_then(|text| text.parse::<Timestamp>().ok());
    let Some(ends_at) = ends_at else {
        let grace = first_grace(pod, grace);
        return End::At(now + SignedDuration::from_secs(grace), grace);
    };
    let stored = pod["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or_default();
    match grace {
        _ if stored == 0 => End::Now,
        Some(grace) if grace < stored => {
            let new_end = ends_at - SignedDuration::from_secs(stored - grace);
            if new_end < now { End::At(now, grace.min(1)) } else { End::At(new_end, grace) }
        }
        _ => End::Unchanged,
    }
}

/// Only pods on a node that have not finished need time to end.
fn first_grace(pod: &Value, grace: Option<i64>) -> i64 {
    let finished = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    let has_node = pod["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
    if finished || !has_node {
        return 0;
    }
    let grace = grace.unwrap_or_else(|| pod["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30));
    if grace < 0 { 1 } else { grace }
}

/// The object with the time of its end and its grace in seconds, which is returned as well.
fn mark(before: &Value, ends_at: Timestamp, grace: i64) -> (Value, i64) {
    let mut after = before.clone();
    let fields = metadata(&mut after);
    if !fields.contains_key("deletionTimestamp")
        && let Some(generation) = fields.get("generation").and_then(Value::as_i64)
    {
        fields.insert("generation".into(), (generation + 1).into());
    }
    fields.insert("deletionTimestamp".into(), seconds(ends_at).into());
    fields.insert("deletionGracePeriodSeconds".into(), grace.into());
    (after, grace)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn terminating(ends_at: &str, grace: i64) -> Value {
        json!({"metadata": {"deletionTimestamp": ends_at, "deletionGracePeriodSeconds": grace}, "spec": {"nodeName": "n"}})
    }

    #[test]
    fn a_grace_becomes_shorter_but_never_longer_and_counts_from_the_first_deletion() {
        let (pod, now) = (terminating("2026-01-01T00:01:00Z", 60), at("2026-01-01T00:00:10Z"));
        for grace in [Some(60), Some(90), None] {
            assert_eq!(new_end(&pod, grace, now), End::Unchanged);
        }
        assert_eq!(new_end(&pod, Some(20), now), End::At(at("2026-01-01T00:00:20Z"), 20));
        assert_eq!(new_end(&pod, Some(8), now), End::At(now, 1), "what is over becomes a second from now");
        assert_eq!(new_end(&pod, Some(-5), now), End::At(now, 1));
        assert_eq!(new_end(&pod, Some(0), now), End::At(now, 0));
    }

    #[test]
    fn only_a_pod_on_a_node_that_has_not_finished_needs_time_to_end() {
        let pod = |node: &str, phase: &str| json!({"spec": {"nodeName": node, "terminationGracePeriodSeconds": 40}, "status": {"phase": phase}});
        assert_eq!(first_grace(&pod("n", "Running"), None), 40);
        assert_eq!(first_grace(&pod("n", "Pending"), Some(90)), 90);
        assert_eq!(first_grace(&pod("", "Pending"), Some(90)), 0);
        assert_eq!(first_grace(&pod("n", "Succeeded"), None), 0);
    }

    #[test]
    fn a_finished_pod_that_terminates_waits_for_its_kubelet() {
        let mut pod = terminating("2026-01-01T00:01:00Z", 60);
        pod["status"] = json!({"phase": "Succeeded"});
        assert_eq!(new_end(&pod, None, at("2026-01-01T00:00:10Z")), End::Unchanged);
    }
}
