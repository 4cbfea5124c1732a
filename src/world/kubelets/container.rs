//! What runs in a pod: how it behaves, and what the kubelet says of it.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::machine_spec::address;
use crate::world::controllers::condition;
use crate::world::controllers::timestamp::seconds;

/// Annotation on a pod: how it behaves on SIGTERM. A time such as `3s` after which it stops (at once if absent), `never` if
/// it ignores SIGTERM, or `stuck` if it survives even the kill, as a process in uninterruptible sleep does.
pub const STOPS_AFTER_ANNOTATION: &str = "world.remediator.dev/stops-after";

/// Annotation on a pod: time from its start until it is Ready, such as `5s`; 1 s if absent.
pub const READY_AFTER_ANNOTATION: &str = "world.remediator.dev/ready-after";

/// Annotation on a pod: time from when it is Ready until its work is done, such as `60s`; never if absent.
pub const FINISHES_AFTER_ANNOTATION: &str = "world.remediator.dev/finishes-after";

/// Annotation on a pod: the phase in which it finishes, `Succeeded` (also if absent) or `Failed`.
pub const FINALLY_ANNOTATION: &str = "world.remediator.dev/finally";

/// From when a kubelet sees a pod until its containers run.
pub(super) const START: Duration = Duration::from_secs(1);

/// What a pod does on SIGTERM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stopping {
    /// Stops after this time.
    After(Duration),
    /// Runs until it is killed.
    WhenKilled,
    /// Runs on.
    Never,
}

impl Stopping {
    pub(super) fn of(pod: &Value) -> Self {
        match annotation(pod, STOPS_AFTER_ANNOTATION) {
            Some("never") => Self::WhenKilled,
            Some("stuck") => Self::Never,
            Some(text) => Self::After(parse_seconds(text).unwrap_or_default()),
            None => Self::After(Duration::ZERO),
        }
    }
}

pub(super) fn ready_after(pod: &Value) -> Duration {
    annotation(pod, READY_AFTER_ANNOTATION).and_then(parse_seconds).unwrap_or(START)
}

pub(super) fn finishes_after(pod: &Value) -> Option<Duration> {
    annotation(pod, FINISHES_AFTER_ANNOTATION).and_then(parse_seconds)
}

/// How the containers ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    /// By themselves, and well.
    Success,
    /// By themselves, with an error.
    Failure,
    /// By SIGKILL.
    Killed,
}

impl Exit {
    /// How the work of this pod ends.
    pub(super) fn of_work(pod: &Value) -> Self {
        if annotation(pod, FINALLY_ANNOTATION) == Some("Failed") { Self::Failure } else { Self::Success }
    }
}

fn annotation<'a>(pod: &'a Value, key: &str) -> Option<&'a str> {
    pod["metadata"]["annotations"][key].as_str()
}

/// Seconds written as `5s` or `0.5s`.
fn parse_seconds(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(text.strip_suffix('s')?.parse().ok()?).ok()
}

/// How often the pod's containers have been started again.
pub(super) fn restarts(pod: &Value) -> i64 {
    let statuses = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
    statuses.filter_map(|status| status["restartCount"].as_i64()).max().unwrap_or_default()
}

/// Says that the containers run.
pub(super) fn write_running(pod: &mut Value, ready: bool, restarts: i64, now: Timestamp) {
    let uid = pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let address = address(&uid, 10, 244);
    let host = address_of_node(pod);
    let status = &mut pod["status"];
    status["phase"] = json!("Running");
    if status["startTime"].is_null() {
        status["startTime"] = json!(seconds(now));
    }
    status["hostIP"] = json!(host);
    status["podIP"] = json!(address);
    status["podIPs"] = json!([{"ip": address}]);
    condition::set(pod, json!({"type": "Initialized", "status": "True"}), now);
    write_readiness(pod, ready, now);
    let known = &pod["status"]["containerStatuses"][0]["state"];
    let has_run_before = known["running"].is_object() && restarts == self::restarts(pod);
    let state = if has_run_before { known.clone() } else { json!({"running": {"startedAt": seconds(now)}}) };
    write_containers(pod, ready, restarts, &state);
}

/// Says that the containers have ended.
pub(super) fn write_ended(pod: &mut Value, exit: Exit, restarts: i64, now: Timestamp) {
    let (phase, code, reason) = match exit {
        Exit::Success => ("Succeeded", 0, "Completed"),
        Exit::Failure => ("Failed", 1, "Error"),
        Exit::Killed => ("Failed", 137, "Error"),
    };
    pod["status"]["phase"] = json!(phase);
    write_readiness(pod, false, now);
    let state = json!({"terminated": {"exitCode": code, "reason": reason, "finishedAt": seconds(now)}});
    write_containers(pod, false, restarts, &state);
}

fn write_readiness(pod: &mut Value, ready: bool, now: Timestamp) {
    let status = if ready { "True" } else { "False" };
    for kind in ["ContainersReady", "Ready"] {
        condition::set(pod, json!({"type": kind, "status": status}), now);
    }
}

fn write_containers(pod: &mut Value, ready: bool, restarts: i64, state: &Value) {
    let containers = pod["spec"]["containers"].as_array().cloned().unwrap_or_default();
    let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
    let status = |container: &Value| {
        json!({
            "name": container["name"],
            "image": container["image"],
            "imageID": container["image"],
            "containerID": format!("containerd://{uid}-{restarts}"),
            "ready": ready,
            "started": ready,
            "restartCount": restarts,
            "state": state,
        })
    };
    pod["status"]["containerStatuses"] = containers.iter().map(status).collect();
}

fn address_of_node(pod: &Value) -> String {
    address(pod["spec"]["nodeName"].as_str().unwrap_or_default(), 10, 224)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_stop_is_understood() {
        for (text, stopping) in [
            ("0s", Stopping::After(Duration::ZERO)),
            ("2.5s", Stopping::After(Duration::from_millis(2500))),
            ("never", Stopping::WhenKilled),
            ("stuck", Stopping::Never),
        ] {
            let pod = json!({"metadata": {"annotations": {STOPS_AFTER_ANNOTATION: text}}});
            assert_eq!(Stopping::of(&pod), stopping, "{text}");
        }
    }
}
