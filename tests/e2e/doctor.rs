//! What `remediator doctor` finds.

use std::time::Duration;

use control_plane::harness::{Context, TestResult};
use control_plane::rule;
use mock_imds::EventSpec;

use crate::scene::Scene;

/// The line about something.
fn line<'a>(lines: &'a [String], name: &str) -> &'a str {
    lines.iter().find(|line| line.split_whitespace().nth(1) == Some(name)).map_or("", String::as_str)
}

pub(crate) async fn nothing_fails_where_the_agent_would_do_well(context: Context) -> TestResult {
    let scene = Scene::new(&context, "healthy").await?;
    let (status, lines) = scene.doctor(&[]).await?;
    assert_eq!(status.code(), Some(0), "{lines:#?}");
    for (name, found) in [
        ("metadata-service", format!("this is {}", scene.vm)),
        ("request-limit", "3 requests".into()),
        ("api-server", "v1.".into()),
        ("node", format!("{} is Ready", scene.node.name())),
        ("machine", format!("both name {}", scene.vm)),
        ("record", "nothing of the agent's".into()),
        ("policy", "default applies".into()),
        ("rights", "delete pods".into()),
        ("clock", "agrees with the API server, agrees with the metadata service".into()),
        ("host-network", "this process's own".into()),
        ("scheduled-events", "on; no event is listed".into()),
    ] {
        let line = line(&lines, name);
        assert!(line.starts_with("ok ") && line.contains(&found), "{name}: {lines:#?}");
    }
    let written = scene.node_writes();
    assert!(written.is_empty() && scene.evictions().is_empty(), "{written:?}");
    Ok(())
}

pub(crate) async fn a_node_of_another_machine_and_an_event_of_this_one_are_told(context: Context) -> TestResult {
    let scene = Scene::new(&context, "mistaken").await?;
    scene.imds.inject(EventSpec::redeploy(&scene.vm).notice(Duration::from_secs(900)))?;
    let (status, lines) = scene.doctor(&["--imds", &scene.imds_of(&scene.second_vm())]).await?;
    assert_eq!(status.code(), Some(1), "{lines:#?}");
    assert!(line(&lines, "machine").starts_with("fail"), "{lines:#?}");
    assert!(line(&lines, "scheduled-events").ends_with("1 listed, none of them of this machine"), "{lines:#?}");
    let (status, lines) = scene.doctor(&[]).await?;
    assert_eq!(status.code(), Some(0), "{lines:#?}");
    let told = line(&lines, "scheduled-events");
    assert!(told.contains("of this machine 1: Redeploy Scheduled not before"), "{told}");
    assert!(told.ends_with("rule default/reboot-or-move says drain"), "{told}");
    Ok(())
}

pub(crate) async fn each_right_that_is_missing_is_named(context: Context) -> TestResult {
    let scene = Scene::new(&context, "poor").await?;
    let rules = vec![rule(&[""], &["nodes"], &["get", "watch"]), rule(&[""], &["pods"], &["list"])];
    let token = scene.namespace.service_account("poor", rules).await?;
    let folder = tempfile::tempdir()?;
    let kubeconfig = folder.path().join("kubeconfig");
    context.api_server().with_token(&token).write_kubeconfig(&kubeconfig)?;
    let (status, lines) = scene.doctor(&["--kubeconfig", &kubeconfig.display().to_string()]).await?;
    assert_eq!(status.code(), Some(1), "{lines:#?}");
    let missing = "missing: patch nodes; patch nodes/status; get, watch pods; create pods/eviction; create events; \
                   list noderepairs.remediator.dev; patch noderepairs.remediator.dev/status; delete pods";
    assert!(line(&lines, "rights").ends_with(missing), "{lines:#?}");
    assert!(line(&lines, "termination-handler").starts_with("skip"), "{lines:#?}");
    Ok(())
}
