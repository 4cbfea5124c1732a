//! The Node, and what stands on it.

use domain::policy::{Mode, PolicySet};
use domain::record::{HOLD_ANNOTATION, Record, RecordError, claims_of_other_role};
use domain::scheduled_event::VmName;

use super::api_server::UNASKED;
use super::{Check, Topic};
use crate::azure::imds::Instance;
use crate::azure::provider_id;
use crate::cluster::ClusterError;
use crate::cluster::surroundings::NodeDetails;

/// Said by every check that needs the Node.
pub(super) const UNREAD: &str = "the Node could not be read";

/// Whether there is a Node of that name, and whether it is Ready.
pub(super) fn exists(name: &str, details: Option<&Result<NodeDetails, ClusterError>>) -> Check {
    const TOPIC: Topic = Topic::Node;
    let details = match details {
        None => return Check::skip(TOPIC, UNASKED),
        Some(Ok(details)) => details,
        Some(Err(error)) if error.is_not_found() => {
            let advice =
                "give --node or NODE_NAME the name that `kubectl get nodes` shows; in a pod, from spec.nodeName";
            return Check::fail(TOPIC, format!("there is no Node {name}"), advice);
        }
        Some(Err(error)) if error.is_forbidden() => {
            return Check::fail(
                TOPIC,
                error.to_string(),
                "grant the agent's service account get, watch and patch on nodes",
            );
        }
        Some(Err(error)) => return Check::fail(TOPIC, error.to_string(), "ask again when the API server is well"),
    };
    let cordon = if details.node.view.marks.unschedulable { ", cordoned" } else { "" };
    if details.node.view.ready {
        return Check::ok(TOPIC, format!("{name} is Ready{cordon}"));
    }
    let why = details.condition("Ready").map(|ready| format!(" ({}: {})", ready.reason, ready.message));
    let found = format!("{name} is not Ready{}{cordon}", why.unwrap_or_default());
    let advice = "see `kubectl describe node`: the agent gives a node back only when it is Ready";
    Check::warn(TOPIC, found, advice)
}

/// Whether the Node is the machine that the metadata service speaks for.
pub(super) fn is_this_machine(details: Option<&NodeDetails>, instance: Option<&Instance>) -> Check {
    const TOPIC: Topic = Topic::Machine;
    let Some(details) = details else { return Check::skip(TOPIC, UNREAD) };
    let id = &details.node.provider_id;
    let Some(named) = provider_id::vm_name(id) else {
        let found =
            if id.is_empty() { "it has no spec.providerID".to_owned() } else { format!("its spec.providerID is {id}") };
        let advice =
            "use Azure's cloud provider, which writes it; without it nothing shows that the Node is this machine";
        return Check::warn(TOPIC, found, advice);
    };
    match instance {
        None => Check::skip(TOPIC, format!("spec.providerID names {named}, but the metadata service does not answer")),
        Some(instance) if instance.name == named => {
            Check::ok(TOPIC, format!("spec.providerID and the metadata service both name {named}"))
        }
        Some(instance) => {
            let found = format!("spec.providerID names {named}, the metadata service {}", instance.name);
            Check::fail(
                TOPIC,
                found,
                "give --node or NODE_NAME the Node that this machine is: another one would be drained",
            )
        }
    }
}

/// Whether the records on the Node can be read, and whether a person holds it.
pub(super) fn record(name: &str, details: Option<&NodeDetails>, instance: Option<&Instance>) -> Check {
    const TOPIC: Topic = Topic::Record;
    let Some(details) = details else { return Check::skip(TOPIC, UNREAD) };
    let view = &details.node.view;
    let own = instance.map(|instance| &instance.name);
    let read = read(view.record.as_deref(), own)
        .and_then(|record| claims_of_other_role(view.other_record.as_deref()).map(|_| record));
    let found = match read {
        Ok(found) => found,
        Err(error) => {
            // What is wrong stands before the last colon, what to do after it.
            let text = error.to_string();
            let (found, advice) = text.rsplit_once(": ").unwrap_or((&text, "remove it"));
            return Check::fail(TOPIC, found, advice);
        }
    };
    if view.held {
        let found = format!("{found}; held by annotation {HOLD_ANNOTATION}, so nothing is begun or undone");
        return Check::warn(
            TOPIC,
            found,
            format!("when it may act again: kubectl annotate node {name} {HOLD_ANNOTATION}-"),
        );
    }
    Check::ok(TOPIC, found)
}

