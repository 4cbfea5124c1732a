use super::life::*;
use super::*;
use crate::marks::{DEFAULT_TAINT_KEY, EXCLUDE_FROM_LOAD_BALANCERS, YES};

const ALL_MARKS: &str =
    "drain: {taint: {effect: NoSchedule}, excludeFromLoadBalancers: true, disableScaleDown: true}\n";

/// Whether taint, label and annotation of ours are on the node.
fn marks_on(life: &Life) -> (bool, bool, bool) {
    let Marks { taints, exclude_from_load_balancers, scale_down_disabled, .. } = &life.node.marks;
    (
        taints.iter().any(|taint| taint.key == DEFAULT_TAINT_KEY),
        *exclude_from_load_balancers == Some(YES.to_owned()),
        *scale_down_disabled == Some(YES.to_owned()),
    )
}

// D-06: the cordon, every mark and the record are one write, which insists on the version that was read.
#[test]
fn cordon_marks_and_record_are_one_write() {
    let mut life = Life::with(policy(ALL_MARKS));
    life.node.resource_version = "17".into();
    life.node.marks.taints = vec![taint("x", "y", "NoSchedule")];
    let event = life.event("e1", "Reboot", "Scheduled", Some(900));
    life.pass(1);
    life.see(&[&event]);
    let write = life.plan().write.expect("there is something to write");
    assert_eq!(write.resource_version, "17");
    assert_eq!(write.marks.unschedulable, Some(true));
    assert_eq!((write.marks.exclude_from_load_balancers, write.marks.scale_down_disabled), (Some(true), Some(true)));
    let taints = write.marks.taints.clone().expect("the taints are written");
    assert_eq!(taints[0], taint("x", "y", "NoSchedule"), "a foreign taint survives");
    assert_eq!(taints.len(), 2);
    assert!(write.record.is_some());
    life.settle();
    assert_eq!(life.writes, 1, "and with the marks the node carries the record of its drain");
}

// D-06: what another client added between our read and our write is in the next plan.
#[test]
fn a_taint_that_comes_between_read_and_write_is_kept() {
    let mut life = Life::with(policy(ALL_MARKS));
    let event = life.event("e1", "Reboot", "Scheduled", Some(900));
    life.pass(1);
    life.see(&[&event]);
    assert!(life.plan().write.is_some(), "this one meets a conflict");
    life.node.marks.taints.push(taint("x", "y", "NoSchedule"));
    life.settle();
    assert_eq!(marks_on(&life), (true, true, true));
    life.all_over();
    assert_eq!(life.node.marks.taints, [taint("x", "y", "NoSchedule")]);
}

// D-06, variant: the denial is reported once, cordon and record are written alone, and the drain proceeds.
#[test]
fn marks_that_admission_refuses_are_reported_once_and_stop_nothing() {
    let mut life = Life::with(policy(ALL_MARKS));
    life.admission_refuses = true;
    let event = life.event("e1", "Reboot", "Scheduled", Some(900));
    let plan = life.poll(&[&event]);
    assert!(plan.drain.is_some() && life.node.marks.unschedulable);
    assert_eq!(marks_on(&life), (false, false, false));
    life.admission_refuses = false;
    life.restart();
    life.poll(&[&event]);
    assert_eq!(marks_on(&life), (false, false, false), "they are not tried again for this event");
    assert_eq!(life.reasons().iter().filter(|reason| **reason == "NodeMarksRefused").count(), 1);
    life.finish_drain(&[]);
    life.all_over();
    assert_eq!((life.node.marks.unschedulable, life.node.record.clone()), (false, None));
    let next = life.event("e2", "Reboot", "Scheduled", Some(900));
    life.poll(&[&next]);
    assert_eq!(marks_on(&life), (true, true, true), "the next event is another try");
}

