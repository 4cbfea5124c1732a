//! The Azure Instance Metadata Service: who this machine is, and which events are scheduled for it.
//!
//! <https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service>. It is reached over plain HTTP on a
//! link-local address and never through a proxy. Anything but a well-formed 200 is an error that says nothing about
//! events.

use std::time::Duration;

use domain::scheduled_event::{DecodeError, Document, EventId, VmName, decode};
use domain::time::http_date;
use jiff::Timestamp;
use reqwest::header::{CONTENT_TYPE, DATE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Method, Request, Response, StatusCode, Url};
use serde::Deserialize;
use serde_json::json;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service, ServiceExt};

use crate::http_client;

/// The address of the service, the same on every machine of Azure.
pub const LINK_LOCAL: &str = "http://169.254.169.254";

/// The newest version of the scheduled-events endpoint.
const EVENTS_VERSION: &str = "2020-07-01";

/// A version of the instance endpoint that every region has and that names the machine as events do.
const INSTANCE_VERSION: &str = "2021-02-01";

/// How long the first answer about scheduled events may take: it switches them on for the machine, which is documented to
/// take up to two minutes
/// (<https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events#enabling-and-disabling-scheduled-events>).
pub const FIRST_EVENTS_LIMIT: Duration = Duration::from_secs(130);

/// How many requests a second the service answers for one virtual machine, whoever on it asks
/// (<https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service#rate-limiting>).
pub const REQUESTS_A_SECOND: u32 = 5;

/// A document is a few kilobytes; something much larger is not one.
const MOST_BYTES: usize = 1 << 20;

/// The first connection of a machine that cannot reach the service should fail soon, whatever the patience for the answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Why the service gave no usable answer.
#[derive(Debug, thiserror::Error)]
pub enum ImdsError {
    /// The address is none.
    #[error("`{0}` is no address of a metadata service: write it like {LINK_LOCAL}")]
    Address(String),
    /// The HTTP client cannot be set up.
    #[error("cannot set up the HTTP client: {0}")]
    Client(#[source] reqwest::Error),
    /// No connection.
    #[error("the metadata service at {address} is unreachable ({cause})")]
    Unreachable {
        /// Where it was looked for.
        address: String,
        /// What the connection said.
        cause: String,
    },
    /// No answer in time.
    #[error("the metadata service did not answer within {0:?}")]
    TimedOut(Duration),
    /// An answer that is none.
    #[error("the metadata service answered {status}{}{body}", if body.is_empty() { "" } else { ": " })]
    Status {
        /// The status.
        status: StatusCode,
        /// The beginning of the body.
        body: String,
        /// How long it asks to wait.
        retry_after: Option<Duration>,
    },
    /// The body broke off or is too large.
    #[error("the answer of the metadata service cannot be read: {0}")]
    Body(String),
    /// A body that is not a document of events.
    #[error("the answer of the metadata service is no list of events: {0}")]
    Document(#[from] DecodeError),
    /// A body that does not say who this machine is.
    #[error("the metadata service does not name this machine: {0}")]
    Instance(String),
}

impl ImdsError {
    /// The word for metrics; the words are few and never change.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Address(_) | Self::Client(_) | Self::Unreachable { .. } => "unreachable",
            Self::TimedOut(_) => "timeout",
            Self::Status { .. } => "status",
            Self::Body(_) | Self::Document(_) | Self::Instance(_) => "body",
        }
    }

    /// The HTTP status code, 0 if there was none.
    pub fn code(&self) -> u16 {
        match self {
            Self::Status { status, .. } => status.as_u16(),
            _ => 0,
        }
    }

    /// How long the service asks to wait before the next request.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

/// Who this machine is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// The name by which events name it.
    pub name: VmName,
    /// Its resource in Azure.
    pub resource_id: String,
}

/// The metadata service.
#[derive(Clone, Debug)]
pub struct Imds {
    transport: BoxCloneSyncService<Request, Response, BoxError>,
    base: String,
    /// Parsed once: it is asked for every second.
    events: Url,
    instance: Url,
}

impl Imds {
    /// The service at an address, possibly with a path in front.
    pub fn at(address: &str) -> Result<Self, ImdsError> {
        let http = http_client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_max_idle_per_host(1)
            // It speaks plain HTTP, so the certificates of the system need not be read.
            .tls_certs_only([])
            .build()
            .map_err(ImdsError::Client)?;
        Self::through(address, http)
    }

