//! One try to post a notification.
//!
//! The URL of a webhook is a secret, and so may be its headers and its proxy. They are read for each try and are nowhere
//! else; an error of the HTTP client, which would repeat the URL, is put into words of our own.

use std::error::Error;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use domain::notification::Notification;
use domain::policy::receiver::{Header, HeaderText, Receiver, Secret, TemplateError};
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION, RETRY_AFTER, USER_AGENT};
use reqwest::{Client, Method, Proxy, Request, Response, StatusCode, Url};
use rustls::CertificateError;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service, ServiceExt};

use super::format;
use crate::http_client;

/// How often a receiver may send us on.
const MOST_REDIRECTS: usize = 3;

/// A URL or a token is some hundred bytes.
const MOST_SECRET_BYTES: u64 = 16 * 1024;

/// Why a receiver has not got a notification. No message contains anything that was read from a secret.
#[derive(Debug, thiserror::Error)]
pub(super) enum PostError {
    /// A secret is not to be had.
    #[error("its {what} cannot be read from {place}: {cause}")]
    Secret { what: String, place: String, cause: String },
    /// A secret is not what it should be.
    #[error("its {what} is none that can be used: {advice}")]
    Unusable { what: String, advice: &'static str },
    /// The template cannot be filled in.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// The HTTP client cannot be set up.
    #[error("no HTTPS client can be set up: are there certificates of authorities in the image (SSL_CERT_FILE)?")]
    Client,
    /// No answer in time.
    #[error("it did not answer within {0:?}")]
    TimedOut(Duration),
    /// No connection, or one that broke.
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
    /// It sends us somewhere else.
    #[error("it answered {0}: it sends us on to another host, or too often, which is not followed; renew its URL")]
    Redirected(StatusCode),
    /// An answer that is no success.
    #[error("it answered {status}")]
    Status { status: StatusCode, retry_after: Option<Duration> },
}

impl PostError {
    /// Whether the next try may end differently.
    pub(super) fn is_worth_repeating(&self) -> bool {
        match self {
            Self::Secret { .. } | Self::Unusable { .. } | Self::TimedOut(_) | Self::Unreachable(_) => true,
            Self::Template(_) | Self::Client | Self::Redirected(_) => false,
            Self::Status { status, .. } => {
                status.is_server_error()
                    || matches!(*status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT)
            }
        }
    }

    /// How long the receiver asks to wait.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

/// What requests go through.
pub(super) enum Transport {
    /// The network. The client for HTTPS knows the certificates of the system, so it is set up once, and not before it is
    /// needed.
    Network(OnceLock<Client>),
    /// A service of someone else.
    Given(BoxCloneSyncService<Request, Response, BoxError>),
}

impl Transport {
    pub(super) fn network() -> Self {
        Self::Network(OnceLock::new())
    }

    pub(super) fn given<S>(service: S) -> Self
    where
        S: Service<Request, Response = Response, Error: Into<BoxError>> + Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
    {
        Self::Given(BoxCloneSyncService::new(service.map_err(Into::into)))
    }

