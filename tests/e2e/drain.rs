//! Which pods are evicted, and how refusals and the agent's own death are dealt with.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use control_plane::harness::{Context, TestResult};
use control_plane::{
    AdmissionPolicy, Answer, Denial, DisruptionBudget, Fault, RecordedRequest, RequestMatcher, Stopping, Workload,
};
use futures::stream::{StreamExt, TryStreamExt};
use http::StatusCode;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, EvictParams, Patch, PatchParams, PostParams};
use mock_imds::EventSpec;
use serde_json::json;

use crate::scene::{
    ACCOUNT, Anything, SOON, Scene, is_cordoned, is_success, pod_of, record, uid, uid_of, until_denied,
};

const MINUTES: Duration = Duration::from_secs(900);

// D-01, without its deadline
pub(crate) async fn a_budget_at_zero_holds_its_pod_until_a_new_one_is_ready(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "budget").await?;
    let web = Workload::deployment("web", 1);
    let before = scene.running(&web, 1).await?;
    DisruptionBudget::min_available(&web, 1).create(&scene.namespace).await?;
    let free = scene.running(&Workload::deployment("free", 3), 3).await?;
    let _refuge = scene.another_node().await?;
    scene.start_agent()?;
    scene.imds.inject(EventSpec::redeploy(&scene.vm).notice(MINUTES))?;
    context.doing("waiting for the free pods to be evicted beside the held one");
    scene.until_accepted(free.len()).await?;
    let told = scene.namespace.wait_for_pods("only web is left", SOON, |pods| {
        pods.values().filter(|pod| on(pod, scene.node.name())).all(|pod| pod.name_any().starts_with("web"))
    });
    told.await?;
    // By its second refusal the first has been told.
    let refused = |requests: &[RecordedRequest]| {
        requests.iter().filter(|one| one.status.is_some_and(|status| status.as_u16() == 429)).count() >= 2
    };
    scene.proxy.wait_for("a second refusal", SOON, refused).await?;
    assert!(scene.log().contains("PodDisruptionBudget web allows no disruption now"), "{}", scene.log());
    assert!(scene.evictions().iter().filter(|request| pod_of(request) == before[0].name_any()).count() <= 20);

    context.doing("scaling up, so that the budget lets the pod go");
    let scale = Patch::Merge(json!({"spec": {"replicas": 2}}));
    scene.namespace.api::<Deployment>().patch("web", &PatchParams::default(), &scale).await?;
    let ended = scene.until_drain_ended(Duration::from_secs(40)).await?;
    assert_eq!(ended["events"][0]["drained"], "drained");
    assert_eq!(scene.pods_here().await?, Vec::<String>::new());
    assert_eq!(scene.deletions().len(), 0, "no budget was passed");
    Ok(())
}

fn on(pod: &Pod, node: &str) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node)
}

// D-04
pub(crate) async fn pods_that_belong_to_the_node_or_have_finished_are_left_alone(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "kinds").await?;
    let name = scene.node.name().to_owned();
    scene.running(&Workload::daemon_set("daemon"), 1).await?;
    scene.running(&Workload::bare_pod("bare"), 1).await?;
    scene.running(&Workload::deployment("scratch", 1).empty_dir(), 1).await?;
    Workload::mirror_pod("static", &name).create(&scene.namespace).await?;
    Workload::finished_pod("job").create(&scene.namespace).await?;
    let finished = |pods: &BTreeMap<String, Pod>| {
        let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone());
        pods.values().any(|pod| pod.name_any() == "job" && phase(pod).as_deref() == Some("Succeeded"))
    };
    scene.namespace.wait_for_pods("the job has finished", SOON, finished).await?;
    scene.start_agent()?;
    scene.imds.inject(EventSpec::redeploy(&scene.vm).notice(MINUTES))?;
    let ended = scene.until_drain_ended(SOON).await?;
    assert_eq!(ended["events"][0]["drained"], "drained", "{ended}");
    let mut asked: Vec<String> = scene.evictions().iter().map(pod_of).collect();
    asked.sort();
    assert_eq!((asked[0].as_str(), asked.len()), ("bare", 2), "{asked:?}");
    assert!(asked[1].starts_with("scratch-"), "{asked:?}");
    Ok(())
}

