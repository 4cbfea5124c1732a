//! The own Node: read, watched and written.

use std::collections::BTreeMap;
use std::time::Duration;

use domain::approval::ListedNode;
use domain::marks::{EXCLUDE_FROM_LOAD_BALANCERS, Marks, NodeTaint, SCALE_DOWN_DISABLED, YES};
use domain::node_plan::{CONDITION_TYPES, ConditionChanges, FIELD_MANAGER, NodeCondition, NodeView, NodeWrite};
use domain::policy::POLICY_ANNOTATION;
use domain::record::{AGENT_ANNOTATION, HOLD_ANNOTATION, REPAIR_ANNOTATION};
use domain::scheduled_event::VmName;
use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use jiff::Timestamp;
use kube::api::{GetParams, ListParams, Patch, PatchParams, WatchParams};
use kube::core::{Request, WatchEvent};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;

use super::client::{Cluster, ClusterError, WATCH_LASTS};
use crate::metrics::RequestLabels;

/// How many nodes a page of a list has; a node is some 10 KB of JSON.
const PAGE: u32 = 100;

const LIMIT: Duration = Duration::from_secs(5);

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

#[derive(Deserialize)]
struct NodeList {
    #[serde(default)]
    metadata: ListMetadata,
    items: Vec<Node>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ListMetadata {
    r#continue: String,
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
    managed_fields: Vec<ManagedFields>,
}

/// Who wrote which fields
/// (<https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management>).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ManagedFields {
    manager: String,
    #[serde(rename = "fieldsV1")]
    fields: Fields,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Fields {
    #[serde(rename = "f:spec")]
    spec: FieldsOfSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct FieldsOfSpec {
    #[serde(rename = "f:unschedulable")]
    unschedulable: Option<IgnoredAny>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    #[serde(rename = "providerID")]
    provider_id: String,
    unschedulable: bool,
    taints: Vec<NodeTaint>,
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
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
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
        let wrote_cordon = |one: &ManagedFields| one.fields.spec.unschedulable.is_some();
        let of_ours = |one: &Condition| CONDITION_TYPES.contains(&one.r#type.as_str());
        let conditions = status.conditions.into_iter().filter(of_ours).map(|one| {
            let Condition { r#type: condition_type, status, reason, message } = one;
            NodeCondition { condition_type, status, reason, message }
        });
        let marks = Marks {
            unschedulable: spec.unschedulable,
            cordon_manager: metadata.managed_fields.into_iter().find(wrote_cordon).map(|one| one.manager),
            taints: spec.taints,
            exclude_from_load_balancers: metadata.labels.get(EXCLUDE_FROM_LOAD_BALANCERS).cloned(),
            scale_down_disabled: annotations.remove(SCALE_DOWN_DISABLED),
        };
        let view = NodeView {
            name: metadata.name,
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            labels: metadata.labels,
            policy: annotations.remove(POLICY_ANNOTATION),
            marks,
            conditions: conditions.collect(),
            ready,
            boot_id: (!boot_id.is_empty()).then_some(boot_id),
            record: annotations.remove(AGENT_ANNOTATION),
            other_record: annotations.remove(REPAIR_ANNOTATION),
            held: annotations.contains_key(HOLD_ANNOTATION),
        };
        Self { view, provider_id: spec.provider_id }
    }
}

impl ReadNode {
    pub(super) fn from_json(node: serde_json::Value) -> Result<Self, serde_json::Error> {
        serde_json::from_value::<Node>(node).map(Self::from)
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
        let NodeWrite { resource_version, marks, record, announcements: _ } = write;
        // Absent and false mean the same, and null leaves no trace of us.
        let set = |set: bool| if set { json!(YES) } else { json!(null) };
        let mut patch = json!({
            "metadata": {"resourceVersion": resource_version, "annotations": {AGENT_ANNOTATION: record}},
        });
        if let Some(unschedulable) = marks.unschedulable {
            patch["spec"]["unschedulable"] = json!(unschedulable.then_some(true));
        }
        if let Some(taints) = &marks.taints {
            // A list of taints is replaced as a whole; the version in the patch keeps foreign ones from being lost.
            patch["spec"]["taints"] = json!(taints);
        }
        if let Some(excluded) = marks.exclude_from_load_balancers {
            patch["metadata"]["labels"][EXCLUDE_FROM_LOAD_BALANCERS] = set(excluded);
        }
        if let Some(disabled) = marks.scale_down_disabled {
            patch["metadata"]["annotations"][SCALE_DOWN_DISABLED] = set(disabled);
        }
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
        let request = nodes().patch(name, &params, &Patch::Merge(patch))?;
        let written: ReadNode = self.call::<Node>(labels("patch"), request, LIMIT).await?.into();
        if written.view.record != *record {
            return Err(ClusterError::Altered("its annotation with the record is another"));
        }
        if marks.unschedulable.is_some_and(|unschedulable| unschedulable != written.view.marks.unschedulable) {
            return Err(ClusterError::Altered("spec.unschedulable is another"));
        }
        Ok(written)
    }

    /// Writes conditions of the node, each for itself: those of others stay.
    pub async fn write_conditions(
        &self,
        name: &str,
        changes: &ConditionChanges,
        at: Timestamp,
    ) -> Result<ReadNode, ClusterError> {
        let set = changes.set.iter().map(|(condition, changes_status)| {
            let NodeCondition { condition_type, status, reason, message } = condition;
            let mut written = json!({"type": condition_type, "status": status, "reason": reason, "message": message});
            if *changes_status {
                written["lastTransitionTime"] = json!(at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
            }
            written
        });
        let removed = changes.remove.iter().map(|condition_type| json!({"$patch": "delete", "type": condition_type}));
        let conditions: Vec<_> = set.chain(removed).collect();
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
        let patch = Patch::Strategic(json!({"status": {"conditions": conditions}}));
        let request = nodes().patch_subresource("status", name, &params, &patch)?;
        let labels = RequestLabels { verb: "patch", resource: "nodes/status" };
        Ok(self.call::<Node>(labels, request, LIMIT).await?.into())
    }

    /// The Nodes of these machines, and those that do not say yet of which machine they are. `vm_of` tells the machine of a
    /// provider id.
    pub async fn list_nodes(
        &self,
        vm_of: fn(&str) -> Option<VmName>,
        vms: &[VmName],
    ) -> Result<Vec<ListedNode>, ClusterError> {
        let mut listed = Vec::new();
        let mut params = ListParams::default().limit(PAGE);
        loop {
            let request = nodes().list(&params)?;
            let NodeList { metadata, items } = self.call(labels("list"), request, LIMIT).await?;
            let read = items.into_iter().map(|node| {
                let ReadNode { view, provider_id } = node.into();
                ListedNode {
                    name: view.name,
                    vm: vm_of(&provider_id),
                    labels: view.labels,
                    policy: view.policy,
                    record: view.record,
                    unschedulable: view.marks.unschedulable,
                }
            });
            // Of a large cluster the others would take more memory than all else of an agent.
            listed.extend(read.filter(|node| node.vm.as_ref().is_none_or(|vm| vms.contains(vm))));
            if metadata.r#continue.is_empty() {
                return Ok(listed);
            }
            params.continue_token = Some(metadata.r#continue);
        }
    }

    /// Watches one Node from a version on. The watch is opened when the stream is first asked for news.
    pub fn watch_node(&self, name: &str, from: &str) -> BoxStream<'static, Result<NodeNews, ClusterError>> {
        let timeout = u32::try_from(WATCH_LASTS.as_secs()).unwrap_or(u32::MAX);
        let params = WatchParams::default().fields(&format!("metadata.name={name}")).timeout(timeout);
        let (cluster, request) = (self.clone(), nodes().watch(&params, from));
        let opened = async move { cluster.watch::<Node>(labels("watch"), request?, LIMIT).await };
        futures::stream::once(opened).try_flatten().map(|event| event.and_then(news)).boxed()
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
