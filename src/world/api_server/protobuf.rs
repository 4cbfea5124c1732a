//! Bodies in protobuf, which `kubectl` sends for evictions and for what its `create` commands make, whatever the server
//! offers. They are turned into JSON; fields that those commands do not set are skipped.
//!
//! The numbers are those of the `generated.proto` files in <https://github.com/kubernetes/api/tree/v0.36.3>.

use serde_json::{Map, Value, json};

/// The content type.
pub(super) const CONTENT_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// What comes first in such a body
/// (<https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding>).
const MAGIC: &[u8] = b"k8s\0";

/// What a field holds.
#[derive(Clone, Copy)]
enum Type {
    /// A text; an empty one is no text.
    Text,
    /// A number; 0 is as good as any.
    Number,
    /// A number; 0 is none.
    Count,
    /// A truth; false is none.
    Truth,
    /// A number or a text.
    NumberOrText,
    /// Texts by texts.
    Texts,
    /// Another message; one without fields is none.
    Message(&'static [Field]),
}

/// A field: its number, its name in JSON, whether there can be several, and what it holds.
struct Field(u64, &'static str, bool, Type);

const ONE: bool = false;
const MANY: bool = true;

const METADATA: Type = Type::Message(&[
    Field(1, "name", ONE, Type::Text),
    Field(2, "generateName", ONE, Type::Text),
    Field(3, "namespace", ONE, Type::Text),
    Field(5, "uid", ONE, Type::Text),
    Field(6, "resourceVersion", ONE, Type::Text),
    Field(11, "labels", ONE, Type::Texts),
    Field(12, "annotations", ONE, Type::Texts),
    Field(14, "finalizers", MANY, Type::Text),
]);
const SELECTOR: Type = Type::Message(&[
    Field(1, "matchLabels", ONE, Type::Texts),
    Field(
        2,
        "matchExpressions",
        MANY,
        Type::Message(&[
            Field(1, "key", ONE, Type::Text),
            Field(2, "operator", ONE, Type::Text),
            Field(3, "values", MANY, Type::Text),
        ]),
    ),
]);
const PRECONDITIONS: Type =
    Type::Message(&[Field(1, "uid", ONE, Type::Text), Field(2, "resourceVersion", ONE, Type::Text)]);
const DELETE_OPTIONS: &[Field] = &[
    Field(1, "gracePeriodSeconds", ONE, Type::Number),
    Field(2, "preconditions", ONE, PRECONDITIONS),
    Field(3, "orphanDependents", ONE, Type::Truth),
    Field(4, "propagationPolicy", ONE, Type::Text),
    Field(5, "dryRun", MANY, Type::Text),
];
const CONTAINER: Type = Type::Message(&[
    Field(1, "name", ONE, Type::Text),
    Field(2, "image", ONE, Type::Text),
    Field(3, "command", MANY, Type::Text),
    Field(4, "args", MANY, Type::Text),
    Field(
        6,
        "ports",
        MANY,
        Type::Message(&[
            Field(1, "name", ONE, Type::Text),
            Field(2, "hostPort", ONE, Type::Count),
            Field(3, "containerPort", ONE, Type::Count),
            Field(4, "protocol", ONE, Type::Text),
        ]),
    ),
    Field(14, "imagePullPolicy", ONE, Type::Text),
]);
const POD_SPEC: Type = Type::Message(&[
    Field(2, "containers", MANY, CONTAINER),
    Field(3, "restartPolicy", ONE, Type::Text),
    Field(4, "terminationGracePeriodSeconds", ONE, Type::Number),
    Field(7, "nodeSelector", ONE, Type::Texts),
    Field(8, "serviceAccountName", ONE, Type::Text),
    Field(10, "nodeName", ONE, Type::Text),
]);
const POD_TEMPLATE: Type = Type::Message(&[Field(1, "metadata", ONE, METADATA), Field(2, "spec", ONE, POD_SPEC)]);

/// The messages that are known, by the kind of object.
fn fields_of(kind: &str) -> Option<&'static [Field]> {
    Some(match kind {
        "DeleteOptions" => DELETE_OPTIONS,
        "Eviction" => {
            &[Field(1, "metadata", ONE, METADATA), Field(2, "deleteOptions", ONE, Type::Message(DELETE_OPTIONS))]
        }
        "Namespace" | "ServiceAccount" | "SelfSubjectAccessReview" | "SelfSubjectReview" => {
            &[Field(1, "metadata", ONE, METADATA)]
        }
        "ConfigMap" => &[Field(1, "metadata", ONE, METADATA), Field(2, "data", ONE, Type::Texts)],
        "PriorityClass" => &[
            Field(1, "metadata", ONE, METADATA),
            Field(2, "value", ONE, Type::Number),
            Field(3, "globalDefault", ONE, Type::Truth),
            Field(4, "description", ONE, Type::Text),
            Field(5, "preemptionPolicy", ONE, Type::Text),
        ],
        "TokenRequest" => &[
            Field(1, "metadata", ONE, METADATA),
            Field(
                2,
                "spec",
                ONE,
                Type::Message(&[
                    Field(1, "audiences", MANY, Type::Text),
                    Field(4, "expirationSeconds", ONE, Type::Count),
                ]),
            ),
        ],
        "Deployment" => &[
            Field(1, "metadata", ONE, METADATA),
            Field(
                2,
                "spec",
                ONE,
                Type::Message(&[
                    Field(1, "replicas", ONE, Type::Number),
                    Field(2, "selector", ONE, SELECTOR),
                    Field(3, "template", ONE, POD_TEMPLATE),
                    Field(5, "minReadySeconds", ONE, Type::Count),
                ]),
            ),
        ],
        "PodDisruptionBudget" => &[
            Field(1, "metadata", ONE, METADATA),
            Field(
                2,
                "spec",
                ONE,
                Type::Message(&[
                    Field(1, "minAvailable", ONE, Type::NumberOrText),
                    Field(2, "selector", ONE, SELECTOR),
                    Field(3, "maxUnavailable", ONE, Type::NumberOrText),
                    Field(4, "unhealthyPodEvictionPolicy", ONE, Type::Text),
                ]),
            ),
        ],
        _ => return None,
    })
}

/// Turns a body into JSON; `None` if it cannot be read, or is of a kind that is not known.
pub(super) fn read(body: &[u8]) -> Option<Value> {
    const ENVELOPE: &[Field] = &[Field(
        1,
        "typeMeta",
        ONE,
        Type::Message(&[Field(1, "apiVersion", ONE, Type::Text), Field(2, "kind", ONE, Type::Text)]),
    )];
    let body = body.strip_prefix(MAGIC)?;
    let envelope = message(body, ENVELOPE)?;
    let kind = envelope["typeMeta"]["kind"].as_str()?;
    let raw = parts(body)?.into_iter().find_map(|part| match part {
        (2, Wire::Bytes(raw)) => Some(raw),
        _ => None,
    });
    let mut object = message(raw.unwrap_or_default(), fields_of(kind)?)?;
    object["kind"] = json!(kind);
    object["apiVersion"] = envelope["typeMeta"]["apiVersion"].clone();
    Some(object)
}

/// A value on the wire (<https://protobuf.dev/programming-guides/encoding/>).
#[derive(Clone, Copy)]
enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message by their numbers.
fn parts(mut bytes: &[u8]) -> Option<Vec<(u64, Wire<'_>)>> {
    let mut parts = Vec::new();
    while !bytes.is_empty() {
        let key = number(&mut bytes)?;
        let length = match key & 7 {
            0 => {
                parts.push((key >> 3, Wire::Number(number(&mut bytes)?)));
                continue;
            }
            1 => 8,
            2 => usize::try_from(number(&mut bytes)?).ok()?,
            5 => 4,
            _ => return None,
        };
        let (value, rest) = bytes.split_at_checked(length)?;
        bytes = rest;
        parts.push((key >> 3, Wire::Bytes(value)));
    }
    Some(parts)
}

fn number(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn message(bytes: &[u8], fields: &[Field]) -> Option<Value> {
    let mut object = Map::new();
    for (number, wire) in parts(bytes)? {
        let Some(Field(_, name, many, kind)) = fields.iter().find(|field| field.0 == number) else { continue };
        let Some(value) = value(wire, *kind) else { continue };
        match object.get_mut(*name) {
            Some(Value::Array(list)) if *many => list.push(value),
            // The pairs of a map come one by one.
            Some(Value::Object(map)) if matches!(kind, Type::Texts) => map.extend(value.as_object().cloned()?),
            _ => drop(object.insert((*name).to_owned(), if *many { json!([value]) } else { value })),
        }
    }
    Some(Value::Object(object))
}

/// The value of a field, unless it is none.
fn value(wire: Wire<'_>, kind: Type) -> Option<Value> {
    let text = |bytes: &[u8]| std::str::from_utf8(bytes).ok().map(str::to_owned);
    match (kind, wire) {
        (Type::Text, Wire::Bytes(bytes)) => text(bytes).filter(|text| !text.is_empty()).map(Value::String),
        (Type::Number, Wire::Number(number)) => Some(json!(number.cast_signed())),
        (Type::Count, Wire::Number(number)) => (number != 0).then(|| json!(number.cast_signed())),
        (Type::Truth, Wire::Number(number)) => (number != 0).then_some(Value::Bool(true)),
        (Type::Message(fields), Wire::Bytes(bytes)) => {
            message(bytes, fields).filter(|message| message.as_object().is_some_and(|fields| !fields.is_empty()))
        }
        (Type::NumberOrText, Wire::Bytes(bytes)) => {
            const FIELDS: &[Field] = &[
                Field(1, "type", ONE, Type::Count),
                Field(2, "number", ONE, Type::Number),
                Field(3, "text", ONE, Type::Text),
            ];
            let mut either = message(bytes, FIELDS)?;
            Some(if either["type"].is_null() { either["number"].take() } else { either["text"].take() })
        }
        (Type::Texts, Wire::Bytes(bytes)) => {
            let mut pair = (String::new(), String::new());
            for part in parts(bytes)? {
                match part {
                    (1, Wire::Bytes(key)) => pair.0 = text(key)?,
                    (2, Wire::Bytes(value)) => pair.1 = text(value)?,
                    _ => {}
                }
            }
            Some(json!({pair.0: pair.1}))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat()
    }

    #[test]
    fn an_eviction_is_read_with_a_grace_of_zero_and_without_what_is_empty() {
        let types = [field(1, b"policy/v1"), field(2, b"Eviction")].concat();
        let metadata = [field(1, b"web-0"), field(2, b""), field(3, b"shop")].concat();
        let options = [&[0x08, 0x00][..], &field(2, &field(1, b"u1")), &field(5, b"All")].concat();
        let eviction = [field(1, &metadata), field(2, &options)].concat();
        let body = [MAGIC, &field(1, &types), &field(2, &eviction)].concat();
        assert_eq!(
            read(&body).unwrap(),
            json!({
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": "web-0", "namespace": "shop"},
                "deleteOptions": {"gracePeriodSeconds": 0, "preconditions": {"uid": "u1"}, "dryRun": ["All"]},
            })
        );
    }

    #[test]
    fn a_body_that_ends_early_or_is_of_another_kind_is_not_read() {
        let secret = [MAGIC, &field(1, &field(2, b"Secret"))].concat();
        assert!(read(&secret).is_none() && read(b"k8s\0\x0a\x7f").is_none() && read(b"{}").is_none());
    }

    #[test]
    fn the_pairs_of_a_map_come_one_by_one() {
        let pair = |key: &[u8], value: &[u8]| field(2, &[field(1, key), field(2, value)].concat());
        let map = [pair(b"a", b"1"), pair(b"b", b"")].concat();
        let body = [MAGIC, &field(1, &field(2, b"ConfigMap")), &field(2, &map)].concat();
        assert_eq!(read(&body).unwrap()["data"], json!({"a": "1", "b": ""}));
    }
}
