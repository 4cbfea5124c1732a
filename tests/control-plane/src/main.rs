//! `control-plane`: a Kubernetes control plane with fake nodes, on this machine, for as long as the program runs.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use control_plane::{Binaries, ControlPlane, FaultProxy, Kubelet, NodeSpec, Options, target_folder};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

/// Runs a real Kubernetes control plane (etcd, API server, controller manager, scheduler) with fake nodes on this
/// machine. It needs no cluster, no container runtime and no root.
///
/// Fake nodes run nothing: their kubelets say that pods run, and end them within their grace as a real kubelet does.
#[derive(Parser)]
#[command(name = "control-plane", version, after_help = EXAMPLES)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "Examples:
  control-plane up --nodes 5                      a cluster of five nodes, until Ctrl-C
  control-plane kubectl get nodes                 look at it, from another terminal
  control-plane kubectl create deployment web --image=web --replicas=10
  control-plane kubectl drain NODE --ignore-daemonsets
  control-plane run --nodes 3 -- kubectl get nodes   a cluster for one command

The programs are built once with Go, which takes about five minutes; KUBEBUILDER_ASSETS may name a folder with ready-made
ones instead (etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl).";

#[derive(Subcommand)]
enum Command {
    /// Starts a cluster and keeps it until Ctrl-C or SIGTERM; no process outlives it, even when it is killed
    Up(Up),
    /// Starts a cluster, runs a command with KUBECONFIG set and kubectl on its PATH, and ends with its exit code
    Run(Run),
    /// Runs kubectl against the cluster that `up` has started, with all further arguments
    Kubectl {
        /// Arguments for kubectl
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
        arguments: Vec<String>,
    },
    /// Builds the programs if they are not there, and starts nothing
    Build,
}

#[derive(Args)]
struct Up {
    /// Where to write the administrator's kubeconfig [default: target/control-plane/kubeconfig]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// How many fake AKS nodes to start, spread over three zones
    #[arg(long, value_name = "NUMBER", default_value_t = 3)]
    nodes: u32,
    /// Port of the API server on 127.0.0.1; a free one if not given
    #[arg(long, value_name = "PORT")]
    listen_port: Option<u16>,
    /// Also listen on this port with plain HTTP, where every caller is administrator
    #[arg(long, value_name = "PORT")]
    http_port: Option<u16>,
    /// Also end when standard input closes, for a program that starts this one
    #[arg(long)]
    until_stdin_closes: bool,
}

