//! Whether an event may be started before its time: that starts it for *all* the machines that it concerns, so every one
//! of them that is a node of this cluster must be ready for it.

use crate::drain::Order;
use crate::drain::pod::{Pod, PodName, Standing};
use crate::policy::{Action, NodeTraits, PolicySet};
use crate::record::{DrainResult, Record};
use crate::scheduled_event::{ScheduledEvent, VmName};
use crate::time::Now;

/// A node of the cluster, as a list shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedNode {
    /// Its name.
    pub name: String,
    /// The machine that it is; `None` while nobody has said it.
    pub vm: Option<VmName>,
    /// Its labels.
    pub labels: std::collections::BTreeMap<String, String>,
    /// What its annotation for the policy says.
    pub policy: Option<String>,
    /// The agent's record on it.
    pub record: Option<String>,
    /// Whether it is cordoned.
    pub unschedulable: bool,
}

/// A node that the event must wait for, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unready {
    /// The node.
    pub node: String,
    /// Why.
    pub why: String,
}

/// The nodes that are not ready for the event, but for the machine `except`, of which more is known. A machine that is no node
/// of this cluster is not waited for; what cannot be known is.
pub fn unready(
    event: &ScheduledEvent,
    except: &VmName,
    nodes: &[ListedNode],
    policies: &PolicySet,
    now: Now,
) -> Vec<Unready> {
    let mut unready = Vec::new();
    for vm in event.resources.iter().filter(|vm| *vm != except) {
        let mut of_vm = nodes.iter().filter(|node| node.vm.as_ref() == Some(vm)).peekable();
        if of_vm.peek().is_none() {
            let nameless = nodes.iter().filter(|node| node.vm.is_none());
            unready.extend(nameless.map(|node| Unready {
                node: node.name.clone(),
                why: format!("it has no provider id yet, so it may be {vm}"),
            }));
        }
        let not_handled = |node: &ListedNode| {
            handled(node, event, policies, now).err().map(|why| Unready { node: node.name.clone(), why })
        };
        unready.extend(of_vm.filter_map(not_handled));
    }
    unready.dedup();
    unready
}

/// Whether a node has done for the event what its policy asks for; the error is what it has not done.
fn handled(node: &ListedNode, event: &ScheduledEvent, policies: &PolicySet, now: Now) -> Result<(), String> {
    let record = node.record.as_deref().map(Record::from_annotation).transpose().map_err(|error| error.to_string())?;
    let recorded = record.as_ref().and_then(|record| record.event(&event.id));
    let fixed = recorded.and_then(|recorded| recorded.ruling.as_ref()).map(|ruling| ruling.action);
    let traits = NodeTraits { labels: &node.labels, policy: node.policy.as_deref() };
    let wanted = policies.judge(traits, event, now).action();
    match fixed.map_or(wanted, |fixed| fixed.max(wanted)) {
        Action::None => Ok(()),
        _ if fixed.is_none() => Err("it has not begun".into()),
        _ if !node.unschedulable => Err("it is not cordoned".into()),
        Action::Cordon => Ok(()),
        Action::Drain if record.as_ref().is_some_and(|record| record.uncordoned_at.is_some()) => {
            Err("somebody uncordoned it, so that pods may have come since it was drained".into())
        }
        Action::Drain => match recorded.and_then(|recorded| recorded.drained) {
            Some(DrainResult::Drained) => Ok(()),
            Some(DrainResult::Incomplete) => Err("its drain ended with pods left".into()),
            None => Err("it is not drained yet".into()),
        },
    }
}

