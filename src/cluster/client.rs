//! The connection to the API server: every call has a time limit and is counted, and no call is repeated here.
//!
//! The client library would repeat any request that is answered with 429, 503 or 504, evictions among them, for minutes
//! (<https://github.com/kube-rs/kube/pull/2007>); that is switched off, because only the caller knows how much time
//! is left.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use domain::drain::answer::Refusal;
use futures::future::TryFutureExt;
use futures::stream::{BoxStream, StreamExt};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{Status, WatchEvent};
use kube::{Client, Config};
use serde::de::DeserializeOwned;
use tower::{BoxError, ServiceBuilder};

use crate::clock::Clock;
use crate::metrics::{Metrics, RequestLabels};

/// How long a watch lasts; the server ends it then, and the next one shows that the connection is alive.
pub const WATCH_LASTS: Duration = Duration::from_secs(50);

/// How long a connection may take to be there, its TLS handshake included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Why the API server gave no usable answer.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The kubeconfig cannot be used.
    #[error("kubeconfig {}: {cause}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        cause: String,
    },
    /// There is no kubeconfig, and this is no pod.
    #[error("not running in a pod ({0}): name a kubeconfig with --kubeconfig or KUBECONFIG")]
    NotInCluster(String),
    /// The client, or a request, cannot be set up.
    #[error("cannot set up the Kubernetes client or a request: {0}")]
    Client(String),
    /// The server took a write, and yet the object is not as written.
    #[error(
        "the API server accepted the write, but the node does not carry it: {0}; look for a mutating webhook that \
         changes nodes"
    )]
    Altered(&'static str),
    /// Nothing may be written.
    #[error("not written: this is a dry run")]
    ReadOnly,
    /// The server refused.
    #[error("the API server answered {}: {}", .0.code, .0.message)]
    Refused(Refusal),
    /// No answer in time.
    #[error("the API server did not answer within {0:?}")]
    TimedOut(Duration),
    /// The connection failed, or the answer could not be read.
    #[error("the API server cannot be reached or understood: {0}")]
    Transport(String),
}

impl ClusterError {
    /// Whether the object does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.code == 404)
    }

    /// Whether a right is missing, or an admission policy or webhook refuses what is written.
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.code == 403 || refusal.code == 422)
    }

    /// Whether an admission policy or webhook has refused.
    pub fn is_by_admission(&self) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.is_by_admission())
    }

    /// Whether the caller lacks the right.
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.code == 403)
    }

    /// Whether the object has changed in between, or exists already.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.code == 409)
    }

    fn label(&self) -> String {
        match self {
            Self::Refused(refusal) => refusal.code.to_string(),
            Self::TimedOut(_) => "timeout".into(),
            Self::Altered(_) => "altered".into(),
            Self::Kubeconfig { .. } | Self::NotInCluster(_) | Self::Client(_) | Self::ReadOnly | Self::Transport(_) => {
                "transport".into()
            }
        }
    }
}

impl From<kube::Error> for ClusterError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::Refused(refusal(*status)),
            other => Self::Transport(innermost(&other)),
        }
    }
}

/// A request that cannot even be built has something in it that cannot stand in a path or a body.
impl From<kube::core::request::Error> for ClusterError {
    fn from(error: kube::core::request::Error) -> Self {
        Self::Client(error.to_string())
    }
}

/// See above.
impl From<serde_json::Error> for ClusterError {
    fn from(error: serde_json::Error) -> Self {
        Self::Client(error.to_string())
    }
}

fn refusal(status: Status) -> Refusal {
    let (causes, kind, retry_after) = status.details.map_or_else(Default::default, |details| {
        (details.causes, details.kind, u64::from(details.retry_after_seconds))
    });
    let causes = causes.into_iter().map(|cause| (cause.reason, cause.message)).collect();
    Refusal {
        code: status.code,
        message: status.message,
        causes,
        kind,
        retry_after: (retry_after > 0).then(|| Duration::from_secs(retry_after)),
    }
}

/// The cause at the bottom, which tells most, without the picture of the file that some errors draw below it.
fn innermost(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(deeper) => innermost(deeper),
        None => error.to_string().lines().next().unwrap_or_default().to_owned(),
    }
}

/// The API server, for one role.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    clock: Clock,
    metrics: Arc<Metrics>,
    read_only: bool,
}

impl Cluster {
    /// Connects with a kubeconfig, or with the pod's own service account if there is none. No request is sent yet.
    pub async fn connect(kubeconfig: Option<&Path>, clock: Clock, metrics: Arc<Metrics>) -> Result<Self, ClusterError> {
        let mut config = match kubeconfig {
            Some(path) => read_kubeconfig(path).await?,
            None => Config::incluster().map_err(|error| ClusterError::NotInCluster(error.to_string()))?,
        };
        config.default_retry = false;
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        let client = client(config).map_err(|error| ClusterError::Client(error.to_string()))?;
        Ok(Self::new(client, clock, metrics))
    }

    /// Uses a client that is already there; it must not repeat requests by itself.
    pub fn new(client: Client, clock: Clock, metrics: Arc<Metrics>) -> Self {
        Self { client, clock, metrics, read_only: false }
    }

