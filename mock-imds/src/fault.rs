//! Faults: how the service misbehaves, for whom, where and for how long.
//!
//! Faults with a number of requests queue up: a request takes the oldest that fits, and that one only, so a list of
//! them is a script of answers. Faults without a number apply to every request that they fit, all together.

use std::collections::BTreeMap;

use axum::http::{HeaderName, HeaderValue, StatusCode};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_saphyr::Spanned;

use crate::{
    clock::{Period, later},
    place::unplaced,
};

/// How the service misbehaves.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum FaultKind {
    /// Answers with this status, body and headers.
    Status(Status),
    /// Answers so much later.
    Latency(Period),
    /// Never answers.
    Hang,
    /// Closes the connection without an answer.
    Cut,
    /// Answers 200 with nothing in it.
    EmptyBody,
    /// Announces the whole body, sends half of it and closes the connection.
    TruncatedBody,
    /// Answers 200 with an HTML page.
    HtmlBody,
    /// Puts raw control characters into a JSON string.
    ControlCharacters,
    /// Writes a `NotBefore` whose weekday is not that of its date.
    WrongWeekday,
    /// Writes `NotBefore` like `2026-04-29T18:00:00Z`.
    IsoNotBefore,
    /// Adds entries of an unknown type, without type, without id and without resources, before the real ones.
    OddEntries,
    /// Writes numbers as strings and adds a member that no client knows.
    OddFields,
    /// Writes the `EventId` in the other letter case.
    OtherIdCase,
    /// Leaves out `Description`, `EventSource` and `DurationInSeconds`.
    MissingFields,
    /// Writes `"Events":null`.
    EventsNull,
    /// Raises the incarnation by so much, though nothing has changed, before it answers.
    SkippedIncarnations(u64),
    /// Sends the placement group to sleep: this request is its first again and takes so long.
    SlowFirstCall(Period),
}

/// An answer instead of the real one.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Status {
    /// The HTTP status, from 200 to 599.
    pub code: u16,
    /// The body.
    #[serde(default)]
    pub body: String,
    /// Headers to set; without `Content-Type` it is JSON if the body begins like JSON, else text.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
}

/// A part of the metadata service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Endpoint {
    /// `/metadata/scheduledevents`
    ScheduledEvents,
    /// `/metadata/instance`
    Instance,
    /// `/metadata/identity/oauth2/token`
    Identity,
    /// `/metadata/versions`
    Versions,
}

impl Endpoint {
    pub(crate) fn of(path: &str) -> Option<Self> {
        match path {
            "/metadata/scheduledevents" => Some(Self::ScheduledEvents),
            "/metadata/versions" => Some(Self::Versions),
            "/metadata/identity/oauth2/token" => Some(Self::Identity),
            _ => match path.strip_prefix("/metadata/instance") {
                Some(rest) if rest.is_empty() || rest.starts_with('/') => Some(Self::Instance),
                _ => None,
            },
        }
    }
}

/// A fault to be set. Without a number of requests and a time it lasts until it is cleared.
///
/// ```
/// use mock_imds::FaultSpec;
///
/// let busy = FaultSpec::status(429).header("Retry-After", "7").body(r#"{"error":"Too Many Requests"}"#).requests(1);
/// # let _ = busy;
/// ```
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FaultSpec {
    pub(crate) name: Option<Spanned<String>>,
    kind: Spanned<FaultKind>,
    #[serde(default)]
    vms: Vec<Spanned<String>>,
    #[serde(default = "scheduled_events_only")]
    endpoints: Vec<Endpoint>,
    requests: Option<Spanned<u64>>,
    #[serde(rename = "for")]
    lasts: Option<Period>,
}

fn scheduled_events_only() -> Vec<Endpoint> {
    vec![Endpoint::ScheduledEvents]
}

impl From<FaultKind> for FaultSpec {
    fn from(kind: FaultKind) -> Self {
        Self {
            name: None,
            kind: unplaced(kind),
            vms: Vec::new(),
            endpoints: scheduled_events_only(),
            requests: None,
            lasts: None,
        }
    }
}

impl FaultSpec {
    /// A fault for all VMs, at `/metadata/scheduledevents`, until it is cleared.
    pub fn new(kind: FaultKind) -> Self {
        kind.into()
    }

    /// An answer with this status and no body.
    pub fn status(code: u16) -> Self {
        Self::new(FaultKind::Status(Status { code, body: String::new(), headers: BTreeMap::new() }))
    }

