//! A Kubernetes API server over objects in memory.
//!
//! [`ApiServer`] has what the API machinery does to an object on its way into the store and out of it: versions,
//! identities, defaults, the part that a subresource may change, graceful deletion. Controllers and kubelets of the world
//! call it directly; everybody else comes over HTTP.

pub mod kinds;
pub mod refusal;
pub mod store;

use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::clock::Clock;
use kinds::{Kind, PODS, Status};
use refusal::Refusal;
use store::{Actor, Key, Locked, Store};

/// What the server says to someone whose version of an object is old.
const MODIFIED: &str = "the object has been modified; please apply your changes to the latest version and try again";

/// Which part of an object a write is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All but the status.
    Main,
    /// The status, through its subresource.
    Status,
}

/// How something is to be deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deletion {
    /// Seconds until it is ended by force; the object's own if `None`.
    pub grace: Option<i64>,
    /// Only the object with this UID.
    pub uid: Option<String>,
    /// Only this version of it.
    pub resource_version: Option<String>,
    /// Only pretend.
    pub dry_run: bool,
}

/// See the module. Clones are handles on the same server.
#[derive(Clone)]
pub struct ApiServer {
    store: Store,
    clock: Clock,
    kinds: Arc<Mutex<Vec<Arc<Kind>>>>,
}

impl ApiServer {
    /// A server with nothing in it; names and UIDs that it makes up follow from the seed.
    pub fn new(clock: Clock, seed: u64) -> Self {
        let kinds = kinds::built_in().into_iter().map(Arc::new).collect();
        Self { store: Store::new(seed), clock, kinds: Arc::new(Mutex::new(kinds)) }
    }

    /// The store below.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The clock that it goes by.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// The kind of a resource such as `deployments.apps`.
    pub fn kind(&self, resource: &str) -> Option<Arc<Kind>> {
        let kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        kinds.iter().find(|kind| kind.resource() == resource).cloned()
    }

    fn known_kind(&self, resource: &str) -> Result<Arc<Kind>, Refusal> {
        self.kind(resource)
            .ok_or_else(|| Refusal::new(404, "NotFound", "the server could not find the requested resource"))
    }

    /// One object.
    pub fn get(&self, resource: &str, key: &Key) -> Result<Arc<Value>, Refusal> {
        self.store.lock().get(resource, key).ok_or_else(|| Refusal::not_found(resource, &key.name))
    }

    /// All objects of a resource, or those of one namespace, in the order of their keys.
    pub fn list(&self, resource: &str, namespace: Option<&str>) -> Vec<Arc<Value>> {
        self.store.lock().list(resource, namespace).map(|(_, object)| Arc::clone(object)).collect()
    }

    /// Creates an object. Its name may be given by `metadata.generateName`.
    pub fn create(&self, by: &Actor, resource: &str, namespace: &str, object: Value) -> Result<Arc<Value>, Refusal> {
        let kind = self.known_kind(resource)?;
        let now = self.clock.now().wall;
        let mut locked = self.store.lock();
        let (key, object) = prepare_new(&mut locked, &kind, namespace, object, now)?;
        locked
            .commit(by, resource, key, Some(object), now)
            .ok_or_else(|| Refusal::new(500, "InternalError", "what was created is not there"))
    }

    /// Changes one part of an object. The change sees the object as it is; whatever it changes in the other part is
    /// dropped. A change that changes nothing leaves the version as it is.
    pub fn update(
        &self,
        by: &Actor,
        resource: &str,
        key: &Key,
        part: Part,
        change: impl FnOnce(&mut Value) -> Result<(), Refusal>,
    ) -> Result<Arc<Value>, Refusal> {
        let kind = self.known_kind(resource)?;
        let now = self.clock.now().wall;
        update(&mut self.store.lock(), by, &kind, key, part, now, change)
    }

    /// Deletes an object: a running pod gets its grace, an object with finalizers waits for them, all else is gone at
    /// once. Returns its last state, or its state with the time of its deletion.
    pub fn delete(&self, by: &Actor, resource: &str, key: &Key, deletion: &Deletion) -> Result<Arc<Value>, Refusal> {
        let kind = self.known_kind(resource)?;
        let now = self.clock.now().wall;
        delete(&mut self.store.lock(), by, &kind, key, deletion, now)
    }
}

/// Seconds as the API writes them, without fractions.
fn seconds(at: Timestamp) -> String {
    format!("{at:.0}")
}

/// The object's metadata, which every object that is stored has.
fn metadata(object: &mut Value) -> &mut Map<String, Value> {
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    match &mut object["metadata"] {
        Value::Object(metadata) => metadata,
        _ => unreachable!("it was made an object above"),
    }
}

fn prepare_new(
    locked: &mut Locked<'_>,
    kind: &Kind,
    namespace: &str,
    mut object: Value,
    now: Timestamp,
) -> Result<(Key, Value), Refusal> {
    object["apiVersion"] = json!(kind.api_version());
    object["kind"] = json!(kind.kind);
    if kind.status == Status::Custom
        && let Some(object) = object.as_object_mut()
    {
        object.remove("status");
    }
    let uid = new_uid(locked);
    let suffix = name_suffix(locked);
    let metadata = metadata(&mut object);
    if metadata.get("name").and_then(Value::as_str).is_none_or(str::is_empty)
        && let Some(prefix) = metadata.get("generateName").and_then(Value::as_str)
    {
        let name = format!("{prefix}{suffix}");
        metadata.insert("name".into(), name.into());
    }
    let name = metadata.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    if kind.namespaced {
        metadata.insert("namespace".into(), namespace.into());
    }
    metadata.insert("uid".into(), uid.into());
    metadata.insert("creationTimestamp".into(), seconds(now).into());
    if kind.generation {
        metadata.insert("generation".into(), 1.into());
    }
    let key = Key { namespace: if kind.namespaced { namespace.to_owned() } else { String::new() }, name };
    let resource = kind.resource();
    if locked.get(&resource, &key).is_some() {
        return Err(Refusal::already_exists(&resource, &key.name));
    }
    Ok((key, object))
}

