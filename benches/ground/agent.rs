//! An agent as a process of its own.

use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use super::{Anything, Program, SOON, now};

/// A running agent; it is killed when this is dropped.
pub(crate) struct Agent {
    process: Child,
    id: u32,
    started: Timestamp,
    folder: TempDir,
}

/// The memory of a process in MiB.
pub(crate) struct Memory {
    /// Resident now.
    pub(crate) resident: f64,
    /// Of that what is no part of a file.
    pub(crate) anonymous: f64,
    /// Resident at most, since the process started.
    pub(crate) peak: f64,
}

impl Agent {
    pub(super) fn start(
        program: &Program,
        node: &str,
        imds: &str,
        kubeconfig: &Path,
        namespace: &str,
        poll_interval: Duration,
    ) -> Result<Self, Anything> {
        let folder = tempfile::tempdir()?;
        let log = File::create(folder.path().join("log"))?;
        let mut command = Command::new(program.path());
        command
            .args(["agent", "--node", node, "--imds", imds, "--listen", "127.0.0.1:0", "--namespace", namespace])
            .args(["--poll-interval", &format!("{}ms", poll_interval.as_millis())])
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true);
        let started = now();
        let process = command.spawn()?;
        let id = process.id().ok_or("the agent ended at once")?;
        Ok(Self { process, id, started, folder })
    }

    /// SIGKILL.
    pub(crate) async fn kill(mut self) -> Result<(), Anything> {
        Ok(self.process.kill().await?)
    }

    pub(crate) fn log(&self) -> Result<String, Anything> {
        Ok(fs::read_to_string(self.folder.path().join("log"))?)
    }

    /// How long it took from its start until it had read the first answer about scheduled events, in seconds: its log says
    /// when that was.
    pub(crate) async fn until_first_poll(&self) -> Result<f64, Anything> {
        let reading = async {
            loop {
                let log = self.log()?;
                if let Some(line) =
                    log.lines().find(|line| line.contains("lists scheduled events") && line.ends_with('}'))
                {
                    let line: Value = serde_json::from_str(line)?;
                    let at: Timestamp = line["timestamp"].as_str().ok_or("a line without a time")?.parse()?;
                    return Ok::<_, Anything>(super::seconds(self.started, at));
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(SOON, reading).await.map_err(|_| "the agent got no answer about scheduled events")?
    }

    pub(crate) fn memory(&self) -> Result<Memory, Anything> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id))?;
        let mib = |name: &str| -> Result<f64, Anything> {
            let line = status.lines().find(|line| line.starts_with(name)).ok_or("a field of /proc is missing")?;
            let kib: f64 = line.split_whitespace().nth(1).ok_or("a field of /proc is empty")?.parse()?;
            Ok(kib / 1024.0)
        };
        Ok(Memory { resident: mib("VmRSS:")?, anonymous: mib("RssAnon:")?, peak: mib("VmHWM:")? })
    }

    /// The processor time that its threads have had, in seconds. The scheduler counts it in nanoseconds, while `stat` has it
    /// in steps of 10 ms, of which an idle agent needs one in half a minute
    /// (<https://docs.kernel.org/scheduler/sched-stats.html#proc-pid-schedstat>).
    pub(crate) fn processor_time(&self) -> Result<f64, Anything> {
        let mut nanoseconds = 0.0;
        for thread in fs::read_dir(format!("/proc/{}/task", self.id))? {
            let text = fs::read_to_string(thread?.path().join("schedstat"))?;
            nanoseconds += text.split(' ').next().ok_or("schedstat is empty")?.parse::<f64>()?;
        }
        Ok(nanoseconds / 1e9)
    }
}
