//! Strategic merge patches
//! (<https://github.com/kubernetes/community/blob/main/contributors/devel/sig-api-machinery/strategic-merge-patch.md>).
//!
//! Lists whose items have a key are merged item by item; all others, such as taints and tolerations, are replaced.

use serde_json::{Map, Value};

/// How the items of a list are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListKind {
    /// Items are objects that this field names.
    Keyed(&'static str),
    /// Items are plain values, each of them there once.
    Set,
    /// The list is one value.
    Atomic,
}

/// The merge keys of the lists of all kinds: they hardly ever differ between kinds.
fn list_kind(field: &str) -> ListKind {
    match field {
        "conditions" | "addresses" => ListKind::Keyed("type"),
        "containers"
        | "initContainers"
        | "ephemeralContainers"
        | "volumes"
        | "env"
        | "imagePullSecrets"
        | "secrets" => ListKind::Keyed("name"),
        "volumeMounts" => ListKind::Keyed("mountPath"),
        "volumeDevices" => ListKind::Keyed("devicePath"),
        "ports" => ListKind::Keyed("containerPort"),
        "ownerReferences" => ListKind::Keyed("uid"),
        "podIPs" | "hostIPs" | "hostAliases" => ListKind::Keyed("ip"),
        "topologySpreadConstraints" => ListKind::Keyed("topologyKey"),
        "finalizers" | "podCIDRs" => ListKind::Set,
        _ => ListKind::Atomic,
    }
}

/// Merges a patch into an object.
pub(super) fn merge(target: &mut Value, patch: Value) {
    let Value::Object(mut patch) = patch else {
        *target = patch;
        return;
    };
    match patch.remove("$patch").as_ref().and_then(Value::as_str) {
        Some("replace") => {
            *target = Value::Object(patch);
            return;
        }
        Some("delete") => {
            *target = Value::Object(Map::new());
            return;
        }
        _ => {}
    }
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else { return };
    if let Some(Value::Array(kept)) = patch.remove("$retainKeys") {
        target.retain(|field, _| kept.iter().any(|one| one == field));
    }
    let mut orders = Vec::new();
    let mut fields = Vec::new();
    for (field, value) in patch {
        if let Some(list) = field.strip_prefix("$setElementOrder/") {
            orders.push((list.to_owned(), value));
        } else if let Some(list) = field.strip_prefix("$deleteFromPrimitiveList/") {
            if let (Some(items), Some(gone)) = (target.get_mut(list).and_then(Value::as_array_mut), value.as_array()) {
                items.retain(|item| !gone.contains(item));
            }
        } else {
            fields.push((field, value));
        }
    }
    for (field, value) in fields {
        merge_field(target, field, value);
    }
    for (list, order) in orders {
        let key = list_kind(&list);
        if let (Some(items), Value::Array(order)) = (target.get_mut(&list).and_then(Value::as_array_mut), order) {
            let before = items.clone();
            *items = in_order(std::mem::take(items), &order, &before, key);
        }
    }
}

fn merge_field(target: &mut Map<String, Value>, field: String, value: Value) {
    let kind = list_kind(&field);
    match value {
        Value::Null => drop(target.remove(&field)),
        Value::Array(patch) if kind != ListKind::Atomic => {
            let before = match target.remove(&field) {
                Some(Value::Array(before)) => before,
                _ => Vec::new(),
            };
            target.insert(field, Value::Array(merge_list(&before, patch, kind)));
        }
        value => merge(target.entry(field).or_insert(Value::Null), value),
    }
}

/// Whether two items of a list stand for the same thing.
fn is_same(kind: ListKind, one: &Value, other: &Value) -> bool {
    match kind {
        ListKind::Keyed(key) => one[key] == other[key],
        ListKind::Set | ListKind::Atomic => one == other,
    }
}

fn merge_list(before: &[Value], patch: Vec<Value>, kind: ListKind) -> Vec<Value> {
    let is_directive = |item: &Value, directive: &str| item.get("$patch").is_some_and(|value| value == directive);
    let is_replaced = patch.iter().any(|item| is_directive(item, "replace"));
    let mut merged = if is_replaced { Vec::new() } else { before.to_vec() };
    let mut order = Vec::new();
    for item in patch {
        // A replacement may stand alone, or have the key of an item beside it.
        if is_directive(&item, "replace") && item.as_object().is_some_and(|item| item.len() == 1) {
            continue;
        }
        if is_directive(&item, "delete") {
            merged.retain(|one| !is_same(kind, one, &item));
            continue;
        }
        order.push(item.clone());
        if let Some(one) = merged.iter_mut().find(|one| is_same(kind, one, &item)) {
            merge(one, item);
        } else {
            let mut new = Value::Null;
            merge(&mut new, item);
            merged.push(new);
        }
    }
    in_order(merged, &order, before, kind)
}

