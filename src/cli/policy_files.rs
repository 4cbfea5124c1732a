//! Finds and reads policy files.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use domain::policy::{Policy, PolicySet, file};

/// The policies of the files, and of the `.yaml` and `.yml` files in the folders; the built-in one if none is named.
pub(super) fn load(paths: &[PathBuf]) -> anyhow::Result<PolicySet> {
    if paths.is_empty() {
        return Ok(PolicySet::new(vec![Policy::built_in()?])?);
    }
    let policies = find(paths)?.iter().map(|path| read(path)).collect::<anyhow::Result<Vec<_>>>()?;
    PolicySet::new(policies).with_context(|| {
        let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        format!("policies in {}", names.join(", "))
    })
}

/// The policy of one file.
pub(super) fn read(path: &Path) -> anyhow::Result<Policy> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(file::parse(&path.display().to_string(), &text)?)
}

/// The files that are named, and those in the folders that are named, in the order of their names.
pub(super) fn find(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let entries = std::fs::read_dir(path).with_context(|| format!("cannot read folder {}", path.display()))?;
        let mut found: Vec<PathBuf> = entries
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<_, _>>()
            .with_context(|| format!("cannot read folder {}", path.display()))?;
        // A mounted ConfigMap has a folder `..data` beside the links to its files.
        found.retain(|path| path.is_file() && path.extension().is_some_and(|end| end == "yaml" || end == "yml"));
        if found.is_empty() {
            bail!("no .yaml or .yml file in folder {}: name a policy file, or put one there", path.display());
        }
        found.sort();
        files.append(&mut found);
    }
    Ok(files)
}
