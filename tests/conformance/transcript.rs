//! What was asked and answered, in a form in which the answers of two API servers can be compared.
//!
//! Names, UIDs, versions and times differ from server to server. They become placeholders when a transcript is
//! rendered, which is done at its end: a UID is numbered by its first appearance, so that "the same UID as before" and
//! "another one" remain different texts.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value, json};

/// The parts of an object's metadata that are compared unless a script chooses others.
const METADATA: [&str; 12] = [
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "name",
    "namespace",
    "resourceVersion",
    "uid",
];

/// How many differing exchanges a failure shows, and how much of a line.
const MOST_DIFFERENCES: usize = 12;
const MOST_OF_A_LINE: usize = 300;

/// What of a body is compared. Failures (`Status`) are compared whole.
#[derive(Clone, Debug)]
pub(crate) enum Show {
    /// Type and metadata, and what these JSON pointers find.
    Metadata(Vec<String>),
    /// What these JSON pointers find.
    Only(Vec<String>),
    /// Everything but the fields that no client of ours reads.
    Everything,
}

impl Show {
    /// The part of a body that is compared. A failure that was not expected is shown whole.
    pub(crate) fn of(&self, body: &Value, is_expected: bool) -> Value {
        let is_chosen = is_expected && matches!(self, Self::Only(_));
        let is_failure = body["kind"] == "Status" && !is_chosen;
        if is_failure || !body.is_object() || matches!(self, Self::Everything) {
            return body.clone();
        }
        let Some(items) = body["items"].as_array() else { return self.of_object(body) };
        let mut shown = json!({"apiVersion": body["apiVersion"], "kind": body["kind"]});
        for field in ["continue", "remainingItemCount", "resourceVersion"] {
            // A list of custom resources says that there is no more by an empty token, others by none.
            if let Some(value) = body["metadata"].get(field).filter(|value| **value != "") {
                shown[field] = value.clone();
            }
        }
        shown["items"] = items.iter().map(|item| self.of_object(item)).collect();
        shown
    }

    fn of_object(&self, object: &Value) -> Value {
        let mut shown = Map::new();
        let pointers = match self {
            Self::Everything => return object.clone(),
            Self::Only(pointers) => pointers,
            Self::Metadata(pointers) => {
                let metadata = |field: &&str| Some(((*field).to_owned(), object["metadata"].get(*field)?.clone()));
                shown.insert("metadata".to_owned(), Value::Object(METADATA.iter().filter_map(metadata).collect()));
                for field in ["apiVersion", "kind"] {
                    shown.insert(field.to_owned(), object[field].clone());
                }
                pointers
            }
        };
        for pointer in pointers {
            let found = find(object, pointer).unwrap_or_else(|| json!("(absent)"));
            shown.insert(pointer.clone(), found);
        }
        Value::Object(shown)
    }
}

/// What a JSON pointer finds; `*` stands for every element of an array.
fn find(value: &Value, pointer: &str) -> Option<Value> {
    match pointer.split_once("/*") {
        None => value.pointer(pointer).cloned(),
        Some((before, after)) => {
            let elements = value.pointer(before)?.as_array()?;
            Some(elements.iter().map(|element| find(element, after).unwrap_or_default()).collect())
        }
    }
}

/// One request and its answer.
#[derive(Debug)]
struct Exchange {
    label: String,
    request: String,
    expected: Option<u16>,
    pins: Vec<Value>,
    answer: Option<Recorded>,
}

/// What is kept of an answer.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) code: Option<u16>,
    /// Headers that matter, and what else a script wants to see beside the body.
    pub(crate) head: Vec<(String, String)>,
    pub(crate) body: Value,
}

/// All that one side was asked.
#[derive(Debug, Default)]
pub(crate) struct Transcript {
    exchanges: Vec<Exchange>,
    names: Vec<(String, String)>,
    uids: BTreeMap<String, usize>,
}

impl Transcript {
    /// Opens the place for an answer, in the order in which requests are made.
    pub(crate) fn open(&mut self, label: &str, request: String, expected: Option<u16>) -> usize {
        let label = label.to_owned();
        self.exchanges.push(Exchange { label, request, expected, pins: Vec::new(), answer: None });
        self.exchanges.len() - 1
    }

    pub(crate) fn close(&mut self, place: usize, answer: Recorded) {
        self.exchanges[place].answer = Some(answer);
    }

    /// What the answer is known to hold, whoever gives it.
    pub(crate) fn pin(&mut self, place: usize, known: Value) {
        self.exchanges[place].pins.push(known);
    }

