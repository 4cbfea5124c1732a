//! What the fault proxy does, seen by a client that knows nothing but TCP and a little HTTP.

use std::io::ErrorKind;
use std::time::Duration;

use http::{Method, StatusCode};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use control_plane::harness::{Context, Test, TestResult};
use control_plane::{Answer, Fault, FaultProxy, RequestMatcher, rule, tests};

use crate::SOON;

const VERSION: &str = "/version";

pub(crate) fn tests() -> Vec<Test> {
    tests![
        requests_pass_with_the_token_of_the_upstream_client,
        requests_are_recorded_with_body_and_status,
        a_watch_streams_and_counts_as_running_until_the_client_leaves,
        a_fault_answers_as_often_as_it_says,
        a_delay_passes_the_request_on_later,
        a_hanging_request_is_never_answered,
        a_disconnect_closes_the_connection_before_the_request_is_carried_out,
        a_lost_answer_closes_the_connection_after_the_request_was_carried_out,
        a_body_is_cut_in_the_middle,
        a_body_is_stalled_in_the_middle,
        connections_are_refused_and_accepted_again_on_the_same_port,
        connections_are_accepted_and_closed,
        a_cut_connection_ends_a_watch,
        waiting_for_a_request_that_never_comes_tells_what_came,
        kubectl_works_through_the_proxy,
    ]
}

async fn proxy(context: &Context) -> Result<FaultProxy, Box<dyn std::error::Error + Send + Sync>> {
    Ok(FaultProxy::start(context.client()?).await?)
}

/// Sends a request on a connection of its own.
async fn send(proxy: &FaultProxy, method: &str, path: &str, body: &str) -> std::io::Result<TcpStream> {
    let url = proxy.url();
    let mut stream = TcpStream::connect(url.trim_start_matches("http://")).await?;
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: proxy\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await?;
    Ok(stream)
}

/// Reads until the other side closes. An answer that breaks off may also end in a reset.
async fn read_all(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        bytes.extend_from_slice(&buffer[..count]);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

async fn get(proxy: &FaultProxy, path: &str) -> std::io::Result<String> {
    Ok(read_all(send(proxy, "GET", path, "").await?).await)
}

fn body_of(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").map_or("", |(_, body)| body)
}

async fn requests_pass_with_the_token_of_the_upstream_client(context: Context) -> TestResult {
    let namespace = context.namespace("token").await?;
    let token = namespace.service_account("reader", vec![rule(&[""], &["nodes"], &["list"])]).await?;
    let proxy = FaultProxy::start(context.api_server().with_token(&token).client()?).await?;
    let allowed = get(&proxy, "/api/v1/nodes?limit=1").await?;
    assert!(allowed.starts_with("HTTP/1.1 200"), "{allowed}");
    let refused = get(&proxy, "/api/v1/pods").await?;
    assert!(refused.starts_with("HTTP/1.1 403") && refused.contains(":reader"), "{refused}");
    Ok(())
}

async fn requests_are_recorded_with_body_and_status(context: Context) -> TestResult {
    let namespace = context.namespace("record").await?;
    let proxy = proxy(&context).await?;
    let path = format!("/api/v1/namespaces/{}/configmaps", namespace.name());
    let body = json!({"metadata": {"name": "note"}});
    read_all(send(&proxy, "POST", &format!("{path}?dryRun=All"), &body.to_string()).await?).await;
    get(&proxy, &format!("{path}/other")).await?;
    let [first, second] = &proxy.requests()[..] else { panic!("{:?}", proxy.requests()) };
    assert!(first.is(&Method::POST, "/configmaps") && first.query == "dryRun=All");
    assert_eq!((first.body.as_ref(), first.status), (Some(&body), Some(StatusCode::CREATED)));
    assert_eq!((second.number, second.status), (1, Some(StatusCode::NOT_FOUND)));
    assert!(first.ended <= Some(second.began) && first.answered <= first.ended && !first.is_running());
    assert_eq!(proxy.requests_that(&RequestMatcher::any().method(Method::GET).path_contains("configmaps")).len(), 1);
    proxy.forget_requests();
    assert_eq!(proxy.requests().len(), 0);
    Ok(())
}

async fn a_watch_streams_and_counts_as_running_until_the_client_leaves(context: Context) -> TestResult {
    let namespace = context.namespace("watch").await?;
    let proxy = proxy(&context).await?;
    let path = format!("/api/v1/namespaces/{}/configmaps?watch=true", namespace.name());
    let mut stream = send(&proxy, "GET", &path, "").await?;
    proxy
        .wait_for("the watch is answered", SOON, |requests| requests.iter().any(|watch| watch.status.is_some()))
        .await?;
    let note: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "note-in-the-stream"}}))?;
    namespace.api().create(&PostParams::default(), &note).await?;
    read_until(&mut stream, "note-in-the-stream").await?;
    assert!(proxy.requests()[0].is_running() && proxy.requests()[0].is_watch());
    drop(stream);
    proxy.wait_for("the watch has ended", SOON, |requests| !requests[0].is_running()).await?;
    Ok(())
}

