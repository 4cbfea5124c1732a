//! What happens when the time is short or over.

use std::time::Duration;

use control_plane::harness::{Context, TestResult};
use control_plane::{DisruptionBudget, HowItEnded, RecordedRequest, Stopping, Workload};
use mock_imds::EventSpec;

use crate::scene::{NOISE, SOON, Scene, Stopwatch, grace_of, is_success, pod_of, uid, uid_of};

// D-10
pub(crate) async fn a_preempt_asks_all_pods_at_once_and_deletes_what_is_held_back(context: Context) -> TestResult {
    preempt(context, "preempt", 30, 5).await
}

// D-10, variant
pub(crate) async fn a_preempt_with_eight_seconds_left_does_the_same_in_less_time(context: Context) -> TestResult {
    preempt(context, "hasty-preempt", 8, 3).await
}

/// `asked_within` is the time in which all pods that no budget holds back are asked.
async fn preempt(context: Context, name: &str, notice: u64, asked_within: u64) -> TestResult {
    let mut scene = Scene::new(&context, name).await?;
    let slow = |name, count| {
        Workload::deployment(name, count)
            .grace(Duration::from_secs(60))
            .stopping(Stopping::After(Duration::from_secs(5)))
    };
    let free = scene.running(&slow("free", 9), 9).await?;
    let db = slow("db", 1);
    let held = scene.running(&db, 1).await?;
    DisruptionBudget::min_available(&db, 1).create(&scene.namespace).await?;
    scene.start_agent()?;
    scene.polls(1).await?;
    let published = Stopwatch::start();
    let already = scene.proxy.requests().len();
    scene.imds.inject(EventSpec::preempt(&scene.vm).notice(Duration::from_secs(notice)))?;
    scene.until_accepted(1).await?;
    let first_after = published.elapsed();
    assert!(first_after <= Duration::from_secs(2) + NOISE, "the first eviction came after {first_after:?}");
    scene.until_accepted(free.len()).await?;
    let all_after = published.elapsed();
    assert!(
        all_after <= Duration::from_secs(asked_within) + NOISE,
        "the last of the free pods was asked after {all_after:?}"
    );
    // What the agent may do is asked by POST, and changes nothing.
    let writes = |one: &&RecordedRequest| !one.method.is_safe() && !one.path.contains("selfsubjectaccessreviews");
    let first_write = scene.proxy.requests()[already..].iter().find(writes).cloned();
    assert_eq!(first_write.map(|one| one.method.to_string()).as_deref(), Some("PATCH"), "the cordon comes first");

    context.doing("waiting for the end");
    let ended = scene.until_drain_ended(Duration::from_secs(45)).await?;
    let took = published.elapsed();
    assert!(took < Duration::from_secs(notice + 3) + NOISE, "the drain ended after {took:?}");
    for request in scene.evictions().iter().chain(&scene.deletions()) {
        let most = i64::try_from(notice)?;
        assert!((1..=most).contains(&grace_of(request)), "grace {} for {}", grace_of(request), request.path);
    }
    let deleted = scene.deletions();
    assert!(deleted.iter().all(|request| uid_of(request) == uid(&held[0])), "only the held pod is deleted");
    let kill = deleted.iter().find(|request| is_success(request)).ok_or("the held pod was not deleted")?;
    assert!((1..=5).contains(&grace_of(kill)), "{}", grace_of(kill));
    let history = scene.node.history().pod(&uid(&held[0])).ok_or("the kubelet does not know the pod")?;
    assert!(!history.terminations.is_empty(), "it got its SIGTERM");
    assert!(ended["drain"]["left"].as_array().is_none_or(|left| left.len() <= 1), "{ended}");
    Ok(())
}

// D-01 (a)
pub(crate) async fn a_redeploy_leaves_at_its_deadline_what_a_budget_holds_back(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "leaves").await?;
    let db = Workload::deployment("db", 1).grace(Duration::from_secs(10));
    let held = scene.running(&db, 1).await?;
    DisruptionBudget::min_available(&db, 1).create(&scene.namespace).await?;
    scene.running(&Workload::deployment("free", 3), 3).await?;
    let _refuge = scene.another_node().await?;
    scene.start_agent()?;
    scene.imds.inject(EventSpec::redeploy(&scene.vm).notice(Duration::from_secs(20)))?;
    let ended = scene.until_drain_ended(Duration::from_secs(40)).await?;
    let name = format!("{}/{}", scene.namespace.name(), pod_of_name(&held[0]));
    assert_eq!(ended["drain"]["left"][0], name.as_str(), "{ended}");
    assert_eq!(ended["events"][0]["drained"], "incomplete");
    assert_eq!(scene.deletions().len(), 0);
    let asked = scene.evictions().iter().filter(|request| pod_of(request) == pod_of_name(&held[0])).count();
    assert!((2..=20).contains(&asked), "the held pod was asked {asked} times");
    let note = scene.until_told("NodeDrainError").await?;
    assert!(note.contains(&name) && note.contains("PodDisruptionBudget db"), "{note}");
    Ok(())
}

// D-01 (b)
pub(crate) async fn a_terminate_deletes_what_a_budget_holds_back_before_its_deadline(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "deletes").await?;
    let db = Workload::deployment("db", 1).grace(Duration::from_secs(10));
    let held = scene.running(&db, 1).await?;
    DisruptionBudget::min_available(&db, 1).create(&scene.namespace).await?;
    scene.start_agent()?;
    scene.polls(1).await?;
    let published = Stopwatch::start();
    scene.imds.inject(EventSpec::terminate(&scene.vm).notice(Duration::from_secs(20)))?;
    scene
        .proxy
        .wait_for("the deletion", SOON + SOON, |requests| {
            requests.iter().any(|request| request.method == http::Method::DELETE && is_success(request))
        })
        .await?;
    let after = published.elapsed();
    assert!((Duration::from_secs(14)..Duration::from_secs(20)).contains(&after), "deleted after {after:?}");
    let deletions = scene.deletions();
    assert_eq!(deletions.len(), 1);
    assert_eq!(uid_of(&deletions[0]), uid(&held[0]));
    assert!((1..=4).contains(&grace_of(&deletions[0])));
    let gone = scene.node.wait_for("the end of the pod", SOON, |pods| {
        pods.iter().any(|pod| pod.uid == uid(&held[0]) && pod.ended.is_some())
    });
    gone.await?;
    Ok(())
}

pub(crate) async fn a_nearer_event_shortens_a_running_drain(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "nearer").await?;
    let slow = Workload::deployment("slow", 3).grace(Duration::from_secs(300)).stopping(Stopping::WhenKilled);
    let pods = scene.running(&slow, 3).await?;
    scene.start_agent()?;
    scene.imds.inject(EventSpec::reboot(&scene.vm).notice(Duration::from_secs(900)))?;
    scene.until_accepted(3).await?;
    assert!(scene.evictions().iter().all(|request| grace_of(request) == 300));
    scene.imds.inject(EventSpec::preempt(&scene.vm).notice(Duration::from_secs(12)))?;
    let killed = scene.node.wait_for("all pods killed before the machine goes", Duration::from_secs(25), |known| {
        pods.iter().all(|pod| {
            known
                .iter()
                .any(|one| one.uid == uid(pod) && matches!(&one.ended, Some(end) if end.how == HowItEnded::Killed))
        })
    });
    killed.await?;
    assert!(scene.deletions().iter().all(|request| (1..=12).contains(&grace_of(request))));
    Ok(())
}

fn pod_of_name(pod: &k8s_openapi::api::core::v1::Pod) -> String {
    kube::ResourceExt::name_any(pod)
}
