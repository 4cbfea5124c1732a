//! The server behind a socket.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::{ApiServer, Service};

/// How long after a connection could not be accepted the next is tried.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

/// A server that listens. When this is dropped it takes no more connections, and those that are open break, watches and
/// answers that are under way included.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    /// Aborted with the set.
    _task: JoinSet<()>,
}

impl Server {
    /// Where it listens.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The port on which it listens.
    pub fn port(&self) -> u16 {
        self.address.port()
    }
}

impl ApiServer {
    /// Listens on a port of 127.0.0.1, or on a free one for port 0. Needs a runtime with I/O and real time.
    pub async fn serve_on_loopback(&self, port: u16) -> io::Result<Server> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let address = listener.local_addr()?;
        let mut task = JoinSet::new();
        task.spawn(accept(listener, self.service_by_headers()));
        Ok(Server { address, _task: task })
    }
}

/// Serves connections until it is aborted, and they with it.
async fn accept(listener: TcpListener, service: Service) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    // An event of a watch is not to wait for the acknowledgement of the one before.
                    let _ = stream.set_nodelay(true);
                    let service = TowerToHyperService::new(service.clone());
                    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                    // What breaks a connection is the caller's to notice.
                    connections.spawn(async move { drop(connection.await) });
                }
                // The caller gave up, or there are too many open files, of which the end of a connection frees one.
                Err(_) => tokio::time::sleep(AFTER_FAILURE).await,
            }
        }
    }
}

/// Writes a kubeconfig for a server at this URL, where everybody may do everything.
pub fn write_kubeconfig(path: &Path, url: &str) -> io::Result<()> {
    let text = format!(
        "apiVersion: v1\n\
         kind: Config\n\
         clusters:\n\
         - name: world\n\
         \x20 cluster: {{server: \"{url}\"}}\n\
         users:\n\
         - name: anybody\n\
         \x20 user: {{}}\n\
         contexts:\n\
         - name: world\n\
         \x20 context: {{cluster: world, user: anybody}}\n\
         current-context: world\n"
    );
    std::fs::write(path, text)
}
