//! The host's files, below wherever its root is mounted.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};

/// How many symbolic links a path may go through, as on Linux.
const MOST_LINKS: u32 = 40;

/// A file of the host that is there, but cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {} ({cause})", path.display())]
pub(super) struct HostError {
    path: PathBuf,
    cause: io::Error,
}

/// The root of the host's file system.
pub(super) struct HostRoot(PathBuf);

impl HostRoot {
    pub(super) fn at(path: PathBuf) -> Self {
        Self(path)
    }

    /// The path as it is written.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// The text of a file; `None` if there is none. `path` is one of the host.
    pub(super) fn read(&self, path: &str) -> Result<Option<String>, HostError> {
        let resolved = self.resolve(Path::new(path)).map_err(|cause| self.error(path, cause))?;
        // This is how a file of the system is hidden; a device of the host may not be opened here.
        if resolved == Path::new("dev/null") {
            return Ok(Some(String::new()));
        }
        match fs::read(self.0.join(resolved)) {
            Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
            Err(error) if is_absent(&error) => Ok(None),
            Err(cause) => Err(self.error(path, cause)),
        }
    }

    /// The names in a folder, in order; none if there is no such folder.
    pub(super) fn list(&self, path: &str) -> Result<Vec<String>, HostError> {
        let names = || {
            let entries = fs::read_dir(self.0.join(self.resolve(Path::new(path))?))?;
            entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect::<io::Result<Vec<_>>>()
        };
        match names() {
            Ok(mut names) => {
                names.sort();
                Ok(names)
            }
            Err(error) if is_absent(&error) => Ok(Vec::new()),
            Err(cause) => Err(self.error(path, cause)),
        }
    }

    fn error(&self, path: &str, cause: io::Error) -> HostError {
        HostError { path: self.0.join(path.trim_start_matches('/')), cause }
    }

    /// Where a path of the host leads to, relative to the root. The host's absolute links start at the host's root, not at
    /// that of this process, and none leads out of it.
    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        let mut ahead: VecDeque<OsString> = segments(path).collect();
        let mut resolved = PathBuf::new();
        let mut links = 0;
        while let Some(segment) = ahead.pop_front() {
            if segment == ".." {
                resolved.pop();
                continue;
            }
            let next = resolved.join(segment);
            let Ok(target) = fs::read_link(self.0.join(&next)) else {
                resolved = next;
                continue;
            };
            links += 1;
            if links > MOST_LINKS {
                return Err(io::Error::other("too many symbolic links"));
            }
            if target.has_root() {
                resolved = PathBuf::new();
            }
            for segment in segments(&target).rev() {
                ahead.push_front(segment);
            }
        }
        Ok(resolved)
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn segments(path: &Path) -> impl DoubleEndedIterator<Item = OsString> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
    })
}

#[cfg(test)]
#[cfg(unix)]
pub(super) mod tests {
    use super::*;

    /// A host for tests: files by path, and links where the text begins with `->`.
    pub(in crate::doctor) fn host_with(files: &[(&str, &str)]) -> (tempfile::TempDir, HostRoot) {
        let folder = tempfile::tempdir().expect("a folder can be made");
        for (path, text) in files {
            let path = folder.path().join(path.trim_start_matches('/'));
            fs::create_dir_all(path.parent().expect("a file is in a folder")).expect("a folder can be made");
            match text.strip_prefix("->") {
                Some(target) => std::os::unix::fs::symlink(target, path).expect("a link can be made"),
                None => fs::write(path, text).expect("a file can be written"),
            }
        }
        let root = HostRoot::at(folder.path().to_owned());
        (folder, root)
    }

    #[test]
    fn links_of_the_host_are_followed_below_its_root() {
        let (_folder, root) = host_with(&[
            ("/usr/lib/real", "text"),
            ("/etc/absolute", "->/usr/lib/real"),
            ("/etc/relative", "->../../../../usr/lib/real"),
            ("/lib", "->usr/lib"),
            ("/etc/masked", "->/dev/null"),
            ("/etc/dangling", "->/no/such"),
            ("/etc/loop", "->loop"),
        ]);
        for path in ["/usr/lib/real", "/etc/absolute", "/etc/relative", "/lib/real"] {
            assert_eq!(root.read(path).unwrap().as_deref(), Some("text"), "{path}");
        }
        assert_eq!(root.read("/etc/masked").unwrap().as_deref(), Some(""));
        assert_eq!(root.read("/etc/dangling").unwrap(), None);
        assert_eq!(root.read("/no/such").unwrap(), None);
        assert!(root.read("/etc/loop").unwrap_err().to_string().contains("too many symbolic links"));
        assert_eq!(root.list("/lib").unwrap(), ["real"]);
        assert!(root.list("/no").unwrap().is_empty());
        assert!(root.read("/etc").is_err(), "a folder is no file");
    }
}
