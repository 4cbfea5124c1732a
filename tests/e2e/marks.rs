//! What is put on a node beside the cordon, whose it is, and what the node's conditions tell.

use std::time::Duration;

use control_plane::harness::{Context, TestResult};
use control_plane::{
    AdmissionPolicy, Answer, Denial, DisruptionBudget, Fault, RecordedRequest, RequestMatcher, Stopping, Workload,
};
use http::{Method, StatusCode};
use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use mock_imds::EventSpec;
use serde_json::{Value, json};

use crate::scene::{ACCOUNT, Anything, SOON, Scene, is_cordoned, is_success, pod_of, record, until_denied};

const MINUTES: Duration = Duration::from_secs(900);

const TAINT: &str = "status-taint.cluster-autoscaler.kubernetes.io/remediator";
const LABEL: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
const ANNOTATION: &str = "cluster-autoscaler.kubernetes.io/scale-down-disabled";
const AUTOSCALER: &str = "ToBeDeletedByClusterAutoscaler";

const ALL_MARKS: &str = "events: [{name: all, action: drain}]\n\
    drain: {taint: {}, excludeFromLoadBalancers: true, disableScaleDown: true}\n";
const ONLY_TAINT: &str = "events: [{name: all, action: drain}]\ndrain: {taint: {}}\n";

fn taints(node: &Node) -> Vec<Taint> {
    node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default()
}

/// The taints with this key, as `VALUE:EFFECT`.
fn taints_of(node: &Node, key: &str) -> Vec<String> {
    let of_key = taints(node).into_iter().filter(|taint| taint.key == key);
    of_key.map(|taint| format!("{}:{}", taint.value.unwrap_or_default(), taint.effect)).collect()
}

/// Changes the list of taints as another client, and what else of the spec it is given, until nobody writes in between.
async fn change_taints(scene: &Scene, mut spec: Value, change: impl Fn(&mut Vec<Taint>)) -> Result<(), Anything> {
    loop {
        let node = scene.node_now().await?;
        let mut changed = taints(&node);
        change(&mut changed);
        spec["taints"] = json!(changed);
        match scene.as_admin(json!({"metadata": {"resourceVersion": node.resource_version()}, "spec": spec})).await {
            // Kubernetes has a taint of its own for a cordon, and writes it when it likes.
            Err(error) if error.to_string().contains("has been modified") => {}
            written => return written,
        }
    }
}

/// Adds a taint to those that are there.
async fn add_taint(scene: &Scene, key: &str, value: &str, effect: &str) -> Result<(), Anything> {
    let (key, effect) = (key.to_owned(), effect.to_owned());
    let taint = Taint { key, effect, value: Some(value.to_owned()), ..Taint::default() };
    change_taints(scene, json!({}), |taints| taints.push(taint.clone())).await
}

fn body(request: &RecordedRequest) -> &Value {
    request.body.as_ref().unwrap_or(&Value::Null)
}

fn sets_taint(request: &RecordedRequest, key: &str) -> bool {
    body(request)["spec"]["taints"].as_array().is_some_and(|taints| taints.iter().any(|taint| taint["key"] == key))
}

// O-04 (c), O-06 (b)
pub(crate) async fn marks_come_with_the_cordon_and_go_with_it(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "marks").await?;
    scene.running(&Workload::deployment("web", 3), 3).await?;
    add_taint(&scene, "example.com/theirs", "x", "PreferNoSchedule").await?;
    scene.as_admin(json!({"metadata": {"labels": {"theirs": "1"}, "annotations": {"theirs": "2"}}})).await?;
    scene.with_policy(ALL_MARKS)?;
    scene.start_agent()?;
    let id = scene.imds.inject(EventSpec::reboot(&scene.vm).notice(MINUTES))?;
    scene.until_drain_ended(SOON).await?;

    let requests = scene.proxy.requests();
    let cordon = scene.node_writes().into_iter().find(is_success).ok_or("nothing was written")?;
    assert_eq!(body(&cordon)["spec"]["unschedulable"], true);
    assert!(sets_taint(&cordon, TAINT) && sets_taint(&cordon, "example.com/theirs"), "{cordon:?}");
    assert_eq!(body(&cordon)["metadata"]["labels"][LABEL], "true");
    assert_eq!(body(&cordon)["metadata"]["annotations"][ANNOTATION], "true");
    assert!(body(&cordon)["metadata"]["annotations"]["remediator.dev/agent"].is_string(), "with the record");
    let eviction = requests.iter().find(|request| request.path.ends_with("/eviction")).ok_or("nothing was evicted")?;
    assert!(cordon.answered.is_some_and(|answered| answered <= eviction.began), "before the first eviction");
    let node = scene.node_now().await?;
    assert_eq!(taints_of(&node, TAINT), [":NoSchedule"]);

    scene.imds.cancel(&id)?;
    let node = scene.until_given_back(SOON).await?;
    assert_eq!(taints_of(&node, TAINT), [""; 0]);
    assert_eq!(taints_of(&node, "example.com/theirs"), ["x:PreferNoSchedule"]);
    assert!(!node.labels().contains_key(LABEL) && !node.annotations().contains_key(ANNOTATION));
    assert_eq!((node.labels().get("theirs"), node.annotations().get("theirs")), (Some(&"1".into()), Some(&"2".into())));
    Ok(())
}

