//! What agents on several nodes do together: who tells Azure that an event may start, and when; how many nodes are
//! drained at once; and what a repair is told of its machine's events.

use std::time::Duration;

use control_plane::harness::{Context, TestResult};
use control_plane::{Answer, DisruptionBudget, Fault, RequestMatcher, Stopping, Workload};
use http::{Method, StatusCode};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, PostParams};
use mock_imds::{EventSource, EventSpec};
use serde_json::json;

use crate::scene::{Anything, NOISE, SOON, Scene, Stopwatch, is_cordoned, is_success, record};

const MINUTES: Duration = Duration::from_secs(900);

const WHEN_DRAINED: &str = "events: [{name: all, action: drain, approve: whenDrained}]\n";

const ONE_AT_ONCE: &str = "events: [{name: all, action: drain}]\ndrain: {nodesAtOnce: 1}\n";

/// Two nodes, each with an agent that has seen the list of events.
async fn two_agents(context: &Context, name: &str, policy: &str) -> Result<[Scene; 2], Anything> {
    let first = Scene::new(context, name).await?;
    let second = first.second().await?;
    let mut scenes = [first, second];
    for scene in &mut scenes {
        scene.with_policy(policy)?;
        scene.start_agent()?;
        scene.polls(1).await?;
    }
    Ok(scenes)
}

/// Pods of one workload on the node of a scene.
async fn pods_on(scene: &Scene, name: &str, count: u32, stops_after: Duration) -> Result<Vec<Pod>, Anything> {
    let workload = Workload::deployment(name, count).only_on(scene.node.name()).stopping(Stopping::After(stops_after));
    scene.running(&workload, usize::try_from(count)?).await
}

fn instant(value: &serde_json::Value) -> Result<Timestamp, Anything> {
    Ok(value.as_str().ok_or("there is no instant")?.parse()?)
}

// A-13
pub(crate) async fn an_event_is_started_early_once_when_all_its_nodes_are_drained(context: Context) -> TestResult {
    let [first, second] = two_agents(&context, "agree", WHEN_DRAINED).await?;
    pods_on(&first, "quick", 2, Duration::ZERO).await?;
    pods_on(&second, "slow", 1, Duration::from_secs(8)).await?;
    // Other tenants of the host take their time, so that it can be seen that nobody tells Azure once more.
    let spec = EventSpec::reboot(&first.vm).also(&second.vm).notice(MINUTES);
    let id = first.imds.inject(spec.other_tenants(Duration::from_secs(60)).until_finished())?;
    first.until_drain_ended(SOON).await?;
    let why = format!("is not started early yet: node {}: it is not drained yet", second.node.name());
    first.until_logged(&why, SOON).await?;
    let ended = second.until_drain_ended(Duration::from_secs(40)).await?;
    let approval = first.until_approved(Duration::from_secs(10) + NOISE).await?;
    assert!(approval.time >= instant(&ended["drain"]["finishedAt"])?, "{approval:?} before {ended}");

    context.doing("waiting until both nodes know");
    for scene in [&first, &second] {
        let known = |node: &_| record(node).is_some_and(|record| record["events"][0]["approvedAt"].is_string());
        scene.until_node("a record that tells of the approval", SOON, known).await?;
        scene.until_told("RebootApproved").await?;
    }
    let requests = first.start_requests();
    assert_eq!(requests.len(), 1, "{requests:?}");
    assert_eq!(requests[0].headers.get("metadata").map(String::as_str), Some("true"));
    let body: serde_json::Value = serde_json::from_str(&requests[0].body)?;
    assert_eq!(body, json!({"StartRequests": [{"EventId": id.as_str()}]}));
    let leases = first.leases().await?;
    assert_eq!(leases.len(), 1, "{leases:?}");
    let metadata = &leases[0].metadata;
    assert!(metadata.name.as_ref().is_some_and(|name| name.starts_with("approve-")), "{metadata:?}");
    assert!(metadata.annotations.as_ref().is_some_and(|all| all.contains_key("remediator.dev/done")), "{metadata:?}");

    context.doing("ending the event");
    first.imds.start(&id)?;
    first.imds.finish(&id)?;
    for scene in [&first, &second] {
        scene.until_given_back(SOON).await?;
    }
    first.until_no_lease().await?;
    assert_eq!(first.start_requests().len(), 1);
    Ok(())
}

