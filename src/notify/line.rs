//! The line to one receiver: a queue, and the loop that posts what is in it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::fingerprint::fingerprint;
use domain::notification::{Notification, Topic};
use domain::policy::receiver::Receiver;
use domain::time::Monotonic;
use tokio::sync::Notify;

use super::Tools;
use super::post::{PostError, post};
use crate::metrics::NotificationLabels;

/// How many notifications wait for a receiver. When there is no more room the oldest goes: people need to know how
/// things stand.
pub(super) const QUEUE: usize = 64;

/// How often one is tried.
const MOST_TRIES: u32 = 6;

/// The pause after the first try; each later one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// The longest pause that a receiver may ask for.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(60);

/// How long one is tried.
const LONGEST: Duration = Duration::from_secs(300);

const DELIVERED: &str = "delivered";
const RETRIED: &str = "retried";
const FAILED: &str = "failed";
const DROPPED: &str = "dropped";

pub(super) struct Line {
    name: String,
    tools: Arc<Tools>,
    state: Mutex<State>,
    /// The state is not as it was.
    changed: Notify,
}

struct State {
    receiver: Arc<Receiver>,
    queue: VecDeque<Arc<Notification>>,
    /// A notification is neither in the queue nor settled.
    is_busy: bool,
    /// The last try failed, and that has been told.
    is_failing: bool,
    fate: Fate,
    /// The process is to end then.
    ends: Option<Monotonic>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Open,
    /// The receiver is none any more.
    Closed,
    /// The rest is left to another life.
    Abandoned,
}

/// What becomes of a notification.
enum Outcome {
    Delivered,
    GivenUp,
    /// The receiver is none any more.
    Closed,
    /// There is no time left for another try.
    LeftToAnotherLife,
}

/// How a pause ended.
enum Pause {
    Over,
    Closed,
    TooLong,
}

impl Line {
    pub(super) fn new(receiver: Receiver, tools: Arc<Tools>) -> Self {
        let name = receiver.name.clone();
        let state = State {
            receiver: Arc::new(receiver),
            queue: VecDeque::new(),
            is_busy: false,
            is_failing: false,
            fate: Fate::Open,
            ends: None,
        };
        let line = Self { name, tools, state: Mutex::new(state), changed: Notify::new() };
        // A series that begins at zero shows its first increase.
        for result in [DELIVERED, RETRIED, FAILED, DROPPED] {
            line.count(result, 0);
        }
        line
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is made in one go, so a panic elsewhere cannot leave it half made.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, result: &'static str, by: u64) {
        let labels = NotificationLabels { receiver: self.name.clone(), result };
        self.tools.metrics.notifications.get_or_create(&labels).inc_by(by);
    }

    fn drop_notification(&self, notification: &Notification) {
        self.count(DROPPED, 1);
        self.tools.ledger.settle(&notification.id, false);
    }

    pub(super) fn wants(&self, topic: Topic) -> bool {
        self.state().receiver.on.contains(&topic)
    }

    /// The policy says something else about the receiver.
    pub(super) fn replace(&self, receiver: Receiver) {
        let mut state = self.state();
        if *state.receiver != receiver {
            state.receiver = Arc::new(receiver);
            state.is_failing = false;
        }
    }

    /// Queues a notification.
    pub(super) fn take(&self, notification: Arc<Notification>) {
        let mut state = self.state();
        let dropped = if state.fate == Fate::Closed {
            Some(notification)
        } else {
            let oldest = if state.queue.len() < QUEUE { None } else { state.queue.pop_front() };
            state.queue.push_back(notification);
            oldest
        };
        drop(state);
        if let Some(dropped) = dropped {
            self.drop_notification(&dropped);
        }
        self.changed.notify_one();
    }

