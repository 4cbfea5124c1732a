//! The simulator: what it shows must be the same in every process, and what must hold must hold whatever chance brings.

#![cfg(feature = "world")]
#![allow(clippy::expect_used, reason = "a test that cannot go on has failed")]

mod stories;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use domain::policy::{Policy, PolicySet, file};
use remediator::world::scenario::{Act, Scenario};
use remediator::world::simulation::{Report, simulate};
use remediator::world::timeline::{Timeline, Tone};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn scenario_file(name: &str) -> PathBuf {
    root().join("policies/scenarios").join(name)
}

fn read(path: &Path) -> Scenario {
    let text = fs::read_to_string(path).expect("the file is there");
    Scenario::parse(&path.display().to_string(), &text).expect("the file is a scenario")
}

fn built_in() -> PolicySet {
    PolicySet::new(vec![Policy::built_in().expect("it is compiled in")]).expect("one policy has no tie")
}

fn policies(names: &[&str]) -> PolicySet {
    let read = |name: &&str| {
        let text = fs::read_to_string(root().join("policies").join(name)).expect("the file is there");
        file::parse(name, &text).expect("the file is a policy")
    };
    PolicySet::new(names.iter().map(read).collect()).expect("they have no tie")
}

/// A policy that uses everything that policies can say.
fn everything() -> PolicySet {
    let text = include_str!("everything.yaml");
    PolicySet::new(vec![file::parse("everything.yaml", text).expect("it is a policy")]).expect("one policy has no tie")
}

fn run(scenario: Scenario, policies: &PolicySet, seed: u64) -> Report {
    simulate(scenario, policies, seed, &Timeline::default()).expect("the world can be built")
}

/// Plays chaos with these seeds and tells which of them broke what; says how many events were started early.
fn chaos(seeds: std::ops::Range<u64>, policies: &PolicySet) -> u64 {
    let mut broken = Vec::new();
    let (mut drains, mut lives, mut approvals) = (0, 0, 0);
    for seed in seeds {
        let Report { verdict, .. } = run(read(&scenario_file("chaos.yaml")), policies, seed);
        drains += verdict.drains_begun;
        lives += verdict.agent_lives;
        approvals += verdict.approvals;
        broken.extend(verdict.violations.iter().map(|what| format!("seed {seed}: {what}")));
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    assert!(drains > 50 && lives > 300, "there was too little chaos: {drains} drains, {lives} lives");
    approvals
}

#[test]
fn what_must_hold_holds_in_chaos_for_seeds_below_25() {
    chaos(0..25, &built_in());
}

#[test]
fn what_must_hold_holds_in_chaos_for_seeds_from_25() {
    chaos(25..50, &built_in());
}

#[test]
fn what_must_hold_holds_in_chaos_for_seeds_from_50() {
    chaos(50..75, &policies(&["default.yaml", "spot.yaml"]));
}

#[test]
fn what_must_hold_holds_in_chaos_for_seeds_from_75() {
    chaos(75..100, &policies(&["aks.yaml", "spot.yaml"]));
}

#[test]
fn what_must_hold_holds_in_chaos_by_a_policy_that_uses_everything_for_seeds_below_50() {
    let approvals = chaos(0..50, &everything());
    assert!(approvals > 25, "{approvals} events were started early");
}

#[test]
fn what_must_hold_holds_in_chaos_by_a_policy_that_uses_everything_for_seeds_from_50() {
    let approvals = chaos(50..100, &everything());
    assert!(approvals > 25, "{approvals} events were started early");
}

#[test]
fn a_clock_that_was_ahead_when_an_event_came_without_notice_gives_its_drain_no_more_time() {
    let policy = "apiVersion: remediator.dev/v1alpha1\nkind: Policy\nmetadata: {name: p}\n\
                  events: [{name: all, action: drain}]\n";
    let policies = PolicySet::new(vec![file::parse("p.yaml", policy).expect("it is a policy")]).expect("it has no tie");
    let scenario = "apiVersion: remediator.dev/v1alpha1\nkind: Scenario\nmetadata: {name: s}\nlasts: 12m\n\
                    pools: [{name: np1, nodes: 1}]\n\
                    workloads: [{name: stuck, kind: Deployment, disruptionBudget: {maxUnavailable: 0}}]\n\
                    steps: [{at: 40s, event: {type: Freeze, vms: [np1_0], started: true, startedFor: 10m}}]\n";
    let mut scenario = Scenario::parse("s.yaml", scenario).expect("it is a scenario");
    let step = |at, act| (Duration::from_secs(at), act);
    scenario.steps.push(step(20, Act::StepClock("np1-0".into(), Duration::from_secs(1), 3600)));
    scenario.steps.push(step(60, Act::SetClockRight("np1-0".into())));
    let verdict = run(scenario, &policies, 1).verdict;
    assert_eq!(verdict.violations, Vec::<String>::new());
    assert_eq!((verdict.drains_begun, verdict.drains_cut_short), (1, 1));
}

#[test]
fn the_same_seed_gives_the_same_story_in_every_process() {
    let story = |scenario: &str, seed: u64| {
        let done = Command::new(env!("CARGO_BIN_EXE_remediator"))
            .args(["simulate", "--json", "--seed", &seed.to_string()])
            .arg(scenario_file(scenario))
            .output()
            .expect("the program runs");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        done.stdout
    };
    for seed in 1..=4 {
        let first = story("chaos.yaml", seed);
        assert!(first.len() > 10_000, "a story of {} bytes", first.len());
        assert_eq!(first, story("chaos.yaml", seed), "seed {seed}");
    }
    assert_ne!(story("chaos.yaml", 1), story("chaos.yaml", 2), "the seed decides nothing");
}

#[test]
fn every_shipped_scenario_goes_as_it_says() {
    let mut files: Vec<PathBuf> = fs::read_dir(scenario_file(""))
        .expect("the folder is there")
        .map(|entry| entry.expect("readable").path())
        .collect();
    files.sort();
    assert!(files.len() >= 4, "{files:?}");
    for path in files {
        let Report { verdict, .. } = run(read(&path), &built_in(), 1);
        assert!(verdict.is_good(), "{}: {:?} {:?}", path.display(), verdict.violations, verdict.disappointments);
    }
}

// A-01 b, N-03
#[test]
fn an_hour_of_idle_nodes_costs_the_api_server_one_request_a_node() {
    let report = run(read(&scenario_file("idle.yaml")), &built_in(), 1);
    let told: Vec<_> = report.timeline.iter().filter(|row| row.tone > Tone::Quiet).collect();
    assert!(told.is_empty(), "{told:?}");
    assert_eq!(report.verdict.api_requests, 3, "each agent reads its own node once");
    let polls = report.verdict.imds_requests;
    assert!((3 * 3600..=3 * 3700).contains(&polls), "{polls} polls");
}

#[test]
fn a_policy_that_does_nothing_is_found_out_by_the_scenario_that_expects_something() {
    let Report { verdict, .. } =
        run(read(&scenario_file("rolling-redeploy.yaml")), &policies(&["observe-only.yaml"]), 1);
    assert!(verdict.violations.is_empty(), "{:?}", verdict.violations);
    assert!(
        verdict.disappointments.iter().any(|what| what == "drained is 0, expected 3"),
        "{:?}",
        verdict.disappointments
    );
}
