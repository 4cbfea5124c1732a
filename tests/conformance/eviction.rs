//! Evictions, the shortening of a grace, and what both leave behind.

use control_plane::harness::Test;
use http::Method;
use serde_json::{Value, json};

use crate::scripts;
use crate::side::{Answer, Outcome, PatchKind, Side, running_status, text};

pub(crate) fn scripts() -> Vec<Test> {
    scripts![
        an_eviction_deletes_a_pod_and_says_why,
        a_dry_run_changes_nothing,
        an_eviction_that_makes_no_sense_is_refused,
        pods_that_are_not_running_go_at_once_or_with_their_grace,
        a_budget_is_charged_and_refuses_when_it_is_used_up,
        a_budget_of_bare_pods_refuses_in_other_words,
        a_budget_that_cannot_be_computed_asks_to_come_back,
        a_budget_that_can_no_longer_be_computed_says_why,
        two_budgets_on_one_pod_are_an_error,
        an_unhealthy_pod_goes_by_the_budgets_policy,
        another_pod_of_the_name_is_not_evicted,
        a_mismatch_on_a_pod_that_is_not_running_takes_its_time,
        a_grace_can_only_be_shortened,
        a_grace_that_is_past_becomes_one_second,
        finalizers_keep_what_was_evicted,
        nothing_is_evicted_in_a_namespace_that_ends,
    ]
}

const AFTER: [&str; 3] = ["/status/conditions/*/type", "/status/conditions/*/reason", "/status/conditions/*/message"];

fn path(side: &Side, pod: &str) -> String {
    side.core(&format!("pods/{pod}/eviction"))
}

fn eviction(side: &Side, pod: &str, options: &Value) -> Value {
    let metadata = json!({"name": pod, "namespace": side.ns()});
    let mut body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata});
    if !options.is_null() {
        body["deleteOptions"] = options.clone();
    }
    body
}

/// An eviction that is answered with this code.
async fn evict(side: &Side, code: u16, label: &str, pod: &str, options: Value) -> Outcome<Answer> {
    side.ask(code, label).post(&path(side, pod), &eviction(side, pod, &options)).await
}

async fn accepted(side: &Side, label: &str, pod: &str, options: Value) -> Outcome {
    let known = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    evict(side, 201, label, pod, options).await?.pin(known);
    Ok(())
}

async fn look(side: &Side, label: &str, pod: &str) -> Outcome<Answer> {
    side.ask(200, label).showing(&AFTER).get(&side.pod_path(pod)).await
}

fn refused_by_budget(message: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "TooManyRequests", "code": 429,
        "message": "Cannot evict pod as it would violate the pod's disruption budget.",
        "details": {"causes": [{"reason": "DisruptionBudget", "message": message}]},
    })
}

