//! A Kubernetes and an Azure in memory, in which the roles run unchanged: live on loopback for `demo`, in virtual time for
//! `simulate`.
//!
//! - [`api_server`]: the Kubernetes API over objects in memory;
//! - [`controllers`]: what the control plane does by itself, as far as a drain or a repair sees it.

pub mod api_server;
pub mod controllers;
