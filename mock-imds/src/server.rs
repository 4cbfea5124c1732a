//! The socket: serves a router until it is told to stop.

use std::{convert::Infallible, io, net::SocketAddr, time::Duration};

use axum::Router;
use tokio::{net::TcpListener, sync::oneshot, task::JoinHandle, time::timeout};

/// A router that is being served; it stops when it is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<Infallible>>,
    serving: JoinHandle<io::Result<()>>,
}

impl Server {
    /// How long open requests may go on when the server stops; a hanging one would never end.
    const GRACE: Duration = Duration::from_secs(1);

    /// Serves the router on the socket, as a task of the current runtime.
    pub fn spawn(listener: TcpListener, router: Router) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(async move {
            axum::serve(listener, router)
                .with_graceful_shutdown(async {
                    // The sender is only ever dropped.
                    let _: Result<Infallible, _> = stopped.await;
                })
                .await
        });
        Ok(Self { address, stop: Some(stop), serving })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its URL, without a slash at the end.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Stops listening, lets open requests end for a second, then returns.
    pub async fn stop(mut self) {
        drop(self.stop.take());
        if timeout(Self::GRACE, &mut self.serving).await.is_err() {
            self.serving.abort();
        }
    }
}
