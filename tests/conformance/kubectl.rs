//! kubectl's everyday verbs, as its users see them.

use std::time::Duration;

use control_plane::NAMESPACE_LABEL;
use control_plane::harness::Test;
use serde_json::{Value, json};

use crate::scripts;
use crate::side::{Outcome, Side, budget_object, running_status};

pub(crate) fn scripts() -> Vec<Test> {
    let scripts = scripts![
        kubectl_reads_what_is_there,
        kubectl_writes_marks,
        kubectl_drains_a_node,
        kubectl_scales_and_deletes,
        kubectl_creates_things,
        kubectl_describes,
        kubectl_reads_files,
        kubectl_follows_what_happens,
        kubectl_waits_for_a_rollout,
    ];
    scripts.into_iter().map(|test| test.limit(Duration::from_secs(150))).collect()
}

async fn kubectl_reads_what_is_there(side: Side) -> Outcome {
    side.node("a").await?;
    side.running_pod("one", "web", "a").await?;
    side.pending_pod("two", "web", "a").await?;
    side.budget("web", "web", json!({"minAvailable": 1}), 1, 0).await?;
    let ours = format!("{NAMESPACE_LABEL}={}", side.ns());
    let node = side.node_name("a");
    side.kubectl(0, "nodes", &["get", "nodes", "-l", &ours]).await?;
    side.kubectl(0, "one node, with labels", &["get", "node", &node, "--show-labels"]).await?;
    side.kubectl(0, "its name alone", &["get", "node", &node, "-o", "name"]).await?;
    side.kubectl(0, "pods", &["get", "pods"]).await?;
    side.kubectl(0, "pods, wide", &["get", "pods", "-o", "wide"]).await?;
    let on_node = format!("spec.nodeName={node}");
    side.kubectl(0, "pods of a node", &["get", "pods", "-A", "--field-selector", &on_node]).await?;
    side.kubectl(0, "a field", &["get", "pods", "-o", "jsonpath={.items[*].metadata.name}"]).await?;
    side.kubectl(0, "columns", &["get", "pods", "-o", "custom-columns=NAME:.metadata.name,NODE:.spec.nodeName"])
        .await?;
    side.kubectl(0, "by label", &["get", "pods", "-l", "app=web,!tier", "-o", "name"]).await?;
    side.kubectl(0, "budgets, by their short name", &["get", "pdb"]).await?;
    side.kubectl(0, "several kinds", &["get", "pods,pdb", "-o", "name"]).await?;
    side.kubectl(0, "nothing there", &["get", "deployments"]).await?;
    side.kubectl(1, "no such pod", &["get", "pod", "nobody"]).await?;
    side.kubectl(1, "no such kind", &["get", "nonsense"]).await?;
    side.kubectl(0, "the namespace", &["get", "namespace", side.ns()]).await?;
    side.kubectl(0, "waits for what is so", &["wait", "--for=condition=Ready", "pod/one", "--timeout=5s"]).await?;
    Ok(())
}

