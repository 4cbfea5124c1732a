//! Each fault, as a client meets it, in process and on the wire.

mod support;

use std::time::Duration;

use mock_imds::{Endpoint, EventSpec, FaultKind, FaultSpec};
use serde_json::{Value, json};
use support::{EVENTS, VM, document, get, mock, raw, single};
use tokio::time::{advance, timeout};

const REQUEST: &str = "GET /metadata/scheduledevents?api-version=2020-07-01 HTTP/1.1\r\nHost: a\r\nMetadata: true\r\nConnection: close\r\n\r\n";

#[tokio::test(start_paused = true)]
async fn a_script_of_bad_answers_is_given_in_its_order_and_then_the_real_one() {
    let mock = single();
    mock.inject(EventSpec::reboot(VM).started()).unwrap();
    mock.fault(FaultSpec::new(FaultKind::EmptyBody).requests(2)).unwrap();
    let busy = r#"{"error":"Too Many Requests"}"#;
    mock.fault(FaultSpec::status(429).header("Retry-After", "7").body(busy).requests(1)).unwrap();
    mock.fault(FaultSpec::status(429).body("Throttle Result: Too Many Requests").requests(1)).unwrap();
    mock.fault(FaultSpec::status(410).requests(1)).unwrap();
    mock.fault(FaultSpec::new(FaultKind::HtmlBody).requests(1)).unwrap();
    let json = "application/json; charset=utf-8";
    let text = "text/plain; charset=utf-8";
    for (status, body, kind, retry_after) in [
        (200, "", json, None),
        (200, "", json, None),
        (429, busy, json, Some("7")),
        (429, "Throttle Result: Too Many Requests", text, None),
        (410, "", text, None),
        (200, "<html><body>busy</body></html>", "text/html", None),
    ] {
        let answer = get(&mock, EVENTS).await;
        assert_eq!((answer.status, answer.text()), (status, body));
        assert_eq!(answer.headers["content-type"], kind);
        assert_eq!(answer.headers.get("retry-after").map(String::as_str), retry_after);
        advance(Duration::from_millis(200)).await;
    }
    assert_eq!(document(&mock).await["Events"][0]["EventStatus"], "Started");
    assert_eq!(mock.log()[2].faults.len(), 1);
    assert!(mock.faults().is_empty());
}

