//! What nodes do together: who tells Azure that an event may start, and how many are drained at once.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::body::Bytes;
use domain::lease::{SLOT_LASTS, approval_name};
use domain::policy::{Action, Approve};
use domain::scheduled_event::{EventId, EventStatus};
use domain::time::{minus, plus};
use jiff::Timestamp;
use mock_imds::{Event, EventSource, EventType, Phase};
use serde_json::Value;

use super::nodes::Node;
use super::rules::Rule;
use super::{Checker, State};
use crate::world::api_server::store::Change;
use crate::world::network::Exchange;

/// Between the last look at what Azure lists and the telling of Azure lie some requests, each with its limit.
const FRESH: Duration = Duration::from_secs(30);

/// Between the last look at a node and the telling of Azure.
const RECENT: Duration = Duration::from_secs(20);

/// How the Leases of approvals begin.
pub(super) const APPROVAL: &str = "approve-";

/// How the Leases of slots begin.
pub(super) const SLOT: &str = "drain-slot-";

/// How long an agent may take to hear from Azure: its first questions may hang for 130 s each, and chance may break two.
const HEARS_WITHIN: Duration = Duration::from_secs(300);

/// A Lease of remediator.
pub(super) struct Lease {
    holder: String,
    done: bool,
    written: Timestamp,
}

/// A repair of a node.
pub(super) struct Repair {
    vm: String,
    /// When it was last live.
    live_until: Timestamp,
    is_live: bool,
}

/// What an agent knows of Azure in its present life.
#[derive(Default)]
pub(super) struct Knowledge {
    /// The last list of events that came through whole, and when.
    body: Bytes,
    heard: Option<Timestamp>,
    /// When the first one did.
    first_heard: Option<Timestamp>,
    /// The events that Azure has confirmed to start.
    confirmed: BTreeSet<String>,
}

impl Knowledge {
    /// From when on an agent that began to ask at some time has to know what Azure lists.
    pub(super) fn is_due(&self, began: Timestamp) -> Timestamp {
        self.first_heard.unwrap_or_else(|| plus(began, HEARS_WITHIN))
    }
}

impl Checker {
    /// A machine asked the metadata service about events, or was answered.
    pub fn see_exchange(&self, node: &str, exchange: Exchange, at: Timestamp) {
        let mut state = self.state();
        match exchange {
            Exchange::Asked { tells: false, .. } => {}
            Exchange::Asked { tells: true, body } => state.see_telling(node, &body, at),
            Exchange::Answered { tells, status, body } => {
                let vm = state.nodes.get(node).map(|node| node.vm.clone()).unwrap_or_default();
                let approvals = if tells && status == 200 { state.azure.approvals() } else { Vec::new() };
                let Some(node) = state.nodes.get_mut(node) else { return };
                if tells {
                    let last = approvals.iter().rfind(|one| one.vm.as_ref() == Some(&vm));
                    node.knows.confirmed.extend(last.map(|one| key(one.event.as_str())));
                } else if status == 200 && (body == node.knows.body || is_list(&body)) {
                    (node.knows.body, node.knows.heard) = (body, Some(at));
                    node.knows.first_heard.get_or_insert(at);
                }
            }
        }
    }
}

impl State {
    /// An agent tells Azure that events may start.
    fn see_telling(&mut self, name: &str, body: &[u8], at: Timestamp) {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let asked = body["StartRequests"].as_array().into_iter().flatten();
        let ids: Vec<String> = asked.filter_map(|one| one["EventId"].as_str().map(str::to_owned)).collect();
        for id in ids {
            if let Ok(event) = self.azure.event(&id) {
                self.judge_telling(name, &event, at);
            }
        }
    }

