//! What receivers outside the cluster are told.

use serde::{Deserialize, Serialize};

/// What a message is about; receivers choose among these words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Topic {
    /// An event that is acted on was announced, has started, is over or was cancelled.
    Event,
    /// A drain has begun or has ended.
    Drain,
    /// Pods hold a drain up.
    Blocked,
    /// A drain has ended with pods left.
    Failed,
    /// A node was given back.
    Released,
}
