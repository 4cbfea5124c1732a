//! Whose cordon it is, and when the node is given back.

use std::time::Duration;

use control_plane::harness::{Context, TestResult};
use control_plane::{DisruptionBudget, Fault, RecordedRequest, RequestMatcher, Stopping, Workload};
use k8s_openapi::api::core::v1::Node;
use mock_imds::EventSpec;
use serde_json::json;

use crate::scene::{SOON, Scene, is_cordoned, is_success, record};

const MINUTES: Duration = Duration::from_secs(900);

// D-09 and O-02
pub(crate) async fn a_node_that_an_admin_cordoned_is_drained_and_stays_cordoned(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "foreign").await?;
    scene.running(&Workload::deployment("web", 3), 3).await?;
    scene.as_admin(json!({"spec": {"unschedulable": true}})).await?;
    scene.start_agent()?;
    let id = scene.imds.inject(EventSpec::preempt(&scene.vm).notice(Duration::from_secs(30)))?;
    scene.until_accepted(3).await?;
    let ended = scene.until_drain_ended(SOON).await?;
    assert_eq!(ended["claims"]["cordon"], "foreign", "{ended}");
    scene.imds.start(&id)?;
    scene.imds.finish(&id)?;
    let node = scene.until_node("without a record", SOON, |node| record(node).is_none()).await?;
    assert!(is_cordoned(&node));
    let uncordoned =
        scene.node_writes().iter().any(|write| write.body.as_ref().is_some_and(|body| !body["spec"].is_null()));
    assert!(!uncordoned, "the admin's cordon is never written");
    Ok(())
}

// O-04 (b)
pub(crate) async fn a_cancelled_event_stops_the_drain_and_gives_the_node_back(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "cancelled").await?;
    let web = Workload::deployment("web", 24).stopping(Stopping::After(Duration::from_secs(2)));
    scene.running(&web, 24).await?;
    // Slow answers, so that some evictions are under way when the event is cancelled.
    scene.proxy.inject(RequestMatcher::any().path_ends_with("/eviction"), Fault::Delay(Duration::from_millis(2500)));
    scene.start_agent()?;
    let id = scene.imds.inject(EventSpec::reboot(&scene.vm).notice(MINUTES))?;
    let asked = |requests: &[RecordedRequest]| requests.iter().any(|one| one.path.ends_with("/eviction"));
    scene.proxy.wait_for("an eviction under way", SOON, asked).await?;
    scene.imds.cancel(&id)?;
    scene.until_given_back(SOON).await?;
    let answered = |requests: &[RecordedRequest]| {
        requests.iter().filter(|one| one.path.ends_with("/eviction")).all(|one| one.status.is_some())
    };
    scene.proxy.wait_for("every eviction that was under way to be answered", SOON, answered).await?;
    let evicted = scene.evictions().iter().filter(|request| is_success(request)).count();
    assert!(evicted < 24, "the others stay");
    let requests = scene.evictions().len();
    scene.polls(3).await?;
    assert_eq!(scene.evictions().len(), requests, "no eviction after the cancellation");
    scene.until_told("RebootCancelled").await?;
    scene.until_told("NodeUncordonEnd").await?;
    Ok(())
}

// O-01
pub(crate) async fn a_node_is_given_back_after_a_reboot_when_it_is_ready(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "reboot").await?;
    scene.running(&Workload::deployment("web", 2), 2).await?;
    scene.start_agent()?;
    let id = scene.imds.inject(EventSpec::reboot(&scene.vm).notice(MINUTES))?;
    scene.until_drain_ended(SOON).await?;
    scene.imds.start(&id)?;
    context.doing("rebooting the node");
    let before = scene.node.boot_id();
    scene.kill_agent().await?;
    scene.node.reboot(Duration::from_secs(2)).await?;
    assert_ne!(before, scene.node.boot_id());
    scene.start_agent()?;
    scene.polls(3).await?;
    let node = scene.node_now().await?;
    assert!(is_cordoned(&node) && record(&node).is_some(), "still Started, so still ours");
    scene.node.post_not_ready("the kubelet is not up yet").await?;
    scene.imds.finish(&id)?;
    scene.polls(4).await?;
    assert!(is_cordoned(&scene.node_now().await?), "gone, but the node is not ready");
    scene.node.post_ready().await?;
    scene.until_given_back(SOON).await?;
    let note = scene.until_told("NodeUncordonEnd").await?;
    assert!(note.contains("did restart"), "{note}");
    scene.until_told("RebootEnded").await?;
    Ok(())
}

