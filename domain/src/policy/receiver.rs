//! Who is told what: the receivers of notifications in a policy file.
//!
//! A receiver's address is a secret: whoever knows the URL of a webhook can write to it. So a policy file names where the
//! URL is, never the URL itself, and what is read from there is in no error and no log.

mod template;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_saphyr::Spanned;

use super::duration_text::DurationText;
use super::file::check_name;
use crate::notification::Topic;
use crate::time::spoken;
use crate::yaml::Mistake;
pub use template::{Template, TemplateError};

/// How long a receiver may take to answer if its file does not say.
const USUAL_TIMEOUT: Duration = Duration::from_secs(5);

/// The shortest and the longest time that a receiver may be given.
const TIMEOUTS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];

/// What a receiver is told if its file does not say: what is done to the node, not each word of Azure.
const USUAL_TOPICS: [Topic; 4] = [Topic::Drain, Topic::Blocked, Topic::Failed, Topic::Released];

/// The content type of a template that names none.
const USUAL_CONTENT_TYPE: &str = "application/json";

/// Headers that the HTTP client writes itself.
const RESERVED_HEADERS: [&str; 5] = ["connection", "content-length", "content-type", "host", "transfer-encoding"];

/// Where a secret is kept. It is read each time that it is needed, so it may be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Secret {
    /// In a file, such as a mounted Secret.
    File(PathBuf),
    /// In an environment variable.
    Env(String),
}

/// The value of a header.
#[derive(Clone, PartialEq, Eq)]
pub enum HeaderText {
    /// As written in the policy file.
    Plain(String),
    /// Kept elsewhere.
    Secret(Secret),
}

impl fmt::Debug for HeaderText {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // An operator may have put a token here all the same.
            Self::Plain(_) => out.write_str("Plain(..)"),
            Self::Secret(secret) => out.debug_tuple("Secret").field(secret).finish(),
        }
    }
}

/// A header that is sent along.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its name, a valid one.
    pub name: String,
    /// Its value.
    pub value: HeaderText,
}

/// How a notification is worded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Format {
    /// As a `CloudEvent` in JSON (<https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md>).
    CloudEvents,
    /// As a message for Slack, or for whatever understands such messages.
    Slack,
    /// As a card for a workflow of Microsoft Teams.
    Teams,
    /// As the operator words it.
    Template(Template),
}

/// Someone who is told, complete and valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receiver {
    /// Its name, unique; also the label of its metrics.
    pub name: String,
    /// How it is told.
    pub format: Format,
    /// The URL to which notifications are posted.
    pub url: Secret,
    /// Headers that are sent along.
    pub headers: Vec<Header>,
    /// What it is told.
    pub on: BTreeSet<Topic>,
    /// How long it may take to answer.
    pub timeout: Duration,
    /// The URL of the proxy through which it is reached; without one it is reached directly.
    pub proxy: Option<Secret>,
}

/// A receiver as it is written in a policy file.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ReceiverFile {
    /// Its name; also the label of its metrics.
    #[schemars(with = "String")]
    name: Spanned<String>,
    /// How it is told.
    #[schemars(with = "FormatWord")]
    format: Spanned<FormatWord>,
    #[schemars(skip)]
    url: Option<Spanned<IgnoredAny>>,
    /// The file with the URL to which messages are posted. It is read for each message.
    #[schemars(with = "Option<String>")]
    url_file: Option<Spanned<String>>,
    /// The environment variable with that URL, instead of a file.
    #[schemars(with = "Option<String>")]
    url_env: Option<Spanned<String>>,
    /// Headers that are sent along.
    #[serde(default)]
    headers: Vec<HeaderFile>,
    /// What it is told: `drain`, `blocked`, `failed` and `released` without it.
    #[schemars(with = "Option<Vec<Topic>>")]
    on: Option<Spanned<Vec<Topic>>>,
    /// How long it may take to answer, from 1s to 30s; 5s without it. It is tried six times at most.
    #[schemars(with = "Option<DurationText>")]
    timeout: Option<Spanned<DurationText>>,
    #[schemars(skip)]
    proxy: Option<Spanned<IgnoredAny>>,
    /// The file with the URL of the proxy through which it is reached; directly without it, whatever the environment says.
    #[schemars(with = "Option<String>")]
    proxy_file: Option<Spanned<String>>,
    /// The environment variable with that URL, instead of a file.
    #[schemars(with = "Option<String>")]
    proxy_env: Option<Spanned<String>>,
    /// What a template makes; `application/json` without it.
    #[schemars(with = "Option<String>")]
    content_type: Option<Spanned<String>>,
    /// The body, with `format: template`: text with `{{ id }}`, `{{ topic }}`, `{{ reason }}`, `{{ warning }}`, `{{ note }}`,
    /// `{{ at }}`, `{{ node }}` and `{{ event.type }}` and so on. In JSON a value is the inside of a string.
    #[schemars(with = "Option<String>")]
    template: Option<Spanned<String>>,
}

