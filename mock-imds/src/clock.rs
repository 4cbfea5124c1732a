//! Where time comes from, and how durations are written.
//!
//! Everything in this crate that depends on time asks a [`Clock`] that it was given, so that a test, or a simulation in
//! virtual time, owns every instant.

use std::{fmt, time::Duration};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Tells the wall time.
pub trait Clock: Send + Sync + 'static {
    /// The time now. It should not go backwards; if it does, the mock stands still until it has caught up.
    fn now(&self) -> Timestamp;
}

/// The clock of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place of this crate that asks the system for the wall time")]
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// A wall clock derived from tokio's: it shows a given time when it is made and then advances with tokio's time, which
/// a test may pause.
#[derive(Debug, Clone, Copy)]
pub struct TokioClock {
    start: Timestamp,
    origin: tokio::time::Instant,
}

impl TokioClock {
    /// A clock that shows `start` now.
    #[expect(clippy::disallowed_methods, reason = "tokio's own time is what this clock is derived from")]
    pub fn starting_at(start: Timestamp) -> Self {
        Self { start, origin: tokio::time::Instant::now() }
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        later(self.start, self.origin.elapsed())
    }
}

/// `time` plus `duration`, at most the last instant that can be represented.
pub(crate) fn later(time: Timestamp, duration: Duration) -> Timestamp {
    time.saturating_add(duration).unwrap_or(Timestamp::MAX)
}

/// How long from `from` until `until`; zero if that is past.
pub(crate) fn remaining(from: Timestamp, until: Timestamp) -> Duration {
    until.duration_since(from).try_into().unwrap_or_default()
}

/// The next whole second: HTTP dates know nothing finer, and an event must not start before the time it announces.
pub(crate) fn whole_second_at_or_after(time: Timestamp) -> Timestamp {
    let second = time.as_second() + i64::from(time.subsec_nanosecond() > 0);
    Timestamp::from_second(second).unwrap_or(time)
}

/// A length of time, never negative, written like `500ms`, `30s`, `15m` or `1h 30m`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Period(pub Duration);

/// Longer waits than this are taken for a mistake.
const LONGEST: Duration = Duration::from_hours(24 * 366);

impl Period {
    /// The same at `speed` times the pace.
    pub(crate) fn at_speed(self, speed: f64) -> Duration {
        Duration::try_from_secs_f64(self.0.as_secs_f64() / speed).unwrap_or(LONGEST)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("`{text}` is not a length of time; write it like 500ms, 30s, 15m or 1h 30m, up to 366 days");
        let signed: SignedDuration = text.parse().map_err(|_| wrong())?;
        let duration = Duration::try_from(signed)
            .map_err(|_| format!("the length of time `{text}` is negative; it must be 0s or more"))?;
        if duration > LONGEST { Err(wrong()) } else { Ok(Self(duration)) }
    }
}

impl From<Duration> for Period {
    fn from(duration: Duration) -> Self {
        Self(duration)
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let signed = SignedDuration::try_from(self.0).unwrap_or(SignedDuration::MAX);
        write!(f, "{signed:#}")
    }
}

impl Serialize for Period {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

/// How long something goes on by itself: a length of time, or `forever` (until it is ended by hand).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// For this long.
    For(Period),
    /// Until somebody ends it.
    Forever,
}

impl Wait {
    /// The end of the wait if it begins at `start`, at `speed` times the pace; none if it has no end.
    pub(crate) fn end(self, start: Timestamp, speed: f64) -> Option<Timestamp> {
        match self {
            Self::For(period) => Some(later(start, period.at_speed(speed))),
            Self::Forever => None,
        }
    }
}

impl Default for Wait {
    fn default() -> Self {
        Self::For(Period::default())
    }
}

impl<'de> Deserialize<'de> for Wait {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            "forever" => Ok(Self::Forever),
            text => Period::parse(text)
                .map(Self::For)
                .map_err(|wrong| de::Error::custom(format!("{wrong}, or `forever` to end it by hand"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_are_read_as_people_write_them() {
        for (text, milliseconds) in
            [("500ms", 500), ("30s", 30_000), ("15m", 900_000), ("1h 30m", 5_400_000), ("0s", 0), ("PT5M", 300_000)]
        {
            assert_eq!(Period::parse(text), Ok(Period(Duration::from_millis(milliseconds))), "{text}");
        }
        for text in ["-5s", "soon", "", "5", "9000h"] {
            assert!(Period::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_fraction_of_a_second_is_rounded_up_and_a_whole_one_stays() {
        let whole: Timestamp = "2026-04-29T18:00:00Z".parse().unwrap();
        assert_eq!(whole_second_at_or_after(whole), whole);
        assert_eq!(
            whole_second_at_or_after(later(whole, Duration::from_nanos(1))),
            later(whole, Duration::from_secs(1))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_tokio_clock_follows_paused_time() {
        let start: Timestamp = "2026-04-29T18:00:00Z".parse().unwrap();
        let clock = TokioClock::starting_at(start);
        tokio::time::advance(Duration::from_secs(90)).await;
        assert_eq!(clock.now(), later(start, Duration::from_secs(90)));
    }
}
