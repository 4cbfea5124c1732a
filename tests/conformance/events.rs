//! Events: written in either API, read in both.

use control_plane::harness::Test;
use serde_json::{Value, json};

use crate::pods::in_query;
use crate::scripts;
use crate::side::{Outcome, PatchKind, Side};

pub(crate) fn scripts() -> Vec<Test> {
    scripts![
        an_event_of_the_old_api_is_read_in_both,
        an_event_of_the_new_api_is_read_in_both,
        an_event_that_lacks_something_is_refused,
        an_event_about_a_node_lives_in_the_default_namespace,
        events_are_selected_by_what_they_are_about,
    ]
}

const NEW: &str = "events.k8s.io/v1";
const OLD_FIELDS: [&str; 11] = [
    "/involvedObject",
    "/reason",
    "/message",
    "/type",
    "/count",
    "/firstTimestamp",
    "/lastTimestamp",
    "/eventTime",
    "/source",
    "/series",
    "/reportingComponent",
];
const NEW_FIELDS: [&str; 12] = [
    "/regarding",
    "/reason",
    "/note",
    "/type",
    "/action",
    "/eventTime",
    "/reportingController",
    "/reportingInstance",
    "/series",
    "/deprecatedCount",
    "/deprecatedFirstTimestamp",
    "/deprecatedSource",
];

fn old(side: &Side, name: &str, reason: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": side.ns()},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": "pod", "namespace": side.ns(), "uid": "some"},
        "reason": reason, "message": "something happened", "type": "Normal", "count": 1,
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z",
        "source": {"component": "example.com/agent"},
        "reportingComponent": "example.com/agent", "reportingInstance": "agent-1",
    })
}

fn new(side: &Side, name: &str, reason: &str) -> Value {
    json!({
        "apiVersion": NEW, "kind": "Event", "metadata": {"name": name, "namespace": side.ns()},
        "regarding": {"apiVersion": "v1", "kind": "Pod", "name": "other", "namespace": side.ns()},
        "reason": reason, "note": "something happened", "type": "Warning", "action": "Drain",
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "example.com/agent", "reportingInstance": "agent-1",
    })
}

async fn an_event_of_the_old_api_is_read_in_both(side: Side) -> Outcome {
    let events = side.core("events");
    let body = old(&side, "first", "Happened");
    side.ask(201, "written").showing(&OLD_FIELDS).post(&events, &body).await?;
    side.ask(409, "written twice").post(&events, &body).await?.pin(json!({"reason": "AlreadyExists"}));
    side.ask(200, "read").showing(&OLD_FIELDS).get(&side.core("events/first")).await?;
    side.ask(200, "read in the new API").showing(&NEW_FIELDS).get(&side.group(NEW, "events/first")).await?;
    let again = json!({"count": 2, "lastTimestamp": "2026-01-01T00:01:00Z", "message": "something happened again"});
    let patch = side.ask(200, "it happens again").showing(&OLD_FIELDS);
    patch.patch(PatchKind::Strategic, &side.core("events/first"), &again).await?;
    side.ask(200, "in the new API").showing(&NEW_FIELDS).get(&side.group(NEW, "events/first")).await?;
    side.ask(200, "deleted").delete(&side.core("events/first"), &Value::Null).await?;
    side.ask(404, "gone from both").get(&side.group(NEW, "events/first")).await?;
    Ok(())
}

async fn an_event_of_the_new_api_is_read_in_both(side: Side) -> Outcome {
    let events = side.group(NEW, "events");
    side.ask(201, "written").showing(&NEW_FIELDS).post(&events, &new(&side, "first", "Happened")).await?;
    side.ask(200, "read in the old API").showing(&OLD_FIELDS).get(&side.core("events/first")).await?;
    let path = side.group(NEW, "events/first");
    let series = json!({"series": {"count": 2, "lastObservedTime": "2026-01-01T00:01:00.000000Z"}});
    side.ask(200, "it happens again").showing(&NEW_FIELDS).patch(PatchKind::Merge, &path, &series).await?;
    let series = json!({"series": {"count": 3, "lastObservedTime": "2026-01-01T00:02:00.000000Z"}});
    side.ask(200, "and again").showing(&NEW_FIELDS).patch(PatchKind::Strategic, &path, &series).await?;
    side.ask(200, "the old API tells of it").showing(&OLD_FIELDS).get(&side.core("events/first")).await?;
    let patch = side.ask(422, "its note stays").only(&["/reason", "/details/causes/0/field"]);
    patch.patch(PatchKind::Merge, &path, &json!({"note": "something else"})).await?;
    side.ask(404, "one that has expired").patch(PatchKind::Merge, &side.group(NEW, "events/old"), &series).await?;
    Ok(())
}