// D-06, variant: nor does a denial at the end keep the node out of use.
#[test]
fn marks_that_admission_keeps_on_the_node_do_not_keep_its_cordon() {
    let mut life = Life::with(policy(ALL_MARKS));
    let event = life.event("e1", "Reboot", "Scheduled", Some(900));
    life.poll(&[&event]);
    life.admission_refuses = true;
    life.poll(&[]);
    assert_eq!(life.poll(&[]).stage, Stage::Releasing);
    assert!(!life.node.marks.unschedulable);
    assert_eq!(marks_on(&life), (true, true, true));
    life.restart();
    life.see(&[]);
    life.all_over();
    life.admission_refuses = false;
    assert_eq!(life.settle().stage, Stage::Idle);
    assert_eq!((life.node.marks.clone(), life.node.record.clone()), (Marks::default(), None));
    assert_eq!(life.reasons().iter().filter(|reason| **reason == "NodeUncordonEnd").count(), 1);
}

// D-12: both replicas leave by eviction; the NoExecute taint would delete them past their budget.
#[test]
fn a_taint_that_deletes_pods_is_set_only_when_the_drain_is_over() {
    for left in [&[][..], &["db-1"]] {
        let mut life = Life::with(policy("drain: {taint: {effect: NoExecute}}\n"));
        let event = life.event("e1", "Reboot", "Scheduled", Some(900));
        for _ in 0..3 {
            assert!(life.poll(&[&event]).drain.is_some());
            assert!(!marks_on(&life).0, "not while pods are being evicted");
        }
        life.finish_drain(left);
        assert!(marks_on(&life).0);
        assert!(life.node.marks.taints.iter().all(|taint| taint.effect == "NoExecute"));
        life.all_over();
        assert_eq!(life.node.marks.taints, []);
    }
}

// D-12: nor while the node waits for the turn or for the time of its drain.
#[test]
fn a_taint_that_deletes_pods_waits_for_a_drain_that_has_not_begun() {
    let mut life = Life::with(policy("drain: {taint: {effect: NoExecute}, nodesAtOnce: 1}\n"));
    let event = life.event("e1", "Reboot", "Scheduled", Some(900));
    assert_eq!(life.poll(&[&event]).stage, Stage::WaitingForSlot);
    assert!(!marks_on(&life).0);
    let rules = "events: [{name: r, action: drain, start: {atMost: 10m, cordonAtOnce: true}}]\n";
    let mut life = Life::with(policy(&format!("{rules}drain: {{taint: {{effect: NoExecute}}}}\n")));
    let event = life.event("e1", "Reboot", "Scheduled", Some(3600));
    assert_eq!(life.poll(&[&event]).stage, Stage::Cordoned);
    assert!(!marks_on(&life).0, "the drain is still to come");
    let mut life = Life::with(policy("events: [{name: r, action: cordon}]\ndrain: {taint: {effect: NoExecute}}\n"));
    let event = life.event("e1", "Reboot", "Scheduled", Some(900));
    assert_eq!(life.poll(&[&event]).stage, Stage::Cordoned);
    assert!(!marks_on(&life).0, "nobody wants a drain");
}

// D-12, variant: one entry for our key and effect, the foreign taint untouched.
#[test]
fn a_taint_of_our_key_that_is_there_already_is_neither_doubled_nor_removed() {
    let mut life = Life::with(policy("drain: {taint: {effect: NoSchedule, value: new}}\n"));
    let before = vec![taint("x", "y", "NoSchedule"), taint(DEFAULT_TAINT_KEY, "old", "NoSchedule")];
    life.node.marks.taints.clone_from(&before);
    let event = life.event("e1", "Reboot", "Scheduled", Some(900));
    assert!(life.poll(&[&event]).drain.is_some());
    assert_eq!(life.node.marks.taints, before);
    life.all_over();
    assert_eq!(life.node.marks.taints, before);
}

