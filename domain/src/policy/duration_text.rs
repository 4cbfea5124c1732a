//! Durations as operators write them: `500ms`, `30s`, `15m`, `1h30m`.

use std::time::Duration;

use jiff::SignedDuration;
use jiff::fmt::friendly::{Designator, Spacing, SpanPrinter};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// Reads a duration; the error says what to write instead.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a duration: write a number and a unit, like 500ms, 30s, 15m or 1h30m");
    let signed: SignedDuration = text.parse().map_err(|_| wrong())?;
    Duration::try_from(signed).map_err(|_| format!("`{text}` is negative: a duration is at least 0s"))
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
        for (text, millis) in [("500ms", 500), ("30s", 30_000), ("15m", 900_000), ("1h30m", 5_400_000), ("0s", 0)] {
            let duration = Duration::from_millis(millis);
            assert_eq!(parse(text), Ok(duration), "{text}");
            assert_eq!(parse(&print(duration)), Ok(duration), "{text}");
        }
    }

    #[test]
    fn a_number_without_unit_or_below_zero_is_refused_with_advice() {
        assert!(parse("15").unwrap_err().contains("write a number and a unit"));
        assert!(parse("-3s").unwrap_err().contains("negative"));
    }
}
