//! Speaks to Kubernetes. Nothing above this room sees a type of the client library.

pub mod client;
pub mod eviction;
pub mod lease;
pub mod node;
pub mod node_repair;
pub mod pod;
pub mod recorder;
pub mod rights;
pub mod surroundings;

pub use client::{Cluster, ClusterError};
