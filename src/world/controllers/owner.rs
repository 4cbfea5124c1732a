//! Who owns an object, and what an object owns.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use crate::world::api_server::store::{Change, Key};

/// An entry of `metadata.ownerReferences`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner<'a> {
    /// `apps/v1`.
    pub api_version: &'a str,
    /// `ReplicaSet`.
    pub kind: &'a str,
    /// The name.
    pub name: &'a str,
    /// The UID.
    pub uid: &'a str,
    /// Whether it is the one that manages the object.
    pub is_controller: bool,
}

/// All owners of an object.
pub fn owners(object: &Value) -> impl Iterator<Item = Owner<'_>> {
    object["metadata"]["ownerReferences"].as_array().into_iter().flatten().map(|reference| Owner {
        api_version: reference["apiVersion"].as_str().unwrap_or_default(),
        kind: reference["kind"].as_str().unwrap_or_default(),
        name: reference["name"].as_str().unwrap_or_default(),
        uid: reference["uid"].as_str().unwrap_or_default(),
        is_controller: reference["controller"] == true,
    })
}

/// The owner that manages an object.
pub fn controller_of(object: &Value) -> Option<Owner<'_>> {
    owners(object).find(|owner| owner.is_controller)
}

/// The entry that makes `owner` the controller of an object.
pub fn controller_reference(owner: &Value) -> Value {
    json!({
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

/// Objects by the UID of their controller, as far as that is of one kind.
#[derive(Debug)]
pub struct Dependents {
    kind: &'static str,
    by_owner: BTreeMap<String, BTreeMap<Key, Arc<Value>>>,
}

impl Dependents {
    /// None yet, of owners of this kind.
    pub fn new(kind: &'static str) -> Self {
        Self { kind, by_owner: BTreeMap::new() }
    }

    /// Takes in a change of an object, and notes whose it was and is.
    pub fn apply(&mut self, change: &Change, owners: &mut BTreeSet<Key>) {
        for (object, is_there) in [(&change.before, false), (&change.after, true)] {
            let Some(object) = object else { continue };
            let Some(owner) = controller_of(object).filter(|owner| owner.kind == self.kind) else { continue };
            owners.insert(Key::new(&change.key.namespace, owner.name));
            if is_there {
                let of_owner = self.by_owner.entry(owner.uid.to_owned()).or_default();
                of_owner.insert(change.key.clone(), Arc::clone(object));
            } else if let Some(of_owner) = self.by_owner.get_mut(owner.uid) {
                of_owner.remove(&change.key);
                if of_owner.is_empty() {
                    self.by_owner.remove(owner.uid);
                }
            }
        }
    }

    /// What this owner has.
    pub fn of(&self, owner: &Value) -> impl Iterator<Item = (&Key, &Arc<Value>)> {
        let uid = owner["metadata"]["uid"].as_str().unwrap_or_default();
        self.by_owner.get(uid).into_iter().flatten()
    }
}
