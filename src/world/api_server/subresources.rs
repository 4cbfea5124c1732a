//! What hangs on an object: its status, its scale, its eviction.

use axum::body::Body;
use http::{Method, Response, StatusCode};
use serde_json::{Value, json};

use super::decoding::{check_namespace, decode, decode_patch};
use super::kinds::{DEPLOYMENTS, NAMESPACES, PODS, REPLICA_SETS, SERVICE_ACCOUNTS, STATEFUL_SETS, Status};
use super::patch::Patch;
use super::refusal::{Cause, Refusal};
use super::service::{Call, json as json_response};
use super::tables::selector_text;
use super::verbs::{self, object_answer, success};
use super::writing::seconds;
use super::{Part, eviction, tokens};

/// Answers a request about a subresource.
pub(super) async fn answer(call: &Call, subresource: &str) -> Result<Response<Body>, Refusal> {
    let resource = call.kind.resource();
    let is_status = subresource == "status" && call.kind.status != Status::None;
    let is_scale = subresource == "scale" && matches!(resource.as_str(), DEPLOYMENTS | REPLICA_SETS | STATEFUL_SETS);
    match (&call.method, subresource, resource.as_str()) {
        (&Method::GET, ..) if is_status => verbs::get(call).await,
        (&Method::PUT, ..) if is_status => verbs::replace(call, Part::Status),
        (&Method::PATCH, ..) if is_status => verbs::patch(call, Part::Status),
        (&Method::GET | &Method::PUT | &Method::PATCH, ..) if is_scale => scale(call),
        (&Method::POST, "eviction", PODS) => {
            let body = decode(call, "Eviction", &["policy/v1", "policy/v1beta1"])?;
            check_namespace(call, &body)?;
            let is_known = |field: &str| matches!(field, "apiVersion" | "kind" | "metadata" | "deleteOptions");
            let fields = body.as_object().into_iter().flat_map(|body| body.keys());
            let unknown: Vec<String> = fields.filter(|field| !is_known(field)).cloned().collect();
            call.judge_unknown_fields(&unknown).map_err(|why| {
                Refusal::bad_request(format!("Eviction in version \"v1\" cannot be handled as a Eviction: {why}"))
            })?;
            Ok(json_response(StatusCode::CREATED, &eviction::evict(call, &body).await?))
        }
        (&Method::POST, "binding", PODS) => bind(call),
        (&Method::PUT, "finalize", NAMESPACES) => finalize(call),
        (&Method::POST, "token", SERVICE_ACCOUNTS) => {
            let body = decode(call, "TokenRequest", &["authentication.k8s.io/v1"])?;
            Ok(json_response(StatusCode::CREATED, &tokens::issue(call, body)?))
        }
        (_, "eviction" | "binding", PODS) | (_, "finalize", NAMESPACES) | (_, "token", SERVICE_ACCOUNTS) => {
            Err(Refusal::no_method())
        }
        _ if is_status || is_scale => Err(Refusal::no_method()),
        _ => Err(Refusal::no_resource()),
    }
}

/// The scale of a workload.
fn scale_of(workload: &Value) -> Value {
    let metadata = &workload["metadata"];
    json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
            "creationTimestamp": metadata["creationTimestamp"],
        },
        "spec": {"replicas": workload["spec"]["replicas"].as_i64().unwrap_or_default()},
        "status": {
            "replicas": workload["status"]["replicas"].as_i64().unwrap_or_default(),
            "selector": selector_text(&workload["spec"]["selector"]),
        },
    })
}

fn scale(call: &Call) -> Result<Response<Body>, Refusal> {
    let key = call.key();
    if call.method == Method::GET {
        let workload = call.server.get(&call.kind.resource(), &key)?;
        return Ok(json_response(StatusCode::OK, &scale_of(&workload)));
    }
    let is_patch = call.method == Method::PATCH;
    let dry_run = call.query.dry_run(if is_patch { "PatchOptions" } else { "UpdateOptions" })?;
    let patch =
        if is_patch { decode_patch(call)? } else { Patch::Replace(decode(call, "Scale", &["autoscaling/v1"])?) };
    let updated = call.write(dry_run, |writing| {
        writing.update(&call.kind, &key, Part::Main, |workload| {
            let mut scale = scale_of(workload);
            patch.apply(&mut scale)?;
            let replicas = scale["spec"]["replicas"].as_i64().unwrap_or_default();
            if replicas < 0 {
                let cause = Cause::invalid("spec.replicas", replicas, "must be greater than or equal to 0");
                return Err(Refusal::invalid("Scale.autoscaling", &key.name, &[cause]));
            }
            workload["spec"]["replicas"] = replicas.into();
            workload["metadata"]["resourceVersion"] = scale["metadata"]["resourceVersion"].take();
            Ok(())
        })
    })?;
    Ok(json_response(StatusCode::OK, &scale_of(&updated)))
}

/// Binds a pod to a node.
fn bind(call: &Call) -> Result<Response<Body>, Refusal> {
    let body = decode(call, "Binding", &["v1"])?;
    let key = call.key();
    let node = body["target"]["name"].as_str().unwrap_or_default().to_owned();
    call.write(call.query.dry_run("CreateOptions")?, |writing| {
        writing.admit_to_namespace(PODS, &key.namespace, &key.name)?;
        if body["metadata"]["name"] != key.name {
            return Err(Refusal::bad_request("name in URL does not match name in Binding object"));
        }
        let mut pod = Value::clone(&*writing.existing(&call.kind, &key)?);
        let conflict = |what: &str| Err(Refusal::conflict("pods/binding", &key.name, what));
        if !pod["metadata"]["deletionTimestamp"].is_null() {
            return conflict(&format!("pod {} is being deleted, cannot be assigned to a host", key.name));
        }
        if let Some(assigned) = pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) {
            return conflict(&format!("pod {} is already assigned to node \"{assigned}\"", key.name));
        }
        pod["spec"]["nodeName"] = node.into();
        let scheduled = json!({
            "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": seconds(writing.now),
        });
        if !pod["status"]["conditions"].is_array() {
            pod["status"]["conditions"] = json!([]);
        }
        if let Some(conditions) = pod["status"]["conditions"].as_array_mut() {
            conditions.retain(|condition| condition["type"] != "PodScheduled");
            conditions.push(scheduled);
        }
        if !writing.dry_run {
            writing.commit(PODS, key.clone(), Some(pod))?;
        }
        Ok(json_response(StatusCode::CREATED, &success(201)))
    })
}

/// Sets what a namespace waits for before it goes.
fn finalize(call: &Call) -> Result<Response<Body>, Refusal> {
    let body = decode(call, "Namespace", &["v1"])?;
    let key = call.key();
    let updated = call.write(call.query.dry_run("UpdateOptions")?, |writing| {
        writing.update(&call.kind, &key, Part::Main, |namespace| {
            namespace["spec"]["finalizers"] = body["spec"]["finalizers"].clone();
            namespace["metadata"]["resourceVersion"] = body["metadata"]["resourceVersion"].clone();
            Ok(())
        })
    })?;
    Ok(object_answer(call, StatusCode::OK, &updated))
}
