//! Scenario files: a cluster in a few lines, what happens to it, and what chance adds.
//!
//! Node `np1-0` is the machine `np1_0` of the scale set `np1`, as in Azure: steps about Azure name machines, steps about
//! Kubernetes name nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use domain::yaml::{self, FileError, Mistake};
use jiff::Timestamp;
use mock_imds::{EventChange, EventSpec, FaultSpec, Period, Wait};
use serde::Deserialize;
use serde_saphyr::{Location, Spanned};

use super::verdict::{Expectation, Verdict};

const API_VERSION: &str = "remediator.dev/v1alpha1";
const KIND: &str = "Scenario";

/// When a story begins whose file does not say it; a Saturday.
const BEGINS: &str = "2026-04-11T22:00:00Z";

/// More than this takes more memory than a desk has.
const MOST_NODES: u32 = 5000;

/// How many pods a node of AKS runs at the most
/// (<https://learn.microsoft.com/azure/aks/quotas-skus-regions#service-quotas-and-limits>).
const PODS_A_NODE: u32 = 250;

/// More than this of anything by chance takes more memory than a desk has.
const MOST_BY_CHANCE: u32 = 10_000;

/// A scenario.
#[derive(Debug)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// What it is about.
    pub description: String,
    /// How long it lasts.
    pub lasts: Duration,
    /// The wall time at which it begins.
    pub begins: Timestamp,
    /// How long a machine is away when it reboots or moves to another host.
    pub away: Duration,
    /// How many requests a second the API server takes of all agents; 0 if it takes all.
    pub requests_per_second: u32,
    /// The node pools.
    pub pools: Vec<Pool>,
    /// What runs on them.
    pub workloads: Vec<Workload>,
    /// What happens, in the order of time.
    pub steps: Vec<(Duration, Act)>,
    /// What chance adds.
    pub chance: Chance,
    /// What has to come of it.
    pub expected: Vec<Expectation>,
}

/// A node pool: a scale set of machines.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Pool {
    /// Its name; the nodes are called `NAME-0`, `NAME-1` and so on.
    pub name: Spanned<String>,
    /// How many machines it has.
    pub nodes: Spanned<u32>,
    /// Further labels of the nodes.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Whether they are spot machines.
    #[serde(default)]
    pub spot: bool,
}

/// What kind of controller stands behind a workload's pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum WorkloadKind {
    /// A Deployment.
    Deployment,
    /// A StatefulSet.
    StatefulSet,
    /// A DaemonSet.
    DaemonSet,
    /// None: bare pods.
    Pod,
}

/// Pods of one kind.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Workload {
    /// Its name.
    pub name: Spanned<String>,
    /// What stands behind its pods.
    pub kind: WorkloadKind,
    /// How many pods it has; a DaemonSet has one a node.
    #[serde(default = "one")]
    pub replicas: Spanned<u32>,
    /// The namespace.
    #[serde(default = "default_namespace")]
    pub namespace: Spanned<String>,
    /// The pool that its pods may run in; any if `None`.
    pub pool: Option<Spanned<String>>,
    /// How long its pods take to be Ready.
    #[serde(default = "one_second")]
    pub ready_after: Period,
    /// How long its pods take to stop when they are asked to; `forever` ignores the request.
    #[serde(default)]
    pub stops_after: Wait,
    /// How long they are given to stop.
    #[serde(default = "usual_grace")]
    pub grace: Period,
    /// Whether they have an emptyDir volume.
    #[serde(default)]
    pub empty_dir: bool,
    /// Their priority class.
    pub priority_class: Option<String>,
    /// How many of its pods must stay.
    pub disruption_budget: Option<DisruptionBudget>,
}

/// A disruption budget: a number, or a share like `25%`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum DisruptionBudget {
    /// At least so many must be there.
    MinAvailable(serde_json::Value),
    /// At most so many may be missing.
    MaxUnavailable(serde_json::Value),
}

/// A mark on a node beside the cordon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The taint of the policies.
    Taint,
    /// The label by which load balancers leave the node out.
    ExcludeFromLoadBalancers,
    /// The annotation by which the autoscaler leaves the node alone.
    ScaleDownDisabled,
}

/// Whom a machine does not reach while it is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Partition {
    /// The metadata service.
    Azure,
    /// The API server.
    ApiServer,
    /// Neither.
    Both,
}

