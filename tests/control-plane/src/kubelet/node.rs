//! What a fake kubelet registers its node as.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, NodeSpec as CoreNodeSpec, NodeStatus, Taint};
use k8s_openapi::jiff::Timestamp;
use kube::api::ObjectMeta;
use serde_json::{Value, json};

use crate::random;

/// How often a kubelet renews its lease, and how long that holds
/// (<https://kubernetes.io/docs/reference/node/node-status/#heartbeats>).
const HEARTBEAT: Duration = Duration::from_secs(10);
const LEASE: Duration = Duration::from_secs(40);

/// A node to be registered by [`super::Kubelet::start`].
#[derive(Clone, Debug)]
pub struct NodeSpec {
    name: String,
    provider_id: Option<String>,
    system_uuid: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    taints: Vec<Taint>,
    pods: u32,
    heartbeat: Duration,
    lease: Duration,
}

impl NodeSpec {
    /// A node with the labels that every kubelet sets, and no provider id.
    pub fn new(name: &str) -> Self {
        let spec = Self {
            name: name.to_owned(),
            provider_id: None,
            system_uuid: random::uuid(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            taints: Vec::new(),
            pods: 250,
            heartbeat: HEARTBEAT,
            lease: LEASE,
        };
        spec.label("kubernetes.io/hostname", name)
            .label("kubernetes.io/os", "linux")
            .label("kubernetes.io/arch", "amd64")
    }

    /// A node as AKS makes it: instance `instance` of the scale set `aks-POOL-NUMBER-vmss`, spread over three zones.
    pub fn aks(pool: &str, number: u32, instance: u32) -> Self {
        let scale_set = format!("aks-{pool}-{number:08}-vmss");
        let provider_id = format!(
            "azure:///subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/mc_demo_demo_westeurope/providers/\
             Microsoft.Compute/virtualMachineScaleSets/{scale_set}/virtualMachines/{instance}"
        );
        Self::new(&format!("{scale_set}{}", base_36(instance)))
            .provider_id(&provider_id)
            .label("agentpool", pool)
            .label("kubernetes.azure.com/agentpool", pool)
            .label("kubernetes.azure.com/cluster", "mc_demo_demo_westeurope")
            .label("kubernetes.azure.com/mode", "user")
            .label("node.kubernetes.io/instance-type", "Standard_D4s_v5")
            .label("topology.kubernetes.io/region", "westeurope")
            .label("topology.kubernetes.io/zone", &format!("westeurope-{}", instance % 3 + 1))
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets `spec.providerID`.
    #[must_use]
    pub fn provider_id(mut self, provider_id: &str) -> Self {
        self.provider_id = Some(provider_id.to_owned());
        self
    }

    /// Sets `status.nodeInfo.systemUUID`, which on Azure is the VM's id; random otherwise.
    #[must_use]
    pub fn system_uuid(mut self, system_uuid: &str) -> Self {
        system_uuid.clone_into(&mut self.system_uuid);
        self
    }

    /// Adds a label.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Adds an annotation.
    #[must_use]
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Adds a taint; the effect is `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    #[must_use]
    pub fn taint(mut self, key: &str, value: &str, effect: &str) -> Self {
        let value = Some(value.to_owned());
        self.taints.push(Taint { key: key.to_owned(), value, effect: effect.to_owned(), ..Taint::default() });
        self
    }

    /// How many pods fit on the node, 250 otherwise.
    #[must_use]
    pub fn room_for(mut self, pods: u32) -> Self {
        self.pods = pods;
        self
    }

    /// How often the node renews its lease (10 s otherwise); the lease lasts four times as long.
    #[must_use]
    pub fn heartbeat_every(mut self, heartbeat: Duration) -> Self {
        self.heartbeat = heartbeat;
        self.lease = heartbeat * 4;
        self
    }

    pub(super) fn heartbeat(&self) -> Duration {
        self.heartbeat
    }

    pub(super) fn lease_seconds(&self) -> u64 {
        self.lease.as_secs().max(1)
    }

    pub(super) fn object(&self) -> Node {
        Node {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                labels: Some(self.labels.clone()),
                annotations: Some(self.annotations.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(CoreNodeSpec {
                provider_id: self.provider_id.clone(),
                taints: (!self.taints.is_empty()).then(|| self.taints.clone()),
                ..CoreNodeSpec::default()
            }),
            status: Some(NodeStatus::default()),
        }
    }

    /// The part of the status that a kubelet owns.
    pub(super) fn status(&self, boot_id: &str, not_ready: Option<&str>, now: Timestamp) -> Value {
        let now = format!("{now:.0}");
        let condition = |kind: &str, status: &str, reason: &str, message: &str| {
            json!({
                "type": kind, "status": status, "reason": reason, "message": message,
                "lastHeartbeatTime": now, "lastTransitionTime": now,
            })
        };
        let ready = match not_ready {
            None => condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
            Some(message) => condition("Ready", "False", "KubeletNotReady", message),
        };
        let resources =
            json!({"cpu": "64", "memory": "256Gi", "ephemeral-storage": "512Gi", "pods": self.pods.to_string()});
        json!({
            "capacity": resources,
            "allocatable": resources,
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": self.name}],
            "conditions": [
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
                ready,
            ],
            "nodeInfo": {
                "architecture": "amd64",
                "bootID": boot_id,
                "containerRuntimeVersion": "containerd://2.1.4",
                "kernelVersion": "6.6.0",
                "kubeProxyVersion": "",
                "kubeletVersion": "v1.36.3",
                "machineID": self.system_uuid.replace('-', ""),
                "operatingSystem": "linux",
                "osImage": "AzureLinux 3.0",
                "systemUUID": self.system_uuid,
            },
        })
    }
}

/// A scale set instance number as the last six characters of a host name.
fn base_36(mut number: u32) -> String {
    let mut digits = [b'0'; 6];
    for digit in digits.iter_mut().rev() {
        let value = u8::try_from(number % 36).unwrap_or_default();
        *digit = if value < 10 { b'0' + value } else { b'a' + value - 10 };
        number /= 36;
    }
    String::from_utf8_lossy(&digits).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instance_numbers_are_written_in_base_36() {
        for (number, text) in
            [(0, "000000"), (9, "000009"), (10, "00000a"), (35, "00000z"), (36, "000010"), (46_656, "001000")]
        {
            assert_eq!(base_36(number), text);
        }
    }

    #[test]
    fn an_aks_node_is_named_after_its_scale_set_instance() {
        let node = NodeSpec::aks("np1", 12_345_678, 11);
        assert_eq!(node.name(), "aks-np1-12345678-vmss00000b");
        let provider_id = node.object().spec.and_then(|spec| spec.provider_id).unwrap_or_default();
        assert!(
            provider_id.ends_with("/virtualMachineScaleSets/aks-np1-12345678-vmss/virtualMachines/11"),
            "{provider_id}"
        );
    }
}