/// Puts the items that the patch names in the patch's order, the others in the order that they had, and merges the two as
/// the original list has them; what the original does not have comes first.
fn in_order(items: Vec<Value>, patch_order: &[Value], original: &[Value], kind: ListKind) -> Vec<Value> {
    let place = |list: &[Value], item: &Value| list.iter().position(|one| is_same(kind, one, item));
    let (mut of_patch, mut others): (Vec<Value>, Vec<Value>) =
        items.into_iter().partition(|item| place(patch_order, item).is_some());
    of_patch.sort_by_key(|item| place(patch_order, item));
    others.sort_by_key(|item| place(original, item));
    let mut result = Vec::with_capacity(of_patch.len() + others.len());
    let (mut of_patch, mut others) = (of_patch.into_iter().peekable(), others.into_iter().peekable());
    loop {
        let other_first = match (others.peek(), of_patch.peek()) {
            (None, None) => return result,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(other), Some(patched)) => {
                matches!((place(original, other), place(original, patched)), (Some(other), Some(patched)) if other < patched)
            }
        };
        result.extend(if other_first { others.next() } else { of_patch.next() });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn merged(target: Value, patch: Value) -> Value {
        let mut target = target;
        merge(&mut target, patch);
        target
    }

    fn conditions(list: &Value) -> Vec<(&str, &str)> {
        let list = list["status"]["conditions"].as_array().unwrap();
        list.iter().map(|one| (one["type"].as_str().unwrap(), one["status"].as_str().unwrap_or_default())).collect()
    }

    fn with(list: &Value) -> Value {
        json!({"status": {"conditions": list}})
    }

    #[test]
    fn a_condition_is_merged_by_its_type_and_a_new_one_comes_first() {
        let node = with(&json!([{"type": "Ready", "status": "True", "reason": "KubeletReady"}]));
        let new = merged(node.clone(), with(&json!([{"type": "Ours", "status": "True"}])));
        assert_eq!(conditions(&new), [("Ours", "True"), ("Ready", "True")]);
        let changed = merged(new, with(&json!([{"type": "Ready", "status": "False"}])));
        assert_eq!(conditions(&changed), [("Ours", "True"), ("Ready", "False")]);
        assert_eq!(changed["status"]["conditions"][1]["reason"], "KubeletReady", "what the patch leaves out stays");
        let gone = merged(changed, with(&json!([{"$patch": "delete", "type": "Ours"}])));
        assert_eq!(conditions(&gone), [("Ready", "False")]);
        let replaced = merged(gone, with(&json!([{"$patch": "replace"}, {"type": "Z", "status": "True"}])));
        assert_eq!(conditions(&replaced), [("Z", "True")]);
    }

    #[test]
    fn the_order_of_elements_is_as_the_patch_says() {
        let node = with(&json!([{"type": "A", "status": "1"}, {"type": "B", "status": "2"}]));
        let patch = json!({"status": {"$setElementOrder/conditions": [{"type": "B"}, {"type": "A"}]}});
        assert_eq!(conditions(&merged(node, patch)), [("B", "2"), ("A", "1")]);
    }

    #[test]
    fn taints_are_replaced_as_a_whole() {
        let node = json!({"spec": {"taints": [{"key": "a"}, {"key": "b"}]}});
        let after = merged(node, json!({"spec": {"taints": [{"key": "c"}]}}));
        assert_eq!(after, json!({"spec": {"taints": [{"key": "c"}]}}));
    }

    #[test]
    fn finalizers_are_a_set_and_null_removes_a_field() {
        let object = json!({"metadata": {"finalizers": ["a"], "labels": {"x": "1", "y": "2"}}});
        let patch = json!({"metadata": {"finalizers": ["a", "b"], "labels": {"x": null}}});
        let after = merged(object, patch);
        assert_eq!(after["metadata"]["labels"], json!({"y": "2"}));
        let mut finalizers: Vec<_> = after["metadata"]["finalizers"].as_array().unwrap().clone();
        finalizers.sort_by_key(ToString::to_string);
        assert_eq!(finalizers, ["a", "b"]);
        let without = merged(after, json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}));
        assert_eq!(without["metadata"]["finalizers"], json!(["b"]));
    }

    #[test]
    fn directives_for_maps_replace_and_retain() {
        let object = json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}});
        let patch = json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}});
        assert_eq!(merged(object.clone(), patch), json!({"spec": {"strategy": {"type": "Recreate"}}}));
        let patch = json!({"spec": {"strategy": {"$patch": "replace", "type": "Recreate"}}});
        assert_eq!(merged(object, patch), json!({"spec": {"strategy": {"type": "Recreate"}}}));
    }
}
