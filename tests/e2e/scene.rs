//! What a test has: a namespace with a node of its own, the machine of that node in a mock Azure, an agent, and a proxy
//! between the agent and the API server that sees and spoils its requests. A test about several nodes has several scenes
//! of one namespace and one Azure.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use control_plane::harness::Context;
use control_plane::{FaultProxy, Kubelet, Namespace, RecordedRequest, RequestMatcher, Workload, rule, wait_until};
use http::Method;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use mock_imds::{Approval, LoggedRequest, Mock, Scenario, Server, SystemClock, Vm};
use remediator::azure::provider_id;
use tempfile::TempDir;
use tokio::process::{Child, Command};

pub(crate) type Anything = Box<dyn Error + Send + Sync>;

/// Long enough for everything that happens at once on a loaded machine, short enough to fail.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// What a machine that does everything at once may add to a time that a test insists on.
pub(crate) const NOISE: Duration = Duration::from_secs(3);

/// The annotation with the agent's record.
pub(crate) const RECORD: &str = "remediator.dev/agent";

/// The account under which agents run.
pub(crate) const ACCOUNT: &str = "agent";

/// The instance that a second node is; Azure knows its machine in every test.
const SECOND: u32 = 7;

/// The instance that a node without a machine in Azure is.
const REFUGE: u32 = 8;

pub(crate) struct Scene {
    pub(crate) namespace: Namespace,
    pub(crate) node: Kubelet,
    pub(crate) vm: String,
    pub(crate) imds: Mock,
    pub(crate) proxy: FaultProxy,
    imds_server: Arc<Server>,
    folder: TempDir,
    context: Context,
    token: String,
    agent: Option<Child>,
    lives: u32,
    arguments: Vec<String>,
    policies: Option<PathBuf>,
}

impl Scene {
    pub(crate) async fn new(context: &Context, name: &str) -> Result<Self, Anything> {
        let namespace = context.namespace(name).await?;
        let node = context.kubelet(namespace.aks_node("np1", 24)).await?;
        let vm = machine_of(context, &node).await?;
        let vms = [vm.clone(), instance_beside(&vm, SECOND)].map(|name| Vm::new(name).in_group("group"));
        let imds = Mock::new(Scenario::new(vms), SystemClock);
        let imds_server = Arc::new(imds.serve_on_loopback().await?);
        let token = namespace
            .service_account(
                ACCOUNT,
                vec![
                    rule(&[""], &["nodes"], &["get", "list", "watch", "patch"]),
                    rule(&[""], &["nodes/status"], &["patch"]),
                    rule(&[""], &["pods"], &["get", "list", "watch", "delete"]),
                    rule(&[""], &["pods/eviction"], &["create"]),
                    rule(&[""], &["events"], &["create"]),
                    rule(&["remediator.dev"], &["noderepairs"], &["list"]),
                    rule(&["remediator.dev"], &["noderepairs/status"], &["patch"]),
                ],
            )
            .await?;
        let leases = rule(&["coordination.k8s.io"], &["leases"], &["get", "list", "create", "update", "delete"]);
        namespace.allow_here(ACCOUNT, vec![leases]).await?;
        Self::around(context, namespace, node, vm, imds, imds_server, token).await
    }

    /// A second node of the pool, with a machine in the same Azure and an agent of its own under the same account.
    pub(crate) async fn second(&self) -> Result<Self, Anything> {
        let node = self.context.kubelet(self.namespace.aks_node("np1", SECOND)).await?;
        let vm = machine_of(&self.context, &node).await?;
        let (imds, server) = (self.imds.clone(), Arc::clone(&self.imds_server));
        Self::around(&self.context, self.namespace.clone(), node, vm, imds, server, self.token.clone()).await
    }

    async fn around(
        context: &Context,
        namespace: Namespace,
        node: Kubelet,
        vm: String,
        imds: Mock,
        imds_server: Arc<Server>,
        token: String,
    ) -> Result<Self, Anything> {
        let proxy = FaultProxy::start(context.api_server().with_token(&token).client()?).await?;
        Ok(Self {
            namespace,
            node,
            vm,
            imds,
            proxy,
            imds_server,
            folder: tempfile::tempdir()?,
            context: context.clone(),
            token,
            agent: None,
            lives: 0,
            arguments: Vec::new(),
            policies: None,
        })
    }

