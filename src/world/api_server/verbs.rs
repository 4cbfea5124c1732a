//! What the verbs do.

use std::sync::Arc;

use axum::body::Body;
use http::{Method, Response, StatusCode};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Value, json};

use super::decoding::{self, check_name, check_namespace, decode_own, decode_patch, leave_out_unknown};
use super::events;
use super::kinds::{
    CUSTOM_RESOURCE_DEFINITIONS, DISRUPTION_BUDGETS, EVENTS, Kind, LEASES, NAMESPACES, PODS, SERVICE_ACCOUNTS,
};
use super::lists::{self, Page, Selection};
use super::paths::{Target, dry_run};
use super::refusal::{Cause, Refusal};
use super::service::{Call, json as json_response, response};
use super::tables::{Table, View};
use super::writing::Writing;
use super::{Deletion, Part, defaults, subresources, watch};

/// The name of the verb that a request uses.
pub(super) fn name(call: &Call) -> &'static str {
    let is_named = call.target.name.is_some();
    match call.method {
        Method::GET if call.target.watch || (!is_named && call.query.is("watch")) => "watch",
        Method::GET if is_named => "get",
        Method::GET => "list",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if is_named => "delete",
        Method::DELETE => "deletecollection",
        _ => "other",
    }
}

/// Answers a request about objects.
pub(super) async fn answer(call: &Call) -> Result<Response<Body>, Refusal> {
    let Target { namespace, name: object_name, subresource, .. } = &call.target;
    if namespace.is_empty() == call.kind.namespaced && (object_name.is_some() || !namespace.is_empty()) {
        return Err(Refusal::no_resource());
    }
    if let Some(subresource) = subresource {
        return subresources::answer(call, subresource).await;
    }
    let is_scoped = !namespace.is_empty() || !call.kind.namespaced;
    match name(call) {
        "get" => get(call).await,
        "list" => lists::list(call).await.map(|page| list_answer(call, &page)),
        "watch" => Ok(response(StatusCode::OK, "application/json", watch::open(call)?)),
        "create" if object_name.is_none() && is_scoped => create(call),
        "update" if object_name.is_some() => replace(call, Part::Main),
        "patch" if object_name.is_some() => patch(call, Part::Main),
        "delete" => delete(call),
        "deletecollection" if is_scoped && !call.kind.is_called(NAMESPACES) => delete_collection(call),
        _ => Err(Refusal::no_method()),
    }
}

impl Call {
    /// Does a write for this caller.
    pub(super) fn write<T>(&self, dry_run: bool, write: impl FnOnce(&mut Writing<'_, '_>) -> T) -> T {
        let now = self.server.clock().now().wall;
        let result = {
            let locked = &mut self.server.store().lock();
            let (by, manager) = (&self.actor, self.manager.as_deref());
            write(&mut Writing { locked, by, manager, now, dry_run, is_checked: true })
        };
        if self.method != Method::GET {
            self.server.kinds_may_have_changed(&self.kind.resource());
        }
        result
    }
}

/// A `Status` that says that all is well.
pub(super) fn success(code: u16) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code})
}

/// One object in the view that the caller wants.
pub(super) fn object_answer(call: &Call, code: StatusCode, object: &Value) -> Response<Body> {
    match call.view {
        View::Json => json_response(code, &events::shown(&call.kind, object)),
        View::Metadata => json_response(code, &View::metadata_of(object)),
        View::Table => {
            let now = call.server.clock().now().wall;
            let metadata = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
            json_response(code, &Table::new(&call.kind, &call.query).next(&call.kind, &metadata, [object], now))
        }
    }
}

/// An object of Kubernetes as it stands in a list, which says once what kind all of it is.
struct Item<'a>(&'a Kind, &'a Value);

