//! The policy file: strict YAML, in which every mistake is answered with its line, its column and what would be right.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};
use serde_saphyr::Spanned;

use super::duration_text::DurationText;
use super::receiver::{ReceiverFile, receivers};
use super::selector::{LABEL_KEY, LABEL_VALUE, fault_of_labels, is_label_key, is_label_value};
use super::words::{ApproveFile, EventSourceWord, EventStatusWord, OneOrMore};
use super::{
    Action, Approve, ApproveBySource, AtDeadline, Bounds, DEFAULT_PROFILE, DescriptionMatch, Match, Mode, Phase,
    Policy, Profile, Rule, Selector, Skip, Start, Treatment, TypeMatch,
};
use crate::drain::pod::LONGEST_ANNOTATION;
use crate::marks::{AUTOSCALER_TAINT_KEY, DEFAULT_TAINT_KEY, Marking, Taint, TaintEffect};
use crate::scheduled_event::EventStatus;
use crate::yaml::{self, FileError, Mistake, Mistakes};

pub(crate) const API_VERSION: &str = "remediator.dev/v1alpha1";
const KIND: &str = "Policy";

/// How the names of policies and rules are written, as a regular expression.
pub(crate) const NAME: &str = "^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$";

/// How many phases a profile may have; the profile is kept in an annotation of limited size.
const MOST_PHASES: usize = 8;

/// Reads the text of a policy file; `file` is its name, for the error, which is the first mistake.
pub fn parse(file: &str, text: &str) -> Result<Policy, FileError> {
    parse_all(file, text).map_err(|mut errors| errors.remove(0))
}

/// The same with every mistake that can be told at once: never none, in the order of the file.
pub fn parse_all(file: &str, text: &str) -> Result<Policy, Vec<FileError>> {
    yaml::read_all(file, text, PolicyFile::into_policy)
}

/// What is done about the scheduled events of Azure's virtual machines, for the nodes of a cluster or some of them.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(title = "Policy of remediator")]
pub(crate) struct PolicyFile {
    /// The version of the policy language.
    #[schemars(with = "String", extend("const" = API_VERSION))]
    api_version: Spanned<String>,
    /// What the file is.
    #[schemars(with = "String", extend("const" = KIND))]
    kind: Spanned<String>,
    /// By what the policy is known.
    metadata: Metadata,
    /// The nodes that the policy is for, by their labels; all nodes without it. The annotation `remediator.dev/policy` of a
    /// node names a policy for it, whatever the selectors say.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Option<Selector>")]
    selector: Option<Spanned<Selector>>,
    /// Which policy counts where several select a node: the one with the highest number. Policies of the same priority must
    /// not be able to select the same node.
    #[serde(default)]
    priority: i32,
    /// Whether the policy acts, or only tells what it would do.
    #[serde(default)]
    mode: Mode,
    /// The rules. The first that matches an event says what is done about it; nothing is done where none does.
    #[serde(default)]
    events: Vec<RuleFile>,
    /// How nodes are cordoned and drained.
    #[serde(default)]
    drain: DrainFile,
    /// What is done for the repair of nodes.
    #[serde(default)]
    repair: RepairFile,
    /// Who is told outside the cluster.
    #[serde(default)]
    notify: Vec<ReceiverFile>,
}

/// By what a policy is known.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Metadata {
    /// The policy's name, unique among those that are loaded together: up to 63 of a-z, 0-9, `-` and `.`.
    #[schemars(with = "String", extend("pattern" = NAME))]
    name: Spanned<String>,
}

/// A rule: for which events, and what is done about them.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Rule", extend(
    "if" = {"properties": {"action": {"const": "drain"}}},
    "else" = {"properties": {"profile": false}},
))]
struct RuleFile {
    /// The rule's name, unique in the policy: up to 63 of a-z, 0-9, `-` and `.`. It stands in logs, Events and records.
    #[schemars(with = "String", extend("pattern" = NAME))]
    name: Spanned<String>,
    /// The events that the rule is about; all of them without it. What is given must hold together.
    #[serde(rename = "match", default, deserialize_with = "given")]
    #[schemars(with = "Option<MatchFile>")]
    matches: Option<Spanned<MatchFile>>,
    /// What is done.
    action: Action,
    /// The profile, of those under `drain.profiles`, by which the node is drained. Only with `action: drain`.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Option<String>", extend("default" = DEFAULT_PROFILE))]
    profile: Option<Spanned<String>>,
    /// When it is done; at once without it.
    #[serde(default)]
    start: StartFile,
    /// Whether Azure is told that the event may begin before its time, for every event or by who asked for it. That begins
    /// it for all the machines that it concerns.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Option<ApproveFile>", extend("default" = "never"))]
    approve: Option<Spanned<ApproveFile>>,
}

