//! One server process of the control plane.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Stdio};

use crate::binaries::{Binaries, last_lines};

/// A running component. It ends when this value is dropped, and also when this process ends in any other way, because
/// both close the pipe that is its standard input.
#[derive(Debug)]
pub(crate) struct Component {
    name: &'static str,
    process: Child,
    lifeline: Option<ChildStdin>,
    is_supervised_by_itself: bool,
    log: PathBuf,
}

impl Component {
    /// Starts the component with its output going to `log`, after what is there.
    pub(crate) fn start(
        binaries: &Binaries,
        name: &'static str,
        arguments: &[OsString],
        log: PathBuf,
    ) -> io::Result<Self> {
        let output = File::options().create(true).append(true).open(&log)?;
        let mut process = binaries
            .server(name)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()?;
        let lifeline = process.stdin.take();
        Ok(Self { name, process, lifeline, is_supervised_by_itself: binaries.is_supervised_by_itself(), log })
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Whether the process is still there.
    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(None))
    }

    /// The last lines of the component's log.
    pub(crate) fn log_tail(&self) -> String {
        last_lines(&self.log, 15)
    }
}

impl Drop for Component {
    fn drop(&mut self) {
        drop(self.lifeline.take());
        if self.is_supervised_by_itself {
            // Also ends a process that was stopped by a signal. It may have ended by itself: nothing to report.
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    use std::path::Path;
    use std::thread;

    use super::*;

    /// A folder of ready-made programs, whose `etcd` writes its process id and then does nothing for a long time.
    fn folder_with_a_program() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let mut program =
            File::options().write(true).create_new(true).mode(0o755).open(folder.path().join("etcd")).unwrap();
        program.write_all(b"#!/bin/sh\necho $$ > \"$1.new\"\nmv \"$1.new\" \"$1\"\nexec sleep 1000\n").unwrap();
        folder
    }

    #[test]
    fn a_ready_made_program_ends_with_its_component() {
        let folder = folder_with_a_program();
        let binaries = Binaries::Separate(folder.path().to_path_buf());
        let id = folder.path().join("id");
        let component =
            Component::start(&binaries, "etcd", &[id.clone().into_os_string()], folder.path().join("log")).unwrap();
        while !id.exists() {
            thread::yield_now();
        }
        let process = Path::new("/proc").join(fs::read_to_string(&id).unwrap().trim());
        assert!(process.exists());
        drop(component);
        assert!(!process.exists());
    }

    #[test]
    fn a_ready_made_program_that_ends_by_itself_is_seen_to_have_ended() {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/bin/false", folder.path().join("etcd")).unwrap();
        let binaries = Binaries::Separate(folder.path().to_path_buf());
        let mut component = Component::start(&binaries, "etcd", &[], folder.path().join("log")).unwrap();
        while component.is_running() {
            thread::yield_now();
        }
    }
}
