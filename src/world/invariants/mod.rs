//! What must always hold, checked at every write to the cluster, at every request of an agent, and every few seconds.
//!
//! The checker sees the truth (the objects, the machines, and Azure's own list of events), never what an agent believes. What
//! it holds an agent to:
//!
//! - **own node**: an agent writes its own node only, and evicts pods of its own node only; beside that it writes nothing but
//!   what nodes agree by;
//! - **own marks**: a cordon, taint, label or annotation that someone else set is never taken away; nothing is done before the
//!   node carries the record that explains it; when all is over nothing of ours is left;
//! - **the policy**: nothing is done that no rule asks for, or earlier or later than it says, and nothing while a person holds
//!   the agent off; what a rule asks for is done in time, and given back in time;
//! - **agreement**: Azure is told once that an event may start, by whoever has claimed it, when every node that it concerns is
//!   as its policy wants it; no more nodes of a pool are drained at once than the policy says;
//! - **unknown is not over**: nothing is given back while Azure lists the event that it was taken for;
//! - **this pod**: every eviction and deletion names the UID of the pod that is there; no pod of a DaemonSet, no mirror pod
//!   and not the agent's own; a grace of zero never;
//! - **budgets**: no deletion past a budget unless the rule deletes and the deadline is near;
//! - **deadlines**: nothing is evicted when the deadline is past;
//! - **truth**: a node is called drained only if it is;
//! - **modesty**: requests a minute are bounded, and there are none while nothing concerns the node.

mod agreement;
mod budgets;
mod marks;
mod nodes;
mod rules;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::drain::REQUEST_TIMEOUT;
use domain::drain::pod::SKIP_DRAIN;
use domain::node_plan::WITHOUT_NOTICE;
use domain::policy::{Action, PolicySet, Profile, Treatment};
use domain::time::{minus, plus, stamp};
use jiff::Timestamp;
use mock_imds::{Event, Mock};
use serde_json::Value;

use self::agreement::{Knowledge, Lease, Repair};
use self::budgets::{Broken, Budgets};
use self::nodes::Node;
use self::rules::{Circumstances, Rule, TOLERANCE};
use super::api_server::RequestSeen;
use super::api_server::kinds::{DISRUPTION_BUDGETS, LEASES, NODES, PODS};
use super::api_server::store::{Actor, Change, Key};
use super::controllers::{owner, pod as pods, taint};
use super::timeline::{Row, Timeline, Tone, Who};
use super::verdict::Verdict;

/// How the agent of a node is called where it acts.
pub fn agent_of(node: &str) -> Actor {
    Actor::new(&format!("{AGENT}{node}"))
}

const AGENT: &str = "agent/";

/// Whether it is an agent who acts.
pub fn is_agent(actor: &Actor) -> bool {
    actor.as_str().starts_with(AGENT)
}

/// How the autoscaler is called where it acts.
pub const AUTOSCALER: &str = "cluster-autoscaler";

/// The resource of repairs.
pub const NODE_REPAIRS: &str = "noderepairs.remediator.dev";

/// Whether a node carries conditions that an agent wrote.
pub fn has_conditions_of_ours(node: &Value) -> bool {
    let mut conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|one| one["reason"].as_str().is_some_and(|reason| reason.starts_with("Remediator")))
}

/// An event that is over may be unknown to an agent for as long as Azure does not answer it.
const REMEMBERED: Duration = Duration::from_secs(900);

/// How long after something happened an agent may have reasons to ask that are not seen here.
const SETTLES: Duration = Duration::from_secs(90);

/// How long an agent that is well may take to notice, to act and to give back: several questions to Azure that fail, and a
/// watch that falls silent.
const ACTS_WITHIN: Duration = Duration::from_secs(200);

/// Records are written in whole seconds.
const MOMENT: Duration = Duration::from_secs(1);

/// How close deadlines are that are drained for as one.
const SAME_TIME: Duration = Duration::from_secs(10);

