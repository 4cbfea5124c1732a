//! Taints and tolerations (<https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/>).

use serde_json::Value;

/// On a node whose kubelet says that it is not Ready.
pub const NOT_READY: &str = "node.kubernetes.io/not-ready";
/// On a node whose kubelet says nothing.
pub const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// On a node that is cordoned.
pub const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// On a node whose machine somebody knows to be off.
pub const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// No new pod comes.
pub const NO_SCHEDULE: &str = "NoSchedule";
/// No new pod comes, and those that are there go.
pub const NO_EXECUTE: &str = "NoExecute";

/// The taints of a node.
pub fn taints(node: &Value) -> &[Value] {
    node["spec"]["taints"].as_array().map_or(&[], Vec::as_slice)
}

/// Whether the node has the taint.
pub fn has(node: &Value, key: &str, effect: &str) -> bool {
    taints(node).iter().any(|taint| taint["key"] == key && taint["effect"] == effect)
}

/// The tolerations in a pod's spec.
pub fn tolerations(spec: &Value) -> &[Value] {
    spec["tolerations"].as_array().map_or(&[], Vec::as_slice)
}

/// Whether one of the tolerations bears the taint.
pub fn is_tolerated(taint: &Value, tolerations: &[Value]) -> bool {
    tolerations.iter().any(|toleration| bears(toleration, taint))
}

/// Whether the toleration bears the taint.
pub fn bears(toleration: &Value, taint: &Value) -> bool {
    let text = |field: &'static str| toleration[field].as_str().unwrap_or_default();
    let same = |field: &'static str| text(field) == taint[field].as_str().unwrap_or_default();
    (text("effect").is_empty() || same("effect"))
        && (text("key").is_empty() || same("key"))
        && match text("operator") {
            "Exists" => true,
            "" | "Equal" => !text("key").is_empty() && same("value"),
            _ => false,
        }
}
