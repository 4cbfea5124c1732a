//! The server as its callers see it, in virtual time.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use domain::time::Monotonic;
use futures::{FutureExt, StreamExt, TryStreamExt};
use http::Request;
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tower::ServiceExt;

use super::kinds::{CUSTOM_RESOURCE_DEFINITIONS, DISRUPTION_BUDGETS, NAMESPACES, NODES, PODS};
use super::store::{Actor, Key, Topic};
use super::{ApiServer, Part};
use crate::clock::Clock;

const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

fn server() -> ApiServer {
    ApiServer::new(Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap()), 7)
}

fn somebody() -> Actor {
    Actor::new("somebody")
}

fn client(server: &ApiServer) -> Client {
    Client::new(server.service(somebody()), "default")
}

/// The code and the body of an answer.
async fn ask(server: &ApiServer, method: &str, path: &str, content_type: &str, body: Value) -> (u16, Value) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let request = Request::builder().method(method).uri(path).header("content-type", content_type).body(body).unwrap();
    let answer = server.service(somebody()).oneshot(request).await.unwrap();
    let code = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&body).unwrap_or_else(|_| Value::from(String::from_utf8_lossy(&body))))
}

async fn get(server: &ApiServer, path: &str) -> (u16, Value) {
    ask(server, "GET", path, "", Value::Null).await
}

async fn post(server: &ApiServer, path: &str, body: Value) -> (u16, Value) {
    ask(server, "POST", path, "application/json", body).await
}

fn create_node(server: &ApiServer, name: &str) {
    server.create(&somebody(), NODES, "", json!({"metadata": {"name": name}})).unwrap();
}

fn elapsed(server: &ApiServer, began: Monotonic) -> Duration {
    server.clock().now().monotonic.since(began)
}

/// A pod on node `n`, in this phase, and Ready if it runs.
fn create_pod(server: &ApiServer, name: &str, phase: &str) {
    let pod = json!({
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i:1"}]},
    });
    server.create(&somebody(), PODS, "default", pod).unwrap();
    let key = Key::new("default", name);
    let ready = if phase == "Running" { "True" } else { "False" };
    let status = json!({"phase": phase, "conditions": [{"type": "Ready", "status": ready}]});
    server
        .update(&somebody(), PODS, &key, Part::Status, |pod| {
            pod["status"] = status;
            Ok(())
        })
        .unwrap();
}

fn create_budget(server: &ApiServer, name: &str, allowed: i64) {
    let budget =
        json!({"metadata": {"name": name}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}});
    server.create(&somebody(), DISRUPTION_BUDGETS, "default", budget).unwrap();
    server
        .update(&somebody(), DISRUPTION_BUDGETS, &Key::new("default", name), Part::Status, |budget| {
            budget["status"] = json!({"observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": 1,
                "desiredHealthy": 1, "expectedPods": 1});
            Ok(())
        })
        .unwrap();
}

async fn evict(server: &ApiServer, pod: &str, options: Value) -> (u16, Value) {
    let body =
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}, "deleteOptions": options});
    post(server, &format!("/api/v1/namespaces/default/pods/{pod}/eviction"), body).await
}

fn describe<K: ResourceExt>(event: &WatchEvent<K>) -> String {
    match event {
        WatchEvent::Added(object) => format!("added {}", object.name_any()),
        WatchEvent::Modified(object) => format!("modified {}", object.name_any()),
        WatchEvent::Deleted(object) => format!("deleted {}", object.name_any()),
        WatchEvent::Bookmark(_) => "bookmark".into(),
        WatchEvent::Error(status) => format!("error {} {}", status.code, status.message),
    }
}

/// All that a watch says until it ends.
async fn watched<K>(api: &Api<K>, params: WatchParams, from: &str) -> Vec<String>
where
    K: kube::core::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + 'static,
{
    let events: Vec<_> = api.watch(&params, from).await.unwrap().try_collect().await.unwrap();
    events.iter().map(describe).collect()
}