    /// From now on, and in all that was recorded, `text` is shown as `placeholder`.
    pub(crate) fn name(&mut self, text: &str, placeholder: &str) {
        self.names.push((text.to_owned(), placeholder.to_owned()));
        // A name that contains another must be found first.
        self.names.sort_by_key(|(text, _)| std::cmp::Reverse(text.len()));
    }

    fn render(mut self) -> Vec<Rendered> {
        let exchanges = std::mem::take(&mut self.exchanges);
        exchanges.into_iter().map(|exchange| self.render_one(exchange)).collect()
    }

    fn render_one(&mut self, exchange: Exchange) -> Rendered {
        let Exchange { label, request, expected, pins, answer } = exchange;
        let mut text = self.plain(&request);
        let mut problems = Vec::new();
        match answer {
            None => text.push_str("\n(no answer)"),
            Some(Recorded { code, head, body }) => {
                if let Some(code) = code {
                    let _ = write!(text, "\n{code}");
                }
                for (name, value) in head {
                    let _ = write!(text, "\n{name}: {}", self.plain(&value));
                }
                let body = self.normal(body);
                match &body {
                    Value::Null => {}
                    Value::String(body) => text.extend(["\n", body.as_str()]),
                    body => text.extend(["\n", &format!("{body:#}")]),
                }
                if code != expected {
                    problems.push(format!("code {code:?} instead of {expected:?}"));
                }
                for known in pins {
                    let known = self.normal(known);
                    if !holds(&body, &known) {
                        problems.push(format!("known to hold {known:#}"));
                    }
                }
            }
        }
        let is_answer = expected.is_some();
        Rendered { label, lines: text.lines().map(str::to_owned).collect(), problems, is_answer }
    }

    fn normal(&mut self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.plain(&text)),
            Value::Array(values) => values.into_iter().map(|value| self.normal(value)).collect(),
            Value::Object(fields) => {
                let mut normal = Map::new();
                for (name, value) in fields {
                    let value = match (name.as_str(), &value) {
                        // Who wrote what differs by program, and the TTL controller of a real cluster comes when it likes.
                        ("managedFields" | "selfLink" | "node.alpha.kubernetes.io/ttl", _) => continue,
                        ("resourceVersion" | "/metadata/resourceVersion", Value::String(version))
                            if !matches!(version.as_str(), "" | "0" | "(absent)") =>
                        {
                            json!("<version>")
                        }
                        ("continue", Value::String(token)) if !token.is_empty() => json!("<continue>"),
                        ("/rows/*/cells", _) => without_ages(self.normal(value)),
                        _ => self.normal(value),
                    };
                    normal.insert(self.plain(&name), value);
                }
                Value::Object(normal)
            }
            other => other,
        }
    }

    /// The text with placeholders.
    fn plain(&mut self, text: &str) -> String {
        let mut named = text.to_owned();
        for (name, placeholder) in &self.names {
            named = named.replace(name, placeholder);
        }
        let is_about_versions = named.contains("esource version") || named.contains("ResourceVersion");
        let mut plain = String::new();
        let mut rest = named.as_str();
        while let Some(next) = rest.chars().next() {
            let follows_word = plain.ends_with(|last: char| last.is_ascii_alphanumeric());
            if !follows_word && let Some(uid) = uid_at(rest) {
                let count = self.uids.len() + 1;
                let number = *self.uids.entry(uid.to_owned()).or_insert(count);
                let _ = write!(plain, "<uid-{number}>");
                rest = &rest[uid.len()..];
            } else if let Some((length, decimals)) = time_at(rest) {
                plain.push_str(if decimals == 0 { "<time>" } else { "<micro-time>" });
                rest = &rest[length..];
            } else if is_about_versions && next.is_ascii_digit() && (plain.ends_with('(') || plain.ends_with(": ")) {
                plain.push_str("<version>");
                rest = rest.trim_start_matches(|digit: char| digit.is_ascii_digit());
            } else {
                plain.push(next);
                rest = &rest[next.len_utf8()..];
            }
        }
        plain
    }
}

/// Whether a word is the age of something, as `5m3s`.
pub(crate) fn is_age(word: &str) -> bool {
    word.len() > 1
        && word.starts_with(|first: char| first.is_ascii_digit())
        && word.ends_with(['s', 'm', 'h', 'd'])
        && word.chars().all(|one| one.is_ascii_digit() || "smhd".contains(one))
}

fn without_ages(cells: Value) -> Value {
    match cells {
        Value::String(text) if is_age(&text) => json!("<age>"),
        Value::Array(values) => values.into_iter().map(without_ages).collect(),
        other => other,
    }
}

