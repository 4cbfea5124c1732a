use super::life::*;
use super::*;

const REMOVES: &str = "ToBeDeletedByClusterAutoscaler";

fn begins_removal(life: &mut Life, cordons: bool) {
    life.node.marks.taints.push(taint(REMOVES, "1700000000", "NoSchedule"));
    if cordons && !life.node.marks.unschedulable {
        life.node.marks.unschedulable = true;
        life.node.marks.cordon_manager = Some("cluster-autoscaler".into());
    }
}

fn gives_up(life: &mut Life, uncordons: bool) {
    life.node.marks.taints.retain(|taint| taint.key != REMOVES);
    if uncordons {
        life.node.marks.unschedulable = false;
        life.node.marks.cordon_manager = None;
    }
}

// O-08: pods are evicted, the cordon is recorded as not ours, the taint is untouched.
#[test]
fn a_node_that_the_autoscaler_is_removing_is_drained_and_left_as_it_is() {
    let mut life = Life::new();
    begins_removal(&mut life, true);
    let before = life.node.marks.clone();
    let event = life.event("e1", "Redeploy", "Scheduled", Some(600));
    assert!(life.poll(&[&event]).drain.is_some());
    assert_eq!(life.record().claims.cordon, Some(Claim::Foreign));
    life.finish_drain(&[]);
    assert_eq!((life.all_over().stage, life.node.record.clone()), (Stage::Idle, None));
    assert_eq!(life.node.marks, before);
    assert_eq!(life.cordon_writes, Vec::<bool>::new());
}

// O-08, variant: cordoned again while the event is listed, during the drain or after it, and given back at its end.
#[test]
fn a_removal_that_the_autoscaler_gives_up_leaves_a_cordon_of_ours() {
    for drained in [false, true] {
        let mut life = Life::new();
        begins_removal(&mut life, true);
        let event = life.event("e1", "Redeploy", "Scheduled", Some(600));
        life.poll(&[&event]);
        if drained {
            life.finish_drain(&[]);
        }
        life.pass(120);
        gives_up(&mut life, true);
        let plan = life.poll(&[&event]);
        assert_eq!(plan.drain.is_some(), !drained);
        assert!(life.node.marks.unschedulable, "drained: {drained}");
        assert_eq!(life.record().claims.cordon, Some(Claim::Ours));
        assert_eq!(life.record().cordon_restored, 0, "it is nobody's wish that the node take pods");
        life.poll(&[]);
        life.poll(&[]);
        assert_eq!((life.node.marks.unschedulable, life.node.record.clone()), (false, None));
    }
}

// O-08: as often as the autoscaler does it, and also when its two changes arrive one by one.
#[test]
fn the_autoscaler_never_uses_up_the_patience_with_those_who_uncordon() {
    let mut life = Life::new();
    let event = life.event("e1", "Redeploy", "Scheduled", Some(900));
    life.poll(&[&event]);
    for _ in 0..6 {
        begins_removal(&mut life, true);
        life.poll(&[&event]);
        gives_up(&mut life, true);
        life.poll(&[&event]);
        assert!(life.node.marks.unschedulable);
    }
    life.finish_drain(&[]);
    begins_removal(&mut life, true);
    life.poll(&[&event]);
    life.node.marks.unschedulable = false;
    life.poll(&[&event]);
    assert!(life.record().uncordoned_at.is_some());
    gives_up(&mut life, true);
    life.poll(&[&event]);
    assert!(life.node.marks.unschedulable, "the taint went after the cordon");
    assert_eq!(life.record().uncordoned_at, None, "the cordon is not given up any more");
    life.all_over();
    assert_eq!((life.node.marks.unschedulable, life.node.record.clone()), (false, None));
}

// O-08: the event ends while the autoscaler is removing the node; whatever comes of that, nothing of ours stays.
#[test]
fn a_node_that_is_being_removed_is_given_back_only_when_the_removal_is_given_up() {
    for (cordons, uncordons) in [(true, true), (false, false)] {
        let mut life = Life::new();
        let event = life.event("e1", "Redeploy", "Scheduled", Some(600));
        life.poll(&[&event]);
        begins_removal(&mut life, cordons);
        life.poll(&[&event]);
        life.finish_drain(&[]);
        assert_eq!(life.all_over().stage, Stage::AwaitingReady);
        assert!(life.node.marks.unschedulable, "a node that is being deleted is not uncordoned");
        gives_up(&mut life, uncordons);
        assert_eq!(life.settle().stage, Stage::Idle);
        assert_eq!((life.node.marks.clone(), life.node.record.clone()), (Marks::default(), None));
    }
}
