//! The policies that are shipped in `policies/`, with their tests beside them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::*;
use crate::policy_test;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../policies")
}

/// The texts of the files in the folder, by their names without `.yaml`.
fn files() -> BTreeMap<String, String> {
    let entries = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let yaml = entries.filter(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    yaml.map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), std::fs::read_to_string(path).unwrap()))
        .collect()
}

fn is_test(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|end| end == "test")
}

fn policies() -> BTreeMap<String, Policy> {
    let files = files().into_iter().filter(|(name, _)| !is_test(name));
    files.map(|(name, text)| (name.clone(), file::parse(&name, &text).unwrap())).collect()
}

#[test]
fn every_shipped_policy_is_valid_has_a_rule_for_every_type_and_nothing_to_warn_of() {
    let policies = policies();
    let names: Vec<&str> = policies.keys().map(String::as_str).collect();
    assert_eq!(names, ["aks", "careful", "default", "gpu", "observe-only", "spot", "stateful", "windows"]);
    for (name, policy) in &policies {
        assert_eq!(policy.name, *name, "a policy is named as its file");
        assert_eq!(policy.warnings(), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn every_taint_that_is_shipped_leaves_the_autoscaler_alone() {
    for (name, policy) in policies() {
        if let Some(taint) = policy.marking.taint {
            assert!(taint.key.starts_with("status-taint.cluster-autoscaler.kubernetes.io/"), "{name}: {}", taint.key);
        }
    }
}

#[test]
fn a_policy_for_all_nodes_goes_together_with_every_policy_for_some() {
    let (for_all, for_some): (Vec<Policy>, Vec<Policy>) =
        policies().into_values().partition(|policy| policy.selector == Selector::default());
    assert_eq!((for_all.len(), for_some.len()), (4, 4));
    for one in for_all {
        let name = one.name.clone();
        let set = PolicySet::new(for_some.iter().cloned().chain([one]).collect());
        assert!(set.is_ok(), "{name}: {set:?}");
    }
}

#[test]
fn every_shipped_policy_passes_the_tests_beside_it() {
    let files = files();
    for (name, policy) in policies() {
        let beside = files.get(&format!("{name}.test")).unwrap_or_else(|| panic!("{name} has no test file"));
        let test = policy_test::parse(&name, beside).unwrap();
        let others = test.policies.iter().map(|file| {
            let name = file.trim_end_matches(".yaml");
            file::parse(name, &files[name]).unwrap()
        });
        let set = PolicySet::new(others.chain([policy.clone()]).collect()).unwrap();
        for case in &test.cases {
            assert_eq!(case.play(&set), [], "{name}: {}", case.name);
        }
        let text = beside.as_str();
        let untested: Vec<&str> = policy
            .rules
            .iter()
            .map(|rule| rule.name.as_str())
            .filter(|rule| !text.contains(&format!("rule: {rule}")))
            .collect();
        assert_eq!(untested, Vec::<&str>::new(), "{name}: rules without a case");
    }
}

#[test]
fn every_shipped_file_names_its_schema_in_its_first_line() {
    for (name, text) in files() {
        let schema = if is_test(&name) { "policy-test" } else { "policy" };
        let expected = format!("# yaml-language-server: $schema=../schema/{schema}.schema.json");
        assert_eq!(text.lines().next(), Some(expected.as_str()), "{name}");
    }
}

#[test]
fn the_schemas_that_are_shipped_are_those_of_this_version() {
    for (name, schema) in [("policy", schema()), ("policy-test", policy_test::schema())] {
        let path = folder().join(format!("../schema/{name}.schema.json"));
        let shipped: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        assert!(shipped == schema, "schema/{name}.schema.json: make it anew (see CONTRIBUTING.md)");
    }
}
