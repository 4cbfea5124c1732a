//! The columns of custom resources, whose values are found by a small part of `JSONPath`
//! (<https://kubernetes.io/docs/reference/kubectl/jsonpath/>): `.spec.nodeName`, `.items[0].name`,
//! `.status.conditions[?(@.type=="Ready")].status`.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::kinds::CustomColumn;
use super::since;

/// The cell of a column.
pub(super) fn cell(column: &CustomColumn, object: &Value, now: Timestamp) -> Value {
    let found = find(object, &column.json_path);
    match (column.kind.as_str(), found) {
        ("date", Some(time)) => json!(since(time, now)),
        ("string", Some(value)) if !value.is_string() => json!(value.to_string()),
        (_, found) => found.cloned().unwrap_or(Value::Null),
    }
}

/// The first value at a path.
fn find<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    let path = path.trim();
    if path.is_empty() {
        return Some(value).filter(|value| !value.is_null());
    }
    if let Some(rest) = path.strip_prefix("[?(@.") {
        let (condition, rest) = rest.split_once(")]")?;
        let (field, wanted) = condition.split_once("==")?;
        let wanted = wanted.trim().trim_matches(['"', '\'']);
        let found = value.as_array()?.iter().find(|item| {
            let found = find(item, &format!(".{}", field.trim()));
            found.and_then(Value::as_str).is_some_and(|found| found == wanted)
        })?;
        return find(found, rest);
    }
    if let Some(rest) = path.strip_prefix('[') {
        let (index, rest) = rest.split_once(']')?;
        let index = index.trim_matches(['"', '\'']);
        let found = match index.parse::<usize>() {
            Ok(index) => value.get(index)?,
            Err(_) if index == "*" => value.get(0)?,
            Err(_) => value.get(index)?,
        };
        return find(found, rest);
    }
    let path = path.strip_prefix('.').unwrap_or(path);
    // A dot that belongs to a name has a backslash before it.
    let mut name = String::new();
    let mut rest = path.char_indices().peekable();
    while let Some((index, character)) = rest.next() {
        match character {
            '\\' => name.extend(rest.next().map(|(_, escaped)| escaped)),
            '.' | '[' => return find(value.get(&name)?, &path[index..]),
            other => name.push(other),
        }
    }
    find(value.get(&name)?, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leads_through_fields_lists_and_conditions() {
        let object = json!({
            "metadata": {"labels": {"x.io/a": "label"}},
            "spec": {"nodeName": "n1", "steps": [{"name": "first"}]},
            "status": {"conditions": [{"type": "A", "status": "no"}, {"type": "Ready", "status": "True"}]},
        });
        for (path, value) in [
            (".spec.nodeName", "n1"),
            (".spec.steps[0].name", "first"),
            (".status.conditions[?(@.type==\"Ready\")].status", "True"),
            (".metadata.labels.x\\.io/a", "label"),
            (".metadata.labels['x.io/a']", "label"),
        ] {
            assert_eq!(find(&object, path), Some(&json!(value)), "{path}");
        }
        assert_eq!(find(&object, ".status.missing.deeper"), None);
    }
}
