//! Follows the objects of one kind: a list, then a watch, then again a list when the watch ends.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use kube::core::Resource;
use kube::{Error, ResourceExt};
use serde_json::Value;
use tokio::time::{sleep, timeout};

/// How long to wait after a failed list before the next one.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(100);

/// Kinds of objects that can be listed and watched through an [`Api`].
pub trait Object: Resource + Clone + Debug + serde::de::DeserializeOwned + Send + 'static {}

impl<K: Resource + Clone + Debug + serde::de::DeserializeOwned + Send + 'static> Object for K {}

/// One step in the life of the followed objects.
#[derive(Clone, Debug)]
pub enum Change<K> {
    /// All objects there are now: those not among them are gone.
    Listed(Vec<K>),
    /// The object is new or different.
    Changed(K),
    /// The object is gone.
    Deleted(K),
}

/// The objects that match a selection, now and from now on. Outages of the API server show only as delay.
pub struct Follow<K> {
    api: Api<K>,
    selection: ListParams,
    events: Option<BoxStream<'static, Result<WatchEvent<K>, Error>>>,
    last_error: Option<String>,
}

impl<K: Object> Follow<K> {
    /// Follows what `selection` selects by label and field.
    pub fn new(api: Api<K>, selection: ListParams) -> Self {
        Self { api, selection, events: None, last_error: None }
    }

    /// What went wrong last, if the list is failing at present.
    pub fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }

    /// Waits for the next change. May be cancelled at any time without losing one.
    pub async fn next(&mut self) -> Change<K> {
        loop {
            let Some(events) = &mut self.events else {
                match self.list().await {
                    Ok(objects) => {
                        self.last_error = None;
                        return Change::Listed(objects);
                    }
                    Err(error) => {
                        self.last_error = Some(error.to_string());
                        sleep(PAUSE_AFTER_FAILURE).await;
                        continue;
                    }
                }
            };
            match events.next().await {
                Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => return Change::Changed(object),
                Some(Ok(WatchEvent::Deleted(object))) => return Change::Deleted(object),
                Some(Ok(WatchEvent::Bookmark(_))) => {}
                Some(Ok(WatchEvent::Error(_)) | Err(_)) | None => self.events = None,
            }
        }
    }

    async fn list(&mut self) -> Result<Vec<K>, Error> {
        let list = self.api.list(&self.selection).await?;
        let watch = WatchParams {
            label_selector: self.selection.label_selector.clone(),
            field_selector: self.selection.field_selector.clone(),
            ..WatchParams::default()
        };
        let version = list.metadata.resource_version.unwrap_or_default();
        self.events = Some(self.api.watch(&watch, &version).await?.boxed());
        Ok(list.items)
    }
}

/// A goal was not reached in time.
#[derive(Debug, thiserror::Error)]
#[error("{goal}: not so within {limit:?}; last seen: {last_seen}")]
pub struct TimedOut {
    /// What was waited for.
    pub goal: String,
    /// How long.
    pub limit: Duration,
    /// What was there instead.
    pub last_seen: String,
}

/// Waits until the objects of a selection, by `namespace/name`, are as `reached` wants them, and returns them.
pub async fn wait_until<K: Object + serde::Serialize>(
    api: &Api<K>,
    selection: &ListParams,
    goal: &str,
    limit: Duration,
    mut reached: impl FnMut(&BTreeMap<String, K>) -> bool,
) -> Result<Vec<K>, TimedOut> {
    let mut follow = Follow::new(api.clone(), selection.clone());
    let mut objects = BTreeMap::new();
    let result = timeout(limit, async {
        loop {
            match follow.next().await {
                Change::Listed(all) => objects = all.into_iter().map(|object| (key(&object), object)).collect(),
                Change::Changed(object) => drop(objects.insert(key(&object), object)),
                Change::Deleted(object) => drop(objects.remove(&key(&object))),
            }
            if reached(&objects) {
                return;
            }
        }
    })
    .await;
    match result {
        Ok(()) => Ok(objects.into_values().collect()),
        Err(_) => Err(TimedOut { goal: goal.to_owned(), limit, last_seen: describe(&objects, follow.last_error()) }),
    }
}

fn key<K: Object>(object: &K) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}

/// The objects' names and status, cut to what a reader of a failed test can take in.
fn describe<K: Object + serde::Serialize>(objects: &BTreeMap<String, K>, error: Option<&str>) -> String {
    const MOST_OBJECTS: usize = 10;
    const MOST_CHARACTERS: usize = 600;
    if let Some(error) = error {
        return format!("no answer ({error})");
    }
    if objects.is_empty() {
        return "nothing".to_owned();
    }
    let described = objects.iter().take(MOST_OBJECTS).map(|(key, object)| {
        let status = serde_json::to_value(object).map_or(Value::Null, |mut value| value["status"].take());
        let status: String = status.to_string().chars().take(MOST_CHARACTERS).collect();
        format!("\n  {key} {status}")
    });
    let left_out = objects.len().saturating_sub(MOST_OBJECTS);
    let end = if left_out > 0 { format!("\n  and {left_out} more") } else { String::new() };
    described.collect::<String>() + &end
}
