//! What is known of a node, and what its agent may write to it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use domain::marks::AUTOSCALER_TAINT_KEY;
use domain::policy::{Action, NodeTraits, POLICY_ANNOTATION};
use domain::record::{AGENT_ANNOTATION, DrainResult, HOLD_ANNOTATION, Record};
use domain::time::minus;
use jiff::Timestamp;
use mock_imds::Event;
use serde_json::Value;

use super::agreement::Knowledge;
use super::marks::{Changes, Marks};
use super::rules::Wrong;
use super::{AUTOSCALER, State, agent_of, has_conditions_of_ours, strings};
use crate::world::api_server::store::{Actor, Change};
use crate::world::controllers::{condition, taint};
use crate::world::timeline;

/// How long something that happens to the node may go unnoticed, while the watch of the node is silent.
const NOTICED_WITHIN: Duration = Duration::from_secs(90);

/// For how long after a clock has been set right an agent may act by what it showed before.
const CLOCK_COUNTS_FOR: Duration = Duration::from_secs(15);

/// What is known of one node.
#[derive(Default)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts about a node, each read at one place")]
pub(super) struct Node {
    pub(super) vm: String,
    /// Whether there is a Node object.
    pub(super) exists: bool,
    pub(super) labels: BTreeMap<String, String>,
    /// What policy it is given by name.
    pub(super) policy: Option<String>,
    /// What it was given before, and until when.
    pub(super) policies_before: Vec<(Option<String>, Timestamp)>,
    pub(super) ready: bool,
    /// Whether its machine does not reach somebody.
    pub(super) cut_off: bool,
    /// When its machine last stood still.
    pub(super) stood_still: Option<Timestamp>,
    /// By how many seconds its machine's clock is wrong.
    pub(super) clock_wrong_by: i64,
    /// By how many it was, until when.
    pub(super) clock_before: Option<(i64, Timestamp)>,
    /// Since when the autoscaler is removing it.
    pub(super) autoscaler_since: Option<Timestamp>,
    pub(super) marks: Marks,
    /// Whether it carries conditions of ours.
    pub(super) conditions: bool,
    pub(super) knows: Knowledge,
    /// Since when a person holds the agent off.
    pub(super) held_since: Option<Timestamp>,
    /// Whether its machine runs.
    pub(super) up: bool,
    /// Who set the cordon that is there.
    pub(super) cordoned_by: Option<Actor>,
    pub(super) record: Option<Record>,
    /// When it last carried a record.
    pub(super) recorded_until: Option<Timestamp>,
    /// When anything last happened that gives an agent reasons to act: a life, a hold, a connection.
    pub(super) stirred: Option<Timestamp>,
    /// When somebody else last uncordoned it.
    pub(super) uncordoned_by_other: Option<Timestamp>,
    pub(super) minute: i64,
    pub(super) requests: u64,
    /// What was told of it already, so that it is told once.
    pub(super) told: BTreeSet<String>,
}

/// What a write did to a node.
struct Written {
    at: Timestamp,
    marks: Changes,
    was_cordoned_by: Option<Actor>,
    cordoned: bool,
    before: Option<Record>,
    record: Option<Record>,
    /// Whether there is a record that cannot be read.
    unreadable: bool,
    autoscaler_gave_up: bool,
}

impl Node {
    /// Takes in what somebody has written to it.
    fn take_in(&mut self, after: &Value, by: &Actor, agent: &Actor, at: Timestamp) -> Written {
        let noticed = self.notices_until(at);
        self.exists = true;
        self.labels = strings(&after["metadata"]["labels"]);
        self.conditions = has_conditions_of_ours(after);
        self.take_in_interference(after, at);
        let text = after["metadata"]["annotations"][AGENT_ANNOTATION].as_str();
        let record = text.and_then(|text| Record::from_annotation(text).ok());
        let unreadable = text.is_some() && record.is_none();
        let before = std::mem::replace(&mut self.record, record.clone());
        if before.is_some() {
            self.recorded_until = Some(at);
        }
        if before != record {
            self.stirred = self.stirred.max(Some(at));
        }
        let autoscaler_since = self.autoscaler_since;
        let mut taints = taint::taints(after).iter();
        let removed_by_autoscaler = taints.any(|taint| taint["key"] == AUTOSCALER_TAINT_KEY);
        self.autoscaler_since = removed_by_autoscaler.then(|| autoscaler_since.unwrap_or(at));
        let was_cordoned_by = self.cordoned_by.take();
        let cordoned = after["spec"]["unschedulable"] == true;
        self.cordoned_by = cordoned.then(|| was_cordoned_by.clone().unwrap_or_else(|| by.clone()));
        Written {
            at,
            marks: self.marks.see(after, by, agent, noticed),
            was_cordoned_by,
            cordoned,
            before,
            record,
            unreadable,
            // When the autoscaler gives up, the cordon goes without regard to whose it is: it has to be set again, if that
            // could be noticed.
            autoscaler_gave_up: !removed_by_autoscaler
                && autoscaler_since.is_some_and(|since| noticed.is_some_and(|noticed| since < noticed)),
        }
    }

