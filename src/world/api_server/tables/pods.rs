//! The row of a pod, whose state `kubectl` puts together from many places
//! (`printPod` in <https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/printers/internalversion/printers.go>).

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{since, text_or_none};

/// The cells of a pod.
pub(super) fn cells(pod: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let state = State::of(pod);
    let restarts = match state.last_restart {
        Some(time) if state.restarts > 0 => format!("{} ({} ago)", state.restarts, since(time, now)),
        _ => state.restarts.to_string(),
    };
    let containers = list(&spec["containers"]).len();
    vec![
        pod["metadata"]["name"].clone(),
        json!(format!("{}/{containers}", state.ready)),
        json!(state.reason),
        json!(restarts),
        json!(since(&pod["metadata"]["creationTimestamp"], now)),
        json!(text_or_none(&status["podIPs"][0]["ip"])),
        json!(text_or_none(&spec["nodeName"])),
        json!(text_or_none(&status["nominatedNodeName"])),
        json!(readiness_gates(pod)),
    ]
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn has_condition(pod: &Value, kind: &str) -> bool {
    list(&pod["status"]["conditions"]).iter().any(|one| one["type"] == kind && one["status"] == "True")
}

fn readiness_gates(pod: &Value) -> String {
    let gates = list(&pod["spec"]["readinessGates"]);
    if gates.is_empty() {
        return "<none>".into();
    }
    let open = gates.iter().filter(|gate| gate["conditionType"].as_str().is_some_and(|kind| has_condition(pod, kind)));
    format!("{}/{}", open.count(), gates.len())
}

#[derive(Debug, Default)]
struct State<'a> {
    reason: String,
    ready: usize,
    restarts: i64,
    last_restart: Option<&'a Value>,
}

impl<'a> State<'a> {
    fn of(pod: &'a Value) -> Self {
        let status = &pod["status"];
        let phase = status["phase"].as_str().unwrap_or_default();
        let reason = status["reason"].as_str().filter(|reason| !reason.is_empty()).unwrap_or(phase);
        let mut state = Self { reason: reason.to_owned(), ..Self::default() };
        if !state.is_initializing(pod) || has_condition(pod, "Initialized") {
            state.look_at_containers(pod);
        }
        if !pod["metadata"]["deletionTimestamp"].is_null() {
            if status["reason"] == "NodeLost" {
                state.reason = "Unknown".into();
            } else if !matches!(phase, "Succeeded" | "Failed") {
                state.reason = "Terminating".into();
            }
        }
        state
    }

    /// Whether an init container has not done its work, of which the reason tells then.
    fn is_initializing(&mut self, pod: &'a Value) -> bool {
        let all = list(&pod["spec"]["initContainers"]).len();
        for (index, container) in list(&pod["status"]["initContainerStatuses"]).iter().enumerate() {
            self.count_restarts(container);
            let state = &container["state"];
            let waits_for = state["waiting"]["reason"].as_str().filter(|reason| *reason != "PodInitializing");
            self.reason = match ended(state) {
                Some((_, 0)) => continue,
                Some((reason, _)) => format!("Init:{reason}"),
                None => waits_for.map_or_else(|| format!("Init:{index}/{all}"), |reason| format!("Init:{reason}")),
            };
            return true;
        }
        false
    }

    fn look_at_containers(&mut self, pod: &'a Value) {
        self.restarts = 0;
        self.last_restart = None;
        let mut is_running = false;
        let mut failure = None;
        for container in list(&pod["status"]["containerStatuses"]).iter().rev() {
            self.count_restarts(container);
            let state = &container["state"];
            let waits_for = state["waiting"]["reason"].as_str().filter(|reason| !reason.is_empty());
            if let Some(reason) = waits_for {
                reason.clone_into(&mut self.reason);
            } else if let Some((reason, code)) = ended(state) {
                if code != 0 {
                    failure = Some(reason.clone());
                }
                self.reason = reason;
            } else if container["ready"] == true && !state["running"].is_null() {
                is_running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" {
            if is_running && has_condition(pod, "Ready") {
                self.reason = "Running".into();
            } else if let Some(failure) = failure {
                self.reason = failure;
            } else if is_running {
                self.reason = "NotReady".into();
            }
        }
    }

    fn count_restarts(&mut self, container: &'a Value) {
        self.restarts += container["restartCount"].as_i64().unwrap_or_default();
        let ended = &container["lastState"]["terminated"]["finishedAt"];
        // Times of the same form are in order as texts.
        if ended.is_string() && self.last_restart.is_none_or(|last| last.as_str() < ended.as_str()) {
            self.last_restart = Some(ended);
        }
    }
}

/// Why a container has ended, and its exit code.
fn ended(state: &Value) -> Option<(String, i64)> {
    let ended = state["terminated"].as_object()?;
    let number = |field: &str| ended.get(field).and_then(Value::as_i64).unwrap_or_default();
    let reason = ended.get("reason").and_then(Value::as_str).filter(|reason| !reason.is_empty());
    let reason = match (reason, number("signal")) {
        (Some(reason), _) => reason.to_owned(),
        (None, 0) => format!("ExitCode:{}", number("exitCode")),
        (None, signal) => format!("Signal:{signal}"),
    };
    Some((reason, number("exitCode")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(status: &Value, metadata: &Value) -> Vec<String> {
        let pod = json!({"metadata": metadata, "spec": {"containers": [{"name": "c"}]}, "status": status});
        let now = "2026-01-01T01:00:00Z".parse().unwrap();
        cells(&pod, now)[1..4].iter().map(|cell| cell.as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn the_state_of_a_pod_comes_from_its_containers_and_its_end() {
        let running = json!({"phase": "Running", "containerStatuses": [{"ready": true, "restartCount": 2,
            "state": {"running": {}}, "lastState": {"terminated": {"finishedAt": "2026-01-01T00:30:00Z"}}}]});
        assert_eq!(row(&running, &json!({})), ["1/1", "Running", "2 (30m ago)"]);
        assert_eq!(row(&running, &json!({"deletionTimestamp": "2026-01-01T01:00:00Z"}))[1], "Terminating");
        let ended = |reason: &str, code: i64| {
            json!({"phase": "Failed", "containerStatuses": [{"ready": false, "restartCount": 0,
                "state": {"terminated": {"exitCode": code, "reason": reason}}}]})
        };
        assert_eq!(row(&ended("Completed", 0), &json!({})), ["0/1", "Completed", "0"]);
        assert_eq!(row(&ended("", 137), &json!({}))[1], "ExitCode:137");
        assert_eq!(row(&json!({"phase": "Failed", "reason": "Evicted"}), &json!({}))[1], "Evicted");
    }
}
