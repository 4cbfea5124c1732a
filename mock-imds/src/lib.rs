//! A mock of the [Azure Instance Metadata Service][imds] for programs that react to [scheduled events][events]:
//! faithful in what it answers, scripted in what happens, and able to misbehave.
//!
//! - [`Mock`] is the service: build it from a [`Scenario`] and a [`Clock`], serve [`Mock::router`] on a socket
//!   ([`Mock::serve`]) or call it in process, and make things happen with its methods.
//! - [`EventSpec`] says what an event is and how it goes on; [`FaultSpec`] says how the service misbehaves.
//! - With a [`TokioClock`] and paused time hours pass in milliseconds. The same scenario, seed and requests give the
//!   same answers, byte for byte.
//!
//! [imds]: https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service
//! [events]: https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events

mod answer;
mod clock;
mod compat;
mod control;
mod document;
mod error;
mod event;
mod fault;
mod identity;
mod instance;
mod log;
mod metadata;
mod mock;
mod place;
mod query;
mod router;
mod scenario;
mod seed;
mod server;
mod vm;
mod world;

/// Compiles and runs the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;

pub use clock::{Clock, Period, SystemClock, TokioClock, Wait};
pub use compat::Compatibility;
pub use error::MockError;
pub use event::{Event, EventChange, EventId, EventSource, EventSpec, EventType, Phase};
pub use fault::{Endpoint, Fault, FaultId, FaultKind, FaultSpec, Status};
pub use log::{Approval, Change, Counters, LoggedRequest};
pub use mock::{Mock, State};
pub use scenario::{IdCase, Scenario, ScenarioError, Settings};
pub use server::Server;
pub use vm::{Identity, Vm};