/// A UUID of version 4.
fn new_uid(locked: &mut Locked<'_>) -> String {
    let dice = locked.dice();
    let (high, low) = (dice.u64(..), dice.u64(..));
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xfff,
        0x8000 | (low >> 48 & 0x3fff),
        low & 0xffff_ffff_ffff
    )
}

/// The end of a generated name, of letters that spell no word.
fn name_suffix(locked: &mut Locked<'_>) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let dice = locked.dice();
    (0..5).map(|_| char::from(LETTERS[dice.usize(..LETTERS.len())])).collect()
}

fn update(
    locked: &mut Locked<'_>,
    by: &Actor,
    kind: &Kind,
    key: &Key,
    part: Part,
    now: Timestamp,
    change: impl FnOnce(&mut Value) -> Result<(), Refusal>,
) -> Result<Arc<Value>, Refusal> {
    let resource = kind.resource();
    let before = locked.get(&resource, key).ok_or_else(|| Refusal::not_found(&resource, &key.name))?;
    let mut after = Value::clone(&before);
    change(&mut after)?;
    let claimed = after["metadata"]["resourceVersion"].take();
    if claimed.as_str().is_some_and(|version| !version.is_empty() && before["metadata"]["resourceVersion"] != version) {
        return Err(Refusal::conflict(&resource, &key.name, MODIFIED));
    }
    after["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"].clone();
    keep_other_part(kind, part, &before, &mut after);
    if after == *before {
        return Ok(before);
    }
    if kind.generation && after["spec"] != before["spec"] {
        let generation = before["metadata"]["generation"].as_i64().unwrap_or_default() + 1;
        after["metadata"]["generation"] = generation.into();
    }
    let goes = after["metadata"]["deletionTimestamp"].is_string()
        && after["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty)
        && after["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or_default() == 0;
    let object = if goes { None } else { Some(after) };
    locked.commit(by, &resource, key.clone(), object, now).ok_or_else(|| Refusal::not_found(&resource, &key.name))
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

fn delete(
    locked: &mut Locked<'_>,
    by: &Actor,
    kind: &Kind,
    key: &Key,
    deletion: &Deletion,
    now: Timestamp,
) -> Result<Arc<Value>, Refusal> {
    let resource = kind.resource();
    let before = locked.get(&resource, key).ok_or_else(|| Refusal::not_found(&resource, &key.name))?;
    check_preconditions(&resource, key, deletion, &before)?;
    if deletion.dry_run {
        return Ok(before);
    }
    let grace = grace_of(&resource, deletion, &before);
    let has_finalizers = before["metadata"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty());
    let gone = || Refusal::not_found(&resource, &key.name);
    if grace == 0 && !has_finalizers {
        return locked.commit(by, &resource, key.clone(), None, now).ok_or_else(gone);
    }
    let Some((ends_at, grace)) = new_end(&before, grace, now) else { return Ok(before) };
    let mut after = Value::clone(&before);
    if before["metadata"]["deletionTimestamp"].is_null() && kind.generation {
        let generation = before["metadata"]["generation"].as_i64().unwrap_or_default() + 1;
        after["metadata"]["generation"] = generation.into();
    }
    after["metadata"]["deletionTimestamp"] = seconds(ends_at).into();
    after["metadata"]["deletionGracePeriodSeconds"] = grace.into();
    locked.commit(by, &resource, key.clone(), Some(after), now).ok_or_else(gone)
}

fn check_preconditions(resource: &str, key: &Key, deletion: &Deletion, before: &Value) -> Result<(), Refusal> {
    let metadata = &before["metadata"];
    if let Some(uid) = deletion.uid.as_deref().filter(|uid| metadata["uid"] != **uid) {
        let found = metadata["uid"].as_str().unwrap_or_default();
        let what = format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({found}). The object might have been \
             deleted and then recreated"
        );
        return Err(Refusal::conflict(resource, &key.name, &what));
    }
    if let Some(version) =
        deletion.resource_version.as_deref().filter(|version| metadata["resourceVersion"] != **version)
    {
        let found = metadata["resourceVersion"].as_str().unwrap_or_default();
        let what = format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({found}). \
             The object might have been modified"
        );
        return Err(Refusal::conflict(resource, &key.name, &what));
    }
    Ok(())
}

/// Only pods on a node that have not finished need time to end.
fn grace_of(resource: &str, deletion: &Deletion, object: &Value) -> i64 {
    if resource != PODS {
        return 0;
    }
    let finished = matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    let has_node = object["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
    if finished || !has_node {
        return 0;
    }
    let own = object["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
    let grace = deletion.grace.unwrap_or(own);
    if grace < 0 { 1 } else { grace }
}

/// When the object is to end and with which grace; `None` if nothing changes. A grace can only become shorter, and it counts
/// from the first deletion; one that is over already becomes a second from now.
fn new_end(object: &Value, grace: i64, now: Timestamp) -> Option<(Timestamp, i64)> {
    let ends_at = object["metadata"]["deletionTimestamp"].as_str().and_then(|text| text.parse::<Timestamp>().ok());
    let Some(ends_at) = ends_at else {
        return Some((now + jiff::SignedDuration::from_secs(grace), grace));
    };
    let stored = object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or_default();
    if grace >= stored {
        return None;
    }
    let new_end = ends_at - jiff::SignedDuration::from_secs(stored - grace);
    Some(if new_end < now { (now, 1) } else { (new_end, grace) })
}
