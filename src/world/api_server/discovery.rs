//! What the server says about itself
//! (<https://kubernetes.io/docs/reference/using-api/api-concepts/#api-discovery>).

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::kinds::{
    CUSTOM_RESOURCE_DEFINITIONS, DAEMON_SETS, DEPLOYMENTS, Kind, NAMESPACES, PODS, REPLICA_SETS, SERVICE_ACCOUNTS,
    STATEFUL_SETS, Status,
};

/// Groups that have no objects, only answers.
const REVIEWS: [(&str, &str, &str); 2] = [
    ("authorization.k8s.io", "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
    ("authentication.k8s.io", "selfsubjectreviews", "SelfSubjectReview"),
];

/// The version that the server claims to be.
pub(super) fn version() -> Value {
    json!({
        "major": "1",
        "minor": "36",
        "gitVersion": "v1.36.3",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "embedded",
    })
}

/// A document of discovery, by the segments of its path.
pub(super) fn of(kinds: &[Arc<Kind>], path: &[String]) -> Option<Value> {
    let words: Vec<&str> = path.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["api"] => Some(json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})),
        ["apis"] => {
            let groups: Vec<Value> = groups(kinds).into_iter().filter_map(|name| group(kinds, name)).collect();
            Some(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
        }
        ["apis", name] => {
            let mut group = group(kinds, name)?;
            group["kind"] = json!("APIGroup");
            group["apiVersion"] = json!("v1");
            Some(group)
        }
        ["api", version] => resources(kinds, "", version),
        ["apis", group, version] => resources(kinds, group, version),
        _ => None,
    }
}

fn groups(kinds: &[Arc<Kind>]) -> BTreeSet<&str> {
    let of_kinds = kinds.iter().map(|kind| kind.group.as_str()).filter(|group| !group.is_empty());
    of_kinds.chain(REVIEWS.iter().map(|(group, _, _)| *group)).collect()
}

fn group(kinds: &[Arc<Kind>], name: &str) -> Option<Value> {
    let mut versions: BTreeSet<&str> =
        kinds.iter().filter(|kind| kind.group == name).map(|kind| kind.version.as_str()).collect();
    if REVIEWS.iter().any(|(group, _, _)| *group == name) {
        versions.insert("v1");
    }
    let versions: Vec<Value> = versions
        .into_iter()
        .map(|version| json!({"groupVersion": format!("{name}/{version}"), "version": version}))
        .collect();
    let preferred = versions.last()?;
    Some(json!({"name": name, "versions": versions, "preferredVersion": preferred}))
}

fn resources(kinds: &[Arc<Kind>], group: &str, version: &str) -> Option<Value> {
    let of_kinds = kinds.iter().filter(|kind| kind.group == group && kind.version == version);
    let mut resources: Vec<Value> = of_kinds.flat_map(|kind| rows(kind)).collect();
    let reviews = REVIEWS.iter().filter(|(name, _, _)| *name == group && version == "v1");
    resources.extend(reviews.map(|(_, plural, kind)| row(plural, "", false, kind, &["create"])));
    if resources.is_empty() {
        return None;
    }
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    Some(json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources}))
}

fn row(name: &str, singular: &str, namespaced: bool, kind: &str, verbs: &[&str]) -> Value {
    json!({"name": name, "singularName": singular, "namespaced": namespaced, "kind": kind, "verbs": verbs})
}

/// A kind and its subresources.
fn rows(kind: &Kind) -> Vec<Value> {
    let mut verbs = vec!["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
    let resource = kind.resource();
    verbs.retain(|verb| resource != NAMESPACES || *verb != "deletecollection");
    let mut own = row(&kind.plural, &kind.singular, kind.namespaced, &kind.kind, &verbs);
    if !kind.short_names.is_empty() {
        own["shortNames"] = json!(kind.short_names);
    }
    let category = match resource.as_str() {
        PODS | DEPLOYMENTS | REPLICA_SETS | STATEFUL_SETS | DAEMON_SETS | "services" | "jobs.batch" => Some("all"),
        CUSTOM_RESOURCE_DEFINITIONS => Some("api-extensions"),
        _ => None,
    };
    if let Some(category) = category {
        own["categories"] = json!([category]);
    }
    let mut rows = vec![own];
    let mut below = |name: &str, shown: &str, verbs: &[&str], of: Option<(&str, &str)>| {
        let mut row = row(&format!("{}/{name}", kind.plural), "", kind.namespaced, shown, verbs);
        if let Some((group, version)) = of {
            row["group"] = json!(group);
            row["version"] = json!(version);
        }
        rows.push(row);
    };
    let changes = ["get", "patch", "update"];
    if kind.status != Status::None {
        below("status", &kind.kind, &changes, None);
    }
    match resource.as_str() {
        PODS => {
            below("binding", "Binding", &["create"], None);
            below("eviction", "Eviction", &["create"], Some(("policy", "v1")));
        }
        NAMESPACES => below("finalize", "Namespace", &["update"], None),
        SERVICE_ACCOUNTS => below("token", "TokenRequest", &["create"], Some(("authentication.k8s.io", "v1"))),
        DEPLOYMENTS | REPLICA_SETS | STATEFUL_SETS => below("scale", "Scale", &changes, Some(("autoscaling", "v1"))),
        _ => {}
    }
    rows
}

/// As much of `OpenAPI` as `kubectl` needs to leave the checking of fields to the server, by the segments after `/openapi`.
pub(super) fn open_api(kinds: &[Arc<Kind>], path: &[String]) -> Option<Value> {
    let words: Vec<&str> = path.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["v3"] => {
            let at = |kind: &Arc<Kind>| {
                let root = if kind.group.is_empty() { "api" } else { "apis" };
                let path = format!("{root}/{}", kind.api_version());
                let url = json!({"serverRelativeURL": format!("/openapi/v3/{path}")});
                (path, url)
            };
            let paths: Map<String, Value> = kinds.iter().map(at).collect();
            Some(json!({ "paths": paths }))
        }
        ["v3", "api", version] => Some(document(kinds, "", version)),
        ["v3", "apis", group, version] => Some(document(kinds, group, version)),
        _ => None,
    }
}

fn document(kinds: &[Arc<Kind>], group: &str, version: &str) -> Value {
    let patch = |kind: &Arc<Kind>| {
        let root = if kind.group.is_empty() { "api" } else { "apis" };
        let namespace = if kind.namespaced { "/namespaces/{namespace}" } else { "" };
        let path = format!("/{root}/{}{namespace}/{}/{{name}}", kind.api_version(), kind.plural);
        let identity = json!({"group": kind.group, "version": kind.version, "kind": kind.kind});
        let parameter = |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string"}});
        let operation = json!({
            "x-kubernetes-action": "patch",
            "x-kubernetes-group-version-kind": identity,
            "parameters": [parameter("dryRun"), parameter("fieldManager"), parameter("fieldValidation")],
            "responses": {"200": {"description": "OK"}},
        });
        (path, json!({ "patch": operation }))
    };
    let paths: Map<String, Value> =
        kinds.iter().filter(|kind| kind.group == group && kind.version == version).map(patch).collect();
    json!({"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1.36.3"}, "paths": paths})
}
