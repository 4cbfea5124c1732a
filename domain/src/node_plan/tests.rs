use super::*;
use crate::drain::pod::PodName;
use crate::policy::{AtDeadline, Policy, file};
use crate::scheduled_event::decode;

const VM: &str = "aks-np1-12345678-vmss_24";

/// One agent and its node, without I/O: what a plan writes is applied at once.
struct Life {
    vm: VmName,
    sightings: Sightings,
    node: NodeView,
    policies: PolicySet,
    draining: bool,
    blocked: Vec<(PodName, String)>,
    finished: Option<FinishedDrain>,
    slot_held: bool,
    marks_refused: bool,
    topics: BTreeSet<Topic>,
    delivered: BTreeSet<String>,
    approved: BTreeMap<EventId, Timestamp>,
    now: Now,
    cordon_writes: Vec<bool>,
    writes: usize,
    told: Vec<(String, String)>,
}

impl Life {
    fn new() -> Self {
        Self::with(Policy::built_in().unwrap())
    }

    fn with(policy: Policy) -> Self {
        Self {
            vm: VmName::new(VM),
            sightings: Sightings::default(),
            node: NodeView {
                name: "aks-np1-12345678-vmss00000o".into(),
                ready: true,
                boot_id: Some("boot-1".into()),
                ..NodeView::default()
            },
            policies: PolicySet::new(vec![policy]).unwrap(),
            draining: false,
            blocked: Vec::new(),
            finished: None,
            slot_held: false,
            marks_refused: false,
            topics: BTreeSet::new(),
            delivered: BTreeSet::new(),
            approved: BTreeMap::new(),
            now: Now { wall: "2026-04-11T22:00:00Z".parse().unwrap(), monotonic: Monotonic::default() },
            cordon_writes: Vec::new(),
            writes: 0,
            told: Vec::new(),
        }
    }

