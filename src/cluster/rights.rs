//! What the agent must be allowed to do, and whether it is.

use std::fmt;
use std::time::Duration;

use domain::policy::{ApproveBySource, AtDeadline, Mode, Policy, PolicySet};
use futures::stream::{StreamExt, TryStreamExt};
use kube::api::PostParams;
use kube::core::Request;
use serde::Deserialize;
use serde_json::json;

use super::client::{Cluster, ClusterError};
use crate::metrics::RequestLabels;

const LIMIT: Duration = Duration::from_secs(5);

/// For all reviews together.
const LIMIT_OF_ALL: Duration = Duration::from_secs(15);

const IN_OWN_NAMESPACE: &str = " (own namespace)";

/// How many reviews are under way at once.
const AT_ONCE: usize = 4;

/// One verb on one resource
/// (<https://kubernetes.io/docs/reference/access-authn-authz/authorization/#request-verbs-and-authorization>).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Right {
    /// What is done.
    pub verb: &'static str,
    /// The API group, empty for core.
    pub group: &'static str,
    /// The resource, in plural.
    pub resource: &'static str,
    /// The subresource, empty for the resource itself.
    pub subresource: &'static str,
    /// Whether it is needed in the agent's own namespace only, and not everywhere in the cluster.
    pub own_namespace: bool,
}

impl Right {
    const fn core(verb: &'static str, resource: &'static str, subresource: &'static str) -> Self {
        Self { verb, group: "", resource, subresource, own_namespace: false }
    }

    const fn lease(verb: &'static str) -> Self {
        Self { verb, group: "coordination.k8s.io", resource: "leases", subresource: "", own_namespace: true }
    }

    const fn repair(verb: &'static str, subresource: &'static str) -> Self {
        Self { verb, group: "remediator.dev", resource: "noderepairs", subresource, own_namespace: false }
    }

    /// The resource as roles name it: `nodes`, `pods/eviction`.
    pub fn object(&self) -> String {
        let Self { group, resource, subresource, .. } = self;
        let dot = if group.is_empty() { "" } else { "." };
        let slash = if subresource.is_empty() { "" } else { "/" };
        format!("{resource}{dot}{group}{slash}{subresource}")
    }
}

impl fmt::Display for Right {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.own_namespace { IN_OWN_NAMESPACE } else { "" };
        write!(out, "{} {}{place}", self.verb, self.object())
    }
}

/// What every agent needs, whatever its policy says.
const ALWAYS: &[Right] = &[
    Right::core("get", "nodes", ""),
    Right::core("watch", "nodes", ""),
    Right::core("patch", "nodes", ""),
    Right::core("patch", "nodes", "status"),
    Right::core("get", "pods", ""),
    Right::core("list", "pods", ""),
    Right::core("watch", "pods", ""),
    Right::core("create", "pods", "eviction"),
    Right::core("create", "events", ""),
    Right::repair("list", ""),
    Right::repair("patch", "status"),
];

/// What an agent needs to agree with others on the start of an event.
const APPROVING: &[Right] = &[
    Right::core("list", "nodes", ""),
    Right::lease("get"),
    Right::lease("create"),
    Right::lease("update"),
    Right::lease("delete"),
];

/// What an agent needs to take turns with others of its pool.
const TAKING_TURNS: &[Right] =
    &[Right::lease("list"), Right::lease("create"), Right::lease("update"), Right::lease("delete")];

/// What an agent needs beside that if it deletes pods past their budget.
const DELETING: &[Right] = &[Right::core("delete", "pods", "")];

/// What an agent with these policies must be allowed to do.
pub fn rights(policies: &PolicySet) -> Vec<Right> {
    let acting: Vec<&Policy> = policies.policies().iter().filter(|policy| policy.mode == Mode::Act).collect();
    let approves = |policy: &Policy| {
        policy.approve_own_repairs || policy.rules.iter().any(|rule| rule.approve != ApproveBySource::default())
    };
    let deletes = |policy: &Policy| policy.profiles.values().any(|one| one.at_deadline == AtDeadline::Delete);
    let mut rights = ALWAYS.to_vec();
    let mut further = |needed: bool, more: &[Right]| {
        let more: Vec<Right> = more.iter().filter(|right| needed && !rights.contains(right)).copied().collect();
        rights.extend(more);
    };
    further(acting.iter().any(|policy| deletes(policy)), DELETING);
    further(acting.iter().any(|policy| approves(policy)), APPROVING);
    further(acting.iter().any(|policy| policy.nodes_at_once.is_some()), TAKING_TURNS);
    rights
}

