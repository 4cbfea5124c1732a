//! Compatibility mode: behaves like Microsoft's mock server, for clients that were written against it.
//!
//! <https://github.com/Azure-Samples/scheduled-events-mock-server> differs from the real service in much: no header and
//! no version is checked, there is one event at a time, it has a new `EventId` at each change of its state, `NotBefore`
//! is always 15 minutes ahead and in ISO 8601, keys are in the order of the alphabet, and a POST is answered with the
//! document.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    http::{HeaderValue, StatusCode, header},
    response::Response,
    routing::{get, post},
};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    answer::{JSON, TEXT, reply},
    clock::{Clock, later},
    seed::guid,
};

/// One row of the table of scenarios.
struct Plan {
    name: &'static str,
    kind: &'static str,
    source: &'static str,
    description: &'static str,
    duration_in_seconds: i64,
    /// Minutes as Scheduled; seconds in the Dev Timing twin.
    scheduled: u64,
    /// Minutes as Started; none if the event is cancelled instead.
    started: Option<u64>,
}

const PLANS: [Plan; 6] = [
    Plan {
        name: "Live Migration",
        kind: "Freeze",
        source: "Platform",
        description: "Virtual machine is being paused because of a memory-preserving Live Migration operation.",
        duration_in_seconds: 5,
        scheduled: 15,
        started: Some(5),
    },
    Plan {
        name: "User Reboot",
        kind: "Reboot",
        source: "User",
        description: "Virtual machine is going to be restarted as requested by authorized user.",
        duration_in_seconds: -1,
        scheduled: 15,
        started: Some(10),
    },
    Plan {
        name: "Host Agent Maintenance",
        kind: "Freeze",
        source: "Platform",
        description: "Host server is undergoing maintenance.",
        duration_in_seconds: 9,
        scheduled: 15,
        started: Some(10),
    },
    Plan {
        name: "Redeploy",
        kind: "Redeploy",
        source: "Platform",
        description: "Virtual machine has encountered a failure.",
        duration_in_seconds: -1,
        scheduled: 15,
        started: Some(10),
    },
    Plan {
        name: "User Redeploy",
        kind: "Redeploy",
        source: "User",
        description: "Virtual machine is going to be redeployed as requested by authorized user.",
        duration_in_seconds: -1,
        scheduled: 15,
        started: Some(10),
    },
    Plan {
        name: "Canceled Maintenance",
        kind: "Freeze",
        source: "Platform",
        description: "Host server is undergoing maintenance.",
        duration_in_seconds: 9,
        scheduled: 8,
        started: None,
    },
];

const DEV_TIMING: &str = " - Dev Timing";
const DEFAULT_RESOURCE: &str = "vmss_vm1";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Scheduled,
    Started,
    Ended,
}

struct Current {
    id: String,
    status: Status,
    not_before: Timestamp,
    resources: Vec<String>,
}

struct State {
    plan: &'static Plan,
    /// The unit of the plan's times.
    unit: Duration,
    incarnation: u64,
    current: Option<Current>,
    /// When the automatic run takes its next step.
    next_step: Option<Timestamp>,
}

impl State {
    fn advance(&mut self, now: Timestamp) {
        while let Some(at) = self.next_step.filter(|at| *at <= now) {
            self.next_step = None;
            let resources = self.current.as_ref().map(|current| current.resources.clone()).unwrap_or_default();
            let next = self.current.as_ref().map(|current| self.after(current.status));
            if let Some(status) = next {
                self.enter(status, resources, at);
                self.schedule_next_step(at);
            }
        }
    }

    fn after(&self, status: Status) -> Status {
        match status {
            Status::Scheduled if self.plan.started.is_some() => Status::Started,
            Status::Scheduled | Status::Started | Status::Ended => Status::Ended,
        }
    }

    fn enter(&mut self, status: Status, resources: Vec<String>, now: Timestamp) {
        self.incarnation += 1;
        self.current = (status != Status::Ended).then(|| Current {
            id: guid(0, "compatibility", self.incarnation),
            status,
            not_before: later(now, Duration::from_mins(15)),
            resources,
        });
    }

    fn schedule_next_step(&mut self, now: Timestamp) {
        let units = self.current.as_ref().map(|current| match current.status {
            Status::Scheduled => self.plan.scheduled,
            Status::Started | Status::Ended => self.plan.started.unwrap_or_default(),
        });
        self.next_step =
            units.map(|units| later(now, self.unit.saturating_mul(u32::try_from(units).unwrap_or(u32::MAX))));
    }

    /// The document with its keys in the order of the alphabet.
    fn document(&self) -> String {
        let event = self.current.as_ref().map(|current| {
            let status = if current.status == Status::Scheduled { "Scheduled" } else { "Started" };
            let not_before = format!("{:.0}", current.not_before);
            format!(
                "{{\"Description\":{},\"DurationInSeconds\":{},\"EventId\":{},\"EventSource\":{},\"EventStatus\":{},\
                 \"EventType\":{},\"NotBefore\":{},\"ResourceType\":\"VirtualMachine\",\"Resources\":{}}}",
                json!(self.plan.description),
                self.plan.duration_in_seconds,
                json!(current.id),
                json!(self.plan.source),
                json!(status),
                json!(self.plan.kind),
                json!(not_before),
                json!(current.resources),
            )
        });
        format!("{{\"DocumentIncarnation\":{},\"Events\":[{}]}}", self.incarnation, event.unwrap_or_default())
    }

