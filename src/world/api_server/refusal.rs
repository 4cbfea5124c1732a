//! What the API server says when it says no: a `Status`
//! (<https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/>).

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
}

impl Refusal {
    /// A refusal without details.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None, retry_after: None }
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

    /// The body of the answer.
    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
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
