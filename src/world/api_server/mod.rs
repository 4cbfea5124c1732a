//! A Kubernetes API server over objects in memory.
//!
//! [`ApiServer`] has what the API machinery does to an object on its way into the store and out of it: versions,
//! identities, defaults, the part that a subresource may change, graceful deletion. Controllers and kubelets of the world
//! call it directly and are trusted to send sound objects; everybody else comes over HTTP, in process
//! ([`ApiServer::service`]) or through a socket ([`ApiServer::service_by_headers`]), where what they send is checked.
//!
//! It answers as kube-apiserver 1.36 does, as far as a node's maintenance and the everyday verbs of `kubectl` ask. Nobody
//! is refused for who he is: there is no RBAC, and no admission beyond what is built in.

mod age;
mod custom_resources;
mod decoding;
mod defaults;
mod discovery;
mod events;
mod eviction;
mod field_managers;
pub mod kinds;
mod lists;
mod patch;
mod paths;
mod protobuf;
pub mod refusal;
mod schema;
mod selectors;
mod server;
mod service;
pub mod store;
mod strategic;
mod subresources;
mod tables;
mod tokens;
mod validation;
mod verbs;
mod watch;
mod writing;

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use crate::clock::Clock;
use kinds::Kind;
use refusal::Refusal;
use store::{Actor, Key, Store};
use writing::Writing;

pub use self::server::{Server, write_kubeconfig};
pub use self::service::{Admission, RequestObserver, RequestSeen, Service};

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
    observers: Arc<Mutex<Vec<RequestObserver>>>,
    admission: Arc<Mutex<Option<Admission>>>,
}

impl ApiServer {
    /// A server with nothing in it but the namespaces that every cluster has; names and UIDs that it makes up follow from
    /// the seed.
    pub fn new(clock: Clock, seed: u64) -> Self {
        let kinds = kinds::built_in().into_iter().map(Arc::new).collect();
        let server = Self {
            store: Store::new(seed),
            clock,
            kinds: Arc::new(Mutex::new(kinds)),
            observers: Arc::default(),
            admission: Arc::default(),
        };
        let by = Actor::new("kube-apiserver");
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            // The store is empty, so that nothing can be in the way.
            let _ = server.create(&by, kinds::NAMESPACES, "", json!({"metadata": {"name": name}}));
        }
        server
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
        kinds.iter().find(|kind| kind.is_called(resource)).cloned()
    }

    /// All kinds that are served.
    fn kinds(&self) -> Vec<Arc<Kind>> {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Serves another set of kinds from now on.
    fn set_kinds(&self, change: impl FnOnce(&mut Vec<Arc<Kind>>)) {
        change(&mut self.kinds.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn known_kind(&self, resource: &str) -> Result<Arc<Kind>, Refusal> {
        self.kind(resource).ok_or_else(Refusal::no_resource)
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
        let created = self.write(by, |writing| writing.create(&kind, namespace, object))?;
        self.kinds_may_have_changed(resource);
        Ok(created)
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
        self.write(by, |writing| writing.update(&kind, key, part, change))
    }

    /// Deletes an object: a running pod gets its grace, a namespace and an object with finalizers wait for these, all else
    /// is gone at once. Returns its last state, or its state with the time of its deletion.
    pub fn delete(&self, by: &Actor, resource: &str, key: &Key, deletion: &Deletion) -> Result<Arc<Value>, Refusal> {
        let kind = self.known_kind(resource)?;
        let last = self.write(by, |writing| writing.delete(&kind, key, deletion))?;
        self.kinds_may_have_changed(resource);
        Ok(last)
    }

    /// Does a write for somebody who is trusted.
    fn write<T>(&self, by: &Actor, write: impl FnOnce(&mut Writing<'_, '_>) -> T) -> T {
        let now = self.clock.now().wall;
        let locked = &mut self.store.lock();
        write(&mut Writing { locked, by, manager: None, now, dry_run: false, is_checked: false })
    }
}