/// Whether everything in `known` is in `found`: objects may have more fields, arrays are the same length.
fn holds(found: &Value, known: &Value) -> bool {
    match (found, known) {
        (Value::Object(found), Value::Object(known)) => {
            known.iter().all(|(name, known)| holds(found.get(name).unwrap_or(&Value::Null), known))
        }
        (Value::Array(found), Value::Array(known)) => {
            found.len() == known.len() && found.iter().zip(known).all(|(found, known)| holds(found, known))
        }
        (found, known) => found == known,
    }
}

/// The UID at the beginning of the text.
fn uid_at(text: &str) -> Option<&str> {
    let uid = text.get(..36)?;
    let fits = |(place, byte): (usize, u8)| match place {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    uid.bytes().enumerate().all(fits).then_some(uid)
}

/// The lengths of the time at the beginning of the text, and of its decimals.
fn time_at(text: &str) -> Option<(usize, usize)> {
    const SHAPE: &[u8] = b"0000-00-00T00:00:00";
    let bytes = text.as_bytes();
    let fits = |(shape, byte): (&u8, &u8)| if *shape == b'0' { byte.is_ascii_digit() } else { byte == shape };
    if bytes.len() <= SHAPE.len() || !SHAPE.iter().zip(bytes).all(fits) {
        return None;
    }
    let rest = &text[SHAPE.len()..];
    let decimals = match rest.strip_prefix('.') {
        Some(rest) => rest.bytes().take_while(u8::is_ascii_digit).count(),
        None => 0,
    };
    let length = SHAPE.len() + if decimals > 0 { decimals + 1 } else { 0 };
    text[length..].starts_with('Z').then_some((length + 1, decimals))
}

#[derive(Debug)]
struct Rendered {
    label: String,
    lines: Vec<String>,
    problems: Vec<String>,
    is_answer: bool,
}

/// Compares what two sides answered to one script. Returns how many answers were compared, or what differs.
pub(crate) fn compare(expected: Transcript, found: Transcript) -> Result<usize, String> {
    let (expected, found) = (expected.render(), found.render());
    let answers = expected.iter().filter(|exchange| exchange.is_answer).count();
    let mut differences = Vec::new();
    for (number, expected) in expected.iter().enumerate() {
        let title = format!("exchange {}, {}", number + 1, expected.label);
        if !expected.problems.is_empty() {
            let (problems, text) = (expected.problems.join("; "), expected.lines.join("\n"));
            differences.push(format!("{title}\nthe expected answer itself is wrong, {problems}:\n{text}"));
        }
        match found.get(number) {
            None => differences.push(format!("{title}\nwas not asked on the other side")),
            Some(found) if found.lines != expected.lines => {
                let difference = difference(&expected.lines, &found.lines).join("\n");
                differences.push(format!("{title}\n--- expected\n+++ found\n{difference}"));
            }
            Some(_) => {}
        }
    }
    for more in found.iter().skip(expected.len()) {
        differences.push(format!("{}\nwas asked on the other side only", more.label));
    }
    if differences.is_empty() {
        return Ok(answers);
    }
    let summary = format!("{} of {} exchanges differ", differences.len(), expected.len());
    let left_out = differences.len().saturating_sub(MOST_DIFFERENCES);
    differences.truncate(MOST_DIFFERENCES);
    if left_out > 0 {
        differences.push(format!("and {left_out} more"));
    }
    differences.insert(0, summary);
    let cut = |line: &str| line.chars().take(MOST_OF_A_LINE).collect::<String>();
    Err(differences.join("\n\n").lines().map(cut).collect::<Vec<_>>().join("\n"))
}

/// The lines of both texts in the manner of `diff`, with all that is the same.
fn difference(old: &[String], new: &[String]) -> Vec<String> {
    // common[i][j]: how many lines old[i..] and new[j..] have in common.
    let mut common = vec![vec![0_usize; new.len() + 1]; old.len() + 1];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            common[i][j] =
                if old[i] == new[j] { common[i + 1][j + 1] + 1 } else { common[i + 1][j].max(common[i][j + 1]) };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut lines = Vec::new();
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            lines.push(format!(" {}", old[i]));
            (i, j) = (i + 1, j + 1);
        } else if j == new.len() || (i < old.len() && common[i + 1][j] >= common[i][j + 1]) {
            lines.push(format!("-{}", old[i]));
            i += 1;
        } else {
            lines.push(format!("+{}", new[j]));
            j += 1;
        }
    }
    lines
}
