//! The program that is measured: built as it is shipped, whatever the benchmark itself is built with.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::Anything;

/// A release build of the program.
pub(crate) struct Program {
    path: PathBuf,
}

impl Program {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Builds the program in release, with further arguments for Cargo: `--no-default-features` as the image for nodes is built.
/// It is copied under `name`, because the next build with other features takes its place.
pub(crate) fn program(name: &str, arguments: &[&str]) -> Result<Program, Anything> {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args(["build", "--release", "--locked", "--bin", "remediator", "--message-format=json-render-diagnostics"])
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stderr(Stdio::inherit());
    // What Cargo tells this benchmark about its package would make build scripts of others run again.
    for (variable, _) in env::vars_os() {
        if variable.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")) {
            cargo.env_remove(variable);
        }
    }
    let output = cargo.output()?;
    if !output.status.success() {
        return Err("the program could not be built".into());
    }
    let messages = String::from_utf8(output.stdout)?;
    let built = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter_map(|message| message["executable"].as_str().map(PathBuf::from))
        .next_back()
        .ok_or("Cargo names no program that it has built")?;
    let folder = built.parent().ok_or("the program is in no folder")?.join("benches");
    fs::create_dir_all(&folder)?;
    let path = folder.join(name);
    // Written over, a program that still runs would be busy.
    let _ = fs::remove_file(&path);
    fs::copy(&built, &path)?;
    Ok(Program { path })
}