impl Serialize for Item<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let object = events::shown(self.0, self.1);
        match object.as_object() {
            Some(fields) if self.0.custom.is_none() => {
                let mut map = serializer.serialize_map(None)?;
                for (field, value) in fields {
                    if field != "kind" && field != "apiVersion" {
                        map.serialize_entry(field, value)?;
                    }
                }
                map.end()
            }
            _ => object.serialize(serializer),
        }
    }
}

fn list_answer(call: &Call, page: &Page) -> Response<Body> {
    let kind = &call.kind;
    let (list, api_version) = match call.view {
        View::Table => {
            let now = call.server.clock().now().wall;
            let objects = page.items.iter().map(Arc::as_ref);
            let table = Table::new(kind, &call.query).next(kind, &page.metadata(), objects, now);
            return json_response(StatusCode::OK, &table);
        }
        View::Metadata => ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1".to_owned()),
        View::Json => (format!("{}List", kind.kind), kind.api_version()),
    };
    let metadata = page.metadata();
    let mut body =
        format!("{{\"kind\":\"{list}\",\"apiVersion\":\"{api_version}\",\"metadata\":{metadata},\"items\":[")
            .into_bytes();
    for (index, object) in page.items.iter().enumerate() {
        if index > 0 {
            body.push(b',');
        }
        // Writing JSON into memory does not fail: the keys of a `Value` are texts.
        let _ = match call.view {
            View::Metadata => serde_json::to_writer(&mut body, &View::metadata_of(object)),
            _ => serde_json::to_writer(&mut body, &Item(kind, object)),
        };
    }
    body.extend_from_slice(b"]}");
    response(StatusCode::OK, "application/json", Body::from(body))
}

/// Reads one object.
pub(super) async fn get(call: &Call) -> Result<Response<Body>, Refusal> {
    if let Some(version) = call.query.get("resourceVersion") {
        let version = lists::read_version(version).map_err(|why| Refusal::new(500, "", why))?;
        lists::wait_for_version(call, version).await?;
    }
    let key = call.key();
    let object = call.server.get(&call.kind.stored(), &key).map_err(|_| call.kind.not_found(&key.name))?;
    Ok(object_answer(call, StatusCode::OK, &object))
}

fn create(call: &Call) -> Result<Response<Body>, Refusal> {
    let dry_run = call.query.dry_run("CreateOptions")?;
    let object = decode_own(call)?;
    if !dry_run && object["metadata"]["resourceVersion"].as_str().is_some_and(|version| !matches!(version, "" | "0")) {
        return Err(Refusal::new(500, "", "resourceVersion should not be set on objects to be created"));
    }
    let created = call.write(dry_run, |writing| writing.create(&call.kind, &call.target.namespace, object))?;
    Ok(object_answer(call, StatusCode::CREATED, &created))
}

/// Whether an update must say which version it replaces.
fn needs_version(kind: &Kind) -> bool {
    let resource = kind.stored();
    kind.custom.is_some() || matches!(resource.as_str(), LEASES | DISRUPTION_BUDGETS | CUSTOM_RESOURCE_DEFINITIONS)
}

/// Whether an update of what is not there creates it.
fn creates_on_update(kind: &Kind) -> bool {
    matches!(kind.stored().as_str(), LEASES | EVENTS) || kind.group == "rbac.authorization.k8s.io"
}

