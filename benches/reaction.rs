//! How soon after Azure has published an event its node is cordoned and the first pod is evicted.
//!
//! ```sh
//! cargo bench --bench reaction
//! ```
//!
//! Events come one after another, each to the next of a few nodes, so that one has time to be given back while others are at
//! work; each at a random phase of its agent's poll interval. Most of the time until the cordon is that until the next poll,
//! which nobody can spare; the share of the agent and the API server is told for itself.

#[allow(dead_code, reason = "each benchmark uses a part of it")]
mod ground;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use control_plane::Workload;
use jiff::Timestamp;
use mock_imds::EventSpec;

use ground::{
    AGENT, Agent, Anything, Audit, Common, Ground, Pool, Program, Report, Unit, cordons, now, program, seconds, spread,
};

/// How many nodes take turns: each is given back some seconds after its event is over.
const NODES: usize = 6;

/// How many pods run on the node of an event.
const PODS: usize = 3;

/// After this the agents' connections to the API server are closed, as they are when an event comes after a quiet day.
const QUIET: Duration = Duration::from_secs(100);

/// How much later than the next poll a node may be cordoned and its first pod be evicted, in seconds.
const CORDON_TARGET: f64 = 0.020;
const EVICTION_TARGET: f64 = 0.050;

#[derive(Debug, Parser)]
#[command(name = "reaction")]
struct Arguments {
    #[command(flatten)]
    common: Common,
    /// How many events
    #[arg(long, default_value_t = 200)]
    events: usize,
    /// What the phases are drawn from
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The moments of one event.
struct Reaction {
    published: Timestamp,
    polled: Timestamp,
    cordoned: Timestamp,
    evicted: Timestamp,
}

/// Nodes with their agents, and how many events they have had.
struct Reacting {
    pool: Pool,
    audit: Audit,
    interval: Duration,
    random: fastrand::Rng,
    events: usize,
    agents: Vec<Agent>,
}

impl Reacting {
    async fn start(ground: &Ground, program: &Program, interval: Duration, seed: u64) -> Result<Self, Anything> {
        let pool = ground.pool("reaction", u32::try_from(NODES)?).await?;
        let agents = (0..NODES).map(|index| pool.agent(index, program, interval)).collect::<Result<_, _>>()?;
        for index in 0..NODES {
            pool.next_poll(index).await?;
        }
        Ok(Self { pool, audit: ground.audit()?, interval, random: fastrand::Rng::with_seed(seed), events: 0, agents })
    }

    /// Publishes an event for the next node and sees what comes of it.
    async fn react(&mut self) -> Result<Reaction, Anything> {
        let Self { pool, audit, interval, random, events, agents } = self;
        let index = *events % NODES;
        *events += 1;
        pool.until_given_back(index).await?;
        let prefix = format!("work-{events}-");
        let pods: Vec<Workload> =
            (0..PODS).map(|pod| Workload::bare_pod(&format!("{prefix}{pod}")).on_node(pool.node(index))).collect();
        pool.runs(&pods, PODS).await?;
        audit.forget()?;

        let poll = pool.next_poll(index).await?;
        let at = poll + interval.mul_f64(random.f64());
        tokio::time::sleep(at.duration_since(now()).try_into().unwrap_or_default()).await;
        let published = now();
        let event = pool.azure.inject(EventSpec::redeploy(pool.vm(index)).notice(Duration::from_mins(15)))?;

        let node = pool.node(index).to_owned();
        let of_agent = |did: bool, user: &str| did && user == AGENT;
        let cordon = audit.until("a cordon", |one| of_agent(cordons(one, &node), &one.user)).await;
        let cordon = cordon.map_err(|error| format!("{error}\n{}", agents[index].log().unwrap_or_default()))?;
        let is_eviction = |did: bool, name: &str| did && name.starts_with(&prefix);
        let eviction =
            audit.until("an eviction", |one| is_eviction(one.did("create", "pods/eviction"), &one.name)).await?;
        let polled = pool.polls(index).into_iter().find(|&poll| poll >= published).ok_or("no poll saw the event")?;
        pool.azure.finish(&event)?;
        Ok(Reaction { published, polled, cordoned: cordon.answered, evicted: eviction.answered })
    }
}

async fn measure(ground: Ground, mut report: Report, arguments: Arguments) -> Result<Report, Anything> {
    let Arguments { events, seed, .. } = arguments;
    report.condition(format!("{events} events one after another on {NODES} nodes with {PODS} pods each, seed {seed}"));
    let program = program("remediator-of-image", &["--no-default-features"])?;
    for interval in [Duration::from_secs(1), Duration::from_millis(500)] {
        let mut reacting = Reacting::start(&ground, &program, interval, seed).await?;
        let mut reactions = Vec::new();
        for _ in 0..events {
            reactions.push(reacting.react().await?);
        }
        let polled_every = format!("poll interval {} ms", interval.as_millis());
        let limit = interval.as_secs_f64();
        let mut row =
            |what: &str, from: fn(&Reaction) -> Timestamp, until: fn(&Reaction) -> Timestamp, limit: Option<f64>| {
                let what = format!("{polled_every}: {what}");
                let measured = spread(reactions.iter().map(|one| seconds(from(one), until(one))).collect());
                match limit {
                    Some(limit) => report.aim(what, measured, Unit::Milliseconds, (1, limit)),
                    None => report.row(what, measured, Unit::Milliseconds),
                }
            };
        row("published -> node cordoned", |one| one.published, |one| one.cordoned, Some(limit + CORDON_TARGET));
        row("published -> first eviction", |one| one.published, |one| one.evicted, Some(limit + EVICTION_TARGET));
        row("of that published -> poll that saw it", |one| one.published, |one| one.polled, None);
        row("of that poll -> node cordoned", |one| one.polled, |one| one.cordoned, None);
        row("of that cordoned -> first eviction", |one| one.cordoned, |one| one.evicted, None);

        // One event for each node after a long quiet: its agent has to connect first.
        reacting.events = 0;
        let mut cold = Vec::new();
        for index in 0..NODES {
            reacting.pool.until_given_back(index).await?;
        }
        tokio::time::sleep(QUIET).await;
        for _ in 0..NODES {
            let reaction = reacting.react().await?;
            cold.push(seconds(reaction.polled, reaction.cordoned));
        }
        let what = format!("{polled_every}: poll -> node cordoned, after {} s of quiet", QUIET.as_secs());
        report.aim(what, spread(cold), Unit::Milliseconds, (1, CORDON_TARGET));
    }
    Ok(report)
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let common = arguments.common.clone();
    ground::run(&common, "reaction (p50 / p99 / max)", |ground, report| measure(ground, report, arguments))
}
