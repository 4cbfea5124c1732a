//! Runs tests that need a control plane.
//!
//! Use it from an integration test with `harness = false`:
//!
//! ```no_run
//! use std::process::ExitCode;
//! use control_plane::harness::{self, Context, TestResult};
//! use control_plane::{Options, Workload};
//!
//! async fn a_pod_becomes_ready(context: Context) -> TestResult {
//!     let namespace = context.namespace("ready").await?;
//!     let _kubelet = context.kubelet(namespace.node("a")).await?;
//!     let web = Workload::deployment("web", 1);
//!     web.create(&namespace).await?;
//!     namespace.wait_for_ready(&web, 1, std::time::Duration::from_secs(20)).await?;
//!     Ok(())
//! }
//!
//! fn main() -> ExitCode {
//!     harness::run(Options::default(), control_plane::tests![a_pod_becomes_ready])
//! }
//! ```
//!
//! Tests share one control plane, which starts when the first of them runs. Where none can be had they are reported as
//! ignored, with the reason, unless `REMEDIATOR_REQUIRE_CONTROL_PLANE` is `1`: then they fail. [`run_on`] runs the same tests
//! on several [`Side`]s.

use std::env;
use std::error::Error;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::api_server::ApiServer;
use crate::binaries::{Binaries, Unavailable};
use crate::control_plane::{ControlPlane, Options};
use crate::kubectl::Kubectl;
use crate::kubelet::{Kubelet, NodeSpec};
use crate::namespace::{NAMESPACE_LABEL, Namespace, NamespaceError, is_ready};
use crate::side::{Side, SideError, SideKind, is_unavailable};

/// Set to `1` where a control plane must be had, as in CI.
const REQUIRE_VARIABLE: &str = "REMEDIATOR_REQUIRE_CONTROL_PLANE";

/// How long a test may take if it does not say otherwise.
const DEFAULT_LIMIT: Duration = Duration::from_mins(1);

/// How long the end of a test may spend on deleting what it made.
const CLEAN_UP_LIMIT: Duration = Duration::from_secs(10);

/// How many tests run at once: they wait more than they compute.
const TESTS_AT_ONCE: usize = 6;

/// What a test returns; every error becomes the failure's message.
pub type TestResult = Result<(), Box<dyn Error + Send + Sync>>;

/// A test that needs a control plane.
#[derive(Clone)]
pub struct Test {
    name: String,
    limit: Duration,
    alone: Option<Options>,
    only_on: Option<&'static str>,
    body: Arc<dyn Fn(Context) -> BoxFuture<'static, TestResult> + Send + Sync>,
}

impl Test {
    /// A test that may run beside others, on the control plane that all share. Usually made by [`crate::tests!`].
    pub fn new<F, R>(name: &str, body: F) -> Self
    where
        F: Fn(Context) -> R + Send + Sync + 'static,
        R: Future<Output = TestResult> + Send + 'static,
    {
        Self {
            name: name.to_owned(),
            limit: DEFAULT_LIMIT,
            alone: None,
            only_on: None,
            body: Arc::new(move |context| body(context).boxed()),
        }
    }

    /// Gives the test this time instead of 60 s.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Runs the test on the side of this name only.
    #[must_use]
    pub fn only_on(mut self, side: &'static str) -> Self {
        self.only_on = Some(side);
        self
    }

    /// Gives the test a control plane of its own, which it may stop or start otherwise.
    #[must_use]
    pub fn alone(mut self, options: Options) -> Self {
        self.alone = Some(options);
        self
    }
}

/// Makes a list of tests from async functions, named as these are, with their module.
#[macro_export]
macro_rules! tests {
    ($($function:path),* $(,)?) => {
        vec![$($crate::harness::Test::new(
            &$crate::harness::test_name(module_path!(), stringify!($function)),
            $function,
        )),*]
    };
}

/// The name that the standard harness would give to a test function: its path without the crate.
#[doc(hidden)]
pub fn test_name(module: &str, function: &str) -> String {
    // The compiler may print a path with spaces.
    let function = function.replace(' ', "");
    match module.split_once("::") {
        Some((_, inner)) => format!("{inner}::{function}"),
        None => function,
    }
}

