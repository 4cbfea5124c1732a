//! Nodes: what the ways to write them do to taints, marks and conditions of others.

use std::time::Duration;

use control_plane::harness::Test;
use http::Method;
use serde_json::{Value, json};

use crate::pods::in_query;
use crate::scripts;
use crate::side::{Outcome, PatchKind, Side, ready_node_status, text};

pub(crate) fn scripts() -> Vec<Test> {
    scripts![
        a_new_node_is_tainted_until_it_is_ready,
        a_patch_replaces_all_taints_unless_it_is_a_json_patch,
        a_cordon_is_written_in_every_way,
        marks_come_and_go_with_one_patch,
        a_node_is_written_only_as_it_was_read,
        conditions_are_merged_by_type,
        a_status_is_no_way_to_the_spec,
        nodes_are_selected_and_deleted,
        a_node_that_reboots_is_out_of_use_meanwhile,
    ]
}

/// Scripts that wait for most of a minute: it takes 50 s until a kubelet counts as silent, and up to 5 s until that is
/// noticed.
pub(crate) fn slow_scripts() -> Vec<Test> {
    let scripts = scripts![a_node_that_falls_silent_is_given_up_and_taken_back];
    scripts.into_iter().map(|test| test.limit(Duration::from_secs(240))).collect()
}

/// Of a refusal whose message shows the server's inside.
const CAUSES: [&str; 3] = ["/reason", "/details/causes/*/reason", "/details/causes/*/field"];
const MARKS: [&str; 2] = ["/spec/unschedulable", "/spec/taints"];
const CONDITIONS: [&str; 3] =
    ["/status/conditions/*/type", "/status/conditions/*/status", "/status/conditions/*/reason"];

fn keys(path: &'static str) -> [&'static str; 1] {
    [path]
}

fn taint(key: &str) -> Value {
    json!({"key": key, "effect": "PreferNoSchedule"})
}

