//! Reads bodies, and refuses what the decoder of the real server refuses: values of the wrong type, times of the wrong form,
//! objects of another kind.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::kinds::{DEPLOYMENTS, EVENTS, LEASES, NODES, REPLICA_SETS, STATEFUL_SETS};
use super::patch::Patch;
use super::refusal::{Cause, Refusal};
use super::service::Call;
use super::store::Key;
use super::{defaults, events, schema};

/// The body is in no format that the server reads. The real one also reads YAML, of which callers must not be told another
/// thing than there.
pub(super) fn unknown_format() -> Refusal {
    let message = "the body of the request was in an unknown format - accepted media types include: application/json, \
                   application/yaml, application/vnd.kubernetes.protobuf";
    Refusal::new(415, "UnsupportedMediaType", message)
}

fn unrecognized(call: &Call, what: &str, why: impl std::fmt::Display) -> Refusal {
    let body = String::from_utf8_lossy(&call.body);
    let shown = if body.is_empty() { "<empty>" } else { &body };
    Refusal::bad_request(format!("the object provided is unrecognized (must be of type {what}): {why} ({shown})"))
}

/// Reads the body as an object of a kind and one of these versions.
pub(super) fn decode(call: &Call, kind: &str, versions: &[&str]) -> Result<Value, Refusal> {
    if !matches!(call.content_type.split(';').next().unwrap_or_default().trim(), "" | "application/json") {
        return Err(unknown_format());
    }
    let object: Value = serde_json::from_slice(&call.body).map_err(|error| {
        let why = if error.is_eof() { "unexpected end of JSON input".to_owned() } else { error.to_string() };
        unrecognized(call, kind, format_args!("couldn't get version/kind; json parse error: {why}"))
    })?;
    if !object.is_object() {
        return Err(unrecognized(call, kind, "couldn't get version/kind; json parse error: it is no object"));
    }
    let said = |field: &str| object[field].as_str().filter(|text| !text.is_empty());
    let name = || object["metadata"]["name"].as_str().unwrap_or_default();
    let custom = call.kind.custom.is_some();
    match (said("kind"), said("apiVersion")) {
        (None, _) if custom => {
            let body = String::from_utf8_lossy(&call.body);
            Err(unrecognized(call, kind, format_args!("Object 'Kind' is missing in '{body}'")))
        }
        (_, Some(version)) if custom && !versions.contains(&version) => Err(Refusal::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({})",
            versions.first().copied().unwrap_or_default()
        ))),
        (Some(other), _) if custom && other != kind => {
            let cause = Cause::invalid("kind", format_args!("\"{other}\""), format_args!("must be {kind}"));
            Err(Refusal::invalid(&format!("{other}.{}", call.kind.group), name(), &[cause]))
        }
        (Some(other), _) if other != kind => Err(Refusal::bad_request(format!(
            "{other} in version \"{version}\" cannot be handled as a {kind}: converting ({version}.{other}) to \
             ({}.{kind}): unknown conversion",
            internal_group(versions.first().copied().unwrap_or_default()),
            version = last_part(said("apiVersion").unwrap_or_default()),
        ))),
        (_, Some(version)) if !versions.contains(&version) => Err(Refusal::bad_request(format!(
            "{kind} in version \"{}\" cannot be handled as a {kind}: no kind \"{kind}\" is registered for version \"{version}\" \
             in scheme \"pkg/runtime/scheme.go:111\"",
            last_part(version)
        ))),
        _ => Ok(object),
    }
}

/// `v1` of `apps/v1`.
fn last_part(api_version: &str) -> &str {
    api_version.rsplit('/').next().unwrap_or_default()
}

/// What the real server calls a group inside: `core`, `apps`, `policy`.
fn internal_group(api_version: &str) -> &str {
    match api_version.split_once('/') {
        Some((group, _)) => group.split('.').next().unwrap_or_default(),
        None => "core",
    }
}

/// Reads the body as an object of the kind of the path, and in the form in which it is stored.
pub(super) fn decode_own(call: &Call) -> Result<Value, Refusal> {
    let kind = &call.kind;
    let mut object = decode(call, &kind.kind, &[&kind.api_version()])?;
    check_namespace(call, &object)?;
    events::unshow(kind, &mut object);
    defaults::drop_nulls(&mut object);
    read(&kind.stored(), &mut object).and_then(|()| leave_out_unknown(call, &mut object)).map_err(|why| {
        Refusal::bad_request(format!(
            "{0} in version \"{1}\" cannot be handled as a {0}: {why}",
            kind.kind, kind.version
        ))
    })?;
    Ok(object)
}

/// Takes out of a custom resource what its definition does not name.
pub(super) fn leave_out_unknown(call: &Call, object: &mut Value) -> Result<(), String> {
    let Some(custom) = &call.kind.custom else { return Ok(()) };
    call.judge_unknown_fields(&schema::prune(&custom.schema, object))
}

/// The namespace in a body is that of the path, or is not said.
pub(super) fn check_namespace(call: &Call, object: &Value) -> Result<(), Refusal> {
    match object["metadata"]["namespace"].as_str().filter(|namespace| !namespace.is_empty()) {
        Some(namespace) if call.kind.namespaced && *namespace != call.target.namespace => Err(Refusal::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        )),
        _ => Ok(()),
    }
}

