//! Who wrote `spec.unschedulable` of a node
//! (<https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management>).
//!
//! The managers of all other fields are not kept: nobody here asks for them.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::writing::{metadata, seconds};

/// Notes who cordons a node. A manager owns the field from the write that changes it until somebody else changes it, and a
/// node that is not cordoned has no such field.
pub(super) fn note(before: &Value, after: &mut Value, manager: Option<&str>, now: Timestamp) {
    let is_cordoned = |node: &Value| node["spec"]["unschedulable"] == true;
    if is_cordoned(before) == is_cordoned(after) {
        return;
    }
    let cordoned = is_cordoned(after);
    let fields = metadata(after);
    fields.remove("managedFields");
    if let Some(manager) = manager.filter(|_| cordoned) {
        let entry = json!({
            "manager": manager,
            "operation": "Update",
            "apiVersion": "v1",
            "time": seconds(now),
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {"f:unschedulable": {}}},
        });
        fields.insert("managedFields".into(), json!([entry]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn managers(node: &Value) -> Vec<&str> {
        let entries = node["metadata"]["managedFields"].as_array().map(Vec::as_slice).unwrap_or_default();
        entries.iter().filter_map(|entry| entry["manager"].as_str()).collect()
    }

    #[test]
    fn the_cordon_is_owned_by_whoever_set_it_until_it_is_taken_away() {
        let schedulable = json!({"metadata": {"name": "n"}, "spec": {}});
        let mut cordoned = json!({"metadata": {"name": "n"}, "spec": {"unschedulable": true}});
        note(&schedulable, &mut cordoned, Some("kubectl-cordon"), Timestamp::UNIX_EPOCH);
        assert_eq!(managers(&cordoned), ["kubectl-cordon"]);

        let mut again = cordoned.clone();
        note(&cordoned, &mut again, Some("somebody"), Timestamp::UNIX_EPOCH);
        assert_eq!(managers(&again), ["kubectl-cordon"], "a write that changes nothing owns nothing");

        let mut uncordoned = cordoned.clone();
        uncordoned["spec"] = json!({});
        note(&cordoned, &mut uncordoned, Some("somebody"), Timestamp::UNIX_EPOCH);
        assert!(managers(&uncordoned).is_empty());
    }
}