async fn an_eviction_deletes_a_pod_and_says_why(side: Side) -> Outcome {
    side.node("a").await?;
    for name in ["own", "given", "longer", "negative", "zero", "old-version", "untyped", "unknown-field", "mirror"] {
        if name == "mirror" {
            let mut mirror = side.pod_object(name, "mirror", Some("a"));
            mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "mirror"});
            mirror["spec"]["automountServiceAccountToken"] = json!(false);
            side.create(&side.core("pods"), &mirror).await?;
            side.change(&side.core("pods/mirror/status"), &running_status(true)).await?;
        } else {
            side.running_pod(name, name, "a").await?;
        }
    }
    look(&side, "a running pod", "own").await?.pin(json!({"metadata": {"generation": 1}}));
    accepted(&side, "without options the pod's own grace applies", "own", Value::Null).await?;
    let terminating = look(&side, "the pod is terminating", "own").await?.pin(json!({
        "metadata": {"generation": 2, "deletionGracePeriodSeconds": 30, "deletionTimestamp": "2026-01-01T00:00:00Z"},
        "/status/conditions/*/type": ["Ready", "DisruptionTarget"],
        "/status/conditions/*/reason": [null, "EvictionByEvictionAPI"],
        "/status/conditions/*/message": [null, "Eviction API: evicting"],
    }));
    accepted(&side, "the same once more", "own", Value::Null).await?;
    let again = look(&side, "is as it was", "own").await?;
    side.holds("same version", again.version() == terminating.version());

    for (name, grace) in [("given", 20), ("longer", 90), ("negative", -5)] {
        accepted(&side, &format!("with grace {grace}"), name, json!({"gracePeriodSeconds": grace})).await?;
        let stored = grace.max(1);
        look(&side, "has that grace", name).await?.pin(json!({"metadata": {"deletionGracePeriodSeconds": stored}}));
    }
    accepted(&side, "with grace 0", "zero", json!({"gracePeriodSeconds": 0})).await?;
    side.ask(404, "the pod is gone at once").get(&side.pod_path("zero")).await?;
    evict(&side, 404, "a pod that is gone", "zero", Value::Null).await?;

    let mut old = eviction(&side, "old-version", &json!({"gracePeriodSeconds": 7}));
    old["apiVersion"] = json!("policy/v1beta1");
    side.ask(201, "policy/v1beta1 in the body").post(&path(&side, "old-version"), &old).await?;
    look(&side, "is as good as policy/v1", "old-version").await?;
    let untyped = json!({"metadata": {"name": "untyped"}, "deleteOptions": {"gracePeriodSeconds": 7}});
    side.ask(201, "neither type nor namespace in the body").post(&path(&side, "untyped"), &untyped).await?;
    look(&side, "is understood", "untyped").await?;
    let mut unknown = eviction(&side, "unknown-field", &Value::Null);
    unknown["delete_options"] = json!({"gracePeriodSeconds": 7});
    side.ask(201, "an unknown field").post(&path(&side, "unknown-field"), &unknown).await?;
    look(&side, "is ignored", "unknown-field").await?.pin(json!({"metadata": {"deletionGracePeriodSeconds": 30}}));
    accepted(&side, "a mirror pod", "mirror", Value::Null).await?;
    look(&side, "is as mortal as any", "mirror").await?;

    side.running_pod("deleted", "deleted", "a").await?;
    let delete = side.ask(200, "a plain deletion answers with the pod").showing(&AFTER);
    delete.delete(&side.pod_path("deleted"), &Value::Null).await?;
    look(&side, "and leaves no condition", "deleted").await?;
    accepted(&side, "an eviction after it", "deleted", Value::Null).await?;
    look(&side, "adds the condition", "deleted").await?.pin(json!({"metadata": {"generation": 2}}));
    Ok(())
}

async fn a_dry_run_changes_nothing(side: Side) -> Outcome {
    side.node("a").await?;
    side.running_pod("pod", "pod", "a").await?;
    let before = look(&side, "before", "pod").await?;
    let all = json!({"dryRun": ["All"]});
    accepted(&side, "asked in the body", "pod", all.clone()).await?;
    let query = format!("{}?dryRun=All", path(&side, "pod"));
    side.ask(201, "asked in the query").post(&query, &eviction(&side, "pod", &Value::Null)).await?;
    side.ask(201, "asked in both").post(&query, &eviction(&side, "pod", &all)).await?;
    let none = eviction(&side, "pod", &json!({"dryRun": []}));
    side.ask(201, "the query overrules an empty list in the body").post(&query, &none).await?;
    let after = look(&side, "after", "pod").await?;
    side.holds("same version", before.version() == after.version());
    let delete = format!("{}?dryRun=All", side.pod_path("pod"));
    side.ask(200, "a deletion, asked in the query").only(&["/metadata/name"]).delete(&delete, &Value::Null).await?;
    let delete = side.ask(200, "a deletion, asked in the body").only(&["/metadata/name"]);
    delete.delete(&side.pod_path("pod"), &all).await?;
    let after = look(&side, "after all", "pod").await?;
    side.holds("still the same version", before.version() == after.version());

    side.running_pod("kept", "kept", "a").await?;
    side.budget("kept", "kept", json!({"minAvailable": 1}), 1, 0).await?;
    evict(&side, 429, "a dry run is refused by a budget too", "kept", all.clone()).await?;
    side.running_pod("spare", "kept", "a").await?;
    side.until_counted("kept", 2, 1).await?;
    accepted(&side, "a dry run that the budget allows", "kept", all.clone()).await?;
    accepted(&side, "does not use it up", "spare", all).await
}

