//! What an operator sees who makes a mistake, or asks what a policy would do.

#![allow(clippy::expect_used, reason = "what cannot go on fails its test")]

use std::io::Write;
use std::process::{Command, Output, Stdio};

use tempfile::NamedTempFile;

fn remediator(arguments: &[&str]) -> Output {
    run(Command::new(env!("CARGO_BIN_EXE_remediator")).args(arguments))
}

fn run(command: &mut Command) -> Output {
    for variable in ["NODE_NAME", "KUBECONFIG", "REMEDIATOR_POLICY", "REMEDIATOR_IMDS", "KUBERNETES_SERVICE_HOST"] {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null()).output().expect("the program can be started")
}

fn file(text: &str) -> NamedTempFile {
    let mut file = NamedTempFile::with_suffix(".yaml").expect("a temporary file can be made");
    file.write_all(text.as_bytes()).expect("the temporary file can be written");
    file
}

fn path(file: &NamedTempFile) -> &str {
    file.path().to_str().expect("the path is UTF-8")
}

/// The lines that are not log lines.
fn complaint(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    text.lines().filter(|line| !line.starts_with('{')).map(str::to_owned).collect()
}

const BROKEN: &str = "apiVersion: remediator.dev/v1alpha1
kind: Policy
metadata: {name: broken}
events:
  - name: reboot
    match: {type: Rebot}
    action: drain
";

#[test]
fn each_mistake_of_the_agents_operator_gets_one_clear_line_and_exit_code_2() {
    let broken = file(BROKEN);
    let policy = path(&broken);
    let no_kubeconfig = file("clusters: [\n");
    for (arguments, expected) in [
        (
            vec!["--node", "n", "--policy", policy],
            format!("{policy}:6:19: unknown type `Rebot`: use Freeze, Reboot, Redeploy, Preempt, Terminate or Unknown"),
        ),
        (
            vec!["--node", "n", "--policy", "/no/such.yaml"],
            "cannot read /no/such.yaml: No such file or directory".into(),
        ),
        (vec!["--node", "Node_1"], "--node `Node_1` is no name of a Node".into()),
        (
            vec!["--node", "n", "--imds", "169.254.169.254"],
            "`169.254.169.254` is no address of a metadata service: write it like http://169.254.169.254".into(),
        ),
        (
            vec!["--node", "n", "--imds", "https://example.org"],
            "`https://example.org` is no address of a metadata service".into(),
        ),
        (
            vec!["--node", "n", "--kubeconfig", "/no/such/config"],
            "kubeconfig /no/such/config: No such file or directory".into(),
        ),
        (vec!["--node", "n", "--kubeconfig", path(&no_kubeconfig)], format!("kubeconfig {}: ", path(&no_kubeconfig))),
        (vec!["--node", "n"], "not running in a pod".into()),
    ] {
        let output = remediator(&[&["agent", "--listen", "127.0.0.1:0"], arguments.as_slice()].concat());
        let complaint = complaint(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {complaint:?}");
        assert_eq!(complaint.len(), 1, "{arguments:?}: {complaint:?}");
        assert!(complaint[0].starts_with("remediator: "), "{complaint:?}");
        assert!(complaint[0].contains(&expected), "{arguments:?}: {complaint:?}");
    }
}

#[test]
fn an_address_that_is_taken_is_said() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = taken.local_addr().expect("it has an address").to_string();
    let kubeconfig = file(
        "{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}], \
         clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}], users: [{name: a, user: {}}]}",
    );
    let output = remediator(&["agent", "--node", "n", "--listen", &address, "--kubeconfig", path(&kubeconfig)]);
    assert_eq!(output.status.code(), Some(2));
    assert!(complaint(&output)[0].contains(&format!("cannot listen on {address}")), "{:?}", complaint(&output));
}

#[test]
fn flags_that_make_no_sense_are_refused_with_advice() {
    for (arguments, expected) in [
        (&["agent"][..], "--node"),
        (&["agent", "--node", "n", "--poll-interval", "100ms"], "at least 500ms"),
        (&["agent", "--node", "n", "--poll-interval", "1m"], "at most 10s"),
        (&["agent", "--node", "n", "--poll-interval", "1"], "write a number and a unit"),
        (&["policy", "check"], "<FILE>"),
        (&["policy", "explain", "--event", "e", "--labels", "spot"], "write labels as key=value"),
        (&["--log", "remediator=loud", "policy", "check", "x"], "--log `remediator=loud`"),
    ] {
        let output = remediator(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(expected), "{arguments:?}: {text}");
    }
}

