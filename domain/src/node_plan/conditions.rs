//! The conditions that the agent writes on its node, of the types that Kubernetes knows for maintenance
//! (<https://github.com/kubernetes/enhancements/tree/master/keps/sig-node/5683-specialized-lifecycle-management>).
//!
//! They are for people and for controllers that look at conditions; nothing is decided by them. Nobody owns these types,
//! so ours are known by their reasons, and one that somebody else has set to true is left alone.

use crate::record::{DrainResult, Record};
use crate::scheduled_event::EventStatus;
use crate::time::stamp;

/// How all our reasons begin.
const OURS: &str = "Remediator";

/// The types, in the order in which they are written.
pub const CONDITION_TYPES: [&str; 4] = ["MaintenancePlanned", "MaintenanceInProgress", "DrainInProgress", "Drained"];

/// A condition of one of [`CONDITION_TYPES`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeCondition {
    /// Its type.
    pub condition_type: String,
    /// `True` or `False`; other words may be found on a node.
    pub status: String,
    /// Why, in CamelCase.
    pub reason: String,
    /// Why, for people.
    pub message: String,
}

impl NodeCondition {
    /// Whether remediator wrote it.
    pub fn is_ours(&self) -> bool {
        self.reason.starts_with(OURS)
    }

    fn new(condition_type: &str, holds: bool, reason: &str, message: String) -> Self {
        let status = if holds { "True" } else { "False" };
        Self {
            condition_type: condition_type.into(),
            status: status.into(),
            reason: format!("{OURS}{reason}"),
            message,
        }
    }
}

/// What is to be written of a node's conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConditionChanges {
    /// Conditions to set; the flag tells whether the status changes with it.
    pub set: Vec<(NodeCondition, bool)>,
    /// Types whose conditions are to be removed.
    pub remove: Vec<String>,
}

impl ConditionChanges {
    /// Whether anything is to be written.
    pub fn any(&self) -> bool {
        !self.set.is_empty() || !self.remove.is_empty()
    }
}

/// What has to change of these conditions so that they say what the record says.
pub(super) fn changes(record: &Record, on_node: &[NodeCondition]) -> ConditionChanges {
    let wanted = wanted(record);
    let mut changes = ConditionChanges::default();
    for condition_type in CONDITION_TYPES {
        let wanted = wanted.iter().find(|wanted| wanted.condition_type == condition_type);
        let there = on_node.iter().find(|there| there.condition_type == condition_type);
        match (wanted, there) {
            (Some(wanted), Some(there)) if wanted == there => {}
            (_, Some(there)) if !there.is_ours() && there.status == "True" => {}
            (Some(wanted), there) => {
                let changes_status = there.is_none_or(|there| there.status != wanted.status);
                changes.set.push((wanted.clone(), changes_status));
            }
            (None, Some(there)) if there.is_ours() => changes.remove.push(condition_type.into()),
            (None, _) => {}
        }
    }
    changes
}

fn wanted(record: &Record) -> Vec<NodeCondition> {
    let [planned, in_progress, draining, drained] = CONDITION_TYPES;
    let mut conditions = Vec::new();
    let ahead = record.events.iter().find(|event| event.status != EventStatus::Started);
    let started = record.events.iter().find(|event| event.status == EventStatus::Started);
    if let Some(event) = ahead {
        let when = event.not_before.map(|at| format!(", not before {}", stamp(at))).unwrap_or_default();
        let message = format!("{} by {}{when}.", event.event_type, event.source);
        conditions.push(NodeCondition::new(planned, true, "EventScheduled", message));
    } else if started.is_some() {
        conditions.push(NodeCondition::new(planned, false, "EventStarted", "The event has started.".into()));
    }
    if let Some(event) = started {
        let message = format!("{} by {} has started.", event.event_type, event.source);
        conditions.push(NodeCondition::new(in_progress, true, "EventStarted", message));
    } else if ahead.is_some() {
        conditions.push(NodeCondition::new(in_progress, false, "EventScheduled", "The event has not started.".into()));
    }
    let Some(drain) = record.drain.as_ref().filter(|_| !record.events.is_empty()) else { return conditions };
    let results = record.events.iter().filter_map(|event| event.drained);
    let result = results.max_by_key(|result| *result == DrainResult::Incomplete);
    match (drain.finished_at, result) {
        (None, _) => {
            let message = format!("Draining until {} at the latest.", stamp(drain.deadline));
            conditions.push(NodeCondition::new(draining, true, "DrainStarted", message.clone()));
            conditions.push(NodeCondition::new(drained, false, "DrainStarted", message));
        }
        (Some(_), Some(DrainResult::Incomplete) | None) => {
            let message = format!("The drain ended with {} pods left.", drain.left_count);
            conditions.push(NodeCondition::new(draining, false, "DrainIncomplete", message.clone()));
            conditions.push(NodeCondition::new(drained, false, "DrainIncomplete", message));
        }
        (Some(at), Some(DrainResult::Drained)) => {
            let message = format!("Drained at {}.", stamp(at));
            conditions.push(NodeCondition::new(draining, false, "DrainCompleted", message.clone()));
            conditions.push(NodeCondition::new(drained, true, "DrainCompleted", message));
        }
    }
    conditions
}

#[cfg(test)]
mod tests;