async fn an_eviction_that_makes_no_sense_is_refused(side: Side) -> Outcome {
    side.node("a").await?;
    side.running_pod("pod", "pod", "a").await?;
    let missing = evict(&side, 404, "no such pod", "nobody", Value::Null).await?;
    missing.pin(json!({"reason": "NotFound", "details": {"name": "nobody", "kind": "pods"}}));
    // The server's own words name no namespace, but the namespace itself.
    let elsewhere = format!("/api/v1/namespaces/{}-missing/pods/pod/eviction", side.ns());
    let missing = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "pod"}});
    side.ask(404, "no such namespace").post(&elsewhere, &missing).await?.pin(json!({"reason": "NotFound"}));
    let other = side.ask(400, "another name than in the URL");
    let known = json!({"reason": "BadRequest", "message": "name in URL does not match name in Eviction object"});
    other.post(&path(&side, "pod"), &eviction(&side, "other", &Value::Null)).await?.pin(known);
    let nameless = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {}});
    side.ask(400, "no name").post(&path(&side, "pod"), &nameless).await?;
    let mut elsewhere = eviction(&side, "pod", &Value::Null);
    elsewhere["metadata"]["namespace"] = json!("default");
    side.ask(400, "another namespace than in the URL").post(&path(&side, "pod"), &elsewhere).await?;
    let options = json!({"dryRun": ["Some"]});
    evict(&side, 422, "a dry run of an unknown kind", "pod", options).await?.pin(json!({"reason": "Invalid"}));
    let query = format!("{}?dryRun=Some", path(&side, "pod"));
    side.ask(422, "the same in the query").post(&query, &eviction(&side, "pod", &Value::Null)).await?;
    side.ask(400, "no JSON")
        .header("content-type", "application/json")
        .only(&["/reason"])
        .exchange(Method::POST, &path(&side, "pod"), b"{".to_vec())
        .await?;
    side.ask(405, "an eviction cannot be read").get(&path(&side, "pod")).await?;
    look(&side, "the pod has lived through all that", "pod").await?;
    Ok(())
}

async fn pods_that_are_not_running_go_at_once_or_with_their_grace(side: Side) -> Outcome {
    side.node("a").await?;
    side.running_pod("healthy", "all", "a").await?;
    for (name, phase) in [("succeeded", "Succeeded"), ("failed", "Failed"), ("evicted-done", "Succeeded")] {
        side.running_pod(name, "all", "a").await?;
        side.change(&side.core(&format!("pods/{name}/status")), &json!({"status": {"phase": phase}})).await?;
    }
    side.pending_pod("pending", "all", "a").await?;
    side.create(&side.core("pods"), &side.pod_object("unscheduled", "all", None)).await?;
    side.running_pod("terminating", "all", "a").await?;
    side.make(Method::DELETE, &side.pod_path("terminating"), &json!({"gracePeriodSeconds": 60})).await?;
    side.budget("all", "all", json!({"minAvailable": 4}), 4, 0).await?;

    evict(&side, 429, "a running pod is held", "healthy", Value::Null).await?;
    for name in ["succeeded", "failed", "unscheduled"] {
        accepted(&side, &format!("a pod that is {name}"), name, Value::Null).await?;
        side.ask(404, "is gone at once").get(&side.pod_path(name)).await?;
    }
    accepted(&side, "a finished pod with a grace", "evicted-done", json!({"gracePeriodSeconds": 20})).await?;
    side.ask(404, "is gone at once as well").get(&side.pod_path("evicted-done")).await?;
    for name in ["pending", "terminating"] {
        accepted(&side, &format!("a pod that is {name}"), name, Value::Null).await?;
        look(&side, "keeps its grace", name).await?;
    }
    // A second budget does not disturb those that no budget is asked about.
    side.pending_pod("pending-2", "all", "a").await?;
    side.budget("all-too", "all", json!({"minAvailable": 3}), 1, 0).await?;
    accepted(&side, "a pending pod with two budgets", "pending-2", Value::Null).await
}

const BUDGET: [&str; 6] = [
    "/status/expectedPods",
    "/status/desiredHealthy",
    "/status/currentHealthy",
    "/status/disruptionsAllowed",
    "/status/observedGeneration",
    "/status/conditions/*/reason",
];

