//! What the API server's answers to an eviction mean.
//!
//! The same status code stands for different things: a 429 may be a disruption budget's word or mere overload, a 403
//! may be a missing right, a vanishing namespace or an admission policy, a 500 may be two budgets on one pod. See
//! <https://kubernetes.io/docs/concepts/scheduling-eviction/api-eviction/> and the eviction subresource's source.

use std::time::Duration;

/// A refusal, as the API server worded it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status code.
    pub code: u16,
    /// The message of the Status, or the body if it was none.
    pub message: String,
    /// The causes of the Status: reason and message of each.
    pub causes: Vec<(String, String)>,
    /// The kind of object that the refusal is about (`details.kind` of the Status), empty if it names none.
    pub kind: String,
    /// How long the server asks to wait.
    pub retry_after: Option<Duration>,
}

impl Refusal {
    /// Whether an admission policy or webhook has refused; the API server names it then.
    pub fn is_by_admission(&self) -> bool {
        self.message.contains("AdmissionPolicy") || self.message.contains("admission webhook")
    }
}

/// What an answer means for a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The pod's deletion has begun, or had before.
    Accepted,
    /// There is no such pod any more.
    Gone,
    /// Somebody changed the pod, or it is another one of the same name: look before doing anything more.
    Conflict,
    /// A disruption budget does not allow it now. Its name, where the answer tells.
    Budget(Option<String>),
    /// Several disruption budgets select the pod, which the eviction API refuses for ever.
    SeveralBudgets,
    /// The server is busy, unreachable or broken: nothing is known about the pod.
    Busy(Option<Duration>),
    /// The pod's namespace is being deleted, and the pod with it.
    NamespaceTerminating,
    /// The pod's namespace does not exist any more, although the pod does: no eviction in it can succeed.
    NamespaceGone,
    /// An admission policy or webhook forbids it: its owner's word.
    Admission(String),
    /// This program lacks the right.
    Forbidden(String),
    /// The request itself is refused, which would be a fault of this program.
    Invalid(String),
}

impl Answer {
    /// The meaning of a refusal of an eviction or deletion.
    pub fn from_refusal(refusal: &Refusal) -> Self {
        let Refusal { code, message, causes, kind, retry_after } = refusal;
        let cause = |wanted: &str| causes.iter().find(|(reason, _)| reason == wanted).map(|(_, message)| message);
        match code {
            404 if kind == "namespaces" => Self::NamespaceGone,
            404 => Self::Gone,
            409 => Self::Conflict,
            429 => match cause("DisruptionBudget") {
                Some(message) => Self::Budget(budget_name(message, "The disruption budget ")),
                None => Self::Busy(*retry_after),
            },
            403 if cause("NamespaceTerminating").is_some() => Self::NamespaceTerminating,
            403 if message.contains("DisruptedPods map too big") => {
                Self::Budget(budget_name(message, "poddisruptionbudget.policy \"").map(|name| name.replace('"', "")))
            }
            403 | 422 if refusal.is_by_admission() => Self::Admission(message.clone()),
            401 | 403 => Self::Forbidden(message.clone()),
            500 if message.contains("more than one PodDisruptionBudget") => Self::SeveralBudgets,
            400..=499 if *code != 408 => Self::Invalid(message.clone()),
            _ => Self::Busy(*retry_after),
        }
    }

    /// The word for this answer in metrics; the words are few and never change.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Gone => "gone",
            Self::Conflict => "conflict",
            Self::Budget(_) => "disruption-budget",
            Self::SeveralBudgets => "several-disruption-budgets",
            Self::Busy(_) => "busy",
            Self::NamespaceTerminating => "namespace-terminating",
            Self::NamespaceGone => "namespace-gone",
            Self::Admission(_) => "admission",
            Self::Forbidden(_) => "forbidden",
            Self::Invalid(_) => "invalid",
        }
    }
}

fn budget_name(message: &str, before: &str) -> Option<String> {
    let (_, rest) = message.split_once(before)?;
    rest.split_whitespace().next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(code: u16, message: &str, causes: &[(&str, &str)]) -> Refusal {
        let causes = causes.iter().map(|(reason, message)| ((*reason).to_owned(), (*message).to_owned())).collect();
        Refusal { code, message: message.into(), causes, ..Refusal::default() }
    }

    // D-03
    #[test]
    fn each_refusal_is_told_from_its_look_alikes() {
        let budget = "Cannot evict pod as it would violate the pod's disruption budget.";
        let needs = [("DisruptionBudget", "The disruption budget db needs 1 healthy pods and has 1 currently")];
        let policy = "pods \"p\" is forbidden: ValidatingAdmissionPolicy 'X' with binding 'Y' denied request: no";
        let ending = [("NamespaceTerminating", "namespace n is being terminated")];
        let right = "pods \"q\" is forbidden: User \"u\" cannot create resource \"pods/eviction\" in API group \"\"";
        let many = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        let big = "poddisruptionbudget.policy \"db\" is forbidden: DisruptedPods map too big - too many evictions";
        for (refusal, answer) in [
            (refusal(429, budget, &needs), Answer::Budget(Some("db".into()))),
            (refusal(429, "Too many requests, please try again later.", &[]), Answer::Busy(None)),
            (refusal(403, big, &[]), Answer::Budget(Some("db".into()))),
            (refusal(403, "pods \"p\" is forbidden: unable to create", &ending), Answer::NamespaceTerminating),
            (refusal(403, right, &[]), Answer::Forbidden(right.into())),
            (refusal(403, policy, &[("", "…")]), Answer::Admission(policy.into())),
            (refusal(422, policy, &[("", "…")]), Answer::Admission(policy.into())),
            (refusal(500, many, &[]), Answer::SeveralBudgets),
            (refusal(500, "etcdserver: leader changed", &[]), Answer::Busy(None)),
            (refusal(503, "", &[]), Answer::Busy(None)),
            (refusal(504, "", &[]), Answer::Busy(None)),
            (refusal(404, "", &[]), Answer::Gone),
            (refusal(409, "", &[]), Answer::Conflict),
            (refusal(400, "name in URL does not match", &[]), Answer::Invalid("name in URL does not match".into())),
        ] {
            assert_eq!(Answer::from_refusal(&refusal), answer, "{refusal:?}");
        }
    }

    #[test]
    fn a_missing_namespace_is_not_a_missing_pod() {
        let refusal = |kind: &str| Refusal { code: 404, kind: kind.into(), ..Refusal::default() };
        assert_eq!(Answer::from_refusal(&refusal("pods")), Answer::Gone);
        assert_eq!(Answer::from_refusal(&refusal("namespaces")), Answer::NamespaceGone);
    }

    #[test]
    fn an_overloaded_server_may_say_how_long_to_wait() {
        let refusal = Refusal { code: 429, retry_after: Some(Duration::from_secs(1)), ..Refusal::default() };
        assert_eq!(Answer::from_refusal(&refusal), Answer::Busy(Some(Duration::from_secs(1))));
    }
}
