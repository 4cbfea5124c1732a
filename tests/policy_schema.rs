//! The schemas of policy and test files, held against files that are right and files that are wrong.

#![allow(clippy::expect_used, reason = "what cannot go on fails its test")]

use std::path::{Path, PathBuf};

use boon::{Compiler, SchemaIndex, Schemas};
use domain::policy::{SCHEMA_ID, file, schema};
use domain::policy_test;
use serde_json::Value;

/// A schema that is ready to be asked.
struct Validator {
    schemas: Schemas,
    index: SchemaIndex,
}

impl Validator {
    fn new(id: &str, schema: Value) -> Self {
        let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
        compiler.enable_format_assertions();
        compiler.add_resource(id, schema).expect("the schema has an address");
        let index = compiler.compile(id, &mut schemas).expect("the schema is one of draft 2020-12");
        Self { schemas, index }
    }

    fn of_policies() -> Self {
        Self::new(SCHEMA_ID, schema())
    }

    fn complaint(&self, yaml: &str) -> Option<String> {
        let value: Value = serde_saphyr::from_str(yaml).expect("the file is YAML");
        self.schemas.validate(&value, self.index).err().map(|error| format!("{error:#}"))
    }
}

/// The YAML files of the folder, with their texts.
fn files(folder: &str) -> Vec<(PathBuf, String)> {
    let entries = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).expect("the folder is there");
    let paths = entries.map(|entry| entry.expect("the folder can be read").path());
    let yaml = paths.filter(|path| path.extension().is_some_and(|end| end == "yaml"));
    yaml.map(|path| (path.clone(), std::fs::read_to_string(path).expect("the file can be read"))).collect()
}

#[test]
fn every_shipped_policy_and_test_is_right_by_its_schema() {
    let policies = Validator::of_policies();
    let tests = Validator::new(policy_test::SCHEMA_ID, policy_test::schema());
    let files = files("policies");
    assert!(files.len() >= 16, "{files:?}");
    for (path, text) in files {
        let is_test = path.to_str().is_some_and(|path| path.ends_with(".test.yaml"));
        let complaint = if is_test { tests.complaint(&text) } else { policies.complaint(&text) };
        assert_eq!(complaint, None, "{}", path.display());
    }
}

#[test]
fn every_policy_of_the_cookbook_is_right_by_the_schema() {
    let policies = Validator::of_policies();
    let cookbook = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/cookbook.md"))
        .expect("the cookbook is there");
    for block in cookbook.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()) {
        assert_eq!(policies.complaint(block), None, "{block}");
    }
}

const HEAD: &str = "apiVersion: remediator.dev/v1alpha1\nkind: Policy\nmetadata: {name: p}\n";

#[test]
fn what_is_wrong_is_wrong_by_the_schema_and_to_the_parser_at_its_place() {
    let rule = |members: &str| format!("{HEAD}events:\n  - {{name: a, {members}}}\n");
    let profile = |members: &str| format!("{HEAD}drain: {{profiles: {{x: {{{members}}}}}}}\n");
    let policies = Validator::of_policies();
    assert_eq!(policies.complaint(&rule("action: drain")), None);
    for (text, place) in [
        (HEAD.replace("v1alpha1", "v1"), "1:13: unknown apiVersion"),
        (HEAD.replace("Policy", "Pod"), "2:7: unknown kind"),
        (HEAD.replace("name: p", "name: P"), "3:18: `P` is no name for a policy"),
        (format!("{HEAD}mode: dry\n"), "4:7: unknown variant `dry`"),
        (format!("{HEAD}priority: high\n"), "4:11: "),
        (format!("{HEAD}rules: []\n"), "4:1: unknown field `rules`"),
        (
            format!("{HEAD}selector: {{matchExpressions: [{{key: a, operator: Equals}}]}}\n"),
            "4:50: unknown variant `Equals`",
        ),
        (rule("action: evict"), "5:23: unknown variant `evict`"),
        (rule("match: {type: Reboot}"), "5:15: missing field `action`"),
        (rule("action: drain, begin: {atMost: 15m}"), "5:30: unknown field `begin`"),
        (rule("action: drain, match: {type: Rebot}"), "5:44: unknown type `Rebot`"),
        (rule("action: drain, match: {type: []}"), "5:44: an empty list matches nothing"),
        (rule("action: drain, match: {source: user}"), "5:46: unknown source `user`"),
        (rule("action: drain, match: {status: Ended}"), "5:46: unknown status `Ended`"),
        (rule("action: drain, match: {duration: {}}"), "5:48: `duration` needs `below`, `atLeast` or both"),
        (rule("action: drain, match: {description: {contains: a, matches: b}}"), "5:"),
        (
            rule("action: drain, match: {description: {contains: ''}}"),
            "5:62: every description contains the empty text",
        ),
        (rule("action: drain, start: {atMost: 15}"), "5:46: `15` is not a duration"),
        (rule("action: drain, start: {atMost: 1.5h}"), "5:46: `1.5h` is not a duration"),
        (rule("action: drain, approve: always"), "5:30: unknown variant `always`"),
        (rule("action: drain, approve: {Azure: never}"), "5:40: unknown field `Azure`"),
        (rule("action: cordon, profile: default"), "5:40: a profile is for `action: drain`"),
        (format!("{HEAD}drain: {{nodesAtOnce: 0}}\n"), "4:22: with `nodesAtOnce: 0`"),
        (format!("{HEAD}drain: {{taint: {{effect: NoStart}}}}\n"), "4:25: unknown variant `NoStart`"),
        (profile("atDeadline: kill"), "4:36: unknown variant `kill`"),
        (profile("bare: delete"), "4:30: unknown variant `delete`"),
        (profile("phases: []"), "4:32: a profile has 1 to 8 phases"),
        (profile("phases: [{grace: 30s}]"), "4:34: missing field `priority`"),
        (profile("skip: {}"), "4:30: `skip` needs `labels`, `annotations` or both"),
    ] {
        assert!(policies.complaint(&text).is_some(), "right by the schema: {text}");
        let mistake = file::parse("p.yaml", &text).expect_err("the parser refuses it").to_string();
        assert!(mistake.starts_with(&format!("p.yaml:{place}")), "{mistake}\n{text}");
    }
}

#[test]
fn a_member_without_a_value_is_wrong_by_the_schema() {
    let policies = Validator::of_policies();
    for text in [format!("{HEAD}selector:\n"), format!("{HEAD}events:\n  - {{name: a, match: , action: none}}\n")] {
        assert!(policies.complaint(&text).is_some(), "{text}");
    }
}
