//! Tokens of service accounts. They say who calls and prove nothing: nobody is refused here.

use std::time::Duration;

use serde_json::{Value, json};

use super::kinds::SERVICE_ACCOUNTS;
use super::refusal::Refusal;
use super::service::Call;
use super::writing::seconds;

/// How long a token is said to last, unless the request says how long.
const LASTS_SECONDS: u64 = 3600;

/// Answers a `TokenRequest`
/// (<https://kubernetes.io/docs/reference/kubernetes-api/authentication-resources/token-request-v1/>).
pub(super) fn issue(call: &Call, mut request: Value) -> Result<Value, Refusal> {
    let key = call.key();
    let now = call.server.clock().now().wall;
    let mut locked = call.server.store().lock();
    let account = locked.get(SERVICE_ACCOUNTS, &key).ok_or_else(|| Refusal::not_found(SERVICE_ACCOUNTS, &key.name))?;
    if !request["spec"].is_object() {
        request["spec"] = json!({});
    }
    let spec = &mut request["spec"];
    for (field, value) in [
        ("audiences", json!(["https://kubernetes.default.svc"])),
        ("expirationSeconds", json!(LASTS_SECONDS)),
        ("boundObjectRef", Value::Null),
    ] {
        if spec[field].is_null() {
            spec[field] = value;
        }
    }
    let lasts = Duration::from_secs(spec["expirationSeconds"].as_u64().unwrap_or(LASTS_SECONDS));
    let token = format!("{:016x}.{}.{}", locked.dice().u64(..), key.namespace, key.name);
    Ok(json!({
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "uid": account["metadata"]["uid"],
            "creationTimestamp": seconds(now),
        },
        "spec": request["spec"].take(),
        "status": {"token": token, "expirationTimestamp": seconds(domain::time::plus(now, lasts))},
    }))
}

/// The user that a token names.
pub(super) fn account_of(token: &str) -> Option<String> {
    let mut parts = token.splitn(3, '.').skip(1);
    let (namespace, name) = (parts.next()?, parts.next()?);
    Some(format!("system:serviceaccount:{namespace}:{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_names_its_account_also_with_dots_in_the_name() {
        let account = account_of("00000000000000ff.shop.agent.v1");
        assert_eq!(account.as_deref(), Some("system:serviceaccount:shop:agent.v1"));
        assert_eq!(account_of("anything"), None);
    }
}
