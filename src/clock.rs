//! The one place that asks for the time.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use domain::time::{Monotonic, Now, plus};
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// The time: real, or derived from a virtual start. Copies go on together.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Instant,
    wall_at_start: Option<Timestamp>,
    /// By how many seconds the wall clock is wrong, where somebody makes it so.
    wrong_by: Option<&'static AtomicI64>,
}

#[allow(clippy::disallowed_methods, reason = "the one place that asks for the time")]
impl Clock {
    /// The machine's clocks.
    pub fn system() -> Self {
        Self { started: Instant::now(), wall_at_start: None, wrong_by: None }
    }

    /// A wall clock that shows `wall` now and goes on with tokio's clock, which may be paused.
    pub fn starting_at(wall: Timestamp) -> Self {
        Self { started: Instant::now(), wall_at_start: Some(wall), wrong_by: None }
    }

    /// The clock of one machine: the same time, until [`Self::set_wrong_by`] makes its wall clock, and that of its copies, a
    /// wrong one. What it keeps for that is never freed, so that clocks can be copied: a few bytes for each machine of a
    /// simulation.
    #[must_use]
    pub fn of_machine(self) -> Self {
        Self { wrong_by: Some(Box::leak(Box::default())), ..self }
    }

    /// The wall clock steps: it is wrong by so many seconds from now on. The monotonic clock never steps.
    pub fn set_wrong_by(&self, seconds: i64) {
        if let Some(wrong_by) = self.wrong_by {
            wrong_by.store(seconds, Ordering::Relaxed);
        }
    }

    /// What both clocks show.
    pub fn now(&self) -> Now {
        let elapsed = self.started.elapsed();
        let wall = self.wall_at_start.map_or_else(Timestamp::now, |start| plus(start, elapsed));
        let wall = match self.wrong_by {
            Some(seconds) => {
                let wrong_by = SignedDuration::from_secs(seconds.load(Ordering::Relaxed));
                wall.saturating_add(wrong_by).unwrap_or(wall)
            }
            None => wall,
        };
        Now { wall, monotonic: Monotonic::after_start(elapsed) }
    }

    /// Waits until the monotonic clock shows `at`.
    pub async fn sleep_until(&self, at: Monotonic) {
        tokio::time::sleep_until(self.started + at.since_start()).await;
    }

    /// Waits.
    pub async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_wall_clock_of_a_machine_steps_for_all_its_copies_and_no_other_clock_does() {
        let wall: Timestamp = "2026-04-11T22:00:00Z".parse().unwrap();
        let world = Clock::starting_at(wall);
        let (machine, other) = (world.of_machine(), world.of_machine());
        let copy = machine;
        machine.set_wrong_by(-3600);
        let before = machine.now();
        assert_eq!(copy.now().wall, wall - SignedDuration::from_hours(1));
        assert_eq!((world.now().wall, other.now().wall), (wall, wall));
        machine.set_wrong_by(0);
        assert_eq!(machine.now(), Now { wall, monotonic: before.monotonic });
    }
}
