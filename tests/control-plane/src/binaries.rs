//! Finds the programs of the control plane, or builds them.

use std::env;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::clock;

const KUBERNETES_VERSION: (u32, u32, u32) = (1, 36, 3);

/// Folder with ready-made programs; the name is that of envtest and its `setup-envtest`
/// (<https://book.kubebuilder.io/reference/envtest>).
const ASSETS_VARIABLE: &str = "KUBEBUILDER_ASSETS";

/// What the built program is made of: any change gives it another folder.
const SOURCES: [&str; 3] =
    [include_str!("../binary/go.mod"), include_str!("../binary/go.sum"), include_str!("../binary/main.go")];

/// Runs a program that does not watch its standard input itself, and kills it when that closes.
const SUPERVISOR: &str = r#"
exec 3<&0
"$@" 3<&- </dev/null &
program=$!
(cat <&3 >/dev/null; kill -KILL "$program") 2>/dev/null &
exec 3<&-
wait "$program"
"#;

/// Why no control plane can be had on this machine. Tests turn it into "ignored", with this reason.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// The folder of ready-made programs is incomplete.
    #[error("{ASSETS_VARIABLE}={} has no {component}: complete it, or unset the variable to build one", folder.display())]
    AssetMissing {
        /// The folder that the environment names.
        folder: PathBuf,
        /// The program that is not in it.
        component: &'static str,
    },
    /// There is no Go toolchain to build with.
    #[error("no Go toolchain ({0}): install Go 1.26, or set {ASSETS_VARIABLE} to a folder with ready-made programs")]
    NoGo(#[source] io::Error),
    /// The Go build failed.
    #[error("go build failed in {}, which may lack access to the Go module proxy:\n{output}", folder.display())]
    BuildFailed {
        /// The Go module that was built.
        folder: PathBuf,
        /// The last lines that the build printed.
        output: String,
    },
    /// The build could not write its results.
    #[error("cannot use {}: make it writable, or set CARGO_TARGET_DIR to another folder", path.display())]
    Write {
        /// The file or folder in question.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
}

/// The programs of a control plane: one for all, or one each.
#[derive(Clone, Debug)]
pub enum Binaries {
    /// The program built from `binary/`; its first argument names the component.
    Combined(PathBuf),
    /// A folder with a program for each component.
    Separate(PathBuf),
}

impl Binaries {
    /// Takes the programs that `KUBEBUILDER_ASSETS` names, else those built before, else builds them, which takes
    /// about five minutes on two cores with an empty Go cache and shows its progress on standard error.
    ///
    /// Blocks. Processes that call it at the same time wait for one build.
    pub fn find_or_build() -> Result<Self, Unavailable> {
        match env::var_os(ASSETS_VARIABLE) {
            Some(folder) => Self::in_folder(PathBuf::from(folder)),
            None => Self::build(),
        }
    }

    /// Builds the combined program if it is not there, whatever the environment says about ready-made ones. Blocks.
    pub fn build() -> Result<Self, Unavailable> {
        let folder = target_folder().join(source_hash());
        let program = folder.join("control-plane");
        if program.exists() {
            return Ok(Self::Combined(program));
        }
        let write = |path: &Path| {
            let path = path.to_path_buf();
            move |source| Unavailable::Write { path, source }
        };
        fs::create_dir_all(&folder).map_err(write(&folder))?;
        let lock_path = folder.join("lock");
        let lock = File::create(&lock_path).map_err(write(&lock_path))?;
        lock.lock().map_err(write(&lock_path))?;
        // Another process may have built it while this one waited.
        if !program.exists() {
            let unfinished = folder.join("control-plane.unfinished");
            go_build(&unfinished, &folder.join("build.output"))?;
            fs::rename(&unfinished, &program).map_err(write(&program))?;
        }
        Ok(Self::Combined(program))
    }

    fn in_folder(folder: PathBuf) -> Result<Self, Unavailable> {
        let components = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"];
        match components.into_iter().find(|component| !folder.join(component).exists()) {
            Some(component) => Err(Unavailable::AssetMissing { folder, component }),
            None => Ok(Self::Separate(folder)),
        }
    }

    /// A command that runs kubectl; the caller adds the arguments.
    pub fn kubectl(&self) -> Command {
        match self {
            Self::Combined(program) => {
                let mut command = Command::new(program);
                command.arg("kubectl");
                command
            }
            Self::Separate(folder) => Command::new(folder.join("kubectl")),
        }
    }

    /// A command that runs a server component until its standard input closes.
    pub(crate) fn server(&self, component: &str) -> Command {
        match self {
            Self::Combined(program) => {
                let mut command = Command::new(program);
                command.arg(component);
                command
            }
            Self::Separate(folder) => {
                let mut command = Command::new("sh");
                command.args(["-c", SUPERVISOR, "sh"]).arg(folder.join(component));
                command
            }
        }
    }

    /// Whether the process that [`Self::server`] starts is the component itself, so that killing it is enough.
    pub(crate) fn is_supervised_by_itself(&self) -> bool {
        matches!(self, Self::Combined(_))
    }
}

/// Where built programs and the kubeconfig of `control-plane up` are: `target/control-plane` of this workspace.
pub fn target_folder() -> PathBuf {
    /// This crate's folder is two floors below the workspace's.
    const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let workspace = || fs::canonicalize(WORKSPACE).unwrap_or_else(|_| PathBuf::from(WORKSPACE));
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from).join("control-plane")
}

