//! A proxy between one client and an API server that records every request and spoils those it is told to.
//!
//! It speaks plain HTTP on loopback, adds the bearer token of its upstream client, and passes bodies on piece by piece,
//! so that watches stream.

mod body;
mod fault;
mod record;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderMap, Request, Response, header};
use http_body_util::BodyExt;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body as KubeBody;
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;

use self::body::{AnswerBody, Limit};
use self::fault::Faults;
pub use self::fault::{Answer, Fault, RequestLine, RequestMatcher};
pub use self::record::RecordedRequest;
use self::record::{Records, Running};
use crate::api_server::ApiServer;
use crate::follow::TimedOut;

/// How often the old port is tried when the proxy opens again.
const BIND_ATTEMPTS: u32 = 50;

/// Headers that belong to one connection and must not be passed on
/// (<https://www.rfc-editor.org/rfc/rfc9110#section-7.6.1>).
const CONNECTION_HEADERS: [header::HeaderName; 6] = [
    header::CONNECTION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::PROXY_AUTHORIZATION,
];

/// A running fault proxy; it closes when dropped.
pub struct FaultProxy {
    shared: Arc<Shared>,
    address: SocketAddr,
    api_server: ApiServer,
    door: Mutex<Option<JoinHandle<()>>>,
    kubeconfig: PathBuf,
    _folder: TempDir,
}

struct Shared {
    upstream: Client,
    faults: Faults,
    records: Arc<Records>,
    slams_the_door: AtomicBool,
}

/// The connection ends without an answer.
#[derive(Debug, thiserror::Error)]
#[error("the proxy closes the connection")]
struct Disconnected;

type Answered = Result<Response<AnswerBody>, Disconnected>;

impl FaultProxy {
    /// Starts a proxy on a free port of 127.0.0.1. Whoever calls it is `upstream`'s user.
    pub async fn start(upstream: Client) -> io::Result<Self> {
        Self::start_on(upstream, 0).await
    }

    /// Starts a proxy on a port of 127.0.0.1.
    pub async fn start_on(upstream: Client, port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        let address = listener.local_addr()?;
        let folder = tempfile::Builder::new().prefix("fault-proxy-").tempdir()?;
        let kubeconfig = folder.path().join("kubeconfig");
        let api_server = ApiServer::at(format!("http://{address}").parse().map_err(io::Error::other)?);
        api_server.write_kubeconfig(&kubeconfig)?;
        let proxy = Self {
            shared: Arc::new(Shared {
                upstream,
                faults: Faults::default(),
                records: Arc::default(),
                slams_the_door: AtomicBool::new(false),
            }),
            address,
            api_server,
            door: Mutex::new(None),
            kubeconfig,
            _folder: folder,
        };
        proxy.open(listener);
        Ok(proxy)
    }

    /// The proxy as an API server.
    pub fn api_server(&self) -> &ApiServer {
        &self.api_server
    }

    /// `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A kubeconfig that points here.
    pub fn kubeconfig(&self) -> PathBuf {
        self.kubeconfig.clone()
    }

    /// Spoils the requests that match, until [`Self::clear_faults`] or until `matcher` has matched as often as it says.
    /// The oldest fault that matches a request decides.
    pub fn inject(&self, matcher: RequestMatcher, fault: Fault) {
        self.shared.faults.add(matcher, fault);
    }

    /// No faults from now on. Requests that hang, and answers that are stalled, stay so.
    pub fn clear_faults(&self) {
        self.shared.faults.clear();
    }

