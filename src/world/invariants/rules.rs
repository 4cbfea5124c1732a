//! What the policies allow and ask for about one event, judged from Azure's own list.

use std::time::Duration;

use domain::node_plan::WITHOUT_NOTICE;
use domain::policy::{Action, Approve, AtDeadline, Judgement, NodeTraits, PolicySet, Profile, Ruling};
use domain::scheduled_event::{EventId, EventSource, EventStatus, EventType, NotBefore, ScheduledEvent, VmName};
use domain::time::{Monotonic, Now, minus, plus};
use jiff::Timestamp;
use mock_imds::{Event, Phase};

/// How long before the deadline deletion may begin if the policy does not say it.
const WIDEST_MARGIN: Duration = Duration::from_secs(5);

/// What polling, a last effort and a slow server may add to a deadline.
pub(super) const TOLERANCE: Duration = Duration::from_secs(12);

/// By how much the wall clock of a machine is or was wrong, as far as that still counts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wrong {
    pub(super) ahead: Duration,
    pub(super) behind: Duration,
}

/// What is to be known of a node to judge an event of its machine.
pub(super) struct Circumstances<'a> {
    pub(super) policies: &'a PolicySet,
    /// How it could be given its policy while the event was listed: a ruling is fixed at the first act.
    pub(super) traits: Vec<NodeTraits<'a>>,
    /// The earliest and the latest `NotBefore` that Azure has announced.
    pub(super) not_before: (Timestamp, Timestamp),
    pub(super) wrong: Wrong,
}

/// What may and what must be done about an event.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    /// The event.
    pub(super) event: Event,
    /// The most that may be done.
    pub(super) action: Action,
    /// The least that must be done.
    pub(super) duty: Action,
    /// From when on the duty has to be begun.
    pub(super) due: Timestamp,
    /// From when on a drain may begin.
    pub(super) drains_from: Timestamp,
    /// With less time left than this no drain may begin; `None` if it always may.
    pub(super) least_left: Option<Duration>,
    /// From when on pods may be deleted past their budget; `None` if never.
    pub(super) deletes_from: Option<Timestamp>,
    /// Until when pods may be asked to leave.
    pub(super) until: Timestamp,
    /// How many nodes of the pool may be drained at once; `None` if any number may.
    pub(super) nodes_at_once: Option<u32>,
    /// The ways in which Azure may be told that it may start.
    pub(super) approve: Vec<Approve>,
}

impl Rule {
    /// What the policies say about an event of a node.
    pub(super) fn of(circumstances: &Circumstances<'_>, event: Event) -> Self {
        let Circumstances { policies, traits, not_before, wrong } = circumstances;
        let mut rulings: Vec<Option<Ruling>> = Vec::new();
        for traits in traits {
            for wall in moments(policies, *traits, &event, *not_before, *wrong) {
                let now = Now { wall, monotonic: Monotonic::default() };
                // The ruling is fixed at the first act, in whichever phase the event was then.
                for status in [EventStatus::Scheduled, EventStatus::Started] {
                    rulings.push(match policies.judge(*traits, &scheduled(&event, status), now) {
                        Judgement::Ruled(ruling) => Some(ruling),
                        Judgement::NoPolicy(_) | Judgement::NoRule(_) | Judgement::Observed(_) => None,
                    });
                }
            }
        }
        let ruled = || rulings.iter().flatten();
        let drains = || ruled().filter(|ruling| ruling.action == Action::Drain);
        let actions = || rulings.iter().map(|ruling| ruling.as_ref().map_or(Action::None, |ruling| ruling.action));
        let begins = |ruling: &Ruling, not_before| {
            let from = ruling.start.at_most.map(|before| minus(not_before, before));
            from.unwrap_or(event.published).max(event.published)
        };
        let due = ruled()
            .filter(|ruling| ruling.action > Action::None)
            .map(|ruling| if ruling.start.cordon_at_once { event.published } else { begins(ruling, not_before.1) });
        let started = (event.phase != Phase::Scheduled).then_some(event.phase_since);
        let drains_from = drains().map(|ruling| begins(ruling, not_before.0)).chain(started).min();
        let latest = not_before.1.max(event.published).max(started.unwrap_or(event.published));
        Self {
            action: actions().max().unwrap_or(Action::None),
            duty: actions().min().unwrap_or(Action::None),
            due: due.max().unwrap_or(event.published),
            drains_from: minus(drains_from.unwrap_or(event.published), wrong.ahead),
            least_left: drains().map(|ruling| ruling.start.at_least).min().flatten(),
            deletes_from: drains()
                .filter_map(|ruling| deletes_from(ruling.profile.as_ref()?, &event, not_before.0, started))
                .min()
                .map(|from| minus(from, wrong.ahead)),
            until: plus(latest, WITHOUT_NOTICE + TOLERANCE + wrong.behind),
            nodes_at_once: if drains().all(|ruling| ruling.nodes_at_once.is_some()) {
                drains().filter_map(|ruling| ruling.nodes_at_once).max()
            } else {
                None
            },
            approve: ruled().map(|ruling| ruling.approve).collect(),
            event,
        }
    }

    /// Whether a drain that begins now comes too late by the policy.
    pub(super) fn is_too_late(&self, at: Timestamp, wrong: Wrong) -> bool {
        let Some(least) = self.least_left else { return false };
        // An event without notice leaves so much.
        let left = if self.event.phase == Phase::Scheduled && self.event.not_before > at {
            Duration::try_from(self.event.not_before.duration_since(at)).unwrap_or_default()
        } else {
            WITHOUT_NOTICE
        };
        left + wrong.behind + TOLERANCE < least
    }
}

/// The times at which the event has to be judged because a rule may match at one and not at another.
fn moments(
    policies: &PolicySet,
    traits: NodeTraits<'_>,
    event: &Event,
    not_before: (Timestamp, Timestamp),
    wrong: Wrong,
) -> Vec<Timestamp> {
    let mut moments = vec![event.published];
    let Ok(policy) = policies.for_node(traits) else { return moments };
    let bounds = policy.rules.iter().flat_map(|rule| [rule.matches.notice.below, rule.matches.notice.at_least]);
    let second = Duration::from_secs(1);
    for bound in bounds.flatten().chain([Duration::ZERO]) {
        for not_before in [not_before.0, not_before.1] {
            let turns = minus(not_before, bound);
            moments.extend([minus(turns, second), plus(turns, second)]);
        }
    }
    let earliest = minus(event.published, wrong.behind);
    moments.retain(|at| *at >= earliest);
    moments
}

/// From when on a profile allows deletions.
fn deletes_from(
    profile: &Profile,
    event: &Event,
    not_before: Timestamp,
    started: Option<Timestamp>,
) -> Option<Timestamp> {
    if profile.at_deadline != AtDeadline::Delete {
        return None;
    }
    let earliest = started.map_or(not_before, |started| started.min(not_before));
    let by_timeout = profile.timeout.map(|timeout| plus(event.published, timeout));
    let deadline = by_timeout.map_or(earliest, |at| at.min(earliest));
    // An event without notice gives so much from when it is first seen.
    let deadline = if event.not_before <= event.published {
        deadline.max(plus(event.published, WITHOUT_NOTICE))
    } else {
        deadline
    };
    Some(minus(deadline, profile.margin.unwrap_or(WIDEST_MARGIN) + Duration::from_secs(1)))
}

/// The event as an agent reads it in this phase.
pub(super) fn scheduled(event: &Event, status: EventStatus) -> ScheduledEvent {
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
