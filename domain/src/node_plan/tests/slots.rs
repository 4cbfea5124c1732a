use super::life::*;
use super::*;

const TWO_AT_ONCE: &str = "drain: {nodesAtOnce: 2}\n";

fn life_of_pool(pool: &str) -> Life {
    let mut life = Life::with(policy(TWO_AT_ONCE));
    life.node.labels.insert("kubernetes.azure.com/agentpool".into(), pool.into());
    life
}

// D-08 (b): never more than the limit in drain, the others cordoned and in a visible waiting state.
#[test]
fn a_node_without_a_slot_is_cordoned_and_waits_for_its_turn() {
    let mut life = life_of_pool("np1");
    let event = life.event("e1", "Reboot", "Scheduled", Some(901));
    for _ in 0..3 {
        let plan = life.poll(&[&event]);
        assert_eq!((plan.stage, plan.drain), (Stage::WaitingForSlot, None));
        assert_eq!(plan.slot, Some(SlotNeed { pool: "np1".into(), most: 2 }));
    }
    assert!(life.node.marks.unschedulable);
    assert_eq!(life.record().drain, None, "a drain that has not begun is in no record");
    life.slot_held = true;
    let plan = life.poll(&[&event]);
    assert_eq!(deadline_in(&life, &plan), 897);
    assert!(plan.slot.is_some(), "it is kept while draining");
    let plan = life.finish_drain(&[]);
    assert_eq!((plan.stage, plan.slot), (Stage::Drained, None), "and given back after it");
}

// D-08 (b): Preempt and Terminate do not wait.
#[test]
fn an_event_that_ends_the_machine_needs_no_slot() {
    for event_type in ["Preempt", "Terminate"] {
        let mut life = life_of_pool("np1");
        let event = life.event("e1", event_type, "Scheduled", Some(31));
        let plan = life.poll(&[&event]);
        assert_eq!((deadline_in(&life, &plan), plan.slot), (30, None), "{event_type}");
        let mut life = life_of_pool("np1");
        let reboot = life.event("e0", "Reboot", "Scheduled", Some(900));
        assert_eq!(life.poll(&[&reboot]).stage, Stage::WaitingForSlot);
        let plan = life.poll(&[&reboot, &event]);
        assert!(plan.drain.is_some(), "nor does an event that waited when it comes");
    }
}

#[test]
fn a_slot_is_kept_while_an_event_that_needed_it_goes_on() {
    let mut life = life_of_pool("np1");
    life.slot_held = true;
    let event = life.event("e1", "Reboot", "Scheduled", Some(900));
    life.poll(&[&event]);
    let started = life.event("e1", "Reboot", "Started", None);
    life.poll(&[&started]);
    let plan = life.finish_drain(&[]);
    assert_eq!(plan.slot, Some(SlotNeed { pool: "np1".into(), most: 2 }));
    assert!(life.poll(&[&started]).slot.is_some());
    assert!(life.poll(&[]).slot.is_some());
    assert_eq!(life.poll(&[]).slot, None);
}

#[test]
fn a_slot_that_is_not_held_any_more_is_not_taken_again_after_the_drain() {
    let mut life = life_of_pool("np1");
    life.slot_held = true;
    let event = life.event("e1", "Reboot", "Scheduled", Some(900));
    life.poll(&[&event]);
    life.finish_drain(&[]);
    life.slot_held = false;
    let started = life.event("e1", "Reboot", "Started", None);
    assert_eq!(life.poll(&[&started]).slot, None);
}

// D-08 (b)
#[test]
fn a_drain_is_not_stopped_when_its_slot_is_lost() {
    let mut life = life_of_pool("np1");
    life.slot_held = true;
    let event = life.event("e1", "Reboot", "Scheduled", Some(900));
    let before = life.poll(&[&event]).drain;
    life.slot_held = false;
    let plan = life.poll(&[&event]);
    assert_eq!(plan.drain, before, "the pods are half gone");
    assert!(plan.slot.is_some(), "but it is asked for again");
    life.restart();
    assert_eq!(life.poll(&[&event]).drain, before);
}

#[test]
fn a_node_waiting_for_its_turn_is_given_back_when_the_event_goes() {
    let mut life = life_of_pool("np1");
    let event = life.event("e1", "Reboot", "Scheduled", Some(900));
    life.poll(&[&event]);
    let plan = life.all_over();
    assert_eq!((plan.stage, plan.slot), (Stage::Idle, None));
    assert!(!life.node.marks.unschedulable && life.node.record.is_none());
}

#[test]
fn a_node_that_names_no_pool_waits_with_all_others_that_name_none() {
    let mut life = Life::with(policy(TWO_AT_ONCE));
    let event = life.event("e1", "Reboot", "Scheduled", Some(900));
    assert_eq!(life.poll(&[&event]).slot.unwrap().pool, "");
    life.node.labels.insert("agentpool".into(), "old-style".into());
    assert_eq!(life.poll(&[&event]).slot.unwrap().pool, "old-style");
}

