//! What the machines do, in virtual time.
#![allow(clippy::expect_used, reason = "a failure here is a failure of the test")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{FINALLY_ANNOTATION, FINISHES_AFTER_ANNOTATION, Fate, HowItEnded, READY_AFTER_ANNOTATION};
use super::{MachineSpec, STOPS_AFTER_ANNOTATION, Shutdown, UnknownMachine};
use crate::world::api_server::Part;
use crate::world::api_server::kinds::{LEASES, NODES, PODS};
use crate::world::api_server::store::{Change, Key};
use crate::world::controllers::tests::Scene;
use crate::world::controllers::{condition, pod};

const SOON: Duration = Duration::from_secs(10);

/// One node, `n1`, with one pod, `p`, that behaves so.
async fn with_pod(annotations: &[(&str, &str)]) -> Scene {
    let scene = Scene::with_nodes(1).await;
    scene.bare_pod("p", annotations);
    scene.until("the pod is Ready", SOON, |scene| scene.ready() == 1).await;
    scene
}

fn key() -> Key {
    Key::new("default", "p")
}

async fn seconds_until_gone(scene: &Scene) -> f64 {
    scene.until("the pod is gone", Duration::from_secs(120), |scene| scene.pod("p").is_none()).await
}

fn fates(scene: &Scene) -> Vec<HowItEnded> {
    scene.kubelets.fates().iter().map(|fate| fate.how).collect()
}

fn boot_id(scene: &Scene, node: &str) -> Value {
    scene.node(node)["status"]["nodeInfo"]["bootID"].clone()
}

