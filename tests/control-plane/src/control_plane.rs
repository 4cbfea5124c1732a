//! The processes of a control plane and their common folder.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::{Request, Uri};
use kube::Client;
use pem::Pem;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::Value;
use tempfile::TempDir;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

use crate::api_server::{ApiServer, write_secret};
use crate::audit::AuditLog;
use crate::binaries::{Binaries, Unavailable};
use crate::clock;
use crate::component::Component;
use crate::kubectl::Kubectl;
use crate::random;

/// How long a component may take to get ready. An idle machine needs 3 s; a busy one with two cores much longer.
const START_LIMIT: Duration = Duration::from_secs(90);

/// How often a start is repeated when another process took a port between choosing and using it.
const START_ATTEMPTS: usize = 3;

/// Between two looks at a process that cannot tell by itself that it is ready.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Why a control plane did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There are no programs to start.
    #[error("no control plane on this machine: {0}")]
    Unavailable(#[from] Unavailable),
    /// A file or process could not be made.
    #[error("cannot prepare the control plane: {0}")]
    Prepare(#[from] io::Error),
    /// The client for the new API server could not be made.
    #[error("cannot make a client for the API server: {0}")]
    Client(#[from] kube::Error),
    /// A component ended, or was not ready in time.
    #[error("{what}; the last lines of each log:\n{logs}")]
    NotReady {
        /// What was waited for, and how that ended.
        what: String,
        /// The tails of all logs.
        logs: String,
    },
}

impl StartError {
    fn is_lost_race_for_a_port(&self) -> bool {
        matches!(self, Self::NotReady { logs, .. } if logs.contains("address already in use"))
    }
}

/// A user that the API server knows by a bearer token. Without groups it may do what RBAC gives to its name.
#[derive(Clone, Debug)]
pub struct User {
    name: String,
    groups: Vec<String>,
    token: String,
}

impl User {
    /// A user with a random token.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), groups: Vec::new(), token: random::token() }
    }

    /// Makes the user a member of a group; `system:masters` may do everything.
    #[must_use]
    pub fn in_group(mut self, group: &str) -> Self {
        self.groups.push(group.to_owned());
        self
    }

    /// The user's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The user's bearer token.
    pub fn token(&self) -> &str {
        &self.token
    }

    fn token_file_line(&self) -> String {
        let Self { name, groups, token } = self;
        format!("{token},{name},{name},\"{}\"\n", groups.join(","))
    }
}

/// How a control plane is started.
#[derive(Clone, Debug)]
pub struct Options {
    /// Port of the API server on 127.0.0.1; a free one if not given.
    pub port: Option<u16>,
    /// Users besides the administrator.
    pub users: Vec<User>,
    /// How long a node may stay silent before it becomes Unknown. Kubernetes' own default is 50 s; the controller
    /// manager looks every 5 s, or every fifth of a shorter period.
    pub node_monitor_grace_period: Duration,
    /// Whether the controller manager and the scheduler run too.
    pub controllers: bool,
    /// Which requests the API server logs, for [`ControlPlane::audit_log`]; it keeps no log if not given. See
    /// [`crate::audit_policy_of_users`].
    pub audit_policy: Option<Value>,
    /// More arguments for the API server.
    pub api_server_arguments: Vec<String>,
    /// More arguments for the controller manager.
    pub controller_manager_arguments: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            port: None,
            users: Vec::new(),
            node_monitor_grace_period: Duration::from_secs(50),
            controllers: true,
            audit_policy: None,
            api_server_arguments: Vec::new(),
            controller_manager_arguments: Vec::new(),
        }
    }
}

/// A running control plane with a data folder of its own. Dropping it ends its processes and deletes the folder; if
/// this process is killed instead, its processes end as well.
#[derive(Debug)]
pub struct ControlPlane {
    // Dropped in this order: first the processes, those that call before those that are called, then their files.
    controllers: Mutex<Vec<Component>>,
    api_server_process: Mutex<Option<Component>>,
    etcd: Mutex<Component>,
    api_server_arguments: Vec<OsString>,
    audit_log: Option<PathBuf>,
    api_server: ApiServer,
    binaries: Binaries,
    folder: TempDir,
}

