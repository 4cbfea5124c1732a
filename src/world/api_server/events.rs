//! Events, which are served twice: as `v1` and as `events.k8s.io/v1`, with other names for some fields. They are stored as
//! `v1`.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::kinds::{EVENTS_GROUP, Kind};
use super::refusal::Cause;
use super::validation::{NAME_PART, wrong_qualified_name};

/// Fields by their names in `events.k8s.io/v1` and in `v1`.
const NAMES: [(&str, &str); 7] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

/// An object as its kind shows it.
pub(super) fn shown<'a>(kind: &Kind, object: &'a Value) -> Cow<'a, Value> {
    if kind.group != EVENTS_GROUP {
        return Cow::Borrowed(object);
    }
    let mut event = object.clone();
    show(kind, &mut event);
    Cow::Owned(event)
}

/// Turns a stored object into what its kind shows.
pub(super) fn show(kind: &Kind, object: &mut Value) {
    if kind.group == EVENTS_GROUP {
        rename(object, &kind.api_version(), |(new, old)| (old, new));
    }
}

/// Turns what came as a kind into what is stored.
pub(super) fn unshow(kind: &Kind, object: &mut Value) {
    if kind.group == EVENTS_GROUP {
        rename(object, "v1", |names| names);
    }
}

fn rename(
    event: &mut Value,
    api_version: &str,
    direction: fn((&'static str, &'static str)) -> (&'static str, &'static str),
) {
    let Some(event) = event.as_object_mut() else { return };
    event.insert("apiVersion".into(), api_version.into());
    for (from, to) in NAMES.map(direction) {
        if let Some(value) = event.remove(from) {
            event.insert(to.into(), value);
        }
    }
}

/// What is wrong with a new event
/// (<https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/apis/core/validation/events.go>).
pub(super) fn wrong_with_new(kind: &Kind, event: &Value) -> Vec<Cause> {
    let mut causes = wrong_with_any(kind, event);
    if kind.group != EVENTS_GROUP {
        return causes;
    }
    series(event, &mut causes);
    if event["eventTime"].is_null() {
        causes.push(Cause::required("eventTime", ""));
    }
    let kind_of_event = event["type"].as_str().unwrap_or_default();
    if !matches!(kind_of_event, "Normal" | "Warning") {
        causes.push(Cause::invalid("type", "\"\"", format_args!("has invalid value: {kind_of_event}")));
    }
    for field in ["firstTimestamp", "lastTimestamp", "count", "source"] {
        let is_unset = match &event[field] {
            Value::Null => true,
            Value::Object(source) => source.is_empty(),
            other => other.as_i64() == Some(0),
        };
        if !is_unset {
            causes.push(Cause::invalid(field, "\"\"", "needs to be unset"));
        }
    }
    causes
}

/// What is wrong with a changed event: as `events.k8s.io/v1` hardly anything but its series can be changed.
pub(super) fn wrong_with_change(kind: &Kind, before: &Value, after: &Value) -> Vec<Cause> {
    let mut causes = wrong_with_any(kind, after);
    if kind.group != EVENTS_GROUP {
        return causes;
    }
    if before["series"] != after["series"] {
        series(after, &mut causes);
    }
    for (stored, said) in [
        ("involvedObject", "involvedObject"),
        ("reason", "reason"),
        ("message", "message"),
        ("source", "source"),
        ("firstTimestamp", "firstTimestamp"),
        ("lastTimestamp", "lastTimestamp"),
        ("count", "count"),
        ("type", "type"),
        ("eventTime", "eventTime"),
        ("action", "action"),
        ("related", "related"),
        ("reportingComponent", "reportingController"),
        ("reportingInstance", "reportingInstance"),
    ] {
        if before[stored] != after[stored] {
            let cause = Cause::invalid(said, &after[stored], "field is immutable");
            // The real server looks at the reason twice.
            causes.extend((stored == "reason").then(|| cause.clone()));
            causes.push(cause);
        }
    }
    causes
}

fn series(event: &Value, causes: &mut Vec<Cause>) {
    let Some(series) = event["series"].as_object() else { return };
    if series.get("count").and_then(Value::as_i64).unwrap_or_default() < 2 {
        causes.push(Cause::invalid("series.count", "\"\"", "should be at least 2"));
    }
    if series.get("lastObservedTime").is_none_or(Value::is_null) {
        causes.push(Cause::required("series.lastObservedTime", ""));
    }
}

fn wrong_with_any(kind: &Kind, event: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let text = |field: &str| event[field].as_str().unwrap_or_default();
    let namespace = event["metadata"]["namespace"].as_str().unwrap_or_default();
    let about = event["involvedObject"]["namespace"].as_str().unwrap_or_default();
    let elsewhere = || Cause::invalid("involvedObject.namespace", json!(about), "does not match event.namespace");
    if event["eventTime"].is_null() {
        if if about.is_empty() { namespace != "default" } else { namespace != about } {
            causes.push(elsewhere());
        }
        return causes;
    }
    if about.is_empty() && !matches!(namespace, "default" | "kube-system") {
        causes.push(elsewhere());
    }
    let controller = if kind.group == EVENTS_GROUP { "reportingController" } else { "reportingComponent" };
    let reporter = text("reportingComponent");
    if reporter.is_empty() {
        causes.push(Cause::required(controller, ""));
    }
    if let Some(why) = wrong_qualified_name(reporter) {
        causes.push(Cause::invalid(controller, json!(reporter), why));
    }
    if reporter.is_empty() {
        causes.push(Cause::invalid(controller, json!(reporter), NAME_PART));
    }
    for (field, most, is_required) in
        [("reportingInstance", 128, true), ("action", 128, true), ("reason", 128, true), ("message", 1024, false)]
    {
        if is_required && text(field).is_empty() {
            causes.push(Cause::required(field, ""));
        }
        if text(field).len() > most {
            causes.push(Cause::invalid(field, "\"\"", format_args!("can have at most {most} characters")));
        }
    }
    causes
}