#[derive(Args)]
struct Run {
    /// How many fake AKS nodes to start, spread over three zones
    #[arg(long, value_name = "NUMBER", default_value_t = 3)]
    nodes: u32,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

fn main() -> Result<ExitCode> {
    let runtime = || tokio::runtime::Builder::new_multi_thread().enable_all().build();
    match CommandLine::parse().command {
        Command::Up(up) => runtime()?.block_on(keep_up(up))?,
        Command::Run(run) => return runtime()?.block_on(run_command(run)),
        Command::Kubectl { arguments } => {
            let mut kubectl = Binaries::find_or_build()?.kubectl();
            if std::env::var_os("KUBECONFIG").is_none() {
                kubectl.env("KUBECONFIG", default_kubeconfig());
            }
            // Takes the place of this process, so that its exit code and its signals are kubectl's.
            let error = kubectl.args(arguments).exec();
            return Err(error).context("cannot run kubectl");
        }
        Command::Build => {
            Binaries::build()?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn default_kubeconfig() -> PathBuf {
    target_folder().join("kubeconfig")
}

async fn keep_up(up: Up) -> Result<()> {
    let Up { kubeconfig, nodes, listen_port, http_port, until_stdin_closes } = up;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let standard_input_closed = until_stdin_closes.then(standard_input_closed);

    let control_plane = ControlPlane::start(Options { port: listen_port, ..Options::default() }).await?;
    let client = control_plane.client()?;
    let kubelets = start_nodes(&client, nodes).await?;
    let proxy = match http_port {
        Some(port) => Some(FaultProxy::start_on(client, port).await.context("cannot listen with plain HTTP")?),
        None => None,
    };

    let path = kubeconfig.unwrap_or_else(default_kubeconfig);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
    control_plane
        .api_server()
        .write_kubeconfig(&path)
        .with_context(|| format!("cannot write the kubeconfig {}", path.display()))?;
    print_usage(&control_plane, &kubelets, proxy.as_ref(), &path);

    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        () = async {
            match standard_input_closed {
                Some(closed) => drop(closed.await),
                None => std::future::pending().await,
            }
        } => {}
    }
    // The file leads nowhere from here on; if someone has taken it away already, that is as good.
    let _ = fs::remove_file(&path);
    Ok(())
}

async fn start_nodes(client: &kube::Client, nodes: u32) -> Result<Vec<Kubelet>> {
    let mut kubelets = Vec::new();
    for instance in 0..nodes {
        kubelets.push(Kubelet::start(client, NodeSpec::aks("np1", 12_345_678, instance)).await?);
    }
    Ok(kubelets)
}

async fn run_command(run: Run) -> Result<ExitCode> {
    let Run { nodes, command } = run;
    let mut terminate = signal(SignalKind::terminate())?;
    let control_plane = ControlPlane::start(Options::default()).await?;
    let _kubelets = start_nodes(&control_plane.client()?, nodes).await?;
    let folder = tempfile::tempdir()?;
    link_kubectl(folder.path())?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(std::iter::once(folder.path().to_owned()).chain(std::env::split_paths(&path)))?;
    let (program, arguments) = command.split_first().context("no command")?;
    let mut child = tokio::process::Command::new(program)
        .args(arguments)
        .env("KUBECONFIG", control_plane.kubeconfig())
        .env("PATH", path)
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot run {program}"))?;
    let status = tokio::select! {
        // Ctrl-C reaches the command by itself; here it only has to be waited for.
        status = child.wait() => status?,
        _ = terminate.recv() => return Ok(ExitCode::FAILURE),
    };
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Puts a program `kubectl` into a folder, which is the one that belongs to the cluster.
fn link_kubectl(folder: &Path) -> Result<()> {
    let kubectl = Binaries::find_or_build()?.kubectl();
    let quoted = |text: &std::ffi::OsStr| format!("'{}'", text.to_string_lossy().replace('\'', r"'\''"));
    let words: Vec<String> = std::iter::once(kubectl.get_program()).chain(kubectl.get_args()).map(quoted).collect();
    let path = folder.join("kubectl");
    fs::write(&path, format!("#!/bin/sh\nexec {} \"$@\"\n", words.join(" ")))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

/// Reads standard input to its end on a thread of its own. Tokio's blocking threads will not do: the runtime waits for
/// them when it ends, and this one may never come back.
#[expect(clippy::disallowed_methods, reason = "nothing here is ever replayed")]
fn standard_input_closed() -> oneshot::Receiver<()> {
    let (closed, is_closed) = oneshot::channel();
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        let mut buffer = [0; 1024];
        while matches!(input.read(&mut buffer), Ok(1..)) {}
        // The receiver is gone if the program is ending anyway.
        let _ = closed.send(());
    });
    is_closed
}

fn print_usage(control_plane: &ControlPlane, kubelets: &[Kubelet], proxy: Option<&FaultProxy>, kubeconfig: &Path) {
    println!("The control plane is ready: {}", control_plane.api_server().url());
    for kubelet in kubelets {
        println!("  node {}", kubelet.name());
    }
    if let Some(proxy) = proxy {
        println!("Plain HTTP for the administrator: {}", proxy.url());
        println!("  its kubeconfig: {}", proxy.kubeconfig().display());
    }
    println!("Use it from another terminal:");
    println!("  export KUBECONFIG={}", kubeconfig.display());
    println!("  cargo run -p control-plane -- kubectl get nodes");
    println!("Ctrl-C ends it and deletes everything.");
}