impl ControlPlane {
    /// Starts all components and waits until the API server is ready. Builds the programs first if there are none.
    pub async fn start(options: Options) -> Result<Self, StartError> {
        let binaries = spawn_blocking(Binaries::find_or_build).await.map_err(io::Error::other)??;
        let mut attempt = 1;
        loop {
            match Self::start_once(&binaries, &options).await {
                // A port that the caller chose stays taken.
                Err(error) if options.port.is_none() && attempt < START_ATTEMPTS && error.is_lost_race_for_a_port() => {
                    attempt += 1;
                }
                result => return result,
            }
        }
    }

    async fn start_once(binaries: &Binaries, options: &Options) -> Result<Self, StartError> {
        let Options {
            port,
            users,
            node_monitor_grace_period,
            controllers,
            audit_policy,
            api_server_arguments,
            controller_manager_arguments,
        } = options;
        let deadline = clock::now() + START_LIMIT;
        let folder = tempfile::Builder::new().prefix("control-plane-").tempdir()?;
        let path = |name: &str| folder.path().join(name);
        let log = |name: &str| path(&format!("{name}.log"));

        let [etcd_port, etcd_peer_port, free_port] = free_ports()?;
        let url: Uri = loopback("https", port.unwrap_or(free_port))?;
        let etcd_url = format!("http://127.0.0.1:{etcd_port}");
        let mut etcd =
            Component::start(binaries, "etcd", &etcd_arguments(&path("etcd"), &etcd_url, etcd_peer_port), log("etcd"))?;

        let administrator = User::new("administrator").in_group("system:masters");
        let token_file: String = users.iter().chain([&administrator]).map(User::token_file_line).collect();
        write_secret(&path("tokens.csv"), token_file.as_bytes())?;
        write_service_account_keys(folder.path())?;
        let mut arguments = start_arguments_of_api_server(folder.path(), &etcd_url, &url);
        let audit_log = audit_policy.as_ref().map(|_| path("audit.log"));
        if let Some((policy, log)) = audit_policy.as_ref().zip(audit_log.as_ref()) {
            let policy_file = path("audit-policy.json");
            fs::write(&policy_file, policy.to_string())?;
            arguments.push(with_path("--audit-policy-file=", &policy_file));
            arguments.push(with_path("--audit-log-path=", log));
        }
        arguments.extend(api_server_arguments.iter().map(OsString::from));
        // It waits for etcd by itself, as the others wait for it: all start at the same time.
        let mut api_server_process = Component::start(binaries, "kube-apiserver", &arguments, log("kube-apiserver"))?;

        let certificate = path("certificates/apiserver.crt");
        let api_server = loop {
            if let Ok(api_server) = ApiServer::with_authority(url.clone(), &certificate) {
                break api_server.with_token(administrator.token());
            }
            let components = &mut [&mut etcd, &mut api_server_process];
            look_again("the API server's certificate", deadline, components).await?;
        };
        api_server.write_kubeconfig(&path("kubeconfig"))?;

        let mut callers = Vec::new();
        if *controllers {
            let mut arguments = controller_manager_start_arguments(folder.path(), *node_monitor_grace_period);
            arguments.extend(controller_manager_arguments.iter().map(OsString::from));
            let name = "kube-controller-manager";
            callers.push(Component::start(binaries, name, &arguments, log(name))?);
            let name = "kube-scheduler";
            let arguments = scheduler_arguments(folder.path());
            callers.push(Component::start(binaries, name, &arguments, log(name))?);
        }

        let client = api_server.client()?;
        while !is_ready(&client).await {
            let mut components = vec![&mut etcd, &mut api_server_process];
            components.extend(callers.iter_mut());
            look_again("the API server", deadline, &mut components).await?;
        }
        Ok(Self {
            controllers: Mutex::new(callers),
            api_server_process: Mutex::new(Some(api_server_process)),
            etcd: Mutex::new(etcd),
            api_server_arguments: arguments,
            audit_log,
            api_server,
            binaries: binaries.clone(),
            folder,
        })
    }

