//! A real Kubernetes control plane for tests, without a cluster, a container runtime or root.
//!
//! - [`ControlPlane`]: etcd, the API server, the controller manager and the scheduler as processes of their own, built
//!   once from Go modules or taken from `KUBEBUILDER_ASSETS`. None of them outlives the process that started it.
//! - [`Kubelet`]: a fake kubelet. It registers a node, keeps it alive and plays the life of its pods.
//! - [`FaultProxy`]: stands between one client and the API server, records every request and spoils those it is told to.
//! - [`Namespace`], [`Workload`], [`DisruptionBudget`], [`AdmissionPolicy`]: what a test makes in the cluster, kept apart
//!   from other tests.
//! - [`harness`]: runs such tests, or says why it cannot.
//!
//! All but [`ControlPlane`] need no more than a [`kube::Client`] or an [`ApiServer`]: they work as well with an API
//! server in memory.

mod admission;
mod api_server;
mod audit;
mod binaries;
mod clock;
mod component;
mod control_plane;
mod follow;
pub mod harness;
mod kubectl;
mod kubelet;
mod namespace;
mod proxy;
mod random;
mod side;
mod workload;

pub use admission::{AdmissionPolicy, Denial};
pub use api_server::ApiServer;
pub use audit::{AuditLog, AuditedRequest, audit_policy_of_users};
pub use binaries::{Binaries, Unavailable, target_folder};
pub use control_plane::{ControlPlane, Options, StartError, User};
pub use follow::{Change, Follow, Object, TimedOut, wait_until};
pub use kubectl::{Kubectl, KubectlError};
pub use kubelet::{
    Ending, FINALLY_ANNOTATION, FINISHES_AFTER_ANNOTATION, History, HowItEnded, Kubelet, NodeSpec, PodHistory,
    READY_AFTER_ANNOTATION, STOPS_AFTER_ANNOTATION, Stopping, Termination,
};
pub use namespace::{NAMESPACE_LABEL, Namespace, NamespaceError, is_ready, rule};
pub use proxy::{Answer, Fault, FaultProxy, RecordedRequest, RequestLine, RequestMatcher};
pub use side::{Side, SideError, SideKind};
pub use workload::{DisruptionBudget, Workload};
