//! Which requests are spoiled, and how.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use serde_json::json;

use super::lock;

/// What a fault does to a request.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The proxy answers; the API server never sees the request.
    Answer(Answer),
    /// The request is passed on after this time.
    Delay(Duration),
    /// Neither passed on nor answered, for as long as the client waits.
    Hang,
    /// The connection is closed without an answer; the API server never sees the request.
    Disconnect,
    /// The request is carried out, and then the connection closed without an answer.
    LoseAnswer,
    /// The answer's body breaks off after this many bytes, with the connection.
    CutBody {
        /// How many bytes of the body pass.
        after: usize,
    },
    /// The answer's body falls silent after this many bytes, as on a black-holed connection.
    StallBody {
        /// How many bytes of the body pass.
        after: usize,
    },
}

/// An answer that the proxy gives by itself.
#[derive(Clone, Debug)]
pub struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: String,
}

impl Answer {
    /// An answer with a plain text body.
    pub fn text(status: StatusCode, body: &str) -> Self {
        Self { status, headers: HeaderMap::new(), body: body.to_owned() }
            .header(http::header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"))
    }

    /// A failure as the API server words it: a `Status` with this reason and message.
    pub fn failure(status: StatusCode, reason: &str, message: &str) -> Self {
        let body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason, "code": status.as_u16(),
        });
        Self { status, headers: HeaderMap::new(), body: body.to_string() }
            .header(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"))
    }

    /// What an overloaded API server says: 429, plain text, `Retry-After: 1`.
    pub fn too_many_requests() -> Self {
        Self::text(StatusCode::TOO_MANY_REQUESTS, "Too many requests, please try again later.\n")
            .header(http::header::RETRY_AFTER, HeaderValue::from_static("1"))
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.append(name, value);
        self
    }

    /// Another body; the headers stay.
    #[must_use]
    pub fn body(mut self, body: impl Into<String>) -> Self {
        self.body = body.into();
        self
    }
}

/// The parts of a request that a matcher looks at.
#[derive(Clone, Copy, Debug)]
pub struct RequestLine<'a> {
    /// The method.
    pub method: &'a Method,
    /// The path, without the query.
    pub path: &'a str,
    /// The query, without the question mark; empty if there is none.
    pub query: &'a str,
}

type Condition = Arc<dyn Fn(&RequestLine<'_>) -> bool + Send + Sync>;

/// Which requests are meant, and how many of them. All that was asked for must hold.
#[derive(Clone, Default)]
pub struct RequestMatcher {
    conditions: Vec<Condition>,
    description: Vec<String>,
    times: Option<u32>,
}

impl RequestMatcher {
    /// Every request.
    pub fn any() -> Self {
        Self::default()
    }

    /// Requests with this method.
    #[must_use]
    pub fn method(self, method: Method) -> Self {
        let description = format!("method {method}");
        self.also(description, move |line| line.method == method)
    }

    /// Requests whose path contains this text.
    #[must_use]
    pub fn path_contains(self, part: &str) -> Self {
        let part = part.to_owned();
        self.also(format!("path with {part}"), move |line| line.path.contains(&part))
    }

    /// Requests whose path ends so.
    #[must_use]
    pub fn path_ends_with(self, end: &str) -> Self {
        let end = end.to_owned();
        self.also(format!("path ending with {end}"), move |line| line.path.ends_with(&end))
    }

    /// Requests whose query contains this text, such as `watch=true`.
    #[must_use]
    pub fn query_contains(self, part: &str) -> Self {
        let part = part.to_owned();
        self.also(format!("query with {part}"), move |line| line.query.contains(&part))
    }

    /// Requests for which `condition` holds; `description` says which these are.
    #[must_use]
    pub fn also(
        mut self,
        description: impl Into<String>,
        condition: impl Fn(&RequestLine<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.description.push(description.into());
        self.conditions.push(Arc::new(condition));
        self
    }

    /// The first `times` of them only.
    #[must_use]
    pub fn times(mut self, times: u32) -> Self {
        self.times = Some(times);
        self
    }

    /// Whether a request is one of these.
    pub fn matches(&self, line: &RequestLine<'_>) -> bool {
        self.conditions.iter().all(|condition| condition(line))
    }
}

impl fmt::Debug for RequestMatcher {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "requests: {}; times: {:?}", self.description.join(", "), self.times)
    }
}

/// All faults that are still to come, oldest first.
#[derive(Debug, Default)]
pub(super) struct Faults(Mutex<Vec<(RequestMatcher, Fault)>>);

impl Faults {
    pub(super) fn add(&self, matcher: RequestMatcher, fault: Fault) {
        lock(&self.0).push((matcher, fault));
    }

    pub(super) fn clear(&self) {
        lock(&self.0).clear();
    }

    /// The fault for this request, which uses up one of its times.
    pub(super) fn take(&self, line: &RequestLine<'_>) -> Option<Fault> {
        let mut faults = lock(&self.0);
        let (matcher, fault) =
            faults.iter_mut().find(|(matcher, _)| matcher.times != Some(0) && matcher.matches(line))?;
        if let Some(times) = &mut matcher.times {
            *times -= 1;
        }
        Some(fault.clone())
    }
}