    /// The API server, for the administrator.
    pub fn api_server(&self) -> &ApiServer {
        &self.api_server
    }

    /// A new client of the administrator; see [`ApiServer::client`].
    pub fn client(&self) -> Result<Client, kube::Error> {
        self.api_server.client()
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// The API server's audit log from its beginning on, if the control plane was started with an audit policy.
    pub fn audit_log(&self) -> Option<AuditLog> {
        self.audit_log.as_deref().map(AuditLog::at)
    }

    /// Runs kubectl as the administrator.
    pub fn kubectl(&self) -> Kubectl {
        Kubectl::new(&self.binaries, &self.kubeconfig())
    }

    /// Kills the API server. Clients see closed connections and then refused ones. What it stored stays.
    pub fn stop_api_server(&self) {
        lock(&self.api_server_process).take();
    }

    /// Starts the API server again, on the same port, and waits until it is ready.
    pub async fn start_api_server(&self) -> Result<(), StartError> {
        let name = "kube-apiserver";
        let deadline = clock::now() + START_LIMIT;
        let log = self.folder.path().join("kube-apiserver.log");
        let mut process = Component::start(&self.binaries, name, &self.api_server_arguments, log)?;
        let client = self.api_server.client()?;
        while !is_ready(&client).await {
            look_again("the API server", deadline, &mut [&mut process]).await?;
        }
        *lock(&self.api_server_process) = Some(process);
        Ok(())
    }

    /// The last lines of every component's log.
    pub fn log_tails(&self) -> String {
        let mut tails = vec![tail(&lock(&self.etcd))];
        tails.extend(lock(&self.api_server_process).as_ref().map(tail));
        tails.extend(lock(&self.controllers).iter().map(tail));
        tails.join("\n")
    }
}

/// A panic elsewhere does not make the processes behind the lock wrong.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn tail(component: &Component) -> String {
    format!("--- {}\n{}", component.name(), component.log_tail())
}

/// Waits a moment, unless one of the components has ended or the time is over.
async fn look_again(goal: &str, deadline: Instant, components: &mut [&mut Component]) -> Result<(), StartError> {
    let ended = components.iter_mut().find_map(|component| (!component.is_running()).then(|| component.name()));
    let what = match ended {
        Some(name) => format!("{name} ended while {goal} was awaited"),
        None if clock::now() > deadline => format!("{goal} was not ready within {} s", START_LIMIT.as_secs()),
        None => {
            sleep(LOOK_AGAIN).await;
            return Ok(());
        }
    };
    let logs: Vec<String> = components.iter().map(|component| tail(component)).collect();
    Err(StartError::NotReady { what, logs: logs.join("\n") })
}

/// Whether the API server says so itself; any failure means "not yet".
async fn is_ready(client: &Client) -> bool {
    let Ok(request) = Request::get("/readyz").body(Vec::new()) else { return false };
    client.request_text(request).await.is_ok()
}

fn loopback(scheme: &str, port: u16) -> io::Result<Uri> {
    format!("{scheme}://127.0.0.1:{port}").parse().map_err(io::Error::other)
}

/// Ports that nobody listens on at this moment, all different.
fn free_ports<const N: usize>() -> io::Result<[u16; N]> {
    let mut ports = [0; N];
    let mut listeners = Vec::new();
    for port in &mut ports {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        *port = listener.local_addr()?.port();
        listeners.push(listener);
    }
    Ok(ports)
}

fn etcd_arguments(data: &Path, url: &str, peer_port: u16) -> Vec<OsString> {
    let peer_url = format!("http://127.0.0.1:{peer_port}");
    vec![
        with_path("--data-dir=", data),
        format!("--listen-client-urls={url}").into(),
        format!("--advertise-client-urls={url}").into(),
        format!("--listen-peer-urls={peer_url}").into(),
        format!("--initial-advertise-peer-urls={peer_url}").into(),
        format!("--initial-cluster=default={peer_url}").into(),
        // Nothing here has to survive a power cut.
        "--unsafe-no-fsync".into(),
        "--log-level=warn".into(),
    ]
}

