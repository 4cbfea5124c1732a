//! The columns of the kinds of Kubernetes
//! (<https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/printers/internalversion/printers.go>).

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::kinds::{
    DAEMON_SETS, DEPLOYMENTS, DISRUPTION_BUDGETS, EVENTS, Kind, LEASES, NAMESPACES, NODES, PODS, REPLICA_SETS,
    STATEFUL_SETS,
};
use super::{pods, since, text_or_none};

/// A column: its heading, the type of its values, and 1 if it is shown with `-o wide` only.
pub(super) struct Column(pub(super) &'static str, pub(super) &'static str, pub(super) i64);

const NAME: Column = Column("Name", "string", 0);
const AGE: Column = Column("Age", "string", 0);

/// The columns of a kind.
pub(super) fn columns(kind: &Kind) -> &'static [Column] {
    match kind.stored().as_str() {
        PODS => &[
            NAME,
            Column("Ready", "string", 0),
            Column("Status", "string", 0),
            Column("Restarts", "string", 0),
            AGE,
            Column("IP", "string", 1),
            Column("Node", "string", 1),
            Column("Nominated Node", "string", 1),
            Column("Readiness Gates", "string", 1),
        ],
        NODES => &[
            NAME,
            Column("Status", "string", 0),
            Column("Roles", "string", 0),
            AGE,
            Column("Version", "string", 0),
            Column("Internal-IP", "string", 1),
            Column("External-IP", "string", 1),
            Column("OS-Image", "string", 1),
            Column("Kernel-Version", "string", 1),
            Column("Container-Runtime", "string", 1),
        ],
        NAMESPACES => &[NAME, Column("Status", "string", 0), AGE],
        EVENTS => &[
            Column("Last Seen", "string", 0),
            Column("Type", "string", 0),
            Column("Reason", "string", 0),
            Column("Object", "string", 0),
            Column("Subobject", "string", 1),
            Column("Source", "string", 1),
            Column("Message", "string", 0),
            Column("First Seen", "string", 1),
            Column("Count", "string", 1),
            Column("Name", "string", 1),
        ],
        LEASES => &[NAME, Column("Holder", "string", 0), AGE],
        DEPLOYMENTS => &[
            NAME,
            Column("Ready", "string", 0),
            Column("Up-to-date", "string", 0),
            Column("Available", "string", 0),
            AGE,
            Column("Containers", "string", 1),
            Column("Images", "string", 1),
            Column("Selector", "string", 1),
        ],
        REPLICA_SETS => &[
            NAME,
            Column("Desired", "integer", 0),
            Column("Current", "integer", 0),
            Column("Ready", "integer", 0),
            AGE,
            Column("Containers", "string", 1),
            Column("Images", "string", 1),
            Column("Selector", "string", 1),
        ],
        STATEFUL_SETS => {
            &[NAME, Column("Ready", "string", 0), AGE, Column("Containers", "string", 1), Column("Images", "string", 1)]
        }
        DAEMON_SETS => &[
            NAME,
            Column("Desired", "integer", 0),
            Column("Current", "integer", 0),
            Column("Ready", "integer", 0),
            Column("Up-to-date", "integer", 0),
            Column("Available", "integer", 0),
            Column("Node Selector", "string", 0),
            AGE,
            Column("Containers", "string", 1),
            Column("Images", "string", 1),
            Column("Selector", "string", 1),
        ],
        DISRUPTION_BUDGETS => &[
            NAME,
            Column("Min Available", "string", 0),
            Column("Max Unavailable", "string", 0),
            Column("Allowed Disruptions", "integer", 0),
            AGE,
        ],
        "configmaps" => &[NAME, Column("Data", "string", 0), AGE],
        _ if has_time_of_creation(kind) => &[NAME, Column("Created At", "date", 0)],
        _ => &[NAME, AGE],
    }
}

/// Some kinds show when an object was made instead of how old it is.
fn has_time_of_creation(kind: &Kind) -> bool {
    matches!(kind.plural.as_str(), "clusterroles" | "customresourcedefinitions")
}

