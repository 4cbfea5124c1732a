//! The JSON Schema of policy files, made from the types that read them.
//!
//! Editors complete and check policies with it. What it accepts the parser may still refuse, where one member
//! contradicts another; what it refuses is never meant.

use schemars::generate::SchemaSettings;
use schemars::transform::{Transform, transform_subschemas};
use schemars::{JsonSchema, Schema};
use serde_json::Value;

use super::file::PolicyFile;

/// The name of the schema. It is a name, not an address.
pub const SCHEMA_ID: &str = "https://remediator.dev/schema/v1alpha1/policy.schema.json";

/// The JSON Schema (draft 2020-12) of a policy file.
pub fn schema() -> Value {
    of::<PolicyFile>(SCHEMA_ID)
}

/// The schema of a file of this type.
pub(crate) fn of<T: JsonSchema>(id: &str) -> Value {
    let settings = SchemaSettings::draft2020_12().with_transform(AsWritten);
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    schema.insert("$id".into(), id.into());
    let definitions = schema.get_mut("$defs").and_then(Value::as_object_mut);
    for (name, definition) in definitions.into_iter().flatten() {
        if let Some(members) = definition.as_object_mut() {
            members.entry("title").or_insert_with(|| name.as_str().into());
        }
    }
    schema.to_value()
}

/// Makes of a schema of types one of files: a member that may be left out is not written as `null`, and a description is
/// one paragraph.
#[derive(Clone, Debug)]
struct AsWritten;

impl Transform for AsWritten {
    fn transform(&mut self, schema: &mut Schema) {
        transform_subschemas(self, schema);
        let Some(members) = schema.as_object_mut() else { return };
        if members.get("default").is_some_and(Value::is_null) {
            members.remove("default");
        }
        if let Some(Value::String(description)) = members.get_mut("description") {
            *description = description.split_whitespace().collect::<Vec<_>>().join(" ");
        }
        if let Some(Value::Array(types)) = members.get_mut("type") {
            types.retain(|of| of != "null");
            if let [one] = types.as_slice() {
                let one = one.clone();
                members.insert("type".into(), one);
            }
        }
        if let Some(Value::Array(choices)) = members.get_mut("anyOf") {
            choices.retain(|choice| choice.get("type").is_none_or(|of| of != "null"));
            if let [Value::Object(only)] = choices.as_slice() {
                let only = only.clone();
                members.remove("anyOf");
                for (name, value) in only {
                    members.entry(name).or_insert(value);
                }
            }
        }
    }
}
