//! Lists and watches: versions, events, selectors, tables, and the refusals of all of them.

use control_plane::harness::Test;
use http::Method;
use serde_json::{Value, json};

use crate::pods::in_query;
use crate::scripts;
use crate::side::{Outcome, PatchKind, Side, running_status};

pub(crate) fn scripts() -> Vec<Test> {
    scripts![
        a_watch_tells_the_life_of_a_pod,
        a_watch_of_a_node_tells_of_its_pods_only,
        leaving_a_selection_is_a_deletion_for_its_watch,
        a_watch_begins_where_it_is_told,
        a_watch_of_one_node_sees_its_marks,
        a_version_that_cannot_be_served_is_refused,
        a_watch_ends_when_it_is_told,
        the_initial_events_can_be_asked_for,
        tables_are_made_for_people,
        what_is_not_served_is_refused,
    ]
}

const LIFE: [&str; 5] = [
    "/metadata/name",
    "/metadata/labels",
    "/metadata/deletionGracePeriodSeconds",
    "/status/phase",
    "/status/conditions/*/type",
];

/// The version of what a list says now.
async fn version(side: &Side, list: &str) -> Outcome<String> {
    Ok(crate::side::text(&side.read(list).await?, "/metadata/resourceVersion"))
}

fn version_of(event: &Value) -> Outcome<u64> {
    Ok(event["object"]["metadata"]["resourceVersion"].as_str().unwrap_or_default().parse()?)
}

async fn a_watch_tells_the_life_of_a_pod(side: Side) -> Outcome {
    side.node("a").await?;
    let pods = side.core("pods");
    let from = version(&side, &pods).await?;
    side.name(&format!("resourceVersion={from}"), "resourceVersion=<version>");
    let watch = side.ask(200, "a watch from a list").only(&LIFE);
    let mut watch = watch.watch(&format!("{pods}?watch=true&resourceVersion={from}")).await?;
    side.running_pod("pod", "pod", "a").await?;
    side.change(&side.pod_path("pod"), &json!({"metadata": {"labels": {"x": "y"}}})).await?;
    // Nothing changes, so that there is no event.
    side.change(&side.pod_path("pod"), &json!({"metadata": {"labels": {"x": "y"}}})).await?;
    side.make(Method::DELETE, &side.pod_path("pod"), &json!({"gracePeriodSeconds": 20})).await?;
    side.make(Method::DELETE, &side.pod_path("pod"), &json!({"gracePeriodSeconds": 0})).await?;
    let events = watch.events("created, running, labelled, terminating, gone", 5).await?;
    let mut versions = events.iter().map(version_of).collect::<Outcome<Vec<u64>>>()?;
    let given = versions.clone();
    versions.sort_unstable();
    versions.dedup();
    side.holds("every event has a version of its own, in order, also the last", versions == given);
    let deleted = side.core("pods/pod");
    side.ask(404, "the pod of the last event is gone").get(&deleted).await?;

    side.pending_pod("evicted", "pod", "a").await?;
    side.change(&side.core("pods/evicted/status"), &running_status(true)).await?;
    let eviction =
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "evicted", "namespace": side.ns()}});
    side.create(&side.core("pods/evicted/eviction"), &eviction).await?;
    watch.events("created, running, the condition, terminating", 4).await?;
    side.make(Method::DELETE, &pods, &json!({"gracePeriodSeconds": 0})).await?;
    watch.events("gone with all", 1).await?;
    Ok(())
}

async fn a_watch_of_a_node_tells_of_its_pods_only(side: Side) -> Outcome {
    side.node("a").await?;
    side.node("b").await?;
    let selector = in_query(&format!("spec.nodeName={}", side.node_name("a")));
    let list = format!("/api/v1/pods?fieldSelector={selector}");
    let from = version(&side, &list).await?;
    side.name(&format!("resourceVersion={from}"), "resourceVersion=<version>");
    let watch = side.ask(200, "a watch of a node's pods").only(&LIFE);
    let mut watch = watch.watch(&format!("{list}&watch=1&resourceVersion={from}&timeoutSeconds=50")).await?;
    side.running_pod("elsewhere", "pod", "b").await?;
    side.create(&side.core("pods"), &side.pod_object("later", "pod", None)).await?;
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "later"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": side.node_name("a")},
    });
    side.create(&side.core("pods/later/binding"), &binding).await?;
    watch.events("a pod comes when it is bound", 1).await?;
    side.change(&side.core("pods/later/status"), &running_status(true)).await?;
    side.make(Method::DELETE, &side.pod_path("elsewhere"), &json!({"gracePeriodSeconds": 0})).await?;
    side.make(Method::DELETE, &side.pod_path("later"), &json!({"gracePeriodSeconds": 0})).await?;
    watch.events("and goes", 2).await?;
    Ok(())
}

