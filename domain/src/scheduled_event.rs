//! The document of Azure's scheduled events: what it says, and decoding that never loses an event to its neighbour.
//!
//! The format is described in <https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events>. Real answers
//! differ from it: identifiers come in both letter cases, `NotBefore` in several shapes, members are missing or of the
//! wrong type, and new event types appear. A document is refused only as a whole (it is not complete JSON with an
//! `Events` array); within one, every element is decoded on its own, and what was odd about it is said.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

/// A name or identifier that Azure writes in changing letter case: kept as received, compared without case.
macro_rules! caseless {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Takes the text as it was received.
            pub fn new(text: impl Into<String>) -> Self {
                Self(text.into())
            }

            /// The text as it was received.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            fn folded(&self) -> impl Iterator<Item = u8> + '_ {
                self.0.bytes().map(|byte| byte.to_ascii_lowercase())
            }
        }

        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                self.0.eq_ignore_ascii_case(&other.0)
            }
        }

        impl Eq for $name {}

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }

        impl Ord for $name {
            fn cmp(&self, other: &Self) -> Ordering {
                self.folded().cmp(other.folded())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str(&self.0)
            }
        }
    };
}

caseless! {
    /// The `EventId` of a scheduled event: a GUID, stable from `Scheduled` to the end.
    EventId
}

caseless! {
    /// The name of a virtual machine, as in `compute.name` of the instance document and in `Resources` of an event:
    /// `aks-np1-12345678-vmss_24` for an instance of a scale set. It is not the name of the node.
    VmName
}

/// A word of a small vocabulary that Azure may extend: the words known today, and any other as it was received.
macro_rules! vocabulary {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)+
            /// A word unknown to this version, as received; empty if the member was missing.
            Other(String),
        }

        impl $name {
            /// The words known to this version, as Azure spells them.
            pub const KNOWN: &'static [&'static str] = &[$(stringify!($variant)),+];

            /// Reads a word; letter case does not matter.
            pub fn from_word(word: &str) -> Self {
                $(if word.eq_ignore_ascii_case(stringify!($variant)) { return Self::$variant; })+
                Self::Other(word.to_owned())
            }

            /// The word, as Azure spells it.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => stringify!($variant),)+
                    Self::Other(word) => word,
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.as_str() {
                    "" => out.write_str("unnamed"),
                    word => out.write_str(word),
                }
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Ok(Self::from_word(&Cow::<'de, str>::deserialize(deserializer)?))
            }
        }
    };
}

vocabulary! {
    /// What is going to happen to the virtual machine.
    EventType {
        /// It is paused for some seconds; memory and open files survive.
        Freeze,
        /// It restarts; memory is lost. Rarely this turns into a pause.
        Reboot,
        /// It moves to another host; memory and ephemeral disks are lost.
        Redeploy,
        /// It is a spot machine and is taken back, with 30 s notice at best.
        Preempt,
        /// It is deleted.
        Terminate,
    }
}

vocabulary! {
    /// How far the event has come. There is no word for its end: it vanishes from the document.
    EventStatus {
        /// It has been announced.
        Scheduled,
        /// It is happening.
        Started,
    }
}

vocabulary! {
    /// Who asked for the event.
    EventSource {
        /// Azure.
        Platform,
        /// Someone with rights on the virtual machine, remediator's repairer among them.
        User,
    }
}

/// The earliest moment of the impact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotBefore {
    /// This moment.
    At(Timestamp),
    /// Azure named none: the event has started, or it gave an empty text.
    Absent,
    /// Azure wrote something that is no time in any known shape.
    Unreadable,
}

impl NotBefore {
    /// Reads any of the shapes seen in documentation and on real machines: RFC 1123, the same with a wrong day of the
    /// week, ISO 8601, and the empty text of a started event. The day of the week is not looked at.
    fn parse(text: &str) -> Self {
        let text = text.trim();
        if text.is_empty() {
            return Self::Absent;
        }
        let date = text.split_once(", ").map_or(text, |(_weekday, date)| date);
        let rfc1123 = DateTime::strptime("%d %b %Y %H:%M:%S GMT", date)
            .ok()
            .and_then(|civil| civil.to_zoned(TimeZone::UTC).ok())
            .map(|zoned| zoned.timestamp());
        rfc1123.or_else(|| text.parse().ok()).map_or(Self::Unreadable, Self::At)
    }
}

/// One scheduled event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduledEvent {
    /// Its key.
    pub id: EventId,
    /// What is going to happen.
    pub event_type: EventType,
    /// How far it has come.
    pub status: EventStatus,
    /// Who asked for it.
    pub source: EventSource,
    /// The virtual machines that it concerns, never empty.
    pub resources: Vec<VmName>,
    /// The earliest moment of the impact.
    pub not_before: NotBefore,
    /// How long the impact is expected to last; `None` if Azure does not know or does not say.
    pub duration: Option<Duration>,
    /// Azure's own words, possibly empty.
    pub description: String,
}