async fn kubectl_writes_marks(side: Side) -> Outcome {
    side.node("a").await?;
    side.running_pod("pod", "web", "a").await?;
    let node = side.node_name("a");
    side.kubectl(0, "a label", &["label", "pod", "pod", "tier=front"]).await?;
    side.kubectl(1, "an existing label", &["label", "pod", "pod", "tier=back"]).await?;
    side.kubectl(0, "overwritten", &["label", "pod", "pod", "tier=back", "--overwrite"]).await?;
    side.kubectl(0, "taken off", &["label", "pod", "pod", "tier-"]).await?;
    side.kubectl(0, "an annotation", &["annotate", "node", &node, "example.com/note=x"]).await?;
    side.kubectl(0, "taken off", &["annotate", "node", &node, "example.com/note-"]).await?;
    side.kubectl(0, "a taint", &["taint", "node", &node, "example.com/out=yes:PreferNoSchedule"]).await?;
    side.kubectl(1, "an existing taint", &["taint", "node", &node, "example.com/out=no:PreferNoSchedule"]).await?;
    side.kubectl(0, "taken off", &["taint", "node", &node, "example.com/out-"]).await?;
    side.kubectl(0, "cordon", &["cordon", &node]).await?;
    side.kubectl(0, "cordoned already", &["cordon", &node]).await?;
    side.until("the taint", &side.node_path("a"), |node| node["spec"]["taints"].is_array()).await?;
    side.kubectl(0, "the node", &["get", "node", &node]).await?;
    side.kubectl(0, "uncordon", &["uncordon", &node]).await?;
    side.kubectl(0, "uncordoned already", &["uncordon", &node]).await?;
    side.kubectl(1, "no such node", &["cordon", "no-such-node"]).await?;
    let patch = r#"{"metadata":{"annotations":{"example.com/note":"y"}}}"#;
    side.kubectl(0, "a patch", &["patch", "node", &node, "--type=merge", "-p", patch]).await?;
    side.kubectl(0, "a patch that changes nothing", &["patch", "node", &node, "--type=merge", "-p", patch]).await?;
    side.ask(200, "what came of it").showing(&["/spec"]).get(&side.node_path("a")).await?;
    Ok(())
}

fn pods(side: &Side, kind: &str, name: &str, replicas: i64) -> Value {
    json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": {
        "replicas": (kind != "DaemonSet").then_some(replicas),
        "selector": {"matchLabels": {"app": name}},
        "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {
                "containers": [{"name": "main", "image": "example.com/nothing:1"}],
                "nodeSelector": {NAMESPACE_LABEL: side.ns()},
                "volumes": if name == "scratch" { json!([{"name": "s", "emptyDir": {}}]) } else { json!([]) },
            },
        },
    }})
}

