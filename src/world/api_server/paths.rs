//! What the path and the query of a request mean.

use std::borrow::Cow;

use super::refusal::{Cause, Refusal};

/// What a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Path {
    /// Objects.
    Objects(Target),
    /// `/api`, `/apis` and what is below, as far as there are no objects: the segments after the slash.
    Discovery(Vec<String>),
    /// `/readyz` and the like.
    Probe,
    /// `/version`.
    Version,
    /// `/openapi/v2`, `/openapi/v3` and what is below.
    OpenApi(Vec<String>),
    /// Nothing.
    Unknown,
}

/// Which objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Target {
    /// The API group, empty for the core.
    pub(super) group: String,
    /// Its version.
    pub(super) version: String,
    /// The namespace; empty for all, and for cluster-scoped ones.
    pub(super) namespace: String,
    /// `pods`.
    pub(super) plural: String,
    /// One object.
    pub(super) name: Option<String>,
    /// Something of one object: `status`, `eviction`.
    pub(super) subresource: Option<String>,
    /// Whether the path asks to watch, as in `/api/v1/watch/pods`.
    pub(super) watch: bool,
}

impl Path {
    /// Reads a path.
    pub(super) fn parse(path: &str) -> Self {
        let segments: Vec<Cow<'_, str>> = path.split('/').filter(|segment| !segment.is_empty()).map(decoded).collect();
        let words: Vec<&str> = segments.iter().map(Cow::as_ref).collect();
        let owned = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        match words.as_slice() {
            ["readyz" | "livez" | "healthz", ..] => Self::Probe,
            ["version"] => Self::Version,
            ["openapi", rest @ ..] => Self::OpenApi(owned(rest)),
            ["api" | "apis"] | ["api" | "apis", _] | ["apis", _, _] => Self::Discovery(owned(&words)),
            ["api", version, rest @ ..] => Target::parse("", version, rest).map_or(Self::Unknown, Self::Objects),
            ["apis", group, version, rest @ ..] => {
                Target::parse(group, version, rest).map_or(Self::Unknown, Self::Objects)
            }
            _ => Self::Unknown,
        }
    }
}

impl Target {
    fn parse(group: &str, version: &str, rest: &[&str]) -> Option<Self> {
        let (watch, rest) = match rest {
            ["watch", rest @ ..] => (true, rest),
            rest => (false, rest),
        };
        let (namespace, rest) = match rest {
            // `namespaces/NAME/status` and `/finalize` are of the namespace itself.
            ["namespaces", _, "status" | "finalize"] | ["namespaces"] | ["namespaces", _] => ("", rest),
            ["namespaces", namespace, rest @ ..] => (*namespace, rest),
            rest => ("", rest),
        };
        let (plural, name, subresource) = match rest {
            [plural] => (*plural, None, None),
            [plural, name] => (*plural, Some(*name), None),
            [plural, name, subresource] => (*plural, Some(*name), Some(*subresource)),
            _ => return None,
        };
        Some(Self {
            group: group.to_owned(),
            version: version.to_owned(),
            namespace: namespace.to_owned(),
            plural: plural.to_owned(),
            name: name.map(str::to_owned),
            subresource: subresource.map(str::to_owned),
            watch,
        })
    }
}

/// A segment of a path without its `%XX`.
fn decoded(segment: &str) -> Cow<'_, str> {
    if !segment.contains('%') {
        return Cow::Borrowed(segment);
    }
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let [first, after @ ..] = rest {
        let code = after.get(..2).and_then(|code| std::str::from_utf8(code).ok());
        let byte = code.and_then(|code| u8::from_str_radix(code, 16).ok()).filter(|_| *first == b'%');
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

/// The parameters of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads the part of the URL after the question mark.
    pub(super) fn parse(query: &str) -> Self {
        Self(form_urlencoded::parse(query.as_bytes()).into_owned().collect())
    }

    /// A parameter that is there and not empty.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// A parameter that is `true` or `1`.
    pub(super) fn is(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| matches!(value, "true" | "1"))
    }

    /// A number.
    pub(super) fn number(&self, name: &str) -> Result<Option<i64>, Refusal> {
        let Some(text) = self.get(name) else { return Ok(None) };
        let number = text.parse();
        let number = number.map_err(|_| format!("strconv.ParseInt: parsing \"{text}\": invalid syntax"));
        number.map(Some).map_err(Refusal::bad_request)
    }

    /// Whether the request only pretends; `options` is the kind of its options, such as `CreateOptions`.
    pub(super) fn dry_run(&self, options: &str) -> Result<bool, Refusal> {
        let wanted: Vec<&str> =
            self.0.iter().filter(|(key, _)| key == "dryRun").map(|(_, value)| value.as_str()).collect();
        dry_run(&wanted, options)
    }
}

/// Whether a list of ways to pretend is one that is known.
pub(super) fn dry_run(wanted: &[&str], options: &str) -> Result<bool, Refusal> {
    if wanted.iter().all(|one| *one == "All") {
        return Ok(!wanted.is_empty());
    }
    let shown: Vec<String> = wanted.iter().map(|one| format!("\"{one}\"")).collect();
    let cause = Cause::not_supported("dryRun", format_args!("[{}]", shown.join(", ")), &["All"]);
    Err(Refusal::invalid(&format!("{options}.meta.k8s.io"), "", &[cause]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(path: &str) -> (String, String, Option<String>, Option<String>) {
        match Path::parse(path) {
            Path::Objects(target) => (target.namespace, target.plural, target.name, target.subresource),
            other => panic!("{path} names no objects: {other:?}"),
        }
    }

    #[test]
    fn a_path_names_objects_in_a_namespace_or_in_all() {
        let some = |text: &str| Some(text.to_owned());
        let text = |text: &str| text.to_owned();
        assert_eq!(target("/api/v1/pods"), (text(""), text("pods"), None, None));
        assert_eq!(
            target("/api/v1/namespaces/shop/pods/web-0/eviction"),
            (text("shop"), text("pods"), some("web-0"), some("eviction"))
        );
        assert_eq!(target("/api/v1/namespaces/shop"), (text(""), text("namespaces"), some("shop"), None));
        assert_eq!(
            target("/api/v1/namespaces/shop/finalize"),
            (text(""), text("namespaces"), some("shop"), some("finalize"))
        );
        assert_eq!(
            target("/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode"),
            (text(""), text("clusterroles"), some("system:node"), None)
        );
    }

    #[test]
    fn what_is_not_objects_is_told_apart() {
        assert_eq!(Path::parse("/readyz"), Path::Probe);
        assert_eq!(Path::parse("/apis/apps/v1"), Path::Discovery(vec!["apis".into(), "apps".into(), "v1".into()]));
        assert_eq!(Path::parse("/foo"), Path::Unknown);
    }
}
