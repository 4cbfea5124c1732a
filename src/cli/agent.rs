//! `remediator agent`.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use clap::builder::BoolishValueParser;
use domain::drain::pod::PodName;
use domain::policy::Policy;
use jiff::SignedDuration;

use super::on_node::{OnNode, check_node_name};
use super::stop_signal::stop_signal;
use super::usage;
use crate::agent::{Connections, Notifying, PolicySource, Settings};
use crate::azure::imds::Imds;
use crate::clock::Clock;
use crate::cluster::Cluster;
use crate::metrics::Metrics;
use crate::serve;

/// Azure allows five requests a second for a whole machine, and others there ask too.
const SHORTEST_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// A spot machine is taken back with 30 s of notice at best.
const LONGEST_POLL_INTERVAL: Duration = Duration::from_secs(10);

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    remediator agent --node \"$NODE_NAME\"\n      \
      in a pod: link-local metadata service, own service account, built-in policy\n  \
    remediator agent --node aks-np1-12345678-vmss000000 --imds http://127.0.0.1:8080 --kubeconfig ~/.kube/config \\\n      \
      --policy policies/spot.yaml --dry-run\n      \
      on a desk: against a mock of the metadata service, deciding and telling only")]
pub(super) struct Agent {
    #[command(flatten)]
    on_node: OnNode,
    /// Where /livez, /readyz and /metrics are answered.
    #[arg(long, env = "REMEDIATOR_LISTEN", default_value = "0.0.0.0:9477", value_name = "ADDR")]
    listen: SocketAddr,
    /// How often to ask for scheduled events, from 500ms to 10s.
    #[arg(long, env = "REMEDIATOR_POLL_INTERVAL", default_value = "1s", value_name = "DURATION", value_parser = poll_interval)]
    poll_interval: Duration,
    /// Decide and tell, but write nothing: no cordon, no eviction, no record, no Event.
    #[arg(long, env = "REMEDIATOR_DRY_RUN", value_parser = BoolishValueParser::new())]
    dry_run: bool,
    /// Name of the pod that this program runs in, which is never evicted by it; from the downward API (metadata.name).
    #[arg(long, env = "POD_NAME", value_name = "NAME", requires = "pod_namespace")]
    pod_name: Option<String>,
    /// Namespace of the Leases by which nodes agree who approves an event and who is drained; by default that of the pod, or
    /// else `default`.
    #[arg(long, env = "REMEDIATOR_NAMESPACE", value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Namespace of that pod; from the downward API (metadata.namespace).
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAMESPACE")]
    pod_namespace: Option<String>,
}

fn poll_interval(text: &str) -> Result<Duration, String> {
    let wrong = || "write a number and a unit, like 1s or 1500ms".to_owned();
    let interval: SignedDuration = text.parse().map_err(|_| wrong())?;
    let interval = Duration::try_from(interval).map_err(|_| wrong())?;
    if interval < SHORTEST_POLL_INTERVAL {
        return Err("at least 500ms: Azure allows five requests a second, and others on this machine ask too".into());
    }
    if interval > LONGEST_POLL_INTERVAL {
        return Err("at most 10s: a spot machine is taken back with 30 s of notice at best".into());
    }
    Ok(interval)
}

impl Agent {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let Self { on_node, listen, poll_interval, dry_run, pod_name, pod_namespace, namespace } = self;
        let OnNode { imds, node, policy, kubeconfig } = on_node;
        check_node_name(&node).map_err(usage)?;
        let policies = crate::policy_files::load(&policy).map_err(usage)?;
        for warning in policies.policies().iter().flat_map(Policy::warnings) {
            tracing::warn!("{warning}");
        }
        let names: Vec<&str> = policies.policies().iter().map(|policy| policy.name.as_str()).collect();
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            node,
            imds,
            policies = names.join(","),
            dry_run,
            "Starting"
        );
        let namespace = namespace.or_else(|| pod_namespace.clone()).unwrap_or_else(|| "default".into());
        let policies =
            if policy.is_empty() { PolicySource::Fixed(policies) } else { PolicySource::Files(policies, policy) };
        let own_pod = pod_name.zip(pod_namespace).map(|(name, namespace)| PodName { namespace, name });
        let check_rights = true;
        let settings = Settings { node, policies, namespace, check_rights, poll_interval, dry_run, own_pod };
        // One thread: the work is waiting, and what happens in which order can be replayed.
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the runtime")?;
        let ended = runtime.block_on(async {
            let stop = stop_signal().context("cannot listen to signals")?;
            let (clock, metrics) = (Clock::system(), Arc::new(Metrics::default()));
            let imds = Imds::at(&imds).map_err(usage)?;
            let cluster = Cluster::connect(kubeconfig.as_deref(), clock, Arc::clone(&metrics)).await.map_err(usage)?;
            let listener = serve::listen(listen).await.map_err(usage)?;
            let address = listener.local_addr().context("cannot tell where probes are answered")?;
            tracing::info!(%address, "Serving /livez, /readyz and /metrics");
            let notifying = Notifying::over_network(clock, Arc::clone(&metrics));
            let connections = Connections { imds, cluster, notifying, listener: Some(listener), metrics };
            crate::agent::run(settings, connections, clock, stop).await?;
            Ok(ExitCode::SUCCESS)
        });
        // A name that is being looked up must not hold up the end.
        runtime.shutdown_background();
        ended
    }
}
