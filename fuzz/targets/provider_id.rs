//! Whatever stands in a node's `spec.providerID`: a machine or none, and for one machine one name.

#![no_main]

// The file alone: see `world.rs`.
#[path = "../../src/azure/provider_id.rs"]
#[allow(unreachable_pub, reason = "the file is written for its own crate")]
mod provider_id;

use domain::scheduled_event::VmName;
use libfuzzer_sys::fuzz_target;

use provider_id::vm_name;

fuzz_target!(|text: &str| {
    if let Some(name) = vm_name(text) {
        assert!(!name.as_str().is_empty() && !name.as_str().contains('/'), "{name}");
    }
    let Some(path) = text.strip_prefix("azure://") else { return assert_eq!(vm_name(text), None) };
    for other in [path.to_ascii_lowercase(), path.to_ascii_uppercase()] {
        assert_eq!(vm_name(&format!("azure://{other}")), vm_name(text), "letter case does not matter");
    }
    if let Some((scale_set, instance)) = path.split_once('/').filter(|(_, instance)| !instance.contains('/')) {
        a_machine_of_a_scale_set_has_one_name(scale_set, instance);
    }
});

/// Whether the last segment is its number or its whole name.
fn a_machine_of_a_scale_set_has_one_name(scale_set: &str, instance: &str) {
    let of_group = "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute";
    let named = |last: &str| vm_name(&format!("{of_group}/virtualMachineScaleSets/{scale_set}/virtualMachines/{last}"));
    if scale_set.is_empty() || instance.is_empty() {
        return assert_eq!(named(instance), None, "a machine without a name, or of no scale set");
    }
    let name = named(instance);
    assert_eq!(name.as_ref().and_then(|name| named(name.as_str())), name);
    let whole = VmName::new(format!("{scale_set}_{instance}"));
    assert!(name == Some(whole) || name == Some(VmName::new(instance)), "{name:?}");
    assert_eq!(vm_name(&format!("{of_group}/virtualMachines/{instance}")), Some(VmName::new(instance)));
}
