//! The one place that asks for the time.

use std::time::Duration;

use domain::time::{Monotonic, Now, plus};
use jiff::Timestamp;
use tokio::time::Instant;

/// The time: real, or derived from a virtual start.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Instant,
    wall_at_start: Option<Timestamp>,
}

#[allow(clippy::disallowed_methods, reason = "the one place that asks for the time")]
impl Clock {
    /// The machine's clocks.
    pub fn system() -> Self {
        Self { started: Instant::now(), wall_at_start: None }
    }

    /// A wall clock that shows `wall` now and goes on with tokio's clock, which may be paused.
    pub fn starting_at(wall: Timestamp) -> Self {
        Self { started: Instant::now(), wall_at_start: Some(wall) }
    }

    /// What both clocks show.
    pub fn now(&self) -> Now {
        let elapsed = self.started.elapsed();
        let wall = self.wall_at_start.map_or_else(Timestamp::now, |start| plus(start, elapsed));
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
