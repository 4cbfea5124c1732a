//! Watches: what has changed since a version, and what changes from now on, one JSON object to a line.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use domain::time::Monotonic;
use futures::stream;
use serde_json::{Value, json};

use super::kinds::Kind;
use super::lists::{Selection, check_options, read_version};
use super::refusal::Refusal;
use super::service::Call;
use super::store::{Change, Expired, Topic};
use super::tables::{Table, View};
use super::{ApiServer, events};

/// How long a watch lasts if the request does not say it. The real server takes a random time of 30 to 60 minutes.
const LASTS: Duration = Duration::from_mins(30);

/// How often a watch says that it is alive, if that is wanted.
const BOOKMARK: Duration = Duration::from_mins(1);

/// The annotation of the bookmark after the objects that were there at the start.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// A watch.
struct Watch {
    server: ApiServer,
    kind: Arc<Kind>,
    resource: String,
    selection: Selection,
    topic: Topic,
    table: Option<Table>,
    view: View,
    /// All changes up to this version have been seen.
    seen: u64,
    lines: VecDeque<Bytes>,
    ends_at: Monotonic,
    bookmark_at: Option<Monotonic>,
    is_over: bool,
}

/// Opens a watch.
pub(super) fn open(call: &Call) -> Result<Body, Refusal> {
    let selection = Selection::of(&call.kind, &call.target, &call.query)?;
    let lasts = match call.query.number("timeoutSeconds")? {
        Some(seconds) if seconds > 0 => Duration::from_secs(u64::try_from(seconds).unwrap_or_default()),
        _ => LASTS,
    };
    check_options(&call.query)?;
    let from = read_version(call.query.get("resourceVersion").unwrap_or("0"));
    let from = from.map_err(|why| Refusal::new(500, "", why))?;
    let wants_initial_events = call.query.is("sendInitialEvents");
    let now = call.server.clock().now().monotonic;
    let wants_bookmarks = call.query.is("allowWatchBookmarks");
    let mut watch = Watch {
        server: call.server.clone(),
        kind: Arc::clone(&call.kind),
        resource: call.kind.stored(),
        topic: selection.topic(),
        selection,
        table: (call.view == View::Table).then(|| Table::new(&call.kind, &call.query)),
        view: call.view,
        seen: from,
        lines: VecDeque::new(),
        ends_at: now + lasts,
        bookmark_at: wants_bookmarks.then(|| now + BOOKMARK),
        is_over: false,
    };
    if wants_initial_events || (from == 0 && call.query.get("sendInitialEvents").is_none()) {
        watch.begin_with_all();
        if wants_bookmarks {
            watch.bookmark(true);
        }
    } else if from == 0 {
        watch.seen = call.server.store().lock().version();
    }
    Ok(Body::from_stream(stream::unfold(watch, |mut watch| async move {
        let line = watch.next().await?;
        Some((Ok::<_, std::convert::Infallible>(line), watch))
    })))
}

impl Watch {
    /// The next lines, or `None` when the watch is over.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(line) = self.lines.pop_front() {
                return Some(line);
            }
            if self.is_over {
                return None;
            }
            if self.catch_up() {
                continue;
            }
            let clock = self.server.clock();
            let until = self.bookmark_at.map_or(self.ends_at, |at| at.min(self.ends_at));
            tokio::select! {
                biased;
                () = self.server.store.changed(&self.resource, &self.topic, self.seen) => {}
                () = clock.sleep_until(until) => {
                    // What did not wake this watch has to be passed by before it can say how far it is.
                    self.catch_up();
                    if until == self.ends_at {
                        self.is_over = true;
                    } else if !self.is_over {
                        self.bookmark(false);
                        self.bookmark_at = Some(until + BOOKMARK);
                    }
                }
            }
        }
    }

    /// Takes in what has changed. Returns whether there was anything, selected or not.
    fn catch_up(&mut self) -> bool {
        let changes = {
            let locked = self.server.store.lock();
            // A version of the future has no changes after it until it is past: such a watch says nothing.
            locked.changes_after(&self.resource, self.seen)
        };
        match changes {
            Ok(changes) => {
                for change in &changes {
                    self.seen = change.version;
                    self.tell(change);
                }
                !changes.is_empty()
            }
            Err(expired) => {
                self.fail(expired);
                true
            }
        }
    }

    fn begin_with_all(&mut self) {
        let locked = self.server.store.lock();
        let all: Vec<_> = locked
            .list(&self.resource, self.selection.namespace.as_deref())
            .filter(|(_, object)| self.selection.has(None, object))
            .map(|(_, object)| Arc::clone(object))
            .collect();
        self.seen = locked.version();
        drop(locked);
        for object in all {
            self.line("ADDED", &object);
        }
    }

    /// An object that comes into the selection is added, one that leaves it is deleted.
    fn tell(&mut self, change: &Change) {
        let selected = |object: &Option<Arc<Value>>| {
            object.as_ref().filter(|object| self.selection.has(Some(&change.key), object)).cloned()
        };
        match (selected(&change.before), selected(&change.after)) {
            (None, Some(after)) => self.line("ADDED", &after),
            (Some(_), Some(after)) => self.line("MODIFIED", &after),
            (Some(before), None) => {
                let mut last = Value::clone(&before);
                last["metadata"]["resourceVersion"] = change.version.to_string().into();
                self.line("DELETED", &last);
            }
            (None, None) => {}
        }
    }

    fn line(&mut self, what: &str, object: &Value) {
        let line = match &mut self.table {
            Some(table) => {
                let now = self.server.clock.now().wall;
                let version = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
                write_line(what, &table.next(&self.kind, &version, [object], now))
            }
            None if self.view == View::Metadata => write_line(what, &View::metadata_of(object)),
            None => write_line(what, &events::shown(&self.kind, object)),
        };
        self.lines.push_back(line);
    }

    /// Says which version has been seen.
    fn bookmark(&mut self, ends_initial_events: bool) {
        {
            let locked = self.server.store.lock();
            // What another thread has written since the last look has not been told yet.
            if locked.changes_after(&self.resource, self.seen).is_ok_and(|missed| missed.is_empty()) {
                self.seen = self.seen.max(locked.version());
            }
        }
        let mut object = json!({
            "kind": self.kind.kind,
            "apiVersion": self.kind.api_version(),
            "metadata": {"resourceVersion": self.seen.to_string()},
        });
        if ends_initial_events {
            object["metadata"]["annotations"] = json!({INITIAL_EVENTS_END: "true"});
        }
        self.lines.push_back(write_line("BOOKMARK", &object));
    }

    fn fail(&mut self, expired: Expired) {
        let refusal = Refusal::new(410, "Expired", expired.to_string());
        self.lines.push_back(write_line("ERROR", &refusal.status()));
        self.is_over = true;
    }
}

/// The event is written around the object, which is not copied for it.
fn write_line(what: &str, object: &Value) -> Bytes {
    let mut line = format!("{{\"type\":\"{what}\",\"object\":").into_bytes();
    // Writing JSON into memory does not fail: the keys of a `Value` are texts.
    let _ = serde_json::to_writer(&mut line, object);
    line.extend_from_slice(b"}\n");
    line.into()
}
