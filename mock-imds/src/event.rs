//! A scheduled event: what is asked for ([`EventSpec`]), what becomes of it (the state machine), how it is changed.
//!
//! ```text
//!              approved (and other tenants, and the rest of the deletion), or NotBefore
//!  Scheduled ─────────────────────────────────────────────────────────────────────────▶ Started ──▶ Finished
//!      │                                                                                   ▲
//!      ├──────────▶ Cancelled                              hardware failure: published as ─┘
//! ```
//!
//! The machine is a function of what it was told and when: nothing here reads a clock, so an event that nobody looked
//! at for an hour has the same history as one that was polled every second.
//!
//! The rules are those of <https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events> and, for the
//! coupling of deletions,
//! <https://learn.microsoft.com/azure/virtual-machine-scale-sets/virtual-machine-scale-sets-terminate-notification>.

mod life;
mod spec;
#[cfg(test)]
mod tests;

pub(crate) use life::Entry;
pub use life::{Event, EventChange, EventId, EventSource, EventType, Phase};
pub use spec::EventSpec;
