//! `/metadata/identity/oauth2/token`: tokens that no real service accepts.
//!
//! The interface:
//! <https://learn.microsoft.com/entra/identity/managed-identities-azure-resources/how-to-use-vm-token>.

use std::time::Duration;

use axum::{http::StatusCode, response::Response};
use jiff::Timestamp;
use serde_json::json;

use crate::{
    answer::{JSON, reply},
    clock::later,
    instance::VERSIONS,
    query::Query,
    vm::{Identity, Vm},
};

/// The first api-version of this endpoint.
const FIRST_VERSION: &str = "2018-02-01";
/// How long a token is valid, in seconds.
const VALID: u64 = 3599;

pub(crate) fn missing_header() -> Response {
    error("bad_request_102", "Required metadata header not specified")
}

fn error(error: &str, description: &str) -> Response {
    let body = format!("{{\"error\":{},\"error_description\":{}}}", json!(error), json!(description));
    reply(StatusCode::BAD_REQUEST, JSON, body)
}

pub(crate) fn answer(vm: &Vm, query: &Query, now: Timestamp) -> Response {
    let version = query.get("api-version").filter(|version| VERSIONS.contains(version) && *version >= FIRST_VERSION);
    if version.is_none() {
        return error("bad_request_102", "api-version is invalid or was not specified in the request");
    }
    let Some(resource) = query.get("resource").filter(|resource| !resource.is_empty()) else {
        return error("invalid_resource", "The query parameter resource is missing");
    };
    match choose(vm, query) {
        Ok(identity) => {
            let expires_on = later(now, Duration::from_secs(VALID)).as_second();
            let client = identity.map_or("system", |identity| identity.client_id.as_str());
            let body = format!(
                "{{\"access_token\":{},\"refresh_token\":\"\",\"expires_in\":\"{VALID}\",\
                 \"expires_on\":\"{expires_on}\",\"not_before\":\"{}\",\"resource\":{},\"token_type\":\"Bearer\"}}",
                json!(format!("mock-imds.{client}.{expires_on}")),
                now.as_second(),
                json!(resource)
            );
            reply(StatusCode::OK, JSON, body)
        }
        Err(description) => error("invalid_request", description),
    }
}

/// The identity that is asked for; none is the system-assigned one.
fn choose<'a>(vm: &'a Vm, query: &Query) -> Result<Option<&'a Identity>, &'static str> {
    type Field = fn(&Identity) -> &str;
    let selectors: [(_, Field); 4] = [
        ("client_id", |identity| &identity.client_id),
        ("object_id", |identity| &identity.object_id),
        ("msi_res_id", |identity| &identity.resource_id),
        ("mi_res_id", |identity| &identity.resource_id),
    ];
    let mut given = selectors.into_iter().filter_map(|(name, field)| Some((query.get(name)?, field)));
    match (given.next(), given.next(), vm.identities.as_slice()) {
        (Some(_), Some(_), _) => Err("At most one of client_id, object_id and msi_res_id may be specified"),
        (Some((wanted, field)), None, identities) => {
            let found = identities.iter().find(|identity| field(identity).eq_ignore_ascii_case(wanted));
            found.map(Some).ok_or("Identity not found")
        }
        (None, _, []) => Ok(None),
        (None, _, [only]) => Ok(Some(only)),
        (None, _, _) => {
            Err("Multiple user assigned identities exist, please specify the clientId / resourceId of the \
                             identity in the token request")
        }
    }
}