async fn a_budget_is_charged_and_refuses_when_it_is_used_up(side: Side) -> Outcome {
    side.node("a").await?;
    for name in ["a", "b", "c"] {
        side.running_pod(name, "web", "a").await?;
    }
    side.budget("web", "web", json!({"minAvailable": 2}), 3, 1).await?;
    side.ask(200, "one disruption is allowed").showing(&BUDGET).get(&side.budget_path("web")).await?;
    accepted(&side, "the first eviction", "a", json!({"gracePeriodSeconds": 60})).await?;
    // Seen by the controller or not, the second comes too late.
    let words = "The disruption budget web needs 2 healthy pods and has 2 currently";
    let is_seen = |budget: &Value| {
        budget["status"]["currentHealthy"] == 2
            && budget["status"]["disruptedPods"].as_object().is_none_or(serde_json::Map::is_empty)
    };
    side.until("the pod is no longer counted", &side.budget_path("web"), is_seen).await?;
    side.ask(200, "none is allowed").showing(&BUDGET).get(&side.budget_path("web")).await?;
    evict(&side, 429, "the second eviction", "b", Value::Null).await?.pin(refused_by_budget(words));
    accepted(&side, "the first pod once more", "a", Value::Null).await?;
    let delete = side.ask(200, "a deletion asks no budget").only(&["/metadata/deletionGracePeriodSeconds"]);
    delete.delete(&side.pod_path("b"), &Value::Null).await?;
    let words = "The disruption budget web needs 2 healthy pods and has 1 currently";
    let is_seen = |budget: &Value| budget["status"]["currentHealthy"] == 1;
    side.until("the deleted pod is not counted", &side.budget_path("web"), is_seen).await?;
    evict(&side, 429, "the third", "c", Value::Null).await?.pin(refused_by_budget(words));
    side.ask(200, "the last is left").showing(&BUDGET).get(&side.budget_path("web")).await?;

    side.ask(200, "the budget asks for less")
        .showing(&BUDGET[..1])
        .patch(PatchKind::Merge, &side.budget_path("web"), &json!({"spec": {"minAvailable": 0}}))
        .await?;
    side.until_counted("web", 1, 1).await?;
    accepted(&side, "now the last one may go", "c", Value::Null).await?;
    side.ask(200, "a budget is deleted").delete(&side.budget_path("web"), &Value::Null).await?;
    side.ask(404, "and gone").get(&side.budget_path("web")).await?;
    Ok(())
}

async fn a_budget_of_bare_pods_refuses_in_other_words(side: Side) -> Outcome {
    side.node("a").await?;
    side.running_pod("pod", "bare", "a").await?;
    let create = side.ask(201, "a budget is created").showing(&["/spec", "/status/disruptionsAllowed"]);
    let budgets = side.group("policy/v1", "poddisruptionbudgets");
    let body = crate::side::budget_object("bare", "bare", json!({"maxUnavailable": 1}));
    create.post(&budgets, &body).await?;
    side.until_counted("bare", 1, 0).await?;
    side.ask(200, "its status").showing(&BUDGET).get(&side.budget_path("bare")).await?;
    let words = "The disruption budget bare does not allow evicting pods currently";
    evict(&side, 429, "an eviction", "pod", Value::Null).await?.pin(refused_by_budget(words));
    side.ask(409, "the same budget again").post(&budgets, &body).await?;
    let both = crate::side::budget_object("both", "both", json!({"maxUnavailable": 1, "minAvailable": 1}));
    side.ask(422, "both numbers at once").only(&["/reason", "/details/causes/0/field"]).post(&budgets, &both).await?;
    let list = side.ask(200, "all budgets").only(&["/metadata/name", "/status/disruptionsAllowed"]);
    list.get(&budgets).await?;
    Ok(())
}

