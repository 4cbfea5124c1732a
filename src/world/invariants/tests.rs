//! The checker against agents that do what must never be done.

use mock_imds::{EventSpec, Scenario, Vm};
use serde_json::json;

use super::*;

const NODE: &str = "np1-0";

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
        let now: Timestamp = "2026-04-11T22:00:00Z".parse().unwrap();
        let azure = Mock::new(Scenario::new([Vm::new("np1_0")]), Fixed(now));
        for event in events {
            azure.inject(event).unwrap();
        }
        let policies = PolicySet::new(vec![domain::policy::Policy::built_in().unwrap()]).unwrap();
        let checker = Checker::new(policies, azure.clone(), Timeline::default(), [(NODE.into(), "np1_0".into())]);
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
    scene.later(190);
    scene.checker.tick(scene.now);
    assert_eq!(scene.broken(), Vec::<String>::new(), "there was hardly time");
    for _ in 0..3 {
        scene.later(30);
        scene.checker.tick(scene.now);
    }
    assert_eq!(scene.broken(), ["nothing is done about the Redeploy although a rule says drain"]);
    let mut scene = Scene::with_redeploy();
    scene.cordon_with_record();
    scene.azure.cancel("move").unwrap();
    scene.later(210);
    scene.checker.tick(scene.now);
    assert_eq!(scene.broken(), ["the node is not given back although all is over"]);
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
