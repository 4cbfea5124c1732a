//! Answers as the metadata service writes them: content types, and the refusals that its endpoints share.

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::Response,
};

pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json; charset=utf-8");
pub(crate) const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
pub(crate) const XML: HeaderValue = HeaderValue::from_static("text/xml; charset=utf-8");
pub(crate) const HTML: HeaderValue = HeaderValue::from_static("text/html");

pub(crate) fn reply(status: StatusCode, content_type: HeaderValue, body: String) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}

/// A 400 in the service's own spacing.
pub(crate) fn bad_request(what: &str) -> Response {
    let what = serde_json::Value::from(format!("Bad request: {what}"));
    reply(StatusCode::BAD_REQUEST, JSON, format!("{{ \"error\": {what} }}"))
}

/// A 400 that names the three newest of the versions, which come oldest first.
pub(crate) fn bad_version(versions: impl DoubleEndedIterator<Item = &'static str>) -> Response {
    let newest: Vec<_> = versions.rev().take(3).map(|version| format!("\"{version}\"")).collect();
    let body = format!(
        "{{\"error\":\"Bad request. api-version is invalid or was not specified in the request. For more information \
         refer to aka.ms/azureimds\",\"newest-versions\":[{}]}}",
        newest.join(",")
    );
    reply(StatusCode::BAD_REQUEST, JSON, body)
}

pub(crate) fn not_found() -> Response {
    reply(StatusCode::NOT_FOUND, JSON, "{ \"error\": \"Not found\" }".to_owned())
}

pub(crate) fn method_not_allowed(allowed: &'static str) -> Response {
    let mut response = reply(StatusCode::METHOD_NOT_ALLOWED, JSON, "{ \"error\": \"Method not allowed\" }".to_owned());
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
    response
}
