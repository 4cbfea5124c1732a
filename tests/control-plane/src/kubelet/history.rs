//! What a kubelet did to its pods, for tests to judge.

use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::lock;
use crate::clock;
use crate::follow::TimedOut;

/// The life of one pod on one node.
#[derive(Clone, Debug)]
pub struct PodHistory {
    /// The pod's UID.
    pub uid: String,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    /// Each time when the kubelet began to stop it. More than one: the grace was shortened.
    pub terminations: Vec<Termination>,
    /// Its end, if it has ended.
    pub ended: Option<Ending>,
}

impl PodHistory {
    /// Seconds from the first SIGTERM to the end, if both have happened.
    pub fn seconds_to_stop(&self) -> Option<f64> {
        let begun = self.terminations.first()?.at;
        self.ended.as_ref().map(|ended| ended.at.duration_since(begun).as_secs_f64())
    }
}

/// The kubelet sent SIGTERM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Termination {
    /// When.
    pub at: Instant,
    /// The grace that the pod had at that time (`deletionGracePeriodSeconds`).
    pub grace: Duration,
}

/// The pod ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    /// When.
    pub at: Instant,
    /// How.
    pub how: HowItEnded,
}

/// How a pod ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HowItEnded {
    /// It stopped by itself, on SIGTERM or because its work was done.
    Stopped,
    /// It was killed when its grace was over.
    Killed,
    /// Its machine lost power or rebooted. The same pod may start again.
    MachineStopped,
    /// Its object vanished while it was still running, as after a deletion with grace 0.
    ObjectDeleted,
}

/// The histories of all pods of a node, in the order in which they came.
#[derive(Debug, Default)]
pub struct History {
    pods: Mutex<Vec<PodHistory>>,
    changed: Notify,
}

impl History {
    /// All pods that were ever here.
    pub fn pods(&self) -> Vec<PodHistory> {
        lock(&self.pods).clone()
    }

    /// The pod with this UID, if it was ever here.
    pub fn pod(&self, uid: &str) -> Option<PodHistory> {
        lock(&self.pods).iter().find(|pod| pod.uid == uid).cloned()
    }

    pub(super) async fn wait_for(
        &self,
        goal: &str,
        limit: Duration,
        mut reached: impl FnMut(&[PodHistory]) -> bool,
    ) -> Result<Vec<PodHistory>, TimedOut> {
        let wait = async {
            loop {
                let changed = self.changed.notified();
                tokio::pin!(changed);
                // From here on no change is missed, even one that comes before the wait below.
                changed.as_mut().enable();
                {
                    let pods = lock(&self.pods);
                    if reached(&pods) {
                        return pods.clone();
                    }
                }
                changed.await;
            }
        };
        timeout(limit, wait).await.map_err(|_| TimedOut {
            goal: goal.to_owned(),
            limit,
            last_seen: format!("{:#?}", self.pods()),
        })
    }

    pub(super) fn started(&self, uid: &str, namespace: &str, name: &str) {
        let mut pods = lock(&self.pods);
        match pods.iter_mut().find(|pod| pod.uid == uid) {
            Some(pod) => pod.ended = None,
            None => pods.push(PodHistory {
                uid: uid.to_owned(),
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                terminations: Vec::new(),
                ended: None,
            }),
        }
        drop(pods);
        self.changed.notify_waiters();
    }

    pub(super) fn terminating(&self, uid: &str, grace: Duration) {
        let termination = Termination { at: clock::now(), grace };
        self.change(uid, |pod| pod.terminations.push(termination));
    }

    pub(super) fn ended(&self, uid: &str, how: HowItEnded) {
        let ending = Ending { at: clock::now(), how };
        self.change(uid, |pod| {
            pod.ended.get_or_insert(ending);
        });
    }

    pub(super) fn machine_stopped(&self) {
        let ending = Ending { at: clock::now(), how: HowItEnded::MachineStopped };
        for pod in lock(&self.pods).iter_mut() {
            pod.ended.get_or_insert(ending);
        }
        self.changed.notify_waiters();
    }

    fn change(&self, uid: &str, change: impl FnOnce(&mut PodHistory)) {
        if let Some(pod) = lock(&self.pods).iter_mut().find(|pod| pod.uid == uid) {
            change(pod);
        }
        self.changed.notify_waiters();
    }
}
