use super::life::*;
use super::*;
use crate::policy::{AtDeadline, file};

// D-05 and A-14, variant A
#[test]
fn an_event_without_notice_leaves_thirty_seconds_from_the_first_poll_that_lacks_it() {
    for (status, in_seconds) in [("Scheduled", Some(-5)), ("Scheduled", None), ("Started", None)] {
        let mut life = Life::new();
        let event = life.event("e1", "Preempt", status, in_seconds);
        let plan = life.poll(&[&event]);
        assert_eq!(deadline_in(&life, &plan), 30, "{status} {in_seconds:?}");
        life.pass(9);
        life.restart();
        let plan = life.poll(&[&event]);
        assert_eq!(deadline_in(&life, &plan), 20, "a restart gives no more time");
    }
    let mut life = Life::new();
    let event = life.event("e1", "Reboot", "Scheduled", Some(900));
    life.poll(&[&event]);
    let started = life.event("e1", "Reboot", "Started", None);
    let plan = life.poll(&[&started]);
    assert_eq!(deadline_in(&life, &plan), 30, "it started before its time");
}

#[test]
fn a_deadline_that_passes_is_not_extended() {
    let mut life = Life::new();
    let event = life.event("e1", "Reboot", "Scheduled", Some(60));
    life.poll(&[&event]);
    life.pass(60);
    let plan = life.poll(&[&event]);
    assert_eq!(deadline_in(&life, &plan), 0);
    assert_eq!(life.finish_drain(&["db-1"]).stage, Stage::Incomplete);
    let started = life.event("e1", "Reboot", "Started", None);
    let plan = life.poll(&[&started]);
    assert_eq!((plan.stage, plan.drain), (Stage::Incomplete, None));
    assert_eq!(life.record().drain.unwrap().left, ["prod/db-1"]);
}

#[test]
fn pods_that_were_left_are_tried_again_when_the_event_moves_away() {
    let mut life = Life::new();
    let event = life.event("e1", "Reboot", "Scheduled", Some(60));
    life.poll(&[&event]);
    life.pass(60);
    life.finish_drain(&["db-1"]);
    let moved = life.event("e1", "Reboot", "Scheduled", Some(601));
    let plan = life.poll(&[&moved]);
    assert_eq!(deadline_in(&life, &plan), 600);
}

#[test]
fn a_drain_that_its_own_timeout_ended_is_not_tried_again() {
    let text = "apiVersion: remediator.dev/v1alpha1\nkind: Policy\nmetadata: {name: p}\nevents: [{name: r, action: drain}]\ndrain: {profiles: {default: {timeout: 20s}}}\n";
    let mut life = Life::with(file::parse("p", text).unwrap());
    let event = life.event("e1", "Reboot", "Scheduled", Some(600));
    let plan = life.poll(&[&event]);
    assert!((19..=20).contains(&deadline_in(&life, &plan)));
    life.pass(20);
    life.finish_drain(&["db-1"]);
    assert_eq!(life.poll(&[&event]).drain, None);
}

#[test]
fn a_tighter_event_shortens_a_running_drain_and_says_how_it_is_done() {
    let mut life = Life::new();
    let reboot = life.event("e1", "Reboot", "Scheduled", Some(900));
    assert_eq!(life.poll(&[&reboot]).drain.unwrap().order.profile.at_deadline, AtDeadline::Leave);
    let preempt = life.event("e2", "Preempt", "Scheduled", Some(31));
    let plan = life.poll(&[&reboot, &preempt]);
    assert_eq!(deadline_in(&life, &plan), 30);
    let drain = plan.drain.unwrap();
    assert_eq!(drain.order.profile.at_deadline, AtDeadline::Delete);
    assert_eq!(drain.events, [EventId::new("e1"), EventId::new("e2")]);
    assert_eq!(life.cordon_writes, [true]);
}

#[test]
fn a_harder_event_after_a_drain_drains_again() {
    let mut life = Life::new();
    let reboot = life.event("e1", "Reboot", "Scheduled", Some(60));
    life.poll(&[&reboot]);
    life.pass(60);
    life.finish_drain(&["db-1"]);
    let preempt = life.event("e2", "Preempt", "Scheduled", Some(30));
    let plan = life.poll(&[&reboot, &preempt]);
    assert_eq!(plan.drain.unwrap().events, [EventId::new("e2")]);
}

#[test]
fn a_later_event_is_drained_for_after_the_deadline_of_an_earlier_one() {
    let mut life = Life::new();
    let reboot = life.event("e1", "Reboot", "Scheduled", Some(31));
    let preempt = life.event("e2", "Preempt", "Scheduled", Some(61));
    let plan = life.poll(&[&reboot, &preempt]);
    assert_eq!((deadline_in(&life, &plan), plan.drain.unwrap().order.profile.at_deadline), (30, AtDeadline::Leave));
    life.pass(30);
    let plan = life.finish_drain(&["db-1"]);
    assert_eq!((deadline_in(&life, &plan), plan.drain.unwrap().order.profile.at_deadline), (30, AtDeadline::Delete));
}

