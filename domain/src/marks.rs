//! The marks that remediator puts on a node, and whose they are.
//!
//! Both roles may need the same mark on one node at the same time. Each keeps claims of its own, in its own annotation:
//! whether it needs a mark, and whether the mark was there before *either* role came. A mark goes with the last claim
//! on it, and never if it was foreign at the first. Every write insists on the version of the node that it was made
//! for, so each role sees the other's claims as they are.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The key of the taint, if a policy names no other. The autoscaler leaves taints with this prefix out of its picture of a new
/// node of the pool; any other would keep it from adding nodes
/// (<https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md>).
pub const DEFAULT_TAINT_KEY: &str = "status-taint.cluster-autoscaler.kubernetes.io/remediator";

/// Taints whose keys begin so do not stop the autoscaler.
const HARMLESS_PREFIX: &str = "status-taint.cluster-autoscaler.kubernetes.io/";

/// The taint of AKS's own auto-drain.
pub const AKS_TAINT_KEY: &str = "remediator.kubernetes.azure.com/unschedulable";

/// The taint of a node that the autoscaler is removing.
pub const AUTOSCALER_TAINT_KEY: &str = "ToBeDeletedByClusterAutoscaler";

/// The label by which load balancers leave a node out
/// (<https://kubernetes.io/docs/reference/labels-annotations-taints/#node-kubernetes-io-exclude-from-external-load-balancers>).
pub const EXCLUDE_FROM_LOAD_BALANCERS: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// The annotation by which the autoscaler leaves a node alone.
pub const SCALE_DOWN_DISABLED: &str = "cluster-autoscaler.kubernetes.io/scale-down-disabled";

/// What the label and the annotation say when remediator sets them.
pub const YES: &str = "true";

/// What a taint does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TaintEffect {
    /// Pods without a toleration are not scheduled to the node.
    #[default]
    NoSchedule,
    /// They are scheduled to it only where nothing else is left.
    PreferNoSchedule,
    /// They are also deleted, past any disruption budget; so it is set only when the drain is over.
    NoExecute,
}

impl TaintEffect {
    /// The word of the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }
}

/// A taint that a policy asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taint {
    /// Its key.
    pub key: String,
    /// Its value, possibly empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// What it does.
    pub effect: TaintEffect,
}

impl Default for Taint {
    fn default() -> Self {
        Self { key: DEFAULT_TAINT_KEY.into(), value: String::new(), effect: TaintEffect::default() }
    }
}

/// As kubectl writes it: `key:NoSchedule`, or `key=value:NoSchedule`.
impl fmt::Display for Taint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, value, effect } = self;
        let equals = if value.is_empty() { "" } else { "=" };
        write!(out, "{key}{equals}{value}:{}", effect.as_str())
    }
}

impl Taint {
    /// What an operator should know about this taint, if anything.
    pub fn warning(&self) -> Option<String> {
        let key = &self.key;
        if key == AKS_TAINT_KEY {
            return Some(format!(
                "taint {key} is that of AKS's own auto-drain, which may take it away or find it in its way: leave `key` out"
            ));
        }
        (!key.starts_with(HARMLESS_PREFIX)).then(|| {
            format!(
                "taint {key} does not begin with {HARMLESS_PREFIX}: the cluster autoscaler takes it for a taint of every \
                 new node of the pool, and may then add none"
            )
        })
    }

    fn is(&self, on_node: &NodeTaint) -> bool {
        self.key == on_node.key && self.effect.as_str() == on_node.effect
    }
}

/// What a policy wants on a node beside the cordon.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Marking {
    /// A taint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taint: Option<Taint>,
    /// That load balancers outside the cluster send nothing to it any more ([`EXCLUDE_FROM_LOAD_BALANCERS`]).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub exclude_from_load_balancers: bool,
    /// That the autoscaler does not remove it meanwhile ([`SCALE_DOWN_DISABLED`]).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub disable_scale_down: bool,
}

/// A taint as it is on a node, with whatever else belongs to it: the list is written as a whole, so nothing of a
/// foreign entry may be lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeTaint {
    /// Its key.
    pub key: String,
    /// What it does.
    #[serde(default)]
    pub effect: String,
    /// Its value.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

