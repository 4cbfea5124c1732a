//! What all HTTP clients of the process have in common. The one to the API server is kube's own.

use reqwest::{Client, ClientBuilder, redirect};

/// How the process names itself to servers.
pub const USER_AGENT: &str = concat!("remediator/", env!("CARGO_PKG_VERSION"));

/// A client that goes straight to the server, whatever proxies the environment names, and that repeats and follows
/// nothing by itself.
pub fn builder() -> ClientBuilder {
    // The client library has no provider of its own and panics without one. Whoever came first installed the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder().no_proxy().redirect(redirect::Policy::none()).user_agent(USER_AGENT)
}
