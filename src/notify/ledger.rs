//! Which notifications are on their way, and what became of those that were.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// How many results wait to be fetched; one that is lost costs a notification that is told twice.
const MOST_SETTLED: usize = 1024;

/// A notification that is no longer on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// Its identifier.
    pub id: String,
    /// Whether a receiver that wanted it has not got it.
    pub gave_up: bool,
}

#[derive(Default)]
pub(super) struct Ledger {
    state: Mutex<State>,
    settled: Notify,
}

#[derive(Default)]
struct State {
    /// No more than the queues hold.
    open: BTreeMap<String, Open>,
    settled: VecDeque<Delivered>,
}

struct Open {
    receivers: usize,
    gave_up: bool,
}

impl Ledger {
    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is made in one go, so a panic elsewhere cannot leave it half made.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a notification for so many receivers; false if it is known and not fetched yet.
    pub(super) fn open(&self, id: &str, receivers: usize) -> bool {
        let mut state = self.state();
        if state.open.contains_key(id) || state.settled.iter().any(|delivered| delivered.id == id) {
            return false;
        }
        if receivers == 0 {
            self.fetchable(&mut state, Delivered { id: id.to_owned(), gave_up: false });
        } else {
            state.open.insert(id.to_owned(), Open { receivers, gave_up: false });
        }
        true
    }

    /// One receiver has taken it, or has been given up.
    pub(super) fn settle(&self, id: &str, delivered: bool) {
        let mut state = self.state();
        let Some(entry) = state.open.get_mut(id) else { return };
        entry.receivers -= 1;
        entry.gave_up |= !delivered;
        if entry.receivers == 0 {
            let gave_up = entry.gave_up;
            state.open.remove(id);
            self.fetchable(&mut state, Delivered { id: id.to_owned(), gave_up });
        }
    }

    fn fetchable(&self, state: &mut State, delivered: Delivered) {
        if state.settled.len() == MOST_SETTLED {
            state.settled.pop_front();
        }
        state.settled.push_back(delivered);
        self.settled.notify_one();
    }
}

/// Says what became of notifications.
pub struct Deliveries(Arc<Ledger>);

impl Deliveries {
    pub(super) fn of(ledger: Arc<Ledger>) -> Self {
        Self(ledger)
    }

    /// The next notification that every receiver has taken or has been given up for. Nothing is lost if the future is
    /// dropped.
    pub async fn next(&mut self) -> Delivered {
        loop {
            if let Some(delivered) = self.0.state().settled.pop_front() {
                return delivered;
            }
            self.0.settled.notified().await;
        }
    }
}
