//! The checker against agents that do what must never be done.

use axum::body::Bytes;
use domain::lease::approval_name;
use domain::marks::{AUTOSCALER_TAINT_KEY, EXCLUDE_FROM_LOAD_BALANCERS, YES};
use domain::policy::{Policy, file};
use domain::record::{AGENT_ANNOTATION, HOLD_ANNOTATION};
use domain::scheduled_event::EventId;
use http::StatusCode;
use mock_imds::{EventSpec, Scenario, Vm};
use serde_json::json;

use super::agreement::SLOT;
use super::*;
use crate::world::network::Exchange;

const NODE: &str = "np1-0";

/// A policy with approvals, marks and slots.
const EVERYTHING: &str = include_str!("../../../tests/simulation/everything.yaml");

fn agent() -> String {
    format!("agent/{NODE}")
}

/// A node with one web pod, whose machine has a Redeploy in ten minutes, by the built-in policy.
struct Scene {
    checker: Checker,
    azure: Mock,
    node: Arc<Value>,
    now: Timestamp,
}

struct Fixed(Timestamp);

impl mock_imds::Clock for Fixed {
    fn now(&self) -> Timestamp {
        self.0
    }
}

impl Scene {
    fn new(events: &[EventSpec]) -> Self {
        Self::by(domain::policy::BUILT_IN, events)
    }

    fn by(policy: &str, events: &[EventSpec]) -> Self {
        let now: Timestamp = "2026-04-11T22:00:00Z".parse().unwrap();
        let vms = ["np1_0", "np1_1"].map(|vm| Vm::new(vm).in_group("np1"));
        let azure = Mock::new(Scenario::new(vms), Fixed(now));
        for event in events {
            azure.inject(event).unwrap();
        }
        let policy: Policy = file::parse("policy.yaml", policy).unwrap();
        let policies = PolicySet::new(vec![policy]).unwrap();
        let nodes = [(NODE, "np1_0"), ("np1-1", "np1_1")].map(|(node, vm)| (node.to_owned(), vm.to_owned()));
        let checker = Checker::new(policies, azure.clone(), Timeline::default(), nodes);
        let mut scene = Self { checker, azure, node: Arc::new(json!({"metadata": {}, "spec": {}})), now };
        let ready = json!([{"type": "Ready", "status": "True"}]);
        scene.write("kubelet", |node| node["status"] = json!({"conditions": ready}));
        scene.checker.see_life(NODE, now);
        scene.pod("web", json!({"ownerReferences": [{"kind": "ReplicaSet", "controller": true}]}));
        scene
    }

    fn with_redeploy() -> Self {
        Self::new(&[EventSpec::redeploy("np1_0").name("move")])
    }

    fn later(&mut self, seconds: i64) {
        self.now += jiff::SignedDuration::from_secs(seconds);
    }

    fn change(&self, by: &str, resource: &str, key: Key, before: Option<&Arc<Value>>, after: Arc<Value>) {
        self.checker.see_change(&Change {
            version: 1,
            at: self.now,
            by: Actor::new(by),
            resource: resource.into(),
            key,
            before: before.cloned(),
            after: Some(after),
        });
    }

    fn write(&mut self, by: &str, change: impl FnOnce(&mut Value)) {
        let mut after = Value::clone(&self.node);
        change(&mut after);
        let after = Arc::new(after);
        self.change(by, NODES, Key::new("", NODE), Some(&self.node), Arc::clone(&after));
        self.node = after;
    }

    fn pod(&self, name: &str, mut metadata: Value) {
        metadata["uid"] = json!(format!("uid-{name}"));
        let pod = json!({"metadata": metadata, "spec": {"nodeName": NODE}, "status": {"phase": "Running"}});
        self.change("kubelet", PODS, Key::new("shop", name), None, Arc::new(pod));
    }

    /// What an agent that behaves writes first.
    fn cordon_with_record(&mut self) {
        let event = self.azure.event("move").unwrap();
        let record = json!({
            "version": 1, "vm": "np1_0", "claims": {"cordon": "ours"},
            "events": [{
                "id": event.id.as_str(), "type": "Redeploy", "source": "Platform", "status": "Scheduled",
                "seenAt": self.now, "ruling": {"policy": "default", "rule": "reboot-or-move", "action": "drain"},
            }],
        });
        self.write(&format!("agent/{NODE}"), |node| {
            node["spec"]["unschedulable"] = json!(true);
            node["metadata"]["annotations"] = json!({AGENT_ANNOTATION: record.to_string()});
        });
    }

