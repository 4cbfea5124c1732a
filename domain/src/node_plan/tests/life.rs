//! One agent and its node without I/O: what a plan writes is applied at once.

use super::*;
use crate::policy::{Policy, file};
use crate::scheduled_event::decode;

pub(super) const VM: &str = "aks-np1-12345678-vmss_24";

pub(super) struct Life {
    pub(super) vm: VmName,
    pub(super) sightings: Sightings,
    pub(super) node: NodeView,
    pub(super) policies: PolicySet,
    pub(super) draining: bool,
    pub(super) blocked: Vec<(PodName, String)>,
    pub(super) finished: Option<FinishedDrain>,
    pub(super) slot_held: bool,
    /// Whether admission refuses every write that sets or removes a mark beside the cordon.
    pub(super) admission_refuses: bool,
    pub(super) topics: BTreeSet<Topic>,
    /// The messages that receivers were told in this life of the agent.
    pub(super) delivered: BTreeSet<String>,
    pub(super) approved: BTreeMap<EventId, Timestamp>,
    pub(super) now: Now,
    pub(super) cordon_writes: Vec<bool>,
    pub(super) writes: usize,
    pub(super) condition_writes: usize,
    /// Key and reason of everything that was announced, each once.
    pub(super) told: Vec<(String, String)>,
}

impl Life {
    pub(super) fn new() -> Self {
        Self::with(Policy::built_in().unwrap())
    }

    pub(super) fn with(policy: Policy) -> Self {
        Self {
            vm: VmName::new(VM),
            sightings: Sightings::default(),
            node: NodeView {
                name: "aks-np1-12345678-vmss00000o".into(),
                uid: "5f0c".into(),
                ready: true,
                boot_id: Some("boot-1".into()),
                ..NodeView::default()
            },
            policies: PolicySet::new(vec![policy]).unwrap(),
            draining: false,
            blocked: Vec::new(),
            finished: None,
            slot_held: false,
            admission_refuses: false,
            topics: BTreeSet::new(),
            delivered: BTreeSet::new(),
            approved: BTreeMap::new(),
            now: Now { wall: "2026-04-11T22:00:00Z".parse().unwrap(), monotonic: Monotonic::default() },
            cordon_writes: Vec::new(),
            writes: 0,
            condition_writes: 0,
            told: Vec::new(),
        }
    }

    /// A poll one second later that finds these events.
    pub(super) fn poll(&mut self, events: &[&str]) -> Plan {
        self.pass(1);
        self.see(events);
        self.settle()
    }

    /// Both clocks go on, and nothing is polled.
    pub(super) fn pass(&mut self, seconds: u64) {
        self.now = self.now.advanced(Duration::from_secs(seconds));
    }

    /// The wall clock is set, the monotonic one is not.
    pub(super) fn set_clock(&mut self, ahead_by: i64) {
        self.now.wall += jiff::SignedDuration::from_secs(ahead_by);
    }