async fn a_new_node_is_tainted_until_it_is_ready(side: Side) -> Outcome {
    let create = side.ask(201, "a new node").showing(&["/spec", "/status"]);
    create.post("/api/v1/nodes", &side.node_object("a")).await?;
    let path = side.node_path("a");
    let patch = side.ask(200, "its kubelet posts Ready").only(&CONDITIONS);
    let status = json!({"status": ready_node_status()});
    patch.patch(PatchKind::Strategic, &format!("{path}/status"), &status).await?;
    side.until("the taint goes", &path, |node| node["spec"]["taints"].is_null()).await?;
    let shown = ["/spec", "/status/capacity", "/status/nodeInfo", "/status/conditions/*/type"];
    side.ask(200, "the node").showing(&shown).get(&path).await?;
    side.ask(409, "the name is taken").post("/api/v1/nodes", &side.node_object("a")).await?;
    let mut tainted = side.node_object("b");
    tainted["spec"] = json!({"taints": [taint("one")], "providerID": "azure:///vm", "unschedulable": true});
    let create = side.ask(201, "a node with a taint, a machine and a cordon").showing(&["/spec"]);
    create.post("/api/v1/nodes", &tainted).await?;
    side.ask(404, "no such node").get(&side.node_path("c")).await?;
    let not_ready =
        json!({"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "KubeletNotReady"}]}});
    let patch = side.ask(200, "Ready turns False").only(&CONDITIONS);
    patch.patch(PatchKind::Strategic, &format!("{path}/status"), &not_ready).await?;
    let is_tainted = |node: &Value| {
        node["spec"]["taints"]
            .as_array()
            .is_some_and(|taints| taints.iter().any(|taint| taint["effect"] == "NoSchedule"))
    };
    let node = side.until("the taint comes back", &path, is_tainted).await?;
    let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let scheduling = taints.into_iter().find(|taint| taint["effect"] == "NoSchedule");
    side.fact("the taint", scheduling.map(|taint| taint["key"].clone()));
    Ok(())
}

async fn a_patch_replaces_all_taints_unless_it_is_a_json_patch(side: Side) -> Outcome {
    side.node("a").await?;
    let path = side.node_path("a");
    let ask = |code: u16, label: &str| side.ask(code, label).showing(&keys("/spec/taints"));
    let taints = |keys: &[&str]| json!({"spec": {"taints": keys.iter().map(|key| taint(key)).collect::<Value>()}});
    ask(200, "merge, the first taint").patch(PatchKind::Merge, &path, &taints(&["one"])).await?;
    ask(200, "merge replaces").patch(PatchKind::Merge, &path, &taints(&["two"])).await?.pin(json!({
        "/spec/taints": [taint("two")],
    }));
    ask(200, "strategic merge replaces").patch(PatchKind::Strategic, &path, &taints(&["three"])).await?.pin(json!({
        "/spec/taints": [taint("three")],
    }));
    let delete = json!({"spec": {"taints": [{"$patch": "delete", "key": "three"}]}});
    let refused = ask(422, "strategic merge cannot take one out").only(&["/reason"]);
    refused.patch(PatchKind::Strategic, &path, &delete).await?;
    let add = |key: &str| json!([{"op": "add", "path": "/spec/taints/-", "value": taint(key)}]);
    ask(200, "JSON patch appends").patch(PatchKind::Json, &path, &add("four")).await?;
    let test = json!([
        {"op": "test", "path": "/spec/taints/1/key", "value": "four"},
        {"op": "remove", "path": "/spec/taints/1"},
    ]);
    ask(200, "JSON patch takes out what it has tested").patch(PatchKind::Json, &path, &test).await?;
    let known = json!({
        "reason": "Invalid", "message": "the server rejected our request due to an error in our request", "details": {},
    });
    ask(422, "a test that fails").patch(PatchKind::Json, &path, &test).await?.pin(known.clone());
    let missing = json!([{"op": "remove", "path": "/spec/taints/7"}]);
    ask(422, "an index that is not there").patch(PatchKind::Json, &path, &missing).await?.pin(known.clone());
    let replace = json!([{"op": "replace", "path": "/spec/taints/0/key", "value": "five"}]);
    ask(200, "JSON patch replaces one").patch(PatchKind::Json, &path, &replace).await?;
    let twice = taints(&["six", "six"]);
    let refused =
        ask(422, "the same key and effect twice").only(&CAUSES).patch(PatchKind::Merge, &path, &twice).await?;
    // It is found by the validation of the node and again by that of the change.
    let twice = |text: &str| json!([text, text]);
    refused.pin(json!({
        "/details/causes/*/reason": twice("FieldValueDuplicate"), "/details/causes/*/field": twice("metadata.taints[1]"),
    }));
    let unknown = json!({"spec": {"taints": [{"key": "seven", "effect": "Sometimes"}]}});
    ask(422, "an unknown effect")
        .only(&["/reason", "/details/causes/0/field"])
        .patch(PatchKind::Merge, &path, &unknown)
        .await?;
    ask(200, "null takes all").patch(PatchKind::Merge, &path, &json!({"spec": {"taints": null}})).await?;
    ask(422, "there is no list to append to").patch(PatchKind::Json, &path, &add("eight")).await?.pin(known);
    let first = json!([
        {"op": "test", "path": "/spec/taints", "value": null},
        {"op": "add", "path": "/spec/taints", "value": [taint("nine")]},
    ]);
    ask(200, "a list is made where there was none").patch(PatchKind::Json, &path, &first).await?;
    ask(422, "which is tested").patch(PatchKind::Json, &path, &first).await?;
    let version = json!([{"op": "test", "path": "/metadata/resourceVersion", "value": "1"}]);
    ask(422, "the version can be tested").patch(PatchKind::Json, &path, &version).await?;
    let node = side.read(&path).await?;
    let version = json!([
        {"op": "test", "path": "/metadata/resourceVersion", "value": node["metadata"]["resourceVersion"]},
        {"op": "add", "path": "/metadata/labels/example.com~1mark", "value": "x"},
    ]);
    ask(200, "and passes, with a slash in a key").patch(PatchKind::Json, &path, &version).await?;
    Ok(())
}

async fn a_cordon_is_written_in_every_way(side: Side) -> Outcome {
    side.node("a").await?;
    let path = side.node_path("a");
    let is_cordoned = |node: &Value| node["spec"]["taints"][0]["key"] == "node.kubernetes.io/unschedulable";
    let is_free = |node: &Value| node["spec"]["taints"].is_null();
    let merge = |unschedulable: Value| json!({"spec": {"unschedulable": unschedulable}});
    let ways = [
        ("kubectl cordon", PatchKind::Strategic, merge(json!(true)), merge(Value::Null)),
        ("a merge patch", PatchKind::Merge, merge(json!(true)), merge(json!(false))),
        (
            "a JSON patch",
            PatchKind::Json,
            json!([{"op": "add", "path": "/spec/unschedulable", "value": true}]),
            json!([{"op": "remove", "path": "/spec/unschedulable"}]),
        ),
    ];
    for (way, kind, cordon, uncordon) in ways {
        let patch = side.ask(200, &format!("{way} cordons")).showing(&keys("/spec/unschedulable"));
        patch.patch(kind, &path, &cordon).await?.pin(json!({"/spec/unschedulable": true}));
        side.until("the taint follows", &path, is_cordoned).await?;
        let cordoned =
            side.ask(200, "cordoned").only(&["/spec/unschedulable", "/spec/taints/*/key", "/spec/taints/*/effect"]);
        let before = cordoned.get(&path).await?;
        if kind != PatchKind::Json {
            let again = side.ask(200, "once more").only(&["/spec/unschedulable"]).patch(kind, &path, &cordon).await?;
            side.holds("same version", before.version() == again.version());
        }
        let patch = side.ask(200, &format!("{way} uncordons")).showing(&keys("/spec/unschedulable"));
        patch.patch(kind, &path, &uncordon).await?.pin(json!({"/spec/unschedulable": "(absent)"}));
        side.until("the taint goes", &path, is_free).await?;
        side.ask(200, "free").only(&MARKS).get(&path).await?;
    }
    side.change(&path, &merge(json!(true))).await?;
    side.until("the taint follows", &path, is_cordoned).await?;
    let wipe = side.ask(200, "a patch takes the cordon's taint away").only(&["/spec/unschedulable"]);
    wipe.patch(PatchKind::Merge, &path, &json!({"spec": {"taints": null}})).await?;
    side.until("it comes back", &path, is_cordoned).await?;
    let mut read = side.read(&path).await?;
    read["spec"]["unschedulable"] = json!(false);
    let put = side.ask(200, "a PUT uncordons").only(&["/spec/unschedulable"]);
    put.put(&path, &read).await?;
    side.until("the taint goes", &path, is_free).await?;
    Ok(())
}

async fn marks_come_and_go_with_one_patch(side: Side) -> Outcome {
    side.node("a").await?;
    let path = side.node_path("a");
    let mark = |version: &Value, record: Value, unschedulable: Value| {
        json!({
            "metadata": {"resourceVersion": version, "annotations": {"example.com/record": record}},
            "spec": {"unschedulable": unschedulable},
        })
    };
    let version = |node: &Value| node["metadata"]["resourceVersion"].clone();
    let ask = |code: u16, label: &str| side.ask(code, label).showing(&keys("/spec/unschedulable"));
    let free = side.read(&path).await?;
    let patch = mark(&version(&free), json!("{\"since\":1}"), json!(true));
    let managed = format!("{path}?fieldManager=example");
    ask(200, "record and cordon, on what was read").patch(PatchKind::Merge, &managed, &patch).await?;
    let known = json!({
        "reason": "Conflict",
        "message": format!(
            "Operation cannot be fulfilled on nodes \"{}\": the object has been modified; please apply your changes to the \
             latest version and try again", side.node_name("a")
        ),
        "details": {"name": side.node_name("a"), "kind": "nodes"},
    });
    ask(409, "again, on what was read before").patch(PatchKind::Merge, &managed, &patch).await?.pin(known.clone());
    ask(409, "and as strategic merge").patch(PatchKind::Strategic, &managed, &patch).await?.pin(known);
    let is_cordoned = |node: &Value| node["spec"]["taints"].is_array();
    let cordoned = side.until("the taint follows", &path, is_cordoned).await?;
    let patch = mark(&version(&cordoned), Value::Null, Value::Null);
    ask(200, "both are taken back").patch(PatchKind::Merge, &managed, &patch).await?;
    let free = side.until("the taint goes", &path, |node| node["spec"]["taints"].is_null()).await?;
    let patch = mark(&version(&free), Value::Null, Value::Null);
    let nothing = ask(200, "nothing to take back").patch(PatchKind::Merge, &managed, &patch).await?;
    side.holds("same version", nothing.body["metadata"]["resourceVersion"] == free["metadata"]["resourceVersion"]);
    let dry_run = format!("{path}?dryRun=All");
    ask(200, "a dry run").patch(PatchKind::Merge, &dry_run, &json!({"spec": {"unschedulable": true}})).await?;
    ask(200, "changes nothing").get(&path).await?;
    Ok(())
}

async fn a_node_is_written_only_as_it_was_read(side: Side) -> Outcome {
    side.node("a").await?;
    let path = side.node_path("a");
    let mut read = side.read(&path).await?;
    read["metadata"]["labels"]["example.com/pool"] = json!("one");
    read["status"]["conditions"] = json!([]);
    let put = side.ask(200, "a PUT, which cannot write the status").showing(&CONDITIONS);
    let written = put.put(&path, &read).await?;
    side.ask(409, "the same, which is old now").put(&path, &read).await?.pin(json!({"reason": "Conflict"}));
    let mut read = side.read(&path).await?;
    let same = side.ask(200, "nothing new").put(&path, &read).await?;
    side.holds("same version", same.version() == written.version());
    if let Some(metadata) = read["metadata"].as_object_mut() {
        metadata.remove("resourceVersion");
    }
    side.ask(200, "without a version").only(&["/metadata/labels"]).put(&path, &read).await?;
    let foreign = json!({"metadata": {"uid": "00000000-aaaa-bbbb-cccc-000000000000"}});
    side.ask(422, "another UID").patch(PatchKind::Merge, &path, &foreign).await?;
    side.ask(415, "a patch that does not say of what kind")
        .header("content-type", "application/json")
        .exchange(Method::PATCH, &path, b"{\"metadata\":{\"labels\":{\"x\":\"y\"}}}".to_vec())
        .await?;
    side.ask(400, "a patch that is no JSON")
        .only(&["/reason"])
        .header("content-type", "application/merge-patch+json")
        .exchange(Method::PATCH, &path, b"{".to_vec())
        .await?;
    let wrong = json!({"metadata": {"labels": {"example.com/pool": "not a label"}}});
    let patch = side.ask(422, "no label").only(&["/reason", "/details/causes/0/field"]);
    patch.patch(PatchKind::Merge, &path, &wrong).await?;
    let wrong = json!({"spec": {"unschedulable": "yes"}});
    let patch = side.ask(422, "no truth").only(&["/reason"]);
    patch.patch(PatchKind::Merge, &path, &wrong).await?;
    side.ask(404, "no such node").patch(PatchKind::Merge, &side.node_path("b"), &json!({"metadata": {}})).await?;
    let provider = json!({"spec": {"providerID": "azure:///one"}});
    side.ask(200, "a machine is named once").showing(&["/spec"]).patch(PatchKind::Merge, &path, &provider).await?;
    let provider = json!({"spec": {"providerID": "azure:///two"}});
    let patch = side.ask(422, "and for ever").only(&["/reason", "/details/causes/0/field"]);
    patch.patch(PatchKind::Merge, &path, &provider).await?;
    Ok(())
}

async fn conditions_are_merged_by_type(side: Side) -> Outcome {
    side.node("a").await?;
    let path = format!("{}/status", side.node_path("a"));
    let ask = |label: &str| side.ask(200, label).showing(&CONDITIONS);
    let conditions = |conditions: Value| json!({"status": {"conditions": conditions}});
    let ours = json!([{"type": "Drained", "status": "False", "reason": "Draining", "message": "3 pods left"}]);
    ask("strategic merge adds one").patch(PatchKind::Strategic, &path, &conditions(ours)).await?;
    let changed = json!([{"type": "Drained", "status": "True"}]);
    let changed =
        ask("and changes only what it names").patch(PatchKind::Strategic, &path, &conditions(changed)).await?;
    side.fact("the message stays", changed.body["status"]["conditions"][0]["message"].clone());
    let removed = json!([{"$patch": "delete", "type": "Drained"}]);
    ask("and takes one out").patch(PatchKind::Strategic, &path, &conditions(removed.clone())).await?;
    ask("which may be gone").patch(PatchKind::Strategic, &path, &conditions(removed)).await?;
    let maybe = json!([{"type": "Drained", "status": "Maybe"}]);
    ask("nothing is validated").patch(PatchKind::Strategic, &path, &conditions(maybe)).await?;
    let append = json!([{"op": "add", "path": "/status/conditions/-", "value": {"type": "More", "status": "True"}}]);
    ask("JSON patch appends").patch(PatchKind::Json, &path, &append).await?;
    let only = json!([{"type": "Ready", "status": "True", "reason": "KubeletReady"}]);
    ask("a merge patch replaces all").patch(PatchKind::Merge, &path, &conditions(only)).await?;
    ask("the status reads as the node").get(&path).await?;
    Ok(())
}

async fn a_status_is_no_way_to_the_spec(side: Side) -> Outcome {
    side.node("a").await?;
    let (path, status) = (side.node_path("a"), format!("{}/status", side.node_path("a")));
    let shown = ["/spec/unschedulable", "/status/conditions/*/type"];
    let all = json!({
        "metadata": {"labels": {"example.com/a": "b"}, "annotations": {"example.com/c": "d"}},
        "spec": {"unschedulable": true},
        "status": {"conditions": [{"type": "Drained", "status": "True"}]},
    });
    let patch = side.ask(200, "through the status: marks and status, no spec").showing(&shown);
    patch.patch(PatchKind::Strategic, &status, &all).await?;
    let all = json!({
        "metadata": {"annotations": {"example.com/c": null}},
        "status": {"conditions": [{"type": "More", "status": "True"}]},
    });
    let patch = side.ask(200, "through the node: no status").showing(&shown);
    patch.patch(PatchKind::Strategic, &path, &all).await?;
    let mut read = side.read(&path).await?;
    read["status"]["nodeInfo"]["bootID"] = json!("boot-2");
    read["spec"]["unschedulable"] = json!(true);
    let put = side.ask(200, "a PUT to the status").showing(&["/spec/unschedulable", "/status/nodeInfo/bootID"]);
    put.put(&status, &read).await?;
    Ok(())
}

async fn nodes_are_selected_and_deleted(side: Side) -> Outcome {
    for name in ["a", "b"] {
        side.node(name).await?;
    }
    side.change(&side.node_path("b"), &json!({"spec": {"unschedulable": true}})).await?;
    let ours = in_query(&format!("{}={}", control_plane::NAMESPACE_LABEL, side.ns()));
    let list = format!("/api/v1/nodes?labelSelector={ours}");
    let names = ["/metadata/name"];
    side.ask(200, "by label").only(&names).get(&list).await?;
    for selector in
        ["spec.unschedulable=true", "spec.unschedulable=false", &format!("metadata.name={}", side.node_name("a"))]
    {
        let list = format!("{list}&fieldSelector={}", in_query(selector));
        side.ask(200, selector).only(&names).get(&list).await?;
    }
    let list = format!("{list}&fieldSelector={}", in_query("spec.providerID=x"));
    side.ask(400, "by a field that is not served").get(&list).await?;
    side.ask(200, "a node is deleted").delete(&side.node_path("a"), &Value::Null).await?;
    side.ask(404, "and gone").get(&side.node_path("a")).await?;
    side.ask(404, "for good").delete(&side.node_path("a"), &Value::Null).await?;
    let foreign = json!({"preconditions": {"uid": "00000000-aaaa-bbbb-cccc-000000000000"}});
    side.ask(409, "another UID").delete(&side.node_path("b"), &foreign).await?;
    let all = side.ask(200, "all that are left").only(&names);
    all.delete(&format!("/api/v1/nodes?labelSelector={ours}"), &Value::Null).await?;
    Ok(())
}

/// What others make of a node whose kubelet does not answer.
const HEALTH: [&str; 6] = [
    "/status/conditions/*/type",
    "/status/conditions/*/status",
    "/status/conditions/*/reason",
    "/status/conditions/*/message",
    "/spec/taints/*/key",
    "/spec/taints/*/effect",
];

fn has_taint(node: &Value, key: &str, effect: &str) -> bool {
    let taints = node["spec"]["taints"].as_array().into_iter().flatten();
    taints.into_iter().any(|taint| taint["key"] == key && taint["effect"] == effect)
}

fn is_free(node: &Value) -> bool {
    node["metadata"].is_object() && node["spec"]["taints"].is_null()
}

/// A pod on node `a` that its kubelet has started.
async fn started_pod(side: &Side) -> Outcome {
    side.create(&side.core("pods"), &side.pod_object("pod", "pod", Some("a"))).await?;
    side.until("the pod runs", &side.pod_path("pod"), |pod| pod["status"]["phase"] == "Running").await.map(drop)
}

async fn a_node_that_falls_silent_is_given_up_and_taken_back(side: Side) -> Outcome {
    const PATIENCE: Duration = Duration::from_secs(120);
    let kubelet = side.kubelet("a").await?;
    // As long as one is well, the fault is not taken to be the controller's own.
    let _other = side.kubelet("b").await?;
    started_pod(&side).await?;
    let path = side.node_path("a");
    let node = side.ask(200, "all is well").only(&HEALTH).get(&path).await?;
    let from = node.version();
    side.name(&format!("resourceVersion={from}"), "resourceVersion=<version>");
    let selector = in_query(&format!("metadata.name={}", side.node_name("a")));
    let watch = side.ask(200, "a watch of the node").only(&HEALTH);
    let mut watch = watch
        .watch(&format!("/api/v1/nodes?fieldSelector={selector}&watch=true&resourceVersion={from}&timeoutSeconds=230"))
        .await?;
    kubelet.stop_heartbeats();
    let is_given_up = |node: &Value| has_taint(node, "node.kubernetes.io/unreachable", "NoExecute");
    side.until_within(PATIENCE, "the node is given up", &path, is_given_up).await?;
    watch.events("what is known of it, then no more pods, then no pods", 3).await?;
    side.ask(200, "the node").only(&HEALTH).get(&path).await?.pin(json!({
        "/spec/taints/*/key": ["node.kubernetes.io/unreachable", "node.kubernetes.io/unreachable"],
        "/spec/taints/*/effect": ["NoSchedule", "NoExecute"],
    }));
    let ready = ["/metadata/deletionTimestamp", "/status/phase", "/status/conditions/*/type"];
    side.ask(200, "its pod stays some minutes").only(&ready).get(&side.pod_path("pod")).await?;
    kubelet.resume_heartbeats().await?;
    side.until("the node is taken back", &path, is_free).await?;
    watch.events("Ready, then the taints go one after the other", 3).await?;
    side.ask(200, "the node").only(&HEALTH).get(&path).await?;
    Ok(())
}

async fn a_node_that_reboots_is_out_of_use_meanwhile(side: Side) -> Outcome {
    let kubelet = side.kubelet("a").await?;
    let _other = side.kubelet("b").await?;
    started_pod(&side).await?;
    let path = side.node_path("a");
    let boot = text(&side.read(&path).await?, "/status/nodeInfo/bootID");
    kubelet.post_not_ready("node is shutting down").await?;
    let is_out = |node: &Value| {
        ["NoSchedule", "NoExecute"].iter().all(|effect| has_taint(node, "node.kubernetes.io/not-ready", effect))
    };
    side.until("the node is out of use", &path, is_out).await?;
    side.ask(200, "while it is down").only(&HEALTH).get(&path).await?;
    kubelet.power_off();
    kubelet.power_on().await?;
    side.until("the node is in use again", &path, is_free).await?;
    let node = side.ask(200, "after it").only(&HEALTH).get(&path).await?;
    side.holds("it has another boot id", node.text("/status/nodeInfo/bootID") != boot);
    side.ask(200, "its pod").only(&["/metadata/deletionTimestamp", "/status/phase"]).get(&side.pod_path("pod")).await?;
    Ok(())
}
