//! Leases of remediator, all in one namespace.

use std::collections::BTreeMap;
use std::time::Duration;

use domain::lease::Lease;
use jiff::Timestamp;
use kube::api::{DeleteParams, GetParams, ListParams, PostParams, Preconditions};
use kube::core::Request;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::client::{Cluster, ClusterError};
use crate::metrics::RequestLabels;

const LIMIT: Duration = Duration::from_secs(5);

/// The annotation that says that what a Lease is for has been done.
const DONE: &str = "remediator.dev/done";

/// The label by which all Leases of remediator are found.
pub const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "remediator");

/// The label with the pool whose slots some Leases are.
pub const SLOTS_OF: &str = "remediator.dev/drain-slots-of";

#[derive(Deserialize)]
struct ApiList {
    items: Vec<ApiLease>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ApiLease {
    metadata: Metadata,
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    name: String,
    resource_version: String,
    annotations: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    holder_identity: Option<String>,
    lease_duration_seconds: Option<u64>,
    renew_time: Option<String>,
}

impl From<ApiLease> for Lease {
    fn from(lease: ApiLease) -> Self {
        let ApiLease { metadata, spec } = lease;
        Self {
            name: metadata.name,
            resource_version: metadata.resource_version,
            holder: spec.holder_identity.unwrap_or_default(),
            renewed: spec.renew_time.unwrap_or_default(),
            lasts: Duration::from_secs(spec.lease_duration_seconds.unwrap_or_default()),
            done: metadata.annotations.contains_key(DONE),
        }
    }
}

/// What is written into a Lease.
#[derive(Clone, Debug)]
pub struct LeaseWrite {
    /// Its name.
    pub name: String,
    /// The version that is replaced; `None` if it must not exist yet.
    pub resource_version: Option<String>,
    /// Who holds it.
    pub holder: String,
    /// How long it lasts.
    pub lasts: Duration,
    /// When it is written.
    pub at: Timestamp,
    /// Whether what it is for has been done.
    pub done: bool,
    /// The pool whose slot it is, if it is one.
    pub slot_of: Option<String>,
}

impl LeaseWrite {
    fn body(&self) -> Value {
        // Anything but six decimals is refused.
        let at = self.at.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
        let mut labels = BTreeMap::from([(MANAGED_BY.0, MANAGED_BY.1)]);
        labels.extend(self.slot_of.as_deref().map(|pool| (SLOTS_OF, pool)));
        json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": self.name,
                "resourceVersion": self.resource_version,
                "labels": labels,
                "annotations": self.done.then(|| BTreeMap::from([(DONE, &at)])),
            },
            "spec": {
                "holderIdentity": self.holder,
                "leaseDurationSeconds": self.lasts.as_secs(),
                "acquireTime": at,
                "renewTime": at,
            },
        })
    }
}

fn leases_in(namespace: &str) -> Request {
    Request::new(format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"))
}

const fn labels(verb: &'static str) -> RequestLabels {
    RequestLabels { verb, resource: "leases" }
}

impl Cluster {
    /// Reads a Lease; `None` if there is none of that name.
    pub async fn get_lease(&self, namespace: &str, name: &str) -> Result<Option<Lease>, ClusterError> {
        let request = leases_in(namespace).get(name, &GetParams::default())?;
        match self.call::<ApiLease>(labels("get"), request, LIMIT).await {
            Ok(lease) => Ok(Some(lease.into())),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The Leases that are the slots of a pool.
    pub async fn list_slots(&self, namespace: &str, pool: &str) -> Result<Vec<Lease>, ClusterError> {
        let params = ListParams::default().labels(&format!("{}={},{SLOTS_OF}={pool}", MANAGED_BY.0, MANAGED_BY.1));
        let request = leases_in(namespace).list(&params)?;
        let list = self.call::<ApiList>(labels("list"), request, LIMIT).await?;
        Ok(list.items.into_iter().map(Lease::from).collect())
    }

    /// Creates a Lease, or replaces the version that was read; a conflict tells that another was faster.
    pub async fn write_lease(&self, namespace: &str, write: &LeaseWrite) -> Result<Lease, ClusterError> {
        let body = serde_json::to_vec(&write.body())?;
        let params = PostParams::default();
        let (request, verb) = match &write.resource_version {
            None => (leases_in(namespace).create(&params, body)?, "create"),
            Some(_) => (leases_in(namespace).replace(&write.name, &params, body)?, "update"),
        };
        Ok(self.call::<ApiLease>(labels(verb), request, LIMIT).await?.into())
    }

    /// Deletes a Lease, if it is still as it was read; one that is gone already is as good.
    pub async fn delete_lease(&self, namespace: &str, lease: &Lease) -> Result<(), ClusterError> {
        let version = Some(lease.resource_version.clone());
        let params = DeleteParams {
            preconditions: Some(Preconditions { resource_version: version, uid: None }),
            ..DeleteParams::default()
        };
        let request = leases_in(namespace).delete(&lease.name, &params)?;
        match self.call::<IgnoredAny>(labels("delete"), request, LIMIT).await {
            Err(error) if !error.is_not_found() && !error.is_conflict() => Err(error),
            _ => Ok(()),
        }
    }
}