fn read(annotation: Option<&str>, own: Option<&VmName>) -> Result<String, RecordError> {
    let Some(text) = annotation else { return Ok("nothing of the agent's is on the Node".into()) };
    let record = Record::from_annotation(text)?;
    if let Some(own) = own.filter(|own| **own != record.vm) {
        return Err(RecordError::OtherMachine { recorded: record.vm, own: own.clone() });
    }
    let events: Vec<String> =
        record.events.iter().map(|event| format!("{} {}", event.event_type, event.status)).collect();
    let events = if events.is_empty() { "no event".to_owned() } else { events.join(", ") };
    Ok(format!("the agent is at work here, for {events}"))
}

/// Whether a policy is about this Node.
pub(super) fn policy(policies: &PolicySet, details: Option<&NodeDetails>) -> Check {
    const TOPIC: Topic = Topic::Policy;
    let Some(details) = details else { return Check::skip(TOPIC, UNREAD) };
    let policy = match policies.for_node(details.node.view.traits()) {
        Ok(policy) => policy,
        Err(why) => {
            let names: Vec<&str> = policies.policies().iter().map(|policy| policy.name.as_str()).collect();
            let found = format!("{why}; loaded: {}", names.join(", "));
            return Check::warn(TOPIC, found, "load one that is for it, or nothing is done about any event");
        }
    };
    let name = &policy.name;
    if policy.mode == Mode::Observe {
        return Check::ok(TOPIC, format!("{name}, which only observes: events are told, and nothing is done"));
    }
    let without = policy.types_without_rule();
    if without.is_empty() {
        return Check::ok(TOPIC, format!("{name} applies"));
    }
    let found = format!("{name} applies, without a rule about {}", without.join(", "));
    Check::warn(TOPIC, found, "write rules for these too, with `action: none` if that is what is meant")
}

#[cfg(test)]
mod tests {
    use domain::drain::answer::Refusal;
    use domain::node_plan::NodeView;
    use domain::policy::{Policy, file};

    use super::*;
    use crate::cluster::node::ReadNode;
    use crate::doctor::Verdict;
    use domain::marks::Marks;

    fn details(view: NodeView, provider_id: &str) -> NodeDetails {
        let node = ReadNode { view, provider_id: provider_id.into() };
        NodeDetails { node, ..NodeDetails::default() }
    }

    fn instance(name: &str) -> Instance {
        Instance { name: VmName::new(name), resource_id: String::new() }
    }

    fn refused(code: u16) -> Result<NodeDetails, ClusterError> {
        Err(ClusterError::Refused(Refusal { code, ..Refusal::default() }))
    }

    #[test]
    fn a_node_that_is_there_and_ready_is_well() {
        let ready =
            NodeView { ready: true, marks: Marks { unschedulable: true, ..Marks::default() }, ..NodeView::default() };
        assert_eq!(exists("n", Some(&Ok(details(ready, "")))), Check::ok(Topic::Node, "n is Ready, cordoned"));
        for (answer, verdict, advice) in [
            (Ok(details(NodeView::default(), "")), Verdict::Warn, "when it is Ready"),
            (refused(404), Verdict::Fail, "kubectl get nodes"),
            (refused(403), Verdict::Fail, "grant"),
            (refused(500), Verdict::Fail, "ask again"),
        ] {
            let check = exists("n", Some(&answer));
            assert_eq!(check.verdict, verdict, "{check:?}");
            assert!(check.advice.as_ref().unwrap().contains(advice), "{check:?}");
        }
        assert_eq!(exists("n", None).verdict, Verdict::Skip);
    }

