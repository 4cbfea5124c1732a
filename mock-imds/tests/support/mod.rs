//! What the tests of the service share.

#![allow(dead_code, reason = "each test binary uses its own part of this")]
#![allow(clippy::unwrap_used, reason = "what cannot go on fails its test")]

use std::collections::BTreeMap;

use axum::{Router, body::Body, http::Request};
use jiff::Timestamp;
use mock_imds::{Mock, Scenario, TokioClock};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tower::ServiceExt;

pub(crate) const VM: &str = "aks-np1-12345678-vmss_0";
pub(crate) const EVENTS: &str = "/metadata/scheduledevents?api-version=2020-07-01";
pub(crate) const METADATA: [(&str, &str); 1] = [("Metadata", "true")];

/// A Wednesday.
pub(crate) fn start() -> Timestamp {
    "2026-04-29T18:00:00Z".parse().unwrap()
}

pub(crate) fn mock(scenario: Scenario) -> Mock {
    Mock::new(scenario, TokioClock::starting_at(start()))
}

pub(crate) fn single() -> Mock {
    mock(Scenario::single(VM))
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: BTreeMap<String, String>,
    /// The body, or what broke while it was read.
    pub(crate) body: Result<String, String>,
}

impl Answer {
    pub(crate) fn text(&self) -> &str {
        self.body.as_deref().unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(self.text()).unwrap()
    }
}

pub(crate) async fn call(router: Router, method: &str, target: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    let mut request = Request::builder().method(method).uri(target);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::from(body.to_owned())).unwrap();
    let response = router.oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let headers =
        response.headers().iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect();
    let body = axum::body::to_bytes(response.into_body(), usize::MAX).await;
    let body = body.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap()).map_err(|error| error.to_string());
    Answer { status, headers, body }
}

pub(crate) async fn get(mock: &Mock, target: &str) -> Answer {
    call(mock.router(), "GET", target, &METADATA, "").await
}

pub(crate) async fn post(mock: &Mock, target: &str, body: &str) -> Answer {
    call(mock.router(), "POST", target, &METADATA, body).await
}

/// The scheduled events of the only VM.
pub(crate) async fn document(mock: &Mock) -> Value {
    get(mock, EVENTS).await.json()
}

/// Sends exactly these bytes and reads until the server closes the connection.
pub(crate) async fn raw(address: std::net::SocketAddr, request: &str) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // A connection that is reset has been closed too.
    let _ = stream.read_to_end(&mut answer).await;
    answer
}
