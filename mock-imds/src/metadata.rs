//! The metadata service's HTTP: which requests are refused and how, faults on the wire, the log.
//!
//! Request rules: <https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service>. Where Azure's answer
//! is not known to the byte, the mock answers with the right status and a body of the same form.

use std::{collections::BTreeMap, io, time::Duration};

use axum::{
    body::{Body, Bytes, HttpBody},
    extract::Request,
    http::{HeaderMap, HeaderValue, Method, StatusCode, header, request::Parts},
    response::Response,
};
use futures::{StreamExt, stream};
use jiff::Timestamp;
use serde::Deserialize;
use tokio::time::sleep;

use crate::{
    answer::{HTML, JSON, TEXT, XML, bad_request, bad_version, method_not_allowed, not_found, reply},
    document::{self, Version, http_date},
    fault::{Endpoint, FaultKind},
    identity, instance,
    log::LoggedRequest,
    mock::Mock,
    query::Query,
    vm::Vm,
    world::World,
};

/// The server name that the service was seen to give in 2020.
const SERVER: HeaderValue = HeaderValue::from_static("IMDS/150.870.65.476");
/// What stands before the service answers requests that it does not understand at all.
const FRONT_END: HeaderValue = HeaderValue::from_static("Microsoft-IIS/10.0");

/// The front end's page for `HEAD` and for `/`: only its type and its length of 323 bytes are known.
const FRONT_END_PAGE: &str = r#"<?xml version="1.0" encoding="utf-8"?>
<Error xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xmlns:xsd="http://www.w3.org/2001/XMLSchema">
  <Code>InvalidRequest</Code>
  <Message>The request is wrong: neither its verb nor its path is one that the metadata service serves.</Message>
  <Details>''</Details>
</Error>
"#;

/// More than any approval needs.
const LONGEST_BODY: usize = 64 * 1024;
/// How much of a request's body the log keeps.
const LOGGED_BODY: usize = 1024;

/// An open request; dropping it closes it, also if the client has gone away.
struct Open<'a> {
    mock: &'a Mock,
    vm: &'a str,
    counted: bool,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if self.counted {
            self.mock.world().close_identity_request(self.vm);
        }
    }
}

/// What is known about a request when it has come in.
struct Admission {
    number: u64,
    refused: bool,
    open: bool,
    faults: Vec<FaultKind>,
    wait: Duration,
}

/// Answers a request of this VM for this path, or misbehaves.
pub(crate) async fn answer(mock: &Mock, vm: &Vm, path: &str, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, LONGEST_BODY).await;
    let admission = mock.act(|world| {
        admit(world, vm, Endpoint::of(path), |faults, time| {
            logged(&vm.name, &parts, body.as_deref().unwrap_or_default(), faults, time)
        })
    });
    let _open = Open { mock, vm: &vm.name, counted: admission.open };
    let response = if admission.refused {
        reply(StatusCode::TOO_MANY_REQUESTS, TEXT, "Throttle Result: Too Many Requests".to_owned())
    } else {
        misbehave_or_answer(mock, vm, path, &parts, body.ok(), &admission).await
    };
    let status = response.status().as_u16();
    if !admission.faults.contains(&FaultKind::Cut) {
        mock.act(|world| world.log_mut().end(admission.number, status));
    }
    finish(&parts.method, mock.now(), response)
}

/// Counts and logs the request, and finds out what it meets.
fn admit(
    world: &mut World,
    vm: &Vm,
    endpoint: Option<Endpoint>,
    logged: impl FnOnce(&[FaultKind], Timestamp) -> LoggedRequest,
) -> Admission {
    let identity = endpoint == Some(Endpoint::Identity);
    let over_limit = world.is_over_limit(&vm.name, identity);
    let open = identity && !over_limit && world.open_identity_request(&vm.name);
    let refused = over_limit || (identity && !open);
    let (mut faults, mut wait) = (Vec::new(), Duration::ZERO);
    if let Some(endpoint) = endpoint.filter(|_| !refused) {
        faults = world.meet_faults(vm, endpoint);
        if endpoint == Endpoint::ScheduledEvents {
            wait = world.wake(vm);
        }
    }
    let entry = logged(&faults, world.now());
    let number = world.log_mut().begin(entry);
    Admission { number, refused, open, faults, wait }
}

