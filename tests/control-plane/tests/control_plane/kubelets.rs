//! What fake kubelets do.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;

use control_plane::harness::{Context, Test, TestResult};
use control_plane::{HowItEnded, Kubelet, Namespace, Options, PodHistory, Stopping, Workload, tests, wait_until};

use crate::{SOON, alone};

pub(crate) fn tests() -> Vec<Test> {
    let mut all = tests![
        a_pod_that_stops_on_its_own_is_gone_before_its_grace_is_over,
        a_pod_that_ignores_sigterm_is_killed_when_its_grace_is_over,
        a_grace_below_two_seconds_still_lasts_two,
        a_shortened_grace_begins_anew_with_its_full_length,
        a_stuck_pod_survives_its_grace_and_goes_with_its_object,
        a_finalizer_keeps_a_pod_that_has_ended,
        a_reboot_changes_the_boot_id_and_starts_pods_again,
        a_reboot_ends_pods_that_were_being_deleted,
        conditions_of_others_survive_the_kubelets,
        not_ready_and_ready_are_posted_at_once,
    ];
    let impatient = Options { node_monitor_grace_period: Duration::from_secs(5), ..Options::default() };
    all.extend(alone(tests![a_silent_node_becomes_unreachable_and_comes_back], &impatient));
    all
}

/// A namespace with one node and one pod on it that behaves so on SIGTERM.
async fn with_pod(
    context: &Context,
    pod: Workload,
) -> Result<(Namespace, Kubelet), Box<dyn std::error::Error + Send + Sync>> {
    let namespace = context.namespace("kubelet").await?;
    let kubelet = context.kubelet(namespace.node("a")).await?;
    pod.create(&namespace).await?;
    namespace.wait_for_ready(&pod, 1, SOON).await?;
    Ok((namespace, kubelet))
}

async fn delete(namespace: &Namespace, name: &str, grace: Option<u32>) -> Result<(), kube::Error> {
    let parameters = DeleteParams { grace_period_seconds: grace, ..DeleteParams::default() };
    namespace.api::<Pod>().delete(name, &parameters).await.map(drop)
}

async fn end_of_the_pod(kubelet: &Kubelet) -> Result<PodHistory, Box<dyn std::error::Error + Send + Sync>> {
    let history =
        kubelet.wait_for("the pod has ended", SOON, |pods| pods.iter().all(|pod| pod.ended.is_some())).await?;
    Ok(history.into_iter().next().ok_or("no pod was ever here")?)
}

async fn is_gone(namespace: &Namespace) -> TestResult {
    namespace.wait_for_pods("the pod's object is gone", SOON, BTreeMap::is_empty).await?;
    Ok(())
}

async fn a_pod_that_stops_on_its_own_is_gone_before_its_grace_is_over(context: Context) -> TestResult {
    let pod = Workload::bare_pod("p").stopping(Stopping::After(Duration::from_secs(1)));
    let (namespace, kubelet) = with_pod(&context, pod).await?;
    delete(&namespace, "p", None).await?;
    let history = end_of_the_pod(&kubelet).await?;
    assert_eq!(history.ended.unwrap().how, HowItEnded::Stopped);
    assert_eq!(history.terminations[0].grace, Duration::from_secs(30));
    assert_seconds(&history, 1.0);
    is_gone(&namespace).await
}

async fn a_pod_that_ignores_sigterm_is_killed_when_its_grace_is_over(context: Context) -> TestResult {
    let pod = Workload::bare_pod("p").grace(Duration::from_secs(3)).stopping(Stopping::WhenKilled);
    let (namespace, kubelet) = with_pod(&context, pod).await?;
    delete(&namespace, "p", None).await?;
    let history = end_of_the_pod(&kubelet).await?;
    assert_eq!(history.ended.unwrap().how, HowItEnded::Killed);
    assert_seconds(&history, 3.0);
    is_gone(&namespace).await
}

async fn a_grace_below_two_seconds_still_lasts_two(context: Context) -> TestResult {
    let (namespace, kubelet) = with_pod(&context, Workload::bare_pod("p").stopping(Stopping::WhenKilled)).await?;
    delete(&namespace, "p", Some(1)).await?;
    let history = end_of_the_pod(&kubelet).await?;
    assert_eq!(history.terminations[0].grace, Duration::from_secs(1));
    assert_seconds(&history, 2.0);
    Ok(())
}

async fn a_shortened_grace_begins_anew_with_its_full_length(context: Context) -> TestResult {
    let (namespace, kubelet) = with_pod(&context, Workload::bare_pod("p").stopping(Stopping::WhenKilled)).await?;
    delete(&namespace, "p", Some(60)).await?;
    kubelet.wait_for("SIGTERM", SOON, |pods| pods.iter().any(|pod| pod.terminations.len() == 1)).await?;
    delete(&namespace, "p", Some(3)).await?;
    let history = end_of_the_pod(&kubelet).await?;
    let graces: Vec<u64> = history.terminations.iter().map(|termination| termination.grace.as_secs()).collect();
    assert_eq!(graces, [60, 3]);
    let since_second = history.ended.unwrap().at - history.terminations[1].at;
    assert!(since_second >= Duration::from_secs(3), "{since_second:?}");
    assert_eq!(history.ended.unwrap().how, HowItEnded::Killed);
    Ok(())
}

async fn a_stuck_pod_survives_its_grace_and_goes_with_its_object(context: Context) -> TestResult {
    let pod = Workload::bare_pod("p").stopping(Stopping::Never);
    let (namespace, kubelet) = with_pod(&context, pod).await?;
    delete(&namespace, "p", Some(1)).await?;
    let limit = Duration::from_secs(4);
    let ended = kubelet.wait_for("an end", limit, |pods| pods.iter().any(|pod| pod.ended.is_some())).await;
    assert!(ended.is_err(), "{ended:?}");
    delete(&namespace, "p", Some(0)).await?;
    assert_eq!(end_of_the_pod(&kubelet).await?.ended.unwrap().how, HowItEnded::ObjectDeleted);
    Ok(())
}