/// Requests a minute that need no pod, and for each pod.
const REQUESTS_A_MINUTE: (u64, u64) = (150, 40);

/// More violations than this say nothing new.
const MOST_VIOLATIONS: usize = 100;

/// What is known of one pod.
#[allow(clippy::struct_excessive_bools, reason = "independent facts about a pod, each read at one place")]
struct Pod {
    name: String,
    namespace: String,
    node: String,
    object: Arc<Value>,
    stays: bool,
    /// When it was told to stop, by whomever.
    told_at: Option<Timestamp>,
    finished: bool,
    may_come_back: bool,
    bare: bool,
    empty_dir: bool,
}

struct State {
    policies: PolicySet,
    azure: Mock,
    timeline: Timeline,
    nodes: BTreeMap<String, Node>,
    pods: BTreeMap<String, Pod>,
    budgets: Budgets,
    /// The earliest and the latest `NotBefore` that Azure has announced for an event.
    announced: BTreeMap<String, (Timestamp, Timestamp)>,
    leases: BTreeMap<String, Lease>,
    repairs: BTreeMap<String, Repair>,
    api_server_away: bool,
    verdict: Verdict,
}

/// See the module. Clones are handles on the same checker.
#[derive(Clone)]
pub struct Checker {
    state: Arc<Mutex<State>>,
}

