//! What a client asks first: which kinds there are, and whether the server is well.

use control_plane::harness::Test;
use serde_json::Value;

use crate::scripts;
use crate::side::{Outcome, Side};

pub(crate) fn scripts() -> Vec<Test> {
    scripts![the_server_says_what_it_serves, the_server_says_how_it_is]
}

/// The resources that every server under comparison has to serve, by group.
const SERVED: [(&str, &[&str]); 6] = [
    (
        "/api/v1",
        &[
            "events",
            "namespaces",
            "namespaces/status",
            "nodes",
            "nodes/status",
            "pods",
            "pods/binding",
            "pods/eviction",
            "pods/status",
            "serviceaccounts",
        ],
    ),
    (
        "/apis/apps/v1",
        &[
            "daemonsets",
            "daemonsets/status",
            "deployments",
            "deployments/scale",
            "deployments/status",
            "replicasets",
            "replicasets/scale",
            "replicasets/status",
            "statefulsets",
            "statefulsets/scale",
            "statefulsets/status",
        ],
    ),
    ("/apis/policy/v1", &["poddisruptionbudgets", "poddisruptionbudgets/status"]),
    ("/apis/coordination.k8s.io/v1", &["leases"]),
    ("/apis/events.k8s.io/v1", &["events"]),
    ("/apis/apiextensions.k8s.io/v1", &["customresourcedefinitions", "customresourcedefinitions/status"]),
];

const FIELDS: [&str; 6] = ["name", "singularName", "namespaced", "kind", "shortNames", "categories"];

async fn the_server_says_what_it_serves(side: Side) -> Outcome {
    for (path, served) in SERVED {
        let list = side.ask(200, path).only(&["/kind", "/groupVersion"]).get(path).await?;
        let resources = list.body["resources"].as_array().cloned().unwrap_or_default();
        for name in served {
            let found = resources.iter().find(|one| one["name"] == *name).cloned().unwrap_or_default();
            let mut verbs: Vec<&str> =
                found["verbs"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            // Their order differs from kind to kind for no reason.
            verbs.sort_unstable();
            let mut shown: serde_json::Map<String, Value> =
                FIELDS.iter().filter_map(|field| Some(((*field).to_owned(), found.get(*field)?.clone()))).collect();
            shown.insert("verbs".to_owned(), verbs.into());
            side.fact(name, Value::Object(shown));
        }
    }
    side.ask(200, "the core API").only(&["/kind", "/versions"]).get("/api").await?;
    let groups = side.ask(200, "the other groups").only(&["/kind"]).get("/apis").await?;
    let groups = groups.body["groups"].as_array().cloned().unwrap_or_default();
    for (path, _) in &SERVED[1..] {
        let name = path.split('/').nth(2).unwrap_or_default();
        let group = groups.iter().find(|group| group["name"] == name).cloned().unwrap_or_default();
        side.fact(name, group["preferredVersion"].clone());
        side.ask(200, "by itself").only(&["/kind", "/name", "/preferredVersion"]).get(&format!("/apis/{name}")).await?;
    }
    side.ask(404, "a group that is not there").get("/apis/no.such.group").await?;
    side.ask(404, "a version that is not there").get("/apis/apps/v7").await?;
    Ok(())
}

async fn the_server_says_how_it_is(side: Side) -> Outcome {
    for path in ["/healthz", "/livez", "/readyz"] {
        side.ask(200, path).get(path).await?;
    }
    let version = side.ask(200, "its version").only(&["/major", "/minor", "/gitVersion"]).get("/version").await?;
    side.holds("a text", version.body["gitVersion"].is_string());
    Ok(())
}
