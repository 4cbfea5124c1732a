//! The program `mock-imds`: serves a scenario, and prints what happens.

use std::{
    fmt::Display,
    io::{self, IsTerminal, Write},
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
};

use axum::Router;
use clap::Parser;
use mock_imds::{Change, Compatibility, Mock, Scenario, Server, SystemClock};
use tokio::net::TcpListener;

const AFTER_HELP: &str = "\
Examples:
  A redeploy with ten minutes' notice, ten minutes in one:
    mock-imds --scenario scenarios/redeploy.yaml --speed 10

  What the VM sees (header and version are required, as on Azure):
    curl -H Metadata:true 'http://127.0.0.1:8080/metadata/scheduledevents?api-version=2020-07-01'

  Approve an event:
    curl -H Metadata:true 'http://127.0.0.1:8080/metadata/scheduledevents?api-version=2020-07-01' \\
      -d '{\"StartRequests\":[{\"EventId\":\"...\"}]}'

  Several VMs: say which one asks, or give each a port of its own:
    curl -H Metadata:true 'http://127.0.0.1:8080/vm/NAME/metadata/scheduledevents?api-version=2020-07-01'
    mock-imds --scenario scenarios/storm.yaml --port-per-vm

  Make something happen that the scenario does not know:
    curl http://127.0.0.1:8080/mock/events -d '{\"type\":\"Preempt\",\"vms\":[\"aks-np1-12345678-vmss_0\"]}'
    curl http://127.0.0.1:8080/mock/faults -d '{\"kind\":{\"status\":{\"code\":503}},\"requests\":3}'

Exit codes: 0 stopped by Ctrl-C or SIGTERM, 1 cannot serve, 2 wrong usage or wrong scenario.";

/// A mock of the Azure Instance Metadata Service.
///
/// Serves scheduled events, instance metadata and identity tokens for the VMs of a scenario, lets happen what its
/// timeline says, and misbehaves on demand.
#[derive(Debug, Parser)]
// Not wrapped: the examples must stay in one piece to be copied.
#[command(version, after_help = AFTER_HELP, term_width = 0)]
struct Options {
    /// The scenario: VMs, settings and timeline (YAML).
    #[arg(long, value_name = "FILE", env = "MOCK_IMDS_SCENARIO", required_unless_present = "compat")]
    scenario: Option<PathBuf>,

    /// The address to listen on; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", env = "MOCK_IMDS_LISTEN", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,

    /// How many times faster the timeline and the phases of events run; NotBefore stays true.
    #[arg(long, value_name = "N", env = "MOCK_IMDS_SPEED", default_value = "1", value_parser = speed)]
    speed: f64,

    /// Gives each VM a port of its own, in the order of the scenario, after that of --listen.
    #[arg(long, env = "MOCK_IMDS_PORT_PER_VM")]
    port_per_vm: bool,

    /// Behaves like Microsoft's scheduled-events-mock-server instead, for clients that were written against it.
    #[arg(long, env = "MOCK_IMDS_COMPAT", conflicts_with_all = ["scenario", "port_per_vm", "speed"])]
    compat: bool,
}

fn speed(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(speed) if speed.is_finite() && speed > 0.0 => Ok(speed),
        _ => Err("give a number above 0, like 60 or 0.5".to_owned()),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(Options::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let _ = writeln!(io::stderr(), "{}", failure.message);
            ExitCode::from(failure.code)
        }
    }
}

/// Why the program ends, and with which exit code.
struct Failure {
    message: String,
    code: u8,
}

impl Failure {
    fn serving(what: impl Display, error: impl Display) -> Self {
        Self { message: format!("mock-imds: {what}: {error}"), code: 1 }
    }
}

async fn run(options: Options) -> Result<(), Failure> {
    let Options { scenario, listen, speed, port_per_vm, compat: _ } = options;
    let stop = stop_signal().map_err(|error| Failure::serving("cannot wait for signals", error))?;
    match scenario {
        Some(file) => {
            let scenario =
                Scenario::from_file(&file).map_err(|error| Failure { message: error.to_string(), code: 2 })?;
            serve_scenario(scenario.at_speed(speed), listen, port_per_vm, stop).await
        }
        None => serve_compatibility(listen, stop).await,
    }
}