/// Waits until so many pods are Ready, and gives them names by their number.
async fn until_ready(side: &Side, app: &str, count: usize) -> Outcome {
    let is_ready = |pod: &Value| {
        let conditions = pod["status"]["conditions"].as_array();
        pod["metadata"]["deletionTimestamp"].is_null()
            && conditions.is_some_and(|all| all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"))
    };
    let are_ready =
        |list: &Value| list["items"].as_array().is_some_and(|pods| pods.len() == count && pods.iter().all(is_ready));
    let list = side
        .until(&format!("{count} pods of {app}"), &side.core(&format!("pods?labelSelector=app%3D{app}")), are_ready)
        .await?;
    for pod in list["items"].as_array().into_iter().flatten() {
        side.name(&crate::side::text(pod, "/metadata/name"), &format!("<{app}>"));
    }
    Ok(())
}

async fn kubectl_drains_a_node(side: Side) -> Outcome {
    let _a = side.kubelet("a").await?;
    let node = side.node_name("a");
    side.create(&side.group("apps/v1", "daemonsets"), &pods(&side, "DaemonSet", "agent", 0)).await?;
    side.create(&side.group("apps/v1", "deployments"), &pods(&side, "Deployment", "web", 1)).await?;
    side.create(&side.group("apps/v1", "replicasets"), &pods(&side, "ReplicaSet", "scratch", 1)).await?;
    side.create(&side.core("pods"), &side.pod_object("bare", "bare", Some("a"))).await?;
    for app in ["agent", "web", "scratch", "bare"] {
        until_ready(&side, app, 1).await?;
    }
    side.budget("web", "web", json!({"maxUnavailable": 0}), 1, 0).await?;
    let drain = ["drain", &node, "--timeout=4s"];
    side.kubectl_sorted(1, "refused for what is on it", &drain).await?;
    let dry_run =
        [&drain[..], &["--ignore-daemonsets", "--delete-emptydir-data", "--force", "--dry-run=client"]].concat();
    side.kubectl_sorted(0, "what would be drained", &dry_run).await?;
    let _b = side.kubelet("b").await?;
    let drain = [&drain[..], &["--ignore-daemonsets", "--delete-emptydir-data", "--force"]].concat();
    side.kubectl_sorted(1, "held by a budget until the time is over", &drain).await?;
    until_ready(&side, "scratch", 1).await?;
    let path = side.budget_path("web");
    side.make(http::Method::PATCH, &path, &json!({"spec": {"maxUnavailable": 1}})).await?;
    side.until_counted("web", 1, 1).await?;
    let drain = ["drain", &node, "--timeout=60s", "--ignore-daemonsets", "--delete-emptydir-data", "--force"];
    side.kubectl_sorted(0, "drained", &drain).await?;
    let on_node = format!("spec.nodeName={node}");
    side.kubectl(0, "what is left", &["get", "pods", "-A", "--field-selector", &on_node, "-o", "name"]).await?;
    side.kubectl_sorted(0, "drained already", &drain).await?;
    side.kubectl(0, "given back", &["uncordon", &node]).await?;
    Ok(())
}

async fn kubectl_scales_and_deletes(side: Side) -> Outcome {
    let _kubelet = side.kubelet("a").await?;
    side.create(&side.group("apps/v1", "deployments"), &pods(&side, "Deployment", "web", 1)).await?;
    until_ready(&side, "web", 1).await?;
    side.kubectl(0, "scale", &["scale", "deployment", "web", "--replicas=2"]).await?;
    until_ready(&side, "web", 2).await?;
    side.kubectl(0, "scale on condition", &["scale", "deployment/web", "--current-replicas=2", "--replicas=1"]).await?;
    until_ready(&side, "web", 1).await?;
    side.kubectl(1, "on another condition", &["scale", "deployment/web", "--current-replicas=7", "--replicas=1"])
        .await?;
    let is_available =
        |deployment: &Value| deployment["status"]["availableReplicas"] == 1 && deployment["status"]["replicas"] == 1;
    side.until("available", &side.group("apps/v1", "deployments/web"), is_available).await?;
    side.kubectl(0, "the deployment", &["get", "deployment", "web"]).await?;
    side.kubectl(0, "rolled out", &["rollout", "status", "deployment/web", "--timeout=10s"]).await?;
    side.create(&side.core("pods"), &side.pod_object("bare", "bare", Some("a"))).await?;
    until_ready(&side, "bare", 1).await?;
    side.kubectl(0, "delete, and wait", &["delete", "pod", "bare"]).await?;
    side.kubectl(1, "delete what is gone", &["delete", "pod", "bare"]).await?;
    side.kubectl(0, "without complaint", &["delete", "pod", "bare", "--ignore-not-found"]).await?;
    side.create(&side.core("pods"), &side.pod_object("forced", "forced", Some("a"))).await?;
    until_ready(&side, "forced", 1).await?;
    side.kubectl(0, "by force", &["delete", "pod", "forced", "--grace-period=0", "--force"]).await?;
    side.kubectl(0, "the deployment", &["delete", "deployment", "web", "--timeout=30s"]).await?;
    side.kubectl(0, "by label, none", &["delete", "pods", "-l", "app=nothing"]).await?;
    Ok(())
}

async fn kubectl_creates_things(side: Side) -> Outcome {
    side.node("a").await?;
    let node = side.node_name("a");
    side.kubectl(0, "a deployment", &["create", "deployment", "web", "--image=example.com/nothing:1", "--replicas=0"])
        .await?;
    side.kubectl(1, "twice", &["create", "deployment", "web", "--image=example.com/nothing:1", "--replicas=0"]).await?;
    side.kubectl(0, "a budget", &["create", "pdb", "web", "--selector=app=web", "--min-available=50%"]).await?;
    side.until_counted("web", 0, 0).await?;
    side.kubectl(0, "what was made", &["get", "deployment,pdb"]).await?;
    let on_node = json!({"spec": {"nodeName": node}}).to_string();
    side.kubectl(0, "a pod", &["run", "pod", "--image=example.com/nothing:1", "--overrides", &on_node]).await?;
    side.ask(200, "the pod").showing(&["/spec/nodeName", "/spec/restartPolicy"]).get(&side.pod_path("pod")).await?;
    side.kubectl(0, "deleted at once", &["delete", "pod", "pod", "--now", "--wait=false"]).await?;
    side.ask(200, "its grace").only(&["/metadata/deletionGracePeriodSeconds"]).get(&side.pod_path("pod")).await?;
    let more = format!("{}-more", side.ns());
    side.kubectl(0, "a namespace", &["create", "namespace", &more]).await?;
    side.kubectl(0, "and its end", &["delete", "namespace", &more, "--wait=false"]).await?;
    side.kubectl(0, "a node is deleted", &["delete", "node", &node]).await?;
    side.kubectl(1, "and gone", &["get", "node", &node]).await?;
    Ok(())
}

async fn kubectl_describes(side: Side) -> Outcome {
    side.node("a").await?;
    side.running_pod("pod", "web", "a").await?;
    side.budget("web", "web", json!({"minAvailable": 1}), 1, 0).await?;
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "one", "namespace": side.ns()},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": "pod", "namespace": side.ns()},
        "reason": "Drained", "message": "something happened", "type": "Normal", "count": 1,
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z",
        "source": {"component": "example.com/agent"},
    });
    side.create(&side.core("events"), &event).await?;
    let lines = |text: &str, words: &[&str]| -> Vec<String> {
        let is_wanted = |line: &&str| words.iter().any(|word| line.trim_start().starts_with(word));
        text.lines().filter(is_wanted).map(crate::side::columns).collect()
    };
    let node = side.kubectl_unseen(&["describe", "node", &side.node_name("a")]).await?;
    let words = [
        "Name:",
        "Roles:",
        "Taints:",
        "Unschedulable:",
        "Ready",
        "Non-terminated",
        "Kubelet Version:",
        "System UUID:",
        "pods",
    ];
    side.fact("the node", lines(&node, &words));
    let pod = side.kubectl_unseen(&["describe", "pod", "pod"]).await?;
    let words =
        ["Name:", "Namespace:", "Priority:", "Node:", "Labels:", "Annotations:", "Status:", "IP:", "Ready", "Normal"];
    side.fact("the pod", lines(&pod, &words));
    let budget = side.kubectl_unseen(&["describe", "pdb", "web"]).await?;
    let words = ["Name:", "Min available:", "Selector:", "Allowed disruptions:", "Current:", "Desired:", "Total:"];
    side.fact("the budget", lines(&budget, &words));
    side.kubectl(0, "events", &["get", "events", "--field-selector", "reason=Drained"]).await?;
    side.kubectl(0, "events of a pod", &["events", "--for", "pod/pod"]).await?;
    Ok(())
}