/// For which events a rule is. What is given must hold together.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Match")]
struct MatchFile {
    /// What happens to the machine: one type or a list. `Unknown` stands for any type that this version does not know.
    #[serde(rename = "type", default, deserialize_with = "given")]
    #[schemars(with = "Option<OneOrMore<TypeMatch>>")]
    event_type: Option<OneOrMore<TypeMatch>>,
    /// Who asked for the event.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Option<OneOrMore<EventSourceWord>>")]
    source: Option<OneOrMore<EventSourceWord>>,
    /// How far the event has come.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Option<OneOrMore<EventStatusWord>>")]
    status: Option<OneOrMore<EventStatusWord>>,
    /// How long the impact is expected to last. An event of unknown duration, as most but freezes are, is within no bounds.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Option<BoundsFile>")]
    duration: Option<Spanned<BoundsFile>>,
    /// How far ahead the impact is at the moment of the judgement; nothing is left of it once the event has started.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Option<BoundsFile>")]
    notice: Option<Spanned<BoundsFile>>,
    /// What Azure's own words must contain.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Option<DescriptionFile>")]
    description: Option<DescriptionFile>,
}

/// Bounds on a length of time; one is needed.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Bounds", extend("minProperties" = 1))]
struct BoundsFile {
    /// It is shorter than this.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Option<DurationText>")]
    below: Option<DurationText>,
    /// It is at least this long.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Option<DurationText>")]
    at_least: Option<DurationText>,
}

/// What the description of an event must contain: a text or an expression.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Description")]
enum DescriptionFile {
    /// This text, in any letter case.
    Contains(
        /// This text, in any letter case.
        #[schemars(with = "String", extend("minLength" = 1))]
        Spanned<String>,
    ),
    /// Something that this regular expression matches; `(?i)` at its beginning makes it blind to letter case.
    Matches(
        /// Something that this regular expression matches; `(?i)` at its beginning makes it blind to letter case.
        #[schemars(with = "String", extend("format" = "regex"))]
        Spanned<String>,
    ),
}

/// When the action of a rule is carried out.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Start")]
struct StartFile {
    /// Nothing is begun earlier than this before the event; at once without it.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Option<DurationText>")]
    at_most: Option<Spanned<DurationText>>,
    /// With less time than this left a drain is not begun any more, and the node only cordoned. Only with `action: drain`.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Option<DurationText>")]
    at_least: Option<Spanned<DurationText>>,
    /// Whether the node is cordoned at first sight, although the drain begins later. Only with `action: drain` and `atMost`.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Option<bool>", extend("default" = false))]
    cordon_at_once: Option<Spanned<bool>>,
}

/// How nodes are cordoned and drained.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Drain")]
struct DrainFile {
    /// A taint that is put on the node with the cordon, and taken away with it. None without it; `{}` is the usual one.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Option<TaintFile>")]
    taint: Option<TaintFile>,
    /// Whether the node is taken out of load balancers with the cordon, by the label
    /// `node.kubernetes.io/exclude-from-external-load-balancers`.
    #[serde(default)]
    exclude_from_load_balancers: bool,
    /// Whether the cluster autoscaler is kept from removing the node meanwhile, by the annotation
    /// `cluster-autoscaler.kubernetes.io/scale-down-disabled`.
    #[serde(default)]
    disable_scale_down: bool,
    /// How many nodes of a pool are drained at once; as many as it takes without it. It does not hold up what ends the
    /// machine (Preempt, Terminate).
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Option<u32>", extend("minimum" = 1))]
    nodes_at_once: Option<Spanned<u32>>,
    /// Ways to drain a node, by names that rules use. A rule that names none uses `default`, which is there in any case.
    #[serde(default)]
    profiles: BTreeMap<String, ProfileFile>,
}

