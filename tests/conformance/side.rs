//! One API server under comparison, with a namespace of its own, and the requests that scripts make there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::{Output, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use control_plane::{ApiServer, Binaries, Kubectl, Kubelet, NAMESPACE_LABEL, Namespace, NodeSpec};
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use crate::transcript::{Recorded, Show, Transcript, is_age};

pub(crate) type Anything = Box<dyn std::error::Error + Send + Sync>;

/// How a script ends; an error means that it cannot go on.
pub(crate) type Outcome<T = ()> = Result<T, Anything>;

/// How long a controller may take on a busy machine.
const SOON: Duration = Duration::from_secs(30);

/// How long the controller may take that empties namespaces, which has those of all other tests to empty too.
const IN_THE_END: Duration = Duration::from_secs(90);

/// Between two looks at what a controller has to do.
const LOOK_AGAIN: Duration = Duration::from_millis(40);

/// An answer after more than this is slow, whatever the machine.
const SLOW: Duration = Duration::from_secs(5);

/// The headers of an answer that clients heed. A warning beside a failure tells nobody anything.
const HEADERS: [&str; 3] = ["content-type", "retry-after", "warning"];

/// An API server, and a place in it that belongs to one script.
#[derive(Clone)]
pub(crate) struct Side(Arc<Inner>);

struct Inner {
    api_server: ApiServer,
    client: Client,
    namespace: Namespace,
    transcript: Mutex<Transcript>,
    folder: TempDir,
}

/// How a patch is to be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchKind {
    Json,
    Merge,
    Strategic,
}

impl PatchKind {
    fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json-patch+json",
            Self::Merge => "application/merge-patch+json",
            Self::Strategic => "application/strategic-merge-patch+json",
        }
    }
}

impl Side {
    /// The namespace must have been made in that API server.
    pub(crate) fn new(api_server: &ApiServer, namespace: Namespace) -> Outcome<Self> {
        let mut transcript = Transcript::default();
        transcript.name(namespace.name(), "<ns>");
        Ok(Self(Arc::new(Inner {
            api_server: api_server.clone(),
            client: api_server.client()?,
            namespace,
            transcript: Mutex::new(transcript),
            folder: tempfile::tempdir()?,
        })))
    }

    fn transcript(&self) -> MutexGuard<'_, Transcript> {
        self.0.transcript.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was recorded; nothing is left.
    pub(crate) fn take_transcript(&self) -> Transcript {
        std::mem::take(&mut *self.transcript())
    }

    /// The namespace's name, with which names of objects outside of it begin.
    pub(crate) fn ns(&self) -> &str {
        self.0.namespace.name()
    }

    /// The path of the script's own objects of a core kind, as `pods` or `pods/a`.
    pub(crate) fn core(&self, rest: &str) -> String {
        format!("/api/v1/namespaces/{}/{rest}", self.ns())
    }

    /// The path of the script's own objects in a group, as `apps/v1` and `deployments`.
    pub(crate) fn group(&self, group: &str, rest: &str) -> String {
        format!("/apis/{group}/namespaces/{}/{rest}", self.ns())
    }

    pub(crate) fn pod_path(&self, name: &str) -> String {
        self.core(&format!("pods/{name}"))
    }

    pub(crate) fn budget_path(&self, name: &str) -> String {
        self.group("policy/v1", &format!("poddisruptionbudgets/{name}"))
    }

    pub(crate) fn node_name(&self, name: &str) -> String {
        format!("{}-{name}", self.ns())
    }

    pub(crate) fn node_path(&self, name: &str) -> String {
        format!("/api/v1/nodes/{}", self.node_name(name))
    }

    /// From now on a name that the server chose is shown as `placeholder`.
    pub(crate) fn name(&self, text: &str, placeholder: &str) {
        self.transcript().name(text, placeholder);
    }

