//! Evictions of pods (`Create` in
//! <https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/registry/core/pod/storage/eviction.go>).

use std::time::Duration;

use serde_json::{Value, json};

use super::kinds::{DISRUPTION_BUDGETS, Kind, PODS};
use super::paths::dry_run;
use super::refusal::Refusal;
use super::selectors::LabelSelector;
use super::service::Call;
use super::store::Key;
use super::verbs::success;
use super::writing::{Writing, check_preconditions, seconds};
use super::{Deletion, verbs};

/// How often a conflict is tried again in the server.
const ATTEMPTS: usize = 20;

/// The pause between two attempts. The real server takes 500 ms and up to a tenth more.
const PAUSE: Duration = Duration::from_millis(525);

/// How many evicted pods a budget may wait for.
const MOST_DISRUPTED_PODS: usize = 2000;

const WOULD_VIOLATE: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

/// Answers an eviction; the body is an `Eviction`.
pub(super) async fn evict(call: &Call, eviction: &Value) -> Result<Value, Refusal> {
    let key = call.key();
    let pretends = call.query.dry_run("CreateOptions")?;
    call.write(false, |writing| writing.admit_to_namespace(PODS, &key.namespace, &key.name))?;
    if eviction["metadata"]["name"] != key.name {
        return Err(Refusal::bad_request("name in URL does not match name in Eviction object"));
    }
    let options = &eviction["deleteOptions"];
    let ways: Vec<&str> = options["dryRun"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let pretends = dry_run(&ways, "DeleteOptions")? || pretends;
    let deletion = Deletion { dry_run: pretends, ..verbs::deletion(options) };
    for attempt in 1.. {
        let outcome = call.write(pretends, |writing| attempt_once(writing, &call.kind, &key, &deletion));
        match outcome {
            Ok(()) => break,
            Err(Failure::Conflict(refusal)) if attempt == ATTEMPTS => return Err(refusal),
            Err(Failure::Conflict(_)) => call.server.clock().sleep(PAUSE).await,
            Err(Failure::Final(refusal)) => return Err(refusal),
        }
    }
    Ok(success(201))
}

/// Why an attempt failed.
enum Failure {
    /// The pod is not as it should be, which may change.
    Conflict(Refusal),
    /// It is no use trying again.
    Final(Refusal),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Final(refusal)
    }
}

fn attempt_once(writing: &mut Writing<'_, '_>, kind: &Kind, key: &Key, deletion: &Deletion) -> Result<(), Failure> {
    let pod = writing.existing(kind, key)?;
    if needs_no_budget(&pod) {
        let evicted = mark_and_delete(writing, kind, key, deletion);
        // Who names a version means that one.
        let may_change = |refusal: &Refusal| refusal.code == 409 && deletion.resource_version.is_none();
        return evicted
            .map_err(|refusal| if may_change(&refusal) { Failure::Conflict(refusal) } else { refusal.into() });
    }
    let labels = &pod["metadata"]["labels"];
    let budgets: Vec<_> = writing
        .locked
        .list(DISRUPTION_BUDGETS, Some(&key.namespace))
        .filter(|(_, budget)| {
            let selector = &budget["spec"]["selector"];
            selector.is_object() && LabelSelector::of_object(selector).matches(labels)
        })
        .map(|(key, budget)| (key.clone(), Value::clone(budget)))
        .collect();
    match budgets.as_slice() {
        [] => {}
        [(name, budget)] => {
            if !passes_for_unhealthy(&pod, budget) {
                charge(writing, name, budget.clone(), &key.name)?;
            }
        }
        _ => {
            let message =
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            return Err(Refusal::new(500, "", message).into());
        }
    }
    Ok(mark_and_delete(writing, kind, key, deletion)?)
}

/// Finished pods are no loss, pods that have not begun protect nothing, and terminating ones are lost already.
fn needs_no_budget(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed" | "Pending"))
        || !pod["metadata"]["deletionTimestamp"].is_null()
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.filter(|condition| condition["type"] == "Ready").any(|condition| condition["status"] == "True")
}

