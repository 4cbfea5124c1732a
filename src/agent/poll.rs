//! Asks Azure for the scheduled events, for ever: one request at a time, once a second, more slowly while it fails.
//!
//! A virtual machine may ask five times a second, and AKS's own node problem detector takes part of that, so there are
//! no quick repetitions. An event group is switched on by its first request, whose answer may take two minutes
//! (<https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events#enabling-and-disabling-scheduled-events>).

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use domain::fingerprint::fingerprint;
use domain::scheduled_event::Document;
use domain::time::Monotonic;

use super::board::{Board, Loop};
use crate::azure::imds::{FIRST_EVENTS_LIMIT, Imds, ImdsError};
use crate::clock::Clock;
use crate::metrics::PollLabels;

/// For every answer but the first about events.
const LIMIT: Duration = Duration::from_secs(5);

/// How often the loop shows that it is alive.
const TICK: Duration = Duration::from_secs(5);

/// How often the same trouble is told.
const TROUBLE_TOLD_EVERY: Duration = Duration::from_secs(60);

/// The longest pause while the service fails, before it is spread by up to as much again.
const LONGEST_PAUSE: Duration = Duration::from_millis(4500);

/// The longest pause that is kept because the service asks for it.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(120);

struct Poller {
    imds: Imds,
    board: Arc<Board>,
    clock: Clock,
    interval: Duration,
    seed: u64,
    known: bool,
    had_document: bool,
    failing: Option<ExponentialBackoff>,
    /// What was told last, by what kind of trouble it was, and when.
    trouble_told: Option<((&'static str, u16), Monotonic)>,
    oddities_told: BTreeSet<String>,
}

/// Polls for ever. `name` only spreads the pauses of different machines.
pub(super) async fn poll(imds: Imds, board: Arc<Board>, clock: Clock, interval: Duration, name: String) {
    let mut poller = Poller {
        imds,
        board,
        clock,
        interval,
        seed: fingerprint(&name),
        known: false,
        had_document: false,
        failing: None,
        trouble_told: None,
        oddities_told: BTreeSet::new(),
    };
    loop {
        let began = poller.clock.now().monotonic;
        let pause = match poller.ask().await {
            Ok(()) => poller.succeeded(began),
            Err(error) => poller.failed(&error),
        };
        poller.ticking(poller.clock.sleep(pause)).await;
    }
}

impl Poller {
    async fn ask(&mut self) -> Result<(), ImdsError> {
        if !self.known {
            let instance = self.ticking(self.imds.instance(LIMIT)).await?;
            tracing::info!(vm = %instance.name, resource = instance.resource_id, "This machine is known");
            self.board.identified(instance);
            self.known = true;
        }
        let limit = if self.had_document { LIMIT } else { FIRST_EVENTS_LIMIT };
        let answer = self.ticking(self.imds.scheduled_events(limit)).await;
        let document = answer?;
        self.board.metrics().polls.get_or_create(&PollLabels { result: "ok", code: 200 }).inc();
        if !self.had_document {
            tracing::info!(events = document.events.len(), "The metadata service lists scheduled events");
            self.had_document = true;
        }
        self.tell_oddities(&document);
        self.board.seen(document);
        Ok(())
    }

    fn succeeded(&mut self, began: Monotonic) -> Duration {
        if self.failing.take().is_some() {
            tracing::info!("The metadata service answers again");
            self.trouble_told = None;
        }
        // Once a second means from request to request, not from answer to request.
        self.interval.saturating_sub(self.clock.now().monotonic.since(began))
    }

    fn failed(&mut self, error: &ImdsError) -> Duration {
        let now = self.clock.now().monotonic;
        let mut text = error.to_string();
        // Without the host's network the link-local address leads nowhere: a connection is refused, or never answered.
        let leads_nowhere = match error {
            ImdsError::Unreachable { .. } => !self.had_document,
            ImdsError::TimedOut(_) => !self.known,
            _ => false,
        };
        if leads_nowhere {
            text.push_str("; the pod needs `hostNetwork: true`, and the node must be a machine of Azure");
        }
        let kind = (error.label(), error.code());
        // Also where it is not yet known whose events to look for.
        self.board.metrics().polls.get_or_create(&PollLabels { result: kind.0, code: kind.1 }).inc();
        let told = self.trouble_told.is_some_and(|(known, at)| known == kind && now.since(at) < TROUBLE_TOLD_EVERY);
        if !told {
            tracing::warn!("{text}");
            self.trouble_told = Some((kind, now));
        }
        self.board.troubled(text);
        let (interval, seed) = (self.interval, self.seed);
        let failing = self.failing.get_or_insert_with(|| {
            ExponentialBuilder::default()
                .with_min_delay(interval.min(Duration::from_secs(1)))
                .with_max_delay(LONGEST_PAUSE)
                .without_max_times()
                .with_jitter()
                .with_jitter_seed(seed)
                .build()
        });
        let pause = failing.next().unwrap_or(LONGEST_PAUSE);
        pause.max(error.retry_after().unwrap_or_default().min(LONGEST_RETRY_AFTER))
    }

    /// Each oddity is told once as long as the document shows it.
    fn tell_oddities(&mut self, document: &Document) {
        let odd: BTreeSet<String> = document.oddities.iter().map(ToString::to_string).collect();
        for oddity in odd.difference(&self.oddities_told) {
            tracing::warn!("Odd entry in the list of scheduled events: {oddity}");
        }
        self.oddities_told = odd;
    }

    /// Waits for some work and shows all the while that the loop is alive.
    async fn ticking<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            self.board.tick(Loop::Poll);
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = self.clock.sleep(TICK) => {}
            }
        }
    }
}
