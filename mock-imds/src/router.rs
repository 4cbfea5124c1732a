//! Who answers which request: the metadata service, for the VM that asks, or the control API.
//!
//! [`Mock`]'s methods that serve stand here and not beside the others, because what they route to needs the others.

use std::{io, net::SocketAddr, sync::Arc};

use axum::{Router, extract::Request, http::StatusCode, response::Response};
use tokio::net::TcpListener;

use crate::{
    answer::{JSON, reply},
    control,
    error::MockError,
    metadata,
    mock::Mock,
    server::Server,
};

impl Mock {
    /// Everything: the metadata service under `/vm/NAME/` (and under `/` if there is one VM only), and the control API
    /// under `/mock/`.
    pub fn router(&self) -> Router {
        let mock = self.clone();
        control::router(self).fallback(move |request: Request| {
            let mock = mock.clone();
            async move { choose_caller(&mock, request).await }
        })
    }

    /// The metadata service as this VM sees it, and nothing else.
    pub fn router_for(&self, vm: &str) -> Result<Router, MockError> {
        let vm = Arc::clone(self.world().vm(vm)?);
        let mock = self.clone();
        Ok(Router::new().fallback(move |request: Request| {
            let (mock, vm) = (mock.clone(), Arc::clone(&vm));
            async move {
                let path = request.uri().path().to_owned();
                metadata::answer(&mock, &vm, &path, request).await
            }
        }))
    }

    /// Serves [`Mock::router`] on a socket until the returned handle is stopped or dropped.
    pub fn serve(&self, listener: TcpListener) -> io::Result<Server> {
        Server::spawn(listener, self.router())
    }

    /// Serves [`Mock::router`] on a free port of the loopback interface.
    pub async fn serve_on_loopback(&self) -> io::Result<Server> {
        self.serve(TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?)
    }
}

/// Finds out which VM asks: the one in the path, else the only one that there is.
async fn choose_caller(mock: &Mock, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let (vm, path) = match path.strip_prefix("/vm/") {
        Some(rest) => {
            let (name, rest) = rest.split_once('/').unwrap_or((rest, ""));
            (mock.world().vm(name).cloned().map_err(|error| error.to_string()), format!("/{rest}"))
        }
        None => match mock.world().vms() {
            [only] => (Ok(Arc::clone(only)), path),
            many => {
                let first = many.first().map_or("NAME", |vm| vm.name.as_str());
                (Err(format!("there are {} VMs; say which one asks, as in /vm/{first}{path}", many.len())), path)
            }
        },
    };
    match vm {
        Ok(vm) => metadata::answer(mock, &vm, &path, request).await,
        Err(error) => reply(StatusCode::NOT_FOUND, JSON, serde_json::json!({ "error": error }).to_string()),
    }
}
