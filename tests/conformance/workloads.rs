//! Workloads: what their controllers and the scheduler do, as far as a drain sees it.

use std::time::Duration;

use control_plane::harness::Test;
use control_plane::{NAMESPACE_LABEL, STOPS_AFTER_ANNOTATION};
use http::Method;
use serde_json::{Value, json};

use crate::scripts;
use crate::side::{Outcome, PatchKind, Side, text};

pub(crate) fn scripts() -> Vec<Test> {
    let scripts = scripts![
        a_deployment_makes_pods_through_a_replica_set,
        an_evicted_pod_is_replaced_while_it_ends,
        a_stateful_pod_comes_back_under_its_name,
        a_daemon_pod_belongs_to_its_node,
        a_budget_counts_the_pods_of_its_workloads,
        a_pod_without_a_place_says_so,
    ];
    scripts.into_iter().map(|test| test.limit(Duration::from_secs(100))).collect()
}

/// A workload whose pods go to the script's own nodes and end when they are deleted for good, not before.
fn workload(side: &Side, kind: &str, name: &str, replicas: Option<i64>) -> Value {
    let mut spec = json!({
        "selector": {"matchLabels": {"app": name}},
        "template": {
            "metadata": {"labels": {"app": name}, "annotations": {STOPS_AFTER_ANNOTATION: "never"}},
            "spec": {
                "containers": [{"name": "main", "image": "example.com/nothing:1"}],
                "nodeSelector": {NAMESPACE_LABEL: side.ns()},
            },
        },
    });
    if let Some(replicas) = replicas {
        spec["replicas"] = json!(replicas);
    }
    if kind == "StatefulSet" {
        spec["serviceName"] = json!(name);
    }
    json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

async fn create(side: &Side, kind: &str, name: &str, replicas: Option<i64>) -> Outcome {
    let path = side.group("apps/v1", &format!("{}s", kind.to_lowercase()));
    side.create(&path, &workload(side, kind, name, replicas)).await.map(drop)
}

fn pods_of(side: &Side, app: &str) -> String {
    side.core(&format!("pods?labelSelector=app%3D{app}"))
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    pod["metadata"]["deletionTimestamp"].is_null()
        && conditions.is_some_and(|all| all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"))
}

/// Waits until so many pods are Ready and so many terminate, and returns the Ready ones.
async fn until_ready(side: &Side, app: &str, ready: usize, terminating: usize) -> Outcome<Vec<Value>> {
    let count = |list: &Value, which: &dyn Fn(&Value) -> bool| {
        list["items"].as_array().into_iter().flatten().filter(|pod| which(pod)).count()
    };
    let is_terminating = |pod: &Value| pod["metadata"]["deletionTimestamp"].is_string();
    let is_so = |list: &Value| {
        count(list, &is_ready) == ready
            && count(list, &is_terminating) == terminating
            && count(list, &|_| true) == ready + terminating
    };
    let goal = format!("{ready} pods of {app} are Ready, {terminating} terminate");
    let list = side.until(&goal, &pods_of(side, app), is_so).await?;
    Ok(list["items"].as_array().into_iter().flatten().filter(|pod| is_ready(pod)).cloned().collect())
}

async fn evict(side: &Side, label: &str, pod: &str) -> Outcome {
    let body =
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": side.ns()}});
    side.ask(201, label).post(&side.core(&format!("pods/{pod}/eviction")), &body).await.map(drop)
}

/// What a pod inherits from its template and its controller. Generated names are shown by their shape.
fn shape(pod: &Value, controller: &str) -> Value {
    let owner = &pod["metadata"]["ownerReferences"][0];
    let name = text(pod, "/metadata/name");
    json!({
        "generateName": pod["metadata"]["generateName"],
        "begins as told": name.starts_with(&text(pod, "/metadata/generateName")),
        "length": name.len(),
        "owner": [owner["apiVersion"], owner["kind"], owner["controller"], owner["blockOwnerDeletion"]],
        "owner is": owner["name"] == controller,
        "app": pod["metadata"]["labels"]["app"],
        "annotations": pod["metadata"]["annotations"],
    })
}

async fn a_deployment_makes_pods_through_a_replica_set(side: Side) -> Outcome {
    let _kubelet = side.kubelet("a").await?;
    let deployments = side.group("apps/v1", "deployments");
    let path = side.group("apps/v1", "deployments/web");
    let created = side.ask(201, "a deployment").only(&[
        "/metadata/generation",
        "/spec/replicas",
        "/spec/selector",
        "/spec/strategy",
    ]);
    created.post(&deployments, &workload(&side, "Deployment", "web", Some(2))).await?;
    let pods = until_ready(&side, "web", 2, 0).await?;
    let sets = side.read(&side.group("apps/v1", "replicasets")).await?;
    let set = text(&sets, "/items/0/metadata/name");
    let hash = text(&sets, "/items/0/metadata/labels/pod-template-hash");
    side.holds("the set's name is made of the deployment's and the hash", set == format!("web-{hash}"));
    // Each server has its own way to make the hash.
    side.name(&hash, "<hash>");
    let sets = side.ask(200, "its replica set").only(&[
        "/metadata/name",
        "/metadata/labels",
        "/metadata/ownerReferences/*/kind",
        "/metadata/ownerReferences/*/name",
        "/metadata/ownerReferences/*/controller",
        "/spec/replicas",
        "/spec/selector",
    ]);
    sets.get(&side.group("apps/v1", "replicasets")).await?;
    for pod in &pods {
        let mut shape = shape(pod, &set);
        shape["length"] = json!(text(pod, "/metadata/name").len() - set.len());
        side.fact("a pod", shape);
        side.holds("its hash", pod["metadata"]["labels"]["pod-template-hash"] == hash);
    }
    let counts = [
        "/metadata/generation",
        "/status/observedGeneration",
        "/status/replicas",
        "/status/updatedReplicas",
        "/status/readyReplicas",
        "/status/availableReplicas",
        "/status/unavailableReplicas",
    ];
    let is_available = |count: i64| {
        move |deployment: &Value| {
            deployment["status"]["availableReplicas"] == count && deployment["status"]["replicas"] == count
        }
    };
    side.until("available", &path, is_available(2)).await?;
    side.ask(200, "its status").only(&counts).get(&path).await?;
    let scale = json!({"spec": {"replicas": 3}});
    side.ask(200, "scaled by a patch").only(&["/spec/replicas"]).patch(PatchKind::Merge, &path, &scale).await?;
    until_ready(&side, "web", 3, 0).await?;
    side.until("available", &path, is_available(3)).await?;
    side.ask(200, "its status").only(&counts).get(&path).await?;
    let shown = ["/apiVersion", "/kind", "/spec", "/status"];
    side.ask(200, "its scale").only(&shown).get(&format!("{path}/scale")).await?;
    let scale = json!({"spec": {"replicas": 1}});
    let patch = side.ask(200, "scaled by the subresource").only(&shown[..3]);
    patch.patch(PatchKind::Merge, &format!("{path}/scale"), &scale).await?;
    until_ready(&side, "web", 1, 2).await?;
    side.ask(200, "deleted in the background")
        .only(&["/kind", "/status", "/details/kind", "/details/name"])
        .delete(&path, &json!({"propagationPolicy": "Background"}))
        .await?;
    side.ask(404, "gone").get(&path).await?;
    until_ready(&side, "web", 0, 3).await?;
    side.until("no set is left", &side.group("apps/v1", "replicasets"), |list| {
        list["items"].as_array().is_some_and(Vec::is_empty)
    })
    .await?;
    Ok(())
}

async fn an_evicted_pod_is_replaced_while_it_ends(side: Side) -> Outcome {
    let _kubelets = (side.kubelet("a").await?, side.kubelet("b").await?);
    create(&side, "ReplicaSet", "web", Some(2)).await?;
    let pods = until_ready(&side, "web", 2, 0).await?;
    side.fact("a pod", shape(&pods[0], "web"));
    side.change(&side.node_path("a"), &json!({"spec": {"unschedulable": true}})).await?;
    let is_tainted = |node: &Value| node["spec"]["taints"].is_array();
    side.until("the cordon's taint", &side.node_path("a"), is_tainted).await?;
    side.budget("web", "web", json!({"minAvailable": 1}), 2, 1).await?;
    let evicted = text(&pods[0], "/metadata/name");
    side.name(&evicted, "<evicted>");
    evict(&side, "the first", &evicted).await?;
    let pods = until_ready(&side, "web", 2, 1).await?;
    let new = pods.iter().find(|pod| text(pod, "/spec/nodeName") != side.node_name("a"));
    side.holds("the new pod avoids the cordoned node", new.is_some());
    side.until_counted("web", 2, 1).await?;
    side.ask(200, "the one that ends is not in the way")
        .only(&[
            "/status/expectedPods",
            "/status/desiredHealthy",
            "/status/currentHealthy",
            "/status/disruptionsAllowed",
        ])
        .get(&side.budget_path("web"))
        .await?;
    side.ask(200, "it still ends")
        .only(&["/metadata/deletionGracePeriodSeconds", "/status/phase"])
        .get(&side.pod_path(&evicted))
        .await?;
    side.make(Method::DELETE, &side.pod_path(&evicted), &json!({"gracePeriodSeconds": 0})).await?;
    until_ready(&side, "web", 2, 0).await?;
    let is_seen = |set: &Value| set["status"]["readyReplicas"] == 2 && set["status"]["replicas"] == 2;
    side.until("counted", &side.group("apps/v1", "replicasets/web"), is_seen).await?;
    side.ask(200, "the set")
        .only(&["/spec/replicas", "/status/replicas", "/status/readyReplicas", "/status/availableReplicas"])
        .get(&side.group("apps/v1", "replicasets/web"))
        .await?;
    Ok(())
}

async fn a_stateful_pod_comes_back_under_its_name(side: Side) -> Outcome {
    let _kubelet = side.kubelet("a").await?;
    create(&side, "StatefulSet", "db", Some(2)).await?;
    let before = until_ready(&side, "db", 2, 0).await?;
    let shown = [
        "/metadata/labels/app",
        "/metadata/labels/statefulset.kubernetes.io~1pod-name",
        "/metadata/labels/apps.kubernetes.io~1pod-index",
        "/metadata/generateName",
        "/metadata/ownerReferences/*/kind",
        "/metadata/ownerReferences/*/name",
        "/spec/hostname",
    ];
    let names: Vec<String> = before.iter().map(|pod| text(pod, "/metadata/name")).collect();
    side.fact("the names", names);
    side.ask(200, "the first").only(&shown).get(&side.pod_path("db-0")).await?;
    evict(&side, "it is evicted", "db-0").await?;
    let pods = until_ready(&side, "db", 1, 1).await?;
    side.fact("the other stays", text(&pods[0], "/metadata/name"));
    side.ask(200, "while it ends there is no other")
        .only(&["/metadata/name", "/metadata/deletionGracePeriodSeconds"])
        .get(&pods_of(&side, "db"))
        .await?;
    side.make(Method::DELETE, &side.pod_path("db-0"), &json!({"gracePeriodSeconds": 0})).await?;
    let after = until_ready(&side, "db", 2, 0).await?;
    let uid = |pods: &[Value]| text(&pods[0], "/metadata/uid");
    side.holds("it is another", (text(&after[0], "/metadata/name") == "db-0") && uid(&before) != uid(&after));
    let is_seen = |set: &Value| set["status"]["readyReplicas"] == 2 && set["status"]["replicas"] == 2;
    side.until("counted", &side.group("apps/v1", "statefulsets/db"), is_seen).await?;
    side.ask(200, "the set")
        .only(&["/spec/replicas", "/status/replicas", "/status/readyReplicas"])
        .get(&side.group("apps/v1", "statefulsets/db"))
        .await?;
    let scale = json!({"spec": {"replicas": 1}});
    side.ask(200, "scaled down")
        .only(&["/spec"])
        .patch(PatchKind::Merge, &side.group("apps/v1", "statefulsets/db/scale"), &scale)
        .await?;
    let pods = until_ready(&side, "db", 1, 1).await?;
    side.fact("the last one goes", text(&pods[0], "/metadata/name"));
    Ok(())
}

async fn a_daemon_pod_belongs_to_its_node(side: Side) -> Outcome {
    let _kubelets = (side.kubelet("a").await?, side.kubelet("b").await?);
    create(&side, "DaemonSet", "agent", None).await?;
    let pods = until_ready(&side, "agent", 2, 0).await?;
    let mut nodes: Vec<String> = pods.iter().map(|pod| text(pod, "/spec/nodeName")).collect();
    nodes.sort();
    side.fact("one on each node", nodes);
    let pod = pods.iter().find(|pod| text(pod, "/spec/nodeName") == side.node_name("a")).cloned().unwrap_or_default();
    let owner = &pod["metadata"]["ownerReferences"][0];
    side.fact("its owner", json!([owner["apiVersion"], owner["kind"], owner["name"], owner["controller"]]));
    let name = text(&pod, "/metadata/name");
    side.name(&name, "<daemon>");
    let known = json!([
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
        {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"},
        {"key": "node.kubernetes.io/disk-pressure", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/pid-pressure", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"},
    ]);
    let shown = ["/metadata/generateName", "/metadata/labels/app", "/spec/tolerations", "/spec/affinity"];
    side.ask(200, "a pod").only(&shown).get(&side.pod_path(&name)).await?.pin(json!({"/spec/tolerations": known}));
    side.change(&side.node_path("a"), &json!({"spec": {"unschedulable": true}})).await?;
    evict(&side, "evicted from a cordoned node", &name).await?;
    until_ready(&side, "agent", 1, 1).await?;
    side.make(Method::DELETE, &side.pod_path(&name), &json!({"gracePeriodSeconds": 0})).await?;
    let pods = until_ready(&side, "agent", 2, 0).await?;
    let mut nodes: Vec<String> = pods.iter().map(|pod| text(pod, "/spec/nodeName")).collect();
    nodes.sort();
    side.fact("it comes back, cordon or not", nodes);
    let path = side.group("apps/v1", "daemonsets/agent");
    let is_seen = |set: &Value| set["status"]["numberReady"] == 2 && set["status"]["numberAvailable"] == 2;
    side.until("counted", &path, is_seen).await?;
    side.ask(200, "the set")
        .only(&["/status/desiredNumberScheduled", "/status/currentNumberScheduled", "/status/numberReady"])
        .get(&path)
        .await?;
    let _third = side.kubelet("c").await?;
    until_ready(&side, "agent", 3, 0).await?;
    Ok(())
}

async fn a_budget_counts_the_pods_of_its_workloads(side: Side) -> Outcome {
    let _kubelet = side.kubelet("a").await?;
    create(&side, "Deployment", "web", Some(5)).await?;
    create(&side, "StatefulSet", "db", Some(3)).await?;
    create(&side, "ReplicaSet", "none", Some(0)).await?;
    create(&side, "Deployment", "solo", Some(4)).await?;
    until_ready(&side, "web", 5, 0).await?;
    until_ready(&side, "db", 3, 0).await?;
    until_ready(&side, "solo", 4, 0).await?;
    let budgets = [
        ("number", "web", json!({"minAvailable": 3}), 5, 2),
        ("percent", "web", json!({"minAvailable": "50%"}), 5, 2),
        ("percent-up", "web", json!({"minAvailable": "61%"}), 5, 1),
        ("unavailable", "web", json!({"maxUnavailable": 1}), 5, 1),
        ("unavailable-percent", "web", json!({"maxUnavailable": "30%"}), 5, 2),
        ("all", "web", json!({"maxUnavailable": 0}), 5, 0),
        ("everything", "web", json!({"maxUnavailable": "100%"}), 5, 5),
        ("too-many", "web", json!({"minAvailable": 9}), 5, 0),
        ("stateful", "db", json!({"maxUnavailable": 1}), 3, 1),
        ("stateful-percent", "db", json!({"minAvailable": "100%"}), 3, 0),
        ("solo", "solo", json!({"maxUnavailable": "30%"}), 4, 2),
        ("nothing", "nobody", json!({"maxUnavailable": 1}), 0, 0),
        ("empty", "none", json!({"minAvailable": 1}), 0, 0),
    ];
    let shown = [
        "/spec",
        "/status/expectedPods",
        "/status/desiredHealthy",
        "/status/currentHealthy",
        "/status/disruptionsAllowed",
        "/status/conditions/*/type",
        "/status/conditions/*/status",
        "/status/conditions/*/reason",
    ];
    for (name, app, spec, healthy, allowed) in budgets {
        side.budget(name, app, spec, healthy, allowed).await?;
        side.ask(200, name).only(&shown).get(&side.budget_path(name)).await?;
    }
    let scale = json!({"spec": {"replicas": 2}});
    side.make(Method::PATCH, &side.group("apps/v1", "deployments/solo"), &scale).await?;
    side.until_counted("solo", 2, 1).await?;
    side.ask(200, "it follows the scale").only(&shown).get(&side.budget_path("solo")).await?;
    let mut all = crate::side::budget_object("everybody", "x", json!({"maxUnavailable": "25%"}));
    all["spec"]["selector"] = json!({});
    side.create(&side.group("policy/v1", "poddisruptionbudgets"), &all).await?;
    side.until_counted("everybody", 10, 3).await?;
    side.ask(200, "an empty selector selects all").only(&shown).get(&side.budget_path("everybody")).await?;
    Ok(())
}

async fn a_pod_without_a_place_says_so(side: Side) -> Outcome {
    create(&side, "ReplicaSet", "web", Some(1)).await?;
    let is_unschedulable = |list: &Value| list["items"][0]["status"]["conditions"][0]["reason"] == "Unschedulable";
    side.until("it says so", &pods_of(&side, "web"), is_unschedulable).await?;
    let shown = [
        "/spec/nodeName",
        "/status/phase",
        "/status/conditions/*/type",
        "/status/conditions/*/status",
        "/status/conditions/*/reason",
    ];
    side.ask(200, "it waits").only(&shown).get(&pods_of(&side, "web")).await?;
    let _kubelet = side.kubelet("a").await?;
    let pods = until_ready(&side, "web", 1, 0).await?;
    side.fact("and goes where there is place", text(&pods[0], "/spec/nodeName"));
    Ok(())
}
