//! What receivers outside the cluster are told.

use std::collections::BTreeMap;
use std::fs;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use control_plane::harness::{Context, TestResult};
use control_plane::{Stopping, Workload};
use mock_imds::EventSpec;
use serde_json::Value;
use tempfile::TempDir;
use tokio::task::JoinHandle;

use crate::scene::{Anything, NOISE, SOON, Scene, Stopwatch};

const MINUTES: Duration = Duration::from_secs(900);

/// A receiver of messages, and the policy that names it.
struct Receiver {
    messages: Arc<Mutex<Vec<Value>>>,
    folder: TempDir,
    serving: JoinHandle<()>,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Receiver {
    /// One that answers after `pause`.
    async fn start(pause: Duration) -> Result<Self, Anything> {
        let messages: Arc<Mutex<Vec<Value>>> = Arc::default();
        let take = move |State(messages): State<Arc<Mutex<Vec<Value>>>>, body: String| async move {
            let message = serde_json::from_str(&body).unwrap_or(Value::String(body));
            messages.lock().unwrap_or_else(PoisonError::into_inner).push(message);
            tokio::time::sleep(pause).await;
            StatusCode::ACCEPTED
        };
        let router = Router::new().route("/hook", post(take)).with_state(Arc::clone(&messages));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let folder = tempfile::tempdir()?;
        fs::write(folder.path().join("url"), format!("http://{}/hook\n", listener.local_addr()?))?;
        let policy = format!(
            "apiVersion: remediator.dev/v1alpha1\nkind: Policy\nmetadata: {{name: p}}\n\
             events: [{{name: all, match: {{type: [Reboot, Preempt]}}, action: drain}}]\n\
             notify: [{{name: ops, format: cloudEvents, urlFile: {}, on: [event, drain, blocked, failed, released]}}]\n",
            folder.path().join("url").display()
        );
        fs::write(folder.path().join("policy.yaml"), policy)?;
        let serving = tokio::spawn(async move { drop(axum::serve(listener, router).await) });
        Ok(Self { messages, folder, serving })
    }

    fn policy(&self) -> String {
        self.folder.path().join("policy.yaml").display().to_string()
    }

    /// The messages by their reasons: how many there were, and how many of them told something new.
    fn by_reason(&self) -> BTreeMap<String, (usize, usize)> {
        let mut ids: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for message in self.messages.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            ids.entry(text(&message["data"]["reason"])).or_default().push(text(&message["id"]));
        }
        ids.into_iter()
            .map(|(reason, mut ids)| {
                let all = ids.len();
                ids.sort();
                ids.dedup();
                (reason, (all, ids.len()))
            })
            .collect()
    }

    async fn until_told(&self, reason: &str) -> Result<(), Anything> {
        let told = async {
            while !self.by_reason().contains_key(reason) {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let waited = tokio::time::timeout(SOON, told).await;
        waited.map_err(|_| format!("nobody was told {reason}: {:?}", self.by_reason()).into())
    }
}

// D-07, A-06
pub(crate) async fn each_change_is_told_outside_once_over_several_lives(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "outside").await?;
    let receiver = Receiver::start(Duration::ZERO).await?;
    scene.with_arguments(&["--policy", &receiver.policy()]);
    let web = Workload::deployment("web", 6).stopping(Stopping::After(Duration::from_secs(3)));
    scene.running(&web, 6).await?;
    scene.start_agent()?;
    let id = scene.imds.inject(EventSpec::reboot(&scene.vm).notice(MINUTES))?;
    scene.until_accepted(3).await?;
    scene.kill_agent().await?;
    scene.start_agent()?;
    scene.until_drain_ended(SOON).await?;
    assert!(scene.terminate_agent().await?.success());
    scene.start_agent()?;
    scene.polls(2).await?;
    scene.imds.cancel(&id)?;
    scene.until_given_back(SOON).await?;
    receiver.until_told("NodeUncordonEnd").await?;
    let told = receiver.by_reason();
    for reason in ["RebootScheduled", "NodeDrainStart", "NodeDrainEnd", "RebootCancelled", "NodeUncordonEnd"] {
        // A life that is killed between sending and noting it leaves the next to send the same again.
        let (all, new) = told.get(reason).copied().ok_or_else(|| format!("nobody was told {reason}: {told:?}"))?;
        assert!(new == 1 && all <= 2, "{reason} was told as {new} different messages: {told:?}");
    }
    let log = scene.log();
    assert!(!log.contains("/hook"), "the address of a receiver is a secret");
    Ok(())
}

// N-01 (d)
pub(crate) async fn a_receiver_that_does_not_answer_delays_nothing(context: Context) -> TestResult {
    let mut scene = Scene::new(&context, "mute-receiver").await?;
    let receiver = Receiver::start(Duration::from_secs(300)).await?;
    scene.with_arguments(&["--policy", &receiver.policy()]);
    scene.running(&Workload::deployment("web", 3), 3).await?;
    scene.start_agent()?;
    scene.polls(1).await?;
    let stopwatch = Stopwatch::start();
    let id = scene.imds.inject(EventSpec::preempt(&scene.vm).notice(Duration::from_secs(30)))?;
    scene.until_accepted(3).await?;
    assert!(stopwatch.elapsed() < Duration::from_secs(2) + NOISE, "{:?}", stopwatch.elapsed());
    scene.until_drain_ended(SOON).await?;
    receiver.until_told("PreemptScheduled").await?;
    scene.imds.cancel(&id)?;
    let is_free = |node: &k8s_openapi::api::core::v1::Node| !crate::scene::is_cordoned(node);
    scene.until_node("uncordoned, whatever the receiver does", SOON, is_free).await?;
    Ok(())
}
