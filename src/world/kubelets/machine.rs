//! One machine: its power, its heartbeat, and its pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use domain::time::{Monotonic, Now};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::container::{self, Exit, START, Stopping};
use super::desk::{Desk, Entry, Event};
use super::fate::{Fate, HowItEnded};
use super::machine_spec::MachineSpec;
use crate::world::api_server::kinds::{LEASES, NODES, PODS};
use crate::world::api_server::refusal::Refusal;
use crate::world::api_server::store::{Actor, Key};
use crate::world::api_server::{Deletion, Part};
use crate::world::controllers::node_lifecycle::LEASE_NAMESPACE;
use crate::world::controllers::owner::controller_reference;
use crate::world::controllers::pod::{self, PodsByNode};
use crate::world::controllers::{condition, timestamp};

/// How often the lease is renewed, and how long it holds
/// (<https://kubernetes.io/docs/reference/node/node-status/#heartbeats>).
const HEARTBEAT: Duration = Duration::from_secs(10);
const LEASE_SECONDS: u64 = 40;

/// How often the status is posted though it is the same (`nodeStatusReportFrequency`).
const REPORT: Duration = Duration::from_secs(300);

/// The kubelet gives containers at least this long, whatever the grace (`minimumGracePeriodInSeconds` in
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/kubelet/kuberuntime/kuberuntime_manager.go#L84>).
const LEAST_GRACE: Duration = Duration::from_secs(2);

/// An instant of a machine's own time, which stands still while it is frozen.
type Local = Monotonic;

/// A machine.
pub(super) struct Machine {
    name: Arc<str>,
    spec: MachineSpec,
    by: Actor,
    boot_id: String,
    /// Which boot this is, or which time of being off; no other machine has the same.
    life: u64,
    is_on: bool,
    /// Whether its heartbeats do not get through.
    pub(super) is_silent: bool,
    not_ready: Option<String>,
    /// For how long it has been frozen in all: its own time is that much behind.
    lag: Duration,
    frozen_until: Option<Monotonic>,
    /// When the status was posted.
    reported: Monotonic,
    pods: BTreeMap<Key, Run>,
}

/// A pod on a machine with power.
struct Run {
    uid: String,
    pod: Arc<Value>,
    stage: Stage,
    restarts: i64,
    begun: Local,
    told_at: Option<Timestamp>,
    /// The number of its next step on the agenda.
    next: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing runs yet.
    Starting,
    /// It runs and is not Ready yet.
    Unready,
    /// It runs.
    Running,
    /// It has got SIGTERM.
    Stopping { stops_at: Option<Local>, killed_at: Local, grace: Duration },
    /// Nothing runs any more.
    Ended,
    /// The object is to go; finalizers may keep it.
    Removed,
}

impl Machine {
    pub(super) fn new(name: Arc<str>, mut spec: MachineSpec, desk: &mut Desk) -> Self {
        spec.identify(|| desk.uuid());
        let by = Actor::new(&format!("system:node:{name}"));
        Self {
            name,
            spec,
            by,
            boot_id: String::new(),
            life: desk.number(),
            is_on: false,
            is_silent: false,
            not_ready: None,
            lag: Duration::ZERO,
            frozen_until: None,
            reported: Monotonic::default(),
            pods: BTreeMap::new(),
        }
    }

    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    pub(super) fn event_to_power_on(&self) -> Event {
        Event::PowerOn { machine: Arc::clone(&self.name), life: self.life }
    }

    fn is_frozen(&self, now: Now) -> bool {
        self.frozen_until.is_some_and(|until| now.monotonic < until)
    }

    fn local(&self, now: Now) -> Local {
        now.monotonic.less(self.lag)
    }

    fn node(&self) -> Key {
        Key::new("", &self.name)
    }

    /// Does what was on the agenda, or puts it off by the time for which the machine has been frozen since.
    pub(super) fn act(&mut self, desk: &mut Desk, pods: &PodsByNode, (at, number): Entry, event: &Event, now: Now) {
        let (life, lag) = match event {
            Event::Beat { life, lag, .. } | Event::Pod { life, lag, .. } => (*life, Some(*lag)),
            Event::Thaw { life, .. } | Event::PowerOn { life, .. } => (*life, None),
            Event::NodeGoes { .. } => return,
        };
        if life != self.life {
            return;
        }
        if let Some(behind) = lag.map(|lag| self.lag.saturating_sub(lag)).filter(|behind| !behind.is_zero()) {
            let mut event = event.clone();
            if let Event::Beat { lag, .. } | Event::Pod { lag, .. } = &mut event {
                *lag = self.lag;
            }
            desk.reschedule(at + behind, number, event);
            return;
        }
        match event {
            Event::Beat { .. } => self.beat(desk, now),
            Event::Pod { key, .. } => self.step(desk, key, number, now),
            Event::Thaw { .. } if self.is_frozen(now) => {}
            Event::Thaw { .. } => {
                self.frozen_until = None;
                self.look_at_all(desk, pods, now);
            }
            // A node that was there before is not refused.
            Event::PowerOn { .. } => drop(self.power_on(desk, pods, now)),
            Event::NodeGoes { .. } => {}
        }
    }
}

