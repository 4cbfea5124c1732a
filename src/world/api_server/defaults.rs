//! What the server fills in, and what it leaves out because it means nothing.

use serde_json::{Map, Value, json};

use super::custom_resources::established;
use super::kinds::{
    CUSTOM_RESOURCE_DEFINITIONS, DAEMON_SETS, DEPLOYMENTS, DISRUPTION_BUDGETS, EVENTS, LEASES, NAMESPACES, NODES, PODS,
    PRIORITY_CLASSES, REPLICA_SETS, STATEFUL_SETS,
};
use super::store::{Key, Locked};
use super::writing::metadata;

/// The label of a namespace with its name.
const NAMESPACE_LABEL: &str = "kubernetes.io/metadata.name";

/// The taint of a node that has not yet said that it is ready.
const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// The taint of a node of which nothing is heard.
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// For how long pods stay on a node that is not ready or not reachable.
const STAY_SECONDS: i64 = 300;

/// Takes out of an object what Kubernetes' own types do not write: empty lists and maps, and a false `unschedulable`.
pub(super) fn tidy(object: &mut Value) {
    let drop_empty = |map: Option<&mut Map<String, Value>>, fields: &[&str]| {
        let Some(map) = map else { return };
        for field in fields {
            if map.get(*field).is_some_and(is_nothing) {
                map.remove(*field);
            }
        }
    };
    let metadata = ["labels", "annotations", "finalizers", "ownerReferences", "managedFields", "generateName"];
    drop_empty(object.get_mut("metadata").and_then(Value::as_object_mut), &metadata);
    let spec = ["taints", "tolerations", "unschedulable", "nodeSelector", "volumes", "nodeName", "priorityClassName"];
    drop_empty(object.get_mut("spec").and_then(Value::as_object_mut), &spec);
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Bool(true) | Value::Number(_) => false,
    }
}

/// Takes every null out of an object, deep down: Kubernetes' types read it as absent.
pub(super) fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(list) => list.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// Sets a field that is not there.
fn default(object: &mut Value, field: &str, value: Value) {
    if object[field].is_null() {
        object[field] = value;
    }
}

/// Fills a new object with what its kind has by default.
pub(super) fn fill(resource: &str, object: &mut Value) {
    match resource {
        PODS => fill_pod(object),
        NODES => fill_node(object),
        NAMESPACES => fill_namespace(object),
        EVENTS => fill_event(object),
        LEASES => default(object, "spec", json!({})),
        PRIORITY_CLASSES => default(object, "preemptionPolicy", json!("PreemptLowerPriority")),
        DISRUPTION_BUDGETS => {
            default(object, "spec", json!({}));
            object["status"] =
                json!({"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0});
        }
        DEPLOYMENTS | REPLICA_SETS | STATEFUL_SETS | DAEMON_SETS => fill_workload(resource, object),
        CUSTOM_RESOURCE_DEFINITIONS => fill_definition(object),
        _ => {}
    }
}

/// Fills in what a change may have taken out or brought in without it.
pub(super) fn fill_changed(resource: &str, object: &mut Value) {
    match resource {
        NAMESPACES => label_with_name(object),
        DEPLOYMENTS | REPLICA_SETS | STATEFUL_SETS | DAEMON_SETS => {
            fill_pod_spec(&mut object["spec"]["template"]["spec"]);
        }
        _ => {}
    }
}

fn fill_pod(pod: &mut Value) {
    fill_pod_spec(&mut pod["spec"]);
    let spec = &mut pod["spec"];
    default(spec, "enableServiceLinks", json!(true));
    default(spec, "preemptionPolicy", json!("PreemptLowerPriority"));
    default(spec, "serviceAccountName", json!("default"));
    spec["serviceAccount"] = spec["serviceAccountName"].clone();
    for key in [NOT_READY, UNREACHABLE] {
        tolerate(spec, key);
    }
    pod["status"] = json!({"phase": "Pending", "qosClass": quality_of_service(&pod["spec"])});
}

/// Pods stay for some minutes on a node that is not ready, unless they say how long themselves.
fn tolerate(spec: &mut Value, key: &str) {
    default(spec, "tolerations", json!([]));
    let Some(tolerations) = spec["tolerations"].as_array_mut() else { return };
    let says_so = |toleration: &Value| {
        let named = toleration["key"].as_str().unwrap_or_default();
        let effect = toleration["effect"].as_str().unwrap_or_default();
        (named == key || named.is_empty()) && (effect == "NoExecute" || effect.is_empty())
    };
    if !tolerations.iter().any(says_so) {
        tolerations.push(json!({
            "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": STAY_SECONDS,
        }));
    }
}

/// What pods and the templates of pods have in common.
fn fill_pod_spec(spec: &mut Value) {
    default(spec, "restartPolicy", json!("Always"));
    default(spec, "terminationGracePeriodSeconds", json!(30));
    default(spec, "dnsPolicy", json!("ClusterFirst"));
    default(spec, "schedulerName", json!("default-scheduler"));
    default(spec, "securityContext", json!({}));
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let image = container["image"].as_str().unwrap_or_default();
            let name = image.rsplit('/').next().unwrap_or_default();
            let is_latest = !image.contains('@') && name.split_once(':').is_none_or(|(_, tag)| tag == "latest");
            default(container, "imagePullPolicy", json!(if is_latest { "Always" } else { "IfNotPresent" }));
            default(container, "resources", json!({}));
            default(container, "terminationMessagePath", json!("/dev/termination-log"));
            default(container, "terminationMessagePolicy", json!("File"));
        }
    }
}

