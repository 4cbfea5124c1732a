//! Fake kubelets: each registers a node, keeps it alive, and plays the life of its pods.
//!
//! They imitate what a drain or a repair can see of a kubelet, from its heartbeat to the way in which it ends pods, and
//! run nothing.

mod history;
mod node;
mod pod;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{interval, sleep, timeout};

pub use self::history::{Ending, History, HowItEnded, PodHistory, Termination};
pub use self::node::NodeSpec;
pub use self::pod::{
    FINALLY_ANNOTATION, FINISHES_AFTER_ANNOTATION, READY_AFTER_ANNOTATION, STOPS_AFTER_ANNOTATION, Stopping,
};
use self::pod::{PodWorker, Slot};
use crate::follow::{Change, Follow, TimedOut};
use crate::{clock, random};

/// Where kubelets keep their leases (<https://kubernetes.io/docs/concepts/architecture/leases/#node-heart-beats>).
const LEASE_NAMESPACE: &str = "kube-node-lease";

/// How long one heartbeat may take before the next is tried.
const HEARTBEAT_LIMIT: Duration = Duration::from_secs(5);

/// A running fake kubelet. When it is dropped the machine falls silent, as if it had lost its power: its node stays.
pub struct Kubelet {
    machine: Arc<Machine>,
    tasks: Mutex<Tasks>,
}

/// What all tasks of one kubelet share.
struct Machine {
    client: Client,
    spec: NodeSpec,
    history: History,
    condition: Mutex<Condition>,
}

/// What the kubelet says about its node.
#[derive(Clone, Debug)]
struct Condition {
    boot_id: String,
    not_ready: Option<String>,
}

#[derive(Debug, Default)]
struct Tasks {
    heart: Option<Task>,
    pods: Option<Task>,
}

/// A task that ends with this value.
#[derive(Debug)]
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Kubelet {
    /// Registers the node, posts Ready and starts to serve its pods. A node of that name that exists is taken over.
    pub async fn start(client: &Client, spec: NodeSpec) -> Result<Self, kube::Error> {
        let machine = Arc::new(Machine {
            client: client.clone(),
            spec,
            history: History::default(),
            condition: Mutex::new(Condition { boot_id: random::uuid(), not_ready: None }),
        });
        machine.register().await?;
        machine.renew_lease().await?;
        let kubelet = Self { machine, tasks: Mutex::new(Tasks::default()) };
        kubelet.start_heart();
        kubelet.start_pods(AfterBoot::No);
        Ok(kubelet)
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        self.machine.spec.name()
    }

    /// The boot id that the node has now, or will have when it is Ready again.
    pub fn boot_id(&self) -> String {
        self.machine.condition().boot_id
    }

    /// What happened to each pod.
    pub fn history(&self) -> &History {
        &self.machine.history
    }

    /// The node falls silent: no status, no lease. Its pods live on, and what is deleted ends in time.
    pub fn stop_heartbeats(&self) {
        lock(&self.tasks).heart = None;
    }

    /// The node speaks again, beginning now.
    pub async fn resume_heartbeats(&self) -> Result<(), kube::Error> {
        self.machine.post_status().await?;
        self.machine.renew_lease().await?;
        self.start_heart();
        Ok(())
    }

    /// Posts Ready=False with this message, and goes on with the heartbeat.
    pub async fn post_not_ready(&self, message: &str) -> Result<(), kube::Error> {
        self.machine.set_not_ready(Some(message));
        self.machine.post_status().await
    }

    /// Posts Ready=True.
    pub async fn post_ready(&self) -> Result<(), kube::Error> {
        self.machine.set_not_ready(None);
        self.machine.post_status().await
    }

    /// The machine loses its power: all falls silent and what ran in the pods is gone, of which nobody hears.
    pub fn power_off(&self) {
        *lock(&self.tasks) = Tasks::default();
        self.machine.history.machine_stopped();
    }

    /// The machine boots: a new boot id, Ready, pods that were being deleted are gone, the others start again.
    pub async fn power_on(&self) -> Result<(), kube::Error> {
        {
            let mut condition = lock(&self.machine.condition);
            condition.boot_id = random::uuid();
            condition.not_ready = None;
        }
        self.machine.post_status().await?;
        self.machine.renew_lease().await?;
        self.start_heart();
        self.start_pods(AfterBoot::Yes);
        Ok(())
    }

    /// Reboots: posts Ready=False as a kubelet does when the machine shuts down in good order, is off for `downtime`,
    /// and boots. Returns when the node has posted Ready.
    pub async fn reboot(&self, downtime: Duration) -> Result<(), kube::Error> {
        self.post_not_ready("node is shutting down").await?;
        self.power_off();
        sleep(downtime).await;
        self.power_on().await
    }

    /// The machine is gone for good: no power, and no Node object.
    pub async fn delete_node(&self) -> Result<(), kube::Error> {
        self.power_off();
        let nodes: Api<Node> = Api::all(self.machine.client.clone());
        match nodes.delete(self.name(), &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            result => result.map(drop),
        }
    }

    /// Waits until the history of this node's pods is as `reached` wants it, and returns it.
    pub async fn wait_for(
        &self,
        goal: &str,
        limit: Duration,
        reached: impl FnMut(&[PodHistory]) -> bool,
    ) -> Result<Vec<PodHistory>, TimedOut> {
        self.machine.history.wait_for(goal, limit, reached).await
    }

    fn start_heart(&self) {
        let machine = Arc::clone(&self.machine);
        lock(&self.tasks).heart = Some(Task(tokio::spawn(async move { machine.keep_alive().await })));
    }

    fn start_pods(&self, after_boot: AfterBoot) {
        let machine = Arc::clone(&self.machine);
        lock(&self.tasks).pods = Some(Task(tokio::spawn(async move { serve_pods(machine, after_boot).await })));
    }
}