    /// A further node of the test's pods.
    pub(crate) async fn another_node(&self) -> Result<Kubelet, Anything> {
        Ok(self.context.kubelet(self.namespace.aks_node("np1", REFUGE)).await?)
    }

    /// The machine of [`Self::second`], whether or not that has a node.
    pub(crate) fn second_vm(&self) -> String {
        instance_beside(&self.vm, SECOND)
    }

    /// A client with the rights of an agent.
    pub(crate) fn client_of_agent(&self) -> Result<Client, Anything> {
        Ok(self.context.api_server().with_token(&self.token).client()?)
    }

    /// The agent's policy from its next start on: the rest of a policy file, after its head.
    pub(crate) fn with_policy(&mut self, rest: &str) -> Result<(), Anything> {
        let path = self.folder.path().join("policy.yaml");
        fs::write(&path, policy_file("test", rest))?;
        self.policies = Some(path);
        Ok(())
    }

    /// A folder for policy files, which the agent reads from its next start on.
    pub(crate) fn with_policy_folder(&mut self) -> Result<PathBuf, Anything> {
        let path = self.folder.path().join("policies");
        fs::create_dir(&path)?;
        self.policies = Some(path.clone());
        Ok(path)
    }

    /// Further arguments for the agent's next start.
    pub(crate) fn with_arguments(&mut self, arguments: &[&str]) {
        self.arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
    }

    pub(crate) fn start_agent(&mut self) -> Result<(), Anything> {
        self.lives += 1;
        let log = fs::File::create(self.log_path(self.lives))?;
        let child = Command::new(env!("CARGO_BIN_EXE_remediator"))
            .arg("agent")
            .args(["--node", self.node.name(), "--listen", "127.0.0.1:0"])
            .args(["--imds", &self.imds_of(&self.vm)])
            .arg("--kubeconfig")
            .arg(self.proxy.kubeconfig())
            .args(["--namespace", self.namespace.name()])
            .args(self.policies.iter().flat_map(|path| ["--policy".into(), path.clone().into_os_string()]))
            .args(&self.arguments)
            .env("HTTP_PROXY", "http://127.0.0.1:9")
            .env("http_proxy", "http://127.0.0.1:9")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()?;
        self.agent = Some(child);
        Ok(())
    }

    /// Where the metadata service of a machine is.
    pub(crate) fn imds_of(&self, vm: &str) -> String {
        format!("{}/vm/{vm}", self.imds_server.url())
    }

    /// What `remediator doctor` finds on the node, with further arguments, which come last and so count more.
    pub(crate) async fn doctor(&self, arguments: &[&str]) -> Result<(ExitStatus, Vec<String>), Anything> {
        let output = Command::new(env!("CARGO_BIN_EXE_remediator"))
            .arg("doctor")
            .args(["--node", self.node.name(), "--host-root"])
            .arg(self.folder.path())
            .args(arguments)
            .env("REMEDIATOR_IMDS", self.imds_of(&self.vm))
            .env("KUBECONFIG", self.proxy.kubeconfig())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await?;
        let text = String::from_utf8(output.stdout)?;
        Ok((output.status, text.lines().map(str::to_owned).collect()))
    }

    fn log_path(&self, life: u32) -> PathBuf {
        self.folder.path().join(format!("agent-{life}.log"))
    }

    /// Everything that the agent has logged in all its lives.
    pub(crate) fn log(&self) -> String {
        (1..=self.lives).map(|life| fs::read_to_string(self.log_path(life)).unwrap_or_default()).collect()
    }

    /// SIGKILL.
    pub(crate) async fn kill_agent(&mut self) -> Result<(), Anything> {
        let mut agent = self.agent.take().ok_or("no agent is running")?;
        agent.kill().await?;
        Ok(())
    }

    /// SIGTERM, and how the agent ended.
    pub(crate) async fn terminate_agent(&mut self) -> Result<ExitStatus, Anything> {
        let process = self.agent_process()?;
        let mut agent = self.agent.take().ok_or("no agent is running")?;
        let killed = Command::new("kill").args(["-TERM", &process.to_string()]).status().await?;
        assert!(killed.success());
        Ok(tokio::time::timeout(SOON, agent.wait()).await??)
    }

    pub(crate) fn agent_is_running(&mut self) -> bool {
        self.agent.as_mut().is_some_and(|agent| matches!(agent.try_wait(), Ok(None)))
    }

    /// The process of the running agent.
    pub(crate) fn agent_process(&self) -> Result<u32, Anything> {
        Ok(self.agent.as_ref().and_then(Child::id).ok_or("no agent is running")?)
    }

