//! What the control plane does by itself, as far as a drain or a repair sees it.
//!
//! One file a controller of `kube-controller-manager`, and the scheduler. Each is level-triggered: it looks at what is, as
//! often as something changed that it cares about, and does what is missing. [`driver`] says when it looks; the other
//! modules read objects.

pub mod condition;
pub mod daemon_set;
pub mod deployment;
pub mod disruption;
pub mod driver;
pub mod garbage;
pub mod namespace;
pub mod node_affinity;
pub mod node_lifecycle;
pub mod owner;
pub mod pod;
pub mod pod_garbage;
pub mod quantity;
pub mod replica_set;
pub mod scheduler;
pub mod selector;
pub mod stateful_set;
pub mod taint;
pub mod taint_eviction;
#[cfg(test)]
pub(crate) mod tests;
pub mod timestamp;

use tokio::task::JoinSet;

use super::api_server::ApiServer;
use driver::Controller;

/// The running controllers, which stop when this is dropped.
#[derive(Debug)]
pub struct Controllers {
    /// Aborted with the set.
    _tasks: JoinSet<()>,
}

/// Starts all controllers, after the namespaces that every cluster has.
pub fn start(server: &ApiServer) -> Controllers {
    namespace::create_system_namespaces(server);
    // A controller is made anew when its history has expired, as after a restart of the real one.
    let all: [fn() -> Box<dyn Controller>; 12] = [
        || Box::new(namespace::Namespaces::default()),
        || Box::new(deployment::Deployments::default()),
        || Box::new(replica_set::ReplicaSets::default()),
        || Box::new(stateful_set::StatefulSets::default()),
        || Box::new(daemon_set::DaemonSets::default()),
        || Box::new(scheduler::Scheduler::default()),
        || Box::new(disruption::DisruptionBudgets::default()),
        || Box::new(node_lifecycle::NodeLifecycle::default()),
        || Box::new(taint_eviction::TaintEviction::default()),
        || Box::new(pod_garbage::PodGarbage::default()),
        || Box::new(garbage::Garbage::default()),
        || Box::new(garbage::Leases::default()),
    ];
    let mut tasks = JoinSet::new();
    for make in all {
        tasks.spawn(driver::run(server.clone(), make));
    }
    Controllers { _tasks: tasks }
}