// Power.
impl Machine {
    pub(super) fn power_on(&mut self, desk: &mut Desk, pods: &PodsByNode, now: Now) -> Result<(), Refusal> {
        self.life = desk.number();
        self.boot_id = desk.uuid();
        self.is_on = true;
        self.is_silent = false;
        self.not_ready = None;
        self.register(desk)?;
        self.post_status(desk, now);
        self.renew_lease(desk, now);
        let offset = desk.offset();
        self.schedule_beat(desk, offset, now);
        let here: Vec<(Key, Arc<Value>)> =
            pods.on(&self.name).map(|(key, pod)| (key.clone(), Arc::clone(pod))).collect();
        for (key, pod) in here {
            self.begin(desk, &key, &pod, AfterBoot::Yes, now);
        }
        Ok(())
    }

    pub(super) fn power_off(&mut self, desk: &mut Desk, now: Now) {
        self.life = desk.number();
        self.is_on = false;
        self.frozen_until = None;
        for (key, run) in std::mem::take(&mut self.pods) {
            self.record(desk, &key, &run, HowItEnded::Lost, now);
        }
    }

    pub(super) fn freeze(&mut self, desk: &mut Desk, duration: Duration, now: Now) {
        if !self.is_on {
            return;
        }
        let from = self.frozen_until.map_or(now.monotonic, |until| until.max(now.monotonic));
        self.lag += duration;
        self.frozen_until = Some(from + duration);
        desk.schedule(from + duration, Event::Thaw { machine: Arc::clone(&self.name), life: self.life });
    }
}

// The heartbeat.
impl Machine {
    fn register(&self, desk: &Desk) -> Result<(), Refusal> {
        match desk.server.create(&self.by, NODES, "", self.spec.object()) {
            Err(refusal) if refusal.reason == "AlreadyExists" => {
                let adopt = |node: &mut Value| {
                    self.spec.adopt(node);
                    Ok(())
                };
                desk.server.update(&self.by, NODES, &self.node(), Part::Main, adopt).map(drop)
            }
            result => result.map(drop),
        }
    }

    /// A node that somebody has deleted stays away until the machine boots again, as with the real kubelet.
    fn post_status(&mut self, desk: &Desk, now: Now) {
        self.reported = now.monotonic;
        let _ = desk.server.update(&self.by, NODES, &self.node(), Part::Status, |node| {
            self.spec.write_status(node, &self.boot_id, self.not_ready.as_deref(), now.wall);
            Ok(())
        });
    }

    /// What is refused is tried again at the next beat.
    fn renew_lease(&self, desk: &Desk, now: Now) {
        let key = Key::new(LEASE_NAMESPACE, &self.name);
        let renewed = timestamp::microseconds(now.wall);
        let written = desk.server.update(&self.by, LEASES, &key, Part::Main, |lease| {
            lease["spec"]["renewTime"] = json!(renewed);
            Ok(())
        });
        if written.is_err_and(|refusal| refusal.code == 404) {
            let mut lease = json!({
                "metadata": {"name": &*self.name},
                "spec": {"holderIdentity": &*self.name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": renewed},
            });
            if let Ok(node) = desk.server.get(NODES, &self.node()) {
                let mut owner = controller_reference(&node);
                if let Some(owner) = owner.as_object_mut() {
                    owner.retain(|field, _| !matches!(field.as_str(), "controller" | "blockOwnerDeletion"));
                }
                lease["metadata"]["ownerReferences"] = json!([owner]);
            }
            let _ = desk.server.create(&self.by, LEASES, LEASE_NAMESPACE, lease);
        }
    }

    fn schedule_beat(&self, desk: &mut Desk, after: Duration, now: Now) {
        let event = Event::Beat { machine: Arc::clone(&self.name), life: self.life, lag: self.lag };
        desk.schedule(now.monotonic + after, event);
    }

    fn beat(&mut self, desk: &mut Desk, now: Now) {
        if !self.is_silent {
            self.renew_lease(desk, now);
            let wanted = if self.not_ready.is_some() { "False" } else { "True" };
            let is_right = desk
                .server
                .get(NODES, &self.node())
                .is_ok_and(|node| condition::status(&node, "Ready") == Some(wanted));
            if !is_right || now.monotonic.since(self.reported) >= REPORT {
                self.post_status(desk, now);
            }
        }
        self.schedule_beat(desk, HEARTBEAT, now);
    }

    /// Posts Ready, or why it is not.
    pub(super) fn post_readiness(&mut self, desk: &Desk, not_ready: Option<&str>, now: Now) {
        self.not_ready = not_ready.map(str::to_owned);
        if self.is_on && !self.is_silent && !self.is_frozen(now) {
            self.post_status(desk, now);
        }
    }

    /// The heartbeats get through again.
    pub(super) fn speak_again(&mut self, desk: &mut Desk, pods: &PodsByNode, now: Now) {
        if self.is_on && !self.is_frozen(now) {
            self.post_status(desk, now);
            self.renew_lease(desk, now);
            self.look_at_all(desk, pods, now);
        }
    }
}

/// Whether what ran in the pods was lost just before they are seen for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterBoot {
    Yes,
    No,
}

