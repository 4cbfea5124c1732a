//! Leases, by which agents on different nodes agree on who does something, and how many do it at once.
//!
//! The API server lets one of several writers succeed (<https://kubernetes.io/docs/concepts/architecture/leases/>); here it is
//! decided what to write. A holder may die, and clocks of machines differ, so a Lease counts as abandoned only when this
//! process has itself seen it unchanged for as long as it lasts.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::fingerprint::fingerprint;
use crate::node_plan::SlotNeed;
use crate::scheduled_event::EventId;
use crate::time::Monotonic;

/// How long a claim on the approval of an event lasts without a result.
pub const CLAIM_LASTS: Duration = Duration::from_secs(15);

/// How long a slot lasts without being renewed.
pub const SLOT_LASTS: Duration = Duration::from_secs(40);

/// How often a slot is renewed.
pub const SLOT_RENEWED_EVERY: Duration = Duration::from_secs(10);

/// A Lease as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    /// Its name.
    pub name: String,
    /// The version that was read; a write is refused if it has changed since.
    pub resource_version: String,
    /// Who holds it; empty if nobody does.
    pub holder: String,
    /// When it was renewed, as its holder wrote it: only ever compared with what it was before.
    pub renewed: String,
    /// How long it lasts after that.
    pub lasts: Duration,
    /// Whether what it is for has been done.
    pub done: bool,
}

/// Since when this process has seen Leases as they are.
#[derive(Clone, Debug, Default)]
pub struct Observations(BTreeMap<String, (String, Monotonic)>);

impl Observations {
    /// Looks at a Lease; says whether its holder has let it expire.
    pub fn expired(&mut self, lease: &Lease, now: Monotonic) -> bool {
        if lease.holder.is_empty() {
            return true;
        }
        let seen = format!("{}/{}/{}", lease.holder, lease.renewed, lease.resource_version);
        let since = match self.0.get(&lease.name) {
            Some((known, since)) if *known == seen => *since,
            _ => {
                self.0.insert(lease.name.clone(), (seen, now));
                now
            }
        };
        now.since(since) >= lease.lasts
    }

    /// Forgets all.
    pub fn forget(&mut self) {
        self.0.clear();
    }
}

/// The name of the Lease by which the approval of an event is claimed.
pub fn approval_name(event: &EventId) -> String {
    format!("approve-{:016x}", fingerprint(&event.as_str().to_ascii_lowercase()))
}

/// What to do about the approval of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimStep {
    /// Create the Lease.
    Create,
    /// Write this node into it as the holder: whoever held it died over it.
    TakeOver,
    /// It is this node's: tell Azure. If this node died between that and its note of it, Azure is told once more, which does
    /// no harm.
    Post,
    /// It has been done.
    Done,
    /// Another node is at it.
    Wait,
}

/// Says what to do about the approval that a Lease is for; `node` is this node's name.
pub fn claim(lease: Option<&Lease>, node: &str, observations: &mut Observations, now: Monotonic) -> ClaimStep {
    match lease {
        None => ClaimStep::Create,
        Some(lease) if lease.done => ClaimStep::Done,
        Some(lease) if lease.holder == node => ClaimStep::Post,
        Some(lease) if observations.expired(lease, now) => ClaimStep::TakeOver,
        Some(_) => ClaimStep::Wait,
    }
}

/// The name of one of the Leases that are the slots of a pool.
pub fn slot_name(pool: &str, index: u32) -> String {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    match pool {
        "" => format!("drain-slot-{index}"),
        pool if pool.bytes().all(plain) => format!("drain-slot-{pool}-{index}"),
        // A label may have letters that the name of an object may not.
        pool => format!("drain-slot-{:016x}-{index}", fingerprint(pool)),
    }
}

/// What to do to get or to keep a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotStep {
    /// Renew this Lease, which is this node's.
    Renew(Lease),
    /// Create the Lease of this name.
    Create(String),
    /// Write this node into this Lease as the holder: whoever held it is gone.
    TakeOver(Lease),
    /// All slots are taken.
    Wait,
}

