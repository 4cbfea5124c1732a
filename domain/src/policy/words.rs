//! Members of a policy file that are written in more than one way, or with the words of Azure.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::{Approve, TypeMatch};
use crate::scheduled_event::{EventSource, EventStatus, EventType};

/// One value, or a list of them.
pub(crate) struct OneOrMore<T>(pub(crate) Vec<T>);

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

impl<T: JsonSchema> JsonSchema for OneOrMore<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("OneOrMore{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<T>();
        json_schema!({"anyOf": [one, {"type": "array", "items": one, "minItems": 1}]})
    }
}

/// One word for every source, or one for each.
#[derive(Clone, Copy)]
pub(crate) struct ApproveFile {
    pub(crate) platform: Approve,
    pub(crate) user: Approve,
}

/// Whether an event is started early, by who asked for it.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct BySource {
    /// For events that Azure asks for.
    #[serde(default, rename = "Platform")]
    platform: Approve,
    /// For events that someone with rights on the machine asks for: a restart in the portal, a deletion, a repair.
    #[serde(default, rename = "User")]
    user: Approve,
}

impl<'de> Deserialize<'de> for ApproveFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
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

impl JsonSchema for ApproveFile {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "ApproveOrBySource".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (word, by_source) = (generator.subschema_for::<Approve>(), generator.subschema_for::<BySource>());
        json_schema!({"anyOf": [word, by_source]})
    }
}

/// The word of a policy for any type that this version does not know.
const UNKNOWN: &str = "Unknown";

impl<'de> Deserialize<'de> for TypeMatch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        if word == UNKNOWN {
            return Ok(Self::Unknown);
        }
        if EventType::KNOWN.contains(&word.as_str()) {
            return Ok(Self::Is(EventType::from_word(&word)));
        }
        Err(D::Error::custom(format!("unknown type `{word}`: use {} or {UNKNOWN}", EventType::KNOWN.join(", "))))
    }
}

impl JsonSchema for TypeMatch {
    fn schema_name() -> Cow<'static, str> {
        "EventType".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let words: Vec<&str> = EventType::KNOWN.iter().copied().chain([UNKNOWN]).collect();
        json_schema!({
            "description": "A type of scheduled event; Unknown stands for any that this version does not know.",
            "type": "string",
            "enum": words,
        })
    }
}

/// A word that must be one of those known, as Azure spells it: in a policy, unlike in Azure's document, any other is a
/// mistake.
macro_rules! strict_word {
    ($name:ident($word:ident), $what:literal, $description:literal) => {
        #[derive(Clone)]
        pub(crate) struct $name(pub(crate) $word);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let word = String::deserialize(deserializer)?;
                if $word::KNOWN.contains(&word.as_str()) {
                    return Ok(Self($word::from_word(&word)));
                }
                let known = $word::KNOWN.join(" or ");
                Err(D::Error::custom(format!(concat!("unknown ", $what, " `{}`: use {}"), word, known)))
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($word).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({"description": $description, "type": "string", "enum": $word::KNOWN})
            }
        }
    };
}

strict_word!(EventSourceWord(EventSource), "source", "Who asked for an event.");
strict_word!(EventStatusWord(EventStatus), "status", "How far an event has come.");
