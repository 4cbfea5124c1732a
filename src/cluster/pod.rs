//! The pods of one node: listed in pages, then watched, and kept in a few fields each.

use std::collections::BTreeMap;
use std::time::Duration;

use domain::drain::pod::{Controller, Deletion, LONGEST_ANNOTATION, Pod, PodName, PodUid, SKIP_DRAIN};
use futures::stream::{BoxStream, StreamExt};
use jiff::Timestamp;
use kube::api::{GetParams, ListParams, WatchParams};
use kube::core::{Request, WatchEvent};
use serde::Deserialize;

use super::client::{Cluster, ClusterError, WATCH_LASTS};
use crate::metrics::RequestLabels;

/// How many pods a page of a list has: 250 real pods are 3 to 5 MB of JSON, of which one page at a time is held.
const PAGE: u32 = 50;

/// The taint of a cordoned node.
const UNSCHEDULABLE_TAINT: &str = "node.kubernetes.io/unschedulable";

/// The annotation of a pod that mirrors a static one.
const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// What Kubernetes gives a pod that asks for no grace of its own.
const USUAL_GRACE_SECONDS: i64 = 30;

/// News about the pods of a node.
#[derive(Clone, Debug)]
pub enum PodNews {
    /// A pod is new or has changed.
    Changed(Box<Pod>),
    /// A pod is gone.
    Gone(PodUid),
    /// Nothing, but the watch is alive.
    Alive,
}