async fn a_finalizer_keeps_a_pod_that_has_ended(context: Context) -> TestResult {
    let (namespace, kubelet) = with_pod(&context, Workload::bare_pod("p").finalizer("control-plane.test/keep")).await?;
    delete(&namespace, "p", None).await?;
    end_of_the_pod(&kubelet).await?;
    namespace
        .wait_for_pods("the pod is left with grace 0", SOON, |pods| {
            pods.values().any(|pod| pod.metadata.deletion_grace_period_seconds == Some(0))
        })
        .await?;
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    namespace.api::<Pod>().patch("p", &PatchParams::default(), &patch).await?;
    is_gone(&namespace).await
}

async fn a_reboot_changes_the_boot_id_and_starts_pods_again(context: Context) -> TestResult {
    let (namespace, kubelet) = with_pod(&context, Workload::bare_pod("p")).await?;
    let nodes: Api<Node> = Api::all(context.client()?);
    let before = boot_id(&nodes.get(kubelet.name()).await?);
    assert_eq!(before, kubelet.boot_id());
    kubelet.reboot(Duration::from_millis(200)).await?;
    let after = boot_id(&nodes.get(kubelet.name()).await?);
    assert_ne!(before, after);
    assert_eq!(ready(&nodes.get(kubelet.name()).await?), "True");
    namespace
        .wait_for_pods("the pod has started again", SOON, |pods| pods.values().any(|pod| restarts(pod) == 1))
        .await?;
    Ok(())
}

async fn a_reboot_ends_pods_that_were_being_deleted(context: Context) -> TestResult {
    let pod = Workload::bare_pod("p").grace(Duration::from_secs(600)).stopping(Stopping::WhenKilled);
    let (namespace, kubelet) = with_pod(&context, pod).await?;
    delete(&namespace, "p", None).await?;
    kubelet.wait_for("SIGTERM", SOON, |pods| pods.iter().any(|pod| !pod.terminations.is_empty())).await?;
    kubelet.reboot(Duration::ZERO).await?;
    is_gone(&namespace).await?;
    assert_eq!(end_of_the_pod(&kubelet).await?.ended.unwrap().how, HowItEnded::MachineStopped);
    Ok(())
}

async fn conditions_of_others_survive_the_kubelets(context: Context) -> TestResult {
    let namespace = context.namespace("conditions").await?;
    let kubelet = context.kubelet(namespace.node("a")).await?;
    let nodes: Api<Node> = Api::all(context.client()?);
    let patch = Patch::Strategic(json!({"status": {"conditions": [{"type": "Drained", "status": "True"}]}}));
    nodes.patch_status(kubelet.name(), &PatchParams::default(), &patch).await?;
    kubelet.post_not_ready("a test wants it").await?;
    let node = nodes.get(kubelet.name()).await?;
    assert_eq!((condition(&node, "Drained"), ready(&node)), ("True".to_owned(), "False".to_owned()));
    Ok(())
}

async fn not_ready_and_ready_are_posted_at_once(context: Context) -> TestResult {
    let namespace = context.namespace("ready").await?;
    let kubelet = context.kubelet(namespace.node("a")).await?;
    kubelet.post_not_ready("container runtime is down").await?;
    wait_for_taint(&context, &kubelet, "node.kubernetes.io/not-ready", true).await?;
    kubelet.post_ready().await?;
    wait_for_taint(&context, &kubelet, "node.kubernetes.io/not-ready", false).await
}

async fn a_silent_node_becomes_unreachable_and_comes_back(context: Context) -> TestResult {
    let namespace = context.namespace("silent").await?;
    let kubelet = context.kubelet(namespace.node("a").heartbeat_every(Duration::from_secs(1))).await?;
    wait_for_taint(&context, &kubelet, "node.kubernetes.io/not-ready", false).await?;
    kubelet.stop_heartbeats();
    context.doing("wait for the controller manager to notice the silence");
    wait_for_taint(&context, &kubelet, "node.kubernetes.io/unreachable", true).await?;
    kubelet.resume_heartbeats().await?;
    wait_for_taint(&context, &kubelet, "node.kubernetes.io/unreachable", false).await
}

async fn wait_for_taint(context: &Context, kubelet: &Kubelet, key: &str, wanted: bool) -> TestResult {
    let selection = ListParams::default().fields(&format!("metadata.name={}", kubelet.name()));
    let goal = format!("the taint {key}: {wanted}");
    wait_until::<Node>(&Api::all(context.client()?), &selection, &goal, SOON, |nodes| {
        nodes.values().any(|node| {
            let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
            taints.iter().any(|taint| taint.key == key) == wanted
        })
    })
    .await?;
    Ok(())
}

fn boot_id(node: &Node) -> String {
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    info.map(|info| info.boot_id.clone()).unwrap_or_default()
}

fn ready(node: &Node) -> String {
    condition(node, "Ready")
}

fn condition(node: &Node, kind: &str) -> String {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().find(|condition| condition.type_ == kind).map(|found| found.status.clone()).unwrap_or_default()
}

fn restarts(pod: &Pod) -> i32 {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
    statuses.iter().map(|status| status.restart_count).sum()
}

/// The pod stopped this long after SIGTERM, or a little later on a busy machine.
fn assert_seconds(history: &PodHistory, seconds: f64) {
    let took = history.seconds_to_stop().unwrap();
    assert!((seconds..seconds + 1.5).contains(&took), "it took {took} s");
}