async fn leaving_a_selection_is_a_deletion_for_its_watch(side: Side) -> Outcome {
    side.node("a").await?;
    let list = side.core("pods?labelSelector=in%3Dyes");
    let running = side.core("pods?fieldSelector=status.phase%3DRunning");
    let from = version(&side, &list).await?;
    side.name(&format!("resourceVersion={from}"), "resourceVersion=<version>");
    let ask = |label: &str| side.ask(200, label).only(&LIFE);
    let mut labelled = ask("by label").watch(&format!("{list}&watch=true&resourceVersion={from}")).await?;
    let mut running = ask("by field").watch(&format!("{running}&watch=true&resourceVersion={from}")).await?;
    side.pending_pod("pod", "pod", "a").await?;
    let mark = |value: Value| json!({"metadata": {"labels": {"in": value}}});
    side.change(&side.pod_path("pod"), &mark(json!("yes"))).await?;
    labelled.events("it enters", 1).await?;
    side.change(&side.core("pods/pod/status"), &running_status(true)).await?;
    labelled.events("it changes inside", 1).await?;
    running.events("it enters", 1).await?;
    let left = side.change(&side.pod_path("pod"), &mark(json!("no"))).await?;
    let events = labelled.events("it leaves, as it was last inside", 1).await?;
    let its = |value: &Value| value["metadata"]["resourceVersion"].clone();
    side.holds("with the version of the change", its(&events[0]["object"]) == its(&left));
    running.events("it changes inside", 1).await?;
    side.change(&side.core("pods/pod/status"), &json!({"status": {"phase": "Succeeded"}})).await?;
    running.events("it leaves", 1).await?;
    side.change(&side.pod_path("pod"), &mark(json!("yes"))).await?;
    labelled.events("it is back", 1).await?;
    side.make(Method::DELETE, &side.pod_path("pod"), &json!({"gracePeriodSeconds": 0})).await?;
    labelled.events("it is gone", 1).await?;
    Ok(())
}

async fn a_watch_begins_where_it_is_told(side: Side) -> Outcome {
    side.node("a").await?;
    let created = side.pending_pod("pod", "pod", "a").await?;
    side.change(&side.core("pods/pod/status"), &running_status(true)).await?;
    let ask = |label: &str| side.ask(200, label).only(&LIFE);
    let pods = side.core("pods");
    ask("without a version").watch(&format!("{pods}?watch=true")).await?.events("what is there", 1).await?;
    let mut watch = ask("from 0").watch(&format!("{pods}?watch=true&resourceVersion=0")).await?;
    watch.events("what is there", 1).await?;
    let version = crate::side::text(&created, "/metadata/resourceVersion");
    side.name(&format!("resourceVersion={version}"), "resourceVersion=<version>");
    let past = format!("{pods}?watch=true&resourceVersion={version}");
    ask("from the past").watch(&past).await?.events("what came after", 1).await?;
    side.make(Method::DELETE, &side.pod_path("pod"), &json!({"gracePeriodSeconds": 0})).await?;
    ask("from the past again").watch(&past).await?.events("also what is gone", 2).await?;
    watch.events("which the others saw too", 1).await?;
    Ok(())
}

async fn a_watch_of_one_node_sees_its_marks(side: Side) -> Outcome {
    side.node("a").await?;
    side.node("b").await?;
    let selector = in_query(&format!("metadata.name={}", side.node_name("a")));
    let list = format!("/api/v1/nodes?fieldSelector={selector}");
    let from = version(&side, &list).await?;
    side.name(&format!("resourceVersion={from}"), "resourceVersion=<version>");
    let watch = side.ask(200, "a watch of one node").only(&["/metadata/name", "/metadata/annotations", "/spec"]);
    let mut watch = watch.watch(&format!("{list}&watch=true&resourceVersion={from}")).await?;
    let mark = json!({"metadata": {"annotations": {"example.com/record": "x"}}, "spec": {"unschedulable": true}});
    side.change(&side.node_path("b"), &mark).await?;
    side.change(&side.node_path("a"), &mark).await?;
    let events = watch.events("the mark, and the taint that follows", 2).await?;
    side.fact("taints", events[1]["object"]["spec"]["taints"][0]["key"].clone());
    side.make(Method::DELETE, &side.node_path("a"), &Value::Null).await?;
    watch.events("the end of the node", 1).await?;
    Ok(())
}

