//! Which nodes a policy is for, or which pods a profile: a label selector, as Kubernetes defines it
//! (<https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors>).

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A label selector; empty, it selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Selector {
    /// Labels that must be there with exactly these values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Further conditions, all of which must hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<Requirement>,
}

/// A condition on one label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Requirement {
    /// The label's key.
    pub key: String,
    /// What must hold.
    pub operator: Operator,
    /// The values that `In` and `NotIn` compare with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

/// What must hold of a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Operator {
    /// It is there, with one of the values.
    In,
    /// It is not there, or with none of the values.
    NotIn,
    /// It is there.
    Exists,
    /// It is not there.
    DoesNotExist,
}

/// As kubectl takes it: `a=b,c in (d, e),!f`.
impl fmt::Display for Selector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labels = self.match_labels.iter().map(|(key, value)| format!("{key}={value}"));
        let expressions = self.match_expressions.iter().map(|Requirement { key, operator, values }| {
            let values = values.join(", ");
            match operator {
                Operator::In => format!("{key} in ({values})"),
                Operator::NotIn => format!("{key} notin ({values})"),
                Operator::Exists => key.clone(),
                Operator::DoesNotExist => format!("!{key}"),
            }
        });
        out.write_str(&labels.chain(expressions).collect::<Vec<_>>().join(","))
    }
}

impl Selector {
    /// Whether something with these labels is selected.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|requirement| requirement.holds(labels))
    }

    /// Whether nothing can be selected by both. `false` may also mean that it could not be told.
    pub(crate) fn excludes(&self, other: &Self) -> bool {
        self.required_values().any(|(key, ours)| {
            other
                .required_values()
                .any(|(other_key, theirs)| key == other_key && !ours.iter().any(|value| theirs.contains(value)))
        }) || self.contradicts(other)
            || other.contradicts(self)
    }

    /// The keys that must have one of some values.
    fn required_values(&self) -> impl Iterator<Item = (&str, Vec<&str>)> {
        let labels = self.match_labels.iter().map(|(key, value)| (key.as_str(), vec![value.as_str()]));
        let expressions = self.match_expressions.iter().filter(|requirement| requirement.operator == Operator::In);
        labels.chain(expressions.map(|one| (one.key.as_str(), one.values.iter().map(String::as_str).collect())))
    }

    /// Whether the other selector forbids, by `NotIn` or `DoesNotExist`, what this one requires.
    fn contradicts(&self, other: &Self) -> bool {
        self.required_values().any(|(key, ours)| {
            other.match_expressions.iter().filter(|requirement| requirement.key == key).any(|requirement| {
                match requirement.operator {
                    Operator::DoesNotExist => true,
                    Operator::NotIn => ours.iter().all(|value| requirement.values.iter().any(|v| v == value)),
                    Operator::In | Operator::Exists => false,
                }
            })
        })
    }

    /// The first condition that Kubernetes would refuse, in words.
    pub(crate) fn fault(&self) -> Option<String> {
        let keys = self.match_labels.keys().chain(self.match_expressions.iter().map(|requirement| &requirement.key));
        let values = self.match_labels.values();
        let values = values.chain(self.match_expressions.iter().flat_map(|requirement| &requirement.values));
        fault_of_labels(keys, values).or_else(|| self.fault_of_operators())
    }

    fn fault_of_operators(&self) -> Option<String> {
        self.match_expressions.iter().find_map(|requirement| {
            let wants_values = matches!(requirement.operator, Operator::In | Operator::NotIn);
            match (wants_values, requirement.values.is_empty()) {
                (true, true) => Some(format!("the expression on `{}` needs `values`", requirement.key)),
                (false, false) => Some(format!("the expression on `{}` takes no `values`", requirement.key)),
                _ => None,
            }
        })
    }
}

/// The first key or value that no label can have, in words.
pub(super) fn fault_of_labels<'a>(
    mut keys: impl Iterator<Item = &'a String>,
    mut values: impl Iterator<Item = &'a String>,
) -> Option<String> {
    let key = keys.find(|key| !is_label_key(key)).map(|key| format!("`{key}` is no key of a label: {LABEL_KEY}"));
    key.or_else(|| {
        let value = values.find(|value| !is_label_value(value))?;
        Some(format!("`{value}` is no value of a label: {LABEL_VALUE}"))
    })
}

/// How the key of a label or taint is written.
pub(super) const LABEL_KEY: &str = "write NAME or PREFIX/NAME";

/// How the value of a label or taint is written.
pub(super) const LABEL_VALUE: &str = "use up to 63 of a-z, A-Z, 0-9, `-`, `_` and `.`";

/// <https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set>
pub(super) fn is_label_value(text: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let bytes = text.as_bytes();
    bytes.len() <= 63 && bytes.iter().all(|byte| allowed(*byte)) && edge(bytes.first()) && edge(bytes.last())
}

/// The same page says how keys are written.
pub(super) fn is_label_key(text: &str) -> bool {
    let is_prefix = |prefix: &str| {
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
        (1..=253).contains(&prefix.len()) && prefix.bytes().all(allowed)
    };
    let (prefix, name) = text.rsplit_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
    !name.is_empty() && is_label_value(name) && prefix.is_none_or(is_prefix)
}

impl Requirement {
    fn holds(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        match self.operator {
            Operator::In => value.is_some_and(|value| self.values.contains(value)),
            Operator::NotIn => value.is_none_or(|value| !self.values.contains(value)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }
}
