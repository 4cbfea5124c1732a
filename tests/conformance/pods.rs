//! Pods: how they are made, read, written, bound and deleted.

use control_plane::harness::Test;
use http::Method;
use serde_json::{Value, json};

use crate::scripts;
use crate::side::{Outcome, PatchKind, Side, running_status, text};

pub(crate) fn scripts() -> Vec<Test> {
    scripts![
        a_pod_is_created_once,
        a_pod_is_written_by_patch_and_put,
        the_status_of_a_pod_is_written_apart_from_it,
        a_pod_is_deleted_with_its_grace,
        pods_are_deleted_by_selection,
        a_pod_is_bound_to_a_node_once,
        pods_are_selected_by_label,
        pods_are_selected_by_field,
        lists_come_in_pages,
    ]
}

async fn a_pod_is_created_once(side: Side) -> Outcome {
    side.node("a").await?;
    let pods = side.core("pods");
    let shown = [
        "/spec/nodeName",
        "/spec/restartPolicy",
        "/spec/terminationGracePeriodSeconds",
        "/spec/tolerations",
        "/spec/priority",
        "/spec/schedulerName",
        "/spec/serviceAccountName",
        "/status/phase",
        "/status/qosClass",
    ];
    let body = side.pod_object("pod", "pod", Some("a"));
    let created = side.ask(201, "a pod on a node").showing(&shown).post(&pods, &body).await?;
    let created = created.pin(json!({"/spec/terminationGracePeriodSeconds": 30, "/status/phase": "Pending"}));
    let read = side.ask(200, "reads as it was created").showing(&shown).get(&side.pod_path("pod")).await?;
    side.holds("same version", created.version() == read.version());
    let known = json!({"reason": "AlreadyExists", "details": {"name": "pod", "kind": "pods"}});
    side.ask(409, "the name is taken").post(&pods, &body).await?.pin(known);
    let unbound = side.pod_object("unbound", "pod", None);
    side.ask(201, "a pod without node").showing(&["/spec/nodeName", "/status/phase"]).post(&pods, &unbound).await?;

    let mut generated = side.pod_object("", "pod", Some("a"));
    generated["metadata"] = json!({"generateName": "made-", "labels": {"app": "pod"}});
    let made = side.ask(201, "a name to be made up").only(&["/metadata/generateName"]).post(&pods, &generated).await?;
    let name = made.text("/metadata/name");
    side.holds("it begins as told, and has five more characters", name.starts_with("made-") && name.len() == 10);

    let mut critical = side.pod_object("critical", "pod", Some("a"));
    critical["spec"]["priorityClassName"] = json!("system-cluster-critical");
    critical["spec"]["terminationGracePeriodSeconds"] = json!(5);
    critical["spec"]["volumes"] = json!([{"name": "scratch", "emptyDir": {}}]);
    let shown = ["/spec/priority", "/spec/terminationGracePeriodSeconds", "/spec/volumes/0"];
    side.ask(201, "priority, grace, volume").showing(&shown).post(&pods, &critical).await?;
    critical["metadata"]["name"] = json!("unknown-class");
    critical["spec"]["priorityClassName"] = json!("no-such-class");
    side.ask(403, "an unknown priority class").post(&pods, &critical).await?;

    let nameless = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": body["spec"]});
    side.ask(422, "no name").only(&["/reason"]).post(&pods, &nameless).await?;
    let mut wrong = side.pod_object("Wrong_Name", "pod", Some("a"));
    side.ask(422, "no DNS name").only(&["/reason", "/details/causes/0/field"]).post(&pods, &wrong).await?;
    wrong = side.pod_object("wrong", "pod", Some("a"));
    wrong["metadata"]["namespace"] = json!("default");
    side.ask(400, "another namespace than in the URL").post(&pods, &wrong).await?;
    wrong = side.pod_object("wrong", "pod", Some("a"));
    wrong["kind"] = json!("Node");
    side.ask(400, "another kind than in the URL").only(&["/reason"]).post(&pods, &wrong).await?;
    let missing = format!("/api/v1/namespaces/{}-missing/pods", side.ns());
    side.ask(404, "no such namespace").post(&missing, &side.pod_object("pod", "pod", None)).await?;
    let dry_run = format!("{pods}?dryRun=All");
    let body = side.pod_object("dry", "pod", Some("a"));
    side.ask(201, "a dry run").only(&["/metadata/name"]).post(&dry_run, &body).await?;
    let known =
        json!({"reason": "NotFound", "message": "pods \"dry\" not found", "details": {"name": "dry", "kind": "pods"}});
    side.ask(404, "has made nothing").get(&side.pod_path("dry")).await?.pin(known);
    Ok(())
}

