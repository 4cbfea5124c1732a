//! The life of one pod on a fake kubelet.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use super::history::HowItEnded;
use super::{Machine, lock};
use crate::clock;

/// Annotation on a pod: how it behaves on SIGTERM. A [`Stopping`] in its text form.
pub const STOPS_AFTER_ANNOTATION: &str = "kubelet.test/stops-after";

/// Annotation on a pod: seconds from its start until it is Ready, as in `5s`. Ready at once otherwise.
pub const READY_AFTER_ANNOTATION: &str = "kubelet.test/ready-after";

/// Annotation on a pod: seconds from its start until its work is done, as in `0s`. Never otherwise.
pub const FINISHES_AFTER_ANNOTATION: &str = "kubelet.test/finishes-after";

/// Annotation on a pod: the phase in which it finishes, `Succeeded` (also if absent) or `Failed`.
pub const FINALLY_ANNOTATION: &str = "kubelet.test/finally";

/// The kubelet gives containers at least this long, whatever the grace (`minimumGracePeriodInSeconds` in
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/kubelet/kuberuntime/kuberuntime_manager.go#L84>).
const LEAST_GRACE: Duration = Duration::from_secs(2);

/// Until a write that failed is tried again.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(200);

/// What a pod does on SIGTERM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stopping {
    /// Stops at once.
    #[default]
    AtOnce,
    /// Stops after this time, counted from the first SIGTERM, or is killed before.
    After(Duration),
    /// Ignores it, and is killed when the grace is over (`never`).
    WhenKilled,
    /// Survives even the kill, as a process in uninterruptible sleep does (`stuck`).
    Never,
}

impl Stopping {
    fn of(pod: &Pod) -> Self {
        match pod.annotations().get(STOPS_AFTER_ANNOTATION).map(String::as_str) {
            None => Self::AtOnce,
            Some("never") => Self::WhenKilled,
            Some("stuck") => Self::Never,
            Some(text) => parse_seconds(text).map_or(Self::AtOnce, Self::After),
        }
    }
}

impl fmt::Display for Stopping {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtOnce => formatter.write_str("0s"),
            Self::After(time) => write!(formatter, "{}s", time.as_secs_f64()),
            Self::WhenKilled => formatter.write_str("never"),
            Self::Never => formatter.write_str("stuck"),
        }
    }
}

/// Seconds written as `5s` or `0.5s`.
fn parse_seconds(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(text.strip_suffix('s')?.parse().ok()?).ok()
}

fn seconds_annotation(pod: &Pod, key: &str) -> Option<Duration> {
    pod.annotations().get(key).and_then(|text| parse_seconds(text))
}

/// The latest known state of a pod, handed from the watch to the worker.
#[derive(Debug)]
pub(super) struct Slot {
    /// None when the object is gone.
    latest: Mutex<Option<Pod>>,
    changed: Notify,
}

impl Slot {
    pub(super) fn new(pod: Pod) -> Self {
        Self { latest: Mutex::new(Some(pod)), changed: Notify::new() }
    }

    pub(super) fn put(&self, pod: Pod) {
        *lock(&self.latest) = Some(pod);
        self.changed.notify_one();
    }

    pub(super) fn close(&self) {
        *lock(&self.latest) = None;
        self.changed.notify_one();
    }

    fn intent(&self) -> Intent {
        match &*lock(&self.latest) {
            None => Intent::Gone,
            Some(pod) if pod.metadata.deletion_timestamp.is_some() => {
                let seconds = pod.metadata.deletion_grace_period_seconds.unwrap_or_default();
                Intent::Stop { grace: Duration::from_secs(seconds.try_into().unwrap_or_default()) }
            }
            Some(_) => Intent::Run,
        }
    }

    /// Waits until the intent is another than `known`.
    async fn other_than(&self, known: Intent) -> Intent {
        loop {
            let intent = self.intent();
            if intent != known {
                return intent;
            }
            // A permit is kept for a change that comes between the look and the wait; the worker is the only waiter.
            self.changed.notified().await;
        }
    }
}

/// What the API server wants of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Intent {
    Run,
    Stop { grace: Duration },
    Gone,
}

/// Plays one pod from its start to the deletion of its object.
pub(super) struct PodWorker {
    machine: Arc<Machine>,
    slot: Arc<Slot>,
    pod: Pod,
    uid: String,
    restarts: i64,
}