impl ScheduledEvent {
    /// The moment before which the impact does not begin, if that is still to come. An event that has started gives no
    /// notice, whatever else it says.
    pub fn notice(&self, wall: Timestamp) -> Option<Timestamp> {
        match (&self.status, self.not_before) {
            (EventStatus::Started, _) => None,
            (_, NotBefore::At(at)) if at > wall => Some(at),
            _ => None,
        }
    }

    /// Whether the event concerns this virtual machine.
    pub fn concerns(&self, vm: &VmName) -> bool {
        self.resources.contains(vm)
    }
}

/// The scheduled events of a group of virtual machines, as one good answer listed them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document {
    /// Changes whenever the content changes; may skip numbers and start anew, so it is only good for showing.
    pub incarnation: Option<i64>,
    /// The events that could be understood, in the order of the document, each identifier once.
    pub events: Vec<ScheduledEvent>,
    /// What was odd about the document; such an event is listed all the same unless it says *ignored*.
    pub oddities: Vec<Oddity>,
}

impl Document {
    /// The event with this key.
    pub fn event(&self, id: &EventId) -> Option<&ScheduledEvent> {
        self.events.iter().find(|event| event.id == *id)
    }

    /// The events that concern this virtual machine.
    pub fn events_of<'a>(&'a self, vm: &'a VmName) -> impl Iterator<Item = &'a ScheduledEvent> {
        self.events.iter().filter(move |event| event.concerns(vm))
    }
}

/// Something in a document that is not as Azure documents it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Oddity {
    /// The event's identifier, or where in the document it stands.
    pub subject: String,
    /// What is odd, in words.
    pub what: &'static str,
}

impl fmt::Display for Oddity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.subject, self.what)
    }
}

/// Why an answer is not a document: it says nothing about the events, not even that there are none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// There are no bytes.
    #[error("the body is empty")]
    Empty,
    /// It is no JSON, or not all of it.
    #[error("the body is not complete JSON: {0}")]
    NotJson(String),
    /// It is JSON, but not with a list of events.
    #[error("the body has no `Events` array")]
    NoEvents,
}

/// Decodes an answer of the scheduled-events endpoint.
pub fn decode(body: &[u8]) -> Result<Document, DecodeError> {
    let text = String::from_utf8_lossy(body);
    let text = text.trim_start_matches('\u{feff}').trim();
    if text.is_empty() {
        return Err(DecodeError::Empty);
    }
    let mut oddities = Vec::new();
    let value: Value = match serde_json::from_str(text) {
        Ok(value) => value,
        // Descriptions have been seen with raw line breaks, which JSON forbids inside a text.
        Err(error) => match serde_json::from_str(&escape_control_characters(text)) {
            Ok(value) => {
                oddities.push(Oddity { subject: "document".into(), what: "raw control characters in a text" });
                value
            }
            Err(_) => return Err(DecodeError::NotJson(error.to_string())),
        },
    };
    let Some(listed) = value.get("Events").and_then(Value::as_array) else {
        return Err(DecodeError::NoEvents);
    };
    let mut events: Vec<ScheduledEvent> = Vec::with_capacity(listed.len());
    for (index, element) in listed.iter().enumerate() {
        let Some(event) = decode_event(index, element, &mut oddities) else { continue };
        match events.iter_mut().find(|known| known.id == event.id) {
            Some(known) => {
                oddities
                    .push(Oddity { subject: event.id.to_string(), what: "listed twice, only the machines are merged" });
                let new = event.resources.into_iter().filter(|vm| !known.resources.contains(vm)).collect::<Vec<_>>();
                known.resources.extend(new);
            }
            None => events.push(event),
        }
    }
    Ok(Document { incarnation: value.get("DocumentIncarnation").and_then(integer), events, oddities })
}

