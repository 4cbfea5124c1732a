//! Workloads for tests, in a few words.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::kubelet::{
    FINALLY_ANNOTATION, FINISHES_AFTER_ANNOTATION, READY_AFTER_ANNOTATION, STOPS_AFTER_ANNOTATION, Stopping,
};
use crate::namespace::{NAMESPACE_LABEL, Namespace};

/// Set on pods that the kubelet runs from files of its own.
const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// A workload: what makes the pods, and what the pods are like. Its pods carry the label `app` with its name, and go to
/// nodes of their namespace only.
#[derive(Clone, Debug)]
pub struct Workload {
    kind: Kind,
    name: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    environment: BTreeMap<String, String>,
    finalizers: Vec<String>,
    node_selector: BTreeMap<String, String>,
    node_name: Option<String>,
    grace_seconds: u64,
    priority_class: Option<String>,
    service_account: Option<String>,
    tolerations: Vec<Value>,
    has_empty_dir: bool,
    restarts: bool,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Deployment(u32),
    ReplicaSet(u32),
    StatefulSet(u32),
    DaemonSet,
    Pod,
}

impl Workload {
    fn new(kind: Kind, name: &str) -> Self {
        Self {
            kind,
            name: name.to_owned(),
            labels: BTreeMap::from([("app".to_owned(), name.to_owned())]),
            annotations: BTreeMap::new(),
            environment: BTreeMap::new(),
            finalizers: Vec::new(),
            node_selector: BTreeMap::new(),
            node_name: None,
            grace_seconds: 30,
            priority_class: None,
            service_account: None,
            tolerations: Vec::new(),
            has_empty_dir: false,
            restarts: true,
        }
    }

    /// A Deployment.
    pub fn deployment(name: &str, replicas: u32) -> Self {
        Self::new(Kind::Deployment(replicas), name)
    }

    /// A ReplicaSet without a Deployment.
    pub fn replica_set(name: &str, replicas: u32) -> Self {
        Self::new(Kind::ReplicaSet(replicas), name)
    }

    /// A StatefulSet whose pods start in parallel.
    pub fn stateful_set(name: &str, replicas: u32) -> Self {
        Self::new(Kind::StatefulSet(replicas), name)
    }

    /// A DaemonSet on all nodes of the namespace.
    pub fn daemon_set(name: &str) -> Self {
        Self::new(Kind::DaemonSet, name)
    }

    /// A pod that nobody replaces.
    pub fn bare_pod(name: &str) -> Self {
        Self::new(Kind::Pod, name)
    }

    /// A bare pod that does its work and ends, Succeeded, as that of a Job.
    pub fn finished_pod(name: &str) -> Self {
        Self::bare_pod(name).finishes_after(Duration::ZERO)
    }

    /// A pod as the kubelet of `node` shows one that it runs from a file of its own.
    pub fn mirror_pod(name: &str, node: &str) -> Self {
        Self::bare_pod(name).on_node(node).annotation(MIRROR_ANNOTATION, name)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The label selector of its pods.
    pub fn selector(&self) -> String {
        format!("app={}", self.name)
    }

    /// Adds a label to the pods.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Adds an annotation to the pods.
    #[must_use]
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Sets an environment variable of the pods' container.
    #[must_use]
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Adds a finalizer to the pods; a name with a slash. Controllers do not copy it from their templates, so that it
    /// works on bare pods only.
    #[must_use]
    pub fn finalizer(mut self, name: &str) -> Self {
        self.finalizers.push(name.to_owned());
        self
    }

    /// The pods' termination grace, 30 s otherwise.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace_seconds = grace.as_secs();
        self
    }

    /// What the pods do on SIGTERM; they stop at once otherwise.
    #[must_use]
    pub fn stopping(self, stopping: Stopping) -> Self {
        self.annotation(STOPS_AFTER_ANNOTATION, &stopping.to_string())
    }

    /// How long the pods take to become Ready.
    #[must_use]
    pub fn ready_after(self, time: Duration) -> Self {
        self.annotation(READY_AFTER_ANNOTATION, &format!("{}s", time.as_secs_f64()))
    }

    /// When the pods' work is done; they are not restarted then.
    #[must_use]
    pub fn finishes_after(mut self, time: Duration) -> Self {
        self.restarts = false;
        self.annotation(FINISHES_AFTER_ANNOTATION, &format!("{}s", time.as_secs_f64()))
    }

    /// The pods finish as Failed.
    #[must_use]
    pub fn fails(self) -> Self {
        self.annotation(FINALLY_ANNOTATION, "Failed")
    }

    /// The pods' priority class, such as `system-cluster-critical`.
    #[must_use]
    pub fn priority_class(mut self, name: &str) -> Self {
        self.priority_class = Some(name.to_owned());
        self
    }

    /// The pods' service account.
    #[must_use]
    pub fn service_account(mut self, name: &str) -> Self {
        self.service_account = Some(name.to_owned());
        self
    }

    /// Gives the pods an emptyDir volume.
    #[must_use]
    pub fn empty_dir(mut self) -> Self {
        self.has_empty_dir = true;
        self
    }

    /// The pods tolerate all taints with this key, for ever.
    #[must_use]
    pub fn tolerates(mut self, key: &str) -> Self {
        self.tolerations.push(json!({"key": key, "operator": "Exists"}));
        self
    }

