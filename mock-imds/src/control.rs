//! The control API under `/mock/`: everything that [`Mock`]'s methods do, in JSON.

use axum::{
    Router,
    body::Bytes,
    extract::Path,
    http::StatusCode,
    response::Response,
    routing::{get, post},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;

use crate::{
    answer::{JSON, reply},
    error::MockError,
    event::{EventChange, EventSpec},
    fault::FaultSpec,
    mock::Mock,
};

/// A request that could not be carried out.
enum Refusal {
    Unreadable(serde_json::Error),
    Refused(MockError),
}

impl From<MockError> for Refusal {
    fn from(error: MockError) -> Self {
        Self::Refused(error)
    }
}

type Answer = Result<Response, Refusal>;

pub(crate) fn router(mock: &Mock) -> Router {
    let handle = || mock.clone();
    let (state, vms, log) = (handle(), handle(), handle());
    let (events, inject) = (handle(), handle());
    let (event, change, cancel, act) = (handle(), handle(), handle(), handle());
    let (faults, fault, clear, clear_all) = (handle(), handle(), handle(), handle());
    Router::new()
        .route("/mock/state", get(async move || ok(&state.state())))
        .route("/mock/vms", get(async move || ok(&vms.vms())))
        .route(
            "/mock/log",
            get(async move || {
                ok(&json!({
                    "counters": log.counters(),
                    "requests": log.log(),
                    "approvals": log.approvals(),
                    "changes": log.changes_after(0),
                }))
            }),
        )
        .route(
            "/mock/events",
            get(async move || ok(&events.events())).post(async move |body: Bytes| {
                respond(|| {
                    let id = inject.inject(read::<EventSpec>(&body)?)?;
                    Ok(json_reply(StatusCode::CREATED, &inject.event(id)?))
                })
            }),
        )
        .route(
            "/mock/events/{id}",
            get(async move |Path(id): Path<String>| respond(|| Ok(ok(&event.event(id)?))))
                .patch(async move |Path(id): Path<String>, body: Bytes| {
                    respond(|| {
                        let id = change.change(id, &read::<EventChange>(&body)?)?;
                        Ok(ok(&change.event(id)?))
                    })
                })
                .delete(async move |Path(id): Path<String>| {
                    respond(|| {
                        let id = cancel.cancel(id)?;
                        Ok(ok(&cancel.event(id)?))
                    })
                }),
        )
        .route(
            "/mock/events/{id}/{verb}",
            post(async move |Path((id, verb)): Path<(String, String)>| {
                respond(|| {
                    let id = match verb.as_str() {
                        "approve" => act.approve(id)?,
                        "cancel" => act.cancel(id)?,
                        "finish" => act.finish(id)?,
                        "start" => act.start(id)?,
                        _ => {
                            let message =
                                format!("an event cannot be told to `{verb}`; use approve, cancel, finish or start");
                            return Err(MockError::Invalid(message).into());
                        }
                    };
                    Ok(ok(&act.event(id)?))
                })
            }),
        )
        .route(
            "/mock/faults",
            get(async move || ok(&faults.faults()))
                .post(async move |body: Bytes| {
                    respond(|| {
                        let id = fault.fault(read::<FaultSpec>(&body)?)?;
                        Ok(json_reply(StatusCode::CREATED, &json!({ "id": id })))
                    })
                })
                .delete(async move || {
                    clear_all.clear_all();
                    ok(&clear_all.faults())
                }),
        )
        .route(
            "/mock/faults/{key}",
            axum::routing::delete(async move |Path(key): Path<String>| {
                respond(|| {
                    clear.clear_called(&key)?;
                    Ok(ok(&clear.faults()))
                })
            }),
        )
        .route("/mock/{*path}", axum::routing::any(async || nothing_here()))
        .route("/mock/", axum::routing::any(async || nothing_here()))
        .method_not_allowed_fallback(async || {
            error(StatusCode::METHOD_NOT_ALLOWED, "this path does not have this method")
        })
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(Refusal::Unreadable)
}

fn respond(operation: impl FnOnce() -> Answer) -> Response {
    match operation() {
        Ok(response) => response,
        Err(Refusal::Unreadable(wrong)) => {
            error(StatusCode::BAD_REQUEST, &format!("the body is not what is needed here: {wrong}"))
        }
        Err(Refusal::Refused(wrong)) => {
            let status = match wrong {
                MockError::UnknownEvent { .. } | MockError::UnknownFault { .. } => StatusCode::NOT_FOUND,
                MockError::NotScheduled { .. } => StatusCode::CONFLICT,
                MockError::UnknownVm { .. } | MockError::Invalid(_) => StatusCode::BAD_REQUEST,
            };
            error(status, &wrong.to_string())
        }
    }
}

fn nothing_here() -> Response {
    error(StatusCode::NOT_FOUND, "there is nothing here; use /mock/state, vms, events, faults or log")
}

fn error(status: StatusCode, message: &str) -> Response {
    json_reply(status, &json!({ "error": message }))
}

fn ok(value: &impl Serialize) -> Response {
    json_reply(StatusCode::OK, value)
}

/// JSON for people: indented, with a line break at the end.
fn json_reply(status: StatusCode, value: &impl Serialize) -> Response {
    let body =
        serde_json::to_string_pretty(value).unwrap_or_else(|error| json!({ "error": error.to_string() }).to_string());
    reply(status, JSON, body + "\n")
}
