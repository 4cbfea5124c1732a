//! Everyday trouble with Azure and the API server, none of which may cost a node.

use std::time::Duration;

use control_plane::harness::{Context, TestResult};
use control_plane::{Answer, DisruptionBudget, Fault, RecordedRequest, RequestMatcher, Stopping, Workload};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, StatusCode};
use mock_imds::{Endpoint, EventSpec, FaultKind, FaultSpec};

use crate::scene::{Anything, NOISE, SOON, Scene, Stopwatch, is_cordoned, is_success, record};

const MINUTES: Duration = Duration::from_secs(900);

// A-04
pub(crate) async fn answers_of_azure_that_are_none_change_nothing(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "garbage").await?;
    scene.running(&Workload::deployment("web", 1), 1).await?;
    scene.start_agent()?;
    let id = scene.imds.inject(EventSpec::reboot(&scene.vm).notice(MINUTES))?;
    scene.until_drain_ended(SOON).await?;
    scene.imds.start(&id)?;
    let writes = scene.node_writes().len();
    let bad = [
        FaultSpec::new(FaultKind::EmptyBody),
        FaultSpec::new(FaultKind::EmptyBody),
        FaultSpec::new(FaultKind::EmptyBody),
        FaultSpec::new(FaultKind::TruncatedBody),
        FaultSpec::new(FaultKind::HtmlBody),
        FaultSpec::new(FaultKind::EventsNull),
        FaultSpec::new(FaultKind::Cut),
        FaultSpec::status(500).body(r#"{"error":"x"}"#),
        FaultSpec::status(410),
        FaultSpec::status(404),
        FaultSpec::status(200).body(r#"{"DocumentIncarnation":5,"Eve"#),
        FaultSpec::status(429).header("Retry-After", "2"),
    ];
    for fault in bad {
        context.doing(format!("answering with {fault:?}"));
        scene.imds.fault(fault.at([Endpoint::ScheduledEvents]).requests(1))?;
        // The bad answer and a good one, so that the pauses stay short.
        scene.polls(2).await?;
    }
    assert!(scene.agent_is_running());
    let node = scene.node_now().await?;
    assert!(is_cordoned(&node) && record(&node).is_some());
    let since: Vec<_> = scene.node_writes().into_iter().skip(writes).collect();
    assert!(since.len() <= 1, "only that the event has started is news: {since:?}");
    let told = scene.told().await?;
    assert!(!told.iter().any(|reason| reason.ends_with("Ended") || reason.ends_with("Cancelled")), "{told:?}");
    let (status, metrics) = scene.probe("/metrics").await?;
    assert_eq!(status, 200);
    assert!(metrics.contains(r#"remediator_imds_polls_total{result="status",code="429"}"#), "{metrics}");
    Ok(())
}

// A-02
pub(crate) async fn azure_away_in_the_middle_of_a_drain_does_not_stop_it(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "azure-away").await?;
    let slow = Workload::deployment("slow", 2).stopping(Stopping::After(Duration::from_secs(12)));
    scene.running(&slow, 2).await?;
    scene.start_agent()?;
    scene.imds.inject(EventSpec::reboot(&scene.vm).notice(MINUTES))?;
    scene.until_accepted(2).await?;
    scene.imds.fault(FaultSpec::new(FaultKind::Cut).name("away"))?;
    let ended = scene.until_drain_ended(Duration::from_secs(40)).await?;
    assert_eq!(ended["events"][0]["drained"], "drained");
    let not_ready = until_probe(&scene, "/readyz", 503).await?;
    assert!(not_ready.contains("metadata service"), "{not_ready}");
    assert_eq!(scene.probe("/livez").await?.0, 200);
    let node = scene.node_now().await?;
    assert!(is_cordoned(&node) && record(&node).is_some());
    scene.imds.clear_called("away")?;
    until_probe(&scene, "/readyz", 200).await?;
    assert_eq!(scene.evictions().len(), 2, "no second drain");
    Ok(())
}

async fn until_probe(scene: &Scene, path: &str, wanted: u16) -> Result<String, Anything> {
    let waiting = async {
        loop {
            let (status, body) = scene.probe(path).await?;
            if status == wanted {
                return Ok::<_, Anything>(body);
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(40), waiting).await?
}

// D-11
pub(crate) async fn events_that_cannot_be_written_delay_nothing(context: Context) -> TestResult {
    let failure = |status, reason: &str| Fault::Answer(Answer::failure(status, reason, "no Events for you"));
    let twice = failure(StatusCode::INTERNAL_SERVER_ERROR, "InternalError");
    for (fault, times) in [(Fault::Hang, u32::MAX), (failure(StatusCode::FORBIDDEN, "Forbidden"), u32::MAX), (twice, 2)]
    {
        let mut scene = Scene::new(&context, "no-events").await?;
        scene.running(&Workload::deployment("web", 5), 5).await?;
        scene.proxy.inject(RequestMatcher::any().path_ends_with("/events").times(times), fault);
        scene.start_agent()?;
        scene.polls(1).await?;
        let published = Stopwatch::start();
        scene.imds.inject(EventSpec::reboot(&scene.vm).notice(MINUTES))?;
        scene.until_accepted(5).await?;
        let took = published.elapsed();
        assert!(took < Duration::from_secs(2) + NOISE, "the evictions took {took:?}");
        let ended = scene.until_drain_ended(SOON).await?;
        assert_eq!(ended["events"][0]["drained"], "drained");
        if times == 2 {
            scene.until_told("NodeDrainEnd").await?;
        } else {
            scene.until_counted(r#"remediator_recorded_events_total{result="failed"} "#, SOON).await?;
        }
    }
    Ok(())
}

pub(crate) async fn a_write_whose_answer_is_lost_is_not_done_twice(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "lost").await?;
    let pods = scene.running(&Workload::deployment("web", 3), 3).await?;
    scene.proxy.inject(scene.writes_of_node().times(1), Fault::LoseAnswer);
    scene.proxy.inject(RequestMatcher::any().path_ends_with("/eviction").times(3), Fault::LoseAnswer);
    scene.start_agent()?;
    scene.imds.inject(EventSpec::reboot(&scene.vm).notice(MINUTES))?;
    let ended = scene.until_drain_ended(SOON).await?;
    assert_eq!(ended["events"][0]["drained"], "drained");
    assert_eq!(ended["claims"]["cordon"], "ours", "our own cordon is not taken for someone else's");
    assert_eq!(ended["cordonRestored"], serde_json::Value::Null, "nor is it set again");
    assert!(scene.evictions().len() <= pods.len() * 2);
    // Nor is what it brought about kept from people.
    scene.until_told("NodeCordonEnd").await?;
    scene.until_told("NodeDrainStart").await?;
    Ok(())
}

// D-06
pub(crate) async fn a_node_that_changes_under_our_hands_is_written_all_the_same(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "conflicts").await?;
    scene.running(&Workload::deployment("web", 1), 1).await?;
    let conflict = Answer::failure(StatusCode::CONFLICT, "Conflict", "the object has been modified");
    scene.proxy.inject(scene.writes_of_node().times(4), Fault::Answer(conflict.clone()));
    scene.start_agent()?;
    let id = scene.imds.inject(EventSpec::reboot(&scene.vm).notice(MINUTES))?;
    let succeeded = |requests: &[RecordedRequest]| {
        requests.iter().any(|request| request.is(&Method::PATCH, scene.node.name()) && is_success(request))
    };
    scene.proxy.wait_for("a write that succeeds", SOON, succeeded).await?;
    let first = scene.node_writes();
    let (began, done) = (first[0].began, first.iter().find(|write| is_success(write)).map(|write| write.began));
    let took = done.ok_or("no write succeeded")?.saturating_sub(began);
    assert!(took < Duration::from_secs(5) + NOISE, "the conflicts took {took:?}");

    context.doing("giving the node back against conflicts and a server that is briefly broken");
    scene.until_drain_ended(SOON).await?;
    scene.proxy.inject(scene.writes_of_node().times(2), Fault::Answer(conflict));
    let broken = Answer::failure(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", "etcdserver: leader changed");
    scene.proxy.inject(scene.writes_of_node().times(2), Fault::Answer(broken));
    scene.imds.cancel(&id)?;
    scene.until_given_back(SOON).await?;
    Ok(())
}

pub(crate) async fn a_mute_watch_and_a_busy_server_do_not_stop_a_drain(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "mute").await?;
    let web = Workload::deployment("web", 4);
    scene.running(&web, 4).await?;
    DisruptionBudget::max_unavailable(&web, 4).create(&scene.namespace).await?;
    let watches_of_pods = RequestMatcher::any().path_ends_with("/pods").query_contains("watch=true");
    scene.proxy.inject(watches_of_pods, Fault::StallBody { after: 0 });
    scene
        .proxy
        .inject(RequestMatcher::any().path_ends_with("/eviction").times(3), Fault::Answer(Answer::too_many_requests()));
    scene.start_agent()?;
    scene.imds.inject(EventSpec::redeploy(&scene.vm).notice(Duration::from_secs(50)))?;
    let ended = scene.until_drain_ended(Duration::from_secs(40)).await?;
    assert_eq!(ended["events"][0]["drained"], "drained", "{ended}");
    Ok(())
}

pub(crate) async fn the_cordon_waits_for_no_watch(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "slow-watch").await?;
    scene.running(&Workload::deployment("web", 2), 2).await?;
    scene.proxy.inject(RequestMatcher::any().query_contains("watch=true"), Fault::Hang);
    scene.start_agent()?;
    scene.polls(1).await?;
    let published = Stopwatch::start();
    scene.imds.inject(EventSpec::preempt(&scene.vm).notice(Duration::from_secs(30)))?;
    scene.until_accepted(2).await?;
    let took = published.elapsed();
    assert!(took < Duration::from_secs(2) + NOISE, "the pods were asked after {took:?}");
    Ok(())
}

pub(crate) async fn a_write_that_a_webhook_takes_back_is_told_and_not_repeated_in_a_loop(
    context: Context,
) -> TestResult {
    let mut scene = Scene::new(&context, "mutated").await?;
    let node = serde_json::to_string(&scene.node_now().await?)?;
    let unchanged =
        Answer::text(StatusCode::OK, &node).header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    scene.proxy.inject(scene.writes_of_node(), Fault::Answer(unchanged));
    scene.start_agent()?;
    scene.imds.inject(EventSpec::reboot(&scene.vm).notice(MINUTES))?;
    scene.polls(6).await?;
    let writes = scene.node_writes().len();
    assert!((1..=8).contains(&writes), "{writes} writes");
    assert!(scene.log().contains("look for a mutating webhook"), "{}", scene.log());
    scene.proxy.clear_faults();
    scene.until_cordoned().await?;
    Ok(())
}

pub(crate) async fn an_api_server_away_for_twenty_seconds_is_waited_for(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "api-away").await?;
    // No budget here: one that an eviction was charged to when the server died stays used up for two minutes.
    let web = Workload::deployment("web", 6).stopping(Stopping::After(Duration::from_secs(5)));
    scene.running(&web, 6).await?;
    let _refuge = scene.another_node().await?;
    scene.start_agent()?;
    let id = scene.imds.inject(EventSpec::reboot(&scene.vm).notice(MINUTES))?;
    scene.until_accepted(6).await?;
    context.doing("keeping the API server away for 20 s");
    context.stop_api_server();
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(scene.agent_is_running());
    assert_eq!(scene.probe("/livez").await?.0, 200);
    context.start_api_server().await?;
    let ended = scene.until_drain_ended(Duration::from_secs(60)).await?;
    assert_eq!(ended["events"][0]["drained"], "drained", "{ended}");
    scene.imds.start(&id)?;
    scene.imds.finish(&id)?;
    scene.until_given_back(Duration::from_secs(60)).await?;
    Ok(())
}