    /// A good document arrives.
    pub(super) fn see(&mut self, events: &[&str]) {
        let body = format!(r#"{{"DocumentIncarnation":1,"Events":[{}]}}"#, events.join(","));
        self.sightings.see(decode(body.as_bytes()).unwrap(), &self.vm);
    }

    pub(super) fn plan(&self) -> Plan {
        self.plan_with(false)
    }

    pub(super) fn plan_with(&self, marks_refused: bool) -> Plan {
        plan(&Situation {
            vm: &self.vm,
            sightings: &self.sightings,
            node: &self.node,
            policies: &self.policies,
            draining: self.draining,
            blocked: &self.blocked,
            finished: self.finished.as_ref(),
            slot_held: self.slot_held,
            marks_refused,
            topics: &self.topics,
            told: &self.delivered,
            approved: &self.approved,
            now: self.now,
        })
    }

    /// Plans and applies what is planned until nothing is left to write.
    pub(super) fn settle(&mut self) -> Plan {
        let mut marks_refused = false;
        for _ in 0..6 {
            let plan = self.plan_with(marks_refused);
            self.tell(&plan.announcements);
            self.write_conditions(&plan.conditions);
            let Some(write) = plan.write.clone() else {
                self.finished = None;
                self.draining = plan.drain.is_some();
                return plan;
            };
            marks_refused = self.admission_refuses && write.marks.beside_cordon();
            if !marks_refused {
                self.apply(write);
            }
        }
        panic!("the plan wants to write for ever: {:?}", self.plan());
    }

    pub(super) fn apply(&mut self, write: NodeWrite) {
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

    pub(super) fn write_conditions(&mut self, changes: &ConditionChanges) {
        self.condition_writes += usize::from(changes.any());
        let conditions = &mut self.node.conditions;
        conditions.retain(|there| !changes.remove.contains(&there.condition_type));
        for (condition, changes_status) in &changes.set {
            let before = conditions.iter().position(|there| there.condition_type == condition.condition_type);
            let said = before.map(|at| conditions.remove(at).status);
            assert_eq!(*changes_status, said.as_ref() != Some(&condition.status), "{condition:?}");
            conditions.push(condition.clone());
        }
    }

    fn tell(&mut self, announcements: &[Announcement]) {
        for Announcement { key, reason, .. } in announcements {
            let told = (key.clone(), reason.clone());
            if !self.told.contains(&told) {
                self.told.push(told);
            }
        }
    }

    /// The reasons of what was announced, in that order.
    pub(super) fn reasons(&self) -> Vec<&str> {
        self.told.iter().map(|(_, reason)| reason.as_str()).collect()
    }

    pub(super) fn finish_drain(&mut self, left: &[&str]) -> Plan {
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
            profile: order.profile,
            outcome: Outcome { result, left, evicted: 3, deleted: 0 },
            at: self.now.wall,
        });
        self.draining = false;
        self.settle()
    }

    pub(super) fn record(&self) -> Record {
        Record::from_annotation(self.node.record.as_deref().expect("the node has a record")).unwrap()
    }

    /// Another life of the agent: only the node is as it was, and the Events that were told have expired.
    pub(super) fn restart_much_later(&mut self) {
        self.restart();
        self.told.clear();
    }

    /// Another life of the agent: only the node is as it was.
    pub(super) fn restart(&mut self) {
        self.sightings = Sightings::default();
        self.draining = false;
        self.finished = None;
        self.blocked.clear();
        self.delivered.clear();
        self.approved.clear();
    }

    /// The node is deleted and comes back under its name, with nothing on it.
    pub(super) fn create_node_anew(&mut self, uid: &str) {
        let NodeView { name, labels, .. } = std::mem::take(&mut self.node);
        self.node = NodeView { name, labels, uid: uid.into(), ready: true, ..NodeView::default() };
        self.draining = false;
        self.finished = None;
        self.blocked.clear();
    }

    /// The whole life of a node's event has gone by: two documents lack it.
    pub(super) fn all_over(&mut self) -> Plan {
        self.poll(&[]);
        self.poll(&[])
    }

    pub(super) fn event(&self, id: &str, event_type: &str, status: &str, in_seconds: Option<i64>) -> String {
        self.event_on(id, event_type, status, &[VM], in_seconds)
    }

    pub(super) fn event_on(
        &self,
        id: &str,
        event_type: &str,
        status: &str,
        vms: &[&str],
        in_seconds: Option<i64>,
    ) -> String {
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

/// The same event, asked for by a person.
pub(super) fn by_user(event: &str) -> String {
    event.replace("\"Platform\"", "\"User\"")
}

pub(super) fn deadline_in(life: &Life, plan: &Plan) -> u64 {
    life.now.until(plan.drain.as_ref().expect("a drain is ordered").order.deadline).as_secs()
}

/// A policy of this content, which drains for everything unless it says otherwise.
pub(super) fn policy(rest: &str) -> Policy {
    let head = "apiVersion: remediator.dev/v1alpha1\nkind: Policy\nmetadata: {name: p}\n";
    let events = if rest.contains("events:") { "" } else { "events: [{name: all, action: drain}]\n" };
    file::parse("p", &format!("{head}{events}{rest}")).unwrap()
}

pub(super) fn taint(key: &str, value: &str, effect: &str) -> crate::marks::NodeTaint {
    serde_json::from_value(serde_json::json!({"key": key, "value": value, "effect": effect})).unwrap()
}
