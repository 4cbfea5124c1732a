//! The policy file: strict YAML, in which every mistake is answered with its line, its column and what would be right.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_saphyr::Spanned;

use super::duration_text::DurationText;
use super::{
    Action, AtDeadline, DEFAULT_PROFILE, DurationRange, Match, Mode, Phase, Policy, Profile, Rule, Selector, Treatment,
    TypeMatch,
};
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
    #[serde(default, rename = "match")]
    matches: MatchFile,
    action: Action,
    profile: Option<Spanned<String>>,
    #[serde(default)]
    start: StartFile,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct MatchFile {
    #[serde(rename = "type")]
    event_type: Option<OneOrMore<TypeMatch>>,
    source: Option<OneOrMore<EventSourceWord>>,
    status: Option<OneOrMore<EventStatusWord>>,
    duration: Option<Spanned<DurationFile>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DurationFile {
    below: Option<DurationText>,
    at_least: Option<DurationText>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StartFile {
    at_most: Option<Spanned<DurationText>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DrainFile {
    #[serde(default)]
    profiles: BTreeMap<String, ProfileFile>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ProfileFile {
    timeout: Option<Spanned<DurationText>>,
    margin: Option<Spanned<DurationText>>,
    at_deadline: Option<AtDeadline>,
    bare: Option<Treatment>,
    empty_dir: Option<Treatment>,
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
        let Self { api_version, kind, metadata: Metadata { name }, selector, priority, mode, events, drain } = self;
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
        if let Some(selector) = &selector
            && let Some(message) = selector.value.fault()
        {
            return Err(Mistake::at(selector, message));
        }
        let profiles = drain.into_profiles()?;
        let mut names = BTreeSet::new();
        let mut rules = Vec::with_capacity(events.len());
        for rule in events {
            check_name("rule", &rule.name)?;
            if !names.insert(rule.name.value.clone()) {
                return Err(Mistake::at(&rule.name, format!("two rules are named `{}`: rename one", rule.name.value)));
            }
            rules.push(rule.into_rule(&profiles)?);
        }
        Ok(Policy {
            name: name.value,
            selector: selector.map(|selector| selector.value).unwrap_or_default(),
            priority,
            mode,
            rules,
            profiles,
        })
    }
}

impl RuleFile {
    fn into_rule(self, profiles: &BTreeMap<String, Profile>) -> Result<Rule, Mistake> {
        let Self { name, matches, action, profile, start } = self;
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
        if let Some(at_most) = &start.at_most
            && action == Action::None
        {
            return Err(Mistake::at(at_most, "`start` is for a cordon or a drain, but this rule says none"));
        }
        if let Some(at_most) = &start.at_most
            && at_most.value.0.is_zero()
        {
            return Err(Mistake::at(
                at_most,
                "with `atMost: 0s` nothing would begin before the event does: give it time",
            ));
        }
        Ok(Rule {
            name: name.value,
            matches: matches.into_match()?,
            action,
            profile: profile.map_or_else(|| DEFAULT_PROFILE.to_owned(), |profile| profile.value),
            start_at_most: start.at_most.map(|at_most| at_most.value.0),
        })
    }
}

impl MatchFile {
    fn into_match(self) -> Result<Match, Mistake> {
        let Self { event_type, source, status, duration } = self;
        let range = match duration {
            None => DurationRange::default(),
            Some(bounds) => {
                let DurationFile { below, at_least } = &bounds.value;
                let (below, at_least) = (below.map(|text| text.0), at_least.map(|text| text.0));
                if below.is_none() && at_least.is_none() {
                    return Err(Mistake::at(&bounds, "`duration` needs `below`, `atLeast` or both"));
                }
                if let (Some(below), Some(at_least)) = (below, at_least)
                    && below <= at_least
                {
                    return Err(Mistake::at(
                        &bounds,
                        "no duration is both `atLeast` and `below`: `below` must be the larger",
                    ));
                }
                DurationRange { below, at_least }
            }
        };
        Ok(Match {
            types: event_type.map(|types| types.0).unwrap_or_default(),
            sources: source.map(|words| words.0.into_iter().map(|word| word.0).collect()).unwrap_or_default(),
            statuses: status.map(|words| words.0.into_iter().map(|word| word.0).collect()).unwrap_or_default(),
            duration: range,
        })
    }
}

impl DrainFile {
    fn into_profiles(self) -> Result<BTreeMap<String, Profile>, Mistake> {
        let mut profiles = BTreeMap::from([(DEFAULT_PROFILE.to_owned(), Profile::default())]);
        for (name, profile) in self.profiles {
            profiles.insert(name, profile.into_profile()?);
        }
        Ok(profiles)
    }
}

impl ProfileFile {
    fn into_profile(self) -> Result<Profile, Mistake> {
        let Self { timeout, margin, at_deadline, bare, empty_dir, phases } = self;
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
            phases,
        })
    }
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