// O-06 (a), D-12 variant
pub(crate) async fn marks_that_were_there_before_stay_as_they_were(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "theirs").await?;
    scene.running(&Workload::deployment("web", 2), 2).await?;
    add_taint(&scene, TAINT, "older", "NoSchedule").await?;
    add_taint(&scene, "example.com/theirs", "x", "NoSchedule").await?;
    let marks = json!({"labels": {LABEL: "by-an-admin"}, "annotations": {ANNOTATION: "false"}});
    scene.as_admin(json!({"metadata": marks})).await?;
    scene.with_policy(ALL_MARKS)?;
    scene.start_agent()?;
    let id = scene.imds.inject(EventSpec::reboot(&scene.vm).notice(MINUTES))?;
    let ended = scene.until_drain_ended(SOON).await?;
    assert_eq!(ended["events"][0]["drained"], "drained", "{ended}");
    let as_before = |node: &Node| {
        assert_eq!(taints_of(node, TAINT), ["older:NoSchedule"], "one of our key and effect, and it is theirs");
        assert_eq!(taints_of(node, "example.com/theirs"), ["x:NoSchedule"]);
        assert_eq!(node.labels().get(LABEL).map(String::as_str), Some("by-an-admin"));
        assert_eq!(node.annotations().get(ANNOTATION).map(String::as_str), Some("false"));
    };
    as_before(&scene.node_now().await?);
    scene.imds.cancel(&id)?;
    as_before(&scene.until_given_back(SOON).await?);
    for write in scene.node_writes() {
        assert!(body(&write)["metadata"]["labels"].is_null() && body(&write)["spec"]["taints"].is_null(), "{write:?}");
    }
    Ok(())
}

// D-06
pub(crate) async fn what_another_writes_between_our_look_and_our_write_survives(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "between").await?;
    scene.running(&Workload::deployment("web", 1), 1).await?;
    scene.with_policy(ONLY_TAINT)?;
    scene.proxy.inject(scene.writes_of_node().times(1), Fault::Delay(Duration::from_secs(3)));
    scene.start_agent()?;
    let id = scene.imds.inject(EventSpec::reboot(&scene.vm).notice(MINUTES))?;
    let writes = scene.writes_of_node();
    let under_way = |requests: &[RecordedRequest]| requests.iter().any(|request| writes.matches(&request.line()));
    scene.proxy.wait_for("a write under way", SOON, under_way).await?;
    add_taint(&scene, "x", "y", "NoSchedule").await?;
    scene.as_admin(json!({"metadata": {"labels": {"l": "1"}}})).await?;
    let node = scene.until_cordoned().await?;
    let theirs = |node: &Node| (taints_of(node, "x"), node.labels().get("l").cloned());
    let expected = (vec!["y:NoSchedule".to_owned()], Some("1".to_owned()));
    assert_eq!(theirs(&node), expected);
    assert_eq!(taints_of(&node, TAINT), [":NoSchedule"]);
    let first = scene.node_writes().first().and_then(|write| write.status);
    assert_eq!(first, Some(StatusCode::CONFLICT), "the first write was made for an older node");
    scene.until_drain_ended(SOON).await?;
    scene.imds.cancel(&id)?;
    assert_eq!(theirs(&scene.until_given_back(SOON).await?), expected);
    Ok(())
}

