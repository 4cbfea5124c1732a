//! The schema of a custom resource: what it does not name is left out, and what it names has the right type
//! (<https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema>).
//!
//! Types, required fields and enumerations are checked; numbers, lengths, patterns and CEL rules are not.

use serde_json::{Map, Value};

use super::refusal::Cause;

/// Fields of every object, whatever its schema says.
const OF_EVERY_OBJECT: [&str; 3] = ["apiVersion", "kind", "metadata"];

fn preserves_unknown(schema: &Value) -> bool {
    schema["x-kubernetes-preserve-unknown-fields"] == true
}

/// Takes out of an object what its schema does not name, and returns the paths of that. A schema that is null names
/// everything.
pub(super) fn prune(schema: &Value, object: &mut Value) -> Vec<String> {
    let mut unknown = Vec::new();
    if let Some(fields) = object.as_object_mut().filter(|_| schema.is_object()) {
        prune_fields(schema, fields, "", true, &mut unknown);
    }
    unknown
}

fn prune_fields(
    schema: &Value,
    fields: &mut Map<String, Value>,
    path: &str,
    is_whole: bool,
    unknown: &mut Vec<String>,
) {
    let others = &schema["additionalProperties"];
    fields.retain(|name, value| {
        if is_whole && OF_EVERY_OBJECT.contains(&name.as_str()) {
            return true;
        }
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match schema["properties"].get(name) {
            Some(schema) => prune_value(schema, value, &path, unknown),
            None if others.is_object() => prune_value(others, value, &path, unknown),
            None if preserves_unknown(schema) || *others == true => {}
            None => {
                unknown.push(path);
                return false;
            }
        }
        true
    });
}

fn prune_value(schema: &Value, value: &mut Value, path: &str, unknown: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            let is_whole = schema["x-kubernetes-embedded-resource"] == true;
            prune_fields(schema, fields, path, is_whole, unknown);
        }
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                prune_value(&schema["items"], item, &format!("{path}[{index}]"), unknown);
            }
        }
        _ => {}
    }
}

/// What is wrong with an object by its schema. A schema that is null takes everything.
pub(super) fn wrong(schema: &Value, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    if schema.is_object() {
        check(schema, object, "", &mut causes);
    }
    causes
}

fn check(schema: &Value, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    if value.is_null() && schema["nullable"] == true {
        return;
    }
    let wanted = match schema["type"].as_str() {
        _ if schema["x-kubernetes-int-or-string"] == true => Some("integer,string"),
        wanted => wanted,
    };
    if let Some(wanted) = wanted.filter(|wanted| !wanted.split(',').any(|wanted| is_of_type(value, wanted))) {
        let found = type_of(value);
        causes.push(Cause {
            reason: "FieldValueTypeInvalid",
            field: path.to_owned(),
            message: format!("Invalid value: \"{found}\": {path} in body must be of type {wanted}: \"{found}\""),
        });
        return;
    }
    if let Some(known) = schema["enum"].as_array().filter(|known| !known.contains(value)) {
        let known: Vec<&str> = known.iter().filter_map(Value::as_str).collect();
        causes.push(Cause::not_supported(path, value, &known));
    }
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    if let Value::Object(fields) = value {
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if !fields.contains_key(name) {
                causes.push(Cause::required(below(name), ""));
            }
        }
        for (name, value) in fields {
            if let Some(schema) = schema["properties"].get(name).or_else(|| schema.get("additionalProperties")) {
                check(schema, value, &below(name), causes);
            }
        }
    }
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        check(&schema["items"], item, &format!("{path}[{index}]"), causes);
    }
}

fn is_of_type(value: &Value, wanted: &str) -> bool {
    let found = type_of(value);
    found == wanted || (found == "integer" && wanted == "number")
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_schema_does_not_name_is_left_out_unless_it_takes_anything() {
        let schema = json!({"properties": {
            "spec": {"properties": {"steps": {"items": {"properties": {"name": {}}}}}},
            "labels": {"additionalProperties": {"type": "string"}},
            "free": {"x-kubernetes-preserve-unknown-fields": true},
        }});
        let mut object = json!({
            "kind": "K", "metadata": {"name": "n"},
            "spec": {"steps": [{"name": "a"}, {"name": "b", "speed": 1}], "old": {}},
            "labels": {"any": "x"}, "free": {"any": {"thing": 1}},
        });
        assert_eq!(prune(&schema, &mut object), ["spec.old", "spec.steps[1].speed"]);
        assert_eq!(object["spec"], json!({"steps": [{"name": "a"}, {"name": "b"}]}));
        assert_eq!((&object["free"], &object["labels"]), (&json!({"any": {"thing": 1}}), &json!({"any": "x"})));
        assert_eq!(prune(&Value::Null, &mut object), Vec::<String>::new(), "without a schema everything stays");
    }

    #[test]
    fn a_wrong_type_a_missing_field_and_an_unknown_word_are_found() {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "required": ["node"], "properties": {
            "node": {"type": "string"},
            "phase": {"type": "string", "enum": ["New", "Done"]},
            "most": {"type": "integer", "nullable": true},
            "share": {"x-kubernetes-int-or-string": true},
        }}}});
        let fields = |spec: Value| -> Vec<String> {
            wrong(&schema, &json!({ "spec": spec })).into_iter().map(|cause| cause.field).collect()
        };
        assert!(fields(json!({"node": "n", "phase": "New", "most": null, "share": 5})).is_empty());
        assert_eq!(
            fields(json!({"phase": "Old", "most": "many", "share": []})),
            ["spec.node", "spec.most", "spec.phase", "spec.share"]
        );
    }
}
