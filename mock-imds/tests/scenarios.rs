//! The scenarios that come with the crate, played to their end in virtual time.

#![allow(clippy::unwrap_used, reason = "what cannot go on fails its test")]

mod support;

use std::{fs, path::PathBuf, time::Duration};

use mock_imds::{Mock, Phase, Scenario};
use support::mock;
use tokio::time::advance;

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("scenarios")
}

fn play(name: &str) -> Mock {
    mock(Scenario::from_file(&directory().join(name)).unwrap())
}

/// What happened and how many seconds after the start.
fn history(mock: &Mock) -> Vec<(&'static str, i64)> {
    let elapsed = |change: &mock_imds::Change| change.time.duration_since(support::start()).as_secs();
    mock.changes_after(0).iter().map(|change| (change.what, elapsed(change))).collect()
}

#[tokio::test(start_paused = true)]
async fn every_scenario_plays_to_its_end() {
    let mut played = Vec::new();
    for file in fs::read_dir(directory()).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let scenario = Scenario::from_file(&path).unwrap();
        assert!(!scenario.description().is_empty(), "{name}");
        let mock = mock(scenario);
        for vm in mock.vms() {
            assert!(mock.router_for(&vm.name).is_ok(), "{name}");
        }
        while !mock.is_at_rest() {
            mock.changed().await;
        }
        assert!(mock.events().iter().all(|event| !event.is_listed()), "{name}");
        assert!(mock.changes_after(0).iter().all(|change| change.what != "Skipped"), "{name}");
        played.push(name);
    }
    played.sort();
    assert_eq!(
        played,
        [
            "cancelled.yaml",
            "degraded-hardware.yaml",
            "faulty.yaml",
            "freeze.yaml",
            "hardware-failure.yaml",
            "idle.yaml",
            "preempt.yaml",
            "reboot.yaml",
            "redeploy.yaml",
            "storm.yaml",
            "terminate.yaml"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn each_scenario_tells_its_story() {
    for (name, expected) in [
        ("redeploy.yaml", vec![("Scheduled", 2), ("Started", 602), ("Finished", 1202)]),
        ("freeze.yaml", vec![("Scheduled", 2), ("Started", 902), ("Finished", 1202)]),
        ("cancelled.yaml", vec![("Scheduled", 2), ("Changed", 240), ("Cancelled", 480)]),
        ("hardware-failure.yaml", vec![("Started", 10), ("Finished", 910)]),
        (
            "preempt.yaml",
            vec![
                ("Scheduled", 5),
                ("Scheduled", 20),
                ("Started", 35),
                ("Started", 38),
                ("Finished", 65),
                ("Finished", 68),
            ],
        ),
        (
            "degraded-hardware.yaml",
            vec![("Scheduled", 2), ("Changed", 259_200), ("Started", 583_200), ("Finished", 583_800)],
        ),
        (
            "terminate.yaml",
            vec![
                ("Scheduled", 2),
                ("Scheduled", 2),
                ("Started", 302),
                ("Started", 302),
                ("Finished", 362),
                ("Finished", 362),
            ],
        ),
        ("idle.yaml", vec![]),
    ] {
        let mock = play(name);
        advance(Duration::from_hours(200)).await;
        assert_eq!(history(&mock), expected, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_approved_deletion_waits_for_the_other_one() {
    let mock = play("terminate.yaml");
    advance(Duration::from_secs(10)).await;
    mock.approve("delete-0").unwrap();
    advance(Duration::from_secs(50)).await;
    assert_eq!(mock.event("delete-0").unwrap().phase, Phase::Scheduled);
    mock.approve("delete-1").unwrap();
    for name in ["delete-0", "delete-1"] {
        assert_eq!(mock.event(name).unwrap().phase, Phase::Started, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_approved_reboot_waits_for_other_tenants() {
    let mock = play("reboot.yaml");
    advance(Duration::from_secs(10)).await;
    mock.approve("restart").unwrap();
    advance(Duration::from_secs(19)).await;
    assert_eq!(mock.event("restart").unwrap().phase, Phase::Scheduled);
    advance(Duration::from_secs(1)).await;
    assert_eq!(mock.event("restart").unwrap().phase, Phase::Started);
}

#[tokio::test(start_paused = true)]
async fn at_another_speed_not_before_is_still_true() {
    let scenario = Scenario::from_file(&directory().join("redeploy.yaml")).unwrap().at_speed(20.0);
    let mock = mock(scenario);
    advance(Duration::from_millis(100)).await;
    let not_before = mock.event("move").unwrap().not_before;
    advance(Duration::from_mins(2)).await;
    let started = mock.changes_after(0).into_iter().find(|change| change.what == "Started").unwrap();
    assert_eq!(started.time, not_before);
    assert_eq!(history(&mock), [("Scheduled", 0), ("Started", 31), ("Finished", 61)]);
}
