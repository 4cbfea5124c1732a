//! What the benchmarks stand on: a real control plane that keeps an audit log, pools of nodes with their machines in a mock
//! Azure, agents as an image runs them, and a table for what was measured.
//!
//! Agents speak to the API server directly and over TLS, as on a node. Moments are those of the server: when a request
//! had come in and when it was answered, from the audit log.

mod agent;
mod program;
mod report;

use std::error::Error;
use std::fs;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use control_plane::{
    AuditLog, AuditedRequest, Binaries, ControlPlane, Kubectl, Kubelet, Namespace, Options, StartError, User, Workload,
    audit_policy_of_users, rule, wait_until,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::ResourceExt;
use kube::api::{Api, ListParams, ObjectMeta, PostParams};
use mock_imds::{LoggedRequest, Mock, Scenario, Server, SystemClock, Vm};
use remediator::azure::provider_id;
use serde_json::json;
use tempfile::TempDir;

pub(crate) use agent::Agent;
pub(crate) use program::{Program, program};
pub(crate) use report::{Report, Unit};

pub(crate) type Anything = Box<dyn Error + Send + Sync>;

/// Long enough for everything that happens at once on a loaded machine; what takes longer has failed.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// The annotation with the agent's record.
const RECORD: &str = "remediator.dev/agent";

/// Under which names the API server's audit log knows both clients.
pub(crate) const AGENT: &str = "remediator";
pub(crate) const KUBECTL: &str = "kubectl";

/// How often the audit log is looked at for something that is waited for. The moments are those in the log.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// What every benchmark takes from the command line.
#[derive(Clone, Debug, Args)]
pub(crate) struct Common {
    /// Print the table as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Given by `cargo bench`
    #[arg(long, hide = true)]
    bench: bool,
}

/// Runs a benchmark and prints its table. Exits with 0 whether or not targets are met, as long as it could measure.
pub(crate) fn run<R>(common: &Common, title: &str, measure: impl FnOnce(Ground, Report) -> R) -> ExitCode
where
    R: Future<Output = Result<Report, Anything>>,
{
    if !common.bench {
        println!("Nothing to test here; `cargo bench` measures.");
        return ExitCode::SUCCESS;
    }
    // Kubelets, the mock and the readers of the log must not wait for each other.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let measured = runtime.map_err(Anything::from).and_then(|runtime| {
        runtime.block_on(async {
            let Some(ground) = Ground::start().await? else { return Ok(None) };
            let mut report = Report::new(title);
            let version = ground.control_plane.client()?.apiserver_version().await?;
            report.condition(format!("Kubernetes {}, with fake kubelets, on the same machine", version.git_version));
            measure(ground, report).await.map(Some)
        })
    });
    match measured {
        Ok(Some(report)) => {
            report.print(common.json);
            ExitCode::SUCCESS
        }
        Ok(None) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{title}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Wall time, by which the API server, the mock and the agents' logs tell theirs too: all run on one machine.
#[allow(clippy::disallowed_methods, reason = "real processes are measured by the real clock")]
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}

/// How long from one moment to another, in seconds.
pub(crate) fn seconds(from: Timestamp, until: Timestamp) -> f64 {
    until.duration_since(from).as_secs_f64()
}

/// The control plane and its two audited users.
pub(crate) struct Ground {
    control_plane: ControlPlane,
    agent: User,
    folder: TempDir,
}

impl Ground {
    /// `None`, with the reason on standard error, where no control plane can be had.
    async fn start() -> Result<Option<Self>, Anything> {
        // As the API server takes a DaemonSet's account, so that its flow control treats it as one.
        let agent = User::new(AGENT).in_group("system:serviceaccounts");
        let kubectl = User::new(KUBECTL).in_group("system:masters");
        let options = Options {
            users: vec![agent.clone(), kubectl.clone()],
            audit_policy: Some(audit_policy_of_users(&[AGENT, KUBECTL])),
            ..Options::default()
        };
        let control_plane = match ControlPlane::start(options).await {
            Err(StartError::Unavailable(why)) => {
                eprintln!("Nothing measured: {why}");
                return Ok(None);
            }
            started => started?,
        };
        let folder = tempfile::tempdir()?;
        for user in [&agent, &kubectl] {
            let api_server = control_plane.api_server().with_token(user.token());
            api_server.write_kubeconfig(&folder.path().join(format!("{}.kubeconfig", user.name())))?;
        }
        let ground = Self { control_plane, agent, folder };
        ground.allow_agents().await?;
        Ok(Some(ground))
    }

