//! The embedded world as the side that tests run against: its API server on a socket, with all its controllers.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use control_plane::{ApiServer, Side, SideError, SideKind};
use futures::FutureExt;
use futures::future::BoxFuture;
use remediator::clock::Clock;
use remediator::world::api_server::ApiServer as WorldServer;
use remediator::world::controllers;
use tempfile::TempDir;
use tokio::sync::oneshot;

/// The kind of side that it is.
#[allow(dead_code, reason = "not every test binary that has this module needs it")]
pub(crate) fn embedded() -> SideKind {
    SideKind::new("embedded", |_| async {
        let started = tokio::task::spawn_blocking(Embedded::start).await??;
        let started: Arc<dyn Side> = Arc::new(started);
        Ok(started)
    })
}

/// The embedded world that the tests of this process share, for those who need no more than its address.
#[allow(dead_code, reason = "not every test binary that has this module needs it")]
pub(crate) async fn api_server() -> Result<ApiServer, SideError> {
    static SHARED: tokio::sync::OnceCell<Embedded> = tokio::sync::OnceCell::const_new();
    let shared = SHARED.get_or_try_init(|| async { tokio::task::spawn_blocking(Embedded::start).await? }).await?;
    Ok(shared.api_server.clone())
}

struct Embedded {
    world: WorldServer,
    api_server: ApiServer,
    port: u16,
    folder: TempDir,
    serving: Mutex<Option<Serving>>,
}

impl Embedded {
    fn start() -> Result<Self, SideError> {
        let world = WorldServer::new(Clock::system(), 1);
        let lives = world.clone();
        // A thread of its own, because every test has a runtime of its own. It ends with the process.
        std::thread::Builder::new().name("world".into()).spawn(move || {
            let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
            runtime.block_on(async {
                let _controllers = controllers::start(&lives);
                std::future::pending::<()>().await;
            });
        })?;
        let (serving, port) = Serving::start(&world, 0)?;
        let api_server = ApiServer::at(format!("http://127.0.0.1:{port}").parse()?);
        let folder = tempfile::tempdir()?;
        api_server.write_kubeconfig(&folder.path().join("kubeconfig"))?;
        Ok(Self { world, api_server, port, folder, serving: Mutex::new(Some(serving)) })
    }
}

/// The socket of the world, with a runtime of its own: when that ends all connections break.
struct Serving {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    fn start(world: &WorldServer, port: u16) -> Result<(Self, u16), SideError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let server = runtime.block_on(world.serve_on_loopback(port))?;
        let port = server.port();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("socket".into()).spawn(move || {
            let _server = server;
            // Either way it is to end.
            let _ = runtime.block_on(stopped);
        })?;
        Ok((Self { stop: Some(stop), thread: Some(thread) }, port))
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic there is told by the connections that it broke.
            let _ = thread.join();
        }
    }
}

impl Side for Embedded {
    fn api_server(&self) -> &ApiServer {
        &self.api_server
    }

    fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    fn stop_api_server(&self) {
        drop(self.serving.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    fn start_api_server(&self) -> BoxFuture<'_, Result<(), SideError>> {
        // A runtime must not be made to wait within another.
        let (world, port) = (self.world.clone(), self.port);
        async move {
            let started = tokio::task::spawn_blocking(move || Serving::start(&world, port));
            let (serving, _) = started.await??;
            *self.serving.lock().unwrap_or_else(PoisonError::into_inner) = Some(serving);
            Ok(())
        }
        .boxed()
    }
}
