//! What an operator wants done about scheduled events: policies, their rules, and which rule applies to an event.
//!
//! A policy comes from a YAML file (see [`mod@file`]) and is complete: whatever the file leaves out has been filled in.
//! The first rule of a policy that matches an event wins. What it says is copied into a [`Ruling`], which is kept with
//! the node from the first act on, so that a policy file that changes in the middle of an event changes nothing about
//! that event.

mod duration_text;
pub mod file;
mod selector;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::scheduled_event::{EventSource, EventStatus, EventType, ScheduledEvent};
use crate::yaml::FileError;
pub use selector::Selector;

/// The profile that a rule uses when it names none. It always exists.
pub const DEFAULT_PROFILE: &str = "default";

/// The lowest priority that the kubelet counts as system-critical
/// (<https://kubernetes.io/docs/tasks/administer-cluster/guaranteed-scheduling-critical-addon-pods/>).
pub const SYSTEM_CRITICAL_PRIORITY: i32 = 2_000_000_000;

/// The policy that applies when no file is given; the same text is shipped as `policies/default.yaml`.
pub const BUILT_IN: &str = include_str!("../../../policies/default.yaml");

/// How much is done to the node, from nothing to most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// Nothing.
    None,
    /// The node takes no new pods.
    Cordon,
    /// The node takes no new pods, and those that it has are evicted.
    Drain,
}

impl Action {
    /// The word for policy files, metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Cordon => "cordon",
            Self::Drain => "drain",
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.as_str())
    }
}

/// Whether a policy acts, or only says what it would do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    /// It acts.
    #[default]
    Act,
    /// It decides and tells, but no action of it is carried out.
    Observe,
}

/// What happens at the deadline to the pods that are still there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AtDeadline {
    /// They are left where they are and named.
    #[default]
    Leave,
    /// They are deleted past their disruption budget, shortly before the deadline, with what grace is left.
    Delete,
}

/// What is done with a kind of pod that an eviction destroys for good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Treatment {
    /// It is evicted like any other.
    #[default]
    Evict,
    /// It stays and is named.
    Leave,
}

/// The pods from one priority up to the next phase's; phases are drained from the lowest to the highest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Phase {
    /// The lowest priority of the phase. Pods below the lowest phase belong to the lowest.
    pub priority: i32,
    /// The longest grace that a pod of this phase is given, in whole seconds and one at least, and the time kept for the phase before the deadline.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "duration_text::optional")]
    pub grace: Option<Duration>,
}

/// How a drain is done. Written down, it names only what differs from the default: the place is short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Profile {
    /// A limit on the whole drain, where the event leaves more time.
    #[serde(skip_serializing_if = "Option::is_none", with = "duration_text::optional")]
    pub timeout: Option<Duration>,
    /// How long before the deadline forced deletion begins; by default a fifth of the notice, from 1 s to 5 s.
    #[serde(skip_serializing_if = "Option::is_none", with = "duration_text::optional")]
    pub margin: Option<Duration>,
    /// What happens to the pods that are still there.
    #[serde(skip_serializing_if = "is_default")]
    pub at_deadline: AtDeadline,
    /// What is done with pods that no controller brings back.
    #[serde(skip_serializing_if = "is_default")]
    pub bare: Treatment,
    /// What is done with pods that lose an `emptyDir` volume.
    #[serde(skip_serializing_if = "is_default")]
    pub empty_dir: Treatment,
    /// The phases, by ascending priority, never empty.
    #[serde(skip_serializing_if = "are_usual")]
    pub phases: Vec<Phase>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn are_usual(phases: &Vec<Phase>) -> bool {
    *phases == usual_phases()
}

fn usual_phases() -> Vec<Phase> {
    vec![
        Phase { priority: 0, grace: None },
        Phase { priority: SYSTEM_CRITICAL_PRIORITY, grace: Some(Duration::from_secs(30)) },
    ]
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            timeout: None,
            margin: None,
            at_deadline: AtDeadline::Leave,
            bare: Treatment::Evict,
            empty_dir: Treatment::Evict,
            phases: usual_phases(),
        }
    }
}

