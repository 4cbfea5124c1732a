//! `remediator demo`, as someone runs it who has just cloned the repository.

#![cfg(feature = "world")]
#![allow(clippy::expect_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

fn demo(arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_remediator"))
        .arg("demo")
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts")
}

#[test]
fn the_story_goes_as_it_should_and_is_told_plainly_to_a_pipe() {
    let done = demo(&[]).wait_with_output().expect("the program ends");
    let told = String::from_utf8_lossy(&done.stdout);
    assert_eq!(done.status.code(), Some(0), "{told}\n{}", String::from_utf8_lossy(&done.stderr));
    for line in [
        "Freeze by Platform, not before",
        "rule default/freeze says none",
        "PodDisruptionBudget web allows no disruption now",
        "Ready again, after a reboot",
        "Uncordoned: the scheduled event is over. The machine did restart.",
        "Preempt begins",
        "RebootCancelled",
        "  2  nodes given back",
        "Everything that must hold did hold.",
    ] {
        assert!(told.contains(line), "{line:?} is missing in:\n{told}");
    }
    assert!(!told.contains('\x1b'), "a pipe gets no colours");
}

#[test]
fn an_interrupt_ends_the_story_and_leaves_nothing_behind() {
    let mut child = demo(&["--keep"]);
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let hint = lines.by_ref().map(|line| line.expect("text")).find(|line| line.starts_with("look inside:"));
    let hint = hint.expect("it says how to look inside");
    let kubeconfig = hint.split_whitespace().find(|word| word.ends_with("/kubeconfig")).expect("it names a kubeconfig");
    let kubeconfig = Path::new(kubeconfig).to_owned();
    assert!(kubeconfig.exists());
    lines.by_ref().map(|line| line.expect("text")).find(|line| line.starts_with("00:0")).expect("the story begins");
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill runs");
    assert!(sent.success());
    let rest: Vec<String> = lines.map(|line| line.expect("text")).collect();
    assert_eq!(rest.last().map(String::as_str), Some("Stopped before the end."));
    assert_eq!(child.wait().expect("it ends").code(), Some(1));
    assert!(!kubeconfig.exists(), "{} is left", kubeconfig.display());
    let mut said = String::new();
    child.stderr.take().expect("it is piped").read_to_string(&mut said).expect("text");
    assert_eq!(said, "");
}
