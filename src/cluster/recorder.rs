//! Tells people, by Kubernetes Events. Best effort: nothing waits for it, and what finds no room is counted and dropped.
//!
//! The name of an Event follows from what it tells, so telling it again, also in another life of this process, makes
//! no second one.

use std::sync::Arc;
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use domain::drain::pod::{PodName, PodUid};
use domain::fingerprint::fingerprint;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::PostParams;
use kube::core::Request;
use serde::de::IgnoredAny;
use tokio::sync::mpsc;

use super::client::{Cluster, ClusterError};
use crate::metrics::{Metrics, RequestLabels, ResultLabels};

/// The controller that the Events name.
const CONTROLLER: &str = "remediator.dev/agent";

/// How many Events may wait to be written. A drain tells of 50 pods at the most and of a few things beside.
const QUEUE: usize = 128;

/// The longest note that the API takes.
const MOST_NOTE_BYTES: usize = 1024;

const LIMIT: Duration = Duration::from_secs(5);

/// What an Event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The node.
    Node {
        /// Its name.
        name: String,
        /// Its UID.
        uid: String,
    },
    /// A pod.
    Pod(PodName, PodUid),
}

/// Something to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tale {
    /// What it is about.
    pub about: Subject,
    /// What makes it the same tale when it is told again.
    pub key: String,
    /// A reason in CamelCase.
    pub reason: String,
    /// Whether someone should look at it.
    pub warning: bool,
    /// What happened.
    pub note: String,
    /// When.
    pub at: Timestamp,
}

/// Takes tales; see [`recorder`].
#[derive(Clone)]
pub struct Recorder {
    queue: mpsc::Sender<Tale>,
    metrics: Arc<Metrics>,
}

impl Recorder {
    /// Takes a tale, if there is room.
    pub fn tell(&self, tale: Tale) {
        if self.queue.try_send(tale).is_err() {
            self.metrics.told.get_or_create(&ResultLabels { result: "dropped" }).inc();
        }
    }
}

/// A recorder, and the work that writes what it is told; `instance` is the name of this process.
pub fn recorder(cluster: Cluster, metrics: Arc<Metrics>, instance: String) -> (Recorder, impl Future<Output = ()>) {
    let (queue, mut tales) = mpsc::channel::<Tale>(QUEUE);
    let counting = Arc::clone(&metrics);
    let work = async move {
        while let Some(tale) = tales.recv().await {
            let written = write(&cluster, &event(&tale, &instance)).await;
            let result = match &written {
                Ok(()) => "written",
                Err(error) => {
                    tracing::debug!(%error, reason = tale.reason, "Event could not be written");
                    "failed"
                }
            };
            counting.told.get_or_create(&ResultLabels { result }).inc();
        }
    };
    (Recorder { queue, metrics }, work)
}

async fn write(cluster: &Cluster, event: &Event) -> Result<(), ClusterError> {
    let attempt = || async {
        let namespace = event.metadata.namespace.as_deref().unwrap_or("default");
        let body = serde_json::to_vec(event)?;
        let request =
            Request::new(format!("/api/v1/namespaces/{namespace}/events")).create(&PostParams::default(), body)?;
        let labels = RequestLabels { verb: "create", resource: "events" };
        match cluster.call::<IgnoredAny>(labels, request, LIMIT).await {
            // It has been told before.
            Err(error) if error.is_conflict() => Ok(()),
            answer => answer.map(drop),
        }
    };
    let pace = ExponentialBuilder::default().with_min_delay(Duration::from_millis(500)).with_max_times(2);
    attempt.retry(pace).when(worth_repeating).await
}

/// A server that refuses an Event for what it is will refuse it again.
fn worth_repeating(error: &ClusterError) -> bool {
    match error {
        ClusterError::Refused(refusal) => refusal.code == 429 || refusal.code >= 500,
        other => !matches!(other, ClusterError::Client(_)),
    }
}

/// Written as core/v1, because `kubectl describe` puts Events in order by `lastTimestamp`, which events.k8s.io/v1 does not let
/// anyone set.
fn event(tale: &Tale, instance: &str) -> Event {
    let Tale { about, key, reason, warning, note, at } = tale;
    let (kind, namespace, name, uid) = match about {
        Subject::Node { name, uid } => ("Node", None, name, uid.as_str()),
        Subject::Pod(pod, uid) => ("Pod", Some(pod.namespace.clone()), &pod.name, uid.as_str()),
    };
    let object: String = name.chars().take(200).collect();
    // Cut in the middle of a name, it may end as none may.
    let object = object.trim_end_matches(['-', '.']);
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{object}.{:016x}", fingerprint(&format!("{uid}/{key}/{reason}")))),
            // Events about cluster-scoped objects live in the namespace `default`.
            namespace: Some(namespace.clone().unwrap_or_else(|| "default".into())),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some("v1".into()),
            kind: Some(kind.into()),
            namespace,
            name: Some(name.clone()),
            uid: Some(uid.to_owned()),
            ..ObjectReference::default()
        },
        first_timestamp: Some(Time(*at)),
        last_timestamp: Some(Time(*at)),
        count: Some(1),
        source: Some(EventSource { component: Some(CONTROLLER.into()), host: None }),
        reporting_component: Some(CONTROLLER.into()),
        reporting_instance: Some(instance.chars().take(128).collect()),
        reason: Some(reason.chars().take(128).collect()),
        type_: Some(if *warning { "Warning" } else { "Normal" }.into()),
        message: Some(cut(note, MOST_NOTE_BYTES)),
        ..Event::default()
    }
}

/// The text up to a number of bytes, cut between characters.
fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let end = (0..=most - '…'.len_utf8()).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{}…", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tale(note: &str) -> Tale {
        Tale {
            about: Subject::Node { name: "n1".into(), uid: "u1".into() },
            key: "e1/Scheduled".into(),
            reason: "RebootScheduled".into(),
            warning: true,
            note: note.into(),
            at: "2026-04-11T22:00:00Z".parse().unwrap(),
        }
    }

    #[test]
    fn telling_the_same_again_makes_an_event_of_the_same_name() {
        let first = event(&tale("in 15m"), "agent-a").metadata.name;
        assert_eq!(first, event(&tale("in 14m"), "agent-b").metadata.name);
        let other = Tale { key: "e2/Scheduled".into(), ..tale("") };
        assert_ne!(first, event(&other, "agent-a").metadata.name);
    }

    #[test]
    fn a_long_note_is_cut_between_characters() {
        let note = event(&tale(&"é".repeat(1000)), "agent").message.unwrap();
        assert!(note.len() <= MOST_NOTE_BYTES && note.ends_with("é…"), "{} bytes", note.len());
    }
}