async fn kubectl_reads_files(side: Side) -> Outcome {
    side.node("a").await?;
    let pod = side.file("pod.json", &side.pod_object("pod", "pod", Some("a")))?;
    side.kubectl(0, "a file is created", &["create", "-f", &pod]).await?;
    side.kubectl(1, "once", &["create", "-f", &pod]).await?;
    side.change(&side.core("pods/pod/status"), &running_status(true)).await?;
    side.kubectl(0, "deleted with a grace", &["delete", "pod", "pod", "--grace-period=7", "--wait=false"]).await?;
    side.ask(200, "its grace").only(&["/metadata/deletionGracePeriodSeconds"]).get(&side.pod_path("pod")).await?;
    side.kubectl(1, "its name is taken", &["create", "-f", &pod]).await?;
    side.kubectl(0, "and by file", &["delete", "-f", &pod, "--grace-period=1", "--wait=false"]).await?;
    side.ask(200, "its grace").only(&["/metadata/deletionGracePeriodSeconds"]).get(&side.pod_path("pod")).await?;

    let mut budget = budget_object("web", "web", json!({"minAvailable": 1}));
    let applied = side.file("budget.json", &budget)?;
    side.kubectl(0, "applied", &["apply", "-f", &applied]).await?;
    side.until_counted("web", 0, 0).await?;
    let shown = ["/spec"];
    let first = side.ask(200, "what came of it").showing(&shown).get(&side.budget_path("web")).await?;
    side.kubectl(0, "once more", &["apply", "-f", &applied]).await?;
    let again = side.ask(200, "is as it was").showing(&shown).get(&side.budget_path("web")).await?;
    side.holds("same version", first.version() == again.version());
    budget["spec"] = json!({"maxUnavailable": 0, "selector": {"matchLabels": {"app": "web"}}});
    budget["metadata"]["labels"] = json!({"tier": "front"});
    let applied = side.file("other-budget.json", &budget)?;
    side.kubectl(0, "changed", &["apply", "-f", &applied]).await?;
    side.ask(200, "what is no longer in the file is gone").showing(&shown).get(&side.budget_path("web")).await?;
    let workload = side.file("workload.json", &pods(&side, "Deployment", "web", 0))?;
    side.kubectl(0, "a deployment", &["apply", "-f", &workload]).await?;
    side.kubectl(
        0,
        "scaled by its file",
        &["apply", "-f", &side.file("scaled.json", &pods(&side, "Deployment", "web", 1))?],
    )
    .await?;
    let deployment = side.group("apps/v1", "deployments/web");
    side.ask(200, "its scale").only(&["/spec/replicas", "/metadata/generation"]).get(&deployment).await?;
    side.kubectl(0, "all is deleted", &["delete", "-f", &applied, "-f", &workload]).await?;
    Ok(())
}

