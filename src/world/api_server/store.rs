//! The objects, their versions and their history.
//!
//! One number counts all writes, as in etcd; each object carries the number of its last write as `resourceVersion`. The
//! latest changes of each resource are kept, so that a watch can go on from a version of the recent past.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::Notify;

/// How many changes of one resource are kept for watches.
const HISTORY: usize = 10_000;

/// Who does something to the cluster, for whoever looks on: `kube-scheduler`, or the agent of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Actor(Arc<str>);

impl Actor {
    /// An actor of this name.
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// Its name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// Which object of a resource; `namespace` is empty for cluster-scoped ones.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The namespace, or nothing.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl Key {
    /// The key of an object.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            out.write_str(&self.name)
        } else {
            write!(out, "{}/{}", self.namespace, self.name)
        }
    }
}

/// One write.
#[derive(Clone, Debug)]
pub struct Change {
    /// The version that it made.
    pub version: u64,
    /// When it was.
    pub at: Timestamp,
    /// Who wrote.
    pub by: Actor,
    /// The resource, as `kubectl` names it: `pods`, `deployments.apps`.
    pub resource: Arc<str>,
    /// Which object.
    pub key: Key,
    /// The object before, unless it is new.
    pub before: Option<Arc<Value>>,
    /// The object after, unless it is gone.
    pub after: Option<Arc<Value>>,
}

/// Of which changes of a resource somebody wants to hear. With thousands of agents most changes concern one of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    /// All.
    Everything,
    /// Those of objects of this name.
    Name(String),
    /// Those of objects that are, or were just before, on this node.
    Node(String),
}

impl Topic {
    /// The topics of a change.
    fn of(change: &Change) -> impl Iterator<Item = Self> {
        let node = |object: &Option<Arc<Value>>| {
            object.as_ref()?.pointer("/spec/nodeName")?.as_str().map(|node| Self::Node(node.to_owned()))
        };
        let nodes = [node(&change.before), node(&change.after)];
        [Self::Everything, Self::Name(change.key.name.clone())].into_iter().chain(nodes.into_iter().flatten())
    }
}

/// Looks on at each write while it happens. It must not call the store.
pub type Observer = Box<dyn FnMut(&Change) + Send>;

#[derive(Default)]
struct Shelf {
    objects: BTreeMap<Key, Arc<Value>>,
    history: VecDeque<Arc<Change>>,
    /// Changes up to this version are no longer known.
    forgotten: u64,
    /// Those who wait for a change. Entries go when their waiters are woken.
    waiters: BTreeMap<Topic, Arc<Notify>>,
    /// How many changes there have been.
    changes: usize,
}

impl Shelf {
    /// The version of the latest change that there may have been.
    fn latest(&self) -> u64 {
        self.history.back().map_or(self.forgotten, |last| last.version)
    }

    /// Wakes those whom a change concerns, and everybody before the history of the others gets too long to catch up with.
    fn wake(&mut self, change: &Change) {
        self.changes += 1;
        if self.changes.is_multiple_of(HISTORY / 2) {
            for waiters in std::mem::take(&mut self.waiters).values() {
                waiters.notify_waiters();
            }
        } else if !self.waiters.is_empty() {
            for waiters in Topic::of(change).filter_map(|topic| self.waiters.remove(&topic)) {
                waiters.notify_waiters();
            }
        }
    }
}

struct State {
    version: u64,
    shelves: BTreeMap<Arc<str>, Shelf>,
    observers: Vec<Observer>,
    dice: fastrand::Rng,
}

/// See the module. Clones are handles on the same store.
#[derive(Clone)]
pub struct Store {
    state: Arc<Mutex<State>>,
}

/// A version that is no longer known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too old resource version: {asked} ({oldest})")]
pub struct Expired {
    /// The version that was asked for.
    pub asked: u64,
    /// The oldest that could be.
    pub oldest: u64,
}

impl Store {
    /// An empty store; names and UIDs that it makes up follow from the seed.
    pub fn new(seed: u64) -> Self {
        let state =
            State { version: 1, shelves: BTreeMap::new(), observers: Vec::new(), dice: fastrand::Rng::with_seed(seed) };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Looks on at every write from now on.
    pub fn observe(&self, observer: Observer) {
        self.lock().0.observers.push(observer);
    }

    /// Does several things to the store at once, so that nobody sees it half done.
    pub fn lock(&self) -> Locked<'_> {
        // A write is complete or has not begun when a panic strikes, so that the state can still be used.
        Locked(self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits for a change of the resource. Returns at once if there is any after `version`; else when there is one of the
    /// topic, and now and then without.
    pub async fn changed(&self, resource: &str, topic: &Topic, version: u64) {
        let woken = {
            let mut locked = self.lock();
            let shelf = locked.shelf(resource);
            if shelf.latest() > version {
                return;
            }
            let waiters = match shelf.waiters.get(topic) {
                Some(waiters) => waiters,
                None => shelf.waiters.entry(topic.clone()).or_default(),
            };
            // It hears of every change from here on, whenever it is polled.
            Arc::clone(waiters).notified_owned()
        };
        woken.await;
    }
}

/// The store, while nobody else can touch it.
pub struct Locked<'a>(MutexGuard<'a, State>);

impl Locked<'_> {
    fn shelf(&mut self, resource: &str) -> &mut Shelf {
        if !self.0.shelves.contains_key(resource) {
            self.0.shelves.insert(resource.into(), Shelf::default());
        }
        // It is there: see the line above.
        self.0.shelves.entry(resource.into()).or_default()
    }

