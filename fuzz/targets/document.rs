//! Whatever the metadata service answers: no event is lost to its neighbours, none is invented, and an answer that broke
//! off is none.

#![no_main]
#![allow(clippy::expect_used, reason = "a panic is how a target reports what it found")]

use domain::scheduled_event::{
    Document, EventSource, EventStatus, EventType, NotBefore, ScheduledEvent, VmName, decode,
};
use jiff::Timestamp;
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

fuzz_target!(|body: &[u8]| {
    a_description_is_read_as_it_stands(&String::from_utf8_lossy(body));
    let Ok(document) = decode(body) else { return };
    every_event_can_be_acted_upon(&document);
    an_answer_that_broke_off_is_none(body);
    each_element_is_read_as_if_alone(body, &document);
    assert_eq!(decode(&written(&document, str::to_owned)).as_ref().map(events), Ok(events(&document)));
    assert_eq!(decode(&written(&document, in_other_case)).as_ref().map(events), Ok(events(&document)));
});

fn events(document: &Document) -> (Option<i64>, &[ScheduledEvent]) {
    (document.incarnation, &document.events)
}

/// Raw control characters included: Azure has sent line breaks.
fn a_description_is_read_as_it_stands(text: &str) {
    let quoted = text.replace('\\', r"\\").replace('"', r#"\""#);
    let body = format!(r#"{{"Events":[{{"EventId":"e","Resources":["vm"],"Description":"{quoted}"}}]}}"#);
    let document = decode(body.as_bytes()).expect("a document");
    assert_eq!(document.events[0].description, text);
}

fn every_event_can_be_acted_upon(document: &Document) {
    for (index, event) in document.events.iter().enumerate() {
        assert!(!event.id.as_str().trim().is_empty(), "an event without a key");
        assert!(!event.resources.is_empty() && event.resources.iter().all(|vm| event.concerns(vm)));
        for other in &document.events[index + 1..] {
            assert_ne!(event.id, other.id, "one event twice");
            assert!(event.id.cmp(&other.id).is_ne(), "equality and order disagree");
        }
        for wall in [Timestamp::MIN, Timestamp::UNIX_EPOCH, Timestamp::MAX] {
            let notice = event.notice(wall);
            assert!(notice.is_none_or(|at| at > wall && event.status != EventStatus::Started), "{notice:?}");
        }
    }
}

fn an_answer_that_broke_off_is_none(body: &[u8]) {
    let end = body.iter().rposition(|byte| *byte == b'}').expect("a document ends in a brace");
    for length in [end / 3, end / 2, end] {
        assert!(decode(&body[..length]).is_err(), "the first {length} bytes are a document");
    }
}

fn each_element_is_read_as_if_alone(body: &[u8], document: &Document) {
    // What is not JSON by itself (raw control characters, a byte order mark) has no elements to take apart here.
    let Ok(whole) = serde_json::from_slice::<Value>(body) else { return };
    let mut known = Vec::new();
    for element in whole["Events"].as_array().expect("a document lists events") {
        let alone = decode(json!({"Events": [element]}).to_string().as_bytes()).expect("a document");
        let ignored = alone.oddities.iter().any(|oddity| oddity.what.ends_with("ignored"));
        assert_eq!(alone.events.len(), usize::from(!ignored), "{:?}", alone.oddities);
        let Some(event) = alone.events.first() else { continue };
        let found = document.events.iter().find(|listed| listed.id == event.id).expect("a lost event");
        assert!(event.resources.iter().all(|vm| found.concerns(vm)), "a lost machine");
        if !known.contains(&event.id) {
            let machines = found.resources.clone();
            assert_eq!(ScheduledEvent { resources: machines, ..event.clone() }, *found);
            known.push(event.id.clone());
        }
    }
    assert_eq!(known.len(), document.events.len(), "an invented event");
}

/// The document as Azure would write it, with `spelt` for what is compared without case.
fn written(document: &Document, spelt: fn(&str) -> String) -> Vec<u8> {
    // A word that is not known is kept as it came, case and all.
    let word = |word: &str, known: bool| if known { spelt(word) } else { word.to_owned() };
    let events: Vec<Value> = document
        .events
        .iter()
        .map(|event| {
            json!({
                "EventId": spelt(event.id.as_str()),
                "EventType": word(event.event_type.as_str(), !matches!(event.event_type, EventType::Other(_))),
                "EventStatus": word(event.status.as_str(), !matches!(event.status, EventStatus::Other(_))),
                "EventSource": word(event.source.as_str(), !matches!(event.source, EventSource::Other(_))),
                "Resources": event.resources.iter().map(VmName::as_str).map(spelt).collect::<Vec<_>>(),
                "NotBefore": match event.not_before {
                    NotBefore::At(at) => at.to_string(),
                    NotBefore::Absent => String::new(),
                    NotBefore::Unreadable => "soon".to_owned(),
                },
                "DurationInSeconds": event.duration.map_or(json!(-1), |duration| json!(duration.as_secs())),
                "Description": event.description,
            })
        })
        .collect();
    json!({"DocumentIncarnation": document.incarnation, "Events": events}).to_string().into_bytes()
}

fn in_other_case(text: &str) -> String {
    let swap = |letter: char| {
        if letter.is_ascii_lowercase() { letter.to_ascii_uppercase() } else { letter.to_ascii_lowercase() }
    };
    text.chars().map(swap).collect()
}