/// Replaces an object, or its status.
pub(super) fn replace(call: &Call, part: Part) -> Result<Response<Body>, Refusal> {
    let dry_run = call.query.dry_run("UpdateOptions")?;
    let (kind, key) = (&call.kind, call.key());
    let object = decode_own(call)?;
    check_name(&key, &object)?;
    let resource = kind.stored();
    call.write(dry_run, |writing| {
        if part == Part::Main && creates_on_update(kind) && writing.locked.get(&resource, &key).is_none() {
            let created = writing.create(kind, &key.namespace, object)?;
            return Ok(object_answer(call, StatusCode::CREATED, &created));
        }
        let updated = writing.update(kind, &key, part, |stored| {
            let version = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
            if version.is_empty() && needs_version(kind) {
                let cause = Cause::invalid("metadata.resourceVersion", 0, "must be specified for an update");
                return Err(Refusal::invalid(&resource, &key.name, &[cause]));
            }
            if let Some(uid) = object["metadata"]["uid"].as_str()
                && stored["metadata"]["uid"] != uid
            {
                let found = stored["metadata"]["uid"].as_str().unwrap_or_default();
                let what = format!(
                    "StorageError: invalid object, Code: 4, Key: /registry/{}/{key}, ResourceVersion: 0, \
                     AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {found}",
                    kind.plural
                );
                return Err(Refusal::conflict(&resource, &key.name, &what));
            }
            let finalizers = (resource == NAMESPACES).then(|| stored["spec"].take());
            *stored = object;
            if let Some(finalizers) = finalizers {
                stored["spec"] = finalizers;
            }
            Ok(())
        })?;
        Ok(object_answer(call, StatusCode::OK, &updated))
    })
}

/// Patches an object, or its status.
pub(super) fn patch(call: &Call, part: Part) -> Result<Response<Body>, Refusal> {
    let dry_run = call.query.dry_run("PatchOptions")?;
    let (kind, key) = (&call.kind, call.key());
    let patch = decode_patch(call)?;
    let resource = kind.stored();
    let patched = call.write(dry_run, |writing| {
        writing.update(kind, &key, part, |object| {
            events::show(kind, object);
            patch.apply(object)?;
            if !object.is_object() {
                return Err(Refusal::bad_request("the patch leaves no object"));
            }
            check_name(&key, object)?;
            check_namespace(call, object)?;
            events::unshow(kind, object);
            decoding::read(&resource, object).and_then(|()| leave_out_unknown(call, object)).map_err(|why| {
                let cause = Cause::invalid("patch", Value::from(object.to_string()), why);
                Refusal::invalid("", "", &[cause])
            })
        })
    })?;
    Ok(object_answer(call, StatusCode::OK, &patched))
}

/// What `DeleteOptions` say, but for pretending.
pub(super) fn deletion(options: &Value) -> Deletion {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    Deletion {
        grace: options["gracePeriodSeconds"].as_i64(),
        uid: text(&options["preconditions"]["uid"]),
        resource_version: text(&options["preconditions"]["resourceVersion"]),
        dry_run: false,
    }
}

/// How something is to be deleted, and whether what it owns is to stay.
fn deletion_of(call: &Call) -> Result<(Deletion, bool), Refusal> {
    const OPTIONS: &str = "DeleteOptions";
    let (options, pretends) = if call.body.is_empty() {
        let options = json!({
            "gracePeriodSeconds": call.query.number("gracePeriodSeconds")?,
            "propagationPolicy": call.query.get("propagationPolicy"),
            "orphanDependents": call.query.is("orphanDependents"),
        });
        (options, call.query.dry_run(OPTIONS)?)
    } else {
        let options: Value = serde_json::from_slice(&call.body)
            .map_err(|error| Refusal::bad_request(format!("couldn't get version/kind; json parse error: {error}")))?;
        let ways: Vec<&str> = options["dryRun"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let pretends = dry_run(&ways, OPTIONS)?;
        (options, pretends)
    };
    let policy = options["propagationPolicy"].as_str();
    if let Some(policy) = policy.filter(|policy| !matches!(*policy, "Foreground" | "Background" | "Orphan")) {
        let supported = ["Foreground", "Background", "Orphan", "nil"];
        let cause = Cause::not_supported("propagationPolicy", format_args!("\"{policy}\""), &supported);
        return Err(Refusal::invalid(&format!("{OPTIONS}.meta.k8s.io"), "", &[cause]));
    }
    let orphans = policy == Some("Orphan") || options["orphanDependents"] == true;
    Ok((Deletion { dry_run: pretends, ..deletion(&options) }, orphans))
}

/// Deletes one object. What it owns is left to the garbage collector, in the background also if the foreground is asked for,
/// or is disowned at once.
fn delete(call: &Call) -> Result<Response<Body>, Refusal> {
    let (deletion, orphans) = deletion_of(call)?;
    let (kind, key) = (&call.kind, call.key());
    if kind.is_called(NAMESPACES) && matches!(key.name.as_str(), "default" | "kube-public" | "kube-system") {
        return Err(Refusal::forbidden(NAMESPACES, &key.name, "this namespace may not be deleted"));
    }
    let last = call.write(deletion.dry_run, |writing| {
        let last = writing.delete(kind, &key, &deletion)?;
        if orphans && !writing.dry_run {
            disown(writing, &last["metadata"]["uid"]);
        }
        Ok(last)
    })?;
    let resource = kind.stored();
    let is_shown =
        matches!(resource.as_str(), PODS | NAMESPACES | SERVICE_ACCOUNTS | CUSTOM_RESOURCE_DEFINITIONS | "services");
    if is_shown || last["metadata"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty()) {
        return Ok(object_answer(call, StatusCode::OK, &last));
    }
    let mut details = super::refusal::about(&kind.resource(), &key.name);
    details["uid"] = last["metadata"]["uid"].clone();
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details});
    Ok(json_response(StatusCode::OK, &status))
}