#[test]
fn policy_check_tells_valid_files_from_broken_ones() {
    let shipped = |name: &str| format!("{}/policies/{name}.yaml", env!("CARGO_MANIFEST_DIR"));
    let all = ["default", "aks", "spot", "observe-only"].map(shipped);
    let output = remediator(&[&["policy", "check"][..], &all.each_ref().map(String::as_str)].concat());
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("aks.yaml: policy aks is valid, 5 rules"), "{text}");
    assert!(!text.contains("warning"), "{text}");

    let broken = file(BROKEN);
    let output = remediator(&["policy", "check", path(&broken), &shipped("aks")]);
    assert_eq!(output.status.code(), Some(1));
    let complaint = complaint(&output);
    assert_eq!(
        complaint,
        [format!(
            "{}:6:19: unknown type `Rebot`: use Freeze, Reboot, Redeploy, Preempt, Terminate or Unknown",
            path(&broken)
        )]
    );
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("policy aks is valid"),
        "the others are checked all the same"
    );

    assert_eq!(remediator(&["policy", "check", "/no/such.yaml"]).status.code(), Some(2));
}

#[test]
fn policy_check_refuses_a_folder_that_the_agent_would_refuse() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    for name in ["one", "two"] {
        let text = BROKEN.replace("Rebot", "Reboot").replace("broken", name);
        std::fs::write(folder.path().join(name).with_extension("yaml"), text).expect("the file can be written");
    }
    let folder = folder.path().to_str().expect("the path is UTF-8");
    let checked = remediator(&["policy", "check", folder]);
    assert_eq!(checked.status.code(), Some(1));
    assert!(complaint(&checked)[0].contains("policies one and two both have priority 0"), "{:?}", complaint(&checked));
    let agent = remediator(&["agent", "--node", "n", "--listen", "127.0.0.1:0", "--policy", folder]);
    assert_eq!(agent.status.code(), Some(2));
    assert!(complaint(&agent)[0].contains("both have priority 0"), "{:?}", complaint(&agent));
}

#[test]
fn policy_check_warns_of_events_that_nothing_is_done_about() {
    let partial = file(&BROKEN.replace("Rebot", "Reboot"));
    let output = remediator(&["policy", "check", path(&partial)]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("warning: no rule is about Freeze, Redeploy, Preempt, Terminate"), "{text}");
}

const EVENT: &str = r#"{"EventId":"e1","EventStatus":"Scheduled","EventType":"Preempt","Resources":["vm"],
    "NotBefore":"Sat, 11 Apr 2026 22:00:30 GMT","EventSource":"Platform","DurationInSeconds":-1}"#;

#[test]
fn policy_explain_says_which_rule_applies_and_what_happens_when() {
    let event = file(EVENT);
    let spot = concat!(env!("CARGO_MANIFEST_DIR"), "/policies/spot.yaml");
    let labels = "kubernetes.azure.com/scalesetpriority=spot";
    let at = "2026-04-11T22:00:00Z";
    let arguments = ["policy", "explain", "--event", path(&event), "--policy", spot, "--labels", labels, "--at", at];
    let output = remediator(&arguments);
    assert_eq!(output.status.code(), Some(0), "{:?}", complaint(&output));
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "event       Preempt Scheduled by Platform, not before 2026-04-11 22:00:30Z (in 30s)
policy      spot
rule        eviction
action      drain
starts      at once
deadline    2026-04-11 22:00:30Z (in 30s)
at the end  pods still there are deleted from 2026-04-11 22:00:28Z on
pods        without controller evicted, with emptyDir evicted
phases      from priority 0, then from priority 2000000000 (grace up to 30s)
"
    );
    let output = remediator(&arguments[..6]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("none selects a node with these labels"), "{text}");
}

#[test]
fn policy_explain_reads_a_whole_document_and_prints_json() {
    let document = file(&format!(
        r#"{{"DocumentIncarnation":3,"Events":[{EVENT},{}]}}"#,
        EVENT.replace("e1", "e2").replace("Preempt", "Freeze")
    ));
    let output = remediator(&[
        "policy",
        "explain",
        "--event",
        path(&document),
        "--at",
        "2026-04-11T22:00:00Z",
        "--output",
        "json",
    ]);
    let answers: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it prints JSON");
    assert_eq!(answers[0]["action"], "drain");
    assert_eq!(answers[0]["ruling"]["profile"]["atDeadline"], "delete");
    assert_eq!(answers[0]["deadline"], "2026-04-11T22:00:30Z");
    assert_eq!(answers[1]["action"], "none");
}

#[test]
fn an_event_file_that_is_none_is_refused() {
    for (text, expected) in [
        ("{", "neither an event nor a document"),
        (r#"{"Events":[]}"#, "lists no event"),
        (r#"{"EventType":"Reboot"}"#, "no EventId"),
    ] {
        let event = file(text);
        let output = remediator(&["policy", "explain", "--event", path(&event)]);
        assert_eq!(output.status.code(), Some(2));
        assert!(complaint(&output)[0].contains(expected), "{text}: {:?}", complaint(&output));
    }
}

#[test]
fn help_teaches_with_examples() {
    for arguments in [&["--help"][..], &["agent", "--help"], &["policy", "explain", "--help"]] {
        let output = remediator(arguments);
        assert_eq!(output.status.code(), Some(0));
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("Examples:") || text.contains("EventId"), "{arguments:?}: {text}");
    }
}