    /// An agent that behaves has done all that there is to do before the event.
    fn drain(&mut self) {
        self.cordon_with_record();
        self.change("kubelet", PODS, Key::new("shop", "web"), None, Arc::new(json!({"metadata": {"uid": "uid-web"}})));
    }

    /// The drain of the node that is recorded begins.
    fn begin_drain(&mut self) {
        let text = self.node["metadata"]["annotations"][AGENT_ANNOTATION].as_str().unwrap().to_owned();
        let mut record: Value = serde_json::from_str(&text).unwrap();
        record["drain"] = json!({"startedAt": self.now, "deadline": self.now});
        self.write(&agent(), |node| node["metadata"]["annotations"][AGENT_ANNOTATION] = json!(record.to_string()));
    }

    fn lease(&self, name: &str, holder: &str, done: bool) {
        let annotations = if done { json!({"remediator.dev/done": "now"}) } else { json!({}) };
        let lease = json!({"metadata": {"annotations": annotations}, "spec": {"holderIdentity": holder}});
        self.change(holder, LEASES, Key::new("kube-system", name), None, Arc::new(lease));
    }

    fn claim(&self, done: bool) {
        let event = self.azure.event("move").unwrap();
        self.lease(&approval_name(&EventId::new(event.id.as_str())), NODE, done);
    }

    /// Azure answers with the list of its events.
    fn hear(&self) {
        let event = self.azure.event("move").unwrap();
        let body = json!({"Events": [{"EventId": event.id.as_str(), "EventStatus": "Scheduled"}]}).to_string();
        self.hear_this(&body);
    }

    fn hear_this(&self, body: &str) {
        let answer =
            Exchange::Answered { tells: false, status: StatusCode::OK, body: Bytes::copy_from_slice(body.as_bytes()) };
        self.checker.see_exchange(NODE, answer, self.now);
    }

    /// The agent tells Azure that the event may start.
    fn tell_azure(&self) {
        let event = self.azure.event("move").unwrap();
        let body = json!({"StartRequests": [{"EventId": event.id.as_str()}]}).to_string();
        self.checker.see_exchange(NODE, Exchange::Asked { tells: true, body: body.into() }, self.now);
    }

    fn ask(&self, verb: &'static str, resource: &str, name: &str, body: Value) {
        let subresource = (verb == "create").then(|| "eviction".to_owned());
        let namespace = if resource == PODS { "shop" } else { "" };
        let request = RequestSeen {
            actor: agent_of(NODE),
            verb,
            resource: resource.into(),
            subresource,
            key: Key::new(namespace, name),
            code: 201,
            body: Some(Arc::new(body)),
        };
        self.checker.see_request(&request, self.now);
    }

    fn evict(&self, name: &str) {
        let options = json!({"gracePeriodSeconds": 30, "preconditions": {"uid": format!("uid-{name}")}});
        self.ask("create", PODS, name, json!({"deleteOptions": options}));
    }

    /// What was broken, without time and node.
    fn broken(&self) -> Vec<String> {
        let state = self.checker.state();
        let without_place = |what: &String| what.split_once(": ").map_or("", |(_, what)| what).to_owned();
        state.verdict.violations.iter().map(without_place).collect()
    }
}

#[test]
fn an_agent_that_does_as_the_policy_says_breaks_nothing() {
    let mut scene = Scene::with_redeploy();
    scene.cordon_with_record();
    scene.evict("web");
    scene.azure.cancel("move").unwrap();
    scene.later(5);
    scene.write("agent/np1-0", |node| *node = json!({"metadata": {}, "spec": {}}));
    assert_eq!(scene.broken(), Vec::<String>::new());
    assert_eq!(scene.checker.close(scene.now).given_back, 1);
}

#[test]
fn an_eviction_must_name_the_pod_that_is_there_and_give_it_time() {
    let mut scene = Scene::with_redeploy();
    scene.cordon_with_record();
    scene.ask("create", PODS, "web", json!({"deleteOptions": {"gracePeriodSeconds": 30}}));
    let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": "uid-web"}});
    scene.ask("create", PODS, "web", json!({"deleteOptions": options}));
    assert_eq!(
        scene.broken(),
        ["pod shop/web was asked to leave whichever pod it is: no UID was named", "pod shop/web was given no grace"]
    );
}

