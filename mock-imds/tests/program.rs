//! The program: exit codes, messages, what it prints, how it ends.

#![allow(clippy::unwrap_used, clippy::panic, reason = "what cannot go on fails its test")]

use std::{
    io::Write,
    process::{ExitStatus, Stdio},
};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
};

mod support;

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mock-imds"));
    command.env_clear().stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

fn scenario(name: &str) -> String {
    format!("{}/scenarios/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn start(command: &mut Command) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (child, lines)
}

async fn line(lines: &mut Lines<BufReader<ChildStdout>>, part: &str) -> String {
    while let Some(line) = lines.next_line().await.unwrap() {
        if line.contains(part) {
            return line;
        }
    }
    panic!("the program ended without a line that contains `{part}`");
}

async fn signal(mut child: Child, name: &str) -> ExitStatus {
    let pid = child.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-s", name, &pid]).status().await.unwrap().success());
    child.wait().await.unwrap()
}

/// The address in `http://ADDRESS...`.
fn address(line: &str) -> std::net::SocketAddr {
    let (_, url) = line.split_once("http://").unwrap();
    url.split(['/', ' ']).next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn it_serves_prints_what_happens_and_ends_cleanly() {
    for name in ["TERM", "INT"] {
        let mut command = program();
        command.args(["--listen", "127.0.0.1:0", "--speed", "1000", "--scenario", &scenario("redeploy.yaml")]);
        let (child, mut lines) = start(&mut command);
        let address = address(&line(&mut lines, "mock-imds listens on").await);
        let example = line(&mut lines, "Try: curl").await;
        assert_eq!(
            example,
            format!("Try: curl -H Metadata:true 'http://{address}/metadata/scheduledevents?api-version=2020-07-01'")
        );
        for what in ["Scheduled", "Started", "Finished"] {
            let line = line(&mut lines, what).await;
            assert!(line.contains("Redeploy (move) of aks-np1-12345678-vmss_0"), "{line}");
            assert!(!line.contains('\x1b'), "{line}");
        }
        let request = "GET /metadata/versions HTTP/1.1\r\nHost: a\r\nMetadata: true\r\nConnection: close\r\n\r\n";
        let answer = support::raw(address, request).await;
        assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"));
        assert_eq!(signal(child, name).await.code(), Some(0), "{name}");
    }
}

#[tokio::test]
async fn each_vm_has_its_port_if_wanted() {
    let mut command = program();
    command
        .env("MOCK_IMDS_LISTEN", "127.0.0.1:0")
        .env("MOCK_IMDS_SCENARIO", scenario("terminate.yaml"))
        .env("MOCK_IMDS_PORT_PER_VM", "true");
    let (child, mut lines) = start(&mut command);
    for instance in ["0", "1"] {
        let line = line(&mut lines, &format!("  aks-np1-12345678-vmss_{instance}  ")).await;
        let request = "GET /metadata/instance/compute/name?api-version=2025-04-07&format=text HTTP/1.1\r\nHost: a\r\n\
                       Metadata: true\r\nConnection: close\r\n\r\n";
        let answer = String::from_utf8(support::raw(address(&line), request).await).unwrap();
        assert!(answer.ends_with(&format!("aks-np1-12345678-vmss_{instance}")), "{answer}");
    }
    assert_eq!(signal(child, "TERM").await.code(), Some(0));
}

#[tokio::test]
async fn the_compatibility_mode_is_served() {
    let mut command = program();
    command.args(["--compat", "--listen", "127.0.0.1:0"]);
    let (child, mut lines) = start(&mut command);
    let address = address(&line(&mut lines, "in compatibility mode").await);
    let request = "GET /metadata/scheduledevents HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let answer = String::from_utf8(support::raw(address, request).await).unwrap();
    assert!(answer.ends_with(r#"{"DocumentIncarnation":1,"Events":[]}"#), "{answer}");
    assert_eq!(signal(child, "TERM").await.code(), Some(0));
}

#[tokio::test]
async fn a_wrong_scenario_is_one_line_and_exit_code_2() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"vms:\n  - name: a_1\nsteps:\n  - at: 5s\n    cancel: first\n").unwrap();
    let path = file.path().display().to_string();
    let (code, stderr) = fails(&["--scenario", &path]).await;
    let expected = format!("{path}:5:13: no earlier step has an event named `first`; no earlier step names one\n");
    assert_eq!((code, stderr), (Some(2), expected));
    let (code, stderr) = fails(&["--scenario", "/nowhere.yaml"]).await;
    assert_eq!((code, stderr.lines().count()), (Some(2), 1), "{stderr}");
}

#[tokio::test]
async fn wrong_usage_is_exit_code_2_and_a_taken_port_is_1() {
    for arguments in [&[][..], &["--speed", "0", "--scenario", "x"], &["--compat", "--scenario", "x"], &["--what"]] {
        assert_eq!(fails(arguments).await.0, Some(2), "{arguments:?}");
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, stderr) = fails(&["--listen", &address, "--scenario", &scenario("idle.yaml")]).await;
    assert_eq!(code, Some(1));
    assert!(stderr.starts_with(&format!("mock-imds: cannot listen on {address}: ")), "{stderr}");
}

#[tokio::test]
async fn help_teaches_with_examples() {
    let output = program().arg("--help").output().await.unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    for part in ["MOCK_IMDS_SCENARIO", "MOCK_IMDS_COMPAT", "Examples:", "Exit codes:"] {
        assert!(help.contains(part), "{part}");
    }
}

async fn fails(arguments: &[&str]) -> (Option<i32>, String) {
    let mut child = program().args(arguments).spawn().unwrap();
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).await.unwrap();
    (child.wait().await.unwrap().code(), stderr)
}