impl From<&Taint> for NodeTaint {
    fn from(taint: &Taint) -> Self {
        Self {
            key: taint.key.clone(),
            effect: taint.effect.as_str().into(),
            value: taint.value.clone(),
            rest: Map::new(),
        }
    }
}

/// The marks that are on a node, whoever set them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Whether it is cordoned.
    pub unschedulable: bool,
    /// Who wrote the cordon that is there, as far as the API server knows.
    pub cordon_manager: Option<String>,
    /// Its taints.
    pub taints: Vec<NodeTaint>,
    /// What its label [`EXCLUDE_FROM_LOAD_BALANCERS`] says; any value excludes it.
    pub exclude_from_load_balancers: Option<String>,
    /// What its annotation [`SCALE_DOWN_DISABLED`] says.
    pub scale_down_disabled: Option<String>,
}

impl Marks {
    /// Whether the autoscaler is removing the node.
    pub fn removed_by_autoscaler(&self) -> bool {
        self.taints.iter().any(|taint| taint.key == AUTOSCALER_TAINT_KEY)
    }

    /// The marks once these changes are made.
    #[must_use]
    pub fn changed(mut self, changes: &MarkChanges) -> Self {
        let MarkChanges { unschedulable, taints, exclude_from_load_balancers, scale_down_disabled } = changes.clone();
        if let Some(unschedulable) = unschedulable {
            self.unschedulable = unschedulable;
        }
        if let Some(taints) = taints {
            self.taints = taints;
        }
        let said = |set: bool| set.then(|| YES.to_owned());
        if let Some(set) = exclude_from_load_balancers {
            self.exclude_from_load_balancers = said(set);
        }
        if let Some(set) = scale_down_disabled {
            self.scale_down_disabled = said(set);
        }
        self
    }
}

/// What is to be written of the marks; `None` leaves one as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MarkChanges {
    /// The cordon is set or taken away.
    pub unschedulable: Option<bool>,
    /// The taints from now on, all of them.
    pub taints: Option<Vec<NodeTaint>>,
    /// The label is set or taken away.
    pub exclude_from_load_balancers: Option<bool>,
    /// The annotation is set or taken away.
    pub scale_down_disabled: Option<bool>,
}

impl MarkChanges {
    /// Whether anything but the cordon is to be written.
    pub fn beside_cordon(&self) -> bool {
        *self != Self { unschedulable: self.unschedulable, ..Self::default() }
    }

    /// Whether anything is to be written.
    pub fn any(&self) -> bool {
        *self != Self::default()
    }
}

/// A role's claim on a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Claim {
    /// A role of remediator set the mark, so it goes with the last claim on it.
    Ours,
    /// The mark was there before either role came, or is somebody else's by now, so it stays.
    Foreign,
}

impl Claim {
    /// The claim on a mark that a role begins to need: on one that is there already, it is what the other role's claim
    /// says, and without one foreign.
    pub fn on(is_there: bool, other: Option<Self>) -> Self {
        match (is_there, other) {
            (false, _) => Self::Ours,
            (true, Some(other)) => other,
            (true, None) => Self::Foreign,
        }
    }

    /// The claim once it was seen whether the mark is there. Where ours has been taken away, whatever stands there later is
    /// somebody else's, unless the other role has put it there.
    #[must_use]
    pub fn seen(self, is_there: bool, other: Option<Self>) -> Self {
        match (is_there, other) {
            (false, _) => Self::Foreign,
            (true, Some(Self::Ours)) => Self::Ours,
            (true, _) => self,
        }
    }

    /// Whether the mark goes when this claim is given up.
    pub fn is_last(self, other: Option<Self>) -> bool {
        self == Self::Ours && other.is_none()
    }
}

/// A claim on a taint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaintClaim {
    /// The taint.
    #[serde(flatten)]
    pub taint: Taint,
    /// The claim.
    pub claim: Claim,
}

/// The marks on a node that one role needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Claims {
    /// The cordon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cordon: Option<Claim>,
    /// The taint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taint: Option<TaintClaim>,
    /// The label for load balancers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclude_from_load_balancers: Option<Claim>,
    /// The annotation for the autoscaler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_down_disabled: Option<Claim>,
    /// Members that another version has written: kept, so that a version between two others loses nothing.
    #[serde(flatten)]
    unknown: Map<String, Value>,
}