/// A taint.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Taint")]
struct TaintFile {
    /// Its key. One with another prefix than the usual one's may keep the cluster autoscaler from adding nodes to the pool.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Option<String>", extend("default" = DEFAULT_TAINT_KEY))]
    key: Option<Spanned<String>>,
    /// Its value.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Option<String>", extend("default" = "", "maxLength" = 63))]
    value: Option<Spanned<String>>,
    /// What it does to pods that do not tolerate it.
    #[serde(default)]
    effect: TaintEffect,
}

/// What is done for the repair of nodes.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Repair")]
struct RepairFile {
    /// Whether neighbours start the event of a repair's own restart, on behalf of a machine that may be dead.
    #[serde(default)]
    approve_own_repairs: bool,
}

/// A way to drain a node.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Profile")]
struct ProfileFile {
    /// A limit on the drain, where the event leaves more time.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Option<DurationText>")]
    timeout: Option<Spanned<DurationText>>,
    /// How long before the deadline forced deletion begins, with `atDeadline: delete`; by default a fifth of the time, from
    /// 1s to 5s. It is never more than half of the time.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Option<DurationText>")]
    margin: Option<Spanned<DurationText>>,
    /// What becomes of pods that are still there at the deadline.
    #[serde(default)]
    at_deadline: AtDeadline,
    /// What is done with pods that no controller brings back.
    #[serde(default)]
    bare: Treatment,
    /// What is done with pods that have an `emptyDir` volume, whose content is lost.
    #[serde(default)]
    empty_dir: Treatment,
    /// The pods that are evicted, by their labels; the others are not looked at. All pods without it.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Option<Selector>")]
    pods: Option<Spanned<Selector>>,
    /// Pods that stay: each that has one of these labels or annotations with that value.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Option<Skip>")]
    skip: Option<Spanned<Skip>>,
    /// The order in which pods go, by priority: each phase takes those from its own priority up to the next one's. By
    /// default everything else goes before what is critical for the system, which has 30s at the end.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Option<Vec<PhaseFile>>", extend("minItems" = 1, "maxItems" = MOST_PHASES))]
    phases: Option<Spanned<Vec<PhaseFile>>>,
}

/// The pods from one priority up to the next phase's.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Phase")]
struct PhaseFile {
    /// The lowest priority of the phase; pods below the lowest phase belong to the lowest. Ascending from phase to phase.
    #[schemars(with = "i32")]
    priority: Spanned<i32>,
    /// The longest grace that a pod of the phase is given, and the time that is kept for the phase before the deadline.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Option<DurationText>")]
    grace: Option<Spanned<DurationText>>,
}

/// A member that has a value if it is there: `selector:` with nothing behind it, as a template with an empty value leaves it,
/// would mean all nodes, and `type:` all events.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

impl PolicyFile {
    fn into_policy(self, mistakes: &mut Mistakes) -> Option<Policy> {
        let Self {
            api_version,
            kind,
            metadata: Metadata { name },
            selector,
            priority,
            mode,
            events,
            drain,
            repair,
            notify,
        } = self;
        mistakes.take(check_head(&api_version, &kind, KIND));
        mistakes.take(check_name("policy", &name));
        let selector = mistakes.take(into_selector(selector));
        let DrainFile { taint, exclude_from_load_balancers, disable_scale_down, nodes_at_once, profiles } = drain;
        let taint = mistakes.take(taint.map(TaintFile::into_taint).transpose());
        if let Some(none) = nodes_at_once.as_ref().filter(|most| most.value == 0) {
            let message = "with `nodesAtOnce: 0` no node would ever be drained: leave it out for no limit";
            mistakes.take::<()>(Err(Mistake::at(none, message)));
        }
        let names: BTreeSet<String> = profiles.keys().cloned().chain([DEFAULT_PROFILE.to_owned()]).collect();
        let profiles = into_profiles(profiles, mistakes);
        let rules = into_rules(events, &names, mistakes);
        let receivers = mistakes.take(receivers(notify));
        Some(Policy {
            name: name.value,
            selector: selector?.unwrap_or_default(),
            priority,
            mode,
            rules,
            profiles,
            marking: Marking { taint: taint?, exclude_from_load_balancers, disable_scale_down },
            nodes_at_once: nodes_at_once.map(|most| most.value),
            approve_own_repairs: repair.approve_own_repairs,
            receivers: receivers?,
        })
    }
}