// D-06, variant
pub(crate) async fn a_taint_that_admission_refuses_stops_neither_cordon_nor_drain(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "refused").await?;
    scene.running(&Workload::deployment("web", 2), 2).await?;
    if context.control_plane().is_some() {
        let expression =
            format!("!has(object.spec.taints) || !object.spec.taints.exists(taint, taint.key == '{TAINT}')");
        let policy =
            AdmissionPolicy::new(ACCOUNT, "", "nodes").unless(&expression, Denial::Forbidden, "no taints here");
        policy.create(&scene.namespace).await?;
        let nodes = Api::<Node>::all(scene.client_of_agent()?);
        let taint = Patch::Strategic(json!({"spec": {"taints": [{"key": TAINT, "effect": "NoSchedule"}]}}));
        let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
        until_denied(|| async { nodes.patch(scene.node.name(), &dry_run, &taint).await.map(drop) }).await?;
    } else {
        let text = "ValidatingAdmissionPolicy 'p' with binding 'p' denied request: no taints here";
        let denied = Answer::failure(StatusCode::FORBIDDEN, "Forbidden", &format!("nodes \"n\" is forbidden: {text}"));
        scene.proxy.inject(scene.writes_of_node().times(1), Fault::Answer(denied));
    }
    scene.with_policy(ALL_MARKS)?;
    scene.start_agent()?;
    let id = scene.imds.inject(EventSpec::reboot(&scene.vm).notice(MINUTES))?;
    let ended = scene.until_drain_ended(SOON).await?;
    assert_eq!(ended["events"][0]["drained"], "drained", "{ended}");
    let node = scene.node_now().await?;
    assert!(is_cordoned(&node) && taints_of(&node, TAINT).is_empty());
    let denied: Vec<_> = scene.node_writes().into_iter().filter(|write| sets_taint(write, TAINT)).collect();
    assert_eq!(denied.len(), 1, "it is not tried again: {denied:?}");
    assert_eq!(denied[0].status, Some(StatusCode::FORBIDDEN));
    let note = scene.until_told("NodeMarksRefused").await?;
    assert!(note.contains("only cordoned"), "{note}");
    scene.imds.cancel(&id)?;
    scene.until_given_back(SOON).await?;
    let told = scene.told().await?;
    assert_eq!(told.iter().filter(|reason| *reason == "NodeMarksRefused").count(), 1, "{told:?}");
    Ok(())
}

// D-12
pub(crate) async fn a_taint_that_deletes_pods_comes_after_the_drain(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "no-execute").await?;
    let web = Workload::deployment("web", 2).ready_after(Duration::from_secs(2));
    let before = scene.running(&web, 2).await?;
    DisruptionBudget::min_available(&web, 1).create(&scene.namespace).await?;
    let _refuge = scene.another_node().await?;
    scene.with_policy("events: [{name: all, action: drain}]\ndrain: {taint: {effect: NoExecute}}\n")?;
    scene.start_agent()?;
    scene.imds.inject(EventSpec::reboot(&scene.vm).notice(MINUTES))?;
    let ended = scene.until_drain_ended(Duration::from_secs(50)).await?;
    assert_eq!(ended["events"][0]["drained"], "drained", "{ended}");
    let tainted = |node: &Node| taints_of(node, TAINT) == [":NoExecute"];
    scene.until_node("tainted", SOON, tainted).await?;
    let taint = scene.node_writes().into_iter().find(|write| sets_taint(write, TAINT)).ok_or("no taint was written")?;
    let accepted: Vec<_> = scene.evictions().into_iter().filter(is_success).collect();
    for pod in &before {
        let eviction =
            accepted.iter().find(|request| pod_of(request) == pod.name_any()).ok_or("one was not evicted")?;
        assert!(eviction.answered.is_some_and(|answered| answered < taint.began), "{eviction:?} {taint:?}");
        let history = scene.node.history().pod(&pod.uid().unwrap_or_default()).ok_or("an unknown pod")?;
        assert!(history.ended.is_some(), "nothing was left for the taint to delete");
    }
    Ok(())
}

// O-08
pub(crate) async fn the_autoscalers_taint_and_cordon_are_left_to_it(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "autoscaler").await?;
    scene.running(&Workload::deployment("web", 2), 2).await?;
    add_taint(&scene, AUTOSCALER, "1700000000", "NoSchedule").await?;
    scene.as_admin(json!({"spec": {"unschedulable": true}})).await?;
    scene.with_policy(ONLY_TAINT)?;
    scene.start_agent()?;
    let id = scene.imds.inject(EventSpec::redeploy(&scene.vm).notice(MINUTES))?;
    let ended = scene.until_drain_ended(SOON).await?;
    assert_eq!(ended["events"][0]["drained"], "drained", "{ended}");
    assert_eq!(ended["claims"]["cordon"], "foreign", "{ended}");
    scene.imds.cancel(&id)?;
    let node = scene.until_node("without a record", SOON, |node| record(node).is_none()).await?;
    assert!(is_cordoned(&node));
    assert_eq!(taints_of(&node, AUTOSCALER), ["1700000000:NoSchedule"]);
    assert_eq!(taints_of(&node, TAINT), [""; 0]);
    Ok(())
}