/// The pods of a node that its drain would still evict, from a list made after the drain ended.
pub fn still_here<'a>(pods: &'a [Pod], order: &Order, own: Option<&PodName>) -> Vec<&'a PodName> {
    pods.iter().filter(|pod| pod.standing(order, own) == Standing::Evicted).map(|pod| &pod.name).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;
    use crate::drain::pod::{Controller, PodUid};
    use crate::policy::Policy;
    use crate::record::RecordedEvent;
    use crate::scheduled_event::decode;
    use crate::time::Monotonic;

    fn now() -> Now {
        Now { wall: "2026-04-11T22:00:00Z".parse().unwrap(), monotonic: Monotonic::default() }
    }

    fn event(resources: &str) -> ScheduledEvent {
        let body = format!(
            r#"{{"Events":[{{"EventId":"e1","EventType":"Reboot","EventStatus":"Scheduled","EventSource":"User",
            "NotBefore":"Sat, 11 Apr 2026 22:15:00 GMT","Resources":[{resources}]}}]}}"#
        );
        decode(body.as_bytes()).unwrap().events.remove(0)
    }

    fn node(name: &str, vm: Option<&str>) -> ListedNode {
        ListedNode { name: name.into(), vm: vm.map(VmName::new), ..ListedNode::default() }
    }

    fn with_record(mut node: ListedNode, drained: Option<DrainResult>) -> ListedNode {
        let event = event(r#""vm_1","vm_2""#);
        let mut record = Record::new(node.vm.clone().unwrap());
        let policies = PolicySet::new(vec![Policy::built_in().unwrap()]).unwrap();
        let traits = NodeTraits { labels: &BTreeMap::new(), policy: None };
        let crate::policy::Judgement::Ruled(ruling) = policies.judge(traits, &event, now()) else {
            panic!("has a rule")
        };
        let mut recorded = RecordedEvent::new(&event, now().wall);
        (recorded.ruling, recorded.drained) = (Some(ruling), drained);
        record.events.push(recorded);
        node.record = Some(record.to_annotation());
        node.unschedulable = true;
        node
    }

    fn why(nodes: &[ListedNode]) -> Vec<String> {
        let policies = PolicySet::new(vec![Policy::built_in().unwrap()]).unwrap();
        let unready = unready(&event(r#""vm_1","VM_2""#), &VmName::new("vm_1"), nodes, &policies, now());
        unready.into_iter().map(|unready| format!("{}: {}", unready.node, unready.why)).collect()
    }

    // A-13
    #[test]
    fn an_event_waits_for_every_node_of_the_cluster_that_it_concerns() {
        let (own, two) = (node("n1", Some("vm_1")), node("n2", Some("vm_2")));
        assert_eq!(why(&[own.clone(), two.clone()]), ["n2: it has not begun"]);
        assert_eq!(why(&[own.clone(), with_record(two.clone(), None)]), ["n2: it is not drained yet"]);
        let incomplete = with_record(two.clone(), Some(DrainResult::Incomplete));
        assert_eq!(why(&[own.clone(), incomplete]), ["n2: its drain ended with pods left"]);
        let drained = with_record(two, Some(DrainResult::Drained));
        let uncordoned = ListedNode { unschedulable: false, ..drained.clone() };
        assert_eq!(why(&[own.clone(), uncordoned]), ["n2: it is not cordoned"]);
        assert_eq!(why(&[own, drained]), [""; 0]);
    }

    // A-13
    #[test]
    fn a_machine_that_is_no_node_is_not_waited_for_but_one_that_may_be_is() {
        assert_eq!(why(&[node("n1", Some("vm_1")), node("n3", Some("vm_3"))]), [""; 0]);
        assert_eq!(why(&[node("n4", None)]), ["n4: it has no provider id yet, so it may be VM_2"]);
        let damaged = ListedNode { record: Some("?".into()), ..node("n2", Some("vm_2")) };
        assert!(why(&[damaged])[0].starts_with("n2: annotation remediator.dev/agent is damaged"));
    }

    // A-13
    #[test]
    fn a_node_whose_policy_asks_for_less_than_a_drain_is_ready_with_less() {
        let text = "apiVersion: remediator.dev/v1alpha1\nkind: Policy\nmetadata: {name: p}\nevents: [{name: all, action: none}]\n";
        let policies = PolicySet::new(vec![crate::policy::file::parse("p.yaml", text).unwrap()]).unwrap();
        let nodes = [node("n2", Some("vm_2"))];
        assert_eq!(unready(&event(r#""vm_1","vm_2""#), &VmName::new("vm_1"), &nodes, &policies, now()), []);
        // What has been begun before the policy changed has to be finished.
        let begun = [with_record(node("n2", Some("vm_2")), None)];
        assert_eq!(unready(&event(r#""vm_1","vm_2""#), &VmName::new("vm_1"), &begun, &policies, now()).len(), 1);
    }

    // O-07
    #[test]
    fn a_pod_that_came_after_the_drain_is_seen_in_a_fresh_list() {
        let deadline = crate::time::plus(now().wall, Duration::from_secs(900));
        let profile = crate::policy::Profile::default();
        let order = Order { profile, started_at: now().wall, deadline, uncordoned_at: None };
        let pod = Pod {
            name: PodName { namespace: "shop".into(), name: "web-1".into() },
            uid: PodUid::new("u1"),
            node: Some("n1".into()),
            created_at: None,
            priority: 0,
            grace: Duration::from_secs(30),
            controller: Controller::Other,
            controller_uid: None,
            finished: false,
            mirror: false,
            empty_dir: false,
            tolerates_cordon: false,
            skip: false,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            deletion: None,
        };
        assert_eq!(still_here(std::slice::from_ref(&pod), &order, None), [&pod.name]);
        assert!(still_here(std::slice::from_ref(&pod), &order, Some(&pod.name)).is_empty(), "it is this very program");
    }
}