#[test]
fn a_drain_that_waits_for_its_turn_until_it_is_too_late_is_not_begun() {
    let mut life =
        Life::with(policy("events: [{name: all, action: drain, start: {atLeast: 60s}}]\ndrain: {nodesAtOnce: 1}\n"));
    let event = life.event("e1", "Reboot", "Scheduled", Some(90));
    assert_eq!(life.poll(&[&event]).stage, Stage::WaitingForSlot);
    life.pass(40);
    life.slot_held = true;
    let plan = life.poll(&[&event]);
    assert_eq!((plan.stage, plan.drain, plan.slot), (Stage::Cordoned, None, None));
    assert_eq!(life.cordon_writes, [true]);
}

#[test]
fn a_slot_is_kept_while_a_hold_stops_the_drain_that_it_is_for() {
    let mut life = life_of_pool("np1");
    life.slot_held = true;
    let event = life.event("e1", "Reboot", "Scheduled", Some(900));
    assert!(life.poll(&[&event]).drain.is_some());
    life.node.held = true;
    let plan = life.poll(&[&event]);
    assert_eq!((plan.drain, plan.slot), (None, Some(SlotNeed { pool: "np1".into(), most: 2 })));
}

/// A Reboot of the own machine and of so many others.
fn reboot_with(life: &Life, others: usize) -> String {
    let mut vms: Vec<String> = vec![VM.into()];
    vms.extend((100..).take(others).map(|number| format!("aks-np1-12345678-vmss_{number}")));
    let vms: Vec<&str> = vms.iter().map(String::as_str).collect();
    life.event_on("e1", "Reboot", "Scheduled", &vms, Some(601))
}

/// After how many seconds the drain begins on a node of this name.
fn drain_begins_after(name: &str, others: usize) -> u64 {
    let mut life = Life::new();
    life.node.name = name.into();
    let event = reboot_with(&life, others);
    (0..40)
        .find(|_| {
            let plan = life.poll(&[&event]);
            assert!(life.node.marks.unschedulable, "the cordon never waits");
            assert_eq!(plan.drain.is_none(), matches!(plan.stage, Stage::WaitingForOthers(_)));
            plan.drain.is_some()
        })
        .unwrap_or_else(|| panic!("{name} is never drained"))
}

// D-08 (a): no pod moves to a node that the same befalls, and evictions come at a bounded rate.
#[test]
fn where_the_same_befalls_many_machines_they_cordon_first_and_drain_one_after_the_other() {
    for few in [0, 1, 4] {
        assert_eq!(drain_begins_after("aks-np1-12345678-vmss000001", few), 0, "{few} others");
    }
    let begins = drain_begins_after("aks-np1-12345678-vmss000001", 5);
    assert!((3..=4).contains(&begins), "{begins}");
    let mut begins: Vec<u64> =
        (0..100).map(|number| drain_begins_after(&format!("aks-np1-12345678-vmss{number:06}"), 99)).collect();
    begins.sort_unstable();
    assert!(begins[0] >= 3 && begins[99] <= 23, "{begins:?}");
    let most = (3..=23).map(|second| begins.iter().filter(|at| **at == second).count()).max();
    assert!(most <= Some(15), "they are spread: {begins:?}");
}

#[test]
fn nobody_waits_for_others_who_has_no_time_for_it_or_shares_only_a_pause_with_them() {
    let mut life = Life::new();
    let reboot = reboot_with(&life, 50);
    let preempt = reboot.replace("Reboot", "Preempt").replace("22:10:01", "22:00:31");
    assert_ne!(preempt, reboot.replace("Reboot", "Preempt"), "it comes in half a minute");
    assert!(life.poll(&[&preempt]).drain.is_some());
    let mut life = Life::new();
    let own = life.event("e2", "Redeploy", "Scheduled", Some(601));
    let freeze = reboot.replace("Reboot", "Freeze");
    assert!(life.poll(&[&own, &freeze]).drain.is_some());
}

#[test]
fn a_node_that_waits_for_others_is_looked_at_again_when_its_time_has_come_and_a_new_life_does_not_wait_anew() {
    let mut life = Life::new();
    let event = reboot_with(&life, 50);
    let plan = life.poll(&[&event]);
    let Stage::WaitingForOthers(turn) = plan.stage else { panic!("{:?}", plan.stage) };
    assert_eq!(plan.look_again, Some(life.now.when(turn)));
    life.restart();
    let Stage::WaitingForOthers(again) = life.poll(&[&event]).stage else { panic!("it has begun") };
    assert_eq!(again, turn);
}