    /// A poll one second later that finds these events.
    fn poll(&mut self, events: &[&str]) -> Plan {
        self.pass(1);
        let body = format!(r#"{{"DocumentIncarnation":1,"Events":[{}]}}"#, events.join(","));
        self.sightings.see(decode(body.as_bytes()).unwrap(), &self.vm);
        self.settle()
    }

    fn pass(&mut self, seconds: u64) {
        self.now = self.now.advanced(Duration::from_secs(seconds));
    }

    fn plan(&self) -> Plan {
        plan(&Situation {
            vm: &self.vm,
            sightings: &self.sightings,
            node: &self.node,
            policies: &self.policies,
            draining: self.draining,
            blocked: &self.blocked,
            finished: self.finished.as_ref(),
            slot_held: self.slot_held,
            marks_refused: self.marks_refused,
            topics: &self.topics,
            told: &self.delivered,
            approved: &self.approved,
            now: self.now,
        })
    }

    /// Plans and applies what is planned until nothing is left to write.
    fn settle(&mut self) -> Plan {
        for _ in 0..5 {
            let plan = self.plan();
            self.tell(&plan.announcements);
            let Some(write) = plan.write.clone() else {
                self.finished = None;
                self.draining = plan.drain.is_some();
                return plan;
            };
            self.writes += 1;
            self.finished = None;
            self.node.record = write.record;
            if let Some(unschedulable) = write.marks.unschedulable {
                self.cordon_writes.push(unschedulable);
                self.node.marks.cordon_manager = unschedulable.then(|| FIELD_MANAGER.to_owned());
            }
            self.node.marks = self.node.marks.clone().changed(&write.marks);
            self.tell(&write.announcements);
        }
        panic!("the plan wants to write for ever: {:?}", self.plan());
    }

    fn tell(&mut self, announcements: &[Announcement]) {
        for Announcement { key, reason, .. } in announcements {
            let told = (key.clone(), reason.clone());
            if !self.told.contains(&told) {
                self.told.push(told);
            }
        }
    }

    fn reasons(&self) -> Vec<&str> {
        self.told.iter().map(|(_, reason)| reason.as_str()).collect()
    }

    fn finish_drain(&mut self, left: &[&str]) -> Plan {
        let result = if left.is_empty() { DrainResult::Drained } else { DrainResult::Incomplete };
        let DrainOrder { events, order } = self.plan().drain.expect("a drain is running");
        let started_at = order.started_at;
        let left = left
            .iter()
            .map(|name| (PodName { namespace: "prod".into(), name: (*name).into() }, "blocked".into()))
            .collect();
        self.finished = Some(FinishedDrain {
            started_at,
            events,
            outcome: Outcome { result, left, evicted: 3, deleted: 0 },
            at: self.now.wall,
        });
        self.draining = false;
        self.settle()
    }

    fn record(&self) -> Record {
        Record::from_annotation(self.node.record.as_deref().expect("the node has a record")).unwrap()
    }

    /// Another life of the agent: only the node is as it was, and the Events that were told have expired.
    fn restart_much_later(&mut self) {
        self.restart();
        self.told.clear();
    }

    /// Another life of the agent: only the node is as it was.
    fn restart(&mut self) {
        self.sightings = Sightings::default();
        self.draining = false;
        self.finished = None;
    }

    fn event(&self, id: &str, event_type: &str, status: &str, in_seconds: Option<i64>) -> String {
        self.event_on(id, event_type, status, &[VM], in_seconds)
    }

    fn event_on(&self, id: &str, event_type: &str, status: &str, vms: &[&str], in_seconds: Option<i64>) -> String {
        let not_before = in_seconds.map_or(String::new(), |seconds| {
            let at = self.now.wall + jiff::SignedDuration::from_secs(seconds);
            at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
        });
        format!(
            r#"{{"EventId":"{id}","EventStatus":"{status}","EventType":"{event_type}","ResourceType":"VirtualMachine","Resources":["{}"],"NotBefore":"{not_before}","Description":"","EventSource":"Platform","DurationInSeconds":-1}}"#,
            vms.join(r#"",""#)
        )
    }
}

fn deadline_in(life: &Life, plan: &Plan) -> u64 {
    life.now.until(plan.drain.as_ref().expect("a drain is ordered").order.deadline).as_secs()
}

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

// A-06
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

// A-05
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

// A-08
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

// A-09
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

// A-09
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

// D-05 and A-14, variant A
#[test]
fn an_event_without_notice_leaves_thirty_seconds_from_the_first_poll_that_lacks_it() {
    for (status, in_seconds) in [("Scheduled", Some(-5)), ("Scheduled", None), ("Started", None)] {
        let mut life = Life::new();
        let event = life.event("e1", "Preempt", status, in_seconds);
        let plan = life.poll(&[&event]);
        assert_eq!(deadline_in(&life, &plan), 30, "{status} {in_seconds:?}");
        life.pass(9);
        life.restart();
        let plan = life.poll(&[&event]);
        assert_eq!(deadline_in(&life, &plan), 20, "a restart gives no more time");
    }
    let mut life = Life::new();
    let event = life.event("e1", "Reboot", "Scheduled", Some(900));
    life.poll(&[&event]);
    let started = life.event("e1", "Reboot", "Started", None);
    let plan = life.poll(&[&started]);
    assert_eq!(deadline_in(&life, &plan), 30, "it started before its time");
}

#[test]
fn a_deadline_that_passes_is_not_extended() {
    let mut life = Life::new();
    let event = life.event("e1", "Reboot", "Scheduled", Some(60));
    life.poll(&[&event]);
    life.pass(60);
    let plan = life.poll(&[&event]);
    assert_eq!(deadline_in(&life, &plan), 0);
    assert_eq!(life.finish_drain(&["db-1"]).stage, Stage::Incomplete);
    let started = life.event("e1", "Reboot", "Started", None);
    let plan = life.poll(&[&started]);
    assert_eq!((plan.stage, plan.drain), (Stage::Incomplete, None));
    assert_eq!(life.record().drain.unwrap().left, ["prod/db-1"]);
}

#[test]
fn pods_that_were_left_are_tried_again_when_the_event_moves_away() {
    let mut life = Life::new();
    let event = life.event("e1", "Reboot", "Scheduled", Some(60));
    life.poll(&[&event]);
    life.pass(60);
    life.finish_drain(&["db-1"]);
    let moved = life.event("e1", "Reboot", "Scheduled", Some(601));
    let plan = life.poll(&[&moved]);
    assert_eq!(deadline_in(&life, &plan), 600);
}

#[test]
fn a_drain_that_its_own_timeout_ended_is_not_tried_again() {
    let text = "apiVersion: remediator.dev/v1alpha1\nkind: Policy\nmetadata: {name: p}\nevents: [{name: r, action: drain}]\ndrain: {profiles: {default: {timeout: 20s}}}\n";
    let mut life = Life::with(file::parse("p", text).unwrap());
    let event = life.event("e1", "Reboot", "Scheduled", Some(600));
    let plan = life.poll(&[&event]);
    assert!((19..=20).contains(&deadline_in(&life, &plan)));
    life.pass(20);
    life.finish_drain(&["db-1"]);
    assert_eq!(life.poll(&[&event]).drain, None);
}

#[test]
fn a_tighter_event_shortens_a_running_drain_and_says_how_it_is_done() {
    let mut life = Life::new();
    let reboot = life.event("e1", "Reboot", "Scheduled", Some(900));
    assert_eq!(life.poll(&[&reboot]).drain.unwrap().order.profile.at_deadline, AtDeadline::Leave);
    let preempt = life.event("e2", "Preempt", "Scheduled", Some(31));
    let plan = life.poll(&[&reboot, &preempt]);
    assert_eq!(deadline_in(&life, &plan), 30);
    let drain = plan.drain.unwrap();
    assert_eq!(drain.order.profile.at_deadline, AtDeadline::Delete);
    assert_eq!(drain.events, [EventId::new("e1"), EventId::new("e2")]);
    assert_eq!(life.cordon_writes, [true]);
}

#[test]
fn a_harder_event_after_a_drain_drains_again() {
    let mut life = Life::new();
    let reboot = life.event("e1", "Reboot", "Scheduled", Some(60));
    life.poll(&[&reboot]);
    life.pass(60);
    life.finish_drain(&["db-1"]);
    let preempt = life.event("e2", "Preempt", "Scheduled", Some(30));
    let plan = life.poll(&[&reboot, &preempt]);
    assert_eq!(plan.drain.unwrap().events, [EventId::new("e2")]);
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

// D-07
#[test]
fn a_new_life_goes_on_with_the_drain_of_the_old_one() {
    let mut life = Life::new();
    let event = life.event("e1", "Reboot", "Scheduled", Some(900));
    let before = life.poll(&[&event]).drain.unwrap();
    life.pass(30);
    life.restart();
    let after = life.poll(&[&event]).drain.unwrap();
    assert_eq!(before.order, after.order, "the start and the deadline are the same");
    assert_eq!(life.cordon_writes, [true]);
    assert_eq!(life.reasons(), ["RebootScheduled", "NodeCordonEnd", "NodeDrainStart"]);
}

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

fn policy(rest: &str) -> Policy {
    let head = "apiVersion: remediator.dev/v1alpha1\nkind: Policy\nmetadata: {name: p}\n";
    file::parse("p", &format!("{head}{rest}")).unwrap()
}

#[test]
fn a_later_event_is_drained_for_after_the_deadline_of_an_earlier_one() {
    let mut life = Life::new();
    let reboot = life.event("e1", "Reboot", "Scheduled", Some(31));
    let preempt = life.event("e2", "Preempt", "Scheduled", Some(61));
    let plan = life.poll(&[&reboot, &preempt]);
    assert_eq!((deadline_in(&life, &plan), plan.drain.unwrap().order.profile.at_deadline), (30, AtDeadline::Leave));
    life.pass(30);
    let plan = life.finish_drain(&["db-1"]);
    assert_eq!((deadline_in(&life, &plan), plan.drain.unwrap().order.profile.at_deadline), (30, AtDeadline::Delete));
}

#[test]
fn of_events_that_come_at_about_the_same_time_the_hardest_says_how_the_drain_is_done() {
    for (first, second) in [((None, None), "Started"), ((Some(30), Some(31)), "Scheduled")]
        .map(|(at, status)| ((at.0, status), (at.1, status)))
    {
        let mut life = Life::new();
        let reboot = life.event("e1", "Reboot", first.1, first.0);
        let preempt = life.event("e2", "Preempt", second.1, second.0);
        let plan = life.poll(&[&reboot, &preempt]);
        assert_eq!(plan.drain.unwrap().order.profile.at_deadline, AtDeadline::Delete);
    }
}

#[test]
fn an_event_whose_time_came_while_nobody_could_act_still_gets_thirty_seconds() {
    // The agent was away.
    let mut life = Life::new();
    let event = life.event("e1", "Terminate", "Scheduled", Some(7200));
    assert!(matches!(life.poll(&[&event]).stage, Stage::Waiting(_)));
    life.restart();
    life.pass(7300);
    let plan = life.poll(&[&event]);
    assert_eq!(deadline_in(&life, &plan), 30);
    // A person held it off.
    for (status, in_seconds) in [("Scheduled", Some(60)), ("Started", None)] {
        let mut life = Life::new();
        life.node.held = true;
        let event = life.event("e1", "Terminate", status, in_seconds);
        life.poll(&[&event]);
        life.pass(100);
        life.node.held = false;
        let plan = life.poll(&[&event]);
        assert_eq!(deadline_in(&life, &plan), 30, "{status}");
    }
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
fn a_drain_whose_events_are_gone_is_not_continued_for_another_event() {
    let text = "events: [{name: f, match: {type: Freeze}, action: cordon}, {name: r, action: drain}]\n";
    let mut life = Life::with(policy(text));
    let freeze = life.event("f", "Freeze", "Scheduled", Some(20_000));
    let reboot = life.event("e1", "Reboot", "Scheduled", Some(900));
    life.poll(&[&freeze, &reboot]);
    life.poll(&[&freeze]);
    let plan = life.poll(&[&freeze]);
    assert_eq!((plan.stage, plan.drain), (Stage::Cordoned, None));
    life.pass(7200);
    let redeploy = life.event("e3", "Redeploy", "Scheduled", Some(600));
    let plan = life.poll(&[&freeze, &redeploy]);
    let began = plan.drain.unwrap().order.started_at;
    assert!(life.now.since(began) < Duration::from_secs(2), "it began at {began}");
}

#[test]
fn a_timeout_counts_from_when_its_event_joined_the_drain() {
    let text = "events: [{name: p, match: {type: Preempt}, action: drain, profile: urgent}, {name: r, action: drain}]
drain: {profiles: {urgent: {timeout: 20s, atDeadline: delete}}}\n";
    let mut life = Life::with(policy(text));
    let reboot = life.event("e1", "Reboot", "Scheduled", Some(3600));
    life.poll(&[&reboot]);
    life.pass(600);
    let preempt = life.event("e2", "Preempt", "Scheduled", Some(30));
    let plan = life.poll(&[&reboot, &preempt]);
    assert!((19..=20).contains(&deadline_in(&life, &plan)), "{}", deadline_in(&life, &plan));
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
fn an_event_that_first_cordons_and_drains_when_it_starts_late_gets_its_thirty_seconds() {
    let text = "events: [{name: s, match: {status: Started}, action: drain}, {name: c, action: cordon}]\n";
    let mut life = Life::with(policy(text));
    let scheduled = life.event("e1", "Reboot", "Scheduled", Some(60));
    assert_eq!(life.poll(&[&scheduled]).stage, Stage::Cordoned);
    life.pass(120);
    let started = life.event("e1", "Reboot", "Started", None);
    let plan = life.poll(&[&started]);
    assert_eq!(deadline_in(&life, &plan), 30);
}

#[test]
fn an_event_that_joined_late_is_drained_for_when_the_earlier_event_has_had_its_time() {
    let text = "events: [{name: p, match: {type: Redeploy}, action: drain, profile: long}, {name: r, action: drain}]
drain: {profiles: {long: {timeout: 15m}}}\n";
    let mut life = Life::with(policy(text));
    let reboot = life.event("e1", "Reboot", "Scheduled", Some(1201));
    life.poll(&[&reboot]);
    life.pass(600);
    let redeploy = life.event("e2", "Redeploy", "Scheduled", Some(7200));
    life.poll(&[&reboot, &redeploy]);
    life.pass(600);
    let plan = life.finish_drain(&["db-1"]);
    assert_eq!(deadline_in(&life, &plan), 900, "a drain of its own has the whole timeout");
    assert_eq!(plan.drain.unwrap().events, [EventId::new("e2")]);
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
fn an_event_that_has_started_is_acted_on_at_once_whatever_its_not_before() {
    let mut life = Life::new();
    let event = life.event("e1", "Redeploy", "Started", Some(6 * 24 * 3600));
    let plan = life.poll(&[&event]);
    assert_eq!(deadline_in(&life, &plan), 30);
}

#[test]
fn an_observing_policy_tells_and_writes_nothing() {
    let text = include_str!("../../../policies/observe-only.yaml");
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
        Stage::Draining(at),
        Stage::Drained,
        Stage::Incomplete,
        Stage::AwaitingReady,
        Stage::Releasing,
        Stage::RecordUnreadable(RecordError::Newer(2)),
    ];
    assert_eq!(stages.map(|stage| stage.word()), Stage::WORDS);
}

proptest::proptest! {
    /// Whatever comes in whatever order: a plan settles, our cordon goes with the last event, a foreign one stays.
    #[test]
    fn nothing_of_ours_stays_and_nothing_foreign_goes(
        foreign: bool,
        steps in proptest::collection::vec((0_u8..6, 0_usize..3), 1..60),
    ) {
        let mut life = Life::new();
        life.node.marks.unschedulable = foreign;
        let types = ["Reboot", "Freeze", "Preempt"];
        let mut listed: BTreeMap<usize, String> = BTreeMap::new();
        for (step, which) in steps {
            match step {
                0 => drop(listed.insert(which, life.event(&format!("e{which}"), types[which], "Scheduled", Some(100)))),
                1 => drop(listed.insert(which, life.event(&format!("e{which}"), types[which], "Started", None))),
                2 => drop(listed.remove(&which)),
                3 => life.restart(),
                4 => life.node.ready = !life.node.ready,
                _ if life.draining => drop(life.finish_drain(if which == 0 { &["db-1"] } else { &[] })),
                _ => life.pass(20),
            }
            let events: Vec<&str> = listed.values().map(String::as_str).collect();
            let plan = life.poll(&events);
            if plan.drain.is_some() {
                proptest::prop_assert!(life.node.marks.unschedulable && life.node.record.is_some());
            }
        }
        life.node.ready = true;
        life.poll(&[]);
        life.poll(&[]);
        proptest::prop_assert_eq!(life.node.marks.unschedulable, foreign);
        proptest::prop_assert_eq!(life.node.record, None);
    }
}
