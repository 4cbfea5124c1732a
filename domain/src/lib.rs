//! Every decision of remediator, as pure functions: values and the time go in, what to do and why comes out.
//!
//! Nothing here performs I/O, asks for the time, draws a random number or knows a Kubernetes or HTTP type. Read
//! [`node_plan`] to learn what happens to a node when a scheduled event arrives, and [`drain`] to learn what happens
//! to its pods.

pub mod approval;
pub mod drain;
pub mod fingerprint;
pub mod lease;
pub mod marks;
pub mod neighbour;
pub mod node_plan;
pub mod notification;
pub mod outlook;
pub mod policy;
pub mod policy_test;
pub mod record;
pub mod scheduled_event;
pub mod time;
pub mod yaml;