// A-13, variant A
pub(crate) async fn an_event_is_not_started_early_while_one_of_its_nodes_has_a_pod(context: Context) -> TestResult {
    let [first, second] = two_agents(&context, "disagree", WHEN_DRAINED).await?;
    pods_on(&first, "quick", 2, Duration::ZERO).await?;
    let db = Workload::deployment("db", 1).only_on(second.node.name());
    second.running(&db, 1).await?;
    DisruptionBudget::min_available(&db, 1).create(&second.namespace).await?;
    first.imds.inject(EventSpec::reboot(&first.vm).also(&second.vm).notice(Duration::from_secs(24)))?;
    first.until_drain_ended(SOON).await?;
    let not_drained = format!("is not started early yet: node {}: it is not drained yet", second.node.name());
    first.until_logged(&not_drained, SOON).await?;
    let ended = second.until_drain_ended(Duration::from_secs(40)).await?;
    assert_eq!(ended["events"][0]["drained"], "incomplete", "{ended}");
    let started = |record: &serde_json::Value| record["events"][0]["status"] == "Started";
    for scene in [&first, &second] {
        let is_started = |node: &_| record(node).is_some_and(|record| started(&record));
        scene.until_node("a record that tells that the event has started", SOON, is_started).await?;
    }
    assert_eq!(first.start_requests(), [], "it starts in its own time");
    Ok(())
}

// A-13
pub(crate) async fn another_node_tells_azure_if_the_first_dies_over_it(context: Context) -> TestResult {
    let [mut first, second] = two_agents(&context, "poster", WHEN_DRAINED).await?;
    pods_on(&first, "slow", 1, Duration::from_secs(5)).await?;
    let claims = RequestMatcher::any().method(Method::POST).path_ends_with("/leases");
    let broken = Answer::failure(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", "try again");
    second.proxy.inject(claims.clone(), Fault::Answer(broken));
    // The first has its claim, but does not hear of it.
    first.proxy.inject(claims.clone(), Fault::StallBody { after: 0 });
    let spec = EventSpec::reboot(&first.vm).also(&second.vm).notice(MINUTES).until_finished();
    first.imds.inject(spec)?;
    context.doing("waiting for the claim of the first");
    let claimed = first.proxy.wait_for("a claim", Duration::from_secs(40), |requests| {
        requests.iter().any(|request| claims.matches(&request.line()) && is_success(request))
    });
    claimed.await.map_err(|error| format!("{error}\n{}", first.log()))?;
    first.kill_agent().await?;
    let since = Stopwatch::start();
    second.proxy.clear_faults();
    let approval = second.until_approved(Duration::from_secs(25) + NOISE).await?;
    let took = since.elapsed();
    assert!(took >= Duration::from_secs(15), "the claim was taken over after {took:?}");
    assert_eq!(approval.vm.as_ref(), Some(&second.vm));
    second.polls(3).await?;
    assert_eq!(second.start_requests().len(), 1);
    Ok(())
}

const USERS_WHEN_DRAINED: &str = "events: [{name: all, action: drain, approve: {User: whenDrained}}]\n";

// A-14
pub(crate) async fn a_restart_that_a_user_asked_for_starts_when_the_node_is_drained(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "user").await?;
    scene.running(&Workload::deployment("web", 3).stopping(Stopping::After(Duration::from_secs(2))), 3).await?;
    scene.with_policy(USERS_WHEN_DRAINED)?;
    scene.start_agent()?;
    let spec = EventSpec::reboot(&scene.vm).source(EventSource::User).notice(MINUTES).until_finished();
    let id = scene.imds.inject(spec)?;
    scene.until_accepted(3).await?;
    assert_eq!(scene.start_requests(), []);
    let ended = scene.until_drain_ended(SOON).await?;
    let approval = scene.until_approved(Duration::from_secs(2) + NOISE).await?;
    assert_eq!(approval.event, id);
    assert!(approval.time >= instant(&ended["drain"]["finishedAt"])?, "{approval:?} before {ended}");

    context.doing("restarting the machine, and ending the event while the agent is up again");
    scene.kill_agent().await?;
    scene.start_agent()?;
    scene.polls(3).await?;
    scene.imds.finish(&id)?;
    scene.until_given_back(SOON).await?;
    scene.until_no_lease().await?;
    assert_eq!(scene.start_requests().len(), 1);
    Ok(())
}

