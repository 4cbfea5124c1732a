//! What the controllers do together, on machines of the embedded world, in virtual time.
#![allow(clippy::expect_used, reason = "a failure here is a failure of the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Controllers, condition, pod, taint};
use crate::clock::Clock;
use crate::world::api_server::kinds::{
    DAEMON_SETS, DEPLOYMENTS, DISRUPTION_BUDGETS, LEASES, NAMESPACES, NODES, PODS, REPLICA_SETS, SERVICE_ACCOUNTS,
    STATEFUL_SETS,
};
use crate::world::api_server::store::{Actor, Key};
use crate::world::api_server::{ApiServer, Deletion, Part};
use crate::world::kubelets::{Kubelets, MachineSpec, READY_AFTER_ANNOTATION, STOPS_AFTER_ANNOTATION, Shutdown};

/// Long enough for whatever takes no more than a few seconds.
const SOON: Duration = Duration::from_secs(10);

/// A cluster.
pub(crate) struct Scene {
    pub(crate) server: ApiServer,
    pub(crate) kubelets: Kubelets,
    by: Actor,
    _controllers: Controllers,
}

impl Scene {
    /// A cluster with the nodes `n1`, `n2` and so on, Ready.
    pub(crate) async fn with_nodes(count: usize) -> Self {
        let wall: Timestamp = "2026-04-11T22:00:00Z".parse().expect("a time");
        let server = ApiServer::new(Clock::starting_at(wall), 7);
        let scene = Self {
            kubelets: Kubelets::new(&server),
            _controllers: super::start(&server),
            by: Actor::new("test"),
            server,
        };
        for number in 1..=count {
            scene.kubelets.boot(MachineSpec::new(&format!("n{number}"))).expect("a node");
        }
        scene.pass(0.1).await;
        scene
    }

    pub(crate) async fn pass(&self, seconds: f64) {
        self.server.clock().sleep(Duration::from_secs_f64(seconds)).await;
    }

    /// Waits until it is so; returns how many seconds that took, to a tenth.
    pub(crate) async fn until(&self, what: &str, limit: Duration, mut is_so: impl FnMut(&Self) -> bool) -> f64 {
        let begun = self.server.clock().now().monotonic;
        loop {
            let waited = self.server.clock().now().monotonic.since(begun);
            if is_so(self) {
                return waited.as_secs_f64();
            }
            assert!(waited < limit, "{what} is still not so after {limit:?}: {:#?}", self.server.list(PODS, None));
            self.pass(0.1).await;
        }
    }

    pub(crate) fn create(&self, resource: &str, object: Value) -> Arc<Value> {
        self.server.create(&self.by, resource, "default", object).expect("what a test makes is allowed")
    }

    pub(crate) fn change(&self, resource: &str, key: &Key, part: Part, change: impl FnOnce(&mut Value)) {
        let change = |object: &mut Value| {
            change(object);
            Ok(())
        };
        self.server.update(&self.by, resource, key, part, change).expect("the object is there");
    }

    pub(crate) fn delete(&self, resource: &str, key: &Key, grace: Option<i64>) {
        let deletion = Deletion { grace, ..Deletion::default() };
        self.server.delete(&self.by, resource, key, &deletion).expect("the object is there");
    }

    pub(crate) fn pod(&self, name: &str) -> Option<Arc<Value>> {
        self.server.get(PODS, &Key::new("default", name)).ok()
    }

    pub(crate) fn node(&self, name: &str) -> Arc<Value> {
        self.server.get(NODES, &Key::new("", name)).expect("the node is there")
    }

    pub(crate) fn pods(&self) -> Vec<Arc<Value>> {
        self.server.list(PODS, Some("default"))
    }

    pub(crate) fn ready(&self) -> usize {
        self.pods().iter().filter(|pod| pod::is_active(pod) && pod::is_ready(pod)).count()
    }

    pub(crate) fn cordon(&self, node: &str, cordoned: bool) {
        self.change(NODES, &Key::new("", node), Part::Main, |node| node["spec"]["unschedulable"] = json!(cordoned));
    }