// The pods.
impl Machine {
    /// Looks at all pods that are or were here, after a time in which it could not.
    pub(super) fn look_at_all(&mut self, desk: &mut Desk, pods: &PodsByNode, now: Now) {
        let here: BTreeMap<Key, Arc<Value>> =
            pods.on(&self.name).map(|(key, pod)| (key.clone(), Arc::clone(pod))).collect();
        let known: BTreeSet<Key> = self.pods.keys().cloned().collect();
        for key in known.iter().filter(|key| !here.contains_key(key)) {
            self.look(desk, key, None, now);
        }
        for (key, pod) in &here {
            self.look(desk, key, Some(pod), now);
        }
    }

    /// Looks at a pod that has changed, or is gone.
    pub(super) fn look(&mut self, desk: &mut Desk, key: &Key, pod: Option<&Arc<Value>>, now: Now) {
        // A frozen machine looks at all when it goes on.
        if !self.is_on || self.is_frozen(now) {
            return;
        }
        let is_same = |run: &Run| pod.is_some_and(|pod| pod["metadata"]["uid"] == *run.uid);
        if self.pods.get(key).is_some_and(|run| !is_same(run))
            && let Some(run) = self.pods.remove(key)
        {
            self.record(desk, key, &run, HowItEnded::Killed, now);
        }
        let Some(pod) = pod else { return };
        let Some(run) = self.pods.get_mut(key) else { return self.begin(desk, key, pod, AfterBoot::No, now) };
        run.pod = Arc::clone(pod);
        if pod::is_terminating(pod) {
            self.stop(desk, key, now);
        } else if run.stage == Stage::Running && !pod::is_ready(pod) && !self.is_silent {
            // Somebody took this machine for dead.
            let restarts = run.restarts;
            self.write(desk, key, |pod| container::write_running(pod, true, restarts, now.wall));
        }
    }

    fn begin(&mut self, desk: &mut Desk, key: &Key, pod: &Arc<Value>, after_boot: AfterBoot, now: Now) {
        let was_running = pod["status"]["phase"] == "Running";
        let runs = was_running && after_boot == AfterBoot::No;
        let mut run = Run {
            uid: pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned(),
            pod: Arc::clone(pod),
            stage: if runs { Stage::Running } else { Stage::Starting },
            restarts: container::restarts(pod),
            begun: self.local(now),
            told_at: None,
            next: 0,
        };
        let was_lost = was_running && !runs;
        let stays_down = pod::is_terminating(pod) || (was_lost && pod["spec"]["restartPolicy"] == "Never");
        if pod::is_finished(pod) || (stays_down && !runs) {
            run.stage = Stage::Ended;
        } else if was_lost {
            run.restarts += 1;
        }
        let (stage, restarts) = (run.stage, run.restarts);
        self.pods.insert(key.clone(), run);
        if was_lost {
            self.write(desk, key, |pod| match stage {
                Stage::Starting => container::write_running(pod, false, restarts, now.wall),
                _ => container::write_ended(pod, Exit::Killed, restarts, now.wall),
            });
        }
        if pod::is_terminating(pod) {
            self.stop(desk, key, now);
        } else if stage == Stage::Starting {
            self.schedule_step(desk, key, self.local(now) + container::ready_after(pod).min(START));
        }
    }

    fn schedule_step(&mut self, desk: &mut Desk, key: &Key, at: Local) {
        let (machine, life, lag) = (Arc::clone(&self.name), self.life, self.lag);
        let Some(run) = self.pods.get_mut(key) else { return };
        run.next = desk.schedule(at + lag, Event::Pod { machine, life, lag, key: key.clone() });
    }

