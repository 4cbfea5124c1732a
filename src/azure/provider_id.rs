//! The name of a virtual machine, read from a node's `spec.providerID`.
//!
//! Only a cross-check for the agent: the name that Azure's metadata service gives is the one that events carry. The
//! shapes are those of <https://github.com/kubernetes-sigs/cloud-provider-azure>.

use domain::scheduled_event::VmName;

/// The machine that a provider id names; `None` if it is empty or not one of Azure's.
pub fn vm_name(provider_id: &str) -> Option<VmName> {
    let path = provider_id.strip_prefix("azure://")?;
    let mut segments = path.rsplit('/');
    let (last, kind) = (segments.next()?, segments.next()?);
    if last.is_empty() || !kind.eq_ignore_ascii_case("virtualMachines") {
        return None;
    }
    let (parent, parent_kind) = (segments.next()?, segments.next()?);
    if !parent_kind.eq_ignore_ascii_case("virtualMachineScaleSets") {
        return Some(VmName::new(last));
    }
    if parent.is_empty() {
        return None;
    }
    // Some writers put the machine's whole name in the last place.
    let prefix = format!("{parent}_").to_ascii_lowercase();
    if last.to_ascii_lowercase().starts_with(&prefix) {
        return Some(VmName::new(last));
    }
    Some(VmName::new(format!("{parent}_{last}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    //
    #[test]
    fn the_machine_is_named_for_every_kind_of_node() {
        let sub = "azure:///subscriptions/00000000-0000-0000-0000-000000000000";
        for (provider_id, name) in [
            (
                "/resourceGroups/mc_rg/providers/Microsoft.Compute/virtualMachineScaleSets/aks-np1-12345678-vmss/virtualMachines/24",
                Some("aks-np1-12345678-vmss_24"),
            ),
            (
                "/resourcegroups/MC_RG/providers/Microsoft.Compute/virtualMachineScaleSets/aks-np1-12345678-vmss/virtualMachines/24",
                Some("aks-np1-12345678-vmss_24"),
            ),
            (
                "/resourceGroups/mc_rg/providers/Microsoft.Compute/virtualMachineScaleSets/aks-np1-12345678-vmss/virtualMachines/AKS-np1-12345678-vmss_24",
                Some("aks-np1-12345678-vmss_24"),
            ),
            (
                "/resourceGroups/mc_rg/providers/Microsoft.Compute/virtualMachines/flexprofile-mp-0_df53ee36",
                Some("flexprofile-mp-0_df53ee36"),
            ),
            ("/resourceGroups/mc_rg/providers/Microsoft.Compute/virtualMachines/", None),
            ("/resourceGroups/mc_rg/providers/Microsoft.Compute/virtualMachineScaleSets//virtualMachines/24", None),
            ("/resourceGroups/mc_rg/providers/Microsoft.Compute/disks/d", None),
            ("", None),
        ] {
            assert_eq!(vm_name(&format!("{sub}{provider_id}")), name.map(VmName::new), "{provider_id}");
        }
        assert_eq!(vm_name("aws:///eu-west-1a/i-0123"), None);
        assert_eq!(vm_name(""), None);
    }
}
