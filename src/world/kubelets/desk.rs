//! What all machines share: what is to be done when, and whom to tell.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use domain::time::{Monotonic, Now};

use super::fate::Fates;
use crate::world::api_server::ApiServer;
use crate::world::api_server::store::Key;
use crate::world::uuid::uuid;

/// Something that is to happen. `life` says from which boot of the machine it is: a later one does not care.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// A heartbeat.
    Beat { machine: Arc<str>, life: u64, lag: Duration },
    /// The next step in the life of a pod.
    Pod { machine: Arc<str>, life: u64, lag: Duration, key: Key },
    /// A frozen machine goes on.
    Thaw { machine: Arc<str>, life: u64 },
    /// A machine boots.
    PowerOn { machine: Arc<str>, life: u64 },
    /// The Node object of a machine that is gone goes too.
    NodeGoes { name: Arc<str> },
}

impl Event {
    pub(super) fn machine(&self) -> &str {
        match self {
            Self::Beat { machine, .. }
            | Self::Pod { machine, .. }
            | Self::Thaw { machine, .. }
            | Self::PowerOn { machine, .. } => machine,
            Self::NodeGoes { name } => name,
        }
    }
}

/// An entry of the agenda: when, and a number that nothing else has.
pub(super) type Entry = (Monotonic, u64);

pub(super) struct Desk {
    pub(super) server: ApiServer,
    pub(super) fates: Fates,
    dice: fastrand::Rng,
    agenda: BTreeMap<Entry, Event>,
    numbers: u64,
}

impl Desk {
    pub(super) fn new(server: ApiServer, dice: fastrand::Rng) -> Self {
        Self { server, fates: Fates::default(), dice, agenda: BTreeMap::new(), numbers: 0 }
    }

    /// A number that nothing else has.
    pub(super) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Puts something on the agenda; returns the number by which it can be told from others.
    pub(super) fn schedule(&mut self, at: Monotonic, event: Event) -> u64 {
        let number = self.number();
        self.reschedule(at, number, event);
        number
    }

    /// The same under a number that it had before.
    pub(super) fn reschedule(&mut self, at: Monotonic, number: u64, event: Event) {
        self.agenda.insert((at, number), event);
    }

    /// Takes off the agenda what is due next.
    pub(super) fn next_due(&mut self, now: Now) -> Option<(Entry, Event)> {
        let first = self.agenda.first_entry()?;
        (first.key().0 <= now.monotonic).then(|| first.remove_entry())
    }

    /// When something is due.
    pub(super) fn due(&self) -> Option<Monotonic> {
        self.agenda.first_key_value().map(|((at, _), _)| *at)
    }

    /// A duration of up to ten seconds by which a machine's heartbeats are apart from those of others. In steps, so that many
    /// machines beat together and few wake-ups serve them.
    pub(super) fn offset(&mut self) -> Duration {
        Duration::from_millis(100 * self.dice.u64(1..=100))
    }

    /// A UUID of version 4.
    pub(super) fn uuid(&mut self) -> String {
        uuid(&mut self.dice)
    }
}
