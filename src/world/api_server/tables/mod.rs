//! How answers look: as they are, as metadata only, or as the tables that `kubectl get` prints
//! (<https://kubernetes.io/docs/reference/using-api/api-concepts/#receiving-resources-as-tables>).

mod built_in;
mod custom;
mod pods;

use http::HeaderMap;
use http::header::ACCEPT;
use jiff::Timestamp;
use serde_json::{Value, json};

pub(super) use self::built_in::selector as selector_text;
use self::built_in::{Column, columns};
use super::age;
use super::events;
use super::kinds::Kind;
use super::paths::Query;

/// How an answer is to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// As it is.
    Json,
    /// A table.
    Table,
    /// Only the metadata of each object.
    Metadata,
}

impl View {
    /// The first of the views that a client accepts which there is.
    pub(super) fn accepted(headers: &HeaderMap) -> Option<Self> {
        let accepted = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("*/*");
        accepted.split(',').find_map(|range| {
            let mut parts = range.split(';').map(str::trim);
            if !matches!(parts.next(), Some("application/json" | "application/*" | "*/*" | "")) {
                return None;
            }
            let parameters: Vec<&str> = parts.collect();
            let is = |text: &str| parameters.contains(&text);
            let wants = parameters.iter().find_map(|parameter| parameter.strip_prefix("as="));
            match wants {
                None => Some(Self::Json),
                Some(_) if !is("g=meta.k8s.io") || !is("v=v1") => None,
                Some("Table") => Some(Self::Table),
                Some("PartialObjectMetadata" | "PartialObjectMetadataList") => Some(Self::Metadata),
                Some(_) => None,
            }
        })
    }

    /// The metadata of an object alone.
    pub(super) fn metadata_of(object: &Value) -> Value {
        json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
    }
}

/// How much of its object a row has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Included {
    Nothing,
    Metadata,
    Object,
}

/// A table, or several in a row of which only the first has headings, as in a watch.
pub(super) struct Table {
    columns: Option<Value>,
    included: Included,
}

impl Table {
    /// The table of a kind.
    pub(super) fn new(kind: &Kind, query: &Query) -> Self {
        let included = match query.get("includeObject") {
            Some("None") => Included::Nothing,
            Some("Object") => Included::Object,
            _ => Included::Metadata,
        };
        Self { columns: Some(headings(kind)), included }
    }

    /// A table of these objects, which are as they are stored.
    pub(super) fn next<'a>(
        &mut self,
        kind: &Kind,
        metadata: &Value,
        objects: impl IntoIterator<Item = &'a Value>,
        now: Timestamp,
    ) -> Value {
        let row = |object: &Value| {
            let mut row = json!({"cells": cells(kind, object, now)});
            match self.included {
                Included::Nothing => {}
                Included::Metadata => row["object"] = View::metadata_of(object),
                Included::Object => row["object"] = events::shown(kind, object).into_owned(),
            }
            row
        };
        let rows: Value = objects.into_iter().map(row).collect();
        json!({
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
            "columnDefinitions": self.columns.take(),
            "rows": rows,
        })
    }
}

fn headings(kind: &Kind) -> Value {
    let heading = |name: &str, kind: &str, priority: i64| {
        let format = if name == "Name" { "name" } else { "" };
        json!({"name": name, "type": kind, "format": format, "description": "", "priority": priority})
    };
    match &kind.custom {
        Some(custom) => {
            let own = custom.columns.iter().map(|column| heading(&column.name, &column.kind, column.priority));
            [heading("Name", "string", 0)].into_iter().chain(own).collect()
        }
        None => columns(kind).iter().map(|Column(name, kind, priority)| heading(name, kind, *priority)).collect(),
    }
}

fn cells(kind: &Kind, object: &Value, now: Timestamp) -> Vec<Value> {
    match &kind.custom {
        Some(custom) => {
            let own = custom.columns.iter().map(|column| self::custom::cell(column, object, now));
            [object["metadata"]["name"].clone()].into_iter().chain(own).collect()
        }
        None => built_in::cells(kind, object, now),
    }
}

/// How long ago a time of the API was, in words.
fn since(time: &Value, now: Timestamp) -> String {
    match time.as_str().and_then(|text| text.parse::<Timestamp>().ok()) {
        // A clock that steps must not make an age negative.
        Some(time) => age::in_words(now.duration_since(time).try_into().unwrap_or_default()),
        None => "<unknown>".to_owned(),
    }
}

/// A text, or `<none>`.
fn text_or_none(value: &Value) -> &str {
    value.as_str().filter(|text| !text.is_empty()).unwrap_or("<none>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_view_that_there_is_is_taken() {
        let accepted = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, text.parse().unwrap());
            View::accepted(&headers)
        };
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        assert_eq!(accepted(&format!("{table},application/json")), Some(View::Table));
        assert_eq!(accepted("application/json;as=Table;v=v1beta1;g=meta.k8s.io, application/json"), Some(View::Json));
        assert_eq!(accepted("application/vnd.kubernetes.protobuf,application/json"), Some(View::Json));
        assert_eq!(accepted("text/html"), None);
        assert_eq!(View::accepted(&HeaderMap::new()), Some(View::Json));
    }
}