async fn a_budget_that_cannot_be_computed_asks_to_come_back(side: Side) -> Outcome {
    side.node("a").await?;
    let mut pod = side.pod_object("pod", "foreign", Some("a"));
    pod["metadata"]["ownerReferences"] = foreign_controller();
    side.create(&side.core("pods"), &pod).await?;
    side.change(&side.core("pods/pod/status"), &running_status(true)).await?;
    let body = crate::side::budget_object("foreign", "foreign", json!({"maxUnavailable": 1}));
    side.create(&side.group("policy/v1", "poddisruptionbudgets"), &body).await?;
    let mut known = refused_by_budget("The disruption budget foreign is still being processed by the server.");
    known["details"]["retryAfterSeconds"] = json!(10);
    let refused = evict(&side, 429, "its controller's kind is unknown", "pod", Value::Null).await?.pin(known);
    side.fact("retry after", refused.body["details"]["retryAfterSeconds"].clone());
    let all = json!({"dryRun": ["All"]});
    evict(&side, 429, "a dry run", "pod", all).await?;
    let change = json!({"spec": {"maxUnavailable": null, "minAvailable": 0}});
    side.make(Method::PATCH, &side.budget_path("foreign"), &change).await?;
    side.until_counted("foreign", 1, 1).await?;
    accepted(&side, "a number of pods needs no controller", "pod", Value::Null).await
}

async fn a_budget_that_can_no_longer_be_computed_says_why(side: Side) -> Outcome {
    side.node("a").await?;
    let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web"}, "spec": {
        "replicas": 1,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "containers": [{"name": "main", "image": "example.com/nothing:1"}],
                "nodeName": side.node_name("a"),
            },
        },
    }});
    side.create(&side.group("apps/v1", "replicasets"), &set).await?;
    let pods = side.core("pods");
    let has_pod = |list: &Value| list["items"][0]["metadata"]["name"].is_string();
    let name = text(&side.until("the set has made its pod", &pods, has_pod).await?, "/items/0/metadata/name");
    side.name(&name, "<web>");
    side.change(&side.core(&format!("pods/{name}/status")), &running_status(true)).await?;
    side.budget("web", "web", json!({"maxUnavailable": 1}), 1, 1).await?;
    let mut foreign = side.pod_object("foreign", "web", Some("a"));
    foreign["metadata"]["ownerReferences"] = foreign_controller();
    side.create(&pods, &foreign).await?;
    let has_failed = |budget: &Value| budget["status"]["conditions"][0]["reason"] == "SyncFailed";
    side.until("a pod of an unknown kind of controller", &side.budget_path("web"), has_failed).await?;
    let shown = [
        "/status/disruptionsAllowed",
        "/status/conditions/*/reason",
        "/status/conditions/*/status",
        "/status/conditions/*/message",
    ];
    side.ask(200, "the budget").only(&shown).get(&side.budget_path("web")).await?;
    let words = "The disruption budget web does not allow evicting pods currently because it failed sync: no matches for kind \
                 \"Foo\" in version \"x.io/v1\"";
    evict(&side, 429, "an eviction", &name, Value::Null).await?.pin(refused_by_budget(words));
    Ok(())
}

/// An owner of a kind that nobody has defined.
fn foreign_controller() -> Value {
    json!([{
        "apiVersion": "x.io/v1", "kind": "Foo", "name": "foo", "uid": "6b4c8a0e-1d1f-4a53-9d8e-0d8f6a1f7a11", "controller": true,
    }])
}

async fn two_budgets_on_one_pod_are_an_error(side: Side) -> Outcome {
    side.node("a").await?;
    side.running_pod("pod", "web", "a").await?;
    for name in ["one", "two"] {
        side.budget(name, "web", json!({"minAvailable": 0}), 1, 1).await?;
    }
    let words = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    let refused = evict(&side, 500, "two budgets", "pod", Value::Null).await?;
    let known = json!({"message": words, "reason": null, "details": null, "code": 500});
    let refused = refused.pin(known);
    side.holds("it has no reason", refused.body.get("reason").is_none());
    evict(&side, 500, "a dry run", "pod", json!({"dryRun": ["All"]})).await?;
    look(&side, "the pod stays", "pod").await?;
    side.make(Method::DELETE, &side.budget_path("two"), &Value::Null).await?;
    accepted(&side, "with one of them it goes", "pod", Value::Null).await
}

