//! What tests run against: a real control plane, or anything else that serves the Kubernetes API.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::api_server::ApiServer;
use crate::control_plane::{ControlPlane, Options, StartError};

/// A side that could not be started, or started again.
pub type SideError = Box<dyn Error + Send + Sync>;

/// Something that serves the Kubernetes API, with controllers and a scheduler behind it, but without kubelets.
pub trait Side: Send + Sync {
    /// The API server, for the administrator.
    fn api_server(&self) -> &ApiServer;

    /// The administrator's kubeconfig.
    fn kubeconfig(&self) -> PathBuf;

    /// Stops the API server as if it were killed. What it stored stays.
    fn stop_api_server(&self);

    /// Starts the API server again, at the same address, and waits until it is ready.
    fn start_api_server(&self) -> BoxFuture<'_, Result<(), SideError>>;

    /// What a reader of a failed test may want to know.
    fn log_tails(&self) -> String {
        String::new()
    }

    /// The real control plane, if it is one.
    fn as_control_plane(self: Arc<Self>) -> Option<Arc<ControlPlane>> {
        None
    }
}

impl Side for ControlPlane {
    fn api_server(&self) -> &ApiServer {
        self.api_server()
    }

    fn kubeconfig(&self) -> PathBuf {
        self.kubeconfig()
    }

    fn stop_api_server(&self) {
        self.stop_api_server();
    }

    fn start_api_server(&self) -> BoxFuture<'_, Result<(), SideError>> {
        async { Ok(self.start_api_server().await?) }.boxed()
    }

    fn log_tails(&self) -> String {
        self.log_tails()
    }

    fn as_control_plane(self: Arc<Self>) -> Option<Arc<ControlPlane>> {
        Some(self)
    }
}

/// A side that is being started.
type Starting = BoxFuture<'static, Result<Arc<dyn Side>, SideError>>;

/// A way to start one kind of side.
#[derive(Clone)]
pub struct SideKind {
    name: &'static str,
    start: Arc<dyn Fn(Options) -> Starting + Send + Sync>,
}

impl SideKind {
    /// A kind of side, by the word with which the names of its tests begin.
    pub fn new<R>(name: &'static str, start: impl Fn(Options) -> R + Send + Sync + 'static) -> Self
    where
        R: Future<Output = Result<Arc<dyn Side>, SideError>> + Send + 'static,
    {
        Self { name, start: Arc::new(move |options| start(options).boxed()) }
    }

    /// The real control plane.
    pub fn real() -> Self {
        Self::new("real", |options| async move {
            let started: Arc<dyn Side> = Arc::new(ControlPlane::start(options).await?);
            Ok(started)
        })
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn start(&self, options: Options) -> Starting {
        (self.start)(options)
    }
}

/// Whether a side could not be started because this machine has not what it needs.
pub(crate) fn is_unavailable(error: &SideError) -> bool {
    matches!(error.downcast_ref::<StartError>(), Some(StartError::Unavailable(_)))
}
