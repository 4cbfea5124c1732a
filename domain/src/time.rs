//! The two clocks that a decision may look at.
//!
//! Azure's deadlines are wall time, and the wall clock of a virtual machine steps after a freeze; so whatever comes
//! from Azure is compared with the wall clock afresh each time. How long something has lasted, back-off and pace are
//! counted on the monotonic clock, which never steps.

use std::ops::Add;
use std::time::Duration;

use jiff::fmt::rfc2822;
use jiff::{SignedDuration, Timestamp};

/// An instant of this process's monotonic clock, counted from its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Monotonic(Duration);

impl Monotonic {
    /// The instant `elapsed` after the clock was started.
    pub const fn after_start(elapsed: Duration) -> Self {
        Self(elapsed)
    }

    /// The time from the clock's start to this instant.
    pub const fn since_start(self) -> Duration {
        self.0
    }

    /// The time from `earlier` to this instant; zero if `earlier` is not earlier.
    pub const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// The instant `before` before this one, or the clock's start.
    #[must_use]
    pub const fn less(self, before: Duration) -> Self {
        Self(self.0.saturating_sub(before))
    }
}

impl Add<Duration> for Monotonic {
    type Output = Self;

    fn add(self, later: Duration) -> Self {
        Self(self.0.saturating_add(later))
    }
}

/// What both clocks show at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The wall clock: comparable with instants that Azure, Kubernetes or an earlier life of this process wrote.
    pub wall: Timestamp,
    /// The monotonic clock: comparable only with instants of this process.
    pub monotonic: Monotonic,
}

impl Now {
    /// The time left until the wall clock shows `at`; zero if it is past.
    pub fn until(self, at: Timestamp) -> Duration {
        unsigned(at.duration_since(self.wall))
    }

    /// The time since the wall clock showed `at`; zero if that is still to come.
    pub fn since(self, at: Timestamp) -> Duration {
        unsigned(self.wall.duration_since(at))
    }

    /// The monotonic instant at which the wall clock will show `at`, if it does not step until then; now if it is past.
    pub fn when(self, at: Timestamp) -> Monotonic {
        self.monotonic + self.until(at)
    }

    /// Both clocks `later` on.
    #[must_use]
    pub fn advanced(self, later: Duration) -> Self {
        Self { wall: plus(self.wall, later), monotonic: self.monotonic + later }
    }
}

/// The wall-clock instant `later` after `at`; the last representable instant if that is out of range.
pub fn plus(at: Timestamp, later: Duration) -> Timestamp {
    at.saturating_add(signed(later)).unwrap_or(Timestamp::MAX)
}

/// The wall-clock instant `earlier` before `at`; the first representable instant if that is out of range.
pub fn minus(at: Timestamp, earlier: Duration) -> Timestamp {
    at.saturating_sub(signed(earlier)).unwrap_or(Timestamp::MIN)
}

fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

fn unsigned(duration: SignedDuration) -> Duration {
    Duration::try_from(duration).unwrap_or(Duration::ZERO)
}

/// Reads the value of an HTTP header `Date` (<https://www.rfc-editor.org/rfc/rfc9110#name-date-time-formats>), which is cut
/// to whole seconds.
pub fn http_date(text: &str) -> Option<Timestamp> {
    rfc2822::DateTimeParser::new().relaxed_weekday(true).parse_timestamp(text.trim()).ok()
}

/// An instant as logs, Events and people write it: `2026-04-11 22:26:58Z`.
pub fn stamp(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%SZ").to_string()
}

/// A duration as people write it: `1h 5m`, `30s`, `250ms`. At most two units, so that it stays readable.
pub fn spoken(duration: Duration) -> String {
    let millis = duration.as_millis();
    let (seconds, rest) = (millis / 1000, millis % 1000);
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match seconds {
        0 => format!("{rest}ms"),
        1..10 if rest >= 100 => format!("{seconds}.{}s", rest / 100),
        1..60 => format!("{seconds}s"),
        60..3600 if seconds % 60 == 0 => format!("{minutes}m"),
        60..3600 => format!("{minutes}m {}s", seconds % 60),
        3600..86_400 if minutes == 0 => format!("{hours}h"),
        3600..86_400 => format!("{hours}h {minutes}m"),
        _ if hours == 0 => format!("{days}d"),
        _ => format!("{days}d {hours}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_past_instant_is_reached_now_and_a_future_one_after_the_difference() {
        let now = Now { wall: "2026-04-11T22:00:00Z".parse().unwrap(), monotonic: Monotonic::default() };
        assert_eq!(now.when("2026-04-11T21:00:00Z".parse().unwrap()), now.monotonic);
        assert_eq!(now.when("2026-04-11T22:01:00Z".parse().unwrap()).since_start(), Duration::from_secs(60));
        assert_eq!(now.since("2026-04-11T21:59:30Z".parse().unwrap()), Duration::from_secs(30));
    }

    #[test]
    fn the_date_of_an_http_answer_is_read() {
        let read = http_date("Sat, 11 Apr 2026 22:26:58 GMT");
        assert_eq!(read, Some("2026-04-11T22:26:58Z".parse().unwrap()));
        assert_eq!(http_date("tomorrow"), None);
    }

    #[test]
    fn durations_are_spoken_in_at_most_two_units() {
        for (millis, text) in [
            (0, "0ms"),
            (250, "250ms"),
            (1500, "1.5s"),
            (30_000, "30s"),
            (599_000, "9m 59s"),
            (900_000, "15m"),
            (3_600_000, "1h"),
            (5_400_000, "1h 30m"),
            (518_400_000, "6d"),
            (522_000_000, "6d 1h"),
        ] {
            assert_eq!(spoken(Duration::from_millis(millis)), text);
        }
    }
}
