//! Which objects a request is about: label selectors and field selectors
//! (<https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#api>).

use serde_json::Value;

use super::kinds::{EVENTS, EVENTS_GROUP, Kind, NAMESPACES, NODES, PODS};
use super::validation::{wrong_label_value, wrong_qualified_name};

/// What a requirement asks of a label.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Need {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
    Greater(i64),
    Less(i64),
}

/// Selects objects by their labels. The empty selector selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LabelSelector(Vec<(String, Need)>);

impl LabelSelector {
    /// Reads the text form, as in `app=web,tier in (a, b),!old`. The error is what the real server says.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser { rest: text };
        let mut needs = Vec::new();
        loop {
            match parser.peek() {
                "" => return Ok(Self(needs)),
                "!" => {}
                token if is_word(token) => {}
                token => return Err(format!("found '{token}', expected: !, identifier, or 'end of string'")),
            }
            let need = parser.requirement().map_err(|why| format!("unable to parse requirement: {why}"))?;
            needs.push(need);
            match parser.next() {
                "" => return Ok(Self(needs)),
                "," => {
                    let token = parser.peek();
                    if token != "!" && !is_word(token) {
                        return Err(format!("found '{token}', expected: identifier after ','"));
                    }
                }
                token => return Err(format!("found '{token}', expected: ',' or 'end of string'")),
            }
        }
    }

    /// Reads the object form, with `matchLabels` and `matchExpressions`.
    pub(super) fn of_object(selector: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let labels = selector["matchLabels"].as_object().into_iter().flatten();
        let mut needs: Vec<_> = labels.map(|(key, value)| (key.clone(), Need::In(vec![text(value)]))).collect();
        for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
            let values = || expression["values"].as_array().into_iter().flatten().map(text).collect();
            let need = match expression["operator"].as_str() {
                Some("In") => Need::In(values()),
                Some("NotIn") => Need::NotIn(values()),
                Some("Exists") => Need::Exists,
                _ => Need::Absent,
            };
            needs.push((text(&expression["key"]), need));
        }
        Self(needs)
    }

    /// Whether an object with these labels is selected.
    pub(super) fn matches(&self, labels: &Value) -> bool {
        self.0.iter().all(|(key, need)| {
            let value = labels.get(key).and_then(Value::as_str);
            let number = || value.and_then(|value| value.parse::<i64>().ok());
            match need {
                Need::In(values) => value.is_some_and(|value| values.iter().any(|one| one == value)),
                Need::NotIn(values) => value.is_none_or(|value| values.iter().all(|one| one != value)),
                Need::Exists => value.is_some(),
                Need::Absent => value.is_none(),
                Need::Greater(least) => number().is_some_and(|number| number > *least),
                Need::Less(most) => number().is_some_and(|number| number < *most),
            }
        })
    }

    /// Whether it selects everything.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Whether a token is a key, a value or a named operator, not a sign or the end.
fn is_word(token: &str) -> bool {
    token.chars().next().is_some_and(|first| !is_sign(first))
}

fn is_sign(character: char) -> bool {
    matches!(character, '=' | '!' | '(' | ')' | ',' | '<' | '>')
}

struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn next(&mut self) -> &'a str {
        self.rest = self.rest.trim_start();
        let length = ["==", "!=", "=", "!", "(", ")", ",", "<", ">"]
            .iter()
            .find(|sign| self.rest.starts_with(**sign))
            .map_or_else(|| self.rest.find(|c: char| is_sign(c) || c.is_whitespace()), |sign| Some(sign.len()))
            .unwrap_or(self.rest.len());
        let (token, rest) = self.rest.split_at(length);
        self.rest = rest;
        token
    }

    fn peek(&self) -> &'a str {
        Parser { rest: self.rest }.next()
    }

    fn requirement(&mut self) -> Result<(String, Need), String> {
        let mut key = self.next();
        let is_denied = key == "!";
        if is_denied {
            key = self.next();
        }
        if !is_word(key) {
            return Err(format!("found '{key}', expected: identifier"));
        }
        if let Some(why) = wrong_qualified_name(key) {
            return Err(format!("<nil>: Invalid value: \"{key}\": {why}"));
        }
        if matches!(self.peek(), "" | ",") || is_denied {
            return Ok((key.to_owned(), if is_denied { Need::Absent } else { Need::Exists }));
        }
        let operator = self.next();
        let need = match operator {
            "=" | "==" => Need::In(vec![self.value(key)?]),
            "!=" => Need::NotIn(vec![self.value(key)?]),
            "in" => Need::In(self.values(key)?),
            "notin" => Need::NotIn(self.values(key)?),
            ">" | "<" => {
                let value = self.value(key)?;
                let why = "for 'Gt', 'Lt' operators, the value must be an integer";
                let number = value.parse().map_err(|_| format!("values[0]: Invalid value: \"{value}\": {why}"))?;
                if operator == ">" { Need::Greater(number) } else { Need::Less(number) }
            }
            other => return Err(format!("found '{other}', expected: in, notin, =, ==, !=, gt, lt")),
        };
        Ok((key.to_owned(), need))
    }

    fn value(&mut self, key: &str) -> Result<String, String> {
        if matches!(self.peek(), "" | ",") {
            return Ok(String::new());
        }
        let value = self.next();
        if !is_word(value) {
            return Err(format!("found '{value}', expected: identifier"));
        }
        checked_value(key, 0, value)
    }

    fn values(&mut self, key: &str) -> Result<Vec<String>, String> {
        let open = self.next();
        if open != "(" {
            return Err(format!("found '{open}' expected: '('"));
        }
        let mut values = Vec::new();
        loop {
            match self.next() {
                ")" => return Ok(values),
                "," => {}
                token if is_word(token) => values.push(checked_value(key, values.len(), token)?),
                token => return Err(format!("found '{token}', expected: ',', ')' or identifier")),
            }
        }
    }
}

