//! The conditions in an object's status.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::timestamp::seconds;

/// The condition of this type.
pub fn find<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// `True`, `False` or `Unknown`, if the object has the condition.
pub fn status<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    find(object, kind)?["status"].as_str()
}

/// Whether the object says so.
pub fn is_true(object: &Value, kind: &str) -> bool {
    status(object, kind) == Some("True")
}

/// A condition without its times, for [`set`].
pub fn new(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": message})
}

/// Writes a condition over the one of its type, or behind the others. Its `lastTransitionTime` is now if its status is
/// another than before; fields of the old one that the new one does not have go.
pub fn set(object: &mut Value, mut condition: Value, now: Timestamp) {
    if !object["status"]["conditions"].is_array() {
        object["status"]["conditions"] = json!([]);
    }
    let Some(conditions) = object["status"]["conditions"].as_array_mut() else { return };
    let old = conditions.iter_mut().find(|old| old["type"] == condition["type"]);
    condition["lastTransitionTime"] = match &old {
        Some(old) if old["status"] == condition["status"] && old["lastTransitionTime"].is_string() => {
            old["lastTransitionTime"].clone()
        }
        _ => seconds(now).into(),
    };
    match old {
        Some(old) => *old = condition,
        None => conditions.push(condition),
    }
}
