//! When controllers look, and at what.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use domain::time::{Monotonic, Now};
use futures::future::{pending, select_all};
use jiff::Timestamp;

use crate::clock::Clock;
use crate::world::api_server::ApiServer;
use crate::world::api_server::refusal::Refusal;
use crate::world::api_server::store::{Actor, Change, Key, Store, Topic};

/// Until something that the server refused is tried again, if nothing changes before.
pub const RETRY: Duration = Duration::from_secs(1);

/// A control loop.
pub trait Controller: Send {
    /// Its name, by which it also writes.
    fn name(&self) -> &'static str;

    /// The resources whose changes it is told, such as `deployments.apps`.
    fn watches(&self) -> &'static [&'static str];

    /// How long it takes from a change to what it does about it: the way through watch and work queue of the real one.
    fn delay(&self) -> Duration {
        Duration::from_millis(5)
    }

    /// Does what is to be done. `changes` are all since the last time, in their order, so that whoever takes them in knows
    /// all watched objects as they are; the first time they are a list of what exists. Returns when to call it again even
    /// if nothing changes.
    fn reconcile(&mut self, server: &ApiServer, changes: &[Arc<Change>], now: Now) -> Option<Monotonic>;
}

/// Runs a controller for ever.
pub async fn run(server: ApiServer, make: fn() -> Box<dyn Controller>) {
    let mut controller = make();
    let mut follow = Follow::new(controller.watches());
    let clock = server.clock();
    loop {
        let news = follow.news(server.store());
        if news.is_list {
            tracing::debug!(controller = controller.name(), "begins with a list");
            controller = make();
        }
        let due = controller.reconcile(&server, &news.changes, clock.now());
        tokio::select! {
            biased;
            () = follow.changed(server.store()) => clock.sleep(controller.delay()).await,
            () = until(clock, due) => {}
        }
    }
}

/// Waits until then, or for ever.
pub async fn until(clock: Clock, due: Option<Monotonic>) {
    match due {
        Some(due) => clock.sleep_until(due).await,
        None => pending().await,
    }
}

/// Follows the changes of some resources.
#[derive(Debug)]
pub struct Follow {
    resources: &'static [&'static str],
    seen: Option<u64>,
}

/// What happened since one looked the last time.
#[derive(Debug, Default)]
pub struct News {
    /// In the order in which it happened.
    pub changes: Vec<Arc<Change>>,
    /// These are all objects there are, because this is the first look or the history has expired.
    pub is_list: bool,
}

impl Follow {
    /// Follows these resources, of which there is at least one, beginning with a list.
    pub fn new(resources: &'static [&'static str]) -> Self {
        Self { resources, seen: None }
    }

    /// What is new.
    pub fn news(&mut self, store: &Store) -> News {
        let locked = store.lock();
        let version = locked.version();
        let since = self.seen.replace(version);
        let changes: Option<Vec<_>> = since.and_then(|since| {
            let of_each = self.resources.iter().map(|resource| locked.changes_after(resource, since).ok());
            of_each.collect()
        });
        if let Some(of_each) = changes {
            let mut changes: Vec<Arc<Change>> = of_each.into_iter().flatten().collect();
            changes.sort_by_key(|change| change.version);
            return News { changes, is_list: false };
        }
        let nobody = Actor::new("");
        let mut changes = Vec::new();
        for resource in self.resources {
            let resource: Arc<str> = (*resource).into();
            changes.extend(locked.list(&resource, None).map(|(key, object)| {
                Arc::new(Change {
                    version,
                    at: Timestamp::UNIX_EPOCH,
                    by: nobody.clone(),
                    resource: Arc::clone(&resource),
                    key: key.clone(),
                    before: None,
                    after: Some(Arc::clone(object)),
                })
            }));
        }
        News { changes, is_list: true }
    }

    /// Waits until there is something new.
    pub async fn changed(&self, store: &Store) {
        let since = self.seen.unwrap_or_default();
        let of_each =
            self.resources.iter().map(|resource| Box::pin(store.changed(resource, &Topic::Everything, since)));
        select_all(of_each).await;
    }
}

/// Carries out `sync` for each key and forgets it, except for those that the server refused, for which it returns when to
/// try again.
pub fn sync_each(
    keys: &mut BTreeSet<Key>,
    now: Now,
    mut sync: impl FnMut(&Key) -> Result<(), Refusal>,
) -> Option<Monotonic> {
    keys.retain(|key| sync(key).is_err());
    if keys.is_empty() { None } else { Some(now.monotonic + RETRY) }
}
