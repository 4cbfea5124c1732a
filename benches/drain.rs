//! What a drain of 250 pods costs, beside `kubectl drain` in the same run.
//!
//! ```sh
//! cargo bench --bench drain
//! ```
//!
//! On a real control plane with fake kubelets. Times are those of a machine that does everything at once, so compare the
//! two columns, not the numbers of different machines.

#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../tests/e2e/scene.rs"]
mod scene;

use std::fs;
use std::process::ExitCode;
use std::time::Duration;

use control_plane::harness::{self, Context, Test, TestResult};
use control_plane::{FaultProxy, Options, Workload};
use mock_imds::EventSpec;

use scene::{Anything, SOON, Scene, Stopwatch, is_cordoned, is_success};

const PODS: u32 = 250;
const ROUNDS: u32 = 10;

/// The resident memory of a process and its highest so far, in MiB.
fn memory(process: u32) -> Result<(f64, f64), Anything> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let mib = |name: &str| -> Result<f64, Anything> {
        let line = status.lines().find(|line| line.starts_with(name)).ok_or("no such line")?;
        let kib: f64 = line.split_whitespace().nth(1).ok_or("no number")?.parse()?;
        Ok(kib / 1024.0)
    };
    Ok((mib("VmRSS")?, mib("VmHWM")?))
}

fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}

async fn drain(context: Context) -> TestResult {
    // How soon after an event is published the node is cordoned and the first pod asked, over some rounds.
    let (mut cordoned, mut asked) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let mut scene = Scene::new(&context, "latency").await?;
        scene.running(&Workload::deployment("web", 3), 3).await?;
        scene.start_agent()?;
        scene.polls(2).await?;
        let published = Stopwatch::start();
        scene.imds.inject(EventSpec::redeploy(&scene.vm).notice(Duration::from_secs(900)))?;
        scene.until_node("cordoned", SOON, is_cordoned).await?;
        cordoned.push(published.elapsed());
        scene.until_accepted(1).await?;
        asked.push(published.elapsed());
    }
    cordoned.sort();
    asked.sort();

    let mut scene = Scene::new(&context, "agent").await?;
    scene.running(&Workload::deployment("web", PODS), PODS as usize).await?;
    scene.start_agent()?;
    scene.polls(10).await?;
    let (idle, _) = memory(scene.agent_process()?)?;
    scene.proxy.forget_requests();
    let began = Stopwatch::start();
    scene.imds.inject(EventSpec::redeploy(&scene.vm).notice(Duration::from_secs(900)))?;
    scene.until_accepted(PODS as usize).await?;
    let ours = began.elapsed();
    scene.until_drain_ended(SOON + SOON).await?;
    let (_, peak) = memory(scene.agent_process()?)?;
    let for_pods = scene.proxy.requests().iter().filter(|request| request.path.contains("/pods")).count();

    let scene = Scene::new(&context, "kubectl").await?;
    scene.running(&Workload::deployment("web", PODS), PODS as usize).await?;
    let proxy = FaultProxy::start(context.client()?).await?;
    let mut kubectl = context.kubectl()?.command(&["drain", scene.node.name(), "--ignore-daemonsets", "--force"]);
    kubectl.env("KUBECONFIG", proxy.kubeconfig());
    let began = Stopwatch::start();
    let output = kubectl.output().await?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let theirs = began.elapsed();
    let of_kubectl = proxy.requests().iter().filter(|request| request.path.contains("/pods")).count();
    assert!(proxy.requests().iter().filter(|request| request.path.ends_with("/eviction")).all(is_success));

    #[allow(clippy::cast_precision_loss, reason = "hundreds of requests")]
    let per_pod = |requests: usize| requests as f64 / f64::from(PODS);
    println!();
    println!(
        "{:<44} {:>12} {:>12} {:>8}",
        format!("{PODS} pods, no disruption budget"),
        "remediator",
        "kubectl",
        "ratio"
    );
    let row = |name: &str, ours: f64, theirs: f64, unit: &str| {
        println!(
            "{name:<44} {:>12} {:>12} {:>8.2}",
            format!("{ours:.2} {unit}"),
            format!("{theirs:.2} {unit}"),
            ours / theirs
        );
    };
    row("start to last eviction (kubectl: to its end)", ours.as_secs_f64(), theirs.as_secs_f64(), "s");
    row("requests a pod", per_pod(for_pods), per_pod(of_kubectl), "");
    println!("{:<44} {:>12}", "memory of the agent, idle", format!("{idle:.1} MiB"));
    println!("{:<44} {:>12}", "memory of the agent, highest while draining", format!("{peak:.1} MiB"));
    for (name, times) in [("published to cordoned", &cordoned), ("published to first eviction accepted", &asked)] {
        let text = format!("{:.2} / {:.2} s", percentile(times, 50).as_secs_f64(), percentile(times, 99).as_secs_f64());
        println!("{name:<44} {text:>12}   (median / worst of {ROUNDS}; polled once a second)");
    }
    Ok(())
}

fn main() -> ExitCode {
    let test = Test::new("drain", drain).limit(Duration::from_secs(600));
    harness::run(Options::default(), vec![test])
}