impl PodWorker {
    pub(super) fn new(machine: Arc<Machine>, slot: Arc<Slot>) -> Self {
        let pod = lock(&slot.latest).clone().unwrap_or_default();
        let uid = pod.uid().unwrap_or_default();
        let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
        let restarts = statuses.iter().map(|status| i64::from(status.restart_count)).max().unwrap_or_default();
        Self { machine, slot, pod, uid, restarts }
    }

    /// `lost_its_containers`: the machine has just booted, so that nothing runs in the pod.
    pub(super) async fn run(mut self, lost_its_containers: bool) {
        let history = &self.machine.history;
        history.started(&self.uid, &self.pod.namespace().unwrap_or_default(), &self.pod.name_any());
        let was_running = self.phase() == "Running";
        if matches!(self.phase(), "Succeeded" | "Failed") {
            history.ended(&self.uid, HowItEnded::Stopped);
            self.slot.other_than(Intent::Run).await;
            return self.remove().await;
        }
        if lost_its_containers && self.slot.intent() != Intent::Run {
            history.ended(&self.uid, HowItEnded::MachineStopped);
            self.post(self.ended_status("Failed", 137)).await;
            return self.remove().await;
        }
        if lost_its_containers && was_running {
            self.restarts += 1;
        }
        // After a restart of the kubelet alone a running pod goes on as it is.
        let is_new = lost_its_containers || !was_running;
        if is_new
            && tokio::select! { biased; _ = self.slot.other_than(Intent::Run) => false, () = self.get_ready() => true }
            && self.finish().await
        {
            self.slot.other_than(Intent::Run).await;
            return self.remove().await;
        }
        self.slot.other_than(Intent::Run).await;
        self.stop().await;
    }

    fn phase(&self) -> &str {
        self.pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
    }

    async fn get_ready(&self) {
        if let Some(time) = seconds_annotation(&self.pod, READY_AFTER_ANNOTATION) {
            self.post(self.running_status(false)).await;
            sleep(time).await;
        }
        self.post(self.running_status(true)).await;
    }

    /// Waits until the pod's work is done, if it ever is, and says so. False: it was told to stop before.
    async fn finish(&self) -> bool {
        let Some(time) = seconds_annotation(&self.pod, FINISHES_AFTER_ANNOTATION) else { return false };
        tokio::select! {
            biased;
            _ = self.slot.other_than(Intent::Run) => return false,
            () = sleep(time) => {}
        }
        let failed = self.pod.annotations().get(FINALLY_ANNOTATION).is_some_and(|phase| phase == "Failed");
        self.machine.history.ended(&self.uid, HowItEnded::Stopped);
        self.post(if failed { self.ended_status("Failed", 1) } else { self.ended_status("Succeeded", 0) }).await;
        true
    }

    /// Ends the pod within its grace. When the stored grace becomes smaller the kill begins anew with all of it, as the
    /// kubelet does (`pkg/kubelet/pod_workers.go`).
    async fn stop(&self) {
        let stopping = Stopping::of(&self.pod);
        let begun = clock::now();
        let stops_at = match stopping {
            Stopping::AtOnce => Some(begun),
            Stopping::After(time) => Some(begun + time),
            Stopping::WhenKilled | Stopping::Never => None,
        };
        let mut intent = self.slot.intent();
        let mut killed_at: Option<Instant> = None;
        let mut smallest = Duration::MAX;
        loop {
            match intent {
                Intent::Gone => return self.machine.history.ended(&self.uid, HowItEnded::ObjectDeleted),
                Intent::Stop { grace } if grace < smallest => {
                    smallest = grace;
                    killed_at = Some(clock::now() + grace.max(LEAST_GRACE));
                    self.machine.history.terminating(&self.uid, grace);
                }
                Intent::Stop { .. } | Intent::Run => {}
            }
            let killed_at = killed_at.filter(|_| stopping != Stopping::Never);
            let end = stops_at.into_iter().chain(killed_at).min();
            tokio::select! {
                biased;
                other = self.slot.other_than(intent) => intent = other,
                () = until(end) => {
                    let is_killed = end == killed_at && end != stops_at;
                    let (how, status) = if is_killed {
                        (HowItEnded::Killed, self.ended_status("Failed", 137))
                    } else {
                        (HowItEnded::Stopped, self.ended_status("Succeeded", 0))
                    };
                    self.machine.history.ended(&self.uid, how);
                    self.post(status).await;
                    return self.remove().await;
                }
            }
        }
    }