    /// Gives agents the rights that a cluster gives them.
    async fn allow_agents(&self) -> Result<(), Anything> {
        let client = self.control_plane.client()?;
        let rules = vec![
            rule(&[""], &["nodes"], &["get", "list", "watch", "patch"]),
            rule(&[""], &["nodes/status"], &["patch"]),
            rule(&[""], &["pods"], &["get", "list", "watch", "delete"]),
            rule(&[""], &["pods/eviction"], &["create"]),
            rule(&[""], &["events"], &["create"]),
            rule(&["coordination.k8s.io"], &["leases"], &["get", "list", "create", "update", "delete"]),
            rule(&["remediator.dev"], &["noderepairs"], &["list"]),
            rule(&["remediator.dev"], &["noderepairs/status"], &["patch"]),
        ];
        let metadata = ObjectMeta { name: Some(AGENT.to_owned()), ..ObjectMeta::default() };
        let role = ClusterRole { metadata, rules: Some(rules), aggregation_rule: None };
        Api::<ClusterRole>::all(client.clone()).create(&PostParams::default(), &role).await?;
        let binding: ClusterRoleBinding = serde_json::from_value(json!({
            "metadata": {"name": AGENT},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": AGENT},
            "subjects": [{"kind": "User", "name": self.agent.name()}],
        }))?;
        Api::<ClusterRoleBinding>::all(client).create(&PostParams::default(), &binding).await?;
        Ok(())
    }

    /// The audit log, from here on.
    pub(crate) fn audit(&self) -> Result<Audit, Anything> {
        let mut log = self.control_plane.audit_log().ok_or("the control plane keeps no audit log")?;
        log.take()?;
        Ok(Audit { log, requests: Vec::new() })
    }

    /// kubectl as a user that the audit log knows.
    pub(crate) fn kubectl(&self) -> Result<Kubectl, Anything> {
        Ok(Kubectl::new(&Binaries::find_or_build()?, &self.folder.path().join(format!("{KUBECTL}.kubeconfig"))))
    }

    /// A namespace with nodes of its own, each with its machine in Azure.
    pub(crate) async fn pool(&self, name: &str, size: u32) -> Result<Pool, Anything> {
        let client = self.control_plane.client()?;
        let namespace = Namespace::create(&client, name).await?;
        let (mut kubelets, mut vms) = (Vec::new(), Vec::new());
        for instance in 0..size {
            let kubelet = Kubelet::start(&client, namespace.aks_node("np1", instance).room_for(PODS_OF_A_NODE)).await?;
            let node = Api::<Node>::all(client.clone()).get(kubelet.name()).await?;
            let provider_id = node.spec.and_then(|spec| spec.provider_id).ok_or("the node has no provider id")?;
            vms.push(provider_id::vm_name(&provider_id).ok_or("the provider id names no machine")?.to_string());
            kubelets.push(kubelet);
        }
        // Machines without a common group: nobody hears of another's events.
        let azure = Mock::new(Scenario::new(vms.iter().map(Vm::new)), SystemClock);
        let server = azure.serve_on_loopback().await?;
        let kubeconfig = self.folder.path().join(format!("{AGENT}.kubeconfig"));
        Ok(Pool { namespace, azure, kubelets, vms, server, kubeconfig, refuge: None })
    }
}

/// Room for the pods of a drained node beside those of the node itself.
const PODS_OF_A_NODE: u32 = 600;

/// Nodes, their machines, and what runs on them.
pub(crate) struct Pool {
    pub(crate) namespace: Namespace,
    pub(crate) azure: Mock,
    kubelets: Vec<Kubelet>,
    vms: Vec<String>,
    server: Server,
    kubeconfig: std::path::PathBuf,
    refuge: Option<Kubelet>,
}