async fn a_pod_is_written_by_patch_and_put(side: Side) -> Outcome {
    side.node("a").await?;
    side.running_pod("pod", "pod", "a").await?;
    let path = side.pod_path("pod");
    let marks = json!({"metadata": {"labels": {"tier": "front"}, "annotations": {"example.com/note": "x"}}});
    let first = side.ask(200, "label and annotation").patch(PatchKind::Merge, &path, &marks).await?;
    let again = side.ask(200, "the same again").patch(PatchKind::Merge, &path, &marks).await?;
    side.holds("same version", first.version() == again.version());
    let none = json!({"metadata": {"labels": {"tier": null}, "annotations": {"example.com/note": null}}});
    side.ask(200, "null removes both").patch(PatchKind::Strategic, &path, &none).await?;
    let operations = json!([{"op": "add", "path": "/metadata/labels/tier", "value": "back"}]);
    side.ask(200, "by JSON patch").patch(PatchKind::Json, &path, &operations).await?;
    let mut read = side.read(&path).await?;
    let old = read.clone();
    read["metadata"]["labels"]["tier"] = json!("middle");
    read["status"]["phase"] = json!("Failed");
    let put = side.ask(200, "a PUT writes the pod, not its status").showing(&["/status/phase"]);
    put.put(&path, &read).await?.pin(json!({"/status/phase": "Running"}));
    side.ask(409, "a PUT of what was read before").put(&path, &old).await?.pin(json!({
        "reason": "Conflict",
        "message": "Operation cannot be fulfilled on pods \"pod\": the object has been modified; please apply your changes to \
                    the latest version and try again",
        "details": {"name": "pod", "kind": "pods"},
    }));
    let moved = json!({"spec": {"nodeName": side.node_name("b")}});
    let patch = side.ask(422, "it cannot be moved").only(&["/reason", "/details/causes/0/field"]);
    patch.patch(PatchKind::Merge, &path, &moved).await?;
    side.ask(404, "a patch of nothing").patch(PatchKind::Merge, &side.pod_path("nobody"), &marks).await?;
    let renamed = json!({"metadata": {"name": "other"}});
    side.ask(400, "it cannot be renamed").patch(PatchKind::Merge, &path, &renamed).await?;
    Ok(())
}