// A-14, variant B
pub(crate) async fn an_event_that_azure_asked_for_is_not_started_by_a_rule_for_users(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "platform").await?;
    scene.running(&Workload::deployment("web", 1), 1).await?;
    scene.with_policy(USERS_WHEN_DRAINED)?;
    scene.start_agent()?;
    scene.imds.inject(EventSpec::reboot(&scene.vm).source(EventSource::Platform).notice(MINUTES))?;
    scene.until_drain_ended(SOON).await?;
    scene.polls(7).await?;
    assert_eq!(scene.start_requests(), []);
    assert_eq!(scene.leases().await?.len(), 0);
    Ok(())
}

// A-14, variant A
pub(crate) async fn an_event_that_has_started_needs_no_approval(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "started").await?;
    scene.running(&Workload::deployment("web", 2).stopping(Stopping::After(Duration::from_secs(5))), 2).await?;
    scene.with_policy(USERS_WHEN_DRAINED)?;
    scene.start_agent()?;
    let spec = EventSpec::reboot(&scene.vm).source(EventSource::User).notice(MINUTES).until_finished();
    let id = scene.imds.inject(spec)?;
    scene.until_accepted(2).await?;
    scene.imds.start(&id)?;
    let ended = scene.until_drain_ended(SOON).await?;
    assert_eq!(ended["events"][0]["drained"], "drained", "{ended}");
    scene.polls(7).await?;
    assert_eq!(scene.start_requests(), []);
    assert!(!scene.log().contains("\"ERROR\""), "{}", scene.log());
    Ok(())
}

pub(crate) async fn an_event_that_may_start_at_once_waits_for_nothing(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "at-once").await?;
    scene.running(&Workload::deployment("web", 1), 1).await?;
    scene.with_policy("events: [{name: all, action: none, approve: immediately}]\n")?;
    scene.start_agent()?;
    scene.polls(1).await?;
    let published = Stopwatch::start();
    scene.imds.inject(EventSpec::freeze(&scene.vm).also(scene.second_vm()).notice(MINUTES).until_finished())?;
    scene.until_approved(SOON).await?;
    let took = published.elapsed();
    assert!(took <= Duration::from_secs(2) + NOISE, "Azure was told after {took:?}");
    scene.polls(2).await?;
    assert_eq!(scene.start_requests().len(), 1);
    let node = scene.node_now().await?;
    assert!(!is_cordoned(&node) && record(&node).is_none(), "nothing is done to the node");
    Ok(())
}