async fn serve_scenario(
    scenario: Scenario,
    listen: SocketAddr,
    port_per_vm: bool,
    stop: impl Future<Output = ()>,
) -> Result<(), Failure> {
    let description = scenario.description().trim().to_owned();
    let mock = Mock::new(scenario, SystemClock);
    let main = bind(listen, mock.router()).await?;
    let mut own_ports = Vec::new();
    let vms = mock.vms();
    for (vm, offset) in vms.iter().zip(1..).filter(|_| port_per_vm) {
        let port = match listen.port() {
            0 => 0,
            port => port.checked_add(offset).ok_or_else(|| {
                Failure::serving(listen, "there are not enough ports after this one; listen on a lower one")
            })?,
        };
        let router = mock.router_for(&vm.name).map_err(|error| Failure::serving(&vm.name, error))?;
        own_ports.push(bind(SocketAddr::new(listen.ip(), port), router).await?);
    }
    print(format_args!("mock-imds listens on {}", main.url()));
    if !description.is_empty() {
        print(format_args!("{description}"));
    }
    let mut example = String::new();
    let width = vms.iter().map(|vm| vm.name.len()).max().unwrap_or_default();
    for (index, vm) in vms.iter().enumerate() {
        let url = match own_ports.get(index) {
            Some(own) => own.url(),
            None if vms.len() == 1 => main.url(),
            None => format!("{}/vm/{}", main.url(), vm.name),
        };
        print(format_args!("  {:width$}  node {}  {url}/metadata", vm.name, vm.node_name()));
        if index == 0 {
            example = format!("curl -H Metadata:true '{url}/metadata/scheduledevents?api-version=2020-07-01'");
        }
    }
    print(format_args!("  control API  {}/mock/state\nTry: {example}", main.url()));

    let (mut seen, colours) = (0, colours_are_wanted());
    tokio::pin!(stop);
    loop {
        for change in mock.changes_after(seen) {
            seen = change.number;
            print_change(&change, colours);
        }
        tokio::select! {
            biased;
            () = &mut stop => break,
            () = mock.changed() => {}
        }
    }
    for server in own_ports {
        server.stop().await;
    }
    main.stop().await;
    Ok(())
}

async fn serve_compatibility(listen: SocketAddr, stop: impl Future<Output = ()>) -> Result<(), Failure> {
    let server = bind(listen, Compatibility::new(SystemClock).router()).await?;
    let url = server.url();
    print(format_args!("mock-imds listens on {url} in compatibility mode"));
    print(format_args!("Try: curl -d 'event_status=Scheduled' {url}/generate-event"));
    print(format_args!("     curl {url}/metadata/scheduledevents"));
    stop.await;
    server.stop().await;
    Ok(())
}

async fn bind(address: SocketAddr, router: Router) -> Result<Server, Failure> {
    let advice = |error: io::Error| Failure::serving(format_args!("cannot listen on {address}"), error);
    Server::spawn(TcpListener::bind(address).await.map_err(advice)?, router).map_err(advice)
}

/// Ends when the process is told to stop.
fn stop_signal() -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            biased;
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

/// Prints a line. A reader that has gone away is no reason to stop serving.
fn print(line: impl Display) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Colours are for people at a terminal who have not said otherwise: <https://no-color.org>.
fn colours_are_wanted() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

fn print_change(change: &Change, colours: bool) {
    let time = change.time.strftime("%H:%M:%S%.3f");
    let what = format!("{:<9}", change.what);
    let what = match colour(change.what) {
        Some(colour) if colours => format!("\x1b[{colour}m{what}\x1b[0m"),
        _ => what,
    };
    let id = change.event.as_ref().map_or("-", |id| id.as_str());
    print(format_args!("{time}  {what}  {id:<36}  {}", change.detail));
}

fn colour(what: &str) -> Option<u8> {
    match what {
        "Scheduled" => Some(33),
        "Started" | "Fault" | "Skipped" => Some(31),
        "Finished" | "Cancelled" | "Cleared" => Some(32),
        "Approved" => Some(36),
        _ => None,
    }
}