/// Rights in the words of a role, those on one resource together: `get, watch nodes; create events`.
pub fn spoken(rights: &[Right]) -> String {
    let same = |one: &Right, other: &Right| one.object() == other.object();
    let groups = rights.chunk_by(same).map(|group| {
        let verbs: Vec<&str> = group.iter().map(|right| right.verb).collect();
        let place = if group[0].own_namespace { IN_OWN_NAMESPACE } else { "" };
        format!("{} {}{place}", verbs.join(", "), group[0].object())
    });
    groups.collect::<Vec<_>>().join("; ")
}

impl Cluster {
    /// Those of the rights that the API server does not grant to this caller, by a `SelfSubjectAccessReview` each. Nothing
    /// is written, so this is asked in a dry run too.
    /// `namespace` is the agent's own.
    pub async fn missing_rights(&self, rights: &[Right], namespace: &str) -> Result<Vec<Right>, ClusterError> {
        // By value, because a stream of borrowed rights cannot be sent between threads.
        let asked = rights.iter().copied().map(|right| {
            let namespace = if right.own_namespace { namespace.to_owned() } else { String::new() };
            async move { Ok((right, self.is_granted(right, &namespace).await?)) }
        });
        let missing = futures::stream::iter(asked)
            .buffered(AT_ONCE)
            .try_filter_map(|(right, granted)| async move { Ok((!granted).then_some(right)) })
            .try_collect();
        match tokio::time::timeout(LIMIT_OF_ALL, missing).await {
            Ok(missing) => missing,
            Err(_) => Err(ClusterError::TimedOut(LIMIT_OF_ALL)),
        }
    }

    async fn is_granted(&self, right: Right, namespace: &str) -> Result<bool, ClusterError> {
        #[derive(Deserialize)]
        struct Review {
            status: ReviewStatus,
        }
        #[derive(Deserialize)]
        struct ReviewStatus {
            allowed: bool,
        }
        let Right { verb, group, resource, subresource, own_namespace: _ } = right;
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "verb": verb, "group": group, "resource": resource, "subresource": subresource, "namespace": namespace,
            }},
        });
        let request = Request::new("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
            .create(&PostParams::default(), serde_json::to_vec(&review)?)?;
        let labels = RequestLabels { verb: "create", resource: "selfsubjectaccessreviews" };
        Ok(self.ask::<Review>(labels, request, LIMIT).await?.status.allowed)
    }
}

#[cfg(test)]
mod tests {
    use domain::policy::file;

    use super::*;

    fn rights_of(policy: &str) -> String {
        let text = format!("apiVersion: remediator.dev/v1alpha1\nkind: Policy\nmetadata: {{name: p}}\n{policy}");
        let policy = file::parse("p.yaml", &text).expect("the policy is valid");
        spoken(&rights(&PolicySet::new(vec![policy]).expect("one policy is a set")))
    }

    const RULE: &str = "events: [{name: all, match: {type: Preempt}, action: drain}]";

    #[test]
    fn pods_are_deleted_only_where_a_policy_that_acts_says_so() {
        let leaves = "get, watch, patch nodes; patch nodes/status; get, list, watch pods; create pods/eviction; create events; \
             list noderepairs.remediator.dev; patch noderepairs.remediator.dev/status";
        assert_eq!(rights_of(RULE), leaves);
        let deleting = format!("{RULE}\ndrain: {{profiles: {{default: {{atDeadline: delete}}}}}}");
        assert_eq!(rights_of(&deleting), format!("{leaves}; delete pods"));
        assert_eq!(rights_of(&format!("mode: observe\n{deleting}")), leaves);
        let built_in = PolicySet::new(vec![Policy::built_in().unwrap()]).unwrap();
        assert!(rights(&built_in).contains(&DELETING[0]), "its profile for the end of a machine deletes");
    }

    // N-06
    #[test]
    fn agents_that_agree_with_others_need_leases() {
        let approving = "events: [{name: all, action: drain, approve: {User: whenDrained}}]";
        assert!(
            rights_of(approving)
                .ends_with("; list nodes; get, create, update, delete leases.coordination.k8s.io (own namespace)")
        );
        let taking_turns = format!("{RULE}\ndrain: {{nodesAtOnce: 2}}");
        assert!(
            rights_of(&taking_turns)
                .ends_with("; list, create, update, delete leases.coordination.k8s.io (own namespace)")
        );
        let for_repairs = "repair: {approveOwnRepairs: true}";
        assert!(rights_of(for_repairs).contains("list nodes"));
        assert!(!rights_of(&format!("mode: observe\n{for_repairs}")).contains("leases"));
    }

    #[test]
    fn a_right_is_written_as_roles_write_it() {
        assert_eq!(Right::repair("patch", "status").to_string(), "patch noderepairs.remediator.dev/status");
        assert_eq!(Right::lease("get").to_string(), "get leases.coordination.k8s.io (own namespace)");
        assert_eq!(ALWAYS[7].to_string(), "create pods/eviction");
    }
}