async fn the_status_of_a_pod_is_written_apart_from_it(side: Side) -> Outcome {
    side.node("a").await?;
    let created = side.pending_pod("pod", "pod", "a").await?;
    let path = side.core("pods/pod/status");
    let shown = ["/status/phase", "/status/podIP", "/status/conditions/*/type", "/status/conditions/*/status"];
    let mut status = running_status(true);
    status["metadata"] = json!({"uid": created["metadata"]["uid"]});
    side.ask(200, "Running and Ready").showing(&shown).patch(PatchKind::Strategic, &path, &status).await?;
    let extra = json!({"status": {"conditions": [{"type": "example.com/Extra", "status": "True"}]}});
    let patch = side.ask(200, "a condition is merged by its type").showing(&shown);
    patch.patch(PatchKind::Strategic, &path, &extra).await?;
    let not_ready = json!({"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "Sick"}]}});
    let patch = side.ask(200, "a condition is changed by its type").showing(&shown);
    patch.patch(PatchKind::Strategic, &path, &not_ready).await?;
    let patch = side.ask(200, "a merge patch replaces all conditions").showing(&shown);
    patch.patch(PatchKind::Merge, &path, &not_ready).await?;
    let foreign = json!({"metadata": {"uid": "00000000-aaaa-bbbb-cccc-000000000000"}, "status": {"phase": "Failed"}});
    let patch = side.ask(422, "another UID");
    patch.patch(PatchKind::Strategic, &path, &foreign).await?;
    side.ask(200, "the status alone").showing(&shown).get(&path).await?;
    let mut read = side.read(&side.pod_path("pod")).await?;
    read["status"]["phase"] = json!("Succeeded");
    read["spec"]["terminationGracePeriodSeconds"] = json!(1);
    let put = side.ask(200, "a PUT").showing(&["/status/phase", "/spec/terminationGracePeriodSeconds"]);
    put.put(&path, &read).await?;
    Ok(())
}

async fn a_pod_is_deleted_with_its_grace(side: Side) -> Outcome {
    side.node("a").await?;
    for name in ["own", "query", "body", "now", "kubectl"] {
        side.running_pod(name, name, "a").await?;
    }
    let delete = |label: &str| side.ask(200, label).showing(&["/status/phase"]);
    delete("with its own").delete(&side.pod_path("own"), &Value::Null).await?;
    delete("in the query").delete(&format!("{}?gracePeriodSeconds=7", side.pod_path("query")), &Value::Null).await?;
    let uid = text(&side.read(&side.pod_path("body")).await?, "/metadata/uid");
    let options = json!({
        "kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 8, "preconditions": {"uid": uid},
    });
    delete("in the body, with the right UID").delete(&side.pod_path("body"), &options).await?;
    let options = json!({"propagationPolicy": "Background"});
    delete("as kubectl does").delete(&side.pod_path("kubectl"), &options).await?;
    delete("grace 0").delete(&side.pod_path("now"), &json!({"gracePeriodSeconds": 0})).await?;
    side.ask(404, "is gone").get(&side.pod_path("now")).await?;
    side.ask(404, "gone is gone").delete(&side.pod_path("now"), &Value::Null).await?;
    let mut anew = side.pod_object("now", "now", Some("a"));
    anew["metadata"]["labels"]["life"] = json!("second");
    side.ask(201, "a pod of that name again").post(&side.core("pods"), &anew).await?;
    side.create(&side.core("pods"), &side.pod_object("unbound", "unbound", None)).await?;
    delete("one that is nowhere").delete(&side.pod_path("unbound"), &Value::Null).await?;
    side.ask(404, "is gone at once").get(&side.pod_path("unbound")).await?;
    side.ask(409, "a pod that is going keeps its name")
        .post(&side.core("pods"), &side.pod_object("own", "own", Some("a")))
        .await?;
    let wrong = json!({"propagationPolicy": "Sideways"});
    side.ask(422, "an unknown propagation").delete(&side.pod_path("own"), &wrong).await?;
    let names =
        side.ask(200, "terminating pods are listed").only(&["/metadata/name", "/metadata/deletionGracePeriodSeconds"]);
    names.get(&side.core("pods")).await?;
    Ok(())
}

async fn pods_are_deleted_by_selection(side: Side) -> Outcome {
    side.node("a").await?;
    for (name, app) in [("web-1", "web"), ("web-2", "web"), ("db-1", "db")] {
        side.running_pod(name, app, "a").await?;
    }
    let web = side.core("pods?labelSelector=app%3Dweb");
    let delete = side.ask(200, "by label").only(&["/metadata/name"]);
    delete.delete(&web, &json!({"gracePeriodSeconds": 9})).await?;
    let left = ["/metadata/name", "/metadata/deletionGracePeriodSeconds"];
    side.ask(200, "the others stay").only(&left).get(&side.core("pods")).await?;
    let delete = side.ask(200, "all, at once").only(&["/metadata/name"]);
    delete.delete(&side.core("pods"), &json!({"gracePeriodSeconds": 0})).await?;
    side.ask(200, "none is left").only(&left).get(&side.core("pods")).await?.pin(json!({"items": []}));
    side.ask(200, "nothing to delete").only(&left).delete(&side.core("pods"), &Value::Null).await?;
    Ok(())
}

async fn a_pod_is_bound_to_a_node_once(side: Side) -> Outcome {
    side.node("a").await?;
    let pod = side.pod_object("pod", "pod", None);
    side.create(&side.core("pods"), &pod).await?;
    let binding = |pod: &str| {
        json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod},
            "target": {"apiVersion": "v1", "kind": "Node", "name": side.node_name("a")},
        })
    };
    let path = side.core("pods/pod/binding");
    side.ask(201, "a binding").post(&path, &binding("pod")).await?;
    let shown = ["/spec/nodeName", "/status/conditions/*/type", "/status/conditions/*/status"];
    side.ask(200, "the pod is scheduled").showing(&shown).get(&side.pod_path("pod")).await?;
    side.ask(409, "a second one").post(&path, &binding("pod")).await?;
    side.ask(404, "of no pod").post(&side.core("pods/nobody/binding"), &binding("nobody")).await?;
    Ok(())
}

async fn pods_are_selected_by_label(side: Side) -> Outcome {
    side.node("a").await?;
    for (name, app) in [("a", "web"), ("b", "db"), ("c", "cache")] {
        side.running_pod(name, app, "a").await?;
    }
    side.change(&side.pod_path("a"), &json!({"metadata": {"labels": {"tier": "front"}}})).await?;
    let selectors: [(&str, &[&str]); 14] = [
        ("app=web", &["a"]),
        ("app==web", &["a"]),
        ("app!=web", &["b", "c"]),
        ("app in (web, db)", &["a", "b"]),
        ("app notin (web,db)", &["c"]),
        ("tier", &["a"]),
        ("!tier", &["b", "c"]),
        ("tier!=front", &["b", "c"]),
        ("tier notin (front)", &["b", "c"]),
        ("app=web,tier=front", &["a"]),
        ("app=web,tier=back", &[]),
        ("app in (web,db),!tier", &["b"]),
        ("no.such/label=x", &[]),
        ("", &["a", "b", "c"]),
    ];
    for (selector, names) in selectors {
        let known: Vec<Value> = names.iter().map(|name| json!({"/metadata/name": name})).collect();
        let list = side.ask(200, selector).only(&["/metadata/name"]);
        list.get(&side.core(&format!("pods?labelSelector={}", in_query(selector)))).await?.pin(json!({"items": known}));
    }
    for wrong in ["app=(", "app in web", "=x"] {
        let list = side.ask(400, wrong).only(&["/reason"]);
        list.get(&side.core(&format!("pods?labelSelector={}", in_query(wrong)))).await?;
    }
    Ok(())
}

