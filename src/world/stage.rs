//! The world of one scenario, and the playing of it.

mod bystanders;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::fingerprint::fingerprint;
use domain::marks::Taint;
use domain::policy::PolicySet;
use domain::record::AGENT_ANNOTATION;
use domain::time::{Monotonic, spoken};
use jiff::Timestamp;
use mock_imds::{EventType, Mock, MockError, Phase, Settings, Vm, Wait};
use serde_json::{Value, json};
use tokio_util::task::AbortOnDropHandle;

use super::api_server::ApiServer;
use super::api_server::kinds::{DAEMON_SETS, DEPLOYMENTS, DISRUPTION_BUDGETS, NAMESPACES, NODES, PODS, STATEFUL_SETS};
use super::api_server::refusal::Refusal;
use super::api_server::store::{Actor, Key};
use super::chance;
use super::controllers::{self, Controllers, condition, pod};
use super::invariants::{Checker, has_conditions_of_ours};
use super::kubelets::{Fate, HowItEnded, Kubelets, MachineSpec, READY_AFTER_ANNOTATION, STOPS_AFTER_ANNOTATION};
use super::lives::{self, Agent, Connect};
use super::machines::Machines;
use super::network::{Exchange, Lines, WaitingLine, Weather, Witness};
use super::onlooker::{AzureNews, ClusterNews};
use super::scenario::{Act, DisruptionBudget, Partition, Pool, Scenario, Workload, WorkloadKind};
use super::timeline::{Row, Timeline, Tone, Who};
use super::verdict::Verdict;
use crate::clock::Clock;

/// How long the world is given until every pod runs, before the story begins.
pub const SETTLES_WITHIN: Duration = Duration::from_secs(180);

/// How long a pause is if the event does not say it.
const FREEZE_TAKES: Duration = Duration::from_secs(5);

/// How often the checker looks whether everybody has done what there was time for.
const TICK: Duration = Duration::from_secs(10);

/// Why a world cannot be built or played.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    /// The API server of the world refuses an object of the scenario.
    #[error("the scenario asks for something that Kubernetes refuses")]
    Refused(#[from] Refusal),
    /// The Azure of the world refuses a step.
    #[error("the scenario asks for something that Azure refuses")]
    Azure(#[from] MockError),
    /// Pods do not come to run.
    #[error(
        "{0:?} were not enough for {1} to run: look at its replicas, readyAfter, priorityClass and disruption budget, and at \
         the room that its nodes have"
    )]
    Unsettled(Duration, String),
}

/// See the module.
pub struct Stage {
    scenario: Scenario,
    seed: u64,
    clock: Clock,
    /// Its Kubernetes.
    pub server: ApiServer,
    /// Its Azure.
    pub azure: Mock,
    /// What is told.
    pub timeline: Timeline,
    checker: Checker,
    machines: Mutex<Machines>,
    _controllers: Controllers,
    lines: BTreeMap<String, Lines>,
    /// The clock of each machine.
    clocks: BTreeMap<String, Clock>,
    /// What there is to give to a node by name.
    policies: Vec<String>,
    /// The taint that agents use, and people too.
    taint: Taint,
    node_of: BTreeMap<String, String>,
    /// When the story begins, and everything runs.
    pub began: Timestamp,
}

impl mock_imds::Clock for Clock {
    fn now(&self) -> Timestamp {
        Self::now(self).wall
    }
}