#[track_caller]
fn assert_near(seconds: f64, expected: f64) {
    assert!((expected - 0.1..expected + 0.2).contains(&seconds), "{seconds} s, not {expected} s");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_stops_by_itself_is_gone_before_its_grace_is_over() {
    let scene = with_pod(&[(STOPS_AFTER_ANNOTATION, "3s")]).await;
    scene.delete(PODS, &key(), None);
    assert_near(seconds_until_gone(&scene).await, 3.0);
    let [fate]: [Fate; 1] = scene.kubelets.fates().try_into().expect("one fate");
    assert_eq!((fate.how, fate.node.as_str(), fate.told_at.is_some()), (HowItEnded::Stopped, "n1", true));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_ignores_sigterm_is_killed_when_its_grace_is_over() {
    let scene = with_pod(&[(STOPS_AFTER_ANNOTATION, "never")]).await;
    scene.delete(PODS, &key(), Some(7));
    assert_near(seconds_until_gone(&scene).await, 7.0);
    assert_eq!(fates(&scene), [HowItEnded::Killed]);
}

#[tokio::test(start_paused = true)]
async fn a_shortened_grace_begins_anew_with_its_full_length() {
    let scene = with_pod(&[(STOPS_AFTER_ANNOTATION, "never")]).await;
    scene.delete(PODS, &key(), Some(60));
    scene.pass(6.0).await;
    scene.delete(PODS, &key(), Some(20));
    assert_near(seconds_until_gone(&scene).await, 20.0);
}

#[tokio::test(start_paused = true)]
async fn a_grace_that_was_over_before_it_was_asked_for_still_lasts_two_seconds() {
    let scene = with_pod(&[(STOPS_AFTER_ANNOTATION, "never")]).await;
    scene.delete(PODS, &key(), Some(60));
    scene.pass(10.0).await;
    scene.delete(PODS, &key(), Some(8));
    assert_eq!(scene.pod("p").unwrap()["metadata"]["deletionGracePeriodSeconds"], 1);
    assert_near(seconds_until_gone(&scene).await, 2.0);
}

#[tokio::test(start_paused = true)]
async fn a_stuck_pod_survives_its_grace_and_goes_with_its_object() {
    let scene = with_pod(&[(STOPS_AFTER_ANNOTATION, "stuck")]).await;
    scene.delete(PODS, &key(), Some(3));
    scene.pass(60.0).await;
    assert!(scene.pod("p").is_some() && fates(&scene).is_empty());
    scene.delete(PODS, &key(), Some(0));
    scene.pass(0.1).await;
    assert_eq!(fates(&scene), [HowItEnded::Killed]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_running_before_it_is_ready() {
    let scene = Scene::with_nodes(1).await;
    scene.bare_pod("p", &[(READY_AFTER_ANNOTATION, "5s")]);
    scene.pass(1.2).await;
    let pod = scene.pod("p").unwrap();
    assert_eq!((&pod["status"]["phase"], pod::is_ready(&pod)), (&json!("Running"), false));
    let took = scene.until("the pod is Ready", SOON, |scene| scene.ready() == 1).await;
    assert_near(took, 3.8);
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_work_is_done_keeps_its_object() {
    let scene = with_pod(&[(FINISHES_AFTER_ANNOTATION, "4s"), (FINALLY_ANNOTATION, "Failed")]).await;
    scene.pass(5.0).await;
    assert_eq!(scene.pod("p").unwrap()["status"]["phase"], "Failed");
    assert_eq!(fates(&scene), [HowItEnded::Finished]);
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_keeps_a_pod_that_has_ended() {
    let scene = with_pod(&[]).await;
    scene.change(PODS, &key(), Part::Main, |pod| pod["metadata"]["finalizers"] = json!(["example.com/keep"]));
    scene.delete(PODS, &key(), None);
    scene.pass(2.0).await;
    let pod = scene.pod("p").expect("the finalizer keeps it");
    assert_eq!(pod["status"]["phase"], "Succeeded");
    assert_eq!(fates(&scene), [HowItEnded::Stopped]);
}

#[tokio::test(start_paused = true)]
async fn a_reboot_changes_the_boot_id_and_starts_the_same_pods_again() {
    let scene = with_pod(&[]).await;
    let (before, uid) = (boot_id(&scene, "n1"), scene.pod("p").unwrap()["metadata"]["uid"].clone());
    scene.kubelets.reboot("n1", Duration::from_secs(30), Shutdown::Announced).unwrap();
    let node = scene.node("n1");
    let ready = condition::find(&node, "Ready").expect("a condition");
    assert_eq!((&ready["status"], &ready["message"]), (&json!("False"), &json!("node is shutting down")));
    assert_eq!(boot_id(&scene, "n1"), before);
    scene.pass(30.1).await;
    assert!(condition::is_true(&scene.node("n1"), "Ready"));
    assert_ne!(boot_id(&scene, "n1"), before);
    assert_eq!(scene.ready(), 0, "the pod has to start first");
    scene.pass(2.0).await;
    let pod = scene.pod("p").unwrap();
    assert_eq!((&pod["metadata"]["uid"], pod::is_ready(&pod)), (&uid, true));
    assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 1);
    let [fate]: [Fate; 1] = scene.kubelets.fates().try_into().expect("one fate");
    assert_eq!((fate.how, fate.told_at), (HowItEnded::Lost, None));
}

#[tokio::test(start_paused = true)]
async fn a_reboot_ends_pods_that_were_being_deleted() {
    let scene = with_pod(&[(STOPS_AFTER_ANNOTATION, "never")]).await;
    scene.delete(PODS, &key(), Some(600));
    scene.pass(1.0).await;
    scene.kubelets.reboot("n1", Duration::from_secs(5), Shutdown::Sudden).unwrap();
    assert_near(seconds_until_gone(&scene).await, 5.0);
    let [fate]: [Fate; 1] = scene.kubelets.fates().try_into().expect("one fate");
    assert_eq!((fate.how, fate.told_at.is_some()), (HowItEnded::Lost, true));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_must_not_be_restarted_has_failed_after_a_reboot() {
    let scene = with_pod(&[]).await;
    scene.change(PODS, &key(), Part::Main, |pod| pod["spec"]["restartPolicy"] = json!("Never"));
    scene.kubelets.reboot("n1", Duration::from_secs(5), Shutdown::Sudden).unwrap();
    scene.pass(10.0).await;
    assert_eq!(scene.pod("p").unwrap()["status"]["phase"], "Failed");
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_off_ends_nothing_until_it_is_on_again() {
    let scene = with_pod(&[]).await;
    scene.kubelets.power_off("n1").unwrap();
    scene.delete(PODS, &key(), None);
    scene.pass(3600.0).await;
    assert!(scene.pod("p").is_some());
    scene.kubelets.power_on("n1").unwrap();
    assert_near(seconds_until_gone(&scene).await, 0.0);
    assert_eq!(fates(&scene), [HowItEnded::Lost]);
}

#[tokio::test(start_paused = true)]
async fn a_frozen_machine_goes_on_as_if_no_time_had_passed() {
    let scene = with_pod(&[(STOPS_AFTER_ANNOTATION, "8s")]).await;
    let before = boot_id(&scene, "n1");
    scene.delete(PODS, &key(), None);
    scene.pass(3.0).await;
    scene.kubelets.freeze("n1", Duration::from_secs(60)).unwrap();
    scene.bare_pod("q", &[]);
    scene.pass(59.5).await;
    assert_eq!(condition::status(&scene.node("n1"), "Ready"), Some("Unknown"), "its heartbeats have stopped");
    assert_eq!((scene.ready(), fates(&scene).len()), (0, 0));
    assert_near(seconds_until_gone(&scene).await, 5.5);
    assert_eq!(fates(&scene), [HowItEnded::Stopped]);
    scene.until("the new pod runs", Duration::from_secs(20), |scene| scene.ready() == 1).await;
    assert_eq!(boot_id(&scene, "n1"), before);
}

#[tokio::test(start_paused = true)]
async fn conditions_and_labels_of_others_survive_the_kubelets() {
    let scene = Scene::with_nodes(1).await;
    let key = Key::new("", "n1");
    scene.change(NODES, &key, Part::Status, |node| {
        condition::set(node, condition::new("Drained", "True", "Drained", ""), Timestamp::UNIX_EPOCH);
    });
    scene.change(NODES, &key, Part::Main, |node| node["metadata"]["labels"]["theirs"] = json!("yes"));
    scene.kubelets.boot(MachineSpec::new("n1")).unwrap();
    scene.pass(400.0).await;
    let node = scene.node("n1");
    assert!(condition::is_true(&node, "Drained") && condition::is_true(&node, "Ready"));
    assert_eq!(node["metadata"]["labels"]["theirs"], "yes");
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_nobody_booted_is_named() {
    let scene = Scene::with_nodes(1).await;
    assert_eq!(scene.kubelets.power_off("n7"), Err(UnknownMachine("n7".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn an_idle_hour_of_three_nodes_is_heartbeats_and_nothing_else() {
    let scene = Scene::with_nodes(3).await;
    scene.pass(30.0).await;
    let writes: Arc<Mutex<Vec<String>>> = Arc::default();
    let to = Arc::clone(&writes);
    let observer = move |change: &Change| to.lock().expect("nobody panics").push(change.resource.to_string());
    scene.server.store().observe(Box::new(observer));
    #[allow(clippy::disallowed_methods, reason = "how long it takes in real time is what is printed")]
    let begun = std::time::Instant::now();
    scene.pass(3600.0).await;
    println!("an idle hour of three nodes took {:?}", begun.elapsed());
    let writes = writes.lock().expect("nobody panics");
    let count = |resource: &str| writes.iter().filter(|written| *written == resource).count();
    // A lease every 10 s and a status every 5 min; the one more or less is where the hour is cut.
    assert!((3 * 359..=3 * 361).contains(&count(LEASES)), "{}", count(LEASES));
    assert!((3 * 11..=3 * 13).contains(&count(NODES)), "{}", count(NODES));
    assert_eq!(writes.len(), count(LEASES) + count(NODES));
}