    fn approve(&mut self, body: &[u8], now: Timestamp) -> Response {
        let Ok(request) = serde_json::from_slice::<Value>(body) else {
            return reply(StatusCode::BAD_REQUEST, JSON, "{\"error\":\"Invalid JSON\"}".to_owned());
        };
        let Some(current) = &self.current else { return reply(StatusCode::BAD_REQUEST, JSON, self.document()) };
        let wanted = request.pointer("/StartRequests/0/EventId").and_then(Value::as_str);
        if wanted == Some(&current.id) {
            let (status, resources) = (self.after(current.status), current.resources.clone());
            self.enter(status, resources, now);
            if self.next_step.is_some() {
                self.schedule_next_step(now);
            }
        }
        reply(StatusCode::OK, JSON, self.document())
    }
}

/// The compatibility mode. Clones are handles on the same one.
#[derive(Clone)]
pub struct Compatibility {
    shared: Arc<(Box<dyn Clock>, Mutex<State>)>,
}

impl std::fmt::Debug for Compatibility {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compatibility").finish_non_exhaustive()
    }
}

impl Compatibility {
    /// Without an event, with the first scenario of the table chosen.
    pub fn new(clock: impl Clock) -> Self {
        let [plan, ..] = &PLANS;
        let state = State { plan, unit: Duration::from_mins(1), incarnation: 1, current: None, next_step: None };
        Self { shared: Arc::new((Box::new(clock), Mutex::new(state))) }
    }

    /// The names that `/set-scenario` takes.
    pub fn scenarios() -> Vec<String> {
        PLANS.iter().flat_map(|plan| [plan.name.to_owned(), format!("{}{DEV_TIMING}", plan.name)]).collect()
    }

    /// The state as it is now, and the time.
    fn state(&self) -> (MutexGuard<'_, State>, Timestamp) {
        let (clock, state) = &*self.shared;
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = clock.now();
        state.advance(now);
        (state, now)
    }

    fn set_scenario(&self, form: &[u8]) {
        let wanted = field(form, "scenario").unwrap_or_default();
        let (name, unit) = match wanted.strip_suffix(DEV_TIMING) {
            Some(name) => (name, Duration::from_secs(1)),
            None => (wanted.as_str(), Duration::from_mins(1)),
        };
        if let Some(plan) = PLANS.iter().find(|plan| plan.name == name) {
            let (mut state, _) = self.state();
            (state.plan, state.unit) = (plan, unit);
        }
    }

    fn generate_event(&self, form: &[u8]) {
        let status = match field(form, "event_status").as_deref() {
            Some("Scheduled") => Status::Scheduled,
            Some("Started") => Status::Started,
            Some("Completed" | "Canceled") => Status::Ended,
            _ => return,
        };
        let resources = field(form, "resources").filter(|resources| !resources.trim().is_empty());
        let resources = resources.as_deref().unwrap_or(DEFAULT_RESOURCE);
        let resources = resources.split(',').map(|name| name.trim().to_owned()).collect();
        let (mut state, now) = self.state();
        state.enter(status, resources, now);
    }

    fn run(&self) {
        let (mut state, now) = self.state();
        state.enter(Status::Scheduled, vec![DEFAULT_RESOURCE.to_owned()], now);
        state.schedule_next_step(now);
    }

    /// The router.
    pub fn router(&self) -> Router {
        let (read, approve) = (self.clone(), self.clone());
        let (choose, generate, run, stop) = (self.clone(), self.clone(), self.clone(), self.clone());
        Router::new()
            .route(
                "/metadata/scheduledevents",
                get(async move || reply(StatusCode::OK, JSON, read.state().0.document())).post(
                    async move |body: Bytes| {
                        let (mut state, now) = approve.state();
                        state.approve(&body, now)
                    },
                ),
            )
            .route("/set-scenario", post(async move |body: Bytes| to_start_page(|| choose.set_scenario(&body))))
            .route("/generate-event", post(async move |body: Bytes| to_start_page(|| generate.generate_event(&body))))
            .route("/auto-run-scenario", post(async move || to_start_page(|| run.run())))
            .route("/stop-auto-run", post(async move || to_start_page(|| stop.state().0.next_step = None)))
            .route("/", get(async || reply(StatusCode::OK, TEXT, start_page())))
    }
}

fn field(form: &[u8], name: &str) -> Option<String> {
    form_urlencoded::parse(form).find_map(|(key, value)| (key == name).then(|| value.into_owned()))
}

/// Whatever came of it: a redirection to the start page.
fn to_start_page(operation: impl FnOnce()) -> Response {
    operation();
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::FOUND;
    response.headers_mut().insert(header::LOCATION, HeaderValue::from_static("/"));
    response
}

fn start_page() -> String {
    format!(
        "mock-imds in compatibility mode\n\nGET, POST  /metadata/scheduledevents\nPOST       /set-scenario       \
         scenario=NAME\nPOST       /generate-event     event_status=Scheduled|Started|Completed|Canceled \
         resources=A,B\nPOST       /auto-run-scenario\nPOST       /stop-auto-run\n\nScenarios: {}\n",
        Compatibility::scenarios().join(", ")
    )
}