    /// The address at which this life of the agent answers probes.
    fn listens_at(&self) -> Result<String, Anything> {
        let log = fs::read_to_string(self.log_path(self.lives))?;
        let line = log.lines().find(|line| line.contains("Serving /livez")).ok_or("the agent does not listen yet")?;
        let line: serde_json::Value = serde_json::from_str(line)?;
        Ok(line["address"].as_str().ok_or("the line has no address")?.to_owned())
    }

    /// The status and the body of a probe.
    pub(crate) async fn probe(&self, path: &str) -> Result<(u16, String), Anything> {
        let client = remediator::http_client::builder().build()?;
        let answer = client.get(format!("http://{}{path}", self.listens_at()?)).send().await?;
        Ok((answer.status().as_u16(), answer.text().await?))
    }

    /// Waits until the metadata service has answered the agent so many more times.
    pub(crate) async fn polls(&self, times: usize) -> Result<(), Anything> {
        let is_poll = |request: &LoggedRequest| {
            let is_answered = request.status.is_some() || !request.faults.is_empty();
            let about_events = request.method == "GET" && request.target.contains("scheduledevents");
            request.vm == self.vm && about_events && is_answered
        };
        let polled = || self.imds.log().into_iter().filter(is_poll).count();
        let until = polled() + times;
        let limit = SOON + Duration::from_secs(10) * u32::try_from(times)?;
        self.until("polls of the metadata service", limit, || polled() >= until).await
    }

