//! The server behind a socket.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::ApiServer;

/// A server that listens; it takes no more connections when this is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    task: JoinHandle<()>,
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

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ApiServer {
    /// Listens on a port of 127.0.0.1, or on a free one for port 0. Needs a runtime with I/O and real time.
    pub async fn serve_on_loopback(&self, port: u16) -> io::Result<Server> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let address = listener.local_addr()?;
        let router = self.router();
        let task = tokio::spawn(async move {
            // It ends only with an error of the listener, and then connections are refused: there is nobody to tell.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Server { address, task })
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
