//! Virtual machines: what the instance metadata says of them, and which of them share a document.

use std::{borrow::Borrow, collections::BTreeMap};

use serde::{Deserialize, Serialize};
use serde_saphyr::Spanned;

use crate::{
    place::{list, unplaced, wrong},
    seed::guid,
};

/// A virtual machine.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Vm {
    /// `compute.name` and the name in `Resources`: `aks-np1-12345678-vmss_0`.
    pub name: String,
    /// `osProfile.computerName`, which is the node's name. By default that of an instance of a Linux scale set:
    /// `aks-np1-12345678-vmss000000`.
    pub node: Option<String>,
    /// `zone`, empty if there is none.
    #[serde(default)]
    pub zone: String,
    /// `vmSize`.
    #[serde(default = "default_size")]
    pub size: String,
    /// VMs of one placement group share a document. A VM without one has a document of its own.
    pub placement_group: Option<String>,
    /// `resourceId`. By default that of an instance of a scale set, or of a single VM, as the name says.
    pub resource_id: Option<String>,
    /// `vmId`. By default made from the name.
    pub vm_id: Option<String>,
    /// `location`.
    #[serde(default = "default_location")]
    pub location: String,
    /// `subscriptionId`.
    #[serde(default = "default_subscription")]
    pub subscription_id: String,
    /// `resourceGroupName`.
    #[serde(default = "default_resource_group")]
    pub resource_group: String,
    /// `osType`: `Linux` or `Windows`.
    #[serde(default = "default_os_type")]
    pub os_type: String,
    /// `priority`: empty, `Regular` or `Spot`.
    #[serde(default)]
    pub priority: String,
    /// `evictionPolicy`: empty, `Delete` or `Deallocate`.
    #[serde(default)]
    pub eviction_policy: String,
    /// `platformFaultDomain`.
    #[serde(default = "default_domain")]
    pub fault_domain: String,
    /// `platformUpdateDomain`.
    #[serde(default = "default_domain")]
    pub update_domain: String,
    /// `tags` and `tagsList`.
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    /// Its user-assigned identities. Without one it has a system-assigned identity.
    #[serde(default)]
    pub identities: Vec<Identity>,
}

fn default_size() -> String {
    "Standard_D4s_v5".to_owned()
}

fn default_location() -> String {
    "SwedenCentral".to_owned()
}

fn default_subscription() -> String {
    "00000000-0000-0000-0000-000000000000".to_owned()
}

fn default_resource_group() -> String {
    "MC_rg1_cluster1_swedencentral".to_owned()
}

fn default_os_type() -> String {
    "Linux".to_owned()
}

fn default_domain() -> String {
    "0".to_owned()
}

/// A user-assigned managed identity.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Identity {
    /// What the query parameter `client_id` selects.
    pub client_id: String,
    /// What the query parameter `object_id` selects.
    #[serde(default)]
    pub object_id: String,
    /// What the query parameters `msi_res_id` and `mi_res_id` select.
    #[serde(default)]
    pub resource_id: String,
}