    /// An answer that comes so much later.
    pub fn latency(latency: std::time::Duration) -> Self {
        Self::new(FaultKind::Latency(Period(latency)))
    }

    /// The body of an answer with a status; nothing for other kinds.
    #[must_use]
    pub fn body(mut self, body: impl Into<String>) -> Self {
        if let FaultKind::Status(status) = &mut self.kind.value {
            status.body = body.into();
        }
        self
    }

    /// A header of an answer with a status; nothing for other kinds.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        if let FaultKind::Status(status) = &mut self.kind.value {
            status.headers.insert(name.into(), value.into());
        }
        self
    }

    /// Names the fault, so that it can be cleared by name.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(unplaced(name.into()));
        self
    }

    /// Only for this VM; may be said several times.
    #[must_use]
    pub fn vm(mut self, vm: impl Into<String>) -> Self {
        self.vms.push(unplaced(vm.into()));
        self
    }

    /// Only at these endpoints.
    #[must_use]
    pub fn at(mut self, endpoints: impl IntoIterator<Item = Endpoint>) -> Self {
        self.endpoints = endpoints.into_iter().collect();
        self
    }

    /// For so many requests.
    #[must_use]
    pub fn requests(mut self, requests: u64) -> Self {
        self.requests = Some(unplaced(requests));
        self
    }

    /// For so long.
    #[must_use]
    pub fn lasting(mut self, time: std::time::Duration) -> Self {
        self.lasts = Some(Period(time));
        self
    }

    /// The VMs that it names, each with its place in the file that it came from.
    pub fn vms(&self) -> &[Spanned<String>] {
        &self.vms
    }

    /// What cannot be carried out in it: the place and the reason.
    pub fn check(&self) -> Result<(), Spanned<String>> {
        let at_kind = |message| Err(Spanned::new(message, self.kind.referenced, self.kind.defined));
        if let Some(requests) = &self.requests
            && requests.value == 0
        {
            let message = "`requests` is 0, so the fault would never show; give 1 or more, or leave it out".to_owned();
            return Err(Spanned::new(message, requests.referenced, requests.defined));
        }
        if self.endpoints.is_empty() {
            return at_kind("`endpoints` is empty, so the fault would never show; name one or leave it out".to_owned());
        }
        let FaultKind::Status(status) = &self.kind.value else { return Ok(()) };
        if !(200..=599).contains(&status.code) {
            return at_kind(format!("{} is not an answer's HTTP status; give one from 200 to 599", status.code));
        }
        for (name, value) in &status.headers {
            if HeaderName::try_from(name).is_err() || HeaderValue::try_from(value).is_err() {
                return at_kind(format!("`{name}: {value}` is not an HTTP header; give a name and one line of text"));
            }
        }
        Ok(())
    }
}

impl Status {
    /// The status, which [`FaultSpec::check`] has found to be valid.
    pub(crate) fn status_code(&self) -> StatusCode {
        StatusCode::from_u16(self.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// The headers, which [`FaultSpec::check`] has found to be valid.
    pub(crate) fn header_values(&self) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
        self.headers
            .iter()
            .filter_map(|(name, value)| Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?)))
    }
}

/// The number by which a fault is known to the control API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct FaultId(pub u64);

/// A fault that was set.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fault {
    /// Its number.
    pub id: FaultId,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// How the service misbehaves.
    pub kind: FaultKind,
    /// For whom; empty is for all.
    pub vms: Vec<String>,
    /// Where.
    pub endpoints: Vec<Endpoint>,
    /// How many more requests it hits; none is no limit.
    pub requests_left: Option<u64>,
    /// When it ends by itself; none is never.
    pub until: Option<Timestamp>,
    /// How many requests it has hit.
    pub hits: u64,
}

impl Fault {
    fn fits(&self, vm: &str, endpoint: Endpoint) -> bool {
        (self.vms.is_empty() || self.vms.iter().any(|name| name == vm)) && self.endpoints.contains(&endpoint)
    }

    fn is_over(&self, now: Timestamp) -> bool {
        self.requests_left == Some(0) || self.until.is_some_and(|until| until <= now)
    }
}

/// All faults that are set.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    set: Vec<Fault>,
    last_id: u64,
}