/// Something that happens.
#[derive(Clone, Debug)]
pub enum Act {
    /// Azure publishes an event.
    Publish(EventSpec),
    /// Azure withdraws one.
    Cancel(String),
    /// Azure starts one earlier than it said.
    Start(String),
    /// Azure ends one.
    Finish(String),
    /// Azure changes one.
    Change(String, EventChange),
    /// The metadata service misbehaves.
    Spoil(FaultSpec),
    /// A person cordons a node.
    Cordon(String),
    /// A person uncordons a node.
    Uncordon(String),
    /// A person holds remediator off a node.
    Hold(String),
    /// A person lifts the hold.
    LiftHold(String),
    /// The agent on a node is killed; it comes back by itself.
    KillAgent(String),
    /// A machine loses its power without an event.
    PowerOff(String),
    /// It gets it back.
    PowerOn(String),
    /// The API server answers nobody for so long.
    ApiServerAway(Duration),
    /// A person sets a mark on a node.
    SetMark(String, Mark),
    /// A person takes a mark off a node.
    TakeMark(String, Mark),
    /// A person gives a node a policy by name: the one with this number, or, beyond them, one that there is not.
    NamePolicy(String, usize),
    /// A person leaves the node's policy to the selectors again.
    UnnamePolicy(String),
    /// The autoscaler begins to remove a node.
    ScaleDown(String),
    /// The autoscaler has not got the node removed, and gives up.
    GiveUpScaleDown(String),
    /// The autoscaler removes the node's machine.
    EndScaleDown(String),
    /// A repair of a node begins.
    Repair(String),
    /// The repair of a node is over.
    EndRepair(String),
    /// The admission of the API server begins to refuse the taint of the policies.
    RefuseTaint,
    /// It lets it pass again.
    LetTaintPass,
    /// The agent's machine does not reach somebody for so long.
    Partition(String, Partition, Duration),
    /// A machine stands still for so long, and its wall clock is wrong by so many seconds from then on.
    StepClock(String, Duration, i64),
    /// Its wall clock steps to the right time.
    SetClockRight(String),
}

/// What chance adds, all from the seed of the run.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Chance {
    /// How many scheduled events, of all types, over all machines.
    pub events: u32,
    /// How often an agent dies, at any point between two requests or in the middle of one.
    pub agent_deaths: u32,
    /// How many of a hundred answers of the metadata service are none.
    pub imds_faults: u8,
    /// How many of a hundred requests to the API server fail, are answered too late or lose their answer.
    pub api_faults: u8,
    /// How long a request to the API server takes at the most.
    pub latency: Period,
    /// How often a person does something to some node: cordons, uncordons or holds it, sets or takes away one of the marks
    /// that agents use, or gives it another policy.
    pub people: u32,
    /// How often the wall clock of a machine steps, after the machine has stood still.
    pub clock_steps: u32,
    /// How often a machine does not reach Azure, the API server, or both.
    pub partitions: u32,
    /// How often the autoscaler begins to remove a node.
    pub scale_downs: u32,
    /// How often a node is repaired by a restart that somebody asks Azure for.
    pub repairs: u32,
    /// How often the admission of the API server refuses the taint of the policies for a while.
    pub refusals: u32,
}

