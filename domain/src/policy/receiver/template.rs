//! Bodies that an operator words: templates over the members of a notification.

use jiff::Timestamp;
use minijinja::value::{Value, ValueKind};
use minijinja::{AutoEscape, Environment, ErrorKind, Output, UndefinedBehavior, context};
use serde::de::IgnoredAny;

use crate::notification::{Notification, NotifiedEvent, Topic};

/// How much a template may do. One that says what happened in a few lines takes some hundred steps.
const FUEL: u64 = 100_000;

/// The names that a template may use, for the error.
const NAMES: &str = "id, topic, reason, warning, note, at, node, and event with id, type, source, status and notBefore";

/// What is wrong with a template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// It is no template, or cannot be filled in.
    #[error("line {line} of the template: {message}")]
    Faulty {
        /// The line of the template, from 1.
        line: usize,
        /// What the engine says.
        message: String,
    },
    /// It should give JSON and does not.
    #[error(
        "the template gives no JSON for a notification on `{topic}` ({cause}): a value is written as the inside of a JSON \
         string, so write \"{{{{ note }}}}\" with the quotes, or {{{{ note|tojson }}}} without"
    )]
    NotJson {
        /// The topic of the notification.
        topic: Topic,
        /// What is wrong with what it gives.
        cause: String,
    },
}

/// A template that has been tried, and the content type of what it gives.
///
/// Where that is JSON, values are written as the inside of a JSON string: what stands between quotes stays between
/// them, whatever it contains. Nothing is ever escaped for HTML.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    text: String,
    content_type: String,
}

impl Template {
    /// Takes a template, if it can be filled in with notifications of every kind and gives what its content type says.
    pub fn new(text: String, content_type: String) -> Result<Self, TemplateError> {
        let template = Self { text, content_type };
        for topic in Topic::ALL {
            for warning in [false, true] {
                for event in [None, Some(sample_event())] {
                    let body = template.render(&sample(topic, warning, event))?;
                    if template.is_json()
                        && let Err(error) = serde_json::from_str::<IgnoredAny>(&body)
                    {
                        return Err(TemplateError::NotJson { topic, cause: error.to_string() });
                    }
                }
            }
        }
        Ok(template)
    }

    /// The content type of what it gives.
    pub fn content_type(&self) -> &str {
        &self.content_type
    }

    fn is_json(&self) -> bool {
        let media_type = self.content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        media_type.ends_with("/json") || media_type.ends_with("+json")
    }

    /// Fills the template in.
    pub fn render(&self, notification: &Notification) -> Result<String, TemplateError> {
        let mut environment = Environment::new();
        // What `{% set %}` and `{% filter %}` have caught is escaped already; that is known only where escaping is on.
        environment.set_auto_escape_callback(|_| AutoEscape::Custom("webhook".into()));
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_fuel(Some(FUEL));
        for html in ["e", "escape"] {
            environment.remove_filter(html);
        }
        let is_json = self.is_json();
        environment.set_formatter(move |out, _, value| write_value(out, value, is_json));
        environment.render_named_str("template", &self.text, members(notification)).map_err(|error| fault(&error))
    }
}

fn write_value(out: &mut Output<'_>, value: &Value, is_json: bool) -> Result<(), minijinja::Error> {
    if value.is_none() {
        return Ok(());
    }
    let text = match value.kind() {
        // The engine would write `True`, as Python does.
        ValueKind::Bool => value.is_true().to_string(),
        _ => value.to_string(),
    };
    if is_json && !value.is_safe() {
        let quoted = serde_json::Value::String(text).to_string();
        return Ok(out.write_str(&quoted[1..quoted.len() - 1])?);
    }
    Ok(out.write_str(&text)?)
}

fn fault(error: &minijinja::Error) -> TemplateError {
    let mut message = error.kind().to_string();
    if let Some(detail) = error.detail() {
        message = format!("{message}: {detail}");
    }
    if error.kind() == ErrorKind::UndefinedError {
        message = format!("{message}: the names are {NAMES}");
    }
    TemplateError::Faulty { line: error.line().unwrap_or(1), message }
}

/// The members of a notification; those of an event that there is not are none, which is written as nothing.
fn members(notification: &Notification) -> Value {
    let Notification { id, topic, reason, warning, note, at, node, event } = notification;
    let event = event.as_ref();
    context! {
        id => id.as_str(),
        topic => topic.as_str(),
        reason => reason.as_str(),
        warning => *warning,
        note => note.as_str(),
        at => at.to_string(),
        node => node.as_str(),
        event => context! {
            id => event.map(|event| event.id.as_str()),
            type => event.map(|event| event.event_type.as_str()),
            source => event.map(|event| event.source.as_str()),
            status => event.map(|event| event.status.as_str()),
            notBefore => event.and_then(|event| event.not_before).map(|at| at.to_string()),
        },
    }
}

