use super::life::*;
use super::*;
use crate::policy::file;

const CORDON_AT_ONCE: &str = "events: [{name: r, action: drain, start: {atMost: 30m, cordonAtOnce: true}}]\n";

// A-09, variant: cordoned at T, no eviction before NotBefore - 30 min, and a restart changes nothing.
#[test]
fn a_node_may_be_cordoned_at_first_sight_and_drained_when_the_time_comes() {
    let mut life = Life::with(policy(CORDON_AT_ONCE));
    let days = 6 * 24 * 3600;
    let event = life.event("e1", "Redeploy", "Scheduled", Some(days + 1));
    let plan = life.poll(&[&event]);
    assert_eq!((plan.stage, plan.drain), (Stage::Cordoned, None));
    assert!(life.node.marks.unschedulable);
    let waits = plan.look_again.expect("it looks again").since(life.now.monotonic);
    assert_eq!(waits.as_secs(), u64::try_from(days).unwrap() - 1800);
    let writes = life.writes;
    life.pass(3 * 24 * 3600);
    life.restart_much_later();
    let plan = life.poll(&[&event]);
    assert_eq!((plan.stage, life.writes, life.reasons()), (Stage::Cordoned, writes, vec![]));
    life.pass(u64::try_from(days).unwrap() - 3 * 24 * 3600 - 1800 - 3);
    assert_eq!(life.poll(&[&event]).drain, None, "a second too early");
    let plan = life.poll(&[&event]);
    assert_eq!(deadline_in(&life, &plan), 1800);
    assert_eq!(life.cordon_writes, [true]);
    assert_eq!(life.finish_drain(&[]).stage, Stage::Drained);
    life.all_over();
    assert!(!life.node.marks.unschedulable && life.node.record.is_none());
}

#[test]
fn an_event_that_is_cordoned_for_early_and_starts_early_is_drained_for_at_once() {
    let mut life = Life::with(policy(CORDON_AT_ONCE));
    let event = life.event("e1", "Redeploy", "Scheduled", Some(24 * 3600));
    life.poll(&[&event]);
    let started = life.event("e1", "Redeploy", "Started", None);
    let plan = life.poll(&[&started]);
    assert_eq!(deadline_in(&life, &plan), 30);
}

#[test]
fn with_too_little_time_only_the_cordon_is_begun() {
    let rules = "events: [{name: r, action: drain, start: {atLeast: 2m}}]\n";
    for (status, in_seconds, drains) in [
        ("Scheduled", Some(122), true),
        ("Scheduled", Some(120), false),
        ("Scheduled", Some(-5), false),
        ("Scheduled", None, false),
        ("Started", None, false),
    ] {
        let mut life = Life::with(policy(rules));
        let event = life.event("e1", "Redeploy", status, in_seconds);
        let plan = life.poll(&[&event]);
        assert_eq!(plan.drain.is_some(), drains, "{status} {in_seconds:?}");
        assert!(life.node.marks.unschedulable);
        life.all_over();
        assert_eq!((life.node.marks.unschedulable, life.node.record.clone()), (false, None));
    }
}

#[test]
fn a_drain_that_was_begun_in_time_goes_on_when_less_time_is_left() {
    let mut life = Life::with(policy("events: [{name: r, action: drain, start: {atLeast: 2m}}]\n"));
    let event = life.event("e1", "Redeploy", "Scheduled", Some(180));
    life.poll(&[&event]);
    life.pass(100);
    life.restart();
    assert!(life.poll(&[&event]).drain.is_some());
}

#[test]
fn an_event_that_was_too_close_is_drained_for_when_it_moves_away_and_not_when_its_time_has_passed() {
    let rules = "events: [{name: r, action: drain, start: {atLeast: 20s}}]\n";
    let mut life = Life::with(policy(rules));
    let event = life.event("e1", "Redeploy", "Scheduled", Some(10));
    assert_eq!(life.poll(&[&event]).stage, Stage::Cordoned);
    life.pass(10);
    assert_eq!(life.poll(&[&event]).stage, Stage::Cordoned, "it may be happening by now");
    let started = life.event("e1", "Redeploy", "Started", None);
    assert_eq!(life.poll(&[&started]).stage, Stage::Cordoned);
    let mut life = Life::with(policy(rules));
    life.poll(&[&event]);
    let moved = life.event("e1", "Redeploy", "Scheduled", Some(601));
    let plan = life.poll(&[&moved]);
    assert_eq!(deadline_in(&life, &plan), 600);
}

#[test]
fn a_node_that_names_its_policy_is_judged_by_that_and_by_none_if_it_is_not_loaded() {
    let other = "apiVersion: remediator.dev/v1alpha1\nkind: Policy\nmetadata: {name: special}\npriority: -1\nselector: {matchLabels: {never: \"1\"}}\nevents: [{name: f, match: {type: Freeze}, action: cordon}]\n";
    let policies = vec![policy(""), file::parse("special", other).unwrap()];
    for (named, freeze, reboot) in [
        (None, "draining", "draining"),
        (Some("special"), "cordoned", "ignoring"),
        (Some("p"), "draining", "draining"),
        (Some("mistyped"), "ignoring", "ignoring"),
    ] {
        for (event_type, stage) in [("Freeze", freeze), ("Reboot", reboot)] {
            let mut life = Life::new();
            life.policies = PolicySet::new(policies.clone()).unwrap();
            life.node.policy = named.map(str::to_owned);
            let event = life.event("e1", event_type, "Scheduled", Some(900));
            assert_eq!(life.poll(&[&event]).stage.word(), stage, "{named:?} {event_type}");
        }
    }
}

#[test]
fn a_policy_that_is_named_in_the_middle_of_an_event_changes_nothing_about_it() {
    let mut life = Life::new();
    let event = life.event("e1", "Reboot", "Scheduled", Some(900));
    life.poll(&[&event]);
    life.node.policy = Some("mistyped".into());
    assert!(life.poll(&[&event]).drain.is_some());
    life.all_over();
    assert!(!life.node.marks.unschedulable && life.node.record.is_none());
}
