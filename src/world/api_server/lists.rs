//! Lists: which objects, as of which version, in which portions
//! (<https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions>).

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::kinds::Kind;
use super::paths::{Query, Target};
use super::refusal::{Cause, Refusal};
use super::selectors::{FieldSelector, LabelSelector};
use super::service::Call;
use super::store::{Key, Topic};

/// For how long the server waits for a version that it has not reached yet.
const WAIT_FOR_VERSION: Duration = Duration::from_secs(3);

/// The version in a token that goes on with what there is now.
const ANY_VERSION: u64 = 0;

/// Which objects of a resource.
#[derive(Clone, Debug)]
pub(super) struct Selection {
    /// The namespace, or all.
    pub(super) namespace: Option<String>,
    labels: LabelSelector,
    fields: FieldSelector,
}

impl Selection {
    /// What a request selects.
    pub(super) fn of(kind: &Kind, target: &Target, query: &Query) -> Result<Self, Refusal> {
        let labels = LabelSelector::parse(query.get("labelSelector").unwrap_or_default());
        let mut fields = query.get("fieldSelector").unwrap_or_default().to_owned();
        if let Some(name) = &target.name {
            let comma = if fields.is_empty() { "" } else { "," };
            fields = format!("{fields}{comma}metadata.name={name}");
        }
        Ok(Self {
            namespace: Some(target.namespace.clone()).filter(|namespace| !namespace.is_empty()),
            labels: labels.map_err(Refusal::bad_request)?,
            fields: FieldSelector::parse(kind, &fields).map_err(Refusal::bad_request)?,
        })
    }

    /// Whether an object is selected. Its namespace is, if `key` is given.
    pub(super) fn has(&self, key: Option<&Key>, object: &Value) -> bool {
        key.is_none_or(|key| self.namespace.as_deref().is_none_or(|namespace| key.namespace == namespace))
            && (self.labels.is_empty() || self.labels.matches(&object["metadata"]["labels"]))
            && self.fields.matches(object)
    }

    /// What all selected objects have in common, of that by which changes are announced.
    pub(super) fn topic(&self) -> Topic {
        if let Some(name) = self.fields.wanted("metadata.name") {
            Topic::Name(name.to_owned())
        } else if let Some(node) = self.fields.wanted("spec.nodeName").filter(|node| !node.is_empty()) {
            Topic::Node(node.to_owned())
        } else {
            Topic::Everything
        }
    }

    fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }
}

/// A portion of a list.
#[derive(Clone, Debug, Default)]
pub(super) struct Page {
    /// The objects.
    pub(super) items: Vec<Arc<Value>>,
    /// The version of which the whole list is.
    pub(super) version: u64,
    /// The token for the next portion.
    pub(super) continue_token: Option<String>,
    /// How many objects the other portions have, if that is known.
    pub(super) remaining: Option<usize>,
}

impl Page {
    /// The metadata of the list.
    pub(super) fn metadata(&self) -> Value {
        let mut metadata = json!({"resourceVersion": self.version.to_string()});
        if let Some(token) = &self.continue_token {
            metadata["continue"] = json!(token);
        }
        if let Some(remaining) = self.remaining {
            metadata["remainingItemCount"] = json!(remaining);
        }
        metadata
    }
}

/// What the version in a request means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AsOf {
    /// The latest.
    Now,
    /// Whatever is at hand, all of it.
    Any,
    /// This one or a later one.
    NotOlder(u64),
    /// Exactly this one.
    Exact(u64),
}

/// Lists objects.
pub(super) async fn list(call: &Call) -> Result<Page, Refusal> {
    let selection = Selection::of(&call.kind, &call.target, &call.query)?;
    check_options(&call.query)?;
    let limit = call.query.number("limit")?.and_then(|limit| usize::try_from(limit).ok()).filter(|limit| *limit > 0);
    if let Some(token) = call.query.get("continue") {
        let (version, after) = read_token(token)?;
        if call.query.get("resourceVersion").is_some_and(|version| version != "0") {
            return Err(Refusal::bad_request("specifying resource version is not allowed when using continue"));
        }
        let as_of = if version == ANY_VERSION { AsOf::Now } else { AsOf::Exact(version) };
        return page(call, &selection, as_of, limit, Some(&after));
    }
    let as_of = as_of(&call.query, limit.is_some())?;
    if let AsOf::NotOlder(version) | AsOf::Exact(version) = as_of {
        wait_for_version(call, version).await?;
    }
    page(call, &selection, as_of, if as_of == AsOf::Any { None } else { limit }, None)
}

