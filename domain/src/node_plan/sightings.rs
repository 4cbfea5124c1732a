//! What Azure has listed so far, and which events are gone.

use std::collections::BTreeMap;

use crate::scheduled_event::{Document, EventId, ScheduledEvent, VmName};

/// How many good documents in a row must lack an event before it counts as gone.
pub const ABSENT_FROM: u64 = 2;

/// What Azure has listed so far in this life of the agent. Only good documents count: a failed poll is not told here.
#[derive(Clone, Debug, Default)]
pub struct Sightings {
    documents: u64,
    latest: Option<Document>,
    last_listed: BTreeMap<EventId, u64>,
}

impl Sightings {
    /// A good document has arrived on this machine.
    pub fn see(&mut self, document: Document, vm: &VmName) {
        self.documents += 1;
        for event in document.events_of(vm) {
            self.last_listed.insert(event.id.clone(), self.documents);
        }
        let oldest = self.documents.saturating_sub(ABSENT_FROM);
        self.last_listed.retain(|_, listed| *listed > oldest);
        self.latest = Some(document);
    }

    /// The latest good document.
    pub fn latest(&self) -> Option<&Document> {
        self.latest.as_ref()
    }

    /// The events that the latest good document lists for the machine.
    pub fn events_of<'a>(&'a self, vm: &'a VmName) -> impl Iterator<Item = &'a ScheduledEvent> {
        self.latest.iter().flat_map(move |document| document.events_of(vm))
    }

    /// Whether enough good documents in a row lack the event, or do not list it for this machine.
    pub fn is_gone(&self, id: &EventId) -> bool {
        self.tell_what_is_gone() && !self.last_listed.contains_key(id)
    }

    /// Whether there have been enough good documents to call anything gone.
    pub fn tell_what_is_gone(&self) -> bool {
        self.documents >= ABSENT_FROM
    }

    /// Whether the latest document lists an event that concerns the machine.
    pub fn concern(&self, vm: &VmName) -> bool {
        self.events_of(vm).next().is_some()
    }
}