    fn judge_telling(&mut self, name: &str, event: &Event, at: Timestamp) {
        let (kind, id) = (event.kind.to_string(), key(event.id.as_str()));
        let Some(node) = self.nodes.get(name) else { return };
        let mut wrong: Vec<String> = Vec::new();
        let stood_still = node.stood_still.is_some_and(|since| since >= minus(at, FRESH * 2));
        let lease = self.leases.get(&approval_name(&EventId::new(event.id.as_str())));
        if node.knows.confirmed.contains(&id) || (lease.is_some_and(|lease| lease.done) && !stood_still) {
            wrong.push("although it was told before".into());
        } else if event.phase != Phase::Scheduled {
            // It has just started or is over, and takes no harm.
            return;
        }
        match node.knows.heard.filter(|_| lists(&node.knows.body, &id)) {
            None => wrong.push("although no answer of Azure lists it".into()),
            Some(heard) if heard < minus(at, FRESH) && !stood_still => {
                wrong.push("although Azure has not been heard for long".into());
            }
            Some(_) => {}
        }
        if lease.is_none_or(|lease| lease.holder != name) && !stood_still {
            wrong.push("without a claim on that".into());
        }
        let rule = self.rules(name, at).into_iter().find(|rule| rule.event.id == event.id);
        let allows = |how| rule.as_ref().is_some_and(|rule| rule.approve.contains(&how));
        let under_repair = self.under_repair(name, event, at);
        if !allows(Approve::Immediately) {
            if !allows(Approve::WhenDrained) && under_repair.is_empty() {
                wrong.push("which no rule allows".into());
            }
            wrong.extend(self.unready(event, &under_repair, at).map(|(node, why)| format!("but node {node} {why}")));
        }
        for why in wrong {
            self.violate(at, name, &format!("Azure was told that the {kind} may start, {why}"));
        }
    }

    /// The machines of an event for whose repairs this node may speak.
    fn under_repair(&self, name: &str, event: &Event, at: Timestamp) -> Vec<String> {
        let asked_for =
            event.source == EventSource::User && matches!(event.kind, EventType::Reboot | EventType::Redeploy);
        let Some(node) = self.nodes.get(name).filter(|_| asked_for) else { return Vec::new() };
        let policies = node.traits_since(event.published).into_iter().filter_map(|of| self.policies.for_node(of).ok());
        if !policies.into_iter().any(|policy| policy.approve_own_repairs) {
            return Vec::new();
        }
        let live = |repair: &&Repair| repair.is_live || repair.live_until >= minus(at, FRESH * 2);
        let of_others = self.repairs.values().filter(live).filter(|repair| !repair.vm.eq_ignore_ascii_case(&node.vm));
        let listed = |vm: &String| event.resources.iter().any(|one| one.eq_ignore_ascii_case(vm));
        of_others.map(|repair| repair.vm.clone()).filter(listed).collect()
    }

