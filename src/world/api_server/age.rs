//! How long something has lasted, as `kubectl` says it.

use std::time::Duration;

/// Two units at the most, and the smaller only where it matters: `90s`, `5m30s`, `47h`, `12d`, `2y90d`
/// (<https://github.com/kubernetes/apimachinery/blob/v0.36.3/pkg/util/duration/duration.go>).
pub(super) fn in_words(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let (days, years) = (hours / 24, hours / 24 / 365);
    let with = |count: u64, unit: &str, rest: u64, unit_of_rest: &str| {
        if rest == 0 { format!("{count}{unit}") } else { format!("{count}{unit}{rest}{unit_of_rest}") }
    };
    if seconds < 120 {
        format!("{seconds}s")
    } else if minutes < 10 {
        with(minutes, "m", seconds % 60, "s")
    } else if minutes < 180 {
        format!("{minutes}m")
    } else if hours < 8 {
        with(hours, "h", minutes % 60, "m")
    } else if hours < 48 {
        format!("{hours}h")
    } else if days < 8 {
        with(days, "d", hours % 24, "h")
    } else if days < 730 {
        format!("{days}d")
    } else if years < 8 {
        with(years, "y", days % 365, "d")
    } else {
        format!("{years}y")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_has_two_units_at_the_most() {
        let (minute, hour, day) = (60, 3600, 86_400);
        for (seconds, words) in [
            (0, "0s"),
            (119, "119s"),
            (5 * minute + 30, "5m30s"),
            (5 * minute, "5m"),
            (11 * minute + 30, "11m"),
            (3 * hour + 2 * minute, "3h2m"),
            (47 * hour, "47h"),
            (3 * day + 2 * hour, "3d2h"),
            (333 * day, "333d"),
            (2 * 365 * day + 90 * day, "2y90d"),
            (9 * 365 * day, "9y"),
        ] {
            assert_eq!(in_words(Duration::from_secs(seconds)), words);
        }
    }
}
