//! Policies that change while the agent runs, and nodes that have one of their own.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use control_plane::harness::{Context, TestResult};
use control_plane::{Answer, Fault, RequestMatcher, Workload};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use mock_imds::EventSpec;
use serde_json::json;

use crate::scene::{Anything, SOON, Scene, is_cordoned, policy_file, record};

const MINUTES: Duration = Duration::from_secs(900);

const NOTHING: &str = "events: [{name: all, action: none}]\n";
const CORDON: &str = "events: [{name: all, action: cordon}]\n";
const DRAIN: &str = "events: [{name: all, action: drain}]\n";

/// Writes a policy as the kubelet writes a `ConfigMap` that is mounted: in a folder of its own, to which a link is turned
/// (<https://kubernetes.io/docs/concepts/configuration/configmap/#mounted-configmaps-are-updated-automatically>).
fn mount(folder: &Path, revision: &str, text: &str) -> Result<(), Anything> {
    fs::create_dir(folder.join(revision))?;
    fs::write(folder.join(revision).join("policy.yaml"), text)?;
    symlink(revision, folder.join("..new"))?;
    fs::rename(folder.join("..new"), folder.join("..data"))?;
    if !folder.join("policy.yaml").exists() {
        symlink("..data/policy.yaml", folder.join("policy.yaml"))?;
    }
    Ok(())
}

pub(crate) async fn a_policy_that_changes_counts_for_later_events(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "reload").await?;
    scene.running(&Workload::deployment("web", 1), 1).await?;
    let folder = scene.with_policy_folder()?;
    mount(&folder, "..1", &policy_file("test", CORDON))?;
    scene.start_agent()?;
    let first = scene.imds.inject(EventSpec::reboot(&scene.vm).notice(MINUTES))?;
    scene.until_cordoned().await?;
    mount(&folder, "..2", &policy_file("test", NOTHING))?;
    scene.until_metric("remediator_policy_generation 2", SOON).await?;
    scene.polls(3).await?;
    assert!(is_cordoned(&scene.node_now().await?), "what was begun under the old policy stays");
    scene.imds.cancel(&first)?;
    scene.until_given_back(SOON).await?;
    scene.imds.inject(EventSpec::reboot(&scene.vm).notice(MINUTES))?;
    scene.until_metric(r#"remediator_agent_stage{stage="ignoring"} 1"#, SOON).await?;
    assert!(!is_cordoned(&scene.node_now().await?));
    context.doing("wishing for a drain while the event is listed");
    mount(&folder, "..3", &policy_file("test", DRAIN))?;
    let ended = scene.until_drain_ended(Duration::from_secs(40)).await?;
    assert_eq!(ended["events"][0]["drained"], "drained", "{ended}");
    Ok(())
}

pub(crate) async fn a_broken_policy_leaves_the_last_good_one_in_force(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "broken").await?;
    scene.running(&Workload::deployment("web", 1), 1).await?;
    let folder = scene.with_policy_folder()?;
    mount(&folder, "..1", &policy_file("test", DRAIN))?;
    scene.start_agent()?;
    scene.polls(1).await?;
    mount(&folder, "..2", &policy_file("test", "events: [{name: all, action: drian}]\n"))?;
    scene.until_metric(r#"remediator_policy_reloads_total{result="refused"} 1"#, SOON).await?;
    let place = format!("{}:4:30: ", folder.join("policy.yaml").display());
    scene.until_logged(&place, SOON).await?;
    assert!(scene.log().contains("the last good ones stay"), "{}", scene.log());
    scene.until_metric("remediator_policy_generation 1", SOON).await?;
    mount(&folder, "..3", &policy_file("test", DRAIN))?;
    scene.until_logged("again what they were when they were last good", SOON).await?;
    scene.imds.inject(EventSpec::reboot(&scene.vm).notice(MINUTES))?;
    let ended = scene.until_drain_ended(SOON).await?;
    assert_eq!(ended["events"][0]["drained"], "drained", "{ended}");
    Ok(())
}

// N-06
pub(crate) async fn rights_that_policies_need_and_nobody_gave_are_named_before_they_are_needed(
    context: Context,
) -> TestResult {
    let mut scene = Scene::new(&context, "rights").await?;
    scene.running(&Workload::deployment("web", 2), 2).await?;
    let folder = scene.with_policy_folder()?;
    mount(&folder, "..1", &policy_file("test", DRAIN))?;
    let refusal = json!({"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "metadata": {},
                         "spec": {}, "status": {"allowed": false}});
    let refusal = Answer::text(StatusCode::CREATED, &refusal.to_string())
        .header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    scene.proxy.inject(RequestMatcher::any().path_contains("selfsubjectaccessreviews"), Fault::Answer(refusal));
    scene.start_agent()?;
    scene.until_logged("The agent's service account lacks rights", SOON).await?;
    assert!(scene.log().contains("create pods/eviction") && !scene.log().contains("delete pods"), "{}", scene.log());
    mount(
        &folder,
        "..2",
        &policy_file("test", &format!("{DRAIN}drain: {{profiles: {{default: {{atDeadline: delete}}}}}}\n")),
    )?;
    scene.until_logged("delete pods", SOON).await?;
    scene.imds.inject(EventSpec::reboot(&scene.vm).notice(MINUTES))?;
    let ended = scene.until_drain_ended(SOON).await?;
    assert_eq!(ended["events"][0]["drained"], "drained", "{ended}");
    Ok(())
}

pub(crate) async fn an_annotation_gives_a_node_another_policy(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "annotated").await?;
    scene.running(&Workload::deployment("web", 1), 1).await?;
    let folder = scene.with_policy_folder()?;
    fs::write(folder.join("a.yaml"), policy_file("usual", &format!("priority: 9\n{NOTHING}")))?;
    fs::write(folder.join("b.yaml"), policy_file("other", DRAIN))?;
    scene.as_admin(json!({"metadata": {"annotations": {"remediator.dev/policy": "other"}}})).await?;
    scene.start_agent()?;
    scene.imds.inject(EventSpec::reboot(&scene.vm).notice(MINUTES))?;
    let ended = scene.until_drain_ended(SOON).await?;
    assert_eq!(ended["events"][0]["drained"], "drained", "{ended}");
    assert_eq!(ended["events"][0]["ruling"]["policy"], "other", "{ended}");
    Ok(())
}

pub(crate) async fn a_node_whose_annotation_names_no_policy_is_left_alone_and_says_so(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "misnamed").await?;
    scene.with_policy(DRAIN)?;
    scene.as_admin(json!({"metadata": {"annotations": {"remediator.dev/policy": "tset"}}})).await?;
    scene.start_agent()?;
    scene.imds.inject(EventSpec::reboot(&scene.vm).notice(MINUTES))?;
    let note = scene.until_told("RebootScheduled").await?;
    assert!(note.contains("tset"), "{note}");
    scene.polls(3).await?;
    let node = scene.node_now().await?;
    assert!(!is_cordoned(&node) && record(&node).is_none());
    Ok(())
}
