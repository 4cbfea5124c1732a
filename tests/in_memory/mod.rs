//! One agent on one node, in virtual time, with an API server and a metadata service in this process. Nothing else is
//! there: no kubelet, no controller, no other node.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use domain::policy::PolicySet;
use http::StatusCode;
use remediator::agent::{self, Connections, Notifying, PolicySource, Settings};
use remediator::azure::imds::{Imds, LINK_LOCAL};
use remediator::clock::Clock;
use remediator::cluster::Cluster;
use remediator::metrics::Metrics;
use remediator::world::api_server::ApiServer;
use remediator::world::api_server::kinds::{NODES, PODS};
use remediator::world::api_server::store::Actor;
use serde_json::{Value, json};
use tokio_util::task::AbortOnDropHandle;

/// The only node.
pub(crate) const NODE: &str = "aks-np1-12345678-vmss00000o";

/// Its machine.
pub(crate) const VM: &str = "aks-np1-12345678-vmss_24";

/// What the metadata service answers about events.
pub(crate) type Script = Arc<Mutex<(StatusCode, String)>>;

/// See the module.
pub(crate) struct OneAgent {
    /// The API server.
    pub(crate) server: ApiServer,
    /// The time.
    pub(crate) clock: Clock,
    /// What the agent counts.
    pub(crate) metrics: Arc<Metrics>,
    /// What Azure answers.
    pub(crate) azure: Script,
    agent: AbortOnDropHandle<String>,
}

impl OneAgent {
    /// Starts it, polling every `poll_interval`, on a node that nobody has given a provider id.
    pub(crate) fn start(policies: PolicySet, poll_interval: Duration) -> Self {
        let clock = Clock::starting_at("2026-04-11T22:00:00Z".parse().expect("it is a time"));
        let server = ApiServer::new(clock, 1);
        let node = json!({
            "metadata": {"name": NODE},
            "status": {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"bootID": "b"}},
        });
        server.create(&kubelet(), NODES, "", node).expect("the server is empty");
        let azure: Script = Arc::new(Mutex::new(list(&[])));
        let script = Arc::clone(&azure);
        let service = tower::service_fn(move |request: reqwest::Request| {
            let answer = match request.url().path() {
                "/metadata/instance" => (StatusCode::OK, json!({"compute": {"name": VM}}).to_string()),
                _ => script.lock().expect("nobody panics with it").clone(),
            };
            let response = http::Response::builder().status(answer.0).body(answer.1);
            std::future::ready(response.map(reqwest::Response::from))
        });
        let metrics = Arc::new(Metrics::default());
        let client = kube::Client::new(server.service(Actor::new("agent")), "default");
        let connections = Connections {
            imds: Imds::through(LINK_LOCAL, service).expect("it is an address"),
            cluster: Cluster::new(client, clock, Arc::clone(&metrics)),
            notifying: Notifying::over_network(clock, Arc::clone(&metrics)),
            listener: None,
            metrics: Arc::clone(&metrics),
        };
        let settings = Settings {
            node: NODE.into(),
            policies: PolicySource::Fixed(policies),
            namespace: "kube-system".into(),
            check_rights: false,
            poll_interval,
            dry_run: false,
            own_pod: None,
        };
        let life = async move {
            let ended = agent::run(settings, connections, clock, std::future::pending()).await;
            format!("{ended:?}")
        };
        Self { server, clock, metrics, azure, agent: AbortOnDropHandle::new(tokio::spawn(life)) }
    }

    /// Azure answers so from now on.
    pub(crate) fn answers(&self, answer: (StatusCode, String)) {
        *self.azure.lock().expect("nobody panics with it") = answer;
    }

    /// Some time passes.
    ///
    /// # Panics
    ///
    /// If the agent has ended.
    pub(crate) async fn pass(&self, time: Duration) {
        self.clock.sleep(time).await;
        assert!(!self.agent.is_finished(), "the agent has ended");
    }

    /// A pod of a Deployment runs on the node.
    pub(crate) fn run_pod(&self, name: &str) {
        let pod = json!({
            "metadata": {"name": name, "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": true},
            ]},
            "spec": {"nodeName": NODE, "containers": [{"name": "c", "image": "i"}]},
            "status": {"phase": "Running"},
        });
        self.server.create(&kubelet(), PODS, "default", pod).expect("no pod of this name is there");
    }
}

/// Who sets up the node and its pods.
pub(crate) fn kubelet() -> Actor {
    Actor::new("kubelet")
}

/// The answer that lists these events.
pub(crate) fn list(events: &[Value]) -> (StatusCode, String) {
    (StatusCode::OK, json!({"DocumentIncarnation": 1, "Events": events}).to_string())
}

/// An event for the node's machine, as Azure writes it.
pub(crate) fn event(id: &str, kind: &str, status: &str, not_before: &str) -> Value {
    json!({
        "EventId": id, "EventType": kind, "EventStatus": status, "ResourceType": "VirtualMachine", "Resources": [VM],
        "NotBefore": not_before, "Description": "", "EventSource": "Platform", "DurationInSeconds": -1,
    })
}
