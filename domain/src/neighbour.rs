//! What an agent does for other machines: a machine under repair may be dead, and the repairer does not hear the metadata
//! service, so agents nearby carry the news of its events to its repair.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::scheduled_event::{
    Document, EventId, EventSource, EventStatus, EventType, NotBefore, ScheduledEvent, VmName,
};

/// The phases in which a repair is over; in any other, and without one, it is live.
pub const TERMINAL_PHASES: [&str; 3] = ["Done", "Cancelled", "Exhausted"];

/// An event of the machine under repair, as a neighbour has seen it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObservedEvent {
    /// The event's key.
    pub event_id: EventId,
    /// What is going to happen to the machine.
    #[serde(rename = "type")]
    pub event_type: EventType,
    /// Who asked for it.
    pub source: EventSource,
    /// How far it has come.
    pub status: EventStatus,
    /// The moment before which it does not begin, if Azure names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// When it was seen.
    pub seen_at: Timestamp,
}

/// A repair as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repair {
    /// The name of its object.
    pub name: String,
    /// The version that was read; a write is refused if it has changed since.
    pub resource_version: String,
    /// The machine under repair, if it is known.
    pub vm: Option<VmName>,
    /// Whether the repair is still going on.
    pub live: bool,
    /// What neighbours have told of the machine's events so far.
    pub observed: Option<ObservedEvent>,
}

/// What a repair is to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    /// The name of its object.
    pub repair: String,
    /// The version for which this is news.
    pub resource_version: String,
    /// The event.
    pub observed: ObservedEvent,
}

fn under_repair<'a>(event: &ScheduledEvent, own: &VmName, repairs: &'a [Repair]) -> impl Iterator<Item = &'a Repair> {
    let others: Vec<VmName> = event.resources.iter().filter(|vm| *vm != own).cloned().collect();
    repairs.iter().filter(move |repair| repair.live && repair.vm.as_ref().is_some_and(|vm| others.contains(vm)))
}

/// Whether the document tells of events of other machines at all.
pub fn has_foreign_events(document: &Document, own: &VmName) -> bool {
    document.events.iter().any(|event| event.resources.iter().any(|vm| vm != own))
}

/// What live repairs of other machines do not know yet of their events; of several, the one that is nearest.
pub fn news(document: &Document, own: &VmName, repairs: &[Repair], wall: Timestamp) -> Vec<News> {
    let mut news: Vec<News> = Vec::new();
    let mut events: Vec<&ScheduledEvent> = document.events.iter().collect();
    events.sort_by_key(|event| (event.status != EventStatus::Started, time_of(event).unwrap_or(Timestamp::MAX)));
    for event in events {
        for repair in under_repair(event, own, repairs) {
            if news.iter().any(|known| known.repair == repair.name) {
                continue;
            }
            let observed = ObservedEvent {
                event_id: event.id.clone(),
                event_type: event.event_type.clone(),
                source: event.source.clone(),
                status: event.status.clone(),
                not_before: time_of(event),
                seen_at: wall,
            };
            news.push(News {
                repair: repair.name.clone(),
                resource_version: repair.resource_version.clone(),
                observed,
            });
        }
    }
    news.retain(|one| {
        let known = repairs.iter().find(|repair| repair.name == one.repair).and_then(|repair| repair.observed.as_ref());
        known.is_none_or(|known| ObservedEvent { seen_at: known.seen_at, ..one.observed.clone() } != *known)
    });
    news
}

fn time_of(event: &ScheduledEvent) -> Option<Timestamp> {
    match event.not_before {
        NotBefore::At(at) => Some(at),
        NotBefore::Absent | NotBefore::Unreadable => None,
    }
}