impl Vm {
    /// A VM of this name, with defaults for all else.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            node: None,
            zone: String::new(),
            size: default_size(),
            placement_group: None,
            resource_id: None,
            vm_id: None,
            location: default_location(),
            subscription_id: default_subscription(),
            resource_group: default_resource_group(),
            os_type: default_os_type(),
            priority: String::new(),
            eviction_policy: String::new(),
            fault_domain: default_domain(),
            update_domain: default_domain(),
            tags: BTreeMap::new(),
            identities: Vec::new(),
        }
    }

    /// The same VM in this placement group.
    #[must_use]
    pub fn in_group(mut self, placement_group: impl Into<String>) -> Self {
        self.placement_group = Some(placement_group.into());
        self
    }

    /// Scale set and instance number, if the name is that of an instance of a uniform scale set.
    fn scale_set_instance(&self) -> Option<(&str, u64)> {
        let (scale_set, instance) = self.name.rsplit_once('_')?;
        instance.bytes().all(|byte| byte.is_ascii_digit()).then(|| instance.parse().ok())?.map(|n| (scale_set, n))
    }

    /// The scale set, empty for a single VM.
    pub fn scale_set(&self) -> &str {
        self.scale_set_instance().map_or("", |(scale_set, _)| scale_set)
    }

    /// The name of its Kubernetes node.
    pub fn node_name(&self) -> String {
        self.node.clone().unwrap_or_else(|| match self.scale_set_instance() {
            Some((scale_set, instance)) => format!("{scale_set}{:0>6}", base36(instance)),
            None => self.name.clone(),
        })
    }

    /// The ARM resource id.
    pub fn full_resource_id(&self) -> String {
        self.resource_id.clone().unwrap_or_else(|| {
            let compute = format!(
                "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Compute",
                self.subscription_id, self.resource_group
            );
            match self.scale_set_instance() {
                Some((scale_set, instance)) => {
                    format!("{compute}/virtualMachineScaleSets/{scale_set}/virtualMachines/{instance}")
                }
                None => format!("{compute}/virtualMachines/{}", self.name),
            }
        })
    }

    /// The unique id of the VM.
    pub fn unique_id(&self) -> String {
        self.vm_id.clone().unwrap_or_else(|| guid(0, &self.name, 0))
    }

    /// What its document is shared by: its placement group, else itself.
    pub fn group(&self) -> &str {
        self.placement_group.as_deref().unwrap_or(&self.name)
    }
}

/// The suffix of a Linux scale set's host names, without leading zeros.
fn base36(mut number: u64) -> String {
    let mut digits = Vec::new();
    while number > 0 {
        digits.extend(u32::try_from(number % 36).ok().and_then(|digit| char::from_digit(digit, 36)));
        number /= 36;
    }
    digits.into_iter().rev().collect()
}

/// The one document group of these VMs, or what is wrong with them and where.
pub(crate) fn group_of<'a, V: Borrow<Vm>>(vms: &'a [V], names: &[Spanned<String>]) -> Result<&'a str, Spanned<String>> {
    check_vms(vms, names)?;
    let mut group = None;
    for name in names {
        let own = vms.iter().map(Borrow::borrow).find(|vm| vm.name == name.value).map(Vm::group);
        if group.is_some() && group != own {
            return Err(wrong(
                name,
                format!(
                    "`{}` is in another placement group than the VMs before it; give it an event of its own",
                    name.value
                ),
            ));
        }
        group = own;
    }
    group.ok_or_else(|| unplaced("`vms` is empty; name the VMs that the event is about".to_owned()))
}

/// Whether there is a VM for each of these names, or which is wrong and where.
pub(crate) fn check_vms<V: Borrow<Vm>>(vms: &[V], names: &[Spanned<String>]) -> Result<(), Spanned<String>> {
    match names.iter().find(|name| vms.iter().all(|vm| vm.borrow().name != name.value)) {
        Some(name) => {
            let known = list(vms.iter().map(|vm| vm.borrow().name.as_str()));
            Err(wrong(name, format!("there is no VM `{}`; give one of {known}", name.value)))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vm_is_named_as_scale_sets_name_them() {
        for (name, node, resource) in [
            (
                "aks-np1-12345678-vmss_0",
                "aks-np1-12345678-vmss000000",
                "virtualMachineScaleSets/aks-np1-12345678-vmss/virtualMachines/0",
            ),
            (
                "aks-np1-12345678-vmss_24",
                "aks-np1-12345678-vmss00000o",
                "virtualMachineScaleSets/aks-np1-12345678-vmss/virtualMachines/24",
            ),
            (
                "aks-np1-12345678-vmss_150",
                "aks-np1-12345678-vmss000046",
                "virtualMachineScaleSets/aks-np1-12345678-vmss/virtualMachines/150",
            ),
            (
                "aks-np1-12345678-vmss_2768",
                "aks-np1-12345678-vmss00024w",
                "virtualMachineScaleSets/aks-np1-12345678-vmss/virtualMachines/2768",
            ),
            (
                "aks-hostedpool-16652789-vms1",
                "aks-hostedpool-16652789-vms1",
                "virtualMachines/aks-hostedpool-16652789-vms1",
            ),
        ] {
            let vm = Vm::new(name);
            assert_eq!(vm.node_name(), node);
            assert!(vm.full_resource_id().ends_with(&format!("/providers/Microsoft.Compute/{resource}")), "{name}");
        }
    }
}