    /// The next step in the life of a pod.
    fn step(&mut self, desk: &mut Desk, key: &Key, number: u64, now: Now) {
        let local = self.local(now);
        let Some(run) = self.pods.get_mut(key).filter(|run| run.next == number) else { return };
        let restarts = run.restarts;
        match run.stage {
            Stage::Starting | Stage::Unready => {
                let ready_at = run.begun + container::ready_after(&run.pod);
                let is_ready = ready_at <= local;
                let finishes_after = container::finishes_after(&run.pod);
                run.stage = if is_ready { Stage::Running } else { Stage::Unready };
                self.write(desk, key, |pod| container::write_running(pod, is_ready, restarts, now.wall));
                if !is_ready {
                    self.schedule_step(desk, key, ready_at);
                } else if let Some(time) = finishes_after {
                    self.schedule_step(desk, key, local + time);
                }
            }
            Stage::Running => {
                let exit = Exit::of_work(&run.pod);
                self.end(desk, key, HowItEnded::Finished, exit, now);
            }
            Stage::Stopping { stops_at, killed_at, .. } => {
                let has_stopped = stops_at.is_some_and(|at| at <= killed_at);
                let (how, exit) =
                    if has_stopped { (HowItEnded::Stopped, Exit::Success) } else { (HowItEnded::Killed, Exit::Killed) };
                self.end(desk, key, how, exit, now);
                self.remove(desk, key);
            }
            Stage::Ended | Stage::Removed => {}
        }
    }

    /// Ends a pod that is to go within its grace. When the stored grace becomes smaller the kill begins anew with all of it, as
    /// the kubelet does (`pkg/kubelet/pod_workers.go`).
    fn stop(&mut self, desk: &mut Desk, key: &Key, now: Now) {
        let local = self.local(now);
        let Some(run) = self.pods.get_mut(key) else { return };
        let seconds = run.pod["metadata"]["deletionGracePeriodSeconds"].as_u64().unwrap_or_default();
        let grace = Duration::from_secs(seconds);
        let stopping = Stopping::of(&run.pod);
        let stops_at = match run.stage {
            // Nothing runs that could be stopped.
            Stage::Starting | Stage::Ended => return self.remove(desk, key),
            Stage::Removed => return,
            Stage::Stopping { grace: known, .. } if known <= grace => return,
            Stage::Stopping { stops_at, .. } => stops_at,
            Stage::Unready | Stage::Running => {
                run.told_at = Some(now.wall);
                match stopping {
                    Stopping::After(time) => Some(local + time),
                    Stopping::WhenKilled | Stopping::Never => None,
                }
            }
        };
        let killed_at = local + grace.max(LEAST_GRACE);
        run.stage = Stage::Stopping { stops_at, killed_at, grace };
        if stopping == Stopping::Never {
            run.next = 0;
        } else {
            let end = stops_at.map_or(killed_at, |stops_at| stops_at.min(killed_at));
            self.schedule_step(desk, key, end);
        }
    }

    fn end(&mut self, desk: &mut Desk, key: &Key, how: HowItEnded, exit: Exit, now: Now) {
        let Some(mut run) = self.pods.remove(key) else { return };
        self.record(desk, key, &run, how, now);
        run.stage = Stage::Ended;
        let restarts = run.restarts;
        self.pods.insert(key.clone(), run);
        self.write(desk, key, |pod| container::write_ended(pod, exit, restarts, now.wall));
    }

    /// Takes the object away. Finalizers may keep it: they are not a kubelet's business.
    fn remove(&mut self, desk: &Desk, key: &Key) {
        let Some(run) = self.pods.get_mut(key) else { return };
        run.stage = Stage::Removed;
        let uid = Some(run.uid.clone());
        // It may be gone already.
        let _ = desk.server.delete(&self.by, PODS, key, &Deletion { grace: Some(0), uid, ..Deletion::default() });
    }

    /// Writes the status of a pod, unless it is gone or another one by now.
    fn write(&self, desk: &Desk, key: &Key, change: impl FnOnce(&mut Value)) {
        let Some(run) = self.pods.get(key) else { return };
        let _ = desk.server.update(&self.by, PODS, key, Part::Status, |pod| {
            if pod["metadata"]["uid"] != *run.uid {
                return Err(Refusal::not_found(PODS, &key.name));
            }
            change(pod);
            Ok(())
        });
    }

    /// Notes the end of what ran in a pod, if anything did.
    fn record(&self, desk: &mut Desk, key: &Key, run: &Run, how: HowItEnded, now: Now) {
        if matches!(run.stage, Stage::Unready | Stage::Running | Stage::Stopping { .. }) {
            desk.fates.push(Fate {
                at: now.wall,
                key: key.clone(),
                uid: run.uid.clone(),
                node: self.name.to_string(),
                how,
                told_at: run.told_at,
                pod: Arc::clone(&run.pod),
            });
        }
    }
}
