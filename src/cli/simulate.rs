//! `remediator simulate`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use domain::policy::PolicySet;
use domain::time::spoken;

use super::output::say;
use super::story::{style, summary};
use super::usage;
use crate::world::scenario::Scenario;
use crate::world::simulation::{Report, simulate};
use crate::world::timeline::{Row, Timeline, Tone};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    remediator simulate policies/scenarios/rolling-redeploy.yaml\n      \
      with the built-in policy; the same seed gives the same lines\n  \
    remediator simulate policies/scenarios/spot-storm.yaml --policy policies/spot.yaml --policy policies/default.yaml --seed 7\n  \
    remediator simulate policies/scenarios/chaos.yaml --runs 100\n      \
      a hundred seeds, one line each; a seed that fails is shown again by --seed\n\n\
    Exit codes: 0, all was as it must be and as the scenario expects; 1, something was not; 2, a file or the command line is wrong.")]
pub(super) struct Simulate {
    /// The scenario file.
    scenario: PathBuf,
    /// A policy file, or a folder with policy files; may be given several times. Without it the built-in policy
    /// applies.
    #[arg(long, env = "REMEDIATOR_POLICY", value_name = "PATH", value_delimiter = ',')]
    policy: Vec<PathBuf>,
    /// What everything follows from that chance decides.
    #[arg(long, env = "REMEDIATOR_SEED", default_value_t = 1, value_name = "NUMBER")]
    seed: u64,
    /// Play it with so many seeds, from --seed on, and print one line for each.
    #[arg(long, default_value_t = 1, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    runs: u64,
    /// Print one JSON document: the timeline and the verdict.
    #[arg(long, conflicts_with = "runs")]
    json: bool,
    /// Also print what goes on all the time, such as pods that come up.
    #[arg(long)]
    all: bool,
}

impl Simulate {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let policies = crate::policy_files::load(&self.policy).map_err(usage)?;
        let file = self.scenario.display().to_string();
        let text =
            std::fs::read_to_string(&self.scenario).with_context(|| format!("cannot read {file}")).map_err(usage)?;
        let read = || Scenario::parse(&file, &text).map_err(usage);
        let good = if self.runs > 1 {
            self.many(read, &policies)?
        } else if self.json {
            let report = simulate(read()?, &policies, self.seed, &Timeline::default()).map_err(usage)?;
            say(&serde_json::to_string_pretty(&report)?);
            report.verdict.is_good()
        } else {
            self.one(read()?, &policies)?
        };
        Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn one(&self, scenario: Scenario, policies: &PolicySet) -> anyhow::Result<bool> {
        let style = style(&scenario);
        say(&style.paint(&scenario.name, "1"));
        if !scenario.description.is_empty() {
            say(&style.paragraph(scenario.description.trim()));
        }
        say(&format!("seed {}, {} nodes, {}\n", self.seed, scenario.nodes().count(), spoken(scenario.lasts)));
        say(&style.heading());
        let (all, printer) = (self.all, style.clone());
        let print = move |row: &Row| {
            if all || row.tone > Tone::Quiet {
                say(&printer.row(row));
            }
        };
        let report = simulate(scenario, policies, self.seed, &Timeline::with_sink(Box::new(print))).map_err(usage)?;
        say(&format!("\n{}", summary(&report.verdict, &style)));
        if !report.verdict.is_good() {
            say(&format!("\nShown again by --seed {}.", self.seed));
        }
        Ok(report.verdict.is_good())
    }

    fn many(&self, read: impl Fn() -> anyhow::Result<Scenario>, policies: &PolicySet) -> anyhow::Result<bool> {
        let mut failed = Vec::new();
        for seed in (0..self.runs).map(|run| self.seed.wrapping_add(run)) {
            let Report { verdict, .. } = simulate(read()?, policies, seed, &Timeline::default()).map_err(usage)?;
            let word = if verdict.is_good() { "good" } else { "FAILED" };
            say(&format!(
                "seed {seed:<6} {word:<7} {:>3} events {:>3} drained {:>3} cut short {:>4} evicted {:>3} lost",
                verdict.events, verdict.drained, verdict.drains_cut_short, verdict.evicted, verdict.lost_without_notice
            ));
            for what in verdict.violations.iter().chain(&verdict.disappointments).take(3) {
                say(&format!("    {what}"));
            }
            if !verdict.is_good() {
                failed.push(seed);
            }
        }
        if failed.is_empty() {
            say(&format!("\nAll {} runs are good.", self.runs));
        } else {
            let seeds: Vec<String> = failed.iter().map(u64::to_string).collect();
            say(&format!("\n{} of {} runs failed: --seed {}", failed.len(), self.runs, seeds.join(", --seed ")));
        }
        Ok(failed.is_empty())
    }
}
