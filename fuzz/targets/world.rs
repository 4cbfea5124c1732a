//! The files of the world that read scenarios, without the crate around them: with the Kubernetes client and its types it
//! takes ten times as long to build with what a fuzzer needs to see.
#![allow(dead_code, missing_docs, unreachable_pub, reason = "the files are written for their own crate")]

#[path = "../../src/world/chance.rs"]
pub(crate) mod chance;
#[path = "../../src/world/scenario.rs"]
pub(crate) mod scenario;
#[path = "../../src/world/verdict.rs"]
pub(crate) mod verdict;

/// What [`scenario`] needs of the agents' file.
mod lives {
    /// The name that no workload may have.
    pub(crate) const DAEMON_SET: &str = "remediator-agent";
}
