//! The policy file: strict YAML, in which every mistake is answered with its line, its column and what would be right.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_saphyr::Spanned;

use super::duration_text::DurationText;
use super::{
    Action, Approve, ApproveBySource, AtDeadline, Bounds, DEFAULT_PROFILE, DescriptionMatch, Match, Mode, Phase,
    Policy, Profile, Rule, Selector, Skip, Start, Treatment, TypeMatch,
};
use crate::drain::pod::LONGEST_ANNOTATION;
use crate::marks::{AUTOSCALER_TAINT_KEY, Marking, Taint, TaintEffect};
use crate::scheduled_event::{EventSource, EventStatus, EventType};
use crate::yaml::{self, FileError, Mistake};

const API_VERSION: &str = "remediator.dev/v1alpha1";
const KIND: &str = "Policy";

/// How many phases a profile may have; the profile is kept in an annotation of limited size.
const MOST_PHASES: usize = 8;

/// Reads the text of a policy file; `file` is its name, for the error.
pub fn parse(file: &str, text: &str) -> Result<Policy, FileError> {
    yaml::read(file, text, PolicyFile::into_policy)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PolicyFile {
    api_version: Spanned<String>,
    kind: Spanned<String>,
    metadata: Metadata,
    selector: Option<Spanned<Selector>>,
    #[serde(default)]
    priority: i32,
    #[serde(default)]
    mode: Mode,
    #[serde(default)]
    events: Vec<RuleFile>,
    #[serde(default)]
    drain: DrainFile,
    #[serde(default)]
    repair: RepairFile,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Metadata {
    name: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RuleFile {
    name: Spanned<String>,
    #[serde(rename = "match")]
    matches: Option<Spanned<MatchFile>>,
    action: Action,
    profile: Option<Spanned<String>>,
    #[serde(default)]
    start: StartFile,
    approve: Option<Spanned<ApproveFile>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct MatchFile {
    #[serde(rename = "type")]
    event_type: Option<OneOrMore<TypeMatch>>,
    source: Option<OneOrMore<EventSourceWord>>,
    status: Option<OneOrMore<EventStatusWord>>,
    duration: Option<Spanned<BoundsFile>>,
    notice: Option<Spanned<BoundsFile>>,
    description: Option<DescriptionFile>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct BoundsFile {
    below: Option<DurationText>,
    at_least: Option<DurationText>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
enum DescriptionFile {
    Contains(Spanned<String>),
    Matches(Spanned<String>),
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StartFile {
    at_most: Option<Spanned<DurationText>>,
    at_least: Option<Spanned<DurationText>>,
    cordon_at_once: Option<Spanned<bool>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DrainFile {
    taint: Option<TaintFile>,
    #[serde(default)]
    exclude_from_load_balancers: bool,
    #[serde(default)]
    disable_scale_down: bool,
    nodes_at_once: Option<Spanned<u32>>,
    #[serde(default)]
    profiles: BTreeMap<String, ProfileFile>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TaintFile {
    key: Option<Spanned<String>>,
    value: Option<Spanned<String>>,
    #[serde(default)]
    effect: TaintEffect,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RepairFile {
    #[serde(default)]
    approve_own_repairs: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ProfileFile {
    timeout: Option<Spanned<DurationText>>,
    margin: Option<Spanned<DurationText>>,
    at_deadline: Option<AtDeadline>,
    bare: Option<Treatment>,
    empty_dir: Option<Treatment>,
    pods: Option<Spanned<Selector>>,
    skip: Option<Spanned<Skip>>,
    phases: Option<Spanned<Vec<PhaseFile>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PhaseFile {
    priority: Spanned<i32>,
    grace: Option<Spanned<DurationText>>,
}

impl PolicyFile {
    fn into_policy(self) -> Result<Policy, Mistake> {
        let Self { api_version, kind, metadata: Metadata { name }, selector, priority, mode, events, drain, repair } =
            self;
        if api_version.value != API_VERSION {
            return Err(Mistake::at(
                &api_version,
                format!("unknown apiVersion `{}`: write {API_VERSION}", api_version.value),
            ));
        }
        if kind.value != KIND {
            return Err(Mistake::at(&kind, format!("unknown kind `{}`: write {KIND}", kind.value)));
        }
        check_name("policy", &name)?;
        let selector = into_selector(selector)?;
        let DrainFile { taint, exclude_from_load_balancers, disable_scale_down, nodes_at_once, profiles } = drain;
        let taint = taint.map(TaintFile::into_taint).transpose()?;
        let marking = Marking { taint, exclude_from_load_balancers, disable_scale_down };
        if let Some(none) = nodes_at_once.as_ref().filter(|most| most.value == 0) {
            return Err(Mistake::at(
                none,
                "with `nodesAtOnce: 0` no node would ever be drained: leave it out for no limit",
            ));
        }
        let profiles = into_profiles(profiles)?;
        let mut names = BTreeSet::new();
        let mut rules: Vec<Rule> = Vec::with_capacity(events.len());
        for rule in events {
            check_name("rule", &rule.name)?;
            if !names.insert(rule.name.value.clone()) {
                return Err(Mistake::at(&rule.name, format!("two rules are named `{}`: rename one", rule.name.value)));
            }
            let name = rule.name.clone();
            let rule = rule.into_rule(&profiles)?;
            if let Some(earlier) = rules.iter().find(|earlier| earlier.matches.covers(&rule.matches)) {
                let earlier = &earlier.name;
                let message =
                    format!("this rule never applies, because `{earlier}` above takes all its events: move it up");
                return Err(Mistake::at(&name, message));
            }
            rules.push(rule);
        }
        Ok(Policy {
            name: name.value,
            selector: selector.unwrap_or_default(),
            priority,
            mode,
            rules,
            profiles,
            marking,
            nodes_at_once: nodes_at_once.map(|most| most.value),
            approve_own_repairs: repair.approve_own_repairs,
        })
    }
}

impl RuleFile {
    fn into_rule(self, profiles: &BTreeMap<String, Profile>) -> Result<Rule, Mistake> {
        let Self { name, matches, action, profile, start, approve } = self;
        if let Some(profile) = &profile {
            if action != Action::Drain {
                return Err(Mistake::at(
                    profile,
                    format!("a profile is for `action: drain`, but this rule says {action}"),
                ));
            }
            if !profiles.contains_key(&profile.value) {
                let known: Vec<&str> = profiles.keys().map(String::as_str).collect();
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
                return Err(Mistake::at(
                    key,
                    format!("`{}` is no key for a taint: write NAME or PREFIX/NAME", key.value),
                ));
            }
        }
        if let Some(value) = value.as_ref().filter(|value| !is_label_value(&value.value)) {
            let message =
                format!("`{}` is no value for a taint: use up to 63 of a-z, A-Z, 0-9, `-`, `_` and `.`", value.value);
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

/// <https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set>
fn is_label_value(text: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let bytes = text.as_bytes();
    bytes.len() <= 63 && bytes.iter().all(|byte| allowed(*byte)) && edge(bytes.first()) && edge(bytes.last())
}

fn is_label_key(text: &str) -> bool {
    let is_prefix = |prefix: &str| {
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
        (1..=253).contains(&prefix.len()) && prefix.bytes().all(allowed)
    };
    let (prefix, name) = text.rsplit_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
    !name.is_empty() && is_label_value(name) && prefix.is_none_or(is_prefix)
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

fn into_profiles(files: BTreeMap<String, ProfileFile>) -> Result<BTreeMap<String, Profile>, Mistake> {
    let mut profiles = BTreeMap::from([(DEFAULT_PROFILE.to_owned(), Profile::default())]);
    for (name, profile) in files {
        profiles.insert(name, profile.into_profile()?);
    }
    Ok(profiles)
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
            at_deadline: at_deadline.unwrap_or(defaults.at_deadline),
            bare: bare.unwrap_or(defaults.bare),
            empty_dir: empty_dir.unwrap_or(defaults.empty_dir),
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

fn check_name(of: &str, name: &Spanned<String>) -> Result<(), Mistake> {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    let fits = !name.value.is_empty() && name.value.len() <= 63 && name.value.bytes().all(allowed);
    if fits {
        return Ok(());
    }
    Err(Mistake::at(name, format!("`{}` is no name for a {of}: use up to 63 of a-z, 0-9, `-` and `.`", name.value)))
}

/// One value, or a list of them.
struct OneOrMore<T>(Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMore<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMoreVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for OneOrMoreVisitor<T> {
            type Value = OneOrMore<T>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a word or a list of words")
            }

            fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<Self::Value, E> {
                T::deserialize(serde::de::value::StrDeserializer::new(word)).map(|one| OneOrMore(vec![one]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Self::Value, A::Error> {
                let mut all = Vec::new();
                while let Some(one) = sequence.next_element()? {
                    all.push(one);
                }
                if all.is_empty() {
                    return Err(A::Error::custom(
                        "an empty list matches nothing: leave the member out to match everything",
                    ));
                }
                Ok(OneOrMore(all))
            }
        }

        deserializer.deserialize_any(OneOrMoreVisitor(PhantomData))
    }
}

/// One word for every source, or one for each.
struct ApproveFile {
    platform: Approve,
    user: Approve,
}

impl<'de> Deserialize<'de> for ApproveFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct BySource {
            #[serde(default, rename = "Platform")]
            platform: Approve,
            #[serde(default, rename = "User")]
            user: Approve,
        }

        struct ApproveVisitor;

        impl<'de> Visitor<'de> for ApproveVisitor {
            type Value = ApproveFile;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("never, whenDrained, immediately, or one of them for each of Platform and User")
            }

            fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<Self::Value, E> {
                let approve = Approve::deserialize(serde::de::value::StrDeserializer::new(word))?;
                Ok(ApproveFile { platform: approve, user: approve })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                let BySource { platform, user } =
                    BySource::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
                Ok(ApproveFile { platform, user })
            }
        }

        deserializer.deserialize_any(ApproveVisitor)
    }
}

impl<'de> Deserialize<'de> for TypeMatch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        if word == "Unknown" {
            return Ok(Self::Unknown);
        }
        match EventType::from_word(&word) {
            EventType::Other(word) => {
                Err(D::Error::custom(format!("unknown type `{word}`: use {} or Unknown", EventType::KNOWN.join(", "))))
            }
            known => Ok(Self::Is(known)),
        }
    }
}

/// A word that must be one of those known: in a policy, unlike in Azure's document, any other is a mistake.
macro_rules! strict_word {
    ($name:ident($word:ident), $what:literal) => {
        struct $name($word);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                match $word::from_word(&String::deserialize(deserializer)?) {
                    $word::Other(word) => Err(D::Error::custom(format!(
                        concat!("unknown ", $what, " `{}`: use {}"),
                        word,
                        $word::KNOWN.join(" or ")
                    ))),
                    known => Ok(Self(known)),
                }
            }
        }
    };
}

strict_word!(EventSourceWord(EventSource), "source");
strict_word!(EventStatusWord(EventStatus), "status");
