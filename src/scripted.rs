//! For tests: servers in this process that answer by a script, and what the process logs.

use std::io::Write;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use reqwest::Response;
use tracing::Dispatch;
use tracing::subscriber::DefaultGuard;

/// What a server does with a request.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Status(u16),
    /// With a header.
    With(u16, &'static str, String),
    Body(u16, String),
    /// So much later.
    After(Duration, Box<Self>),
    Never,
    Refused,
}

impl Answer {
    pub(crate) async fn give(self) -> std::io::Result<Response> {
        let mut answer = self;
        while let Self::After(delay, then) = answer {
            tokio::time::sleep(delay).await;
            answer = *then;
        }
        let response = http::Response::builder();
        let response = match answer {
            Self::Status(status) => response.status(status).body(String::new()),
            Self::With(status, name, value) => response.status(status).header(name, value).body(String::new()),
            Self::Body(status, body) => response.status(status).body(body),
            Self::After(..) | Self::Never => std::future::pending().await,
            Self::Refused => return Err(std::io::ErrorKind::ConnectionRefused.into()),
        };
        Ok(Response::from(response.unwrap()))
    }
}

/// Everything that is logged in this thread, from the finest level on.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub(crate) fn listen(&self) -> DefaultGuard {
        // With a single listener in the process, what another thread logs first without one would be taken to interest
        // nobody.
        static SECOND: OnceLock<Dispatch> = OnceLock::new();
        SECOND.get_or_init(|| Dispatch::new(tracing_subscriber::fmt().with_writer(std::io::sink).finish()));
        let log = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_ansi(false)
            .with_writer(move || log.clone())
            .finish();
        tracing::subscriber::set_default(subscriber)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// How many lines contain the text.
    pub(crate) fn count(&self, text: &str) -> usize {
        self.text().lines().filter(|line| line.contains(text)).count()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