    fn api(&self) -> Api<Pod> {
        Api::namespaced(self.machine.client.clone(), &self.pod.namespace().unwrap_or_default())
    }

    /// Writes the status, as often as it takes, unless the pod is gone.
    async fn post(&self, status: Value) {
        // A pod that was made anew under the same name has another UID, and that field is immutable: 422.
        let patch = Patch::Strategic(json!({"metadata": {"uid": self.uid}, "status": status}));
        while self.slot.intent() != Intent::Gone {
            match self.api().patch_status(&self.pod.name_any(), &PatchParams::default(), &patch).await {
                Ok(_) => return,
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409 | 422) => return,
                Err(_) => sleep(PAUSE_AFTER_FAILURE).await,
            }
        }
    }

    /// Takes the object away, as often as it takes. Finalizers may keep it: they are not a kubelet's business.
    async fn remove(&self) {
        let parameters = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions { uid: Some(self.uid.clone()), resource_version: None }),
            ..DeleteParams::default()
        };
        while self.slot.intent() != Intent::Gone {
            match self.api().delete(&self.pod.name_any(), &parameters).await {
                Ok(_) => return,
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => return,
                Err(_) => sleep(PAUSE_AFTER_FAILURE).await,
            }
        }
    }

    fn running_status(&self, ready: bool) -> Value {
        let now = format!("{:.0}", clock::wall());
        let truth = |value: bool| if value { "True" } else { "False" };
        let address = self.address();
        json!({
            "phase": "Running",
            "startTime": now,
            "hostIP": "127.0.0.1",
            "podIP": address,
            "podIPs": [{"ip": address}],
            "conditions": [
                {"type": "Initialized", "status": "True", "lastTransitionTime": now},
                {"type": "ContainersReady", "status": truth(ready), "lastTransitionTime": now},
                {"type": "Ready", "status": truth(ready), "lastTransitionTime": now},
            ],
            "containerStatuses": self.container_statuses(ready, &json!({"running": {"startedAt": now}})),
        })
    }

    fn ended_status(&self, phase: &str, exit_code: i32) -> Value {
        let now = format!("{:.0}", clock::wall());
        let reason = if exit_code == 0 { "Completed" } else { "Error" };
        let state = json!({"terminated": {"exitCode": exit_code, "reason": reason, "finishedAt": now}});
        json!({
            "phase": phase,
            "conditions": [
                {"type": "ContainersReady", "status": "False", "lastTransitionTime": now},
                {"type": "Ready", "status": "False", "lastTransitionTime": now},
            ],
            "containerStatuses": self.container_statuses(false, &state),
        })
    }

    fn container_statuses(&self, ready: bool, state: &Value) -> Value {
        let containers = self.pod.spec.as_ref().map(|spec| spec.containers.as_slice()).unwrap_or_default();
        let status = |name: &str, image: &str| {
            json!({
                "name": name,
                "image": image,
                "imageID": image,
                "containerID": format!("containerd://{}-{}", self.uid, self.restarts),
                "ready": ready,
                "started": ready,
                "restartCount": self.restarts,
                "state": state,
            })
        };
        containers
            .iter()
            .map(|container| status(&container.name, container.image.as_deref().unwrap_or_default()))
            .collect()
    }

    /// An address in 10.128.0.0/9, from the UID; two pods may share one, which nobody minds here.
    fn address(&self) -> String {
        let number = self.uid.bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        let [_, b, c, d] = number.to_be_bytes();
        format!("10.{}.{c}.{d}", 128 | b)
    }
}

/// Sleeps until then, or for ever.
async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_every_way_to_stop_is_understood() {
        let all = [
            Stopping::After(Duration::ZERO),
            Stopping::After(Duration::from_millis(2500)),
            Stopping::WhenKilled,
            Stopping::Never,
        ];
        for stopping in all {
            let mut pod = Pod::default();
            pod.annotations_mut().insert(STOPS_AFTER_ANNOTATION.to_owned(), stopping.to_string());
            assert_eq!(Stopping::of(&pod), stopping);
        }
    }
}