/// Whether the budget lets a pod go that is not ready, without being charged.
fn passes_for_unhealthy(pod: &Value, budget: &Value) -> bool {
    if is_ready(pod) {
        return false;
    }
    let count = |field: &str| budget["status"][field].as_i64().unwrap_or_default();
    budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
        || (count("currentHealthy") >= count("desiredHealthy") && count("desiredHealthy") > 0)
}

fn refused_by_budget(why: &str, retry_after: Option<u32>) -> Refusal {
    let causes = json!({"causes": [{"reason": "DisruptionBudget", "message": why}]});
    Refusal { retry_after, ..Refusal::new(429, "TooManyRequests", WOULD_VIOLATE).with_details(causes) }
}

/// Takes one disruption from a budget, if it has one.
fn charge(writing: &mut Writing<'_, '_>, key: &Key, mut budget: Value, pod: &str) -> Result<(), Refusal> {
    let name = &key.name;
    let forbidden = |why: &str| Err(Refusal::forbidden("poddisruptionbudget.policy", name, why));
    let count = |field: &str| budget["status"][field].as_i64().unwrap_or_default();
    if count("observedGeneration") < budget["metadata"]["generation"].as_i64().unwrap_or_default() {
        let why = format!("The disruption budget {name} is still being processed by the server.");
        return Err(refused_by_budget(&why, Some(10)));
    }
    let allowed = count("disruptionsAllowed");
    if allowed < 0 {
        return forbidden("pdb disruptions allowed is negative");
    }
    if budget["status"]["disruptedPods"].as_object().is_some_and(|pods| pods.len() > MOST_DISRUPTED_PODS) {
        return forbidden("DisruptedPods map too big - too many evictions not confirmed by PDB controller");
    }
    if allowed == 0 {
        return Err(refused_by_budget(&why_nothing_is_allowed(name, &budget["status"]), None));
    }
    if writing.dry_run {
        return Ok(());
    }
    let now = seconds(writing.now);
    let status = &mut budget["status"];
    status["disruptionsAllowed"] = (allowed - 1).into();
    if allowed == 1 {
        set_insufficient(status, &now);
    }
    status["disruptedPods"][pod] = now.into();
    writing.commit(DISRUPTION_BUDGETS, key.clone(), Some(budget)).map(drop)
}

