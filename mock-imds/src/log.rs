//! What was asked and answered, who approved what, and what happened: a bounded memory with total counters.

use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;
use serde::Serialize;

use crate::{event::EventId, fault::FaultKind};

/// How many requests, approvals and changes are remembered.
pub(crate) const REMEMBERED: usize = 1000;

/// A request to the metadata service.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LoggedRequest {
    /// Its number, from 1.
    pub number: u64,
    /// When it came.
    pub time: Timestamp,
    /// The VM that asked.
    pub vm: String,
    /// The HTTP method.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// Those of its headers that the service looks at, and the user agent. Names in lower case.
    pub headers: BTreeMap<String, String>,
    /// The beginning of its body.
    pub body: String,
    /// The faults that it met.
    pub faults: Vec<FaultKind>,
    /// The status of the answer; none while there is none, if the client went away before it, or if a fault cut it off.
    pub status: Option<u16>,
}

/// An approval that was accepted.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    /// When.
    pub time: Timestamp,
    /// The VM that posted it; none if it came from the timeline or the control API.
    pub vm: Option<String>,
    /// The event.
    pub event: EventId,
    /// Whether the event was approved, or had started, before.
    pub repeated: bool,
}

/// Something that happened on the timeline.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// Its number, from 1.
    pub number: u64,
    /// When it happened.
    pub time: Timestamp,
    /// In one word: `Scheduled`, `Started`, `Finished`, `Cancelled`, `Approved`, `Changed`, `Fault`, `Cleared` or
    /// `Skipped` (a step that came too late).
    pub what: &'static str,
    /// The event that it happened to, if any.
    pub event: Option<EventId>,
    /// The rest, for people.
    pub detail: String,
}

/// Totals, which nothing is dropped from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Counters {
    /// All requests.
    pub requests: u64,
    /// Requests by VM.
    pub by_vm: BTreeMap<String, u64>,
    /// Answers by HTTP status.
    pub by_status: BTreeMap<u16, u64>,
    /// All approvals.
    pub approvals: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) requests: VecDeque<LoggedRequest>,
    pub(crate) approvals: VecDeque<Approval>,
    pub(crate) counters: Counters,
}

impl Log {
    /// Remembers a request and returns its number.
    pub(crate) fn begin(&mut self, mut request: LoggedRequest) -> u64 {
        self.counters.requests += 1;
        *self.counters.by_vm.entry(request.vm.clone()).or_default() += 1;
        request.number = self.counters.requests;
        let number = request.number;
        remember(&mut self.requests, request);
        number
    }

    /// Notes how a request was answered.
    pub(crate) fn end(&mut self, number: u64, status: u16) {
        *self.counters.by_status.entry(status).or_default() += 1;
        if let Some(request) = self.requests.iter_mut().rev().find(|request| request.number == number) {
            request.status = Some(status);
        }
    }

    pub(crate) fn approve(&mut self, approval: Approval) {
        self.counters.approvals += 1;
        remember(&mut self.approvals, approval);
    }
}

/// Adds to the end and drops from the beginning what is too much.
pub(crate) fn remember<T>(memory: &mut VecDeque<T>, item: T) {
    if memory.len() == REMEMBERED {
        memory.pop_front();
    }
    memory.push_back(item);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_is_bounded_and_the_counters_are_not() {
        let mut log = Log::default();
        for _ in 0..=REMEMBERED {
            let number = log.begin(LoggedRequest {
                number: 0,
                time: Timestamp::UNIX_EPOCH,
                vm: "a".to_owned(),
                method: "GET".to_owned(),
                target: "/".to_owned(),
                headers: BTreeMap::new(),
                body: String::new(),
                faults: Vec::new(),
                status: None,
            });
            log.end(number, 200);
        }
        assert_eq!(log.requests.len(), REMEMBERED);
        assert_eq!(log.requests.front().map(|request| request.number), Some(2));
        assert_eq!(log.counters.by_status, BTreeMap::from([(200, 1001)]));
    }
}
