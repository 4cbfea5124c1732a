use super::*;
use crate::marks::Claim;
use crate::node_plan::{NodeView, Sightings, Situation, plan};
use crate::policy::{Policy, PolicySet};
use crate::record::{DrainRecord, RecordedEvent};
use crate::scheduled_event::{VmName, decode};
use crate::time::{Monotonic, Now};
use jiff::Timestamp;

fn at(text: &str) -> Timestamp {
    format!("2026-04-11T{text}Z").parse().unwrap()
}

fn event(status: EventStatus) -> RecordedEvent {
    let body = r#"{"Events":[{"EventId":"e1","EventType":"Reboot","EventSource":"Platform","Resources":["vm"]}]}"#;
    let document = decode(body.as_bytes()).unwrap();
    let mut event = RecordedEvent::new(&document.events[0], at("22:00:00"));
    (event.status, event.not_before) = (status, Some(at("22:15:00")));
    event
}

fn record(events: Vec<RecordedEvent>, drain: Option<DrainRecord>) -> Record {
    let mut record = Record::new(VmName::new("vm"));
    record.claims.cordon = Some(Claim::Ours);
    record.events = events;
    record.drain = drain;
    record
}

/// What is to be set: type, status, reason and message.
fn set(changes: &ConditionChanges) -> Vec<String> {
    let line = |(condition, _): &(NodeCondition, bool)| {
        let NodeCondition { condition_type, status, reason, message } = condition;
        format!("{condition_type} {status} {reason}: {message}")
    };
    changes.set.iter().map(line).collect()
}

fn applied(mut on_node: Vec<NodeCondition>, changes: &ConditionChanges) -> Vec<NodeCondition> {
    on_node.retain(|there| {
        let replaced = changes.set.iter().any(|(new, _)| new.condition_type == there.condition_type);
        !replaced && !changes.remove.contains(&there.condition_type)
    });
    on_node.extend(changes.set.iter().map(|(condition, _)| condition.clone()));
    on_node
}

fn foreign(condition_type: &str, status: &str) -> NodeCondition {
    NodeCondition {
        condition_type: condition_type.into(),
        status: status.into(),
        reason: "KubectlDrain".into(),
        message: "by hand".into(),
    }
}

#[test]
fn each_stage_has_its_conditions() {
    let running = || DrainRecord::new(at("22:00:00"), at("22:15:00"));
    let finished = |left_count| {
        let mut drain = running();
        (drain.finished_at, drain.left_count) = (Some(at("22:03:00")), left_count);
        drain
    };
    let scheduled = || event(EventStatus::Scheduled);
    let ended = |status, result| {
        let mut event = event(status);
        event.drained = Some(result);
        event
    };
    let planned =
        "MaintenancePlanned True RemediatorEventScheduled: Reboot by Platform, not before 2026-04-11 22:15:00Z.";
    let not_started = "MaintenanceInProgress False RemediatorEventScheduled: The event has not started.";
    let until = "Draining until 2026-04-11 22:15:00Z at the latest.";
    for (what, record, expected) in [
        ("nothing", record(vec![], None), vec![]),
        ("waiting or cordoned", record(vec![scheduled()], None), vec![planned.into(), not_started.into()]),
        (
            "draining",
            record(vec![scheduled()], Some(running())),
            vec![
                planned.into(),
                not_started.into(),
                format!("DrainInProgress True RemediatorDrainStarted: {until}"),
                format!("Drained False RemediatorDrainStarted: {until}"),
            ],
        ),
        (
            "drained",
            record(vec![ended(EventStatus::Scheduled, DrainResult::Drained)], Some(finished(0))),
            vec![
                planned.into(),
                not_started.into(),
                "DrainInProgress False RemediatorDrainCompleted: Drained at 2026-04-11 22:03:00Z.".into(),
                "Drained True RemediatorDrainCompleted: Drained at 2026-04-11 22:03:00Z.".into(),
            ],
        ),
        (
            "started with pods left",
            record(vec![ended(EventStatus::Started, DrainResult::Incomplete)], Some(finished(2))),
            vec![
                "MaintenancePlanned False RemediatorEventStarted: The event has started.".into(),
                "MaintenanceInProgress True RemediatorEventStarted: Reboot by Platform has started.".into(),
                "DrainInProgress False RemediatorDrainIncomplete: The drain ended with 2 pods left.".into(),
                "Drained False RemediatorDrainIncomplete: The drain ended with 2 pods left.".into(),
            ],
        ),
        (
            "one started, one still to come",
            record(vec![event(EventStatus::Started), scheduled()], None),
            vec![
                planned.into(),
                "MaintenanceInProgress True RemediatorEventStarted: Reboot by Platform has started.".into(),
            ],
        ),
        ("over, but not given back", record(vec![], Some(finished(0))), vec![]),
    ] {
        let changes = changes(&record, &[]);
        assert_eq!(set(&changes), expected, "{what}");
        assert_eq!(changes.remove, Vec::<String>::new(), "{what}");
    }
}

