//! Runs kubectl against a cluster.

use std::path::Path;
use std::process::Stdio;

use tokio::process::Command;

use crate::binaries::Binaries;

/// Why kubectl gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum KubectlError {
    /// The program could not be run.
    #[error("cannot run kubectl: {0}")]
    Run(#[from] std::io::Error),
    /// It ended with a failure.
    #[error("kubectl {arguments} failed ({status}): {stderr}")]
    Failed {
        /// The arguments, joined by spaces.
        arguments: String,
        /// Exit code or signal.
        status: std::process::ExitStatus,
        /// What it printed on standard error.
        stderr: String,
    },
}

/// kubectl with a kubeconfig.
#[derive(Debug)]
pub struct Kubectl {
    binaries: Binaries,
    kubeconfig: std::path::PathBuf,
}

impl Kubectl {
    /// kubectl of the given programs with the given kubeconfig.
    pub fn new(binaries: &Binaries, kubeconfig: &Path) -> Self {
        Self { binaries: binaries.clone(), kubeconfig: kubeconfig.to_path_buf() }
    }

    /// A command for these arguments that the caller may change, or end early.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::from(self.binaries.kubectl());
        command.args(arguments).env("KUBECONFIG", &self.kubeconfig).stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    /// Runs kubectl to its end and returns what it printed on standard output.
    pub async fn run(&self, arguments: &[&str]) -> Result<String, KubectlError> {
        let output = self.command(arguments).output().await?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(KubectlError::Failed {
            arguments: arguments.join(" "),
            status: output.status,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }
}