// D-02
pub(crate) async fn a_stateful_pod_that_was_created_anew_elsewhere_is_not_touched(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "stateful").await?;
    let db = Workload::stateful_set("db", 1);
    let first = scene.running(&db, 1).await?;
    DisruptionBudget::min_available(&db, 1).create(&scene.namespace).await?;
    let refuge = scene.another_node().await?;
    scene.start_agent()?;
    scene.imds.inject(EventSpec::reboot(&scene.vm).notice(MINUTES))?;
    let refused = scene.proxy.wait_for("a refused eviction", SOON, |requests| {
        requests.iter().any(|request| request.path.ends_with("/db-0/eviction") && !is_success(request))
    });
    refused.await?;
    scene.until_cordoned().await?;
    scene.until_told("NodeDrainStart").await?;
    context.doing("deleting db-0, so that it comes back on another node");
    scene.namespace.api::<Pod>().delete("db-0", &DeleteParams::default()).await?;
    let refuge_name = refuge.name().to_owned();
    let moved = scene
        .namespace
        .wait_for_pods("db-0 on the other node", SOON, |pods| pods.values().any(|pod| on(pod, &refuge_name)));
    let second = moved.await?;
    let ended = scene.until_drain_ended(SOON).await?;
    assert_eq!(ended["events"][0]["drained"], "drained", "{ended}");
    let asked: Vec<String> = scene.evictions().iter().chain(&scene.deletions()).map(uid_of).collect();
    assert!(asked.iter().all(|asked| *asked == uid(&first[0])), "only the pod that was here was ever asked");
    let now = scene.namespace.api::<Pod>().get("db-0").await?;
    assert_eq!((uid(&now), now.metadata.deletion_timestamp), (uid(&second[0]), None));
    Ok(())
}

pub(crate) async fn two_budgets_on_one_pod_are_reported_and_hold_up_nobody_else(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "two-budgets").await?;
    let held = Workload::deployment("held", 1);
    scene.running(&held, 1).await?;
    scene.running(&Workload::deployment("free", 2), 2).await?;
    DisruptionBudget::max_unavailable(&held, 1).named("one").create(&scene.namespace).await?;
    DisruptionBudget::max_unavailable(&held, 1).named("two").create(&scene.namespace).await?;
    let _refuge = scene.another_node().await?;
    scene.start_agent()?;
    scene.imds.inject(EventSpec::redeploy(&scene.vm).notice(Duration::from_secs(20)))?;
    let ended = scene.until_drain_ended(Duration::from_secs(40)).await?;
    assert_eq!(ended["drain"]["leftCount"], 1, "{ended}");
    assert!(scene.log().contains("several PodDisruptionBudgets select it"), "{}", scene.log());
    Ok(())
}

