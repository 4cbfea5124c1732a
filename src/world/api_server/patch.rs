//! Patches: a JSON merge patch, a JSON patch, a strategic merge patch.

use serde_json::{Map, Value, json};

use super::kinds::{Kind, Status};
use super::refusal::Refusal;
use super::strategic;

/// A change to an object, as it came over HTTP.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Patch {
    /// RFC 7396.
    Merge(Value),
    /// RFC 6902: operations.
    Json(Vec<Value>),
    /// Kubernetes' own.
    Strategic(Value),
    /// The whole object anew.
    Replace(Value),
}

impl Patch {
    /// Takes a body for what its content type says.
    pub(super) fn new(kind: &Kind, content_type: &str, body: Value) -> Result<Self, Refusal> {
        let is_custom = kind.custom.is_some() || kind.status == Status::Custom;
        let decoded = |what: &str, into: &str| {
            Refusal::bad_request(format!(
                "error decoding patch: json: cannot unmarshal {what} into Go value of type {into}"
            ))
        };
        match content_type.split(';').next().unwrap_or_default().trim() {
            "application/json-patch+json" => match body {
                Value::Array(operations) => Ok(Self::Json(operations)),
                other => Err(decoded(name_of_type(&other), "[]handlers.jsonPatchOp")),
            },
            "application/merge-patch+json" | "application/strategic-merge-patch+json" if !body.is_object() => {
                Err(decoded(name_of_type(&body), "map[string]interface {}"))
            }
            "application/merge-patch+json" => Ok(Self::Merge(body)),
            "application/strategic-merge-patch+json" if is_custom => Err(Refusal::new(
                415,
                "UnsupportedMediaType",
                "the body of the request was in an unknown format - accepted media types include: \
                 application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            )),
            "application/strategic-merge-patch+json" => Ok(Self::Strategic(body)),
            "application/apply-patch+yaml" | "application/apply-patch+cbor" => Err(Refusal::new(
                415,
                "UnsupportedMediaType",
                "this server does not know server-side apply: send a merge patch, a strategic merge patch or a JSON patch",
            )),
            _ => Err(Refusal::new(415, "UnsupportedMediaType", "415: Unsupported Media Type").with_details(json!({}))),
        }
    }

    /// Changes the object.
    pub(super) fn apply(self, object: &mut Value) -> Result<(), Refusal> {
        match self {
            Self::Merge(patch) => merge(object, patch),
            Self::Strategic(patch) => strategic::merge(object, patch),
            Self::Replace(new) => *object = new,
            Self::Json(operations) => {
                for operation in operations {
                    operate(object, &operation).ok_or_else(|| {
                        let message = "the server rejected our request due to an error in our request";
                        Refusal::new(422, "Invalid", message).with_details(json!({}))
                    })?;
                }
            }
        }
        Ok(())
    }
}

fn name_of_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// <https://www.rfc-editor.org/rfc/rfc7396#section-2>
fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else { return };
    for (key, value) in patch {
        if value.is_null() {
            target.remove(&key);
        } else {
            merge(target.entry(key).or_insert(Value::Null), value);
        }
    }
}

/// Does one operation of a JSON patch, or returns `None`.
fn operate(object: &mut Value, operation: &Value) -> Option<()> {
    let path = operation["path"].as_str()?;
    let value = || operation.get("value").cloned().unwrap_or(Value::Null);
    match operation["op"].as_str()? {
        "add" => add(object, path, value()),
        "remove" => remove(object, path).map(drop),
        "replace" => {
            let found = object.pointer_mut(path)?;
            *found = value();
            Some(())
        }
        // What is not there is as good as null.
        "test" => (*object.pointer(path).unwrap_or(&Value::Null) == value()).then_some(()),
        "move" => {
            let moved = remove(object, operation["from"].as_str()?)?;
            add(object, path, moved)
        }
        "copy" => {
            let copied = object.pointer(operation["from"].as_str()?)?.clone();
            add(object, path, copied)
        }
        _ => None,
    }
}

/// The parent of what a pointer points to, and the name in it.
fn parent<'a>(object: &'a mut Value, path: &str) -> Option<(&'a mut Value, String)> {
    let (parent, name) = path.rsplit_once('/')?;
    Some((object.pointer_mut(parent)?, name.replace("~1", "/").replace("~0", "~")))
}