/// The cells of an object, as many as there are columns.
pub(super) fn cells(kind: &Kind, object: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let name = object["metadata"]["name"].clone();
    let age = json!(since(&object["metadata"]["creationTimestamp"], now));
    let count = |field: &str| json!(status[field].as_i64().unwrap_or_default());
    let replicas = spec["replicas"].as_i64().unwrap_or_default();
    let template = &spec["template"]["spec"];
    let (containers, images) = (of_containers(template, "name"), of_containers(template, "image"));
    let selector = json!(selector(&spec["selector"]));
    match kind.stored().as_str() {
        PODS => pods::cells(object, now),
        NODES => node(object, now),
        NAMESPACES => vec![name, status["phase"].clone(), age],
        EVENTS => event(object, now),
        LEASES => vec![name, json!(spec["holderIdentity"].as_str().unwrap_or_default()), age],
        DEPLOYMENTS => {
            let ready = json!(format!("{}/{replicas}", count("readyReplicas")));
            vec![name, ready, count("updatedReplicas"), count("availableReplicas"), age, containers, images, selector]
        }
        REPLICA_SETS => {
            vec![name, json!(replicas), count("replicas"), count("readyReplicas"), age, containers, images, selector]
        }
        STATEFUL_SETS => {
            vec![name, json!(format!("{}/{replicas}", count("readyReplicas"))), age, containers, images]
        }
        DAEMON_SETS => vec![
            name,
            count("desiredNumberScheduled"),
            count("currentNumberScheduled"),
            count("numberReady"),
            count("updatedNumberScheduled"),
            count("numberAvailable"),
            json!(pairs(&template["nodeSelector"])),
            age,
            containers,
            images,
            selector,
        ],
        DISRUPTION_BUDGETS => {
            let limit = |field: &str| match &spec[field] {
                Value::Null => json!("N/A"),
                Value::String(percent) => json!(percent),
                number => json!(number.to_string()),
            };
            vec![name, limit("minAvailable"), limit("maxUnavailable"), count("disruptionsAllowed"), age]
        }
        "configmaps" => {
            let size = |field: &str| object[field].as_object().map_or(0, serde_json::Map::len);
            vec![name, json!(size("data") + size("binaryData")), age]
        }
        _ if has_time_of_creation(kind) => vec![name, object["metadata"]["creationTimestamp"].clone()],
        _ => vec![name, age],
    }
}

/// `c1,c2`, of all containers.
fn of_containers(spec: &Value, field: &str) -> Value {
    let containers = spec["containers"].as_array().into_iter().flatten();
    let values: Vec<&str> = containers.map(|container| container[field].as_str().unwrap_or_default()).collect();
    json!(values.join(","))
}

/// `a=b,c=d`, or `<none>`.
fn pairs(map: &Value) -> String {
    let pairs = map.as_object().into_iter().flatten();
    let pairs: Vec<String> =
        pairs.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    if pairs.is_empty() { "<none>".into() } else { pairs.join(",") }
}

/// A selector in its text form.
pub(in super::super) fn selector(selector: &Value) -> String {
    let mut parts: Vec<String> = Vec::new();
    if selector["matchLabels"].as_object().is_some_and(|labels| !labels.is_empty()) {
        parts.push(pairs(&selector["matchLabels"]));
    }
    for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
        let key = expression["key"].as_str().unwrap_or_default();
        let values = expression["values"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let values = values.collect::<Vec<_>>().join(",");
        parts.push(match expression["operator"].as_str() {
            Some("In") => format!("{key} in ({values})"),
            Some("NotIn") => format!("{key} notin ({values})"),
            Some("Exists") => key.to_owned(),
            _ => format!("!{key}"),
        });
    }
    if parts.is_empty() { "<none>".into() } else { parts.join(",") }
}