impl Pool {
    /// A node's name.
    pub(crate) fn node(&self, index: usize) -> &str {
        self.kubelets[index].name()
    }

    /// The machine that is a node.
    pub(crate) fn vm(&self, index: usize) -> &str {
        &self.vms[index]
    }

    /// Starts the agent of a node, with the built-in policy.
    pub(crate) fn agent(&self, index: usize, program: &Program, poll_interval: Duration) -> Result<Agent, Anything> {
        let imds = format!("{}/vm/{}", self.server.url(), self.vms[index]);
        Agent::start(program, self.node(index), &imds, &self.kubeconfig, self.namespace.name(), poll_interval)
    }

    /// Adds a node without a machine, for the pods of drained ones.
    pub(crate) async fn add_refuge(&mut self) -> Result<(), Anything> {
        let node = self.namespace.node("refuge").room_for(PODS_OF_A_NODE);
        self.refuge = Some(Kubelet::start(self.namespace.client(), node).await?);
        Ok(())
    }

    /// The polls of a node's agent that the mock still knows, oldest first.
    pub(crate) fn polls(&self, index: usize) -> Vec<Timestamp> {
        let of_agent = |request: &LoggedRequest| {
            request.vm == self.vms[index] && request.method == "GET" && request.target.contains("scheduledevents")
        };
        self.azure.log().into_iter().filter(of_agent).map(|request| request.time).collect()
    }

