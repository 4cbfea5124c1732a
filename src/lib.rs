//! remediator keeps Azure Kubernetes nodes out of trouble.
//!
//! The rooms of the house, ground floor first; each may use what stands before it, and the decisions of the crate
//! [`domain`]:
//!
//! - [`clock`], [`metrics`], [`http_client`] and [`policy_files`]: what everything else stands on;
//! - [`azure`] speaks to Azure, [`cluster`] to Kubernetes, [`notify`] to people;
//! - [`drain`] carries out a drain; [`serve`] answers probes and metrics, read only;
//! - [`agent`] is the loop of the DaemonSet: observe, decide, act;
//! - [`doctor`] looks at a node as the agent will find it;
//! - `world` (a feature) is a Kubernetes and an Azure in memory, in which the roles run for `demo` and `simulate`;
//! - [`cli`] has one file a subcommand.

pub mod agent;
pub mod azure;
pub mod cli;
pub mod clock;
pub mod cluster;
pub mod doctor;
pub mod drain;
pub mod http_client;
pub mod metrics;
pub mod notify;
pub mod policy_files;
#[cfg(test)]
mod scripted;
pub mod serve;
#[cfg(feature = "world")]
pub mod world;
