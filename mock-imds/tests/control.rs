//! The control API.

mod support;

use mock_imds::{EventSpec, Mock, Phase};
use serde_json::{Value, json};
use support::{EVENTS, VM, call, document, get, single};

async fn ask(mock: &Mock, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let answer = call(mock.router(), method, path, &[], &body).await;
    assert_eq!(answer.headers["content-type"], "application/json; charset=utf-8", "{method} {path}");
    (answer.status, answer.json())
}

#[tokio::test(start_paused = true)]
async fn an_event_is_injected_changed_started_and_finished() {
    let mock = single();
    let spec = json!({ "name": "x", "type": "Redeploy", "vms": [VM], "notice": "10m", "startedFor": "forever" });
    let (status, event) = ask(&mock, "POST", "/mock/events", &spec).await;
    assert_eq!(
        (status, &event["phase"], &event["notBefore"]),
        (201, &json!("Scheduled"), &json!("2026-04-29T18:10:00Z"))
    );
    let id = event["id"].as_str().unwrap().to_owned();
    let (status, event) = ask(&mock, "PATCH", &format!("/mock/events/{id}"), &json!({ "notice": "5m" })).await;
    assert_eq!((status, &event["notBefore"]), (200, &json!("2026-04-29T18:05:00Z")));
    assert_eq!(document(&mock).await["Events"][0]["NotBefore"], "Wed, 29 Apr 2026 18:05:00 GMT");
    for (path, phase) in [("start", "Started"), ("approve", "Started"), ("finish", "Finished")] {
        let (status, event) = ask(&mock, "POST", &format!("/mock/events/x/{path}"), &Value::Null).await;
        assert_eq!((status, &event["phase"]), (200, &json!(phase)), "{path}");
    }
    let (_, events) = ask(&mock, "GET", "/mock/events", &Value::Null).await;
    assert_eq!(events.as_array().map(Vec::len), Some(1));
}

#[tokio::test(start_paused = true)]
async fn an_event_is_cancelled_in_two_ways() {
    let mock = single();
    for (method, suffix) in [("DELETE", ""), ("POST", "/cancel")] {
        let id = mock.inject(EventSpec::freeze(VM)).unwrap();
        let (status, event) = ask(&mock, method, &format!("/mock/events/{id}{suffix}"), &Value::Null).await;
        assert_eq!((status, &event["phase"]), (200, &json!("Cancelled")));
    }
}

#[tokio::test(start_paused = true)]
async fn a_patch_of_the_status_starts_an_event() {
    let mock = single();
    let id = mock.inject(EventSpec::freeze(VM)).unwrap();
    let (status, _) = ask(&mock, "PATCH", &format!("/mock/events/{id}"), &json!({ "status": "Started" })).await;
    assert_eq!((status, mock.event(&id).unwrap().phase), (200, Phase::Started));
    let (status, _) = ask(&mock, "PATCH", &format!("/mock/events/{id}"), &json!({ "status": "Scheduled" })).await;
    assert_eq!(status, 409);
}

#[tokio::test(start_paused = true)]
async fn faults_are_set_listed_and_cleared() {
    let mock = single();
    let fault = json!({ "name": "busy", "kind": { "status": { "code": 503 } }, "requests": 2 });
    assert_eq!(ask(&mock, "POST", "/mock/faults", &fault).await, (201, json!({ "id": 1 })));
    assert_eq!(ask(&mock, "POST", "/mock/faults", &json!({ "kind": "hang" })).await.0, 201);
    assert_eq!(get(&mock, EVENTS).await.status, 503);
    let (_, faults) = ask(&mock, "GET", "/mock/faults", &Value::Null).await;
    assert_eq!((&faults[0]["requestsLeft"], &faults[0]["hits"]), (&json!(1), &json!(1)));
    assert_eq!(ask(&mock, "DELETE", "/mock/faults/busy", &Value::Null).await.0, 200);
    assert_eq!(ask(&mock, "DELETE", "/mock/faults", &Value::Null).await, (200, json!([])));
    assert_eq!(get(&mock, EVENTS).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn state_and_log_show_what_happened() {
    let mock = single();
    let id = mock.inject(EventSpec::freeze(VM)).unwrap();
    get(&mock, EVENTS).await;
    let (_, state) = ask(&mock, "GET", "/mock/state", &Value::Null).await;
    assert_eq!((&state["now"], &state["incarnations"][VM]), (&json!("2026-04-29T18:00:00Z"), &json!(2)));
    assert_eq!(state["events"][0]["id"], id.as_str());
    let (_, log) = ask(&mock, "GET", "/mock/log", &Value::Null).await;
    assert_eq!((&log["counters"]["requests"], &log["requests"][0]["target"]), (&json!(1), &json!(EVENTS)));
    assert_eq!(log["changes"][0]["what"], "Scheduled");
    let (_, vms) = ask(&mock, "GET", "/mock/vms", &Value::Null).await;
    assert_eq!(vms[0]["name"], VM);
}

#[tokio::test(start_paused = true)]
async fn bad_input_is_told_what_is_wrong_with_it() {
    let mock = single();
    let started = mock.inject(EventSpec::hardware_failure(VM)).unwrap();
    let cancel = format!("/mock/events/{started}/cancel");
    for (method, path, body, status, message) in [
        ("POST", "/mock/events", "{", 400, "EOF while parsing"),
        ("POST", "/mock/events", r#"{"type":"Rebot","vms":["a"]}"#, 400, "unknown variant `Rebot`, expected one of"),
        (
            "POST",
            "/mock/events",
            r#"{"type":"Reboot","vms":["a"]}"#,
            400,
            "there is no VM `a`; give one of aks-np1-12345678-vmss_0",
        ),
        ("POST", "/mock/events", r#"{"type":"Reboot","vms":[]}"#, 400, "`vms` is empty"),
        ("POST", "/mock/events", r#"{"type":"Reboot","vms":["a"],"notise":"5m"}"#, 400, "unknown field `notise`"),
        ("POST", "/mock/events", r#"{"type":"Reboot","vms":["a"],"notice":"-5m"}"#, 400, "`-5m` is negative"),
        ("PATCH", "/mock/events/x", "{}", 404, "no event `x` is listed"),
        ("PATCH", "/mock/events/x", r#"{"status":"Finished"}"#, 400, "to end an event, finish or cancel it"),
        ("POST", "/mock/events/x/explode", "", 400, "cannot be told to `explode`; use approve, cancel"),
        ("POST", &cancel, "", 409, "is Started: only a Scheduled event can be cancelled"),
        ("POST", "/mock/faults", r#"{"kind":{"status":{"code":42}}}"#, 400, "42 is not an answer's HTTP status"),
        ("POST", "/mock/faults", r#"{"kind":"explode"}"#, 400, "unknown variant `explode`"),
        ("DELETE", "/mock/faults/7", "", 404, "no fault `7` is set"),
        ("PUT", "/mock/faults", "", 405, "does not have this method"),
        ("GET", "/mock/nothing", "", 404, "use /mock/state, vms, events, faults or log"),
    ] {
        let answer = call(mock.router(), method, path, &[], body).await;
        let error = answer.json()["error"].as_str().unwrap().to_owned();
        assert_eq!(answer.status, status, "{method} {path} {body}: {error}");
        assert!(error.contains(message), "{method} {path} {body}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_vm_of_its_own_port_does_not_see_the_control_api() {
    let mock = single();
    assert_eq!(call(mock.router_for(VM).unwrap(), "GET", "/mock/state", &support::METADATA, "").await.status, 404);
}