    /// The receiver is none any more.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.fate = Fate::Closed;
        let queue = std::mem::take(&mut state.queue);
        drop(state);
        for notification in queue {
            self.drop_notification(&notification);
        }
        self.changed.notify_one();
    }

    /// The process is to end then.
    pub(super) fn end_by(&self, end: Monotonic) {
        self.state().ends = Some(end);
        self.changed.notify_one();
    }

    /// Whether nothing more will be delivered unless something more is queued.
    pub(super) fn is_at_rest(&self) -> bool {
        let state = self.state();
        state.fate == Fate::Abandoned || state.queue.is_empty() && !state.is_busy
    }

    /// How many notifications are neither delivered nor given up.
    pub(super) fn left(&self) -> usize {
        let state = self.state();
        state.queue.len() + usize::from(state.is_busy)
    }

    /// Posts what is queued, until the line is closed or abandoned.
    pub(super) async fn run(self: Arc<Self>) {
        while let Some(notification) = self.next().await {
            let outcome = self.tell(&notification).await;
            let mut state = self.state();
            state.is_busy = false;
            if matches!(outcome, Outcome::LeftToAnotherLife) {
                state.fate = Fate::Abandoned;
                state.queue.push_front(Arc::clone(&notification));
            }
            drop(state);
            match outcome {
                Outcome::Delivered => {
                    self.count(DELIVERED, 1);
                    self.tools.ledger.settle(&notification.id, true);
                }
                Outcome::GivenUp => {
                    self.count(FAILED, 1);
                    self.tools.ledger.settle(&notification.id, false);
                }
                Outcome::Closed => self.drop_notification(&notification),
                Outcome::LeftToAnotherLife => {}
            }
            self.tools.progress.notify_one();
        }
    }

    async fn next(&self) -> Option<Arc<Notification>> {
        loop {
            {
                let mut state = self.state();
                if state.fate != Fate::Open {
                    return None;
                }
                if let Some(notification) = state.queue.pop_front() {
                    state.is_busy = true;
                    return Some(notification);
                }
            }
            self.changed.notified().await;
        }
    }

    async fn tell(&self, notification: &Notification) -> Outcome {
        let give_up_at = self.tools.clock.now().monotonic + LONGEST;
        let mut tries = 0;
        loop {
            tries += 1;
            let Some(answer) = self.try_once(notification, give_up_at).await else { return Outcome::Closed };
            let Err(error) = answer else {
                self.reached();
                return Outcome::Delivered;
            };
            self.not_reached(notification, &error);
            if !error.is_worth_repeating() || tries == MOST_TRIES {
                return Outcome::GivenUp;
            }
            let over = self.tools.clock.now().monotonic + self.pause(notification, tries, error.retry_after());
            if over >= give_up_at {
                return Outcome::GivenUp;
            }
            match self.rest_until(over).await {
                Pause::Over => self.count(RETRIED, 1),
                Pause::Closed => return Outcome::Closed,
                Pause::TooLong => return Outcome::LeftToAnotherLife,
            }
        }
    }

    /// One try; `None` if the line was closed meanwhile.
    async fn try_once(&self, notification: &Notification, give_up_at: Monotonic) -> Option<Result<(), PostError>> {
        let receiver = Arc::clone(&self.state().receiver);
        let now = self.tools.clock.now();
        let limit = receiver.timeout.min(give_up_at.since(now.monotonic));
        let mut posting = std::pin::pin!(post(&self.tools.transport, &receiver, notification, limit, now.wall));
        loop {
            if self.state().fate == Fate::Closed {
                return None;
            }
            tokio::select! {
                biased;
                answer = &mut posting => return Some(answer),
                () = self.changed.notified() => {}
            }
        }
    }

    /// How long to wait after so many tries: longer each time, as long as the receiver asks, and not at the same moment as
    /// the agents of other nodes that are told to wait.
    fn pause(&self, notification: &Notification, tries: u32, asked: Option<Duration>) -> Duration {
        let pause = (FIRST_PAUSE * 2_u32.pow(tries - 1)).max(asked.unwrap_or_default().min(LONGEST_RETRY_AFTER));
        let Notification { node, id, .. } = notification;
        let share = fingerprint(&format!("{node}/{}/{id}/{tries}", self.name)) % 100;
        pause + pause * u32::try_from(share).unwrap_or_default() / 400
    }

    async fn rest_until(&self, over: Monotonic) -> Pause {
        loop {
            {
                let state = self.state();
                if state.fate == Fate::Closed {
                    return Pause::Closed;
                }
                if state.ends.is_some_and(|end| over >= end) {
                    return Pause::TooLong;
                }
            }
            tokio::select! {
                biased;
                () = self.changed.notified() => {}
                () = self.tools.clock.sleep_until(over) => return Pause::Over,
            }
        }
    }

    fn reached(&self) {
        if std::mem::take(&mut self.state().is_failing) {
            tracing::info!(receiver = self.name, "Receiver {} takes notifications again", self.name);
        }
    }

    /// Told once, however many tries and notifications fail.
    fn not_reached(&self, notification: &Notification, error: &PostError) {
        let Notification { id, reason, .. } = notification;
        if std::mem::replace(&mut self.state().is_failing, true) {
            tracing::debug!(
                receiver = self.name,
                id,
                reason,
                "Receiver {} does not take a notification: {error}",
                self.name
            );
        } else {
            tracing::warn!(
                receiver = self.name,
                reason,
                "Receiver {} does not take a notification: {error}; not told again until it takes one",
                self.name
            );
        }
    }
}
