//! Who else on this node acts on scheduled events.

use super::api_server::UNASKED;
use super::node::UNREAD;
use super::{Check, Topic};
use crate::cluster::ClusterError;
use crate::cluster::surroundings::{DaemonSet, NodeCondition, NodeDetails};

/// Every node of AKS has it (<https://learn.microsoft.com/azure/aks/use-labels#reserved-system-labels>).
const AKS_LABEL: &str = "kubernetes.azure.com/cluster";

/// What AKS puts on a node that it drains, by its name today and before September 2023
/// (<https://learn.microsoft.com/azure/aks/node-auto-drain>).
const DRAIN_TAINTS: [&str; 2] =
    ["remediator.kubernetes.azure.com/unschedulable", "remediator.aks.microsoft.com/unschedulable"];

/// What AKS's node problem detector says of scheduled events
/// (<https://learn.microsoft.com/azure/aks/node-problem-detector>).
const EVENT_CONDITIONS: [&str; 3] = ["VMEventScheduled", "PreemptionScheduled", "FreezeScheduled"];

/// <https://github.com/maksim-paskal/aks-node-termination-handler>
const TERMINATION_HANDLER: &str = "aks-node-termination-handler";

/// Whether the Node is one of AKS; `None` if nobody knows.
pub(super) fn is_aks(details: Option<&NodeDetails>) -> Option<bool> {
    details.map(|details| details.node.view.labels.contains_key(AKS_LABEL))
}

/// Whether AKS drains this node by itself, or is doing so now.
pub(super) fn auto_drain(details: Option<&NodeDetails>) -> Check {
    const TOPIC: Topic = Topic::AksAutoDrain;
    let Some(details) = details else { return Check::skip(TOPIC, UNREAD) };
    if let Some(taint) = details.taints.iter().find(|taint| DRAIN_TAINTS.contains(&taint.as_str())) {
        let advice = "leave taint and cordon to AKS, as the agent does; if they stay when no event is listed any more, see the \
                      Events of the Node and ask Azure's support";
        return Check::warn(TOPIC, format!("AKS is draining this node, or has: it carries the taint {taint}"), advice);
    }
    if is_aks(Some(details)) == Some(true) {
        let found = "AKS cordons and drains by itself at a Redeploy or Preempt: pods may go before their phase, and a cordon \
                     that AKS set first stays AKS's";
        return Check::ok(TOPIC, found);
    }
    Check::ok(TOPIC, format!("no node of AKS (no label {AKS_LABEL}), so nobody else drains it for Azure's events"))
}

/// Whether AKS's node problem detector is there, which asks for events too and approves some.
pub(super) fn problem_detector(details: Option<&NodeDetails>) -> Check {
    const TOPIC: Topic = Topic::ProblemDetector;
    let Some(details) = details else { return Check::skip(TOPIC, UNREAD) };
    let written: Vec<&NodeCondition> = EVENT_CONDITIONS.iter().filter_map(|kind| details.condition(kind)).collect();
    if written.is_empty() {
        let found = format!("the Node has no condition {}: no detector tells of events here", EVENT_CONDITIONS[0]);
        return Check::ok(TOPIC, found);
    }
    let told: Vec<String> = written.iter().map(|one| format!("{}={}", one.kind, one.status)).collect();
    let found = format!("it writes {}", told.join(", "));
    if let Some(unknown) = written.iter().find(|one| one.status == "Unknown") {
        let advice = "it cannot ask the metadata service either, or not within its 24 s: see metadata-service and \
                      scheduled-events";
        return Check::warn(TOPIC, format!("{found} ({}: {})", unknown.reason, unknown.message), advice);
    }
    let meaning = "it also asks for events, every 2 s, and approves at once those that a user asked for";
    Check::ok(TOPIC, format!("{found}; {meaning}"))
}