fn disruption_allowed(status: &Value) -> Option<&Value> {
    let conditions = status["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == "DisruptionAllowed")
}

fn why_nothing_is_allowed(name: &str, status: &Value) -> String {
    let count = |field: &str| status[field].as_i64().unwrap_or_default();
    let denied = disruption_allowed(status).filter(|condition| condition["status"] == "False");
    let reason = denied.and_then(|condition| condition["reason"].as_str()).unwrap_or_default();
    let message = denied.and_then(|condition| condition["message"].as_str()).filter(|message| !message.is_empty());
    let begin = format!("The disruption budget {name}");
    match message {
        Some(message) if reason == "SyncFailed" => {
            format!("{begin} does not allow evicting pods currently because it failed sync: {message}")
        }
        _ if count("currentHealthy") <= count("desiredHealthy") => {
            format!(
                "{begin} needs {} healthy pods and has {} currently",
                count("desiredHealthy"),
                count("currentHealthy")
            )
        }
        Some(message) => format!("{begin} does not allow evicting pods currently ({reason}): {message}"),
        None => format!("{begin} does not allow evicting pods currently"),
    }
}

/// Writes into the conditions of a budget that nothing is allowed any more.
fn set_insufficient(status: &mut Value, now: &str) {
    let observed = status["observedGeneration"].clone();
    let since = disruption_allowed(status)
        .filter(|condition| condition["status"] == "False")
        .map_or_else(|| json!(now), |condition| condition["lastTransitionTime"].clone());
    let condition = json!({
        "type": "DisruptionAllowed",
        "status": "False",
        "reason": "InsufficientPods",
        "message": "",
        "observedGeneration": observed,
        "lastTransitionTime": since,
    });
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    let Some(conditions) = status["conditions"].as_array_mut() else { return };
    match conditions.iter_mut().find(|one| one["type"] == "DisruptionAllowed") {
        Some(one) => *one = condition,
        None => conditions.push(condition),
    }
}

/// Writes into the pod why it goes, and deletes it.
fn mark_and_delete(writing: &mut Writing<'_, '_>, kind: &Kind, key: &Key, deletion: &Deletion) -> Result<(), Refusal> {
    let mut deletion = deletion.clone();
    if !writing.dry_run {
        let pod = writing.existing(kind, key)?;
        // Here an empty precondition is none; the deletion takes it for one that is never met.
        let is_named = |text: &String| !text.is_empty();
        let named = Deletion {
            uid: deletion.uid.clone().filter(is_named),
            resource_version: deletion.resource_version.clone().filter(is_named),
            ..deletion.clone()
        };
        check_preconditions(kind, key, &named, &pod)?;
        let mut marked = Value::clone(&pod);
        if mark(&mut marked["status"], &seconds(writing.now)) {
            let marked = writing.commit(PODS, key.clone(), Some(marked))?;
            if let Some(version) = &mut deletion.resource_version {
                marked["metadata"]["resourceVersion"].as_str().unwrap_or_default().clone_into(version);
            }
        }
    }
    writing.delete(kind, key, &deletion).map(drop)
}

/// Sets the condition of an evicted pod. Returns whether that changed anything.
fn mark(status: &mut Value, now: &str) -> bool {
    let condition = json!({
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
        "lastProbeTime": null,
        "lastTransitionTime": now,
    });
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    let Some(conditions) = status["conditions"].as_array_mut() else { return false };
    let Some(found) = conditions.iter_mut().find(|one| one["type"] == "DisruptionTarget") else {
        conditions.push(condition);
        return true;
    };
    let is_same = ["status", "reason", "message"].iter().all(|field| found[field] == condition[field]);
    if !is_same {
        *found = condition;
    }
    !is_same
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_says_why_it_allows_nothing() {
        let why = |status: Value| why_nothing_is_allowed("b", &status);
        assert_eq!(
            why(json!({"currentHealthy": 3, "desiredHealthy": 3})),
            "The disruption budget b needs 3 healthy pods and has 3 currently"
        );
        assert_eq!(
            why(json!({"currentHealthy": 3, "desiredHealthy": 2})),
            "The disruption budget b does not allow evicting pods currently"
        );
        let failed = |reason: &str| {
            json!({"currentHealthy": 1, "conditions": [
                {"type": "DisruptionAllowed", "status": "False", "reason": reason, "message": "no matches"}
            ]})
        };
        assert_eq!(
            why(failed("SyncFailed")),
            "The disruption budget b does not allow evicting pods currently because it failed sync: no matches"
        );
        assert_eq!(
            why(failed("Other")),
            "The disruption budget b does not allow evicting pods currently (Other): no matches"
        );
    }

    #[test]
    fn a_pod_that_is_not_ready_passes_a_budget_that_is_healthy_or_does_not_care() {
        let pod = |ready: &str| json!({"status": {"conditions": [{"type": "Ready", "status": ready}]}});
        let budget =
            |current: i64, desired: i64| json!({"status": {"currentHealthy": current, "desiredHealthy": desired}});
        assert!(passes_for_unhealthy(&pod("False"), &budget(1, 1)));
        assert!(!passes_for_unhealthy(&pod("True"), &budget(1, 1)));
        assert!(!passes_for_unhealthy(&pod("False"), &budget(0, 1)));
        assert!(!passes_for_unhealthy(&pod("False"), &budget(0, 0)), "a budget that asks for nothing is not healthy");
        let mut careless = budget(0, 1);
        careless["spec"]["unhealthyPodEvictionPolicy"] = json!("AlwaysAllow");
        assert!(passes_for_unhealthy(&pod("False"), &careless));
    }
}
