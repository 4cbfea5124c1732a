//! The API server, and what it grants.

use domain::policy::PolicySet;

use super::clock_skew::Reading;
use super::{Check, Topic};
use crate::clock::Clock;
use crate::cluster::rights::{Right, rights as needed, spoken};
use crate::cluster::{Cluster, ClusterError};

/// Said by every check that would have to ask it.
pub(super) const UNASKED: &str = "the API server could not be asked";

/// An API server that answered.
#[derive(Clone, Debug)]
pub(super) struct Server {
    version: String,
    /// As whom it knows this caller, if it says.
    user: Option<String>,
    /// What its clock showed.
    pub(super) reading: Option<Reading>,
}

/// Asks for the version, and as whom this caller is known.
pub(super) async fn ask(cluster: Result<&Cluster, &ClusterError>, clock: Clock) -> Result<Server, Check> {
    let cluster = cluster.map_err(trouble)?;
    let asked = clock.now().wall;
    let (version, date) = match cluster.server_version().await {
        Ok(answer) => (answer.version, answer.date),
        // Some hide it.
        Err(error) if error.is_forbidden() => ("a version that it hides".into(), None),
        Err(error) => return Err(trouble(&error)),
    };
    let answered = clock.now().wall;
    let reading = date.map(|date| Reading { whose: "the API server", asked, answered, date });
    Ok(Server { version, user: cluster.user_name().await.ok(), reading })
}

/// An API server that does not answer, and what to do about it.
fn trouble(error: &ClusterError) -> Check {
    let (found, advice) = match error {
        ClusterError::NotInCluster(_) => (
            "this is no pod, and no kubeconfig is given".to_owned(),
            "name one with --kubeconfig or KUBECONFIG, or run in a pod with the agent's service account",
        ),
        ClusterError::Refused(refusal) if refusal.code == 401 => (
            error.to_string(),
            "let the kubeconfig or the service account carry a token or certificate that this cluster has issued",
        ),
        ClusterError::Refused(_) => (error.to_string(), "ask again when the API server is well"),
        _ => (
            error.to_string(),
            "see that the server of the kubeconfig, or the Service `kubernetes`, can be reached from here",
        ),
    };
    Check::fail(Topic::ApiServer, found, advice)
}

/// Whether it answers.
pub(super) fn answers(server: &Result<Server, Check>) -> Check {
    match server {
        Ok(Server { version, user: Some(user), .. }) => {
            Check::ok(Topic::ApiServer, format!("{version}, asked as {user}"))
        }
        Ok(Server { version, user: None, .. }) => Check::ok(Topic::ApiServer, version.clone()),
        Err(trouble) => trouble.clone(),
    }
}

/// Whether the agent may do what its policies need.
pub(super) async fn rights(cluster: Option<&Cluster>, policies: &PolicySet, namespace: &str) -> Check {
    let needed = needed(policies);
    match cluster {
        Some(cluster) => judge(&needed, cluster.missing_rights(&needed, namespace).await),
        None => Check::skip(Topic::Rights, UNASKED),
    }
}

fn judge(needed: &[Right], missing: Result<Vec<Right>, ClusterError>) -> Check {
    const TOPIC: Topic = Topic::Rights;
    match missing {
        Ok(missing) if missing.is_empty() => Check::ok(TOPIC, format!("granted: {}", spoken(needed))),
        Ok(missing) => {
            let advice = "add them to the ClusterRole of the agent's service account; if this was asked with another \
                          kubeconfig, ask as that account";
            Check::fail(TOPIC, format!("missing: {}", spoken(&missing)), advice)
        }
        Err(error) if error.is_forbidden() => Check::skip(TOPIC, format!("not allowed to ask for them: {error}")),
        Err(error) => Check::fail(TOPIC, error.to_string(), "ask again when the API server is well"),
    }
}

#[cfg(test)]
mod tests {
    use domain::drain::answer::Refusal;
    use domain::policy::Policy;

    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn each_missing_right_is_named() {
        let needed = needed(&PolicySet::new(vec![Policy::built_in().unwrap()]).unwrap());
        let check = judge(&needed, Ok(Vec::new()));
        assert_eq!(check.verdict, Verdict::Ok);
        assert!(check.found.contains("get, watch, patch nodes; "), "{}", check.found);
        let check = judge(&needed, Ok(vec![needed[2], needed[7]]));
        assert_eq!(check.verdict, Verdict::Fail);
        assert_eq!(check.found, "missing: patch nodes; create pods/eviction");
        let forbidden = ClusterError::Refused(Refusal { code: 403, ..Refusal::default() });
        assert_eq!(judge(&needed, Err(forbidden)).verdict, Verdict::Skip);
    }
}