impl Faults {
    pub(crate) fn add(&mut self, spec: &FaultSpec, now: Timestamp, speed: f64) -> &Fault {
        self.last_id += 1;
        let kind = spec.kind.value.clone();
        let once = matches!(kind, FaultKind::SlowFirstCall(_)) && spec.lasts.is_none();
        self.set.push(Fault {
            id: FaultId(self.last_id),
            name: spec.name.as_ref().map(|name| name.value.clone()),
            kind,
            vms: spec.vms.iter().map(|vm| vm.value.clone()).collect(),
            endpoints: spec.endpoints.clone(),
            requests_left: spec.requests.as_ref().map(|requests| requests.value).or(once.then_some(1)),
            until: spec.lasts.map(|lasts| later(now, lasts.at_speed(speed))),
            hits: 0,
        });
        &self.set[self.set.len() - 1]
    }

    /// Those that are set and not over.
    pub(crate) fn active(&self, now: Timestamp) -> impl Iterator<Item = &Fault> {
        self.set.iter().filter(move |fault| !fault.is_over(now))
    }

    /// The faults that this request meets, oldest first. They count it.
    pub(crate) fn take(&mut self, vm: &str, endpoint: Endpoint, now: Timestamp) -> Vec<FaultKind> {
        self.set.retain(|fault| !fault.is_over(now));
        let mut queue_served = false;
        let mut met = Vec::new();
        for fault in self.set.iter_mut().filter(|fault| fault.fits(vm, endpoint)) {
            if let Some(left) = &mut fault.requests_left {
                if queue_served {
                    continue;
                }
                queue_served = true;
                *left -= 1;
            }
            fault.hits += 1;
            met.push(fault.kind.clone());
        }
        met
    }

    /// Clears the fault with this number or name, or all for `all`; tells how many there were.
    pub(crate) fn clear(&mut self, key: &str) -> usize {
        let before = self.set.len();
        self.set.retain(|fault| key != "all" && fault.id.0.to_string() != key && fault.name.as_deref() != Some(key));
        before - self.set.len()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const EVENTS: Endpoint = Endpoint::ScheduledEvents;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn set(specs: &[FaultSpec]) -> Faults {
        let mut faults = Faults::default();
        for spec in specs {
            faults.add(spec, at(0), 1.0);
        }
        faults
    }

    #[test]
    fn counted_faults_are_a_script_of_answers() {
        let mut faults = set(&[
            FaultSpec::new(FaultKind::EmptyBody).requests(2),
            FaultSpec::new(FaultKind::Hang).requests(1),
            FaultSpec::new(FaultKind::WrongWeekday),
        ]);
        let answers: Vec<_> = (0..4).map(|_| faults.take("a", EVENTS, at(0))).collect();
        assert_eq!(
            answers,
            [
                vec![FaultKind::EmptyBody, FaultKind::WrongWeekday],
                vec![FaultKind::EmptyBody, FaultKind::WrongWeekday],
                vec![FaultKind::Hang, FaultKind::WrongWeekday],
                vec![FaultKind::WrongWeekday],
            ]
        );
    }

    #[test]
    fn a_fault_shows_only_to_whom_and_where_it_is_set_and_while_it_lasts() {
        let mut faults = set(&[FaultSpec::new(FaultKind::Cut).vm("a").lasting(Duration::from_secs(70))]);
        assert_eq!(faults.take("b", EVENTS, at(0)), []);
        assert_eq!(faults.take("a", Endpoint::Instance, at(0)), []);
        assert_eq!(faults.take("a", EVENTS, at(69)), [FaultKind::Cut]);
        assert_eq!(faults.take("a", EVENTS, at(70)), []);
    }

    #[test]
    fn a_fault_is_cleared_by_number_by_name_or_with_all_others() {
        let specs = [FaultSpec::new(FaultKind::Cut).name("cable"), FaultSpec::new(FaultKind::Hang)];
        for (key, cleared) in [("1", 1), ("cable", 1), ("2", 1), ("all", 2), ("3", 0), ("", 0)] {
            assert_eq!(set(&specs).clear(key), cleared, "{key}");
        }
    }

    #[test]
    fn what_cannot_be_carried_out_is_refused() {
        for spec in [
            FaultSpec::status(199),
            FaultSpec::status(600),
            FaultSpec::status(500).header("a b", "c"),
            FaultSpec::status(500).header("a", "b\nc"),
            FaultSpec::new(FaultKind::Hang).requests(0),
            FaultSpec::new(FaultKind::Hang).at([]),
        ] {
            assert!(spec.check().is_err(), "{spec:?}");
        }
        assert!(FaultSpec::status(429).header("Retry-After", "7").check().is_ok());
    }
}
