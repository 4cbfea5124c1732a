//! The role of the DaemonSet: watches the scheduled events of its own machine and looks after its own node.
//!
//! Two loops. `poll` asks Azure and never waits for Kubernetes; `steward` looks at what Azure and the node say, has
//! [`domain::node_plan`] decide, and carries out the decision. They meet at the `board`. So do those that see to it that
//! nodes agree: `approver` tells Azure that an event may start, `slots` limits how many are drained at once, and `neighbours`
//! carries news to the repairs of other machines. `policies` reads changed policy files.

mod approver;
mod board;
mod neighbours;
mod own_node;
mod policies;
mod poll;
mod slots;
mod steward;

use std::sync::Arc;
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use domain::drain::pod::PodName;
use domain::policy::PolicySet;
use futures::future::BoxFuture;
use tokio::net::TcpListener;
use tokio::task::JoinError;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use crate::azure::imds::Imds;
use crate::clock::Clock;
use crate::cluster::Cluster;
use crate::cluster::recorder::recorder;
use crate::cluster::rights::{rights, spoken};
use crate::metrics::Metrics;
use crate::notify::{self, Deliveries, Notifier};
use crate::serve;
use board::Board;
pub use policies::PolicySource;

/// How long the end may take; a pod is given 30 s for it.
const STOPS_WITHIN: Duration = Duration::from_secs(15);

/// How long of that receivers outside the cluster may take.
const NOTIFIES_WITHIN: Duration = Duration::from_secs(6);

/// How often the API server is asked again for the agent's rights where it does not answer: for half an hour.
const RIGHTS_ASKED_AGAIN: usize = 10;

/// How the agent is to run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The name of the own Node.
    pub node: String,
    /// What to do about events.
    pub policies: PolicySource,
    /// Where the Leases are by which nodes agree.
    pub namespace: String,
    /// Whether to ask the API server, at the start and when the policies change, for the rights that they need.
    pub check_rights: bool,
    /// How often to ask for events.
    pub poll_interval: Duration,
    /// Decide and tell, but write nothing anywhere.
    pub dry_run: bool,
    /// The pod that this process runs in.
    pub own_pod: Option<PodName>,
}

/// Whom the agent speaks to.
pub struct Connections {
    /// The metadata service.
    pub imds: Imds,
    /// The API server.
    pub cluster: Cluster,
    /// Who is told outside the cluster.
    pub notifying: Notifying,
    /// Where probes and metrics are asked for.
    pub listener: Option<TcpListener>,
    /// Where it counts, and the cluster too.
    pub metrics: Arc<Metrics>,
}

/// What tells receivers outside the cluster.
pub struct Notifying {
    notifier: Notifier,
    deliveries: Deliveries,
    work: BoxFuture<'static, ()>,
}

impl Notifying {
    /// Over the network.
    pub fn over_network(clock: Clock, metrics: Arc<Metrics>) -> Self {
        Self::of(notify::notifier(clock, metrics))
    }

