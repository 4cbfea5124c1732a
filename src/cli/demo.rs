//! `remediator demo`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use domain::policy::PolicySet;

use super::output::say;
use super::stop_signal::stop_signal;
use super::story::{style, summary};
use super::usage;
use crate::clock::Clock;
use crate::world::api_server;
use crate::world::onlooker::AgentLog;
use crate::world::scenario::Scenario;
use crate::world::simulation::connect;
use crate::world::stage::Stage;
use crate::world::timeline::{Row, Style, Timeline, Tone};

/// The story.
const STORY: &str = include_str!("../../policies/scenarios/demo.yaml");

/// How long everything is given to come to rest after the story.
const RESTS_WITHIN: Duration = Duration::from_secs(30);

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    remediator demo\n  \
    remediator demo --keep\n      \
      afterwards all goes on, for kubectl with the kubeconfig that is printed; Ctrl-C ends it\n  \
    remediator demo --policy policies/observe-only.yaml\n      \
      the same story with another policy, which does not end as it should\n\n\
    Exit codes: 0, the story went as it should; 1, it did not; 2, a file or the command line is wrong.")]
pub(super) struct Demo {
    /// A policy file, or a folder with policy files; may be given several times. Without it the built-in policy
    /// applies.
    #[arg(long, env = "REMEDIATOR_POLICY", value_name = "PATH", value_delimiter = ',')]
    policy: Vec<PathBuf>,
    /// Go on after the story until Ctrl-C, for a look with kubectl.
    #[arg(long)]
    keep: bool,
    /// Where the API server listens; 0 takes a free port.
    #[arg(long, default_value_t = 0, value_name = "PORT")]
    port: u16,
    /// Also print what goes on all the time, such as pods that come up.
    #[arg(long)]
    all: bool,
}

impl Demo {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let policies = crate::policy_files::load(&self.policy).map_err(usage)?;
        let scenario = Scenario::parse("policies/scenarios/demo.yaml", STORY)?;
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the runtime")?;
        let code = runtime.block_on(self.show(scenario, &policies));
        // Connections of kubectl may be open; nothing waits for them.
        runtime.shutdown_background();
        code
    }

    async fn show(&self, scenario: Scenario, policies: &PolicySet) -> anyhow::Result<ExitCode> {
        let clock = Clock::system();
        let mut style = style(&scenario);
        say(&style.paint("remediator: agents at work in a Kubernetes and an Azure of their own", "1"));
        let description = scenario.description.trim();
        say(&style.paragraph(&format!("{description} Nothing outside of this process is touched.")));
        say("");
        let seed = clock.now().wall.as_second().unsigned_abs();

        let all = self.all;
        // Nothing is printed before the story begins, because its time counts from there.
        let printer = Arc::new(OnceLock::<Style>::new());
        let prints = Arc::clone(&printer);
        let sink = move |row: &Row| {
            if let Some(style) = prints.get().filter(|_| all || row.tone > Tone::Quiet) {
                say(&style.row(row));
            }
        };
        let timeline = Timeline::with_sink(Box::new(sink));
        let _guard = tracing::subscriber::set_default(AgentLog::new(timeline.clone(), clock).alone());
        let stage = Stage::build(scenario, policies, clock, seed, timeline, None).await.map_err(usage)?;
        let api = stage
            .server
            .serve_on_loopback(self.port)
            .await
            .context("cannot serve the Kubernetes API")
            .map_err(usage)?;
        let folder = tempfile::Builder::new().prefix("remediator-demo-").tempdir().context("cannot make a folder")?;
        let kubeconfig = folder.path().join("kubeconfig");
        let cannot_write = || format!("cannot write {}", kubeconfig.display());
        api_server::write_kubeconfig(&kubeconfig, &api.url()).with_context(cannot_write)?;
        let azure = stage.azure.serve_on_loopback().await.context("cannot serve the metadata service")?;
        say(&format!("look inside:   kubectl --kubeconfig {} get nodes,pods -A -o wide", kubeconfig.display()));
        if let Some(vm) = stage.nodes().next().and_then(|node| stage.vm_of(node)) {
            let path = "metadata/scheduledevents?api-version=2020-07-01";
            say(&format!("ask Azure:     curl -H Metadata:true '{}/vm/{vm}/{path}'", azure.url()));
        }
        say(&format!("\n{}", style.heading()));
        style.begins = stage.began;
        let style = printer.get_or_init(|| style);
        let _agents = stage.start_agents(policies, |node| connect(&stage, node));
        let play = stage.play(RESTS_WITHIN);
        let stop = stop_signal().context("cannot listen to signals")?;
        tokio::pin!(play, stop);
        let verdict = loop {
            tokio::select! {
                biased;
                verdict = &mut play => break verdict?,
                () = &mut stop => {
                    say("\nStopped before the end.");
                    return Ok(ExitCode::FAILURE);
                }
                () = clock.sleep(Duration::from_millis(500)) => stage.timeline.flush(clock.now().wall),
            }
        };
        stage.timeline.rows();
        say(&format!("\n{}", summary(&verdict, style)));
        if self.keep {
            say(&format!(
                "\nKubernetes and the agents go on until Ctrl-C:\n    export KUBECONFIG={}",
                kubeconfig.display()
            ));
            stop.await;
        }
        Ok(if verdict.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