/// Checks what every file of ours begins with.
pub(crate) fn check_head(api_version: &Spanned<String>, kind: &Spanned<String>, expected: &str) -> Result<(), Mistake> {
    if api_version.value != API_VERSION {
        let message = format!("unknown apiVersion `{}`: write {API_VERSION}", api_version.value);
        return Err(Mistake::at(api_version, message));
    }
    if kind.value != expected {
        return Err(Mistake::at(kind, format!("unknown kind `{}`: write {expected}", kind.value)));
    }
    Ok(())
}

fn into_rules(events: Vec<RuleFile>, profiles: &BTreeSet<String>, mistakes: &mut Mistakes) -> Vec<Rule> {
    let mut names = BTreeSet::new();
    let mut rules: Vec<Rule> = Vec::with_capacity(events.len());
    for rule in events {
        let name = rule.name.clone();
        mistakes.take(check_name("rule", &name));
        if !names.insert(name.value.clone()) {
            let message = format!("two rules are named `{}`: rename one", name.value);
            mistakes.take::<()>(Err(Mistake::at(&name, message)));
        }
        let Some(rule) = mistakes.take(rule.into_rule(profiles)) else { continue };
        if let Some(earlier) = rules.iter().find(|earlier| earlier.matches.covers(&rule.matches)) {
            let earlier = &earlier.name;
            let message =
                format!("this rule never applies, because `{earlier}` above takes all its events: move it up");
            mistakes.take::<()>(Err(Mistake::at(&name, message)));
        }
        rules.push(rule);
    }
    rules
}

impl RuleFile {
    fn into_rule(self, profiles: &BTreeSet<String>) -> Result<Rule, Mistake> {
        let Self { name, matches, action, profile, start, approve } = self;
        if let Some(profile) = &profile {
            if action != Action::Drain {
                return Err(Mistake::at(
                    profile,
                    format!("a profile is for `action: drain`, but this rule says {action}"),
                ));
            }
            if !profiles.contains(&profile.value) {
                let known: Vec<&str> = profiles.iter().map(String::as_str).collect();
                let message =
                    format!("no profile `{}` under drain.profiles: there are {}", profile.value, known.join(", "));
                return Err(Mistake::at(profile, message));
            }
        }
        let matches = match matches {
            None => Match::default(),
            Some(matches) => matches.value.into_match()?,
        };
        Ok(Rule {
            name: name.value,
            start: start.into_start(action, &matches)?,
            matches,
            action,
            profile: profile.map_or_else(|| DEFAULT_PROFILE.to_owned(), |profile| profile.value),
            approve: into_approve(approve, action)?,
        })
    }
}

impl StartFile {
    fn into_start(self, action: Action, matches: &Match) -> Result<Start, Mistake> {
        let Self { at_most, at_least, cordon_at_once } = self;
        if let Some(at_most) = &at_most {
            if action == Action::None {
                return Err(Mistake::at(at_most, "`start` is for a cordon or a drain, but this rule says none"));
            }
            if at_most.value.0.is_zero() {
                let message = "with `atMost: 0s` nothing would begin before the event does: give it time";
                return Err(Mistake::at(at_most, message));
            }
            if matches.statuses == [EventStatus::Started] {
                let message =
                    "an event that has started is not ahead any more: leave `atMost` out, or match `Scheduled`";
                return Err(Mistake::at(at_most, message));
            }
        }
        if let Some(at_least) = &at_least {
            if action != Action::Drain {
                let message = format!("`atLeast` says when it is too late for a drain, but this rule says {action}");
                return Err(Mistake::at(at_least, message));
            }
            if at_most.as_ref().is_some_and(|at_most| at_least.value.0 >= at_most.value.0) {
                return Err(Mistake::at(at_least, "`atLeast` must be shorter than `atMost`, or no drain could begin"));
            }
        }
        if let Some(cordon) = cordon_at_once.as_ref().filter(|cordon| cordon.value) {
            if action != Action::Drain {
                let message = format!("`cordonAtOnce` is for a drain that begins later, but this rule says {action}");
                return Err(Mistake::at(cordon, message));
            }
            if at_most.is_none() {
                return Err(Mistake::at(cordon, "without `atMost` the drain begins at once, and the cordon with it"));
            }
        }
        Ok(Start {
            at_most: at_most.map(|text| text.value.0),
            at_least: at_least.map(|text| text.value.0),
            cordon_at_once: cordon_at_once.is_some_and(|cordon| cordon.value),
        })
    }
}