/// Bounds on how long Azure expects the impact to last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DurationRange {
    /// The impact is shorter than this.
    pub below: Option<Duration>,
    /// The impact is at least this long.
    pub at_least: Option<Duration>,
}

/// The events that a rule is about. An empty list, or a bound that is not given, matches every event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Match {
    /// The types, of which an event must have one.
    pub types: Vec<TypeMatch>,
    /// The sources, of which an event must have one.
    pub sources: Vec<EventSource>,
    /// The states, in one of which an event must be.
    pub statuses: Vec<EventStatus>,
    /// How long the impact lasts; an event of unknown duration does not match any bound.
    pub duration: DurationRange,
}

/// An event type that a rule names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TypeMatch {
    /// This type.
    Is(EventType),
    /// Any type that this version does not know, written `Unknown`.
    Unknown,
}

impl TypeMatch {
    fn matches(&self, event_type: &EventType) -> bool {
        match self {
            Self::Is(wanted) => wanted == event_type,
            Self::Unknown => matches!(event_type, EventType::Other(_)),
        }
    }
}

impl Match {
    /// Why the event does not match, in words; `None` if it does.
    pub fn mismatch(&self, event: &ScheduledEvent) -> Option<String> {
        if !self.types.is_empty() && !self.types.iter().any(|wanted| wanted.matches(&event.event_type)) {
            return Some(format!("type is {}", event.event_type));
        }
        if !self.sources.is_empty() && !self.sources.contains(&event.source) {
            return Some(format!("source is {}", event.source));
        }
        if !self.statuses.is_empty() && !self.statuses.contains(&event.status) {
            return Some(format!("status is {}", event.status));
        }
        let DurationRange { below, at_least } = self.duration;
        match event.duration {
            None if below.is_some() || at_least.is_some() => Some("duration is unknown".into()),
            Some(lasts) if below.is_some_and(|below| lasts >= below) || at_least.is_some_and(|least| lasts < least) => {
                Some(format!("duration is {}", crate::time::spoken(lasts)))
            }
            _ => None,
        }
    }
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its name, unique in the policy.
    pub name: String,
    /// The events that it is about.
    pub matches: Match,
    /// What is done.
    pub action: Action,
    /// The name of the drain profile; [`DEFAULT_PROFILE`] if the file names none.
    pub profile: String,
    /// How long before `NotBefore` the action begins at the earliest; at once if `None`.
    pub start_at_most: Option<Duration>,
}

/// A policy, complete and valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Its name.
    pub name: String,
    /// The nodes that it is for.
    pub selector: Selector,
    /// Which policy counts where several select a node: the one with the highest number.
    pub priority: i32,
    /// Whether it acts.
    pub mode: Mode,
    /// Its rules; the first that matches wins.
    pub rules: Vec<Rule>,
    /// The drain profiles by name, among them [`DEFAULT_PROFILE`].
    pub profiles: BTreeMap<String, Profile>,
}

/// What the policy says about one event: everything needed to go on with it, whatever becomes of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ruling {
    /// The policy's name.
    pub policy: String,
    /// The rule's name.
    pub rule: String,
    /// What is done.
    pub action: Action,
    /// How the node is drained; `None` unless the action is a drain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// How long before `NotBefore` the action begins at the earliest.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "duration_text::optional")]
    pub start_at_most: Option<Duration>,
}

/// What a set of policies says about one event on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// No policy selects the node.
    NoPolicy,
    /// The named policy has no rule for the event.
    NoRule(String),
    /// A rule applies, but its policy only observes: this is what it would do.
    Observed(Ruling),
    /// A rule applies.
    Ruled(Ruling),
}

impl Judgement {
    /// What is to be done.
    pub fn action(&self) -> Action {
        match self {
            Self::Ruled(ruling) => ruling.action,
            Self::NoPolicy | Self::NoRule(_) | Self::Observed(_) => Action::None,
        }
    }
}

