//! What the metadata service answers, byte for byte.

mod support;

use std::{collections::BTreeMap, time::Duration};

use mock_imds::{EventSpec, Identity, Mock, Scenario, Settings, Vm};
use serde_json::json;
use support::{EVENTS, METADATA, VM, call, document, get, mock, post, raw, single};
use tokio::time::advance;

const JSON: &str = "application/json; charset=utf-8";
const BAD_VERSION: &str = "Bad request. api-version is invalid or was not specified in the request. For more \
                           information refer to aka.ms/azureimds";

/// Method, target, headers, status and body.
type Case<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)], u16, &'a str);

/// A VM that may ask as often as it likes.
fn unlimited() -> Mock {
    mock(Scenario::single(VM).settings(Settings { requests_per_second: 0, ..Settings::default() }))
}

#[tokio::test(start_paused = true)]
async fn requests_that_break_a_rule_are_refused_byte_for_byte() {
    let mock = unlimited();
    let no_header = r#"{ "error": "Bad request: . Required metadata header not specified" }"#;
    let events_version =
        format!(r#"{{"error":"{BAD_VERSION}","newest-versions":["2020-07-01","2019-08-01","2019-04-01"]}}"#);
    let instance_version =
        format!(r#"{{"error":"{BAD_VERSION}","newest-versions":["2025-04-07","2024-07-17","2024-03-15"]}}"#);
    let forwarded = [("Metadata", "true"), ("X-Forwarded-For", "10.0.0.1")];
    let cases: &[Case<'_>] = &[
        ("GET", EVENTS, &[], 400, no_header),
        ("GET", EVENTS, &[("Metadata", "True")], 400, no_header),
        ("GET", EVENTS, &[("Metadata", "")], 400, no_header),
        ("POST", EVENTS, &[], 400, no_header),
        ("GET", "/metadata/instance?api-version=2025-04-07", &[], 400, no_header),
        ("GET", "/metadata/versions", &[], 400, no_header),
        (
            "GET",
            "/metadata/identity/oauth2/token?api-version=2018-02-01&resource=x",
            &[],
            400,
            r#"{"error":"bad_request_102","error_description":"Required metadata header not specified"}"#,
        ),
        ("GET", EVENTS, &forwarded, 400, r#"{ "error": "Bad request: . X-Forwarded-For header is not allowed" }"#),
        (
            "GET",
            "/metadata/scheduledevents?api-version=2020-07-01&api-version=2020-07-01",
            &METADATA,
            400,
            r#"{ "error": "Bad request: . Query parameter 'api-version' was given more than once" }"#,
        ),
        ("GET", "/metadata/scheduledevents", &METADATA, 400, &events_version),
        ("GET", "/metadata/scheduledevents?api-version=latest", &METADATA, 400, &events_version),
        ("POST", "/metadata/scheduledevents?api-version=2020", &METADATA, 400, &events_version),
        ("GET", "/metadata/instance", &METADATA, 400, &instance_version),
        ("GET", "/metadata/instance?api-version=2025-04-08", &METADATA, 400, &instance_version),
        ("GET", "/metadata/nothing?api-version=2025-04-07", &METADATA, 404, r#"{ "error": "Not found" }"#),
        ("GET", "/metadata/instances?api-version=2025-04-07", &METADATA, 404, r#"{ "error": "Not found" }"#),
        (
            "GET",
            "/metadata/instance/compute/nothing?api-version=2025-04-07&format=text",
            &METADATA,
            404,
            r#"{ "error": "Not found" }"#,
        ),
    ];
    for (method, target, headers, status, body) in cases {
        let answer = call(mock.router(), method, target, headers, "").await;
        assert_eq!((answer.status, answer.text()), (*status, *body), "{method} {target} {headers:?}");
        let length = body.len().to_string();
        let expected: BTreeMap<String, String> = [
            ("content-length", length.as_str()),
            ("content-type", JSON),
            ("date", "Wed, 29 Apr 2026 18:00:00 GMT"),
            ("server", "IMDS/150.870.65.476"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
        assert_eq!(answer.headers, expected, "{method} {target}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_method_that_is_not_supported_is_answered_with_those_that_are() {
    let mock = unlimited();
    for (method, target, allow) in [
        ("PUT", EVENTS, "GET, POST"),
        ("DELETE", EVENTS, "GET, POST"),
        ("POST", "/metadata/instance?api-version=2025-04-07", "GET"),
        ("POST", "/metadata/versions", "GET"),
    ] {
        let answer = call(mock.router(), method, target, &METADATA, "").await;
        assert_eq!((answer.status, answer.headers["allow"].as_str()), (405, allow), "{method} {target}");
    }
}

#[tokio::test(start_paused = true)]
async fn head_and_the_root_are_answered_by_the_front_end() {
    let mock = unlimited();
    for (method, target, length) in [("HEAD", EVENTS, 0), ("HEAD", "/", 0), ("GET", "/", 323)] {
        let answer = call(mock.router(), method, target, &METADATA, "").await;
        assert_eq!((answer.status, answer.text().len()), (400, length), "{method} {target}");
        assert_eq!(answer.headers["content-type"], "text/xml; charset=utf-8");
        assert_eq!(answer.headers["server"], "Microsoft-IIS/10.0");
    }
}

#[tokio::test]
async fn on_the_wire_head_has_the_length_of_the_page_and_no_body() {
    let server = single().serve_on_loopback().await.unwrap();
    let request = "HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let answer = String::from_utf8(raw(server.address(), request).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{answer}");
    assert!(answer.contains("\r\ncontent-length: 323\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\n"), "{answer}");
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_preview_wants_no_header_and_names_vms_with_an_underscore() {
    let mock = single();
    mock.inject(EventSpec::reboot(VM)).unwrap();
    let answer = call(mock.router(), "GET", "/metadata/scheduledevents?api-version=2017-03-01", &[], "").await;
    assert_eq!(answer.json()["Events"][0]["Resources"], json!([format!("_{VM}")]));
}

#[tokio::test(start_paused = true)]
async fn an_idle_vm_has_an_empty_document() {
    let answer = get(&single(), EVENTS).await;
    assert_eq!((answer.status, answer.text()), (200, r#"{"DocumentIncarnation":1,"Events":[]}"#));
    assert_eq!(answer.headers["content-type"], JSON);
}

#[tokio::test(start_paused = true)]
async fn an_event_is_scheduled_then_started_then_gone() {
    let mock = single();
    let spec = EventSpec::redeploy(VM).id("0000000A-0000-4000-8000-000000000000").notice(Duration::from_mins(10));
    mock.inject(spec.started_for(Duration::from_mins(10))).unwrap();
    let listed = |incarnation, status, not_before| {
        format!(
            "{{\"DocumentIncarnation\":{incarnation},\"Events\":[{{\"EventId\":\"0000000A-0000-4000-8000-000000000000\",\
             \"EventStatus\":\"{status}\",\"EventType\":\"Redeploy\",\"ResourceType\":\"VirtualMachine\",\
             \"Resources\":[\"aks-np1-12345678-vmss_0\"],\"NotBefore\":\"{not_before}\",\
             \"Description\":\"Host server is undergoing an emergency repair.\",\"EventSource\":\"Platform\",\
             \"DurationInSeconds\":-1}}]}}"
        )
    };
    for (wait, expected) in [
        (0, listed(2, "Scheduled", "Wed, 29 Apr 2026 18:10:00 GMT")),
        (599, listed(2, "Scheduled", "Wed, 29 Apr 2026 18:10:00 GMT")),
        (1, listed(3, "Started", "")),
        (599, listed(3, "Started", "")),
        (1, r#"{"DocumentIncarnation":4,"Events":[]}"#.to_owned()),
    ] {
        advance(Duration::from_secs(wait)).await;
        assert_eq!(get(&mock, EVENTS).await.text(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn every_form_of_approval_that_clients_send_is_taken() {
    let id = "C7061BAC-AFDC-4513-B24B-AA5F13A16123";
    let other = "D7061BAC-AFDC-4513-B24B-AA5F13A16123";
    for (content_type, body) in [
        (Some("application/json"), format!(r#"{{"StartRequests":[{{"EventId":"{id}"}}]}}"#)),
        (Some("application/json; charset=utf-8"), format!(r#"{{"StartRequests": [{{"EventId": "{id}"}}]}}"#)),
        (Some("application/x-www-form-urlencoded"), format!(r#"{{"StartRequests": [{{"EventId": "{id}"}}]}}"#)),
        (
            Some("text/plain"),
            format!("{{\n  \"StartRequests\": [\n    {{\n      \"EventId\": \"{id}\"\n    }}\n  ]\n}}\n"),
        ),
        (None, format!(r#"{{"StartRequests":[{{"EventId":"{}"}}]}}"#, id.to_lowercase())),
        (None, format!(r#"{{"StartRequests":[{{"EventId":"{other}"}},{{"EventId":"{id}"}}]}}"#)),
        (None, format!(r#"{{"DocumentIncarnation":2,"StartRequests":[{{"EventId":"{id}","Note":"x"}}]}}"#)),
    ] {
        let mock = single();
        for id in [id, other] {
            mock.inject(EventSpec::freeze(VM).id(id)).unwrap();
        }
        let mut headers = METADATA.to_vec();
        headers.extend(content_type.map(|kind| ("Content-Type", kind)));
        for repeated in [false, true] {
            let answer = call(mock.router(), "POST", EVENTS, &headers, &body).await;
            assert_eq!((answer.status, answer.text()), (200, ""), "{body}");
            assert!(!answer.headers.contains_key("content-type"));
            let approval = mock.approvals().pop().unwrap();
            assert_eq!((approval.event.as_str(), approval.repeated), (id, repeated), "{body}");
        }
        assert_eq!(mock.event(id).unwrap().phase, mock_imds::Phase::Started);
    }
}

#[tokio::test(start_paused = true)]
async fn an_approval_that_names_no_listed_event_is_refused_as_a_whole() {
    let mock = unlimited();
    let id = mock.inject(EventSpec::freeze(VM)).unwrap();
    let gone = mock.inject(EventSpec::reboot(VM)).unwrap();
    mock.finish(&gone).unwrap();
    let unknown = r#"{ "error": "Bad request: . EventId is not valid" }"#;
    let malformed =
        r#"{ "error": "Bad request: . The request body must be {\"StartRequests\":[{\"EventId\":\"...\"}]}" }"#;
    for (body, expected) in [
        (format!(r#"{{"StartRequests":[{{"EventId":"{id}"}},{{"EventId":"{gone}"}}]}}"#), unknown),
        (r#"{"StartRequests":[{"EventId":"C7061BAC-AFDC-4513-B24B-AA5F13A16123"}]}"#.to_owned(), unknown),
        (r#"{"StartRequests":[{"EventId":"x"}]}"#.to_owned(), unknown),
        (r#"{"StartRequests":[]}"#.to_owned(), malformed),
        (r#"{"StartRequests":[{}]}"#.to_owned(), malformed),
        (format!(r#"{{"StartRequests":{{"EventId":"{id}"}}}}"#), malformed),
        (format!("StartRequests={id}"), malformed),
        (String::new(), malformed),
    ] {
        let answer = post(&mock, EVENTS, &body).await;
        assert_eq!((answer.status, answer.text()), (400, expected), "{body}");
    }
    assert_eq!(mock.approvals(), []);
    assert_eq!(mock.event(&id).unwrap().phase, mock_imds::Phase::Scheduled);
}

#[tokio::test(start_paused = true)]
async fn a_version_that_does_not_show_an_event_cannot_approve_it() {
    let mock = single();
    let id = mock.inject(EventSpec::terminate(VM)).unwrap();
    let body = format!(r#"{{"StartRequests":[{{"EventId":"{id}"}}]}}"#);
    assert_eq!(post(&mock, "/metadata/scheduledevents?api-version=2017-11-01", &body).await.status, 400);
    assert_eq!(post(&mock, "/metadata/scheduledevents?api-version=2019-01-01", &body).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn vms_of_a_placement_group_share_a_document_and_others_do_not() {
    let mock = mock(Scenario::new([Vm::new("a").in_group("g"), Vm::new("b").in_group("g"), Vm::new("c")]));
    let id = mock.inject(EventSpec::freeze("a")).unwrap();
    let seen = async |vm| get(&mock, &format!("/vm/{vm}{EVENTS}")).await.text().to_owned();
    assert_eq!(seen("a").await, seen("b").await);
    assert!(seen("a").await.contains(id.as_str()));
    assert_eq!(seen("c").await, r#"{"DocumentIncarnation":1,"Events":[]}"#);
    let body = format!(r#"{{"StartRequests":[{{"EventId":"{id}"}}]}}"#);
    assert_eq!(post(&mock, &format!("/vm/c{EVENTS}"), &body).await.status, 400);
    assert_eq!(post(&mock, &format!("/vm/b{EVENTS}"), &body).await.status, 200);
    assert_eq!(mock.approvals()[0].vm.as_deref(), Some("b"));
}

#[tokio::test(start_paused = true)]
async fn the_caller_must_be_known() {
    let mock = mock(Scenario::new([Vm::new("a"), Vm::new("b")]));
    for (target, message) in [
        (EVENTS.to_owned(), "there are 2 VMs; say which one asks, as in /vm/a/metadata/scheduledevents"),
        (format!("/vm/c{EVENTS}"), "there is no VM `c`; give one of a, b"),
    ] {
        let answer = get(&mock, &target).await;
        assert_eq!((answer.status, answer.json()["error"].as_str().unwrap()), (404, message));
    }
    let own = call(mock.router_for("b").unwrap(), "GET", EVENTS, &METADATA, "").await;
    assert_eq!(own.status, 200);
    assert_eq!(mock.log()[0].vm, "b");
    assert!(mock.router_for("c").is_err());
}

#[tokio::test(start_paused = true)]
async fn the_sixth_request_of_a_second_is_throttled() {
    let mock = single();
    for _ in 0..5 {
        assert_eq!(get(&mock, EVENTS).await.status, 200);
    }
    let answer = get(&mock, EVENTS).await;
    assert_eq!((answer.status, answer.text()), (429, "Throttle Result: Too Many Requests"));
    assert_eq!(answer.headers["content-type"], "text/plain; charset=utf-8");
    assert!(!answer.headers.contains_key("retry-after"));
    advance(Duration::from_secs(1)).await;
    assert_eq!(get(&mock, EVENTS).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn the_first_answer_of_a_sleeping_group_is_slow_and_the_next_is_not() {
    let settings = Settings { first_call_delay: Duration::from_secs(110).into(), ..Settings::default() };
    let mock = mock(Scenario::single(VM).settings(settings));
    mock.inject(EventSpec::reboot(VM)).unwrap();
    for waited in [110, 0] {
        let before = mock.now();
        assert_eq!(document(&mock).await["Events"].as_array().unwrap().len(), 1);
        assert_eq!(mock.now().duration_since(before).as_secs(), waited);
    }
}

#[tokio::test(start_paused = true)]
async fn with_etags_an_unchanged_document_is_not_sent_again() {
    let mock = mock(Scenario::single(VM).settings(Settings { etag: true, ..Settings::default() }));
    let tag = get(&mock, EVENTS).await.headers["etag"].clone();
    let seen = [("Metadata", "true"), ("If-None-Match", tag.as_str())];
    let answer = call(mock.router(), "GET", EVENTS, &seen, "").await;
    assert_eq!((answer.status, answer.text()), (304, ""));
    mock.inject(EventSpec::freeze(VM)).unwrap();
    assert_eq!(call(mock.router(), "GET", EVENTS, &seen, "").await.status, 200);
    let plain = single();
    assert_eq!(call(plain.router(), "GET", EVENTS, &seen, "").await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn skipped_incarnations_and_lower_case_ids_are_settings() {
    let settings = Settings {
        first_incarnation: 32,
        incarnation_step: 2,
        event_ids: mock_imds::IdCase::Lower,
        ..Settings::default()
    };
    let mock = mock(Scenario::single(VM).settings(settings));
    let id = mock.inject(EventSpec::freeze(VM)).unwrap();
    assert_eq!(id.as_str(), id.as_str().to_lowercase());
    assert_eq!(document(&mock).await["DocumentIncarnation"], 34);
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_ids_and_another_gives_others() {
    let id = |seed| {
        let mock = mock(Scenario::single(VM).settings(Settings { seed, ..Settings::default() }));
        mock.inject(EventSpec::freeze(VM)).unwrap()
    };
    assert_eq!(id(1), id(1));
    assert_ne!(id(1), id(2));
}

#[tokio::test(start_paused = true)]
async fn the_instance_document_describes_the_vm() {
    let mut vm = Vm::new("aks-np1-12345678-vmss_24");
    vm.zone = "2".to_owned();
    vm.tags.insert("aks-managed-orchestrator".to_owned(), "Kubernetes:1.30.7".to_owned());
    vm.vm_id = Some("13f56399-bd52-4150-9748-7190aae1ff21".to_owned());
    let mock = unlimited_for(vm);
    let answer = get(&mock, "/metadata/instance?api-version=2025-04-07").await;
    assert_eq!(
        answer.text(),
        concat!(
            r#"{"compute":{"azEnvironment":"AzurePublicCloud","evictionPolicy":"","location":"SwedenCentral","#,
            r#""name":"aks-np1-12345678-vmss_24","osProfile":{"computerName":"aks-np1-12345678-vmss00000o"},"#,
            r#""osType":"Linux","physicalZone":"","placementGroupId":"","platformFaultDomain":"0","#,
            r#""platformUpdateDomain":"0","priority":"","resourceGroupName":"MC_rg1_cluster1_swedencentral","#,
            r#""resourceId":"/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/"#,
            r#"MC_rg1_cluster1_swedencentral/providers/Microsoft.Compute/virtualMachineScaleSets/"#,
            r#"aks-np1-12345678-vmss/virtualMachines/24","subscriptionId":"00000000-0000-0000-0000-000000000000","#,
            r#""tags":"aks-managed-orchestrator:Kubernetes:1.30.7","#,
            r#""tagsList":[{"name":"aks-managed-orchestrator","value":"Kubernetes:1.30.7"}],"#,
            r#""vmId":"13f56399-bd52-4150-9748-7190aae1ff21","vmScaleSetName":"aks-np1-12345678-vmss","#,
            r#""vmSize":"Standard_D4s_v5","zone":"2"}}"#,
        )
    );
    let text = "?api-version=2025-04-07&format=text";
    for (path, expected) in [
        ("/compute/name", "aks-np1-12345678-vmss_24"),
        ("/compute/osProfile/computerName", "aks-np1-12345678-vmss00000o"),
        ("/compute/priority", ""),
        ("/compute/tagsList/0/value", "Kubernetes:1.30.7"),
        ("/compute/tagsList", "0/"),
        ("/compute/osProfile", "computerName"),
        ("", "compute/"),
    ] {
        let answer = get(&mock, &format!("/metadata/instance{path}{text}")).await;
        assert_eq!((answer.status, answer.text()), (200, expected), "{path}");
        assert_eq!(answer.headers["content-type"], "text/plain; charset=utf-8");
    }
    let profile = get(&mock, "/metadata/instance/compute/osProfile?api-version=2025-04-07&format=json").await;
    assert_eq!(profile.text(), r#"{"computerName":"aks-np1-12345678-vmss00000o"}"#);
    for leaf in ["?api-version=2025-04-07", "?api-version=2025-04-07&format=json", "?api-version=2025-04-07&format=xml"]
    {
        assert_eq!(get(&mock, &format!("/metadata/instance/compute/name{leaf}")).await.status, 400, "{leaf}");
    }
}

fn unlimited_for(vm: Vm) -> Mock {
    mock(Scenario::new([vm]).settings(Settings { requests_per_second: 0, ..Settings::default() }))
}

#[tokio::test(start_paused = true)]
async fn versions_are_listed_without_a_version() {
    let answer = get(&single(), "/metadata/versions").await;
    assert!(answer.text().starts_with(r#"{"apiVersions":["2017-03-01","2017-04-02","#), "{}", answer.text());
    assert!(answer.text().ends_with(r#""2024-07-17","2025-04-07"]}"#), "{}", answer.text());
}

const TOKEN: &str =
    "/metadata/identity/oauth2/token?api-version=2018-02-01&resource=https%3A%2F%2Fmanagement.azure.com%2F";

#[tokio::test(start_paused = true)]
async fn a_token_is_all_strings() {
    let now = support::start().as_second();
    let answer = get(&single(), TOKEN).await;
    let expected = format!(
        "{{\"access_token\":\"mock-imds.system.{0}\",\"refresh_token\":\"\",\"expires_in\":\"3599\",\"expires_on\":\"{0}\",\
         \"not_before\":\"{now}\",\"resource\":\"https://management.azure.com/\",\"token_type\":\"Bearer\"}}",
        now + 3599
    );
    assert_eq!((answer.status, answer.text()), (200, expected.as_str()));
}

#[tokio::test(start_paused = true)]
async fn a_token_is_for_the_identity_that_is_asked_for() {
    let identity = |name: &str| Identity {
        client_id: format!("{name}-client"),
        object_id: format!("{name}-object"),
        resource_id: format!("/subscriptions/s/{name}"),
    };
    let multiple = "Multiple user assigned identities exist, please specify the clientId / resourceId of the identity \
                    in the token request";
    let table: [(&[&str], &str, Result<&str, &str>); 10] = [
        (&[], "", Ok("system")),
        (&[], "&client_id=x", Err("Identity not found")),
        (&["one"], "", Ok("one-client")),
        (&["one"], "&client_id=ONE-client", Ok("one-client")),
        (&["one", "two"], "", Err(multiple)),
        (&["one", "two"], "&client_id=two-client", Ok("two-client")),
        (&["one", "two"], "&object_id=two-object", Ok("two-client")),
        (&["one", "two"], "&msi_res_id=/subscriptions/s/two", Ok("two-client")),
        (&["one", "two"], "&mi_res_id=/subscriptions/s/two", Ok("two-client")),
        (
            &["one"],
            "&client_id=one-client&object_id=one-object",
            Err("At most one of client_id, object_id and msi_res_id may be specified"),
        ),
    ];
    for (identities, selector, expected) in table {
        let mut vm = Vm::new(VM);
        vm.identities = identities.iter().map(|name| identity(name)).collect();
        let answer = get(&mock(Scenario::new([vm])), &format!("{TOKEN}{selector}")).await;
        let body = answer.json();
        match expected {
            Ok(client) => {
                let token = body["access_token"].as_str().unwrap();
                assert_eq!((answer.status, token.split('.').nth(1)), (200, Some(client)), "{identities:?} {selector}");
            }
            Err(description) => {
                let expected = json!({ "error": "invalid_request", "error_description": description });
                assert_eq!((answer.status, body), (400, expected), "{identities:?} {selector}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_request_without_version_or_resource_is_refused() {
    for (query, error) in [
        ("resource=x", "bad_request_102"),
        ("api-version=2017-12-01&resource=x", "bad_request_102"),
        ("api-version=2019-08-01", "invalid_resource"),
    ] {
        let answer = get(&single(), &format!("/metadata/identity/oauth2/token?{query}")).await;
        assert_eq!((answer.status, answer.json()["error"].as_str()), (400, Some(error)), "{query}");
    }
}

#[tokio::test(start_paused = true)]
async fn tokens_have_a_limit_of_their_own() {
    let mock = single();
    for _ in 0..20 {
        assert_eq!(get(&mock, TOKEN).await.status, 200);
    }
    assert_eq!(get(&mock, TOKEN).await.status, 429);
    assert_eq!(get(&mock, EVENTS).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn five_token_requests_may_be_open_at_once() {
    let mock = single();
    let slow = mock_imds::FaultSpec::new(mock_imds::FaultKind::Latency(Duration::from_secs(10).into()));
    mock.fault(slow.at([mock_imds::Endpoint::Identity])).unwrap();
    let answers = futures::future::join_all((0..6).map(|_| get(&mock, TOKEN))).await;
    let statuses: Vec<_> = answers.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429]);
    assert_eq!(get(&mock, TOKEN).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn the_log_tells_who_asked_what_and_how_it_was_answered() {
    let mock = single();
    let id = mock.inject(EventSpec::freeze(VM)).unwrap();
    let body = format!(r#"{{"StartRequests":[{{"EventId":"{id}"}}]}}"#);
    let headers = [("Metadata", "true"), ("User-Agent", "test"), ("Cookie", "secret")];
    call(mock.router(), "POST", EVENTS, &headers, &body).await;
    call(mock.router(), "GET", EVENTS, &[], "").await;
    let log = mock.log();
    assert_eq!((log[0].number, log[0].vm.as_str(), log[0].method.as_str()), (1, VM, "POST"));
    assert_eq!((log[0].target.as_str(), log[0].status, log[0].body.as_str()), (EVENTS, Some(200), body.as_str()));
    let logged: Vec<_> = log[0].headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(logged, [("metadata", "true"), ("user-agent", "test")]);
    assert_eq!(log[1].status, Some(400));
    let counters = mock.counters();
    assert_eq!((counters.requests, counters.approvals), (2, 1));
    assert_eq!(counters.by_status, BTreeMap::from([(200, 1), (400, 1)]));
}