#[test]
fn of_events_that_come_at_about_the_same_time_the_hardest_says_how_the_drain_is_done() {
    for (first, second) in [((None, None), "Started"), ((Some(30), Some(31)), "Scheduled")]
        .map(|(at, status)| ((at.0, status), (at.1, status)))
    {
        let mut life = Life::new();
        let reboot = life.event("e1", "Reboot", first.1, first.0);
        let preempt = life.event("e2", "Preempt", second.1, second.0);
        let plan = life.poll(&[&reboot, &preempt]);
        assert_eq!(plan.drain.unwrap().order.profile.at_deadline, AtDeadline::Delete);
    }
}

#[test]
fn an_event_whose_time_came_while_nobody_could_act_still_gets_thirty_seconds() {
    // The agent was away.
    let mut life = Life::new();
    let event = life.event("e1", "Terminate", "Scheduled", Some(7200));
    assert!(matches!(life.poll(&[&event]).stage, Stage::Waiting(_)));
    life.restart();
    life.pass(7300);
    let plan = life.poll(&[&event]);
    assert_eq!(deadline_in(&life, &plan), 30);
    // A person held it off.
    for (status, in_seconds) in [("Scheduled", Some(60)), ("Started", None)] {
        let mut life = Life::new();
        life.node.held = true;
        let event = life.event("e1", "Terminate", status, in_seconds);
        life.poll(&[&event]);
        life.pass(100);
        life.node.held = false;
        let plan = life.poll(&[&event]);
        assert_eq!(deadline_in(&life, &plan), 30, "{status}");
    }
}

#[test]
fn a_timeout_counts_from_when_its_event_joined_the_drain() {
    let text = "events: [{name: p, match: {type: Preempt}, action: drain, profile: urgent}, {name: r, action: drain}]
drain: {profiles: {urgent: {timeout: 20s, atDeadline: delete}}}\n";
    let mut life = Life::with(policy(text));
    let reboot = life.event("e1", "Reboot", "Scheduled", Some(3600));
    life.poll(&[&reboot]);
    life.pass(600);
    let preempt = life.event("e2", "Preempt", "Scheduled", Some(30));
    let plan = life.poll(&[&reboot, &preempt]);
    assert!((19..=20).contains(&deadline_in(&life, &plan)), "{}", deadline_in(&life, &plan));
}

#[test]
fn an_event_that_first_cordons_and_drains_when_it_starts_late_gets_its_thirty_seconds() {
    let text = "events: [{name: s, match: {status: Started}, action: drain}, {name: c, action: cordon}]\n";
    let mut life = Life::with(policy(text));
    let scheduled = life.event("e1", "Reboot", "Scheduled", Some(60));
    assert_eq!(life.poll(&[&scheduled]).stage, Stage::Cordoned);
    life.pass(120);
    let started = life.event("e1", "Reboot", "Started", None);
    let plan = life.poll(&[&started]);
    assert_eq!(deadline_in(&life, &plan), 30);
}

#[test]
fn an_event_that_joined_late_is_drained_for_when_the_earlier_event_has_had_its_time() {
    let text = "events: [{name: p, match: {type: Redeploy}, action: drain, profile: long}, {name: r, action: drain}]
drain: {profiles: {long: {timeout: 15m}}}\n";
    let mut life = Life::with(policy(text));
    let reboot = life.event("e1", "Reboot", "Scheduled", Some(1201));
    life.poll(&[&reboot]);
    life.pass(600);
    let redeploy = life.event("e2", "Redeploy", "Scheduled", Some(7200));
    life.poll(&[&reboot, &redeploy]);
    life.pass(600);
    let plan = life.finish_drain(&["db-1"]);
    assert_eq!(deadline_in(&life, &plan), 900, "a drain of its own has the whole timeout");
    assert_eq!(plan.drain.unwrap().events, [EventId::new("e2")]);
}

// D-07
#[test]
fn a_new_life_goes_on_with_the_drain_of_the_old_one() {
    let mut life = Life::new();
    let event = life.event("e1", "Reboot", "Scheduled", Some(900));
    let before = life.poll(&[&event]).drain.unwrap();
    life.pass(30);
    life.restart();
    let after = life.poll(&[&event]).drain.unwrap();
    assert_eq!(before.order, after.order, "the start and the deadline are the same");
    assert_eq!(life.cordon_writes, [true]);
    assert_eq!(life.reasons(), ["RebootScheduled", "NodeCordonEnd", "NodeDrainStart"]);
}