#[test]
fn pods_of_the_node_itself_and_of_other_nodes_are_left_alone() {
    let mut scene = Scene::with_redeploy();
    scene.cordon_with_record();
    scene.pod("logs", json!({"ownerReferences": [{"kind": "DaemonSet", "controller": true}]}));
    scene.evict("logs");
    let elsewhere = json!({"metadata": {"uid": "uid-far"}, "spec": {"nodeName": "np1-1"}});
    scene.change("kubelet", PODS, Key::new("shop", "far"), None, Arc::new(elsewhere));
    scene.evict("far");
    scene.ask("patch", NODES, "np1-1", json!({}));
    assert_eq!(
        scene.broken(),
        [
            "pod shop/logs belongs to the node and was asked to leave",
            "pod shop/far was asked to leave, but it is on node np1-1",
            "the agent wrote node np1-1"
        ]
    );
}

#[test]
fn nothing_is_done_without_a_record_or_without_a_rule() {
    let mut scene = Scene::with_redeploy();
    scene.write("agent/np1-0", |node| node["spec"]["unschedulable"] = json!(true));
    scene.evict("web");
    assert_eq!(
        scene.broken(),
        ["cordoned without a record of it", "pod shop/web was asked to leave, but the node carries no record"]
    );
    let mut scene = Scene::new(&[EventSpec::freeze("np1_0").name("move").duration_in_seconds(5)]);
    scene.cordon_with_record();
    scene.evict("web");
    assert_eq!(
        scene.broken(),
        ["cordoned although no rule asks for it", "pod shop/web was asked to leave although no rule asks for a drain"]
    );
}

#[test]
fn a_hold_forbids_everything_once_it_must_have_been_noticed() {
    let mut scene = Scene::with_redeploy();
    scene.cordon_with_record();
    scene.write("person", |node| node["metadata"]["annotations"][HOLD_ANNOTATION] = json!("by hand"));
    scene.later(60);
    scene.evict("web");
    assert_eq!(scene.broken(), Vec::<String>::new(), "it may not have been noticed yet");
    scene.later(60);
    scene.evict("web");
    assert_eq!(scene.broken(), ["pod shop/web was asked to leave although a person holds the agent off"]);
}

#[test]
fn what_azure_still_lists_is_not_given_up_and_what_others_set_is_not_taken_away() {
    let mut scene = Scene::with_redeploy();
    scene.cordon_with_record();
    scene.write("agent/np1-0", |node| *node = json!({"metadata": {}, "spec": {}}));
    assert_eq!(
        scene.broken(),
        ["uncordoned while Azure lists the Redeploy", "the Redeploy is given up while Azure lists it"]
    );
    let mut scene = Scene::new(&[]);
    scene.write("person", |node| node["spec"]["unschedulable"] = json!(true));
    scene.write("agent/np1-0", |node| node["spec"] = json!({}));
    assert_eq!(scene.broken(), ["the cordon of person was taken away"]);
}

#[test]
fn an_agent_that_does_nothing_or_keeps_what_it_took_is_told_off_once() {
    let mut scene = Scene::with_redeploy();
    scene.hear();
    scene.later(190);
    scene.checker.tick(scene.now);
    assert_eq!(scene.broken(), Vec::<String>::new(), "there was hardly time");
    for _ in 0..3 {
        scene.later(30);
        scene.checker.tick(scene.now);
    }
    assert_eq!(scene.broken(), ["nothing is done about the Redeploy although a rule says drain"]);
    let mut scene = Scene::with_redeploy();
    scene.later(480);
    scene.checker.tick(scene.now);
    assert_eq!(scene.broken(), Vec::<String>::new(), "Azure may have been silent");
    scene.later(60);
    scene.checker.tick(scene.now);
    assert_eq!(scene.broken(), ["nothing is done about the Redeploy although a rule says drain"], "it never asks");
    let mut scene = Scene::with_redeploy();
    scene.hear();
    scene.cordon_with_record();
    scene.azure.cancel("move").unwrap();
    scene.later(210);
    scene.checker.tick(scene.now);
    assert_eq!(
        scene.broken(),
        ["the node is not given back although all is over: its cordon and its record are still there"]
    );
    let left = scene.checker.close(scene.now).violations;
    assert!(
        left.last().unwrap().ends_with("all is over, but its cordon and its record are still on the node"),
        "{left:?}"
    );
}

