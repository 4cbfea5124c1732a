//! The command of the README that shows the product at work.

use std::process::Stdio;

use control_plane::harness::{Context, TestResult};
use tokio::process::Command;

/// The first command of the README's section "On a real control plane".
fn command_of_the_readme() -> Option<&'static str> {
    let (_, section) = include_str!("../../README.md").split_once("## On a real control plane")?;
    let (_, block) = section.split_once("```sh\n")?;
    block.lines().next()
}

pub(crate) async fn the_readmes_command_shows_a_node_drained_and_given_back(_context: Context) -> TestResult {
    let command = command_of_the_readme().ok_or("the README has lost its command")?;
    let done = Command::new("bash")
        .args(["-c", command])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await?;
    let (told, log) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{told}\n{log}");
    for line in [
        r"RedeployScheduled",
        "Cordoned for a scheduled event of the machine",
        ": 30 pods evicted.",
        "Uncordoned: the scheduled event is over.",
        "30/30",
    ] {
        assert!(told.contains(line), "{line:?} is missing in:\n{told}\n{log}");
    }
    assert!(log.contains("No resources found"), "no pod is left on the node:\n{told}\n{log}");
    Ok(())
}