impl Stage {
    /// Builds the cluster of the scenario, with everything running and nothing happening yet. The story begins at `begins`,
    /// which in virtual time takes no time to wait for, or at once.
    pub async fn build(
        scenario: Scenario,
        policies: &PolicySet,
        clock: Clock,
        seed: u64,
        timeline: Timeline,
        begins: Option<Timestamp>,
    ) -> Result<Self, StageError> {
        let mut node_of = BTreeMap::new();
        let (mut vms, mut machines) = (Vec::new(), Vec::new());
        for (pool, number) in scenario.nodes() {
            node_of.insert(pool.vm(number), pool.node(number));
            let mut vm = Vm::new(pool.vm(number)).in_group(pool.name.value.as_str());
            vm.node = Some(pool.node(number));
            if pool.spot {
                vm.priority = "Spot".into();
                vm.eviction_policy = "Delete".into();
            }
            machines.push(machine(pool, number, &vm));
            vms.push(vm);
        }
        let settings = Settings { seed: of(seed, "azure"), ..Settings::default() };
        let azure = Mock::new(mock_imds::Scenario::new(vms).settings(settings), clock);
        let server = ApiServer::new(clock, of(seed, "kubernetes"));
        let nodes = node_of.iter().map(|(vm, node)| (node.clone(), vm.clone()));
        let checker = Checker::new(policies.clone(), azure.clone(), timeline.clone(), nodes);
        let kubelets = Kubelets::new(&server);
        let controllers = controllers::start(&server);
        let weather = Weather { faults: scenario.chance.api_faults, latency: scenario.chance.latency.0 };
        let waiting_line = WaitingLine::new(clock, scenario.requests_per_second);
        let lines_of = |node: &String| Lines::new(of(seed, node), weather, waiting_line.clone());
        let lines: BTreeMap<String, Lines> = node_of.values().map(|node| (node.clone(), lines_of(node))).collect();
        for machine in machines {
            kubelets.boot(machine)?;
        }
        if scenario.chance.repairs > 0 {
            bystanders::define_repairs(&server)?;
        }
        let (tells, told) = (checker.clone(), timeline.clone());
        kubelets.observe(Box::new(move |fate: &Fate| tell_fate(&tells, &told, fate)));
        let machines = Machines::new(kubelets, lines.clone(), checker.clone());
        let taint = policies.policies().iter().find_map(|policy| policy.marking.taint.clone());
        let mut stage = Self {
            began: clock.now().wall,
            scenario,
            seed,
            clock,
            server,
            azure,
            timeline,
            checker,
            machines: Mutex::new(machines),
            _controllers: controllers,
            clocks: lines.keys().map(|node| (node.clone(), clock.of_machine())).collect(),
            policies: policies.policies().iter().map(|policy| policy.name.clone()).collect(),
            taint: taint.unwrap_or_default(),
            lines,
            node_of,
        };
        stage.furnish().await?;
        if let Some(begins) = begins {
            stage.clock.sleep(stage.clock.now().until(begins)).await;
        }
        stage.look_on();
        stage.began = stage.clock.now().wall;
        Ok(stage)
    }