async fn kubectl_follows_what_happens(side: Side) -> Outcome {
    side.node("a").await?;
    side.running_pod("one", "web", "a").await?;
    let mut pods = side.kubectl_follows(&["get", "pods", "-w"]).await?;
    pods.lines("what is there", 2).await?;
    let ours = format!("{NAMESPACE_LABEL}={}", side.ns());
    let mut nodes = side.kubectl_follows(&["get", "nodes", "-w", "-l", &ours]).await?;
    nodes.lines("the node", 2).await?;
    side.running_pod("two", "web", "a").await?;
    pods.lines("one more comes and runs", 2).await?;
    side.make(http::Method::DELETE, &side.pod_path("one"), &Value::Null).await?;
    pods.lines("one is told to end", 1).await?;
    side.make(http::Method::DELETE, &side.pod_path("one"), &json!({"gracePeriodSeconds": 0})).await?;
    pods.lines("and has ended", 2).await?;
    side.change(&side.node_path("a"), &json!({"spec": {"unschedulable": true}})).await?;
    nodes.lines("cordoned, and the taint that follows", 2).await?;
    Ok(())
}

async fn kubectl_waits_for_a_rollout(side: Side) -> Outcome {
    side.create(&side.group("apps/v1", "deployments"), &pods(&side, "Deployment", "web", 2)).await?;
    let deployment = side.group("apps/v1", "deployments/web");
    let is_seen = |deployment: &Value| deployment["status"]["updatedReplicas"] == 2;
    side.until("its pods are made", &deployment, is_seen).await?;
    side.kubectl(1, "nothing runs", &["rollout", "status", "deployment/web", "--timeout=2s"]).await?;
    side.kubectl(0, "a look", &["rollout", "status", "deployment/web", "--watch=false"]).await?;
    let _kubelet = side.kubelet("a").await?;
    until_ready(&side, "web", 2).await?;
    let is_available = |deployment: &Value| deployment["status"]["availableReplicas"] == 2;
    side.until("available", &deployment, is_available).await?;
    side.kubectl(0, "done", &["rollout", "status", "deployment/web", "--timeout=20s"]).await?;
    let mut set = pods(&side, "StatefulSet", "db", 1);
    set["spec"]["serviceName"] = json!("db");
    side.create(&side.group("apps/v1", "statefulsets"), &set).await?;
    side.create(&side.group("apps/v1", "daemonsets"), &pods(&side, "DaemonSet", "agent", 0)).await?;
    for (app, path) in [("db", "statefulsets/db"), ("agent", "daemonsets/agent")] {
        until_ready(&side, app, 1).await?;
        let is_ready = |set: &Value| set["status"]["readyReplicas"] == 1 || set["status"]["numberAvailable"] == 1;
        side.until("its controller knows", &side.group("apps/v1", path), is_ready).await?;
        side.kubectl(0, "done too", &["rollout", "status", path, "--timeout=20s"]).await?;
    }
    Ok(())
}