fn source_hash() -> String {
    let mut hasher = DefaultHasher::new();
    (KUBERNETES_VERSION, SOURCES).hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// Builds the Go module into `program`, saying now and then on standard error that it is still at work.
fn go_build(program: &Path, output_path: &Path) -> Result<(), Unavailable> {
    let write = |source| Unavailable::Write { path: output_path.to_path_buf(), source };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("binary");
    let (major, minor, patch) = KUBERNETES_VERSION;
    // Without these the components report version 0.0.0 and refuse each other.
    let version = "k8s.io/component-base/version";
    let linker_flags = format!(
        "-s -w -X {version}.gitVersion=v{major}.{minor}.{patch} -X {version}.gitMajor={major} -X {version}.gitMinor={minor}"
    );
    let output = File::create(output_path).map_err(write)?;
    let mut build = Command::new("go")
        .args(["build", "-trimpath", "-ldflags", &linker_flags, "-o"])
        .arg(program)
        .arg(".")
        .current_dir(&folder)
        .stdin(Stdio::null())
        .stdout(output.try_clone().map_err(write)?)
        .stderr(output)
        .spawn()
        .map_err(Unavailable::NoGo)?;

    let begun = clock::now();
    eprintln!("control-plane: building Kubernetes {major}.{minor}.{patch}, once (about 5 minutes on two cores)");
    let status = loop {
        if let Some(status) = build.try_wait().map_err(write)? {
            break status;
        }
        let seconds = begun.elapsed().as_secs();
        if seconds > 0 && seconds.is_multiple_of(10) {
            eprintln!("control-plane: still building after {seconds} s");
        }
        thread::sleep(Duration::from_secs(1));
    };
    if status.success() {
        eprintln!("control-plane: built in {} s", begun.elapsed().as_secs());
        return Ok(());
    }
    Err(Unavailable::BuildFailed { folder, output: last_lines(output_path, 20) })
}

/// The last `count` lines of a text file, or why it cannot be read.
pub(crate) fn last_lines(path: &Path, count: usize) -> String {
    match fs::read(path) {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            let lines: Vec<&str> = text.lines().collect();
            lines[lines.len().saturating_sub(count)..].join("\n")
        }
        Err(error) => format!("(cannot read {}: {error})", path.display()),
    }
}
