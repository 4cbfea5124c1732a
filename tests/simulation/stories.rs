//! Stories that take long, or many nodes. The checker looks on at each, so that only what is particular is asked here.

use std::time::Duration;

use domain::policy::{PolicySet, file};
use jiff::Timestamp;
use remediator::world::scenario::{Act, Partition, Scenario};
use remediator::world::simulation::Report;
use remediator::world::timeline::{Row, Who};
use remediator::world::verdict::Verdict;

use crate::{built_in, run};

fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(minutes * 60)
}

/// A scenario with this after its name, and with further acts at these seconds.
fn play(rest: &str, acts: Vec<(u64, Act)>, policies: &PolicySet) -> Report {
    let text = format!("apiVersion: remediator.dev/v1alpha1\nkind: Scenario\nmetadata: {{name: story}}\n{rest}");
    let mut scenario = Scenario::parse("story.yaml", &text).expect("it is a scenario");
    scenario.steps.extend(acts.into_iter().map(|(at, act)| (Duration::from_secs(at), act)));
    scenario.steps.sort_by_key(|(at, _)| *at);
    let report = run(scenario, policies, 1);
    assert_eq!(report.verdict.violations, Vec::<String>::new());
    report
}

/// What the agent has told with this reason.
fn told<'a>(report: &'a Report, reason: &str) -> Vec<&'a Row> {
    let reason = format!("{reason}: ");
    report.timeline.iter().filter(|row| row.who == Who::Agent && row.text.starts_with(&reason)).collect()
}

//
#[test]
fn azure_away_for_ten_minutes_in_the_middle_of_a_drain_is_no_end_of_the_event() {
    let report = play(
        "lasts: 40m\npools: [{name: np1, nodes: 2}]\n\
         workloads: [{name: slow, kind: Deployment, replicas: 4, stopsAfter: 50s, grace: 60s}]\n\
         steps: [{at: 1m, event: {name: e1, type: Reboot, vms: [np1_0], notice: 15m}}]\n",
        vec![(70, Act::Partition("np1-0".into(), Partition::Azure, minutes(10)))],
        &built_in(),
    );
    let Verdict { drains_begun, drained, given_back, agent_lives, evicted, .. } = report.verdict;
    assert_eq!((drains_begun, drained, given_back, agent_lives), (1, 1, 1, 3), "the reboot begins a third life");
    assert!(evicted >= 1, "{evicted}");
    for reason in ["RebootScheduled", "RebootStarted", "NodeDrainStart", "NodeDrainEnd"] {
        assert_eq!(told(&report, reason).len(), 1, "{reason}");
    }
    let back = told(&report, "NodeUncordonEnd")[0].at;
    assert!(back > told(&report, "RebootStarted")[0].at, "given back at {back}");
}

// O-05
#[test]
fn an_api_server_that_is_away_for_ten_minutes_after_the_reboot_is_waited_for() {
    let report = play(
        "lasts: 30m\nmachinesAwayFor: 60s\npools: [{name: np1, nodes: 2}]\n\
         workloads: [{name: web, kind: Deployment, replicas: 4}]\n\
         steps:\n\
         - {at: 1m, event: {name: e1, type: Reboot, vms: [np1_0], notice: 2m, startedFor: 6m}}\n\
         - {at: 4m, apiServerAway: 10m}\n",
        Vec::new(),
        &built_in(),
    );
    let [back] = told(&report, "NodeUncordonEnd")[..] else { panic!("{:?}", told(&report, "NodeUncordonEnd")) };
    let began = told(&report, "RebootScheduled")[0].at;
    let recovered = Duration::from_secs(13 * 60);
    let took = Duration::try_from(back.at.duration_since(began)).expect("it comes later");
    assert!(took >= recovered && took <= recovered + Duration::from_secs(60), "given back after {took:?}");
    assert_eq!(report.verdict.given_back, 1);
}

