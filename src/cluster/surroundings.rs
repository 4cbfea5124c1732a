//! What an agent never asks for but whoever looks into its surroundings does: the server, the caller, all that a Node tells,
//! the kubelet's configuration, other workloads of nodes.

use std::net::IpAddr;
use std::time::Duration;

use domain::time::http_date;
use jiff::Timestamp;
use kube::api::{GetParams, ListParams, PostParams};
use kube::core::Request;
use serde::Deserialize;
use serde_json::{Value, json};

use super::client::{Cluster, ClusterError};
use super::node::ReadNode;
use crate::metrics::RequestLabels;

const LIMIT: Duration = Duration::from_secs(5);

/// The API server, as it presents itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerVersion {
    /// Its version, like `v1.36.3`.
    pub version: String,
    /// What its clock showed, in whole seconds, if it says.
    pub date: Option<Timestamp>,
}

/// A Node, with what only an onlooker wants to know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeDetails {
    /// What the agent knows of it.
    pub node: ReadNode,
    /// Its conditions.
    pub conditions: Vec<NodeCondition>,
    /// The keys of its taints.
    pub taints: Vec<String>,
    /// Its addresses of type `InternalIP`.
    pub internal_addresses: Vec<IpAddr>,
}

impl NodeDetails {
    /// The condition of this type.
    pub fn condition(&self, kind: &str) -> Option<&NodeCondition> {
        self.conditions.iter().find(|one| one.kind == kind)
    }
}

/// A condition of a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NodeCondition {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// A reason in CamelCase.
    pub reason: String,
    /// What it says to people.
    pub message: String,
}

/// A DaemonSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonSet {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The images of its containers.
    pub images: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Onlooked {
    spec: OnlookedSpec,
    status: OnlookedStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OnlookedSpec {
    taints: Vec<Taint>,
}

#[derive(Deserialize)]
struct Taint {
    key: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OnlookedStatus {
    conditions: Vec<NodeCondition>,
    addresses: Vec<Address>,
}

#[derive(Deserialize)]
struct Address {
    r#type: String,
    address: String,
}

impl Cluster {
    /// The version of the API server, and its clock.
    pub async fn server_version(&self) -> Result<ServerVersion, ClusterError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Version {
            git_version: String,
        }
        let request = Request::new("").get("version", &GetParams::default())?;
        let labels = RequestLabels { verb: "get", resource: "version" };
        let (headers, version) = self.ask_with_headers::<Version>(labels, request, LIMIT).await?;
        let date = headers.get(http::header::DATE).and_then(|value| http_date(value.to_str().ok()?));
        Ok(ServerVersion { version: version.git_version, date })
    }

    /// As whom the API server knows this caller.
    pub async fn user_name(&self) -> Result<String, ClusterError> {
        #[derive(Deserialize)]
        struct Review {
            status: ReviewStatus,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct ReviewStatus {
            user_info: UserInfo,
        }
        #[derive(Deserialize)]
        struct UserInfo {
            username: String,
        }
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let request = Request::new("/apis/authentication.k8s.io/v1/selfsubjectreviews")
            .create(&PostParams::default(), serde_json::to_vec(&review)?)?;
        let labels = RequestLabels { verb: "create", resource: "selfsubjectreviews" };
        Ok(self.ask::<Review>(labels, request, LIMIT).await?.status.user_info.username)
    }

    /// Reads a Node with all that its surroundings have put on it.
    pub async fn node_details(&self, name: &str) -> Result<NodeDetails, ClusterError> {
        let unreadable =
            |error: serde_json::Error| ClusterError::Transport(format!("the Node cannot be read: {error}"));
        let request = Request::new("/api/v1/nodes").get(name, &GetParams::default())?;
        let labels = RequestLabels { verb: "get", resource: "nodes" };
        let node: Value = self.call(labels, request, LIMIT).await?;
        let Onlooked { spec, status } = serde_json::from_value(node.clone()).map_err(unreadable)?;
        let internal = status.addresses.iter().filter(|one| one.r#type == "InternalIP");
        Ok(NodeDetails {
            node: ReadNode::from_json(node).map_err(unreadable)?,
            taints: spec.taints.into_iter().map(|taint| taint.key).collect(),
            internal_addresses: internal.filter_map(|one| one.address.parse().ok()).collect(),
            conditions: status.conditions,
        })
    }

    /// The configuration that the kubelet of a Node runs with, through the API server
    /// (<https://kubernetes.io/docs/tasks/administer-cluster/kubelet-config-file/#viewing-the-kubelet-configuration>).
    /// It takes a right that few have, and that an agent should not.
    pub async fn kubelet_configuration(&self, node: &str) -> Result<Value, ClusterError> {
        #[derive(Deserialize)]
        struct Configuration {
            kubeletconfig: Value,
        }
        let request = Request::new("/api/v1/nodes").get_subresource("proxy/configz", node)?;
        let labels = RequestLabels { verb: "get", resource: "nodes/proxy" };
        Ok(self.call::<Configuration>(labels, request, LIMIT).await?.kubeletconfig)
    }

    /// Every [`DaemonSet`] of all namespaces, the first 500 of them.
    pub async fn daemon_sets(&self) -> Result<Vec<DaemonSet>, ClusterError> {
        #[derive(Deserialize)]
        struct List {
            items: Vec<Value>,
        }
        let request = Request::new("/apis/apps/v1/daemonsets").list(&ListParams::default().limit(500))?;
        let labels = RequestLabels { verb: "list", resource: "daemonsets" };
        let List { items } = self.call(labels, request, LIMIT).await?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let daemon_set = |item: &Value| DaemonSet {
            namespace: text(&item["metadata"]["namespace"]),
            name: text(&item["metadata"]["name"]),
            images: item["spec"]["template"]["spec"]["containers"]
                .as_array()
                .map(|containers| containers.iter().map(|container| text(&container["image"])).collect())
                .unwrap_or_default(),
        };
        Ok(items.iter().map(daemon_set).collect())
    }
}
