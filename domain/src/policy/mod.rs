//! What an operator wants done about scheduled events: policies, their rules, and which rule applies to an event.
//!
//! A policy comes from a YAML file (see [`mod@file`]) and is complete: whatever the file leaves out has been filled in.
//! The first rule of a policy that matches an event wins. What it says is copied into a [`Ruling`], which is kept with
//! the node from the first act on, so that a policy file that changes in the middle of an event changes nothing about
//! that event.

mod approve;
pub(crate) mod duration_text;
mod event_match;
pub mod file;
pub mod receiver;
mod schema;
mod selector;
pub(crate) mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::marks::Marking;
use crate::notification::Topic;
use crate::scheduled_event::{EventType, ScheduledEvent};
use crate::time::Now;
use crate::yaml::FileError;
pub use approve::{Approve, ApproveBySource};
pub use event_match::{Bounds, DescriptionMatch, Match, TypeMatch};
use receiver::Receiver;
pub(crate) use schema::of as schema_of;
pub use schema::{SCHEMA_ID, schema};
pub use selector::{Operator, Requirement, Selector};

/// The profile that a rule uses when it names none. It always exists.
pub const DEFAULT_PROFILE: &str = "default";

/// The lowest priority that the kubelet counts as system-critical
/// (<https://kubernetes.io/docs/tasks/administer-cluster/guaranteed-scheduling-critical-addon-pods/>).
pub const SYSTEM_CRITICAL_PRIORITY: i32 = 2_000_000_000;

/// The annotation by which a person gives one node a policy by name, whatever the selectors say.
pub const POLICY_ANNOTATION: &str = "remediator.dev/policy";

/// The policy that applies when no file is given; the same text is shipped as `policies/default.yaml`.
pub const BUILT_IN: &str = include_str!("../../../policies/default.yaml");

/// How much is done to the node, from nothing to most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    /// It acts.
    #[default]
    Act,
    /// It decides and tells, but no action of it is carried out.
    Observe,
}

/// What happens at the deadline to the pods that are still there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum AtDeadline {
    /// They are left where they are and named.
    #[default]
    Leave,
    /// They are deleted past their disruption budget, shortly before the deadline, with what grace is left.
    Delete,
}

/// What is done with a kind of pod that an eviction destroys for good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
    /// The pods that are evicted; all if `None`. The others are not looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods: Option<Selector>,
    /// The pods that are left where they are and named.
    #[serde(skip_serializing_if = "is_default")]
    pub skip: Skip,
    /// The phases, by ascending priority, never empty.
    #[serde(skip_serializing_if = "are_usual")]
    pub phases: Vec<Phase>,
}

impl Profile {
    /// Whether a drain by either moves the same pods.
    pub fn moves_the_same_pods(&self, other: &Self) -> bool {
        let ours = (self.bare, self.empty_dir, &self.pods, &self.skip);
        ours == (other.bare, other.empty_dir, &other.pods, &other.skip)
    }
}

/// Labels and annotations, any one of which, with its value, keeps a pod out of the drain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(extend("minProperties" = 1))]
pub struct Skip {
    /// Labels and their values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations and their values, of up to 63 characters.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
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
            pods: None,
            skip: Skip::default(),
            phases: usual_phases(),
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
    /// When it is done.
    pub start: Start,
    /// Whether the event is started early, by who asked for it.
    pub approve: ApproveBySource,
}

/// When a rule's action is carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Start {
    /// How long before `NotBefore` the action begins at the earliest; at once if `None`.
    #[serde(skip_serializing_if = "Option::is_none", with = "duration_text::optional")]
    pub at_most: Option<Duration>,
    /// With less time than this a drain is not begun any more, only the cordon.
    #[serde(skip_serializing_if = "Option::is_none", with = "duration_text::optional")]
    pub at_least: Option<Duration>,
    /// Whether the node is cordoned at first sight, however far away the drain is.
    #[serde(skip_serializing_if = "is_default")]
    pub cordon_at_once: bool,
}

impl Start {
    /// Whether a drain is not begun any more with so much time left.
    pub fn is_too_late(self, left: Duration) -> bool {
        self.at_least.is_some_and(|least| left < least)
    }
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
    /// What is put on a node beside the cordon.
    pub marking: Marking,
    /// How many nodes of a pool are drained at once, unless their machines are about to end (Preempt, Terminate).
    pub nodes_at_once: Option<u32>,
    /// Who is told outside the cluster.
    pub receivers: Vec<Receiver>,
    /// Whether the restart that a repair asked for is started early on behalf of the machine, which may be dead.
    pub approve_own_repairs: bool,
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
    /// When it is done.
    #[serde(default, skip_serializing_if = "is_default")]
    pub start: Start,
    /// Whether the event is started early.
    #[serde(default, skip_serializing_if = "is_default")]
    pub approve: Approve,
    /// What is put on the node beside the cordon.
    #[serde(default, skip_serializing_if = "is_default")]
    pub marking: Marking,
    /// How many nodes of the pool may be drained at once; `None` where nothing limits it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes_at_once: Option<u32>,
}

impl Ruling {
    /// The same ruling, of which only the cordon is carried out.
    #[must_use]
    pub fn cordoning(self) -> Self {
        Self { action: Action::Cordon, profile: None, nodes_at_once: None, ..self }
    }
}

