//! `PodDisruptionBudgets`: how many pods each lets go, recomputed as its pods come, go and change.
//!
//! The arithmetic is that of
//! <https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/controller/disruption/disruption.go>.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use domain::time::{Monotonic, Now, plus};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::driver::{Controller, sync_each};
use super::owner::{Owner, controller_of};
use super::selector::Selector;
use super::{condition, pod, timestamp};
use crate::world::api_server::kinds::{DEPLOYMENTS, DISRUPTION_BUDGETS, PODS, REPLICA_SETS, STATEFUL_SETS};
use crate::world::api_server::refusal::Refusal;
use crate::world::api_server::store::{Actor, Change, Key};
use crate::world::api_server::{ApiServer, Part};

const NAME: &str = "disruption-controller";

/// How long a pod that was evicted counts as gone though nobody has deleted it.
const EVICTION_COUNTS_FOR: Duration = Duration::from_secs(120);

/// The controller.
#[derive(Debug)]
pub struct DisruptionBudgets {
    by: Actor,
    budgets: BTreeMap<Key, Budget>,
    dirty: BTreeSet<Key>,
}

/// A budget and the pods that it selects.
#[derive(Debug, Default)]
struct Budget {
    selector: Option<Selector>,
    pods: BTreeMap<Key, Arc<Value>>,
    /// When an evicted pod that is still there counts again.
    recheck: Option<Monotonic>,
}

impl Default for DisruptionBudgets {
    fn default() -> Self {
        Self { by: Actor::new(NAME), budgets: BTreeMap::new(), dirty: BTreeSet::new() }
    }
}

impl Controller for DisruptionBudgets {
    fn name(&self) -> &'static str {
        NAME
    }

    fn watches(&self) -> &'static [&'static str] {
        &[DISRUPTION_BUDGETS, PODS]
    }

    /// A new budget refuses for about this long, "still being processed".
    fn delay(&self) -> Duration {
        Duration::from_millis(10)
    }

    fn reconcile(&mut self, server: &ApiServer, changes: &[Arc<Change>], now: Now) -> Option<Monotonic> {
        for change in changes {
            if &*change.resource == PODS { self.see_pod(change) } else { self.see_budget(server, change) }
        }
        for (key, budget) in &mut self.budgets {
            if budget.recheck.is_some_and(|at| at <= now.monotonic) {
                budget.recheck = None;
                self.dirty.insert(key.clone());
            }
        }
        let (by, budgets) = (&self.by, &mut self.budgets);
        let retry = sync_each(&mut self.dirty, now, |key| match budgets.get_mut(key) {
            Some(budget) => sync(server, by, key, budget, now),
            None => Ok(()),
        });
        self.budgets.values().filter_map(|budget| budget.recheck).chain(retry).min()
    }
}

impl DisruptionBudgets {
    fn see_budget(&mut self, server: &ApiServer, change: &Change) {
        self.dirty.insert(change.key.clone());
        let Some(object) = &change.after else {
            self.budgets.remove(&change.key);
            return;
        };
        let selector = Selector::new(&object["spec"]["selector"]);
        let budget = self.budgets.get(&change.key);
        if budget.is_some_and(|budget| budget.selector == selector) {
            return;
        }
        let locked = server.store().lock();
        let of_namespace = locked.list(PODS, Some(&change.key.namespace));
        let is_selected = |pod: &Value| selector.as_ref().is_some_and(|selector| selector.selects(pod));
        let pods = of_namespace.filter(|(_, pod)| is_selected(pod)).map(|(key, pod)| (key.clone(), Arc::clone(pod)));
        let pods = pods.collect();
        self.budgets.insert(change.key.clone(), Budget { selector, pods, recheck: None });
    }

    fn see_pod(&mut self, change: &Change) {
        let from = Key::new(&change.key.namespace, "");
        let of_namespace = self.budgets.range_mut(from..).take_while(|(key, _)| key.namespace == change.key.namespace);
        for (key, budget) in of_namespace {
            let Some(selector) = &budget.selector else { continue };
            let concerned = match change.after.as_ref().filter(|pod| selector.selects(pod)) {
                Some(pod) => {
                    budget.pods.insert(change.key.clone(), Arc::clone(pod));
                    true
                }
                None => budget.pods.remove(&change.key).is_some(),
            };
            if concerned {
                self.dirty.insert(key.clone());
            }
        }
    }
}

fn sync(server: &ApiServer, by: &Actor, key: &Key, budget: &mut Budget, now: Now) -> Result<(), Refusal> {
    let expectation = match server.get(DISRUPTION_BUDGETS, key) {
        Ok(object) => expectation(server, &object["spec"], &key.namespace, &budget.pods),
        Err(_) => return Ok(()),
    };
    let written = server.update(by, DISRUPTION_BUDGETS, key, Part::Status, |object| {
        match &expectation {
            Ok(expectation) => budget.recheck = write_status(object, expectation, &budget.pods, now),
            Err(message) => write_failure(object, message, now),
        }
        Ok(())
    });
    match written {
        Err(refusal) if refusal.code == 404 => Ok(()),
        result => result.map(drop),
    }
}

/// What a budget asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Expectation {
    expected: u64,
    desired: u64,
}

