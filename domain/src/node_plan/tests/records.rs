use super::life::*;
use super::*;

#[test]
fn a_record_that_cannot_be_read_stops_everything_and_is_reported_once() {
    let mut life = Life::new();
    for record in ["{", r#"{"version":7}"#] {
        life.node.record = Some(record.into());
        let event = life.event("e1", "Preempt", "Scheduled", Some(30));
        let plan = life.poll(&[&event]);
        assert_eq!(plan.stage.word(), "record-unreadable");
        assert_eq!((plan.drain, plan.write), (None, None));
        assert_eq!(life.node.record.as_deref(), Some(record));
    }
    assert_eq!(life.reasons(), ["RecordUnreadable"]);
}

#[test]
fn a_damaged_record_of_the_other_role_keeps_the_cordon_and_says_so() {
    let mut life = Life::new();
    let event = life.event("e1", "Reboot", "Scheduled", Some(900));
    life.poll(&[&event]);
    life.finish_drain(&[]);
    life.node.other_record = Some("?".into());
    life.poll(&[]);
    assert_eq!(life.poll(&[]).stage.word(), "record-unreadable");
    assert!(life.node.marks.unschedulable && life.node.record.is_some());
    assert!(life.reasons().contains(&"RecordUnreadable"));
    life.node.other_record = None;
    assert_eq!(life.settle().stage, Stage::Idle);
    assert!(!life.node.marks.unschedulable);
}

#[test]
fn a_record_about_another_machine_is_not_acted_on() {
    let mut life = Life::new();
    let event = life.event("e1", "Preempt", "Scheduled", Some(30));
    life.poll(&[&event]);
    life.vm = VmName::new("another_7");
    let plan = life.plan();
    assert_eq!((plan.stage.word(), plan.drain, plan.write), ("record-unreadable", None, None));
}

// Node objects come and go with their names: what the old one carried says nothing about the new one.
#[test]
fn a_node_that_is_created_anew_is_acted_on_anew() {
    let mut life = Life::new();
    let event = life.event("e1", "Reboot", "Scheduled", Some(900));
    life.poll(&[&event]);
    life.finish_drain(&[]);
    life.create_node_anew("9b1e");
    assert!(life.poll(&[&event]).drain.is_some());
    assert!(life.node.marks.unschedulable);
    assert_eq!(life.record().events[0].drained, None);
    life.create_node_anew("a0c4");
    life.all_over();
    assert_eq!((life.node.marks.clone(), life.node.record.clone()), (Marks::default(), None));
}

// O-05 and design: a changed boot is reported, and never required.
#[test]
fn whether_the_machine_restarted_is_told_and_decides_nothing() {
    for (boot_id, said) in [
        (Some("boot-2"), "The machine did restart."),
        (Some("boot-1"), "The machine did not restart."),
        (None, "over."),
    ] {
        let mut life = Life::new();
        let event = life.event("e1", "Reboot", "Scheduled", Some(900));
        life.poll(&[&event]);
        life.finish_drain(&[]);
        life.restart();
        life.node.boot_id = boot_id.map(str::to_owned);
        life.pass(1);
        life.see(&[]);
        life.see(&[]);
        let write = life.plan().write.expect("the node is given back");
        assert_eq!(write.marks.unschedulable, Some(false));
        let note = &write.announcements.last().unwrap().note;
        assert!(note.ends_with(said), "{note}");
    }
}

#[test]
fn a_record_of_another_version_goes_on_with_what_it_says() {
    let mut life = Life::new();
    life.node.marks.unschedulable = true;
    life.node.record = Some(format!(
        r#"{{"version":1,"vm":"{VM}","claims":{{"cordon":"ours","lock":"ours"}},"events":[],"later":true}}"#
    ));
    life.see(&[]);
    let plan = life.all_over();
    assert_eq!(plan.stage, Stage::Idle);
    assert!(!life.node.marks.unschedulable);
}

#[test]
fn a_record_that_is_mended_by_hand_is_gone_on_with() {
    let mut life = Life::new();
    let event = life.event("e1", "Reboot", "Scheduled", Some(900));
    let drain = life.poll(&[&event]).drain;
    let good = life.node.record.clone();
    life.node.record = Some("{".into());
    let plan = life.poll(&[&event]);
    assert_eq!((plan.drain, plan.write, plan.slot, plan.approvals), (None, None, None, vec![]));
    assert!(!plan.conditions.any(), "what is not understood is not described either");
    life.node.record = good;
    assert_eq!(life.poll(&[&event]).drain, drain);
}

#[test]
fn a_record_of_six_events_with_everything_that_a_policy_knows_stays_below_its_limit() {
    let everything = "events: [{name: everything-that-a-policy-knows, action: drain, profile: careful, approve: whenDrained, start: {atMost: 30m, atLeast: 15s, cordonAtOnce: true}}]
drain:
  taint: {value: maintenance, effect: NoSchedule}
  excludeFromLoadBalancers: true
  disableScaleDown: true
  nodesAtOnce: 2
  profiles:
    careful:
      {timeout: 20m, margin: 10s, atDeadline: delete, bare: leave, emptyDir: leave,
       skip: {labels: {example.com/keep: \"true\"}}, phases: [{priority: 0, grace: 2m}, {priority: 1000000, grace: 1m}, {priority: 2000000000, grace: 30s}]}
";
    let mut life = Life::with(policy(everything));
    life.topics = [Topic::Event, Topic::Drain, Topic::Blocked, Topic::Failed, Topic::Released].into_iter().collect();
    let kinds = ["Freeze", "Reboot", "Redeploy", "Preempt", "Terminate", "Reboot"];
    let events: Vec<String> = kinds
        .iter()
        .enumerate()
        .map(|(at, kind)| life.event(&format!("C7061BAC-AFDC-4513-B24B-AA5F13A1612{at}"), kind, "Scheduled", Some(900)))
        .collect();
    let events: Vec<&str> = events.iter().map(String::as_str).collect();
    life.poll(&events);
    life.slot_held = true;
    life.poll(&events);
    let pods: Vec<String> = (0..30).map(|number| format!("{number:02}-{}", "p".repeat(60))).collect();
    let pods: Vec<&str> = pods.iter().map(String::as_str).collect();
    life.finish_drain(&pods);
    let text = life.node.record.clone().unwrap();
    assert!(text.len() <= crate::record::MOST_BYTES, "{} bytes: {text}", text.len());
    let record = life.record();
    assert_eq!((record.events.len(), record.drain.unwrap().left_count), (6, 30));
}
