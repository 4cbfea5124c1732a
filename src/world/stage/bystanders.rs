//! What others than agents do to the cluster: people, the autoscaler, a repairer, and an admission webhook. They act as the
//! real ones do, through the front door, and know nothing of what is checked.

use axum::body::Body;
use domain::marks::{
    AUTOSCALER_TAINT_KEY, EXCLUDE_FROM_LOAD_BALANCERS, NodeTaint, SCALE_DOWN_DISABLED, Taint, TaintEffect, YES,
};
use domain::policy::POLICY_ANNOTATION;
use domain::record::HOLD_ANNOTATION;
use http::Request;
use http::header::CONTENT_TYPE;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::Stage;
use crate::world::api_server::kinds::{CUSTOM_RESOURCE_DEFINITIONS, NODES};
use crate::world::api_server::refusal::Refusal;
use crate::world::api_server::store::{Actor, Key};
use crate::world::api_server::{ApiServer, Part};
use crate::world::invariants::{AUTOSCALER, NODE_REPAIRS, is_agent};
use crate::world::onlooker::PERSON;
use crate::world::scenario::{Act, Mark};
use crate::world::timeline::Who;

/// Who repairs nodes.
const REPAIRER: &str = "repairer";

/// Has the API server serve repairs of nodes.
pub(super) fn define_repairs(server: &ApiServer) -> Result<(), Refusal> {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({
        "metadata": {"name": NODE_REPAIRS},
        "spec": {
            "group": "remediator.dev",
            "names": {"plural": "noderepairs", "singular": "noderepair", "kind": "NodeRepair", "shortNames": ["nr"]},
            "scope": "Cluster",
            "versions": [{
                "name": "v1alpha1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": any},
                "subresources": {"status": {}},
            }],
        },
    });
    server.create(&Actor::new(REPAIRER), CUSTOM_RESOURCE_DEFINITIONS, "", definition).map(drop)
}

impl Stage {
    pub(super) async fn act_of_others(&self, act: Act) {
        match act {
            Act::Cordon(node) => self.cordon(&node, true).await,
            Act::Uncordon(node) => self.cordon(&node, false).await,
            Act::Hold(node) => {
                self.tell(Some(&node), Who::Person, "holds remediator off the node");
                self.annotate(&node, HOLD_ANNOTATION, Some("by hand")).await;
            }
            Act::LiftHold(node) => {
                self.tell(Some(&node), Who::Person, "lifts the hold");
                self.annotate(&node, HOLD_ANNOTATION, None).await;
            }
            Act::SetMark(node, mark) => self.mark(&node, mark, true).await,
            Act::TakeMark(node, mark) => self.mark(&node, mark, false).await,
            Act::NamePolicy(node, number) => {
                let name = self.policies.get(number).map_or("not-there", String::as_str);
                self.tell(Some(&node), Who::Person, format!("gives the node policy {name}"));
                self.annotate(&node, POLICY_ANNOTATION, Some(name)).await;
            }
            Act::UnnamePolicy(node) => {
                self.tell(Some(&node), Who::Person, "gives the node no policy by name any more");
                self.annotate(&node, POLICY_ANNOTATION, None).await;
            }
            Act::ScaleDown(node) => self.scale_down(&node).await,
            Act::GiveUpScaleDown(node) => self.give_up_scale_down(&node).await,
            Act::EndScaleDown(node) if self.is_being_scaled_down(&node) => {
                self.tell(Some(&node), Who::Kubernetes, "the autoscaler removes the machine");
                self.machines().demolish(&node, self.clock.now().wall);
            }
            Act::Repair(node) => self.repair(&node),
            Act::EndRepair(node) => self.end_repair(&node),
            Act::RefuseTaint => {
                self.tell(None, Who::Fault, format!("admission refuses taint {}", self.taint.key));
                let key = self.taint.key.clone();
                self.server.admit_by(Some(Box::new(move |actor, resource, body| {
                    let mut taints = body["spec"]["taints"].as_array().into_iter().flatten();
                    let refused =
                        is_agent(actor) && resource == NODES && taints.any(|taint| taint["key"] == key.as_str());
                    let message = "admission webhook \"taints.example.com\" denied the request: unknown taint";
                    refused.then(|| message.to_owned())
                })));
            }
            Act::LetTaintPass => {
                self.tell(None, Who::Fault, format!("admission lets taint {} pass", self.taint.key));
                self.server.admit_by(None);
            }
            _ => {}
        }
    }

    /// Whatever others have begun on a node that keeps agents from giving it back, they end. What people have set stays.
    pub(super) async fn leave_alone(&self, node: &str) {
        self.annotate(node, HOLD_ANNOTATION, None).await;
        self.annotate(node, POLICY_ANNOTATION, None).await;
        self.give_up_scale_down(node).await;
        self.end_repair(node);
        self.set_clock_if_wrong(node);
    }

    fn set_clock_if_wrong(&self, node: &str) {
        let is_wrong = |clock: &crate::clock::Clock| clock.now().wall != self.clock.now().wall;
        if self.clocks.get(node).is_some_and(is_wrong) {
            self.set_clock(node, 0);
        }
    }

    async fn cordon(&self, node: &str, cordon: bool) {
        let patch = json!({"spec": {"unschedulable": cordon.then_some(true)}});
        self.patch(node, PERSON, "kubectl-cordon", patch).await;
    }