    /// Waits until it is so, looking every 100 ms.
    pub(crate) async fn until(&self, goal: &str, limit: Duration, is_so: impl Fn() -> bool) -> Result<(), Anything> {
        let waiting = async {
            while !is_so() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let waited = tokio::time::timeout(limit, waiting).await;
        waited.map_err(|_| format!("{goal}: not so within {limit:?}\n{}", self.log()).into())
    }

    /// Waits until the agent has logged a text.
    pub(crate) async fn until_logged(&self, text: &str, limit: Duration) -> Result<(), Anything> {
        self.until(&format!("{text:?} in the log"), limit, || self.log().contains(text)).await
    }

    /// Waits until the agent's metrics have this line.
    pub(crate) async fn until_metric(&self, line: &str, limit: Duration) -> Result<(), Anything> {
        self.until_in_metrics(&format!("{line:?} in the metrics"), limit, |one| one == line).await
    }

    /// Waits until this counter of the agent's, with its labels, is above zero.
    pub(crate) async fn until_counted(&self, counter: &str, limit: Duration) -> Result<(), Anything> {
        let counts = |line: &str| line.starts_with(counter) && !line.ends_with(" 0");
        self.until_in_metrics(&format!("{counter} above zero"), limit, counts).await
    }

    async fn until_in_metrics(
        &self,
        goal: &str,
        limit: Duration,
        is_it: impl Fn(&str) -> bool,
    ) -> Result<(), Anything> {
        let waiting = async {
            while !self.probe("/metrics").await.is_ok_and(|(_, metrics)| metrics.lines().any(&is_it)) {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        let waited = tokio::time::timeout(limit, waiting).await;
        waited.map_err(|_| format!("{goal}: not so within {limit:?}\n{}", self.log()).into())
    }

    /// What Azure was told to start, in all of its machines.
    pub(crate) fn approvals(&self) -> Vec<Approval> {
        self.imds.approvals()
    }

    /// Every request to start an event, from whichever machine and however it was answered.
    pub(crate) fn start_requests(&self) -> Vec<LoggedRequest> {
        self.imds.log().into_iter().filter(|request| request.method == "POST").collect()
    }

    /// Waits until Azure was told that an event may start, and returns the first time that it was.
    pub(crate) async fn until_approved(&self, limit: Duration) -> Result<Approval, Anything> {
        self.until("an approval", limit, || !self.approvals().is_empty()).await?;
        Ok(self.approvals().into_iter().next().ok_or("no approval")?)
    }

    /// The Leases of remediator in the test's namespace.
    pub(crate) async fn leases(&self) -> Result<Vec<Lease>, Anything> {
        let ours = ListParams::default().labels("app.kubernetes.io/managed-by=remediator");
        Ok(self.namespace.api::<Lease>().list(&ours).await?.items)
    }

    /// Waits until no Lease of remediator is left in the test's namespace.
    pub(crate) async fn until_no_lease(&self) -> Result<(), Anything> {
        let ours = ListParams::default().labels("app.kubernetes.io/managed-by=remediator");
        let leases = self.namespace.api::<Lease>();
        let waited = wait_until(&leases, &ours, "no Lease is left", SOON, BTreeMap::is_empty).await;
        waited.map(drop).map_err(|error| format!("{error}\n{}", self.log()).into())
    }

    /// Changes the node as another client than the agent.
    pub(crate) async fn as_admin(&self, patch: serde_json::Value) -> Result<(), Anything> {
        let nodes = Api::<Node>::all(self.namespace.client().clone());
        nodes.patch(self.node.name(), &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    pub(crate) async fn node_now(&self) -> Result<Node, Anything> {
        Ok(Api::<Node>::all(self.namespace.client().clone()).get(self.node.name()).await?)
    }

    /// Waits until the node is as described.
    pub(crate) async fn until_node(
        &self,
        goal: &str,
        limit: Duration,
        is_so: impl Fn(&Node) -> bool,
    ) -> Result<Node, Anything> {
        let api = Api::<Node>::all(self.namespace.client().clone());
        let own = ListParams::default().fields(&format!("metadata.name={}", self.node.name()));
        let nodes = wait_until(&api, &own, goal, limit, |nodes| nodes.values().any(&is_so)).await;
        let nodes = nodes.map_err(|error| format!("{error}\n{}", self.log()))?;
        Ok(nodes.into_iter().next().ok_or("the node is gone")?)
    }

    pub(crate) async fn until_cordoned(&self) -> Result<Node, Anything> {
        self.until_node("cordoned, with a record", SOON, |node| is_cordoned(node) && record(node).is_some()).await
    }

    /// Waits until nothing of ours is on the node.
    pub(crate) async fn until_given_back(&self, limit: Duration) -> Result<Node, Anything> {
        self.until_node("given back", limit, |node| !is_cordoned(node) && record(node).is_none()).await
    }

    /// Waits until the record says that the drain is over, and how.
    pub(crate) async fn until_drain_ended(&self, limit: Duration) -> Result<serde_json::Value, Anything> {
        let ended = |node: &Node| record(node).is_some_and(|record| record["drain"]["finishedAt"].is_string());
        let node = self.until_node("the end of the drain in the record", limit, ended).await?;
        Ok(record(&node).unwrap_or_default())
    }

    /// Creates a workload whose pods all run on the agent's node.
    pub(crate) async fn running(&self, workload: &Workload, count: usize) -> Result<Vec<Pod>, Anything> {
        workload.create(&self.namespace).await?;
        Ok(self.namespace.wait_for_ready(workload, count, SOON).await?)
    }

    /// The evictions that the agent has asked for.
    pub(crate) fn evictions(&self) -> Vec<RecordedRequest> {
        self.proxy.requests().into_iter().filter(|request| request.is(&Method::POST, "/eviction")).collect()
    }

    /// The pods that the agent has deleted past their budget.
    pub(crate) fn deletions(&self) -> Vec<RecordedRequest> {
        self.proxy.requests().into_iter().filter(|request| request.method == Method::DELETE).collect()
    }

    /// The agent's writes to the node, but for those to its status.
    pub(crate) fn writes_of_node(&self) -> RequestMatcher {
        RequestMatcher::any().method(Method::PATCH).path_ends_with(self.node.name())
    }

    /// What the agent has written to the node, but for its status.
    pub(crate) fn node_writes(&self) -> Vec<RecordedRequest> {
        self.proxy.requests_that(&self.writes_of_node())
    }

    /// Waits until so many evictions have been accepted.
    pub(crate) async fn until_accepted(&self, count: usize) -> Result<(), Anything> {
        let accepted = |requests: &[RecordedRequest]| {
            requests.iter().filter(|request| request.is(&Method::POST, "/eviction") && is_success(request)).count()
        };
        let waited = self.proxy.wait_for("accepted evictions", SOON, |requests| accepted(requests) >= count).await;
        waited.map(drop).map_err(|error| format!("{error}\n{}", self.log()).into())
    }

    /// Waits until an Event about the node has this reason, and returns its note.
    pub(crate) async fn until_told(&self, reason: &str) -> Result<String, Anything> {
        let api = Api::<Event>::namespaced(self.namespace.client().clone(), "default");
        let ours = ListParams::default().fields(&format!("reason={reason}"));
        let name = self.node.name();
        let about_node =
            |event: &Event| event.regarding.as_ref().is_some_and(|object| object.name.as_deref() == Some(name));
        let goal = format!("an Event {reason}");
        let events = wait_until(&api, &ours, &goal, SOON, |events| events.values().any(about_node)).await?;
        Ok(events.into_iter().find(about_node).and_then(|event| event.note).unwrap_or_default())
    }

    /// The reasons of all Events about the node from the agent, each with how often it was told.
    pub(crate) async fn told(&self) -> Result<Vec<String>, Anything> {
        let api = Api::<Event>::namespaced(self.namespace.client().clone(), "default");
        let events = api.list(&ListParams::default()).await?;
        let ours = events.into_iter().filter(|event| {
            event.reporting_controller.as_deref() == Some("remediator.dev/agent")
                && event.regarding.as_ref().is_some_and(|object| object.name.as_deref() == Some(self.node.name()))
        });
        let mut reasons: Vec<String> = ours.filter_map(|event| event.reason).collect();
        reasons.sort();
        Ok(reasons)
    }

    /// The pods of the test that are on the agent's node.
    pub(crate) async fn pods_here(&self) -> Result<Vec<String>, Anything> {
        let here = ListParams::default().fields(&format!("spec.nodeName={}", self.node.name()));
        let pods = self.namespace.api::<Pod>().list(&here).await?;
        let mut names: Vec<String> = pods.iter().map(ResourceExt::name_any).collect();
        names.sort();
        Ok(names)
    }
}

/// Repeats a request that changes nothing until an admission policy denies it: one that was just made takes its time.
pub(crate) async fn until_denied<R>(request: impl Fn() -> R) -> Result<(), Anything>
where
    R: Future<Output = kube::Result<()>>,
{
    let denied = |error: &kube::Error| matches!(error, kube::Error::Api(status) if status.message.contains("ValidatingAdmissionPolicy"));
    let asking = async {
        while !request().await.is_err_and(|error| denied(&error)) {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    Ok(tokio::time::timeout(SOON, asking).await?)
}

async fn machine_of(context: &Context, node: &Kubelet) -> Result<String, Anything> {
    let read = Api::<Node>::all(context.client()?).get(node.name()).await?;
    let provider_id = read.spec.and_then(|spec| spec.provider_id).ok_or("the node has no provider id")?;
    Ok(provider_id::vm_name(&provider_id).ok_or("the provider id names no machine")?.to_string())
}

/// The machine that another instance of the same scale set is.
fn instance_beside(vm: &str, instance: u32) -> String {
    let scale_set = vm.rsplit_once('_').map_or(vm, |(scale_set, _)| scale_set);
    format!("{scale_set}_{instance}")
}

/// A policy file: its head, and what follows.
pub(crate) fn policy_file(name: &str, rest: &str) -> String {
    format!("apiVersion: remediator.dev/v1alpha1\nkind: Policy\nmetadata: {{name: {name}}}\n{rest}")
}

pub(crate) fn is_success(request: &RecordedRequest) -> bool {
    request.status.is_some_and(|status| status.is_success())
}

pub(crate) fn is_cordoned(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true)
}

/// The agent's record on the node.
pub(crate) fn record(node: &Node) -> Option<serde_json::Value> {
    serde_json::from_str(node.annotations().get(RECORD)?).ok()
}

/// The pod that a request is about.
pub(crate) fn pod_of(request: &RecordedRequest) -> String {
    let path = request.path.trim_end_matches("/eviction");
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

/// The grace that a request gives, in seconds.
pub(crate) fn grace_of(request: &RecordedRequest) -> i64 {
    delete_options(request)["gracePeriodSeconds"].as_i64().unwrap_or_default()
}

/// The UID that a request insists on.
pub(crate) fn uid_of(request: &RecordedRequest) -> String {
    delete_options(request)["preconditions"]["uid"].as_str().unwrap_or_default().to_owned()
}

fn delete_options(request: &RecordedRequest) -> &serde_json::Value {
    let body = request.body.as_ref().unwrap_or(&serde_json::Value::Null);
    if request.method == Method::DELETE { body } else { &body["deleteOptions"] }
}

/// How long something takes on the wall of the test.
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    #[allow(clippy::disallowed_methods, reason = "the program under test runs by the real clock")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

pub(crate) fn uid(pod: &Pod) -> String {
    pod.uid().unwrap_or_default()
}