async fn an_unhealthy_pod_goes_by_the_budgets_policy(side: Side) -> Outcome {
    side.node("a").await?;
    side.running_pod("ready", "mixed", "a").await?;
    for name in ["sick", "sick-2"] {
        side.running_pod(name, "mixed", "a").await?;
        side.change(&side.core(&format!("pods/{name}/status")), &running_status(false)).await?;
    }
    side.budget("mixed", "mixed", json!({"minAvailable": 1}), 1, 0).await?;
    side.ask(200, "the budget").showing(&BUDGET).get(&side.budget_path("mixed")).await?;
    evict(&side, 429, "the healthy one is held", "ready", Value::Null).await?;
    accepted(&side, "while enough are healthy a sick one may go", "sick", Value::Null).await?;
    side.ask(200, "which is not charged").only(&BUDGET).get(&side.budget_path("mixed")).await?;

    side.change(&side.core("pods/ready/status"), &running_status(false)).await?;
    let is_counted = |budget: &Value| budget["status"]["currentHealthy"] == 0;
    side.until("none is healthy", &side.budget_path("mixed"), is_counted).await?;
    let words = "The disruption budget mixed needs 1 healthy pods and has 0 currently";
    evict(&side, 429, "without enough healthy ones the sick stay", "sick-2", Value::Null)
        .await?
        .pin(refused_by_budget(words));
    let policy = |policy: &str| json!({"spec": {"unhealthyPodEvictionPolicy": policy}});
    let show = ["/spec/unhealthyPodEvictionPolicy"];
    side.ask(200, "a policy in so many words")
        .showing(&show)
        .patch(PatchKind::Merge, &side.budget_path("mixed"), &policy("IfHealthyBudget"))
        .await?;
    side.until_counted("mixed", 0, 0).await?;
    evict(&side, 429, "says the same", "sick-2", Value::Null).await?;
    side.ask(200, "the other policy")
        .showing(&show)
        .patch(PatchKind::Merge, &side.budget_path("mixed"), &policy("AlwaysAllow"))
        .await?;
    accepted(&side, "lets the sick go at once", "sick-2", Value::Null).await?;
    let patch = side.ask(422, "no other policy is known");
    patch.patch(PatchKind::Merge, &side.budget_path("mixed"), &policy("Sometimes")).await?;
    Ok(())
}

fn foreign_uid() -> Value {
    json!({"preconditions": {"uid": "00000000-aaaa-bbbb-cccc-000000000000"}})
}

async fn another_pod_of_the_name_is_not_evicted(side: Side) -> Outcome {
    side.node("a").await?;
    let uid = side.running_pod("pod", "pod", "a").await?;
    let refused = evict(&side, 409, "another UID", "pod", foreign_uid()).await?;
    refused.pin(json!({
        "reason": "Conflict",
        "message": format!(
            "Operation cannot be fulfilled on Pod \"pod\": the UID in the precondition \
             (00000000-aaaa-bbbb-cccc-000000000000) does not match the UID in record ({uid}). The object might have been \
             deleted and then recreated"
        ),
        "details": {"name": "pod", "kind": "Pod"},
    }));
    look(&side, "the pod is untouched", "pod").await?;
    evict(
        &side,
        409,
        "another UID, as a dry run",
        "pod",
        json!({"dryRun": ["All"], "preconditions": foreign_uid()["preconditions"]}),
    )
    .await?;
    let refused =
        evict(&side, 409, "an old version", "pod", json!({"preconditions": {"resourceVersion": "1"}})).await?;
    refused.pin(json!({
        "reason": "Conflict",
        "message": "Operation cannot be fulfilled on Pod \"pod\": the ResourceVersion in the precondition (1) does not match \
                    the ResourceVersion in record (1). The object might have been modified",
    }));
    let delete = side.ask(409, "a deletion with another UID");
    delete.delete(&side.pod_path("pod"), &foreign_uid()).await?.pin(json!({"reason": "Conflict"}));
    let delete = side.ask(409, "a deletion with an old version");
    delete.delete(&side.pod_path("pod"), &json!({"preconditions": {"resourceVersion": "1"}})).await?;

    side.running_pod("held", "held", "a").await?;
    side.budget("held", "held", json!({"minAvailable": 1}), 1, 0).await?;
    evict(&side, 429, "the budget is asked before the UID", "held", foreign_uid()).await?;
    side.running_pod("spare", "held", "a").await?;
    side.until_counted("held", 2, 1).await?;
    evict(&side, 409, "and is charged before the UID is looked at", "held", foreign_uid()).await?;
    let is_charged = |budget: &Value| {
        let status = &budget["status"];
        // The charge comes from the eviction, the count from the controller, a little later.
        status["disruptedPods"]["held"].is_string()
            && status["disruptionsAllowed"] == 0
            && status["currentHealthy"] == 1
    };
    side.until("the charge stays", &side.budget_path("held"), is_charged).await?;
    side.ask(200, "the charge")
        .only(&["/status/disruptedPods", "/status/disruptionsAllowed"])
        .get(&side.budget_path("held"))
        .await?;
    evict(&side, 429, "so that nobody else may go", "spare", Value::Null).await?;

    let version = text(&side.read(&side.pod_path("pod")).await?, "/metadata/resourceVersion");
    accepted(&side, "the right pod", "pod", json!({"preconditions": {"uid": uid, "resourceVersion": version}})).await
}

