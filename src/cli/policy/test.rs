//! `remediator policy test`.

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::anyhow;
use clap::Args;
use domain::policy::PolicySet;
use domain::policy_test::{self, Mismatch};
use serde_json::json;

use super::Output;
use crate::cli::output::say;
use crate::cli::usage;
use crate::policy_files;

#[derive(Debug, Args)]
#[command(after_help = "A test file stands beside its policy, spot.test.yaml beside spot.yaml:\n  \
    apiVersion: remediator.dev/v1alpha1\n  \
    kind: PolicyTest\n  \
    policies: [default.yaml]      # loaded beside it\n  \
    cases:\n  \
    - name: an eviction is drained for at once\n    \
    node: {labels: {kubernetes.azure.com/scalesetpriority: spot}}\n    \
    event: {type: Preempt, notBefore: in 30s}\n    \
    expect: {policy: spot, rule: eviction, action: drain, starts: in 0s, deadline: in 30s}\n\n\
    All members: docs/policy.md, or `remediator policy schema --of test`.")]
pub(in crate::cli) struct Test {
    /// Policy files with a test file beside them, test files, or folders with test files.
    #[arg(value_name = "PATH", default_value = ".")]
    paths: Vec<PathBuf>,
    /// How the results are printed.
    #[arg(long, short, value_name = "FORMAT", default_value = "text")]
    output: Output,
}

/// How one case went.
struct Played {
    file: String,
    case: String,
    mismatches: Vec<Mismatch>,
}

impl Test {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let Self { paths, output } = self;
        let (mut played, mut broken) = (Vec::new(), 0_usize);
        for path in find(&paths).map_err(usage)? {
            match play(&path) {
                Ok(mut cases) => played.append(&mut cases),
                Err(errors) => {
                    broken += 1;
                    for error in errors {
                        eprintln!("{error:#}");
                    }
                }
            }
        }
        match output {
            Output::Text => say(text(&played, std::io::stdout().is_terminal()).trim_end()),
            Output::Json => say(&format!("{:#}", as_json(&played))),
        }
        let good = broken == 0 && played.iter().all(|case| case.mismatches.is_empty());
        Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// The test files of the paths.
fn find(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            let mut found = policy_files::of_folder(path)?;
            found.retain(|file| policy_files::is_test(file));
            if found.is_empty() {
                return Err(anyhow!("no test file (NAME.test.yaml) in folder {}", path.display()));
            }
            files.append(&mut found);
            continue;
        }
        let file = if policy_files::is_test(path) { path.clone() } else { path.with_extension("test.yaml") };
        if !file.is_file() {
            return Err(anyhow!("no file {}: a test stands beside its policy", file.display()));
        }
        files.push(file);
    }
    Ok(files)
}

/// Plays the cases of one test file; the errors are about the file or a policy that it needs.
fn play(path: &Path) -> Result<Vec<Played>, Vec<anyhow::Error>> {
    let file = path.display().to_string();
    let text = policy_files::text(path).map_err(|error| vec![error.into()])?;
    let test = policy_test::parse(&file, &text)
        .map_err(|errors| errors.into_iter().map(anyhow::Error::from).collect::<Vec<_>>())?;
    let policies = policies(path, &test.policies).map_err(|error| vec![error.context(file.clone())])?;
    let played = test.cases.iter().map(|case| Played {
        file: file.clone(),
        case: case.name.clone(),
        mismatches: case.play(&policies),
    });
    Ok(played.collect())
}

/// The policy that the file tests, and those that are loaded beside it.
fn policies(test: &Path, others: &[String]) -> anyhow::Result<PolicySet> {
    let ending = test.extension().unwrap_or_default().to_owned();
    // `spot.test.yaml` without both endings is `spot`.
    let tested = test.with_extension("").with_extension(ending);
    let folder = test.parent().unwrap_or(Path::new("."));
    let beside = others.iter().map(|other| folder.join(other));
    let mut files = policy_files::find(&[tested].into_iter().chain(beside).collect::<Vec<_>>())?;
    // A folder may hold the tested policy too.
    let mut seen = BTreeSet::new();
    files.retain(|file| seen.insert(file.clone()));
    Ok(policy_files::load(&files)?)
}

fn text(played: &[Played], colour: bool) -> String {
    let painted = |text: &str, code: &str| {
        if colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    };
    let mut lines = Vec::new();
    let mut file = "";
    let width = played.iter().map(|case| case.case.chars().count()).max().unwrap_or_default();
    for Played { file: of, case, mismatches } in played {
        if of != file {
            lines.push(of.clone());
            file = of;
        }
        if mismatches.is_empty() {
            lines.push(format!("  {}      {case}", painted("ok", "32")));
        } else {
            let what: Vec<String> = mismatches.iter().map(ToString::to_string).collect();
            lines.push(format!("  {}  {case:<width$}  {}", painted("FAILED", "31"), what.join("; ")));
        }
    }
    let failed = played.iter().filter(|case| !case.mismatches.is_empty()).count();
    format!("{}\n\n{} passed, {failed} failed\n", lines.join("\n"), played.len() - failed)
}

fn as_json(played: &[Played]) -> serde_json::Value {
    let mismatch = |mismatch: &Mismatch| {
        json!({
            "afterSeconds": mismatch.after.as_secs_f64(),
            "what": mismatch.what,
            "expected": mismatch.expected,
            "found": mismatch.found,
        })
    };
    let case = |Played { file, case, mismatches }: &Played| {
        let ok = mismatches.is_empty();
        json!({"file": file, "case": case, "ok": ok, "mismatches": mismatches.iter().map(mismatch).collect::<Vec<_>>()})
    };
    let failed = played.iter().filter(|case| !case.mismatches.is_empty()).count();
    json!({
        "cases": played.iter().map(case).collect::<Vec<_>>(),
        "passed": played.len() - failed,
        "failed": failed,
    })
}