    /// A request whose answer is recorded, and which is known to be answered with this code.
    pub(crate) fn ask(&self, code: u16, label: &str) -> Ask<'_> {
        Ask {
            side: self,
            label: label.to_owned(),
            code,
            show: Show::Metadata(Vec::new()),
            headers: BTreeMap::from([("accept", "application/json".to_owned())]),
            timed: false,
        }
    }

    /// Records what a script found out by itself.
    pub(crate) fn fact(&self, label: &str, fact: impl Into<Value>) {
        let mut transcript = self.transcript();
        let place = transcript.open(label, "(fact)".to_owned(), None);
        transcript.close(place, Recorded { code: None, head: Vec::new(), body: json!({"fact": fact.into()}) });
    }

    /// Records whether something is so that is known to be, such as that two versions are the same.
    pub(crate) fn holds(&self, label: &str, is_so: bool) {
        let mut transcript = self.transcript();
        let place = transcript.open(label, "(fact)".to_owned(), None);
        transcript.close(place, Recorded { code: None, head: Vec::new(), body: json!({"holds": is_so}) });
        transcript.pin(place, json!({"holds": true}));
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &BTreeMap<&'static str, String>,
        body: Vec<u8>,
    ) -> Outcome<Response<Body>> {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        Ok(self.0.client.send(request.body(Body::from(body))?).await?)
    }

    /// A request that only prepares something: it is not recorded and must succeed.
    pub(crate) async fn make(&self, method: Method, path: &str, body: &Value) -> Outcome<Value> {
        let content_type =
            if method == Method::PATCH { PatchKind::Strategic.content_type() } else { "application/json" };
        let headers = BTreeMap::from([("content-type", content_type.to_owned())]);
        let bytes = if body.is_null() { Vec::new() } else { serde_json::to_vec(body)? };
        let answer = self.send(method.clone(), path, &headers, bytes).await?;
        let code = answer.status();
        let text = answer.into_body().collect_bytes().await?;
        let value: Value = serde_json::from_slice(&text).unwrap_or_default();
        if code.is_success() { Ok(value) } else { Err(format!("{method} {path}: {code} {value}").into()) }
    }

    pub(crate) async fn create(&self, path: &str, body: &Value) -> Outcome<Value> {
        self.make(Method::POST, path, body).await
    }

    /// Strategic merge.
    pub(crate) async fn change(&self, path: &str, body: &Value) -> Outcome<Value> {
        self.make(Method::PATCH, path, body).await
    }

    pub(crate) async fn read(&self, path: &str) -> Outcome<Value> {
        self.make(Method::GET, path, &Value::Null).await
    }

    /// Waits until what is at `path` is as described, and returns it. Null stands for nothing there.
    pub(crate) async fn until(&self, goal: &str, path: &str, is_so: impl Fn(&Value) -> bool) -> Outcome<Value> {
        self.until_within(SOON, goal, path, is_so).await
    }

    pub(crate) async fn until_gone(&self, path: &str) -> Outcome {
        self.until_within(IN_THE_END, "gone", path, Value::is_null).await.map(drop)
    }

    /// What is at `path`, or null.
    async fn look(&self, path: &str) -> Outcome<Value> {
        let answer = self.send(Method::GET, path, &BTreeMap::new(), Vec::new()).await?;
        match answer.status().as_u16() {
            200 => Ok(serde_json::from_slice(&answer.into_body().collect_bytes().await?)?),
            404 => Ok(Value::Null),
            code => Err(format!("GET {path}: {code}").into()),
        }
    }

    /// The same within another time than what is usual.
    pub(crate) async fn until_within(
        &self,
        limit: Duration,
        goal: &str,
        path: &str,
        is_so: impl Fn(&Value) -> bool,
    ) -> Outcome<Value> {
        let mut last = Value::Null;
        let waited = timeout(limit, async {
            loop {
                match self.look(path).await {
                    Ok(found) => last = found,
                    Err(error) => last = Value::String(error.to_string()),
                }
                if is_so(&last) {
                    return;
                }
                sleep(LOOK_AGAIN).await;
            }
        });
        if waited.await.is_ok() {
            return Ok(last);
        }
        if let Some(metadata) = last.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        Err(format!("{goal}: not so within {limit:?}; last seen: {last}").into())
    }

    /// A Ready node without a kubelet, with nothing else coming to it.
    pub(crate) async fn node(&self, name: &str) -> Outcome<Value> {
        self.create("/api/v1/nodes", &self.node_object(name)).await?;
        let path = self.node_path(name);
        self.change(&format!("{path}/status"), &json!({"status": ready_node_status()})).await?;
        let is_untainted = |node: &Value| node["metadata"].is_object() && node["spec"]["taints"].is_null();
        self.until("the new node has no taints", &path, is_untainted).await
    }

    pub(crate) fn node_object(&self, name: &str) -> Value {
        let name = self.node_name(name);
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {NAMESPACE_LABEL: self.ns(), "kubernetes.io/hostname": name},
                // As the TTL controller would set it later.
                "annotations": {"node.alpha.kubernetes.io/ttl": "0"},
            },
        })
    }

    /// A node with a fake kubelet, which plays its pods.
    pub(crate) async fn kubelet(&self, name: &str) -> Outcome<Kubelet> {
        let node = NodeSpec::new(&self.node_name(name))
            .label(NAMESPACE_LABEL, self.ns())
            // The nodes of other scripts are not to set the pace at which these are tainted.
            .label("topology.kubernetes.io/zone", self.ns())
            .annotation("node.alpha.kubernetes.io/ttl", "0");
        let kubelet = Kubelet::start(&self.0.client, node).await?;
        let is_untainted = |node: &Value| node["metadata"].is_object() && node["spec"]["taints"].is_null();
        self.until("the new node has no taints", &self.node_path(name), is_untainted).await?;
        Ok(kubelet)
    }

    /// A pod with the label `app`, on a node; without one it is nobody's to schedule.
    pub(crate) fn pod_object(&self, name: &str, app: &str, node: Option<&str>) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": {"app": app}},
            "spec": {
                "containers": [{"name": "main", "image": "example.com/nothing:1"}],
                "nodeName": node.map(|node| self.node_name(node)),
                "schedulerName": if node.is_some() { "default-scheduler" } else { "nobody" },
            },
        })
    }

    /// A pod on the node, Pending.
    pub(crate) async fn pending_pod(&self, name: &str, app: &str, node: &str) -> Outcome<Value> {
        self.create(&self.core("pods"), &self.pod_object(name, app, Some(node))).await
    }

    /// A pod on the node, Running and Ready. Returns its UID.
    pub(crate) async fn running_pod(&self, name: &str, app: &str, node: &str) -> Outcome<String> {
        self.pending_pod(name, app, node).await?;
        let pod = self.change(&self.core(&format!("pods/{name}/status")), &running_status(true)).await?;
        Ok(text(&pod, "/metadata/uid"))
    }

    /// A budget for the pods of `app`, with a status that counts this many healthy pods and allows this many
    /// disruptions.
    pub(crate) async fn budget(&self, name: &str, app: &str, spec: Value, healthy: i64, allowed: i64) -> Outcome {
        self.create(&self.group("policy/v1", "poddisruptionbudgets"), &budget_object(name, app, spec)).await?;
        self.until_counted(name, healthy, allowed).await
    }

    /// Waits until the controller has seen all that was done to the pods of a budget.
    pub(crate) async fn until_counted(&self, budget: &str, healthy: i64, allowed: i64) -> Outcome {
        let goal = format!("{budget} counts {healthy} and allows {allowed}");
        let is_so = |budget: &Value| {
            let status = &budget["status"];
            status["currentHealthy"] == healthy
                && status["disruptionsAllowed"] == allowed
                && status["observedGeneration"] == budget["metadata"]["generation"]
                && status["disruptedPods"].as_object().is_none_or(serde_json::Map::is_empty)
        };
        self.until(&goal, &self.budget_path(budget), is_so).await.map(drop)
    }

    /// Runs kubectl and records how it ended and what it printed, without the ages of things.
    pub(crate) async fn kubectl(&self, code: u16, label: &str, arguments: &[&str]) -> Outcome {
        self.recorded_kubectl(code, label, arguments, |text| text).await
    }

    /// The same where kubectl does several things at a time and tells of each when it is done: lines, and parts of
    /// lines, are sorted, and what is said more than once is shown once.
    pub(crate) async fn kubectl_sorted(&self, code: u16, label: &str, arguments: &[&str]) -> Outcome {
        let sorted = |text: String| {
            let text = text.replace("Warning: ", "");
            let parts: BTreeSet<&str> = text.split(['\n', ';', ',', '[', ']']).map(str::trim).collect();
            parts.into_iter().collect::<Vec<_>>().join("\n")
        };
        self.recorded_kubectl(code, label, arguments, sorted).await
    }

    async fn recorded_kubectl(
        &self,
        code: u16,
        label: &str,
        arguments: &[&str],
        in_order: impl Fn(String) -> String,
    ) -> Outcome {
        let place = self.transcript().open(label, format!("kubectl {}", arguments.join(" ")), Some(code));
        let output = self.run_kubectl(arguments).await?;
        let printed = |bytes: &[u8]| in_order(columns(&String::from_utf8_lossy(bytes)));
        let head = vec![("stderr".to_owned(), printed(&output.stderr))];
        let code = output.status.code().and_then(|code| u16::try_from(code).ok());
        self.transcript().close(place, Recorded { code, head, body: json!(printed(&output.stdout)) });
        Ok(())
    }

    /// Runs kubectl, which must succeed, and returns what it printed, for a script that records a part of it.
    pub(crate) async fn kubectl_unseen(&self, arguments: &[&str]) -> Outcome<String> {
        let output = self.run_kubectl(arguments).await?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            return Err(format!("kubectl {}: {stderr}", arguments.join(" ")).into());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Starts a kubectl that goes on by itself, and ends when what is returned is dropped.
    pub(crate) async fn kubectl_follows(&self, arguments: &[&str]) -> Outcome<Follower> {
        let mut child = self.kubectl_command(arguments).await?.stdout(Stdio::piped()).spawn()?;
        let printed = child.stdout.take().ok_or("kubectl prints nothing")?.into_owned_fd()?;
        let (sender, lines) = mpsc::unbounded_channel();
        // It ends with kubectl.
        tokio::task::spawn_blocking(move || {
            BufReader::new(File::from(printed)).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Ok(Follower { side: self.clone(), lines, _child: child })
    }

    /// A file for kubectl to read, shown by its name alone. Returns its path.
    pub(crate) fn file(&self, name: &str, content: &Value) -> Outcome<String> {
        let path = self.0.folder.path().join(name);
        std::fs::write(&path, content.to_string())?;
        let path = path.display().to_string();
        self.name(&path, &format!("<{name}>"));
        Ok(path)
    }

    async fn run_kubectl(&self, arguments: &[&str]) -> Outcome<Output> {
        Ok(self.kubectl_command(arguments).await?.output().await?)
    }

    async fn kubectl_command(&self, arguments: &[&str]) -> Outcome<Command> {
        let kubeconfig = self.0.folder.path().join("kubeconfig");
        if !kubeconfig.exists() {
            self.0.api_server.write_kubeconfig(&kubeconfig)?;
        }
        let binaries = tokio::task::spawn_blocking(Binaries::find_or_build).await??;
        let mut command = Kubectl::new(&binaries, &kubeconfig).command(arguments);
        command.args(["--namespace", self.ns()]).env("KUBECACHEDIR", self.0.folder.path().join("cache"));
        Ok(command)
    }
}

/// A kubectl that prints as things happen.
pub(crate) struct Follower {
    side: Side,
    lines: mpsc::UnboundedReceiver<String>,
    /// Killed on drop.
    _child: Child,
}

impl Follower {
    /// Reads so many lines and records them, without the ages of things.
    pub(crate) async fn lines(&mut self, label: &str, count: usize) -> Outcome {
        let mut lines = Vec::new();
        let read = timeout(SOON, async {
            while lines.len() < count {
                let Some(line) = self.lines.recv().await else { return };
                lines.push(columns(&line));
            }
        });
        let is_late = read.await.is_err();
        if lines.len() < count {
            let why = if is_late { format!("within {SOON:?}") } else { "before kubectl ended".to_owned() };
            return Err(format!("{label}: not {count} lines {why}: {lines:?}").into());
        }
        self.side.fact(label, lines);
        Ok(())
    }
}

/// The text with one width for all columns, and without ages such as `5m3s`.
pub(crate) fn columns(text: &str) -> String {
    let line = |line: &str| {
        let indent: String = line.chars().take_while(|one| *one == ' ').collect();
        let words: Vec<&str> = line.split_whitespace().map(|word| if is_age(word) { "<age>" } else { word }).collect();
        indent + &words.join(" ")
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// The status of a node of which all is well.
pub(crate) fn ready_node_status() -> Value {
    let resources = json!({"cpu": "4", "memory": "16Gi", "pods": "110"});
    json!({
        "capacity": resources,
        "allocatable": resources,
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status",
            "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z",
        }],
        "nodeInfo": {
            "architecture": "amd64", "bootID": "boot-1", "containerRuntimeVersion": "containerd://2.1.4",
            "kernelVersion": "6.6.0", "kubeProxyVersion": "", "kubeletVersion": "v1.36.3", "machineID": "machine",
            "operatingSystem": "linux", "osImage": "AzureLinux 3.0", "systemUUID": "system",
        },
    })
}

/// The status of a pod that runs.
pub(crate) fn running_status(ready: bool) -> Value {
    let truth = if ready { "True" } else { "False" };
    json!({"status": {
        "phase": "Running",
        "podIP": "10.1.2.3",
        "podIPs": [{"ip": "10.1.2.3"}],
        "startTime": "2026-01-01T00:00:00Z",
        "conditions": [{"type": "Ready", "status": truth, "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        "containerStatuses": [{
            "name": "main", "image": "example.com/nothing:1", "imageID": "", "ready": ready, "restartCount": 0,
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
        }],
    }})
}

pub(crate) fn budget_object(name: &str, app: &str, mut spec: Value) -> Value {
    spec["selector"] = json!({"matchLabels": {"app": app}});
    json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": spec,
    })
}

