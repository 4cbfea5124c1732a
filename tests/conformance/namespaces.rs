//! Namespaces: made, filled, and emptied to their end.

use control_plane::harness::Test;
use http::Method;
use serde_json::{Value, json};

use crate::scripts;
use crate::side::{Outcome, PatchKind, Side};

pub(crate) fn scripts() -> Vec<Test> {
    scripts![a_namespace_is_made_once, a_namespace_is_emptied_before_it_goes]
        .into_iter()
        .map(|test| test.limit(std::time::Duration::from_secs(200)))
        .collect()
}

const SHOWN: [&str; 2] = ["/spec/finalizers", "/status/phase"];

async fn a_namespace_is_made_once(side: Side) -> Outcome {
    let name = format!("{}-more", side.ns());
    let path = format!("/api/v1/namespaces/{name}");
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let created = side.ask(201, "a namespace").showing(&SHOWN).post("/api/v1/namespaces", &body).await?;
    created.pin(json!({"/status/phase": "Active", "/spec/finalizers": ["kubernetes"]}));
    side.ask(409, "the name is taken").post("/api/v1/namespaces", &body).await?;
    side.until("it has an account", &format!("{path}/serviceaccounts/default"), Value::is_object).await?;
    side.ask(200, "its account").only(&["/metadata/name"]).get(&format!("{path}/serviceaccounts")).await?;
    let label = json!({"metadata": {"labels": {"example.com/team": "a"}}});
    side.ask(200, "a label").patch(PatchKind::Merge, &path, &label).await?;
    let generated = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "made-"}});
    let made = side.ask(201, "a name to be made up").only(&["/metadata/generateName", "/status/phase"]);
    let made = made.post("/api/v1/namespaces", &generated).await?.text("/metadata/name");
    side.name(&made, "<made>");
    side.holds("it begins as told, and has five more characters", made.starts_with("made-") && made.len() == 10);
    let made = format!("/api/v1/namespaces/{made}");
    side.ask(200, "an empty one is deleted").showing(&SHOWN).delete(&made, &Value::Null).await?;
    let list = side.ask(200, "by label").only(&["/metadata/labels"]);
    list.get(&format!("/api/v1/namespaces?labelSelector=kubernetes.io/metadata.name%3D{name}")).await?;
    side.ask(200, "deleted").showing(&SHOWN).delete(&path, &Value::Null).await?;
    side.ask(404, "one that is not there").delete("/api/v1/namespaces/no-such-namespace", &Value::Null).await?;
    side.until_gone(&made).await?;
    side.until_gone(&path).await?;
    side.ask(404, "gone").get(&path).await?;
    side.ask(201, "the same name again").showing(&SHOWN).post("/api/v1/namespaces", &body).await?;
    side.make(Method::DELETE, &path, &Value::Null).await?;
    Ok(())
}

async fn a_namespace_is_emptied_before_it_goes(side: Side) -> Outcome {
    side.node("a").await?;
    side.running_pod("running", "pod", "a").await?;
    side.create(&side.core("pods"), &side.pod_object("unbound", "pod", None)).await?;
    side.budget("pod", "pod", json!({"minAvailable": 1}), 1, 0).await?;
    let path = format!("/api/v1/namespaces/{}", side.ns());
    side.ask(200, "deleted").showing(&SHOWN).delete(&path, &Value::Null).await?;
    side.ask(200, "it is terminating").showing(&SHOWN).get(&path).await?;
    let refused =
        side.ask(403, "no more pods").post(&side.core("pods"), &side.pod_object("new", "new", Some("a"))).await?;
    refused.pin(json!({"reason": "Forbidden", "details": {"causes": [{"reason": "NamespaceTerminating"}]}}));
    let budget = crate::side::budget_object("new", "new", json!({"minAvailable": 1}));
    side.ask(403, "nor anything").post(&side.group("policy/v1", "poddisruptionbudgets"), &budget).await?;
    side.until_gone(&side.pod_path("unbound")).await?;
    let is_terminating = |pod: &Value| pod["metadata"]["deletionTimestamp"].is_string();
    side.until("the pod is told to stop", &side.pod_path("running"), is_terminating).await?;
    let shown = ["/metadata/deletionGracePeriodSeconds", "/status/conditions/*/type"];
    side.ask(200, "by a plain deletion, without asking the budget").only(&shown).get(&side.pod_path("running")).await?;
    side.ask(200, "which waits for the pods")
        .only(&["/status/disruptionsAllowed"])
        .get(&side.budget_path("pod"))
        .await?;
    side.make(Method::DELETE, &side.pod_path("running"), &json!({"gracePeriodSeconds": 0})).await?;
    side.until_gone(&path).await?;
    side.ask(404, "gone").get(&path).await?;
    side.ask(404, "and nothing can be made there")
        .post(&side.core("pods"), &side.pod_object("new", "new", None))
        .await?;
    Ok(())
}
