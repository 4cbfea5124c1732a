//! The HTTP face: a tower service, in process or behind a socket.

use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, RETRY_AFTER, USER_AGENT, WARNING};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use serde_json::Value;

use super::kinds::Kind;
use super::paths::{Path, Query, Target};
use super::refusal::Refusal;
use super::store::{Actor, Key};
use super::tables::View;
use super::{ApiServer, decoding, discovery, protobuf, tokens, verbs};

/// A request and how it was answered, for whoever looks on.
#[derive(Clone, Debug)]
pub struct RequestSeen {
    /// Who asked.
    pub actor: Actor,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`.
    pub verb: &'static str,
    /// The resource as it was asked for: `pods`, `deployments.apps`.
    pub resource: String,
    /// `status`, `eviction` and so on.
    pub subresource: Option<String>,
    /// Which object; the name is empty for lists and for objects whose name is in the body.
    pub key: Key,
    /// The HTTP status of the answer.
    pub code: u16,
    /// The body of the request, if it had one that is JSON.
    pub body: Option<Arc<Value>>,
}

/// Looks on at each request when its answer is known; of a watch that is when it opens.
pub type RequestObserver = Box<dyn FnMut(&RequestSeen) + Send>;

impl ApiServer {
    /// The server for one caller, in process: `kube::Client::new(server.service(actor), "default")`. It answers without
    /// real time and without tasks of its own.
    pub fn service(&self, actor: Actor) -> Service {
        Service { server: self.clone(), actor: Some(actor) }
    }

    /// The server for callers behind a socket. A token of a service account says who calls, else the first word of the
    /// user agent does, as in `kubectl`. Nobody is refused: there is no RBAC.
    pub fn service_by_headers(&self) -> Service {
        Service { server: self.clone(), actor: None }
    }

    /// Looks on at every request from now on. The observer must not call the server.
    pub fn observe_requests(&self, observer: RequestObserver) {
        self.observers.lock().unwrap_or_else(PoisonError::into_inner).push(observer);
    }

    /// Lets an admission webhook look at every request from now on, or none. It must not call the server.
    pub fn admit_by(&self, admission: Option<Admission>) {
        *self.admission.lock().unwrap_or_else(PoisonError::into_inner) = admission;
    }

    /// What the admission webhook has against a write.
    fn objection(&self, call: &Call) -> Option<Refusal> {
        let admission = self.admission.lock().unwrap_or_else(PoisonError::into_inner);
        let admission = admission.as_ref().filter(|_| call.method != Method::GET)?;
        let why = admission(&call.actor, &call.kind.resource(), &serde_json::from_slice(&call.body).ok()?)?;
        Some(Refusal::new(403, "Forbidden", why))
    }

    /// Whether anybody looks on.
    fn is_observed(&self) -> bool {
        !self.observers.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    fn show_request(&self, request: &RequestSeen) {
        for observer in self.observers.lock().unwrap_or_else(PoisonError::into_inner).iter_mut() {
            observer(request);
        }
    }
}

/// An admission webhook: looks at who writes, the resource and the body, and says why it denies that.
pub type Admission = Box<dyn Fn(&Actor, &str, &Value) -> Option<String> + Send>;

/// Answers HTTP requests; see [`ApiServer::service`].
#[derive(Clone)]
pub struct Service {
    server: ApiServer,
    actor: Option<Actor>,
}

impl<B> tower::Service<Request<B>> for Service
where
    B: HttpBody + Send + 'static,
    B::Data: Send,
    B::Error: fmt::Display,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let this = self.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.map_err(|error| format!("the body cannot be read: {error}"));
            Ok(match body {
                Ok(body) => this.answer(&parts, body.to_bytes()).await,
                Err(why) => refused(&Refusal::bad_request(why)),
            })
        }
        .boxed()
    }
}

/// A request about objects.
pub(super) struct Call {
    pub(super) server: ApiServer,
    pub(super) actor: Actor,
    /// The field manager.
    pub(super) manager: Option<String>,
    pub(super) method: Method,
    pub(super) target: Target,
    pub(super) kind: Arc<Kind>,
    pub(super) query: Query,
    pub(super) view: View,
    pub(super) content_type: String,
    pub(super) body: Bytes,
    /// What the caller is told in headers if all goes well.
    pub(super) warnings: Mutex<Vec<String>>,
}

impl Call {
    /// The object that is meant; its name is empty where the path has none.
    pub(super) fn key(&self) -> Key {
        Key::new(&self.target.namespace, self.target.name.as_deref().unwrap_or_default())
    }

    /// What comes of fields in the body that the kind does not have: a warning, a refusal or nothing, as the caller wishes
    /// (<https://kubernetes.io/docs/reference/using-api/api-concepts/#field-validation>). The error is what the real server
    /// says.
    pub(super) fn judge_unknown_fields(&self, fields: &[String]) -> Result<(), String> {
        let said = fields.iter().map(|field| format!("unknown field \"{field}\""));
        match self.query.get("fieldValidation") {
            Some("Ignore") => {}
            Some("Strict") if !fields.is_empty() => {
                return Err(format!("strict decoding error: {}", said.collect::<Vec<_>>().join(", ")));
            }
            _ => self.warnings.lock().unwrap_or_else(PoisonError::into_inner).extend(said),
        }
        Ok(())
    }

    /// The answer with the warnings in its headers.
    fn with_warnings(&self, mut answer: Response<Body>) -> Response<Body> {
        for warning in self.warnings.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // 299: a miscellaneous persistent warning (<https://www.rfc-editor.org/rfc/rfc7234#section-5.5.7>).
            if let Ok(value) = HeaderValue::try_from(format!("299 - {}", Value::from(warning))) {
                answer.headers_mut().append(WARNING, value);
            }
        }
        answer
    }
}

impl Service {
    async fn answer(self, parts: &Parts, body: Bytes) -> Response<Body> {
        let Self { server, actor } = self;
        match Path::parse(parts.uri.path()) {
            Path::Probe => text(StatusCode::OK, "ok"),
            Path::Version => json(StatusCode::OK, &discovery::version()),
            Path::Discovery(path) => match discovery::of(&server.kinds(), &path) {
                Some(document) => json(StatusCode::OK, &document),
                None if is_below_known_group(&server, &path) => refused(&Refusal::no_resource()),
                None => page_not_found(),
            },
            // `kubectl` asks for the second version in protobuf only: an empty document is an empty body.
            Path::OpenApi(path) if path == ["v2"] => response(StatusCode::OK, protobuf::CONTENT_TYPE, Body::empty()),
            Path::OpenApi(path) => discovery::open_api(&server.kinds(), &path)
                .map_or_else(page_not_found, |document| json(StatusCode::OK, &document)),
            Path::Unknown => page_not_found(),
            Path::Objects(target) => {
                let actor = actor.unwrap_or_else(|| caller(&parts.headers));
                about_objects(server, actor, target, parts, body).await
            }
        }
    }
}

async fn about_objects(server: ApiServer, actor: Actor, target: Target, parts: &Parts, body: Bytes) -> Response<Body> {
    if let Some(answer) = verbs::review(&target, &parts.method, &body) {
        return json(StatusCode::CREATED, &answer);
    }
    let Some(kind) = server.kind_at(&target) else {
        return if server.serves_group(&target.group) { refused(&Refusal::no_resource()) } else { page_not_found() };
    };
    let header = |name: HeaderName| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let Some(view) = View::accepted(&parts.headers) else { return refused(&not_acceptable()) };
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    let manager = query.get("fieldManager").map_or_else(|| product_name(header(USER_AGENT)), Some).map(str::to_owned);
    let mut content_type = header(CONTENT_TYPE).to_owned();
    let mut body = body;
    if content_type == protobuf::CONTENT_TYPE && !body.is_empty() {
        let Some(object) = protobuf::read(&body) else { return refused(&decoding::unknown_format()) };
        body = object.to_string().into();
        "application/json".clone_into(&mut content_type);
    }
    let method = parts.method.clone();
    let warnings = Mutex::default();
    let call = Call { server, actor, manager, method, target, kind, query, view, content_type, body, warnings };
    let answered = match call.server.objection(&call) {
        Some(objection) => Err(objection),
        None => verbs::answer(&call).await,
    };
    let answer = match answered {
        Ok(answer) => call.with_warnings(answer),
        Err(refusal) => refused(&refusal),
    };
    if call.server.is_observed() {
        call.server.show_request(&RequestSeen {
            actor: call.actor.clone(),
            verb: verbs::name(&call),
            resource: call.kind.resource(),
            subresource: call.target.subresource.clone(),
            key: call.key(),
            code: answer.status().as_u16(),
            body: serde_json::from_slice(&call.body).ok().map(Arc::new),
        });
    }
    answer
}

/// Who calls through a socket.
fn caller(headers: &HeaderMap) -> Actor {
    let header = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let account = header(AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer ")).and_then(tokens::account_of);
    let name = account.or_else(|| product_name(header(USER_AGENT).unwrap_or_default()).map(str::to_owned));
    Actor::new(name.as_deref().unwrap_or("anonymous"))
}

/// The first word of a user agent.
fn product_name(user_agent: &str) -> Option<&str> {
    user_agent.split(['/', ' ']).next().filter(|name| !name.is_empty())
}

fn not_acceptable() -> Refusal {
    let message = "406: Not Acceptable\n\nAvailable representations: application/json, application/json;stream=watch";
    Refusal::new(406, "NotAcceptable", message).with_details(serde_json::json!({}))
}

/// Whether a path of discovery is of a group that is there.
fn is_below_known_group(server: &ApiServer, path: &[String]) -> bool {
    match path {
        [root, _] if root == "api" => true,
        [_, group, _] => server.serves_group(group),
        _ => false,
    }
}

fn page_not_found() -> Response<Body> {
    text(StatusCode::NOT_FOUND, "404 page not found\n")
}

fn text(code: StatusCode, text: &'static str) -> Response<Body> {
    response(code, "text/plain; charset=utf-8", Body::from(text))
}

/// An answer with this body.
pub(super) fn response(code: StatusCode, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// An answer in JSON.
pub(super) fn json(code: StatusCode, value: &Value) -> Response<Body> {
    response(code, "application/json", Body::from(value.to_string()))
}

/// A refusal as an answer.
fn refused(refusal: &Refusal) -> Response<Body> {
    let code = StatusCode::from_u16(refusal.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json(code, &refusal.status());
    if let Some(seconds) = refusal.retry_after {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}