fn checked_value(key: &str, index: usize, value: &str) -> Result<String, String> {
    match wrong_label_value(value) {
        Some(why) => Err(format!("values[{index}][{key}]: Invalid value: \"{value}\": {why}")),
        None => Ok(value.to_owned()),
    }
}

/// A field that may be selected by: its label, and where it is in what is stored.
type Field = (&'static str, &'static str);

const COMMON: [Field; 2] = [("metadata.name", "metadata.name"), ("metadata.namespace", "metadata.namespace")];

const OF_PODS: [Field; 8] = [
    ("spec.nodeName", "spec.nodeName"),
    ("spec.restartPolicy", "spec.restartPolicy"),
    ("spec.schedulerName", "spec.schedulerName"),
    ("spec.serviceAccountName", "spec.serviceAccountName"),
    ("spec.hostNetwork", "spec.hostNetwork"),
    ("status.phase", "status.phase"),
    ("status.podIP", "status.podIP"),
    ("status.nominatedNodeName", "status.nominatedNodeName"),
];

const OF_EVENTS: [Field; 11] = [
    ("involvedObject.kind", "involvedObject.kind"),
    ("involvedObject.namespace", "involvedObject.namespace"),
    ("involvedObject.name", "involvedObject.name"),
    ("involvedObject.uid", "involvedObject.uid"),
    ("involvedObject.apiVersion", "involvedObject.apiVersion"),
    ("involvedObject.resourceVersion", "involvedObject.resourceVersion"),
    ("involvedObject.fieldPath", "involvedObject.fieldPath"),
    ("reason", "reason"),
    ("reportingComponent", "reportingComponent"),
    ("source", "source.component"),
    ("type", "type"),
];

const OF_NEW_EVENTS: [Field; 10] = [
    ("regarding.kind", "involvedObject.kind"),
    ("regarding.namespace", "involvedObject.namespace"),
    ("regarding.name", "involvedObject.name"),
    ("regarding.uid", "involvedObject.uid"),
    ("regarding.apiVersion", "involvedObject.apiVersion"),
    ("regarding.resourceVersion", "involvedObject.resourceVersion"),
    ("regarding.fieldPath", "involvedObject.fieldPath"),
    ("reason", "reason"),
    ("reportingController", "reportingComponent"),
    ("type", "type"),
];

/// The fields of a kind, besides the common ones.
fn fields_of(kind: &Kind) -> &'static [Field] {
    if kind.group == EVENTS_GROUP {
        return &OF_NEW_EVENTS;
    }
    match kind.resource().as_str() {
        PODS => &OF_PODS,
        NODES => &[("spec.unschedulable", "spec.unschedulable")],
        NAMESPACES => &[("status.phase", "status.phase")],
        EVENTS => &OF_EVENTS,
        _ => &[],
    }
}

/// What is asked of one field.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FieldNeed {
    path: Vec<String>,
    is: bool,
    value: String,
    /// What the field is taken for where it is absent.
    absent: &'static str,
}

/// Selects objects by fields. The empty selector selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FieldSelector(Vec<FieldNeed>);