/// The restarts that repairs of other machines have asked for and that have not started, with the machine of each: Azure
/// waits for an approval that a dead machine cannot give.
pub fn own_repairs(document: &Document, own: &VmName, repairs: &[Repair]) -> Vec<(EventId, VmName)> {
    let asked_for = |event: &&ScheduledEvent| {
        event.source == EventSource::User
            && event.status == EventStatus::Scheduled
            && matches!(event.event_type, EventType::Reboot | EventType::Redeploy)
    };
    document
        .events
        .iter()
        .filter(asked_for)
        .filter_map(|event| Some((event.id.clone(), under_repair(event, own, repairs).next()?.vm.clone()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduled_event::decode;

    fn document(events: &[(&str, &str, &str, &str, &str)]) -> Document {
        let events: Vec<String> = events
            .iter()
            .map(|(id, event_type, source, status, vm)| {
                format!(
                    r#"{{"EventId":"{id}","EventType":"{event_type}","EventSource":"{source}","EventStatus":"{status}",
                    "NotBefore":"Sat, 11 Apr 2026 22:15:00 GMT","Resources":["{vm}"]}}"#
                )
            })
            .collect();
        decode(format!(r#"{{"Events":[{}]}}"#, events.join(",")).as_bytes()).unwrap()
    }

    fn repair(vm: &str, live: bool) -> Repair {
        Repair {
            name: format!("repair-of-{vm}"),
            resource_version: "7".into(),
            vm: Some(VmName::new(vm)),
            live,
            observed: None,
        }
    }

    fn wall() -> Timestamp {
        "2026-04-11T22:00:00Z".parse().unwrap()
    }

    #[test]
    fn a_live_repair_is_told_of_its_machines_event_once_and_again_when_it_starts() {
        let own = VmName::new("vm_1");
        let scheduled = document(&[("e1", "Reboot", "User", "Scheduled", "VM_2")]);
        let mut repairs = vec![repair("vm_2", true)];
        let told = news(&scheduled, &own, &repairs, wall());
        assert_eq!(told.len(), 1);
        assert_eq!((told[0].repair.as_str(), told[0].observed.event_id.as_str()), ("repair-of-vm_2", "e1"));
        repairs[0].observed = Some(ObservedEvent { seen_at: Timestamp::MIN, ..told[0].observed.clone() });
        assert_eq!(news(&scheduled, &own, &repairs, wall()), []);
        let started = document(&[("e1", "Reboot", "User", "Started", "vm_2")]);
        assert_eq!(news(&started, &own, &repairs, wall())[0].observed.status, EventStatus::Started);
    }

    #[test]
    fn nobody_is_told_of_own_events_or_of_repairs_that_are_over() {
        let events = document(&[("e1", "Reboot", "User", "Scheduled", "vm_2")]);
        assert_eq!(news(&events, &VmName::new("vm_2"), &[repair("vm_2", true)], wall()), []);
        assert_eq!(news(&events, &VmName::new("vm_1"), &[repair("vm_2", false), repair("vm_3", true)], wall()), []);
        assert!(
            has_foreign_events(&events, &VmName::new("vm_1")) && !has_foreign_events(&events, &VmName::new("vm_2"))
        );
    }

    #[test]
    fn of_several_events_the_nearest_is_told() {
        let events = document(&[
            ("later", "Redeploy", "Platform", "Scheduled", "vm_2"),
            ("now", "Reboot", "User", "Started", "vm_2"),
        ]);
        let told = news(&events, &VmName::new("vm_1"), &[repair("vm_2", true)], wall());
        assert_eq!(told.iter().map(|one| one.observed.event_id.as_str()).collect::<Vec<_>>(), ["now"]);
    }

    #[test]
    fn only_a_restart_that_a_user_asked_for_and_that_has_not_started_is_taken_for_a_repairs_own() {
        let own = VmName::new("vm_1");
        let repairs = [repair("vm_2", true)];
        for (event, is_own) in [
            (("e", "Reboot", "User", "Scheduled", "vm_2"), true),
            (("e", "Redeploy", "User", "Scheduled", "vm_2"), true),
            (("e", "Reboot", "Platform", "Scheduled", "vm_2"), false),
            (("e", "Reboot", "User", "Started", "vm_2"), false),
            (("e", "Terminate", "User", "Scheduled", "vm_2"), false),
            (("e", "Reboot", "User", "Scheduled", "vm_3"), false),
            (("e", "Reboot", "User", "Scheduled", "vm_1"), false),
        ] {
            assert_eq!(own_repairs(&document(&[event]), &own, &repairs).len(), usize::from(is_own), "{event:?}");
        }
    }

    #[test]
    fn an_observed_event_survives_being_written_and_read() {
        let events = document(&[("e1", "Reboot", "User", "Scheduled", "vm_2")]);
        let told = news(&events, &VmName::new("vm_1"), &[repair("vm_2", true)], wall());
        let text = serde_json::to_string(&told[0].observed).unwrap();
        assert_eq!(
            text,
            r#"{"eventId":"e1","type":"Reboot","source":"User","status":"Scheduled","notBefore":"2026-04-11T22:15:00Z","seenAt":"2026-04-11T22:00:00Z"}"#
        );
        assert_eq!(serde_json::from_str::<ObservedEvent>(&text).unwrap(), told[0].observed);
    }
}
