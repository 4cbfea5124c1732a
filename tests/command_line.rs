//! What an operator sees who makes a mistake, or asks what a policy would do.

#![allow(clippy::expect_used, reason = "what cannot go on fails its test")]

use std::io::Write;
use std::process::{Command, Output, Stdio};

use mock_imds::{Mock, Scenario, SystemClock};
use tempfile::NamedTempFile;

fn remediator(arguments: &[&str]) -> Output {
    run(Command::new(env!("CARGO_BIN_EXE_remediator")).args(arguments))
}

/// What would change what the program does.
const VARIABLES: [&str; 6] = [
    "NODE_NAME",
    "KUBECONFIG",
    "REMEDIATOR_POLICY",
    "REMEDIATOR_IMDS",
    "REMEDIATOR_HOST_ROOT",
    "KUBERNETES_SERVICE_HOST",
];

fn run(command: &mut Command) -> Output {
    for variable in VARIABLES {
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
        (&["doctor"], "--node"),
        (&["doctor", "--node", "n", "--policy", "/no/such.yaml"], "cannot read /no/such.yaml"),
        (&["doctor", "--node", "n", "--kubeconfig", "/no/such/config"], "kubeconfig /no/such/config"),
        (&["policy", "check"], "<FILE>"),
        (&["policy", "explain", "--event", "e", "--labels", "spot"], "as key=value"),
        (&["--log", "remediator=loud", "policy", "check", "x"], "--log `remediator=loud`"),
    ] {
        let output = remediator(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(expected), "{arguments:?}: {text}");
    }
}

/// The program, beside a mock of the metadata service in this process.
async fn doctor(arguments: &[&str]) -> Output {
    let imds = Mock::new(Scenario::single("np1_0"), SystemClock).serve_on_loopback().await.expect("a port is free");
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_remediator"));
    for variable in VARIABLES {
        command.env_remove(variable);
    }
    let host = tempfile::tempdir().expect("a folder can be made");
    let kubelet = host.path().join("var/lib/kubelet");
    std::fs::create_dir_all(&kubelet).expect("a folder can be made");
    std::fs::write(kubelet.join("config.yaml"), "shutdownGracePeriod: 45s\n").expect("the file can be written");
    command.args(["doctor", "--node", "n", "--imds", &imds.url(), "--host-root"]).arg(host.path()).args(arguments);
    command.stdin(Stdio::null()).output().await.expect("the program can be started")
}

#[tokio::test]
async fn doctor_without_an_api_server_tells_all_that_can_be_told_and_what_to_do() {
    let output = doctor(&[]).await;
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let lines: Vec<&str> = text.lines().collect();
    let about = |name: &str| {
        let place = lines.iter().position(|line| line.split_whitespace().nth(1) == Some(name));
        place.unwrap_or_else(|| panic!("nothing about {name}: {text}"))
    };
    for (name, verdict, found) in [
        ("metadata-service", "ok", "this is np1_0"),
        ("api-server", "fail", "this is no pod, and no kubeconfig is given"),
        ("node", "skip", "the API server could not be asked"),
        ("rights", "skip", "the API server could not be asked"),
        ("clock", "ok", "agrees with the metadata service"),
        ("kubelet-shutdown", "ok", "pods have 45s"),
        ("scheduled-events", "ok", "no event is listed"),
    ] {
        let line = lines[about(name)];
        assert!(line.starts_with(verdict) && line.contains(found), "{name}: {text}");
    }
    let advice = lines[about("api-server") + 1];
    assert!(advice.trim_start().starts_with("-> name one with --kubeconfig"), "{text}");
    assert!(!text.contains('\x1b'), "no colour where there is no terminal");
    assert_eq!(complaint(&output), [""; 0]);
}

#[tokio::test]
async fn doctor_prints_one_json_document_for_programs() {
    let output = doctor(&["--output", "json"]).await;
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it prints JSON");
    assert_eq!(output.status.code(), Some(1));
    let checks = report["checks"].as_array().expect("it has checks");
    assert_eq!(checks.len(), 16);
    let server = checks.iter().find(|check| check["name"] == "api-server").expect("one is about the API server");
    assert_eq!(server["verdict"], "fail");
    assert!(server["advice"].is_string());
}