    async fn annotate(&self, node: &str, key: &str, value: Option<&str>) {
        let patch = json!({"metadata": {"annotations": {key: value}}});
        self.patch(node, PERSON, "kubectl-annotate", patch).await;
    }

    async fn mark(&self, node: &str, mark: Mark, there: bool) {
        let (manager, what, patch) = match mark {
            Mark::Taint => {
                let taints = self.taints_with(node, &self.taint, there);
                ("kubectl-taint", format!("taint {}", self.taint.key), json!({"spec": {"taints": taints}}))
            }
            Mark::ExcludeFromLoadBalancers => {
                let patch = json!({"metadata": {"labels": {EXCLUDE_FROM_LOAD_BALANCERS: there.then_some(YES)}}});
                ("kubectl-label", format!("label {EXCLUDE_FROM_LOAD_BALANCERS}"), patch)
            }
            Mark::ScaleDownDisabled => {
                let patch = json!({"metadata": {"annotations": {SCALE_DOWN_DISABLED: there.then_some(YES)}}});
                ("kubectl-annotate", format!("annotation {SCALE_DOWN_DISABLED}"), patch)
            }
        };
        self.tell(Some(node), Who::Person, format!("{} {what}", if there { "sets" } else { "takes away" }));
        self.patch(node, PERSON, manager, patch).await;
    }

    /// The taints of a node, with this one or without it.
    fn taints_with(&self, node: &str, taint: &Taint, there: bool) -> Vec<Value> {
        let mut taints = self.node(node)["spec"]["taints"].as_array().cloned().unwrap_or_default();
        taints.retain(|known| known["key"] != taint.key.as_str() || known["effect"] != taint.effect.as_str());
        if there {
            taints.push(json!(NodeTaint::from(taint)));
        }
        taints
    }

    /// A node as it is, or null.
    fn node(&self, name: &str) -> Value {
        self.server.get(NODES, &Key::new("", name)).map_or(Value::Null, |node| Value::clone(&node))
    }

    /// The autoscaler marks the node and keeps pods off it, as before it evicts them
    /// (<https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md#how-does-scale-down-work>).
    async fn scale_down(&self, node: &str) {
        let is_disabled = self.node(node)["metadata"]["annotations"][SCALE_DOWN_DISABLED] == YES;
        if is_disabled || self.node(node).is_null() {
            return;
        }
        self.tell(Some(node), Who::Kubernetes, "the autoscaler is about to remove the node");
        let taints = self.taints_with(node, &autoscaler_taint(), true);
        let patch = json!({"spec": {"taints": taints, "unschedulable": true}});
        self.patch(node, AUTOSCALER, AUTOSCALER, patch).await;
    }

    /// It takes its taint away, and with it the cordon, whosever that is.
    async fn give_up_scale_down(&self, node: &str) {
        if !self.is_being_scaled_down(node) {
            return;
        }
        self.tell(Some(node), Who::Kubernetes, "the autoscaler gives up removing the node");
        let taints = self.taints_with(node, &autoscaler_taint(), false);
        let patch = json!({"spec": {"taints": taints, "unschedulable": null}});
        self.patch(node, AUTOSCALER, AUTOSCALER, patch).await;
    }

    fn is_being_scaled_down(&self, node: &str) -> bool {
        let node = self.node(node);
        let mut taints = node["spec"]["taints"].as_array().into_iter().flatten();
        taints.any(|taint| taint["key"] == AUTOSCALER_TAINT_KEY)
    }

    /// A repair of the node is under way.
    fn repair(&self, node: &str) {
        let provider_id = self.node(node)["spec"]["providerID"].clone();
        if !provider_id.is_string() {
            return;
        }
        self.tell(Some(node), Who::Kubernetes, "a repair of the node begins");
        let repair = json!({"metadata": {"name": node}, "spec": {"nodeName": node, "providerID": provider_id}});
        // One may be there already.
        drop(self.server.create(&Actor::new(REPAIRER), NODE_REPAIRS, "", repair));
        self.set_phase(node, "Acting");
    }

    fn end_repair(&self, node: &str) {
        if self.server.get(NODE_REPAIRS, &Key::new("", node)).is_ok_and(|repair| repair["status"]["phase"] != "Done") {
            self.tell(Some(node), Who::Kubernetes, "the repair of the node is over");
            self.set_phase(node, "Done");
        }
    }

    fn set_phase(&self, node: &str, phase: &str) {
        let by = Actor::new(REPAIRER);
        // It may be gone, and then it has no phase.
        drop(self.server.update(&by, NODE_REPAIRS, &Key::new("", node), Part::Status, |repair| {
            repair["status"]["phase"] = json!(phase);
            Ok(())
        }));
    }

    async fn patch(&self, node: &str, actor: &str, manager: &str, patch: Value) {
        let request = Request::patch(format!("/api/v1/nodes/{node}?fieldManager={manager}"))
            .header(CONTENT_TYPE, "application/merge-patch+json")
            .body(Body::from(patch.to_string()));
        if let Ok(request) = request {
            // The node may be gone, and then there is nothing to change.
            drop(self.server.service(Actor::new(actor)).oneshot(request).await);
        }
    }
}

fn autoscaler_taint() -> Taint {
    Taint { key: AUTOSCALER_TAINT_KEY.into(), value: String::new(), effect: TaintEffect::NoSchedule }
}