    /// Takes in by what others tell the agent what to do, and whether its machine is well.
    fn take_in_interference(&mut self, after: &Value, at: Timestamp) {
        let annotations = &after["metadata"]["annotations"];
        match (self.held_since, annotations[HOLD_ANNOTATION].is_string()) {
            (Some(_), false) => {
                self.stirred = Some(at);
                self.held_since = None;
            }
            (None, true) => self.held_since = Some(at),
            _ => {}
        }
        let ready = condition::is_true(after, "Ready");
        if ready && !self.ready {
            self.stirred = Some(at);
        }
        self.ready = ready;
        let policy = annotations[POLICY_ANNOTATION].as_str().map(str::to_owned);
        if policy != self.policy {
            self.policies_before.push((std::mem::replace(&mut self.policy, policy), at));
        }
    }

    /// Somebody else than its agent has written it.
    fn take_in_foreign(&mut self, written: Written, agent: &Actor) {
        if written.was_cordoned_by.is_some() && !written.cordoned {
            if written.autoscaler_gave_up {
                self.stirred = Some(written.at);
            } else {
                self.uncordoned_by_other = Some(written.at);
            }
        }
        for (mark, owner) in written.marks.removed {
            if owner.is_some_and(|owner| owner == *agent) {
                self.marks.note_taken(mark, written.at);
            }
        }
    }

    /// How it may have been given its policy since then.
    pub(super) fn traits_since(&self, since: Timestamp) -> Vec<NodeTraits<'_>> {
        let before = self.policies_before.iter().filter(|(_, until)| *until >= since).map(|(policy, _)| policy);
        let mut policies: Vec<&Option<String>> = before.chain([&self.policy]).collect();
        policies.sort();
        policies.dedup();
        policies.into_iter().map(|policy| NodeTraits { labels: &self.labels, policy: policy.as_deref() }).collect()
    }

    /// Whether its agent has had nothing in its way since then.
    pub(super) fn is_well(&self, since: Timestamp) -> bool {
        let undisturbed = self.stirred.is_some_and(|at| at < since && self.knows.is_due(at) < since)
            && self.stood_still.is_none_or(|at| at < since);
        self.up && self.ready && self.held_since.is_none() && !self.cut_off && self.clock_wrong_by == 0 && undisturbed
    }

    /// Until when its agent must have noticed what happened to the node; none if it may have noticed nothing.
    fn notices_until(&self, at: Timestamp) -> Option<Timestamp> {
        let noticed = minus(at, NOTICED_WITHIN);
        (self.held_since.is_none() && self.is_reached_since(noticed)).then_some(noticed)
    }

    fn is_reached_since(&self, since: Timestamp) -> bool {
        self.up
            && !self.cut_off
            && self.stirred.is_none_or(|at| at < since)
            && self.stood_still.is_none_or(|at| at < since)
    }

    pub(super) fn must_have_noticed_hold(&self, at: Timestamp) -> bool {
        let noticed = minus(at, NOTICED_WITHIN);
        self.held_since.is_some_and(|since| since < noticed) && self.is_reached_since(noticed)
    }

    /// What is on it that the agent has set.
    pub(super) fn left_of(&self, agent: &Actor) -> Option<String> {
        let mut left: Vec<String> = Vec::new();
        if self.cordoned_by.as_ref() == Some(agent) {
            left.push("its cordon".into());
        }
        if self.record.is_some() {
            left.push("its record".into());
        }
        if self.conditions {
            left.push("its conditions".into());
        }
        left.extend(self.marks.of(agent).cloned());
        match left.len() {
            0 => None,
            1 => Some(format!("{} is", left[0])),
            _ => Some(format!("{} are", left.join(" and "))),
        }
    }

    /// By how much its clock is or has just been wrong.
    pub(super) fn wrong(&self, at: Timestamp) -> Wrong {
        let before = self.clock_before.filter(|(_, until)| *until >= minus(at, CLOCK_COUNTS_FOR)).map(|(by, _)| by);
        let by = [self.clock_wrong_by, before.unwrap_or_default()];
        let seconds = |by: i64| Duration::from_secs(u64::try_from(by).unwrap_or_default());
        Wrong {
            ahead: seconds(by.into_iter().max().unwrap_or_default()),
            behind: seconds(by.into_iter().min().unwrap_or_default().saturating_neg()),
        }
    }
}

