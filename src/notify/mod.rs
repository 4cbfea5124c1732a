//! Tells people through webhooks. Best effort: nothing waits for it, and no receiver waits for another.
//!
//! Each receiver of a policy has a `line`: a queue of limited length and a loop that posts one notification after the
//! other. The `ledger` knows which notifications are still on their way, and hands back the identifier of each when all
//! receivers have taken it or have been given up, so that whoever had it delivered can remember that.

mod format;
mod ledger;
mod line;
mod post;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::notification::{Notification, Topic};
use domain::policy::receiver::Receiver;
use futures::stream::{FuturesUnordered, StreamExt};
use reqwest::{Request, Response};
use tokio::sync::Notify;
use tower::{BoxError, Service};

use crate::clock::Clock;
use crate::metrics::Metrics;
use ledger::Ledger;
pub use ledger::{Delivered, Deliveries};
use line::Line;
use post::Transport;

/// What every line needs.
struct Tools {
    clock: Clock,
    metrics: Arc<Metrics>,
    transport: Transport,
    ledger: Arc<Ledger>,
    /// A line has come to rest, or is one notification nearer to it.
    progress: Notify,
}

/// The lines by the names of their receivers.
#[derive(Default)]
struct Lines {
    all: BTreeMap<String, Arc<Line>>,
    /// Those whose loops have not begun.
    fresh: Vec<Arc<Line>>,
}

struct Shared {
    tools: Arc<Tools>,
    lines: Mutex<Lines>,
    configured: Notify,
}

impl Shared {
    fn lines(&self) -> MutexGuard<'_, Lines> {
        // Lines are only added and taken away, so a panic elsewhere cannot leave them half changed.
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes notifications for all receivers. Clones are handles on the same queues.
#[derive(Clone)]
pub struct Notifier(Arc<Shared>);

/// A notifier without receivers yet, what becomes of its notifications, and the work that posts them over the network. The
/// HTTP client is set up when it is first needed.
pub fn notifier(
    clock: Clock,
    metrics: Arc<Metrics>,
) -> (Notifier, Deliveries, impl Future<Output = ()> + Send + 'static) {
    with(Transport::network(), clock, metrics)
}

/// The same, with receivers that `transport` reaches, which may be in this very process. Proxies are not its business.
pub fn notifier_through<S>(
    transport: S,
    clock: Clock,
    metrics: Arc<Metrics>,
) -> (Notifier, Deliveries, impl Future<Output = ()> + Send + 'static)
where
    S: Service<Request, Response = Response, Error: Into<BoxError>> + Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
{
    with(Transport::given(transport), clock, metrics)
}

fn with(
    transport: Transport,
    clock: Clock,
    metrics: Arc<Metrics>,
) -> (Notifier, Deliveries, impl Future<Output = ()> + Send + 'static) {
    let ledger = Arc::new(Ledger::default());
    let deliveries = Deliveries::of(Arc::clone(&ledger));
    let tools = Arc::new(Tools { clock, metrics, transport, ledger, progress: Notify::new() });
    let shared = Arc::new(Shared { tools, lines: Mutex::default(), configured: Notify::new() });
    (Notifier(Arc::clone(&shared)), deliveries, work(shared))
}

/// Runs the loops of all lines; they wait for the network nearly always, so one task is enough for them.
async fn work(shared: Arc<Shared>) {
    let mut running = FuturesUnordered::new();
    loop {
        running.extend(std::mem::take(&mut shared.lines().fresh).into_iter().map(Line::run));
        tokio::select! {
            biased;
            () = shared.configured.notified() => {}
            Some(()) = running.next() => {}
        }
    }
}

impl Notifier {
    /// Sets who is told, from now on. A receiver of a name that is known already keeps its queue; what a receiver that
    /// is gone had not taken is given up.
    pub fn configure(&self, receivers: Vec<Receiver>) {
        let mut lines = self.0.lines();
        let mut before = std::mem::take(&mut lines.all);
        for receiver in receivers {
            let name = receiver.name.clone();
            let line = if let Some(line) = before.remove(&name) {
                line.replace(receiver);
                line
            } else {
                let line = Arc::new(Line::new(receiver, Arc::clone(&self.0.tools)));
                lines.fresh.push(Arc::clone(&line));
                line
            };
            lines.all.insert(name, line);
        }
        drop(lines);
        for gone in before.into_values() {
            gone.close();
        }
        self.0.configured.notify_one();
    }

    /// Whether any receiver wants to be told of this.
    pub fn wants(&self, topic: Topic) -> bool {
        self.0.lines().all.values().any(|line| line.wants(topic))
    }

    /// Tells all receivers that want it; never waits. One that is on its way already is not sent again; one that nobody
    /// wants is delivered at once.
    pub fn deliver(&self, notification: Notification) {
        let wanting: Vec<Arc<Line>> =
            self.0.lines().all.values().filter(|line| line.wants(notification.topic)).cloned().collect();
        if !self.0.tools.ledger.open(&notification.id, wanting.len()) {
            return;
        }
        let notification = Arc::new(notification);
        for line in wanting {
            line.take(Arc::clone(&notification));
        }
    }

    /// For the end of the process: waits until everything is delivered, at most for `limit`. Nobody waits between two
    /// tries beyond that any more; what is left then stays open and is not handed back, so that another life tells it
    /// again. The answer is how many notifications are left.
    pub async fn flush(&self, limit: Duration) -> usize {
        let clock = self.0.tools.clock;
        let end = clock.now().monotonic + limit;
        let lines: Vec<Arc<Line>> = self.0.lines().all.values().cloned().collect();
        for line in &lines {
            line.end_by(end);
        }
        while !lines.iter().all(|line| line.is_at_rest()) {
            tokio::select! {
                biased;
                () = self.0.tools.progress.notified() => {}
                () = clock.sleep_until(end) => break,
            }
        }
        lines.iter().map(|line| line.left()).sum()
    }
}
