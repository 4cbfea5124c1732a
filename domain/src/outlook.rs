//! When a ruling is carried out, as far as that can be told beforehand.

use jiff::Timestamp;

use crate::drain::Order;
use crate::node_plan::{deadline_of, start_of};
use crate::policy::{Action, AtDeadline, Ruling};
use crate::scheduled_event::ScheduledEvent;
use crate::time::{Now, minus, plus};

/// When a ruling is carried out if the event stays as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outlook {
    /// What is done; only a cordon, where too little time is left for the drain that the rule names.
    pub action: Action,
    /// When the node is cordoned.
    pub cordons: Timestamp,
    /// When the action begins.
    pub starts: Timestamp,
    /// When a drain has to be done.
    pub deadline: Option<Timestamp>,
    /// When the pods that are still there begin to be deleted, if they are.
    pub deletes_from: Option<Timestamp>,
}

impl Outlook {
    /// The outlook for a ruling about an event that is seen now.
    pub fn of(ruling: &Ruling, event: &ScheduledEvent, now: Now) -> Self {
        let starts = start_of(ruling, event, now.wall).max(now.wall);
        let cordons = if ruling.start.cordon_at_once { now.wall } else { starts };
        let ahead = event.notice(now.wall);
        let impact = deadline_of(ahead, ahead.is_none().then_some(now.wall)).unwrap_or(now.wall);
        let left = Now { wall: starts, ..now }.until(impact);
        let outlook = Self { action: ruling.action, cordons, starts, deadline: None, deletes_from: None };
        if ruling.action != Action::Drain || ruling.start.is_too_late(left) {
            return Self { action: ruling.action.min(Action::Cordon), ..outlook };
        }
        let profile = ruling.profile.clone().unwrap_or_default();
        let deadline = profile.timeout.map_or(impact, |timeout| impact.min(plus(starts, timeout)));
        outlook.draining(&Order { profile, started_at: starts, deadline, uncordoned_at: None })
    }

    /// The outlook with a drain as it is ordered.
    #[must_use]
    pub fn draining(self, order: &Order) -> Self {
        let deletes = order.profile.at_deadline == AtDeadline::Delete;
        let deletes_from = deletes.then(|| minus(order.deadline, order.margin()));
        Self { action: Action::Drain, starts: order.started_at, deadline: Some(order.deadline), deletes_from, ..self }
    }
}