/// The name in a body is that of the path.
pub(super) fn check_name(key: &Key, object: &Value) -> Result<(), Refusal> {
    match object["metadata"]["name"].as_str().unwrap_or_default() {
        "" => Err(Refusal::bad_request(format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            key.name
        ))),
        name if name != key.name => Err(Refusal::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            key.name
        ))),
        _ => Ok(()),
    }
}

/// The body as JSON, of a patch.
pub(super) fn decode_patch(call: &Call) -> Result<Patch, Refusal> {
    let body = serde_json::from_slice(&call.body).map_err(|error| {
        let why = if error.is_eof() { "unexpected end of JSON input".to_owned() } else { error.to_string() };
        Refusal::bad_request(format!("error decoding patch: {why}"))
    });
    // What cannot be read is refused for its type first.
    let is_unknown = |body: &Result<Value, Refusal>| {
        let empty = if call.content_type.contains("json-patch") { json!([]) } else { json!({}) };
        body.is_err().then(|| Patch::new(&call.kind, &call.content_type, empty))
    };
    if let Some(by_type) = is_unknown(&body) {
        by_type?;
    }
    Patch::new(&call.kind, &call.content_type, body?)
}

/// Checks what an object holds, and writes its times in UTC. The error is what the real server's decoder says.
pub(super) fn read(resource: &str, object: &mut Value) -> Result<(), String> {
    for field in ["labels", "annotations"] {
        for value in object["metadata"][field].as_object().into_iter().flat_map(|map| map.values()) {
            if !value.is_string() {
                return Err(wrong_type(value, &format!("ObjectMeta.metadata.{field}"), "string"));
            }
        }
    }
    let cordon = &object["spec"]["unschedulable"];
    if resource == NODES && !cordon.is_null() && !cordon.is_boolean() {
        return Err(wrong_type(cordon, "NodeSpec.spec.unschedulable", "bool"));
    }
    let number = match resource {
        LEASES => Some(("leaseDurationSeconds", "LeaseSpec")),
        DEPLOYMENTS => Some(("replicas", "DeploymentSpec")),
        REPLICA_SETS => Some(("replicas", "ReplicaSetSpec")),
        STATEFUL_SETS => Some(("replicas", "StatefulSetSpec")),
        _ => None,
    };
    if let Some((field, owner)) = number {
        let value = &object["spec"][field];
        if !value.is_null() && !value.is_i64() {
            return Err(wrong_type(value, &format!("{owner}.spec.{field}"), "int32"));
        }
    }
    read_times(resource, object)
}

fn wrong_type(value: &Value, field: &str, wanted: &str) -> String {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    format!("json: cannot unmarshal {found} into Go struct field {field} of type {wanted}")
}

fn read_times(resource: &str, object: &mut Value) -> Result<(), String> {
    let paths: &[&str] = match resource {
        LEASES => &["/spec/renewTime", "/spec/acquireTime"],
        EVENTS => &["/eventTime", "/series/lastObservedTime"],
        _ => return Ok(()),
    };
    for path in paths {
        if let Some(Value::String(text)) = object.pointer_mut(path) {
            *text = read_micro_time(text)?;
        }
    }
    if resource == EVENTS {
        for path in ["/firstTimestamp", "/lastTimestamp"] {
            if let Some(Value::String(text)) = object.pointer_mut(path)
                && let Ok(time) = text.parse::<Timestamp>()
            {
                *text = format!("{time:.0}");
            }
        }
    }
    Ok(())
}

fn read_micro_time(text: &str) -> Result<String, String> {
    const LAYOUT: &str = "2006-01-02T15:04:05.000000Z07:00";
    let cannot = |rest: &str, part: &str| {
        format!("parsing time \"{text}\" as \"{LAYOUT}\": cannot parse \"{rest}\" as \"{part}\"")
    };
    let whole = "2006-01-02T15:04:05".len();
    let (Some(seconds), Some(rest)) = (text.get(..whole), text.get(whole..)) else {
        return Err(cannot(text, "2006"));
    };
    let decimals = rest.strip_prefix('.').and_then(|rest| rest.get(..6));
    if !decimals.is_some_and(|decimals| decimals.bytes().all(|byte| byte.is_ascii_digit())) {
        return Err(cannot(rest, ".000000"));
    }
    let zone = rest.get(7..).unwrap_or_default();
    if zone != "Z" && !(zone.starts_with(['+', '-']) && zone.len() == 6) {
        return Err(cannot(zone, "Z07:00"));
    }
    let time: Timestamp = text.parse().map_err(|_| cannot(seconds, "2006"))?;
    Ok(format!("{time:.6}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_exactly_six_decimals_and_is_stored_in_utc() {
        assert_eq!(read_micro_time("2026-01-01T00:00:00.000000+01:00").unwrap(), "2025-12-31T23:00:00.000000Z");
        for (text, why) in [
            ("2026-01-01T00:00:00Z", "cannot parse \"Z\" as \".000000\""),
            ("2026-01-01T00:00:00.5Z", "cannot parse \".5Z\" as \".000000\""),
            ("2026-01-01T00:00:00.000000123Z", "cannot parse \"123Z\" as \"Z07:00\""),
        ] {
            assert!(read_micro_time(text).unwrap_err().ends_with(why), "{text}");
        }
    }
}