/// What one test has in its hands: a [`Side`], and what has to be cleaned up after the test.
#[derive(Clone)]
pub struct Context {
    side: Arc<dyn Side>,
    traces: Arc<Mutex<Traces>>,
}

#[derive(Default)]
struct Traces {
    namespaces: Vec<Namespace>,
    doing: Option<String>,
}

impl Context {
    fn new(side: Arc<dyn Side>) -> Self {
        Self { side, traces: Arc::default() }
    }

    /// The real control plane, if this is one.
    pub fn control_plane(&self) -> Option<Arc<ControlPlane>> {
        Arc::clone(&self.side).as_control_plane()
    }

    /// The API server, for the administrator.
    pub fn api_server(&self) -> &ApiServer {
        self.side.api_server()
    }

    /// A new client of the administrator; see [`ApiServer::client`].
    pub fn client(&self) -> Result<Client, kube::Error> {
        self.api_server().client()
    }

    /// kubectl as the administrator.
    pub fn kubectl(&self) -> Result<Kubectl, Unavailable> {
        Ok(Kubectl::new(&Binaries::find_or_build()?, &self.side.kubeconfig()))
    }

    /// Kills the API server. Clients see closed connections and then refused ones. What it stored stays.
    pub fn stop_api_server(&self) {
        self.side.stop_api_server();
    }

    /// Starts the API server again, on the same port, and waits until it is ready.
    pub async fn start_api_server(&self) -> Result<(), SideError> {
        self.side.start_api_server().await
    }

    /// A new namespace, which is deleted after the test with all that belongs to it.
    pub async fn namespace(&self, prefix: &str) -> Result<Namespace, NamespaceError> {
        let namespace = Namespace::create(&self.client()?, prefix).await?;
        self.traces().namespaces.push(namespace.clone());
        Ok(namespace)
    }

    /// A new fake kubelet, as the administrator.
    pub async fn kubelet(&self, node: NodeSpec) -> Result<Kubelet, kube::Error> {
        Kubelet::start(&self.client()?, node).await
    }

    /// Says what the test does from here on, for the message if it then takes too long.
    pub fn doing(&self, what: impl Into<String>) {
        self.traces().doing = Some(what.into());
    }

    fn traces(&self) -> std::sync::MutexGuard<'_, Traces> {
        self.traces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a reader of a failed test wants to know of the cluster.
    async fn report(&self) -> String {
        let Ok(client) = self.client() else { return "no client".to_owned() };
        let (doing, namespaces) = {
            let traces = self.traces();
            (traces.doing.clone(), traces.namespaces.clone())
        };
        let mut lines = vec![format!("it was: {}", doing.as_deref().unwrap_or("(it did not say what it was doing)"))];
        for namespace in namespaces {
            lines.push(format!("namespace {}", namespace.name()));
            let label = format!("{NAMESPACE_LABEL}={}", namespace.name());
            match Api::<Node>::all(client.clone()).list(&ListParams::default().labels(&label)).await {
                Ok(nodes) => lines.extend(nodes.iter().map(describe_node)),
                Err(error) => lines.push(format!("  nodes unknown: {error}")),
            }
            match namespace.api::<Pod>().list(&ListParams::default()).await {
                Ok(pods) => lines.extend(pods.iter().map(describe_pod)),
                Err(error) => lines.push(format!("  pods unknown: {error}")),
            }
        }
        lines.join("\n")
    }

    async fn clean_up(&self) {
        let namespaces = std::mem::take(&mut self.traces().namespaces);
        // Whatever stays goes with the control plane.
        let _ = timeout(CLEAN_UP_LIMIT, async {
            for namespace in namespaces {
                let _ = namespace.delete().await;
            }
        })
        .await;
    }
}

fn describe_node(node: &Node) -> String {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready").map(|condition| &condition.status);
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let taints: Vec<String> = taints.iter().map(|taint| format!("{}:{}", taint.key, taint.effect)).collect();
    format!("  node {}: Ready={}, taints {}", node.name_any(), ready.map_or("?", String::as_str), taints.join(" "))
}