    /// Every request so far, in the order in which they came.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.shared.records.all()
    }

    /// The requests so far that match; how often a matcher may match does not count here.
    pub fn requests_that(&self, matcher: &RequestMatcher) -> Vec<RecordedRequest> {
        self.requests().into_iter().filter(|request| matcher.matches(&request.line())).collect()
    }

    /// Forgets the requests that have ended.
    pub fn forget_requests(&self) {
        self.shared.records.forget_ended();
    }

    /// Waits until the requests are as `reached` wants them, and returns them.
    pub async fn wait_for(
        &self,
        goal: &str,
        limit: Duration,
        reached: impl FnMut(&[RecordedRequest]) -> bool,
    ) -> Result<Vec<RecordedRequest>, TimedOut> {
        self.shared.records.wait_for(goal, limit, reached).await
    }

    /// Closes the port and all connections: clients get "connection refused".
    pub async fn refuse_connections(&self) {
        let door = lock(&self.door).take();
        if let Some(door) = door {
            door.abort();
            // The listener is closed when the task has ended; that it was aborted is no news.
            let _ = door.await;
        }
    }

    /// Accepts connections and closes them at once; those that are open are closed too.
    pub async fn slam_connections(&self) -> io::Result<()> {
        self.shared.slams_the_door.store(true, Ordering::Relaxed);
        self.reopen().await
    }

    /// Serves again, after [`Self::refuse_connections`] or [`Self::slam_connections`].
    pub async fn accept_connections(&self) -> io::Result<()> {
        self.shared.slams_the_door.store(false, Ordering::Relaxed);
        self.reopen().await
    }

    /// Closes all connections in the middle of what they do, and serves new ones.
    pub async fn cut_connections(&self) -> io::Result<()> {
        self.reopen().await
    }

    /// Closes all and listens again on the same port.
    async fn reopen(&self) -> io::Result<()> {
        self.refuse_connections().await;
        let mut attempt = 1;
        let listener = loop {
            match TcpListener::bind(self.address).await {
                Ok(listener) => break listener,
                // A client elsewhere may hold the port for the moment, as the local end of its connection.
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && attempt < BIND_ATTEMPTS => {
                    attempt += 1;
                    sleep(Duration::from_millis(20)).await;
                }
                Err(error) => return Err(error),
            }
        };
        self.open(listener);
        Ok(())
    }

    fn open(&self, listener: TcpListener) {
        let shared = Arc::clone(&self.shared);
        *lock(&self.door) = Some(tokio::spawn(accept(listener, shared)));
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        if let Some(door) = lock(&self.door).take() {
            door.abort();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // No section that holds one of these locks can leave its value half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    // Ends all connections when this task ends.
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        if shared.slams_the_door.load(Ordering::Relaxed) {
            continue;
        }
        let shared = Arc::clone(&shared);
        connections.spawn(serve(stream, shared));
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    // Small writes must not wait for the other side: what is measured through here is the client's time.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| answer(Arc::clone(&shared), request));
    // An error here is a fault that was asked for, or a client that left.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(shared: Arc<Shared>, request: Request<Incoming>) -> Answered {
    let (mut head, body) = request.into_parts();
    // The client left before it had sent everything: there is nothing to record or to answer.
    let body = body.collect().await.map_err(|_| Disconnected)?.to_bytes();
    let running = Records::begin(&shared.records, &head, &body);
    let fault = shared.faults.take(&running.line());
    running.spoiled_by(fault.as_ref());

    remove_connection_headers(&mut head.headers);
    // The upstream client brings its own.
    for name in [header::HOST, header::AUTHORIZATION, header::CONTENT_LENGTH] {
        head.headers.remove(name);
    }
    let request = Request::from_parts(head, KubeBody::from(body));
    let upstream = &shared.upstream;
    match fault {
        None => forward(upstream, request, running, None).await,
        Some(Fault::Answer(answer)) => Ok(answer_by_proxy(answer, running)),
        Some(Fault::Delay(time)) => {
            sleep(time).await;
            forward(upstream, request, running, None).await
        }
        Some(Fault::Hang) => std::future::pending().await,
        Some(Fault::Disconnect) => Err(Disconnected),
        Some(Fault::LoseAnswer) => {
            // What became of it is the upstream's secret.
            let _ = upstream.send(request).await;
            Err(Disconnected)
        }
        Some(Fault::CutBody { after }) => forward(upstream, request, running, Some(Limit::cut(after))).await,
        Some(Fault::StallBody { after }) => forward(upstream, request, running, Some(Limit::stall(after))).await,
    }
}

async fn forward(upstream: &Client, request: Request<KubeBody>, running: Running, limit: Option<Limit>) -> Answered {
    // No answer from upstream is none from here: the client sees what it would see without the proxy.
    let response = upstream.send(request).await.map_err(|_| Disconnected)?;
    let (mut head, body) = response.into_parts();
    remove_connection_headers(&mut head.headers);
    running.answered(head.status);
    Ok(Response::from_parts(head, AnswerBody::new(body, running, limit)))
}

fn answer_by_proxy(answer: Answer, running: Running) -> Response<AnswerBody> {
    let Answer { status, headers, body } = answer;
    running.answered(status);
    let mut response = Response::new(AnswerBody::new(KubeBody::from(Bytes::from(body)), running, None));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

fn remove_connection_headers(headers: &mut HeaderMap) {
    for name in CONNECTION_HEADERS {
        headers.remove(name);
    }
}