/// Takes an owner out of everything that it owns.
fn disown(writing: &mut Writing<'_, '_>, uid: &Value) {
    let resources: Vec<_> = writing.locked.resources().cloned().collect();
    for resource in resources {
        let is_owned = |object: &Value| {
            let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
            owners.clone().any(|owner| owner["uid"] == *uid)
        };
        let owned: Vec<_> = writing
            .locked
            .list(&resource, None)
            .filter(|(_, object)| is_owned(object))
            .map(|(key, object)| (key.clone(), Value::clone(object)))
            .collect();
        for (key, mut object) in owned {
            if let Some(owners) = object["metadata"]["ownerReferences"].as_array_mut() {
                owners.retain(|owner| owner["uid"] != *uid);
            }
            defaults::tidy(&mut object);
            // It is there: the store is locked.
            let _ = writing.commit(&resource, key, Some(object));
        }
    }
}

fn delete_collection(call: &Call) -> Result<Response<Body>, Refusal> {
    let (deletion, _) = deletion_of(call)?;
    let selection = Selection::of(&call.kind, &call.target, &call.query)?;
    let resource = call.kind.stored();
    let page = call.write(deletion.dry_run, |writing| {
        let selected: Vec<_> = writing
            .locked
            .list(&resource, selection.namespace.as_deref())
            .filter(|(_, object)| selection.has(None, object))
            .map(|(key, object)| (key.clone(), Arc::clone(object)))
            .collect();
        for (key, _) in &selected {
            writing.delete(&call.kind, key, &deletion)?;
        }
        let items = selected.into_iter().map(|(_, object)| object).collect();
        Ok::<_, Refusal>(Page { items, version: writing.locked.version(), ..Page::default() })
    })?;
    Ok(list_answer(call, &page))
}

/// Answers what a caller asks about himself: he may do everything.
pub(super) fn review(target: &Target, method: &Method, body: &[u8]) -> Option<Value> {
    if *method != Method::POST || target.version != "v1" {
        return None;
    }
    let (kind, status) = match (target.group.as_str(), target.plural.as_str()) {
        ("authorization.k8s.io", "selfsubjectaccessreviews") => ("SelfSubjectAccessReview", json!({"allowed": true})),
        ("authentication.k8s.io", "selfsubjectreviews") => {
            ("SelfSubjectReview", json!({"userInfo": {"username": "anybody", "groups": ["system:masters"]}}))
        }
        _ => return None,
    };
    let request: Value = serde_json::from_slice(body).unwrap_or_default();
    let mut review = json!({
        "kind": kind,
        "apiVersion": format!("{}/v1", target.group),
        "metadata": {},
        "status": status,
    });
    if request["spec"].is_object() {
        review["spec"] = request["spec"].clone();
    }
    Some(review)
}
