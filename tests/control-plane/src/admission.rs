//! Admission policies for tests, which only a real API server has.

use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

use crate::namespace::{NAMESPACE_LABEL, Namespace};

/// How a denied request is answered
/// (<https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/>).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// 403.
    Forbidden,
    /// 422, which is what a policy says that names no reason.
    Invalid,
}

/// A `ValidatingAdmissionPolicy` that is about the requests of one service account of a namespace, and goes with the
/// namespace. It acts some time after it was made.
#[derive(Clone, Debug)]
pub struct AdmissionPolicy {
    service_account: String,
    group: String,
    resource: String,
    validations: Vec<Value>,
}

impl AdmissionPolicy {
    /// A policy about what a service account creates or updates of a resource, such as `nodes` or `pods/eviction`; `""` is
    /// the core API group.
    pub fn new(service_account: &str, group: &str, resource: &str) -> Self {
        Self {
            service_account: service_account.to_owned(),
            group: group.to_owned(),
            resource: resource.to_owned(),
            validations: Vec::new(),
        }
    }

    /// Denies the requests for which this CEL expression does not hold.
    #[must_use]
    pub fn unless(mut self, expression: &str, denial: Denial, message: &str) -> Self {
        let mut validation = json!({"expression": expression, "message": message});
        if denial == Denial::Forbidden {
            validation["reason"] = json!("Forbidden");
        }
        self.validations.push(validation);
        self
    }

    /// Makes the policy and puts it into force.
    pub async fn create(&self, namespace: &Namespace) -> Result<(), kube::Error> {
        let name = format!("{}-{}", namespace.name(), self.resource.replace('/', "-"));
        let metadata = json!({"name": name, "labels": {NAMESPACE_LABEL: namespace.name()}});
        let account = format!("system:serviceaccount:{}:{}", namespace.name(), self.service_account);
        let policy: ValidatingAdmissionPolicy = typed(json!({
            "metadata": metadata,
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [{
                    "apiGroups": [self.group],
                    "apiVersions": ["*"],
                    "operations": ["CREATE", "UPDATE"],
                    "resources": [self.resource],
                }]},
                "matchConditions": [{"name": "account", "expression": format!("request.userInfo.username == '{account}'")}],
                "validations": self.validations,
            },
        }))?;
        let binding: ValidatingAdmissionPolicyBinding =
            typed(json!({"metadata": metadata, "spec": {"policyName": name, "validationActions": ["Deny"]}}))?;
        let create = PostParams::default();
        Api::all(namespace.client().clone()).create(&create, &policy).await?;
        Api::all(namespace.client().clone()).create(&create, &binding).await.map(drop)
    }
}

fn typed<K: serde::de::DeserializeOwned>(value: Value) -> Result<K, kube::Error> {
    serde_json::from_value(value).map_err(kube::Error::SerdeError)
}