/// Whether what ran in the pods was lost just before they are seen for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterBoot {
    Yes,
    No,
}

impl Machine {
    fn condition(&self) -> Condition {
        lock(&self.condition).clone()
    }

    fn set_not_ready(&self, message: Option<&str>) {
        lock(&self.condition).not_ready = message.map(str::to_owned);
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    async fn register(&self) -> Result<(), kube::Error> {
        match self.nodes().create(&PostParams::default(), &self.spec.object()).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => return Err(error),
        }
        self.post_status().await
    }

    /// Conditions are merged by type: those of other writers stay.
    async fn post_status(&self) -> Result<(), kube::Error> {
        let Condition { boot_id, not_ready } = self.condition();
        let status = self.spec.status(&boot_id, not_ready.as_deref(), clock::wall());
        let patch = json!({"status": status});
        self.nodes().patch_status(self.name(), &PatchParams::default(), &Patch::Strategic(patch)).await.map(drop)
    }

    /// Posts the status if the node shows another than this kubelet's, as after a silence.
    async fn correct_status(&self) -> Result<(), kube::Error> {
        let node = self.nodes().get(self.name()).await?;
        let wanted = if self.condition().not_ready.is_some() { "False" } else { "True" };
        let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
        let is_right = conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == wanted);
        if is_right { Ok(()) } else { self.post_status().await }
    }

    async fn renew_lease(&self) -> Result<(), kube::Error> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), LEASE_NAMESPACE);
        let spec = json!({
            "holderIdentity": self.name(),
            "leaseDurationSeconds": self.spec.lease_seconds(),
            "renewTime": micro_time(clock::wall()),
        });
        let patch = Patch::Merge(json!({"spec": spec}));
        match leases.patch(self.name(), &PatchParams::default(), &patch).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {
                let lease = json!({"metadata": {"name": self.name()}, "spec": spec});
                let lease: Lease = serde_json::from_value(lease).map_err(kube::Error::SerdeError)?;
                leases.create(&PostParams::default(), &lease).await.map(drop)
            }
            result => result.map(drop),
        }
    }

    fn name(&self) -> &str {
        self.spec.name()
    }

    /// A heartbeat that fails is made good by the next one.
    async fn keep_alive(&self) {
        let mut beat = interval(self.spec.heartbeat());
        // The first tick is at once, and the caller has just posted everything.
        beat.tick().await;
        loop {
            beat.tick().await;
            let _ = timeout(HEARTBEAT_LIMIT, async {
                self.renew_lease().await?;
                self.correct_status().await
            })
            .await;
        }
    }
}

/// Follows the pods bound to this node, with one worker for each.
async fn serve_pods(machine: Arc<Machine>, after_boot: AfterBoot) {
    let selection = ListParams::default().fields(&format!("spec.nodeName={}", machine.name()));
    let mut follow = Follow::<Pod>::new(Api::all(machine.client.clone()), selection);
    let mut slots: BTreeMap<String, Arc<Slot>> = BTreeMap::new();
    let mut workers = JoinSet::new();
    // Pods that are there at the first list after a boot had lost what ran in them.
    let mut lost_their_containers = after_boot == AfterBoot::Yes;
    loop {
        let changed = match follow.next().await {
            Change::Listed(pods) => {
                let listed: Vec<String> = pods.iter().filter_map(ResourceExt::uid).collect();
                slots.retain(|uid, slot| {
                    let is_there = listed.contains(uid);
                    if !is_there {
                        slot.close();
                    }
                    is_there
                });
                pods
            }
            Change::Changed(pod) => vec![pod],
            Change::Deleted(pod) => {
                if let Some(slot) = pod.uid().and_then(|uid| slots.remove(&uid)) {
                    slot.close();
                }
                continue;
            }
        };
        for pod in changed {
            let Some(uid) = pod.uid() else { continue };
            if let Some(slot) = slots.get(&uid) {
                slot.put(pod);
                continue;
            }
            let slot = Arc::new(Slot::new(pod));
            slots.insert(uid, Arc::clone(&slot));
            let worker = PodWorker::new(Arc::clone(&machine), slot);
            workers.spawn(async move { worker.run(lost_their_containers).await });
        }
        lost_their_containers = false;
        while workers.try_join_next().is_some() {}
    }
}

/// The API server takes exactly six decimals in a `MicroTime`.
fn micro_time(time: Timestamp) -> String {
    format!("{time:.6}")
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // No section that holds one of these locks can leave its value half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