    #[test]
    fn a_node_of_another_machine_is_found_out() {
        let id = "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/np1/virtualMachines/0";
        for (provider_id, machine, verdict) in [
            (id, Some("NP1_0"), Verdict::Ok),
            (id, Some("np1_1"), Verdict::Fail),
            (id, None, Verdict::Skip),
            ("", Some("np1_0"), Verdict::Warn),
            ("kind://docker/kind/node", Some("np1_0"), Verdict::Warn),
        ] {
            let check =
                is_this_machine(Some(&details(NodeView::default(), provider_id)), machine.map(instance).as_ref());
            assert_eq!(check.verdict, verdict, "{check:?}");
        }
    }

    #[test]
    fn a_record_that_the_agent_could_not_use_fails_and_a_hold_is_told() {
        let good = Record::new(VmName::new("np1_0")).to_annotation();
        let check = |record: Option<&str>, other_record: Option<&str>, held| {
            let (record, other_record) = (record.map(str::to_owned), other_record.map(str::to_owned));
            let view = NodeView { record, other_record, held, ..NodeView::default() };
            super::record("n", Some(&details(view, "")), Some(&instance("np1_0")))
        };
        assert_eq!(check(None, None, false).verdict, Verdict::Ok);
        assert_eq!(check(Some(&good), None, false).verdict, Verdict::Ok);
        let held = check(None, None, true);
        assert_eq!(held.verdict, Verdict::Warn);
        assert_eq!(held.advice.unwrap(), "when it may act again: kubectl annotate node n remediator.dev/hold-");
        let other = Record::new(VmName::new("np1_7")).to_annotation();
        for (record, other_record, found, advice) in [
            (
                Some("{"),
                None,
                "is damaged",
                "set annotation remediator.dev/hold, take the agent's marks off the node by hand",
            ),
            (Some(r#"{"version":7}"#), None, "by a newer remediator (format 7)", "upgrade this agent"),
            (Some(other.as_str()), None, "is about machine np1_7, but this is np1_0", "is NODE_NAME or --node right?"),
            (Some(good.as_str()), Some("?"), "remediator.dev/repair is damaged", "remove that annotation"),
        ] {
            let check = check(record, other_record, false);
            assert_eq!(check.verdict, Verdict::Fail, "{check:?}");
            assert!(check.found.contains(found), "{check:?}");
            assert!(check.advice.as_ref().unwrap().starts_with(advice), "{check:?}");
        }
    }

    #[test]
    fn a_node_that_no_policy_looks_after_is_told() {
        let node = details(NodeView::default(), "");
        let check = |policy: Policy| policy_check(policy, &node);
        assert_eq!(check(Policy::built_in().unwrap()), Check::ok(Topic::Policy, "default applies"));
        let parse = |rest: &str| {
            let text = format!(
                "apiVersion: remediator.dev/v1alpha1\nkind: Policy\nmetadata: {{name: p}}\n\
                 events: [{{name: e, match: {{type: Preempt}}, action: drain}}]\n{rest}"
            );
            file::parse("p.yaml", &text).unwrap()
        };
        let partial = check(parse(""));
        assert_eq!(partial.verdict, Verdict::Warn);
        assert!(partial.found.contains("Freeze, Reboot, Redeploy, Terminate"), "{}", partial.found);
        assert!(check(parse("mode: observe")).found.contains("only observes"));
        let elsewhere = check(parse("selector: {matchLabels: {a: b}}"));
        assert_eq!(
            (elsewhere.verdict, elsewhere.found.as_str()),
            (Verdict::Warn, "no policy selects this node; loaded: p")
        );
    }

    fn policy_check(policy: Policy, node: &NodeDetails) -> Check {
        super::policy(&PolicySet::new(vec![policy]).unwrap(), Some(node))
    }
}
