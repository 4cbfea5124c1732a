//! Speaks to Kubernetes. Nothing above this room sees a type of the client library.

pub mod client;
pub mod eviction;
pub mod node;
pub mod pod;
pub mod recorder;

pub use client::{Cluster, ClusterError};
