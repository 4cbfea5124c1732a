//! The kinds of objects that are served: one row each.

use super::refusal::Refusal;

/// How an object's status is kept apart from the rest of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// There is none.
    None,
    /// A subresource of a kind of Kubernetes: it takes metadata along.
    Subresource,
    /// A subresource of a custom resource: it takes nothing along.
    Custom,
}

/// A kind of object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind {
    /// The API group; empty for the core.
    pub group: String,
    /// The version of the API.
    pub version: String,
    /// The name in paths: `pods`.
    pub plural: String,
    /// `pod`.
    pub singular: String,
    /// `Pod`.
    pub kind: String,
    /// `po`.
    pub short_names: Vec<String>,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Its status.
    pub status: Status,
    /// Whether a change of the spec counts up `metadata.generation`.
    pub generation: bool,
    /// What came with its definition, if it is a custom resource.
    pub custom: Option<Custom>,
}

/// What the definition of a custom resource says about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Custom {
    /// The columns of `kubectl get`.
    pub columns: Vec<CustomColumn>,
    /// The paths, as in `spec.nodeName`, by which field selectors may select.
    pub selectable: Vec<String>,
    /// Its `OpenAPI` schema, or null.
    pub schema: serde_json::Value,
}

/// A column of `kubectl get`
/// (<https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#additional-printer-columns>).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomColumn {
    /// Its heading.
    pub name: String,
    /// `string`, `integer`, `date` and so on.
    pub kind: String,
    /// Where the value is: `.spec.nodeName`, `.status.conditions[?(@.type=="Ready")].status`.
    pub json_path: String,
    /// Above 0 it is shown with `-o wide` only.
    pub priority: i64,
}

impl Kind {
    /// The resource as `kubectl` names it: `pods`, `deployments.apps`.
    pub fn resource(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// Whether the resource is named so: `pods`, `deployments.apps`.
    pub fn is_called(&self, resource: &str) -> bool {
        match resource.strip_prefix(self.plural.as_str()) {
            Some("") => self.group.is_empty(),
            Some(rest) => rest.strip_prefix('.') == Some(self.group.as_str()),
            None => false,
        }
    }

    /// The resource under which its objects are stored: events of both groups are the same.
    pub fn stored(&self) -> String {
        if self.group == EVENTS_GROUP { EVENTS.to_owned() } else { self.resource() }
    }

    /// `apiVersion` of its objects in the store.
    pub(super) fn stored_api_version(&self) -> String {
        if self.group == EVENTS_GROUP { self.version.clone() } else { self.api_version() }
    }

    /// As [`Self::qualified`], of what is stored.
    pub(super) fn stored_qualified(&self) -> String {
        if self.group == EVENTS_GROUP { self.kind.clone() } else { self.qualified() }
    }

    /// The kind as it is called in refusals: `Pod`, `Lease.coordination.k8s.io`.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() { self.kind.clone() } else { format!("{}.{}", self.kind, self.group) }
    }

    /// There is no such object.
    pub(super) fn not_found(&self, name: &str) -> Refusal {
        Refusal::not_found(&self.resource(), name)
    }

    /// `v1`, `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }
}

/// Pods.
pub const PODS: &str = "pods";
/// Nodes.
pub const NODES: &str = "nodes";
/// Namespaces.
pub const NAMESPACES: &str = "namespaces";
/// Service accounts.
pub const SERVICE_ACCOUNTS: &str = "serviceaccounts";
/// Events.
pub const EVENTS: &str = "events";
/// Leases.
pub const LEASES: &str = "leases.coordination.k8s.io";
/// Deployments.
pub const DEPLOYMENTS: &str = "deployments.apps";
/// `ReplicaSet`s.
pub const REPLICA_SETS: &str = "replicasets.apps";
/// `StatefulSet`s.
pub const STATEFUL_SETS: &str = "statefulsets.apps";
/// `DaemonSet`s.
pub const DAEMON_SETS: &str = "daemonsets.apps";
/// Priority classes.
pub const PRIORITY_CLASSES: &str = "priorityclasses.scheduling.k8s.io";
/// Definitions of custom resources.
pub const CUSTOM_RESOURCE_DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";
/// The API group in which events are served a second time.
pub const EVENTS_GROUP: &str = "events.k8s.io";
/// `PodDisruptionBudget`s.
pub const DISRUPTION_BUDGETS: &str = "poddisruptionbudgets.policy";