async fn a_version_that_cannot_be_served_is_refused(side: Side) -> Outcome {
    let pods = side.core("pods");
    side.ask(400, "a list of no version at all").only(&["/reason"]).get(&format!("{pods}?resourceVersion=abc")).await?;
    side.ask(500, "a watch from no version at all")
        .only(&["/reason"])
        .get(&format!("{pods}?watch=true&resourceVersion=abc"))
        .await?;
    let future = format!("{pods}?watch=true&timeoutSeconds=1&resourceVersion=999999999");
    let watch = side.ask(200, "a watch of the future");
    watch.whole().watch(&future).await?.rest("says nothing").await?;
    let future = format!("{pods}?resourceVersion=999999999");
    let refused = side.ask(504, "a list of the future").only(&[
        "/reason",
        "/details/causes/0/reason",
        "/details/retryAfterSeconds",
    ]);
    refused.get(&future).await?.pin(json!({
        "/reason": "Timeout", "/details/causes/0/reason": "ResourceVersionTooLarge", "/details/retryAfterSeconds": 1,
    }));
    side.ask(422, "a match without a version").get(&format!("{pods}?resourceVersionMatch=Exact")).await?;
    side.ask(200, "a version at least as new as 1")
        .only(&["/metadata/name"])
        .get(&format!("{pods}?resourceVersion=1"))
        .await?;
    side.ask(200, "the same in so many words")
        .only(&["/metadata/name"])
        .get(&format!("{pods}?resourceVersion=1&resourceVersionMatch=NotOlderThan"))
        .await?;
    Ok(())
}

async fn a_watch_ends_when_it_is_told(side: Side) -> Outcome {
    side.node("a").await?;
    side.pending_pod("pod", "pod", "a").await?;
    let pods = side.core("pods");
    let ask = |label: &str| side.ask(200, label).only(&["/metadata/name"]);
    let mut watch = ask("two seconds").watch(&format!("{pods}?watch=true&timeoutSeconds=2")).await?;
    watch.rest("what is there, and the end").await?;
    let bookmarks = format!("{pods}?watch=true&timeoutSeconds=2&allowWatchBookmarks=true");
    let mut watch = ask("with bookmarks").watch(&bookmarks).await?;
    watch.rest("what is there, and the end").await?;
    Ok(())
}

async fn the_initial_events_can_be_asked_for(side: Side) -> Outcome {
    side.node("a").await?;
    side.pending_pod("pod", "pod", "a").await?;
    let pods = side.core("pods");
    let query = format!("{pods}?watch=true&timeoutSeconds=2&sendInitialEvents=true");
    side.ask(422, "not without saying how old they may be").get(&query).await?;
    let query = format!("{query}&resourceVersionMatch=NotOlderThan");
    let shown = ["/kind", "/metadata/name", "/metadata/annotations"];
    let mut watch =
        side.ask(200, "with bookmarks").only(&shown).watch(&format!("{query}&allowWatchBookmarks=true")).await?;
    let events = watch.rest("what is there, and that this is all").await?;
    side.fact("their end", events[1]["object"]["metadata"]["annotations"].clone());
    Ok(())
}

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

