//! Finds and reads policy files.

use std::path::{Path, PathBuf};

use domain::policy::{Policy, PolicySet, PolicySetError, file};
use domain::yaml::FileError;

/// Why policies cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum PolicyFilesError {
    /// A file or folder cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    Unreadable {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
    /// There is nothing in a folder.
    #[error("no .yaml or .yml file in folder {}: name a policy file, or put one there", .0.display())]
    EmptyFolder(PathBuf),
    /// A file has a mistake.
    #[error(transparent)]
    Mistake(#[from] FileError),
    /// The files do not go together.
    #[error("policies in {paths}: {cause}")]
    Together {
        /// What was named.
        paths: String,
        /// Why.
        cause: PolicySetError,
    },
}

/// The policies of the files, and of the `.yaml` and `.yml` files in the folders that are no tests; the built-in one if
/// none is named.
pub fn load(paths: &[PathBuf]) -> Result<PolicySet, PolicyFilesError> {
    let policies = if paths.is_empty() {
        vec![Policy::built_in()?]
    } else {
        find(paths)?.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?
    };
    PolicySet::new(policies).map_err(|cause| {
        let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        PolicyFilesError::Together { paths: paths.join(", "), cause }
    })
}

/// The policy of one file.
pub fn read(path: &Path) -> Result<Policy, PolicyFilesError> {
    Ok(file::parse(&path.display().to_string(), &text(path)?)?)
}

/// The text of one file.
pub fn text(path: &Path) -> Result<String, PolicyFilesError> {
    std::fs::read_to_string(path).map_err(|cause| PolicyFilesError::Unreadable { path: path.to_owned(), cause })
}

/// Whether the file is by its name a test of a policy and no policy.
pub fn is_test(path: &Path) -> bool {
    path.file_stem().is_some_and(|stem| Path::new(stem).extension().is_some_and(|end| end == "test"))
}

/// Whether the file is by its name written in YAML.
pub fn is_yaml(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "yaml" || end == "yml")
}

/// The files that are named, and the policies in the folders that are named, in the order of their names.
pub fn find(paths: &[PathBuf]) -> Result<Vec<PathBuf>, PolicyFilesError> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let mut found = of_folder(path)?;
        found.retain(|path| !is_test(path));
        if found.is_empty() {
            return Err(PolicyFilesError::EmptyFolder(path.clone()));
        }
        files.append(&mut found);
    }
    Ok(files)
}

/// The files in a folder that are by their names written in YAML, in the order of their names.
pub fn of_folder(folder: &Path) -> Result<Vec<PathBuf>, PolicyFilesError> {
    let unreadable = |cause| PolicyFilesError::Unreadable { path: folder.to_owned(), cause };
    let entries = std::fs::read_dir(folder).map_err(unreadable)?;
    let mut found: Vec<PathBuf> =
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>().map_err(unreadable)?;
    // A mounted ConfigMap has a folder `..data` beside the links to its files.
    found.retain(|path| path.is_file() && is_yaml(path));
    found.sort();
    Ok(found)
}
