//! What a machine registers its node as.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::world::controllers::condition;
use crate::world::controllers::timestamp::seconds;

/// A machine to be booted.
#[derive(Clone, Debug)]
pub struct MachineSpec {
    name: String,
    provider_id: Option<String>,
    system_uuid: Option<String>,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    taints: Vec<Value>,
    cpu: String,
    memory: String,
    pods: u32,
}

impl MachineSpec {
    /// A machine with the labels that every kubelet sets, and no provider id.
    pub fn new(name: &str) -> Self {
        let spec = Self {
            name: name.to_owned(),
            provider_id: None,
            system_uuid: None,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            taints: Vec::new(),
            cpu: "64".to_owned(),
            memory: "256Gi".to_owned(),
            pods: 250,
        };
        spec.label("kubernetes.io/hostname", name)
            .label("kubernetes.io/os", "linux")
            .label("kubernetes.io/arch", "amd64")
    }

    /// A machine as AKS makes it: instance `instance` of the scale set `aks-POOL-NUMBER-vmss`, spread over three zones.
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

    /// Sets `status.nodeInfo.systemUUID`, which on Azure is the VM's id; made up otherwise.
    #[must_use]
    pub fn system_uuid(mut self, system_uuid: &str) -> Self {
        self.system_uuid = Some(system_uuid.to_owned());
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
        self.taints.push(json!({"key": key, "value": value, "effect": effect}));
        self
    }

    /// How many pods fit on the node, 250 otherwise.
    #[must_use]
    pub fn room_for(mut self, pods: u32) -> Self {
        self.pods = pods;
        self
    }

    /// The node's processors and memory as quantities, `64` and `256Gi` otherwise.
    #[must_use]
    pub fn resources(mut self, cpu: &str, memory: &str) -> Self {
        cpu.clone_into(&mut self.cpu);
        memory.clone_into(&mut self.memory);
        self
    }

    /// Gives it a system UUID if it has none.
    pub(super) fn identify(&mut self, uuid: impl FnOnce() -> String) {
        self.system_uuid.get_or_insert_with(uuid);
    }

    /// The object with which the node is registered.
    pub(super) fn object(&self) -> Value {
        let mut spec = json!({});
        if let Some(provider_id) = &self.provider_id {
            spec["providerID"] = json!(provider_id);
        }
        if !self.taints.is_empty() {
            spec["taints"] = json!(self.taints);
        }
        json!({
            "metadata": {"name": self.name, "labels": self.labels, "annotations": self.annotations},
            "spec": spec,
        })
    }

    /// Gives a node that exists the labels and the provider id that it lacks, as a kubelet does that finds its node there.
    pub(super) fn adopt(&self, node: &mut Value) {
        for (key, value) in &self.labels {
            node["metadata"]["labels"][key] = json!(value);
        }
        if let Some(provider_id) = self.provider_id.as_ref().filter(|_| node["spec"]["providerID"].is_null()) {
            node["spec"]["providerID"] = json!(provider_id);
        }
    }

    /// Writes the part of a node's status that belongs to its kubelet.
    pub(super) fn write_status(&self, node: &mut Value, boot_id: &str, not_ready: Option<&str>, now: Timestamp) {
        let resources = json!({
            "cpu": self.cpu, "memory": self.memory, "ephemeral-storage": "512Gi", "pods": self.pods.to_string(),
        });
        let system_uuid = self.system_uuid.as_deref().unwrap_or_default();
        let status = &mut node["status"];
        status["capacity"] = resources.clone();
        status["allocatable"] = resources;
        status["addresses"] = json!([
            {"type": "InternalIP", "address": address(&self.name, 10, 224)},
            {"type": "Hostname", "address": self.name},
        ]);
        status["nodeInfo"] = json!({
            "architecture": "amd64",
            "bootID": boot_id,
            "containerRuntimeVersion": "containerd://2.1.4",
            "kernelVersion": "6.6.0",
            "kubeProxyVersion": "",
            "kubeletVersion": "v1.36.3",
            "machineID": system_uuid.replace('-', ""),
            "operatingSystem": "linux",
            "osImage": "AzureLinux 3.0",
            "systemUUID": system_uuid,
        });
        let ready = match not_ready {
            None => ["Ready", "True", "KubeletReady", "kubelet is posting ready status"],
            Some(message) => ["Ready", "False", "KubeletNotReady", message],
        };
        for [kind, status, reason, message] in [
            ["MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"],
            ["DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"],
            ["PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"],
            ready,
        ] {
            let mut posted = condition::new(kind, status, reason, message);
            posted["lastHeartbeatTime"] = json!(seconds(now));
            condition::set(node, posted, now);
        }
    }
}

/// An address in a network of 16 bits, made from a name; two may share one, which nobody minds here.
pub(super) fn address(name: &str, first: u8, second: u8) -> String {
    let number = name.bytes().fold(0_u16, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    let [third, fourth] = number.to_be_bytes();
    format!("{first}.{second}.{third}.{fourth}")
}

/// A scale set instance number as the last six characters of a host name.
fn base_36(mut number: u32) -> String {
    let mut digits = [b'0'; 6];
    for digit in digits.iter_mut().rev() {
        let value = u8::try_from(number % 36).unwrap_or_default();
        *digit = if value < 10 { b'0' + value } else { b'a' + value - 10 };
        number /= 36;
    }
    digits.iter().map(|&digit| char::from(digit)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aks_machine_is_named_after_its_scale_set_instance() {
        let machine = MachineSpec::aks("np1", 12_345_678, 11);
        assert_eq!(machine.name(), "aks-np1-12345678-vmss00000b");
        let node = machine.object();
        let provider_id = node["spec"]["providerID"].as_str().unwrap();
        let vm = "/virtualMachineScaleSets/aks-np1-12345678-vmss/virtualMachines/11";
        assert!(provider_id.ends_with(vm), "{provider_id}");
    }
}
