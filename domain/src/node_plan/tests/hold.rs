use super::life::*;
use super::*;

// O-03
#[test]
fn while_a_person_holds_the_node_nothing_is_undone_or_begun() {
    let mut life = Life::new();
    let event = life.event("e1", "Reboot", "Scheduled", Some(900));
    life.poll(&[&event]);
    life.finish_drain(&[]);
    life.node.held = true;
    life.poll(&[]);
    assert_eq!(life.poll(&[]).stage, Stage::Held);
    assert!(life.node.marks.unschedulable);
    let next = life.event("e2", "Preempt", "Scheduled", Some(30));
    let plan = life.poll(&[&next]);
    assert_eq!((plan.stage, plan.drain), (Stage::Held, None));
    life.poll(&[]);
    life.poll(&[]);
    life.node.held = false;
    assert_eq!(life.settle().stage, Stage::Idle);
    assert!(!life.node.marks.unschedulable && life.node.record.is_none());
    assert_eq!(life.cordon_writes, [true, false]);
}

#[test]
fn a_hold_stops_a_running_drain_which_goes_on_when_it_is_lifted() {
    let mut life = Life::new();
    let event = life.event("e1", "Reboot", "Scheduled", Some(900));
    let before = life.poll(&[&event]).drain;
    life.node.held = true;
    let plan = life.poll(&[&event]);
    assert_eq!((plan.stage, plan.drain), (Stage::Held, None));
    life.node.held = false;
    assert_eq!(life.poll(&[&event]).drain, before);
}

#[test]
fn a_drain_whose_events_went_during_a_hold_is_not_continued_for_another_event() {
    let mut life = Life::new();
    let event = life.event("e1", "Reboot", "Scheduled", Some(900));
    life.poll(&[&event]);
    life.node.held = true;
    life.poll(&[]);
    life.poll(&[]);
    life.pass(600);
    let preempt = life.event("e2", "Preempt", "Scheduled", Some(30));
    life.poll(&[&preempt]);
    life.node.held = false;
    let plan = life.settle();
    let began = plan.drain.unwrap().order.started_at;
    assert!(life.now.since(began) < Duration::from_secs(2), "it began at {began}");
}

#[test]
fn a_hold_writes_no_mark_and_no_condition() {
    let everything = "events: [{name: r, action: drain, approve: immediately}]
drain: {taint: {effect: NoSchedule}, excludeFromLoadBalancers: true, disableScaleDown: true, nodesAtOnce: 1}\n";
    let mut life = Life::with(policy(everything));
    life.node.held = true;
    let event = life.event("e1", "Reboot", "Scheduled", Some(900));
    let plan = life.poll(&[&event]);
    assert_eq!((plan.stage, plan.slot, plan.approvals), (Stage::Held, None, vec![]));
    assert_eq!((life.node.marks.clone(), life.condition_writes), (Marks::default(), 0));
    life.node.held = false;
    life.slot_held = true;
    assert!(life.poll(&[&event]).drain.is_some());
    life.node.held = true;
    let marks = life.node.marks.clone();
    let writes = life.condition_writes;
    life.poll(&[&event]);
    life.all_over();
    assert_eq!((life.node.marks.clone(), life.condition_writes), (marks, writes));
    life.node.held = false;
    assert_eq!(life.settle().stage, Stage::Idle);
    assert_eq!((life.node.marks.clone(), life.node.conditions.clone()), (Marks::default(), vec![]));
}

// O-03 (b): our ownership is not forgotten because of the hold, not over a restart either.
#[test]
fn a_hold_outlives_the_agent_and_so_does_our_claim() {
    let mut life = Life::new();
    let event = life.event("e1", "Reboot", "Scheduled", Some(900));
    life.poll(&[&event]);
    life.finish_drain(&[]);
    life.node.held = true;
    life.restart();
    life.see(&[]);
    life.all_over();
    life.pass(600);
    assert_eq!(life.settle().stage, Stage::Held);
    assert!(life.node.marks.unschedulable);
    life.node.held = false;
    assert_eq!(life.settle().stage, Stage::Idle);
    assert!(!life.node.marks.unschedulable);
}

#[test]
fn a_new_life_gives_a_node_back_only_when_it_has_heard_from_azure() {
    let mut life = Life::new();
    let event = life.event("e1", "Reboot", "Scheduled", Some(900));
    life.poll(&[&event]);
    life.finish_drain(&[]);
    life.node.held = true;
    life.poll(&[]);
    life.poll(&[]);
    assert!(life.record().events.is_empty(), "the event is gone, and the hold keeps the cordon");
    life.restart();
    life.node.held = false;
    life.settle();
    assert!(life.node.marks.unschedulable, "another event may be listed by now");
    let next = life.event("e2", "Reboot", "Scheduled", Some(900));
    life.poll(&[&next]);
    life.poll(&[&next]);
    assert_eq!(life.cordon_writes, [true]);
    life.poll(&[]);
    life.poll(&[]);
    assert_eq!(life.cordon_writes, [true, false]);
}
