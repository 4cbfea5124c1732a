//! What the components of the control plane do, and what tests make in it.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt;
use http::{Method, Request};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::{Eviction, PodDisruptionBudget};
use kube::api::{Api, ListParams, ObjectMeta, Patch, PatchParams, PostParams, WatchParams};
use kube::{Error, ResourceExt};
use serde_json::json;

use control_plane::harness::{Context, Test, TestResult};
use control_plane::{
    DisruptionBudget, Namespace, Options, User, Workload, audit_policy_of_users, rule, tests, wait_until,
};

use crate::{SOON, alone};

pub(crate) fn tests() -> Vec<Test> {
    let user = User::new("visitor");
    let token = user.token().to_owned();
    let mut all = tests![
        the_api_server_is_ready_and_knows_its_version,
        pods_of_a_deployment_become_ready_through_the_scheduler,
        pods_stay_on_nodes_of_their_namespace,
        every_kind_of_workload_gets_its_pods,
        a_pod_of_any_namespace_may_be_system_critical,
        an_eviction_is_accepted_until_the_budget_is_used_up,
        kubectl_drains_a_node,
        a_service_account_may_do_what_its_rules_say_and_no_more,
        a_token_bound_to_a_pod_names_its_node,
        a_deleted_namespace_takes_its_nodes_with_it,
    ];
    let options = Options { users: vec![user], ..Options::default() };
    let a_user =
        Test::new("cluster::a_user_is_known_by_its_token", move |context| knows_the_user(context, token.clone()));
    all.extend(alone(vec![a_user], &options));

    let auditor = User::new("visitor").in_group("system:masters");
    let token = auditor.token().to_owned();
    let options =
        Options { users: vec![auditor], audit_policy: Some(audit_policy_of_users(&["visitor"])), ..Options::default() };
    let the_log = Test::new("cluster::the_audit_log_has_each_request_of_a_user_once", move |context| {
        has_each_request_once(context, token.clone())
    });
    all.extend(alone(vec![the_log], &options));
    all.extend(alone(tests![the_api_server_comes_back_on_the_same_port_with_all_it_stored], &Options::default()));
    all
}

async fn the_api_server_is_ready_and_knows_its_version(context: Context) -> TestResult {
    let client = context.client()?;
    let ready = client.request_text(Request::get("/readyz").body(Vec::new())?).await?;
    assert_eq!(ready, "ok");
    let version = client.apiserver_version().await?;
    assert_eq!((version.major.as_str(), version.minor.as_str()), ("1", "36"));
    Ok(())
}

async fn pods_of_a_deployment_become_ready_through_the_scheduler(context: Context) -> TestResult {
    let namespace = context.namespace("deployment").await?;
    let kubelet = context.kubelet(namespace.node("a")).await?;
    let web = Workload::deployment("web", 3);
    web.create(&namespace).await?;
    let pods = namespace.wait_for_ready(&web, 3, SOON).await?;
    assert!(pods.iter().all(|pod| node_of(pod) == kubelet.name()));
    Ok(())
}

async fn pods_stay_on_nodes_of_their_namespace(context: Context) -> TestResult {
    let (ours, theirs) = (context.namespace("ours").await?, context.namespace("theirs").await?);
    let _foreign = context.kubelet(theirs.node("a")).await?;
    let own = context.kubelet(ours.aks_node("np1", 7)).await?;
    let web = Workload::replica_set("web", 4);
    web.create(&ours).await?;
    let pods = ours.wait_for_ready(&web, 4, SOON).await?;
    assert!(pods.iter().all(|pod| node_of(pod) == own.name()));
    assert!(own.name().ends_with("-vmss000007"), "{}", own.name());
    Ok(())
}

async fn every_kind_of_workload_gets_its_pods(context: Context) -> TestResult {
    let namespace = context.namespace("kinds").await?;
    let kubelets = [context.kubelet(namespace.node("a")).await?, context.kubelet(namespace.node("b")).await?];
    let (database, agent) = (Workload::stateful_set("db", 2), Workload::daemon_set("agent"));
    let bare = Workload::bare_pod("bare").empty_dir().only_on(kubelets[1].name());
    let mirror = Workload::mirror_pod("static", kubelets[0].name());
    let finished = Workload::finished_pod("done").on_node(kubelets[0].name());
    for workload in [&database, &agent, &bare, &mirror, &finished] {
        workload.create(&namespace).await?;
    }
    let names = |pods: Vec<Pod>| pods.iter().map(ResourceExt::name_any).collect::<Vec<_>>();
    assert_eq!(names(namespace.wait_for_ready(&database, 2, SOON).await?), ["db-0", "db-1"]);
    assert_eq!(namespace.wait_for_ready(&agent, 2, SOON).await?.len(), 2);
    assert_eq!(node_of(&namespace.wait_for_ready(&bare, 1, SOON).await?[0]), kubelets[1].name());
    namespace.wait_for_ready(&mirror, 1, SOON).await?;
    namespace
        .wait_for_pods("the work is done", SOON, |pods| {
            pods.values().any(|pod| pod.name_any() == "done" && phase_of(pod) == "Succeeded")
        })
        .await?;
    Ok(())
}