fn add(object: &mut Value, path: &str, value: Value) -> Option<()> {
    if path.is_empty() {
        *object = value;
        return Some(());
    }
    match parent(object, path)? {
        (Value::Object(map), name) => drop(map.insert(name, value)),
        (Value::Array(list), name) => {
            let index = if name == "-" { list.len() } else { name.parse().ok()? };
            if index > list.len() {
                return None;
            }
            list.insert(index, value);
        }
        _ => return None,
    }
    Some(())
}

fn remove(object: &mut Value, path: &str) -> Option<Value> {
    match parent(object, path)? {
        (Value::Object(map), name) => map.remove(&name),
        (Value::Array(list), name) => {
            let index: usize = name.parse().ok()?;
            (index < list.len()).then(|| list.remove(index))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patched(object: &Value, operations: Value) -> Result<Value, Refusal> {
        let mut object = object.clone();
        let Value::Array(operations) = operations else { panic!("operations are a list") };
        Patch::Json(operations).apply(&mut object).map(|()| object)
    }

    #[test]
    fn a_merge_patch_removes_what_is_null_and_replaces_lists() {
        let mut object = json!({"a": {"b": 1, "c": 2}, "list": [1, 2]});
        merge(&mut object, json!({"a": {"b": null, "d": {"e": null, "f": 1}}, "list": [3]}));
        assert_eq!(object, json!({"a": {"c": 2, "d": {"f": 1}}, "list": [3]}));
    }

    #[test]
    fn a_json_patch_tests_before_it_writes() {
        let node = json!({"metadata": {"resourceVersion": "7"}, "spec": {"taints": [{"key": "a"}]}});
        let test = json!({"op": "test", "path": "/metadata/resourceVersion", "value": "7"});
        let append = json!({"op": "add", "path": "/spec/taints/-", "value": {"key": "b"}});
        let after = patched(&node, json!([test, append])).unwrap();
        assert_eq!(after["spec"]["taints"], json!([{"key": "a"}, {"key": "b"}]));
        let stale = json!({"op": "test", "path": "/metadata/resourceVersion", "value": "6"});
        let refusal = patched(&node, json!([stale, append])).unwrap_err();
        assert_eq!((refusal.code, refusal.reason, refusal.details), (422, "Invalid", Some(json!({}))));
    }

    #[test]
    fn a_missing_list_can_be_tested_for_and_made_but_not_appended_to() {
        let node = json!({"spec": {}});
        let test = json!({"op": "test", "path": "/spec/taints", "value": null});
        let make = json!({"op": "add", "path": "/spec/taints", "value": [{"key": "a"}]});
        assert_eq!(patched(&node, json!([test, make])).unwrap()["spec"]["taints"], json!([{"key": "a"}]));
        assert!(patched(&node, json!([{"op": "add", "path": "/spec/taints/-", "value": {}}])).is_err());
        assert!(patched(&node, json!([{"op": "remove", "path": "/spec/taints/0"}])).is_err());
    }

    #[test]
    fn a_key_with_a_slash_is_written_with_a_tilde() {
        let object = json!({"labels": {"x.io/a": "1"}});
        let after = patched(&object, json!([{"op": "replace", "path": "/labels/x.io~1a", "value": "2"}])).unwrap();
        assert_eq!(after, json!({"labels": {"x.io/a": "2"}}));
        let after = patched(&object, json!([{"op": "remove", "path": "/labels/x.io~1a"}])).unwrap();
        assert_eq!(after, json!({"labels": {}}));
    }
}