    /// The same server, to which nothing is ever written.
    #[must_use]
    pub fn read_only(self) -> Self {
        Self { read_only: true, ..self }
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    pub(crate) async fn call<T: DeserializeOwned>(
        &self,
        labels: RequestLabels,
        request: http::Request<Vec<u8>>,
        limit: Duration,
    ) -> Result<T, ClusterError> {
        if self.read_only && !request.method().is_safe() {
            return Err(ClusterError::ReadOnly);
        }
        self.ask(labels, request, limit).await
    }

    /// As `call`, for a request that changes nothing although it is a POST: a review of rights.
    pub(crate) async fn ask<T: DeserializeOwned>(
        &self,
        labels: RequestLabels,
        request: http::Request<Vec<u8>>,
        limit: Duration,
    ) -> Result<T, ClusterError> {
        self.counted(labels, limit, self.client.request::<T>(request).err_into()).await
    }

    /// As `call`, for a request whose answer matters with its headers.
    pub(crate) async fn ask_with_headers<T: DeserializeOwned>(
        &self,
        labels: RequestLabels,
        request: http::Request<Vec<u8>>,
        limit: Duration,
    ) -> Result<(http::HeaderMap, T), ClusterError> {
        let answer = async {
            let (head, body) = self.client.send(request.map(Body::from)).await?.into_parts();
            let body = body.collect_bytes().await?;
            if head.status.is_success() {
                let value = serde_json::from_slice(&body).map_err(kube::Error::SerdeError)?;
                return Ok((head.headers, value));
            }
            Err(ClusterError::Refused(serde_json::from_slice::<Status>(&body).map_or_else(
                |_| Refusal {
                    code: head.status.as_u16(),
                    message: String::from_utf8_lossy(&body).chars().take(200).collect(),
                    ..Refusal::default()
                },
                refusal,
            )))
        };
        self.counted(labels, limit, answer).await
    }

    /// Waits for an answer up to a limit, and counts it.
    async fn counted<T>(
        &self,
        labels: RequestLabels,
        limit: Duration,
        answer: impl Future<Output = Result<T, ClusterError>>,
    ) -> Result<T, ClusterError> {
        let began = self.clock.now().monotonic;
        let answer = match tokio::time::timeout(limit, answer).await {
            Ok(answer) => answer,
            Err(_) => Err(ClusterError::TimedOut(limit)),
        };
        let result = answer.as_ref().map_or_else(ClusterError::label, |_| "ok".into());
        self.metrics.request(labels, result, self.clock.now().monotonic.since(began));
        answer
    }

    /// Opens a watch. It ends by itself after [`WATCH_LASTS`]; a connection that is silent for longer is given up.
    pub(crate) async fn watch<T>(
        &self,
        labels: RequestLabels,
        request: http::Request<Vec<u8>>,
        limit: Duration,
    ) -> Result<BoxStream<'static, Result<WatchEvent<T>, ClusterError>>, ClusterError>
    where
        T: Clone + DeserializeOwned + Send + 'static,
    {
        let opened = self.counted(labels, limit, self.client.request_events::<T>(request).err_into()).await?;
        let events = opened.map(|event| event.map_err(ClusterError::from)).boxed();
        let silence = WATCH_LASTS + Duration::from_secs(10);
        let patient = futures::stream::unfold(Some(events), move |events| async move {
            let mut events = events?;
            match tokio::time::timeout(silence, events.next()).await {
                Ok(Some(event)) => Some((event, Some(events))),
                Ok(None) => None,
                Err(_) => Some((Err(ClusterError::TimedOut(silence)), None)),
            }
        });
        Ok(patient.boxed())
    }
}

/// The next news of a watch, or never if there is none.
pub(crate) async fn next_news<T>(watch: &mut Option<BoxStream<'static, T>>) -> Option<T> {
    match watch {
        Some(watch) => watch.next().await,
        None => std::future::pending().await,
    }
}

/// The client library's own client, but for one thing: what is written leaves at once. The library leaves Nagle's algorithm
/// on, so that the first request on a connection, which follows the end of the TLS handshake as a second small packet, waits
/// for the server to acknowledge that, which takes some 40 ms. When an event comes there is no connection as a rule, and
/// a drain opens many.
fn client(config: Config) -> kube::Result<Client> {
    if config.proxy_url.is_some() {
        // The library says what it can do about one.
        return Client::try_from(config);
    }
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    let connector = ServiceBuilder::new()
        .map_future(Box::pin)
        .timeout(CONNECT_TIMEOUT)
        .service(config.rustls_https_connector_with_connector(connector)?);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build::<_, Body>(connector));
    Ok(Client::new(service, config.default_namespace))
}

async fn read_kubeconfig(path: &Path) -> Result<Config, ClusterError> {
    let wrong = |cause: String| ClusterError::Kubeconfig { path: path.to_owned(), cause };
    let kubeconfig = Kubeconfig::read_from(path).map_err(|error| wrong(innermost(&error)))?;
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(|error| wrong(innermost(&error)))
}
