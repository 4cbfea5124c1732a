//! What clients asked of the API server and when, as the server itself tells it: its audit log
//! (<https://kubernetes.io/docs/tasks/debug/debug-cluster/audit/>).

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

/// A policy by which the API server logs every request of these users and no other; writes of nodes with their bodies.
pub fn audit_policy_of_users(users: &[&str]) -> Value {
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {
                "level": "Request",
                "users": users,
                "verbs": ["create", "update", "patch"],
                "resources": [{"group": "", "resources": ["nodes", "nodes/status"]}],
            },
            {"level": "Metadata", "users": users},
            {"level": "None"},
        ],
    })
}

/// A request that the API server has answered or, if it is a watch, has begun to answer.
#[derive(Clone, Debug)]
pub struct AuditedRequest {
    /// Who asked.
    pub user: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch` or `delete`.
    pub verb: String,
    /// As roles name it: `pods`, `pods/eviction`. Empty for what is no resource, such as `/readyz`.
    pub resource: String,
    /// The namespace, empty if there is none.
    pub namespace: String,
    /// The object's name, empty for lists and the like.
    pub name: String,
    /// The status of the answer.
    pub code: u16,
    /// What was sent, if the policy says that it is logged.
    pub body: Option<Value>,
    /// When it had come in, by the server's wall clock.
    pub received: Timestamp,
    /// When its answer was complete; of a watch, when that had begun.
    pub answered: Timestamp,
}

impl AuditedRequest {
    /// Whether it is this verb on this resource, and was answered with a success.
    pub fn did(&self, verb: &str, resource: &str) -> bool {
        self.verb == verb && self.resource == resource && (200..300).contains(&self.code)
    }
}

/// Reads the audit log of a control plane from its beginning on.
#[derive(Debug)]
pub struct AuditLog {
    path: PathBuf,
    position: u64,
    /// Watches that are logged once more when they end.
    begun: BTreeSet<String>,
}

impl AuditLog {
    pub(crate) fn at(path: &Path) -> Self {
        Self { path: path.to_path_buf(), position: 0, begun: BTreeSet::new() }
    }

    /// The requests that were logged since this was last asked, in the order of their answers. The server logs a request
    /// at about the moment at which its client has the answer.
    pub fn take(&mut self) -> io::Result<Vec<AuditedRequest>> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.position))?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        // The last line may be half written.
        let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        self.position += u64::try_from(whole).map_err(io::Error::other)?;
        let lines = text[..whole].split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
        let events = lines.map(serde_json::from_slice).collect::<Result<Vec<Event>, _>>()?;
        Ok(events.into_iter().filter_map(|event| self.first_word(event)).collect())
    }

    /// The request, unless it has been told of before.
    fn first_word(&mut self, event: Event) -> Option<AuditedRequest> {
        let Event { id, stage, verb, user, object, response, body, received, stage_at } = event;
        if stage == "ResponseStarted" {
            self.begun.insert(id);
        } else if self.begun.remove(&id) {
            return None;
        }
        let Object { resource, subresource, namespace, name } = object;
        let slash = if subresource.is_empty() { "" } else { "/" };
        Some(AuditedRequest {
            user: user.username,
            verb,
            resource: format!("{resource}{slash}{subresource}"),
            namespace,
            name,
            code: response.code,
            body,
            received,
            answered: stage_at,
        })
    }
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "auditID")]
    id: String,
    stage: String,
    verb: String,
    user: UserInfo,
    #[serde(rename = "objectRef", default)]
    object: Object,
    #[serde(rename = "responseStatus", default)]
    response: Response,
    #[serde(rename = "requestObject")]
    body: Option<Value>,
    #[serde(rename = "requestReceivedTimestamp")]
    received: Timestamp,
    #[serde(rename = "stageTimestamp")]
    stage_at: Timestamp,
}

#[derive(Deserialize)]
struct UserInfo {
    username: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Object {
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Response {
    code: u16,
}