fn as_of(query: &Query, is_limited: bool) -> Result<AsOf, Refusal> {
    let Some(text) = query.get("resourceVersion") else { return Ok(AsOf::Now) };
    let version = read_version(text).map_err(|why| Refusal::bad_request(format!("invalid resource version: {why}")))?;
    Ok(match query.get("resourceVersionMatch") {
        Some("Exact") => AsOf::Exact(version),
        None if version > 0 && is_limited => AsOf::Exact(version),
        _ if version == 0 => AsOf::Any,
        _ => AsOf::NotOlder(version),
    })
}

/// Reads a version as it stands in a request. The error is what the real server says.
pub(super) fn read_version(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| {
        format!("resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: parsing \"{text}\": invalid syntax")
    })
}

/// Waits some seconds for a version of the future, and refuses then.
pub(super) async fn wait_for_version(call: &Call, version: u64) -> Result<(), Refusal> {
    let current = || call.server.store().lock().version();
    if version <= current() {
        return Ok(());
    }
    call.server.clock().sleep(WAIT_FOR_VERSION).await;
    let current = current();
    if version <= current {
        return Ok(());
    }
    let message = format!("Timeout: Too large resource version: {version}, current: {current}");
    let cause = json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
    let refusal = Refusal::new(504, "Timeout", message).with_details(json!({"causes": [cause]}));
    Err(Refusal { retry_after: Some(1), ..refusal })
}

/// Refuses options that do not go together (`ValidateListOptions` in
/// <https://github.com/kubernetes/apimachinery/blob/v0.36.3/pkg/apis/meta/internalversion/validation/validation.go>).
pub(super) fn check_options(query: &Query) -> Result<(), Refusal> {
    const FIELD: &str = "resourceVersionMatch";
    let version = query.get("resourceVersion");
    let wanted = query.get(FIELD);
    let mut causes = Vec::new();
    if query.is("watch") {
        match (wanted, query.get("sendInitialEvents")) {
            _ if query.get("continue").is_some() => {
                causes.push(Cause::forbidden(FIELD, "resourceVersionMatch is forbidden when continue is provided"));
            }
            (Some("NotOlderThan"), Some(_)) | (None, None) => {}
            (Some(_), None) => {
                let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
                causes.push(Cause::forbidden(FIELD, why));
            }
            (_, Some(_)) => {
                let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
                causes.push(Cause::forbidden(FIELD, why));
            }
        }
    } else if let Some(wanted) = wanted {
        if version.is_none() {
            causes
                .push(Cause::forbidden(FIELD, "resourceVersionMatch is forbidden unless resourceVersion is provided"));
        }
        if query.get("continue").is_some() {
            causes.push(Cause::forbidden(FIELD, "resourceVersionMatch is forbidden when continue is provided"));
        }
        if !matches!(wanted, "Exact" | "NotOlderThan") {
            let shown = format!("\"{wanted}\"");
            causes.push(Cause::not_supported(FIELD, shown, &["Exact", "NotOlderThan", ""]));
        }
        if wanted == "Exact" && version == Some("0") {
            let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            causes.push(Cause::forbidden(FIELD, why));
        }
    }
    if causes.is_empty() { Ok(()) } else { Err(Refusal::invalid("ListOptions.meta.k8s.io", "", &causes)) }
}

