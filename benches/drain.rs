//! What a drain of 250 pods costs, beside `kubectl drain` in the same run: once without disruption budgets, once with 25 of
//! them.
//!
//! ```sh
//! cargo bench --bench drain
//! ```
//!
//! On a real control plane with fake kubelets, whose pods end at once. Times are those of a machine that does everything at
//! once, so compare the two clients, not the numbers of different machines.

#[allow(dead_code, reason = "each benchmark uses a part of it")]
mod ground;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use control_plane::{AuditedRequest, DisruptionBudget, Workload};
use jiff::Timestamp;
use mock_imds::EventSpec;

use ground::{
    AGENT, Anything, Audit, Common, Ground, KUBECTL, Pool, Program, Report, Unit, cordons, now, padded, program,
    seconds, size_of,
};

const DEPLOYMENTS: u32 = 25;
const PODS_OF_EACH: u32 = 10;
const PODS: u32 = DEPLOYMENTS * PODS_OF_EACH;

/// How many pods of each deployment may be missing where there are budgets.
const MAX_UNAVAILABLE: u32 = 2;

/// Of kubectl's time, without budgets.
const TIME_TARGET: f64 = 0.1;

const REQUESTS_TARGET: f64 = 1.2;

/// How long the agent may still tell of its drain after the drain.
const AFTERWARDS: Duration = Duration::from_secs(2);

/// How long the control plane is left to finish with what was there before.
const SETTLES: Duration = Duration::from_secs(10);

#[derive(Debug, Parser)]
#[command(name = "drain")]
struct Arguments {
    #[command(flatten)]
    common: Common,
}

/// What one client's drain was like.
struct Drain {
    /// From the cordon's request to the answer to the last eviction, in seconds.
    asked: f64,
    /// From there until the client knew the node to be empty.
    emptied: f64,
    requests: usize,
    /// Of those, Events for people to read.
    events: usize,
    /// Evictions that a budget held back.
    too_many: usize,
}

impl Drain {
    /// From what the API server has logged of a client, and when the client knew that it was done.
    fn of(requests: &[AuditedRequest], user: &str, node: &str, done: Timestamp) -> Result<Self, Anything> {
        let ours: Vec<&AuditedRequest> = requests.iter().filter(|one| one.user == user).collect();
        let evictions: Vec<&&AuditedRequest> = ours.iter().filter(|one| one.did("create", "pods/eviction")).collect();
        if evictions.len() != usize::try_from(PODS)? {
            return Err(format!("{user} has evicted {} pods, not {PODS}", evictions.len()).into());
        }
        let cordon = ours.iter().find(|one| cordons(one, node)).ok_or("nobody has cordoned the node")?.received;
        let last = evictions.iter().map(|one| one.answered).max().ok_or("no eviction")?;
        Ok(Self {
            asked: seconds(cordon, last),
            emptied: seconds(cordon, done),
            requests: ours.len(),
            events: ours.iter().filter(|one| one.resource == "events").count(),
            too_many: ours.iter().filter(|one| one.code == 429).count(),
        })
    }

    fn requests_a_pod(&self) -> f64 {
        a_pod(self.requests)
    }
}

#[allow(clippy::cast_precision_loss, reason = "hundreds of requests")]
fn a_pod(requests: usize) -> f64 {
    requests as f64 / f64::from(PODS)
}

/// A node with all the pods, another that takes in their replacements, and the size of a pod.
async fn full_node(ground: &Ground, name: &str, with_budgets: bool) -> Result<(Pool, usize), Anything> {
    let mut pool = ground.pool(name, 1).await?;
    let deployments: Vec<Workload> = padded((0..DEPLOYMENTS).map(|number| format!("web-{number:02}")), PODS_OF_EACH);
    let pods = pool.runs(&deployments, usize::try_from(PODS)?).await?;
    let size = size_of(pods.first().ok_or("there are no pods")?)?;
    if with_budgets {
        for deployment in &deployments {
            DisruptionBudget::max_unavailable(deployment, MAX_UNAVAILABLE).create(&pool.namespace).await?;
        }
        pool.until_budgets_allow(usize::try_from(DEPLOYMENTS)?, i32::try_from(MAX_UNAVAILABLE)?).await?;
    }
    pool.add_refuge().await?;
    tokio::time::sleep(SETTLES).await;
    Ok((pool, size))
}

async fn by_agent(audit: &mut Audit, pool: &Pool, program: &Program) -> Result<Drain, Anything> {
    let agent = pool.agent(0, program, Duration::from_secs(1))?;
    agent.until_first_poll().await?;
    pool.next_poll(0).await?;
    audit.forget()?;
    pool.azure.inject(EventSpec::redeploy(pool.vm(0)).notice(Duration::from_mins(15)))?;
    pool.until_drained(0).await.map_err(|error| format!("{error}\n{}", agent.log().unwrap_or_default()))?;
    let done = now();
    // Events come after what they tell of, and count as well.
    tokio::time::sleep(AFTERWARDS).await;
    agent.kill().await?;
    audit.read()?;
    Drain::of(&audit.requests, AGENT, pool.node(0), done)
}

async fn by_kubectl(audit: &mut Audit, pool: &Pool, ground: &Ground) -> Result<Drain, Anything> {
    audit.forget()?;
    ground.kubectl()?.run(&["drain", pool.node(0), "--ignore-daemonsets"]).await?;
    let done = now();
    audit.read()?;
    Drain::of(&audit.requests, KUBECTL, pool.node(0), done)
}

async fn measure(ground: Ground, mut report: Report) -> Result<Report, Anything> {
    let program = program("remediator-of-image", &["--no-default-features"])?;
    let mut audit = ground.audit()?;
    for with_budgets in [false, true] {
        let (pool, size) = full_node(&ground, "agent", with_budgets).await?;
        let agent = by_agent(&mut audit, &pool, &program).await?;
        pool.leave().await?;
        let (pool, _) = full_node(&ground, "kubectl", with_budgets).await?;
        let kubectl = by_kubectl(&mut audit, &pool, &ground).await?;
        pool.leave().await?;

        let budgets = if with_budgets {
            format!("{DEPLOYMENTS} budgets of maxUnavailable {MAX_UNAVAILABLE}")
        } else {
            report.condition(format!(
                "{PODS} pods of {size} bytes of JSON each; replacements are Ready at once elsewhere"
            ));
            "no budgets".to_owned()
        };
        let what = |what: &str| format!("{budgets}: {what}");
        let target = |at_most| (!with_budgets).then_some((0, at_most));
        let ratio = [agent.asked / kubectl.asked];
        report.aim(what("cordon -> last eviction, as a ratio"), ratio, Unit::Times, target(TIME_TARGET));
        report.row(what("cordon -> last eviction"), [agent.asked, kubectl.asked], Unit::Seconds);
        report.row(what("cordon -> known to be empty"), [agent.emptied, kubectl.emptied], Unit::Seconds);
        let requests = [agent.requests_a_pod(), kubectl.requests_a_pod()];
        report.aim(what("API requests a pod"), requests, Unit::Count, target(REQUESTS_TARGET));
        report.row(what("of these Events for people"), [a_pod(agent.events), a_pod(kubectl.events)], Unit::Count);
        #[allow(clippy::cast_precision_loss, reason = "hundreds of requests")]
        let too_many = [agent.too_many as f64, kubectl.too_many as f64];
        report.row(what("answers 429"), too_many, Unit::Count);
    }
    Ok(report)
}

fn main() -> ExitCode {
    let Arguments { common } = Arguments::parse();
    ground::run(&common, "drain of 250 pods (remediator / kubectl)", measure)
}