    /// The version of the latest write.
    pub fn version(&self) -> u64 {
        self.0.version
    }

    /// The random numbers of this store.
    pub fn dice(&mut self) -> &mut fastrand::Rng {
        &mut self.0.dice
    }

    /// One object.
    pub fn get(&self, resource: &str, key: &Key) -> Option<Arc<Value>> {
        self.0.shelves.get(resource)?.objects.get(key).cloned()
    }

    /// The objects of a resource in the order of their keys; those of one namespace if one is named.
    pub fn list<'a>(
        &'a self,
        resource: &str,
        namespace: Option<&'a str>,
    ) -> impl Iterator<Item = (&'a Key, &'a Arc<Value>)> {
        let objects = self.0.shelves.get(resource).map(|shelf| &shelf.objects);
        let from = Key { namespace: namespace.unwrap_or_default().to_owned(), name: String::new() };
        objects
            .into_iter()
            .flat_map(move |objects| objects.range(from.clone()..))
            .take_while(move |(key, _)| namespace.is_none_or(|namespace| key.namespace == namespace))
    }

    /// The changes of a resource after a version, oldest first.
    pub fn changes_after(&self, resource: &str, version: u64) -> Result<Vec<Arc<Change>>, Expired> {
        let Some(shelf) = self.0.shelves.get(resource) else { return Ok(Vec::new()) };
        if version < shelf.forgotten {
            return Err(Expired { asked: version, oldest: shelf.forgotten });
        }
        let first = shelf.history.partition_point(|change| change.version <= version);
        Ok(shelf.history.range(first..).cloned().collect())
    }

    /// The objects of a resource as they were at a version of the past, in the order of their keys.
    pub fn list_at(
        &self,
        resource: &str,
        namespace: Option<&str>,
        version: u64,
    ) -> Result<Vec<(Key, Arc<Value>)>, Expired> {
        let changes = self.changes_after(resource, version)?;
        let is_meant = |key: &Key| namespace.is_none_or(|namespace| key.namespace == namespace);
        // What a key was before the first of its later changes is what it was then.
        let mut then: BTreeMap<&Key, Option<&Arc<Value>>> = BTreeMap::new();
        for change in changes.iter().filter(|change| is_meant(&change.key)) {
            then.entry(&change.key).or_insert(change.before.as_ref());
        }
        for (key, object) in self.list(resource, namespace) {
            then.entry(key).or_insert(Some(object));
        }
        Ok(then.into_iter().filter_map(|(key, object)| Some((key.clone(), Arc::clone(object?)))).collect())
    }

    /// The resources that have, or have had, objects.
    pub fn resources(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.shelves.keys()
    }

    /// Begins to remember the history of a resource that has not been there before.
    pub fn begin(&mut self, resource: &str) {
        let version = self.0.version;
        self.shelf(resource).forgotten = version;
    }

    /// Forgets the history of all resources, so that every watch and list from an earlier version has expired.
    pub fn compact(&mut self) {
        let version = self.0.version;
        for shelf in self.0.shelves.values_mut() {
            shelf.history.clear();
            shelf.forgotten = version;
        }
    }

    /// Writes an object as it is, with a new version; returns it with that version. With `None` it is gone, and what is
    /// returned is its last state with the version of its end.
    pub fn commit(
        &mut self,
        by: &Actor,
        resource: &str,
        key: Key,
        object: Option<Value>,
        at: Timestamp,
    ) -> Option<Arc<Value>> {
        self.0.version += 1;
        let version = self.0.version;
        let shelf = self.shelf(resource);
        let before = shelf.objects.get(&key).cloned();
        let after = object.map(|mut object| {
            object["metadata"]["resourceVersion"] = Value::String(version.to_string());
            Arc::new(object)
        });
        match &after {
            Some(after) => drop(shelf.objects.insert(key.clone(), Arc::clone(after))),
            None => drop(shelf.objects.remove(&key)),
        }
        let result = after.clone().or_else(|| {
            let mut last = Value::clone(before.as_ref()?);
            last["metadata"]["resourceVersion"] = Value::String(version.to_string());
            Some(Arc::new(last))
        });
        let change = Arc::new(Change { version, at, by: by.clone(), resource: resource.into(), key, before, after });
        if shelf.history.len() >= HISTORY
            && let Some(oldest) = shelf.history.pop_front()
        {
            shelf.forgotten = oldest.version;
        }
        shelf.history.push_back(Arc::clone(&change));
        shelf.wake(&change);
        let mut observers = std::mem::take(&mut self.0.observers);
        for observer in &mut observers {
            observer(&change);
        }
        self.0.observers = observers;
        result
    }
}
