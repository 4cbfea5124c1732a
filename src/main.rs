//! The program `remediator`; see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    remediator::cli::run()
}