    /// From a notifier, what becomes of its notifications, and its work.
    pub fn of((notifier, deliveries, work): (Notifier, Deliveries, impl Future<Output = ()> + Send + 'static)) -> Self {
        Self { notifier, deliveries, work: Box::pin(work) }
    }
}

/// Why the agent had to end.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// A part that must go on for ever has ended.
    #[error("the {0} ended, which must not happen; the process ends so that it is started anew")]
    Ended(&'static str),
}

/// Runs the agent until `stop` is ready. Nothing is undone then: the next life goes on from the record on the node. If
/// the future is dropped, everything ends where it is, as at a SIGKILL.
pub async fn run(
    settings: Settings,
    connections: Connections,
    clock: Clock,
    stop: impl Future<Output = ()>,
) -> Result<(), AgentError> {
    // For whoever looks on at several agents in one process.
    let span = tracing::debug_span!("agent", node = settings.node);
    live(settings, connections, clock, stop).instrument(span).await
}

async fn live(
    settings: Settings,
    connections: Connections,
    clock: Clock,
    stop: impl Future<Output = ()>,
) -> Result<(), AgentError> {
    let Settings { node, policies, namespace, check_rights, poll_interval, dry_run, own_pod } = settings;
    let Connections { imds, cluster, notifying, listener, metrics } = connections;
    let Notifying { notifier, deliveries, work } = notifying;
    let cluster = if dry_run { cluster.read_only() } else { cluster };

    let board = Arc::new(Board::new(clock, Arc::clone(&metrics), poll_interval, policies.policies().clone()));
    let instance = own_pod.as_ref().map_or_else(|| node.clone(), |pod| pod.name.clone());
    let (recorder, recording) = recorder(cluster.clone(), Arc::clone(&metrics), instance);
    let health = Arc::clone(&board) as Arc<dyn serve::Health>;
    let serving = async {
        match listener {
            Some(listener) => drop(serve::serve(listener, health).await),
            None => std::future::pending().await,
        }
    };
    let polling = poll::poll(imds.clone(), Arc::clone(&board), clock, poll_interval, node.clone());
    let check = {
        let (cluster, namespace) = (cluster.clone(), namespace.clone());
        move |policies| {
            let (cluster, namespace) = (cluster.clone(), namespace.clone());
            check_rights.then(|| spawn(find_missing_rights(cluster, policies, namespace)))
        }
    };
    let _checking = check(policies.policies().clone());
    let following = policies::follow(policies, Arc::clone(&board), clock, check);
    let agreeing = agree(imds, &cluster, &board, namespace, &node, own_pod.clone(), dry_run);
    let tools = crate::drain::Tools { cluster, recorder, metrics, own_pod };
    let outside = steward::Outside::new(notifier.clone(), deliveries);
    let mut steward = spawn(steward::Steward::new(tools, outside, Arc::clone(&board), node, dry_run).run());
    let mut working = spawn(work);
    let mut recording = spawn(recording);
    // Probes are answered until the very end.
    let mut serving = spawn(serving);
    tokio::select! {
        biased;
        () = stop => {}
        ended = supervised("poll loop", spawn(polling)) => return Err(ended),
        ended = supervised("steward", &mut steward) => return Err(ended),
        ended = supervised("recorder", &mut recording) => return Err(ended),
        ended = supervised("notifications", &mut working) => return Err(ended),
        ended = supervised("policy files", spawn(following)) => return Err(ended),
        ended = supervised("agreement with other nodes", spawn(agreeing)) => return Err(ended),
        ended = supervised("HTTP server", &mut serving) => return Err(ended),
    }
    tracing::info!("Stopping; the node stays as it is, and the next start goes on from its record");
    board.stop();
    let winding_up = async {
        // The steward waits for the evictions that are under way; the recorder ends when nobody tells it anything more.
        let _ = steward.await;
        let _ = recording.await;
        let left = notifier.flush(NOTIFIES_WITHIN).await;
        if left > 0 {
            tracing::warn!(left, "Stopped before every receiver was told; the next start tells them");
        }
    };
    if tokio::time::timeout(STOPS_WITHIN, winding_up).await.is_err() {
        tracing::warn!("Stopped before everything that was asked for was answered");
    }
    Ok(())
}

/// A right that is missing would otherwise be noticed when it is needed, with seconds left.
async fn find_missing_rights(cluster: Cluster, policies: PolicySet, namespace: String) {
    let needed = rights(&policies);
    let ask = || cluster.missing_rights(&needed, &namespace);
    let pace = ExponentialBuilder::default()
        .with_min_delay(Duration::from_secs(5))
        .with_max_delay(Duration::from_secs(300))
        .with_max_times(RIGHTS_ASKED_AGAIN);
    match ask.retry(pace).await {
        Ok(missing) if missing.is_empty() => {}
        Ok(missing) => tracing::error!(
            missing = spoken(&missing),
            "The agent's service account lacks rights that the loaded policies need: add them to its role"
        ),
        Err(error) => tracing::warn!(
            %error,
            "The API server does not say whether the agent has all rights that the policies need; `remediator doctor` asks \
             it again"
        ),
    }
}

/// What nodes of the cluster do together. A dry run only looks, so it takes no part.
fn agree(
    imds: Imds,
    cluster: &Cluster,
    board: &Arc<Board>,
    namespace: String,
    node: &str,
    own_pod: Option<PodName>,
    dry_run: bool,
) -> impl Future<Output = ()> + use<> {
    let (clock, node) = (cluster.clock(), node.to_owned());
    let approver = approver::Approver {
        imds,
        cluster: cluster.clone(),
        board: Arc::clone(board),
        clock,
        namespace: namespace.clone(),
        node: node.clone(),
        own_pod,
    };
    let slots =
        slots::Slots { cluster: cluster.clone(), board: Arc::clone(board), clock, namespace, node: node.clone() };
    let neighbours = neighbours::Neighbours { cluster: cluster.clone(), board: Arc::clone(board), clock, node };
    async move {
        if dry_run {
            return std::future::pending().await;
        }
        // Tasks of their own, so that one that waits for an answer holds up no other.
        let (approver, slots, neighbours) = (spawn(approver.run()), spawn(slots.run()), spawn(neighbours.run()));
        tokio::select! {
            biased;
            _ = approver => {}
            _ = slots => {}
            _ = neighbours => {}
        }
    }
}

/// A task that ends with whoever waits for it.
fn spawn<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> AbortOnDropHandle<T> {
    AbortOnDropHandle::new(tokio::spawn(work.in_current_span()))
}

/// Waits for a part that must go on for ever; its end is an error.
async fn supervised(name: &'static str, task: impl Future<Output = Result<(), JoinError>>) -> AgentError {
    if let Err(error) = task.await {
        tracing::error!(%error, "The {name} failed");
    }
    AgentError::Ended(name)
}
