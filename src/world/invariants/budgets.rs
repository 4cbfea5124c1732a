//! How many pods each disruption budget really has: Ready, on a machine that runs, and not told to stop. What a budget's
//! status says is belief, and comes a minute late when a machine dies.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::Value;

use super::seconds_between;
use crate::world::api_server::store::Key;
use crate::world::controllers::selector::Selector;

struct Budget {
    selector: Option<Selector>,
    wanted: usize,
    healthy: BTreeSet<String>,
    below_since: Option<Timestamp>,
}

/// See the module.
#[derive(Default)]
pub(super) struct Budgets {
    by_key: BTreeMap<Key, Budget>,
    /// How often a budget had too few pods.
    pub(super) broken: u64,
    /// For how long, as far as it is over.
    pub(super) seconds_below: u64,
}

/// A budget that has just come to have too few pods.
pub(super) struct Broken {
    pub(super) name: String,
    pub(super) healthy: usize,
    pub(super) wanted: usize,
}

impl Budgets {
    /// A budget is new or has changed, or is gone. `healthy` are all healthy pods of its namespace.
    pub(super) fn see<'a>(
        &mut self,
        at: Timestamp,
        key: &Key,
        object: Option<&Value>,
        healthy: impl Iterator<Item = (&'a String, &'a Value)>,
    ) -> Option<Broken> {
        let Some(object) = object else {
            self.by_key.remove(key);
            return None;
        };
        let budget = self.by_key.entry(key.clone()).or_insert_with(|| {
            let selector = Selector::new(&object["spec"]["selector"]);
            let selected = healthy.filter(|(_, pod)| selector.as_ref().is_some_and(|selector| selector.selects(pod)));
            let healthy = selected.map(|(uid, _)| uid.clone()).collect();
            Budget { selector, wanted: 0, healthy, below_since: None }
        });
        let wanted = object["status"]["desiredHealthy"].as_u64().unwrap_or_default();
        budget.wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        self.weigh(at, key)
    }

    /// A pod is healthy, or is not any more.
    pub(super) fn see_pod(&mut self, at: Timestamp, namespace: &str, object: &Value, healthy: bool) -> Vec<Broken> {
        let Some(uid) = object["metadata"]["uid"].as_str() else { return Vec::new() };
        let mut touched = Vec::new();
        for (key, budget) in self.by_key.iter_mut().filter(|(key, _)| key.namespace == namespace) {
            let counts = healthy && budget.selector.as_ref().is_some_and(|selector| selector.selects(object));
            let changed = if counts { budget.healthy.insert(uid.to_owned()) } else { budget.healthy.remove(uid) };
            if changed {
                touched.push(key.clone());
            }
        }
        touched.iter().filter_map(|key| self.weigh(at, key)).collect()
    }

    fn weigh(&mut self, at: Timestamp, key: &Key) -> Option<Broken> {
        let budget = self.by_key.get_mut(key)?;
        let below = budget.healthy.len() < budget.wanted;
        match (budget.below_since, below) {
            (None, true) => {
                budget.below_since = Some(at);
                self.broken += 1;
                Some(Broken { name: key.name.clone(), healthy: budget.healthy.len(), wanted: budget.wanted })
            }
            (Some(since), false) => {
                budget.below_since = None;
                self.seconds_below += seconds_between(since, at);
                None
            }
            _ => None,
        }
    }

    /// For how long budgets have had too few pods until now.
    pub(super) fn seconds_below(&self, now: Timestamp) -> u64 {
        let open = self.by_key.values().filter_map(|budget| budget.below_since);
        self.seconds_below + open.map(|since| seconds_between(since, now)).sum::<u64>()
    }
}