/// The text that a JSON pointer finds, or none.
pub(crate) fn text(value: &Value, pointer: &str) -> String {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// A request that is about to be made.
pub(crate) struct Ask<'a> {
    side: &'a Side,
    label: String,
    code: u16,
    show: Show,
    headers: BTreeMap<&'static str, String>,
    timed: bool,
}

impl Ask<'_> {
    /// Compares what these JSON pointers find, besides type and metadata.
    pub(crate) fn showing(mut self, pointers: &[&str]) -> Self {
        self.show = Show::Metadata(pointers.iter().map(|&pointer| pointer.to_owned()).collect());
        self
    }

    /// Compares what these JSON pointers find, and no more.
    pub(crate) fn only(mut self, pointers: &[&str]) -> Self {
        self.show = Show::Only(pointers.iter().map(|&pointer| pointer.to_owned()).collect());
        self
    }

    /// Compares the whole body.
    pub(crate) fn whole(mut self) -> Self {
        self.show = Show::Everything;
        self
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.insert(name, value.to_owned());
        self
    }

    /// Records whether the answer took its time.
    pub(crate) fn timed(mut self) -> Self {
        self.timed = true;
        self
    }

    pub(crate) async fn get(self, path: &str) -> Outcome<Answer> {
        self.exchange(Method::GET, path, Vec::new()).await
    }

    pub(crate) async fn post(self, path: &str, body: &Value) -> Outcome<Answer> {
        self.with_body(Method::POST, path, body).await
    }

    pub(crate) async fn put(self, path: &str, body: &Value) -> Outcome<Answer> {
        self.with_body(Method::PUT, path, body).await
    }

    pub(crate) async fn patch(self, kind: PatchKind, path: &str, body: &Value) -> Outcome<Answer> {
        self.header("content-type", kind.content_type()).with_body(Method::PATCH, path, body).await
    }

    /// A deletion; null for one without options.
    pub(crate) async fn delete(self, path: &str, options: &Value) -> Outcome<Answer> {
        if options.is_null() {
            return self.exchange(Method::DELETE, path, Vec::new()).await;
        }
        self.with_body(Method::DELETE, path, options).await
    }

    async fn with_body(mut self, method: Method, path: &str, body: &Value) -> Outcome<Answer> {
        self.headers.entry("content-type").or_insert_with(|| "application/json".to_owned());
        self.exchange(method, path, serde_json::to_vec(body)?).await
    }

    /// A request with any method and bytes.
    pub(crate) async fn exchange(self, method: Method, path: &str, body: Vec<u8>) -> Outcome<Answer> {
        let Self { side, label, code, show, headers, timed } = self;
        let place = side.transcript().open(&label, format!("{method} {path}"), Some(code));
        let stopwatch = Stopwatch::start();
        let answered = timeout(SOON, async {
            let (parts, body) = side.send(method, path, &headers, body).await?.into_parts();
            Outcome::Ok((parts, body.collect_bytes().await?))
        });
        let (parts, bytes) = answered.await.map_err(|_| format!("{label}: no answer within {SOON:?}"))??;
        let mut head = recorded_headers(&parts);
        if timed {
            head.push(("slow".to_owned(), (stopwatch.elapsed() > SLOW).to_string()));
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let body: Value = serde_json::from_slice(&bytes).unwrap_or(Value::String(text));
        let answered = parts.status.as_u16();
        let recorded = Recorded { code: Some(answered), head, body: show.of(&body, answered == code) };
        side.transcript().close(place, recorded);
        Ok(Answer { side: side.clone(), place, body })
    }

    /// Opens a watch. A refusal is recorded here, events where they are read.
    pub(crate) async fn watch(self, path: &str) -> Outcome<Watch> {
        let Self { side, label, code, show, headers, timed: _ } = self;
        let place = side.transcript().open(&label, format!("WATCH {path}"), Some(code));
        let answer = side.send(Method::GET, path, &headers, Vec::new()).await?;
        let (parts, body) = answer.into_parts();
        let head = recorded_headers(&parts);
        let (refusal, events) = if parts.status.is_success() {
            (Value::Null, Some(body))
        } else {
            let bytes = body.collect_bytes().await?;
            (serde_json::from_slice(&bytes).unwrap_or_default(), None)
        };
        let recorded = Recorded { code: Some(parts.status.as_u16()), head, body: refusal };
        side.transcript().close(place, recorded);
        Ok(Watch { side: side.clone(), show, body: events, buffer: Vec::new() })
    }
}

