//! How to reach an API server: a real one, a proxy in front of it, or one in memory.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use http::Uri;
use kube::{Client, Config};
use serde_json::json;

/// The address of an API server and who the caller is. Everything in this crate that talks to a cluster needs no more
/// than this, or a client made from it.
#[derive(Clone, Debug)]
pub struct ApiServer {
    url: Uri,
    authority: Option<Authority>,
    token: Option<String>,
}

#[derive(Clone, Debug)]
struct Authority {
    file: PathBuf,
    certificates: Vec<Vec<u8>>,
}

impl ApiServer {
    /// An API server that speaks plain HTTP and asks nobody who they are.
    pub fn at(url: Uri) -> Self {
        Self { url, authority: None, token: None }
    }

    /// An API server whose certificate is signed by an authority in the PEM file `authority`.
    ///
    /// Fails when the file cannot be read or holds no certificate (yet).
    pub(crate) fn with_authority(url: Uri, authority: &Path) -> io::Result<Self> {
        let certificates: Vec<Vec<u8>> = pem::parse_many(fs::read(authority)?)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?
            .into_iter()
            .map(pem::Pem::into_contents)
            .collect();
        if certificates.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "no certificate in the file"));
        }
        Ok(Self { url, authority: Some(Authority { file: authority.to_path_buf(), certificates }), token: None })
    }

    /// The same API server for the user with this bearer token.
    #[must_use]
    pub fn with_token(&self, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..self.clone() }
    }

    /// Where the API server listens.
    pub fn url(&self) -> &Uri {
        &self.url
    }

    /// A new client with connections of its own, bound to the current tokio runtime. It repeats nothing by itself: a
    /// test sees every answer.
    pub fn client(&self) -> Result<Client, kube::Error> {
        let mut config = Config::new(self.url.clone());
        config.default_retry = false;
        config.root_cert = self.authority.as_ref().map(|authority| authority.certificates.clone());
        config.auth_info.token = self.token.clone().map(Into::into);
        Client::try_from(config)
    }

    /// Writes a kubeconfig with one context, readable by its owner only.
    pub fn write_kubeconfig(&self, path: &Path) -> io::Result<()> {
        let mut cluster = json!({"server": self.url.to_string()});
        if let Some(authority) = &self.authority {
            cluster["certificate-authority"] = json!(authority.file);
        }
        let user = self.token.as_ref().map_or_else(|| json!({}), |token| json!({"token": token}));
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "current-context": "test",
        });
        write_secret(path, serde_json::to_string_pretty(&kubeconfig)?.as_bytes())
    }
}

/// Writes a new file, or replaces an old one, readable by its owner only.
pub(crate) fn write_secret(path: &Path, content: &[u8]) -> io::Result<()> {
    // The mode counts at creation only, so that an old file with a wider one must go first.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    File::options().write(true).create_new(true).mode(0o600).open(path)?.write_all(content)
}
