//! Pods as a drain sees them, and which of them it evicts.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;

use super::Order;
use crate::policy::Treatment;

/// A label or annotation that keeps a pod out of every drain when its value is `true`.
pub const SKIP_DRAIN: &str = "remediator.dev/skip-drain";

/// The identity of one pod: a pod that is created anew under the same name has another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodUid(String);

impl PodUid {
    /// Takes `metadata.uid`.
    pub fn new(uid: impl Into<String>) -> Self {
        Self(uid.into())
    }

    /// The text of `metadata.uid`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Where a pod is found; not its identity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl fmt::Display for PodName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.namespace, self.name)
    }
}

/// Who brings the pod back when it is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controller {
    /// Nobody.
    None,
    /// A DaemonSet, which would bring it back to the very same node.
    DaemonSet,
    /// Any other controller.
    Other,
}

/// A deletion under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deletion {
    /// When it should be over (`deletionTimestamp`).
    pub ends_at: Timestamp,
    /// The grace that it was given (`deletionGracePeriodSeconds`).
    pub grace: Duration,
}

impl Deletion {
    /// How long ago it began: the API server counts every later, shorter grace from there.
    pub fn running_for(self, wall: Timestamp) -> Duration {
        let began = crate::time::minus(self.ends_at, self.grace);
        Duration::try_from(wall.duration_since(began)).unwrap_or_default()
    }
}

/// What a drain needs to know of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts about a pod, each read at one place")]
pub struct Pod {
    /// Where it is found.
    pub name: PodName,
    /// Its identity.
    pub uid: PodUid,
    /// The node that it runs on.
    pub node: Option<String>,
    /// When it was created.
    pub created_at: Option<Timestamp>,
    /// Its priority.
    pub priority: i32,
    /// The grace that it asks for (`terminationGracePeriodSeconds`).
    pub grace: Duration,
    /// Who brings it back.
    pub controller: Controller,
    /// The UID of that controller.
    pub controller_uid: Option<String>,
    /// Whether it has run to its end (`Succeeded` or `Failed`).
    pub finished: bool,
    /// Whether it mirrors a static pod of the kubelet, which no API request can remove.
    pub mirror: bool,
    /// Whether it has an `emptyDir` volume.
    pub empty_dir: bool,
    /// Whether it may be scheduled to a cordoned node.
    pub tolerates_cordon: bool,
    /// Whether [`SKIP_DRAIN`] is set on it.
    pub skip: bool,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations, as far as their values are short: others cannot be meant by [`crate::policy::Skip`].
    pub annotations: BTreeMap<String, String>,
    /// Its deletion, if that has begun.
    pub deletion: Option<Deletion>,
}

/// The longest value of an annotation, in bytes, by which a policy can know a pod: that of a label.
pub const LONGEST_ANNOTATION: usize = 63;

/// Why a pod that could be evicted is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kept {
    /// It asks to be left alone.
    Skip,
    /// The policy leaves pods with its label or annotation.
    Named,
    /// It came back after its eviction, because it tolerates the cordon.
    Returned,
    /// It came after someone had uncordoned the node for good: evicting it would only bring the next one.
    Uncordoned,
    /// The policy leaves pods without a controller.
    Bare,
    /// The policy leaves pods with an `emptyDir` volume.
    EmptyDir,
}

impl Kept {
    /// Whether the drain is incomplete because of it.
    pub fn is_unfinished_business(self) -> bool {
        matches!(self, Self::Uncordoned | Self::Bare | Self::EmptyDir)
    }
}

impl fmt::Display for Kept {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Skip => "it asks to be left alone (remediator.dev/skip-drain)",
            Self::Named => "the policy leaves pods with its label or annotation",
            Self::Returned => "it tolerates the cordon and came back after its eviction",
            Self::Uncordoned => "it came after someone had uncordoned the node",
            Self::Bare => "no controller brings it back, and the policy leaves such pods",
            Self::EmptyDir => "it would lose an emptyDir volume, and the policy leaves such pods",
        })
    }
}

/// What a drain does about a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It does not count: it is finished, goes with the node, is this very program, or the policy is about other pods.
    Uncounted,
    /// It stays and is named.
    Kept(Kept),
    /// It goes.
    Evicted,
}

impl Pod {
    /// What a drain does about this pod; `own` is the pod that this program runs in.
    pub fn standing(&self, order: &Order, own: Option<&PodName>) -> Standing {
        let Order { profile, started_at, uncordoned_at, .. } = order;
        let came_after = |at: Timestamp| self.created_at.is_some_and(|created| created > at);
        if self.finished || self.mirror || self.controller == Controller::DaemonSet || own == Some(&self.name) {
            return Standing::Uncounted;
        }
        if profile.pods.as_ref().is_some_and(|pods| !pods.matches(&self.labels)) {
            return Standing::Uncounted;
        }
        if self.skip {
            return Standing::Kept(Kept::Skip);
        }
        let has = |map: &BTreeMap<String, String>, (key, value): (&String, &String)| map.get(key) == Some(value);
        if profile.skip.labels.iter().any(|one| has(&self.labels, one))
            || profile.skip.annotations.iter().any(|one| has(&self.annotations, one))
        {
            return Standing::Kept(Kept::Named);
        }
        if self.tolerates_cordon && came_after(*started_at) {
            return Standing::Kept(Kept::Returned);
        }
        if uncordoned_at.is_some_and(came_after) {
            return Standing::Kept(Kept::Uncordoned);
        }
        if self.controller == Controller::None && profile.bare == Treatment::Leave {
            return Standing::Kept(Kept::Bare);
        }
        if self.empty_dir && profile.empty_dir == Treatment::Leave {
            return Standing::Kept(Kept::EmptyDir);
        }
        Standing::Evicted
    }
}