#[test]
fn policy_check_tells_valid_files_from_broken_ones() {
    let shipped = |name: &str| format!("{}/policies/{name}.yaml", env!("CARGO_MANIFEST_DIR"));
    let all = ["default", "aks", "spot", "observe-only", "spot.test"].map(shipped);
    let output = remediator(&[&["policy", "check"][..], &all.each_ref().map(String::as_str)].concat());
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("aks.yaml: policy aks is valid, 5 rules"), "{text}");
    assert!(text.contains("spot.test.yaml: 9 test cases can be read"), "{text}");
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
fn policy_check_tells_every_mistake_of_a_file() {
    let broken = file(&format!(
        "{}  - {{name: Two, action: drain, start: {{atMost: 0s}}}}\n  - {{name: three, action: cordon, profile: x}}\n",
        BROKEN.replace("Rebot", "Reboot")
    ));
    let output = remediator(&["policy", "check", path(&broken)]);
    assert_eq!(output.status.code(), Some(1));
    let places: Vec<String> = complaint(&output)
        .iter()
        .map(|line| line.trim_start_matches(path(&broken)).split(' ').next().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(places, [":8:12:", ":8:48:", ":9:44:"], "{:?}", complaint(&output));
}

#[test]
fn a_folder_of_policies_may_hold_their_tests() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    std::fs::write(folder.path().join("one.yaml"), BROKEN.replace("Rebot", "Reboot")).expect("it can be written");
    std::fs::write(folder.path().join("one.test.yaml"), TEST).expect("it can be written");
    let folder = folder.path().to_str().expect("the path is UTF-8");
    let output = remediator(&["policy", "check", folder]);
    assert_eq!(output.status.code(), Some(0), "{:?}", complaint(&output));
    let event = file(EVENT);
    let output = remediator(&["policy", "explain", "--event", path(&event), "--policy", folder]);
    assert_eq!(output.status.code(), Some(0), "{:?}", complaint(&output));
}

const TEST: &str = "apiVersion: remediator.dev/v1alpha1
kind: PolicyTest
cases:
  - name: a reboot is drained for
    event: {type: Reboot, notBefore: in 15m}
    expect: {rule: reboot, action: drain}
  - name: a freeze is let pass
    event: {type: Freeze, notBefore: in 15m}
    expect: {action: drain, starts: in 0s}
";

#[test]
fn policy_test_prints_a_line_a_case_and_what_is_not_as_expected() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let policy = folder.path().join("one.yaml");
    std::fs::write(&policy, BROKEN.replace("Rebot", "Reboot")).expect("it can be written");
    let policy = policy.to_str().expect("the path is UTF-8");
    let output = remediator(&["policy", "test", policy]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        complaint(&output)[0].ends_with("one.test.yaml: a test stands beside its policy"),
        "{:?}",
        complaint(&output)
    );

    let test = folder.path().join("one.test.yaml");
    std::fs::write(&test, TEST).expect("it can be written");
    let test = test.to_str().expect("the path is UTF-8");
    let folder = folder.path().to_str().expect("the path is UTF-8");
    for named in [policy, test, folder] {
        let output = remediator(&["policy", "test", named]);
        assert_eq!(output.status.code(), Some(1), "{:?}", complaint(&output));
        let expected = format!(
            "{test}
  ok      a reboot is drained for
  FAILED  a freeze is let pass     action: expected drain, found none; starts: expected in 0s, found none

1 passed, 1 failed
"
        );
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    }
    let output = remediator(&["policy", "test", folder, "--output", "json"]);
    let results: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it prints JSON");
    assert_eq!((&results["passed"], &results["failed"]), (&1.into(), &1.into()));
    assert_eq!(results["cases"][1]["mismatches"][0]["found"], "none");

    std::fs::write(test, TEST.replace("Freeze", "Frieze")).expect("it can be written");
    let output = remediator(&["policy", "test", folder]);
    assert_eq!(output.status.code(), Some(1));
    assert!(complaint(&output)[0].contains("one.test.yaml:8:19: unknown type `Frieze`"), "{:?}", complaint(&output));
}