async fn a_pod_of_any_namespace_may_be_system_critical(context: Context) -> TestResult {
    let namespace = context.namespace("critical").await?;
    let _kubelet = context.kubelet(namespace.node("a")).await?;
    let dns = Workload::deployment("dns", 1).priority_class("system-cluster-critical");
    dns.create(&namespace).await?;
    let pods = namespace.wait_for_ready(&dns, 1, SOON).await?;
    assert_eq!(pods[0].spec.as_ref().and_then(|spec| spec.priority), Some(2_000_000_000));
    Ok(())
}

async fn an_eviction_is_accepted_until_the_budget_is_used_up(context: Context) -> TestResult {
    let namespace = context.namespace("budget").await?;
    // The second pod's replacement finds no room, so that the budget stays used up.
    let _kubelet = context.kubelet(namespace.node("a").room_for(2)).await?;
    let web = Workload::deployment("web", 2).ready_after(Duration::from_secs(1));
    web.create(&namespace).await?;
    let pods = namespace.wait_for_ready(&web, 2, SOON).await?;
    DisruptionBudget::min_available(&web, 2).create(&namespace).await?;
    let budgets: Api<PodDisruptionBudget> = namespace.api();
    wait_for_disruptions_allowed(&budgets, 0).await?;
    let refused = evict(&namespace, &pods[0]).await;
    assert!(matches!(&refused, Err(Error::Api(status)) if status.code == 429), "{refused:?}");

    budgets.delete("web", &kube::api::DeleteParams::default()).await?;
    DisruptionBudget::max_unavailable(&web, 1).create(&namespace).await?;
    wait_for_disruptions_allowed(&budgets, 1).await?;
    evict(&namespace, &pods[0]).await?;
    let refused = evict(&namespace, &pods[1]).await;
    assert!(matches!(&refused, Err(Error::Api(status)) if status.code == 429), "{refused:?}");
    Ok(())
}

async fn kubectl_drains_a_node(context: Context) -> TestResult {
    let namespace = context.namespace("kubectl").await?;
    let [old, new] = [context.kubelet(namespace.node("old")).await?, context.kubelet(namespace.node("new")).await?];
    let web = Workload::deployment("web", 4);
    web.create(&namespace).await?;
    namespace.wait_for_ready(&web, 4, SOON).await?;
    context.doing("kubectl drain");
    let output = context.kubectl()?.run(&["drain", old.name(), "--ignore-daemonsets"]).await?;
    assert!(output.contains("drained"), "{output}");
    let pods = namespace.wait_for_ready(&web, 4, SOON).await?;
    assert!(pods.iter().all(|pod| node_of(pod) == new.name()));
    let failure = context.kubectl()?.run(&["get", "node", "no-such-node"]).await.unwrap_err();
    assert!(failure.to_string().contains("not found"), "{failure}");
    Ok(())
}

async fn a_service_account_may_do_what_its_rules_say_and_no_more(context: Context) -> TestResult {
    let namespace = context.namespace("account").await?;
    let token = namespace.service_account("reader", vec![rule(&[""], &["nodes"], &["list"])]).await?;
    let client = context.api_server().with_token(&token).client()?;
    Api::<Node>::all(client.clone()).list(&ListParams::default()).await?;
    let refused = Api::<Pod>::all(client).list(&ListParams::default()).await;
    assert!(matches!(&refused, Err(Error::Api(status)) if status.is_forbidden()), "{refused:?}");
    Ok(())
}

async fn a_token_bound_to_a_pod_names_its_node(context: Context) -> TestResult {
    let namespace = context.namespace("claim").await?;
    let kubelet = context.kubelet(namespace.node("a")).await?;
    context.doing("make the account, then the pod that runs under it");
    namespace.service_account("agent", Vec::new()).await?;
    let agent = Workload::bare_pod("agent").service_account("agent");
    agent.create(&namespace).await?;
    let pods = namespace.wait_for_ready(&agent, 1, SOON).await?;
    let token = namespace.token("agent", Some(&pods[0])).await?;
    let reviews: Api<SelfSubjectReview> = Api::all(context.api_server().with_token(&token).client()?);
    let review = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await?;
    let extra = review.status.and_then(|status| status.user_info).and_then(|user| user.extra).unwrap_or_default();
    assert_eq!(extra["authentication.kubernetes.io/node-name"], [kubelet.name()]);
    Ok(())
}