/// Whether another agent for the same events runs beside.
pub(super) fn termination_handler(daemon_sets: Option<Result<Vec<DaemonSet>, ClusterError>>) -> Check {
    const TOPIC: Topic = Topic::TerminationHandler;
    let daemon_sets = match daemon_sets {
        None => return Check::skip(TOPIC, UNASKED),
        Some(Ok(daemon_sets)) => daemon_sets,
        Some(Err(error)) if error.is_forbidden() => {
            return Check::skip(
                TOPIC,
                format!("not allowed to list DaemonSets, so no {TERMINATION_HANDLER} was looked for"),
            );
        }
        Some(Err(error)) => return Check::skip(TOPIC, error.to_string()),
    };
    let names = |one: &DaemonSet| {
        one.name.contains(TERMINATION_HANDLER) || one.images.iter().any(|image| image.contains(TERMINATION_HANDLER))
    };
    match daemon_sets.iter().find(|one| names(one)) {
        Some(DaemonSet { namespace, name, .. }) => Check::warn(
            TOPIC,
            format!("DaemonSet {namespace}/{name} acts on the same events"),
            "remove it, or let this agent only look on (`mode: observe`): two would drain the same node by different rules",
        ),
        None => Check::ok(TOPIC, format!("no {TERMINATION_HANDLER} among the DaemonSets")),
    }
}

#[cfg(test)]
mod tests {
    use domain::drain::answer::Refusal;

    use super::*;
    use crate::doctor::Verdict;

    fn node(labels: &[&str], taints: &[&str], conditions: &[(&str, &str)]) -> NodeDetails {
        let mut details = NodeDetails::default();
        details.node.view.labels.extend(labels.iter().map(|&label| (label.to_owned(), "x".to_owned())));
        details.taints = taints.iter().map(|&taint| taint.to_owned()).collect();
        let condition = |&(kind, status): &(&str, &str)| {
            let (kind, status) = (kind.to_owned(), status.to_owned());
            NodeCondition { kind, status, reason: "R".into(), message: "M".into() }
        };
        details.conditions = conditions.iter().map(condition).collect();
        details
    }

    #[test]
    fn what_aks_does_by_itself_is_told() {
        for (node, verdict, found) in [
            (node(&[], &["other"], &[]), Verdict::Ok, "no node of AKS"),
            (node(&[AKS_LABEL], &[], &[]), Verdict::Ok, "at a Redeploy or Preempt"),
            (node(&[AKS_LABEL], &[DRAIN_TAINTS[0]], &[]), Verdict::Warn, "AKS is draining this node"),
            (node(&[], &[DRAIN_TAINTS[1]], &[]), Verdict::Warn, DRAIN_TAINTS[1]),
        ] {
            let check = auto_drain(Some(&node));
            assert_eq!(check.verdict, verdict, "{check:?}");
            assert!(check.found.contains(found), "{check:?}");
        }
    }

    #[test]
    fn the_detectors_conditions_are_told_and_a_detector_that_is_blind_too() {
        for (conditions, verdict, found) in [
            (&[("Ready", "True")][..], Verdict::Ok, "no condition VMEventScheduled"),
            (
                &[("VMEventScheduled", "False"), ("FreezeScheduled", "True")],
                Verdict::Ok,
                "VMEventScheduled=False, FreezeScheduled=True; ",
            ),
            (&[("VMEventScheduled", "Unknown")], Verdict::Warn, "VMEventScheduled=Unknown (R: M)"),
        ] {
            let check = problem_detector(Some(&node(&[], &[], conditions)));
            assert_eq!(check.verdict, verdict, "{check:?}");
            assert!(check.found.contains(found), "{check:?}");
        }
    }

    #[test]
    fn another_agent_is_known_by_its_name_or_its_image() {
        let one = |name: &str, image: &str| DaemonSet {
            namespace: "kube-system".into(),
            name: name.into(),
            images: vec![image.into()],
        };
        let innocent = one("kube-proxy", "mcr.microsoft.com/kube-proxy:v1");
        let check = |sets: Vec<DaemonSet>| termination_handler(Some(Ok(sets))).verdict;
        assert_eq!(check(vec![innocent.clone()]), Verdict::Ok);
        assert_eq!(check(vec![innocent.clone(), one("prod-aks-node-termination-handler", "x")]), Verdict::Warn);
        assert_eq!(check(vec![innocent, one("nth", "paskalmaksim/aks-node-termination-handler:v1")]), Verdict::Warn);
        let forbidden = ClusterError::Refused(Refusal { code: 403, ..Refusal::default() });
        assert_eq!(termination_handler(Some(Err(forbidden))).verdict, Verdict::Skip);
        assert_eq!(termination_handler(None).verdict, Verdict::Skip);
    }
}
