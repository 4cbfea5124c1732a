//! `remediator policy`.

mod check;
mod explain;
mod schema;
mod test;

use std::process::ExitCode;

use clap::{Subcommand, ValueEnum};

#[derive(Debug, Subcommand)]
pub(super) enum Policy {
    /// Checks policy files: every mistake with its line and column, and what is probably not meant.
    Check(check::Check),
    /// Tells which rule applies to an event, what would be done, and when.
    Explain(Box<explain::Explain>),
    /// Runs the tests beside policy files.
    Test(test::Test),
    /// Prints the JSON Schema of policy files, by which editors complete and check them.
    Schema(schema::Schema),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
}

impl Policy {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Check(check) => check.run(),
            Self::Explain(explain) => explain.run(),
            Self::Test(test) => test.run(),
            Self::Schema(schema) => schema.run(),
        }
    }
}
