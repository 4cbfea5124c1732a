use super::life::*;
use super::*;

#[test]
fn thirty_seconds_stay_thirty_when_the_clock_is_set_back() {
    let mut life = Life::new();
    let event = life.event("e1", "Preempt", "Started", None);
    life.poll(&[&event]);
    life.set_clock(-3600);
    let plan = life.poll(&[&event]);
    assert!((29..=30).contains(&deadline_in(&life, &plan)), "{}", deadline_in(&life, &plan));
    life.pass(10);
    let plan = life.poll(&[&event]);
    assert!((18..=20).contains(&deadline_in(&life, &plan)), "and they go on running out");
    let writes = life.writes;
    life.poll(&[&event]);
    assert_eq!(life.writes, writes, "the record is mended once");
}

#[test]
fn a_clock_set_forward_ends_the_thirty_seconds_but_never_the_drain_before_it_was_tried() {
    let mut life = Life::new();
    let event = life.event("e1", "Preempt", "Started", None);
    let before = life.poll(&[&event]).drain.unwrap().order;
    life.set_clock(3600);
    let plan = life.poll(&[&event]);
    assert_eq!(plan.drain.unwrap().order, before, "it is for the drain to say that its time is over");
}

#[test]
fn a_timeout_is_not_stretched_by_a_clock_that_is_set_back() {
    let mut life = Life::with(policy("drain: {profiles: {default: {timeout: 60s}}}\n"));
    let event = life.event("e1", "Reboot", "Scheduled", Some(3 * 3600));
    life.poll(&[&event]);
    life.set_clock(-3600);
    let plan = life.poll(&[&event]);
    assert!((59..=60).contains(&deadline_in(&life, &plan)), "{}", deadline_in(&life, &plan));
    let same = life.poll(&[&event]);
    assert_eq!(same.drain.unwrap().order.deadline, plan.drain.unwrap().order.deadline, "it does not run away");
}

#[test]
fn a_drain_that_began_before_the_clock_was_set_back_still_deletes_before_its_deadline() {
    let mut life = Life::new();
    let event = life.event("e1", "Preempt", "Started", None);
    life.poll(&[&event]);
    life.set_clock(-3600);
    let order = life.poll(&[&event]).drain.unwrap().order;
    assert!(order.started_at > order.deadline, "a running drain is known by its beginning");
    assert_eq!(order.margin(), Duration::from_secs(1));
}

#[test]
fn the_time_of_an_uncordon_never_lies_ahead() {
    let mut life = Life::new();
    let event = life.event("e1", "Reboot", "Scheduled", Some(2 * 3600));
    life.poll(&[&event]);
    life.pass(3600 + 1800);
    life.poll(&[&event]);
    life.finish_drain(&[]);
    life.node.marks.unschedulable = false;
    life.poll(&[&event]);
    life.set_clock(-3600);
    life.poll(&[&event]);
    assert!(life.record().uncordoned_at.unwrap() <= life.now.wall);
    // Otherwise no event of the next hour would count as newer.
    life.pass(1);
    let preempt = life.event("e2", "Preempt", "Scheduled", Some(30));
    life.poll(&[&event, &preempt]);
    assert!(life.node.marks.unschedulable);
}

#[test]
fn a_clock_that_steps_is_no_reason_to_let_go_or_to_act_early() {
    for step in [-7200, -1, 1, 7200] {
        let mut life = Life::new();
        let event = life.event("e1", "Reboot", "Scheduled", Some(4 * 3600));
        assert!(matches!(life.poll(&[&event]).stage, Stage::Waiting(_)));
        life.set_clock(step);
        let plan = life.poll(&[&event]);
        let Stage::Waiting(start) = plan.stage else { panic!("step {step}: {:?}", plan.stage) };
        assert_eq!(plan.look_again, Some(life.now.when(start)), "step {step}");
        assert_eq!(life.record().events.len(), 1);
    }
}