impl Claims {
    /// Whether nothing is claimed.
    pub fn none(&self) -> bool {
        self.cordon.is_none()
            && self.taint.is_none()
            && self.exclude_from_load_balancers.is_none()
            && self.scale_down_disabled.is_none()
    }

    fn on_taint(&self, taint: &Taint) -> Option<Claim> {
        let same = |claim: &&TaintClaim| claim.taint.key == taint.key && claim.taint.effect == taint.effect;
        self.taint.as_ref().filter(same).map(|claim| claim.claim)
    }

    /// Brings the claims on the marks beside the cordon up to date with what is on the node; see [`Claim::seen`]. `other` are
    /// the claims of the other role.
    pub fn look(&mut self, other: &Self, node: &Marks) {
        if let Some(TaintClaim { taint, claim }) = &mut self.taint {
            let is_there = node.taints.iter().any(|on_node| taint.is(on_node));
            *claim = claim.seen(is_there, other.on_taint(taint));
        }
        for (claim, other, says) in [
            (
                &mut self.exclude_from_load_balancers,
                other.exclude_from_load_balancers,
                node.exclude_from_load_balancers.as_deref(),
            ),
            (&mut self.scale_down_disabled, other.scale_down_disabled, node.scale_down_disabled.as_deref()),
        ] {
            // Another value than ours is somebody else's word.
            *claim = claim.map(|claim| claim.seen(says == Some(YES), other));
        }
    }

    /// Claims the marks beside the cordon that are wanted and not claimed yet, and says what that changes on the node.
    /// One that is claimed already and not there is not put back: someone did not want it.
    pub fn take(&mut self, wanted: &Marking, other: &Self, node: &Marks) -> MarkChanges {
        self.look(other, node);
        let mut changes = MarkChanges::default();
        if let (None, Some(wanted)) = (&self.taint, &wanted.taint) {
            let is_there = node.taints.iter().any(|taint| wanted.is(taint));
            let claim = Claim::on(is_there, other.on_taint(wanted));
            self.taint = Some(TaintClaim { taint: wanted.clone(), claim });
            if !is_there {
                let mut taints = node.taints.clone();
                taints.push(wanted.into());
                changes.taints = Some(taints);
            }
        }
        changes.exclude_from_load_balancers = take_one(
            &mut self.exclude_from_load_balancers,
            wanted.exclude_from_load_balancers,
            other.exclude_from_load_balancers,
            node.exclude_from_load_balancers.as_deref(),
        );
        changes.scale_down_disabled = take_one(
            &mut self.scale_down_disabled,
            wanted.disable_scale_down,
            other.scale_down_disabled,
            node.scale_down_disabled.as_deref(),
        );
        changes
    }

    /// Gives up the claims on all marks beside the cordon, and says what that changes on the node.
    pub fn give_up(&mut self, other: &Self, node: &Marks) -> MarkChanges {
        let mut changes = MarkChanges::default();
        if let Some(TaintClaim { taint, claim }) = self.taint.take() {
            let goes = claim.is_last(other.on_taint(&taint)) && node.taints.iter().any(|on_node| taint.is(on_node));
            changes.taints = goes.then(|| node.taints.iter().filter(|on_node| !taint.is(on_node)).cloned().collect());
        }
        changes.exclude_from_load_balancers = give_up_one(
            &mut self.exclude_from_load_balancers,
            other.exclude_from_load_balancers,
            node.exclude_from_load_balancers.as_deref(),
        );
        changes.scale_down_disabled =
            give_up_one(&mut self.scale_down_disabled, other.scale_down_disabled, node.scale_down_disabled.as_deref());
        changes
    }
}

fn take_one(claim: &mut Option<Claim>, wanted: bool, other: Option<Claim>, says: Option<&str>) -> Option<bool> {
    if claim.is_some() || !wanted {
        return None;
    }
    *claim = Some(Claim::on(says.is_some(), other));
    says.is_none().then_some(true)
}

fn give_up_one(claim: &mut Option<Claim>, other: Option<Claim>, says: Option<&str>) -> Option<bool> {
    let last = claim.take()?.is_last(other);
    (last && says == Some(YES)).then_some(false)
}

#[cfg(test)]
mod tests;
