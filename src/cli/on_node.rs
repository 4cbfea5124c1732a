//! The flags of every command that runs on a node.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;

use crate::azure::imds::LINK_LOCAL;

#[derive(Debug, Args)]
pub(super) struct OnNode {
    /// Address of the metadata service.
    #[arg(long, env = "REMEDIATOR_IMDS", default_value = LINK_LOCAL, value_name = "URL")]
    pub(super) imds: String,
    /// Name of the Node that this machine is; in a pod, from the downward API (spec.nodeName).
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    pub(super) node: String,
    /// A policy file, or a folder with policy files; may be given several times. Without it the built-in policy
    /// applies.
    #[arg(long, env = "REMEDIATOR_POLICY", value_name = "PATH", value_delimiter = ',')]
    pub(super) policy: Vec<PathBuf>,
    /// How to reach the API server. Without it the pod's own service account is used.
    #[arg(long, env = "KUBECONFIG", value_name = "PATH")]
    pub(super) kubeconfig: Option<PathBuf>,
}

/// A Node's name is a DNS subdomain
/// (<https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-subdomain-names>).
pub(super) fn check_node_name(name: &str) -> anyhow::Result<()> {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    let fits =
        name.len() <= 253 && bytes.iter().all(|byte| allowed(*byte)) && edge(bytes.first()) && edge(bytes.last());
    if fits {
        return Ok(());
    }
    Err(anyhow!("--node `{name}` is no name of a Node: use the name that `kubectl get nodes` shows, in lower case"))
}
