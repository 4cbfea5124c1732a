//! What the agent costs the API server.

use std::time::Duration;

use control_plane::Workload;
use control_plane::harness::{Context, TestResult};
use mock_imds::EventSpec;

use crate::scene::{SOON, Scene, is_cordoned, record};

// A-05 and design: idle costs nothing
pub(crate) async fn an_event_for_another_machine_costs_the_api_server_nothing(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "neighbour").await?;
    scene.running(&Workload::deployment("web", 2), 2).await?;
    scene.start_agent()?;
    scene.polls(2).await?;
    let first: Vec<String> = scene.proxy.requests().iter().map(|one| format!("{} {}", one.method, one.path)).collect();
    assert_eq!(first, [format!("GET /api/v1/nodes/{}", scene.node.name())], "one look at the start");
    scene.imds.inject(EventSpec::redeploy("aks-np1-neighbour-vmss_7").notice(Duration::from_secs(30)))?;
    scene.polls(4).await?;
    assert_eq!(scene.proxy.requests().len(), 1);
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
        scene.proxy.requests().iter().filter(|one| !one.method.is_safe()).map(|one| one.path.clone()).collect();
    assert_eq!(writes, Vec::<String>::new());
    assert!(scene.log().contains("Dry run: would cordon the node"), "{}", scene.log());
    Ok(())
}