/// How a receiver is told.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
enum FormatWord {
    /// A `CloudEvent` in JSON.
    CloudEvents,
    /// A message for Slack.
    Slack,
    /// A card for a workflow of Microsoft Teams.
    Teams,
    /// As `template` says.
    Template,
}

/// A header that is sent along; its value is one of the three.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct HeaderFile {
    /// Its name.
    #[schemars(with = "String")]
    name: Spanned<String>,
    /// Its value, if it is no secret.
    #[schemars(with = "Option<String>")]
    value: Option<Spanned<String>>,
    /// The file with its value.
    #[schemars(with = "Option<String>")]
    value_file: Option<Spanned<String>>,
    /// The environment variable with its value.
    #[schemars(with = "Option<String>")]
    value_env: Option<Spanned<String>>,
}

/// Checks the receivers of a policy.
pub(crate) fn receivers(files: Vec<ReceiverFile>) -> Result<Vec<Receiver>, Mistake> {
    let mut names = BTreeSet::new();
    let mut all = Vec::with_capacity(files.len());
    for file in files {
        if !names.insert(file.name.value.clone()) {
            return Err(Mistake::at(&file.name, format!("two receivers are named `{}`: rename one", file.name.value)));
        }
        all.push(file.into_receiver()?);
    }
    Ok(all)
}

impl ReceiverFile {
    /// Checks what the types cannot express.
    fn into_receiver(self) -> Result<Receiver, Mistake> {
        let Self {
            name,
            format,
            url,
            url_file,
            url_env,
            headers,
            on,
            timeout,
            proxy,
            proxy_file,
            proxy_env,
            content_type,
            template,
        } = self;
        check_name("receiver", &name)?;
        refuse_plain(url.as_ref(), "url")?;
        refuse_plain(proxy.as_ref(), "proxy")?;
        let Some(url) = secret(("urlFile", url_file), ("urlEnv", url_env))? else {
            let message = "the receiver has no URL: write `urlFile` with the path of a file that holds it, or `urlEnv` with the \
                           name of an environment variable";
            return Err(Mistake::at(&name, message));
        };
        if let Some(on) = &on
            && on.value.is_empty()
        {
            return Err(Mistake::at(on, "the receiver would be told nothing: name a topic, or leave `on` out"));
        }
        if let Some(timeout) = &timeout
            && !(TIMEOUTS[0]..=TIMEOUTS[1]).contains(&timeout.value.0)
        {
            let [shortest, longest] = TIMEOUTS.map(spoken);
            return Err(Mistake::at(timeout, format!("a receiver is given from {shortest} to {longest} to answer")));
        }
        Ok(Receiver {
            name: name.value,
            format: into_format(&format, template, content_type)?,
            url,
            headers: headers.into_iter().map(HeaderFile::into_header).collect::<Result<_, _>>()?,
            on: on.map_or_else(|| USUAL_TOPICS.into(), |on| on.value.into_iter().collect()),
            timeout: timeout.map_or(USUAL_TIMEOUT, |timeout| timeout.value.0),
            proxy: secret(("proxyFile", proxy_file), ("proxyEnv", proxy_env))?,
        })
    }
}

