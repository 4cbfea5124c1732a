use super::life::*;
use super::*;

// D-09 and O-02
#[test]
fn a_node_that_someone_else_cordoned_is_drained_and_stays_cordoned() {
    let mut life = Life::new();
    life.node.marks.unschedulable = true;
    let event = life.event("e1", "Preempt", "Scheduled", Some(30));
    assert!(life.poll(&[&event]).drain.is_some());
    assert_eq!(life.record().claims.cordon, Some(Claim::Foreign));
    life.finish_drain(&[]);
    life.poll(&[]);
    life.poll(&[]);
    assert_eq!((life.node.marks.unschedulable, life.node.record.clone()), (true, None));
    assert_eq!(life.cordon_writes, Vec::<bool>::new());
}

#[test]
fn a_cordon_that_the_other_role_needs_too_is_left_to_the_last_of_the_two() {
    for (claim, inherited) in [("ours", Claim::Ours), ("foreign", Claim::Foreign)] {
        let mut life = Life::new();
        life.node.marks.unschedulable = true;
        life.node.other_record = Some(format!(r#"{{"version":1,"claims":{{"cordon":"{claim}"}}}}"#));
        let event = life.event("e1", "Reboot", "Scheduled", Some(900));
        life.poll(&[&event]);
        assert_eq!(life.record().claims.cordon, Some(inherited));
        life.finish_drain(&[]);
        life.poll(&[]);
        life.poll(&[]);
        assert!(life.node.marks.unschedulable, "the repair goes on");
        assert_eq!(life.node.record, None);
    }
    let mut life = Life::new();
    life.node.marks.unschedulable = true;
    life.node.other_record = Some(r#"{"version":1,"claims":{"cordon":"ours"}}"#.into());
    let event = life.event("e1", "Reboot", "Scheduled", Some(900));
    life.poll(&[&event]);
    life.node.other_record = None;
    life.finish_drain(&[]);
    life.poll(&[]);
    life.poll(&[]);
    assert!(!life.node.marks.unschedulable, "the repair has let go, and the cordon was never foreign");
}

// O-03
#[test]
fn a_cordon_that_comes_after_ours_is_gone_is_not_touched() {
    let mut life = Life::new();
    let event = life.event("e1", "Reboot", "Scheduled", Some(900));
    life.poll(&[&event]);
    life.poll(&[]);
    life.poll(&[]);
    let writes = life.writes;
    life.node.marks.unschedulable = true;
    for _ in 0..100 {
        life.poll(&[]);
    }
    assert_eq!(life.writes, writes);
}

// O-07
#[test]
fn a_cordon_taken_away_during_the_drain_is_put_back_three_times_and_after_it_only_reported() {
    let mut life = Life::new();
    let event = life.event("e1", "Reboot", "Scheduled", Some(900));
    life.poll(&[&event]);
    for restored in 1..=4 {
        life.node.marks.unschedulable = false;
        life.node.marks.cordon_manager = Some("kubectl-uncordon".into());
        assert!(life.poll(&[&event]).drain.is_some(), "the drain goes on");
        assert_eq!(life.node.marks.unschedulable, restored <= 3);
    }
    life.poll(&[&event]);
    assert_eq!(life.cordon_writes, [true, true, true, true]);
    assert_eq!(life.reasons().iter().filter(|reason| **reason == "NodeUncordoned").count(), 1);
    let mut life = Life::new();
    life.poll(&[&event]);
    life.finish_drain(&[]);
    life.node.marks.unschedulable = false;
    life.poll(&[&event]);
    life.poll(&[&event]);
    assert!(!life.node.marks.unschedulable);
    assert_eq!(life.reasons().iter().filter(|reason| **reason == "NodeUncordoned").count(), 1);
}

#[test]
fn a_cordon_that_a_person_sets_after_having_taken_ours_away_is_theirs() {
    let mut life = Life::new();
    let event = life.event("e1", "Reboot", "Scheduled", Some(900));
    life.poll(&[&event]);
    life.finish_drain(&[]);
    life.node.marks.unschedulable = false;
    life.poll(&[&event]);
    life.node.marks.unschedulable = true;
    life.poll(&[&event]);
    life.poll(&[]);
    life.poll(&[]);
    assert_eq!((life.node.marks.unschedulable, life.node.record.clone()), (true, None));
}

#[test]
fn a_drain_goes_on_without_a_cordon_that_is_taken_away_again_and_again_but_not_for_new_pods() {
    let mut life = Life::new();
    let event = life.event("e1", "Reboot", "Scheduled", Some(900));
    life.poll(&[&event]);
    for _ in 0..3 {
        life.node.marks.unschedulable = false;
        assert_eq!(life.poll(&[&event]).drain.unwrap().order.uncordoned_at, None);
    }
    life.node.marks.unschedulable = false;
    let plan = life.poll(&[&event]);
    assert!(plan.drain.unwrap().order.uncordoned_at.is_some());
    // Another drain starts anew.
    life.finish_drain(&[]);
    let preempt = life.event("e2", "Preempt", "Scheduled", Some(30));
    let plan = life.poll(&[&event, &preempt]);
    assert_eq!(plan.drain.unwrap().order.uncordoned_at, None);
    assert!(life.node.marks.unschedulable);
}

#[test]
fn our_cordon_stays_ours_when_the_record_of_it_is_taken_away() {
    let mut life = Life::new();
    let event = life.event("e1", "Reboot", "Scheduled", Some(900));
    life.poll(&[&event]);
    life.node.marks.cordon_manager = Some(FIELD_MANAGER.into());
    life.node.record = None;
    life.poll(&[&event]);
    life.finish_drain(&[]);
    life.poll(&[]);
    life.poll(&[]);
    assert!(!life.node.marks.unschedulable);
}

#[test]
fn a_cordon_that_someone_has_set_in_place_of_ours_stays() {
    let mut life = Life::new();
    let event = life.event("e1", "Reboot", "Scheduled", Some(900));
    life.poll(&[&event]);
    life.finish_drain(&[]);
    life.node.held = true;
    life.poll(&[&event]);
    // Uncordoned and cordoned anew by hand, while the hold keeps the agent from saying anything about it.
    life.node.marks.cordon_manager = Some("kubectl-cordon".into());
    life.node.held = false;
    life.poll(&[]);
    life.poll(&[]);
    assert!(life.node.marks.unschedulable, "it was not ours to take away");
    assert_eq!(life.node.record, None);
}

#[test]
fn our_cordon_is_ours_whatever_the_other_role_says_about_one_that_is_not_there() {
    for other in [r#"{"version":1,"claims":{"cordon":"foreign"}}"#, "?"] {
        let mut life = Life::new();
        life.node.other_record = Some(other.into());
        let event = life.event("e1", "Reboot", "Scheduled", Some(900));
        life.poll(&[&event]);
        life.finish_drain(&[]);
        life.node.other_record = None;
        life.poll(&[]);
        life.poll(&[]);
        assert!(!life.node.marks.unschedulable, "{other}");
    }
}

#[test]
fn an_event_that_joins_a_drain_after_the_cordon_was_given_up_cordons_again() {
    let mut life = Life::new();
    let event = life.event("e1", "Reboot", "Scheduled", Some(900));
    life.poll(&[&event]);
    for _ in 0..4 {
        life.node.marks.unschedulable = false;
        life.poll(&[&event]);
    }
    assert!(!life.node.marks.unschedulable);
    life.pass(5);
    let preempt = life.event("e2", "Preempt", "Scheduled", Some(30));
    let plan = life.poll(&[&event, &preempt]);
    assert!(life.node.marks.unschedulable);
    assert_eq!(plan.drain.unwrap().order.uncordoned_at, None);
}

#[test]
fn a_cordon_that_the_repairer_has_set_goes_with_the_last_of_the_two_roles() {
    let mut life = Life::new();
    life.node.marks.unschedulable = true;
    life.node.marks.cordon_manager = Some(REPAIRER_FIELD_MANAGER.into());
    life.node.other_record = Some(r#"{"version":1,"claims":{"cordon":"ours"}}"#.into());
    let event = life.event("e1", "Reboot", "Scheduled", Some(900));
    life.poll(&[&event]);
    life.node.other_record = None;
    life.all_over();
    assert!(!life.node.marks.unschedulable, "nobody else would take it away");
}

#[test]
fn a_cordon_that_the_other_role_puts_back_is_ours_again() {
    let mut life = Life::new();
    let event = life.event("e1", "Reboot", "Scheduled", Some(900));
    life.poll(&[&event]);
    life.finish_drain(&[]);
    life.node.marks.unschedulable = false;
    life.poll(&[&event]);
    // A repair begins, and needs the cordon for itself.
    life.node.marks.unschedulable = true;
    life.node.marks.cordon_manager = Some(REPAIRER_FIELD_MANAGER.into());
    life.node.other_record = Some(r#"{"version":1,"claims":{"cordon":"ours"}}"#.into());
    life.poll(&[&event]);
    // It ends first, and leaves the cordon to us.
    life.node.other_record = None;
    life.all_over();
    assert!(!life.node.marks.unschedulable);
}

#[test]
fn an_event_that_only_cordons_cordons_again_what_was_uncordoned_before_it_came() {
    let rules = "events: [{name: f, match: {type: Freeze}, action: cordon}, {name: r, action: drain}]\n";
    let mut life = Life::with(policy(rules));
    let event = life.event("e1", "Reboot", "Scheduled", Some(900));
    life.poll(&[&event]);
    life.finish_drain(&[]);
    life.node.marks.unschedulable = false;
    life.poll(&[&event]);
    life.pass(5);
    let freeze = life.event("f", "Freeze", "Scheduled", Some(900));
    life.poll(&[&event, &freeze]);
    assert!(life.node.marks.unschedulable);
    life.all_over();
    assert_eq!((life.node.marks.unschedulable, life.node.record.clone()), (false, None));
}

// O-07: each time there is a message, also in the drain of another event.
#[test]
fn every_cordon_that_is_put_back_is_told() {
    let mut life = Life::new();
    let mut listed = Vec::new();
    for id in ["e1", "e2"] {
        let event = life.event(id, "Reboot", "Scheduled", Some(900));
        listed.push(event);
        let listed: Vec<&str> = listed.iter().map(String::as_str).collect();
        life.poll(&listed);
        for _ in 0..3 {
            life.node.marks.unschedulable = false;
            life.poll(&listed);
            assert!(life.node.marks.unschedulable);
        }
        life.finish_drain(&[]);
    }
    let restored = life.told.iter().filter(|(key, _)| key.contains("/restored-")).count();
    assert_eq!(restored, 6);
}

#[test]
fn a_policy_that_only_cordons_does_not_quarrel_about_the_cordon() {
    let mut life = Life::with(policy("events: [{name: f, action: cordon}]\n"));
    let event = life.event("e1", "Freeze", "Scheduled", Some(900));
    life.poll(&[&event]);
    life.node.marks.unschedulable = false;
    life.poll(&[&event]);
    life.poll(&[&event]);
    assert_eq!(life.cordon_writes, [true]);
    assert_eq!(life.reasons().iter().filter(|reason| **reason == "NodeUncordoned").count(), 1);
}

#[test]
fn a_cordon_that_the_other_role_puts_back_while_the_node_is_not_ready_is_ours_again() {
    let mut life = Life::new();
    let event = life.event("e1", "Reboot", "Scheduled", Some(900));
    life.poll(&[&event]);
    life.finish_drain(&[]);
    life.node.marks.unschedulable = false;
    life.poll(&[&event]);
    life.node.ready = false;
    life.all_over();
    life.node.marks.unschedulable = true;
    life.node.marks.cordon_manager = Some(REPAIRER_FIELD_MANAGER.into());
    life.node.other_record = Some(r#"{"version":1,"claims":{"cordon":"ours"}}"#.into());
    life.settle();
    life.node.other_record = None;
    life.node.ready = true;
    assert_eq!(life.settle().stage, Stage::Idle);
    assert!(!life.node.marks.unschedulable);
}

#[test]
fn a_cordon_that_is_taken_away_and_set_again_while_the_node_is_not_ready_is_theirs() {
    let mut life = Life::new();
    let event = life.event("e1", "Reboot", "Scheduled", Some(900));
    life.poll(&[&event]);
    life.node.ready = false;
    life.all_over();
    // Nobody says who does it.
    life.node.marks.cordon_manager = None;
    life.node.marks.unschedulable = false;
    life.settle();
    life.node.marks.unschedulable = true;
    life.settle();
    life.node.ready = true;
    assert_eq!(life.settle().stage, Stage::Idle);
    assert!(life.node.marks.unschedulable);
}
