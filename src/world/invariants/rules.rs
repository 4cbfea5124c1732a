//! What the policy allows about one event, judged from Azure's own list.

use std::collections::BTreeMap;
use std::time::Duration;

use domain::node_plan::WITHOUT_NOTICE;
use domain::policy::{Action, AtDeadline, Judgement, NodeTraits, PolicySet, Profile};
use domain::scheduled_event::{EventId, EventSource, EventStatus, EventType, NotBefore, ScheduledEvent, VmName};
use domain::time::{Monotonic, Now, minus, plus};
use jiff::Timestamp;
use mock_imds::{Event, Phase};

/// How long before the deadline deletion may begin if the policy does not say it.
const WIDEST_MARGIN: Duration = Duration::from_secs(5);

/// What polling, a last effort and a slow server may add to a deadline.
pub(super) const TOLERANCE: Duration = Duration::from_secs(12);

/// What may be done about an event.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    /// The event.
    pub(super) event: Event,
    /// The most that may be done.
    pub(super) action: Action,
    /// From when on it has to be done.
    pub(super) due: Timestamp,
    /// From when on pods may be deleted past their budget; `None` if never.
    pub(super) deletes_from: Option<Timestamp>,
    /// Until when pods may be asked to leave.
    pub(super) until: Timestamp,
}

impl Rule {
    /// What the policies say about an event of a node; `not_before` is the span of all times that Azure has announced.
    pub(super) fn of(
        policies: &PolicySet,
        labels: &BTreeMap<String, String>,
        event: Event,
        not_before: (Timestamp, Timestamp),
    ) -> Self {
        // The ruling is fixed at the first act, in whichever phase the event was then.
        let traits = NodeTraits { labels, policy: None };
        let now = Now { wall: event.published, monotonic: Monotonic::default() };
        let rulings = [EventStatus::Scheduled, EventStatus::Started].map(|status| {
            match policies.judge(traits, &scheduled(&event, status), now) {
                Judgement::Ruled(ruling) => Some(ruling),
                Judgement::NoPolicy(_) | Judgement::NoRule(_) | Judgement::Observed(_) => None,
            }
        });
        let action = rulings.iter().flatten().map(|ruling| ruling.action).max().unwrap_or(Action::None);
        let head_start = rulings.iter().flatten().filter_map(|ruling| ruling.start.at_most).min();
        let profiles: Vec<&Profile> = rulings.iter().flatten().filter_map(|ruling| ruling.profile.as_ref()).collect();
        let started = (event.phase != Phase::Scheduled).then_some(event.phase_since);
        let earliest = started.map_or(not_before.0, |started| started.min(not_before.0));
        let deletes_from = profiles
            .iter()
            .filter(|profile| profile.at_deadline == AtDeadline::Delete)
            .map(|profile| {
                let by_timeout = profile.timeout.map(|timeout| plus(event.published, timeout));
                let deadline = by_timeout.map_or(earliest, |at| at.min(earliest));
                // An event without notice gives so much from when it is first seen.
                let deadline = if event.not_before <= event.published {
                    deadline.max(plus(event.published, WITHOUT_NOTICE))
                } else {
                    deadline
                };
                minus(deadline, profile.margin.unwrap_or(WIDEST_MARGIN) + Duration::from_secs(1))
            })
            .min();
        let latest = not_before.1.max(event.published).max(started.unwrap_or(event.published));
        Self {
            action,
            due: head_start.map_or(event.published, |before| minus(not_before.1, before).max(event.published)),
            deletes_from,
            until: plus(latest, WITHOUT_NOTICE + TOLERANCE),
            event,
        }
    }
}

/// The event as an agent reads it in this phase.
fn scheduled(event: &Event, status: EventStatus) -> ScheduledEvent {
    let seconds = u64::try_from(event.duration_in_seconds).ok();
    ScheduledEvent {
        id: EventId::new(event.id.as_str()),
        event_type: EventType::from_word(event.kind.as_str()),
        status,
        source: EventSource::from_word(event.source.as_str()),
        resources: event.resources.iter().map(VmName::new).collect(),
        not_before: NotBefore::At(event.not_before),
        duration: seconds.map(Duration::from_secs),
        description: event.description.clone(),
    }
}
