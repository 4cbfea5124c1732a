//! Every request that went through a proxy.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::request::Parts;
use http::{Method, StatusCode};
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::fault::{Fault, RequestLine};
use super::lock;
use crate::clock;
use crate::follow::TimedOut;

/// Longer bodies are not kept.
const MOST_BODY_BYTES: usize = 64 * 1024;

/// One request and what became of it. All times count from the start of the proxy.
#[derive(Clone, Debug)]
pub struct RecordedRequest {
    /// The how many-th request it was, from 0.
    pub number: usize,
    /// The method.
    pub method: Method,
    /// The path, without the query.
    pub path: String,
    /// The query, without the question mark; empty if there is none.
    pub query: String,
    /// The body, if it was JSON of at most 64 KiB.
    pub body: Option<Value>,
    /// When it had come in.
    pub began: Duration,
    /// The status of the answer, whoever gave it.
    pub status: Option<StatusCode>,
    /// When the head of the answer was passed on.
    pub answered: Option<Duration>,
    /// When the last of the answer was passed on, or the connection closed. None: still running, as a watch is.
    pub ended: Option<Duration>,
    /// The fault that it met, in words.
    pub fault: Option<String>,
}

impl RecordedRequest {
    /// Whether it has neither ended nor been given up.
    pub fn is_running(&self) -> bool {
        self.ended.is_none()
    }

    /// Whether it has this method and its path ends so.
    pub fn is(&self, method: &Method, path_end: &str) -> bool {
        self.method == method && self.path.ends_with(path_end)
    }

    /// Whether it asks for a watch.
    pub fn is_watch(&self) -> bool {
        self.query.split('&').any(|parameter| matches!(parameter, "watch=true" | "watch=1"))
    }

    /// What a [`super::RequestMatcher`] looks at.
    pub fn line(&self) -> RequestLine<'_> {
        RequestLine { method: &self.method, path: &self.path, query: &self.query }
    }
}

/// The requests of one proxy.
#[derive(Debug)]
pub(super) struct Records {
    started: Instant,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    next_number: usize,
    requests: Vec<RecordedRequest>,
}

impl Default for Records {
    fn default() -> Self {
        Self { started: clock::now(), state: Mutex::default(), changed: Notify::new() }
    }
}

impl Records {
    pub(super) fn all(&self) -> Vec<RecordedRequest> {
        lock(&self.state).requests.clone()
    }

    pub(super) fn forget_ended(&self) {
        lock(&self.state).requests.retain(RecordedRequest::is_running);
    }

    pub(super) async fn wait_for(
        &self,
        goal: &str,
        limit: Duration,
        mut reached: impl FnMut(&[RecordedRequest]) -> bool,
    ) -> Result<Vec<RecordedRequest>, TimedOut> {
        let wait = async {
            loop {
                let changed = self.changed.notified();
                tokio::pin!(changed);
                // From here on no change is missed, even one that comes before the wait below.
                changed.as_mut().enable();
                {
                    let state = lock(&self.state);
                    if reached(&state.requests) {
                        return state.requests.clone();
                    }
                }
                changed.await;
            }
        };
        timeout(limit, wait).await.map_err(|_| TimedOut {
            goal: goal.to_owned(),
            limit,
            last_seen: self.last_requests(),
        })
    }

    fn last_requests(&self) -> String {
        const MOST: usize = 20;
        let requests = self.all();
        let lines = requests.iter().rev().take(MOST).rev().map(|request| {
            let RecordedRequest { number, method, path, query, status, fault, .. } = request;
            let status = status.map_or("no answer".to_owned(), |status| status.as_u16().to_string());
            let fault = fault.as_ref().map(|fault| format!(", fault {fault}")).unwrap_or_default();
            format!("\n  #{number} {method} {path}?{query}: {status}{fault}")
        });
        format!("{} requests, of which the last are{}", requests.len(), lines.collect::<String>())
    }

    /// Records a request that has come in.
    pub(super) fn begin(records: &Arc<Self>, head: &Parts, body: &[u8]) -> Running {
        let body = (!body.is_empty() && body.len() <= MOST_BODY_BYTES).then(|| serde_json::from_slice(body).ok());
        let mut state = lock(&records.state);
        let number = state.next_number;
        state.next_number += 1;
        let request = RecordedRequest {
            number,
            method: head.method.clone(),
            path: head.uri.path().to_owned(),
            query: head.uri.query().unwrap_or_default().to_owned(),
            body: body.flatten(),
            began: records.started.elapsed(),
            status: None,
            answered: None,
            ended: None,
            fault: None,
        };
        state.requests.push(request.clone());
        drop(state);
        records.changed.notify_waiters();
        Running { records: Arc::clone(records), request }
    }

    fn change(&self, number: usize, change: impl FnOnce(&mut RecordedRequest)) {
        let mut state = lock(&self.state);
        // In the order of their numbers, some of them forgotten.
        if let Ok(index) = state.requests.binary_search_by_key(&number, |request| request.number) {
            change(&mut state.requests[index]);
        }
        drop(state);
        self.changed.notify_waiters();
    }
}

/// A request that has not ended. It ends when this value is dropped.
#[derive(Debug)]
pub(super) struct Running {
    records: Arc<Records>,
    request: RecordedRequest,
}

impl Running {
    pub(super) fn line(&self) -> RequestLine<'_> {
        self.request.line()
    }

    pub(super) fn spoiled_by(&self, fault: Option<&Fault>) {
        if let Some(fault) = fault {
            self.records.change(self.request.number, |request| request.fault = Some(format!("{fault:?}")));
        }
    }

    pub(super) fn answered(&self, status: StatusCode) {
        let at = self.records.started.elapsed();
        self.records.change(self.request.number, |request| {
            request.status = Some(status);
            request.answered = Some(at);
        });
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let at = self.records.started.elapsed();
        self.records.change(self.request.number, |request| request.ended = Some(at));
    }
}