impl State {
    pub(super) fn see_node(&mut self, change: &Change) {
        let name = &change.key.name;
        let Some(node) = self.nodes.get_mut(name) else { return };
        let Some(after) = change.after.as_deref() else {
            // With the object goes whatever was on it.
            let vm = std::mem::take(&mut node.vm);
            let (stood_still, cut_off) = (node.stood_still, node.cut_off);
            *node = Node { vm, up: node.up, stood_still, cut_off, ..Node::default() };
            return;
        };
        let agent = agent_of(name);
        let written = node.take_in(after, &change.by, &agent, change.at);
        if change.by != agent {
            return node.take_in_foreign(written, &agent);
        }
        if node.autoscaler_since.is_some() && written.cordoned && written.record.is_none() && written.before.is_some() {
            // Its own cordon is left to the autoscaler.
            node.cordoned_by = Some(Actor::new(AUTOSCALER));
        }
        self.check_marks(name, &written, &agent);
        self.check_cordon(name, &written, &agent);
        self.check_release(change.at, name, written.before.as_ref(), written.record.as_ref());
        self.see_drain(change.at, name, written.before.as_ref(), written.record.as_ref());
    }

    fn check_marks(&mut self, name: &str, written: &Written, agent: &Actor) {
        let at = written.at;
        for (mark, owner) in &written.marks.removed {
            if let Some(owner) = owner.as_ref().filter(|owner| *owner != agent) {
                self.violate(at, name, &format!("{mark} of {owner} was taken away"));
            }
        }
        for mark in &written.marks.set {
            if written.record.is_none() || self.allowed(name, at) < Action::Cordon {
                self.violate(at, name, &format!("{mark} was set although no rule asks for it"));
            }
        }
        if written.unreadable {
            self.violate(at, name, "the agent wrote a record that cannot be read");
        }
    }

    fn check_cordon(&mut self, name: &str, written: &Written, agent: &Actor) {
        let Written { at, cordoned, record, .. } = written;
        let (at, was_cordoned) = (*at, written.was_cordoned_by.is_some());
        if was_cordoned == *cordoned {
            return;
        }
        if self.nodes.get(name).is_some_and(|node| node.must_have_noticed_hold(at)) {
            self.violate(at, name, "the cordon was changed although a person holds the agent off");
        }
        if *cordoned {
            if self.allowed(name, at) < Action::Cordon {
                self.violate(at, name, "cordoned although no rule asks for it");
            }
            if record.is_none() {
                self.violate(at, name, "cordoned without a record of it");
            }
            return;
        }
        if let Some(by) = written.was_cordoned_by.as_ref().filter(|by| *by != agent) {
            self.violate(at, name, &format!("the cordon of {by} was taken away"));
        }
        let needed = self
            .rules(name, at)
            .into_iter()
            .find(|rule| rule.event.is_listed() && rule.action > Action::None && rule.due <= at);
        if let Some(rule) = needed {
            self.violate(at, name, &format!("uncordoned while Azure lists the {}", rule.event.kind));
        }
        self.verdict.given_back += u64::from(record.is_none());
    }

    /// What has left the record must have left Azure's list.
    fn check_release(&mut self, at: Timestamp, node: &str, before: Option<&Record>, after: Option<&Record>) {
        let Some(before) = before else { return };
        let remains = |id| after.is_some_and(|after| after.events.iter().any(|event| event.id == id));
        let vm = self.nodes.get(node).map(|node| node.vm.clone()).unwrap_or_default();
        let listed: Vec<Event> = self.events_of(&vm, at).into_iter().filter(Event::is_listed).collect();
        let forgotten: Vec<String> = before
            .events
            .iter()
            .filter(|event| event.ruling.is_some() && !remains(event.id.clone()))
            .filter(|event| listed.iter().any(|listed| event.id.as_str().eq_ignore_ascii_case(listed.id.as_str())))
            .map(|event| event.event_type.to_string())
            .collect();
        for kind in forgotten {
            self.violate(at, node, &format!("the {kind} is given up while Azure lists it"));
        }
    }

    fn see_drain(&mut self, at: Timestamp, name: &str, before: Option<&Record>, after: Option<&Record>) {
        let running = |record: Option<&Record>| {
            record.and_then(|record| record.drain.as_ref()).is_some_and(|drain| drain.finished_at.is_none())
        };
        let ended = |record: Option<&Record>, how: DrainResult| {
            record.map_or(0, |record| record.events.iter().filter(|event| event.drained == Some(how)).count())
        };
        if running(after) && !running(before) {
            self.verdict.drains_begun += 1;
            self.check_slots(name, at);
            let rules = self.rules(name, at);
            let wrong = self.nodes.get(name).map(|node| node.wrong(at)).unwrap_or_default();
            let mut drains =
                rules.iter().filter(|rule| rule.event.is_listed() && rule.action == Action::Drain).peekable();
            if drains.peek().is_some() && drains.all(|rule| rule.is_too_late(at, wrong)) {
                self.violate(at, name, "a drain begins although the policy says that it is too late for that");
            }
        }
        if ended(after, DrainResult::Incomplete) > ended(before, DrainResult::Incomplete) {
            self.verdict.drains_cut_short += 1;
        }
        if ended(after, DrainResult::Drained) > ended(before, DrainResult::Drained) {
            self.verdict.drained += 1;
            let left: Vec<String> = self.movable_pods(name).map(|pod| pod.name.clone()).collect();
            if !left.is_empty() {
                let left = timeline::names(&left);
                self.violate(at, name, &format!("called drained although there are {left}"));
            }
        }
    }
}
