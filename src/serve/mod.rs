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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::body::{Body, Bytes};
    use axum::http::{Method, Request};
    use futures::stream;
    use tower::ServiceExt;

    use super::*;

    const SERVED: [&str; 4] = ["/livez", "/healthz", "/readyz", "/metrics"];

    /// What others have served, and what people try.
    const NOT_SERVED: [&str; 9] = [
        "/",
        "/drainNode",
        "/drain",
        "/cordon",
        "/approve",
        "/debug/pprof/",
        "/config",
        "/metrics/",
        "/livez/../drain",
    ];

    struct Stuck;

    impl Health for Stuck {
        fn alive(&self) -> Result<(), String> {
            Err("the poll loop has not ticked for 60s".into())
        }

        fn ready(&self) -> Result<(), String> {
            Ok(())
        }

        fn metrics(&self) -> String {
            "# EOF\n".into()
        }
    }

    async fn ask(method: Method, path: &str, body: Body) -> (StatusCode, Bytes) {
        let health: Arc<dyn Health> = Arc::new(Stuck);
        let request = Request::builder().method(method).uri(path).body(body).unwrap();
        let answer = router(&health).oneshot(request).await.unwrap();
        let status = answer.status();
        (status, axum::body::to_bytes(answer.into_body(), 1 << 20).await.unwrap())
    }

    // N-05
    #[tokio::test]
    async fn only_probes_and_metrics_are_served_only_to_be_read_and_no_body_is_taken_in() {
        let taken = Arc::new(AtomicUsize::new(0));
        let ten_mebibytes = || {
            let taken = Arc::clone(&taken);
            let chunks = (0..10).map(move |_| {
                taken.fetch_add(1, Ordering::Relaxed);
                Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; 1 << 20]))
            });
            Body::from_stream(stream::iter(chunks))
        };
        for path in SERVED.into_iter().chain(NOT_SERVED) {
            for method in [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::DELETE, Method::PATCH] {
                let reads = method == Method::GET || method == Method::HEAD;
                let wanted = match path {
                    _ if !SERVED.contains(&path) => StatusCode::NOT_FOUND,
                    _ if !reads => StatusCode::METHOD_NOT_ALLOWED,
                    "/livez" | "/healthz" => StatusCode::SERVICE_UNAVAILABLE,
                    _ => StatusCode::OK,
                };
                assert_eq!(ask(method.clone(), path, Body::empty()).await.0, wanted, "{method} {path}");
                assert_eq!(ask(method.clone(), path, ten_mebibytes()).await.0, wanted, "{method} {path} with a body");
            }
        }
        assert_eq!(taken.load(Ordering::Relaxed), 0, "a body was read");
    }

    #[tokio::test]
    async fn a_probe_says_why() {
        let (_, body) = ask(Method::GET, "/livez", Body::empty()).await;
        assert_eq!(body, "the poll loop has not ticked for 60s\n");
        assert_eq!(ask(Method::GET, "/readyz", Body::empty()).await, (StatusCode::OK, Bytes::from_static(b"ok\n")));
    }
}