#[tokio::test(start_paused = true)]
async fn a_watch_goes_on_from_a_version_and_ends_in_time() {
    let server = server();
    create_node(&server, "a");
    let nodes: Api<Node> = Api::all(client(&server));
    let version = nodes.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    create_node(&server, "b");
    let label = Patch::Merge(json!({"metadata": {"labels": {"x": "y"}}}));
    nodes.patch("a", &PatchParams::default(), &label).await.unwrap();
    nodes.delete("b", &DeleteParams::default()).await.unwrap();
    let began = server.clock().now().monotonic;
    let said = watched(&nodes, WatchParams::default().timeout(50), &version).await;
    assert_eq!(said, ["added b", "modified a", "deleted b"]);
    assert_eq!(elapsed(&server, began), Duration::from_secs(50));
}

#[tokio::test(start_paused = true)]
async fn what_leaves_the_selection_of_a_watch_is_deleted_for_it() {
    let server = server();
    create_pod(&server, "p", "Pending");
    let pods: Api<Pod> = Api::all(client(&server));
    let ready = json!({"status": {"phase": "Running"}});
    pods_in_default(&server).patch_status("p", &PatchParams::default(), &Patch::Merge(ready)).await.unwrap();
    let pending = WatchParams::default().fields("status.phase=Pending").timeout(2);
    assert_eq!(watched(&pods, pending, "5").await, ["added p", "modified p", "deleted p"]);
}

fn pods_in_default(server: &ApiServer) -> Api<Pod> {
    Api::default_namespaced(client(server))
}

#[tokio::test(start_paused = true)]
async fn a_watch_sees_what_is_written_while_it_waits() {
    let server = server();
    let nodes: Api<Node> = Api::all(client(&server));
    let mut events = nodes.watch(&WatchParams::default().disable_bookmarks(), "0").await.unwrap().boxed();
    let writes = async {
        server.clock().sleep(Duration::from_secs(5)).await;
        create_node(&server, "late");
    };
    let (event, ()) = tokio::join!(events.try_next(), writes);
    assert_eq!(describe(&event.unwrap().unwrap()), "added late");
}

#[tokio::test(start_paused = true)]
async fn a_watch_says_every_minute_that_it_lives_if_that_is_wanted() {
    let server = server();
    let nodes: Api<Node> = Api::all(client(&server));
    let said = watched(&nodes, WatchParams::default().timeout(130), "0").await;
    assert_eq!(said, ["bookmark", "bookmark", "bookmark"], "the first ends what was there at the start");
    let silent = watched(&nodes, WatchParams::default().timeout(130).disable_bookmarks(), "0").await;
    assert!(silent.is_empty(), "{silent:?}");
}