    /// The service at an address that `transport` reaches, which may be in this very process.
    pub fn through<S>(address: &str, transport: S) -> Result<Self, ImdsError>
    where
        S: Service<Request, Response = Response, Error: Into<BoxError>> + Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
    {
        // Some write the address with the path that all its answers are under.
        let base = address.trim_end_matches('/').trim_end_matches("/metadata").to_owned();
        let parsed =
            Url::parse(&base).ok().filter(|url| url.scheme() == "http" && url.has_host() && url.query().is_none());
        let address = || ImdsError::Address(address.to_owned());
        parsed.ok_or_else(address)?;
        let endpoint = |path: &str| Url::parse(&format!("{base}{path}")).map_err(|_| address());
        let events = endpoint(&format!("/metadata/scheduledevents?api-version={EVENTS_VERSION}"))?;
        let instance = endpoint(&format!("/metadata/instance?api-version={INSTANCE_VERSION}&format=json"))?;
        Ok(Self { transport: BoxCloneSyncService::new(transport.map_err(Into::into)), base, events, instance })
    }

    /// Where the service is looked for.
    pub fn address(&self) -> &str {
        &self.base
    }

    /// Who this machine is.
    pub async fn instance(&self, limit: Duration) -> Result<Instance, ImdsError> {
        self.dated_instance(limit).await.map(|(instance, _)| instance)
    }

    /// Who this machine is, and what the clock of the service showed, in whole seconds, if it says.
    pub async fn dated_instance(&self, limit: Duration) -> Result<(Instance, Option<Timestamp>), ImdsError> {
        #[derive(Deserialize)]
        struct Answer {
            compute: Compute,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Compute {
            name: String,
            #[serde(default)]
            resource_id: String,
        }
        let (headers, body) = self.get(&self.instance, limit).await?;
        let Answer { compute } =
            serde_json::from_slice(&body).map_err(|error| ImdsError::Instance(error.to_string()))?;
        if compute.name.is_empty() {
            return Err(ImdsError::Instance("`compute.name` is empty".into()));
        }
        let instance = Instance { name: VmName::new(compute.name), resource_id: compute.resource_id };
        Ok((instance, header(&headers, &DATE).and_then(http_date)))
    }

    /// The scheduled events of this machine and its neighbours.
    pub async fn scheduled_events(&self, limit: Duration) -> Result<Document, ImdsError> {
        let (_, body) = self.get(&self.events, limit).await?;
        Ok(decode(&body)?)
    }

    /// Tells Azure that nothing waits for the event any more, so that it may start before its time, on all the machines
    /// that it concerns. Telling it again does no harm.
    pub async fn start(&self, event: &EventId, limit: Duration) -> Result<(), ImdsError> {
        let body = json!({"StartRequests": [{"EventId": event.as_str()}]}).to_string();
        self.ask(Method::POST, &self.events, Some(body), limit).await.map(drop)
    }

    async fn get(&self, url: &Url, limit: Duration) -> Result<(HeaderMap, Vec<u8>), ImdsError> {
        self.ask(Method::GET, url, None, limit).await
    }

    async fn ask(
        &self,
        method: Method,
        url: &Url,
        body: Option<String>,
        limit: Duration,
    ) -> Result<(HeaderMap, Vec<u8>), ImdsError> {
        match tokio::time::timeout(limit, self.ask_unlimited(method, url, body)).await {
            Ok(answer) => answer,
            Err(_) => Err(ImdsError::TimedOut(limit)),
        }
    }

    async fn ask_unlimited(
        &self,
        method: Method,
        url: &Url,
        body: Option<String>,
    ) -> Result<(HeaderMap, Vec<u8>), ImdsError> {
        let mut request = Request::new(method, url.clone());
        if let Some(body) = body {
            request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            *request.body_mut() = Some(body.into());
        }
        request.headers_mut().insert("Metadata", HeaderValue::from_static("true"));
        let mut response =
            self.transport.clone().oneshot(request).await.map_err(|error| ImdsError::Unreachable {
                address: self.base.clone(),
                cause: innermost(error.as_ref()),
            })?;
        let status = response.status();
        let headers = std::mem::take(response.headers_mut());
        let mut body = Vec::new();
        let whole = loop {
            match response.chunk().await {
                Ok(Some(chunk)) if body.len() + chunk.len() > MOST_BYTES => {
                    break Err(ImdsError::Body(format!("it is larger than {MOST_BYTES} bytes")));
                }
                Ok(Some(chunk)) => body.extend_from_slice(&chunk),
                Ok(None) => break Ok(()),
                Err(error) => break Err(ImdsError::Body(innermost(&error))),
            }
        };
        if status != StatusCode::OK {
            let retry_after =
                header(&headers, &RETRY_AFTER).and_then(|value| value.parse().ok()).map(Duration::from_secs);
            let body = String::from_utf8_lossy(&body).trim().chars().take(200).collect();
            return Err(ImdsError::Status { status, body, retry_after });
        }
        whole.map(|()| (headers, body))
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

/// The cause at the bottom, which tells most: `connection refused` instead of `error sending request`.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}
