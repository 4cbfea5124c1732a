//! A scenario in virtual time: the same seed gives the same timeline, byte for byte.

use std::sync::Arc;
use std::time::Duration;

use domain::policy::PolicySet;
use domain::time::minus;

use serde::Serialize;
use tower::BoxError;

use super::invariants::agent_of;
use super::lives::Connect;
use super::onlooker::AgentLog;
use super::scenario::Scenario;
use super::stage::{SETTLES_WITHIN, Stage, StageError};
use super::timeline::{Row, Timeline};
use super::verdict::Verdict;
use crate::agent::{Connections, Notifying};
use crate::azure::imds::{Imds, LINK_LOCAL};
use crate::clock::Clock;
use crate::cluster::Cluster;
use crate::metrics::Metrics;

/// How long everything is given to come to rest after the story.
const RESTS_WITHIN: Duration = Duration::from_secs(900);

/// What a run has shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The scenario.
    pub scenario: String,
    /// The seed that gives the same run again.
    pub seed: u64,

    /// Everything that happened.
    pub timeline: Vec<Row>,
    /// What came of it.
    pub verdict: Verdict,
}

/// Why there was no run.
#[derive(Debug, thiserror::Error)]
pub enum SimulationError {
    /// No runtime.
    #[error("cannot start the runtime: {0}")]
    Runtime(#[from] std::io::Error),
    /// No world.
    #[error(transparent)]
    Stage(#[from] StageError),
}

/// Plays a scenario; `timeline` may hand the lines on while they come.
pub fn simulate(
    scenario: Scenario,
    policies: &PolicySet,
    seed: u64,
    timeline: &Timeline,
) -> Result<Report, SimulationError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    runtime.block_on(async {
        let clock = Clock::starting_at(minus(scenario.begins, SETTLES_WITHIN));
        let _guard = tracing::subscriber::set_default(AgentLog::new(timeline.clone(), clock).alone());
        let name = scenario.name.clone();
        let begins = Some(scenario.begins);
        let stage = Stage::build(scenario, policies, clock, seed, timeline.clone(), begins).await?;
        let _agents = stage.start_agents(policies, |node| connect(&stage, node));
        let verdict = stage.play(RESTS_WITHIN).await?;
        Ok(Report { scenario: name, seed, timeline: timeline.rows(), verdict })
    })
}

/// The lines of an agent to a Kubernetes and an Azure in the same process.
pub fn connect(stage: &Stage, node: &str) -> Option<Connect> {
    let metadata_service = stage.azure.router_for(stage.vm_of(node)?).ok()?;
    let (lines, server, actor) = (stage.lines_of(node)?.clone(), stage.server.clone(), agent_of(node));
    let (clock, witness) = (stage.clock_of(node)?, stage.witness_of(node));
    Some(Arc::new(move || {
        let service = lines.to_metadata_service(metadata_service.clone(), Arc::clone(&witness));
        let imds = Imds::through(LINK_LOCAL, service);
        let client = kube::Client::new(lines.to_api_server(&server, actor.clone()), "default");
        Box::pin(async move {
            let metrics = Arc::new(Metrics::default());
            let cluster = Cluster::new(client, clock, Arc::clone(&metrics));
            let notifying = Notifying::over_network(clock, Arc::clone(&metrics));
            Ok::<_, BoxError>(Connections { imds: imds?, cluster, notifying, listener: None, metrics })
        })
    }))
}
