//! What the loops of the agent tell each other, and what the probes read.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::node_plan::Sightings;
use domain::scheduled_event::{Document, VmName};
use domain::time::Monotonic;
use tokio::sync::Notify;

use crate::azure::imds::Instance;
use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::serve::Health;

/// Each loop ticks every 5 s, the poll loop also while a request is pending; without a tick for this long it is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(60);

/// Without a good answer for this long the agent cannot do its job; some lost polls are everyday.
const NOT_READY_AFTER: Duration = Duration::from_secs(15);

/// The loops that must go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loop {
    Poll,
    Steward,
}

#[derive(Debug, Default)]
struct State {
    instance: Option<Instance>,
    sightings: Sightings,
    trouble: Option<String>,
    node_trouble: Option<String>,
    stopping: bool,
    poll_ticked: Monotonic,
    steward_ticked: Monotonic,
    last_good_poll: Option<Monotonic>,
}

/// See the module.
pub(super) struct Board {
    clock: Clock,
    metrics: Arc<Metrics>,
    not_ready_after: Duration,
    state: Mutex<State>,
    changed: Notify,
}

impl Board {
    pub(super) fn new(clock: Clock, metrics: Arc<Metrics>, poll_interval: Duration) -> Self {
        let not_ready_after = NOT_READY_AFTER.max(poll_interval * 5);
        Self { clock, metrics, not_ready_after, state: Mutex::default(), changed: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The state is changed by plain assignments only, so a panic elsewhere cannot leave it half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The loop is alive.
    pub(super) fn tick(&self, which: Loop) {
        let now = self.clock.now().monotonic;
        let mut state = self.state();
        match which {
            Loop::Poll => state.poll_ticked = now,
            Loop::Steward => state.steward_ticked = now,
        }
    }

    /// Azure has said who this machine is.
    pub(super) fn identified(&self, instance: Instance) {
        self.state().instance = Some(instance);
        self.changed.notify_one();
    }

    /// Azure has listed its events; it has said before who this machine is.
    pub(super) fn seen(&self, document: Document) {
        let now = self.clock.now().monotonic;
        let mut state = self.state();
        let Some(vm) = state.instance.as_ref().map(|instance| instance.name.clone()) else { return };
        state.sightings.see(document, &vm);
        state.last_good_poll = Some(now);
        state.trouble = None;
        drop(state);
        self.changed.notify_one();
    }

    /// Azure has not answered, or not well: nothing is known from it.
    pub(super) fn troubled(&self, trouble: String) {
        self.state().trouble = Some(trouble);
    }

    /// The node cannot be read although it is needed, or can again.
    pub(super) fn node_trouble(&self, trouble: Option<String>) {
        self.state().node_trouble = trouble;
    }

    /// The process is to end.
    pub(super) fn stop(&self) {
        self.state().stopping = true;
        self.changed.notify_one();
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.state().stopping
    }

    /// Waits until Azure has said something new, or the process is to end.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    pub(super) fn vm(&self) -> Option<VmName> {
        self.state().instance.as_ref().map(|instance| instance.name.clone())
    }

    pub(super) fn sightings(&self) -> Sightings {
        self.state().sightings.clone()
    }
}

impl Health for Board {
    fn alive(&self) -> Result<(), String> {
        let now = self.clock.now().monotonic;
        let state = self.state();
        for (name, ticked) in [("poll loop", state.poll_ticked), ("steward", state.steward_ticked)] {
            let silent = now.since(ticked);
            if silent >= STUCK_AFTER {
                return Err(format!("the {name} has not ticked for {}s", silent.as_secs()));
            }
        }
        Ok(())
    }

    fn ready(&self) -> Result<(), String> {
        let now = self.clock.now().monotonic;
        let state = self.state();
        let why = || state.trouble.clone().unwrap_or_else(|| "the first answer has not come yet".into());
        match state.last_good_poll {
            None => Err(format!("no answer from the metadata service yet: {}", why())),
            Some(at) if now.since(at) > self.not_ready_after => {
                Err(format!("no good answer from the metadata service for {}s: {}", now.since(at).as_secs(), why()))
            }
            Some(_) => state.node_trouble.clone().map_or(Ok(()), Err),
        }
    }

    fn metrics(&self) -> String {
        let now = self.clock.now().monotonic;
        let last = self.state().last_good_poll.unwrap_or_default();
        self.metrics.render(now.since(last))
    }
}