// D-03
pub(crate) async fn a_pod_in_a_vanishing_namespace_is_waited_for(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "vanishing").await?;
    bare_pods(&scene, &["p", "r"].map(Workload::bare_pod)).await?;
    // Of a namespace that really goes, the pods are told to stop before anyone can ask.
    let message = "pods \"p\" is forbidden: unable to create new content because the namespace is being terminated";
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403, "message": message,
        "details": {"name": "p", "kind": "pods", "causes": [{"reason": "NamespaceTerminating", "message": message}]},
    });
    let refusal = Answer::failure(StatusCode::FORBIDDEN, "Forbidden", message).body(body.to_string());
    scene.proxy.inject(RequestMatcher::any().path_ends_with("/p/eviction"), Fault::Answer(refusal));
    scene.start_agent()?;
    scene.imds.inject(EventSpec::redeploy(&scene.vm).notice(MINUTES))?;
    let refused = || scene.evictions().iter().filter(|request| pod_of(request) == "p").count();
    scene.until("a second try", SOON, || refused() >= 2).await?;
    context.doing("deleting the pod, as the end of its namespace does");
    scene.namespace.api::<Pod>().delete("p", &DeleteParams::default()).await?;
    let ended = scene.until_drain_ended(Duration::from_secs(40)).await?;
    assert_eq!(ended["events"][0]["drained"], "drained", "{ended}");
    assert_eq!(scene.deletions().len(), 0);
    assert!(refused() <= 6, "asked {} times", refused());
    assert!(!scene.log().contains("a right is missing"), "{}", scene.log());
    Ok(())
}

/// Twelve pods on a server that takes its time for each eviction, so that a drain takes a while. No budget here: one
/// that an eviction was charged to when its client died stays used up for two minutes.
async fn in_waves(scene: &Scene) -> Result<Vec<Pod>, Anything> {
    let web = Workload::deployment("web", 12).stopping(Stopping::After(Duration::from_secs(1)));
    let pods = scene.running(&web, 12).await?;
    scene.proxy.inject(RequestMatcher::any().path_ends_with("/eviction"), Fault::Delay(Duration::from_millis(600)));
    Ok(pods)
}

// D-07 (a)
pub(crate) async fn an_agent_killed_in_the_middle_goes_on_where_it_stopped(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "killed").await?;
    let pods = in_waves(&scene).await?;
    let _refuge = scene.another_node().await?;
    scene.start_agent()?;
    scene.imds.inject(EventSpec::reboot(&scene.vm).notice(MINUTES))?;
    scene.until_accepted(4).await?;
    scene.kill_agent().await?;
    let node = scene.node_now().await?;
    assert!(is_cordoned(&node) && record(&node).is_some(), "the node carries cordon and record");
    scene.start_agent()?;
    let ended = scene.until_drain_ended(Duration::from_secs(60)).await?;
    assert_eq!(ended["events"][0]["drained"], "drained", "{ended}");

    let accepted = accepted(&scene);
    let listed: Vec<String> = pods.iter().map(uid).collect();
    assert!(accepted.keys().all(|uid| listed.contains(uid)));
    let twice: Vec<&String> = accepted.iter().filter(|(_, times)| **times > 1).map(|(uid, _)| uid).collect();
    assert!(twice.is_empty(), "asked again although already leaving: {twice:?}");
    let mut cordons = scene.node_writes();
    cordons.retain(|write| {
        is_success(write) && write.body.as_ref().is_some_and(|body| body["spec"]["unschedulable"] == true)
    });
    assert_eq!(cordons.len(), 1);
    scene.until_told("NodeDrainEnd").await?;
    let told = scene.told().await?;
    assert_eq!(
        told,
        ["NodeCordonEnd", "NodeDrainEnd", "NodeDrainStart", "RebootScheduled"],
        "each once over both lives"
    );
    Ok(())
}

