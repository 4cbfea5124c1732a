//! The only place of this crate that asks for the time.
//!
//! The programs under test take their time from a clock of their own. The harness around them measures real processes,
//! or tokio's paused time when it runs beside an API server in memory.

use jiff::Timestamp;
use tokio::time::Instant;

/// Monotonic time; stands still while tokio's clock is paused.
#[expect(clippy::disallowed_methods, reason = "this is the clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Wall time, as a kubelet writes it into objects.
#[expect(clippy::disallowed_methods, reason = "this is the clock")]
pub(crate) fn wall() -> Timestamp {
    Timestamp::now()
}
