//! `/metadata/instance` and `/metadata/versions`.
//!
//! Fields and the version that each came with:
//! <https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service>. Of the `network` branch and of
//! storage profiles the mock knows nothing.

use axum::{http::StatusCode, response::Response};
use serde_json::{Map, Value, json};

use crate::{
    answer::{JSON, TEXT, bad_request, bad_version, not_found, reply},
    query::Query,
    vm::Vm,
};

/// The api-versions of the service, oldest first.
pub(crate) const VERSIONS: [&str; 35] = [
    "2017-03-01",
    "2017-04-02",
    "2017-08-01",
    "2017-10-01",
    "2017-12-01",
    "2018-02-01",
    "2018-04-02",
    "2018-10-01",
    "2019-02-01",
    "2019-03-11",
    "2019-04-30",
    "2019-06-01",
    "2019-06-04",
    "2019-08-01",
    "2019-08-15",
    "2019-11-01",
    "2020-06-01",
    "2020-07-15",
    "2020-09-01",
    "2020-10-01",
    "2020-12-01",
    "2021-01-01",
    "2021-02-01",
    "2021-03-01",
    "2021-05-01",
    "2021-08-01",
    "2021-10-01",
    "2021-11-01",
    "2021-11-15",
    "2021-12-13",
    "2023-07-01",
    "2023-11-15",
    "2024-03-15",
    "2024-07-17",
    "2025-04-07",
];

pub(crate) fn versions() -> Response {
    reply(StatusCode::OK, JSON, json!({ "apiVersions": VERSIONS.as_slice() }).to_string())
}

pub(crate) fn answer(vm: &Vm, path: &str, query: &Query) -> Response {
    let Some(version) = query.get("api-version").filter(|version| VERSIONS.contains(version)) else {
        return bad_version(VERSIONS.into_iter());
    };
    let document = document(vm, version);
    let steps = path.trim_start_matches("/metadata/instance").split('/').filter(|step| !step.is_empty());
    let found = steps.into_iter().try_fold(&document, |value, step| match value {
        Value::Object(members) => members.get(step),
        Value::Array(items) => items.get(step.parse::<usize>().ok()?),
        _ => None,
    });
    let Some(found) = found else { return not_found() };
    match (found, query.get("format").unwrap_or("json")) {
        (Value::Object(_) | Value::Array(_), "json") => reply(StatusCode::OK, JSON, found.to_string()),
        (Value::Object(members), "text") => reply(StatusCode::OK, TEXT, listing(members)),
        (Value::Array(items), "text") => {
            let numbers: Vec<_> = (0..items.len()).map(|number| format!("{number}/")).collect();
            reply(StatusCode::OK, TEXT, numbers.join("\n"))
        }
        (leaf, "text") => reply(StatusCode::OK, TEXT, leaf.as_str().unwrap_or_default().to_owned()),
        (_, "json") => bad_request(". A single value is given as text only: add format=text"),
        _ => bad_request(". format must be json or text"),
    }
}

/// The names below a node, one a line, those with nodes below them with a slash.
fn listing(members: &Map<String, Value>) -> String {
    let names: Vec<_> =
        members.iter().map(|(name, value)| if value.is_string() { name.clone() } else { format!("{name}/") }).collect();
    names.join("\n")
}

/// All values are strings, and one that a VM does not have is empty.
fn document(vm: &Vm, version: &str) -> Value {
    let tags: Vec<_> = vm.tags.iter().map(|(name, value)| format!("{name}:{value}")).collect();
    let tags_list: Vec<_> = vm.tags.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect();
    // In the order of the alphabet, with the first version that has the field.
    let fields = [
        ("azEnvironment", "2018-10-01", json!("AzurePublicCloud")),
        ("evictionPolicy", "2020-12-01", json!(vm.eviction_policy)),
        ("location", "2017-04-02", json!(vm.location)),
        ("name", "2017-04-02", json!(vm.name)),
        ("osProfile", "2020-07-15", json!({ "computerName": vm.node_name() })),
        ("osType", "2017-04-02", json!(vm.os_type)),
        ("physicalZone", "2023-11-15", json!("")),
        ("placementGroupId", "2017-08-01", json!(vm.placement_group.as_deref().unwrap_or_default())),
        ("platformFaultDomain", "2017-04-02", json!(vm.fault_domain)),
        ("platformUpdateDomain", "2017-04-02", json!(vm.update_domain)),
        ("priority", "2020-12-01", json!(vm.priority)),
        ("resourceGroupName", "2017-08-01", json!(vm.resource_group)),
        ("resourceId", "2019-03-11", json!(vm.full_resource_id())),
        ("subscriptionId", "2017-08-01", json!(vm.subscription_id)),
        ("tags", "2017-08-01", json!(tags.join(";"))),
        ("tagsList", "2019-06-04", json!(tags_list)),
        ("vmId", "2017-04-02", json!(vm.unique_id())),
        ("vmScaleSetName", "2017-12-01", json!(vm.scale_set())),
        ("vmSize", "2017-04-02", json!(vm.size)),
        ("zone", "2017-12-01", json!(vm.zone)),
    ];
    // Versions are dates, which sort as text.
    let compute: Map<String, Value> = fields
        .into_iter()
        .filter(|(_, since, _)| version >= *since)
        .map(|(name, _, value)| (name.to_owned(), value))
        .collect();
    json!({ "compute": compute })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_in_order() {
        assert!(VERSIONS.is_sorted());
    }

    #[test]
    fn a_field_is_there_from_its_version_on() {
        let vm = Vm::new("aks-np1-12345678-vmss_0");
        for (version, fields) in [("2017-03-01", 0), ("2017-04-02", 7), ("2019-08-01", 16), ("2025-04-07", 20)] {
            assert_eq!(document(&vm, version)["compute"].as_object().map(Map::len), Some(fields), "{version}");
        }
    }
}
