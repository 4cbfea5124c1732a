//! The machines of the world: who has power, who stands still, and until when.
//!
//! Several things may happen to one machine at once: a reboot in the middle of a pause, an event in the middle of another.
//! The latest end counts, and the lines of a machine follow its kubelet.

use std::collections::BTreeMap;
use std::time::Duration;

use domain::time::Monotonic;
use jiff::Timestamp;

use super::invariants::Checker;
use super::kubelets::Kubelets;
use super::network::Lines;
use super::scenario::Partition;

/// How long after its machine has booted an agent's pod runs.
const AGENT_STARTS_AFTER: Duration = Duration::from_secs(5);

/// How long after its machine a Node object is gone: the cloud controller asks for machines of nodes only that are not Ready
/// any more.
const NODE_GOES_AFTER: Duration = Duration::from_secs(60);

/// What is to happen to one machine.
#[derive(Clone, Copy, Debug, Default)]
struct Due {
    boots_at: Option<Monotonic>,
    agent_starts_at: Option<Monotonic>,
    thaws_at: Option<Monotonic>,
    reaches_all_at: Option<Monotonic>,
    /// Somebody switched it off, and nobody has switched it on since.
    switched_off: bool,
}

/// See the module.
pub struct Machines {
    kubelets: Kubelets,
    lines: BTreeMap<String, Lines>,
    due: BTreeMap<String, Due>,
    /// Until when the API server answers no agent.
    away_until: Option<Monotonic>,
    checker: Checker,
}

impl Machines {
    /// Machines that run.
    pub fn new(kubelets: Kubelets, lines: BTreeMap<String, Lines>, checker: Checker) -> Self {
        let due = lines.keys().map(|node| (node.clone(), Due::default())).collect();
        Self { kubelets, lines, due, away_until: None, checker }
    }

    /// A machine loses its power for so long, suddenly, as from outside of it.
    pub fn reboot(&mut self, node: &str, away: Duration, at: (Monotonic, Timestamp)) {
        self.fall(node, at.1);
        if let Some(due) = self.due.get_mut(node) {
            due.switched_off = false;
            due.boots_at = due.boots_at.max(Some(at.0 + away));
        }
    }

    /// A machine is switched off until someone switches it on.
    pub fn switch_off(&mut self, node: &str, wall: Timestamp) {
        self.fall(node, wall);
        if let Some(due) = self.due.get_mut(node) {
            due.switched_off = true;
            due.boots_at = None;
        }
    }

    /// A machine is switched on.
    pub fn switch_on(&mut self, node: &str, now: Monotonic) {
        if let Some(due) = self.due.get_mut(node).filter(|due| due.switched_off) {
            due.switched_off = false;
            due.boots_at = Some(now);
        }
    }

    /// Everything that is off is switched on.
    pub fn switch_all_on(&mut self, now: Monotonic) {
        let off: Vec<String> =
            self.due.iter().filter(|(_, due)| due.switched_off).map(|(node, _)| node.clone()).collect();
        for node in off {
            self.switch_on(&node, now);
        }
    }

    /// A machine stands still for so long.
    pub fn freeze(&mut self, node: &str, pause: Duration, (now, wall): (Monotonic, Timestamp)) {
        let Some(due) = self.due.get_mut(node).filter(|due| due.boots_at.is_none() && !due.switched_off) else {
            return;
        };
        let thaws_at = now + pause;
        let more = match due.thaws_at {
            Some(at) => thaws_at.since(at),
            None => pause,
        };
        due.thaws_at = due.thaws_at.max(Some(thaws_at));
        if !more.is_zero() {
            // It is there: it has an entry.
            drop(self.kubelets.freeze(node, more));
        }
        if let Some(lines) = self.lines.get(node) {
            lines.freeze(true);
        }
        self.checker.see_standstill(node, wall);
    }

    /// A machine is gone for good.
    pub fn demolish(&mut self, node: &str, wall: Timestamp) {
        if self.is_gone(node) {
            return;
        }
        self.due.remove(node);
        if let Some(lines) = self.lines.get(node) {
            lines.freeze(false);
            lines.power(false);
        }
        self.checker.see_power(node, false, wall);
        // It is there: it was not gone.
        drop(self.kubelets.delete(node, NODE_GOES_AFTER));
    }

    /// Whether a machine is no more.
    pub fn is_gone(&self, node: &str) -> bool {
        !self.due.contains_key(node)
    }

    /// The API server answers no agent for so long.
    pub fn cut_off(&mut self, time: Duration, (now, wall): (Monotonic, Timestamp)) {
        self.away_until = self.away_until.max(Some(now + time));
        self.checker.see_api_server(true, wall);
        for lines in self.lines.values() {
            lines.cut_off(true);
        }
    }

    /// A machine does not reach somebody for so long.
    pub fn part(&mut self, node: &str, partition: Partition, time: Duration, (now, wall): (Monotonic, Timestamp)) {
        let (Some(due), Some(lines)) = (self.due.get_mut(node), self.lines.get(node)) else { return };
        due.reaches_all_at = due.reaches_all_at.max(Some(now + time));
        lines.part(Some(partition));
        self.checker.see_partition(node, true, wall);
    }

    /// All partitions end.
    pub fn rejoin_all(&mut self, now: Monotonic) {
        for due in self.due.values_mut().filter(|due| due.reaches_all_at.is_some()) {
            due.reaches_all_at = Some(now);
        }
    }

    fn fall(&mut self, node: &str, wall: Timestamp) {
        let Some(due) = self.due.get_mut(node) else { return };
        due.thaws_at = None;
        due.agent_starts_at = None;
        // It is there: it has an entry.
        drop(self.kubelets.power_off(node));
        if let Some(lines) = self.lines.get(node) {
            lines.freeze(false);
            lines.power(false);
        }
        self.checker.see_power(node, false, wall);
    }

    /// Does what is due.
    pub fn go_on(&mut self, now: Monotonic, wall: Timestamp) {
        let is_due = |at: Option<Monotonic>| at.is_some_and(|at| at <= now);
        if is_due(self.away_until) {
            self.away_until = None;
            for lines in self.lines.values() {
                lines.cut_off(false);
            }
            self.checker.see_api_server(false, wall);
        }
        for (node, due) in &mut self.due {
            let Some(lines) = self.lines.get(node) else { continue };
            if is_due(due.thaws_at) {
                due.thaws_at = None;
                lines.freeze(false);
                self.checker.see_standstill(node, wall);
            }
            if is_due(due.reaches_all_at) {
                due.reaches_all_at = None;
                lines.part(None);
                self.checker.see_partition(node, false, wall);
            }
            if is_due(due.boots_at) {
                due.boots_at = None;
                // It is there: it has an entry.
                drop(self.kubelets.power_on(node));
                self.checker.see_power(node, true, wall);
                due.agent_starts_at = Some(now + AGENT_STARTS_AFTER);
            }
            if is_due(due.agent_starts_at) {
                due.agent_starts_at = None;
                lines.power(true);
            }
        }
    }

    /// When something is due next.
    pub fn next(&self) -> Option<Monotonic> {
        let of_machines = self
            .due
            .values()
            .flat_map(|due| [due.thaws_at, due.reaches_all_at, due.boots_at, due.agent_starts_at])
            .flatten();
        of_machines.chain(self.away_until).min()
    }
}