#[test]
fn a_drain_whose_events_are_gone_is_not_continued_for_another_event() {
    let text = "events: [{name: f, match: {type: Freeze}, action: cordon}, {name: r, action: drain}]\n";
    let mut life = Life::with(policy(text));
    let freeze = life.event("f", "Freeze", "Scheduled", Some(20_000));
    let reboot = life.event("e1", "Reboot", "Scheduled", Some(900));
    life.poll(&[&freeze, &reboot]);
    life.poll(&[&freeze]);
    let plan = life.poll(&[&freeze]);
    assert_eq!((plan.stage, plan.drain), (Stage::Cordoned, None));
    life.pass(7200);
    let redeploy = life.event("e3", "Redeploy", "Scheduled", Some(600));
    let plan = life.poll(&[&freeze, &redeploy]);
    let began = plan.drain.unwrap().order.started_at;
    assert!(life.now.since(began) < Duration::from_secs(2), "it began at {began}");
}

#[test]
fn an_event_that_has_started_is_acted_on_at_once_whatever_its_not_before() {
    let mut life = Life::new();
    let event = life.event("e1", "Redeploy", "Started", Some(6 * 24 * 3600));
    let plan = life.poll(&[&event]);
    assert_eq!(deadline_in(&life, &plan), 30);
}

#[test]
fn a_drain_of_some_pods_is_none_for_an_event_that_wants_all_of_them_gone() {
    let mut life = Life::with(policy(
        "events:\n- {name: pause, match: {type: Freeze}, action: drain, profile: some}\n- {name: rest, action: drain}\n\
         drain: {profiles: {some: {pods: {matchLabels: {a: b}}}}}\n",
    ));
    let move_away = life.event("e1", "Redeploy", "Scheduled", Some(601));
    life.poll(&[&move_away]);
    let pause = life.event("e2", "Freeze", "Scheduled", Some(301));
    life.poll(&[&move_away, &pause]);
    let plan = life.finish_drain(&[]);
    let drained: Vec<_> = life.record().events.iter().map(|event| event.drained).collect();
    assert_eq!(drained, [None, Some(DrainResult::Drained)]);
    let order = plan.drain.expect("the other pods are still to go");
    assert_eq!((order.events.len(), order.order.profile.pods), (1, None));
}

#[test]
fn a_drain_that_a_dead_life_left_is_not_gone_on_with_when_its_time_is_over() {
    for (pass, boot_id, goes_on) in [(5, "boot-1", true), (5, "boot-2", false), (40, "boot-1", false)] {
        let mut life = Life::new();
        let event = life.event("e1", "Reboot", "Scheduled", Some(61));
        assert!(life.poll(&[&event]).drain.is_some());
        life.pass(60 + pass);
        life.restart();
        life.node.boot_id = Some(boot_id.into());
        let event = life.event("e1", "Reboot", "Started", None);
        let plan = life.poll(&[&event]);
        assert_eq!(plan.drain.is_some(), goes_on, "{boot_id}, {pass} s after the deadline");
        let ended = life.record().events[0].drained;
        assert_eq!(ended, (!goes_on).then_some(DrainResult::Incomplete));
        assert_eq!(life.reasons().contains(&"NodeDrainError"), !goes_on);
    }
}

#[test]
fn a_drain_for_which_it_is_too_late_is_told_and_not_only_left_out() {
    let mut life = Life::with(policy("events: [{name: all, action: drain, start: {atLeast: 1m}}]\n"));
    let event = life.event("e1", "Reboot", "Scheduled", Some(31));
    let plan = life.poll(&[&event]);
    assert!(plan.drain.is_none() && life.node.marks.unschedulable);
    assert!(life.reasons().contains(&"NodeDrainError"), "{:?}", life.reasons());
    let mut life = Life::with(policy("events: [{name: all, action: drain}]\ndrain: {nodesAtOnce: 1}\n"));
    let event = life.event("e1", "Reboot", "Scheduled", Some(61));
    life.poll(&[&event]);
    life.pass(70);
    life.slot_held = true;
    let plan = life.poll(&[&event]);
    assert!(plan.drain.is_none(), "its turn came when the time was over");
    assert!(life.reasons().contains(&"NodeDrainError"), "{:?}", life.reasons());
}

#[test]
fn a_drain_that_ended_before_its_deadline_is_not_repeated_for_an_event_that_comes_later() {
    let mut life = Life::new();
    let (first, second) =
        (life.event("e1", "Reboot", "Scheduled", Some(601)), life.event("e2", "Redeploy", "Scheduled", Some(1201)));
    life.poll(&[&first, &second]);
    let plan = life.finish_drain(&["bare-1"]);
    assert_eq!(plan.drain, None, "what no drain may move is not moved by another one");
    assert!(life.record().events.iter().all(|event| event.drained == Some(DrainResult::Incomplete)));
}
