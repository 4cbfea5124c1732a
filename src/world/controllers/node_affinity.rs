//! Which nodes a pod asks for
//! (<https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#node-affinity>).

use serde_json::{Value, json};

use super::selector::Requirement;

/// Where the terms are that a node must meet one of.
const TERMS: &str = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";

/// Whether the node meets the pod's `nodeSelector` and its required node affinity.
pub fn matches(spec: &Value, node: &Value) -> bool {
    let labels = &node["metadata"]["labels"];
    let mut selector = spec["nodeSelector"].as_object().into_iter().flatten();
    let terms = spec.pointer(TERMS).and_then(Value::as_array);
    selector.all(|(key, value)| labels[key.as_str()] == *value)
        && terms.is_none_or(|terms| terms.iter().any(|term| meets(term, node)))
}

/// A term without requirements is met by no node.
fn meets(term: &Value, node: &Value) -> bool {
    let entries = |field: &str| term[field].as_array().map_or(&[][..], Vec::as_slice);
    let (expressions, fields) = (entries("matchExpressions"), entries("matchFields"));
    let metadata = &node["metadata"];
    let label_is_right = |entry: &Value| {
        let requirement = Requirement::new(entry);
        requirement.is_met(metadata["labels"][requirement.key()].as_str())
    };
    let field_is_right = |entry: &Value| {
        let requirement = Requirement::new(entry);
        requirement.key() == "metadata.name" && requirement.is_met(metadata["name"].as_str())
    };
    !(expressions.is_empty() && fields.is_empty())
        && expressions.iter().all(label_is_right)
        && fields.iter().all(field_is_right)
}

/// The one node that a pod can go to, if its affinity names it, as that of a DaemonSet's pod does.
pub fn only_node(spec: &Value) -> Option<&str> {
    let mut names = spec.pointer(TERMS)?.as_array()?.iter().map(|term| {
        let [field] = term["matchFields"].as_array()?.as_slice() else { return None };
        let [name] = field["values"].as_array()?.as_slice() else { return None };
        if field["key"] == "metadata.name" && field["operator"] == "In" { name.as_str() } else { None }
    });
    let first = names.next()??;
    names.all(|name| name == Some(first)).then_some(first)
}

/// Makes a node the only one that a pod can go to, with whatever else its affinity asks for.
pub fn pin(spec: &mut Value, node: &str) {
    let fields = json!([{"key": "metadata.name", "operator": "In", "values": [node]}]);
    if let Some(terms) = spec.pointer_mut(TERMS).and_then(Value::as_array_mut).filter(|terms| !terms.is_empty()) {
        for term in terms {
            term["matchFields"] = fields.clone();
        }
        return;
    }
    spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
        json!({"nodeSelectorTerms": [{"matchFields": fields}]});
}
