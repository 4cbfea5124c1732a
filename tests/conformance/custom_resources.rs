//! Custom resources: defined, written, and undefined.

use control_plane::harness::Test;
use http::Method;
use serde_json::{Value, json};

use crate::scripts;
use crate::side::{Ask, Outcome, PatchKind, Side};

pub(crate) fn scripts() -> Vec<Test> {
    scripts![
        a_custom_resource_has_spec_and_status_apart,
        a_finalizer_keeps_a_custom_resource,
        a_custom_resource_is_as_its_schema_says,
        a_definition_comes_and_goes,
    ]
}

const SHOWN: [&str; 2] = ["/spec", "/status"];

/// Of a refusal for a schema. The server also says which further rules it did not look at.
const CAUSES: [&str; 4] = ["/reason", "/details/name", "/details/causes/0/reason", "/details/causes/0/field"];

/// The group differs by side, because a definition belongs to the whole cluster.
fn group(side: &Side) -> String {
    format!("{}.example.com", side.ns())
}

fn definition(side: &Side) -> Value {
    let group = group(side);
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("repairs.{group}")},
        "spec": {
            "group": group, "scope": "Cluster",
            "names": {"plural": "repairs", "singular": "repair", "kind": "Repair", "listKind": "RepairList", "shortNames": ["rep"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "additionalPrinterColumns": [
                    {"name": "Node", "type": "string", "jsonPath": ".spec.nodeName"},
                    {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                ],
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "required": ["nodeName"], "properties": {
                        "nodeName": {"type": "string"},
                        "attempts": {"type": "integer"},
                        "mode": {"type": "string", "enum": ["Careful", "Quick"]},
                        "steps": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
                        "notes": {"type": "object", "additionalProperties": {"type": "string"}},
                        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                        "share": {"x-kubernetes-int-or-string": true},
                    }},
                    "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
                }}},
            }],
        },
    })
}

fn definition_path(side: &Side) -> String {
    format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/repairs.{}", group(side))
}

fn repairs(side: &Side) -> String {
    format!("/apis/{}/v1/repairs", group(side))
}

fn repair(side: &Side, name: &str) -> Value {
    json!({
        "apiVersion": format!("{}/v1", group(side)), "kind": "Repair", "metadata": {"name": name},
        "spec": {"nodeName": "n1", "attempts": 1}, "status": {"phase": "Early"},
    })
}

/// Defines the kind and waits until it can be written.
async fn define(side: &Side) -> Outcome {
    side.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition(side)).await?;
    let is_established = |definition: &Value| {
        definition["status"]["conditions"].as_array().is_some_and(|conditions| {
            conditions.iter().any(|condition| condition["type"] == "Established" && condition["status"] == "True")
        })
    };
    side.until("established", &definition_path(side), is_established).await?;
    side.until("served", &repairs(side), |list| list["items"].is_array()).await?;
    Ok(())
}

async fn undefine(side: &Side) -> Outcome {
    side.make(Method::DELETE, &definition_path(side), &Value::Null).await.map(drop)
}

