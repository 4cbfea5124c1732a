//! `remediator doctor`.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use clap::{Args, ValueEnum};

use super::on_node::{OnNode, check_node_name};
use super::output::say;
use super::usage;
use crate::azure::imds::Imds;
use crate::clock::Clock;
use crate::cluster::{Cluster, ClusterError};
use crate::doctor::{Check, Connections, News, Subject, Topic, Verdict, examine};
use crate::metrics::Metrics;
use crate::policy_files;

/// Where HTTP clients look for a proxy.
const PROXY_VARIABLES: [&str; 6] = ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    remediator doctor --node \"$NODE_NAME\" --host-root /host\n      \
      in a Job on the node: hostNetwork, the agent's service account, the host's root read-only at /host\n  \
    remediator doctor --node aks-np1-12345678-vmss000000 --kubeconfig ~/.kube/config -o json\n      \
      on the node itself, for a program\n\n\
    A line for each check: ok, warn, fail or skip (it could not be told), its name, and what was found; below a warn or \
    a fail what to do. Nothing is written; asking for scheduled events switches them on for the machine, as the agent \
    does, which may take two minutes.\n\n\
    Exit codes: 0, nothing failed; 1, something did; 2, the command line or a file that it names is wrong.")]
pub(super) struct Doctor {
    #[command(flatten)]
    on_node: OnNode,
    /// Namespace of the Leases by which agents agree: that of their pods [default: `POD_NAMESPACE`, then `default`]
    #[arg(long, env = "REMEDIATOR_NAMESPACE", value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Where the root of the host's file system is.
    #[arg(long, env = "REMEDIATOR_HOST_ROOT", default_value = "/", value_name = "PATH")]
    host_root: PathBuf,
    /// How the answer is printed.
    #[arg(long, short, value_name = "FORMAT", default_value = "text")]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
}

impl Doctor {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let Self { on_node, namespace, host_root, output } = self;
        let OnNode { imds, node, policy, kubeconfig } = on_node;
        check_node_name(&node).map_err(usage)?;
        let policies = policy_files::load(&policy).map_err(usage)?;
        let is_set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let proxies = PROXY_VARIABLES.into_iter().filter(is_set).map(str::to_owned).collect();
        let pods = || std::env::var("POD_NAMESPACE").ok().filter(|pods| !pods.is_empty());
        let namespace = namespace.or_else(pods).unwrap_or_else(|| "default".into());
        let subject = Subject { node, policies, namespace, host_root, proxies };
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the runtime")?;
        runtime.block_on(async {
            let clock = Clock::system();
            let imds = Imds::at(&imds).map_err(usage)?;
            let cluster = match Cluster::connect(kubeconfig.as_deref(), clock, Arc::new(Metrics::default())).await {
                // Not to be in a pod is something to find, and not the end of everything else.
                Err(error) if !matches!(error, ClusterError::NotInCluster(_)) => return Err(usage(error)),
                cluster => cluster,
            };
            let on_terminal = std::io::stdout().is_terminal();
            let colours = on_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
            let tell = |news: News<'_>| match news {
                News::Found(check) if output == Output::Text => say(&lines(check, colours)),
                News::Found(_) => {}
                News::Waiting(text) => eprintln!("{text}"),
            };
            let report = examine(&subject, &Connections { imds, cluster }, clock, tell).await;
            if output == Output::Json {
                say(&serde_json::to_string_pretty(&report).context("cannot write the report as JSON")?);
            }
            Ok(if report.has_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
        })
    }
}

fn lines(check: &Check, colours: bool) -> String {
    let Check { topic, verdict, found, advice } = check;
    let width = Topic::ALL.iter().map(|topic| topic.as_str().len()).max().unwrap_or_default();
    let colour = match verdict {
        Verdict::Ok => "32",
        Verdict::Skip => "2",
        Verdict::Warn => "33",
        Verdict::Fail => "1;31",
    };
    let word = verdict.as_str();
    let padding = " ".repeat(6_usize.saturating_sub(word.len()));
    let word = if colours { format!("\x1b[{colour}m{word}\x1b[0m") } else { word.to_owned() };
    let found = format!("{word}{padding}{topic:width$}  {}", one_line(found));
    match advice {
        Some(advice) => format!("{found}\n{:1$}-> {2}", "", 6 + width + 2, one_line(advice)),
        None => found,
    }
}

/// What servers say may have line breaks, and worse.
fn one_line(text: &str) -> String {
    let clean: String = text.chars().map(|one| if one.is_control() { ' ' } else { one }).collect();
    clean.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_and_advice_stands_below_what_was_found() {
        let check = |topic, verdict, found: &str, advice: Option<&str>| Check {
            topic,
            verdict,
            found: found.into(),
            advice: advice.map(str::to_owned),
        };
        let well = check(Topic::Node, Verdict::Ok, "n is Ready", None);
        let ill = check(Topic::TerminationHandler, Verdict::Warn, "two\nlines\x1b[1m", Some("remove it"));
        assert_eq!(lines(&well, false), "ok    node                 n is Ready");
        assert_eq!(
            lines(&ill, false),
            "warn  termination-handler  two lines [1m\n                           -> remove it"
        );
        assert_eq!(lines(&well, true), "\x1b[32mok\x1b[0m    node                 n is Ready");
    }
}
