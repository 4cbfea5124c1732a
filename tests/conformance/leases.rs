//! Leases, as leader election and kubelets use them.

use control_plane::harness::Test;
use serde_json::{Value, json};

use crate::scripts;
use crate::side::{Outcome, PatchKind, Side};

pub(crate) fn scripts() -> Vec<Test> {
    scripts![
        a_lease_is_taken_renewed_and_given_up,
        a_lease_that_another_wrote_is_not_overwritten,
        a_lease_is_exact_about_time
    ]
}

const TIME: &str = "2026-01-01T00:00:00.000000Z";

fn lease(name: &str, holder: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "acquireTime": TIME, "renewTime": TIME, "leaseTransitions": 0},
    })
}

async fn a_lease_is_taken_renewed_and_given_up(side: Side) -> Outcome {
    let (leases, path) =
        (side.group("coordination.k8s.io/v1", "leases"), side.group("coordination.k8s.io/v1", "leases/leader"));
    side.ask(404, "nobody leads")
        .get(&path)
        .await?
        .pin(json!({"details": {"group": "coordination.k8s.io", "kind": "leases"}}));
    side.ask(201, "the first takes it").showing(&["/spec"]).post(&leases, &lease("leader", "a")).await?;
    side.ask(409, "the second comes too late")
        .post(&leases, &lease("leader", "b"))
        .await?
        .pin(json!({"reason": "AlreadyExists"}));
    let mut read = side.ask(200, "who leads").showing(&["/spec"]).get(&path).await?.body;
    read["spec"]["renewTime"] = json!("2026-01-01T00:00:10.000000Z");
    side.ask(200, "renewed").showing(&["/spec"]).put(&path, &read).await?;
    let renew = json!({"spec": {"renewTime": "2026-01-01T00:00:12.500000Z"}});
    side.ask(200, "renewed as a kubelet does").showing(&["/spec"]).patch(PatchKind::Merge, &path, &renew).await?;
    let empty = json!({"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}});
    let given_up = side.ask(200, "given up").showing(&["/spec"]).patch(PatchKind::Merge, &path, &empty).await?;
    given_up.pin(json!({"/spec": {"holderIdentity": ""}}));
    let null = json!({"spec": {"holderIdentity": null}});
    let removed = side.ask(200, "without a holder").showing(&["/spec"]).patch(PatchKind::Merge, &path, &null).await?;
    side.holds("it has none", removed.body["spec"].get("holderIdentity").is_none());
    side.ask(200, "all leases").only(&["/metadata/name"]).get(&leases).await?;
    side.ask(200, "deleted").delete(&path, &Value::Null).await?;
    side.ask(404, "gone").get(&path).await?;
    side.ask(404, "a patch makes none").patch(PatchKind::Merge, &path, &renew).await?;
    Ok(())
}

async fn a_lease_that_another_wrote_is_not_overwritten(side: Side) -> Outcome {
    let (leases, path) =
        (side.group("coordination.k8s.io/v1", "leases"), side.group("coordination.k8s.io/v1", "leases/leader"));
    let mut mine = side.create(&leases, &lease("leader", "a")).await?;
    let mut other = mine.clone();
    other["spec"]["holderIdentity"] = json!("b");
    side.ask(200, "another is quicker").showing(&["/spec/holderIdentity"]).put(&path, &other).await?;
    side.ask(409, "an old version").put(&path, &mine).await?.pin(json!({
        "reason": "Conflict",
        "message": "Operation cannot be fulfilled on leases.coordination.k8s.io \"leader\": the object has been modified; please \
                    apply your changes to the latest version and try again",
        "details": {"name": "leader", "group": "coordination.k8s.io", "kind": "leases"},
    }));
    let old =
        json!({"metadata": {"resourceVersion": mine["metadata"]["resourceVersion"]}, "spec": {"holderIdentity": "a"}});
    side.ask(409, "an old version in a patch").patch(PatchKind::Merge, &path, &old).await?;
    let mut versionless = lease("leader", "a");
    let refused = side.ask(422, "without a version").put(&path, &versionless).await?;
    refused.pin(json!({"reason": "Invalid", "details": {"causes": [{
        "field": "metadata.resourceVersion", "message": "Invalid value: 0: must be specified for an update",
    }]}}));
    mine["metadata"]["uid"] = json!("00000000-aaaa-bbbb-cccc-000000000000");
    mine["metadata"]["resourceVersion"] = side.read(&path).await?["metadata"]["resourceVersion"].clone();
    side.ask(409, "another UID").only(&["/reason", "/details"]).put(&path, &mine).await?;
    versionless["metadata"]["name"] = json!("new");
    let new = side.group("coordination.k8s.io/v1", "leases/new");
    side.ask(201, "a PUT of what is not there makes it").showing(&["/spec"]).put(&new, &versionless).await?;
    let mut with_version = lease("newer", "a");
    with_version["metadata"]["resourceVersion"] = json!("1");
    let newer = side.group("coordination.k8s.io/v1", "leases/newer");
    side.ask(201, "even with a version").showing(&["/spec"]).put(&newer, &with_version).await?;
    side.ask(400, "under another name than in the URL").put(&newer, &versionless).await?;
    let mut with_version = lease("newest", "a");
    with_version["metadata"]["resourceVersion"] = json!("1");
    side.ask(500, "a POST with a version").only(&["/reason", "/message"]).post(&leases, &with_version).await?;
    Ok(())
}

async fn a_lease_is_exact_about_time(side: Side) -> Outcome {
    let (leases, path) =
        (side.group("coordination.k8s.io/v1", "leases"), side.group("coordination.k8s.io/v1", "leases/leader"));
    side.create(&leases, &lease("leader", "a")).await?;
    let renew = |time: &str| json!({"spec": {"renewTime": time}});
    for (label, time) in
        [("six decimals", "2026-01-01T00:00:00.123456Z"), ("an offset", "2026-01-01T02:00:00.123456+02:00")]
    {
        side.ask(200, label).showing(&["/spec/renewTime"]).patch(PatchKind::Merge, &path, &renew(time)).await?;
    }
    let wrong = ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.1Z", "2026-01-01T00:00:00.123456789Z", "yesterday"];
    for time in wrong {
        side.ask(422, time).only(&["/reason"]).patch(PatchKind::Merge, &path, &renew(time)).await?;
    }
    let mut wrong = lease("wrong", "a");
    wrong["spec"]["renewTime"] = json!("2026-01-01T00:00:00Z");
    side.ask(400, "a POST without decimals").only(&["/reason"]).post(&leases, &wrong).await?;
    let zero = json!({"spec": {"leaseDurationSeconds": 0}});
    side.ask(422, "no duration").patch(PatchKind::Merge, &path, &zero).await?.pin(json!({"reason": "Invalid"}));
    Ok(())
}
