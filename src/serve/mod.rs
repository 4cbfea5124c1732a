//! Answers probes and metrics. Nothing here changes anything, and no body of a request is read.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;

/// What the probes and `/metrics` say.
pub trait Health: Send + Sync + 'static {
    /// Whether the process makes progress; the error says what does not.
    fn alive(&self) -> Result<(), String>;
    /// Whether the process can do its job; the error says why not.
    fn ready(&self) -> Result<(), String>;
    /// All metrics in the OpenMetrics text format.
    fn metrics(&self) -> String;
}

/// The server cannot be started.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {cause}; choose another address with --listen")]
pub struct ListenError {
    address: SocketAddr,
    cause: std::io::Error,
}

/// Listens on an address.
pub async fn listen(address: SocketAddr) -> Result<TcpListener, ListenError> {
    TcpListener::bind(address).await.map_err(|cause| ListenError { address, cause })
}

/// Serves until it is dropped; ends only with an error of the listener.
pub async fn serve(listener: TcpListener, health: Arc<dyn Health>) -> std::io::Result<()> {
    axum::serve(listener, router(&health)).await
}

fn router(health: &Arc<dyn Health>) -> Router {
    let probe = |ask: fn(&dyn Health) -> Result<(), String>| {
        let health = Arc::clone(health);
        get(move || async move {
            match ask(health.as_ref()) {
                Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
                Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
            }
        })
    };
    let alive: fn(&dyn Health) -> Result<(), String> = |health| health.alive();
    let ready: fn(&dyn Health) -> Result<(), String> = |health| health.ready();
    let metrics = {
        let health = Arc::clone(health);
        get(move || async move {
            let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, content_type)], health.metrics()).into_response()
        })
    };
    Router::new()
        .route("/livez", probe(alive))
        .route("/healthz", probe(alive))
        .route("/readyz", probe(ready))
        .route("/metrics", metrics)
}
