//! The command line: one file a subcommand.
//!
//! Exit codes: 0, it went well; 1, it did not; 2, the command line or a file that it names is wrong.

mod agent;
#[cfg(feature = "world")]
mod demo;
mod doctor;
mod on_node;
mod output;
mod policy;
#[cfg(feature = "world")]
mod simulate;
mod stop_signal;
#[cfg(feature = "world")]
mod story;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

/// Keeps Azure Kubernetes nodes out of trouble.
///
/// Watches the scheduled events that Azure announces for a virtual machine (freeze, reboot, redeploy, spot eviction,
/// deletion), cordons and drains the node in time as a policy file says, and gives it back afterwards.
#[derive(Debug, Parser)]
#[command(name = "remediator", version, max_term_width = 100)]
#[command(after_help = "Examples:\n  \
    remediator demo\n  \
    remediator simulate policies/scenarios/rolling-redeploy.yaml --policy policies/aks.yaml\n  \
    remediator policy check policies/*.yaml\n  \
    remediator policy test policies/\n  \
    remediator policy explain --policy policies/spot.yaml --event event.json --labels kubernetes.azure.com/scalesetpriority=spot\n  \
    remediator agent --node \"$NODE_NAME\" --policy /etc/remediator/policies\n  \
    remediator doctor --node \"$NODE_NAME\" --host-root /host")]
struct Arguments {
    /// What is logged: error, warn, info, debug, trace, or a filter like `remediator=debug`.
    #[arg(long, global = true, env = "REMEDIATOR_LOG", default_value = "info", value_name = "FILTER")]
    log: String,
    /// How it is logged; `auto` is text on a terminal and JSON elsewhere.
    #[arg(long, global = true, env = "REMEDIATOR_LOG_FORMAT", default_value = "auto", value_name = "FORMAT")]
    log_format: LogFormat,
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    Auto,
    Text,
    Json,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Watches the scheduled events of this machine and looks after its node (the role of the DaemonSet).
    Agent(Box<agent::Agent>),
    /// Looks at a node as the agent will find it, and says what is missing and what to do.
    Doctor(Box<doctor::Doctor>),
    /// Shows agents at work in a Kubernetes and an Azure of its own, live, in about a minute.
    #[cfg(feature = "world")]
    Demo(demo::Demo),
    /// Plays a scenario in virtual time and tells what came of it.
    #[cfg(feature = "world")]
    Simulate(simulate::Simulate),
    /// Checks and tests policy files, and tells what a policy says about an event.
    #[command(subcommand)]
    Policy(policy::Policy),
}

/// The command line, or something that it names, is wrong.
#[derive(Debug, thiserror::Error)]
#[error("{0:#}")]
struct Usage(anyhow::Error);

/// Reads the command line and does what it says.
pub fn run() -> ExitCode {
    let Arguments { log, log_format, command } = Arguments::parse();
    let done = start_log(&log, log_format).and_then(|()| match command {
        Command::Agent(agent) => agent.run(),
        Command::Doctor(doctor) => doctor.run(),
        #[cfg(feature = "world")]
        Command::Demo(demo) => demo.run(),
        #[cfg(feature = "world")]
        Command::Simulate(simulate) => simulate.run(),
        Command::Policy(policy) => policy.run(),
    });
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("remediator: {error:#}");
            if error.is::<Usage>() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

fn start_log(filter: &str, format: LogFormat) -> anyhow::Result<()> {
    let filter: Targets = filter.parse().map_err(|error| usage(anyhow::anyhow!("--log `{filter}`: {error}")))?;
    // The client library would log each refusal of the API server as an error of its own.
    let filter = filter.with_target("kube_client", tracing::level_filters::LevelFilter::OFF);
    let on_terminal = std::io::stderr().is_terminal();
    let layer = fmt::layer().with_target(false).with_writer(std::io::stderr);
    let layer = match format {
        LogFormat::Auto if !on_terminal => layer.json().flatten_event(true).boxed(),
        LogFormat::Json => layer.json().flatten_event(true).boxed(),
        LogFormat::Auto | LogFormat::Text => layer.with_ansi(on_terminal).boxed(),
    };
    tracing_subscriber::registry().with(layer.with_filter(filter)).init();
    Ok(())
}

fn usage(error: impl Into<anyhow::Error>) -> anyhow::Error {
    Usage(error.into()).into()
}