    /// The nodes that an event concerns and that are not as their policies want them before it, but for these machines.
    fn unready<'a>(
        &'a self,
        event: &'a Event,
        except: &'a [String],
        at: Timestamp,
    ) -> impl Iterator<Item = (&'a str, String)> {
        let listed = move |node: &Node| {
            let is = |vm: &&String| vm.eq_ignore_ascii_case(&node.vm);
            event.resources.iter().any(|vm| is(&vm)) && !except.iter().any(|vm| is(&vm))
        };
        self.nodes.iter().filter(move |(_, node)| node.exists && listed(node)).filter_map(move |(name, node)| {
            let rule = Rule::of(&self.circumstances(node, event, at), event.clone());
            let uncordoned_since = |since| node.uncordoned_by_other.is_some_and(|at| at >= since);
            if rule.duty == Action::None {
                return None;
            }
            if node.cordoned_by.is_none() && !uncordoned_since(minus(at, RECENT)) {
                return Some((name.as_str(), "is not cordoned".to_owned()));
            }
            if rule.duty < Action::Drain || uncordoned_since(event.published) {
                return None;
            }
            let left: Vec<String> = self.movable_pods(name).map(|pod| pod.name.clone()).collect();
            let why = || format!("still has {}", crate::world::timeline::names(&left));
            (!left.is_empty()).then(|| (name.as_str(), why()))
        })
    }

    /// A Lease of remediator was written.
    pub(super) fn see_lease(&mut self, change: &Change) {
        let name = &change.key.name;
        if !name.starts_with(APPROVAL) && !name.starts_with(SLOT) {
            return;
        }
        let Some(lease) = change.after.as_deref() else {
            self.leases.remove(name);
            return;
        };
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned();
        let done = lease["metadata"]["annotations"]["remediator.dev/done"].is_string();
        self.leases.insert(name.clone(), Lease { holder, done, written: change.at });
    }

    /// A repair was written.
    pub(super) fn see_repair(&mut self, change: &Change) {
        let Some(repair) = change.after.as_deref() else {
            self.repairs.remove(&change.key.name);
            return;
        };
        let provider_id = repair["spec"]["providerID"].as_str().unwrap_or_default();
        let vm = self.nodes.get(&change.key.name).map(|node| node.vm.clone());
        let is_live = !provider_id.is_empty() && repair["status"]["phase"] != "Done";
        let repair = Repair { vm: vm.unwrap_or_default(), live_until: change.at, is_live };
        self.repairs.insert(change.key.name.clone(), repair);
    }

    /// A drain begins, for which a slot may be needed.
    pub(super) fn check_slots(&mut self, name: &str, at: Timestamp) {
        let Some(most) = self.most_at_once(name, at) else { return };
        let Some(node) = self.nodes.get(name) else { return };
        let (pool, stood_still) = (node.pool(), node.stood_still.is_some_and(|since| since >= minus(at, FRESH * 2)));
        let holds = |name: &str| {
            self.leases.iter().any(|(lease, held)| {
                lease.starts_with(SLOT) && held.holder == name && held.written >= minus(at, SLOT_LASTS)
            })
        };
        let in_drain = |(other, node): &(&String, &Node)| {
            // One that has fallen silent has lost its slot, though not its record.
            *other != name && node.exists && node.pool() == pool && node.is_draining() && holds(other)
        };
        let others: Vec<String> = self.nodes.iter().filter(in_drain).map(|(other, _)| other.clone()).collect();
        let limited = others.iter().filter(|other| self.most_at_once(other, at).is_some()).count();
        if !holds(name) && !stood_still {
            self.violate(at, name, "a drain begins without a slot for it");
        }
        if limited >= most as usize && !stood_still {
            let others = crate::world::timeline::names(&others);
            self.violate(at, name, &format!("a drain begins beside those of {others}, which are all that may be"));
        }
    }

    /// How many nodes of the pool may be drained at once, as far as the events of this node go.
    fn most_at_once(&self, name: &str, at: Timestamp) -> Option<u32> {
        let rules = self.rules(name, at);
        let drains = || rules.iter().filter(|rule| rule.event.is_listed() && rule.action == Action::Drain);
        if drains().any(|rule| rule.nodes_at_once.is_none()) {
            return None;
        }
        drains().filter_map(|rule| rule.nodes_at_once).max()
    }

    /// An agent has written something that is no node and no pod.
    pub(super) fn check_other_write(&mut self, name: &str, resource: &str, object: &str, at: Timestamp) {
        use crate::world::api_server::kinds::{EVENTS, LEASES};
        let is_own_business = match resource {
            LEASES => object.starts_with(APPROVAL) || object.starts_with(SLOT),
            super::NODE_REPAIRS => true,
            other => other == EVENTS || other == "events.events.k8s.io",
        };
        if !is_own_business {
            self.violate(at, name, &format!("the agent wrote {resource} {object}"));
        }
    }
}

impl Node {
    /// The pool that it belongs to.
    fn pool(&self) -> &str {
        self.labels.get("agentpool").map_or("", String::as_str)
    }

    fn is_draining(&self) -> bool {
        let drain = self.record.as_ref().and_then(|record| record.drain.as_ref());
        drain.is_some_and(|drain| drain.finished_at.is_none())
    }
}

/// An event as it is known here: Azure may spell it in either case.
fn key(id: &str) -> String {
    id.to_ascii_lowercase()
}

fn is_list(body: &[u8]) -> bool {
    serde_json::from_slice::<Value>(body).is_ok_and(|body| body["Events"].is_array())
}

/// Whether a document lists the event as one that has not started.
fn lists(body: &[u8], id: &str) -> bool {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let mut events = body["Events"].as_array().into_iter().flatten();
    events.any(|event| {
        event["EventId"].as_str().is_some_and(|listed| key(listed) == id)
            && event["EventStatus"].as_str().map(EventStatus::from_word) == Some(EventStatus::Scheduled)
    })
}