/// A text with everything in it that must be escaped somewhere.
const AWKWARD: &str = "He said \"stop\",\n\ta\\b & <c>";

fn sample(topic: Topic, warning: bool, event: Option<NotifiedEvent>) -> Notification {
    Notification {
        id: AWKWARD.into(),
        topic,
        reason: AWKWARD.into(),
        warning,
        note: AWKWARD.into(),
        at: Timestamp::UNIX_EPOCH,
        node: AWKWARD.into(),
        event,
    }
}

fn sample_event() -> NotifiedEvent {
    NotifiedEvent {
        id: AWKWARD.into(),
        event_type: AWKWARD.into(),
        source: AWKWARD.into(),
        status: AWKWARD.into(),
        not_before: Some(Timestamp::UNIX_EPOCH),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::*;

    const JSON: &str = "application/json; charset=utf-8";

    fn told() -> Notification {
        Notification {
            node: "n1".into(),
            note: "He said \"stop\"\na\\b <now>".into(),
            ..sample(Topic::Drain, true, Some(NotifiedEvent { not_before: None, ..sample_event() }))
        }
    }

    fn render(text: &str, content_type: &str) -> String {
        Template::new(text.into(), content_type.into()).unwrap().render(&told()).unwrap()
    }

    #[test]
    fn in_json_a_value_between_quotes_keeps_its_quotes_newlines_and_backslashes() {
        let body = render(r#"{"text": "{{ node }} ({{ topic }}): {{ note }}", "urgent": {{ warning }}}"#, JSON);
        let expected = json!({"text": "n1 (drain): He said \"stop\"\na\\b <now>", "urgent": true});
        assert_eq!(serde_json::from_str::<Json>(&body).unwrap(), expected);
        assert!(!body.contains("&#") && !body.contains("&quot;") && !body.contains("&lt;"), "{body}");
    }

    #[test]
    fn in_json_a_value_may_bring_its_own_quotes() {
        let body = render(r#"{"text": {{ note|tojson }}, "event": {{ event|tojson }}}"#, JSON);
        let body: Json = serde_json::from_str(&body).unwrap();
        assert_eq!(body["text"], "He said \"stop\"\na\\b <now>");
        assert_eq!(body["event"]["notBefore"], Json::Null);
    }

    #[test]
    fn what_a_template_puts_together_is_escaped_once() {
        let text = r#"{% set all %}{{ note }}{% endset %}{"text": "{{ all }}", "loud": "{{ (node ~ note)|upper }}"}"#;
        let body: Json = serde_json::from_str(&render(text, "application/vnd.ours+json")).unwrap();
        assert_eq!(body["text"], "He said \"stop\"\na\\b <now>");
        assert_eq!(body["loud"], "N1HE SAID \"STOP\"\nA\\B <NOW>");
    }

    #[test]
    fn in_plain_text_a_value_is_written_as_it_is() {
        assert_eq!(render("{{ node }}: {{ note }}", "text/plain"), "n1: He said \"stop\"\na\\b <now>");
    }

    #[test]
    fn the_members_of_an_event_that_there_is_not_are_written_as_nothing() {
        let template = Template::new("[{{ event.type }}{{ event.notBefore }}]".into(), "text/plain".into()).unwrap();
        assert_eq!(template.render(&sample(Topic::Drain, false, None)).unwrap(), "[]");
    }

    // N-02 c
    #[test]
    fn a_template_that_fails_for_any_notification_is_refused_before_there_is_one() {
        for (text, expected) in [
            (
                "{\n{{ note",
                "line 2 of the template: syntax error: unexpected end of input, expected end of variable block",
            ),
            ("{{ nodee }}", "line 1 of the template: undefined value: the names are id, topic,"),
            ("{{ event.colour }}", "line 1 of the template: undefined value: the names are id, topic,"),
            ("{{ note|escape }}", "line 1 of the template: unknown filter: "),
            (
                "{\"text\": {{ note }}}",
                "the template gives no JSON for a notification on `event` (expected value at line 1",
            ),
            ("{\"text\": \"{{ note|safe }}\"}", "the template gives no JSON for a notification on `event`"),
            (
                "{% if topic == \"failed\" and not event.id %}[{% else %}{}{% endif %}",
                "the template gives no JSON for a notification on `failed`",
            ),
            (
                "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
                "line 1 of the template: ",
            ),
        ] {
            let error = Template::new(text.into(), JSON.into()).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }
}