#[tokio::test(start_paused = true)]
async fn latency_delays_the_answer_and_the_answer_is_that_of_its_own_time() {
    let mock = single();
    mock.fault(FaultSpec::new(FaultKind::Latency(Duration::from_secs(4).into())).requests(1)).unwrap();
    mock.inject(EventSpec::preempt(VM).notice(Duration::from_secs(2))).unwrap();
    let before = mock.now();
    assert_eq!(document(&mock).await["Events"][0]["EventStatus"], "Started");
    assert_eq!(mock.now().duration_since(before).as_secs(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_hanging_request_is_in_the_log_without_an_answer() {
    let mock = single();
    mock.fault(FaultSpec::new(FaultKind::Hang).requests(1)).unwrap();
    assert!(timeout(Duration::from_hours(1), get(&mock, EVENTS)).await.is_err());
    assert_eq!(mock.log()[0].status, None);
    assert_eq!(get(&mock, EVENTS).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_window_of_gone_ends_by_itself() {
    let mock = single();
    mock.fault(FaultSpec::status(410).lasting(Duration::from_secs(70))).unwrap();
    for (wait, status) in [(0, 410), (69, 410), (1, 200)] {
        advance(Duration::from_secs(wait)).await;
        assert_eq!(get(&mock, EVENTS).await.status, status);
    }
}

#[tokio::test(start_paused = true)]
async fn a_fault_that_lasts_is_cleared() {
    let mock = single();
    let id = mock.fault(FaultSpec::status(500).at([Endpoint::Versions])).unwrap();
    assert_eq!(get(&mock, "/metadata/versions").await.status, 500);
    assert_eq!(get(&mock, EVENTS).await.status, 200);
    mock.clear(id);
    assert_eq!(get(&mock, "/metadata/versions").await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_slow_first_call_comes_back_when_it_is_asked_for() {
    let mock = single();
    mock.inject(EventSpec::reboot(VM)).unwrap();
    assert_eq!(document(&mock).await["DocumentIncarnation"], 2);
    mock.fault(FaultKind::SlowFirstCall(Duration::from_secs(110).into())).unwrap();
    for waited in [110, 0] {
        let before = mock.now();
        assert_eq!(document(&mock).await["DocumentIncarnation"], 2);
        assert_eq!(mock.now().duration_since(before).as_secs(), waited);
    }
}

#[tokio::test(start_paused = true)]
async fn incarnations_are_skipped_without_a_change() {
    let mock = single();
    assert_eq!(document(&mock).await["DocumentIncarnation"], 1);
    mock.fault(FaultSpec::new(FaultKind::SkippedIncarnations(2)).requests(1)).unwrap();
    assert_eq!(document(&mock).await, json!({ "DocumentIncarnation": 3, "Events": [] }));
    assert_eq!(document(&mock).await["DocumentIncarnation"], 3);
}

#[tokio::test(start_paused = true)]
async fn odd_entries_stand_before_the_real_ones() {
    let mock = single();
    let id = mock.inject(EventSpec::reboot(VM)).unwrap();
    mock.fault(FaultKind::OddEntries).unwrap();
    mock.fault(FaultKind::OddFields).unwrap();
    let document = document(&mock).await;
    let events = document["Events"].as_array().unwrap();
    assert_eq!(document["DocumentIncarnation"], "2");
    assert_eq!(events[0]["EventType"], "SpotRebalanceRecommendation");
    assert_eq!(events[0]["Resources"], json!([VM]));
    assert_eq!((events[1].get("EventType"), events[2].get("EventId")), (None, None));
    assert_eq!(events[3]["Resources"], Value::Null);
    assert_eq!(events[4]["EventId"], id.as_str());
    assert_eq!((&events[4]["DurationInSeconds"], &events[4]["Foo"]), (&json!("-1"), &json!({ "a": [1] })));
}

#[tokio::test(start_paused = true)]
async fn the_other_document_faults_reach_the_client() {
    for (fault, expected) in [
        (FaultKind::EventsNull, r#""Events":null"#),
        (FaultKind::WrongWeekday, r#""NotBefore":"Fri, 29 Apr 2026 18:15:00 GMT""#),
        (FaultKind::IsoNotBefore, r#""NotBefore":"2026-04-29T18:15:00Z""#),
        (FaultKind::OtherIdCase, r#""EventId":"c7061bac-afdc-4513-b24b-aa5f13a16123""#),
        (FaultKind::MissingFields, r#""NotBefore":"Wed, 29 Apr 2026 18:15:00 GMT"}]"#),
        (FaultKind::ControlCharacters, "\"Description\":\"\u{1}\t"),
    ] {
        let mock = single();
        mock.inject(EventSpec::reboot(VM).id("C7061BAC-AFDC-4513-B24B-AA5F13A16123")).unwrap();
        mock.fault(fault).unwrap();
        let answer = get(&mock, EVENTS).await;
        assert!(answer.text().contains(expected), "{}", answer.text());
    }
}

#[tokio::test]
async fn a_cut_connection_is_closed_without_a_byte() {
    let mock = single();
    mock.fault(FaultSpec::new(FaultKind::Cut).requests(2)).unwrap();
    assert!(get(&mock, EVENTS).await.body.is_err());
    let server = mock.serve_on_loopback().await.unwrap();
    assert_eq!(raw(server.address(), REQUEST).await, b"");
    assert_eq!(mock.log()[1].status, None);
    server.stop().await;
}

#[tokio::test]
async fn a_truncated_body_is_shorter_than_announced() {
    let mock = single();
    mock.fault(FaultSpec::new(FaultKind::TruncatedBody).requests(2)).unwrap();
    assert!(get(&mock, EVENTS).await.body.is_err());
    let server = mock.serve_on_loopback().await.unwrap();
    let answer = String::from_utf8(raw(server.address(), REQUEST).await).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("\r\ncontent-length: 37"), "{head}");
    assert_eq!(body, r#"{"DocumentIncarnat"#);
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_stops_although_a_request_hangs() {
    let mock = single();
    mock.fault(FaultKind::Hang).unwrap();
    let server = mock.serve_on_loopback().await.unwrap();
    let address = server.address();
    let hanging = tokio::spawn(async move { raw(address, REQUEST).await });
    while mock.log().is_empty() {
        tokio::task::yield_now().await;
    }
    timeout(Duration::from_secs(10), server.stop()).await.unwrap();
    hanging.abort();
}

#[tokio::test(start_paused = true)]
async fn faults_are_for_the_vms_that_they_name() {
    let mock = mock(mock_imds::Scenario::new(["a", "b"].map(mock_imds::Vm::new)));
    mock.fault(FaultSpec::status(503).vm("b")).unwrap();
    assert_eq!(get(&mock, &format!("/vm/a{EVENTS}")).await.status, 200);
    assert_eq!(get(&mock, &format!("/vm/b{EVENTS}")).await.status, 503);
    let unknown = mock.fault(FaultSpec::status(503).vm("c")).unwrap_err();
    assert_eq!(unknown.to_string(), "there is no VM `c`; give one of a, b");
}