fn describe_pod(pod: &Pod) -> String {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("?");
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or("no node");
    let ready = if is_ready(pod) { ", Ready" } else { "" };
    let terminating = match pod.metadata.deletion_grace_period_seconds {
        Some(grace) => format!(", terminating with grace {grace} s"),
        None => String::new(),
    };
    format!("  pod {} on {node}: {phase}{ready}{terminating}", pod.name_any())
}

/// The side that tests share, started by the first of them.
struct Shared {
    kind: SideKind,
    options: Options,
    side: OnceLock<Result<Arc<dyn Side>, Arc<SideError>>>,
}

impl Shared {
    fn new(kind: SideKind, options: Options) -> Arc<Self> {
        Arc::new(Self { kind, options, side: OnceLock::new() })
    }

    fn get(&self, runtime: &Runtime) -> Result<Arc<dyn Side>, Arc<SideError>> {
        self.side.get_or_init(|| runtime.block_on(self.kind.start(self.options.clone())).map_err(Arc::new)).clone()
    }
}

/// Runs the tests that the command line asks for, as the standard test harness does. `options` are those of the shared
/// control plane. To be returned from `main`.
pub fn run(options: Options, tests: Vec<Test>) -> ExitCode {
    let shared = Shared::new(SideKind::real(), options);
    run_all(tests.into_iter().map(|test| (test.name.clone(), test, Arc::clone(&shared))))
}

/// The same on several sides: each test once on each, its name preceded by the side's.
pub fn run_on(sides: &[SideKind], options: &Options, tests: &[Test]) -> ExitCode {
    let shared: Vec<_> = sides.iter().map(|kind| Shared::new(kind.clone(), options.clone())).collect();
    run_all(shared.iter().flat_map(|shared| {
        let name = |test: &Test| format!("{}::{}", shared.kind.name(), test.name);
        let here = |test: &&Test| test.only_on.is_none_or(|side| side == shared.kind.name());
        tests.iter().filter(here).map(move |test| (name(test), test.clone(), Arc::clone(shared)))
    }))
}

fn run_all(tests: impl Iterator<Item = (String, Test, Arc<Shared>)>) -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(TESTS_AT_ONCE);
    // `cargo bench` asks for benchmarks only; what it runs here is one.
    arguments.bench = false;
    let trials = tests.map(|(name, test, shared)| Trial::ignorable_test(name, move || run_test(test, &shared)));
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

fn run_test(test: Test, shared: &Shared) -> Result<Completion, Failed> {
    let Test { name: _, limit, alone, only_on: _, body } = test;
    // Two threads, so that a test which blocks one of them does not stop its kubelets and proxies.
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let side = match alone {
        None => shared.get(&runtime),
        Some(options) => runtime.block_on(shared.kind.start(options)).map_err(Arc::new),
    };
    let side = match side {
        Ok(side) => side,
        Err(error) => return without_side(&error),
    };
    let context = Context::new(side);
    let result = runtime.block_on(async {
        // A task of its own, so that a panic ends here and the clean-up comes nevertheless.
        let mut task = tokio::spawn(body(context.clone()));
        let result = match timeout(limit, &mut task).await {
            Ok(Ok(Ok(()))) => Ok(Completion::Completed),
            Ok(Ok(Err(error))) => Err(format!("{error}\n{}", context.report().await)),
            Ok(Err(panic)) => Err(format!("{}\n{}", panic_message(panic), context.report().await)),
            Err(_) => {
                let report = context.report().await;
                Err(format!("not done within {limit:?}; {report}\n{}", context.side.log_tails()))
            }
        };
        task.abort();
        context.clean_up().await;
        result
    });
    result.map_err(Failed::from)
}

fn without_side(error: &SideError) -> Result<Completion, Failed> {
    let is_required = env::var_os(REQUIRE_VARIABLE).is_some_and(|value| value == "1");
    if is_unavailable(error) && !is_required {
        return Ok(Completion::ignored_with(error.to_string()));
    }
    Err(Failed::from(error.to_string()))
}

fn panic_message(error: tokio::task::JoinError) -> String {
    let Ok(payload) = error.try_into_panic() else { return "the test's task was cancelled".to_owned() };
    let text = payload.downcast_ref::<String>().map(String::as_str).or_else(|| payload.downcast_ref::<&str>().copied());
    format!("panicked: {}", text.unwrap_or("(no text)"))
}