async fn a_custom_resource_has_spec_and_status_apart(side: Side) -> Outcome {
    define(&side).await?;
    let (path, status) = (format!("{}/r", repairs(&side)), format!("{}/r/status", repairs(&side)));
    let ask = |code: u16, label: &str| -> Ask<'_> { side.ask(code, label).showing(&SHOWN) };
    let created = ask(201, "created without its status").post(&repairs(&side), &repair(&side, "r")).await?;
    created.pin(json!({"metadata": {"generation": 1}, "/status": "(absent)"}));
    ask(409, "the name is taken").post(&repairs(&side), &repair(&side, "r")).await?;
    let phase = |phase: &str| json!({"status": {"phase": phase}});
    let before = ask(200, "the status").patch(PatchKind::Merge, &status, &phase("Pending")).await?;
    let before = before.pin(json!({"metadata": {"generation": 1}}));
    let same = ask(200, "not through the main door").patch(PatchKind::Merge, &path, &phase("Failed")).await?;
    side.holds("same version", same.version() == before.version());
    let attempts = json!({"spec": {"attempts": 2}});
    let changed = ask(200, "a change of the spec").patch(PatchKind::Merge, &path, &attempts).await?;
    changed.pin(json!({"metadata": {"generation": 2}}));
    let label = json!({"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}});
    ask(200, "a label is no new generation").patch(PatchKind::Merge, &path, &label).await?;
    let all = json!({"metadata": {"labels": {"x": "y"}}, "spec": {"attempts": 9}, "status": {"phase": "Running"}});
    ask(200, "through the status: neither spec nor metadata").patch(PatchKind::Merge, &status, &all).await?;
    let mut read = side.read(&path).await?;
    let old = read.clone();
    read["spec"]["attempts"] = json!(3);
    read["status"]["phase"] = json!("Failed");
    ask(200, "a PUT").put(&path, &read).await?;
    ask(409, "a PUT of what is old").put(&path, &old).await?;
    let mut read = side.read(&path).await?;
    read["status"]["phase"] = json!("Succeeded");
    ask(200, "a PUT of the status").put(&status, &read).await?;
    let operations = json!([{"op": "replace", "path": "/spec/attempts", "value": 4}]);
    ask(200, "a JSON patch").patch(PatchKind::Json, &path, &operations).await?;
    ask(415, "no strategic merge").patch(PatchKind::Strategic, &path, &attempts).await?;
    let unknown = json!({"spec": {"unknown": 1}});
    ask(200, "an unknown field is left out").patch(PatchKind::Merge, &path, &unknown).await?;
    let wrong = json!({"spec": {"attempts": "many"}});
    ask(422, "a field of the wrong type").patch(PatchKind::Merge, &path, &wrong).await?;
    ask(200, "read").get(&path).await?;
    ask(200, "listed").get(&repairs(&side)).await?;
    ask(404, "one that is not there").get(&format!("{}/none", repairs(&side))).await?;
    let columns = ["/columnDefinitions/*/name", "/rows/*/cells"];
    let table = side.ask(200, "as a table").only(&columns);
    table.header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io").get(&repairs(&side)).await?;
    let from = side.read(&repairs(&side)).await?["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
    side.name(&format!("resourceVersion={from}"), "resourceVersion=<version>");
    let watch = side.ask(200, "watched").only(&["/metadata/name", "/spec"]);
    let mut watch = watch.watch(&format!("{}?watch=true&resourceVersion={from}", repairs(&side))).await?;
    ask(200, "deleted").delete(&path, &Value::Null).await?;
    watch.events("its end", 1).await?;
    ask(404, "gone").get(&path).await?;
    undefine(&side).await
}

async fn a_custom_resource_is_as_its_schema_says(side: Side) -> Outcome {
    define(&side).await?;
    let ask = |code: u16, label: &str| -> Ask<'_> { side.ask(code, label).showing(&SHOWN[..1]) };
    let mut full = repair(&side, "full");
    full["spec"]["mode"] = json!("Quick");
    full["spec"]["steps"] = json!([{"name": "one"}, {"name": "two", "unknown": 1}]);
    full["spec"]["notes"] = json!({"any": "text"});
    full["spec"]["free"] = json!({"any": {"thing": [1]}});
    full["spec"]["share"] = json!("25%");
    full["more"] = json!({"a": 1});
    ask(201, "what is not in the schema is left out").post(&repairs(&side), &full).await?;
    full["metadata"]["name"] = json!("quiet");
    let quiet = format!("{}?fieldValidation=Ignore", repairs(&side));
    ask(201, "in silence, if that is wanted").post(&quiet, &full).await?;
    full["metadata"]["name"] = json!("strict");
    let strict = format!("{}?fieldValidation=Strict", repairs(&side));
    ask(400, "or refused").only(&["/reason", "/message"]).post(&strict, &full).await?;
    let (path, unknown) = (format!("{}/full", repairs(&side)), json!({"spec": {"unknown": 1}}));
    let strict = format!("{path}?fieldValidation=Strict");
    ask(422, "also in a patch").only(&CAUSES).patch(PatchKind::Merge, &strict, &unknown).await?;
    for (label, spec) in [
        ("a number for a text", json!({"nodeName": 5})),
        ("a text for a number", json!({"nodeName": "n", "attempts": "5"})),
        ("a fraction for a whole number", json!({"nodeName": "n", "attempts": 1.5})),
        ("one of the words", json!({"nodeName": "n", "mode": "Wild"})),
        ("a required field", json!({"attempts": 1})),
        ("a list of objects", json!({"nodeName": "n", "steps": ["one"]})),
        ("in a map", json!({"nodeName": "n", "notes": {"a": 1}})),
        ("neither number nor text", json!({"nodeName": "n", "share": []})),
        ("an object", json!("n")),
    ] {
        let mut wrong = repair(&side, "wrong");
        wrong["spec"] = spec;
        ask(422, label).only(&CAUSES).post(&repairs(&side), &wrong).await?;
    }
    let wrong = json!({"status": {"phase": 1}});
    ask(422, "a status").only(&CAUSES).patch(PatchKind::Merge, &format!("{path}/status"), &wrong).await?;
    undefine(&side).await
}

async fn a_finalizer_keeps_a_custom_resource(side: Side) -> Outcome {
    define(&side).await?;
    let path = format!("{}/r", repairs(&side));
    let mut body = repair(&side, "r");
    body["metadata"]["finalizers"] = json!(["example.com/stay"]);
    let ask = |code: u16, label: &str| -> Ask<'_> { side.ask(code, label).showing(&SHOWN) };
    ask(201, "with a finalizer").post(&repairs(&side), &body).await?;
    let terminating = ask(200, "deleted, but there").delete(&path, &Value::Null).await?;
    terminating.pin(json!({"metadata": {"generation": 2, "deletionGracePeriodSeconds": 0}}));
    ask(200, "deleted again").delete(&path, &Value::Null).await?;
    let attempts = json!({"spec": {"attempts": 2}});
    ask(200, "it may still change").patch(PatchKind::Merge, &path, &attempts).await?;
    let more = json!({"metadata": {"finalizers": ["example.com/stay", "example.com/more"]}});
    ask(422, "but take no more finalizers")
        .only(&["/reason", "/details/causes/0/field"])
        .patch(PatchKind::Merge, &path, &more)
        .await?;
    let none = json!({"metadata": {"finalizers": []}});
    ask(200, "the last finalizer goes").patch(PatchKind::Merge, &path, &none).await?;
    ask(404, "and the object").get(&path).await?;
    let foreign = json!({"preconditions": {"uid": "00000000-aaaa-bbbb-cccc-000000000000"}});
    side.create(&repairs(&side), &repair(&side, "other")).await?;
    ask(409, "another UID").delete(&format!("{}/other", repairs(&side)), &foreign).await?;
    undefine(&side).await
}

async fn a_definition_comes_and_goes(side: Side) -> Outcome {
    side.ask(404, "not yet").get(&repairs(&side)).await?;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let shown = ["/spec/group", "/spec/scope", "/spec/names", "/spec/versions/0/name"];
    side.ask(201, "defined").only(&shown).post(definitions, &definition(&side)).await?;
    side.ask(409, "defined twice").post(definitions, &definition(&side)).await?;
    side.until("served", &repairs(&side), |list| list["items"].is_array()).await?;
    let shown = ["/status/acceptedNames", "/status/storedVersions", "/spec/versions/0/served"];
    side.ask(200, "accepted").only(&shown).get(&definition_path(&side)).await?;
    side.ask(200, "none is there").get(&repairs(&side)).await?.pin(json!({"items": []}));
    side.until("discovered", &format!("/apis/{}/v1", group(&side)), Value::is_object).await?;
    let group_path = format!("/apis/{}/v1", group(&side));
    let shown = [
        "/groupVersion",
        "/resources/*/name",
        "/resources/*/kind",
        "/resources/*/shortNames",
        "/resources/*/namespaced",
    ];
    side.ask(200, "its resources").only(&shown).get(&group_path).await?;
    // The server began to remember this kind when it was defined.
    let past = format!("{}?watch=true&resourceVersion=1", repairs(&side));
    let events =
        side.ask(200, "a watch from before").whole().watch(&past).await?.rest("one event says so, and no more").await?;
    side.fact("the code", events[0]["object"]["code"].clone());
    side.ask(200, "undefined").only(&["/kind"]).delete(&definition_path(&side), &Value::Null).await?;
    side.until_gone(&definition_path(&side)).await?;
    side.until_gone(&repairs(&side)).await?;
    side.ask(404, "no more").get(&repairs(&side)).await?;
    side.ask(404, "to be written neither").post(&repairs(&side), &repair(&side, "r")).await?;
    Ok(())
}