// O-07
pub(crate) async fn an_event_waits_for_a_pod_that_came_after_the_drain(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "came-after").await?;
    scene.running(&Workload::deployment("web", 1), 1).await?;
    scene.with_policy(WHEN_DRAINED)?;
    // So that nobody is faster than the pod.
    let broken = Answer::failure(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", "try again");
    scene.proxy.inject(RequestMatcher::any().path_contains("/leases"), Fault::Answer(broken));
    scene.start_agent()?;
    scene.imds.inject(EventSpec::reboot(&scene.vm).notice(MINUTES).until_finished())?;
    let ended = scene.until_drain_ended(SOON).await?;
    assert_eq!(ended["events"][0]["drained"], "drained", "{ended}");
    let refused = scene.proxy.wait_for("a claim that is refused", SOON, |requests| {
        requests.iter().any(|request| request.path.contains("/leases") && request.status.is_some())
    });
    refused.await?;
    let late = Workload::bare_pod("late").on_node(scene.node.name());
    late.create(&scene.namespace).await?;
    scene.proxy.clear_faults();
    let why = format!("pod {}/late is on this node, although it was drained", scene.namespace.name());
    scene.until_logged(&why, SOON).await?;
    scene.polls(6).await?;
    assert_eq!(scene.start_requests(), []);
    scene.namespace.api::<Pod>().delete("late", &DeleteParams::default().grace_period(1)).await?;
    scene.until_approved(SOON).await?;
    Ok(())
}