// D-07 (c)
pub(crate) async fn an_agent_killed_twenty_times_asks_no_pod_twice(context: Context) -> TestResult {
    const PODS: u32 = 240;
    let mut scene = Scene::new(&context, "killed-often").await?;
    let web = Workload::deployment("web", PODS).stopping(Stopping::After(Duration::from_secs(1)));
    let pods = scene.running(&web, PODS as usize).await?;
    let _refuge = scene.another_node().await?;
    scene.proxy.inject(RequestMatcher::any().path_ends_with("/eviction"), Fault::Delay(Duration::from_millis(100)));
    scene.start_agent()?;
    scene.imds.inject(EventSpec::reboot(&scene.vm).notice(MINUTES))?;
    let mut deaths = Vec::new();
    for life in 1..=20 {
        context.doing(format!("killing life {life}"));
        // As many again are on their way when it dies.
        let born_with = accepted(&scene).len();
        scene.until_accepted(born_with + 5).await?;
        scene.kill_agent().await?;
        deaths.push((scene.evictions().len(), accepted(&scene)));
        scene.start_agent()?;
    }
    let ended = scene.until_drain_ended(Duration::from_secs(60)).await?;
    assert_eq!(ended["events"][0]["drained"], "drained", "{ended}");
    let listed: BTreeSet<String> = pods.iter().map(uid).collect();
    assert!(accepted(&scene).keys().all(|uid| listed.contains(uid)), "others were asked");
    // What was still on its way when an agent died may be asked for once more.
    for (so_far, answered) in deaths {
        let again = scene.evictions().into_iter().skip(so_far).find(|request| answered.contains_key(&uid_of(request)));
        assert!(again.is_none(), "asked again although it was leaving: {again:?}");
    }
    scene.until_told("NodeDrainEnd").await?;
    let told = scene.told().await?;
    let count = |reason: &str| told.iter().filter(|one| *one == reason).count();
    assert_eq!((count("NodeDrainStart"), count("NodeDrainEnd")), (1, 1), "{told:?}");
    Ok(())
}

/// How often the eviction of each pod was accepted, by its UID.
fn accepted(scene: &Scene) -> BTreeMap<String, usize> {
    let mut accepted: BTreeMap<String, usize> = BTreeMap::new();
    for request in scene.evictions().iter().filter(|request| is_success(request)) {
        *accepted.entry(uid_of(request)).or_default() += 1;
    }
    accepted
}

// D-07 (b)
pub(crate) async fn an_agent_asked_to_stop_leaves_the_node_as_it_is(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "stopped").await?;
    in_waves(&scene).await?;
    let _refuge = scene.another_node().await?;
    scene.start_agent()?;
    scene.imds.inject(EventSpec::reboot(&scene.vm).notice(MINUTES))?;
    scene.until_accepted(2).await?;
    let status = scene.terminate_agent().await?;
    assert_eq!(status.code(), Some(0));
    let node = scene.node_now().await?;
    assert!(is_cordoned(&node) && record(&node).is_some());
    context.doing("going on in another life");
    scene.start_agent()?;
    let ended = scene.until_drain_ended(Duration::from_secs(60)).await?;
    assert_eq!(ended["events"][0]["drained"], "drained", "{ended}");
    let twice = accepted(&scene).into_iter().filter(|(_, times)| *times > 1).count();
    assert_eq!(twice, 0, "an orderly end leaves nothing that has to be asked for again");
    Ok(())
}

/// Pods that nobody replaces, on the scene's node.
async fn bare_pods(scene: &Scene, pods: &[Workload]) -> Result<(), Anything> {
    for pod in pods {
        pod.clone().on_node(scene.node.name()).create(&scene.namespace).await?;
        scene.namespace.wait_for_ready(pod, 1, SOON).await?;
    }
    Ok(())
}

// O-07
pub(crate) async fn a_pod_that_is_bound_during_the_drain_is_evicted_too(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "late").await?;
    scene.running(&Workload::deployment("slow", 1).stopping(Stopping::After(Duration::from_secs(8))), 1).await?;
    scene.start_agent()?;
    scene.imds.inject(EventSpec::reboot(&scene.vm).notice(MINUTES))?;
    scene.until_accepted(1).await?;
    // As one that the scheduler had chosen the node for just before the cordon.
    Workload::bare_pod("late").on_node(scene.node.name()).create(&scene.namespace).await?;
    scene.until_accepted(2).await?;
    let ended = scene.until_drain_ended(Duration::from_secs(40)).await?;
    assert_eq!(ended["events"][0]["drained"], "drained", "{ended}");
    assert_eq!(scene.pods_here().await?, Vec::<String>::new());
    Ok(())
}

