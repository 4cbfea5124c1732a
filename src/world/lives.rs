//! The agents of the world, one on each machine: they die with it, are started again, and are otherwise left alone.

use std::sync::Arc;
use std::time::Duration;

use domain::drain::pod::PodName;
use domain::policy::PolicySet;
use futures::future::BoxFuture;
use tower::BoxError;

use super::api_server::ApiServer;
use super::api_server::kinds::PODS;
use super::controllers::{owner, pod};
use super::invariants::Checker;
use super::network::Lines;
use crate::agent::{self, Connections, PolicySource, Settings};
use crate::clock::Clock;

/// How an agent on a machine reaches the others; made anew for each life.
pub type Connect = Arc<dyn Fn() -> BoxFuture<'static, Result<Connections, BoxError>> + Send + Sync>;

/// The name of the DaemonSet that the agents stand for.
pub const DAEMON_SET: &str = "remediator-agent";

/// Where it is.
pub const NAMESPACE: &str = "kube-system";

/// The agent of one machine.
pub struct Agent {
    /// Its node.
    pub node: String,
    /// What it is told to do.
    pub policies: PolicySet,
    /// Its lines to the others.
    pub lines: Lines,
    /// How it reaches them.
    pub connect: Connect,
    /// The clock of its machine, which may be wrong.
    pub clock: Clock,
}

impl Agent {
    /// Lives one life after the other, for ever; `clock` shows the right time.
    pub async fn live(self, server: ApiServer, checker: Checker, clock: Clock) {
        let Self { node, policies, lines, connect, clock: own_clock } = self;
        loop {
            lines.alive().await;
            lines.born();
            checker.see_life(&node, clock.now().wall);
            let settings = Settings {
                node: node.clone(),
                // Nobody is outside this world.
                policies: PolicySource::Fixed(policies.clone().without_receivers()),
                namespace: NAMESPACE.into(),
                // There are no roles in the world.
                check_rights: false,
                poll_interval: Duration::from_secs(1),
                dry_run: false,
                own_pod: own_pod(&server, &node),
            };
            let connect = Arc::clone(&connect);
            let life = async move {
                let connections = connect().await.map_err(|error| error.to_string())?;
                let ended = agent::run(settings, connections, own_clock, std::future::pending()).await;
                ended.map_err(|error| error.to_string())
            };
            tokio::select! {
                biased;
                () = lines.killed() => {}
                ended = life => {
                    let why = ended.err().unwrap_or_else(|| "nobody asked it to".into());
                    checker.violate(clock.now().wall, &node, &format!("the agent ended by itself: {why}"));
                }
            }
            clock.sleep(lines.pause()).await;
        }
    }
}

/// The pod that the agent of a node runs in.
fn own_pod(server: &ApiServer, node: &str) -> Option<PodName> {
    let pods = server.list(PODS, Some(NAMESPACE));
    let own = pods.iter().find(|pod| {
        let is_agent = owner::controller_of(pod).is_some_and(|it| it.kind == "DaemonSet" && it.name == DAEMON_SET);
        is_agent && pod::node_name(pod) == Some(node)
    })?;
    let name = own["metadata"]["name"].as_str()?.to_owned();
    Some(PodName { namespace: NAMESPACE.into(), name })
}
