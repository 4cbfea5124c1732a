//! Durations as operators write them: `500ms`, `30s`, `15m`, `1h30m`, `2d`.

use std::borrow::Cow;
use std::time::Duration;

use jiff::SignedDuration;
use jiff::fmt::friendly::{Designator, Spacing, SpanPrinter};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// The units, the longest first, in milliseconds.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// What [`parse`] accepts, as a regular expression; the empty text, which it would match, is too short for the schema.
pub(crate) const PATTERN: &str = "^([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$";

/// Reads a duration: whole numbers with their units, the longest unit first. The error says what to write instead.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a duration: write a number and a unit, like 500ms, 30s, 15m or 1h30m");
    if text.starts_with('-') {
        return Err(format!("`{text}` is negative: a duration is at least 0s"));
    }
    let (mut rest, mut units, mut millis) = (text, UNITS.iter(), 0_u64);
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at(digits);
        let unit = after.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, after) = after.split_at(unit);
        let (_, length) = units.find(|(name, _)| *name == unit).ok_or_else(wrong)?;
        let part = number.parse::<u64>().ok().and_then(|number| number.checked_mul(*length));
        millis = part.and_then(|part| millis.checked_add(part)).ok_or_else(wrong)?;
        rest = after;
    }
    if text.is_empty() { Err(wrong()) } else { Ok(Duration::from_millis(millis)) }
}

/// Writes a duration so that [`parse`] reads the same again.
pub(crate) fn print(duration: Duration) -> String {
    const PRINTER: SpanPrinter = SpanPrinter::new().designator(Designator::Compact).spacing(Spacing::None);
    PRINTER.duration_to_string(&SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX))
}

/// A duration in a YAML or JSON document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DurationText(pub(crate) Duration);

impl<'de> Deserialize<'de> for DurationText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parse(&String::deserialize(deserializer)?).map(Self).map_err(D::Error::custom)
    }
}

impl JsonSchema for DurationText {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A number and a unit (d, h, m, s, ms), or several of them: 500ms, 30s, 15m, 1h30m.",
            "type": "string",
            "minLength": 2,
            "pattern": PATTERN,
            "examples": ["30s", "15m", "1h30m"],
        })
    }
}

/// For `#[serde(with = …)]` on a `Option<Duration>`.
pub(crate) mod optional {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    #[allow(clippy::ref_option, reason = "serde passes the field by reference")]
    pub(crate) fn serialize<S: Serializer>(value: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(duration) => serializer.serialize_str(&super::print(*duration)),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<super::DurationText>::deserialize(deserializer)?.map(|text| text.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_operators_write_them_and_written_so_that_they_are_read_again() {
        for (text, millis) in [
            ("500ms", 500),
            ("30s", 30_000),
            ("15m", 900_000),
            ("1h30m", 5_400_000),
            ("2d12h", 216_000_000),
            ("1d2h3m4s5ms", 93_784_005),
            ("90m", 5_400_000),
            ("0s", 0),
        ] {
            let duration = Duration::from_millis(millis);
            assert_eq!(parse(text), Ok(duration), "{text}");
            assert_eq!(parse(&print(duration)), Ok(duration), "{text}");
        }
    }

    #[test]
    fn whatever_is_no_row_of_numbers_and_units_is_refused_with_advice() {
        let endless = format!("{}d", u64::MAX);
        for text in
            ["", "15", "m", "1.5h", "15 m", "30s1m", "1h1h", "1y", "ten", "15m!", "PT5M", "+1s", "15M", &endless]
        {
            assert!(parse(text).unwrap_err().contains("write a number and a unit"), "{text}");
        }
        assert!(parse("-3s").unwrap_err().contains("negative"));
    }

    #[test]
    fn the_pattern_of_the_schema_matches_what_is_read() {
        let pattern = regex_lite::Regex::new(PATTERN).unwrap();
        for text in ["500ms", "30s", "1h30m", "2d12h", "15", "1.5h", "15 m", "30s1m", "1h1h", "-3s", "m"] {
            assert_eq!(pattern.is_match(text), parse(text).is_ok(), "{text}");
        }
    }
}