async fn a_mismatch_on_a_pod_that_is_not_running_takes_its_time(side: Side) -> Outcome {
    side.node("a").await?;
    side.pending_pod("pending", "pending", "a").await?;
    side.running_pod("terminating", "terminating", "a").await?;
    side.running_pod("running", "running", "a").await?;
    side.make(Method::DELETE, &side.pod_path("terminating"), &json!({"gracePeriodSeconds": 60})).await?;
    let timed = async |label: &str, pod: &str, options: Value| {
        side.ask(409, label).timed().post(&path(&side, pod), &eviction(&side, pod, &options)).await
    };
    let mut with_version = foreign_uid();
    with_version["preconditions"]["resourceVersion"] = json!("1");
    timed("another UID on a running pod", "running", foreign_uid()).await?;
    timed("with a version too it comes at once", "pending", with_version).await?;
    futures::try_join!(
        timed("another UID on a pending pod", "pending", foreign_uid()),
        timed("another UID on a terminating pod", "terminating", foreign_uid()),
    )?;
    Ok(())
}

/// How far the end of a pod has moved between two looks, in seconds.
fn moved(before: &Answer, after: &Answer) -> Outcome<i64> {
    let at = |answer: &Answer| answer.text("/metadata/deletionTimestamp").parse::<jiff::Timestamp>();
    Ok(at(after)?.as_second() - at(before)?.as_second())
}

async fn a_grace_can_only_be_shortened(side: Side) -> Outcome {
    side.node("a").await?;
    let grace = |seconds: i64| json!({"gracePeriodSeconds": seconds});
    for (name, by_eviction) in [("evicted", true), ("deleted", false)] {
        side.running_pod(name, name, "a").await?;
        let shorten = async |label: String, options: Value| {
            if by_eviction {
                accepted(&side, &label, name, options).await
            } else {
                let delete = side.ask(200, &label).only(&["/metadata/deletionGracePeriodSeconds"]);
                delete.delete(&side.pod_path(name), &options).await.map(drop)
            }
        };
        shorten("grace 60".into(), grace(60)).await?;
        let mut before = look(&side, "has it", name).await?;
        for (label, options) in [("the same", grace(60)), ("longer", grace(90)), ("none", Value::Null)] {
            shorten(label.into(), options).await?;
            let after = look(&side, "nothing changes", name).await?;
            side.holds("same version", after.version() == before.version());
        }
        shorten("20".into(), grace(20)).await?;
        let after = look(&side, "is shorter", name).await?.pin(json!({"metadata": {"deletionGracePeriodSeconds": 20}}));
        side.fact("moved by seconds", moved(&before, &after)?);
        before = after;
        shorten("40".into(), grace(40)).await?;
        look(&side, "is not longer than what it was last", name).await?;
        shorten("19".into(), grace(19)).await?;
        let after = look(&side, "a second less", name).await?;
        side.fact("moved by seconds", moved(&before, &after)?);
        shorten("0".into(), grace(0)).await?;
        side.ask(404, "gone at once").get(&side.pod_path(name)).await?;
    }
    // In any mix.
    side.running_pod("mixed", "mixed", "a").await?;
    accepted(&side, "evicted with 60", "mixed", grace(60)).await?;
    let delete = side.ask(200, "deleted with 20").showing(&AFTER);
    delete.delete(&side.pod_path("mixed"), &grace(20)).await?;
    accepted(&side, "evicted with 10", "mixed", grace(10)).await?;
    look(&side, "has the shortest", "mixed").await?.pin(json!({"metadata": {"deletionGracePeriodSeconds": 10}}));
    let finish = side.ask(200, "its kubelet takes it away").only(&["/metadata/deletionGracePeriodSeconds"]);
    finish.delete(&side.pod_path("mixed"), &grace(0)).await?;
    side.ask(404, "gone").get(&side.pod_path("mixed")).await?;
    Ok(())
}

