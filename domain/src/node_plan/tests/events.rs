use super::life::*;
use super::*;
use crate::policy::file;

// O-01
#[test]
fn a_reboot_cordons_drains_and_gives_the_node_back_only_when_it_is_gone_and_the_node_ready() {
    let mut life = Life::new();
    let scheduled = life.event("e1", "Reboot", "Scheduled", Some(901));
    let plan = life.poll(&[&scheduled]);
    assert!(life.node.marks.unschedulable);
    assert_eq!(deadline_in(&life, &plan), 900);
    assert_eq!(life.record().claims.cordon, Some(Claim::Ours));
    assert_eq!(life.finish_drain(&[]).stage, Stage::Drained);
    life.pass(900);
    let started = life.event("e1", "Reboot", "Started", None);
    assert_eq!(life.poll(&[&started]).stage, Stage::Drained);
    life.node.ready = false;
    life.pass(540);
    life.poll(&[&started]);
    assert_eq!(life.poll(&[]).stage, Stage::Drained, "one document without the event is not enough");
    assert_eq!(life.poll(&[]).stage, Stage::AwaitingReady);
    assert!(life.node.marks.unschedulable);
    life.node.ready = true;
    life.node.boot_id = Some("boot-2".into());
    assert_eq!(life.settle().stage, Stage::Idle);
    assert_eq!((life.node.marks.unschedulable, life.node.record.clone()), (false, None));
    assert_eq!(life.cordon_writes, [true, false]);
    assert_eq!(
        life.reasons(),
        [
            "RebootScheduled",
            "NodeCordonEnd",
            "NodeDrainStart",
            "NodeDrainEnd",
            "RebootStarted",
            "RebootEnded",
            "NodeUncordonEnd"
        ]
    );
}

//
#[test]
fn an_event_is_acted_on_once_however_often_it_is_listed() {
    let mut life = Life::new();
    let at = life.event("e1", "Reboot", "Scheduled", Some(1101));
    life.poll(&[&at]);
    life.finish_drain(&[]);
    let writes = life.writes;
    let upper = at.replace("e1", "E1");
    for _ in 0..400 {
        life.poll(&[&upper]);
    }
    let later = life.event("e1", "Reboot", "Scheduled", Some(1101 - 400));
    for _ in 0..400 {
        life.poll(&[&later]);
    }
    assert_eq!(life.writes, writes, "neither another letter case nor a second more of notice is news");
    assert_eq!(life.cordon_writes, [true]);
    let started = life.event("e1", "Reboot", "Started", None);
    life.poll(&[&started]);
    life.poll(&[&started]);
    assert_eq!(life.reasons(), ["RebootScheduled", "NodeCordonEnd", "NodeDrainStart", "NodeDrainEnd", "RebootStarted"]);
}

//
#[test]
fn only_events_that_name_the_machine_count_and_the_strongest_action_wins() {
    let mut life = Life::new();
    let other = life.event_on("a", "Reboot", "Scheduled", &["aks-np1-12345678-vmss_7"], Some(900));
    assert_eq!(life.poll(&[&other]).stage, Stage::Idle);
    let both = life.event_on("b", "Redeploy", "Scheduled", &["aks-np1-12345678-vmss_7", VM], Some(601));
    let freeze = life.event("c", "Freeze", "Scheduled", Some(900));
    let nobody = life.event_on("d", "Redeploy", "Scheduled", &[], Some(600));
    let plan = life.poll(&[&other, &both, &freeze, &nobody]);
    assert_eq!(deadline_in(&life, &plan), 600);
    let ids: Vec<String> = life.record().events.iter().map(|event| event.id.to_string()).collect();
    assert_eq!(ids, ["b"]);
    let plan = life.poll(&[&other, &both]);
    assert!(plan.drain.is_some(), "the end of the freeze does not end the drain");
}

//
#[test]
fn a_freeze_does_nothing_and_the_next_events_are_handled_in_full() {
    let mut life = Life::new();
    let freeze = life.event("f", "Freeze", "Scheduled", Some(900));
    assert_eq!(life.poll(&[&freeze]).stage, Stage::Ignoring);
    assert_eq!(life.writes, 0);
    life.poll(&[]);
    for (id, event_type, notice) in [("e2", "Reboot", 900), ("e3", "Preempt", 30)] {
        let event = life.event(id, event_type, "Scheduled", Some(notice));
        assert!(life.poll(&[&event]).drain.is_some());
        life.finish_drain(&[]);
        life.poll(&[]);
        life.poll(&[]);
        assert!(!life.node.marks.unschedulable && life.node.record.is_none());
    }
}