#[test]
fn the_tests_of_the_shipped_policies_pass() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/policies");
    let output = remediator(&["policy", "test", folder]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}{:?}", complaint(&output));
    assert!(text.ends_with(" passed, 0 failed\n"), "{text}");
}

#[test]
fn policy_schema_prints_what_is_shipped() {
    for of in ["policy", "test"] {
        let name = if of == "test" { "policy-test" } else { of };
        let shipped = format!("{}/schema/{name}.schema.json", env!("CARGO_MANIFEST_DIR"));
        let output = remediator(&["policy", "schema", "--of", of]);
        let shipped = std::fs::read_to_string(shipped).expect("the schema is shipped");
        assert!(String::from_utf8_lossy(&output.stdout) == shipped, "make schema/ anew: see CONTRIBUTING.md");
    }
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
fn policy_explain_shows_every_word_of_a_rule() {
    let policy = file(
        "apiVersion: remediator.dev/v1alpha1
kind: Policy
metadata: {name: full}
selector: {matchLabels: {pool: other}}
events:
  - {name: near, match: {notice: {below: 1m}}, action: cordon}
  - {name: odd, match: {description: {contains: rack}}, action: cordon}
  - name: far
    action: drain
    profile: slow
    start: {atMost: 15m, atLeast: 1m, cordonAtOnce: true}
    approve: whenDrained
drain:
  taint: {value: soon}
  excludeFromLoadBalancers: true
  disableScaleDown: true
  nodesAtOnce: 2
  profiles:
    slow:
      timeout: 10m
      atDeadline: delete
      emptyDir: leave
      pods: {matchExpressions: [{key: tier, operator: In, values: [web, db]}]}
      skip: {labels: {app: osd}, annotations: {example.com/stay: 'yes'}}
",
    );
    let event = file(&EVENT.replace("Preempt", "Redeploy").replace("22:00:30", "23:00:00"));
    let at = "2026-04-11T22:00:00Z";
    let arguments = ["policy", "explain", "--event", path(&event), "--policy", path(&policy), "--at", at];
    let named = ["--annotations", "remediator.dev/policy=full"];
    let output = remediator(&[&arguments[..], &named].concat());
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "event       Redeploy Scheduled by Platform, not before 2026-04-11 23:00:00Z (in 1h)
policy      full, which the node names
            not near: notice is 1h
            not odd: description is another
rule        far
action      drain
cordon      at once
starts      2026-04-11 22:45:00Z (in 45m)
deadline    2026-04-11 22:55:00Z (in 55m)
at the end  pods still there are deleted from 2026-04-11 22:54:55Z on
pods        without controller evicted, with emptyDir left
            only those with tier in (web, db)
            not those with label app=osd
            not those with annotation example.com/stay=yes
phases      from priority 0, then from priority 2000000000 (grace up to 30s)
taint       status-taint.cluster-autoscaler.kubernetes.io/remediator=soon:NoSchedule
label       node.kubernetes.io/exclude-from-external-load-balancers
annotation  cluster-autoscaler.kubernetes.io/scale-down-disabled
at once     2 of the pool's nodes at most; the others wait, cordoned
approve     the event is started as soon as every node that it concerns is drained
"
    );
    let output = remediator(&[&arguments[..], &["--annotations", "remediator.dev/policy=fool"]].concat());
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("policy  none: annotation remediator.dev/policy names policy fool, which is not"), "{text}");
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
    for arguments in [&["--help"][..], &["agent", "--help"], &["doctor", "--help"], &["policy", "explain", "--help"]] {
        let output = remediator(arguments);
        assert_eq!(output.status.code(), Some(0));
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("Examples:") || text.contains("EventId"), "{arguments:?}: {text}");
    }
}
