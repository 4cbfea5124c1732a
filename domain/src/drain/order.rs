//! What a drain is told to achieve, what it asks for, and what it tells.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;

use super::answer::Answer;
use super::pod::{Kept, PodName, PodUid};
use crate::policy::Profile;
use crate::record::DrainResult;
use crate::time::Monotonic;

/// What the drain has to achieve. It may change while the drain runs: a deadline comes nearer or moves away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// How to drain.
    pub profile: Profile,
    /// When the drain began, in whichever life of the agent.
    pub started_at: Timestamp,
    /// When it has to be done.
    pub deadline: Timestamp,
    /// When someone uncordoned the node for good, if that has happened: pods that come later are not evicted.
    pub uncordoned_at: Option<Timestamp>,
}

impl Order {
    /// How long before the deadline forced deletion begins: by default a fifth of the notice, from 1 s to 5 s; never
    /// more than half of the notice, so that budgets are asked first.
    pub fn margin(&self) -> Duration {
        // A beginning after the deadline was written before the clock was set back, and tells nothing about the notice.
        let Ok(notice) = Duration::try_from(self.deadline.duration_since(self.started_at)) else {
            return Duration::from_secs(1);
        };
        let usual = || (notice / 5).clamp(Duration::from_secs(1), Duration::from_secs(5));
        self.profile.margin.unwrap_or_else(usual).min(notice / 2)
    }
}

/// A request to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// List the pods of the node, consistently (not from a cache), and watch from there on.
    List,
    /// Ask for an eviction, with this pod's UID as precondition.
    Evict(Target),
    /// Delete past the disruption budget, with this pod's UID as precondition.
    Delete(Target),
    /// Read the pod, because the server said that it is not as expected.
    Look(Target),
}

/// The pod that a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Where it is found.
    pub name: PodName,
    /// Which pod it must be.
    pub uid: PodUid,
    /// The grace to give it, in whole seconds and never zero.
    pub grace: Duration,
    /// How long to wait for the answer.
    pub timeout: Duration,
}

/// Something that an operator wants to know about, told once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// The pod's eviction was accepted.
    Evicted {
        /// The pod.
        pod: PodName,
        /// Its identity.
        uid: PodUid,
        /// The grace it was given.
        grace: Duration,
    },
    /// The pod was deleted, which asks no disruption budget.
    Deleted {
        /// The pod.
        pod: PodName,
        /// Its identity.
        uid: PodUid,
        /// The grace it was given.
        grace: Duration,
        /// Why.
        why: Why,
    },
    /// The pod's eviction is refused; it is tried again.
    Blocked {
        /// The pod.
        pod: PodName,
        /// Its identity.
        uid: PodUid,
        /// Who or what refuses.
        by: Blocker,
    },
    /// The pod stays.
    Kept {
        /// The pod.
        pod: PodName,
        /// Its identity.
        uid: PodUid,
        /// Why.
        why: Kept,
    },
}

/// Why a pod is deleted instead of evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The deadline is near, and it has not left.
    DeadlineNear,
    /// It is leaving already, but would not be gone in time.
    TooSlow,
    /// Its namespace is going or gone, so evictions in it are refused.
    NamespaceEnds,
}

impl fmt::Display for Why {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::DeadlineNear => "the machine goes in a moment, so no disruption budget was asked",
            Self::TooSlow => "it was leaving already, but too slowly for the machine's end",
            Self::NamespaceEnds => "its namespace is being deleted, where nothing can be evicted",
        })
    }
}

/// Who or what refuses an eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blocker {
    /// A disruption budget that allows no disruption now; its name, where the server told it.
    Budget(Option<String>),
    /// Several disruption budgets on one pod, which the eviction API never allows.
    SeveralBudgets,
    /// The pod's namespace is gone, so that nothing in it can be evicted.
    NamespaceGone,
    /// An admission policy or webhook, in its own words.
    Admission(String),
    /// A right that this program lacks, in the server's words.
    Forbidden(String),
    /// The server finds the request wrong, in its words.
    Invalid(String),
}

impl Blocker {
    /// The refusal that an answer tells of; `None` if it tells of none, or only of a passing trouble.
    pub(super) fn of(answer: &Answer) -> Option<Self> {
        match answer {
            Answer::Budget(name) => Some(Self::Budget(name.clone())),
            Answer::SeveralBudgets => Some(Self::SeveralBudgets),
            Answer::NamespaceGone => Some(Self::NamespaceGone),
            Answer::Admission(message) => Some(Self::Admission(message.clone())),
            Answer::Forbidden(message) => Some(Self::Forbidden(message.clone())),
            Answer::Invalid(message) => Some(Self::Invalid(message.clone())),
            Answer::Accepted | Answer::Gone | Answer::Conflict | Answer::Busy(_) | Answer::NamespaceTerminating => None,
        }
    }
}

impl fmt::Display for Blocker {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Budget(Some(name)) => write!(out, "PodDisruptionBudget {name} allows no disruption now"),
            Self::Budget(None) => out.write_str("a PodDisruptionBudget allows no disruption now"),
            Self::SeveralBudgets => {
                out.write_str("several PodDisruptionBudgets select it, which evictions do not support: leave it one")
            }
            Self::NamespaceGone => {
                out.write_str("its namespace does not exist any more, so nothing in it can be evicted")
            }
            Self::Admission(message) => write!(out, "admission refuses: {message}"),
            Self::Forbidden(message) => write!(out, "a right is missing: {message}"),
            Self::Invalid(message) => write!(out, "the API server finds the request wrong: {message}"),
        }
    }
}

/// How a drain ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Whether everything that had to go is gone.
    pub result: DrainResult,
    /// The pods that stayed, each with why.
    pub left: Vec<(PodName, String)>,
    /// How many pods left after an eviction, or by themselves.
    pub evicted: usize,
    /// How many pods left because they were deleted, past their disruption budget.
    pub deleted: usize,
}

/// What to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The requests to send, the most urgent first.
    pub requests: Vec<Request>,
    /// What has happened since the last step.
    pub reports: Vec<Report>,
    /// When to step again if nothing happens before.
    pub wake: Monotonic,
    /// Set once, when the drain is over; nothing more is sent then.
    pub outcome: Option<Outcome>,
}