    /// Waits for the next poll of a node's agent.
    pub(crate) async fn next_poll(&self, index: usize) -> Result<Timestamp, Anything> {
        let began = now();
        let polling = async {
            loop {
                if let Some(poll) = self.polls(index).into_iter().rfind(|&poll| poll >= began) {
                    return poll;
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        Ok(tokio::time::timeout(SOON, polling).await.map_err(|_| "the agent does not poll")?)
    }

    /// Creates workloads and waits until all of their pods are Ready.
    pub(crate) async fn runs(&self, workloads: &[Workload], pods: usize) -> Result<Vec<Pod>, Anything> {
        futures::future::try_join_all(workloads.iter().map(|workload| workload.create(&self.namespace))).await?;
        let ours =
            |pod: &Pod| workloads.iter().any(|workload| pod.labels().get("app") == Some(&workload.name().to_owned()));
        let ready = self.namespace.wait_for_pods("the pods are Ready", SOON, |all| {
            let mut of_workloads = all.values().filter(|pod| ours(pod)).peekable();
            of_workloads.peek().is_some() && of_workloads.filter(|pod| control_plane::is_ready(pod)).count() == pods
        });
        Ok(ready.await?)
    }

    /// Waits until so many disruption budgets each allow so many disruptions.
    pub(crate) async fn until_budgets_allow(&self, budgets: usize, disruptions: i32) -> Result<(), Anything> {
        let allows = |budget: &PodDisruptionBudget| {
            budget.status.as_ref().is_some_and(|status| status.disruptions_allowed == disruptions)
        };
        let (api, all) = (self.namespace.api(), ListParams::default());
        let allowing = wait_until(&api, &all, "the budgets are known", SOON, |found| {
            found.values().filter(|budget| allows(budget)).count() == budgets
        });
        allowing.await?;
        Ok(())
    }

    /// Deletes all of it, so that nothing of it runs beside what is measured next.
    pub(crate) async fn leave(self) -> Result<(), Anything> {
        let Self { namespace, kubelets, refuge, .. } = self;
        namespace.delete().await?;
        drop((kubelets, refuge));
        Ok(())
    }

    /// Waits until a node is as described.
    async fn until_node(&self, index: usize, goal: &str, is_so: impl Fn(&Node) -> bool) -> Result<(), Anything> {
        let nodes = Api::<Node>::all(self.namespace.client().clone());
        let this = ListParams::default().fields(&format!("metadata.name={}", self.node(index)));
        wait_until(&nodes, &this, goal, SOON, |nodes| nodes.values().any(&is_so)).await?;
        Ok(())
    }

    /// Waits until nothing of an agent is on a node.
    pub(crate) async fn until_given_back(&self, index: usize) -> Result<(), Anything> {
        let is_free = |node: &Node| {
            let cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
            !cordoned && !node.annotations().contains_key(RECORD)
        };
        self.until_node(index, "the node is given back", is_free).await
    }

    /// Waits until an agent has written that its drain is over.
    pub(crate) async fn until_drained(&self, index: usize) -> Result<(), Anything> {
        let drained = |node: &Node| {
            let record = node.annotations().get(RECORD).map(|record| serde_json::from_str::<serde_json::Value>(record));
            record.and_then(Result::ok).is_some_and(|record| record["drain"]["finishedAt"].is_string())
        };
        self.until_node(index, "the drain is over", drained).await
    }
}

/// The audit log as far as it was read.
pub(crate) struct Audit {
    log: AuditLog,
    pub(crate) requests: Vec<AuditedRequest>,
}

impl Audit {
    /// Reads what has been added.
    pub(crate) fn read(&mut self) -> Result<(), Anything> {
        self.requests.extend(self.log.take()?);
        Ok(())
    }

    /// Forgets what has been read.
    pub(crate) fn forget(&mut self) -> Result<(), Anything> {
        self.read()?;
        self.requests.clear();
        Ok(())
    }

    /// Waits until a request like this is in the log, and returns the first.
    pub(crate) async fn until(
        &mut self,
        goal: &str,
        is_it: impl Fn(&AuditedRequest) -> bool,
    ) -> Result<AuditedRequest, Anything> {
        let looking = async {
            loop {
                self.read()?;
                if let Some(found) = self.requests.iter().find(|request| is_it(request)) {
                    return Ok::<_, Anything>(found.clone());
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        tokio::time::timeout(SOON, looking)
            .await
            .map_err(|_| format!("not in the audit log within {SOON:?}: {goal}"))?
    }
}

/// Whether a request has cordoned a node.
pub(crate) fn cordons(request: &AuditedRequest, node: &str) -> bool {
    let unschedulable = request.body.as_ref().map(|body| &body["spec"]["unschedulable"]);
    request.did("patch", "nodes") && request.name == node && unschedulable == Some(&json!(true))
}

/// How large pods are made, in bytes of JSON, managed fields included.
const PADDED_TO: usize = 12_000;

/// Deployments of pods as large as real ones are, which a dozen variables, probes, volumes and injected containers make so.
pub(crate) fn padded(names: impl Iterator<Item = String>, pods_of_each: u32) -> Vec<Workload> {
    // What Kubernetes itself says of a small pod, and for each variable the brackets and its managed field.
    const UNPADDED: usize = 2_600;
    const VARIABLES: usize = 40;
    const OF_A_VARIABLE: usize = 165;
    let text = |length: usize| "0123456789abcdef".chars().cycle().take(length).collect::<String>();
    let annotation = PADDED_TO - UNPADDED - VARIABLES * OF_A_VARIABLE;
    let deployment = |name: String| {
        let deployment =
            Workload::deployment(&name, pods_of_each).annotation("example.com/configuration", &text(annotation));
        (0..VARIABLES).fold(deployment, |deployment, number| {
            deployment.environment(&format!("SETTING_OF_THE_APPLICATION_{number:02}"), &text(24))
        })
    };
    names.map(deployment).collect()
}

/// The size of a pod in bytes of JSON, as clients get it.
pub(crate) fn size_of(pod: &Pod) -> Result<usize, Anything> {
    Ok(serde_json::to_vec(pod)?.len())
}

/// The value below which so many percent of the values are, by nearest rank. The values are sorted here.
pub(crate) fn percentile(values: &mut [f64], percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = (values.len() * percent).div_ceil(100).max(1);
    values.get(rank - 1).copied().unwrap_or(f64::NAN)
}

/// The median, the 99th percentile and the largest.
pub(crate) fn spread(mut values: Vec<f64>) -> Vec<f64> {
    [50, 99, 100].map(|percent| percentile(&mut values, percent)).to_vec()
}

/// A file's size in MiB.
#[allow(clippy::cast_precision_loss, reason = "megabytes")]
pub(crate) fn mebibytes(path: &std::path::Path) -> Result<f64, Anything> {
    Ok(fs::metadata(path)?.len() as f64 / 1024.0 / 1024.0)
}