// O-08, variant
pub(crate) async fn a_scale_down_that_is_given_up_leaves_the_node_cordoned_for_its_event(
    context: Context,
) -> TestResult {
    let mut scene = Scene::new(&context, "gave-up").await?;
    scene.running(&Workload::deployment("web", 2), 2).await?;
    add_taint(&scene, AUTOSCALER, "1700000000", "NoSchedule").await?;
    scene.as_admin(json!({"spec": {"unschedulable": true}})).await?;
    scene.start_agent()?;
    let id = scene.imds.inject(EventSpec::redeploy(&scene.vm).notice(MINUTES))?;
    scene.until_drain_ended(SOON).await?;
    let uncordon = json!({"unschedulable": false});
    change_taints(&scene, uncordon, |taints| taints.retain(|taint| taint.key != AUTOSCALER)).await?;
    let ours =
        |node: &Node| is_cordoned(node) && record(node).is_some_and(|record| record["claims"]["cordon"] == "ours");
    scene.until_node("cordoned by us", SOON, ours).await?;
    scene.imds.cancel(&id)?;
    let node = scene.until_given_back(SOON).await?;
    assert_eq!(taints_of(&node, AUTOSCALER), [""; 0]);
    Ok(())
}

/// A pod that its budget holds for ever.
async fn held(scene: &Scene) -> Result<Pod, Anything> {
    let db = Workload::deployment("db", 1);
    let pods = scene.running(&db, 1).await?;
    DisruptionBudget::min_available(&db, 1).create(&scene.namespace).await?;
    Ok(pods.into_iter().next().ok_or("there is no pod")?)
}

// O-10 (a)
pub(crate) async fn a_drain_that_cannot_end_is_rolled_back_when_its_event_goes(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "roll-back").await?;
    let pod = held(&scene).await?;
    scene.with_policy(ALL_MARKS)?;
    scene.start_agent()?;
    let id = scene.imds.inject(EventSpec::reboot(&scene.vm).notice(MINUTES))?;
    let refused = |requests: &[RecordedRequest]| {
        requests.iter().any(|request| request.path.ends_with("/eviction") && request.status.is_some())
    };
    scene.proxy.wait_for("a refused eviction", SOON, refused).await?;
    scene.imds.cancel(&id)?;
    let node = scene.until_given_back(SOON).await?;
    assert_eq!(taints_of(&node, TAINT), [""; 0]);
    assert!(!node.labels().contains_key(LABEL) && !node.annotations().contains_key(ANNOTATION));
    assert_eq!(scene.pods_here().await?, [pod.name_any()]);
    Ok(())
}

// O-10 (b)
pub(crate) async fn an_incomplete_drain_is_rolled_back_when_its_event_has_run(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "has-run").await?;
    let pod = held(&scene).await?;
    scene.with_policy(ONLY_TAINT)?;
    scene.start_agent()?;
    let spec = EventSpec::reboot(&scene.vm).notice(Duration::from_secs(12)).until_started().until_finished();
    let id = scene.imds.inject(spec)?;
    let tainted = |node: &Node| !taints_of(node, TAINT).is_empty();
    scene.until_node("tainted", SOON, tainted).await?;
    // Its pod tolerates a cordon, as all of their kind do, but not the taint.
    let daemon = Workload::daemon_set("daemon");
    daemon.create(&scene.namespace).await?;
    let ended = scene.until_drain_ended(Duration::from_secs(30)).await?;
    assert_eq!(ended["events"][0]["drained"], "incomplete", "{ended}");
    scene.imds.start(&id)?;
    scene.polls(3).await?;
    assert_eq!(scene.pods_here().await?, [pod.name_any()], "the taint keeps the daemon away");
    scene.imds.finish(&id)?;
    let node = scene.until_given_back(SOON).await?;
    assert_eq!(taints_of(&node, TAINT), [""; 0]);
    scene.namespace.wait_for_ready(&daemon, 1, SOON).await?;
    scene.until_metric(r#"remediator_drains_total{result="incomplete"} 1"#, SOON).await?;
    assert!(scene.pods_here().await?.contains(&pod.name_any()), "nothing waited for the pod that is held");
    Ok(())
}