// D-03
pub(crate) async fn evictions_that_admission_refuses_are_named_and_hold_up_nobody_else(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "admission").await?;
    bare_pods(&scene, &["forbidden", "invalid", "free"].map(Workload::bare_pod)).await?;
    if context.control_plane().is_some() {
        let policy = AdmissionPolicy::new(ACCOUNT, "", "pods/eviction")
            .unless("request.name != 'forbidden'", Denial::Forbidden, "ask its owner")
            .unless("request.name != 'invalid'", Denial::Invalid, "ask its owner");
        policy.create(&scene.namespace).await?;
        let pods = Api::<Pod>::namespaced(scene.client_of_agent()?, scene.namespace.name());
        let dry_run = EvictParams {
            post_options: PostParams { dry_run: true, ..PostParams::default() },
            ..EvictParams::default()
        };
        until_denied(|| async { pods.evict("invalid", &dry_run).await.map(drop) }).await?;
    } else {
        for (pod, status, reason) in [
            ("forbidden", StatusCode::FORBIDDEN, "Forbidden"),
            ("invalid", StatusCode::UNPROCESSABLE_ENTITY, "Invalid"),
        ] {
            let denied = "ValidatingAdmissionPolicy 'p' with binding 'p' denied request: ask its owner";
            let text = format!("pods \"{pod}\" is forbidden: {denied}");
            let evictions = RequestMatcher::any().path_ends_with(&format!("/{pod}/eviction"));
            scene.proxy.inject(evictions, Fault::Answer(Answer::failure(status, reason, &text)));
        }
    }
    scene.start_agent()?;
    scene.imds.inject(EventSpec::redeploy(&scene.vm).notice(Duration::from_secs(20)))?;
    scene.until_accepted(1).await?;
    let ended = scene.until_drain_ended(Duration::from_secs(40)).await?;
    let namespace = scene.namespace.name();
    let (forbidden, invalid) = (format!("{namespace}/forbidden"), format!("{namespace}/invalid"));
    assert_eq!(ended["events"][0]["drained"], "incomplete", "{ended}");
    assert_eq!(ended["drain"]["left"], json!([forbidden, invalid]), "{ended}");
    for (pod, status) in [("forbidden", StatusCode::FORBIDDEN), ("invalid", StatusCode::UNPROCESSABLE_ENTITY)] {
        let mut asked = scene.evictions();
        asked.retain(|request| pod_of(request) == pod);
        assert!((2..=20).contains(&asked.len()), "{pod} was asked {} times", asked.len());
        assert!(asked.iter().all(|request| request.status == Some(status)), "{asked:?}");
    }
    let note = scene.until_told("NodeDrainError").await?;
    for text in [forbidden.as_str(), invalid.as_str(), "admission refuses", "ask its owner"] {
        assert!(note.contains(text), "{note}");
    }
    Ok(())
}

// D-03
pub(crate) async fn a_right_that_is_missing_is_told_once_and_asked_for_slowly(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "no-right").await?;
    bare_pods(&scene, &["q", "r"].map(Workload::bare_pod)).await?;
    let text = format!(
        "pods \"q\" is forbidden: User \"u\" cannot create resource \"pods/eviction\" in API group \"\" in the namespace \"{}\"",
        scene.namespace.name()
    );
    let forbidden = Answer::failure(StatusCode::FORBIDDEN, "Forbidden", &text);
    scene.proxy.inject(RequestMatcher::any().path_ends_with("/q/eviction"), Fault::Answer(forbidden));
    scene.start_agent()?;
    scene.imds.inject(EventSpec::reboot(&scene.vm).notice(Duration::from_secs(28)))?;
    scene.until_accepted(1).await?;
    let ended = scene.until_drain_ended(Duration::from_secs(40)).await?;
    assert_eq!(ended["drain"]["left"], json!([format!("{}/q", scene.namespace.name())]), "{ended}");
    let mut asked: Vec<RecordedRequest> = scene.evictions();
    asked.retain(|request| pod_of(request) == "q");
    assert!((3..=4).contains(&asked.len()), "asked {} times", asked.len());
    // The first refusal may be that of an API server which has just started.
    for pair in asked[1..].windows(2) {
        let pause = pair[1].began.saturating_sub(pair[0].began);
        assert!(pause >= Duration::from_secs(9), "asked again after {pause:?}");
    }
    let log = scene.log();
    let loud = log.lines().filter(|line| line.contains("Not evicted yet: a right is missing"));
    let loud: Vec<&str> = loud.collect();
    assert_eq!(loud.len(), 1, "{log}");
    assert!(loud[0].contains("cannot create resource") && loud[0].contains("pods/eviction"), "{}", loud[0]);
    Ok(())
}

