//! The role of the DaemonSet: watches the scheduled events of its own machine and looks after its own node.
//!
//! Two loops. `poll` asks Azure and never waits for Kubernetes; `steward` looks at what Azure and the node say, has
//! [`domain::node_plan`] decide, and carries out the decision. They meet at the `board`.

mod board;
mod own_node;
mod poll;
mod steward;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use domain::drain::pod::PodName;
use domain::policy::PolicySet;
use tokio::task::JoinError;

use crate::azure::imds::{Imds, ImdsError};
use crate::clock::Clock;
use crate::cluster::recorder::recorder;
use crate::cluster::{Cluster, ClusterError};
use crate::metrics::Metrics;
use crate::serve::{self, ListenError};
use board::Board;

/// How long the end may take; a pod is given 30 s for it.
const STOPS_WITHIN: Duration = Duration::from_secs(15);

/// How the agent is to run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The address of the metadata service.
    pub imds: String,
    /// The name of the own Node.
    pub node: String,
    /// What to do about events.
    pub policies: PolicySet,
    /// How to reach the API server; as a pod if `None`.
    pub kubeconfig: Option<PathBuf>,
    /// Where to answer probes and metrics.
    pub listen: SocketAddr,
    /// How often to ask for events.
    pub poll_interval: Duration,
    /// Decide and tell, but write nothing anywhere.
    pub dry_run: bool,
    /// The pod that this process runs in.
    pub own_pod: Option<PodName>,
}

/// Why the agent could not start or had to end.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The metadata service cannot be used.
    #[error(transparent)]
    Imds(#[from] ImdsError),
    /// The API server cannot be used.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// Probes cannot be answered.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// A part that must go on for ever has ended.
    #[error("the {0} ended, which must not happen; the process ends so that it is started anew")]
    Ended(&'static str),
}

/// Runs the agent until `stop` is ready. Nothing is undone then: the next life goes on from the record on the node.
pub async fn run(settings: Settings, clock: Clock, stop: impl Future<Output = ()>) -> Result<(), AgentError> {
    let Settings { imds, node, policies, kubeconfig, listen, poll_interval, dry_run, own_pod } = settings;
    let metrics = Arc::new(Metrics::default());
    let imds = Imds::at(&imds)?;
    let cluster = Cluster::connect(kubeconfig.as_deref(), clock, Arc::clone(&metrics)).await?;
    let cluster = if dry_run { cluster.read_only() } else { cluster };
    let listener = serve::listen(listen).await?;
    if let Ok(address) = listener.local_addr() {
        tracing::info!(%address, "Serving /livez, /readyz and /metrics");
    }
    let board = Arc::new(Board::new(clock, Arc::clone(&metrics), poll_interval));
    let instance = own_pod.as_ref().map_or_else(|| node.clone(), |pod| pod.name.clone());
    let (recorder, recording) = recorder(cluster.clone(), Arc::clone(&metrics), instance);
    let serving = serve::serve(listener, Arc::clone(&board) as Arc<dyn serve::Health>);
    let polling = poll::poll(imds, Arc::clone(&board), clock, poll_interval, node.clone());
    let tools = crate::drain::Tools { cluster, recorder, metrics, own_pod };
    let mut steward = tokio::spawn(steward::Steward::new(tools, Arc::clone(&board), node, policies, dry_run).run());
    let mut recording = tokio::spawn(recording);
    tokio::select! {
        biased;
        () = stop => {}
        ended = supervised("poll loop", tokio::spawn(polling)) => return Err(ended),
        ended = supervised("steward", &mut steward) => return Err(ended),
        ended = supervised("recorder", &mut recording) => return Err(ended),
        ended = supervised("HTTP server", tokio::spawn(async { drop(serving.await) })) => return Err(ended),
    }
    tracing::info!("Stopping; the node stays as it is, and the next start goes on from its record");
    board.stop();
    let winding_up = async {
        // The steward waits for the evictions that are under way; the recorder ends when nobody tells it anything more.
        let _ = steward.await;
        let _ = recording.await;
    };
    if tokio::time::timeout(STOPS_WITHIN, winding_up).await.is_err() {
        tracing::warn!("Stopped before everything that was asked for was answered");
    }
    Ok(())
}

/// Waits for a part that must go on for ever; its end is an error.
async fn supervised(name: &'static str, task: impl Future<Output = Result<(), JoinError>>) -> AgentError {
    if let Err(error) = task.await {
        tracing::error!(%error, "The {name} failed");
    }
    AgentError::Ended(name)
}
