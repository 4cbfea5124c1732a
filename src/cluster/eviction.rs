//! Evictions and deletions of pods, always of one pod and no other of its name.
//!
//! The client library's own eviction call loses its options on the way (it writes `delete_options` where the API reads
//! `deleteOptions`), so the body is built here.

use domain::drain::Target;
use domain::drain::answer::Answer;
use k8s_openapi::api::policy::v1::Eviction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta, Preconditions as UidOf};
use kube::api::{DeleteParams, PostParams, Preconditions};
use serde::de::IgnoredAny;

use super::client::{Cluster, ClusterError};
use super::pod::pods_in;
use crate::metrics::{RequestLabels, ResultLabels};

/// The body of an eviction.
fn eviction(target: &Target) -> Eviction {
    Eviction {
        metadata: ObjectMeta {
            name: Some(target.name.name.clone()),
            namespace: Some(target.name.namespace.clone()),
            ..ObjectMeta::default()
        },
        delete_options: Some(DeleteOptions {
            grace_period_seconds: Some(i64::try_from(target.grace.as_secs()).unwrap_or(i64::MAX)),
            preconditions: Some(UidOf { uid: Some(target.uid.as_str().to_owned()), ..UidOf::default() }),
            ..DeleteOptions::default()
        }),
    }
}

impl Cluster {
    /// Asks for an eviction.
    pub async fn evict(&self, target: &Target) -> Answer {
        let labels = RequestLabels { verb: "create", resource: "pods/eviction" };
        let answer = async {
            let body = serde_json::to_vec(&eviction(target))?;
            let request = pods_in(&target.name.namespace).create_subresource(
                "eviction",
                &target.name.name,
                &PostParams::default(),
                body,
            )?;
            self.call::<IgnoredAny>(labels, request, target.timeout).await
        };
        self.count(answer.await)
    }

    /// Deletes a pod, past any disruption budget.
    pub async fn delete_pod(&self, target: &Target) -> Answer {
        let params = DeleteParams {
            grace_period_seconds: Some(u32::try_from(target.grace.as_secs()).unwrap_or(u32::MAX)),
            preconditions: Some(Preconditions { uid: Some(target.uid.as_str().to_owned()), resource_version: None }),
            ..DeleteParams::default()
        };
        let labels = RequestLabels { verb: "delete", resource: "pods" };
        let answer = async {
            let request = pods_in(&target.name.namespace).delete(&target.name.name, &params)?;
            self.call::<IgnoredAny>(labels, request, target.timeout).await
        };
        self.count(answer.await)
    }

    fn count(&self, answer: Result<IgnoredAny, ClusterError>) -> Answer {
        let answer = match answer {
            Ok(_) => Answer::Accepted,
            Err(ClusterError::Refused(refusal)) => Answer::from_refusal(&refusal),
            Err(ClusterError::Client(message)) => Answer::Invalid(message),
            Err(_) => Answer::Busy(None),
        };
        self.metrics().evictions.get_or_create(&ResultLabels { result: answer.label() }).inc();
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use domain::drain::pod::{PodName, PodUid};

    use super::*;

    // D-02
    #[test]
    fn an_eviction_carries_grace_and_uid_where_the_api_reads_them() {
        let target = Target {
            name: PodName { namespace: "shop".into(), name: "web-0".into() },
            uid: PodUid::new("u1"),
            grace: Duration::from_secs(20),
            timeout: Duration::from_secs(12),
        };
        assert_eq!(
            serde_json::to_string(&eviction(&target)).unwrap(),
            r#"{"apiVersion":"policy/v1","kind":"Eviction","deleteOptions":{"gracePeriodSeconds":20,"preconditions":{"uid":"u1"}},"metadata":{"name":"web-0","namespace":"shop"}}"#
        );
    }
}