// O-06 (a): the admin's label is exactly as before, at all times.
#[test]
fn marks_that_were_there_before_stay_as_they_were() {
    for value in ["true", "", "because"] {
        let mut life = Life::with(policy(ALL_MARKS));
        life.node.marks.exclude_from_load_balancers = Some(value.to_owned());
        life.node.marks.scale_down_disabled = Some(value.to_owned());
        let event = life.event("e1", "Reboot", "Scheduled", Some(900));
        for step in 0..4 {
            match step {
                0 | 1 => drop(life.poll(&[&event])),
                _ => drop(life.poll(&[])),
            }
            assert_eq!(life.node.marks.exclude_from_load_balancers, Some(value.to_owned()), "step {step}");
            assert_eq!(life.node.marks.scale_down_disabled, Some(value.to_owned()), "step {step}");
        }
        assert_eq!(life.node.record, None);
    }
}

// O-06 (b) and O-04: set before the first eviction, gone with the event, whenever it goes.
#[test]
fn our_marks_come_before_the_first_eviction_and_go_with_the_event() {
    for drained in [false, true] {
        let mut life = Life::with(policy(ALL_MARKS));
        let event = life.event("e1", "Reboot", "Scheduled", Some(900));
        life.pass(1);
        life.see(&[&event]);
        let first = life.plan();
        assert_eq!(first.drain, None, "nothing is evicted before the node carries its marks");
        assert!(life.poll(&[&event]).drain.is_some());
        assert_eq!(marks_on(&life), (true, true, true));
        if drained {
            life.finish_drain(&[]);
        }
        life.poll(&[]);
        assert_eq!(marks_on(&life), (true, true, true), "one document is not enough");
        life.poll(&[&event]);
        assert_eq!(marks_on(&life), (true, true, true));
        life.all_over();
        assert_eq!(life.node.marks, Marks::default());
        assert_eq!(life.node.record, None);
        let cancelled = life.reasons().iter().filter(|reason| **reason == "RebootCancelled").count();
        assert_eq!(cancelled, 1);
    }
}

// O-04 (a): the event goes while the write of the cordon is under way.
#[test]
fn an_event_that_goes_while_the_cordon_is_being_written_leaves_no_mark() {
    for arrives in [false, true] {
        let mut life = Life::with(policy(ALL_MARKS));
        let event = life.event("e1", "Reboot", "Scheduled", Some(900));
        life.pass(1);
        life.see(&[&event]);
        let write = life.plan().write.expect("the cordon");
        life.see(&[]);
        life.see(&[]);
        if arrives {
            life.apply(write);
        }
        life.settle();
        assert_eq!((life.node.marks.clone(), life.node.record.clone()), (Marks::default(), None), "arrives: {arrives}");
    }
}

// O-06, variant: with the feature off the label is never touched.
#[test]
fn a_mark_that_the_policy_does_not_ask_for_is_never_written() {
    for value in [None, Some("true".to_owned())] {
        let mut life = Life::new();
        life.node.marks.exclude_from_load_balancers.clone_from(&value);
        let event = life.event("e1", "Reboot", "Scheduled", Some(900));
        life.pass(1);
        life.see(&[&event]);
        for _ in 0..3 {
            if let Some(write) = life.plan().write {
                assert!(!write.marks.beside_cordon());
            }
            life.poll(&[&event]);
        }
        life.all_over();
        assert_eq!(life.node.marks.exclude_from_load_balancers, value, "{EXCLUDE_FROM_LOAD_BALANCERS}");
    }
}

// O-10: the drain cannot finish; everything is rolled back all the same.
#[test]
fn a_drain_that_cannot_finish_keeps_no_mark_on_the_node() {
    for runs in [false, true] {
        let mut life = Life::with(policy(ALL_MARKS));
        let event = life.event("e1", "Reboot", "Scheduled", Some(600));
        life.poll(&[&event]);
        if runs {
            life.pass(600);
            life.finish_drain(&["db-1"]);
            let started = life.event("e1", "Reboot", "Started", None);
            assert_eq!(life.poll(&[&started]).stage, Stage::Incomplete);
            assert!(life.reasons().contains(&"NodeDrainError"));
        }
        let plan = life.all_over();
        assert_eq!((plan.stage, plan.drain), (Stage::Idle, None));
        assert_eq!((life.node.marks.clone(), life.node.record.clone()), (Marks::default(), None), "runs: {runs}");
    }
}