#[derive(Deserialize)]
struct PodList {
    #[serde(default)]
    metadata: ListMetadata,
    items: Vec<ApiPod>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ListMetadata {
    resource_version: String,
    r#continue: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ApiPod {
    metadata: Metadata,
    spec: Spec,
    status: PodStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    namespace: String,
    name: String,
    uid: String,
    creation_timestamp: Option<Timestamp>,
    deletion_timestamp: Option<Timestamp>,
    deletion_grace_period_seconds: Option<i64>,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    owner_references: Vec<OwnerReference>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct OwnerReference {
    api_version: String,
    kind: String,
    uid: String,
    controller: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    node_name: String,
    priority: Option<i32>,
    termination_grace_period_seconds: Option<i64>,
    tolerations: Vec<Toleration>,
    volumes: Vec<Volume>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Toleration {
    key: String,
    effect: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Volume {
    empty_dir: Option<serde::de::IgnoredAny>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct PodStatus {
    phase: String,
}

/// The annotations with short values; the others can be kilobytes and say nothing that a policy could ask for.
fn short(mut annotations: BTreeMap<String, String>) -> BTreeMap<String, String> {
    annotations.retain(|_, value| value.len() <= LONGEST_ANNOTATION);
    annotations
}

impl From<ApiPod> for Pod {
    fn from(pod: ApiPod) -> Self {
        let ApiPod { metadata, spec, status } = pod;
        let seconds = |seconds: Option<i64>| {
            Duration::from_secs(u64::try_from(seconds.unwrap_or(USUAL_GRACE_SECONDS)).unwrap_or_default())
        };
        let controller = metadata.owner_references.iter().find(|owner| owner.controller);
        let tolerates = |one: &Toleration| {
            (one.key.is_empty() || one.key == UNSCHEDULABLE_TAINT)
                && (one.effect.is_empty() || one.effect == "NoSchedule")
        };
        let says_skip = |map: &BTreeMap<String, String>| map.get(SKIP_DRAIN).is_some_and(|value| value == "true");
        Self {
            controller_uid: controller.map(|owner| owner.uid.clone()),
            controller: match controller {
                None => Controller::None,
                Some(owner) if owner.kind == "DaemonSet" && owner.api_version.starts_with("apps/") => {
                    Controller::DaemonSet
                }
                Some(_) => Controller::Other,
            },
            deletion: metadata
                .deletion_timestamp
                .map(|ends_at| Deletion { ends_at, grace: seconds(metadata.deletion_grace_period_seconds) }),
            skip: says_skip(&metadata.labels) || says_skip(&metadata.annotations),
            mirror: metadata.annotations.contains_key(MIRROR_ANNOTATION),
            labels: metadata.labels,
            annotations: short(metadata.annotations),
            name: PodName { namespace: metadata.namespace, name: metadata.name },
            uid: PodUid::new(metadata.uid),
            node: (!spec.node_name.is_empty()).then_some(spec.node_name),
            created_at: metadata.creation_timestamp,
            priority: spec.priority.unwrap_or_default(),
            grace: seconds(spec.termination_grace_period_seconds),
            finished: status.phase == "Succeeded" || status.phase == "Failed",
            empty_dir: spec.volumes.iter().any(|volume| volume.empty_dir.is_some()),
            tolerates_cordon: spec.tolerations.iter().any(tolerates),
        }
    }
}

const fn labels(verb: &'static str) -> RequestLabels {
    RequestLabels { verb, resource: "pods" }
}

fn on_node(node: &str) -> String {
    format!("spec.nodeName={node}")
}

impl Cluster {
    /// All pods of a node as they are now (not as a cache has them), and the version to watch from.
    pub async fn list_pods(&self, node: &str, limit: Duration) -> Result<(Vec<Pod>, String), ClusterError> {
        let mut pods = Vec::new();
        let mut params = ListParams::default().fields(&on_node(node)).limit(PAGE);
        loop {
            let request = Request::new("/api/v1/pods").list(&params)?;
            let PodList { metadata, items } = self.call(labels("list"), request, limit).await?;
            pods.extend(items.into_iter().map(Pod::from));
            if metadata.r#continue.is_empty() {
                return Ok((pods, metadata.resource_version));
            }
            params.continue_token = Some(metadata.r#continue);
        }
    }

    /// Watches the pods of a node from a version on.
    pub async fn watch_pods(
        &self,
        node: &str,
        from: &str,
        limit: Duration,
    ) -> Result<BoxStream<'static, Result<PodNews, ClusterError>>, ClusterError> {
        let timeout = u32::try_from(WATCH_LASTS.as_secs()).unwrap_or(u32::MAX);
        let params = WatchParams::default().fields(&on_node(node)).timeout(timeout);
        let request = Request::new("/api/v1/pods").watch(&params, from)?;
        let events = self.watch::<ApiPod>(labels("watch"), request, limit).await?;
        Ok(events.map(|event| event.and_then(news)).boxed())
    }

    /// Reads one pod; `None` if there is none of that name.
    pub async fn get_pod(&self, pod: &PodName, limit: Duration) -> Result<Option<Pod>, ClusterError> {
        let request = pods_in(&pod.namespace).get(&pod.name, &GetParams::default())?;
        match self.call::<ApiPod>(labels("get"), request, limit).await {
            Ok(pod) => Ok(Some(pod.into())),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

pub(super) fn pods_in(namespace: &str) -> Request {
    Request::new(format!("/api/v1/namespaces/{namespace}/pods"))
}

fn news(event: WatchEvent<ApiPod>) -> Result<PodNews, ClusterError> {
    match event {
        WatchEvent::Added(pod) | WatchEvent::Modified(pod) => Ok(PodNews::Changed(Box::new(pod.into()))),
        WatchEvent::Deleted(pod) => Ok(PodNews::Gone(PodUid::new(pod.metadata.uid))),
        WatchEvent::Bookmark(_) => Ok(PodNews::Alive),
        WatchEvent::Error(status) => Err(kube::Error::Api(status).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(json: &str) -> Pod {
        serde_json::from_str::<ApiPod>(json).unwrap().into()
    }

    #[test]
    fn a_pod_is_read_with_everything_that_a_drain_asks_of_it() {
        let pod = pod(r#"{
            "metadata": {"namespace": "prod", "name": "db-0", "uid": "u1", "creationTimestamp": "2026-04-11T22:00:00Z",
                "deletionTimestamp": "2026-04-11T22:01:00Z", "deletionGracePeriodSeconds": 60,
                "labels": {"app": "db"},
                "annotations": {"kubernetes.io/config.mirror": "x", "remediator.dev/skip-drain": "true",
                    "long": "0123456789012345678901234567890123456789012345678901234567890123"},
                "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n"},
                    {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "o1", "controller": true}]},
            "spec": {"nodeName": "n1", "priority": 7, "terminationGracePeriodSeconds": 90,
                "tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}],
                "volumes": [{"name": "a", "hostPath": {"path": "/"}}, {"name": "b", "emptyDir": {}}]},
            "status": {"phase": "Running"}}"#);
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let of = |all: &[(&str, &str)]| all.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        assert_eq!(
            pod,
            Pod {
                name: PodName { namespace: "prod".into(), name: "db-0".into() },
                uid: PodUid::new("u1"),
                node: Some("n1".into()),
                created_at: Some(at("2026-04-11T22:00:00Z")),
                priority: 7,
                grace: Duration::from_secs(90),
                controller: Controller::DaemonSet,
                controller_uid: Some("o1".into()),
                finished: false,
                mirror: true,
                empty_dir: true,
                tolerates_cordon: true,
                skip: true,
                labels: of(&[("app", "db")]),
                annotations: of(&[("kubernetes.io/config.mirror", "x"), ("remediator.dev/skip-drain", "true")]),
                deletion: Some(Deletion { ends_at: at("2026-04-11T22:01:00Z"), grace: Duration::from_secs(60) }),
            }
        );
    }

    #[test]
    fn what_a_pod_leaves_out_is_what_kubernetes_takes_it_for() {
        let pod =
            pod(r#"{"metadata": {"namespace": "prod", "name": "p", "uid": "u"}, "status": {"phase": "Succeeded"}}"#);
        assert_eq!((pod.grace, pod.priority, pod.node), (Duration::from_secs(30), 0, None));
        assert!(pod.finished && !pod.mirror && !pod.empty_dir && !pod.tolerates_cordon && !pod.skip);
        assert_eq!(pod.controller, Controller::None);
    }

    #[test]
    fn only_a_toleration_of_the_cordon_counts_as_one() {
        let tolerates = |toleration: &str| {
            pod(&format!(r#"{{"metadata":{{}},"spec":{{"tolerations":[{toleration}]}},"status":{{}}}}"#))
                .tolerates_cordon
        };
        assert!(tolerates(r#"{"operator": "Exists"}"#));
        assert!(!tolerates(r#"{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}"#));
        assert!(!tolerates(r#"{"operator": "Exists", "effect": "NoExecute"}"#));
    }
}
