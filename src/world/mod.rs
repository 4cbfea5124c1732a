//! A Kubernetes and an Azure in memory, in which the roles run unchanged: live on loopback for `demo`, in virtual time for
//! `simulate`.
//!
//! - [`api_server`]: the Kubernetes API over objects in memory;
//! - [`controllers`]: what the control plane does by itself, as far as a drain or a repair sees it;
//! - [`kubelets`]: machines that run pods;
//! - [`scenario`], [`chance`]: what happens to them, and who does it; [`network`]: what happens to requests on their way;
//! - [`machines`]: who has power and who stands still; [`lives`]: the agents, one on each machine;
//! - [`timeline`], [`onlooker`], [`invariants`], [`verdict`]: what is told of it, and judged;
//! - [`uuid`]: identifiers from a seed;
//! - [`stage`]: all of this put together and played.

pub mod api_server;
pub mod chance;
pub mod controllers;
pub mod invariants;
pub mod kubelets;
pub mod lives;
pub mod machines;
pub mod network;
pub mod onlooker;
pub mod scenario;
pub mod simulation;
pub mod stage;
pub mod timeline;
pub mod uuid;
pub mod verdict;