async fn an_event_that_lacks_something_is_refused(side: Side) -> Outcome {
    let events = side.group(NEW, "events");
    for field in ["eventTime", "reportingController", "reportingInstance", "action", "reason", "type"] {
        let mut body = new(&side, "lacking", "Happened");
        body[field] = Value::Null;
        let refused = side.ask(422, &format!("without {field}")).only(&["/reason", "/details/causes/*/field"]);
        refused.post(&events, &body).await?;
    }
    let mut body = new(&side, "lacking", "Happened");
    body["note"] = json!("x".repeat(1025));
    side.ask(422, "too long a note").only(&["/reason", "/details/causes/*/field"]).post(&events, &body).await?;
    body["note"] = json!("x".repeat(1024));
    side.ask(201, "as long as may be").only(&["/reason"]).post(&events, &body).await?;
    let mut body = new(&side, "wrong-time", "Happened");
    body["eventTime"] = json!("2026-01-01T00:00:00Z");
    side.ask(400, "a time without decimals").only(&["/reason"]).post(&events, &body).await?;
    let nowhere = format!("/apis/{NEW}/events");
    side.ask(405, "in no namespace").post(&nowhere, &new(&side, "nowhere", "Happened")).await?;
    Ok(())
}

async fn an_event_about_a_node_lives_in_the_default_namespace(side: Side) -> Outcome {
    let about_node = |namespace: &str| {
        let name = side.node_name("event");
        let mut body = old(&side, &name, "Drained");
        body["metadata"]["namespace"] = json!(namespace);
        body["involvedObject"] =
            json!({"apiVersion": "v1", "kind": "Node", "name": side.node_name("a"), "uid": "some"});
        body
    };
    let create = side.ask(201, "in the default namespace").showing(&OLD_FIELDS);
    create.post("/api/v1/namespaces/default/events", &about_node("default")).await?;
    side.ask(422, "nowhere else").post(&side.core("events"), &about_node(side.ns())).await?;
    let mut elsewhere = old(&side, "elsewhere", "Happened");
    elsewhere["involvedObject"]["namespace"] = json!("default");
    side.ask(422, "a pod's event stays with the pod").post(&side.core("events"), &elsewhere).await?;
    let mut new = new(&side, "node", "Happened");
    new["regarding"] = json!({"apiVersion": "v1", "kind": "Node", "name": side.node_name("a")});
    side.ask(422, "in the new API as well").post(&side.group(NEW, "events"), &new).await?;
    new["regarding"]["namespace"] = json!(side.ns());
    side.ask(201, "unless it claims a namespace for the node")
        .showing(&NEW_FIELDS)
        .post(&side.group(NEW, "events"), &new)
        .await?;
    let event = format!("/api/v1/namespaces/default/events/{}", side.node_name("event"));
    side.ask(200, "deleted").delete(&event, &Value::Null).await?;
    Ok(())
}

async fn events_are_selected_by_what_they_are_about(side: Side) -> Outcome {
    side.create(&side.core("events"), &old(&side, "a", "Happened")).await?;
    side.create(&side.core("events"), &old(&side, "b", "Drained")).await?;
    side.create(&side.group(NEW, "events"), &new(&side, "c", "Happened")).await?;
    let selectors = [
        "involvedObject.name=pod",
        "involvedObject.name=pod,reason=Drained",
        "involvedObject.kind=Pod,involvedObject.uid=some",
        "involvedObject.namespace=default",
        "reason=Happened",
        "type=Warning",
        "type!=Normal",
        "source=example.com/agent",
        "metadata.name=a",
    ];
    for selector in selectors {
        let list = side.ask(200, selector).only(&["/metadata/name"]);
        list.get(&side.core(&format!("events?fieldSelector={}", in_query(selector)))).await?;
    }
    for selector in [
        "regarding.name=other",
        "regarding.kind=Pod,reason=Happened",
        "type=Warning",
        "reportingController=example.com/agent",
    ] {
        let list = side.ask(200, selector).only(&["/metadata/name"]);
        list.get(&side.group(NEW, &format!("events?fieldSelector={}", in_query(selector)))).await?;
    }
    let list = side.ask(400, "a field that is not served");
    list.get(&side.core(&format!("events?fieldSelector={}", in_query("message=x")))).await?;
    Ok(())
}
