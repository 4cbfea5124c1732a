//! What an agent costs the node that it runs on: memory, processor, disk, and time to start.
//!
//! ```sh
//! cargo bench --bench footprint
//! ```

#[allow(dead_code, reason = "each benchmark uses a part of it")]
mod ground;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use jiff::SignedDuration;
use mock_imds::EventSpec;

use ground::{Anything, Common, Ground, Report, Unit, mebibytes, now, padded, percentile, program, seconds, size_of};

const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// How long pods and agents are left to settle before something is measured.
const SETTLES: Duration = Duration::from_secs(10);

const PODS: u32 = 250;
const STARTS: usize = 10;

const IDLE_TARGET: f64 = 8.0;
const DRAINING_TARGET: f64 = 14.0;
/// In percent.
const PROCESSOR_TARGET: f64 = 0.1;
const SIZE_TARGET: f64 = 15.0;
/// In seconds.
const START_TARGET: f64 = 0.050;

#[derive(Debug, Parser)]
#[command(name = "footprint")]
struct Arguments {
    #[command(flatten)]
    common: Common,
    /// For how long the idle agent is watched
    #[arg(long, env = "FOOTPRINT_IDLE", default_value = "5m", value_name = "DURATION", value_parser = duration)]
    idle: Duration,
}

fn duration(text: &str) -> Result<Duration, String> {
    let duration: SignedDuration = text.parse().map_err(|_| "write it like 30s or 5m")?;
    Duration::try_from(duration).map_err(|error| error.to_string())
}

async fn measure(ground: Ground, mut report: Report, idle: Duration) -> Result<Report, Anything> {
    // First the one with all features, so that the other is what stays in Cargo's folder.
    let full = program("remediator", &[])?;
    let image = program("remediator-of-image", &["--no-default-features"])?;
    let mut pool = ground.pool("footprint", 1).await?;
    let pods = pool.runs(&padded(std::iter::once("web".to_owned()), PODS), usize::try_from(PODS)?).await?;
    pool.add_refuge().await?;
    let size = size_of(pods.first().ok_or("there are no pods")?)?;
    report
        .condition(format!("polled once a second; idle for {} s; {PODS} pods of {size} bytes of JSON", idle.as_secs()));

    // A machine that still starts pods would be measured with the agent.
    tokio::time::sleep(SETTLES).await;
    let mut starts = Vec::new();
    for _ in 0..STARTS {
        let agent = pool.agent(0, &image, POLL_INTERVAL)?;
        starts.push(agent.until_first_poll().await?);
        agent.kill().await?;
    }

    let agent = pool.agent(0, &image, POLL_INTERVAL)?;
    agent.until_first_poll().await?;
    tokio::time::sleep(SETTLES).await;
    let (began, processor) = (now(), agent.processor_time()?);
    let mut audit = ground.audit()?;
    tokio::time::sleep(idle).await;
    let used = (agent.processor_time()? - processor) / seconds(began, now()) * 100.0;
    let resting = agent.memory()?;
    audit.read()?;
    let asked = audit.requests.len();

    pool.azure.inject(EventSpec::redeploy(pool.vm(0)).notice(Duration::from_mins(15)))?;
    pool.until_drained(0).await.map_err(|error| format!("{error}\n{}", agent.log().unwrap_or_default()))?;
    let drained = agent.memory()?;
    agent.kill().await?;

    report.aim("memory, idle", [resting.resident], Unit::Mebibytes, (0, IDLE_TARGET));
    report.row("  of that not of the program's file", [resting.anonymous], Unit::Mebibytes);
    report.aim(
        format!("memory, highest while draining {PODS} pods"),
        [drained.peak],
        Unit::Mebibytes,
        (0, DRAINING_TARGET),
    );
    report.row("  after that, of that not of the program's file", [drained.anonymous], Unit::Mebibytes);
    report.aim("processor, idle", [used], Unit::PercentOfACore, (0, PROCESSOR_TARGET));
    #[allow(clippy::cast_precision_loss, reason = "a few requests")]
    report.aim("requests to the API server, idle", [asked as f64], Unit::Count, (0, 0.0));
    report.aim("program, as the image is built", [mebibytes(image.path())?], Unit::Mebibytes, (0, SIZE_TARGET));
    report.row("program, with demo and simulate", [mebibytes(full.path())?], Unit::Mebibytes);
    let start = [percentile(&mut starts, 50), percentile(&mut starts, 100)];
    report.aim("start -> first poll answered (median / max)", start, Unit::Milliseconds, (0, START_TARGET));
    Ok(report)
}

fn main() -> ExitCode {
    let Arguments { common, idle } = Arguments::parse();
    ground::run(&common, "footprint", |ground, report| measure(ground, report, idle))
}
