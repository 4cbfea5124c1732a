//! Tests of the test harness itself, against a real control plane.

#![allow(clippy::unwrap_used, clippy::panic, reason = "in a test a panic is a failure like any other")]

mod cluster;
mod kubelets;
mod processes;
mod proxy;

use std::process::ExitCode;
use std::time::Duration;

use control_plane::Options;
use control_plane::harness::{self, Test};

/// How long what takes a moment may take on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    let mut all = cluster::tests();
    all.extend(kubelets::tests());
    all.extend(proxy::tests());
    all.extend(processes::tests());
    harness::run(Options::default(), all)
}

/// For tests that stop what others need, or need it otherwise.
pub(crate) fn alone(tests: Vec<Test>, options: &Options) -> impl Iterator<Item = Test> {
    tests.into_iter().map(move |test| test.alone(options.clone()).limit(Duration::from_secs(120)))
}
