#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "what tests do in functions of their own")]

use super::*;

mod approvals;
mod autoscaler;
mod clock;
mod cordon;
mod deadlines;
mod events;
mod hold;
mod life;
mod marks;
mod messages;
mod properties;
mod records;
mod slots;
mod starts;