fn decode_event(index: usize, element: &Value, oddities: &mut Vec<Oddity>) -> Option<ScheduledEvent> {
    let id = element.get("EventId").and_then(Value::as_str).map_or("", str::trim);
    let subject = if id.is_empty() { format!("Events[{index}]") } else { id.to_owned() };
    let mut odd = |what| oddities.push(Oddity { subject: subject.clone(), what });
    let Some(members) = element.as_object() else {
        odd("not an object, ignored");
        return None;
    };
    if id.is_empty() {
        odd("no EventId, ignored");
        return None;
    }
    let resources: Vec<VmName> = match members.get("Resources") {
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).map(VmName::new).collect(),
        Some(Value::String(name)) => vec![VmName::new(name)],
        _ => Vec::new(),
    };
    if resources.is_empty() {
        odd("no Resources, ignored");
        return None;
    }
    let event_type = EventType::from_word(text(members, "EventType"));
    if let EventType::Other(word) = &event_type {
        odd(if word.is_empty() { "no EventType" } else { "unknown EventType" });
    }
    let status = EventStatus::from_word(text(members, "EventStatus"));
    if let EventStatus::Other(_) = status {
        odd("missing or unknown EventStatus");
    }
    let not_before = match members.get("NotBefore") {
        None | Some(Value::Null) => NotBefore::Absent,
        Some(Value::String(text)) => NotBefore::parse(text),
        Some(_) => NotBefore::Unreadable,
    };
    if not_before == NotBefore::Unreadable {
        odd("unreadable NotBefore");
    }
    let duration = members.get("DurationInSeconds").and_then(integer);
    Some(ScheduledEvent {
        id: EventId::new(id),
        event_type,
        status,
        source: EventSource::from_word(text(members, "EventSource")),
        resources,
        not_before,
        // -1 stands for "unknown".
        duration: duration.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs),
        description: text(members, "Description").to_owned(),
    })
}

fn text<'a>(members: &'a Map<String, Value>, name: &str) -> &'a str {
    members.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// A number, also one that was written as a text.
fn integer(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.trim().parse().ok())
}

