//! The compatibility mode's peculiarities.

#![allow(clippy::unwrap_used, reason = "what cannot go on fails its test")]

mod support;

use std::time::Duration;

use mock_imds::{Compatibility, TokioClock};
use serde_json::Value;
use support::{Answer, call};
use tokio::time::advance;

const EVENTS: &str = "/metadata/scheduledevents";

fn compatibility() -> Compatibility {
    Compatibility::new(TokioClock::starting_at(support::start()))
}

async fn get(mock: &Compatibility) -> Answer {
    call(mock.router(), "GET", EVENTS, &[], "").await
}

async fn post(mock: &Compatibility, path: &str, body: &str) -> Answer {
    call(mock.router(), "POST", path, &[], body).await
}

fn id(answer: &Answer) -> String {
    answer.json()["Events"][0]["EventId"].as_str().unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn without_an_event_a_get_is_empty_and_a_post_is_refused() {
    let mock = compatibility();
    let empty = r#"{"DocumentIncarnation":1,"Events":[]}"#;
    let answer = get(&mock).await;
    assert_eq!((answer.status, answer.text()), (200, empty));
    let answer = post(&mock, EVENTS, r#"{"StartRequests":[{"EventId":"x"}]}"#).await;
    assert_eq!((answer.status, answer.text()), (400, empty));
    let answer = post(&mock, EVENTS, "{").await;
    assert_eq!((answer.status, answer.text()), (400, r#"{"error":"Invalid JSON"}"#));
}

#[tokio::test(start_paused = true)]
async fn an_event_is_generated_with_its_keys_in_order() {
    let mock = compatibility();
    let answer = post(&mock, "/generate-event", "event_status=Scheduled&resources=vm_1%2C+vm_2").await;
    assert_eq!((answer.status, answer.headers["location"].as_str()), (302, "/"));
    let answer = get(&mock).await;
    let expected = format!(
        "{{\"DocumentIncarnation\":2,\"Events\":[{{\"Description\":\"Virtual machine is being paused because of a \
         memory-preserving Live Migration operation.\",\"DurationInSeconds\":5,\"EventId\":\"{}\",\
         \"EventSource\":\"Platform\",\"EventStatus\":\"Scheduled\",\"EventType\":\"Freeze\",\
         \"NotBefore\":\"2026-04-29T18:15:00Z\",\"ResourceType\":\"VirtualMachine\",\"Resources\":[\"vm_1\",\"vm_2\"]}}]}}",
        id(&answer)
    );
    assert_eq!(answer.text(), expected);
}

#[tokio::test(start_paused = true)]
async fn each_approval_is_answered_with_the_next_document_under_a_new_id() {
    let mock = compatibility();
    post(&mock, "/generate-event", "event_status=Scheduled").await;
    let scheduled = get(&mock).await;
    assert_eq!(scheduled.json()["Events"][0]["Resources"], serde_json::json!(["vmss_vm1"]));
    let unknown = post(&mock, EVENTS, r#"{"StartRequests":[{"EventId":"x"}]}"#).await;
    assert_eq!((unknown.status, unknown.text()), (200, scheduled.text()));
    let second = format!(r#"{{"StartRequests":[{{"EventId":"x"}},{{"EventId":"{}"}}]}}"#, id(&scheduled));
    assert_eq!(post(&mock, EVENTS, &second).await.text(), scheduled.text());
    let approve = |answer: &Answer| format!(r#"{{"StartRequests":[{{"EventId":"{}"}}]}}"#, id(answer));
    let started = post(&mock, EVENTS, &approve(&scheduled)).await;
    assert_eq!((started.status, &started.json()["Events"][0]["EventStatus"]), (200, &Value::from("Started")));
    assert_ne!(id(&started), id(&scheduled));
    let completed = post(&mock, EVENTS, &approve(&started)).await;
    assert_eq!(completed.text(), r#"{"DocumentIncarnation":4,"Events":[]}"#);
}

#[tokio::test(start_paused = true)]
async fn every_scenario_runs_by_itself_at_both_timings() {
    for (name, scheduled, started) in [
        ("Live Migration", 15, Some(5)),
        ("User Reboot", 15, Some(10)),
        ("Host Agent Maintenance", 15, Some(10)),
        ("Redeploy", 15, Some(10)),
        ("User Redeploy", 15, Some(10)),
        ("Canceled Maintenance", 8, None),
    ] {
        for (suffix, unit) in [("", 60), (" - Dev Timing", 1)] {
            let mock = compatibility();
            post(&mock, "/set-scenario", &format!("scenario={name}{suffix}")).await;
            assert_eq!(post(&mock, "/auto-run-scenario", "").await.status, 302);
            let not_before = get(&mock).await.json()["Events"][0]["NotBefore"].clone();
            assert_eq!(not_before, "2026-04-29T18:15:00Z", "{name}{suffix}");
            advance(Duration::from_secs(scheduled * unit - 1)).await;
            assert_eq!(get(&mock).await.json()["Events"][0]["EventStatus"], "Scheduled", "{name}{suffix}");
            advance(Duration::from_secs(1)).await;
            if let Some(started) = started {
                assert_eq!(get(&mock).await.json()["Events"][0]["EventStatus"], "Started", "{name}{suffix}");
                advance(Duration::from_secs(started * unit)).await;
            }
            let changes = if started.is_some() { 3 } else { 2 };
            let end = serde_json::json!({ "DocumentIncarnation": 1 + changes, "Events": [] });
            assert_eq!(get(&mock).await.json(), end, "{name}{suffix}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stopped_run_stays_where_it_is() {
    let mock = compatibility();
    post(&mock, "/auto-run-scenario", "").await;
    post(&mock, "/stop-auto-run", "").await;
    advance(Duration::from_hours(1)).await;
    assert_eq!(get(&mock).await.json()["Events"][0]["EventStatus"], "Scheduled");
}

#[tokio::test(start_paused = true)]
async fn control_requests_are_redirected_even_if_they_are_wrong() {
    let mock = compatibility();
    for (path, body) in
        [("/set-scenario", "scenario=x"), ("/generate-event", "event_status=x"), ("/generate-event", "")]
    {
        assert_eq!(post(&mock, path, body).await.status, 302, "{path} {body}");
    }
    assert_eq!(get(&mock).await.text(), r#"{"DocumentIncarnation":1,"Events":[]}"#);
    assert_eq!(call(mock.router(), "GET", "/", &[], "").await.status, 200);
}
