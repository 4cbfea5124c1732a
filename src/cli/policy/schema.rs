//! `remediator policy schema`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, ValueEnum};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    remediator policy schema > policy.schema.json\n\n\
    An editor with the YAML language server takes it from the first line of a policy:\n  \
    # yaml-language-server: $schema=policy.schema.json")]
pub(in crate::cli) struct Schema {
    /// The kind of file that the schema is for.
    #[arg(long, value_name = "KIND", default_value = "policy")]
    of: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    Policy,
    Test,
}

impl Schema {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let Self { of } = self;
        let schema = match of {
            Kind::Policy => domain::policy::schema(),
            Kind::Test => domain::policy_test::schema(),
        };
        writeln!(std::io::stdout(), "{schema:#}").context("cannot write the schema")?;
        Ok(ExitCode::SUCCESS)
    }
}