/// Writes raw control characters inside JSON texts the way JSON wants them, and leaves everything else as it is.
fn escape_control_characters(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len() + 16);
    let (mut in_text, mut after_backslash) = (false, false);
    for character in json.chars() {
        if in_text && character < ' ' {
            escaped.extend(format!("\\u{:04x}", u32::from(character)).chars());
            after_backslash = false;
            continue;
        }
        match character {
            '"' if !after_backslash => in_text = !in_text,
            _ => {}
        }
        after_backslash = in_text && character == '\\' && !after_backslash;
        escaped.push(character);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(members: &str) -> ScheduledEvent {
        let body = format!(r#"{{"DocumentIncarnation":1,"Events":[{{{members}}}]}}"#);
        decode(body.as_bytes()).unwrap().events.remove(0)
    }

    #[test]
    fn a_documented_event_is_read_whole() {
        let document = decode(
            br#"{"DocumentIncarnation":2,"Events":[{"EventId":"C7061BAC-AFDC-4513-B24B-AA5F13A16123","EventStatus":"Scheduled","EventType":"Freeze","ResourceType":"VirtualMachine","Resources":["WestNO_0","WestNO_1"],"NotBefore":"Mon, 11 Apr 2026 22:26:58 GMT","Description":"Virtual machine is being paused because of a memory-preserving Live Migration operation.","EventSource":"Platform","DurationInSeconds":5}]}"#,
        )
        .unwrap();
        assert_eq!(document.incarnation, Some(2));
        assert_eq!(document.oddities, []);
        let event = &document.events[0];
        assert_eq!(event.event_type, EventType::Freeze);
        assert_eq!(event.status, EventStatus::Scheduled);
        assert_eq!(event.source, EventSource::Platform);
        assert_eq!(event.not_before, NotBefore::At("2026-04-11T22:26:58Z".parse().unwrap()));
        assert_eq!(event.duration, Some(Duration::from_secs(5)));
        assert!(event.concerns(&VmName::new("westno_1")), "names are compared without case");
        assert!(!event.concerns(&VmName::new("westno_10")), "names are compared whole");
    }

    #[test]
    fn not_before_is_read_in_every_known_shape() {
        let at = |text: &str| NotBefore::At(text.parse().unwrap());
        for (text, expected) in [
            ("Mon, 19 Sep 2016 18:29:47 GMT", at("2016-09-19T18:29:47Z")),
            ("Fri, 11 Apr 2026 22:26:58 GMT", at("2026-04-11T22:26:58Z")),
            ("19 Sep 2016 18:29:47 GMT", at("2016-09-19T18:29:47Z")),
            ("2026-04-29T18:00:00Z", at("2026-04-29T18:00:00Z")),
            ("", NotBefore::Absent),
            ("soon", NotBefore::Unreadable),
            ("Mon, 99 Sep 2016 18:29:47 GMT", NotBefore::Unreadable),
        ] {
            assert_eq!(NotBefore::parse(text), expected, "{text:?}");
        }
    }

    // A-04
    #[test]
    fn an_answer_without_a_complete_document_is_refused_whole() {
        for body in [
            "",
            "  \n",
            r#"{"DocumentIncarnation":5,"Eve"#,
            "<html><body>busy</body></html>",
            r#"{"error":"Too Many Requests"}"#,
            r#"{"DocumentIncarnation":9,"Events":null}"#,
            r#"{"DocumentIncarnation":9,"Events":{}}"#,
            "[]",
            "null",
            r#"{"DocumentIncarnation":1,"Events":[]} trailing"#,
        ] {
            assert!(decode(body.as_bytes()).is_err(), "{body:?}");
        }
    }

    // A-07
    #[test]
    fn an_odd_event_does_not_hide_its_neighbours() {
        let document = decode(
            br#"{"DocumentIncarnation":"7","Events":[
                {"EventId":"a","EventType":"SpotRebalanceRecommendation","EventStatus":"Scheduled","Resources":["vm_24"]},
                {"EventId":"b","EventStatus":"Scheduled","Resources":["vm_24"]},
                {"EventType":"Reboot","EventStatus":"Scheduled","Resources":["vm_24"]},
                {"EventId":"d","EventType":"Reboot","EventStatus":"Scheduled","Resources":null},
                17,
                {"EventId":"e","EventType":"Reboot","EventStatus":"Scheduled","Resources":["vm_24"],"NotBefore":"2026-04-29T18:00:00Z","DurationInSeconds":"30","Foo":{"a":[1]}}
            ]}"#,
        )
        .unwrap();
        assert_eq!(document.incarnation, Some(7));
        let ids: Vec<&str> = document.events.iter().map(|event| event.id.as_str()).collect();
        assert_eq!(ids, ["a", "b", "e"]);
        assert_eq!(document.events[0].event_type, EventType::Other("SpotRebalanceRecommendation".into()));
        assert_eq!(document.events[1].event_type, EventType::Other(String::new()));
        assert_eq!(document.events[2].duration, Some(Duration::from_secs(30)));
        let oddities: Vec<String> = document.oddities.iter().map(ToString::to_string).collect();
        assert_eq!(
            oddities,
            [
                "a: unknown EventType",
                "b: no EventType",
                "Events[2]: no EventId, ignored",
                "d: no Resources, ignored",
                "Events[4]: not an object, ignored",
            ]
        );
    }

    #[test]
    fn an_identifier_in_another_letter_case_is_the_same_event() {
        let (upper, lower) = (EventId::new("C7061BAC"), EventId::new("c7061bac"));
        assert_eq!(upper, lower);
        assert_eq!(upper.cmp(&lower), Ordering::Equal);
        assert_eq!(upper.to_string(), "C7061BAC", "it is given back as it was received");
    }

    #[test]
    fn raw_control_characters_in_a_text_are_read() {
        let event = one("\"EventId\":\"a\",\"Resources\":[\"vm\"],\"Description\":\"two\nlines\tand a \\\"quote\\\"\"");
        assert_eq!(event.description, "two\nlines\tand a \"quote\"");
    }

    #[test]
    fn an_unknown_duration_is_none_and_no_impact_is_zero() {
        assert_eq!(one(r#""EventId":"a","Resources":["vm"],"DurationInSeconds":-1"#).duration, None);
        assert_eq!(one(r#""EventId":"a","Resources":["vm"]"#).duration, None);
        assert_eq!(one(r#""EventId":"a","Resources":["vm"],"DurationInSeconds":0"#).duration, Some(Duration::ZERO));
    }

    #[test]
    fn an_event_listed_twice_counts_once_and_for_the_machines_of_both() {
        let document = decode(
            br#"{"Events":[{"EventId":"A","EventType":"Reboot","EventStatus":"Started","Resources":["vm"]},
                           {"EventId":"a","EventType":"Freeze","EventStatus":"Started","Resources":["VM","other"]}]}"#,
        )
        .unwrap();
        assert_eq!(document.events.len(), 1);
        assert_eq!(document.events[0].event_type, EventType::Reboot);
        assert_eq!(document.events[0].resources, [VmName::new("vm"), VmName::new("other")]);
    }

    #[test]
    fn an_event_that_has_started_gives_no_notice() {
        let wall = "2026-04-29T17:00:00Z".parse().unwrap();
        let event = |status: &str| {
            one(&format!(
                r#""EventId":"a","Resources":["vm"],"EventStatus":"{status}","NotBefore":"2026-04-29T18:00:00Z""#
            ))
        };
        assert!(event("Scheduled").notice(wall).is_some());
        assert_eq!(event("Started").notice(wall), None);
    }

    proptest::proptest! {
        #[test]
        fn no_body_makes_the_decoder_panic(body: Vec<u8>) {
            let _ = decode(&body);
        }

        #[test]
        fn no_text_inside_a_document_makes_the_decoder_panic(text: String) {
            let _ = decode(format!("{{\"Events\":[{{\"EventId\":\"{text}\",\"NotBefore\":\"{text}\",\"Resources\":[\"{text}\"]}}]}}").as_bytes());
        }
    }
}
