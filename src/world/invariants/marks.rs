//! Whose the marks beside the cordon are: the taints of a node, the label for load balancers and the annotation for the
//! autoscaler.

use std::collections::BTreeMap;

use domain::marks::{EXCLUDE_FROM_LOAD_BALANCERS, SCALE_DOWN_DISABLED};
use jiff::Timestamp;
use serde_json::Value;

use crate::world::api_server::store::Actor;
use crate::world::controllers::taint;

/// Whose a mark is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Owner {
    One(Actor),
    /// It was taken away and set anew faster than an agent can notice, so either may be right.
    Nobody,
}

/// The marks of one node.
#[derive(Default)]
pub(super) struct Marks {
    there: BTreeMap<String, (Value, Owner)>,
    /// What others have taken away of the agent's, and when.
    taken: BTreeMap<String, Timestamp>,
}

/// What a write did to the marks.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// Marks that are new.
    pub(super) set: Vec<String>,
    /// Marks that are gone, with those whose they were.
    pub(super) removed: Vec<(String, Option<Actor>)>,
}

impl Marks {
    /// Takes in a node as it is after a write. `noticed_since` is when its agent must have noticed what happened before; none
    /// if it notices nothing.
    pub(super) fn see(&mut self, node: &Value, by: &Actor, agent: &Actor, noticed: Option<Timestamp>) -> Changes {
        let now = marks_of(node);
        let mut changes = Changes::default();
        let gone: Vec<String> = self.there.keys().filter(|mark| !now.contains_key(*mark)).cloned().collect();
        for mark in gone {
            let owner = match self.there.remove(&mark) {
                Some((_, Owner::One(owner))) => Some(owner),
                _ => None,
            };
            changes.removed.push((mark, owner));
        }
        for (mark, value) in now {
            match self.there.get_mut(&mark) {
                Some((known, _)) if *known == value => {}
                Some(known) => *known = (value, Owner::One(by.clone())),
                None => {
                    let unnoticed =
                        self.taken.remove(&mark).is_some_and(|at| noticed.is_none_or(|noticed| at > noticed));
                    let owner = if unnoticed && by != agent { Owner::Nobody } else { Owner::One(by.clone()) };
                    changes.set.push(mark.clone());
                    self.there.insert(mark, (value, owner));
                }
            }
        }
        changes
    }

    /// Somebody else has taken away what was the agent's.
    pub(super) fn note_taken(&mut self, mark: String, at: Timestamp) {
        self.taken.insert(mark, at);
    }

    /// The marks that the agent has set and that are still there.
    pub(super) fn of(&self, agent: &Actor) -> impl Iterator<Item = &String> {
        let owner = Owner::One(agent.clone());
        self.there.iter().filter(move |(_, (_, of))| *of == owner).map(|(mark, _)| mark)
    }
}

fn marks_of(node: &Value) -> BTreeMap<String, Value> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut marks: BTreeMap<String, Value> = taint::taints(node)
        .iter()
        .map(|taint| (format!("taint {}:{}", text(&taint["key"]), text(&taint["effect"])), taint["value"].clone()))
        .collect();
    for (what, key, value) in [
        ("label", EXCLUDE_FROM_LOAD_BALANCERS, &node["metadata"]["labels"][EXCLUDE_FROM_LOAD_BALANCERS]),
        ("annotation", SCALE_DOWN_DISABLED, &node["metadata"]["annotations"][SCALE_DOWN_DISABLED]),
    ] {
        if !value.is_null() {
            marks.insert(format!("{what} {key}"), value.clone());
        }
    }
    marks
}
