//! Repairs of nodes, as far as agents read and write them: `noderepairs.remediator.dev`.

use std::time::Duration;

use domain::neighbour::{News, ObservedEvent, Repair, TERMINAL_PHASES};
use domain::scheduled_event::VmName;
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::Request;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::client::{Cluster, ClusterError};
use crate::metrics::RequestLabels;

const LIMIT: Duration = Duration::from_secs(5);

const PATH: &str = "/apis/remediator.dev/v1alpha1/noderepairs";

#[derive(Deserialize)]
struct ApiList {
    items: Vec<ApiRepair>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ApiRepair {
    metadata: Metadata,
    spec: Spec,
    status: RepairStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    name: String,
    resource_version: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    #[serde(rename = "providerID")]
    provider_id: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RepairStatus {
    phase: String,
    observed_event: Option<Value>,
}

impl ApiRepair {
    fn read(self, vm_of: fn(&str) -> Option<VmName>) -> Repair {
        let Self { metadata, spec, status } = self;
        Repair {
            name: metadata.name,
            resource_version: metadata.resource_version,
            vm: vm_of(&spec.provider_id),
            live: !TERMINAL_PHASES.contains(&status.phase.as_str()),
            // One that cannot be read is replaced.
            observed: status.observed_event.and_then(|value| serde_json::from_value::<ObservedEvent>(value).ok()),
        }
    }
}

impl Cluster {
    /// All repairs; none where the cluster does not know of such. `vm_of` tells the machine of a provider id.
    pub async fn list_repairs(&self, vm_of: fn(&str) -> Option<VmName>) -> Result<Vec<Repair>, ClusterError> {
        let request = Request::new(PATH).list(&ListParams::default())?;
        let labels = RequestLabels { verb: "list", resource: "noderepairs" };
        match self.call::<ApiList>(labels, request, LIMIT).await {
            Ok(list) => Ok(list.items.into_iter().map(|repair| repair.read(vm_of)).collect()),
            Err(error) if error.is_not_found() => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Tells a repair of an event of its machine; a conflict means that it has changed since it was read.
    pub async fn tell_repair(&self, news: &News) -> Result<(), ClusterError> {
        let patch = json!({
            "metadata": {"resourceVersion": news.resource_version},
            "status": {"observedEvent": news.observed},
        });
        let request = Request::new(PATH).patch_subresource(
            "status",
            &news.repair,
            &PatchParams::default(),
            &Patch::Merge(patch),
        )?;
        let labels = RequestLabels { verb: "patch", resource: "noderepairs/status" };
        self.call::<IgnoredAny>(labels, request, LIMIT).await.map(drop)
    }
}