// O-08
#[test]
fn a_node_that_the_autoscaler_removes_in_the_middle_of_its_drain_troubles_nobody() {
    let report = play(
        "lasts: 20m\npools: [{name: np1, nodes: 2}]\n\
         workloads: [{name: slow, kind: Deployment, replicas: 6, stopsAfter: 50s, grace: 60s}]\n\
         steps: [{at: 2m, event: {name: e1, type: Redeploy, vms: [np1_0], notice: 10m}}]\n",
        vec![(100, Act::ScaleDown("np1-0".into())), (150, Act::EndScaleDown("np1-0".into()))],
        &built_in(),
    );
    let Verdict { drains_begun, agent_lives, .. } = report.verdict;
    assert_eq!(drains_begun, 1);
    assert_eq!(agent_lives, 2, "no agent has ended by itself");
    let errors: Vec<_> =
        report.timeline.iter().filter(|row| row.who == Who::Agent && row.text.contains("np1-0\" not found")).collect();
    assert!(errors.len() <= 3, "{errors:?}");
}

/// An event of this kind for each node of the pool.
fn events(nodes: u64, at: impl Fn(u64) -> String, kind: &str, notice: &str) -> String {
    let step = |node| {
        let at = at(node);
        format!("- {{at: {at}, event: {{type: {kind}, vms: [np1_{node}], notice: {notice}}}}}\n")
    };
    (0..nodes).map(step).collect::<Vec<_>>().concat()
}

// D-08 a
#[test]
fn a_hundred_nodes_that_are_moved_at_once_are_cordoned_first_and_no_pod_is_asked_twice() {
    let nodes = 100;
    let events = events(nodes, |node| format!("{}ms", 120_000 + node * 10), "Redeploy", "10m");
    let report = play(
        &format!(
            "lasts: 4m\napiServer: {{requestsPerSecond: 100}}\npools: [{{name: np1, nodes: {nodes}}}]\n\
             workloads: [{{name: web, kind: Deployment, replicas: {}, stopsAfter: 5s}}]\nsteps:\n{events}",
            nodes * 10
        ),
        Vec::new(),
        &built_in(),
    );
    let cordons = told(&report, "NodeCordonEnd");
    let published = cordons.iter().map(|row| row.at).min().expect("a node was cordoned");
    let soon = cordons.iter().filter(|row| row.at.duration_since(published) <= jiff::SignedDuration::from_secs(10));
    assert!(soon.count() >= 99, "of {} cordons", cordons.len());
    // A pod that moves to a node that is cordoned later is asked to leave again, as another pod.
    let evicted = report.verdict.evicted;
    assert!((nodes * 10..nodes * 10 + 30).contains(&evicted), "{evicted} pods were evicted");
    assert_eq!(report.verdict.drained, nodes);
    let mut begins: Vec<Timestamp> = told(&report, "NodeDrainStart").iter().map(|row| row.at).collect();
    begins.sort_unstable();
    let half = begins[begins.len() / 2].duration_since(published);
    assert!(half >= jiff::SignedDuration::from_secs(8), "half of the drains begin within {half:#}");
}

// D-08 b
#[test]
fn machines_that_are_taken_back_are_drained_all_at_once_whatever_the_limit_and_moved_ones_two_at_a_time() {
    let story = |at: &str, kind: &str, notice: &str| {
        format!(
            "lasts: 40m\npools: [{{name: np1, nodes: 20}}]\n\
             workloads: [{{name: web, kind: Deployment, replicas: 40, stopsAfter: 5s}}]\nsteps:\n{}",
            events(20, |_| at.to_owned(), kind, notice)
        )
    };
    let text = "apiVersion: remediator.dev/v1alpha1\nkind: Policy\nmetadata: {name: p}\n\
                events: [{name: all, action: drain}]\ndrain: {nodesAtOnce: 2}\n";
    let careful = PolicySet::new(vec![file::parse("p.yaml", text).expect("it is a policy")]).expect("it has no tie");
    let report = play(&story("2m", "Preempt", "30s"), Vec::new(), &careful);
    let starts = told(&report, "NodeDrainStart");
    assert_eq!(starts.len(), 20);
    let span = starts[19].at.duration_since(starts[0].at);
    assert!(span <= jiff::SignedDuration::from_secs(5), "the last begins {span} after the first");
    let report = play(&story("2m", "Reboot", "15m"), Vec::new(), &careful);
    let mut running = 0_i32;
    let mut most = 0;
    for row in report.timeline.iter().filter(|row| row.who == Who::Agent) {
        if row.text.starts_with("NodeDrainStart: ") {
            running += 1;
        } else if row.text.starts_with("NodeDrainEnd: ") || row.text.starts_with("NodeDrainError: ") {
            running -= 1;
        }
        most = most.max(running);
    }
    assert!((1..=2).contains(&most), "{most} at once");
}