pub(crate) async fn a_full_node_is_drained_with_little_more_than_one_request_a_pod(context: Context) -> TestResult {
    const PODS: usize = 250;
    let mut scene = Scene::new(&context, "full").await?;
    let name = scene.node.name().to_owned();
    let full = Workload::deployment("full", 0);
    let pods = (0..PODS).map(|number| {
        let pod = Workload::bare_pod(&format!("pod-{number}")).label("app", full.name()).on_node(&name);
        let namespace = scene.namespace.clone();
        async move { pod.create(&namespace).await }
    });
    context.doing("filling the node");
    futures::stream::iter(pods).buffer_unordered(16).try_collect::<()>().await?;
    scene.namespace.wait_for_ready(&full, PODS, Duration::from_secs(60)).await?;
    scene.start_agent()?;
    scene.imds.inject(EventSpec::reboot(&scene.vm).notice(MINUTES))?;
    context.doing("draining it");
    let ended = scene.until_drain_ended(Duration::from_secs(60)).await?;
    assert_eq!(ended["events"][0]["drained"], "drained", "{ended}");
    assert_eq!(scene.evictions().iter().filter(|request| is_success(request)).count(), PODS);
    let for_pods = scene.proxy.requests().iter().filter(|request| request.path.contains("/pods")).count();
    assert!(for_pods * 10 <= PODS * 12, "{for_pods} requests for {PODS} pods");
    Ok(())
}

// D-04, variant
pub(crate) async fn a_profile_says_which_pods_are_evicted(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "selected").await?;
    let pod = |name: &str, tier: &str| Workload::bare_pod(name).label("tier", tier);
    let pods = [
        pod("web", "front"),
        pod("database", "back"),
        pod("pinned", "front").label("keep", "yes"),
        pod("noted", "front").annotation("example.com/keep", "yes"),
        pod("asked", "front").annotation("remediator.dev/skip-drain", "true"),
    ];
    bare_pods(&scene, &pods).await?;
    let profile =
        "{pods: {matchLabels: {tier: front}}, skip: {labels: {keep: 'yes'}, annotations: {example.com/keep: 'yes'}}}";
    scene.with_policy(&format!(
        "events: [{{name: all, action: drain}}]\ndrain:\n  profiles:\n    default: {profile}\n"
    ))?;
    scene.start_agent()?;
    scene.imds.inject(EventSpec::reboot(&scene.vm).notice(MINUTES))?;
    let ended = scene.until_drain_ended(SOON).await?;
    assert_eq!(ended["events"][0]["drained"], "drained", "{ended}");
    assert_eq!(scene.evictions().iter().map(pod_of).collect::<Vec<_>>(), ["web"]);
    assert_eq!(scene.pods_here().await?, ["asked", "database", "noted", "pinned"]);
    let left = ended["drain"]["left"].to_string();
    for (pod, named) in [("asked", true), ("noted", true), ("pinned", true), ("database", false)] {
        assert_eq!(left.contains(&format!("/{pod}\"")), named, "{pod} in {left}");
    }
    Ok(())
}