    /// The nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        self.lines.keys().map(String::as_str)
    }

    /// The machine of a node.
    pub fn vm_of(&self, node: &str) -> Option<&str> {
        self.node_of.iter().find(|(_, one)| *one == node).map(|(vm, _)| vm.as_str())
    }

    /// The lines of a node's machine.
    pub fn lines_of(&self, node: &str) -> Option<&Lines> {
        self.lines.get(node)
    }

    /// The clock of a node's machine, which may come to be wrong.
    pub fn clock_of(&self, node: &str) -> Option<Clock> {
        self.clocks.get(node).copied()
    }

    /// Shows the checker what a node's machine asks Azure, and what it is answered.
    pub fn witness_of(&self, node: &str) -> Witness {
        let (checker, clock, node) = (self.checker.clone(), self.clock, node.to_owned());
        Arc::new(move |exchange: Exchange| checker.see_exchange(&node, exchange, clock.now().wall))
    }

    async fn furnish(&self) -> Result<(), StageError> {
        let actor = Actor::new("scenario");
        let agents = daemon_set(lives::DAEMON_SET);
        self.server.create(&actor, DAEMON_SETS, lives::NAMESPACE, agents)?;
        for workload in &self.scenario.workloads {
            self.create(&actor, workload)?;
        }
        let deadline = self.clock.now().monotonic + SETTLES_WITHIN;
        while let Some(waiting) = self.unsettled() {
            if self.clock.now().monotonic >= deadline {
                return Err(StageError::Unsettled(SETTLES_WITHIN, waiting));
            }
            self.clock.sleep(Duration::from_millis(200)).await;
        }
        Ok(())
    }

    /// A workload of the scenario that does not run as it should.
    fn unsettled(&self) -> Option<String> {
        let pods = self.server.list(PODS, None);
        let ready = |name: &str, namespace: &str| {
            let of =
                |pod: &Value| pod["metadata"]["namespace"] == namespace && pod["metadata"]["labels"]["app"] == name;
            pods.iter().filter(|pod| of(pod) && pod::is_ready(pod)).count()
        };
        let nodes = self.lines.len();
        if ready(lives::DAEMON_SET, lives::NAMESPACE) < nodes {
            return Some("the agents' pods".into());
        }
        let unmet = |budget: &Value| {
            let status = |field: &str| budget["status"][field].as_i64();
            status("observedGeneration") != budget["metadata"]["generation"].as_i64()
                || status("currentHealthy") < status("desiredHealthy")
        };
        if let Some(budget) = self.server.list(DISRUPTION_BUDGETS, None).iter().find(|budget| unmet(budget)) {
            return Some(format!("the disruption budget {}", budget["metadata"]["name"].as_str().unwrap_or_default()));
        }
        let waiting = self.scenario.workloads.iter().find(|workload| {
            let wanted = match (workload.kind, &workload.pool) {
                (WorkloadKind::DaemonSet, None) => nodes,
                (WorkloadKind::DaemonSet, Some(pool)) => self.pool_size(&pool.value),
                _ => workload.replicas.value as usize,
            };
            ready(&workload.name.value, &workload.namespace.value) < wanted
        })?;
        Some(waiting.name.value.clone())
    }

    fn pool_size(&self, name: &str) -> usize {
        self.scenario.nodes().filter(|(pool, _)| pool.name.value == name).count()
    }

    fn create(&self, actor: &Actor, workload: &Workload) -> Result<(), StageError> {
        let namespace = workload.namespace.value.as_str();
        if self.server.get(NAMESPACES, &Key::new("", namespace)).is_err() {
            let object = json!({"metadata": {"name": namespace}});
            self.server.create(actor, NAMESPACES, "", object)?;
        }
        let name = workload.name.value.as_str();
        let template = template(workload);
        let selector = json!({"matchLabels": {"app": name}});
        let object = |mut spec: Value| {
            spec["selector"] = selector.clone();
            spec["template"] = template.clone();
            json!({"metadata": {"name": name}, "spec": spec})
        };
        let replicas = json!({"replicas": workload.replicas.value});
        match workload.kind {
            WorkloadKind::Deployment => drop(self.server.create(actor, DEPLOYMENTS, namespace, object(replicas))?),
            WorkloadKind::StatefulSet => {
                let spec = json!({"replicas": workload.replicas.value, "serviceName": name, "podManagementPolicy": "Parallel"});
                self.server.create(actor, STATEFUL_SETS, namespace, object(spec))?;
            }
            WorkloadKind::DaemonSet => drop(self.server.create(actor, DAEMON_SETS, namespace, object(json!({})))?),
            WorkloadKind::Pod => {
                for number in 0..workload.replicas.value {
                    let mut pod = template.clone();
                    pod["metadata"]["name"] = json!(format!("{name}-{number}"));
                    self.server.create(actor, PODS, namespace, pod)?;
                }
            }
        }
        if let Some(budget) = &workload.disruption_budget {
            let (field, value) = match budget {
                DisruptionBudget::MinAvailable(value) => ("minAvailable", value),
                DisruptionBudget::MaxUnavailable(value) => ("maxUnavailable", value),
            };
            let object = json!({"metadata": {"name": name}, "spec": {"selector": selector, field: value}});
            self.server.create(actor, DISRUPTION_BUDGETS, namespace, object)?;
        }
        Ok(())
    }

    fn look_on(&self) {
        let begins = self.clock.now().wall;
        for resource in [NODES, PODS, DISRUPTION_BUDGETS] {
            self.introduce(resource);
        }
        let mut news = ClusterNews::new(self.timeline.clone(), begins);
        let checker = self.checker.clone();
        self.server.store().observe(Box::new(move |change| {
            news.see(change);
            checker.see_change(change);
        }));
        let (checker, clock) = (self.checker.clone(), self.clock);
        self.server.observe_requests(Box::new(move |request| checker.see_request(request, clock.now().wall)));
    }

    /// Shows the checker what is there already.
    fn introduce(&self, resource: &str) {
        let (at, by) = (self.clock.now().wall, Actor::new("scenario"));
        for object in self.server.list(resource, None) {
            let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
            let key = Key { namespace: text("namespace"), name: text("name") };
            self.checker.see_change(&super::api_server::store::Change {
                version: 0,
                at,
                by: by.clone(),
                resource: resource.into(),
                key,
                before: None,
                after: Some(object),
            });
        }
    }

    /// Starts an agent on each machine; they end when they are dropped.
    pub fn start_agents(
        &self,
        policies: &PolicySet,
        connect: impl Fn(&str) -> Option<Connect>,
    ) -> Vec<AbortOnDropHandle<()>> {
        self.lines
            .iter()
            .filter_map(|(node, lines)| {
                let connect = connect(node)?;
                let clock = self.clock_of(node)?;
                let agent =
                    Agent { node: node.clone(), policies: policies.clone(), lines: lines.clone(), connect, clock };
                let life = agent.live(self.server.clone(), self.checker.clone(), self.clock);
                Some(AbortOnDropHandle::new(tokio::spawn(life)))
            })
            .collect()
    }

    /// Plays the scenario to its end and lets everything come to rest; says what came of it.
    pub async fn play(&self, rests_within: Duration) -> Result<Verdict, StageError> {
        let began = self.clock.now().monotonic;
        let mut steps = self.scenario.steps.clone();
        steps.extend(chance::draw(&self.scenario, of(self.seed, "chance")));
        steps.sort_by_key(|(at, _)| *at);
        let mut steps = steps.into_iter().peekable();
        let mut news = AzureNews::new(self.timeline.clone(), self.azure.clone(), self.node_of.clone());
        loop {
            self.catch_up(&mut news);
            let step = steps.peek().map_or(self.scenario.lasts, |(at, _)| *at).min(self.scenario.lasts);
            let step_at = began + step;
            if self.clock.now().monotonic >= step_at {
                match steps.next().filter(|_| step < self.scenario.lasts) {
                    Some((_, act)) => self.act(act).await?,
                    None => break,
                }
                continue;
            }
            self.wait_until(step_at).await;
        }
        self.come_to_rest(&mut news, rests_within).await?;
        let mut verdict = self.checker.close(self.clock.now().wall);
        verdict.judge(&self.scenario.expected);
        Ok(verdict)
    }

    /// Takes in what has happened, and does what is due.
    fn catch_up(&self, news: &mut AzureNews) {
        let now = self.clock.now();
        self.machines().go_on(now.monotonic, now.wall);
        for (event, phase) in news.see() {
            self.checker.see_event(&event);
            match phase {
                Some(Phase::Scheduled) => self.checker.count_event(),
                Some(Phase::Started) => self.strike(&event),
                _ => {}
            }
        }
        self.checker.tick(now.wall);
        self.timeline.flush(now.wall);
    }

    /// Waits until Azure or a machine does something, or until that time.
    async fn wait_until(&self, at: Monotonic) {
        let tick = self.clock.now().monotonic + TICK;
        let due = self.machines().next().into_iter().chain([at, tick]).min().unwrap_or(tick);
        tokio::select! {
            biased;
            () = self.azure.changed() => {}
            () = self.clock.sleep_until(due) => {}
        }
    }

    fn machines(&self) -> MutexGuard<'_, Machines> {
        // A step of a machine is complete or has not begun when a panic strikes.
        self.machines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn come_to_rest(&self, news: &mut AzureNews, within: Duration) -> Result<(), StageError> {
        let ended = self.clock.now();
        self.tell(None, Who::Fault, "the story is told; faults and events end, and all comes to rest");
        for lines in self.lines.values() {
            lines.calm();
        }
        self.azure.clear_all();
        for event in self.azure.events().into_iter().filter(mock_imds::Event::is_listed) {
            match event.phase {
                Phase::Scheduled => self.azure.cancel(&event.id)?,
                _ => self.azure.finish(&event.id)?,
            };
        }
        for node in self.lines.keys() {
            self.leave_alone(node).await;
        }
        self.server.admit_by(None);
        {
            let mut machines = self.machines();
            machines.switch_all_on(ended.monotonic);
            machines.rejoin_all(ended.monotonic);
        }
        self.checker.stir(ended.wall);
        // Machines may be away for longer than that.
        let patience = ended.monotonic + within.max(self.scenario.away + within);
        while self.clock.now().monotonic < patience {
            self.catch_up(news);
            if self.is_at_rest() {
                break;
            }
            self.wait_until(self.clock.now().monotonic + Duration::from_secs(1)).await;
        }
        self.catch_up(news);
        Ok(())
    }

    /// Whether no node carries a record or conditions of an agent, and all of them are Ready but those whose machine is no more.
    fn is_at_rest(&self) -> bool {
        let machines = self.machines();
        let is_there =
            |node: &&Arc<Value>| !node["metadata"]["name"].as_str().is_some_and(|name| machines.is_gone(name));
        let nodes = self.server.list(NODES, None);
        nodes.iter().filter(is_there).all(|node| {
            node["metadata"]["annotations"][AGENT_ANNOTATION].is_null()
                && condition::is_true(node, "Ready")
                && !has_conditions_of_ours(node)
        })
    }

    fn tell(&self, node: Option<&str>, who: Who, text: impl Into<String>) {
        let (at, node) = (self.clock.now().wall, node.map(str::to_owned));
        self.timeline.add(Row { at, node, who, tone: Tone::Quiet, text: text.into() });
    }

    /// Does one step of the scenario. What is over or gone by then takes no harm, which is no mistake of the scenario.
    async fn act(&self, act: Act) -> Result<(), StageError> {
        let now = self.clock.now();
        match act {
            // Azure announces nothing for a machine that is no more.
            Act::Publish(spec) if spec.vms().iter().all(|vm| self.is_gone(&vm.value)) => {}
            Act::Publish(spec) => drop(self.azure.inject(spec)?),
            Act::Change(name, to) => drop(self.azure.change(name, &to)),
            Act::Cancel(name) => drop(self.azure.cancel(name)),
            Act::Start(name) => drop(self.azure.start(name)),
            Act::Finish(name) => drop(self.azure.finish(name)),
            Act::Spoil(spec) => drop(self.azure.fault(spec)?),
            Act::KillAgent(node) => {
                self.tell(Some(&node), Who::Fault, "the agent is about to be killed");
                if let Some(lines) = self.lines.get(&node) {
                    lines.kill_soon();
                }
            }
            Act::PowerOff(node) => {
                self.tell(Some(&node), Who::Fault, "the machine is switched off");
                self.machines().switch_off(&node, now.wall);
            }
            Act::PowerOn(node) => {
                self.tell(Some(&node), Who::Fault, "the machine is switched on");
                self.machines().switch_on(&node, now.monotonic);
            }
            Act::ApiServerAway(time) => {
                self.tell(None, Who::Fault, format!("the API server answers no agent for {}", spoken(time)));
                self.machines().cut_off(time, (now.monotonic, now.wall));
            }
            Act::Partition(node, partition, time) => {
                let whom = match partition {
                    Partition::Azure => "the metadata service",
                    Partition::ApiServer => "the API server",
                    Partition::Both => "the metadata service and the API server",
                };
                self.tell(Some(&node), Who::Fault, format!("the machine does not reach {whom} for {}", spoken(time)));
                self.machines().part(&node, partition, time, (now.monotonic, now.wall));
            }
            Act::StepClock(node, pause, wrong_by) => {
                self.tell(Some(&node), Who::Fault, format!("the machine stands still for {}", spoken(pause)));
                self.machines().freeze(&node, pause, (now.monotonic, now.wall));
                self.set_clock(&node, wrong_by);
            }
            Act::SetClockRight(node) => self.set_clock(&node, 0),
            by_others => self.act_of_others(by_others).await,
        }
        Ok(())
    }

    /// The wall clock of a machine steps.
    fn set_clock(&self, node: &str, wrong_by: i64) {
        let Some(clock) = self.clocks.get(node) else { return };
        let by = spoken(Duration::from_secs(wrong_by.unsigned_abs()));
        let text = match wrong_by {
            0 => "the clock of the machine is right".to_owned(),
            1.. => format!("the clock of the machine is {by} ahead"),
            _ => format!("the clock of the machine is {by} behind"),
        };
        self.tell(Some(node), Who::Fault, text);
        clock.set_wrong_by(wrong_by);
        self.checker.see_clock(node, wrong_by, self.clock.now().wall);
    }

    /// Whether the machine is no more.
    fn is_gone(&self, vm: &str) -> bool {
        self.node_of.get(vm).is_none_or(|node| self.machines().is_gone(node))
    }

    /// What an event does to its machines when it starts.
    fn strike(&self, event: &mock_imds::Event) {
        let now = self.clock.now();
        for node in event.vms.iter().filter_map(|vm| self.node_of.get(vm)) {
            let mut machines = self.machines();
            match &event.kind {
                EventType::Freeze => {
                    let seconds = u64::try_from(event.duration_in_seconds).ok().filter(|seconds| *seconds > 0);
                    let pause = seconds.map_or(FREEZE_TAKES, Duration::from_secs);
                    machines.freeze(node, pause, (now.monotonic, now.wall));
                }
                EventType::Preempt | EventType::Terminate => machines.demolish(node, now.wall),
                EventType::Reboot | EventType::Redeploy => {
                    machines.reboot(node, self.scenario.away, (now.monotonic, now.wall));
                }
                // What an unknown kind of event does, nobody knows.
                EventType::Other(_) => {}
            }
        }
    }
}