/// The conditions of the node that are about maintenance, as `TYPE=STATUS by REASON`.
fn conditions(node: &Node) -> Vec<String> {
    let all = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let types = ["MaintenancePlanned", "MaintenanceInProgress", "DrainInProgress", "Drained"];
    let about = all.iter().filter(|condition| types.contains(&condition.type_.as_str()));
    let mut told: Vec<String> = about
        .map(|one| format!("{}={} by {}", one.type_, one.status, one.reason.as_deref().unwrap_or_default()))
        .collect();
    told.sort();
    told
}

async fn until_conditions(scene: &Scene, expected: &[&str]) -> Result<(), Anything> {
    let waited = scene.until_node(&format!("{expected:?}"), SOON, |node| conditions(node) == expected).await;
    match waited {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("{error}\nbut {:?}", conditions(&scene.node_now().await?)).into()),
    }
}

/// Writes a condition as whoever writes such conditions.
async fn write_condition(scene: &Scene, condition_type: &str, reason: &str) -> Result<(), Anything> {
    let condition = json!({"type": condition_type, "status": "True", "reason": reason, "message": "by hand"});
    let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
    let nodes = Api::<Node>::all(scene.namespace.client().clone());
    nodes.patch_status(scene.node.name(), &PatchParams::default(), &patch).await?;
    Ok(())
}

pub(crate) async fn conditions_tell_of_an_event_and_go_after_it(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "conditions").await?;
    let slow = Workload::deployment("slow", 1).stopping(Stopping::After(Duration::from_secs(4)));
    scene.running(&slow, 1).await?;
    scene.start_agent()?;
    let id = scene.imds.inject(EventSpec::reboot(&scene.vm).notice(MINUTES).until_finished())?;
    let (planned, not_in_progress) = (
        "MaintenancePlanned=True by RemediatorEventScheduled",
        "MaintenanceInProgress=False by RemediatorEventScheduled",
    );
    let draining = [
        "DrainInProgress=True by RemediatorDrainStarted",
        "Drained=False by RemediatorDrainStarted",
        not_in_progress,
        planned,
    ];
    until_conditions(&scene, &draining).await?;
    let drained = "Drained=True by RemediatorDrainCompleted";
    let not_draining = "DrainInProgress=False by RemediatorDrainCompleted";
    until_conditions(&scene, &[not_draining, drained, not_in_progress, planned]).await?;
    scene.imds.start(&id)?;
    let (in_progress, not_planned) =
        ("MaintenanceInProgress=True by RemediatorEventStarted", "MaintenancePlanned=False by RemediatorEventStarted");
    until_conditions(&scene, &[not_draining, drained, in_progress, not_planned]).await?;
    scene.imds.finish(&id)?;
    scene.until_given_back(SOON).await?;
    until_conditions(&scene, &[]).await?;
    // Each change of state is a write or two, and nothing else is.
    let status = RequestMatcher::any().method(Method::PATCH).path_ends_with("/status");
    let writes = scene.proxy.requests_that(&status).len();
    assert!((4..=8).contains(&writes), "{writes} writes of conditions");
    Ok(())
}

pub(crate) async fn conditions_of_others_stay_and_stale_ones_of_ours_go(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "stale").await?;
    scene.running(&Workload::deployment("web", 1), 1).await?;
    write_condition(&scene, "MaintenancePlanned", "RemediatorEventScheduled").await?;
    write_condition(&scene, "DrainInProgress", "SomebodyElse").await?;
    let theirs = "DrainInProgress=True by SomebodyElse";
    scene.start_agent()?;
    until_conditions(&scene, &[theirs]).await?;
    let id = scene.imds.inject(EventSpec::reboot(&scene.vm).notice(MINUTES))?;
    scene.until_drain_ended(SOON).await?;
    let expected = [
        theirs,
        "Drained=True by RemediatorDrainCompleted",
        "MaintenanceInProgress=False by RemediatorEventScheduled",
        "MaintenancePlanned=True by RemediatorEventScheduled",
    ];
    until_conditions(&scene, &expected).await?;
    scene.imds.cancel(&id)?;
    scene.until_given_back(SOON).await?;
    until_conditions(&scene, &[theirs]).await?;
    Ok(())
}
