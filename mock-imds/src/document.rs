//! The scheduled events document: what each api-version shows of it, byte for byte, and how a fault spoils it.
//!
//! Versions and fields: <https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events>.

use jiff::{Timestamp, fmt::rfc2822::DateTimePrinter};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    clock::later,
    event::{Entry, EventType},
    fault::FaultKind,
};

/// An api-version of `/metadata/scheduledevents`, oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Version {
    /// The preview: an underscore before each resource name; the `Metadata` header was not required yet.
    Preview,
    /// The names lose their underscore.
    V20170801,
    /// Adds `Preempt`.
    V20171101,
    /// Adds `Terminate`.
    V20190101,
    /// Adds `Description`.
    V20190401,
    /// Adds `EventSource`.
    V20190801,
    /// Adds `DurationInSeconds`.
    V20200701,
}

impl Version {
    const ALL: [(&'static str, Self); 7] = [
        ("2017-03-01", Self::Preview),
        ("2017-08-01", Self::V20170801),
        ("2017-11-01", Self::V20171101),
        ("2019-01-01", Self::V20190101),
        ("2019-04-01", Self::V20190401),
        ("2019-08-01", Self::V20190801),
        ("2020-07-01", Self::V20200701),
    ];

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find_map(|(name, version)| (name == text).then_some(version))
    }

    /// The names of all versions, oldest first.
    pub(crate) fn names() -> impl DoubleEndedIterator<Item = &'static str> {
        Self::ALL.into_iter().map(|(name, _)| name)
    }

    pub(crate) fn knows(self, kind: &EventType) -> bool {
        match kind {
            EventType::Preempt => self >= Self::V20171101,
            EventType::Terminate => self >= Self::V20190101,
            EventType::Freeze | EventType::Reboot | EventType::Redeploy | EventType::Other(_) => true,
        }
    }
}

/// The fields in the order in which Azure writes them.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Item<'a> {
    event_id: String,
    event_status: &'a str,
    event_type: &'a str,
    resource_type: &'a str,
    resources: Vec<String>,
    not_before: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event_source: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_in_seconds: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    foo: Option<Value>,
}

/// A time as Azure writes it: `Mon, 19 Sep 2016 18:29:47 GMT`.
pub(crate) fn http_date(time: Timestamp) -> String {
    DateTimePrinter::new().timestamp_to_rfc9110_string(&time).unwrap_or_else(|_| time.to_string())
}

/// The document as `version` shows it to `vm`, spoilt by those of the faults that spoil documents.
pub(crate) fn render(incarnation: u64, entries: &[Entry], version: Version, faults: &[FaultKind], vm: &str) -> String {
    let has = |fault: &FaultKind| faults.contains(fault);
    let mut items: Vec<String> = entries
        .iter()
        .filter(|entry| version.knows(&entry.kind))
        .map(|entry| to_json(&item(entry, version, faults)))
        .collect();
    if has(&FaultKind::OddEntries) {
        items.splice(0..0, odd_entries(vm));
    }
    let incarnation = if has(&FaultKind::OddFields) { format!("\"{incarnation}\"") } else { incarnation.to_string() };
    let events = if has(&FaultKind::EventsNull) { "null".to_owned() } else { format!("[{}]", items.join(",")) };
    let document = format!(r#"{{"DocumentIncarnation":{incarnation},"Events":{events}}}"#);
    if !has(&FaultKind::ControlCharacters) {
        return document;
    }
    // Inside a JSON string a control character must be escaped (RFC 8259, section 7); here it is not.
    let (marker, spoilt) = ("\"Description\":\"", "\"Description\":\"\u{1}\t");
    if document.contains(marker) {
        document.replace(marker, spoilt)
    } else {
        document.replacen('{', "{\"Note\":\"\u{1}\t\",", 1)
    }
}

fn item<'a>(entry: &'a Entry, version: Version, faults: &[FaultKind]) -> Item<'a> {
    let has = |fault: &FaultKind| faults.contains(fault);
    let shows = |since: Version| version >= since && !has(&FaultKind::MissingFields);
    let not_before = entry.not_before.map_or_else(String::new, |time| {
        if has(&FaultKind::IsoNotBefore) {
            time.to_string()
        } else if has(&FaultKind::WrongWeekday) {
            with_weekday_of(time, later(time, std::time::Duration::from_hours(48)))
        } else {
            http_date(time)
        }
    });
    let prefix = if version == Version::Preview { "_" } else { "" };
    let odd = has(&FaultKind::OddFields);
    let duration = if odd { json!(entry.duration_in_seconds.to_string()) } else { json!(entry.duration_in_seconds) };
    Item {
        event_id: if has(&FaultKind::OtherIdCase) { swap_case(&entry.id) } else { entry.id.clone() },
        event_status: entry.status,
        event_type: entry.kind.as_str(),
        resource_type: "VirtualMachine",
        resources: entry.resources.iter().map(|name| format!("{prefix}{name}")).collect(),
        not_before,
        description: shows(Version::V20190401).then_some(&entry.description),
        event_source: shows(Version::V20190801).then_some(entry.source),
        duration_in_seconds: shows(Version::V20200701).then_some(duration),
        foo: odd.then(|| json!({"a": [1]})),
    }
}