/// What a set of policies says about one event on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// No policy is for the node.
    NoPolicy(NoPolicy),
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
            Self::NoPolicy(_) | Self::NoRule(_) | Self::Observed(_) => Action::None,
        }
    }
}

impl fmt::Display for Judgement {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPolicy(why) => why.fmt(out),
            Self::NoRule(policy) => write!(out, "policy {policy} has no rule for it"),
            Self::Observed(Ruling { policy, rule, action, .. }) => {
                write!(out, "rule {policy}/{rule} would say {action}, but the policy only observes")
            }
            Self::Ruled(Ruling { policy, rule, action, .. }) => write!(out, "rule {policy}/{rule} says {action}"),
        }
    }
}

impl Policy {
    /// Whether neighbours start the event of a repair's own restart. A policy that only observes has nothing started.
    pub fn approves_own_repairs(&self) -> bool {
        self.mode == Mode::Act && self.approve_own_repairs
    }

    /// The policy that applies when no file is given.
    pub fn built_in() -> Result<Self, FileError> {
        file::parse("default.yaml (built in)", BUILT_IN)
    }

    /// What this policy says about the event now.
    pub fn judge(&self, event: &ScheduledEvent, now: Now) -> Judgement {
        let Some(rule) = self.rules.iter().find(|rule| rule.matches.mismatch(event, now).is_none()) else {
            return Judgement::NoRule(self.name.clone());
        };
        let drains = rule.action == Action::Drain;
        let ends = matches!(event.event_type, EventType::Preempt | EventType::Terminate);
        let ruling = Ruling {
            policy: self.name.clone(),
            rule: rule.name.clone(),
            action: rule.action,
            profile: drains.then(|| self.profiles.get(&rule.profile).cloned().unwrap_or_default()),
            start: rule.start,
            approve: rule.approve.of(&event.source),
            marking: if rule.action == Action::None { Marking::default() } else { self.marking.clone() },
            // There will be no later chance, and waiting would cost the pods their notice.
            nodes_at_once: self.nodes_at_once.filter(|_| drains && !ends),
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

    /// What is told outside the cluster.
    pub fn topics(&self) -> BTreeSet<Topic> {
        self.receivers.iter().flat_map(|receiver| &receiver.on).copied().collect()
    }

    /// What is valid but probably not meant, in words.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let without = self.types_without_rule();
        if !without.is_empty() {
            warnings.push(format!("no rule is about {}: nothing is done for them", without.join(", ")));
        }
        let used = |name: &String| {
            name == DEFAULT_PROFILE
                || self.rules.iter().any(|rule| rule.action == Action::Drain && rule.profile == *name)
        };
        let unused: Vec<&str> = self.profiles.keys().filter(|name| !used(name)).map(String::as_str).collect();
        if !unused.is_empty() {
            warnings.push(format!("no rule uses the drain profile {}", unused.join(", ")));
        }
        let hasty = |rule: &&Rule| {
            rule.action == Action::Drain && [rule.approve.platform, rule.approve.user].contains(&Approve::Immediately)
        };
        warnings.extend(self.rules.iter().filter(hasty).map(|rule| {
            format!(
                "rule {} drains, but has the event started at once: the drain may not be done by then; write whenDrained",
                rule.name
            )
        }));
        warnings.extend(self.marking.taint.as_ref().and_then(crate::marks::Taint::warning));
        warnings
    }
}

/// Why no policy is for a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPolicy {
    /// None selects it.
    #[error("no policy selects this node")]
    Unselected,
    /// It names a policy that there is not; nobody guesses which was meant.
    #[error("annotation {POLICY_ANNOTATION} names policy {0}, which is not loaded")]
    Unknown(String),
}

/// The policies that were loaded together; at most one of them applies to a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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

    /// The same policies, by which nobody outside the cluster is told anything.
    #[must_use]
    pub fn without_receivers(mut self) -> Self {
        for policy in &mut self.0 {
            policy.receivers.clear();
        }
        self
    }

    /// The policy of this name.
    pub fn named(&self, name: &str) -> Option<&Policy> {
        self.0.iter().find(|policy| policy.name == name)
    }

    /// The policy for a node with these labels, unless its annotation [`POLICY_ANNOTATION`] names another.
    pub fn for_node(&self, node: NodeTraits<'_>) -> Result<&Policy, NoPolicy> {
        match node.policy {
            Some(name) => self.named(name).ok_or_else(|| NoPolicy::Unknown(name.to_owned())),
            None => self.0.iter().find(|policy| policy.selector.matches(node.labels)).ok_or(NoPolicy::Unselected),
        }
    }

    /// What the policy for a node says about the event now.
    pub fn judge(&self, node: NodeTraits<'_>, event: &ScheduledEvent, now: Now) -> Judgement {
        match self.for_node(node) {
            Ok(policy) => policy.judge(event, now),
            Err(why) => Judgement::NoPolicy(why),
        }
    }
}

/// By what a node is given its policy.
#[derive(Clone, Copy, Debug)]
pub struct NodeTraits<'a> {
    /// Its labels.
    pub labels: &'a BTreeMap<String, String>,
    /// What its annotation [`POLICY_ANNOTATION`] says, if it has one.
    pub policy: Option<&'a str>,
}

#[cfg(test)]
mod tests;