fn node(node: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&node["spec"], &node["status"]);
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    let ready = conditions.rfind(|condition| condition["type"] == "Ready");
    let mut state = match ready.map(|ready| ready["status"] == "True") {
        Some(true) => "Ready".to_owned(),
        Some(false) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if spec["unschedulable"] == true {
        state.push_str(",SchedulingDisabled");
    }
    let address = |kind: &str| {
        let addresses = status["addresses"].as_array().into_iter().flatten();
        let found = addresses.filter(|one| one["type"] == kind).find_map(|one| one["address"].as_str());
        json!(found.unwrap_or("<none>"))
    };
    let info = &status["nodeInfo"];
    let known = |field: &str| json!(info[field].as_str().filter(|text| !text.is_empty()).unwrap_or("<unknown>"));
    let mut kernel = known("kernelVersion").as_str().unwrap_or_default().to_owned();
    if let Some(architecture) = info["architecture"].as_str().filter(|text| !text.is_empty()) {
        kernel = format!("{kernel} ({architecture})");
    }
    vec![
        node["metadata"]["name"].clone(),
        json!(state),
        json!(roles(&node["metadata"]["labels"])),
        json!(since(&node["metadata"]["creationTimestamp"], now)),
        json!(info["kubeletVersion"].as_str().unwrap_or_default()),
        address("InternalIP"),
        address("ExternalIP"),
        known("osImage"),
        json!(kernel),
        known("containerRuntimeVersion"),
    ]
}

fn roles(labels: &Value) -> String {
    let roles: BTreeSet<&str> = labels
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None if key == "kubernetes.io/role" => value.as_str(),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    if roles.is_empty() { "<none>".into() } else { roles.into_iter().collect::<Vec<_>>().join(",") }
}

fn event(event: &Value, now: Timestamp) -> Vec<Value> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let seen = |fields: [&str; 2]| {
        let time = fields.iter().map(|field| &event[*field]).find(|time| time.is_string());
        since(time.unwrap_or(&Value::Null), now)
    };
    let first = seen(["firstTimestamp", "eventTime"]);
    let series = &event["series"];
    let last = if series.is_object() {
        since(&series["lastObservedTime"], now)
    } else if event["lastTimestamp"].is_string() {
        since(&event["lastTimestamp"], now)
    } else {
        first.clone()
    };
    let count = series["count"].as_i64().or(event["count"].as_i64()).filter(|count| *count > 0).unwrap_or(1);
    let object = &event["involvedObject"];
    let mut target = text(&object["kind"]).to_lowercase();
    if let Some(name) = object["name"].as_str().filter(|name| !name.is_empty()) {
        target = format!("{target}/{name}");
    }
    let first_of = |one: &Value, other: &Value| if text(one).is_empty() { text(other) } else { text(one) };
    let component = first_of(&event["source"]["component"], &event["reportingComponent"]);
    let instance = first_of(&event["source"]["host"], &event["reportingInstance"]);
    let source = if instance.is_empty() { component } else { format!("{component}, {instance}") };
    vec![
        json!(last),
        json!(text(&event["type"])),
        json!(text(&event["reason"])),
        json!(target),
        json!(text(&object["fieldPath"])),
        json!(source),
        json!(text(&event["message"]).trim()),
        json!(first),
        json!(count),
        json!(text_or_none(&event["metadata"]["name"])),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_says_whether_it_is_ready_and_takes_pods() {
        let state = |node: Value| cells_of_node(&node)[1].clone();
        assert_eq!(state(json!({})), "Unknown");
        let ready = json!([{"type": "Ready", "status": "True"}]);
        assert_eq!(state(json!({"status": {"conditions": ready}})), "Ready");
        assert_eq!(
            state(
                json!({"spec": {"unschedulable": true}, "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}})
            ),
            "NotReady,SchedulingDisabled"
        );
    }

    fn cells_of_node(object: &Value) -> Vec<Value> {
        node(object, Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn an_event_without_a_count_happened_once() {
        let now = "2026-01-01T00:01:00Z".parse().unwrap();
        let cells = event(
            &json!({"metadata": {"name": "e"}, "eventTime": "2026-01-01T00:00:30.000000Z", "type": "Normal", "reason": "Why",
                "involvedObject": {"kind": "Pod", "name": "x"}, "reportingComponent": "c", "reportingInstance": "i",
                "message": "hello "}),
            now,
        );
        let cells: Vec<String> = cells.iter().map(Value::to_string).collect();
        let expected =
            ["30s", "Normal", "Why", "pod/x", "", "c, i", "hello", "30s"].map(|text| json!(text).to_string());
        assert_eq!(cells[..8], expected);
        assert_eq!(cells[8..], ["1", "\"e\""]);
    }
}
