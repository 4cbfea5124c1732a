//! The machines of the cluster with their kubelets: heartbeats, boots and losses of power, and the life of pods.
//!
//! They imitate what a drain or a repair can see of a kubelet, and run nothing. One task drives all machines. Pods say by
//! annotations how they behave ([`STOPS_AFTER_ANNOTATION`] and those beside it).

mod container;
mod desk;
mod fate;
mod machine;
mod machine_spec;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::time::Now;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use self::desk::{Desk, Event};
use self::machine::Machine;
use super::api_server::kinds::{NODES, PODS};
use super::api_server::refusal::Refusal;
use super::api_server::store::{Actor, Key};
use super::api_server::{ApiServer, Deletion};
use super::controllers::driver::{Follow, News, until};
use super::controllers::pod::PodsByNode;

pub use self::container::{
    FINALLY_ANNOTATION, FINISHES_AFTER_ANNOTATION, READY_AFTER_ANNOTATION, STOPS_AFTER_ANNOTATION,
};
pub use self::fate::{Fate, HowItEnded, Observer};
pub use self::machine_spec::MachineSpec;

/// From a change of a pod until its kubelet acts on it.
const REACTION: Duration = Duration::from_millis(10);

/// There is no such machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no machine \"{0}\": boot it first")]
pub struct UnknownMachine(pub String);

/// Whether a machine that goes down tells the API server before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// It posts Ready=False, "node is shutting down".
    Announced,
    /// It falls silent.
    Sudden,
}

/// All machines. They stand still when this is dropped.
pub struct Kubelets {
    shared: Arc<Shared>,
    /// Aborted with the set.
    _tasks: JoinSet<()>,
}

struct Shared {
    server: ApiServer,
    machines: Mutex<Machines>,
    /// Something has been put on the agenda from outside.
    poked: Notify,
}

impl fmt::Debug for Kubelets {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Kubelets").field("machines", &self.shared.lock().by_name.keys()).finish_non_exhaustive()
    }
}

impl Kubelets {
    /// No machines yet; the ids that they make up follow from the server's seed.
    pub fn new(server: &ApiServer) -> Self {
        let seed = server.store().lock().dice().u64(..);
        let machines = Machines {
            by_name: BTreeMap::new(),
            pods: PodsByNode::default(),
            desk: Desk::new(server.clone(), fastrand::Rng::with_seed(seed)),
        };
        let shared = Arc::new(Shared { server: server.clone(), machines: Mutex::new(machines), poked: Notify::new() });
        let mut tasks = JoinSet::new();
        tasks.spawn(drive(Arc::clone(&shared)));
        Self { shared, _tasks: tasks }
    }

    /// Boots a machine that was not there before. Its node is registered, or taken over if there is one of that name, and
    /// Ready. Fails if the API server refuses the node.
    pub fn boot(&self, spec: MachineSpec) -> Result<(), Refusal> {
        self.poke(|machines, now| {
            let name: Arc<str> = spec.name().into();
            if let Some(mut old) = machines.by_name.remove(&name) {
                old.power_off(&mut machines.desk, now);
            }
            let mut machine = Machine::new(Arc::clone(&name), spec, &mut machines.desk);
            let booted = machine.power_on(&mut machines.desk, &machines.pods, now);
            machines.by_name.insert(name, machine);
            booted
        })
    }

    /// The machine goes down, with all that runs on it, and boots after `downtime` with a new boot id; its pods start again.
    pub fn reboot(&self, name: &str, downtime: Duration, shutdown: Shutdown) -> Result<(), UnknownMachine> {
        self.poke_one(name, |machine, desk, _, now| {
            if shutdown == Shutdown::Announced {
                machine.post_readiness(desk, Some("node is shutting down"), now);
            }
            machine.power_off(desk, now);
            desk.schedule(now.monotonic + downtime, machine.event_to_power_on());
        })
    }

    /// The machine loses its power: all falls silent, and what ran on it is gone, of which nobody hears.
    pub fn power_off(&self, name: &str) -> Result<(), UnknownMachine> {
        self.poke_one(name, |machine, desk, _, now| machine.power_off(desk, now))
    }

    /// A machine that is off boots, as at the end of a reboot.
    pub fn power_on(&self, name: &str) -> Result<(), UnknownMachine> {
        self.poke_one(name, |machine, desk, pods, now| {
            if !machine.is_on() {
                // The API server does not refuse a node that was there before.
                let _ = machine.power_on(desk, pods, now);
            }
        })
    }

    /// Nothing happens on the machine for so long; then all goes on as if no time had passed.
    pub fn freeze(&self, name: &str, duration: Duration) -> Result<(), UnknownMachine> {
        self.poke_one(name, |machine, desk, _, now| machine.freeze(desk, duration, now))
    }