    /// The pods tolerate every taint, for ever.
    #[must_use]
    pub fn tolerates_everything(mut self) -> Self {
        self.tolerations.push(json!({"operator": "Exists"}));
        self
    }

    /// The scheduler may choose this node only.
    #[must_use]
    pub fn only_on(self, node: &str) -> Self {
        self.node_selector("kubernetes.io/hostname", node)
    }

    /// The scheduler may choose nodes with this label only.
    #[must_use]
    pub fn node_selector(mut self, key: &str, value: &str) -> Self {
        self.node_selector.insert(key.to_owned(), value.to_owned());
        self
    }

    /// The pods are made on this node, without the scheduler, whatever taints and cordons say.
    #[must_use]
    pub fn on_node(mut self, node: &str) -> Self {
        self.node_name = Some(node.to_owned());
        self
    }

    /// Makes the workload. See [`Namespace::wait_for_ready`] for its pods.
    pub async fn create(&self, namespace: &Namespace) -> Result<(), kube::Error> {
        let create = PostParams::default();
        let metadata = json!({"name": self.name});
        let controller = |mut extra: Value| {
            extra["selector"] = json!({"matchLabels": {"app": self.name}});
            extra["template"] = self.template(namespace);
            json!({"metadata": metadata, "spec": extra})
        };
        match self.kind {
            Kind::Deployment(replicas) => {
                let object: Deployment = typed(controller(json!({"replicas": replicas})))?;
                namespace.api().create(&create, &object).await.map(drop)
            }
            Kind::ReplicaSet(replicas) => {
                let object: ReplicaSet = typed(controller(json!({"replicas": replicas})))?;
                namespace.api().create(&create, &object).await.map(drop)
            }
            Kind::StatefulSet(replicas) => {
                let extra = json!({"replicas": replicas, "serviceName": self.name, "podManagementPolicy": "Parallel"});
                let object: StatefulSet = typed(controller(extra))?;
                namespace.api().create(&create, &object).await.map(drop)
            }
            Kind::DaemonSet => {
                let object: DaemonSet = typed(controller(json!({})))?;
                namespace.api().create(&create, &object).await.map(drop)
            }
            Kind::Pod => {
                let mut object = self.template(namespace);
                object["metadata"]["name"] = json!(self.name);
                let object: Pod = typed(object)?;
                namespace.api().create(&create, &object).await.map(drop)
            }
        }
    }

    fn template(&self, namespace: &Namespace) -> Value {
        let Self {
            kind: _,
            name,
            labels,
            annotations,
            environment,
            finalizers,
            node_selector,
            node_name,
            grace_seconds,
            priority_class,
            service_account,
            tolerations,
            has_empty_dir,
            restarts,
        } = self;
        let mut node_selector = node_selector.clone();
        node_selector.insert(NAMESPACE_LABEL.to_owned(), namespace.name().to_owned());
        let environment: Vec<Value> =
            environment.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
        let volumes = if *has_empty_dir { json!([{"name": "scratch", "emptyDir": {}}]) } else { json!([]) };
        let mut template = json!({
            "metadata": {"labels": labels, "annotations": annotations, "finalizers": finalizers},
            "spec": {
                "containers": [{"name": name, "image": "example.com/nothing:1", "env": environment}],
                "nodeSelector": node_selector,
                "nodeName": node_name,
                "terminationGracePeriodSeconds": grace_seconds,
                "priorityClassName": priority_class,
                "serviceAccountName": service_account,
                "tolerations": tolerations,
                "volumes": volumes,
                "restartPolicy": if *restarts { "Always" } else { "Never" },
            },
        });
        if annotations.contains_key(MIRROR_ANNOTATION) {
            // A mirror pod must not name a service account or mount its token.
            template["spec"]["automountServiceAccountToken"] = json!(false);
        }
        template
    }
}

/// A `PodDisruptionBudget` for the pods of one workload, with the workload's name.
#[derive(Clone, Debug)]
pub struct DisruptionBudget {
    name: String,
    spec: Value,
}

impl DisruptionBudget {
    fn new(workload: &Workload, key: &str, value: Value) -> Self {
        let mut spec = json!({"selector": {"matchLabels": {"app": workload.name()}}});
        spec[key] = value;
        Self { name: workload.name().to_owned(), spec }
    }

    /// At most this many pods may be missing.
    pub fn max_unavailable(workload: &Workload, count: u32) -> Self {
        Self::new(workload, "maxUnavailable", json!(count))
    }

    /// At least this many pods must be there.
    pub fn min_available(workload: &Workload, count: u32) -> Self {
        Self::new(workload, "minAvailable", json!(count))
    }

    /// Another name than the workload's, so that one workload can have two.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Pods that are not Ready may always be evicted.
    #[must_use]
    pub fn unhealthy_always_allowed(mut self) -> Self {
        self.spec["unhealthyPodEvictionPolicy"] = json!("AlwaysAllow");
        self
    }

    /// Makes the budget. Until a controller has computed its status it allows nothing.
    pub async fn create(&self, namespace: &Namespace) -> Result<(), kube::Error> {
        let budget: PodDisruptionBudget = typed(json!({"metadata": {"name": self.name}, "spec": self.spec}))?;
        namespace.api().create(&PostParams::default(), &budget).await.map(drop)
    }
}

fn typed<K: serde::de::DeserializeOwned>(value: Value) -> Result<K, kube::Error> {
    serde_json::from_value(value).map_err(kube::Error::SerdeError)
}
