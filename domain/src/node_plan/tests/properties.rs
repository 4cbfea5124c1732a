//! Whatever happens in whatever order, what must always hold does.

use proptest::prelude::*;

use super::life::*;
use super::*;
use crate::marks::{AUTOSCALER_TAINT_KEY, DEFAULT_TAINT_KEY, NodeTaint, YES};
use crate::policy::Policy;
use crate::record::MOST_BYTES;

/// Policies that together use everything that a plan knows.
const POLICIES: [&str; 4] = [
    "events:
  - {name: freeze, match: {type: Freeze}, action: cordon, approve: {Platform: never, User: immediately}}
  - {name: end, match: {type: [Preempt, Terminate]}, action: drain, profile: last-chance}
  - {name: rest, action: drain, approve: whenDrained, start: {atMost: 10m, atLeast: 15s, cordonAtOnce: true}}
drain:
  taint: {effect: NoSchedule, value: maintenance}
  excludeFromLoadBalancers: true
  disableScaleDown: true
  nodesAtOnce: 2
  profiles:
    default: {timeout: 5m, margin: 10s}
    last-chance: {atDeadline: delete, bare: leave, emptyDir: leave, skip: {labels: {keep: \"true\"}}}
",
    "events:
  - {name: freeze, match: {type: Freeze}, action: none, approve: immediately}
  - {name: started, match: {status: Started}, action: drain}
  - {name: rest, action: cordon, approve: immediately}
drain: {taint: {key: example.com/drained, effect: NoExecute}, excludeFromLoadBalancers: true}
",
    "events:
  - {name: rest, action: drain, approve: {User: whenDrained}, start: {atMost: 2m}}
drain: {taint: {}, disableScaleDown: true, nodesAtOnce: 1}
",
    "events: [{name: rest, action: none}]\n",
];

const TYPES: [&str; 6] = ["Freeze", "Reboot", "Redeploy", "Preempt", "Terminate", "SpotRebalanceRecommendation"];
const STATUSES: [&str; 3] = ["Scheduled", "Started", "Postponed"];
const NOTICES: [Option<i64>; 7] = [None, Some(-60), Some(5), Some(31), Some(300), Some(900), Some(86_400)];
const OTHER_VM: &str = "aks-np1-12345678-vmss_7";

/// An event that a document lists: which one, and of what kind.
#[derive(Clone, Debug)]
struct Listed {
    number: usize,
    event_type: usize,
    status: usize,
    notice: usize,
    own: bool,
    other: bool,
    user: bool,
}

impl Listed {
    fn text(&self, life: &Life) -> String {
        let vms: Vec<&str> = [(self.own, VM), (self.other, OTHER_VM)].iter().filter(|vm| vm.0).map(|vm| vm.1).collect();
        let id = format!("C7061BAC-AFDC-4513-B24B-AA5F13A1612{}", self.number);
        let event = life.event_on(&id, TYPES[self.event_type], STATUSES[self.status], &vms, NOTICES[self.notice]);
        let event = event.replace(r#""Description":"""#, r#""Description":"Virtual machine is going to be serviced.""#);
        if self.user { by_user(&event) } else { event }
    }
}

#[derive(Clone, Debug)]
enum Turn {
    Document(Vec<Listed>),
    SameDocument(u64),
    FailedPoll(u64),
    SetClock(i64),
    Ready(bool),
    Hold(bool),
    PersonCordons(bool),
    PersonMarks(usize, bool),
    AutoscalerRemoves(bool),
    AutoscalerGivesUp,
    OtherRole(bool),
    Policy(usize),
    PolicyByName(bool),
    Restart,
    Reboot(u8),
    NewNode,
    DrainEnds(bool),
    Blocked,
    Slot(bool),
    Admission(bool),
    Delivered,
    Approved,
    Conflict,
}

fn listed() -> impl Strategy<Value = Listed> {
    let kind = (0..6_usize, 0..TYPES.len(), prop_oneof![4 => Just(0), 3 => Just(1), 1 => Just(2)], 0..NOTICES.len());
    (kind, prop::bool::weighted(0.85), any::<bool>(), any::<bool>()).prop_map(
        |((number, event_type, status, notice), own, other, user)| Listed {
            number,
            event_type,
            status,
            notice,
            own,
            other,
            user,
        },
    )
}

fn turn() -> impl Strategy<Value = Turn> {
    prop_oneof![
        8 => prop::collection::vec(listed(), 0..4).prop_map(Turn::Document),
        4 => (1..400_u64).prop_map(Turn::SameDocument),
        2 => (1..400_u64).prop_map(Turn::FailedPoll),
        1 => prop_oneof![Just(-3600), Just(-40), Just(40), Just(3600)].prop_map(Turn::SetClock),
        2 => any::<bool>().prop_map(Turn::Ready),
        2 => prop::bool::weighted(0.3).prop_map(Turn::Hold),
        3 => any::<bool>().prop_map(Turn::PersonCordons),
        3 => (0..3_usize, any::<bool>()).prop_map(|(mark, sets)| Turn::PersonMarks(mark, sets)),
        1 => any::<bool>().prop_map(Turn::AutoscalerRemoves),
        1 => Just(Turn::AutoscalerGivesUp),
        3 => any::<bool>().prop_map(Turn::OtherRole),
        1 => (0..=POLICIES.len()).prop_map(Turn::Policy),
        1 => any::<bool>().prop_map(Turn::PolicyByName),
        2 => Just(Turn::Restart),
        1 => (0..3_u8).prop_map(Turn::Reboot),
        1 => Just(Turn::NewNode),
        4 => any::<bool>().prop_map(Turn::DrainEnds),
        1 => Just(Turn::Blocked),
        3 => any::<bool>().prop_map(Turn::Slot),
        1 => any::<bool>().prop_map(Turn::Admission),
        2 => Just(Turn::Delivered),
        1 => Just(Turn::Approved),
        1 => Just(Turn::Conflict),
    ]
}

/// Who has put a mark on the node, as nobody but the test can know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Owner {
    #[default]
    Nobody,
    Role,
    SomebodyElse,
}

/// What a label or annotation of ours says.
fn is_set(text: Option<&String>) -> bool {
    text.is_some()
}

/// Cordon, taint, label and annotation.
fn marks_of(node: &NodeView) -> [bool; 4] {
    let Marks { unschedulable, taints, exclude_from_load_balancers, scale_down_disabled, .. } = &node.marks;
    [
        *unschedulable,
        taints.iter().any(|taint| taint.key == DEFAULT_TAINT_KEY),
        is_set(exclude_from_load_balancers.as_ref()),
        is_set(scale_down_disabled.as_ref()),
    ]
}

fn claimed(claims: &Claims) -> [bool; 4] {
    [
        claims.cordon.is_some(),
        claims.taint.as_ref().is_some_and(|claimed| claimed.taint.key == DEFAULT_TAINT_KEY),
        claims.exclude_from_load_balancers.is_some(),
        claims.scale_down_disabled.is_some(),
    ]
}

fn policy_number(number: usize) -> Policy {
    POLICIES.get(number).map_or_else(|| Policy::built_in().unwrap(), |text| policy(text))
}

/// A life, the other role, and what the agent cannot know.
struct World {
    life: Life,
    other: Option<Claims>,
    truth: [Owner; 4],
    /// What the latest document of this life lists for this machine, by identifier without letter case.
    listed: BTreeMap<String, String>,
    /// How many documents of this life in a row have lacked an event; nothing is known of those never counted.
    absent: BTreeMap<String, u32>,
    document: Vec<String>,
    documents: u32,
    nodes: u32,
}

impl World {
    fn new(policy: usize) -> Self {
        let mut life = Life::with(policy_number(policy));
        life.topics =
            [Topic::Event, Topic::Drain, Topic::Blocked, Topic::Failed, Topic::Released].into_iter().collect();
        life.node.marks.taints = vec![taint("x", "y", "NoSchedule")];
        Self {
            life,
            other: None,
            truth: [Owner::Nobody; 4],
            listed: BTreeMap::new(),
            absent: BTreeMap::new(),
            document: Vec::new(),
            documents: 0,
            nodes: 1,
        }
    }

    fn see(&mut self) {
        let texts: Vec<&str> = self.document.iter().map(String::as_str).collect();
        self.life.see(&texts);
        self.documents += 1;
        let own = self.life.sightings.events_of(&self.life.vm);
        self.listed =
            own.map(|event| (event.id.as_str().to_ascii_lowercase(), event.status.as_str().to_owned())).collect();
        for absent in self.absent.values_mut() {
            *absent += 1;
        }
        for id in self.listed.keys() {
            self.absent.insert(id.clone(), 0);
        }
    }

    fn is_gone(&self, id: &EventId) -> bool {
        let id = id.as_str().to_ascii_lowercase();
        self.documents >= 2 && self.absent.get(&id).is_none_or(|absent| *absent >= 2)
    }

    fn persisted(&self) -> Option<Record> {
        self.life.node.record.as_deref().map(|text| Record::from_annotation(text).unwrap())
    }

    /// Somebody else sets a mark or takes it away.
    fn somebody(&mut self, mark: usize, sets: bool, manager: &str) {
        let there = marks_of(&self.life.node)[mark];
        if sets == there {
            return;
        }
        self.truth[mark] = if sets { Owner::SomebodyElse } else { Owner::Nobody };
        let marks = &mut self.life.node.marks;
        let says = sets.then(|| YES.to_owned());
        match mark {
            0 => (marks.unschedulable, marks.cordon_manager) = (sets, sets.then(|| manager.to_owned())),
            1 if sets => marks.taints.push(taint(DEFAULT_TAINT_KEY, "theirs", "NoSchedule")),
            1 => marks.taints.retain(|taint| taint.key != DEFAULT_TAINT_KEY),
            2 => marks.exclude_from_load_balancers = says,
            _ => marks.scale_down_disabled = says,
        }
    }

    /// The other role needs the node out of use, or does not any more.
    fn other_role(&mut self, needs: bool) -> Result<(), TestCaseError> {
        let own = self.persisted().map(|record| record.claims).unwrap_or_default();
        let before = marks_of(&self.life.node);
        let node = &mut self.life.node;
        match (needs, self.other.take()) {
            (true, None) => {
                let mut claims = Claims::default();
                claims.cordon = Some(Claim::on(before[0], own.cordon));
                let wanted = policy(POLICIES[0]).marking;
                let changes = claims.take(&wanted, &own, &node.marks);
                node.marks = node.marks.clone().changed(&changes);
                if !before[0] {
                    (node.marks.unschedulable, node.marks.cordon_manager) =
                        (true, Some(REPAIRER_FIELD_MANAGER.to_owned()));
                }
                self.other = Some(claims);
            }
            (false, Some(mut claims)) => {
                let changes = claims.give_up(&own, &node.marks);
                node.marks = node.marks.clone().changed(&changes);
                let manager = node.marks.cordon_manager.as_deref();
                let by_role = manager.is_some_and(|manager| manager.starts_with("remediator"));
                if claims.cordon.is_some_and(|claim| claim.is_last(own.cordon)) && by_role {
                    (node.marks.unschedulable, node.marks.cordon_manager) = (false, None);
                }
            }
            (_, claims) => self.other = claims,
        }
        self.note_role_changes(before, claimed(&own))
    }

    /// The other role watches the node too.
    fn other_looks(&mut self) {
        let own = self.persisted().map(|record| record.claims).unwrap_or_default();
        if let Some(claims) = &mut self.other {
            claims.look(&own, &self.life.node.marks);
            claims.cordon = claims.cordon.map(|claim| claim.seen(self.life.node.marks.unschedulable, own.cordon));
        }
        self.life.node.other_record =
            self.other.as_ref().map(|claims| serde_json::json!({"version": 1, "claims": claims}).to_string());
    }

    /// One of the two roles has written the node; `needed` is what the other of them claims.
    fn note_role_changes(&mut self, before: [bool; 4], needed: [bool; 4]) -> Result<(), TestCaseError> {
        for (mark, is_there) in marks_of(&self.life.node).into_iter().enumerate() {
            match (before[mark], is_there) {
                (true, false) => {
                    prop_assert_eq!(self.truth[mark], Owner::Role, "mark {} was somebody else's", mark);
                    prop_assert!(!needed[mark], "mark {} is still needed by the other role", mark);
                    self.truth[mark] = Owner::Nobody;
                }
                (false, true) => self.truth[mark] = Owner::Role,
                _ => {}
            }
        }
        prop_assert_eq!(self.life.node.marks.taints.first(), Some(&taint("x", "y", "NoSchedule")));
        Ok(())
    }

    /// Carries out plans until there is nothing to do, and checks each.
    fn settle(&mut self) -> Result<Plan, TestCaseError> {
        let mut marks_refused = false;
        for _ in 0..8 {
            self.other_looks();
            let plan = self.life.plan_with(marks_refused);
            self.check(&plan)?;
            self.life.write_conditions(&plan.conditions);
            let Some(write) = plan.write.clone() else {
                self.life.finished = None;
                if std::mem::replace(&mut self.life.draining, plan.drain.is_some()) && plan.drain.is_none() {
                    self.life.blocked.clear();
                }
                let again = self.life.plan_with(marks_refused);
                prop_assert_eq!(&again.write, &None, "the same situation, another wish");
                prop_assert!(!again.conditions.any(), "{:?}", again.conditions);
                return Ok(plan);
            };
            marks_refused = self.life.admission_refuses && write.marks.beside_cordon();
            if marks_refused {
                continue;
            }
            let before = marks_of(&self.life.node);
            let cordon = write.marks.unschedulable;
            self.life.apply(write);
            if cordon == Some(false) {
                prop_assert!(!self.life.node.marks.removed_by_autoscaler(), "a node being deleted is not uncordoned");
            }
            let needed = self.other.as_ref().map(claimed).unwrap_or_default();
            self.note_role_changes(before, needed)?;
        }
        prop_assert!(false, "the plan wants to write for ever: {:?}", self.life.plan());
        unreachable!()
    }

    fn check(&self, plan: &Plan) -> Result<(), TestCaseError> {
        let Life { node, now, .. } = &self.life;
        let persisted = self.persisted();
        // 14: every decision has a reason.
        prop_assert!(!plan.stage.to_string().is_empty() && Stage::WORDS.contains(&plan.stage.word()));
        let said = plan.announcements.iter().chain(plan.write.iter().flat_map(|write| &write.announcements));
        for Announcement { key, reason, note, .. } in said {
            prop_assert!(!key.is_empty() && !reason.is_empty() && !note.is_empty());
            prop_assert!(reason.chars().all(|letter| letter.is_ascii_alphanumeric()), "{}", reason);
        }
        if let Some(write) = &plan.write {
            let next = write.record.as_deref().map(|text| Record::from_annotation(text).unwrap());
            let events =
                |record: &Option<Record>| record.as_ref().map(|record| record.events.clone()).unwrap_or_default();
            let (before, after) = (events(&persisted), events(&next));
            // 6: nothing is let go without good documents that lack it.
            for event in before.iter().filter(|event| !after.iter().any(|kept| kept.id == event.id)) {
                prop_assert!(self.is_gone(&event.id) || event.ruling.is_none(), "{} was let go", event.id);
            }
            // 12: nothing is begun for an event that does not name this machine.
            for event in after.iter().filter(|event| !before.iter().any(|known| known.id == event.id)) {
                prop_assert!(self.listed.contains_key(&event.id.as_str().to_ascii_lowercase()), "{}", event.id);
            }
            if let Some(text) = &write.record {
                prop_assert!(text.len() <= MOST_BYTES, "{} bytes: {}", text.len(), text);
                prop_assert!(next.as_ref().is_some_and(|record| record.untold.len() <= MOST_UNTOLD));
            }
            if node.held {
                prop_assert!(!write.marks.any(), "held");
            }
            if write.marks.unschedulable == Some(false) {
                prop_assert!(
                    node.ready && before.iter().all(|event| self.is_gone(&event.id) || event.ruling.is_none())
                );
            }
            // The taint that deletes pods comes after their drain.
            let deletes = |taint: &NodeTaint| taint.effect == "NoExecute";
            if write.marks.taints.iter().flatten().any(deletes) && !node.marks.taints.iter().any(deletes) {
                prop_assert!(after.iter().any(|event| event.drained.is_some()));
            }
        }
        // 5: a drain runs only as the node's record says, on a cordoned node unless someone gave it back for good.
        if let Some(DrainOrder { events, order }) = &plan.drain {
            prop_assert!(!node.held && !events.is_empty());
            let record = persisted.as_ref().expect("a drain without a record");
            prop_assert!(record.drain.as_ref().is_some_and(|drain| drain.finished_at.is_none()));
            prop_assert!(node.marks.unschedulable || self.life.draining || order.uncordoned_at.is_some());
            prop_assert!(order.started_at <= now.wall || self.life.draining || record.drain.is_some());
        }
        // 7, the node's own half.
        for Approval { event, drained } in &plan.approvals {
            prop_assert_eq!(
                self.listed.get(&event.as_str().to_ascii_lowercase()).map(String::as_str),
                Some("Scheduled")
            );
            let recorded = persisted.as_ref().and_then(|record| record.event(event));
            prop_assert!(!node.held && !self.life.approved.contains_key(event));
            prop_assert!(recorded.is_none_or(|recorded| recorded.approved_at.is_none()));
            if drained.is_some() {
                prop_assert!(recorded.is_some_and(|recorded| recorded.drained == Some(DrainResult::Drained)));
                prop_assert!(node.marks.unschedulable);
            }
        }
        Ok(())
    }

    fn take(&mut self, turn: Turn) -> Result<(), TestCaseError> {
        match turn {
            Turn::Document(listed) => {
                self.life.pass(1);
                self.document = listed.iter().map(|event| event.text(&self.life)).collect();
                self.see();
            }
            Turn::SameDocument(seconds) => {
                self.life.pass(seconds);
                self.see();
            }
            Turn::FailedPoll(seconds) => self.life.pass(seconds),
            Turn::SetClock(ahead_by) => self.life.set_clock(ahead_by),
            Turn::Ready(ready) => self.life.node.ready = ready,
            Turn::Hold(held) => self.life.node.held = held,
            Turn::PersonCordons(sets) => self.somebody(0, sets, "kubectl-cordon"),
            Turn::PersonMarks(mark, sets) => self.somebody(1 + mark, sets, ""),
            Turn::AutoscalerRemoves(cordons) => {
                if !self.life.node.marks.removed_by_autoscaler() {
                    self.life.node.marks.taints.push(taint(AUTOSCALER_TAINT_KEY, "1700000000", "NoSchedule"));
                    if cordons {
                        self.somebody(0, true, "cluster-autoscaler");
                    }
                }
            }
            Turn::AutoscalerGivesUp => {
                if self.life.node.marks.removed_by_autoscaler() {
                    self.life.node.marks.taints.retain(|taint| taint.key != AUTOSCALER_TAINT_KEY);
                    self.somebody(0, false, "");
                }
            }
            Turn::OtherRole(needs) => self.other_role(needs)?,
            Turn::Policy(number) => self.life.policies = PolicySet::new(vec![policy_number(number)]).unwrap(),
            Turn::PolicyByName(exists) => self.life.node.policy = (!exists).then(|| "mistyped".into()),
            Turn::Restart => self.restart(),
            Turn::Reboot(boot) => {
                self.restart();
                self.life.node.boot_id = Some(format!("boot-{boot}"));
            }
            Turn::NewNode => {
                self.nodes += 1;
                self.life.create_node_anew(&format!("uid-{}", self.nodes));
                self.life.node.marks.taints = vec![taint("x", "y", "NoSchedule")];
                (self.other, self.truth) = (None, [Owner::Nobody; 4]);
            }
            Turn::DrainEnds(leaves) => {
                if let (true, Some(DrainOrder { events, order })) = (self.life.draining, self.life.plan().drain) {
                    let pod = (PodName { namespace: "prod".into(), name: "db-1".into() }, "budget".to_owned());
                    let left = if leaves { vec![pod; 30] } else { vec![] };
                    let result = if leaves { DrainResult::Incomplete } else { DrainResult::Drained };
                    let outcome = Outcome { result, left, evicted: 3, deleted: 0 };
                    let (started_at, profile, at) = (order.started_at, order.profile, self.life.now.wall);
                    self.life.finished = Some(FinishedDrain { started_at, events, profile, outcome, at });
                    self.life.draining = false;
                    self.life.blocked.clear();
                }
            }
            Turn::Blocked => {
                let pod = (PodName { namespace: "prod".into(), name: "db-1".into() }, "budget".to_owned());
                self.life.blocked = if self.life.draining { vec![pod] } else { vec![] };
            }
            Turn::Slot(held) => self.life.slot_held = held,
            Turn::Admission(refuses) => self.life.admission_refuses = refuses,
            Turn::Delivered => self.deliver(),
            Turn::Approved => {
                let now = self.life.now.wall;
                for Approval { event, .. } in self.life.plan().approvals {
                    self.life.approved.insert(event, now);
                }
            }
            Turn::Conflict => {
                self.other_looks();
                let plan = self.life.plan();
                self.check(&plan)?;
            }
        }
        Ok(())
    }

    fn restart(&mut self) {
        self.life.restart();
        self.listed.clear();
        self.absent.clear();
        self.documents = 0;
    }

    fn deliver(&mut self) {
        let untold = self.persisted().map(|record| record.untold).unwrap_or_default();
        self.life.delivered.extend(untold.into_iter().map(|untold| untold.id));
    }

    /// Everything is over, and everybody has let go.
    fn end(&mut self) -> Result<(), TestCaseError> {
        (self.life.node.held, self.life.node.ready, self.life.admission_refuses) = (false, true, false);
        self.life.node.marks.taints.retain(|taint| taint.key != AUTOSCALER_TAINT_KEY);
        self.settle()?;
        self.other_role(false)?;
        self.document.clear();
        for _ in 0..2 {
            self.life.pass(1);
            self.see();
            self.settle()?;
        }
        self.deliver();
        let plan = self.settle()?;
        prop_assert_eq!(plan.stage, Stage::Idle);
        prop_assert_eq!((plan.drain, plan.slot, plan.approvals), (None, None, vec![]));
        prop_assert!(self.life.node.is_clean(), "{:?}", self.life.node);
        prop_assert!(self.life.node.marks.taints.iter().all(|taint| taint.effect != "NoExecute"));
        for (mark, is_there) in marks_of(&self.life.node).into_iter().enumerate() {
            let owner = self.truth[mark];
            prop_assert_eq!(is_there, owner == Owner::SomebodyElse, "mark {} of {:?}", mark, owner);
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2 * ProptestConfig::default().cases))]

    #[test]
    fn nothing_of_ours_stays_nothing_foreign_goes_and_every_plan_settles(
        policy in 0..=POLICIES.len(),
        turns in prop::collection::vec(turn(), 1..60),
    ) {
        let mut world = World::new(policy);
        for turn in turns {
            world.take(turn)?;
            world.settle()?;
        }
        world.end()?;
    }


    /// Time alone is hardly a reason to write: an event that stays as it is costs a few writes, however often it is listed.
    #[test]
    fn a_situation_that_lasts_costs_no_writes(
        policy in 0..=POLICIES.len(),
        turns in prop::collection::vec(turn(), 1..12),
        last in prop::collection::vec(listed(), 0..4),
    ) {
        let mut world = World::new(policy);
        for turn in turns {
            world.take(turn)?;
            world.settle()?;
        }
        world.take(Turn::Document(last))?;
        world.settle()?;
        let writes = world.life.writes;
        for _ in 0..50 {
            world.take(Turn::SameDocument(20))?;
            world.settle()?;
        }
        let more = world.life.writes - writes;
        prop_assert!(more <= 12, "{} writes in 50 polls", more);
    }
}