fn page(
    call: &Call,
    selection: &Selection,
    as_of: AsOf,
    limit: Option<usize>,
    after: Option<&Key>,
) -> Result<Page, Refusal> {
    let resource = call.kind.stored();
    let namespace = selection.namespace.as_deref();
    let locked = call.server.store().lock();
    let mut page = Page { version: locked.version(), ..Page::default() };
    if let AsOf::Exact(version) = as_of {
        page.version = version;
        if version != locked.version() {
            let then = locked.list_at(&resource, namespace, version);
            let then = then.map_err(|_| after.map_or_else(list_expired, continue_expired))?;
            fill(&mut page, selection, limit, after, then.iter().map(|(key, object)| (key, object)));
            return Ok(page);
        }
    }
    fill(&mut page, selection, limit, after, locked.list(&resource, namespace));
    Ok(page)
}

fn fill<'a>(
    page: &mut Page,
    selection: &Selection,
    limit: Option<usize>,
    after: Option<&Key>,
    objects: impl Iterator<Item = (&'a Key, &'a Arc<Value>)>,
) {
    let mut last = None;
    let mut left_out = 0;
    for (key, object) in objects {
        if after.is_some_and(|after| key <= after) || !selection.has(None, object) {
            continue;
        }
        if limit.is_some_and(|limit| page.items.len() >= limit) {
            left_out += 1;
            continue;
        }
        page.items.push(Arc::clone(object));
        last = Some(key);
    }
    if let Some(last) = last.filter(|_| left_out > 0) {
        page.continue_token = Some(token(page.version, last));
        page.remaining = selection.is_everything().then_some(left_out);
    }
}

fn list_expired() -> Refusal {
    Refusal::new(410, "Expired", "The resourceVersion for the provided list is too old.")
}

fn continue_expired(after: &Key) -> Refusal {
    let message = "The provided continue parameter is too old to display a consistent list result. You can start a new list \
                   without the continue parameter, or use the continue token in this response to retrieve the remainder of \
                   the results. Continuing with the provided token results in an inconsistent list - objects that were \
                   created, modified, or deleted between the time the first chunk was returned and now may show up in the \
                   list.";
    Refusal { continue_token: Some(token(ANY_VERSION, after)), ..Refusal::new(410, "Expired", message) }
}

/// A token says from which version the list is and which object was the last, in hexadecimal, so that nobody is tempted
/// to read it.
fn token(version: u64, last: &Key) -> String {
    const DIGITS: [char; 16] = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    let text = format!("{version}/{}/{}", last.namespace, last.name);
    text.bytes().flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]).collect()
}

fn read_token(token: &str) -> Result<(u64, Key), Refusal> {
    let read = || {
        let pairs = token.as_bytes().chunks(2).map(std::str::from_utf8);
        let bytes: Option<Vec<u8>> = pairs.map(|pair| u8::from_str_radix(pair.ok()?, 16).ok()).collect();
        let text = String::from_utf8(bytes?).ok()?;
        let mut parts = text.splitn(3, '/');
        let version = parts.next()?.parse().ok()?;
        Some((version, Key::new(parts.next()?, parts.next()?)))
    };
    read().ok_or_else(|| Refusal::bad_request("invalid continue token: continue key is not valid: it is not from here"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_leads_to_where_the_list_stopped_and_garbage_nowhere() {
        let key = Key::new("shop", "web-0");
        assert_eq!(read_token(&token(312, &key)), Ok((312, key)));
        for garbage in ["abc", "zz", "00", "é"] {
            assert_eq!(read_token(garbage).unwrap_err().code, 400, "{garbage}");
        }
    }

    #[test]
    fn a_version_of_zero_takes_whatever_is_there_and_a_limit_makes_a_version_exact() {
        let means = |query: &str, is_limited| as_of(&Query::parse(query), is_limited);
        assert_eq!(means("", true), Ok(AsOf::Now));
        assert_eq!(means("resourceVersion=0", true), Ok(AsOf::Any));
        assert_eq!(means("resourceVersion=5", false), Ok(AsOf::NotOlder(5)));
        assert_eq!(means("resourceVersion=5", true), Ok(AsOf::Exact(5)));
        assert_eq!(means("resourceVersion=5&resourceVersionMatch=NotOlderThan", true), Ok(AsOf::NotOlder(5)));
        assert_eq!(means("resourceVersion=x", false).unwrap_err().code, 400);
    }
}