// A-08, variant
#[test]
fn a_policy_may_cordon_without_draining() {
    let mut life = Life::with(policy("events: [{name: f, match: {type: Freeze}, action: cordon}]\n"));
    let freeze = life.event("f", "Freeze", "Scheduled", Some(900));
    let plan = life.poll(&[&freeze]);
    assert_eq!((plan.stage, plan.drain), (Stage::Cordoned, None));
    assert!(life.node.marks.unschedulable);
    life.poll(&[]);
    life.poll(&[]);
    assert!(!life.node.marks.unschedulable);
}

//
#[test]
fn an_event_days_away_is_recorded_and_announced_once_and_acted_on_in_time() {
    let mut life = Life::new();
    let days = 6 * 24 * 3600;
    let event = life.event("e1", "Redeploy", "Scheduled", Some(days));
    let plan = life.poll(&[&event]);
    assert!(matches!(plan.stage, Stage::Waiting(_)));
    assert!(!life.node.marks.unschedulable);
    let waits = plan.look_again.expect("it looks again").since(life.now.monotonic);
    assert_eq!(waits.as_secs(), u64::try_from(days).unwrap() - 1 - 1800);
    life.pass(3 * 24 * 3600);
    assert_eq!(life.reasons(), ["RedeployScheduled"]);
    let writes = life.writes;
    life.restart_much_later();
    life.poll(&[&event]);
    assert_eq!((life.writes, life.reasons()), (writes, vec![]));
    life.now = life.now.advanced(Duration::from_secs(u64::try_from(days).unwrap() - 1800 - 3 * 24 * 3600));
    let plan = life.poll(&[&event]);
    assert!(life.node.marks.unschedulable);
    assert!((1790..=1800).contains(&deadline_in(&life, &plan)));
}

//
#[test]
fn while_an_event_is_waited_for_a_changed_policy_counts() {
    let mut life = Life::new();
    let event = life.event("e1", "Redeploy", "Scheduled", Some(24 * 3600));
    life.poll(&[&event]);
    assert!(life.node.record.is_some());
    let text = "apiVersion: remediator.dev/v1alpha1\nkind: Policy\nmetadata: {name: none}\n";
    life.policies = PolicySet::new(vec![file::parse("p", text).unwrap()]).unwrap();
    life.poll(&[&event]);
    assert_eq!(life.node.record, None);
}

#[test]
fn a_policy_that_changes_in_the_middle_of_an_event_changes_nothing_about_it() {
    let mut life = Life::new();
    let event = life.event("e1", "Redeploy", "Scheduled", Some(600));
    life.poll(&[&event]);
    let text = "apiVersion: remediator.dev/v1alpha1\nkind: Policy\nmetadata: {name: none}\n";
    life.policies = PolicySet::new(vec![file::parse("p", text).unwrap()]).unwrap();
    assert!(life.poll(&[&event]).drain.is_some());
}

// O-04
#[test]
fn an_event_that_disappears_is_cancelled_after_two_documents_and_not_before() {
    let mut life = Life::new();
    let event = life.event("e1", "Reboot", "Scheduled", Some(900));
    life.poll(&[&event]);
    assert!(life.poll(&[]).drain.is_some(), "one document is not enough");
    assert!(life.poll(&[&event]).drain.is_some());
    assert!(life.poll(&[]).drain.is_some());
    life.pass(30);
    assert!(life.settle().drain.is_some(), "failed polls in between do not count");
    let plan = life.poll(&[]);
    assert_eq!(plan.drain, None);
    assert_eq!((life.node.marks.unschedulable, life.node.record.clone()), (false, None));
    assert_eq!(life.reasons()[3..], ["RebootCancelled", "NodeUncordonEnd"]);
}

// A-04 and invariant 6
#[test]
fn without_a_good_document_nothing_recorded_is_let_go() {
    let mut life = Life::new();
    let event = life.event("e1", "Reboot", "Scheduled", Some(900));
    life.poll(&[&event]);
    life.restart();
    life.pass(300);
    let plan = life.settle();
    assert!(plan.drain.is_some(), "the drain goes on from the record");
    assert!(life.node.marks.unschedulable);
    life.poll(&[]);
    assert!(life.node.marks.unschedulable, "a new life needs two documents of its own");
    life.poll(&[]);
    assert!(!life.node.marks.unschedulable);
}

#[test]
fn an_event_that_nobody_saw_start_is_not_called_cancelled_when_its_time_is_over() {
    let mut life = Life::new();
    let event = life.event("e1", "Redeploy", "Scheduled", Some(60));
    life.poll(&[&event]);
    life.finish_drain(&[]);
    life.restart();
    life.pass(300);
    life.poll(&[]);
    life.poll(&[]);
    assert!(life.reasons().contains(&"RedeployEnded") && !life.reasons().contains(&"RedeployCancelled"));
}

