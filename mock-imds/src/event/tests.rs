//! What becomes of an event that was asked for.

use std::time::Duration;

use jiff::Timestamp;

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn published(spec: &EventSpec) -> Event {
    spec.publish(EventId("e".to_owned()), "g".to_owned(), at(0), 1.0)
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[test]
fn what_comes_next_and_when() {
    let spec = || EventSpec::redeploy("a").notice(seconds(600)).started_for(seconds(60));
    let approved = |spec: EventSpec, second| Event { approved: Some(at(second)), ..published(&spec) };
    let in_phase = |spec: EventSpec, phase, second| {
        let mut event = published(&spec);
        event.enter(phase, at(second));
        event
    };
    let started = |second| Some((at(second), Phase::Started));
    let cases = [
        ("unapproved: starts at NotBefore", published(&spec()), started(600)),
        ("unapproved and late: starts after NotBefore", published(&spec().late(seconds(30))), started(630)),
        ("to be started by hand: does not start", published(&spec().until_started()), None),
        ("approved: starts at once", approved(spec(), 20), started(20)),
        ("approved, others agree later", approved(spec().other_tenants(seconds(90)), 20), started(110)),
        ("approved, others never agree in time", approved(spec().other_tenants(seconds(900)), 20), started(600)),
        ("approved, by hand: starts all the same", approved(spec().until_started(), 20), started(20)),
        ("started: vanishes", in_phase(spec(), Phase::Started, 600), Some((at(660), Phase::Finished))),
        ("started until finished: stays", in_phase(spec().until_finished(), Phase::Started, 600), None),
        ("a hardware failure vanishes", published(&spec().started()), Some((at(60), Phase::Finished))),
        ("finished: nothing", in_phase(spec(), Phase::Finished, 700), None),
        ("cancelled: nothing", in_phase(spec(), Phase::Cancelled, 100), None),
        ("degraded hardware: days ahead", published(&spec().notice(seconds(6 * 86_400))), started(6 * 86_400)),
    ];
    for (case, event, expected) in cases {
        assert_eq!(event.next_phase(std::iter::empty()), expected, "{case}");
    }
}

#[test]
fn an_approved_deletion_waits_for_the_rest_of_it() {
    let spec = EventSpec::terminate("a").notice(seconds(300)).deletion("scale-in");
    let mine = Event { approved: Some(at(10)), ..published(&spec) };
    let other = published(&spec);
    let in_phase = |phase, second| {
        let mut event = other.clone();
        event.enter(phase, at(second));
        event
    };
    let cases = [
        ("pending: waits until both time out", other.clone(), 300),
        ("approved later", Event { approved: Some(at(40)), ..other.clone() }, 40),
        ("approved before", Event { approved: Some(at(5)), ..other.clone() }, 10),
        ("other started before", in_phase(Phase::Started, 5), 10),
        ("other timed out earlier", Event { not_before: at(60), ..other.clone() }, 60),
    ];
    for (case, other, expected) in cases {
        assert_eq!(mine.next_phase([&other].into_iter()), Some((at(expected), Phase::Started)), "{case}");
    }
}

#[test]
fn speed_shortens_every_phase_and_keeps_not_before_true() {
    let spec = EventSpec::redeploy("a").notice(seconds(600)).started_for(seconds(600));
    let mut event = spec.publish(EventId("e".to_owned()), "g".to_owned(), at(0), 60.0);
    assert_eq!(event.not_before, at(10));
    assert_eq!(event.next_phase(std::iter::empty()), Some((at(10), Phase::Started)));
    event.enter(Phase::Started, at(10));
    assert_eq!(event.next_phase(std::iter::empty()), Some((at(20), Phase::Finished)));
}

#[test]
fn what_is_not_said_is_as_azure_usually_has_it() {
    let maintenance = "Host server is undergoing maintenance.";
    let repair = "Host server is undergoing an emergency repair.";
    let restart = "Virtual machine is going to be restarted as requested by authorized user.";
    for (spec, notice, source, duration, description) in [
        (EventSpec::freeze("a"), 900, "Platform", 5, maintenance),
        (EventSpec::reboot("a"), 900, "Platform", -1, maintenance),
        (EventSpec::reboot("a").source(EventSource::User), 900, "User", -1, restart),
        (EventSpec::redeploy("a"), 600, "Platform", -1, repair),
        (EventSpec::preempt("a"), 30, "Platform", -1, ""),
        (EventSpec::terminate("a"), 300, "User", -1, ""),
    ] {
        let entry = published(&spec).entry();
        assert_eq!(
            (entry.not_before, entry.source, entry.duration_in_seconds, entry.description.as_str()),
            (Some(at(notice)), source, duration, description),
            "{}",
            entry.kind
        );
    }
}

#[test]
fn not_before_is_empty_once_started() {
    let mut event = published(&EventSpec::reboot("a"));
    assert_eq!(event.entry().not_before, Some(at(900)));
    event.enter(Phase::Started, at(900));
    assert_eq!(event.entry().not_before, None);
}

#[test]
fn a_change_that_contradicts_itself_is_refused() {
    let change = |json: &str| serde_json::from_str::<EventChange>(json).unwrap().contradiction();
    assert!(change(r#"{"status":"Finished"}"#).is_some());
    assert!(change(r#"{"notBefore":"2026-04-29T18:00:00Z","notice":"5m"}"#).is_some());
    assert!(change(r#"{"status":"Started","description":"x"}"#).is_none());
}
