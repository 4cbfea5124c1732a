//! `remediator policy check`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::anyhow;
use clap::Args;
use domain::policy::{Policy, PolicySet, file};
use domain::policy_test;

use crate::cli::output::say;
use crate::cli::usage;
use crate::policy_files;

#[derive(Debug, Args)]
pub(in crate::cli) struct Check {
    /// Policy files, or folders with policy files. Test files among them (`NAME.test.yaml`) are only read, not run.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

impl Check {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let Self { files } = self;
        let folders: Vec<PathBuf> = files.iter().filter(|path| path.is_dir()).cloned().collect();
        let files = policy_files::find(&files).map_err(usage)?;
        if let Some(missing) = files.iter().find(|path| !path.exists()) {
            return Err(usage(anyhow!("no file {}", missing.display())));
        }
        let mut policies = Vec::new();
        let mut faults = 0;
        for path in &files {
            let text = policy_files::text(path).map_err(usage)?;
            let name = path.display().to_string();
            let mistakes = if policy_files::is_test(path) {
                let test = policy_test::parse(&name, &text);
                test.map(|test| say(&format!("{name}: {} test cases can be read", test.cases.len()))).err()
            } else {
                let policy = file::parse_all(&name, &text);
                policy.map(|policy| policies.push((path.clone(), tell(&name, policy)))).err()
            };
            for mistake in mistakes.into_iter().flatten() {
                faults += 1;
                eprintln!("{mistake}");
            }
        }
        // A folder is loaded as one, so its policies must go together; single files need not.
        for folder in folders {
            let of_folder = policies.iter().filter(|(path, _)| path.parent() == Some(folder.as_path()));
            if let Err(error) = PolicySet::new(of_folder.map(|(_, policy)| policy.clone()).collect()) {
                faults += 1;
                eprintln!("{}: {error}", folder.display());
            }
        }
        Ok(if faults == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn tell(name: &str, policy: Policy) -> Policy {
    say(&format!("{name}: policy {} is valid, {} rules", policy.name, policy.rules.len()));
    for warning in policy.warnings() {
        say(&format!("{name}: warning: {warning}"));
    }
    policy
}