    /// The machine is gone for good. Its Node object is deleted after some time, as by a cloud controller, unless a machine
    /// of that name has booted by then.
    pub fn delete(&self, name: &str, node_goes_after: Duration) -> Result<(), UnknownMachine> {
        self.poke(|machines, now| {
            let mut machine = machines.by_name.remove(name).ok_or_else(|| UnknownMachine(name.to_owned()))?;
            machine.power_off(&mut machines.desk, now);
            machines.desk.schedule(now.monotonic + node_goes_after, Event::NodeGoes { name: name.into() });
            Ok(())
        })
    }

    /// The machine's heartbeats stop: no status, no lease. Its pods live on, and what is deleted ends in time.
    pub fn silence(&self, name: &str) -> Result<(), UnknownMachine> {
        self.poke_one(name, |machine, _, _, _| machine.is_silent = true)
    }

    /// The heartbeats go on, beginning now.
    pub fn resume(&self, name: &str) -> Result<(), UnknownMachine> {
        self.poke_one(name, |machine, desk, pods, now| {
            machine.is_silent = false;
            machine.speak_again(desk, pods, now);
        })
    }

    /// The kubelet posts Ready=False with this message, and goes on with its heartbeat.
    pub fn post_not_ready(&self, name: &str, message: &str) -> Result<(), UnknownMachine> {
        self.poke_one(name, |machine, desk, _, now| machine.post_readiness(desk, Some(message), now))
    }

    /// The kubelet posts Ready=True.
    pub fn post_ready(&self, name: &str) -> Result<(), UnknownMachine> {
        self.poke_one(name, |machine, desk, _, now| machine.post_readiness(desk, None, now))
    }

    /// Whether the machine is there and has power.
    pub fn is_on(&self, name: &str) -> bool {
        self.shared.lock().by_name.get(name).is_some_and(Machine::is_on)
    }

    /// What became of pods lately, oldest first; the last ten thousand.
    pub fn fates(&self) -> Vec<Fate> {
        self.shared.lock().desk.fates.latest()
    }

    /// Tells each fate from now on while it happens.
    pub fn observe(&self, observer: Observer) {
        self.shared.lock().desk.fates.observe(observer);
    }

    fn poke<T>(&self, act: impl FnOnce(&mut Machines, Now) -> T) -> T {
        let now = self.shared.server.clock().now();
        let result = act(&mut self.shared.lock(), now);
        self.shared.poked.notify_one();
        result
    }

    fn poke_one(
        &self,
        name: &str,
        act: impl FnOnce(&mut Machine, &mut Desk, &PodsByNode, Now),
    ) -> Result<(), UnknownMachine> {
        self.poke(|Machines { by_name, pods, desk }, now| {
            let machine = by_name.get_mut(name).ok_or_else(|| UnknownMachine(name.to_owned()))?;
            act(machine, desk, pods, now);
            Ok(())
        })
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Machines> {
        // A step of a machine is complete or has not begun when a panic strikes.
        self.machines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn drive(shared: Arc<Shared>) {
    let mut follow = Follow::new(&[PODS]);
    let (store, clock) = (shared.server.store(), shared.server.clock());
    loop {
        let news = follow.news(store);
        let due = {
            let mut machines = shared.lock();
            let now = clock.now();
            machines.take_in(&news, now);
            machines.do_what_is_due(now);
            machines.desk.due()
        };
        tokio::select! {
            biased;
            () = shared.poked.notified() => {}
            () = follow.changed(store) => clock.sleep(REACTION).await,
            () = until(clock, due) => {}
        }
    }
}

struct Machines {
    by_name: BTreeMap<Arc<str>, Machine>,
    pods: PodsByNode,
    desk: Desk,
}

impl Machines {
    fn take_in(&mut self, news: &News, now: Now) {
        if news.is_list {
            self.pods = PodsByNode::default();
            news.changes.iter().for_each(|change| self.pods.apply(change));
            for machine in self.by_name.values_mut() {
                machine.look_at_all(&mut self.desk, &self.pods, now);
            }
            return;
        }
        for change in &news.changes {
            self.pods.apply(change);
            let node_of = |pod: &Option<Arc<serde_json::Value>>| {
                pod.as_deref().and_then(super::controllers::pod::node_name).map(str::to_owned)
            };
            let Some(node) = node_of(&change.after).or_else(|| node_of(&change.before)) else { continue };
            if let Some(machine) = self.by_name.get_mut(node.as_str()) {
                machine.look(&mut self.desk, &change.key, change.after.as_ref(), now);
            }
        }
    }

    fn do_what_is_due(&mut self, now: Now) {
        while let Some((entry, event)) = self.desk.next_due(now) {
            let name = event.machine();
            if let Event::NodeGoes { name } = &event {
                if !self.by_name.contains_key(name) {
                    let by = Actor::new("cloud-node-lifecycle-controller");
                    // Somebody else may have deleted it.
                    let _ = self.desk.server.delete(&by, NODES, &Key::new("", name), &Deletion::default());
                }
                continue;
            }
            if let Some(machine) = self.by_name.get_mut(name) {
                machine.act(&mut self.desk, &self.pods, entry, &event, now);
            }
        }
    }
}
