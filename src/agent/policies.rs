//! Reads the policy files again when they change, and keeps the last good ones when they are broken.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use domain::policy::{Policy, PolicySet};

use super::board::Board;
use crate::clock::Clock;
use crate::metrics::ResultLabels;
use crate::policy_files;

/// How often the files are looked at. A `ConfigMap` that changes takes a minute to reach the pod anyway.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Where policies come from.
#[derive(Clone, Debug)]
pub enum PolicySource {
    /// They are these, for as long as the process lives.
    Fixed(PolicySet),
    /// They were read from these files and folders, which may change.
    Files(PolicySet, Vec<PathBuf>),
}

impl PolicySource {
    /// The policies at the start.
    pub fn policies(&self) -> &PolicySet {
        match self {
            Self::Fixed(policies) | Self::Files(policies, _) => policies,
        }
    }
}

/// Looks at the files for ever. `check` begins to look at what new policies need; what it returns is kept until they
/// change again.
pub(super) async fn follow<T>(source: PolicySource, board: Arc<Board>, clock: Clock, check: impl Fn(PolicySet) -> T) {
    let PolicySource::Files(mut policies, paths) = source else { return std::future::pending().await };
    let mut trouble: Option<String> = None;
    let mut _checking: Option<T> = None;
    loop {
        clock.sleep(LOOK_EVERY).await;
        let result = match policy_files::load(&paths) {
            Ok(read) if read == policies => {
                if trouble.take().is_some() {
                    tracing::info!("The policies are again what they were when they were last good");
                }
                continue;
            }
            Ok(read) => {
                let names: Vec<&str> = read.policies().iter().map(|policy| policy.name.as_str()).collect();
                tracing::info!(policies = names.join(","), "The policies have changed");
                for warning in read.policies().iter().flat_map(Policy::warnings) {
                    tracing::warn!("{warning}");
                }
                policies = read.clone();
                trouble = None;
                board.change_policies(read.clone());
                _checking = Some(check(read));
                "loaded"
            }
            Err(error) => {
                let text = error.to_string();
                if trouble.as_ref() == Some(&text) {
                    continue;
                }
                tracing::error!("The policies have changed, but cannot be used; the last good ones stay: {text}");
                trouble = Some(text);
                "refused"
            }
        };
        board.metrics().policy_reloads.get_or_create(&ResultLabels { result }).inc();
    }
}