async fn tables_are_made_for_people(side: Side) -> Outcome {
    side.node("a").await?;
    side.change(&side.node_path("a"), &json!({"metadata": {"labels": {"node-role.kubernetes.io/system": ""}}})).await?;
    side.running_pod("running", "pod", "a").await?;
    side.running_pod("sick", "pod", "a").await?;
    side.change(&side.core("pods/sick/status"), &running_status(false)).await?;
    side.pending_pod("pending", "pod", "a").await?;
    side.create(&side.core("pods"), &side.pod_object("unbound", "pod", None)).await?;
    side.running_pod("terminating", "pod", "a").await?;
    side.make(Method::DELETE, &side.pod_path("terminating"), &Value::Null).await?;
    for (name, phase) in [("done", "Succeeded"), ("failed", "Failed")] {
        side.running_pod(name, "pod", "a").await?;
        let exit = json!({"terminated": {"exitCode": 0, "reason": if name == "done" { "Completed" } else { "Error" }}});
        let status = json!({"status": {"phase": phase, "containerStatuses": [
            {"name": "main", "image": "x", "imageID": "", "ready": false, "restartCount": 2, "state": exit},
        ], "conditions": [{"type": "Ready", "status": "False"}]}});
        side.make(Method::PATCH, &side.core(&format!("pods/{name}/status")), &status).await?;
    }
    let shown = [
        "/kind",
        "/apiVersion",
        "/columnDefinitions/*/name",
        "/columnDefinitions/*/type",
        "/columnDefinitions/*/priority",
        "/rows/*/cells",
        "/rows/*/object/kind",
        "/rows/*/object/metadata/name",
    ];
    let ask = |label: &str| side.ask(200, label).only(&shown).header("accept", TABLE);
    ask("pods").get(&side.core("pods")).await?;
    ask("one pod").get(&side.pod_path("running")).await?;
    let ours = in_query(&format!("{}={}", control_plane::NAMESPACE_LABEL, side.ns()));
    ask("a node").get(&side.node_path("a")).await?;
    side.change(&side.node_path("a"), &json!({"spec": {"unschedulable": true}})).await?;
    ask("nodes, one cordoned").get(&format!("/api/v1/nodes?labelSelector={ours}")).await?;
    side.budget("pod", "pod", json!({"minAvailable": 1}), 1, 0).await?;
    ask("budgets").get(&side.group("policy/v1", "poddisruptionbudgets")).await?;
    side.budget("other", "none", json!({"maxUnavailable": "20%"}), 0, 0).await?;
    ask("a budget in percent").get(&side.budget_path("other")).await?;
    ask("a namespace").get(&format!("/api/v1/namespaces/{}", side.ns())).await?;
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "leader"}, "spec": {"holderIdentity": "a"},
    });
    side.create(&side.group("coordination.k8s.io/v1", "leases"), &lease).await?;
    ask("leases").get(&side.group("coordination.k8s.io/v1", "leases")).await?;
    let refused = side.ask(404, "a failure is no table").header("accept", TABLE);
    refused.get(&side.pod_path("nobody")).await?;
    let whole = side
        .ask(200, "with whole objects")
        .header("accept", TABLE)
        .only(&["/rows/*/object/kind", "/rows/*/object/spec/nodeName"]);
    whole.get(&format!("{}?includeObject=Object", side.core("pods"))).await?;
    let metadata = side.ask(200, "metadata alone").only(&["/metadata/name", "/spec"]);
    let metadata = metadata.header("accept", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io");
    metadata.get(&side.core("pods")).await?;
    Ok(())
}

async fn what_is_not_served_is_refused(side: Side) -> Outcome {
    let text = |path: &str| path.to_owned();
    for path in
        [text("/api/v1/nonsense"), side.core("nonsense"), text("/apis/no.such.group/v1/things"), text("/nonsense")]
    {
        side.ask(404, "no such path").get(&path).await?;
    }
    side.ask(405, "nobody may PUT a list").put(&side.core("pods"), &json!({})).await?;
    side.ask(405, "pods have no place without a namespace")
        .post("/api/v1/pods", &side.pod_object("x", "x", None))
        .await?;
    side.ask(406, "no such form").only(&["/reason"]).header("accept", "text/html").get(&side.core("pods")).await?;
    side.ask(415, "no such content")
        .header("content-type", "text/plain")
        .exchange(Method::POST, &side.core("pods"), b"pod".to_vec())
        .await?;
    side.ask(404, "no such subresource").get(&side.core("pods/x/nonsense")).await?;
    side.ask(405, "a POST to an object").post(&side.pod_path("x"), &json!({})).await?;
    side.ask(404, "a namespace that is not there has no pods to read").get("/api/v1/namespaces/no-such/pods/x").await?;
    side.ask(200, "but can be listed").only(&["/metadata/name"]).get("/api/v1/namespaces/no-such/pods").await?;
    side.ask(200, "also as anything").header("accept", "*/*").only(&["/metadata/name"]).get(&side.core("pods")).await?;
    let patch = side.ask(404, "a patch of no object");
    patch.patch(PatchKind::Merge, &side.pod_path("x"), &json!({})).await?;
    Ok(())
}
