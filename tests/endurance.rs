//! What must not grow over a long life: memory, descriptors, series of metrics. One test, alone in its process, so that
//! nobody else's memory is counted.

#![cfg(all(feature = "world", target_os = "linux"))]
#![allow(clippy::expect_used, reason = "a test that cannot go on has failed")]

mod in_memory;

use std::time::Duration;

use domain::policy::{Policy, PolicySet};
use http::StatusCode;
use in_memory::{OneAgent, event, kubelet, list};
use remediator::azure::imds::Imds;
use remediator::world::api_server::Deletion;
use remediator::world::api_server::kinds::{EVENTS, PODS};
use remediator::world::api_server::store::Key;
use serde_json::Value;

const MEBIBYTE: u64 = 1 << 20;

#[test]
fn a_long_life_grows_neither_memory_nor_descriptors_nor_series() {
    let paused = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    paused.expect("a runtime").block_on(ten_thousand_events());
    let real = tokio::runtime::Builder::new_current_thread().enable_all().build();
    real.expect("a runtime").block_on(five_thousand_errors());
}

/// Memory of this process that is in use, in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("this is Linux");
    let pages: u64 = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("pages");
    pages * 4096
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("this is Linux").count()
}

fn series(metrics: &str) -> usize {
    metrics.lines().filter(|line| !line.starts_with('#')).count()
}

// N-03
async fn ten_thousand_events() {
    let policy = Policy::built_in().expect("it is compiled in");
    let scene = OneAgent::start(PolicySet::new(vec![policy]).expect("one policy has no tie"), Duration::from_secs(5));
    let kinds = ["Freeze", "Reboot", "Redeploy", "Preempt", "Terminate", "Unheard"];
    let statuses = [500, 503, 404, 410, 429];
    let (mut known, mut memory) = (0, 0);
    for number in 0_usize..10_000 {
        let name = format!("pod-{}", number % 50);
        scene.run_pod(&name);
        let status = if number % 2 == 0 { "Started" } else { "Scheduled" };
        scene.answers(list(&[event(&format!("event-{number}"), kinds[number % kinds.len()], status, "")]));
        scene.pass(Duration::from_secs(12)).await;
        // The kubelet has stopped the pod.
        scene
            .server
            .delete(&kubelet(), PODS, &Key::new("default", &name), &Deletion { grace: Some(0), ..Deletion::default() })
            .expect("it is there");
        scene.pass(Duration::from_secs(6)).await;
        scene.answers((StatusCode::from_u16(statuses[number % statuses.len()]).expect("it is one"), "busy".into()));
        scene.pass(Duration::from_secs(6)).await;
        scene.answers(list(&[]));
        scene.pass(Duration::from_secs(20)).await;
        if number % 50 == 0 {
            forget_events(&scene);
        }
        let count = series(&scene.metrics.render(Duration::ZERO));
        match number {
            // Every type has come with every status of an answer.
            60 => known = count,
            // The history that the API server keeps is full.
            7000 => memory = resident(),
            61.. => assert_eq!(count, known, "at event {number}"),
            _ => {}
        }
    }
    let grown = resident().saturating_sub(memory);
    assert!(grown <= MEBIBYTE, "{grown} bytes more than 3,000 events before");
}

/// The API server keeps Events for an hour only.
fn forget_events(scene: &OneAgent) {
    for told in scene.server.list(EVENTS, None) {
        let text = |field: &str| told["metadata"][field].as_str().unwrap_or_default().to_owned();
        let key = Key { namespace: text("namespace"), name: text("name") };
        let _ = scene.server.delete(&kubelet(), EVENTS, &key, &Deletion::default());
    }
    let left: Vec<std::sync::Arc<Value>> = scene.server.list(EVENTS, None);
    assert_eq!(left.len(), 0);
}

// A-01 b
async fn five_thousand_errors() {
    let router = axum::Router::new().fallback(|| async {
        static ASKED: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let number = ASKED.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let status = [StatusCode::NOT_FOUND, StatusCode::INTERNAL_SERVER_ERROR, StatusCode::SERVICE_UNAVAILABLE];
        (status[number % status.len()], "x".repeat(2048))
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let _server =
        tokio_util::task::AbortOnDropHandle::new(tokio::spawn(async move { axum::serve(listener, router).await }));
    let imds = Imds::at(&format!("http://{address}")).expect("it is an address");
    let (mut memory, mut open) = (0, 0);
    for number in 1..=5000 {
        imds.scheduled_events(Duration::from_secs(5)).await.expect_err("all are errors");
        if number == 500 {
            (memory, open) = (resident(), descriptors());
        }
    }
    let (grown, opened) = (resident().saturating_sub(memory), descriptors().abs_diff(open));
    assert!(grown <= MEBIBYTE, "{grown} bytes more than 4,500 errors before");
    assert!(opened <= 2, "{open} descriptors became {}", descriptors());
}