#[test]
fn pods_are_deleted_only_near_the_deadline_of_a_rule_that_says_so() {
    let deletion = json!({"gracePeriodSeconds": 5, "preconditions": {"uid": "uid-web"}});
    let mut scene = Scene::with_redeploy();
    scene.cordon_with_record();
    scene.ask("delete", PODS, "web", deletion.clone());
    assert_eq!(scene.broken(), ["pod shop/web was deleted, which no rule allows"]);
    let mut scene = Scene::new(&[EventSpec::preempt("np1_0").name("move").notice(Duration::from_secs(30))]);
    scene.cordon_with_record();
    scene.ask("delete", PODS, "web", deletion.clone());
    assert_eq!(scene.broken(), ["pod shop/web was deleted before the deadline was near"]);
    scene.later(26);
    scene.ask("delete", PODS, "web", deletion);
    assert_eq!(scene.broken().len(), 1, "near the deadline it is allowed");
}

#[test]
fn a_chatty_agent_is_told_off_and_an_idle_one_must_be_silent() {
    let mut scene = Scene::new(&[]);
    scene.later(300);
    scene.ask("get", NODES, NODE, Value::Null);
    assert_eq!(scene.broken(), ["get nodes although nothing concerns the node"]);
    let mut scene = Scene::with_redeploy();
    scene.cordon_with_record();
    for _ in 0..500 {
        scene.ask("get", NODES, NODE, Value::Null);
    }
    assert_eq!(scene.broken(), ["more than 190 requests within a minute"]);
}

#[test]
fn marks_of_others_are_not_taken_away_and_those_of_the_agent_do_not_stay() {
    let mut scene = Scene::by(EVERYTHING, &[EventSpec::redeploy("np1_0").name("move")]);
    scene.write("person", |node| node["metadata"]["labels"] = json!({EXCLUDE_FROM_LOAD_BALANCERS: YES}));
    scene.cordon_with_record();
    scene.write(&agent(), |node| node["spec"]["taints"] = json!([{"key": "ours", "effect": "NoSchedule"}]));
    scene.write(&agent(), |node| node["metadata"]["labels"] = json!({}));
    assert_eq!(
        scene.broken(),
        ["label node.kubernetes.io/exclude-from-external-load-balancers of person was taken away"]
    );
    scene.azure.cancel("move").unwrap();
    scene.write(&agent(), |node| {
        node["metadata"] = json!({});
        node["spec"] = json!({"taints": [{"key": "ours", "effect": "NoSchedule"}]});
        node["status"]["conditions"] = json!([{"type": "Drained", "reason": "RemediatorDrainCompleted"}]);
    });
    let left = scene.checker.close(scene.now).violations;
    let what = "all is over, but its conditions and taint ours:NoSchedule are still on the node";
    assert!(left.last().unwrap().ends_with(what), "{left:?}");
}

#[test]
fn a_mark_that_was_taken_away_and_set_anew_is_another_s_once_that_must_have_been_noticed() {
    let broken = |seconds: i64| {
        let mut scene = Scene::by(EVERYTHING, &[EventSpec::redeploy("np1_0").name("move")]);
        scene.cordon_with_record();
        scene.write(&agent(), |node| node["metadata"]["labels"] = json!({EXCLUDE_FROM_LOAD_BALANCERS: YES}));
        scene.later(100);
        scene.write("person", |node| node["metadata"]["labels"] = json!({}));
        scene.later(seconds);
        scene.write("person", |node| node["metadata"]["labels"] = json!({EXCLUDE_FROM_LOAD_BALANCERS: YES}));
        scene.write(&agent(), |node| node["metadata"]["labels"] = json!({}));
        scene.broken().len()
    };
    assert_eq!((broken(60), broken(120)), (0, 1));
}

#[test]
fn azure_is_told_by_whoever_has_heard_claimed_and_drained() {
    let scene = Scene::by(EVERYTHING, &[EventSpec::redeploy("np1_0").name("move")]);
    scene.tell_azure();
    assert_eq!(
        scene.broken(),
        [
            "Azure was told that the Redeploy may start, although no answer of Azure lists it",
            "Azure was told that the Redeploy may start, without a claim on that",
            "Azure was told that the Redeploy may start, but node np1-0 is not cordoned",
        ]
    );
    let mut scene = Scene::by(EVERYTHING, &[EventSpec::redeploy("np1_0").name("move")]);
    scene.cordon_with_record();
    scene.hear();
    scene.hear_this("");
    scene.claim(false);
    scene.tell_azure();
    assert_eq!(
        scene.broken(),
        ["Azure was told that the Redeploy may start, but node np1-0 still has shop/web"],
        "an empty answer does not make it unheard"
    );
    let mut scene = Scene::by(EVERYTHING, &[EventSpec::redeploy("np1_0").name("move")]);
    scene.drain();
    scene.hear();
    scene.claim(false);
    scene.tell_azure();
    assert_eq!(scene.broken(), Vec::<String>::new());
    scene.claim(true);
    scene.tell_azure();
    assert_eq!(scene.broken(), ["Azure was told that the Redeploy may start, although it was told before"]);
    scene.later(60);
    scene.hear_this("");
    scene.tell_azure();
    let broken = scene.broken();
    assert_eq!(
        broken.last().map(String::as_str),
        Some("Azure was told that the Redeploy may start, although Azure has not been heard for long")
    );
}