/// <https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/>
fn quality_of_service(spec: &Value) -> &'static str {
    let containers = spec["containers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let resources = |container: &'_ Value, which: &str, what: &str| container["resources"][which][what].clone();
    let mut is_guaranteed = !containers.is_empty();
    let mut asks = false;
    for container in containers {
        for what in ["cpu", "memory"] {
            let (limit, request) = (resources(container, "limits", what), resources(container, "requests", what));
            asks |= !limit.is_null() || !request.is_null();
            is_guaranteed &= !limit.is_null() && (request.is_null() || request == limit);
        }
    }
    match (asks, is_guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// Gives a pod the priority of its class.
pub(super) fn set_priority(locked: &Locked<'_>, pod: &mut Value) -> Result<(), String> {
    let class = pod["spec"]["priorityClassName"].as_str().unwrap_or_default();
    let priority = match class {
        "" => 0,
        "system-node-critical" => 2_000_001_000,
        "system-cluster-critical" => 2_000_000_000,
        class => match locked.get(PRIORITY_CLASSES, &Key::new("", class)) {
            Some(found) => found["value"].as_i64().unwrap_or_default(),
            None => return Err(format!("no PriorityClass with name {class} was found")),
        },
    };
    pod["spec"]["priority"] = priority.into();
    Ok(())
}

fn fill_node(node: &mut Value) {
    default(node, "spec", json!({}));
    default(&mut node["spec"], "taints", json!([]));
    if let Some(taints) = node["spec"]["taints"].as_array_mut()
        && !taints.iter().any(|taint| taint["key"] == NOT_READY && taint["effect"] == "NoSchedule")
    {
        taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
    }
    default(node, "status", json!({}));
    default(&mut node["status"], "daemonEndpoints", json!({"kubeletEndpoint": {"Port": 0}}));
    default(&mut node["status"], "nodeInfo", json!({}));
    for field in [
        "architecture",
        "bootID",
        "containerRuntimeVersion",
        "kernelVersion",
        "kubeProxyVersion",
        "kubeletVersion",
        "machineID",
        "operatingSystem",
        "osImage",
        "systemUUID",
    ] {
        default(&mut node["status"]["nodeInfo"], field, json!(""));
    }
}

fn label_with_name(namespace: &mut Value) {
    let name = namespace["metadata"]["name"].clone();
    let fields = metadata(namespace);
    if let Some(labels) = fields.entry("labels").or_insert_with(|| json!({})).as_object_mut() {
        labels.insert(NAMESPACE_LABEL.into(), name);
    }
}

fn fill_namespace(namespace: &mut Value) {
    label_with_name(namespace);
    namespace["spec"] = json!({"finalizers": ["kubernetes"]});
    namespace["status"] = json!({"phase": "Active"});
}

fn fill_event(event: &mut Value) {
    default(event, "involvedObject", json!({}));
    default(event, "source", json!({}));
    for time in ["firstTimestamp", "lastTimestamp", "eventTime"] {
        default(event, time, Value::Null);
    }
    for text in ["reportingComponent", "reportingInstance"] {
        default(event, text, json!(""));
    }
}

fn fill_workload(resource: &str, workload: &mut Value) {
    default(workload, "spec", json!({}));
    let spec = &mut workload["spec"];
    default(spec, "template", json!({}));
    fill_pod_spec(&mut spec["template"]["spec"]);
    if resource != DAEMON_SETS {
        default(spec, "replicas", json!(1));
    }
    if resource != REPLICA_SETS {
        default(spec, "revisionHistoryLimit", json!(10));
    }
    match resource {
        DEPLOYMENTS => {
            default(spec, "progressDeadlineSeconds", json!(600));
            default(spec, "strategy", json!({"type": "RollingUpdate"}));
            if spec["strategy"]["type"] == "RollingUpdate" {
                default(&mut spec["strategy"], "rollingUpdate", json!({}));
                default(&mut spec["strategy"]["rollingUpdate"], "maxUnavailable", json!("25%"));
                default(&mut spec["strategy"]["rollingUpdate"], "maxSurge", json!("25%"));
            }
            workload["status"] = json!({});
        }
        STATEFUL_SETS => {
            default(spec, "podManagementPolicy", json!("OrderedReady"));
            default(spec, "updateStrategy", json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}));
            let retention = json!({"whenDeleted": "Retain", "whenScaled": "Retain"});
            default(spec, "persistentVolumeClaimRetentionPolicy", retention);
            workload["status"] = json!({"replicas": 0, "availableReplicas": 0});
        }
        DAEMON_SETS => {
            let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}});
            default(spec, "updateStrategy", rolling);
            workload["status"] = json!({
                "currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 0, "numberReady": 0,
            });
        }
        _ => workload["status"] = json!({"replicas": 0}),
    }
}