/// Says how to get or to keep a slot; `leases` are all that the pool has, `node` is this node's name.
pub fn slot(
    need: &SlotNeed,
    leases: &[Lease],
    node: &str,
    observations: &mut Observations,
    now: Monotonic,
) -> SlotStep {
    let slots: Vec<(String, Option<&Lease>)> = (0..need.most)
        .map(|index| slot_name(&need.pool, index))
        .map(|name| {
            let lease = leases.iter().find(|lease| lease.name == name);
            (name, lease)
        })
        .collect();
    if let Some(own) = leases.iter().find(|lease| lease.holder == node) {
        return SlotStep::Renew(own.clone());
    }
    if let Some((free, _)) = slots.iter().find(|(_, lease)| lease.is_none()) {
        return SlotStep::Create(free.clone());
    }
    // Every one is looked at, so that all that are abandoned are known to be at the same time.
    let expired: Vec<&Lease> =
        slots.iter().filter_map(|(_, lease)| *lease).filter(|lease| observations.expired(lease, now)).collect();
    expired.first().map_or(SlotStep::Wait, |lease| SlotStep::TakeOver((*lease).clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(name: &str, holder: &str, renewed: &str) -> Lease {
        Lease {
            name: name.into(),
            holder: holder.into(),
            renewed: renewed.into(),
            lasts: CLAIM_LASTS,
            ..Lease::default()
        }
    }

    fn at(seconds: u64) -> Monotonic {
        Monotonic::after_start(Duration::from_secs(seconds))
    }

    //
    #[test]
    fn one_node_approves_and_another_takes_over_only_when_it_has_seen_nothing_happen_for_long() {
        let mut seen = Observations::default();
        assert_eq!(claim(None, "n1", &mut seen, at(0)), ClaimStep::Create);
        let of_another = lease("a", "n2", "22:00");
        assert_eq!(claim(Some(&of_another), "n1", &mut seen, at(100)), ClaimStep::Wait, "it was not seen before");
        assert_eq!(claim(Some(&of_another), "n1", &mut seen, at(114)), ClaimStep::Wait);
        assert_eq!(claim(Some(&of_another), "n1", &mut seen, at(115)), ClaimStep::TakeOver);
        let taken_anew = lease("a", "n3", "22:01");
        assert_eq!(claim(Some(&taken_anew), "n1", &mut seen, at(115)), ClaimStep::Wait);
        assert_eq!(claim(Some(&lease("a", "n1", "22:02")), "n1", &mut seen, at(116)), ClaimStep::Post);
        let done = Lease { done: true, ..taken_anew };
        assert_eq!(claim(Some(&done), "n1", &mut seen, at(500)), ClaimStep::Done);
    }

    #[test]
    fn the_letter_case_of_an_event_id_makes_no_other_claim() {
        assert_eq!(approval_name(&EventId::new("ABC")), approval_name(&EventId::new("abc")));
    }

    // D-08
    #[test]
    fn a_pool_never_has_more_slots_than_its_policy_allows() {
        let need = SlotNeed { pool: "np1".into(), most: 2 };
        let mut seen = Observations::default();
        let mut step = |leases: &[Lease], seconds| slot(&need, leases, "n1", &mut seen, at(seconds));
        assert_eq!(step(&[], 0), SlotStep::Create("drain-slot-np1-0".into()));
        let (first, second) = (lease("drain-slot-np1-0", "n2", "a"), lease("drain-slot-np1-1", "n3", "a"));
        assert_eq!(step(std::slice::from_ref(&first), 0), SlotStep::Create("drain-slot-np1-1".into()));
        assert_eq!(step(&[first.clone(), second.clone()], 0), SlotStep::Wait);
        let renewed = lease("drain-slot-np1-0", "n2", "b");
        assert_eq!(step(&[renewed.clone(), second.clone()], 20), SlotStep::TakeOver(second.clone()));
        let free = lease("drain-slot-np1-0", "", "b");
        assert_eq!(step(&[free.clone(), second], 20), SlotStep::TakeOver(free));
        let own = lease("drain-slot-np1-1", "n1", "c");
        assert_eq!(step(&[renewed, own.clone()], 20), SlotStep::Renew(own));
    }

    #[test]
    fn any_pool_gives_the_name_of_an_object() {
        assert_eq!(slot_name("", 3), "drain-slot-3");
        assert_eq!(slot_name("np1", 0), "drain-slot-np1-0");
        assert_ne!(slot_name("Pool_A", 0), slot_name("pool-a", 0));
        assert!(
            slot_name("Pool_A", 0)
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        );
    }
}