impl Chance {
    /// How often the most frequent of what it draws one by one happens.
    pub fn most_often(&self) -> u32 {
        let Self { events, agent_deaths, people, clock_steps, partitions, scale_downs, repairs, refusals, .. } = *self;
        [events, agent_deaths, people, clock_steps, partitions, scale_downs, repairs, refusals]
            .into_iter()
            .fold(0, u32::max)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ScenarioFile {
    api_version: Spanned<String>,
    kind: Spanned<String>,
    metadata: Metadata,
    #[serde(default)]
    description: String,
    lasts: Spanned<Period>,
    begins: Option<Timestamp>,
    #[serde(default = "usual_absence")]
    machines_away_for: Period,
    #[serde(default)]
    api_server: ApiServerFile,
    pools: Spanned<Vec<Pool>>,
    #[serde(default)]
    workloads: Vec<Workload>,
    #[serde(default)]
    steps: Vec<Spanned<StepFile>>,
    chance: Option<Spanned<Chance>>,
    #[serde(default)]
    expect: BTreeMap<String, Spanned<Bounds>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ApiServerFile {
    requests_per_second: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Metadata {
    name: String,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "an expectation is a number, or bounds like {atLeast: 1, atMost: 3}")]
enum Bounds {
    Exactly(u64),
    Between(Between),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Between {
    at_least: Option<u64>,
    at_most: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StepFile {
    at: Period,
    event: Option<EventSpec>,
    cancel: Option<Spanned<String>>,
    start: Option<Spanned<String>>,
    finish: Option<Spanned<String>>,
    change: Option<Spanned<String>>,
    to: Option<Spanned<EventChange>>,
    fault: Option<FaultSpec>,
    cordon: Option<Spanned<String>>,
    uncordon: Option<Spanned<String>>,
    hold: Option<Spanned<String>>,
    lift_hold: Option<Spanned<String>>,
    kill_agent: Option<Spanned<String>>,
    power_off: Option<Spanned<String>>,
    power_on: Option<Spanned<String>>,
    api_server_away: Option<Period>,
}

fn one() -> Spanned<u32> {
    unplaced(1)
}

/// A value that the file does not say.
fn unplaced<T>(value: T) -> Spanned<T> {
    Spanned::new(value, Location::UNKNOWN, Location::UNKNOWN)
}

fn one_second() -> Period {
    Period(Duration::from_secs(1))
}

fn usual_absence() -> Period {
    Period(Duration::from_secs(90))
}

fn usual_grace() -> Period {
    Period(Duration::from_secs(30))
}

fn default_namespace() -> Spanned<String> {
    unplaced("default".to_owned())
}

impl Scenario {
    /// Reads the text of a scenario file; `file` is its name, for the error.
    pub fn parse(file: &str, text: &str) -> Result<Self, FileError> {
        yaml::read(file, text, ScenarioFile::check)
    }

    /// The nodes in the order of the file.
    pub fn nodes(&self) -> impl Iterator<Item = (&Pool, u32)> {
        self.pools.iter().flat_map(|pool| (0..pool.nodes.value).map(move |number| (pool, number)))
    }
}

impl Pool {
    /// The node with this number.
    pub fn node(&self, number: u32) -> String {
        format!("{}-{number}", self.name.value)
    }

    /// The machine with this number.
    pub fn vm(&self, number: u32) -> String {
        format!("{}_{number}", self.name.value)
    }
}

impl ScenarioFile {
    fn check(self) -> Result<Scenario, Mistake> {
        let Self {
            api_version,
            kind,
            metadata,
            description,
            lasts,
            begins,
            machines_away_for,
            api_server,
            pools,
            workloads,
            steps,
            chance,
            expect,
        } = self;
        if api_version.value != API_VERSION {
            let message = format!("unknown apiVersion `{}`: write {API_VERSION}", api_version.value);
            return Err(Mistake::at(&api_version, message));
        }
        if kind.value != KIND {
            return Err(Mistake::at(&kind, format!("unknown kind `{}`: write {KIND}", kind.value)));
        }
        if lasts.value.0.is_zero() {
            return Err(Mistake::at(&lasts, "a scenario that lasts 0s shows nothing: give it time, like 30m"));
        }
        let known = Names::of(&pools, &workloads)?;
        if let Some(late) = steps.iter().find(|step| step.value.at.0 >= lasts.value.0) {
            return Err(Mistake::at(
                late,
                "this comes after the end of the scenario: let it last longer, or the step be earlier",
            ));
        }
        let mut in_order = steps;
        in_order.sort_by_key(|step| step.value.at);
        let mut events = BTreeSet::new();
        let steps = in_order
            .into_iter()
            .map(|step| Ok((step.value.at.0, known.act(step, &mut events)?)))
            .collect::<Result<Vec<_>, Mistake>>()?;
        if let Some(chance) =
            chance.as_ref().filter(|chance| chance.value.imds_faults.max(chance.value.api_faults) > 50)
        {
            return Err(Mistake::at(
                chance,
                "more than 50 faults of a hundred leave nothing to look at: give 50 or less",
            ));
        }
        if let Some(chance) = chance.as_ref().filter(|chance| chance.value.most_often() > MOST_BY_CHANCE) {
            let message = format!("chance brings {MOST_BY_CHANCE} of a kind at the most: give smaller numbers");
            return Err(Mistake::at(chance, message));
        }
        let expected = expect.into_iter().map(|(what, bounds)| expectation(what, &bounds)).collect::<Result<_, _>>()?;
        Ok(Scenario {
            name: metadata.name,
            description,
            lasts: lasts.value.0,
            begins: begins.or_else(|| BEGINS.parse().ok()).unwrap_or_default(),
            away: machines_away_for.0,
            requests_per_second: api_server.requests_per_second,
            pools: pools.value,
            workloads,
            steps,
            chance: chance.map(|chance| chance.value).unwrap_or_default(),
            expected,
        })
    }
}

fn expectation(what: String, bounds: &Spanned<Bounds>) -> Result<Expectation, Mistake> {
    let known = Verdict::names();
    if !known.contains(&what.as_str()) {
        let known = known.join(", ");
        return Err(Mistake::at(bounds, format!("a verdict has no number `{what}`; it has {known}")));
    }
    let (at_least, at_most) = match &bounds.value {
        Bounds::Exactly(number) => (*number, *number),
        Bounds::Between(Between { at_least: Some(low), at_most: Some(high) }) if low > high => {
            return Err(Mistake::at(bounds, "`atLeast` is more than `atMost`, which no number can be"));
        }
        Bounds::Between(Between { at_least, at_most }) => (at_least.unwrap_or(0), at_most.unwrap_or(u64::MAX)),
    };
    Ok(Expectation { what, at_least, at_most })
}

/// An act on an event or a node of this name.
type ActOn = fn(String) -> Act;

/// What a scenario may speak of.
struct Names {
    nodes: BTreeSet<String>,
    vms: BTreeSet<String>,
}

impl Names {
    fn of(pools: &Spanned<Vec<Pool>>, workloads: &[Workload]) -> Result<Self, Mistake> {
        let mut names = Self { nodes: BTreeSet::new(), vms: BTreeSet::new() };
        let mut seen = BTreeSet::new();
        for pool in &pools.value {
            check_name("pool", &pool.name)?;
            if !seen.insert(pool.name.value.clone()) {
                return Err(Mistake::at(&pool.name, format!("two pools are named `{}`: rename one", pool.name.value)));
            }
            let count = names.nodes.len().saturating_add(pool.nodes.value as usize);
            if pool.nodes.value == 0 || count > MOST_NODES as usize {
                let message = format!("a pool has at least 1 node, and all pools together {MOST_NODES} at most");
                return Err(Mistake::at(&pool.nodes, message));
            }
            names.nodes.extend((0..pool.nodes.value).map(|number| pool.node(number)));
            names.vms.extend((0..pool.nodes.value).map(|number| pool.vm(number)));
        }
        if pools.value.is_empty() {
            return Err(Mistake::at(pools, "there is no node: give a pool, as `- {name: np1, nodes: 3}`"));
        }
        let mut workload_names = BTreeSet::new();
        for workload in workloads {
            check_name("workload", &workload.name)?;
            check_name("namespace", &workload.namespace)?;
            if workload.name.value == super::lives::DAEMON_SET {
                let message = format!("the agents themselves are called `{}`: rename it", workload.name.value);
                return Err(Mistake::at(&workload.name, message));
            }
            if !workload_names.insert((&workload.namespace.value, &workload.name.value)) {
                let message = format!("two workloads of a namespace are named `{}`: rename one", workload.name.value);
                return Err(Mistake::at(&workload.name, message));
            }
            if let Some(pool) = workload.pool.as_ref().filter(|pool| !seen.contains(&pool.value)) {
                return Err(Mistake::at(pool, format!("there is no pool `{}`{}", pool.value, listed(&seen))));
            }
            let of_pool = |pool: &&Pool| workload.pool.as_ref().is_none_or(|wanted| wanted.value == pool.name.value);
            let nodes: u32 = pools.value.iter().filter(of_pool).map(|pool| pool.nodes.value).sum();
            let room = nodes.saturating_mul(PODS_A_NODE);
            if workload.replicas.value > room {
                let message = format!("{nodes} nodes have room for {room} pods at the most: give fewer, or more nodes");
                return Err(Mistake::at(&workload.replicas, message));
            }
        }
        Ok(names)
    }

    fn act(&self, step: Spanned<StepFile>, events: &mut BTreeSet<String>) -> Result<Act, Mistake> {
        let step_place = Spanned::new((), step.referenced, step.defined);
        let one_thing = Mistake::at(&step, "a step has a time, `at`, and does one thing, such as `event` or `cordon`");
        let StepFile {
            at: _,
            event,
            cancel,
            start,
            finish,
            change,
            to,
            fault,
            cordon,
            uncordon,
            hold,
            lift_hold,
            kill_agent,
            power_off,
            power_on,
            api_server_away,
        } = step.value;
        let mut acts = Vec::new();
        if let Some(spec) = event {
            if spec.vms().is_empty() {
                return Err(Mistake::at(&step_place, "an event needs the machines that it is about: `vms: [np1_0]`"));
            }
            for vm in spec.vms() {
                self.check_vm(vm)?;
            }
            if let Some(other) = spec.vms().iter().find(|vm| pool_of(&vm.value) != pool_of(&spec.vms()[0].value)) {
                return Err(Mistake::at(other, "one event is about machines of one pool only: publish two"));
            }
            if let Some(twin) = spec.called().find(|name| events.iter().any(|known| known.eq_ignore_ascii_case(name))) {
                let message = format!("there is an event `{twin}` already: give this one another name");
                return Err(Mistake::at(&step_place, message));
            }
            events.extend(spec.called().map(str::to_owned));
            acts.push(Act::Publish(spec));
        }
        let about_events: [(_, ActOn); 3] = [(cancel, Act::Cancel), (start, Act::Start), (finish, Act::Finish)];
        for (name, act) in about_events {
            if let Some(name) = name {
                acts.push(act(published(name, events)?));
            }
        }
        match (change, to) {
            (Some(name), Some(to)) => {
                if let Some(contradiction) = to.value.contradiction() {
                    return Err(Mistake::at(&to, contradiction));
                }
                acts.push(Act::Change(published(name, events)?, to.value));
            }
            (Some(name), None) => {
                return Err(Mistake::at(&name, "`change` needs `to`, which says what becomes new: `to: {notice: 5m}`"));
            }
            (None, Some(_)) => return Err(one_thing),
            (None, None) => {}
        }
        if let Some(spec) = fault {
            for vm in spec.vms() {
                self.check_vm(vm)?;
            }
            spec.check().map_err(|wrong| Mistake::at(&wrong, wrong.value.clone()))?;
            acts.push(Act::Spoil(spec));
        }
        let about_nodes: [(_, ActOn); 7] = [
            (cordon, Act::Cordon),
            (uncordon, Act::Uncordon),
            (hold, Act::Hold),
            (lift_hold, Act::LiftHold),
            (kill_agent, Act::KillAgent),
            (power_off, Act::PowerOff),
            (power_on, Act::PowerOn),
        ];
        for (node, act) in about_nodes {
            let Some(node) = node else { continue };
            if !self.nodes.contains(&node.value) {
                return Err(Mistake::at(&node, format!("there is no node `{}`{}", node.value, listed(&self.nodes))));
            }
            acts.push(act(node.value));
        }
        acts.extend(api_server_away.map(|time| Act::ApiServerAway(time.0)));
        match acts.pop() {
            Some(act) if acts.is_empty() => Ok(act),
            _ => Err(one_thing),
        }
    }

    fn check_vm(&self, vm: &Spanned<String>) -> Result<(), Mistake> {
        if self.vms.contains(&vm.value) {
            return Ok(());
        }
        Err(Mistake::at(vm, format!("there is no machine `{}`{}", vm.value, listed(&self.vms))))
    }
}

/// The pool of a machine.
fn pool_of(vm: &str) -> &str {
    vm.rsplit_once('_').map_or(vm, |(pool, _)| pool)
}

fn published(name: Spanned<String>, events: &BTreeSet<String>) -> Result<String, Mistake> {
    if events.contains(&name.value) {
        return Ok(name.value);
    }
    Err(Mistake::at(&name, format!("no step before publishes an event named `{}`{}", name.value, listed(events))))
}

/// The first few that there are.
fn listed(names: &BTreeSet<String>) -> String {
    let first: Vec<&str> = names.iter().map(String::as_str).take(5).collect();
    match (first.is_empty(), names.len() > first.len()) {
        (true, _) => String::new(),
        (false, false) => format!("; there are {}", first.join(", ")),
        (false, true) => format!("; there are {} and {} more", first.join(", "), names.len() - first.len()),
    }
}

fn check_name(of: &str, name: &Spanned<String>) -> Result<(), Mistake> {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.value.as_bytes();
    if bytes.len() <= 40 && bytes.iter().all(|byte| allowed(*byte)) && edge(bytes.first()) && edge(bytes.last()) {
        return Ok(());
    }
    Err(Mistake::at(name, format!("`{}` is no name for a {of}: use up to 40 of a-z, 0-9 and `-`", name.value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(rest: &str) -> Result<Scenario, String> {
        let text =
            format!("apiVersion: remediator.dev/v1alpha1\nkind: Scenario\nmetadata: {{name: s}}\nlasts: 10m\n{rest}");
        Scenario::parse("s.yaml", &text).map_err(|error| error.to_string())
    }

    #[test]
    fn steps_are_in_the_order_of_time_whatever_their_order_in_the_file() {
        let scenario = parsed(
            "pools: [{name: np1, nodes: 2}]\nsteps:\n- {at: 2m, cancel: move}\n\
             - {at: 1m, event: {name: move, type: Redeploy, vms: [np1_1]}}\n",
        );
        let steps = scenario.unwrap().steps;
        assert!(matches!(&steps[..], [(_, Act::Publish(_)), (_, Act::Cancel(_))]), "{steps:?}");
    }

    #[test]
    fn every_mistake_is_answered_with_its_place_and_what_would_be_right() {
        let pool = "pools: [{name: np1, nodes: 2}]\n";
        for (text, answer) in [
            ("pools: []\n", "s.yaml:5:8: there is no node: give a pool, as `- {name: np1, nodes: 3}`"),
            (
                "pools: [{name: np1, nodes: 0}]\n",
                "s.yaml:5:28: a pool has at least 1 node, and all pools together 5000 at most",
            ),
            (
                "pools: [{name: NP1, nodes: 1}]\n",
                "s.yaml:5:16: `NP1` is no name for a pool: use up to 40 of a-z, 0-9 and `-`",
            ),
            (
                &format!("{pool}steps: [{{at: 1m, cordon: np1-7}}]\n"),
                "s.yaml:6:26: there is no node `np1-7`; there are np1-0, np1-1",
            ),
            (
                &format!("{pool}steps: [{{at: 1m, event: {{type: Reboot, vms: [np1-0]}}}}]\n"),
                "s.yaml:6:46: there is no machine `np1-0`; there are np1_0, np1_1",
            ),
            (
                &format!("{pool}steps: [{{at: 1m, cancel: move}}]\n"),
                "s.yaml:6:26: no step before publishes an event named `move`",
            ),
            (
                &format!("{pool}steps: [{{at: 1m}}]\n"),
                "s.yaml:6:9: a step has a time, `at`, and does one thing, such as `event` or `cordon`",
            ),
            (
                &format!("{pool}steps: [{{at: 1m, cordon: np1-0, hold: np1-1}}]\n"),
                "s.yaml:6:9: a step has a time, `at`, and does one thing, such as `event` or `cordon`",
            ),
            (
                &format!("{pool}steps: [{{at: 1m, fault: {{kind: hang, requests: 0}}}}]\n"),
                "s.yaml:6:48: `requests` is 0, so the fault would never show; give 1 or more, or leave it out",
            ),
            (
                &format!(
                    "{pool}steps:\n- {{at: 1m, event: {{name: a, type: Reboot, vms: [np1_0]}}}}\n\
                     - {{at: 2m, event: {{name: a, type: Reboot, vms: [np1_1]}}}}\n"
                ),
                "s.yaml:8:3: there is an event `a` already: give this one another name",
            ),
            (
                &format!(
                    "{pool}steps:\n- {{at: 1m, event: {{name: a, type: Reboot, vms: [np1_0]}}}}\n\
                     - {{at: 2m, change: a, to: {{status: Cancelled}}}}\n"
                ),
                "s.yaml:8:27: a status can be changed to `Started` only; to end an event, finish or cancel it",
            ),
            (
                &format!("{pool}chance: {{people: 10001}}\n"),
                "s.yaml:6:9: chance brings 10000 of a kind at the most: give smaller numbers",
            ),
            (
                &format!("{pool}expect: {{events: many}}\n"),
                "s.yaml:6:18: an expectation is a number, or bounds like {atLeast: 1, atMost: 3}",
            ),
            (
                &format!("{pool}workloads: [{{name: web, kind: Deployment, pool: np2}}]\n"),
                "s.yaml:6:49: there is no pool `np2`; there are np1",
            ),
        ] {
            assert_eq!(parsed(text).map(|_| ()), Err(answer.to_owned()));
        }
        let crowded =
            parsed(&format!("{pool}workloads: [{{name: web, kind: Deployment, replicas: 501}}]\n")).unwrap_err();
        assert_eq!(crowded, "s.yaml:6:53: 2 nodes have room for 500 pods at the most: give fewer, or more nodes");
        let unknown = parsed(&format!("{pool}expect: {{evictd: 1}}\n")).unwrap_err();
        assert!(unknown.starts_with("s.yaml:6:18: a verdict has no number `evictd`; it has agentLives"), "{unknown}");
        let typo = parsed(&format!("{pool}step: []\n")).unwrap_err();
        assert!(typo.starts_with("s.yaml:6:1:") && typo.contains("step"), "{typo}");
    }
}
