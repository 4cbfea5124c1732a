//! One agent in virtual time, where the whole of it matters and nothing beside it.

#![cfg(feature = "world")]
#![allow(clippy::expect_used, reason = "a test that cannot go on has failed")]

mod in_memory;

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use domain::policy::{Policy, PolicySet};
use in_memory::{NODE, OneAgent, event, kubelet, list};
use remediator::world::api_server::Part;
use remediator::world::api_server::kinds::{NODES, PODS};
use remediator::world::api_server::store::Key;
use serde_json::json;

fn built_in() -> PolicySet {
    PolicySet::new(vec![Policy::built_in().expect("it is compiled in")]).expect("one policy has no tie")
}

/// What this thread logs.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("nobody panics with it").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn count(&self, text: &str) -> usize {
        let log = String::from_utf8(self.0.lock().expect("nobody panics with it").clone()).expect("it is text");
        log.lines().filter(|line| line.contains(text)).count()
    }
}

//
#[tokio::test(start_paused = true)]
async fn a_node_without_a_provider_id_is_drained_in_time_and_a_wrong_one_is_told_once() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _listening = tracing::subscriber::set_default(subscriber);
    let scene = OneAgent::start(built_in(), Duration::from_secs(1));
    scene.run_pod("web");
    scene.pass(Duration::from_secs(5)).await;
    scene.answers(list(&[event("e1", "Preempt", "Scheduled", "Sat, 11 Apr 2026 22:00:35 GMT")]));
    scene.pass(Duration::from_secs(2)).await;
    let pod = scene.server.get(PODS, &Key::new("default", "web")).expect("no kubelet has stopped it yet");
    assert!(pod["metadata"]["deletionTimestamp"].is_string(), "two seconds after the event was published");
    let node = scene.server.get(NODES, &Key::new("", NODE)).expect("nobody deletes it");
    assert_eq!(node["spec"]["unschedulable"], true);
    let metrics = scene.metrics.render(Duration::ZERO);
    assert!(metrics.contains("remediator_evictions_total{result=\"accepted\"} 1\n"), "{metrics}");

    let other = "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/x/virtualMachines/1";
    let named = scene.server.update(&kubelet(), NODES, &Key::new("", NODE), Part::Main, |node| {
        node["spec"]["providerID"] = json!(other);
        Ok(())
    });
    named.expect("it was empty");
    scene.pass(Duration::from_secs(120)).await;
    assert_eq!(log.count("provider id names another machine"), 1);
    assert_eq!(log.count("ERROR"), 0);
}