async fn pods_are_selected_by_field(side: Side) -> Outcome {
    side.node("a").await?;
    side.node("b").await?;
    side.running_pod("on-a", "web", "a").await?;
    side.running_pod("on-b", "web", "b").await?;
    side.pending_pod("pending", "web", "a").await?;
    let a = side.node_name("a");
    let selectors = [
        format!("spec.nodeName={a}"),
        format!("spec.nodeName!={a}"),
        format!("spec.nodeName=={a},status.phase=Running"),
        format!("spec.nodeName={a},status.phase!=Running"),
        "status.phase=Pending".to_owned(),
        "metadata.name=on-b".to_owned(),
        "metadata.name!=on-b".to_owned(),
        "metadata.name=nobody".to_owned(),
        format!("metadata.namespace={}", side.ns()),
        "spec.restartPolicy=Always".to_owned(),
        "spec.schedulerName=default-scheduler".to_owned(),
        "status.podIP=10.1.2.3".to_owned(),
    ];
    for selector in &selectors {
        let list = side.ask(200, selector).only(&["/metadata/name"]);
        list.get(&side.core(&format!("pods?fieldSelector={}", in_query(selector)))).await?;
    }
    let everywhere = format!("/api/v1/pods?fieldSelector={}", in_query(&selectors[0]));
    let here = ["/metadata/name", "/metadata/namespace"];
    side.ask(200, "in all namespaces").only(&here).get(&everywhere).await?;
    side.ask(200, "from the cache").only(&here).get(&format!("{everywhere}&resourceVersion=0")).await?;
    let both = format!("{everywhere}&labelSelector=app%3Ddb");
    side.ask(200, "with a label that none has").only(&here).get(&both).await?.pin(json!({"items": []}));
    for unknown in ["metadata.uid=x", "spec.priority=0", "nonsense"] {
        let list = side.ask(400, unknown);
        list.get(&side.core(&format!("pods?fieldSelector={}", in_query(unknown)))).await?;
    }
    Ok(())
}

async fn lists_come_in_pages(side: Side) -> Outcome {
    side.node("a").await?;
    for name in ["a", "b", "c", "d", "e"] {
        side.pending_pod(name, "web", "a").await?;
    }
    let names = ["/metadata/name"];
    let list = |query: &str| side.core(&format!("pods?{query}"));
    let first = side.ask(200, "the first page").only(&names).get(&list("limit=2")).await?.pin(json!({
        "items": [{"/metadata/name": "a"}, {"/metadata/name": "b"}], "remainingItemCount": 3,
    }));
    let token = in_query(&first.text("/metadata/continue"));
    side.name(&token, "<first-token>");
    // What comes meanwhile is not in the list that has begun.
    side.pending_pod("ab", "web", "a").await?;
    side.make(Method::DELETE, &side.pod_path("c"), &json!({"gracePeriodSeconds": 0})).await?;
    let second = side.ask(200, "the second").only(&names).get(&list(&format!("limit=2&continue={token}"))).await?;
    side.holds("of the same version", second.version() == first.version());
    let token = in_query(&second.text("/metadata/continue"));
    side.name(&token, "<second-token>");
    let last = side.ask(200, "the last").only(&names).get(&list(&format!("limit=2&continue={token}"))).await?;
    side.fact("no more", last.text("/metadata/continue"));
    side.ask(200, "a page with all").only(&names).get(&list("limit=5")).await?;
    side.ask(200, "without a limit").only(&names).get(&side.core("pods")).await?;
    let selected = side.ask(200, "a page of a selection").only(&names);
    selected.get(&list("limit=2&labelSelector=app%3Dweb")).await?;
    let uncounted = format!("limit=2&fieldSelector={}", in_query(&format!("spec.nodeName={}", side.node_name("a"))));
    side.ask(200, "a page of a node's pods").only(&names).get(&list(&uncounted)).await?;
    side.ask(200, "from the cache there are no pages").only(&names).get(&list("limit=2&resourceVersion=0")).await?;
    // What is wrong with it is said in the words of the server's JSON reader.
    side.ask(400, "no token of ours").only(&["/reason"]).get(&list("limit=2&continue=garbage")).await?;
    let both = list(&format!("limit=2&continue={token}&resourceVersion=1"));
    side.ask(400, "a token with a version").get(&both).await?;
    Ok(())
}

/// The text as a value in a query.
pub(crate) fn in_query(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(escape).collect()
}