    async fn send(&self, request: Request, proxy: Option<&Proxy>) -> Result<Response, PostError> {
        let answer = match self {
            Self::Given(service) => service.clone().oneshot(request).await,
            Self::Network(direct) => {
                let client = client(direct, request.url().scheme() == "https", proxy)?;
                client.execute(request).await.map_err(BoxError::from)
            }
        };
        answer.map_err(|error| PostError::Unreachable(in_words(error.as_ref())))
    }
}

/// A client for one request. Notifications are rare, so no connection is kept, and those through a proxy, whose address
/// may change, get a client of their own each time.
fn client(direct: &OnceLock<Client>, https: bool, proxy: Option<&Proxy>) -> Result<Client, PostError> {
    if https
        && proxy.is_none()
        && let Some(client) = direct.get()
    {
        return Ok(client.clone());
    }
    let mut builder = http_client::builder().pool_max_idle_per_host(0);
    if let Some(proxy) = proxy {
        builder = builder.proxy(proxy.clone());
    } else if !https {
        // No need for the certificates of the system.
        builder = builder.tls_certs_only([]);
    }
    let client = builder.build().map_err(|_| PostError::Client)?;
    if https && proxy.is_none() {
        return Ok(direct.get_or_init(|| client).clone());
    }
    Ok(client)
}

/// Posts a notification. It is done within `limit`, redirects and all; `wall` is the time now.
pub(super) async fn post(
    transport: &Transport,
    receiver: &Receiver,
    notification: &Notification,
    limit: Duration,
    wall: Timestamp,
) -> Result<(), PostError> {
    let (content_type, body) = format::body(&receiver.format, notification)?;
    let url = url(&receiver.url)?;
    let headers = headers(&receiver.headers, &content_type)?;
    let proxy = receiver.proxy.as_ref().map(proxy).transpose()?;
    let posting = follow(transport, url, &headers, body, proxy.as_ref(), wall);
    tokio::time::timeout(limit, posting).await.unwrap_or(Err(PostError::TimedOut(limit)))
}

async fn follow(
    transport: &Transport,
    mut url: Url,
    headers: &HeaderMap,
    body: String,
    proxy: Option<&Proxy>,
    wall: Timestamp,
) -> Result<(), PostError> {
    let mut redirects = 0;
    loop {
        let mut request = Request::new(Method::POST, url.clone());
        *request.headers_mut() = headers.clone();
        *request.body_mut() = Some(body.clone().into());
        let answer = transport.send(request, proxy).await?;
        let status = answer.status();
        if status.is_success() {
            return Ok(());
        }
        if !status.is_redirection() {
            return Err(PostError::Status { status, retry_after: retry_after(answer.headers(), wall) });
        }
        // The HTTP client would go on with a GET, whose success says nothing about the notification.
        let next = next(&url, status, answer.headers()).filter(|_| redirects < MOST_REDIRECTS);
        url = next.ok_or(PostError::Redirected(status))?;
        redirects += 1;
    }
}

/// Where to post instead, if that is the same host and no less safe.
fn next(url: &Url, status: StatusCode, headers: &HeaderMap) -> Option<Url> {
    let repeats = matches!(
        status,
        StatusCode::MOVED_PERMANENTLY
            | StatusCode::FOUND
            | StatusCode::TEMPORARY_REDIRECT
            | StatusCode::PERMANENT_REDIRECT
    );
    let next = url.join(headers.get(LOCATION)?.to_str().ok()?).ok()?;
    let same_port = next.scheme() == url.scheme() && next.port_or_known_default() == url.port_or_known_default();
    let upgrade = url.scheme() == "http" && next.scheme() == "https";
    (repeats && next.host() == url.host() && (same_port || upgrade)).then_some(next)
}

fn url(secret: &Secret) -> Result<Url, PostError> {
    let unusable = |advice| PostError::Unusable { what: "URL".into(), advice };
    let url = Url::parse(&read(secret, "URL")?).map_err(|_| unusable("it must be one of http:// or https://"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(unusable("it must be one of http:// or https://"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(unusable("send the user and password in a header, not in the URL"));
    }
    Ok(url)
}

fn proxy(secret: &Secret) -> Result<Proxy, PostError> {
    let advice = "it must be the URL of an HTTP proxy";
    Proxy::all(read(secret, "proxy")?).map_err(|_| PostError::Unusable { what: "proxy".into(), advice })
}

fn headers(ours: &[Header], content_type: &str) -> Result<HeaderMap, PostError> {
    let mut headers = HeaderMap::new();
    headers.insert(USER_AGENT, HeaderValue::from_static(http_client::USER_AGENT));
    let unusable =
        |what: &str| PostError::Unusable { what: what.to_owned(), advice: "it must be one line of printable ASCII" };
    headers.insert(CONTENT_TYPE, HeaderValue::from_str(content_type).map_err(|_| unusable("content type"))?);
    for Header { name, value } in ours {
        let what = format!("header {name}");
        let value = match value {
            HeaderText::Plain(text) => text.clone(),
            HeaderText::Secret(secret) => read(secret, &what)?,
        };
        let (Ok(name), Ok(mut value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(&value)) else {
            return Err(unusable(&what));
        };
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

/// What a secret says, without the white space around it: files tend to end with a newline.
fn read(secret: &Secret, what: &str) -> Result<String, PostError> {
    let (place, content) = match secret {
        Secret::File(path) => (path.display().to_string(), read_file(path)),
        Secret::Env(name) => {
            (format!("the environment variable {name}"), std::env::var(name).map_err(|_| "it is not set".to_owned()))
        }
    };
    let content = content.and_then(|content| match content.trim() {
        "" => Err("it is empty".to_owned()),
        content => Ok(content.to_owned()),
    });
    content.map_err(|cause| PostError::Secret { what: what.to_owned(), place, cause })
}

fn read_file(path: &Path) -> Result<String, String> {
    let in_words = |error: std::io::Error| error.kind().to_string();
    // Opening a pipe would wait for its writer.
    if !std::fs::metadata(path).map_err(in_words)?.is_file() {
        return Err("it is no file".into());
    }
    let mut content = String::new();
    File::open(path).and_then(|file| file.take(MOST_SECRET_BYTES).read_to_string(&mut content)).map_err(in_words)?;
    Ok(content)
}

/// <https://www.rfc-editor.org/rfc/rfc9110#field.retry-after>: seconds, or a date.
fn retry_after(headers: &HeaderMap, wall: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = rfc2822::parse(text).ok()?.timestamp();
    Duration::try_from(date.duration_since(wall)).ok()
}

/// Why a connection failed, without what the client's errors say of the URL.
fn in_words(error: &(dyn Error + 'static)) -> String {
    let mut words = "the connection failed".to_owned();
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(mut io) = error.downcast_ref::<std::io::Error>() {
            // The error inside such an error is not its source, and may be such an error again.
            while let Some(inner) = io.get_ref().and_then(|inner| inner.downcast_ref()) {
                io = inner;
            }
            if let Some(tls) = io.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
                return tls_in_words(tls);
            }
            if !matches!(io.kind(), std::io::ErrorKind::Other) {
                words = io.kind().to_string();
            }
        } else if let Some(tls) = error.downcast_ref::<rustls::Error>() {
            return tls_in_words(tls);
        } else if error.to_string().starts_with("dns error") {
            return "its name cannot be resolved".into();
        }
        cause = error.source();
    }
    words
}

fn tls_in_words(error: &rustls::Error) -> String {
    let rustls::Error::InvalidCertificate(certificate) = error else {
        return "no TLS connection could be agreed upon".into();
    };
    let fault = match certificate {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "has expired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => "is not valid yet",
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => "is for another name",
        CertificateError::UnknownIssuer => "comes from an authority that is not known here",
        CertificateError::Revoked => "has been revoked",
        _ => "is not valid",
    };
    format!("its TLS certificate {fault}")
}
