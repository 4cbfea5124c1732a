use super::life::*;
use super::*;

const WHEN_DRAINED: &str = "events: [{name: r, action: drain, approve: whenDrained}]\n";

fn approval(id: &str, when_drained: bool) -> (EventId, bool) {
    (EventId::new(id), when_drained)
}

/// What a plan asks for, and whether it is for when all are drained.
fn asked(plan: Plan) -> Vec<(EventId, bool)> {
    plan.approvals.into_iter().map(|approval| (approval.event, approval.drained.is_some())).collect()
}

// not before the drain, then at once, and once.
#[test]
fn an_event_is_approved_when_the_record_says_that_the_node_is_drained_and_only_once() {
    let mut life = Life::with(policy(WHEN_DRAINED));
    let event = life.event("e1", "Reboot", "Scheduled", Some(900));
    for _ in 0..3 {
        assert_eq!(asked(life.poll(&[&event])), []);
    }
    assert_eq!(asked(life.finish_drain(&[])), [approval("e1", true)]);
    life.restart();
    assert_eq!(asked(life.poll(&[&event])), [approval("e1", true)], "a new life knows it from the record");
    life.approved.insert(EventId::new("E1"), life.now.wall);
    let writes = life.writes;
    for _ in 0..3 {
        assert_eq!(asked(life.poll(&[&event])), []);
    }
    assert_eq!(life.writes, writes + 1, "it is recorded once");
    assert!(life.record().events[0].approved_at.is_some());
    life.restart();
    assert_eq!(asked(life.poll(&[&event])), [], "a new life does not ask again");
}

// A-13, variants A and B, and O-07: what stands in the way of an approval.
#[test]
fn nothing_is_approved_before_the_node_is_ready_for_it() {
    type Change = fn(&mut Life);
    let cases: [(&str, Change); 5] = [
        ("a pod was left", |life| drop(life.finish_drain(&["db-1"]))),
        ("nobody has drained", |_| {}),
        ("someone uncordoned the node", |life| {
            life.finish_drain(&[]);
            life.node.marks.unschedulable = false;
        }),
        ("someone uncordoned the node and cordoned it again", |life| {
            life.finish_drain(&[]);
            life.node.marks.unschedulable = false;
            life.settle();
            life.node.marks.unschedulable = true;
            life.node.marks.cordon_manager = Some("kubectl-cordon".into());
        }),
        ("a person holds it", |life| {
            life.finish_drain(&[]);
            life.node.held = true;
        }),
    ];
    for (why, change) in cases {
        let mut life = Life::with(policy(WHEN_DRAINED));
        let event = life.event("e1", "Reboot", "Scheduled", Some(900));
        life.poll(&[&event]);
        change(&mut life);
        assert_eq!(asked(life.poll(&[&event])), [], "{why}");
    }
    // P0 approves nothing.
    let mut life = Life::new();
    let event = life.event("e1", "Reboot", "Scheduled", Some(900));
    life.poll(&[&event]);
    assert_eq!(asked(life.finish_drain(&[])), []);
}

// A-14, variant A: another component approved it, and it has started.
#[test]
fn an_event_that_has_started_is_not_approved() {
    for approve in ["whenDrained", "immediately"] {
        let mut life = Life::with(policy(&format!("events: [{{name: r, action: drain, approve: {approve}}}]\n")));
        let event = life.event("e1", "Reboot", "Scheduled", Some(900));
        life.poll(&[&event]);
        let started = life.event("e1", "Reboot", "Started", None);
        let plan = life.poll(&[&started]);
        assert_eq!((deadline_in(&life, &plan), asked(plan)), (30, vec![]), "{approve}");
        assert_eq!(asked(life.finish_drain(&[])), [], "{approve}");
    }
}

// A-14 and its variant B: the option covers User events only.
#[test]
fn approval_may_depend_on_who_asked_for_the_event() {
    let rule = "events: [{name: r, action: drain, approve: {User: whenDrained}}]\n";
    let mut life = Life::with(policy(rule));
    let user = by_user(&life.event("e1", "Reboot", "Scheduled", Some(900)));
    let platform = life.event("e2", "Reboot", "Scheduled", Some(900));
    life.poll(&[&user, &platform]);
    assert_eq!(asked(life.finish_drain(&[])), [approval("e1", true)]);
}

#[test]
fn an_immediate_approval_waits_for_nothing_but_the_record() {
    let rules = "events: [{name: f, match: {type: Freeze}, action: none, approve: immediately}, {name: r, action: drain, approve: immediately}]\n";
    let mut life = Life::with(policy(rules));
    let freeze = life.event("f", "Freeze", "Scheduled", Some(900));
    let plan = life.poll(&[&freeze]);
    assert_eq!((plan.stage.clone(), asked(plan)), (Stage::Ignoring, vec![approval("f", false)]));
    assert_eq!(life.writes, 0);
    life.approved.insert(EventId::new("f"), life.now.wall);
    assert_eq!(asked(life.poll(&[&freeze])), []);
    let reboot = life.event("e1", "Reboot", "Scheduled", Some(900));
    life.pass(1);
    life.see(&[&reboot]);
    assert_eq!(asked(life.plan()), [], "the node does not carry the record yet");
    assert_eq!(asked(life.settle()), [approval("e1", false)], "but it need not be drained");
}

#[test]
fn an_immediate_approval_of_an_event_far_away_waits_for_its_time() {
    let mut life =
        Life::with(policy("events: [{name: r, action: drain, approve: immediately, start: {atMost: 30m}}]\n"));
    let event = life.event("e1", "Reboot", "Scheduled", Some(7200));
    assert_eq!(asked(life.poll(&[&event])), []);
    life.pass(5400);
    assert_eq!(asked(life.poll(&[&event])), [approval("e1", false)]);
}

// another machine's event is its own node's to approve.
#[test]
fn an_event_of_another_machine_is_not_approved() {
    let mut life = Life::with(policy("events: [{name: r, action: none, approve: immediately}]\n"));
    let other = life.event_on("e1", "Reboot", "Scheduled", &["neighbour_7"], Some(900));
    assert_eq!(asked(life.poll(&[&other])), []);
}

#[test]
fn what_is_too_late_for_a_drain_is_not_approved_as_drained() {
    let mut life =
        Life::with(policy("events: [{name: r, action: drain, approve: whenDrained, start: {atLeast: 10m}}]\n"));
    let event = life.event("e1", "Reboot", "Scheduled", Some(300));
    let plan = life.poll(&[&event]);
    assert_eq!((plan.stage.clone(), asked(plan)), (Stage::Cordoned, vec![]));
}

#[test]
fn an_approval_outlives_the_drain_of_another_event_that_goes() {
    let mut life = Life::with(policy(
        "events:\n- {name: pause, match: {type: Freeze}, action: drain, profile: some}\n\
         - {name: rest, action: drain, approve: whenDrained}\n\
         drain: {profiles: {some: {pods: {matchLabels: {a: b}}}}}\n",
    ));
    let reboot = life.event("e1", "Reboot", "Scheduled", Some(901));
    life.poll(&[&reboot]);
    assert_eq!(life.finish_drain(&[]).approvals.len(), 1);
    let pause = life.event("e2", "Freeze", "Scheduled", Some(601));
    assert!(life.poll(&[&reboot, &pause]).drain.is_some());
    life.poll(&[&reboot]);
    let plan = life.poll(&[&reboot]);
    assert_eq!(plan.drain, None);
    assert_eq!(plan.approvals.iter().map(|approval| approval.event.as_str()).collect::<Vec<_>>(), ["e1"]);
}
