//! What became of pods, for whoever judges a run.

use std::collections::VecDeque;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::world::api_server::store::Key;

/// How many fates are kept.
const KEPT: usize = 10_000;

/// How a pod ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HowItEnded {
    /// By itself, on SIGTERM and in time.
    Stopped,
    /// By SIGKILL, when its grace was over or its object was deleted without any.
    Killed,
    /// With its machine, which stopped while the pod was running. After a reboot the same pod may start again.
    Lost,
    /// By itself, because its work was done.
    Finished,
}

/// The end of what ran in a pod.
#[derive(Clone, Debug)]
pub struct Fate {
    /// When.
    pub at: Timestamp,
    /// Which pod.
    pub key: Key,
    /// Its UID.
    pub uid: String,
    /// The node that it was on.
    pub node: String,
    /// How.
    pub how: HowItEnded,
    /// When it was told to stop, if it ever was. A pod that is lost without that had no notice.
    pub told_at: Option<Timestamp>,
    /// The object as the kubelet saw it last, with its owners.
    pub pod: Arc<Value>,
}

/// Is told each fate while it happens. It must not call the kubelets.
pub type Observer = Box<dyn FnMut(&Fate) + Send>;

/// The latest fates.
#[derive(Default)]
pub(super) struct Fates {
    latest: VecDeque<Fate>,
    observers: Vec<Observer>,
}

impl Fates {
    pub(super) fn push(&mut self, fate: Fate) {
        for observer in &mut self.observers {
            observer(&fate);
        }
        if self.latest.len() == KEPT {
            self.latest.pop_front();
        }
        self.latest.push_back(fate);
    }

    pub(super) fn observe(&mut self, observer: Observer) {
        self.observers.push(observer);
    }

    pub(super) fn latest(&self) -> Vec<Fate> {
        self.latest.iter().cloned().collect()
    }
}