#[test]
fn a_mark_of_ours_that_a_person_takes_away_is_not_put_back_and_theirs_stays() {
    let mut life = Life::with(policy(ALL_MARKS));
    let event = life.event("e1", "Reboot", "Scheduled", Some(900));
    life.poll(&[&event]);
    life.node.marks.taints.clear();
    life.node.marks.exclude_from_load_balancers = None;
    life.node.marks.scale_down_disabled = Some("false".to_owned());
    life.poll(&[&event]);
    assert_eq!(marks_on(&life), (false, false, false));
    let theirs = taint(DEFAULT_TAINT_KEY, "", "NoSchedule");
    life.node.marks.taints = vec![theirs.clone()];
    life.node.marks.exclude_from_load_balancers = Some(YES.to_owned());
    life.poll(&[&event]);
    life.all_over();
    assert_eq!(life.node.marks.taints, [theirs]);
    assert_eq!(life.node.marks.exclude_from_load_balancers, Some(YES.to_owned()));
    assert_eq!(life.node.marks.scale_down_disabled, Some("false".to_owned()));
}

#[test]
fn a_mark_that_a_person_takes_away_while_nothing_is_done_is_theirs_too() {
    for reason in ["held", "not ready", "removed by the autoscaler"] {
        let mut life = Life::with(policy(ALL_MARKS));
        let event = life.event("e1", "Reboot", "Scheduled", Some(900));
        life.poll(&[&event]);
        match reason {
            "held" => life.node.held = true,
            "not ready" => life.node.ready = false,
            _ => life.node.marks.taints.push(taint("ToBeDeletedByClusterAutoscaler", "1", "NoSchedule")),
        }
        life.all_over();
        life.node.marks.exclude_from_load_balancers = None;
        life.settle();
        life.node.marks.exclude_from_load_balancers = Some(YES.to_owned());
        life.node.held = false;
        life.node.ready = true;
        life.node.marks.taints.retain(|taint| taint.key == DEFAULT_TAINT_KEY);
        assert_eq!(life.settle().stage, Stage::Idle);
        assert_eq!(life.node.marks.exclude_from_load_balancers, Some(YES.to_owned()), "{reason}");
        assert_eq!(life.node.marks.taints, [], "{reason}");
    }
}

#[test]
fn marks_that_the_other_role_needs_too_are_left_to_the_last_of_the_two() {
    let claims = r#"{"claims":{"cordon":"ours","taint":{"key":"status-taint.cluster-autoscaler.kubernetes.io/remediator",
        "effect":"NoSchedule","claim":"ours"},"excludeFromLoadBalancers":"ours"}}"#;
    let mut life = Life::with(policy(ALL_MARKS));
    life.node.marks.unschedulable = true;
    life.node.marks.cordon_manager = Some(REPAIRER_FIELD_MANAGER.into());
    life.node.marks.taints = vec![taint(DEFAULT_TAINT_KEY, "", "NoSchedule")];
    life.node.marks.exclude_from_load_balancers = Some(YES.to_owned());
    life.node.other_record = Some(claims.into());
    let event = life.event("e1", "Reboot", "Scheduled", Some(900));
    life.poll(&[&event]);
    let there = life.node.marks.clone();
    let mut released = life;
    released.node.other_record = None;
    released.all_over();
    assert_eq!((released.node.marks, released.node.record), (Marks::default(), None), "the repair let go first");

    let mut life = Life::with(policy(ALL_MARKS));
    life.node.marks = Marks { scale_down_disabled: None, ..there.clone() };
    life.node.other_record = Some(claims.into());
    life.poll(&[&event]);
    life.all_over();
    assert_eq!(life.node.marks, Marks { scale_down_disabled: None, ..there }, "the repair still needs them");
    assert_eq!(life.node.record, None);
}