/// The seed of one part of the world, so that no two parts draw the same.
fn of(seed: u64, part: &str) -> u64 {
    fingerprint(&format!("{seed}/{part}"))
}

/// A machine of a pool, labelled as AKS does it.
fn machine(pool: &Pool, number: u32, vm: &Vm) -> MachineSpec {
    let name = &pool.name.value;
    let mut spec = MachineSpec::new(&pool.node(number))
        .provider_id(&format!("azure://{}", vm.full_resource_id()))
        .system_uuid(&vm.unique_id())
        .label("agentpool", name)
        .label("kubernetes.azure.com/agentpool", name);
    if pool.spot {
        spec = spec.label("kubernetes.azure.com/scalesetpriority", "spot");
    }
    for (key, value) in &pool.labels {
        spec = spec.label(key, value);
    }
    spec
}

fn daemon_set(name: &str) -> Value {
    let labels = json!({"app": name});
    json!({
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "containers": [{"name": "agent", "image": "remediator"}],
                    "priorityClassName": "system-node-critical",
                    "tolerations": [{"operator": "Exists"}],
                },
            },
        },
    })
}

/// The pods of a workload.
fn template(workload: &Workload) -> Value {
    let name = workload.name.value.as_str();
    let mut spec = json!({
        "containers": [{"name": name, "image": "example.com/nothing:1"}],
        "terminationGracePeriodSeconds": workload.grace.0.as_secs(),
    });
    if let Some(pool) = &workload.pool {
        spec["nodeSelector"] = json!({"agentpool": pool.value});
    }
    if let Some(class) = &workload.priority_class {
        spec["priorityClassName"] = json!(class);
    }
    if workload.empty_dir {
        spec["volumes"] = json!([{"name": "scratch", "emptyDir": {}}]);
    }
    let stops_after = match workload.stops_after {
        Wait::For(time) => format!("{}s", time.0.as_secs_f64()),
        Wait::Forever => "never".into(),
    };
    json!({
        "metadata": {
            "labels": {"app": name},
            "annotations": {
                STOPS_AFTER_ANNOTATION: stops_after,
                READY_AFTER_ANNOTATION: format!("{}s", workload.ready_after.0.as_secs_f64()),
            },
        },
        "spec": spec,
    })
}

/// What became of a pod, where somebody should know.
fn tell_fate(checker: &Checker, timeline: &Timeline, fate: &Fate) {
    let tell = |tone, what| timeline.add_pod(fate.at, &fate.node, Who::Kubernetes, tone, what, fate.key.name.clone());
    match fate.how {
        HowItEnded::Killed => {
            checker.see_kill();
            tell(Tone::Warning, "killed, because its grace was over");
        }
        HowItEnded::Lost if fate.told_at.is_some() => {
            tell(Tone::Warning, "lost with its machine while it was stopping");
        }
        HowItEnded::Lost => {
            if checker.see_loss(&fate.uid) {
                tell(Tone::Warning, "lost with its machine, without notice");
            }
        }
        HowItEnded::Stopped | HowItEnded::Finished => {}
    }
}