// O-07
pub(crate) async fn a_cordon_taken_away_during_the_drain_is_put_back(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "uncordoned").await?;
    let slow = Workload::deployment("slow", 2).stopping(Stopping::After(Duration::from_secs(25)));
    scene.running(&slow, 2).await?;
    scene.start_agent()?;
    scene.imds.inject(EventSpec::reboot(&scene.vm).notice(MINUTES))?;
    scene.until_accepted(2).await?;
    for restored in 1..=3 {
        scene.as_admin(json!({"spec": {"unschedulable": false}})).await?;
        let again =
            |node: &Node| is_cordoned(node) && record(node).is_some_and(|record| record["cordonRestored"] == restored);
        scene.until_node("cordoned again", SOON, again).await?;
    }
    scene.as_admin(json!({"spec": {"unschedulable": false}})).await?;
    let note = scene.until_told("NodeUncordoned").await?;
    assert!(note.contains("stays so"), "{note}");
    scene.polls(4).await?;
    assert!(!is_cordoned(&scene.node_now().await?));
    let sets_cordon = |write: &&RecordedRequest| {
        is_success(write) && write.body.as_ref().is_some_and(|body| body["spec"]["unschedulable"] == true)
    };
    assert_eq!(scene.node_writes().iter().filter(sets_cordon).count(), 4, "once, and three times again");
    Ok(())
}

pub(crate) async fn a_hold_stops_a_running_drain_until_it_is_lifted(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "hold-drain").await?;
    let web = Workload::deployment("web", 6).stopping(Stopping::After(Duration::from_secs(2)));
    scene.running(&web, 6).await?;
    DisruptionBudget::max_unavailable(&web, 1).create(&scene.namespace).await?;
    let _refuge = scene.another_node().await?;
    scene.start_agent()?;
    scene.imds.inject(EventSpec::reboot(&scene.vm).notice(MINUTES))?;
    scene.until_accepted(1).await?;
    scene.as_admin(json!({"metadata": {"annotations": {"remediator.dev/hold": ""}}})).await?;
    scene.polls(2).await?;
    let before = scene.evictions().len();
    scene.polls(4).await?;
    assert_eq!(scene.evictions().len(), before, "no eviction while it is held");
    scene.as_admin(json!({"metadata": {"annotations": {"remediator.dev/hold": null}}})).await?;
    let ended = scene.until_drain_ended(Duration::from_secs(50)).await?;
    assert_eq!(ended["events"][0]["drained"], "drained", "{ended}");
    Ok(())
}

// O-03 (b)
pub(crate) async fn a_held_node_is_given_back_when_the_hold_is_lifted(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "held").await?;
    scene.running(&Workload::deployment("web", 1), 1).await?;
    scene.start_agent()?;
    let id = scene.imds.inject(EventSpec::reboot(&scene.vm).notice(MINUTES))?;
    scene.until_drain_ended(SOON).await?;
    scene.as_admin(json!({"metadata": {"annotations": {"remediator.dev/hold": "by ops"}}})).await?;
    scene.imds.cancel(&id)?;
    scene.polls(4).await?;
    assert!(is_cordoned(&scene.node_now().await?));
    let (_, metrics) = scene.probe("/metrics").await?;
    assert!(metrics.contains(r#"remediator_agent_stage{stage="held"} 1"#), "{metrics}");
    scene.as_admin(json!({"metadata": {"annotations": {"remediator.dev/hold": null}}})).await?;
    scene.until_given_back(SOON).await?;
    Ok(())
}