fn into_approve(approve: Option<Spanned<ApproveFile>>, action: Action) -> Result<ApproveBySource, Mistake> {
    let Some(approve) = approve else { return Ok(ApproveBySource::default()) };
    let ApproveFile { platform, user } = approve.value;
    if action != Action::Drain && [platform, user].contains(&Approve::WhenDrained) {
        let message =
            format!("`whenDrained` is for `action: drain`, but this rule says {action}: write immediately or never");
        return Err(Mistake::at(&approve, message));
    }
    Ok(ApproveBySource { platform, user })
}

impl MatchFile {
    fn into_match(self) -> Result<Match, Mistake> {
        let Self { event_type, source, status, duration, notice, description } = self;
        let statuses: Vec<EventStatus> =
            status.map(|words| words.0.into_iter().map(|word| word.0).collect()).unwrap_or_default();
        if let Some(notice) = notice.as_ref().filter(|_| statuses == [EventStatus::Started]) {
            return Err(Mistake::at(notice, "an event that has started gives no notice: match on one of the two"));
        }
        let bounds = |bounds: Option<Spanned<BoundsFile>>, of: &str| {
            bounds.map_or(Ok(Bounds::default()), |bounds| into_bounds(&bounds, of))
        };
        Ok(Match {
            types: event_type.map(|types| types.0).unwrap_or_default(),
            sources: source.map(|words| words.0.into_iter().map(|word| word.0).collect()).unwrap_or_default(),
            statuses,
            duration: bounds(duration, "duration")?,
            notice: bounds(notice, "notice")?,
            description: description.map(DescriptionFile::into_description).transpose()?,
        })
    }
}

fn into_bounds(bounds: &Spanned<BoundsFile>, of: &str) -> Result<Bounds, Mistake> {
    let BoundsFile { below, at_least } = &bounds.value;
    let (below, at_least) = (below.map(|text| text.0), at_least.map(|text| text.0));
    if below.is_none() && at_least.is_none() {
        return Err(Mistake::at(bounds, format!("`{of}` needs `below`, `atLeast` or both")));
    }
    if let (Some(below), Some(at_least)) = (below, at_least)
        && below <= at_least
    {
        let message = format!("no {of} is both `atLeast` and `below`: `below` must be the larger");
        return Err(Mistake::at(bounds, message));
    }
    if below.is_some_and(|below| below.is_zero()) {
        return Err(Mistake::at(bounds, format!("no {of} is `below: 0s`")));
    }
    Ok(Bounds { below, at_least })
}

impl DescriptionFile {
    fn into_description(self) -> Result<DescriptionMatch, Mistake> {
        match self {
            Self::Contains(text) if text.value.is_empty() => {
                Err(Mistake::at(&text, "every description contains the empty text: leave `description` out"))
            }
            Self::Contains(text) => Ok(DescriptionMatch::Contains(text.value)),
            Self::Matches(text) => match regex_lite::Regex::new(&text.value) {
                Ok(expression) => Ok(DescriptionMatch::Matches(expression)),
                Err(error) => Err(Mistake::at(&text, format!("`{}` is no regular expression: {error}", text.value))),
            },
        }
    }
}

impl TaintFile {
    fn into_taint(self) -> Result<Taint, Mistake> {
        let Self { key, value, effect } = self;
        if let Some(key) = &key {
            let reserved = [
                "node.kubernetes.io/",
                "node.cloudprovider.kubernetes.io/",
                AUTOSCALER_TAINT_KEY,
                "DeletionCandidateOf",
            ];
            if reserved.iter().any(|prefix| key.value.starts_with(prefix)) {
                let message = format!(
                    "taint `{}` belongs to Kubernetes or its autoscaler: leave `key` out, or choose one of your own",
                    key.value
                );
                return Err(Mistake::at(key, message));
            }
            if !is_label_key(&key.value) {
                return Err(Mistake::at(key, format!("`{}` is no key for a taint: {LABEL_KEY}", key.value)));
            }
        }
        if let Some(value) = value.as_ref().filter(|value| !is_label_value(&value.value)) {
            let message = format!("`{}` is no value for a taint: {LABEL_VALUE}", value.value);
            return Err(Mistake::at(value, message));
        }
        let default = Taint::default();
        Ok(Taint {
            key: key.map_or(default.key, |key| key.value),
            value: value.map(|value| value.value).unwrap_or_default(),
            effect,
        })
    }
}