#[test]
fn azure_is_told_when_every_node_that_the_event_concerns_is_drained() {
    let mut scene = Scene::by(EVERYTHING, &[EventSpec::redeploy("np1_0").also("np1_1").name("move")]);
    let other = Arc::new(json!({"metadata": {}, "spec": {}}));
    scene.change("kubelet", NODES, Key::new("", "np1-1"), None, other);
    scene.drain();
    scene.hear();
    scene.claim(false);
    scene.tell_azure();
    assert_eq!(scene.broken(), ["Azure was told that the Redeploy may start, but node np1-1 is not cordoned"]);
    let mut scene = Scene::new(&[EventSpec::redeploy("np1_0").name("move")]);
    scene.drain();
    scene.hear();
    scene.claim(false);
    scene.tell_azure();
    assert_eq!(scene.broken(), ["Azure was told that the Redeploy may start, which no rule allows"]);
}

#[test]
fn a_drain_begins_with_a_slot_and_in_time_only() {
    let redeploy = || EventSpec::redeploy("np1_0").name("move");
    let mut scene = Scene::by(EVERYTHING, &[redeploy().notice(Duration::from_secs(300))]);
    scene.cordon_with_record();
    scene.begin_drain();
    assert_eq!(scene.broken(), ["a drain begins without a slot for it"]);
    let mut scene = Scene::by(EVERYTHING, &[redeploy().notice(Duration::from_secs(20))]);
    scene.lease(&format!("{SLOT}np1-0"), NODE, false);
    scene.cordon_with_record();
    scene.begin_drain();
    assert_eq!(scene.broken(), ["a drain begins although the policy says that it is too late for that"]);
    let mut scene = Scene::by(EVERYTHING, &[redeploy().notice(Duration::from_secs(600))]);
    scene.cordon_with_record();
    scene.evict("web");
    assert_eq!(scene.broken(), ["pod shop/web was asked to leave earlier than any rule says"]);
}

#[test]
fn a_cordon_that_the_autoscaler_takes_away_is_set_again() {
    let broken = |noticed: i64| {
        let mut scene = Scene::with_redeploy();
        scene.hear();
        scene.cordon_with_record();
        scene.later(noticed);
        let taint = json!([{"key": AUTOSCALER_TAINT_KEY, "effect": "NoSchedule"}]);
        scene.write(AUTOSCALER, |node| node["spec"]["taints"] = taint);
        scene.later(noticed);
        scene.write(AUTOSCALER, |node| node["spec"] = json!({}));
        scene.later(210);
        scene.checker.tick(scene.now);
        scene.broken()
    };
    assert_eq!(broken(100), ["nothing is done about the Redeploy although a rule says drain"]);
    assert_eq!(broken(20), Vec::<String>::new(), "it looked like a person's doing");
}

#[test]
fn a_clock_that_is_behind_excuses_what_comes_late_while_it_is_and_one_that_was_ahead_does_not() {
    let broken = |wrong_by: i64, right_again: bool| {
        let mut scene = Scene::with_redeploy();
        scene.checker.see_clock(NODE, wrong_by, scene.now);
        scene.cordon_with_record();
        scene.later(620);
        if right_again {
            scene.checker.see_clock(NODE, 0, scene.now);
        }
        scene.later(60);
        scene.evict("web");
        scene.broken()
    };
    let late = ["pod shop/web was asked to leave when the deadline was past"];
    assert_eq!(broken(-3600, false), Vec::<String>::new());
    assert_eq!(broken(-3600, true), late);
    assert_eq!(broken(3600, true), late);
}

#[test]
fn an_agent_writes_nothing_but_what_it_needs() {
    let scene = Scene::with_redeploy();
    scene.ask("update", LEASES, "drain-slot-np1-0", json!({}));
    scene.ask("update", LEASES, "kube-scheduler", json!({}));
    scene.ask("create", "configmaps", "", json!({"metadata": {"name": "notes"}}));
    assert_eq!(
        scene.broken(),
        ["the agent wrote leases.coordination.k8s.io kube-scheduler", "the agent wrote configmaps notes"]
    );
}