impl Checker {
    /// A checker that knows the nodes with their machines, and what the policies allow.
    pub fn new(
        policies: PolicySet,
        azure: Mock,
        timeline: Timeline,
        nodes: impl IntoIterator<Item = (String, String)>,
    ) -> Self {
        let nodes = nodes.into_iter().map(|(node, vm)| (node, Node { vm, up: true, ..Node::default() })).collect();
        let state = State {
            policies,
            azure,
            timeline,
            nodes,
            pods: BTreeMap::new(),
            budgets: Budgets::default(),
            announced: BTreeMap::new(),
            leases: BTreeMap::new(),
            repairs: BTreeMap::new(),
            api_server_away: false,
            verdict: Verdict::default(),
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // After a panic the run has failed anyway.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A write to the cluster.
    pub fn see_change(&self, change: &Change) {
        match &*change.resource {
            NODES => self.state().see_node(change),
            PODS => self.state().see_pod(change),
            DISRUPTION_BUDGETS => self.state().see_budget(change),
            LEASES => self.state().see_lease(change),
            NODE_REPAIRS => self.state().see_repair(change),
            _ => {}
        }
    }

    /// A request to the API server, which was answered now.
    pub fn see_request(&self, request: &RequestSeen, at: Timestamp) {
        self.state().see_request(request, at);
    }

    /// An agent was started.
    pub fn see_life(&self, node: &str, at: Timestamp) {
        let mut state = self.state();
        state.verdict.agent_lives += 1;
        if let Some(node) = state.nodes.get_mut(node) {
            node.stirred = Some(at);
            node.knows = Knowledge::default();
        }
    }

    /// A machine has come to stand still, or goes on.
    pub fn see_standstill(&self, node: &str, at: Timestamp) {
        if let Some(node) = self.state().nodes.get_mut(node) {
            node.stood_still = Some(at);
        }
    }

    /// A machine does not reach somebody, or reaches all again.
    pub fn see_partition(&self, node: &str, cut_off: bool, at: Timestamp) {
        if let Some(node) = self.state().nodes.get_mut(node) {
            node.cut_off = cut_off;
            node.stirred = Some(at);
        }
    }

    /// The clock of a machine is wrong by so many seconds from now on.
    pub fn see_clock(&self, node: &str, wrong_by: i64, at: Timestamp) {
        if let Some(node) = self.state().nodes.get_mut(node) {
            node.clock_before = Some((std::mem::replace(&mut node.clock_wrong_by, wrong_by), at));
            node.stirred = Some(at);
        }
    }

    /// The API server answers no agent, or all again.
    pub fn see_api_server(&self, away: bool, at: Timestamp) {
        self.state().api_server_away = away;
        self.stir(at);
    }

    /// Something happened that gives all agents reasons to act.
    pub fn stir(&self, at: Timestamp) {
        for node in self.state().nodes.values_mut() {
            node.stirred = Some(at);
        }
    }

    /// A machine lost its power, or has it again.
    pub fn see_power(&self, node: &str, up: bool, at: Timestamp) {
        let mut state = self.state();
        if let Some(node) = state.nodes.get_mut(node) {
            node.up = up;
            node.stirred = Some(at);
        }
        let there: Vec<String> =
            state.pods.iter().filter(|(_, pod)| pod.node == node).map(|(uid, _)| uid.clone()).collect();
        for uid in there {
            state.weigh_pod(at, &uid);
        }
    }

    /// Azure has announced an event, or changed it.
    pub fn see_event(&self, event: &Event) {
        let mut state = self.state();
        let span =
            state.announced.entry(event.id.as_str().to_owned()).or_insert_with(|| (event.not_before, event.not_before));
        *span = (span.0.min(event.not_before), span.1.max(event.not_before));
    }

    /// Azure has published an event.
    pub fn count_event(&self) {
        self.state().verdict.events += 1;
    }

    /// Some time has passed.
    pub fn tick(&self, now: Timestamp) {
        self.state().check_patience(now);
    }

    /// A pod was lost with its machine; says whether that is a loss, as it is not for those that belong to the machine.
    pub fn see_loss(&self, uid: &str) -> bool {
        let mut state = self.state();
        let is_loss = state.pods.get(uid).is_some_and(|pod| !(pod.told_at.is_some() || pod.finished || pod.stays));
        state.verdict.lost_without_notice += u64::from(is_loss);
        is_loss
    }

    /// A pod ran until its grace was over.
    pub fn see_kill(&self) {
        self.state().verdict.killed_at_the_end_of_grace += 1;
    }

    /// Something went wrong that is no agent's decision, such as an agent that ended by itself.
    pub fn violate(&self, at: Timestamp, node: &str, what: &str) {
        self.state().violate(at, node, what);
    }

    /// All is over: what must not be left, and the numbers.
    pub fn close(&self, now: Timestamp) -> Verdict {
        let mut state = self.state();
        let left: Vec<(String, String)> = state
            .nodes
            .iter()
            // A machine that is off cannot be given back: its node is not Ready.
            .filter(|(_, node)| node.up)
            .filter_map(|(name, node)| Some((name.clone(), node.left_of(&agent_of(name))?)))
            .collect();
        for (node, what) in left {
            state.violate(now, &node, &format!("all is over, but {what} still on the node"));
        }
        state.verdict.seconds_below_budget = state.budgets.seconds_below(now);
        state.verdict.budgets_broken = state.budgets.broken;
        let by_agents = |one: &&mock_imds::Approval| one.vm.is_some() && !one.repeated;
        state.verdict.approvals = state.azure.approvals().iter().filter(by_agents).count() as u64;
        let counters = state.azure.counters();
        state.verdict.imds_requests = counters.requests;
        state.verdict.clone()
    }
}

fn seconds_between(from: Timestamp, to: Timestamp) -> u64 {
    u64::try_from(to.duration_since(from).as_secs()).unwrap_or_default()
}

impl State {
    fn violate(&mut self, at: Timestamp, node: &str, what: &str) {
        if self.verdict.violations.len() >= MOST_VIOLATIONS {
            return;
        }
        self.verdict.violations.push(format!("{} {node}: {what}", stamp(at)));
        self.timeline.add(Row {
            at,
            node: Some(node.to_owned()),
            who: Who::Checker,
            tone: Tone::Bad,
            text: format!("must not be: {what}"),
        });
    }

    /// The events that were ever listed for the machine, but those that ended long ago.
    fn events_of(&self, vm: &str, at: Timestamp) -> Vec<Event> {
        let recent = |event: &Event| event.is_listed() || event.phase_since >= minus(at, REMEMBERED);
        let concerns = |event: &Event| event.resources.iter().any(|one| one.eq_ignore_ascii_case(vm));
        self.azure.events().into_iter().filter(|event| concerns(event) && recent(event)).collect()
    }

    /// What the policies say about the node's events.
    fn rules(&self, name: &str, at: Timestamp) -> Vec<Rule> {
        let Some(node) = self.nodes.get(name) else { return Vec::new() };
        let rule = |event: Event| Rule::of(&self.circumstances(node, &event, at), event);
        self.events_of(&node.vm, at).into_iter().map(rule).collect()
    }

    fn circumstances<'a>(&'a self, node: &'a Node, event: &Event, at: Timestamp) -> Circumstances<'a> {
        let known = self.announced.get(event.id.as_str()).copied();
        Circumstances {
            policies: &self.policies,
            traits: node.traits_since(event.published),
            not_before: known.unwrap_or((event.not_before, event.not_before)),
            wrong: node.wrong(at),
        }
    }

    /// The most that may be done to the node.
    fn allowed(&self, name: &str, at: Timestamp) -> Action {
        self.rules(name, at).iter().map(|rule| rule.action).max().unwrap_or(Action::None)
    }

    fn violate_once(&mut self, at: Timestamp, name: &str, key: String, what: &str) {
        let is_new = self.nodes.get_mut(name).is_some_and(|node| node.told.insert(key));
        if is_new {
            self.violate(at, name, what);
        }
    }

    /// What an agent that is well has had the time to do.
    fn check_patience(&mut self, now: Timestamp) {
        if self.api_server_away {
            return;
        }
        let long_ago = minus(now, ACTS_WITHIN);
        let names: Vec<String> = self.nodes.keys().cloned().collect();
        for name in names {
            let Some(node) = self.nodes.get(&name) else { continue };
            if !node.is_well(long_ago) {
                continue;
            }
            let (cordoned, by_other) = (node.cordoned_by.is_some(), node.uncordoned_by_other);
            let left = node.left_of(&agent_of(&name));
            let rules = self.rules(&name, now);
            for rule in rules.iter().filter(|rule| rule.event.is_listed() && rule.duty > Action::None) {
                let left_alone = by_other.is_some_and(|at| at >= rule.event.published);
                if !cordoned && rule.due < long_ago && !left_alone {
                    let what =
                        format!("nothing is done about the {} although a rule says {}", rule.event.kind, rule.duty);
                    self.violate_once(now, &name, format!("idle/{}", rule.event.id), &what);
                }
            }
            let over = rules.iter().all(|rule| !rule.event.is_listed() && rule.event.phase_since < long_ago);
            if let Some(left) = left.filter(|_| over) {
                let what = format!("the node is not given back although all is over: {left} still there");
                self.violate_once(now, &name, format!("kept/{}", now.as_second() / 600), &what);
            }
        }
    }

    /// The pods that no policy leaves on a node that is drained, and that cannot have come since.
    fn movable_pods<'a>(&'a self, node: &'a str) -> impl Iterator<Item = &'a Pod> {
        let profiles = self.profiles(node);
        let keeps_bare = profiles.iter().any(|profile| profile.bare == Treatment::Leave);
        let keeps_empty_dir = profiles.iter().any(|profile| profile.empty_dir == Treatment::Leave);
        self.pods.values().filter(move |pod| {
            pod.node == node
                && !(pod.stays || pod.finished || pod.may_come_back)
                && !(pod.bare && keeps_bare)
                && !(pod.empty_dir && keeps_empty_dir)
                && !profiles.iter().any(|profile| leaves(profile, pod))
        })
    }

    /// All profiles by which the node may have been drained.
    fn profiles(&self, node: &str) -> Vec<&Profile> {
        let traits = self.nodes.get(node).map(|node| node.traits_since(Timestamp::MIN)).unwrap_or_default();
        let policies = traits.into_iter().filter_map(|of| self.policies.for_node(of).ok());
        policies.flat_map(|policy| policy.profiles.values()).collect()
    }

    fn see_pod(&mut self, change: &Change) {
        let Some(object) = change.after.as_ref() else {
            let Some(before) = change.before.as_ref() else { return };
            if let Some(uid) = before["metadata"]["uid"].as_str() {
                self.pods.remove(uid);
            }
            let broken = self.budgets.see_pod(change.at, &change.key.namespace, before, false);
            return self.tell_broken(change.at, broken);
        };
        let Some(uid) = object["metadata"]["uid"].as_str() else { return };
        let told_before = self.pods.get(uid).and_then(|pod| pod.told_at);
        let told = pods::is_terminating(object).then(|| told_before.unwrap_or(change.at));
        self.pods.insert(uid.to_owned(), Pod { told_at: told, ..pod(&change.key, object) });
        self.weigh_pod(change.at, uid);
    }

    fn see_budget(&mut self, change: &Change) {
        let Self { budgets, pods, nodes, .. } = self;
        let healthy = pods
            .iter()
            .filter(|(_, pod)| pod.namespace == change.key.namespace && is_healthy(pod, nodes))
            .map(|(uid, pod)| (uid, &*pod.object));
        let broken = budgets.see(change.at, &change.key, change.after.as_deref(), healthy);
        self.tell_broken(change.at, broken);
    }

    /// Whether the pod counts for its budgets.
    fn weigh_pod(&mut self, at: Timestamp, uid: &str) {
        let Some(pod) = self.pods.get(uid) else { return };
        let healthy = is_healthy(pod, &self.nodes);
        let (namespace, object) = (pod.namespace.clone(), Arc::clone(&pod.object));
        let broken = self.budgets.see_pod(at, &namespace, &object, healthy);
        self.tell_broken(at, broken);
    }

    fn tell_broken(&self, at: Timestamp, broken: impl IntoIterator<Item = Broken>) {
        for Broken { name, healthy, wanted } in broken {
            let text = format!("PodDisruptionBudget {name}: {healthy} healthy pods where {wanted} are wanted");
            self.timeline.add(Row { at, node: None, who: Who::Kubernetes, tone: Tone::Warning, text });
        }
    }

    fn see_request(&mut self, request: &RequestSeen, at: Timestamp) {
        let Some(node) = request.actor.as_str().strip_prefix(AGENT).map(str::to_owned) else { return };
        self.verdict.api_requests += 1;
        self.check_modesty(&node, request, at);
        let writes = matches!(request.verb, "create" | "update" | "patch" | "delete" | "deletecollection");
        let accepted = (200..300).contains(&request.code);
        if request.resource == NODES && writes && request.key.name != node {
            self.violate(at, &node, &format!("the agent wrote node {}", request.key.name));
        }
        if writes && ![NODES, PODS].contains(&request.resource.as_str()) {
            let named =
                || request.body.as_deref().and_then(|body| body["metadata"]["name"].as_str()).unwrap_or_default();
            let name = if request.key.name.is_empty() { named() } else { &request.key.name };
            self.check_other_write(&node, &request.resource, name, at);
        }
        if request.resource != PODS || !writes {
            return;
        }
        let evicts = request.subresource.as_deref() == Some("eviction");
        match (evicts, accepted) {
            (true, true) => self.verdict.evicted += 1,
            (true, false) => self.verdict.evictions_refused += 1,
            (false, _) => {}
        }
        if accepted {
            self.check_leave(&node, request, evicts, at);
        }
    }

    fn check_modesty(&mut self, name: &str, request: &RequestSeen, at: Timestamp) {
        let pods = self.pods.values().filter(|pod| pod.node == name).count() as u64;
        let Some(node) = self.nodes.get_mut(name) else { return };
        let minute = at.as_second() / 60;
        if node.minute != minute {
            (node.minute, node.requests) = (minute, 0);
        }
        node.requests += 1;
        let most = REQUESTS_A_MINUTE.0 + REQUESTS_A_MINUTE.1 * pods;
        let too_many = node.requests > most && node.told.insert(format!("requests/{minute}"));
        let quiet = node.record.is_none() && node.stirred.is_none_or(|stirred| stirred < minus(at, SETTLES));
        let vm = node.vm.clone();
        if too_many {
            self.violate(at, name, &format!("more than {most} requests within a minute"));
        }
        // Events are told when nobody waits for them, and so may be late.
        let told = request.resource == super::api_server::kinds::EVENTS || request.resource == "events.events.k8s.io";
        // Events of other machines are looked at for the sake of repairs.
        let for_repairs = match request.resource.as_str() {
            NODE_REPAIRS => true,
            NODES | LEASES => !self.repairs.is_empty(),
            _ => false,
        };
        let agrees = for_repairs && self.any_event(at);
        if quiet && !told && !agrees && !self.concerned(&vm, at) {
            let what = format!("{} {} although nothing concerns the node", request.verb, request.resource);
            self.violate(at, name, &what);
        }
    }

    /// Whether Azure lists an event for the machine, or did so a moment ago.
    fn concerned(&self, vm: &str, at: Timestamp) -> bool {
        let recently = |event: &Event| event.is_listed() || event.phase_since >= minus(at, SETTLES);
        self.events_of(vm, at).iter().any(recently)
    }

    /// Whether Azure lists an event at all, or did so a moment ago.
    fn any_event(&self, at: Timestamp) -> bool {
        let recently = |event: &Event| event.is_listed() || event.phase_since >= minus(at, SETTLES);
        self.azure.events().iter().any(recently)
    }

    /// A pod was evicted or deleted.
    fn check_leave(&mut self, node: &str, request: &RequestSeen, evicts: bool, at: Timestamp) {
        let key = request.key.to_string();
        let body = request.body.as_deref().unwrap_or(&Value::Null);
        let options = if evicts { &body["deleteOptions"] } else { body };
        let Some(uid) = options["preconditions"]["uid"].as_str().map(str::to_owned) else {
            return self.violate(
                at,
                node,
                &format!("pod {key} was asked to leave whichever pod it is: no UID was named"),
            );
        };
        if options["gracePeriodSeconds"].as_i64().is_none_or(|grace| grace < 1) {
            self.violate(at, node, &format!("pod {key} was given no grace"));
        }
        match self.pods.get(&uid) {
            Some(pod) if pod.node != node => {
                let elsewhere = pod.node.clone();
                self.violate(at, node, &format!("pod {key} was asked to leave, but it is on node {elsewhere}"));
            }
            Some(pod) if pod.stays => {
                self.violate(at, node, &format!("pod {key} belongs to the node and was asked to leave"));
            }
            _ => {}
        }
        let Some(state) = self.nodes.get(node) else { return };
        let (stirred, recorded) = (state.stirred, state.recorded_until);
        let held = state.must_have_noticed_hold(at);
        // A request may still be on its way when the node is given back.
        let explained = state.record.is_some() || recorded.is_some_and(|until| until >= minus(at, REQUEST_TIMEOUT));
        if !explained {
            self.violate(at, node, &format!("pod {key} was asked to leave, but the node carries no record"));
        }
        if held {
            self.violate(at, node, &format!("pod {key} was asked to leave although a person holds the agent off"));
        }
        let rules: Vec<Rule> = self.rules(node, at).into_iter().filter(|rule| rule.action == Action::Drain).collect();
        if rules.is_empty() {
            self.violate(at, node, &format!("pod {key} was asked to leave although no rule asks for a drain"));
        } else if rules.iter().all(|rule| at < minus(rule.drains_from, MOMENT)) {
            self.violate(at, node, &format!("pod {key} was asked to leave earlier than any rule says"));
        }
        // A pod that is leaving already may be told to hurry: no budget is asked for it any more.
        let moment = minus(at, Duration::from_millis(50));
        let hurries = self.pods.get(&uid).is_some_and(|pod| pod.told_at.is_some_and(|told| told < moment));
        if !evicts && !hurries {
            self.verdict.deleted += 1;
            let from = rules.iter().filter_map(|rule| rule.deletes_from).min();
            // Events whose deadlines are close are drained for as one, in the way of the hardest.
            let from = from.map(|from| if rules.len() > 1 { minus(from, SAME_TIME) } else { from });
            match from {
                None => self.violate(at, node, &format!("pod {key} was deleted, which no rule allows")),
                Some(from) if at < from => {
                    self.violate(at, node, &format!("pod {key} was deleted before the deadline was near"));
                }
                Some(_) => {}
            }
        }
        let late = stirred.map_or(Timestamp::MIN, |stirred| plus(stirred, WITHOUT_NOTICE + TOLERANCE));
        if at > late && !rules.iter().any(|rule| at <= rule.until) {
            self.violate(at, node, &format!("pod {key} was asked to leave when the deadline was past"));
        }
    }
}

/// Whether a drain by this profile leaves the pod where it is.
fn leaves(profile: &Profile, pod: &Pod) -> bool {
    let metadata = &pod.object["metadata"];
    let (labels, annotations) = (strings(&metadata["labels"]), strings(&metadata["annotations"]));
    let skips = |of: &BTreeMap<String, String>, by: &BTreeMap<String, String>| {
        by.iter().any(|(key, value)| of.get(key) == Some(value))
    };
    profile.pods.as_ref().is_some_and(|pods| !pods.matches(&labels))
        || skips(&labels, &profile.skip.labels)
        || skips(&annotations, &profile.skip.annotations)
}

/// Whether a pod is Ready, on a machine that runs, and not told to stop.
fn is_healthy(pod: &Pod, nodes: &BTreeMap<String, Node>) -> bool {
    let up = nodes.get(&pod.node).is_some_and(|node| node.up);
    up && pod.told_at.is_none() && pods::is_ready(&pod.object)
}

fn strings(object: &Value) -> BTreeMap<String, String> {
    let entries = object.as_object().into_iter().flatten();
    entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

fn pod(key: &Key, object: &Arc<Value>) -> Pod {
    let metadata = &object["metadata"];
    let controller = owner::controller_of(object);
    let of_daemon_set = controller.as_ref().is_some_and(|owner| owner.kind == "DaemonSet");
    let mirror = metadata["annotations"]["kubernetes.io/config.mirror"].is_string();
    let says_skip = |map: &Value| map[SKIP_DRAIN] == "true";
    let mut tolerations = taint::tolerations(&object["spec"]).iter();
    let any_effect = |one: &Value| one["effect"].is_null() || one["effect"] == taint::NO_SCHEDULE;
    let any_key = |one: &Value| one["key"].is_null() || one["key"] == taint::UNSCHEDULABLE;
    let mut volumes = object["spec"]["volumes"].as_array().into_iter().flatten();
    Pod {
        name: key.to_string(),
        namespace: key.namespace.clone(),
        object: Arc::clone(object),
        node: pods::node_name(object).unwrap_or_default().to_owned(),
        stays: of_daemon_set || mirror || says_skip(&metadata["labels"]) || says_skip(&metadata["annotations"]),
        told_at: None,
        finished: pods::is_finished(object),
        may_come_back: tolerations.any(|one| any_key(one) && any_effect(one)),
        bare: controller.is_none(),
        empty_dir: volumes.any(|volume| volume["emptyDir"].is_object()),
    }
}
