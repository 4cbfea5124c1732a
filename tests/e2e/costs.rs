//! What the agent costs the API server.

use std::time::Duration;

use control_plane::harness::{Context, TestResult};
use control_plane::{Answer, DisruptionBudget, Fault, RecordedRequest, RequestMatcher, Stopping, Workload};
use http::{Method, StatusCode};
use mock_imds::EventSpec;

use crate::scene::{SOON, Scene, is_cordoned, record};

/// What the agent has asked for, but for the question at its start which rights it has: that is asked once and writes
/// nothing.
fn requests(scene: &Scene) -> Vec<RecordedRequest> {
    let all = scene.proxy.requests().into_iter();
    all.filter(|one| !one.path.ends_with("/selfsubjectaccessreviews")).collect()
}

//
pub(crate) async fn an_event_for_another_machine_costs_a_look_at_repairs_and_nothing_else(
    context: Context,
) -> TestResult {
    let mut scene = Scene::new(&context, "neighbour").await?;
    scene.running(&Workload::deployment("web", 2), 2).await?;
    scene.start_agent()?;
    scene.polls(2).await?;
    let first: Vec<String> = requests(&scene).iter().map(|one| format!("{} {}", one.method, one.path)).collect();
    assert_eq!(first, [format!("GET /api/v1/nodes/{}", scene.node.name())], "one look at the start");
    scene.imds.inject(EventSpec::redeploy(scene.second_vm()).notice(Duration::from_secs(30)))?;
    // The looks of all nodes are spread over some seconds, and then come every half minute.
    scene.polls(10).await?;
    let since: Vec<String> = requests(&scene)[1..].iter().map(|one| one.path.clone()).collect();
    assert_eq!(since, ["/apis/remediator.dev/v1alpha1/noderepairs"]);
    let node = scene.node_now().await?;
    assert!(!is_cordoned(&node) && record(&node).is_none());
    Ok(())
}

pub(crate) async fn a_drain_costs_little_more_than_one_request_a_pod(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "costs").await?;
    scene.running(&Workload::deployment("web", 60), 60).await?;
    scene.start_agent()?;
    scene.imds.inject(EventSpec::redeploy(&scene.vm).notice(Duration::from_secs(900)))?;
    let ended = scene.until_drain_ended(SOON).await?;
    assert_eq!(ended["events"][0]["drained"], "drained", "{ended}");
    assert_eq!(scene.evictions().len(), 60);
    let for_pods = scene.proxy.requests().iter().filter(|one| one.path.contains("/pods")).count();
    assert!(for_pods <= 72, "{for_pods} requests for 60 pods");
    Ok(())
}

pub(crate) async fn a_dry_run_writes_nothing(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "dry-run").await?;
    scene.running(&Workload::deployment("web", 2), 2).await?;
    scene.with_arguments(&["--dry-run"]);
    scene.start_agent()?;
    scene.imds.inject(EventSpec::preempt(&scene.vm).notice(Duration::from_secs(30)))?;
    scene.polls(4).await?;
    let writes: Vec<String> =
        requests(&scene).iter().filter(|one| !one.method.is_safe()).map(|one| one.path.clone()).collect();
    assert_eq!(writes, Vec::<String>::new());
    assert!(scene.log().contains("Dry run: would cordon the node"), "{}", scene.log());
    Ok(())
}

pub(crate) async fn a_dry_run_leaves_a_drain_alone_that_was_begun_without_it(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "dry-resume").await?;
    let web = Workload::deployment("web", 8);
    scene.running(&web, 8).await?;
    DisruptionBudget::min_available(&web, 8).create(&scene.namespace).await?;
    scene.start_agent()?;
    scene.imds.inject(EventSpec::reboot(&scene.vm).notice(Duration::from_secs(900)))?;
    scene.until_cordoned().await?;
    let refused = |requests: &[RecordedRequest]| requests.iter().any(|one| one.path.ends_with("/eviction"));
    scene.proxy.wait_for("a refused eviction", SOON, refused).await?;
    scene.kill_agent().await?;
    scene.proxy.forget_requests();
    scene.with_arguments(&["--dry-run"]);
    scene.start_agent()?;
    scene.polls(4).await?;
    // What the killed agent had sent before may come in until the new one makes itself heard.
    let requests = requests(&scene);
    let first = requests.iter().position(|one| one.method == Method::GET && one.path.ends_with(scene.node.name()));
    let of_dry_run = &requests[first.ok_or("the new agent has not looked at its node")?..];
    let writes: Vec<&str> =
        of_dry_run.iter().filter(|one| !one.method.is_safe()).map(|one| one.path.as_str()).collect();
    assert_eq!(writes, Vec::<&str>::new());
    Ok(())
}

pub(crate) async fn watches_that_are_refused_do_not_become_a_stream_of_lists(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "no-watch").await?;
    let slow = Workload::deployment("slow", 2).stopping(Stopping::After(Duration::from_secs(12)));
    scene.running(&slow, 2).await?;
    let forbidden = Answer::failure(StatusCode::FORBIDDEN, "Forbidden", "you cannot watch");
    scene.proxy.inject(RequestMatcher::any().query_contains("watch=true"), Fault::Answer(forbidden));
    scene.start_agent()?;
    scene.imds.inject(EventSpec::reboot(&scene.vm).notice(Duration::from_secs(900)))?;
    let ended = scene.until_drain_ended(Duration::from_secs(40)).await?;
    assert_eq!(ended["events"][0]["drained"], "drained", "{ended}");
    let count = |path: &str| {
        scene.proxy.requests().iter().filter(|one| one.method == Method::GET && one.path.ends_with(path)).count()
    };
    assert!(count("/pods") <= 30, "{} lists and watches of pods in some 20 s", count("/pods"));
    assert!(count(scene.node.name()) <= 30, "{} looks at the node", count(scene.node.name()));
    Ok(())
}