/// Entries that a client has to live with: of an unknown type, without a type, without an id, without resources.
fn odd_entries(vm: &str) -> [String; 4] {
    let entry = |fields: &str| {
        format!(r#"{{{fields},"EventStatus":"Scheduled","ResourceType":"VirtualMachine","NotBefore":""}}"#)
    };
    let vm = to_json(&[vm]);
    [
        entry(&format!(
            r#""EventId":"0DD00000-0000-4000-8000-000000000001","EventType":"SpotRebalanceRecommendation","Resources":{vm}"#
        )),
        entry(&format!(r#""EventId":"0DD00000-0000-4000-8000-000000000002","Resources":{vm}"#)),
        entry(&format!(r#""EventType":"Reboot","Resources":{vm}"#)),
        entry(r#""EventId":"0DD00000-0000-4000-8000-000000000004","EventType":"Reboot","Resources":null"#),
    ]
}

/// JSON without spaces. Strings, numbers and lists of them can always be written.
fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

fn with_weekday_of(time: Timestamp, other: Timestamp) -> String {
    let (right, wrong) = (http_date(time), http_date(other));
    match (right.split_once(", "), wrong.split_once(", ")) {
        (Some((_, date)), Some((weekday, _))) => format!("{weekday}, {date}"),
        _ => right,
    }
}

fn swap_case(text: &str) -> String {
    if text.contains(|c: char| c.is_ascii_lowercase()) { text.to_ascii_uppercase() } else { text.to_ascii_lowercase() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(kind: EventType) -> Entry {
        Entry {
            id: "C7061BAC-AFDC-4513-B24B-AA5F13A16123".to_owned(),
            status: "Scheduled",
            kind,
            resources: vec!["WestNO_0".to_owned(), "WestNO_1".to_owned()],
            not_before: Some("2026-04-11T22:26:58Z".parse().unwrap()),
            description: "Virtual machine is being paused because of a memory-preserving Live Migration operation."
                .to_owned(),
            source: "Platform",
            duration_in_seconds: 5,
        }
    }

    fn rendered(version: Version, faults: &[FaultKind]) -> String {
        render(2, &[entry(EventType::Freeze)], version, faults, "WestNO_0")
    }

    #[test]
    fn the_document_is_written_as_azure_writes_it_with_the_right_weekday() {
        assert_eq!(
            rendered(Version::V20200701, &[]),
            concat!(
                r#"{"DocumentIncarnation":2,"Events":[{"EventId":"C7061BAC-AFDC-4513-B24B-AA5F13A16123","#,
                r#""EventStatus":"Scheduled","EventType":"Freeze","ResourceType":"VirtualMachine","#,
                r#""Resources":["WestNO_0","WestNO_1"],"NotBefore":"Sat, 11 Apr 2026 22:26:58 GMT","#,
                r#""Description":"Virtual machine is being paused because of a memory-preserving Live Migration operation.","#,
                r#""EventSource":"Platform","DurationInSeconds":5}]}"#
            )
        );
        assert_eq!(render(1, &[], Version::V20200701, &[], "a"), r#"{"DocumentIncarnation":1,"Events":[]}"#);
    }

    #[test]
    fn each_version_shows_the_fields_and_types_of_its_time() {
        let kinds = [EventType::Freeze, EventType::Preempt, EventType::Terminate].map(entry);
        for (version, types, fields) in [
            ("2017-03-01", 1, 6),
            ("2017-08-01", 1, 6),
            ("2017-11-01", 2, 6),
            ("2019-01-01", 3, 6),
            ("2019-04-01", 3, 7),
            ("2019-08-01", 3, 8),
            ("2020-07-01", 3, 9),
        ] {
            let text = render(2, &kinds, Version::parse(version).unwrap(), &[], "a");
            let document: Value = serde_json::from_str(&text).unwrap();
            let events = document["Events"].as_array().unwrap();
            assert_eq!(events.len(), types, "{version}");
            assert_eq!(events[0].as_object().unwrap().len(), fields, "{version}");
            let first = events[0]["Resources"][0].as_str().unwrap();
            assert_eq!(first.starts_with('_'), version == "2017-03-01", "{version}");
        }
        for unknown in ["latest", "", "2020-07-02", "2024-07-17"] {
            assert_eq!(Version::parse(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn each_fault_of_the_document_spoils_what_it_names() {
        for (fault, sign) in [
            (FaultKind::WrongWeekday, r#""NotBefore":"Mon, 11 Apr 2026 22:26:58 GMT""#),
            (FaultKind::IsoNotBefore, r#""NotBefore":"2026-04-11T22:26:58Z""#),
            (FaultKind::OtherIdCase, r#""EventId":"c7061bac-afdc-4513-b24b-aa5f13a16123""#),
            (FaultKind::EventsNull, r#"{"DocumentIncarnation":2,"Events":null}"#),
            (FaultKind::OddFields, r#"{"DocumentIncarnation":"2","#),
            (FaultKind::OddFields, r#""DurationInSeconds":"5","Foo":{"a":[1]}}"#),
            (FaultKind::OddEntries, r#""EventType":"SpotRebalanceRecommendation","Resources":["WestNO_0"]"#),
            (FaultKind::OddEntries, r#""Resources":null"#),
            (FaultKind::MissingFields, r#""NotBefore":"Sat, 11 Apr 2026 22:26:58 GMT"}]}"#),
            (FaultKind::ControlCharacters, "\"Description\":\"\u{1}\tVirtual"),
        ] {
            let sound = rendered(Version::V20200701, &[]);
            assert!(!sound.contains(sign), "{fault:?}");
            let text = rendered(Version::V20200701, std::slice::from_ref(&fault));
            assert!(text.contains(sign), "{fault:?}: {text}");
        }
    }

    #[test]
    fn control_characters_make_any_document_unreadable_and_the_other_faults_none() {
        for entries in [vec![], vec![entry(EventType::Reboot)]] {
            let spoilt = render(2, &entries, Version::V20200701, &[FaultKind::ControlCharacters], "a");
            assert!(serde_json::from_str::<Value>(&spoilt).is_err(), "{spoilt}");
            let odd = [FaultKind::OddEntries, FaultKind::OddFields, FaultKind::IsoNotBefore, FaultKind::MissingFields];
            serde_json::from_str::<Value>(&render(2, &entries, Version::V20200701, &odd, "a")).unwrap();
        }
    }
}