impl fmt::Display for Judgement {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPolicy => out.write_str("no policy selects this node"),
            Self::NoRule(policy) => write!(out, "policy {policy} has no rule for it"),
            Self::Observed(Ruling { policy, rule, action, .. }) => {
                write!(out, "rule {policy}/{rule} would say {action}, but the policy only observes")
            }
            Self::Ruled(Ruling { policy, rule, action, .. }) => write!(out, "rule {policy}/{rule} says {action}"),
        }
    }
}

impl Policy {
    /// The policy that applies when no file is given.
    pub fn built_in() -> Result<Self, FileError> {
        file::parse("default.yaml (built in)", BUILT_IN)
    }

    /// What this policy says about the event.
    pub fn judge(&self, event: &ScheduledEvent) -> Judgement {
        let Some(rule) = self.rules.iter().find(|rule| rule.matches.mismatch(event).is_none()) else {
            return Judgement::NoRule(self.name.clone());
        };
        let profile = match rule.action {
            Action::Drain => Some(self.profiles.get(&rule.profile).cloned().unwrap_or_default()),
            Action::None | Action::Cordon => None,
        };
        let ruling = Ruling {
            policy: self.name.clone(),
            rule: rule.name.clone(),
            action: rule.action,
            profile,
            start_at_most: rule.start_at_most,
        };
        match self.mode {
            Mode::Act => Judgement::Ruled(ruling),
            Mode::Observe => Judgement::Observed(ruling),
        }
    }

    /// The event types of which no event reaches a rule: nothing is ever done about them.
    pub fn types_without_rule(&self) -> Vec<&'static str> {
        let named = |name: &&&str| {
            let wanted = EventType::from_word(name);
            !self.rules.iter().any(|rule| {
                rule.matches.types.is_empty() || rule.matches.types.iter().any(|listed| listed.matches(&wanted))
            })
        };
        EventType::KNOWN.iter().filter(named).copied().collect()
    }

    /// The rules that never apply, because the named earlier rule takes every event.
    pub fn unreachable_rules(&self) -> Option<(&Rule, &[Rule])> {
        let index = self.rules.iter().position(|rule| rule.matches == Match::default())?;
        let (catch_all, rest) = (&self.rules[index], &self.rules[index + 1..]);
        (!rest.is_empty()).then_some((catch_all, rest))
    }
}

/// The policies that were loaded together; at most one of them applies to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicySet(Vec<Policy>);

/// Two policies of equal priority that could both select a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "policies {first} and {second} both have priority {priority} and could select the same node: \
     give one of them a higher `priority`, or narrow its `selector`"
)]
pub struct Tie {
    first: String,
    second: String,
    priority: i32,
}

/// Two files with policies of one name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicySetError {
    /// Two policies have the same name.
    #[error("two policies are named {0}: rename one of them")]
    SameName(String),
    /// Nothing says which of two policies counts.
    #[error(transparent)]
    Tie(#[from] Tie),
}

impl PolicySet {
    /// Puts policies together, the highest priority first.
    pub fn new(mut policies: Vec<Policy>) -> Result<Self, PolicySetError> {
        policies.sort_by(|a, b| b.priority.cmp(&a.priority).then_with(|| a.name.cmp(&b.name)));
        for (index, policy) in policies.iter().enumerate() {
            for other in &policies[index + 1..] {
                if policy.name == other.name {
                    return Err(PolicySetError::SameName(policy.name.clone()));
                }
                if policy.priority == other.priority && !policy.selector.excludes(&other.selector) {
                    let (first, second) = (policy.name.clone(), other.name.clone());
                    return Err(Tie { first, second, priority: policy.priority }.into());
                }
            }
        }
        Ok(Self(policies))
    }

    /// The policies, the highest priority first.
    pub fn policies(&self) -> &[Policy] {
        &self.0
    }

    /// The policy for a node with these labels.
    pub fn for_labels(&self, labels: &BTreeMap<String, String>) -> Option<&Policy> {
        self.0.iter().find(|policy| policy.selector.matches(labels))
    }

    /// What the policy for a node with these labels says about the event.
    pub fn judge(&self, labels: &BTreeMap<String, String>, event: &ScheduledEvent) -> Judgement {
        self.for_labels(labels).map_or(Judgement::NoPolicy, |policy| policy.judge(event))
    }
}

#[cfg(test)]
mod tests;