fn recorded_headers(parts: &http::response::Parts) -> Vec<(String, String)> {
    let is_told = |name: &&&str| **name != "warning" || parts.status.is_success();
    let value = |name: &&str| {
        let value = parts.headers.get(*name)?;
        Some(((*name).to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
    };
    HEADERS.iter().filter(is_told).filter_map(value).collect()
}

/// An answer as it came.
pub(crate) struct Answer {
    side: Side,
    place: usize,
    pub(crate) body: Value,
}

impl Answer {
    /// What the recorded part of this answer is known to hold. Arrays are given whole, objects in part.
    pub(crate) fn pin(self, known: Value) -> Self {
        self.side.transcript().pin(self.place, known);
        self
    }

    pub(crate) fn text(&self, pointer: &str) -> String {
        text(&self.body, pointer)
    }

    pub(crate) fn version(&self) -> String {
        self.text("/metadata/resourceVersion")
    }
}

/// An open watch.
pub(crate) struct Watch {
    side: Side,
    show: Show,
    body: Option<Body>,
    buffer: Vec<u8>,
}

impl Watch {
    /// Reads so many events, bookmarks not counted, and records them.
    pub(crate) async fn events(&mut self, label: &str, count: usize) -> Outcome<Vec<Value>> {
        let events = timeout(SOON, async {
            let mut events = Vec::new();
            while events.len() < count {
                match self.next().await? {
                    Some(event) if event["type"] == "BOOKMARK" => {}
                    Some(event) => events.push(event),
                    None => break,
                }
            }
            Outcome::Ok(events)
        });
        let events = events.await.map_err(|_| format!("{label}: not {count} events within {SOON:?}"))??;
        self.record(label, &events);
        Ok(events)
    }

    /// Reads all events until the server ends the watch, and records them. Of the bookmarks only that at the end of the
    /// initial events is recorded: the others come as often as the server likes.
    pub(crate) async fn rest(&mut self, label: &str) -> Outcome<Vec<Value>> {
        let events = timeout(SOON, async {
            let mut events = Vec::new();
            while let Some(event) = self.next().await? {
                if event["type"] != "BOOKMARK" || event["object"]["metadata"]["annotations"].is_object() {
                    events.push(event);
                }
            }
            Outcome::Ok(events)
        });
        let events = events.await.map_err(|_| format!("{label}: the watch did not end within {SOON:?}"))??;
        self.record(label, &events);
        Ok(events)
    }

    fn record(&self, label: &str, events: &[Value]) {
        let shown: Vec<Value> = events
            .iter()
            .map(|event| json!({"type": event["type"], "object": self.show.of(&event["object"], false)}))
            .collect();
        let mut transcript = self.side.transcript();
        let place = transcript.open(label, "(events)".to_owned(), Some(200));
        transcript.close(place, Recorded { code: Some(200), head: Vec::new(), body: json!(shown) });
    }

    async fn next(&mut self) -> Outcome<Option<Value>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Ok(Some(serde_json::from_slice(&line)?));
            }
            let Some(body) = &mut self.body else { return Ok(None) };
            match body.frame().await {
                None => return Ok(None),
                Some(frame) => self.buffer.extend(frame?.into_data().unwrap_or_default()),
            }
        }
    }
}

/// How long something takes on the wall.
struct Stopwatch(Instant);

impl Stopwatch {
    #[allow(clippy::disallowed_methods, reason = "the servers under comparison run by the real clock")]
    fn start() -> Self {
        Self(Instant::now())
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}