async fn a_deleted_namespace_takes_its_nodes_with_it(context: Context) -> TestResult {
    let client = context.client()?;
    let namespace = Namespace::create(&client, "brief").await?;
    let kubelet = context.kubelet(namespace.node("a")).await?;
    let web = Workload::deployment("web", 1);
    web.create(&namespace).await?;
    namespace.wait_for_ready(&web, 1, SOON).await?;
    namespace.delete().await?;
    let selection = ListParams::default().fields(&format!("metadata.name={}", kubelet.name()));
    wait_until::<Node>(&Api::all(client.clone()), &selection, "the node is gone", SOON, BTreeMap::is_empty).await?;
    namespace.wait_for_pods("all pods are gone", SOON, BTreeMap::is_empty).await?;
    Ok(())
}

async fn knows_the_user(context: Context, token: String) -> TestResult {
    let reviews: Api<SelfSubjectReview> = Api::all(context.api_server().with_token(&token).client()?);
    let review = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await?;
    let name = review.status.and_then(|status| status.user_info).and_then(|user| user.username);
    assert_eq!(name.as_deref(), Some("visitor"));
    Ok(())
}

async fn has_each_request_once(context: Context, token: String) -> TestResult {
    let control_plane = context.control_plane().unwrap();
    let mut log = control_plane.audit_log().unwrap();
    let client = context.api_server().with_token(&token).client()?;
    let (pods, nodes) = (Api::<Pod>::all(client.clone()), Api::<Node>::all(client));
    let version = pods.list(&ListParams::default()).await?.metadata.resource_version.unwrap_or_default();
    let watch = pods.watch(&WatchParams::default().timeout(1), &version).await?;
    assert!(nodes.get("nobody").await.unwrap_err().to_string().contains("not found"));
    let cordon = Patch::Merge(json!({"spec": {"unschedulable": true}}));
    assert!(nodes.patch("nobody", &PatchParams::default(), &cordon).await.is_err());
    // Somebody else.
    context.client()?.apiserver_version().await?;
    let told: Vec<_> = log.take()?.into_iter().map(|one| (one.verb, one.resource, one.name, one.code)).collect();
    let expected = [
        ("list", "pods", "", 200),
        ("watch", "pods", "", 200),
        ("get", "nodes", "nobody", 404),
        ("patch", "nodes", "nobody", 404),
    ];
    assert_eq!(told, expected.map(|(verb, resource, name, code)| (verb.into(), resource.into(), name.into(), code)));
    // The end of the watch is logged, and is no request.
    watch.map(drop).collect::<()>().await;
    nodes.patch("nobody", &PatchParams::default(), &cordon).await.unwrap_err();
    let told = log.take()?;
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].user == "visitor" && told[0].received < told[0].answered, "{told:?}");
    Ok(())
}

async fn the_api_server_comes_back_on_the_same_port_with_all_it_stored(context: Context) -> TestResult {
    let namespace = context.namespace("outage").await?;
    let _kubelet = context.kubelet(namespace.node("a")).await?;
    context.stop_api_server();
    let client = context.client()?;
    assert!(client.apiserver_version().await.is_err(), "the API server still answers");
    context.doing("start the API server again");
    context.start_api_server().await?;
    let web = Workload::deployment("web", 1);
    web.create(&namespace).await?;
    context.doing("a pod after the outage");
    namespace.wait_for_ready(&web, 1, SOON * 2).await?;
    Ok(())
}

fn node_of(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

fn phase_of(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

async fn evict(namespace: &Namespace, pod: &Pod) -> Result<(), Error> {
    let name = pod.name_any();
    let metadata = ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
    let eviction = serde_json::to_vec(&Eviction { metadata, delete_options: None }).map_err(Error::SerdeError)?;
    let path = format!("/api/v1/namespaces/{}/pods/{name}/eviction", namespace.name());
    let request = Request::builder().method(Method::POST).uri(path).header("Content-Type", "application/json");
    namespace.client().request_text(request.body(eviction).map_err(Error::HttpError)?).await.map(drop)
}

async fn wait_for_disruptions_allowed(budgets: &Api<PodDisruptionBudget>, allowed: i32) -> TestResult {
    let goal = format!("the budget allows {allowed}");
    wait_until(budgets, &ListParams::default(), &goal, SOON, |found| {
        found.values().any(|budget| {
            budget.status.as_ref().is_some_and(|status| {
                status.observed_generation == budget.metadata.generation && status.disruptions_allowed == allowed
            })
        })
    })
    .await?;
    Ok(())
}