#[test]
fn an_event_that_no_longer_names_the_machine_is_gone() {
    let mut life = Life::new();
    let both = life.event_on("e1", "Reboot", "Scheduled", &["neighbour", VM], Some(900));
    life.poll(&[&both]);
    let other = life.event_on("e1", "Reboot", "Scheduled", &["neighbour"], Some(900));
    life.poll(&[&other]);
    life.poll(&[&other]);
    assert!(!life.node.marks.unschedulable && life.node.record.is_none());
}

#[test]
fn an_observing_policy_tells_and_writes_nothing() {
    let text = include_str!("../../../../policies/observe-only.yaml");
    let mut life = Life::with(file::parse("observe-only.yaml", text).unwrap());
    let event = life.event("e1", "Preempt", "Scheduled", Some(30));
    let plan = life.poll(&[&event]);
    assert_eq!((plan.stage, life.writes), (Stage::Ignoring, 0));
    assert!(plan.announcements[0].note.contains("would say drain"), "{}", plan.announcements[0].note);
}

#[test]
fn every_stage_has_its_word() {
    let at = Timestamp::UNIX_EPOCH;
    let stages = [
        Stage::Idle,
        Stage::Ignoring,
        Stage::Waiting(at),
        Stage::Held,
        Stage::Cordoned,
        Stage::WaitingForSlot,
        Stage::WaitingForOthers(at),
        Stage::Draining(at),
        Stage::Drained,
        Stage::Incomplete,
        Stage::AwaitingReady,
        Stage::Releasing,
        Stage::RecordUnreadable(RecordError::Newer(2)),
    ];
    assert_eq!(stages.map(|stage| stage.word()), Stage::WORDS);
}

// the other machine's agent reads the same document, keeps a record of its own and takes the earlier deadline.
#[test]
fn two_machines_of_one_event_act_for_themselves() {
    const OTHER: &str = "aks-np1-12345678-vmss_7";
    let [mut own, mut other] = [VM, OTHER].map(|vm| {
        let mut life = Life::new();
        life.vm = VmName::new(vm);
        life
    });
    let a = own.event_on("a", "Reboot", "Scheduled", &[OTHER], Some(901));
    let b = own.event_on("b", "Redeploy", "Scheduled", &[OTHER, VM], Some(602));
    own.poll(&[&a]);
    let plan = other.poll(&[&a]);
    assert_eq!((own.node.record.clone(), own.told.len(), deadline_in(&other, &plan)), (None, 0, 900));
    let plan = own.poll(&[&a, &b]);
    assert_eq!(deadline_in(&own, &plan), 600);
    let plan = other.poll(&[&a, &b]);
    assert_eq!(deadline_in(&other, &plan), 600);
    assert_eq!(other.cordon_writes, [true]);
    let ids = |life: &Life| life.record().events.iter().map(|event| event.id.to_string()).collect::<Vec<_>>();
    assert_eq!((ids(&own), ids(&other)), (vec!["b".to_owned()], vec!["a".to_owned(), "b".to_owned()]));
}

// A-06 (b): a pause that Azure forgets to take off its list.
#[test]
fn an_event_that_is_listed_for_an_hour_and_needs_nothing_is_told_once() {
    let mut life = Life::new();
    let freeze = life.event("B2BC520E-BDA2-44A0-BF75-0C320524BB47", "Freeze", "Started", None);
    for _ in 0..70 * 60 {
        assert_eq!(life.poll(&[&freeze]).stage, Stage::Ignoring);
    }
    assert_eq!((life.reasons(), life.writes, life.condition_writes), (vec!["FreezeStarted"], 0, 0));
}

// whole names count, in any letter case; the node's own name and numbers in its base 36 do not.
#[test]
fn an_event_concerns_the_machine_whose_name_it_lists() {
    let instance = |number: u32| format!("aks-np1-12345678-vmss_{number}");
    for (own, listed, ours) in [
        (instance(24), vec![instance(24)], true),
        (instance(24), vec!["AKS-NP1-12345678-VMSS_24".into()], true),
        (instance(24), vec![instance(2), instance(4), instance(24)], true),
        (instance(24), vec![instance(2), instance(240)], false),
        (instance(36), vec![instance(10)], false),
        (instance(36), vec![instance(36)], true),
        (instance(2768), vec![instance(2768)], true),
        (instance(24), vec!["aks-np1-12345678-vmss00000o".into()], false),
    ] {
        let mut life = Life::new();
        life.vm = VmName::new(own.clone());
        let listed: Vec<&str> = listed.iter().map(String::as_str).collect();
        let event = life.event_on("e1", "Reboot", "Scheduled", &listed, Some(900));
        assert_eq!(life.poll(&[&event]).drain.is_some(), ours, "{own} and {listed:?}");
    }
}