fn fill_definition(definition: &mut Value) {
    default(definition, "spec", json!({}));
    let spec = &mut definition["spec"];
    default(spec, "conversion", json!({"strategy": "None"}));
    default(spec, "names", json!({}));
    let kind = spec["names"]["kind"].as_str().unwrap_or_default().to_owned();
    default(&mut spec["names"], "singular", json!(kind.to_lowercase()));
    default(&mut spec["names"], "listKind", json!(format!("{kind}List")));
    let at = definition["metadata"]["creationTimestamp"].clone();
    definition["status"] = established(&definition["spec"]["names"], &definition["spec"]["versions"], &at);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_tolerates_a_node_that_is_not_ready_for_five_minutes_unless_it_says_how_long_itself() {
        let mut pod =
            json!({"spec": {"tolerations": [{"key": NOT_READY, "operator": "Exists", "tolerationSeconds": 5}]}});
        fill(PODS, &mut pod);
        let tolerations: Vec<_> = pod["spec"]["tolerations"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| (one["key"].as_str().unwrap(), one["tolerationSeconds"].as_i64()))
            .collect();
        assert_eq!(tolerations, [(NOT_READY, Some(5)), (UNREACHABLE, Some(300))]);
    }

    #[test]
    fn what_means_nothing_is_not_stored() {
        let mut node = json!({"metadata": {"name": "n", "labels": {}}, "spec": {"unschedulable": false, "taints": []}});
        tidy(&mut node);
        assert_eq!(node, json!({"metadata": {"name": "n"}, "spec": {}}));
    }
}