#[tokio::test(start_paused = true)]
async fn a_change_wakes_those_whom_it_concerns_and_no_others() {
    let server = server();
    create_pod(&server, "p", "Pending");
    let version = server.store().lock().version();
    let topics = [
        Topic::Everything,
        Topic::Name("n".into()),
        Topic::Name("m".into()),
        Topic::Node("n".into()),
        Topic::Node("m".into()),
    ];
    let mut waiting: Vec<_> =
        topics.iter().map(|topic| Box::pin(server.store().changed(PODS, topic, version))).collect();
    let mut woken = || -> Vec<bool> { waiting.iter_mut().map(|one| one.now_or_never().is_some()).collect() };
    assert_eq!(woken(), [false; 5]);
    // On node n, with another name.
    server.delete(&somebody(), PODS, &Key::new("default", "p"), &super::Deletion::default()).unwrap();
    let waits_no_more = || async { server.store().changed(PODS, &Topic::Name("m".into()), version).await };
    assert!(waits_no_more().now_or_never().is_some(), "what has happened is not waited for");
    assert_eq!(woken(), [true, false, false, true, false]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_one_node_outlasts_any_number_of_changes_to_others() {
    let server = server();
    let nodes: Api<Node> = Api::all(client(&server));
    create_node(&server, "mine");
    let params = WatchParams::default().fields("metadata.name=mine").timeout(290);
    let mut events = nodes.watch(&params, "0").await.unwrap().boxed();
    let writes = async {
        for number in 0..24_000 {
            let mark = |node: &mut Value| {
                node["metadata"]["labels"] = json!({"number": number.to_string()});
                Ok(())
            };
            if number == 0 {
                create_node(&server, "other");
            }
            server.update(&somebody(), NODES, &Key::new("", "other"), Part::Main, mark).unwrap();
            if number % 1000 == 0 {
                tokio::task::yield_now().await;
            }
        }
        server.store().lock().version().to_string()
    };
    let reads = async {
        let (mut said, mut seen) = (Vec::new(), Vec::new());
        while let Some(event) = events.try_next().await.unwrap() {
            if let WatchEvent::Bookmark(bookmark) = &event {
                seen.push(bookmark.metadata.resource_version.clone());
            }
            said.push(describe(&event));
        }
        (said, seen)
    };
    let ((said, seen), version) = tokio::join!(reads, writes);
    assert_eq!(said, ["added mine", "bookmark", "bookmark", "bookmark", "bookmark", "bookmark"]);
    assert_eq!(seen[1..], [(); 4].map(|()| version.clone()), "bookmarks pass by what was not selected");
}

#[tokio::test]
async fn a_server_that_is_dropped_breaks_its_connections() {
    let server = server();
    create_node(&server, "a");
    let socket = server.serve_on_loopback(0).await.unwrap();
    let url = format!("{}/api/v1/nodes?watch=true&timeoutSeconds=5", socket.url());
    let client = crate::http_client::builder().build().unwrap();
    let mut watch = client.get(&url).send().await.unwrap();
    assert!(watch.chunk().await.unwrap().is_some(), "the watch tells of the node");
    drop(socket);
    assert!(watch.chunk().await.is_err(), "the watch breaks off");
    assert!(client.get(&url).send().await.is_err(), "nobody listens");
}

#[tokio::test(start_paused = true)]
async fn what_is_older_than_the_history_has_expired() {
    let server = server();
    for name in ["a", "b", "c"] {
        create_node(&server, name);
    }
    let (_, first) = get(&server, "/api/v1/nodes?limit=1").await;
    let token = first["metadata"]["continue"].as_str().unwrap().to_owned();
    assert_eq!(first["metadata"]["remainingItemCount"], 2);
    create_node(&server, "a0");
    let (_, second) = get(&server, &format!("/api/v1/nodes?limit=1&continue={token}")).await;
    assert_eq!(second["items"][0]["metadata"]["name"], "b", "a list goes on as of the version of its first portion");
    let version = second["metadata"]["resourceVersion"].clone();
    assert_eq!(version, first["metadata"]["resourceVersion"]);

    server.store().lock().compact();
    let nodes: Api<Node> = Api::all(client(&server));
    let said = watched(&nodes, WatchParams::default(), "1").await;
    assert_eq!(said, ["error 410 too old resource version: 1 (9)"]);
    let (code, exact) = get(&server, "/api/v1/nodes?resourceVersion=1&resourceVersionMatch=Exact").await;
    assert_eq!((code, exact["reason"].as_str()), (410, Some("Expired")));
    let (code, expired) = get(&server, &format!("/api/v1/nodes?continue={token}")).await;
    assert_eq!((code, expired["reason"].as_str()), (410, Some("Expired")));
    assert!(expired["message"].as_str().unwrap().starts_with("The provided continue parameter is too old"));
    let fresh = expired["metadata"]["continue"].as_str().unwrap();
    let (code, rest) = get(&server, &format!("/api/v1/nodes?continue={fresh}")).await;
    let names: Vec<_> =
        rest["items"].as_array().unwrap().iter().filter_map(|node| node["metadata"]["name"].as_str()).collect();
    assert_eq!((code, names), (200, vec!["a0", "b", "c"]));
}

#[tokio::test(start_paused = true)]
async fn a_list_waits_three_seconds_for_a_version_of_the_future() {
    let server = server();
    let began = server.clock().now().monotonic;
    let (code, refusal) = get(&server, "/api/v1/nodes?resourceVersion=1000").await;
    assert_eq!((code, refusal["reason"].as_str()), (504, Some("Timeout")));
    assert_eq!(refusal["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    assert_eq!(elapsed(&server, began), Duration::from_secs(3));
    let nodes: Api<Node> = Api::all(client(&server));
    create_node(&server, "a");
    let said = watched(&nodes, WatchParams::default().timeout(5), "1000").await;
    assert!(said.is_empty(), "a watch says nothing: {said:?}");
}

#[tokio::test(start_paused = true)]
async fn whoever_has_an_old_version_is_told_so() {
    let server = server();
    create_node(&server, "a");
    let nodes: Api<Node> = Api::all(client(&server));
    let mut old = nodes.get("a").await.unwrap();
    let cordon = Patch::Strategic(json!({"spec": {"unschedulable": true}}));
    nodes.patch("a", &PatchParams::apply("kubectl-cordon"), &cordon).await.unwrap();
    old.spec.get_or_insert_default().provider_id = Some("azure:///x".into());
    let Err(kube::Error::Api(status)) = nodes.replace("a", &PostParams::default(), &old).await else {
        panic!("the old version was taken");
    };
    assert_eq!((status.code, status.reason.as_str()), (409, "Conflict"));
    let now = nodes.get("a").await.unwrap();
    let managers: Vec<_> = now.managed_fields().iter().filter_map(|entry| entry.manager.as_deref()).collect();
    assert_eq!(managers, ["kubectl-cordon"]);
}

#[tokio::test(start_paused = true)]
async fn an_eviction_uses_up_its_budget_and_the_next_is_refused() {
    let server = server();
    create_pod(&server, "web-0", "Running");
    create_pod(&server, "web-1", "Running");
    create_budget(&server, "b", 1);
    let (code, pretended) = evict(&server, "web-0", json!({"dryRun": ["All"]})).await;
    assert_eq!((code, pretended["status"].as_str()), (201, Some("Success")));
    assert_eq!(evict(&server, "web-0", json!({"gracePeriodSeconds": 20})).await.0, 201);
    let pod = server.get(PODS, &Key::new("default", "web-0")).unwrap();
    assert_eq!(pod["metadata"]["deletionTimestamp"], "2026-01-01T00:00:20Z");
    assert_eq!(pod["metadata"]["deletionGracePeriodSeconds"], 20);
    assert_eq!(pod["status"]["conditions"][1]["reason"], "EvictionByEvictionAPI");
    let budget = server.get(DISRUPTION_BUDGETS, &Key::new("default", "b")).unwrap();
    assert_eq!(budget["status"]["disruptionsAllowed"], 0);
    assert_eq!(budget["status"]["disruptedPods"], json!({"web-0": "2026-01-01T00:00:00Z"}));

    let (code, refusal) = evict(&server, "web-1", Value::Null).await;
    assert_eq!(code, 429);
    let why = "The disruption budget b needs 1 healthy pods and has 1 currently";
    assert_eq!(refusal["details"], json!({"causes": [{"reason": "DisruptionBudget", "message": why}]}));
    assert_eq!(evict(&server, "web-0", Value::Null).await.0, 201, "what terminates needs no budget");

    create_budget(&server, "c", 1);
    let (code, refusal) = evict(&server, "web-1", Value::Null).await;
    assert_eq!((code, refusal.get("reason"), refusal.get("details")), (500, None, None));
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_was_just_changed_asks_for_patience() {
    let server = server();
    create_pod(&server, "web-0", "Running");
    let budget = json!({"metadata": {"name": "new"}, "spec": {"selector": {}}});
    server.create(&somebody(), DISRUPTION_BUDGETS, "default", budget).unwrap();
    let (code, refusal) = evict(&server, "web-0", Value::Null).await;
    assert_eq!((code, refusal["details"]["retryAfterSeconds"].as_u64()), (429, Some(10)));
}

#[tokio::test(start_paused = true)]
async fn a_foreign_uid_is_found_out_at_once_on_a_running_pod_and_late_on_one_that_needs_no_budget() {
    let server = server();
    create_pod(&server, "running", "Running");
    create_pod(&server, "pending", "Pending");
    for (pod, least) in [("running", 0), ("pending", 9)] {
        let began = server.clock().now().monotonic;
        let (code, refusal) = evict(&server, pod, json!({"preconditions": {"uid": "foreign"}})).await;
        assert_eq!((code, refusal["details"]["kind"].as_str()), (409, Some("Pod")));
        assert_eq!(elapsed(&server, began).as_secs(), least, "{pod}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_on_a_node_ends_in_two_steps_and_one_without_at_once() {
    let server = server();
    create_pod(&server, "web-0", "Running");
    let pods = pods_in_default(&server);
    let version = server.store().lock().version().to_string();
    pods.delete("web-0", &DeleteParams::default()).await.unwrap();
    assert_eq!(pods.get("web-0").await.unwrap().metadata.deletion_grace_period_seconds, Some(30));
    pods.delete("web-0", &DeleteParams::default().grace_period(0)).await.unwrap();
    let said = watched(&pods, WatchParams::default().timeout(1), &version).await;
    assert_eq!(said, ["modified web-0", "modified web-0", "deleted web-0"]);
}

#[tokio::test(start_paused = true)]
async fn nothing_new_comes_into_a_namespace_that_goes() {
    let server = server();
    let path = "/api/v1/namespaces/shop/configmaps";
    assert_eq!(post(&server, path, json!({"metadata": {"name": "a"}})).await.0, 404);
    server.create(&somebody(), NAMESPACES, "", json!({"metadata": {"name": "shop"}})).unwrap();
    assert_eq!(post(&server, path, json!({"metadata": {"name": "a"}})).await.0, 201);
    let (code, namespace) = ask(&server, "DELETE", "/api/v1/namespaces/shop", "", Value::Null).await;
    assert_eq!((code, namespace["status"]["phase"].as_str()), (200, Some("Terminating")));
    let (code, refusal) = post(&server, path, json!({"metadata": {"name": "b"}})).await;
    assert_eq!(code, 403);
    assert_eq!(refusal["details"]["causes"][0]["reason"], "NamespaceTerminating");
    let finalized = json!({"metadata": {"name": "shop"}, "spec": {}});
    let (code, _) = ask(&server, "PUT", "/api/v1/namespaces/shop/finalize", "application/json", finalized).await;
    assert_eq!((code, get(&server, "/api/v1/namespaces/shop").await.0), (200, 404));
}

#[tokio::test(start_paused = true)]
async fn a_custom_resource_is_served_as_long_as_its_definition_is_there() {
    let server = server();
    let path = "/apis/x.io/v1/repairs";
    assert_eq!(get(&server, path).await, (404, "404 page not found\n".into()));
    let definition = json!({
        "metadata": {"name": "repairs.x.io"},
        "spec": {
            "group": "x.io",
            "scope": "Cluster",
            "names": {"plural": "repairs", "kind": "Repair"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "selectableFields": [{"jsonPath": ".spec.node"}]}],
        },
    });
    server.create(&somebody(), CUSTOM_RESOURCE_DEFINITIONS, "", definition).unwrap();
    let repair = json!({"apiVersion": "x.io/v1", "kind": "Repair", "metadata": {"name": "r"}, "spec": {"node": "n"},
        "status": {"phase": "New"}});
    let (code, created) = post(&server, path, repair).await;
    assert_eq!((code, created.get("status")), (201, None), "a status comes through its subresource only");

    let one = format!("{path}/r");
    let (_, same) = ask(&server, "PATCH", &one, MERGE, json!({"status": {"phase": "Done"}})).await;
    assert_eq!(same["metadata"]["resourceVersion"], created["metadata"]["resourceVersion"]);
    let status = json!({"status": {"phase": "Done"}, "spec": {"node": "m"}, "metadata": {"labels": {"a": "b"}}});
    let (_, done) = ask(&server, "PATCH", &format!("{one}/status"), MERGE, status).await;
    assert_eq!((&done["status"]["phase"], &done["spec"]["node"]), (&json!("Done"), &json!("n")));
    assert_eq!((done["metadata"].get("labels"), &done["metadata"]["generation"]), (None, &json!(1)));
    assert_eq!(ask(&server, "PATCH", &one, STRATEGIC, json!({})).await.0, 415);
    let found = |list: Value| list["items"].as_array().map(Vec::len);
    assert_eq!(found(get(&server, &format!("{path}?fieldSelector=spec.node%3Dn")).await.1), Some(1));
    assert_eq!(get(&server, &format!("{path}?fieldSelector=spec.other%3Dn")).await.0, 400);

    server
        .delete(&somebody(), CUSTOM_RESOURCE_DEFINITIONS, &Key::new("", "repairs.x.io"), &super::Deletion::default())
        .unwrap();
    assert_eq!(get(&server, path).await.0, 404);
    assert!(server.list("repairs.x.io", None).is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_event_of_one_api_is_one_of_the_other() {
    let server = server();
    let event = json!({"metadata": {"name": "e"}, "eventTime": "2026-01-01T00:00:00.000000Z", "type": "Normal",
        "reportingController": "x.io/y", "reportingInstance": "i", "action": "Act", "reason": "Why", "note": "hello",
        "regarding": {"kind": "Node", "name": "n"}});
    let new = "/apis/events.k8s.io/v1/namespaces/default/events";
    assert_eq!(post(&server, new, event).await.0, 201);
    let (_, old) = get(&server, "/api/v1/namespaces/default/events/e").await;
    assert_eq!((&old["message"], &old["involvedObject"]["name"]), (&json!("hello"), &json!("n")));
    assert_eq!((&old["kind"], &old["apiVersion"]), (&json!("Event"), &json!("v1")));
    let series = json!({"series": {"count": 2, "lastObservedTime": "2026-01-01T00:01:00.000000Z"}});
    let (code, twice) = ask(&server, "PATCH", &format!("{new}/e"), MERGE, series).await;
    assert_eq!((code, &twice["note"], &twice["series"]["count"]), (200, &json!("hello"), &json!(2)));
    let (code, _) = ask(&server, "PATCH", &format!("{new}/e"), MERGE, json!({"note": "other"})).await;
    assert_eq!(code, 422);
    let wrong = json!({"metadata": {"name": "f"}, "eventTime": "2026-01-01T00:00:00Z"});
    assert_eq!(post(&server, new, wrong).await.0, 400);
}

#[tokio::test(start_paused = true)]
async fn a_request_is_seen_with_its_answer() {
    let server = server();
    create_pod(&server, "web-0", "Running");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&seen);
    server.observe_requests(Box::new(move |request| notes.lock().unwrap().push(request.clone())));
    evict(&server, "web-0", json!({"preconditions": {"uid": "foreign"}})).await;
    let seen = seen.lock().unwrap();
    let [request] = seen.as_slice() else { panic!("one request was sent: {seen:?}") };
    assert_eq!((request.verb, request.resource.as_str(), request.code), ("create", PODS, 409));
    assert_eq!((request.subresource.as_deref(), &request.key), (Some("eviction"), &Key::new("default", "web-0")));
    assert_eq!(request.actor.as_str(), "somebody");
    let body = request.body.as_deref().unwrap();
    assert_eq!(body["deleteOptions"]["preconditions"]["uid"], "foreign");
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_and_requests_give_the_same_bytes() {
    async fn play() -> String {
        let server = server();
        create_node(&server, "n");
        let generated = json!({"metadata": {"generateName": "web-"}, "spec": {"containers": [{"name": "c"}]}});
        post(&server, "/api/v1/namespaces/default/pods", generated).await;
        get(&server, "/api/v1/pods").await.1.to_string()
    }
    assert_eq!(play().await, play().await);
}