impl FieldSelector {
    /// Reads the text form, as in `spec.nodeName=n1,status.phase!=Failed`. The error is what the real server says.
    pub(super) fn parse(kind: &Kind, text: &str) -> Result<Self, String> {
        let mut needs = Vec::new();
        for term in text.split(',').filter(|term| !term.is_empty()) {
            let (label, is, value) = if let Some((label, value)) = term.split_once("!=") {
                (label, false, value)
            } else if let Some((label, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
                (label, true, value)
            } else {
                return Err(format!("invalid selector: '{text}'; can't understand '{term}'"));
            };
            let path = path_of(kind, label)?;
            let absent = if matches!(label, "spec.unschedulable" | "spec.hostNetwork") { "false" } else { "" };
            let path = path.split('.').map(str::to_owned).collect();
            needs.push(FieldNeed { path, is, value: value.to_owned(), absent });
        }
        Ok(Self(needs))
    }

    /// Whether an object is selected.
    pub(super) fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|need| {
            let found = need.path.iter().try_fold(object, |value, name| value.get(name));
            // An event of the new API has no source; its reporter is taken for it.
            let has_none = found.is_none_or(|source| source == "") && need.path == ["source", "component"];
            let found = if has_none { object.get("reportingComponent") } else { found };
            let is_so = match found {
                Some(Value::String(text)) => *text == need.value,
                Some(Value::Bool(truth)) => need.value == if *truth { "true" } else { "false" },
                Some(Value::Number(number)) => number.to_string() == need.value,
                _ => need.value == need.absent,
            };
            is_so == need.is
        })
    }

    /// The only value that a field of selected objects can have, if the selector says one.
    pub(super) fn wanted(&self, path: &str) -> Option<&str> {
        let need = self.0.iter().find(|need| need.is && need.path.iter().map(String::as_str).eq(path.split('.')))?;
        Some(&need.value)
    }

    /// Whether it selects everything.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn path_of(kind: &Kind, label: &str) -> Result<String, String> {
    let fields = fields_of(kind);
    if let Some((_, path)) = COMMON.iter().chain(fields).find(|(served, _)| *served == label) {
        return Ok((*path).to_owned());
    }
    match &kind.custom {
        Some(custom) if custom.selectable.iter().any(|path| path == label) => Ok(label.to_owned()),
        None if fields.is_empty() => {
            Err(format!("\"{label}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""))
        }
        _ => Err(format!("field label not supported: {label}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::kinds::built_in;
    use super::*;

    fn selects(selector: &str, labels: &Value) -> bool {
        LabelSelector::parse(selector).unwrap().matches(labels)
    }

    #[test]
    fn every_operator_of_label_selectors_is_understood() {
        let labels = json!({"app": "web", "tier": "front", "generation": "7"});
        for selector in [
            "",
            "app=web",
            "app==web,tier=front",
            "app!=db",
            "missing!=x",
            "app in (db, web)",
            "app notin (db),missing notin (x)",
            "app",
            "!missing",
            "generation>6",
            "generation<8",
        ] {
            assert!(selects(selector, &labels), "{selector}");
        }
        for selector in ["app=db", "app!=web", "app in (db)", "app notin (web)", "missing", "!app", "generation>7"] {
            assert!(!selects(selector, &labels), "{selector}");
        }
    }

    #[test]
    fn a_selector_that_cannot_be_read_is_refused_as_by_the_real_server() {
        for (selector, why) in [
            ("==", "found '==', expected: !, identifier, or 'end of string'"),
            ("app foo", "unable to parse requirement: found 'foo', expected: in, notin, =, ==, !=, gt, lt"),
            ("a in b", "unable to parse requirement: found 'b' expected: '('"),
            ("a=b=c", "found '=', expected: ',' or 'end of string'"),
            ("a in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
        ] {
            assert_eq!(LabelSelector::parse(selector).unwrap_err(), why);
        }
    }

    #[test]
    fn the_object_form_selects_as_the_text_does() {
        let selector = json!({"matchLabels": {"app": "web"}, "matchExpressions": [
            {"key": "tier", "operator": "In", "values": ["front", "back"]},
            {"key": "old", "operator": "DoesNotExist"},
        ]});
        let selector = LabelSelector::of_object(&selector);
        assert!(selector.matches(&json!({"app": "web", "tier": "back"})));
        assert!(!selector.matches(&json!({"app": "web", "tier": "back", "old": ""})));
        assert!(LabelSelector::of_object(&json!({})).matches(&json!({"any": "thing"})));
    }

    #[test]
    fn fields_are_selected_by_where_they_are_served_and_others_refused() {
        let kinds = built_in();
        let kind = |resource: &str| kinds.iter().find(|kind| kind.is_called(resource)).unwrap();
        let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n1"}, "status": {"phase": "Running"}});
        let on = |selector: &str| FieldSelector::parse(kind(PODS), selector).unwrap().matches(&pod);
        assert!(on("spec.nodeName=n1,status.phase!=Failed") && on("spec.hostNetwork=false"));
        assert!(!on("spec.nodeName=") && !on("status.phase!=Running"));
        assert!(FieldSelector::parse(kind(NODES), "spec.unschedulable=false").unwrap().matches(&json!({})));
        assert_eq!(
            FieldSelector::parse(kind(PODS), "metadata.uid=1").unwrap_err(),
            "field label not supported: metadata.uid"
        );
        let event = json!({"involvedObject": {"kind": "Node"}});
        assert!(FieldSelector::parse(kind("events.events.k8s.io"), "regarding.kind=Node").unwrap().matches(&event));
    }
}
