//! What the documents in `docs/` say of the policy language.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::*;
use crate::policy_test;

fn document(name: &str) -> String {
    std::fs::read_to_string(format!("{}/../docs/{name}.md", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// The members of a schema as `drain.profiles.*.phases[].grace`, each with its default as text.
fn members(schema: &Value) -> BTreeMap<String, Option<String>> {
    fn walk(schema: &Value, root: &Value, path: &str, found: &mut BTreeMap<String, Option<String>>) {
        let referenced = schema
            .get("$ref")
            .and_then(Value::as_str)
            .map(|to| root.pointer(to.trim_start_matches('#')).unwrap_or_else(|| panic!("{to} is nowhere")));
        if let Some(referenced) = referenced {
            walk(referenced, root, path, found);
        }
        for (name, member) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            let default = member.get("default").map(|default| match default {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            });
            found.insert(path.clone(), default);
            walk(member, root, &path, found);
        }
        if let Some(items) = schema.get("items") {
            walk(items, root, &format!("{path}[]"), found);
        }
        if let Some(values) =
            schema.get("additionalProperties").filter(|values| values.get("type") != Some(&"string".into()))
        {
            walk(values, root, &format!("{path}.*"), found);
        }
        for choices in ["anyOf", "oneOf"] {
            for choice in schema.get(choices).and_then(Value::as_array).into_iter().flatten() {
                // The members of the values of a list are those of one value.
                if choice.get("type") != Some(&"array".into()) {
                    walk(choice, root, path, found);
                }
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(schema, schema, "", &mut found);
    found
}

/// The rows of the tables whose first cell is a member, with its default.
fn rows(text: &str, heading: &str) -> BTreeMap<String, String> {
    let section = text.split("\n## ").find(|section| section.starts_with(heading)).unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<&str> = row.split(" | ").map(|cell| cell.trim_matches(['|', ' '])).collect();
        assert_eq!(cells.len(), 5, "member, type, default, what it does, example: {row}");
        assert!(cells.iter().all(|cell| !cell.is_empty()), "an empty cell: {row}");
        (cells[0].trim_matches('`').to_owned(), cells[2].trim_matches('`').to_owned())
    })
    .collect()
}

#[test]
fn the_reference_has_every_member_of_both_kinds_of_file_with_its_default() {
    let text = document("policy");
    for (heading, schema) in [("The policy file", schema()), ("The test file", policy_test::schema())] {
        let (members, rows) = (members(&schema), rows(&text, heading));
        assert!(members.len() > 20, "{members:?}");
        let (known, told): (BTreeSet<_>, BTreeSet<_>) = (members.keys().collect(), rows.keys().collect());
        assert_eq!(known.difference(&told).collect::<Vec<_>>(), Vec::<&&String>::new(), "missing under {heading}");
        assert_eq!(told.difference(&known).collect::<Vec<_>>(), Vec::<&&String>::new(), "unknown under {heading}");
        for (member, default) in members {
            if let Some(default) = default.filter(|default| !default.is_empty() && !default.contains(['[', '{'])) {
                assert_eq!(rows[&member], default, "the default of {member}");
            }
        }
    }
}

/// The blocks of YAML in a document that are whole files of this kind.
fn files_in(text: &str, kind: &str) -> Vec<String> {
    let blocks = text.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.filter(|block| block.contains(&format!("kind: {kind}\n"))).map(str::to_owned).collect()
}

#[test]
fn every_policy_in_the_documents_is_valid_and_has_nothing_to_warn_of() {
    for (name, least) in [("policy", 1), ("cookbook", 12), ("migration", 1)] {
        let policies = files_in(&document(name), "Policy");
        assert!(policies.len() >= least, "{name}.md has {} policies", policies.len());
        for text in policies {
            let policy = file::parse(name, &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
            assert_eq!(policy.warnings(), Vec::<String>::new(), "{name}.md: {}", policy.name);
        }
    }
}

#[test]
fn the_example_of_a_test_passes_with_the_example_of_a_policy() {
    let text = document("policy");
    let policies = files_in(&text, "Policy").iter().map(|policy| file::parse("policy.md", policy).unwrap()).collect();
    let set = PolicySet::new(policies).unwrap();
    let tests = files_in(&text, "PolicyTest");
    assert_eq!(tests.len(), 1);
    for case in policy_test::parse("policy.md", &tests[0]).unwrap().cases {
        assert_eq!(case.play(&set), [], "{}", case.name);
    }
}

#[test]
fn every_flag_of_the_other_handler_has_a_row() {
    let text = document("migration");
    for flag in [
        "node",
        "endpoint",
        "period",
        "request.timeout",
        "config",
        "log.level",
        "dryRun",
        "kubeconfig",
        "web.address",
        "taint.node",
        "taint.effect",
        "podGracePeriodSeconds",
        "nodeGracePeriodSeconds",
        "gracePeriodSeconds",
        "drainOnFreezeEvent",
        "disableEviction",
        "resource.name",
        "alert.message",
        "telegram.*",
        "webhook.url",
        "webhook.method",
        "webhook.contentType",
        "webhook.timeout",
        "webhook.template",
        "webhook.template-file",
        "webhook.insecureSkip",
        "webhook.http-proxy",
        "webhook.retries",
    ] {
        assert!(text.lines().any(|line| line.starts_with('|') && line.contains(&format!("`-{flag}`"))), "-{flag}");
    }
}