fn expectation(
    server: &ApiServer,
    spec: &Value,
    namespace: &str,
    pods: &BTreeMap<Key, Arc<Value>>,
) -> Result<Expectation, String> {
    let (most_missing, least) = (&spec["maxUnavailable"], &spec["minAvailable"]);
    if !most_missing.is_null() {
        let expected = scale_of_controllers(server, namespace, pods)?;
        let desired = expected.saturating_sub(amount(most_missing, expected)?);
        Ok(Expectation { expected, desired })
    } else if least.is_string() {
        let expected = scale_of_controllers(server, namespace, pods)?;
        Ok(Expectation { expected, desired: amount(least, expected)? })
    } else {
        let count = u64::try_from(pods.len()).unwrap_or(u64::MAX);
        Ok(Expectation { expected: count, desired: amount(least, count)? })
    }
}

/// A number, or a percentage of the whole, rounded up.
fn amount(field: &Value, whole: u64) -> Result<u64, String> {
    if field.is_null() {
        return Ok(0);
    }
    if let Some(number) = field.as_u64() {
        return Ok(number);
    }
    let percent = field.as_str().and_then(|text| text.strip_suffix('%')?.parse::<u64>().ok());
    percent
        .map(|percent| (percent.saturating_mul(whole)).div_ceil(100))
        .ok_or_else(|| "invalid value for IntOrString: invalid type: string is not a percentage".to_owned())
}

/// The sum of what the pods' controllers are to have; pods without one count for nothing.
fn scale_of_controllers(server: &ApiServer, namespace: &str, pods: &BTreeMap<Key, Arc<Value>>) -> Result<u64, String> {
    // Most pods share their controller with the one before: it is asked once.
    let mut asked: BTreeSet<&str> = BTreeSet::new();
    let mut scales: BTreeMap<String, u64> = BTreeMap::new();
    for (key, pod) in pods {
        let Some(owner) = controller_of(pod) else { continue };
        if !asked.insert(owner.uid) {
            continue;
        }
        let (uid, scale) = scale_of(server, namespace, &key.name, owner)?;
        scales.insert(uid, scale);
    }
    Ok(scales.values().sum())
}

/// The UID of what scales the pods of `owner`, and its scale.
fn scale_of(server: &ApiServer, namespace: &str, pod: &str, owner: Owner<'_>) -> Result<(String, u64), String> {
    let resource = match (owner.api_version, owner.kind) {
        ("apps/v1", "ReplicaSet") => REPLICA_SETS,
        ("apps/v1", "StatefulSet") => STATEFUL_SETS,
        ("apps/v1", "DaemonSet") => return Err("daemonsets.apps does not implement the scale subresource".to_owned()),
        (version, kind) => return Err(format!("no matches for kind \"{kind}\" in version \"{version}\"")),
    };
    let found = |resource: &str, owner: Owner<'_>| {
        let object = server.get(resource, &Key::new(namespace, owner.name)).ok()?;
        (object["metadata"]["uid"] == owner.uid).then_some(object)
    };
    let none = || format!("found no controllers for pod \"{pod}\"");
    let mut workload = found(resource, owner).ok_or_else(none)?;
    if let Some(above) = controller_of(&workload).filter(|above| above.kind == "Deployment") {
        workload = found(DEPLOYMENTS, above).ok_or_else(none)?;
    }
    let uid = workload["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    Ok((uid, workload["spec"]["replicas"].as_u64().unwrap_or(1)))
}

/// Writes what the budget allows; returns when an evicted pod counts again, if one may.
fn write_status(
    object: &mut Value,
    expectation: &Expectation,
    pods: &BTreeMap<Key, Arc<Value>>,
    now: Now,
) -> Option<Monotonic> {
    let evicted = object["status"]["disruptedPods"].as_object().cloned().unwrap_or_default();
    let counts_again = |at: &Value| timestamp::parse(at).map(|at: Timestamp| plus(at, EVICTION_COUNTS_FOR));
    let mut still_evicted = Map::new();
    let mut recheck: Option<Timestamp> = None;
    let mut healthy: u64 = 0;
    for (key, pod) in pods.iter().filter(|(_, pod)| !pod::is_terminating(pod)) {
        let at = evicted.get(&key.name);
        match at.and_then(|at| Some((at, counts_again(at)?))) {
            Some((at, until)) if until > now.wall => {
                still_evicted.insert(key.name.clone(), at.clone());
                recheck = Some(recheck.map_or(until, |earlier| earlier.min(until)));
            }
            _ => healthy += u64::from(pod::is_ready(pod)),
        }
    }
    let Expectation { expected, desired } = *expectation;
    let allowed = if expected == 0 { 0 } else { healthy.saturating_sub(desired) };
    let generation = object["metadata"]["generation"].clone();
    let status = &mut object["status"];
    status["currentHealthy"] = json!(healthy);
    status["desiredHealthy"] = json!(desired);
    status["expectedPods"] = json!(expected);
    status["disruptionsAllowed"] = json!(allowed);
    status["observedGeneration"] = generation;
    if still_evicted.is_empty() {
        if let Some(status) = status.as_object_mut() {
            status.remove("disruptedPods");
        }
    } else {
        status["disruptedPods"] = still_evicted.into();
    }
    let (truth, reason) = if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    set_condition(object, truth, reason, "", now);
    recheck.map(|at| now.when(at))
}

/// A budget that cannot be computed allows nothing; that it has been seen is not said.
fn write_failure(object: &mut Value, message: &str, now: Now) {
    object["status"]["disruptionsAllowed"] = json!(0);
    set_condition(object, "False", "SyncFailed", message, now);
}

fn set_condition(object: &mut Value, truth: &str, reason: &str, message: &str, now: Now) {
    let mut allowed = condition::new("DisruptionAllowed", truth, reason, message);
    allowed["observedGeneration"] = object["status"]["observedGeneration"].as_i64().unwrap_or_default().into();
    condition::set(object, allowed, now.wall);
}