// D-08 (b)
pub(crate) async fn nodes_of_a_pool_are_drained_one_after_the_other(context: Context) -> TestResult {
    let scenes = two_agents(&context, "slots", ONE_AT_ONCE).await?;
    for (scene, name) in scenes.iter().zip(["one", "two"]) {
        pods_on(scene, name, 1, Duration::from_secs(3)).await?;
        scene.imds.inject(EventSpec::reboot(&scene.vm).notice(MINUTES))?;
    }
    let [one, two] = &scenes;
    let held = "remediator_drain_slot_held 1";
    context.doing("waiting until one has the slot");
    let (holder, waiter) = tokio::select! {
        biased;
        holds = one.until_metric(held, SOON) => (holds.map(|()| one)?, two),
        holds = two.until_metric(held, SOON) => (holds.map(|()| two)?, one),
    };
    waiter.until_metric(r#"remediator_agent_stage{stage="waiting-for-slot"} 1"#, SOON).await?;
    holder.until_accepted(1).await?;
    assert!(is_cordoned(&waiter.node_now().await?), "it is cordoned while it waits");
    let first = holder.until_drain_ended(SOON).await?;
    let second = waiter.until_drain_ended(Duration::from_secs(40)).await?;
    for ended in [&first, &second] {
        assert_eq!(ended["events"][0]["drained"], "drained", "{ended}");
    }
    let (finished, started) = (instant(&first["drain"]["finishedAt"])?, instant(&second["drain"]["startedAt"])?);
    assert!(finished <= started, "{first} {second}");
    one.until_no_lease().await?;
    Ok(())
}

// D-08 (b)
pub(crate) async fn a_preempt_waits_for_no_slot(context: Context) -> TestResult {
    let scenes = two_agents(&context, "no-slots", ONE_AT_ONCE).await?;
    for (scene, name) in scenes.iter().zip(["one", "two"]) {
        pods_on(scene, name, 1, Duration::from_secs(10)).await?;
    }
    for scene in &scenes {
        scene.imds.inject(EventSpec::preempt(&scene.vm).notice(Duration::from_secs(30)))?;
    }
    for scene in &scenes {
        scene.until_accepted(1).await?;
    }
    for scene in &scenes {
        let is_running = |record: &serde_json::Value| record["drain"]["finishedAt"].is_null();
        let record = record(&scene.node_now().await?).ok_or("there is no record")?;
        assert!(is_running(&record), "both are drained at the same time: {record}");
        let leases = scene.proxy.requests_that(&RequestMatcher::any().path_contains("/leases"));
        assert!(leases.is_empty(), "{leases:?}");
    }
    Ok(())
}

pub(crate) async fn the_slot_of_a_node_that_died_goes_to_another(context: Context) -> TestResult {
    let [mut first, second] = two_agents(&context, "dead-slot", ONE_AT_ONCE).await?;
    let held = Workload::deployment("held", 1).only_on(first.node.name());
    first.running(&held, 1).await?;
    DisruptionBudget::min_available(&held, 1).create(&first.namespace).await?;
    pods_on(&second, "free", 1, Duration::ZERO).await?;
    first.imds.inject(EventSpec::reboot(&first.vm).notice(MINUTES))?;
    first.until_metric("remediator_drain_slot_held 1", SOON).await?;
    second.imds.inject(EventSpec::reboot(&second.vm).notice(MINUTES))?;
    second.until_metric(r#"remediator_agent_stage{stage="waiting-for-slot"} 1"#, SOON).await?;
    context.doing("waiting until a living holder has renewed its slot");
    let renewed = first.proxy.wait_for("a renewal", SOON, |requests| {
        requests.iter().any(|request| request.method == Method::PUT && is_success(request))
    });
    renewed.await?;
    assert!(second.evictions().is_empty());
    first.kill_agent().await?;
    let since = Stopwatch::start();
    context.doing("waiting for the dead node's slot");
    second.until_metric("remediator_drain_slot_held 1", Duration::from_secs(65)).await?;
    let took = since.elapsed();
    assert!(took >= Duration::from_secs(30), "a slot that is renewed every 10 s was taken over after {took:?}");
    let ended = second.until_drain_ended(SOON).await?;
    assert_eq!(ended["events"][0]["drained"], "drained", "{ended}");
    Ok(())
}

/// The machines under repair, as agents need to know them.
struct Repairs(Api<DynamicObject>);

impl Repairs {
    fn of(scene: &Scene) -> Self {
        let resource = ApiResource {
            group: "remediator.dev".into(),
            version: "v1alpha1".into(),
            api_version: "remediator.dev/v1alpha1".into(),
            kind: "NodeRepair".into(),
            plural: "noderepairs".into(),
        };
        Self(Api::all_with(scene.namespace.client().clone(), &resource))
    }

    /// Makes the kind known to the API server, where another test has not done so.
    async fn define(scene: &Scene) -> Result<(), Anything> {
        let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let spec = json!({
            "type": "object",
            "properties": {"nodeName": {"type": "string"}, "providerID": {"type": "string"}},
        });
        let definition: CustomResourceDefinition = serde_json::from_value(json!({
            "metadata": {"name": "noderepairs.remediator.dev"},
            "spec": {
                "group": "remediator.dev",
                "scope": "Cluster",
                "names": {"plural": "noderepairs", "singular": "noderepair", "kind": "NodeRepair"},
                "versions": [{
                    "name": "v1alpha1",
                    "served": true,
                    "storage": true,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": open}}},
                }],
            },
        }))?;
        let definitions = Api::<CustomResourceDefinition>::all(scene.namespace.client().clone());
        match definitions.create(&PostParams::default(), &definition).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
            created => Ok(created.map(drop)?),
        }
    }

    /// A repair of a machine, as soon as the API server takes it.
    async fn begin(&self, vm: &str) -> Result<String, Anything> {
        let (scale_set, instance) = vm.rsplit_once('_').ok_or("no instance of a scale set")?;
        let name = format!("{scale_set}-{instance}");
        let provider_id = format!(
            "azure:///subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/mc_demo_demo_westeurope/providers/\
             Microsoft.Compute/virtualMachineScaleSets/{scale_set}/virtualMachines/{instance}"
        );
        let repair: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "remediator.dev/v1alpha1",
            "kind": "NodeRepair",
            "metadata": {"name": name},
            "spec": {"nodeName": name, "providerID": provider_id},
        }))?;
        let creating = async {
            // The kind is served some time after it was defined.
            while let Err(error) = self.0.create(&PostParams::default(), &repair).await {
                if !matches!(&error, kube::Error::Api(status) if status.code == 404) {
                    return Err(error);
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            Ok(())
        };
        tokio::time::timeout(SOON, creating).await??;
        Ok(name)
    }

    /// Waits until the repair has been told of an event in this state.
    async fn until_observed(&self, scene: &Scene, name: &str, status: &str) -> Result<serde_json::Value, Anything> {
        let looking = async {
            loop {
                let repair = self.0.get(name).await?;
                let observed = &repair.data["status"]["observedEvent"];
                if observed["status"] == status {
                    return Ok::<_, kube::Error>(observed.clone());
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        let looked = tokio::time::timeout(SOON, looking).await;
        Ok(looked.map_err(|_| format!("no event that is {status} was observed\n{}", scene.log()))??)
    }
}

pub(crate) async fn a_repair_is_told_of_its_machines_event(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "neighbour").await?;
    scene.start_agent()?;
    let dead = scene.second_vm();
    let lists = RequestMatcher::any().method(Method::GET).path_ends_with("/noderepairs");
    let looked = |times: usize| {
        let lists = lists.clone();
        move |requests: &[control_plane::RecordedRequest]| {
            requests.iter().filter(|request| lists.matches(&request.line()) && request.status.is_some()).count()
                >= times
        }
    };
    context.doing("listing an event where the API server knows of no repairs");
    let id = scene.imds.inject(EventSpec::redeploy(&dead).notice(MINUTES).until_finished())?;
    scene.proxy.wait_for("a look at repairs", SOON, looked(1)).await?;
    scene.polls(2).await?;
    assert!(scene.agent_is_running());
    assert!(!scene.log().contains("\"ERROR\"") && !scene.log().contains("\"WARN\""), "{}", scene.log());

    Repairs::define(&scene).await?;
    let repairs = Repairs::of(&scene);
    let name = repairs.begin(&dead).await?;
    // A change of the list is a reason to look again before it is time.
    scene.imds.inject(EventSpec::freeze(&dead).notice(MINUTES * 2))?;
    let observed = repairs.until_observed(&scene, &name, "Scheduled").await?;
    assert_eq!((&observed["eventId"], &observed["type"]), (&json!(id.as_str()), &json!("Redeploy")), "{observed}");
    let told = || {
        let tells =
            RequestMatcher::any().method(Method::PATCH).path_ends_with("/status").path_contains("/noderepairs/");
        scene.proxy.requests_that(&tells).len()
    };
    let seen = scene.proxy.requests_that(&lists).len();
    scene.imds.inject(EventSpec::freeze(&dead).notice(MINUTES * 3))?;
    scene.proxy.wait_for("another look at repairs", SOON, looked(seen + 1)).await?;
    scene.polls(2).await?;
    assert_eq!(told(), 1, "what it knows it is not told again");

    scene.imds.start(&id)?;
    let observed = repairs.until_observed(&scene, &name, "Started").await?;
    assert_eq!(observed["eventId"], id.as_str(), "{observed}");
    assert_eq!(told(), 2);
    assert_eq!(scene.start_requests(), [], "nobody has asked for that");
    Ok(())
}

pub(crate) async fn the_restart_of_a_dead_machine_under_repair_is_started_for_it(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "own-repair").await?;
    scene.running(&Workload::deployment("web", 1), 1).await?;
    scene.with_policy("events: [{name: all, action: drain}]\nrepair: {approveOwnRepairs: true}\n")?;
    let dead = scene.second_vm();
    Repairs::define(&scene).await?;
    let repairs = Repairs::of(&scene);
    let name = repairs.begin(&dead).await?;
    scene.start_agent()?;
    scene.imds.inject(EventSpec::reboot(&dead).source(EventSource::Platform).notice(MINUTES))?;
    repairs.until_observed(&scene, &name, "Scheduled").await?;
    scene.polls(6).await?;
    assert_eq!(scene.start_requests(), [], "no repair has asked for a restart by Azure");
    let spec = EventSpec::reboot(&dead).source(EventSource::User).notice(MINUTES / 2).until_finished();
    let id = scene.imds.inject(spec)?;
    let approval = scene.until_approved(SOON).await?;
    assert_eq!((approval.event, approval.vm.as_ref()), (id, Some(&scene.vm)));
    assert!(scene.evictions().is_empty() && !is_cordoned(&scene.node_now().await?), "this node has no part in it");
    repairs.0.delete(&name, &DeleteParams::default()).await?;
    Ok(())
}
