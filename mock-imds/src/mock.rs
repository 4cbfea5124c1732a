//! The handle on a running mock: what a test, the control API and the program do with it. How it is served stands in
//! `router.rs`.

use std::{
    borrow::Borrow,
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use serde::Serialize;
use tokio::sync::Notify;

use crate::{
    clock::{Clock, remaining},
    error::MockError,
    event::{Event, EventChange, EventId, EventSpec},
    fault::{Fault, FaultId, FaultSpec},
    log::{Approval, Change, Counters, LoggedRequest},
    scenario::Scenario,
    vm::Vm,
    world::World,
};

/// A mock metadata service. Clones are handles on the same one.
///
/// ```
/// use std::time::Duration;
/// use mock_imds::{EventSpec, Mock, Scenario, SystemClock};
///
/// # fn main() -> Result<(), mock_imds::MockError> {
/// let mock = Mock::new(Scenario::single("aks-np1-12345678-vmss_0"), SystemClock);
/// let id = mock.inject(EventSpec::redeploy("aks-np1-12345678-vmss_0").notice(Duration::from_mins(10)))?;
/// mock.start(&id)?;
/// mock.finish(&id)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Mock {
    shared: Arc<Shared>,
}

struct Shared {
    clock: Box<dyn Clock>,
    world: Mutex<World>,
    touched: Notify,
}

impl fmt::Debug for Mock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mock").finish_non_exhaustive()
    }
}

/// All that the mock would tell, at one instant.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// The instant.
    pub now: Timestamp,
    /// The `DocumentIncarnation` of each placement group (or VM without one).
    pub incarnations: BTreeMap<String, u64>,
    /// The VMs.
    pub vms: Vec<Vm>,
    /// Listed events, then those that are over.
    pub events: Vec<Event>,
    /// The faults that are set.
    pub faults: Vec<Fault>,
    /// Totals of requests and approvals.
    pub counters: Counters,
}

impl Mock {
    /// Starts the scenario now, by `clock`.
    pub fn new(scenario: Scenario, clock: impl Clock) -> Self {
        let world = Mutex::new(World::new(scenario, clock.now()));
        Self { shared: Arc::new(Shared { clock: Box::new(clock), world, touched: Notify::new() }) }
    }

    /// The world as it is now.
    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        let mut world = self.shared.world.lock().unwrap_or_else(PoisonError::into_inner);
        world.advance(self.shared.clock.now());
        world
    }

    /// Does something to the world, then wakes whoever waits in [`Mock::changed`].
    pub(crate) fn act<T>(&self, operation: impl FnOnce(&mut World) -> T) -> T {
        let mut world = self.world();
        let before = world.changes_made();
        let result = world.act(operation);
        if world.changes_made() != before {
            self.shared.touched.notify_one();
        }
        result
    }

    /// Publishes an event.
    pub fn inject(&self, spec: impl Borrow<EventSpec>) -> Result<EventId, MockError> {
        self.act(|world| world.publish(spec.borrow()))
    }

    /// Starts a Scheduled event, by its identifier or name.
    pub fn start(&self, event: impl AsRef<str>) -> Result<EventId, MockError> {
        self.act(|world| world.start(event.as_ref()))
    }

    /// Lets an event vanish, by its identifier or name.
    pub fn finish(&self, event: impl AsRef<str>) -> Result<EventId, MockError> {
        self.act(|world| world.finish(event.as_ref()))
    }

    /// Withdraws a Scheduled event, by its identifier or name.
    pub fn cancel(&self, event: impl AsRef<str>) -> Result<EventId, MockError> {
        self.act(|world| world.cancel(event.as_ref()))
    }

    /// Approves an event, by its identifier or name, as if somebody else had.
    pub fn approve(&self, event: impl AsRef<str>) -> Result<EventId, MockError> {
        self.act(|world| world.approve(event.as_ref()))
    }

    /// Changes a listed event, by its identifier or name.
    pub fn change(&self, event: impl AsRef<str>, change: &EventChange) -> Result<EventId, MockError> {
        self.act(|world| world.change(event.as_ref(), change))
    }

    /// Sets a fault.
    pub fn fault(&self, spec: impl Into<FaultSpec>) -> Result<FaultId, MockError> {
        let spec = spec.into();
        self.act(|world| world.set_fault(&spec))
    }

    /// Clears a fault. One that is over already is no error.
    pub fn clear(&self, fault: FaultId) {
        self.act(|world| world.clear_faults(&fault.0.to_string()));
    }

    /// Clears the fault with this number or name, or all for `all`.
    pub fn clear_called(&self, key: &str) -> Result<(), MockError> {
        match self.act(|world| world.clear_faults(key)) {
            0 if key != "all" => Err(MockError::UnknownFault { key: key.to_owned() }),
            _ => Ok(()),
        }
    }

    /// Clears all faults.
    pub fn clear_all(&self) {
        self.act(|world| world.clear_faults("all"));
    }

    /// The VMs.
    pub fn vms(&self) -> Vec<Vm> {
        self.world().vms().iter().map(|vm| Vm::clone(vm)).collect()
    }

    /// Listed events in the order of their publication, then those that are over (the last 1000).
    pub fn events(&self) -> Vec<Event> {
        self.world().events().cloned().collect()
    }

    /// An event, by its identifier or name; if no listed one is called so, the last one that is over.
    pub fn event(&self, event: impl AsRef<str>) -> Result<Event, MockError> {
        self.world().event(event.as_ref()).cloned()
    }

    /// The faults that are set.
    pub fn faults(&self) -> Vec<Fault> {
        let world = self.world();
        world.faults().active(world.now()).cloned().collect()
    }

    /// The last 1000 requests, oldest first.
    pub fn log(&self) -> Vec<LoggedRequest> {
        self.world().log().requests.iter().cloned().collect()
    }

    /// The last 1000 approvals, oldest first.
    pub fn approvals(&self) -> Vec<Approval> {
        self.world().log().approvals.iter().cloned().collect()
    }

    /// Totals of requests and approvals.
    pub fn counters(&self) -> Counters {
        self.world().log().counters.clone()
    }

    /// The last 1000 changes with a number above `number`, oldest first. Numbers begin at 1.
    pub fn changes_after(&self, number: u64) -> Vec<Change> {
        self.world().changes().iter().filter(|change| change.number > number).cloned().collect()
    }

    /// Everything at once.
    pub fn state(&self) -> State {
        let world = self.world();
        State {
            now: world.now(),
            incarnations: world.incarnations(),
            vms: world.vms().iter().map(|vm| Vm::clone(vm)).collect(),
            events: world.events().cloned().collect(),
            faults: world.faults().active(world.now()).cloned().collect(),
            counters: world.log().counters.clone(),
        }
    }

    /// The time now.
    pub fn now(&self) -> Timestamp {
        self.world().now()
    }

    /// Whether nothing will happen any more unless somebody interferes.
    pub fn is_at_rest(&self) -> bool {
        self.world().is_at_rest()
    }

    /// Waits until something may have changed: something was due, or somebody did something. For one waiter.
    pub async fn changed(&self) {
        let next = {
            let world = self.world();
            world.next_instant().map(|at| remaining(world.now(), at))
        };
        // Wall time has no timer of its own; look again after a while, in case that the clock was set.
        let wait = next.unwrap_or(Duration::MAX).clamp(Duration::from_millis(1), Duration::from_hours(1));
        let _ = tokio::time::timeout(wait, self.shared.touched.notified()).await;
    }
}