/// The kinds of Kubernetes that are served. Further ones come with a `CustomResourceDefinition`.
pub fn built_in() -> Vec<Kind> {
    let row = |group: &str, version: &str, names: [&str; 3], short: &[&str], namespaced, status, generation| Kind {
        group: group.into(),
        version: version.into(),
        plural: names[0].into(),
        singular: names[1].into(),
        kind: names[2].into(),
        short_names: short.iter().map(|&name| name.into()).collect(),
        namespaced,
        status,
        generation,
        custom: None,
    };
    let (with, without) = (Status::Subresource, Status::None);
    vec![
        row("", "v1", ["pods", "pod", "Pod"], &["po"], true, with, true),
        row("", "v1", ["nodes", "node", "Node"], &["no"], false, with, false),
        row("", "v1", ["namespaces", "namespace", "Namespace"], &["ns"], false, with, false),
        row("", "v1", ["serviceaccounts", "serviceaccount", "ServiceAccount"], &["sa"], true, without, false),
        row("", "v1", ["configmaps", "configmap", "ConfigMap"], &["cm"], true, without, false),
        row("", "v1", ["events", "event", "Event"], &["ev"], true, without, false),
        row(EVENTS_GROUP, "v1", ["events", "event", "Event"], &["ev"], true, without, false),
        row("", "v1", ["services", "service", "Service"], &["svc"], true, with, false),
        row("coordination.k8s.io", "v1", ["leases", "lease", "Lease"], &[], true, without, false),
        row("apps", "v1", ["deployments", "deployment", "Deployment"], &["deploy"], true, with, true),
        row("apps", "v1", ["replicasets", "replicaset", "ReplicaSet"], &["rs"], true, with, true),
        row("apps", "v1", ["statefulsets", "statefulset", "StatefulSet"], &["sts"], true, with, true),
        row("apps", "v1", ["daemonsets", "daemonset", "DaemonSet"], &["ds"], true, with, true),
        row(
            "policy",
            "v1",
            ["poddisruptionbudgets", "poddisruptionbudget", "PodDisruptionBudget"],
            &["pdb"],
            true,
            with,
            true,
        ),
        row("batch", "v1", ["jobs", "job", "Job"], &[], true, with, true),
        row(
            "scheduling.k8s.io",
            "v1",
            ["priorityclasses", "priorityclass", "PriorityClass"],
            &["pc"],
            false,
            without,
            true,
        ),
        row("rbac.authorization.k8s.io", "v1", ["roles", "role", "Role"], &[], true, without, false),
        row(
            "rbac.authorization.k8s.io",
            "v1",
            ["rolebindings", "rolebinding", "RoleBinding"],
            &[],
            true,
            without,
            false,
        ),
        row(
            "rbac.authorization.k8s.io",
            "v1",
            ["clusterroles", "clusterrole", "ClusterRole"],
            &[],
            false,
            without,
            false,
        ),
        row(
            "rbac.authorization.k8s.io",
            "v1",
            ["clusterrolebindings", "clusterrolebinding", "ClusterRoleBinding"],
            &[],
            false,
            without,
            false,
        ),
        row(
            "apiextensions.k8s.io",
            "v1",
            ["customresourcedefinitions", "customresourcedefinition", "CustomResourceDefinition"],
            &["crd", "crds"],
            false,
            with,
            true,
        ),
    ]
}
