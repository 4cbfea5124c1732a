//! The machine's clock, against those of the servers that it asks.
//!
//! Azure's deadlines are times of the day, so a clock that is wrong by seconds makes a drain end by so much too late.

use std::cmp::Ordering;
use std::time::Duration;

use domain::time::spoken;
use jiff::{SignedDuration, Timestamp};

use super::{Check, Topic};

/// From here on a drain with 30 s of notice suffers.
const WARN_FROM: Duration = Duration::from_secs(2);

/// From here on such a drain comes too late altogether.
const FAIL_FROM: Duration = Duration::from_secs(30);

/// What another clock showed between two moments of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reading {
    /// Whose clock it is.
    pub(super) whose: &'static str,
    /// When it was asked for, on this machine's clock.
    pub(super) asked: Timestamp,
    /// When the answer came.
    pub(super) answered: Timestamp,
    /// What it showed, cut to whole seconds.
    pub(super) date: Timestamp,
}

impl Reading {
    /// By how much this machine's clock is ahead at the least, or behind if negative: the date may be up to a second old
    /// when it is written, and it was written at some moment between question and answer.
    fn ahead(&self) -> SignedDuration {
        let at_least = self.asked.duration_since(self.date) - SignedDuration::from_secs(1);
        let at_most = self.answered.duration_since(self.date);
        at_least.max(at_most.min(SignedDuration::ZERO))
    }
}

/// Whether the machine's clock agrees with the others.
pub(super) fn clock<'a>(readings: impl IntoIterator<Item = &'a Reading>) -> Check {
    const TOPIC: Topic = Topic::Clock;
    let (mut worst, mut told) = (Duration::ZERO, Vec::new());
    for reading in readings {
        let ahead = reading.ahead();
        let off = ahead.unsigned_abs();
        worst = worst.max(off);
        told.push(match ahead.cmp(&SignedDuration::ZERO) {
            Ordering::Equal => format!("agrees with {}", reading.whose),
            Ordering::Greater => format!("at least {} ahead of {}", spoken(off), reading.whose),
            Ordering::Less => format!("at least {} behind {}", spoken(off), reading.whose),
        });
    }
    if told.is_empty() {
        return Check::skip(TOPIC, "no server told its time");
    }
    let found = told.join(", ");
    let advice =
        "let the machine keep its time (`chronyc tracking`, `timedatectl`): Azure's deadlines are read on its clock";
    if worst >= FAIL_FROM {
        return Check::fail(TOPIC, found, advice);
    }
    if worst >= WARN_FROM {
        return Check::warn(TOPIC, found, advice);
    }
    Check::ok(TOPIC, found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    /// The other clock shows 22:00:00; this one showed these seconds after it, when asking and when answered.
    fn reading(asked: f64, answered: f64) -> Reading {
        let date: Timestamp = "2026-04-11T22:00:00Z".parse().unwrap();
        let at = |seconds| date + SignedDuration::from_secs_f64(seconds);
        Reading { whose: "the API server", asked: at(asked), answered: at(answered), date }
    }

    #[test]
    fn a_clock_is_judged_by_how_wrong_it_is_at_the_least() {
        for (asked, answered, verdict, found) in [
            (0.1, 0.2, Verdict::Ok, "agrees with the API server"),
            (0.9, 0.95, Verdict::Ok, "agrees with the API server"),
            // A slow answer hides what is wrong.
            (-4.0, 1.0, Verdict::Ok, "agrees with the API server"),
            (2.5, 2.6, Verdict::Ok, "at least 1.5s ahead of the API server"),
            (3.0, 3.1, Verdict::Warn, "at least 2s ahead of the API server"),
            (-2.2, -2.1, Verdict::Warn, "at least 2.1s behind the API server"),
            (31.0, 31.0, Verdict::Fail, "at least 30s ahead of the API server"),
            (-60.0, -59.0, Verdict::Fail, "at least 59s behind the API server"),
        ] {
            let check = clock(&[reading(asked, answered)]);
            assert_eq!((check.verdict, check.found.as_str()), (verdict, found), "{asked} {answered}");
        }
        let both = [reading(0.0, 0.1), Reading { whose: "the metadata service", ..reading(-60.0, -60.0) }];
        let check = clock(&both);
        assert_eq!(check.verdict, Verdict::Fail);
        assert_eq!(check.found, "agrees with the API server, at least 1m behind the metadata service");
        assert_eq!(clock(&[]).verdict, Verdict::Skip);
    }
}