fn logged(vm: &str, parts: &Parts, body: &[u8], faults: &[FaultKind], time: Timestamp) -> LoggedRequest {
    let headers = ["metadata", "x-forwarded-for", "content-type", "if-none-match", "user-agent"];
    let headers: BTreeMap<String, String> = headers
        .into_iter()
        .filter_map(|name| {
            let value = parts.headers.get(name)?;
            Some((name.to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
        })
        .collect();
    LoggedRequest {
        number: 0,
        time,
        vm: vm.to_owned(),
        method: parts.method.to_string(),
        target: parts.uri.path_and_query().map_or_else(|| parts.uri.to_string(), ToString::to_string),
        headers,
        body: String::from_utf8_lossy(body.get(..LOGGED_BODY).unwrap_or(body)).into_owned(),
        faults: faults.to_vec(),
        status: None,
    }
}

/// Carries out the faults on the wire; between them stands the real answer.
async fn misbehave_or_answer(
    mock: &Mock,
    vm: &Vm,
    path: &str,
    parts: &Parts,
    body: Option<Bytes>,
    admission: &Admission,
) -> Response {
    let latency: Duration = admission
        .faults
        .iter()
        .map(|fault| if let FaultKind::Latency(latency) = fault { latency.0 } else { Duration::ZERO })
        .sum();
    let wait = admission.wait.max(latency);
    if !wait.is_zero() {
        sleep(wait).await;
    }
    for fault in &admission.faults {
        match fault {
            FaultKind::Hang => std::future::pending().await,
            FaultKind::Cut => return cut(),
            FaultKind::EmptyBody => return reply(StatusCode::OK, JSON, String::new()),
            FaultKind::HtmlBody => {
                return reply(StatusCode::OK, HTML, "<html><body>busy</body></html>".to_owned());
            }
            FaultKind::Status(status) => {
                let kind = if status.body.starts_with(['{', '[']) { JSON } else { TEXT };
                let mut response = reply(status.status_code(), kind, status.body.clone());
                for (name, value) in status.header_values() {
                    response.headers_mut().insert(name, value);
                }
                return response;
            }
            _ => {}
        }
    }
    let response = mock.act(|world| respond(world, vm, path, parts, body.as_ref(), &admission.faults));
    if admission.faults.contains(&FaultKind::TruncatedBody) { truncate(response).await } else { response }
}

/// No answer: hyper closes a connection whose first body frame fails before it has sent the head. Whoever calls the
/// router in process sees the failing body.
fn cut() -> Response {
    Response::new(Body::from_stream(stream::iter([Err::<Bytes, _>(broken_connection())])))
}

/// Announces the whole body, sends half of it, then breaks the connection.
async fn truncate(response: Response) -> Response {
    let (mut parts, body) = response.into_parts();
    let whole = axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default();
    parts.headers.insert(header::CONTENT_LENGTH, whole.len().into());
    let half = whole.slice(..whole.len() / 2);
    let broken = stream::once(async {
        // Lets the server write what it has before the connection breaks.
        tokio::task::yield_now().await;
        Err(broken_connection())
    });
    Response::from_parts(parts, Body::from_stream(stream::iter([Ok(half)]).chain(broken)))
}

fn broken_connection() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the mock breaks the connection, as a fault asks it to")
}

/// What the service answers if nothing is wrong with it.
fn respond(
    world: &mut World,
    vm: &Vm,
    path: &str,
    parts: &Parts,
    body: Option<&Bytes>,
    faults: &[FaultKind],
) -> Response {
    if parts.method == Method::HEAD || path == "/" {
        let mut response = reply(StatusCode::BAD_REQUEST, XML, FRONT_END_PAGE.to_owned());
        response.headers_mut().insert(header::SERVER, FRONT_END);
        return response;
    }
    let query = match Query::parse(parts.uri.query().unwrap_or_default()) {
        Ok(query) => query,
        Err(name) => return bad_request(&format!(". Query parameter '{name}' was given more than once")),
    };
    let endpoint = Endpoint::of(path);
    let preview = endpoint == Some(Endpoint::ScheduledEvents) && query.get("api-version") == Some("2017-03-01");
    let has_header = parts.headers.get("metadata").is_some_and(|value| value == "true");
    if !has_header && !preview {
        return match endpoint {
            Some(Endpoint::Identity) => identity::missing_header(),
            _ => bad_request(". Required metadata header not specified"),
        };
    }
    if parts.headers.contains_key("x-forwarded-for") {
        return bad_request(". X-Forwarded-For header is not allowed");
    }
    let Some(endpoint) = endpoint else { return not_found() };
    let allowed = match endpoint {
        Endpoint::ScheduledEvents => "GET, POST",
        Endpoint::Instance | Endpoint::Identity | Endpoint::Versions => "GET",
    };
    if !allowed.split(", ").any(|method| method == parts.method.as_str()) {
        return method_not_allowed(allowed);
    }
    match endpoint {
        Endpoint::Versions => instance::versions(),
        Endpoint::Instance => instance::answer(vm, path, &query),
        Endpoint::Identity => identity::answer(vm, &query, world.now()),
        Endpoint::ScheduledEvents => {
            let Some(version) = query.get("api-version").and_then(Version::parse) else {
                return bad_version(Version::names());
            };
            if parts.method == Method::POST {
                approve(world, vm, version, body)
            } else {
                scheduled_events(world, vm, version, &parts.headers, faults)
            }
        }
    }
}

fn scheduled_events(world: &World, vm: &Vm, version: Version, headers: &HeaderMap, faults: &[FaultKind]) -> Response {
    let (incarnation, entries) = world.document(vm);
    let tag = format!("\"{incarnation}\"");
    let etag = world.settings().etag.then(|| HeaderValue::try_from(&tag).ok()).flatten();
    let mut response = if etag.is_some() && headers.get(header::IF_NONE_MATCH).is_some_and(|seen| *seen == tag) {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        reply(StatusCode::OK, JSON, document::render(incarnation, entries, version, faults, &vm.name))
    };
    if let Some(etag) = etag {
        response.headers_mut().insert(header::ETAG, etag);
    }
    response
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct StartRequests {
    start_requests: Vec<StartRequest>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct StartRequest {
    event_id: String,
}

fn approve(world: &mut World, vm: &Vm, version: Version, body: Option<&Bytes>) -> Response {
    let parsed = body.and_then(|body| serde_json::from_slice::<StartRequests>(body).ok());
    let ids: Vec<String> = match parsed {
        Some(requests) if !requests.start_requests.is_empty() => {
            requests.start_requests.into_iter().map(|request| request.event_id).collect()
        }
        _ => return bad_request(". The request body must be {\"StartRequests\":[{\"EventId\":\"...\"}]}"),
    };
    match world.approve_listed(vm, version, &ids) {
        Ok(()) => Response::new(Body::empty()),
        Err(_) => bad_request(". EventId is not valid"),
    }
}

/// Adds what every answer has, and takes away the body where HTTP wants none.
fn finish(method: &Method, now: Timestamp, response: Response) -> Response {
    let (mut parts, body) = response.into_parts();
    parts.headers.entry(header::SERVER).or_insert(SERVER);
    if let Ok(date) = HeaderValue::try_from(http_date(now)) {
        parts.headers.entry(header::DATE).or_insert(date);
    }
    if method != Method::HEAD {
        return Response::from_parts(parts, body);
    }
    if let Some(length) = HttpBody::size_hint(&body).exact() {
        parts.headers.entry(header::CONTENT_LENGTH).or_insert(length.into());
    }
    Response::from_parts(parts, Body::empty())
}