#[test]
fn nothing_is_written_twice() {
    let record = record(vec![event(EventStatus::Scheduled)], Some(DrainRecord::new(at("22:00:00"), at("22:15:00"))));
    let first = changes(&record, &[]);
    assert!(first.any());
    let on_node = applied(vec![], &first);
    assert!(!changes(&record, &on_node).any());
}

#[test]
fn a_change_of_the_words_alone_is_no_change_of_the_status() {
    let on_node = applied(vec![], &changes(&record(vec![event(EventStatus::Scheduled)], None), &[]));
    let mut moved = event(EventStatus::Scheduled);
    moved.not_before = Some(at("22:30:00"));
    let [(condition, changes_status)] = &changes(&record(vec![moved], None), &on_node).set[..] else {
        panic!("one condition changes")
    };
    assert_eq!((condition.condition_type.as_str(), *changes_status), ("MaintenancePlanned", false));
    let started = changes(&record(vec![event(EventStatus::Started)], None), &on_node);
    assert!(started.set.iter().all(|(_, changes_status)| *changes_status));
}

#[test]
fn a_condition_that_somebody_else_has_set_is_left_alone() {
    let drain = DrainRecord::new(at("22:00:00"), at("22:15:00"));
    let record = record(vec![event(EventStatus::Scheduled)], Some(drain));
    let on_node = vec![foreign("DrainInProgress", "True")];
    let written = changes(&record, &on_node);
    assert!(!written.set.iter().any(|(condition, _)| condition.condition_type == "DrainInProgress"));
    let on_node = applied(on_node, &written);
    let released = changes(&Record::new(VmName::new("vm")), &on_node);
    assert!(!released.remove.contains(&"DrainInProgress".to_owned()));
    assert_eq!(applied(on_node, &released), [foreign("DrainInProgress", "True")]);
    // What somebody else calls over and done with is no objection to a new one.
    let written = changes(&record, &[foreign("DrainInProgress", "False")]);
    assert!(written.set.iter().any(|(condition, _)| condition.condition_type == "DrainInProgress"));
    assert!(!changes(&Record::new(VmName::new("vm")), &[foreign("DrainInProgress", "False")]).any());
}

#[test]
fn conditions_of_an_earlier_life_are_removed_at_the_start_and_other_types_are_not_looked_at() {
    let earlier = record(vec![event(EventStatus::Scheduled)], Some(DrainRecord::new(at("22:00:00"), at("22:15:00"))));
    let mut on_node = applied(vec![], &changes(&earlier, &[]));
    on_node.push(NodeCondition { condition_type: "Ready".into(), ..on_node[0].clone() });
    let vm = VmName::new("vm");
    let node = NodeView { ready: true, conditions: on_node.clone(), ..NodeView::default() };
    assert!(!node.is_clean(), "they are a reason to look at the node");
    let plan = plan(&Situation {
        vm: &vm,
        sightings: &Sightings::default(),
        node: &node,
        policies: &PolicySet::new(vec![Policy::built_in().unwrap()]).unwrap(),
        draining: false,
        blocked: &[],
        finished: None,
        slot_held: false,
        marks_refused: false,
        topics: &std::collections::BTreeSet::new(),
        told: &std::collections::BTreeSet::new(),
        approved: &std::collections::BTreeMap::new(),
        now: Now { wall: at("23:00:00"), monotonic: Monotonic::default() },
    });
    assert_eq!(plan.write, None);
    let left = applied(on_node, &plan.conditions);
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].condition_type, "Ready");
}