async fn a_grace_that_is_past_becomes_one_second(side: Side) -> Outcome {
    side.node("a").await?;
    side.running_pod("pod", "pod", "a").await?;
    accepted(&side, "grace 60", "pod", json!({"gracePeriodSeconds": 60})).await?;
    // The time that passes is what this is about.
    tokio::time::sleep(std::time::Duration::from_millis(3500)).await;
    accepted(&side, "grace 2, later than that", "pod", json!({"gracePeriodSeconds": 2})).await?;
    look(&side, "one second is left", "pod").await?.pin(json!({"metadata": {"deletionGracePeriodSeconds": 1}}));
    Ok(())
}

async fn finalizers_keep_what_was_evicted(side: Side) -> Outcome {
    side.node("a").await?;
    let mut pod = side.pod_object("pod", "pod", Some("a"));
    pod["metadata"]["finalizers"] = json!(["example.com/stay"]);
    side.create(&side.core("pods"), &pod).await?;
    side.change(&side.core("pods/pod/status"), &running_status(true)).await?;
    accepted(&side, "an eviction", "pod", json!({"gracePeriodSeconds": 5})).await?;
    look(&side, "terminating", "pod").await?;
    let delete = side.ask(200, "its kubelet is done with it").only(&["/metadata/deletionGracePeriodSeconds"]);
    delete.delete(&side.pod_path("pod"), &json!({"gracePeriodSeconds": 0})).await?;
    look(&side, "it stays", "pod").await?.pin(json!({"metadata": {"deletionGracePeriodSeconds": 0}}));
    accepted(&side, "a further eviction", "pod", Value::Null).await?;
    look(&side, "is idle", "pod").await?;
    let free = side.ask(200, "the finalizer goes").only(&["/metadata/finalizers"]);
    free.patch(PatchKind::Merge, &side.pod_path("pod"), &json!({"metadata": {"finalizers": null}})).await?;
    side.ask(404, "and the pod with it").get(&side.pod_path("pod")).await?;
    Ok(())
}

async fn nothing_is_evicted_in_a_namespace_that_ends(side: Side) -> Outcome {
    side.node("a").await?;
    side.running_pod("running", "pod", "a").await?;
    side.running_pod("terminating", "pod", "a").await?;
    side.make(Method::DELETE, &side.pod_path("terminating"), &json!({"gracePeriodSeconds": 60})).await?;
    side.make(Method::DELETE, &format!("/api/v1/namespaces/{}", side.ns()), &Value::Null).await?;
    for name in ["running", "terminating", "missing"] {
        let refused = evict(&side, 403, &format!("a pod that is {name}"), name, Value::Null).await?;
        let ns = side.ns();
        refused.pin(json!({
            "reason": "Forbidden",
            "message": format!(
                "pods \"{name}\" is forbidden: unable to create new content in namespace {ns} because it is being terminated"
            ),
            "details": {"name": name, "kind": "pods", "causes": [{
                "reason": "NamespaceTerminating", "message": format!("namespace {ns} is being terminated"),
                "field": "metadata.namespace",
            }]},
        }));
    }
    evict(&side, 403, "a dry run", "running", json!({"dryRun": ["All"]})).await?;
    let shorter = side.ask(200, "a deletion still works").only(&["/metadata/deletionGracePeriodSeconds"]);
    shorter.delete(&side.pod_path("terminating"), &json!({"gracePeriodSeconds": 10})).await?;
    Ok(())
}