fn into_format(
    format: &Spanned<FormatWord>,
    template: Option<Spanned<String>>,
    content_type: Option<Spanned<String>>,
) -> Result<Format, Mistake> {
    if format.value != FormatWord::Template {
        let only = |key: &str| format!("`{key}` is for `format: template`: leave it out, or change the format");
        if let Some(template) = &template {
            return Err(Mistake::at(template, only("template")));
        }
        if let Some(content_type) = &content_type {
            return Err(Mistake::at(content_type, only("contentType")));
        }
    }
    match format.value {
        FormatWord::CloudEvents => Ok(Format::CloudEvents),
        FormatWord::Slack => Ok(Format::Slack),
        FormatWord::Teams => Ok(Format::Teams),
        FormatWord::Template => {
            let Some(template) = template else {
                return Err(Mistake::at(format, "`format: template` needs a `template`"));
            };
            let content_type = match content_type {
                None => USUAL_CONTENT_TYPE.to_owned(),
                Some(written) if written.value.contains('/') && is_header_value(&written.value) => written.value,
                Some(written) => {
                    let message =
                        format!("`{}` is no content type: write one like {USUAL_CONTENT_TYPE}", written.value);
                    return Err(Mistake::at(&written, message));
                }
            };
            match Template::new(template.value.clone(), content_type) {
                Ok(checked) => Ok(Format::Template(checked)),
                Err(error) => Err(Mistake::at(&template, error.to_string())),
            }
        }
    }
}

impl HeaderFile {
    fn into_header(self) -> Result<Header, Mistake> {
        let Self { name, value, value_file, value_env } = self;
        let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if name.value.is_empty() || !name.value.bytes().all(token) {
            return Err(Mistake::at(&name, format!("`{}` is no name of a header", name.value)));
        }
        if RESERVED_HEADERS.iter().any(|reserved| name.value.eq_ignore_ascii_case(reserved)) {
            let message = format!("the header {} is written by remediator: leave it out", name.value);
            return Err(Mistake::at(&name, message));
        }
        let kept = secret(("valueFile", value_file), ("valueEnv", value_env))?;
        let value = match (value, kept) {
            (None, Some(kept)) => HeaderText::Secret(kept),
            (Some(plain), None) if is_header_value(&plain.value) => HeaderText::Plain(plain.value),
            (Some(plain), None) => {
                let message = format!("the value of {} must be one line of printable ASCII", name.value);
                return Err(Mistake::at(&plain, message));
            }
            (None, None) => {
                let message = format!("the header {} needs one of `value`, `valueFile` and `valueEnv`", name.value);
                return Err(Mistake::at(&name, message));
            }
            (Some(plain), Some(_)) => {
                let message = format!("the header {} has a value already: keep one of the two", name.value);
                return Err(Mistake::at(&plain, message));
            }
        };
        Ok(Header { name: name.value, value })
    }
}

/// Refuses a secret that stands in the file itself. It is not repeated, so that it does not reach a log as well.
fn refuse_plain(written: Option<&Spanned<IgnoredAny>>, key: &str) -> Result<(), Mistake> {
    let Some(written) = written else { return Ok(()) };
    let message = format!(
        "a URL of a receiver is a secret and does not belong in a policy: put it into a file or an environment variable, and \
         write `{key}File` or `{key}Env`; if this file has been shared, have the URL renewed"
    );
    Err(Mistake::at(written, message))
}

/// What is read from one of two places. A value that is none is not repeated: it may be the secret itself.
fn secret(
    (file_key, file): (&str, Option<Spanned<String>>),
    (env_key, env): (&str, Option<Spanned<String>>),
) -> Result<Option<Secret>, Mistake> {
    match (file, env) {
        (None, None) => Ok(None),
        (Some(_), Some(env)) => Err(Mistake::at(&env, format!("keep one of `{file_key}` and `{env_key}`"))),
        (Some(file), None) if file.value.starts_with('/') => Ok(Some(Secret::File(file.value.into()))),
        (Some(file), None) => Err(Mistake::at(&file, format!("`{file_key}` is the whole path of a file, from `/` on"))),
        (None, Some(env)) if is_variable(&env.value) => Ok(Some(Secret::Env(env.value))),
        (None, Some(env)) => {
            Err(Mistake::at(&env, format!("`{env_key}` is the name of an environment variable, like OPS_WEBHOOK_URL")))
        }
    }
}

fn is_variable(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !name.is_empty() && !name.as_bytes()[0].is_ascii_digit() && name.bytes().all(allowed)
}

fn is_header_value(text: &str) -> bool {
    text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic())
}
