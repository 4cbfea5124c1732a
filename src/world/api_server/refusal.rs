//! What the API server says when it says no: a `Status`
//! (<https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/>).

use std::fmt;

use serde_json::{Value, json};

/// A refusal.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{code} {reason}: {message}")]
pub struct Refusal {
    /// The HTTP status.
    pub code: u16,
    /// One word for programs; may be empty.
    pub reason: &'static str,
    /// A sentence for people.
    pub message: String,
    /// Name, kind, causes, and what else belongs to the reason.
    pub details: Option<Value>,
    /// Seconds to wait, which are said in a header as well.
    pub retry_after: Option<u32>,
    /// The token with which a list that has expired goes on, inconsistently.
    pub continue_token: Option<String>,
}

/// One thing that is wrong with an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// One word for programs.
    pub reason: &'static str,
    /// The path of the field.
    pub field: String,
    /// What is wrong with it.
    pub message: String,
}

impl Cause {
    /// The value cannot be; `value` as it is to be shown, with quotation marks if it is a text.
    pub fn invalid(field: impl Into<String>, value: impl fmt::Display, why: impl fmt::Display) -> Self {
        Self { reason: "FieldValueInvalid", field: field.into(), message: format!("Invalid value: {value}: {why}") }
    }

    /// A value is needed.
    pub fn required(field: impl Into<String>, why: &str) -> Self {
        let colon = if why.is_empty() { "" } else { ": " };
        Self { reason: "FieldValueRequired", field: field.into(), message: format!("Required value{colon}{why}") }
    }

    /// The value is not one of those that there are; `value` as it is to be shown.
    pub fn not_supported(field: impl Into<String>, value: impl fmt::Display, supported: &[&str]) -> Self {
        let supported: Vec<String> = supported.iter().map(|one| format!("\"{one}\"")).collect();
        let message = format!("Unsupported value: {value}: supported values: {}", supported.join(", "));
        Self { reason: "FieldValueNotSupported", field: field.into(), message }
    }

    /// The field must not be given, or not be changed.
    pub fn forbidden(field: impl Into<String>, why: impl fmt::Display) -> Self {
        Self { reason: "FieldValueForbidden", field: field.into(), message: format!("Forbidden: {why}") }
    }
}

impl Refusal {
    /// A refusal without details.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None, retry_after: None, continue_token: None }
    }

    /// Adds details.
    #[must_use]
    pub fn with_details(self, details: Value) -> Self {
        Self { details: Some(details), ..self }
    }

    /// There is no such object; `resource` as in `deployments.apps`.
    pub fn not_found(resource: &str, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{resource} \"{name}\" not found")).with_details(about(resource, name))
    }

    /// There is one already.
    pub fn already_exists(resource: &str, name: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("{resource} \"{name}\" already exists"))
            .with_details(about(resource, name))
    }

    /// The object is not as the writer believes; `what` says in which way.
    pub fn conflict(resource: &str, name: &str, what: &str) -> Self {
        Self::new(409, "Conflict", format!("Operation cannot be fulfilled on {resource} \"{name}\": {what}"))
            .with_details(about(resource, name))
    }

    /// The request makes no sense.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// There is nothing at this path.
    pub fn no_resource() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource").with_details(json!({}))
    }

    /// The path is right, the method is not.
    pub fn no_method() -> Self {
        Self::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
            .with_details(json!({}))
    }

    /// It is not allowed; `resource` as in `deployments.apps`.
    pub fn forbidden(resource: &str, name: &str, why: &str) -> Self {
        Self::new(403, "Forbidden", format!("{resource} \"{name}\" is forbidden: {why}"))
            .with_details(about(resource, name))
    }

    /// The object is wrong in these ways; `kind` as in `Lease.coordination.k8s.io`.
    pub fn invalid(kind: &str, name: &str, causes: &[Cause]) -> Self {
        let mut said: Vec<String> = Vec::new();
        for Cause { field, message, .. } in causes {
            let one = format!("{field}: {message}");
            if !said.contains(&one) {
                said.push(one);
            }
        }
        let what = if let [only] = said.as_slice() { only.clone() } else { format!("[{}]", said.join(", ")) };
        let mut details = about(kind, name);
        if let Some(details) = details.as_object_mut() {
            details.retain(|_, value| value != "");
        }
        let cause = |cause: &Cause| json!({"reason": cause.reason, "message": cause.message, "field": cause.field});
        details["causes"] = causes.iter().map(cause).collect();
        Self::new(422, "Invalid", format!("{kind} \"{name}\" is invalid: {what}")).with_details(details)
    }

    /// The body of the answer.
    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.continue_token.as_ref().map_or_else(|| json!({}), |token| json!({"continue": token})),
            "status": "Failure",
            "message": self.message,
        });
        if !self.reason.is_empty() {
            status["reason"] = json!(self.reason);
        }
        if let Some(details) = &self.details {
            status["details"] = details.clone();
        }
        if let Some(seconds) = self.retry_after {
            status["details"]["retryAfterSeconds"] = json!(seconds);
        }
        status["code"] = json!(self.code);
        status
    }
}

/// The details that name an object; `resource` as in `deployments.apps`.
pub fn about(resource: &str, name: &str) -> Value {
    match resource.split_once('.') {
        Some((plural, group)) => json!({"name": name, "group": group, "kind": plural}),
        None => json!({"name": name, "kind": resource}),
    }
}
