//! The own Node: read, watched and written.

use std::collections::BTreeMap;
use std::time::Duration;

use domain::node_plan::{NodeView, NodeWrite};
use domain::record::{AGENT_ANNOTATION, HOLD_ANNOTATION, REPAIR_ANNOTATION};
use futures::stream::{BoxStream, StreamExt};
use kube::api::{GetParams, Patch, PatchParams, WatchParams};
use kube::core::{Request, WatchEvent};
use serde::Deserialize;
use serde_json::json;

use super::client::{Cluster, ClusterError, WATCH_LASTS};
use crate::metrics::RequestLabels;

const LIMIT: Duration = Duration::from_secs(10);
const FIELD_MANAGER: &str = "remediator-agent";

/// A Node as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadNode {
    /// What a plan needs to know.
    pub view: NodeView,
    /// `spec.providerID`, empty while the cloud provider has not set it.
    pub provider_id: String,
}

/// News about the Node.
#[derive(Clone, Debug)]
pub enum NodeNews {
    /// It has changed.
    Changed(Box<ReadNode>),
    /// It was deleted.
    Deleted,
    /// Nothing, but the watch is alive.
    Alive,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Node {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: NodeStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    name: String,
    uid: String,
    resource_version: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    #[serde(rename = "providerID")]
    provider_id: String,
    unschedulable: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeStatus {
    conditions: Vec<Condition>,
    node_info: NodeInfo,
}

#[derive(Clone, Debug, Deserialize)]
struct Condition {
    r#type: String,
    status: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct NodeInfo {
    #[serde(rename = "bootID")]
    boot_id: String,
}

impl From<Node> for ReadNode {
    fn from(node: Node) -> Self {
        let Node { metadata, spec, status } = node;
        let mut annotations = metadata.annotations;
        let ready = status.conditions.iter().any(|one| one.r#type == "Ready" && one.status == "True");
        let boot_id = status.node_info.boot_id;
        let view = NodeView {
            name: metadata.name,
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            labels: metadata.labels,
            unschedulable: spec.unschedulable,
            ready,
            boot_id: (!boot_id.is_empty()).then_some(boot_id),
            record: annotations.remove(AGENT_ANNOTATION),
            other_record: annotations.remove(REPAIR_ANNOTATION),
            held: annotations.contains_key(HOLD_ANNOTATION),
        };
        Self { view, provider_id: spec.provider_id }
    }
}

const fn labels(verb: &'static str) -> RequestLabels {
    RequestLabels { verb, resource: "nodes" }
}

fn nodes() -> Request {
    Request::new("/api/v1/nodes")
}

impl Cluster {
    /// Reads a Node.
    pub async fn get_node(&self, name: &str) -> Result<ReadNode, ClusterError> {
        let request = nodes().get(name, &GetParams::default())?;
        Ok(self.call::<Node>(labels("get"), request, LIMIT).await?.into())
    }

    /// Writes marks and record in one patch, which fails with a conflict if the Node is not as the plan saw it.
    pub async fn write_node(&self, name: &str, write: &NodeWrite) -> Result<ReadNode, ClusterError> {
        let mut patch = json!({
            "metadata": {
                "resourceVersion": write.resource_version,
                // null removes it.
                "annotations": {AGENT_ANNOTATION: write.record},
            },
        });
        if let Some(unschedulable) = write.unschedulable {
            // Absent and false mean the same; null leaves no trace of us.
            patch["spec"] = json!({"unschedulable": unschedulable.then_some(true)});
        }
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
        let request = nodes().patch(name, &params, &Patch::Merge(patch))?;
        Ok(self.call::<Node>(labels("patch"), request, LIMIT).await?.into())
    }

    /// Watches one Node from a version on.
    pub async fn watch_node(
        &self,
        name: &str,
        from: &str,
    ) -> Result<BoxStream<'static, Result<NodeNews, ClusterError>>, ClusterError> {
        let timeout = u32::try_from(WATCH_LASTS.as_secs()).unwrap_or(u32::MAX);
        let params = WatchParams::default().fields(&format!("metadata.name={name}")).timeout(timeout);
        let request = nodes().watch(&params, from)?;
        let events = self.watch::<Node>(labels("watch"), request, LIMIT).await?;
        Ok(events.map(|event| event.and_then(news)).boxed())
    }
}

fn news(event: WatchEvent<Node>) -> Result<NodeNews, ClusterError> {
    match event {
        WatchEvent::Added(node) | WatchEvent::Modified(node) => Ok(NodeNews::Changed(Box::new(node.into()))),
        WatchEvent::Deleted(_) => Ok(NodeNews::Deleted),
        WatchEvent::Bookmark(_) => Ok(NodeNews::Alive),
        WatchEvent::Error(status) => Err(kube::Error::Api(status).into()),
    }
}