fn start_arguments_of_api_server(folder: &Path, etcd_url: &str, url: &Uri) -> Vec<OsString> {
    vec![
        format!("--etcd-servers={etcd_url}").into(),
        "--bind-address=127.0.0.1".into(),
        "--advertise-address=127.0.0.1".into(),
        // Endpoints must not hold a loopback address, so that nobody writes them.
        "--endpoint-reconciler-type=none".into(),
        format!("--secure-port={}", url.port_u16().unwrap_or_default()).into(),
        with_path("--cert-dir=", &folder.join("certificates")),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        with_path("--service-account-signing-key-file=", &folder.join("service-account.key")),
        with_path("--service-account-key-file=", &folder.join("service-account.pub")),
        with_path("--token-auth-file=", &folder.join("tokens.csv")),
        "--service-cluster-ip-range=10.0.0.0/24".into(),
        "--authorization-mode=Node,RBAC".into(),
        "--enable-admission-plugins=NodeRestriction".into(),
        "--allow-privileged=true".into(),
    ]
}

fn controller_manager_start_arguments(folder: &Path, node_monitor_grace_period: Duration) -> Vec<OsString> {
    let look_at_nodes_every = Duration::from_secs(5).min(node_monitor_grace_period / 5);
    vec![
        with_path("--kubeconfig=", &folder.join("kubeconfig")),
        with_path("--service-account-private-key-file=", &folder.join("service-account.key")),
        "--use-service-account-credentials=true".into(),
        "--leader-elect=false".into(),
        "--secure-port=0".into(),
        // No cloud: what would need one stays off.
        "--controllers=*,-node-ipam-controller,-node-route-controller,-cloud-node-lifecycle-controller,-service-lb-controller"
            .into(),
        format!("--node-monitor-period={}ms", look_at_nodes_every.as_millis()).into(),
        format!("--node-monitor-grace-period={}ms", node_monitor_grace_period.as_millis()).into(),
        // Many small tests share one control plane: its own limit of 20 requests a second must not be what they wait for.
        "--kube-api-qps=500".into(),
        "--kube-api-burst=1000".into(),
    ]
}

fn scheduler_arguments(folder: &Path) -> Vec<OsString> {
    vec![
        with_path("--kubeconfig=", &folder.join("kubeconfig")),
        "--leader-elect=false".into(),
        "--secure-port=0".into(),
        "--kube-api-qps=500".into(),
        "--kube-api-burst=1000".into(),
    ]
}

fn with_path(flag: &str, path: &Path) -> OsString {
    let mut argument = OsString::from(flag);
    argument.push(path);
    argument
}

/// Writes the key pair that signs service account tokens: `service-account.key` and `service-account.pub`.
fn write_service_account_keys(folder: &Path) -> io::Result<()> {
    /// What stands before the 65 bytes of an uncompressed P-256 point in a `SubjectPublicKeyInfo`
    /// (<https://www.rfc-editor.org/rfc/rfc5480#section-2>): two sequences, the identifiers id-ecPublicKey and
    /// secp256r1, and the head of the bit string.
    const PUBLIC_KEY_HEAD: [u8; 26] = [
        0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48,
        0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
    ];
    // The library's errors say no more than their text, and are no `Error`s.
    let crypto = |error: &dyn fmt::Display| io::Error::other(error.to_string());
    let random = SystemRandom::new();
    let algorithm = &ECDSA_P256_SHA256_ASN1_SIGNING;
    let private = EcdsaKeyPair::generate_pkcs8(algorithm, &random).map_err(|error| crypto(&error))?;
    let pair = EcdsaKeyPair::from_pkcs8(algorithm, private.as_ref(), &random).map_err(|error| crypto(&error))?;
    let public = [&PUBLIC_KEY_HEAD, pair.public_key().as_ref()].concat();
    write_secret(
        &folder.join("service-account.key"),
        pem::encode(&Pem::new("PRIVATE KEY", private.as_ref())).as_bytes(),
    )?;
    fs::write(folder.join("service-account.pub"), pem::encode(&Pem::new("PUBLIC KEY", public)))
}