    /// A workload whose pods carry these annotations.
    pub(crate) fn workload(&self, resource: &str, name: &str, replicas: u64, annotations: &[(&str, &str)]) {
        let template = pod_template(name, annotations);
        let spec = json!({"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template});
        self.create(resource, json!({"metadata": {"name": name}, "spec": spec}));
    }

    /// A pod without a controller.
    pub(crate) fn bare_pod(&self, name: &str, annotations: &[(&str, &str)]) {
        let mut pod = pod_template(name, annotations);
        pod["metadata"]["name"] = json!(name);
        self.create(PODS, pod);
    }

    fn budget(&self, app: &str, field: &str, value: Value) {
        let mut spec = json!({"selector": {"matchLabels": {"app": app}}});
        spec[field] = value;
        self.create(DISRUPTION_BUDGETS, json!({"metadata": {"name": app}, "spec": spec}));
    }

    /// currentHealthy, desiredHealthy, expectedPods, disruptionsAllowed.
    fn budget_status(&self, name: &str) -> [i64; 4] {
        let budget = self.server.get(DISRUPTION_BUDGETS, &Key::new("default", name)).expect("the budget is there");
        ["currentHealthy", "desiredHealthy", "expectedPods", "disruptionsAllowed"]
            .map(|field| budget["status"][field].as_i64().unwrap_or(-1))
    }

    fn taints(&self, node: &str) -> BTreeSet<String> {
        let text = |taint: &Value| {
            let key = taint["key"].as_str().unwrap_or_default();
            format!(
                "{}:{}",
                key.trim_start_matches("node.kubernetes.io/"),
                taint["effect"].as_str().unwrap_or_default()
            )
        };
        taint::taints(&self.node(node)).iter().map(text).collect()
    }
}

fn pod_template(app: &str, annotations: &[(&str, &str)]) -> Value {
    let annotations: BTreeMap<&str, &str> = annotations.iter().copied().collect();
    let defaults =
        |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
    json!({
        "metadata": {"labels": {"app": app}, "annotations": annotations},
        "spec": {
            "containers": [{"name": app, "image": "example.com/nothing:1"}],
            "tolerations": [defaults(taint::NOT_READY), defaults(taint::UNREACHABLE)],
            "terminationGracePeriodSeconds": 30,
        },
    })
}

fn names(pods: &[Arc<Value>]) -> Vec<&str> {
    pods.iter().filter_map(|pod| pod["metadata"]["name"].as_str()).collect()
}

fn node_of(pod: &Value) -> &str {
    pod::node_name(pod).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_deployment_replaces_a_pod_as_soon_as_it_begins_to_end() {
    let scene = Scene::with_nodes(2).await;
    scene.workload(DEPLOYMENTS, "web", 4, &[(STOPS_AFTER_ANNOTATION, "20s")]);
    scene.until("four pods are Ready", SOON, |scene| scene.ready() == 4).await;
    let by_node = |node: &str| scene.pods().iter().filter(|pod| node_of(pod) == node).count();
    assert_eq!((by_node("n1"), by_node("n2")), (2, 2), "pods are spread");
    let set = scene.server.list(REPLICA_SETS, None).remove(0);
    assert_eq!(set["metadata"]["ownerReferences"][0]["kind"], "Deployment");
    assert_eq!(scene.pods()[0]["metadata"]["ownerReferences"][0]["uid"], set["metadata"]["uid"]);

    let victim = Key::new("default", names(&scene.pods())[0]);
    scene.delete(PODS, &victim, None);
    let took = scene.until("the replacement is Ready", SOON, |scene| scene.ready() == 4).await;
    assert!(took < 1.5, "it took {took} s");
    assert!(scene.server.get(PODS, &victim).is_ok(), "the old one is still ending");
    let deployment = scene.server.get(DEPLOYMENTS, &Key::new("default", "web")).unwrap();
    assert_eq!(deployment["status"]["availableReplicas"], 4);
}

#[tokio::test(start_paused = true)]
async fn a_changed_template_brings_new_pods_before_the_old_ones_go() {
    let scene = Scene::with_nodes(1).await;
    scene.workload(DEPLOYMENTS, "web", 2, &[]);
    scene.until("two pods are Ready", SOON, |scene| scene.ready() == 2).await;
    let old: BTreeSet<String> = names(&scene.pods()).into_iter().map(str::to_owned).collect();
    scene.change(DEPLOYMENTS, &Key::new("default", "web"), Part::Main, |web| {
        web["spec"]["template"]["spec"]["containers"][0]["image"] = json!("example.com/nothing:2");
    });
    let is_new = |scene: &Scene| names(&scene.pods()).iter().all(|name| !old.contains(*name));
    scene
        .until("only new pods are there", SOON, |scene| {
            assert!(scene.ready() >= 2);
            scene.pods().len() == 2 && is_new(scene)
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_stateful_pod_comes_back_under_its_name_when_the_old_one_is_gone_and_not_before() {
    let scene = Scene::with_nodes(2).await;
    scene.workload(STATEFUL_SETS, "db", 2, &[(STOPS_AFTER_ANNOTATION, "5s")]);
    scene.until("the first pod is there", SOON, |scene| !scene.pods().is_empty()).await;
    assert_eq!(names(&scene.pods()), ["db-0"], "the second waits for the first");
    scene.until("both are Ready", SOON, |scene| scene.ready() == 2).await;

    let uid = scene.pod("db-1").unwrap()["metadata"]["uid"].clone();
    scene.delete(PODS, &Key::new("default", "db-1"), None);
    scene.pass(4.5).await;
    assert_eq!(scene.pod("db-1").unwrap()["metadata"]["uid"], uid);
    let is_back =
        |scene: &Scene| scene.ready() == 2 && scene.pod("db-1").is_some_and(|pod| pod["metadata"]["uid"] != uid);
    scene.until("the new one is Ready", SOON, is_back).await;
}

#[tokio::test(start_paused = true)]
async fn a_daemon_set_ignores_a_cordon_and_obeys_other_taints() {
    let scene = Scene::with_nodes(2).await;
    scene.kubelets.boot(MachineSpec::new("n3").taint("gpu", "yes", "NoSchedule")).unwrap();
    scene.workload(DAEMON_SETS, "logs", 0, &[]);
    scene.until("its pods are Ready", SOON, |scene| scene.ready() == 2).await;
    let on = |scene: &Scene| scene.pods().iter().map(|pod| node_of(pod).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(on(&scene), BTreeSet::from(["n1".to_owned(), "n2".to_owned()]));

    scene.cordon("n1", true);
    let victim = scene.pods().into_iter().find(|pod| node_of(pod) == "n1").unwrap();
    scene.delete(PODS, &Key::new("default", names(&[victim])[0]), None);
    scene.pass(3.0).await;
    assert_eq!((on(&scene).len(), scene.ready()), (2, 2));
    let status = scene.server.get(DAEMON_SETS, &Key::new("default", "logs")).unwrap()["status"].clone();
    assert_eq!((&status["desiredNumberScheduled"], &status["numberReady"]), (&json!(2), &json!(2)));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_fits_nowhere_waits_with_the_reasons_until_there_is_room() {
    let scene = Scene::with_nodes(1).await;
    scene.kubelets.boot(MachineSpec::new("n2").resources("1", "1Gi")).unwrap();
    scene.cordon("n1", true);
    let mut pod = pod_template("big", &[]);
    pod["metadata"]["name"] = json!("big");
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1500m"}});
    scene.create(PODS, pod);
    scene.pass(1.0).await;
    let waiting = scene.pod("big").unwrap();
    let scheduled = condition::find(&waiting, "PodScheduled").expect("a condition");
    assert_eq!((&scheduled["status"], &scheduled["reason"]), (&json!("False"), &json!("Unschedulable")));
    assert_eq!(scheduled["message"], "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable.");
    scene.cordon("n1", false);
    scene.until("it runs", SOON, |scene| scene.ready() == 1).await;
    assert_eq!(node_of(&scene.pod("big").unwrap()), "n1");
}

#[tokio::test(start_paused = true)]
async fn a_node_takes_no_more_pods_than_it_says() {
    let scene = Scene::with_nodes(0).await;
    scene.kubelets.boot(MachineSpec::new("n1").room_for(3)).unwrap();
    scene.workload(REPLICA_SETS, "web", 5, &[]);
    scene.pass(5.0).await;
    assert_eq!(scene.ready(), 3);
    scene.kubelets.boot(MachineSpec::new("n2")).unwrap();
    scene.until("the others run on the new node", SOON, |scene| scene.ready() == 5).await;
}

#[tokio::test(start_paused = true)]
async fn a_budget_counts_as_the_real_controller_does() {
    for (field, value, replicas, status) in [
        ("maxUnavailable", json!(1), 3, [3, 2, 3, 1]),
        ("maxUnavailable", json!("30%"), 10, [10, 7, 10, 3]),
        // A third of seven, rounded up.
        ("maxUnavailable", json!("33%"), 7, [7, 4, 7, 3]),
        ("minAvailable", json!("50%"), 7, [7, 4, 7, 3]),
        ("minAvailable", json!(2), 3, [3, 2, 3, 1]),
        ("minAvailable", json!(5), 3, [3, 5, 3, 0]),
    ] {
        let scene = Scene::with_nodes(1).await;
        scene.workload(DEPLOYMENTS, "web", replicas, &[]);
        scene.pass(3.0).await;
        scene.budget("web", field, value.clone());
        scene.pass(0.1).await;
        assert_eq!(scene.budget_status("web"), status, "{field} {value} of {replicas}");
        let budget = scene.server.get(DISRUPTION_BUDGETS, &Key::new("default", "web")).unwrap();
        let reason = &condition::find(&budget, "DisruptionAllowed").expect("a condition")["reason"];
        assert_eq!(reason, if status[3] > 0 { "SufficientPods" } else { "InsufficientPods" });
    }
}

#[tokio::test(start_paused = true)]
async fn a_budget_of_bare_pods_allows_by_min_available_only() {
    let scene = Scene::with_nodes(1).await;
    for name in ["a", "b"] {
        scene.bare_pod(name, &[]);
    }
    scene.until("both are Ready", SOON, |scene| scene.ready() == 2).await;
    scene.budget("a", "minAvailable", json!(0));
    scene.budget("b", "maxUnavailable", json!(1));
    scene.pass(0.1).await;
    assert_eq!(scene.budget_status("a"), [1, 0, 1, 1]);
    assert_eq!(scene.budget_status("b"), [1, 0, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_budget_for_pods_of_an_unknown_controller_never_says_that_it_was_seen() {
    let scene = Scene::with_nodes(1).await;
    let mut pod = pod_template("odd", &[]);
    let owner = json!({"apiVersion": "x.io/v1", "kind": "Foo", "name": "foo", "uid": "1", "controller": true});
    pod["metadata"]["name"] = json!("odd");
    pod["metadata"]["ownerReferences"] = json!([owner]);
    scene.create(PODS, pod);
    scene.budget("odd", "maxUnavailable", json!(1));
    scene.pass(3.0).await;
    let budget = scene.server.get(DISRUPTION_BUDGETS, &Key::new("default", "odd")).unwrap();
    assert_eq!(budget["status"]["observedGeneration"], Value::Null);
    let allowed = condition::find(&budget, "DisruptionAllowed").expect("a condition");
    assert_eq!((&allowed["reason"], &allowed["status"]), (&json!("SyncFailed"), &json!("False")));
    assert_eq!(allowed["message"], "no matches for kind \"Foo\" in version \"x.io/v1\"");
}

#[tokio::test(start_paused = true)]
async fn an_eviction_that_came_to_nothing_counts_for_two_minutes() {
    let scene = Scene::with_nodes(1).await;
    scene.workload(DEPLOYMENTS, "web", 2, &[]);
    scene.pass(3.0).await;
    scene.budget("web", "maxUnavailable", json!(1));
    scene.pass(0.1).await;
    let (pod, now) = (names(&scene.pods())[0].to_owned(), scene.server.clock().now().wall.to_string());
    scene.change(DISRUPTION_BUDGETS, &Key::new("default", "web"), Part::Status, |budget| {
        budget["status"]["disruptedPods"] = json!({pod: now});
        budget["status"]["disruptionsAllowed"] = json!(0);
    });
    scene.pass(119.0).await;
    assert_eq!(scene.budget_status("web"), [1, 1, 2, 0]);
    scene.pass(2.0).await;
    assert_eq!(scene.budget_status("web"), [2, 1, 2, 1]);
    let budget = scene.server.get(DISRUPTION_BUDGETS, &Key::new("default", "web")).unwrap();
    assert_eq!(budget["status"]["disruptedPods"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn a_silent_node_becomes_unknown_and_its_pods_not_ready_in_the_same_second() {
    let scene = Scene::with_nodes(3).await;
    scene.workload(DEPLOYMENTS, "web", 3, &[]);
    scene.pass(3.0).await;
    scene.change(NODES, &Key::new("", "n1"), Part::Main, |node| {
        node["spec"]["taints"] = json!([{"key": "theirs", "effect": "NoSchedule"}]);
    });
    scene.kubelets.silence("n1").unwrap();
    let lease = scene.server.get(LEASES, &Key::new("kube-node-lease", "n1")).unwrap();
    let renewed: Timestamp = lease["spec"]["renewTime"].as_str().unwrap().parse().unwrap();
    let is_unknown = |scene: &Scene| condition::status(&scene.node("n1"), "Ready") == Some("Unknown");
    scene.until("n1 is unknown", Duration::from_secs(60), is_unknown).await;
    let silence = scene.server.clock().now().wall.duration_since(renewed).as_secs_f64();
    assert!((50.0..55.2).contains(&silence), "after {silence} s");
    for kind in ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"] {
        let node = scene.node("n1");
        let unknown = condition::find(&node, kind).expect("a condition");
        assert_eq!((&unknown["status"], &unknown["reason"]), (&json!("Unknown"), &json!("NodeStatusUnknown")));
        assert_eq!(unknown["message"], "Kubelet stopped posting node status.");
    }
    assert_eq!(scene.ready(), 2, "one of three pods is on the silent node");
    scene.pass(0.1).await;
    let tainted = ["theirs:NoSchedule", "unreachable:NoExecute", "unreachable:NoSchedule"].map(str::to_owned);
    assert_eq!(scene.taints("n1"), BTreeSet::from(tainted));

    scene.kubelets.resume("n1").unwrap();
    scene.pass(6.0).await;
    assert_eq!(scene.taints("n1"), BTreeSet::from(["theirs:NoSchedule".to_owned()]));
    assert_eq!(scene.ready(), 3);
}

#[tokio::test(start_paused = true)]
async fn nodes_are_tainted_no_execute_ten_seconds_apart() {
    let scene = Scene::with_nodes(5).await;
    for node in ["n1", "n2"] {
        scene.kubelets.post_not_ready(node, "container runtime is down").unwrap();
    }
    scene.pass(0.1).await;
    let no_execute =
        |scene: &Scene| ["n1", "n2"].iter().filter(|node| scene.taints(node).contains("not-ready:NoExecute")).count();
    assert!(scene.taints("n2").contains("not-ready:NoSchedule"));
    let first = scene.until("one is tainted", SOON, |scene| no_execute(scene) == 1).await;
    assert!(first <= 5.0, "after {first} s");
    let second = scene.until("both are", Duration::from_secs(20), |scene| no_execute(scene) == 2).await;
    assert!((9.8..10.3).contains(&second), "after {second} s");
}

#[tokio::test(start_paused = true)]
async fn when_no_node_is_ready_no_pod_is_sent_away() {
    let scene = Scene::with_nodes(2).await;
    scene.kubelets.silence("n1").unwrap();
    scene.kubelets.silence("n2").unwrap();
    scene.pass(120.0).await;
    for node in ["n1", "n2"] {
        assert_eq!(scene.taints(node), BTreeSet::from(["unreachable:NoSchedule".to_owned()]));
    }
}

#[tokio::test(start_paused = true)]
async fn the_taint_of_a_cordon_follows_it_both_ways() {
    let scene = Scene::with_nodes(1).await;
    scene.cordon("n1", true);
    scene.pass(0.1).await;
    assert_eq!(scene.taints("n1"), BTreeSet::from(["unschedulable:NoSchedule".to_owned()]));
    scene.cordon("n1", false);
    scene.pass(0.1).await;
    assert_eq!(scene.taints("n1"), BTreeSet::new());
}

#[tokio::test(start_paused = true)]
async fn pods_leave_a_silent_node_when_their_tolerations_end() {
    let scene = Scene::with_nodes(3).await;
    scene.workload(DEPLOYMENTS, "web", 3, &[]);
    scene.workload(DAEMON_SETS, "logs", 0, &[]);
    scene.pass(3.0).await;
    scene.kubelets.power_off("n1").unwrap();
    let tainted = |scene: &Scene| scene.taints("n1").contains("unreachable:NoExecute");
    scene.until("n1 is tainted", Duration::from_secs(60), tainted).await;
    let leaving = |scene: &Scene| {
        let pods = scene.pods();
        pods.into_iter().filter(|pod| node_of(pod) == "n1" && pod::is_terminating(pod)).collect::<Vec<_>>()
    };
    let took = scene.until("a pod leaves", Duration::from_secs(310), |scene| !leaving(scene).is_empty()).await;
    assert!((299.5..300.5).contains(&took), "after {took} s");
    let pods = leaving(&scene);
    assert!(matches!(names(&pods)[..], [name] if name.starts_with("web-")), "the daemon's pod stays");
    let target = condition::find(&pods[0], "DisruptionTarget").expect("a condition");
    assert_eq!(target["reason"], "DeletionByTaintManager");
    scene.pass(600.0).await;
    assert_eq!(leaving(&scene).len(), 1, "a machine that is off ends nothing");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_does_not_bear_a_no_execute_taint_leaves_at_once() {
    let scene = Scene::with_nodes(2).await;
    scene.workload(DEPLOYMENTS, "web", 1, &[]);
    scene.pass(3.0).await;
    let node = node_of(&scene.pods()[0]).to_owned();
    scene.change(NODES, &Key::new("", &node), Part::Main, |node| {
        node["spec"]["taints"] = json!([{"key": "leave", "effect": "NoExecute"}]);
    });
    scene.until("it runs elsewhere", SOON, |scene| scene.ready() == 1 && node_of(&scene.pods()[0]) != node).await;
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_node_that_is_gone_go_after_forty_to_eighty_seconds() {
    let scene = Scene::with_nodes(2).await;
    scene.workload(STATEFUL_SETS, "db", 1, &[]);
    scene.pass(3.0).await;
    let node = node_of(&scene.pods()[0]).to_owned();
    let uid = scene.pods()[0]["metadata"]["uid"].clone();
    scene.kubelets.delete(&node, Duration::from_secs(30)).unwrap();
    scene.pass(29.0).await;
    assert!(scene.server.get(NODES, &Key::new("", &node)).is_ok());
    scene.pass(1.1).await;
    assert!(scene.server.get(NODES, &Key::new("", &node)).is_err());
    let limit = Duration::from_secs(90);
    let is_other = |scene: &Scene| scene.pod("db-0").is_some_and(|pod| pod["metadata"]["uid"] != uid);
    let took = scene.until("another pod has its name", limit, is_other).await;
    assert!((40.0..80.0).contains(&took), "after {took} s");
    assert!(scene.server.get(LEASES, &Key::new("kube-node-lease", &node)).is_err(), "its lease is gone with it");
}

#[tokio::test(start_paused = true)]
async fn an_out_of_service_node_frees_its_terminating_pods_within_twenty_seconds() {
    let scene = Scene::with_nodes(2).await;
    scene.workload(STATEFUL_SETS, "db", 1, &[]);
    scene.pass(3.0).await;
    let node = node_of(&scene.pods()[0]).to_owned();
    scene.kubelets.power_off(&node).unwrap();
    scene.pass(60.0).await;
    scene.change(NODES, &Key::new("", &node), Part::Main, |node| {
        let taint = json!({"key": taint::OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"});
        node["spec"]["taints"].as_array_mut().expect("it is tainted").push(taint);
    });
    let limit = Duration::from_secs(25);
    let is_elsewhere =
        |scene: &Scene| scene.pod("db-0").is_some_and(|pod| pod::is_ready(&pod) && node_of(&pod) != node);
    scene.until("the pod runs elsewhere", limit, is_elsewhere).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_deleted_deployment_owned_goes_in_the_background() {
    let scene = Scene::with_nodes(1).await;
    scene.workload(DEPLOYMENTS, "web", 2, &[]);
    scene.pass(3.0).await;
    scene.delete(DEPLOYMENTS, &Key::new("default", "web"), None);
    scene
        .until("nothing is left", SOON, |scene| {
            scene.pods().is_empty() && scene.server.list(REPLICA_SETS, None).is_empty()
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_namespace_has_an_account_and_ends_with_all_that_is_in_it() {
    let scene = Scene::with_nodes(1).await;
    let key = Key::new("", "shop");
    // The finalizer keeps the object until the test has seen it empty.
    scene.create(NAMESPACES, json!({"metadata": {"name": "shop", "finalizers": ["example.com/keep"]}}));
    scene.pass(0.1).await;
    assert!(scene.server.get(SERVICE_ACCOUNTS, &Key::new("shop", "default")).is_ok());
    let mut pod = pod_template("p", &[(STOPS_AFTER_ANNOTATION, "3s")]);
    pod["metadata"]["name"] = json!("p");
    scene.server.create(&scene.by, PODS, "shop", pod).unwrap();
    scene.pass(2.0).await;
    scene.delete(NAMESPACES, &key, None);
    let is_ending = |scene: &Scene| {
        let pod = scene.server.get(PODS, &Key::new("shop", "p"));
        pod.is_ok_and(|pod| pod::is_terminating(&pod))
    };
    let took = scene.until("its pod ends", SOON, is_ending).await;
    assert!((4.9..5.3).contains(&took), "after {took} s");
    let limit = Duration::from_secs(30);
    let is_empty = |scene: &Scene| {
        scene.server.list(PODS, Some("shop")).is_empty() && scene.server.list(SERVICE_ACCOUNTS, Some("shop")).is_empty()
    };
    scene.until("it is empty", limit, is_empty).await;
    scene.pass(30.0).await;
    scene.change(NAMESPACES, &key, Part::Main, |namespace| namespace["metadata"]["finalizers"] = json!([]));
    assert!(scene.server.get(NAMESPACES, &key).is_err());
}

#[tokio::test(start_paused = true)]
async fn controllers_whose_history_has_expired_go_on_from_a_list() {
    let scene = Scene::with_nodes(2).await;
    scene.workload(DEPLOYMENTS, "web", 2, &[]);
    scene.pass(3.0).await;
    let victim = names(&scene.pods())[0].to_owned();
    // Nobody will ever be told of this.
    scene.delete(PODS, &Key::new("default", &victim), Some(0));
    scene.workload(DEPLOYMENTS, "api", 2, &[(READY_AFTER_ANNOTATION, "2s")]);
    scene.server.store().lock().compact();
    scene.until("all pods are Ready", SOON, |scene| scene.ready() == 4 && scene.pods().len() == 4).await;
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_history() {
    async fn history() -> Vec<String> {
        let scene = Scene::with_nodes(3).await;
        let log: Arc<std::sync::Mutex<Vec<String>>> = Arc::default();
        let to = Arc::clone(&log);
        let observer = move |change: &crate::world::api_server::store::Change| {
            let mut log = to.lock().expect("nobody panics while writing");
            log.push(format!("{} {} {} {} {:?}", change.at, change.by, change.resource, change.key, change.after));
        };
        scene.server.store().observe(Box::new(observer));
        scene.workload(DEPLOYMENTS, "web", 6, &[]);
        scene.pass(5.0).await;
        scene.kubelets.reboot("n1", Duration::from_secs(400), Shutdown::Sudden).unwrap();
        scene.pass(600.0).await;
        log.lock().expect("nobody panics while writing").clone()
    }
    let (first, second) = (history().await, history().await);
    assert!(first.len() > 150, "{}", first.len());
    assert!(first == second);
}