fn into_selector(selector: Option<Spanned<Selector>>) -> Result<Option<Selector>, Mistake> {
    match selector {
        Some(selector) => match selector.value.fault() {
            Some(message) => Err(Mistake::at(&selector, message)),
            None => Ok(Some(selector.value)),
        },
        None => Ok(None),
    }
}

fn into_profiles(files: BTreeMap<String, ProfileFile>, mistakes: &mut Mistakes) -> BTreeMap<String, Profile> {
    let mut profiles = BTreeMap::from([(DEFAULT_PROFILE.to_owned(), Profile::default())]);
    for (name, profile) in files {
        profiles.extend(mistakes.take(profile.into_profile()).map(|profile| (name, profile)));
    }
    profiles
}

impl ProfileFile {
    fn into_profile(self) -> Result<Profile, Mistake> {
        let Self { timeout, margin, at_deadline, bare, empty_dir, pods, skip, phases } = self;
        let defaults = Profile::default();
        if let Some(timeout) = &timeout
            && timeout.value.0.is_zero()
        {
            return Err(Mistake::at(timeout, "with `timeout: 0s` nothing would be evicted: give it time"));
        }
        if let Some(margin) = &margin
            && margin.value.0.is_zero()
        {
            return Err(Mistake::at(
                margin,
                "with `margin: 0s` nothing would be deleted before the deadline: give it time",
            ));
        }
        if let (Some(timeout), Some(margin)) = (&timeout, &margin)
            && margin.value.0 >= timeout.value.0
        {
            return Err(Mistake::at(margin, "`margin` must be shorter than `timeout`"));
        }
        let phases = match phases {
            None => defaults.phases,
            Some(phases) => into_phases(phases)?,
        };
        Ok(Profile {
            timeout: timeout.map(|timeout| timeout.value.0),
            margin: margin.map(|margin| margin.value.0),
            at_deadline,
            bare,
            empty_dir,
            pods: into_selector(pods)?,
            skip: into_skip(skip)?,
            phases,
        })
    }
}

fn into_skip(skip: Option<Spanned<Skip>>) -> Result<Skip, Mistake> {
    let Some(skip) = skip else { return Ok(Skip::default()) };
    let Skip { labels, annotations } = &skip.value;
    if labels.is_empty() && annotations.is_empty() {
        return Err(Mistake::at(&skip, "`skip` needs `labels`, `annotations` or both, each with keys and values"));
    }
    if let Some(message) = fault_of_labels(labels.keys().chain(annotations.keys()), labels.values()) {
        return Err(Mistake::at(&skip, message));
    }
    if let Some((key, _)) = annotations.iter().find(|(_, value)| value.len() > LONGEST_ANNOTATION) {
        let message = format!("annotation `{key}` can be told by values of up to {LONGEST_ANNOTATION} characters only");
        return Err(Mistake::at(&skip, message));
    }
    Ok(skip.value)
}

fn into_phases(phases: Spanned<Vec<PhaseFile>>) -> Result<Vec<Phase>, Mistake> {
    if phases.value.is_empty() || phases.value.len() > MOST_PHASES {
        return Err(Mistake::at(
            &phases,
            format!("a profile has 1 to {MOST_PHASES} phases; leave `phases` out for the usual two"),
        ));
    }
    let mut checked: Vec<Phase> = Vec::with_capacity(phases.value.len());
    for PhaseFile { priority, grace } in phases.value {
        if checked.last().is_some_and(|last| last.priority >= priority.value) {
            return Err(Mistake::at(&priority, "phases are listed by ascending `priority`"));
        }
        if let Some(grace) = &grace
            && grace.value.0.is_zero()
        {
            return Err(Mistake::at(grace, "a `grace` of 0s would remove pods without stopping them: give them time"));
        }
        checked.push(Phase { priority: priority.value, grace: grace.map(|grace| grace.value.0) });
    }
    Ok(checked)
}

/// Checks the name of something that operators name.
pub(crate) fn check_name(of: &str, name: &Spanned<String>) -> Result<(), Mistake> {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.value.as_bytes();
    if bytes.len() <= 63 && bytes.iter().all(|byte| allowed(*byte)) && edge(bytes.first()) && edge(bytes.last()) {
        return Ok(());
    }
    let message = format!(
        "`{}` is no name for a {of}: use up to 63 of a-z, 0-9, `-` and `.`, and begin and end with one of the former",
        name.value
    );
    Err(Mistake::at(name, message))
}