async fn read_until(stream: &mut TcpStream, wanted: &str) -> TestResult {
    let mut text = String::new();
    let mut buffer = [0; 4096];
    while !text.contains(wanted) {
        let count = timeout(SOON, stream.read(&mut buffer)).await.map_err(|_| format!("only this came: {text}"))??;
        if count == 0 {
            return Err(format!("it ended after: {text}").into());
        }
        text.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
    Ok(())
}

async fn a_fault_answers_as_often_as_it_says(context: Context) -> TestResult {
    let proxy = proxy(&context).await?;
    let versions = RequestMatcher::any().method(Method::GET).path_ends_with(VERSION);
    proxy.inject(versions.times(2), Fault::Answer(Answer::too_many_requests()));
    for _ in 0..2 {
        let answer = get(&proxy, VERSION).await?;
        assert!(answer.starts_with("HTTP/1.1 429") && answer.contains("retry-after: 1\r\n"), "{answer}");
        assert_eq!(body_of(&answer), "Too many requests, please try again later.\n");
    }
    assert!(get(&proxy, VERSION).await?.starts_with("HTTP/1.1 200"));
    let failure = Answer::failure(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", "not now");
    proxy.inject(RequestMatcher::any().also("the version", |line| line.path == VERSION), Fault::Answer(failure));
    assert!(get(&proxy, VERSION).await?.contains(r#""reason":"ServiceUnavailable""#));
    assert!(get(&proxy, "/livez").await?.starts_with("HTTP/1.1 200"));
    proxy.clear_faults();
    assert!(get(&proxy, VERSION).await?.starts_with("HTTP/1.1 200"));
    assert_eq!(proxy.requests().iter().filter(|request| request.fault.is_some()).count(), 3);
    Ok(())
}

async fn a_delay_passes_the_request_on_later(context: Context) -> TestResult {
    let proxy = proxy(&context).await?;
    let delay = Duration::from_millis(300);
    proxy.inject(RequestMatcher::any().times(1), Fault::Delay(delay));
    assert!(get(&proxy, VERSION).await?.starts_with("HTTP/1.1 200"));
    let request = &proxy.requests()[0];
    assert!(request.answered.unwrap() >= request.began + delay, "{request:?}");
    Ok(())
}

async fn a_hanging_request_is_never_answered(context: Context) -> TestResult {
    let proxy = proxy(&context).await?;
    proxy.inject(RequestMatcher::any(), Fault::Hang);
    let stream = send(&proxy, "GET", VERSION, "").await?;
    proxy
        .wait_for("the request hangs", SOON, |requests| requests.iter().any(|request| request.fault.is_some()))
        .await?;
    assert!(proxy.requests()[0].is_running());
    drop(stream);
    let requests = proxy.wait_for("the client has left", SOON, |requests| !requests[0].is_running()).await?;
    assert_eq!(requests[0].status, None);
    Ok(())
}

async fn a_disconnect_closes_the_connection_before_the_request_is_carried_out(context: Context) -> TestResult {
    assert!(!a_config_map_is_made_despite(&context, Fault::Disconnect).await?);
    Ok(())
}

async fn a_lost_answer_closes_the_connection_after_the_request_was_carried_out(context: Context) -> TestResult {
    assert!(a_config_map_is_made_despite(&context, Fault::LoseAnswer).await?);
    Ok(())
}

/// Whether the object is there after a POST whose connection closed without an answer.
async fn a_config_map_is_made_despite(
    context: &Context,
    fault: Fault,
) -> Result<bool, Box<dyn std::error::Error + Send + Sync>> {
    let namespace = context.namespace("answer").await?;
    let proxy = proxy(context).await?;
    proxy.inject(RequestMatcher::any().method(Method::POST), fault);
    let path = format!("/api/v1/namespaces/{}/configmaps", namespace.name());
    let answer = read_all(send(&proxy, "POST", &path, r#"{"metadata":{"name":"note"}}"#).await?).await;
    assert_eq!(answer, "");
    let maps: Api<ConfigMap> = namespace.api();
    Ok(maps.get_opt("note").await?.is_some())
}

async fn a_body_is_cut_in_the_middle(context: Context) -> TestResult {
    let proxy = proxy(&context).await?;
    let whole = get(&proxy, VERSION).await?;
    proxy.inject(RequestMatcher::any(), Fault::CutBody { after: 10 });
    let cut = get(&proxy, VERSION).await?;
    assert!(cut.starts_with("HTTP/1.1 200"), "{cut}");
    assert_eq!(body_of(&cut), &body_of(&whole)[..10]);
    Ok(())
}

async fn a_body_is_stalled_in_the_middle(context: Context) -> TestResult {
    let proxy = proxy(&context).await?;
    proxy.inject(RequestMatcher::any(), Fault::StallBody { after: 10 });
    let mut stream = send(&proxy, "GET", VERSION, "").await?;
    read_until(&mut stream, "\r\n\r\n{\n  \"major").await?;
    let more = timeout(Duration::from_millis(300), stream.read(&mut [0; 100])).await;
    assert!(more.is_err(), "{more:?}");
    assert!(proxy.requests()[0].is_running());
    Ok(())
}

async fn connections_are_refused_and_accepted_again_on_the_same_port(context: Context) -> TestResult {
    let proxy = proxy(&context).await?;
    proxy.refuse_connections().await;
    let refused = get(&proxy, VERSION).await;
    assert!(matches!(&refused, Err(error) if error.kind() == ErrorKind::ConnectionRefused), "{refused:?}");
    proxy.accept_connections().await?;
    assert!(get(&proxy, VERSION).await?.starts_with("HTTP/1.1 200"));
    Ok(())
}

async fn connections_are_accepted_and_closed(context: Context) -> TestResult {
    let proxy = proxy(&context).await?;
    proxy.slam_connections().await?;
    // The write may already meet the closed connection; what counts is that no answer comes.
    assert_eq!(get(&proxy, VERSION).await.unwrap_or_default(), "");
    assert_eq!(proxy.requests().len(), 0);
    proxy.accept_connections().await?;
    assert!(get(&proxy, VERSION).await?.starts_with("HTTP/1.1 200"));
    Ok(())
}

async fn a_cut_connection_ends_a_watch(context: Context) -> TestResult {
    let proxy = proxy(&context).await?;
    let stream = send(&proxy, "GET", "/api/v1/nodes?watch=true", "").await?;
    proxy
        .wait_for("the watch is answered", SOON, |requests| requests.iter().any(|watch| watch.status.is_some()))
        .await?;
    proxy.cut_connections().await?;
    timeout(SOON, read_all(stream)).await?;
    assert!(get(&proxy, VERSION).await?.starts_with("HTTP/1.1 200"));
    Ok(())
}

async fn waiting_for_a_request_that_never_comes_tells_what_came(context: Context) -> TestResult {
    let proxy = proxy(&context).await?;
    get(&proxy, VERSION).await?;
    let limit = Duration::from_millis(50);
    let error = proxy.wait_for("two requests", limit, |requests| requests.len() == 2).await.unwrap_err().to_string();
    assert!(error.contains("two requests") && error.contains("#0 GET /version?: 200"), "{error}");
    Ok(())
}

async fn kubectl_works_through_the_proxy(context: Context) -> TestResult {
    let proxy = proxy(&context).await?;
    let mut kubectl = context.kubectl()?.command(&["get", "namespaces"]);
    let output = kubectl.env("KUBECONFIG", proxy.kubeconfig()).output().await?;
    assert!(String::from_utf8_lossy(&output.stdout).contains("kube-system"), "{output:?}");
    assert!(proxy.requests().iter().any(|request| request.is(&Method::GET, "/api/v1/namespaces")));
    Ok(())
}
