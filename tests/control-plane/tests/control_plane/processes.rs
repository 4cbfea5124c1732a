//! No process is left behind, however the one that started it ends.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::time::{sleep, timeout};

use control_plane::harness::{Context, Test, TestResult};
use control_plane::{ControlPlane, Options, tests};

use crate::SOON;

/// Between two looks at the process table, which tells nobody when it changes.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

pub(crate) fn tests() -> Vec<Test> {
    tests![
        dropping_a_control_plane_ends_its_processes_and_deletes_its_files,
        a_killed_program_leaves_no_process_behind,
        the_program_ends_when_its_standard_input_closes,
        without_programs_tests_are_ignored_with_the_reason_or_fail_where_required,
        a_component_that_cannot_start_shows_its_log,
    ]
    .into_iter()
    .map(|test| test.limit(Duration::from_secs(120)))
    .collect()
}

async fn dropping_a_control_plane_ends_its_processes_and_deletes_its_files(_: Context) -> TestResult {
    let control_plane = ControlPlane::start(Options::default()).await?;
    let folder = control_plane.kubeconfig().parent().unwrap().to_path_buf();
    assert!(processes_that_mention(&folder).len() >= 4);
    drop(control_plane);
    assert_eq!(processes_that_mention(&folder), Vec::<u32>::new());
    assert!(!folder.exists());
    Ok(())
}

async fn a_killed_program_leaves_no_process_behind(_: Context) -> TestResult {
    let folder = tempfile::tempdir()?;
    let (mut program, children) = start_program(folder.path(), &[])?;
    assert_eq!(children.len(), 4);
    // SIGKILL: nothing of the program runs any more.
    program.kill()?;
    program.wait()?;
    wait_for_end_of(&children).await
}

async fn the_program_ends_when_its_standard_input_closes(_: Context) -> TestResult {
    let folder = tempfile::tempdir()?;
    let (mut program, children) = start_program(folder.path(), &["--until-stdin-closes"])?;
    let kubeconfig = folder.path().join("kubeconfig");
    assert!(kubeconfig.exists());
    drop(program.stdin.take());
    let status = tokio::task::spawn_blocking(move || program.wait()).await??;
    assert!(status.success(), "{status}");
    assert!(!kubeconfig.exists());
    wait_for_end_of(&children).await
}

async fn without_programs_tests_are_ignored_with_the_reason_or_fail_where_required(_: Context) -> TestResult {
    let empty = tempfile::tempdir()?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--exact", "cluster::the_api_server_is_ready_and_knows_its_version"]);
    command.env("KUBEBUILDER_ASSETS", empty.path()).env_remove("REMEDIATOR_REQUIRE_CONTROL_PLANE");
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 ignored") && text.contains("has no etcd"), "{text}");
    command.env("REMEDIATOR_REQUIRE_CONTROL_PLANE", "1");
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success() && text.contains("has no etcd"), "{text}");
    Ok(())
}

async fn a_component_that_cannot_start_shows_its_log(_: Context) -> TestResult {
    let options = Options { api_server_arguments: vec!["--no-such-flag".to_owned()], ..Options::default() };
    let error = ControlPlane::start(options).await.unwrap_err().to_string();
    assert!(error.contains("kube-apiserver ended") && error.contains("unknown flag: --no-such-flag"), "{error}");
    Ok(())
}

/// Starts `control-plane up` and returns it with its child processes as soon as it says that it is ready.
fn start_program(folder: &Path, arguments: &[&str]) -> std::io::Result<(Child, Vec<u32>)> {
    let mut program = Command::new(env!("CARGO_BIN_EXE_control-plane"))
        .args(["up", "--nodes", "1", "--kubeconfig"])
        .arg(folder.join("kubeconfig"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut output = BufReader::new(program.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("Ctrl-C ends it") {
        line.clear();
        assert_ne!(output.read_line(&mut line)?, 0, "the program ended before it was ready");
    }
    let children = processes().filter(|&process| parent_of(process) == Some(program.id())).collect();
    Ok((program, children))
}

async fn wait_for_end_of(processes: &[u32]) -> TestResult {
    timeout(SOON, async {
        while processes.iter().any(|&process| is_alive(process)) {
            sleep(LOOK_AGAIN).await;
        }
    })
    .await
    .map_err(|_| format!("still there: {processes:?}"))?;
    Ok(())
}

fn processes() -> impl Iterator<Item = u32> {
    fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// State and parent are the second and third field of `/proc/PID/stat`; the first is the name in parentheses.
fn stat_fields(process: u32) -> Option<(String, u32)> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
}

fn parent_of(process: u32) -> Option<u32> {
    stat_fields(process).map(|(_, parent)| parent)
}

/// A process that has ended may stay in the table as a zombie until someone collects it.
fn is_alive(process: u32) -> bool {
    stat_fields(process).is_some_and(|(state, _)| state != "Z")
}

fn processes_that_mention(folder: &Path) -> Vec<u32> {
    let folder = folder.to_str().unwrap();
    processes()
        .filter(|process| {
            let arguments = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&arguments).contains(folder)
        })
        .collect()
}
