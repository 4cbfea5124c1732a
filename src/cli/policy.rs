//! `remediator policy`.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Read};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, anyhow, bail};
use clap::{Args, Subcommand, ValueEnum};
use domain::node_plan::{deadline_of, start_of};
use domain::policy::{Action, Judgement, NodeTraits, PolicySet, Profile, Ruling};
use domain::scheduled_event::{Document, NotBefore, ScheduledEvent, decode};
use domain::time::{Monotonic, Now, minus, plus, spoken, stamp};
use jiff::Timestamp;
use serde_json::json;

use super::usage;
use crate::clock::Clock;

#[derive(Debug, Subcommand)]
pub(super) enum Policy {
    /// Checks policy files: the first mistake of each with its line and column, and event types without a rule.
    Check(Check),
    /// Tells which rule applies to an event, what would be done, and when.
    Explain(Box<Explain>),
}

#[derive(Debug, Args)]
pub(super) struct Check {
    /// Policy files, or folders with policy files.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "The event is the text of one event as Azure lists it, or a whole document:\n  \
    {\"EventId\":\"e1\",\"EventType\":\"Redeploy\",\"EventStatus\":\"Scheduled\",\"Resources\":[\"vm\"],\n   \
    \"NotBefore\":\"Sat, 11 Apr 2026 22:26:58 GMT\",\"EventSource\":\"Platform\",\"DurationInSeconds\":-1}")]
pub(super) struct Explain {
    /// A file with the event as JSON; `-` for standard input.
    #[arg(long, value_name = "FILE")]
    event: PathBuf,
    /// A policy file, or a folder with policy files; may be given several times. Without it the built-in policy applies.
    #[arg(long, env = "REMEDIATOR_POLICY", value_name = "PATH", value_delimiter = ',')]
    policy: Vec<PathBuf>,
    /// Labels of the node, as `key=value,key=value`.
    #[arg(long, value_name = "LABELS", value_delimiter = ',', value_parser = label)]
    labels: Vec<(String, String)>,
    /// The moment at which the event is seen (RFC 3339); now if it is not given.
    #[arg(long, value_name = "TIME")]
    at: Option<Timestamp>,
    /// How the answer is printed.
    #[arg(long, short, value_name = "FORMAT", default_value = "text")]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
}

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write labels as key=value".into()),
    }
}

impl Policy {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Check(check) => check.run(),
            Self::Explain(explain) => explain.run(),
        }
    }
}

impl Check {
    fn run(self) -> anyhow::Result<ExitCode> {
        let Self { files } = self;
        let folders: Vec<PathBuf> = files.iter().filter(|path| path.is_dir()).cloned().collect();
        let files = crate::policy_files::find(&files).map_err(usage)?;
        let mut policies = Vec::new();
        let mut faults = 0;
        for path in &files {
            if !path.exists() {
                return Err(usage(anyhow!("no file {}", path.display())));
            }
            match crate::policy_files::read(path) {
                Ok(policy) => {
                    println!("{}: policy {} is valid, {} rules", path.display(), policy.name, policy.rules.len());
                    for warning in policy.warnings() {
                        println!("{}: warning: {warning}", path.display());
                    }
                    policies.push((path.clone(), policy));
                }
                Err(error) => {
                    faults += 1;
                    eprintln!("{error:#}");
                }
            }
        }
        // A folder is loaded as one, so its policies must go together; single files need not.
        for folder in folders {
            let of_folder = policies.iter().filter(|(path, _)| path.parent() == Some(folder.as_path()));
            if let Err(error) = PolicySet::new(of_folder.map(|(_, policy)| policy.clone()).collect()) {
                faults += 1;
                eprintln!("{}: {error}", folder.display());
            }
        }
        Ok(if faults == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

impl Explain {
    fn run(self) -> anyhow::Result<ExitCode> {
        let Self { event, policy, labels, at, output } = self;
        let policies = crate::policy_files::load(&policy).map_err(usage)?;
        let document = read_events(&event).map_err(usage)?;
        let labels: BTreeMap<String, String> = labels.into_iter().collect();
        let wall = at.unwrap_or_else(|| Clock::system().now().wall);
        let now = Now { wall, monotonic: Monotonic::default() };
        for oddity in &document.oddities {
            eprintln!("note: {oddity}");
        }
        match output {
            Output::Text => {
                let bold = std::io::stdout().is_terminal();
                for (index, event) in document.events.iter().enumerate() {
                    if index > 0 {
                        println!();
                    }
                    print!("{}", text(&policies, &labels, event, now, bold));
                }
            }
            Output::Json => {
                let answers: Vec<_> =
                    document.events.iter().map(|event| as_json(&policies, &labels, event, now)).collect();
                println!("{}", serde_json::to_string_pretty(&answers)?);
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Reads one event, or a document of events.
fn read_events(path: &PathBuf) -> anyhow::Result<Document> {
    let mut body = Vec::new();
    if path.as_os_str() == "-" {
        std::io::stdin().read_to_end(&mut body).context("cannot read standard input")?;
    } else {
        body = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    }
    let document = decode(&body).or_else(|error| {
        let one = [br#"{"Events":["#, body.as_slice(), b"]}"].concat();
        decode(&one).map_err(|_| error)
    });
    let document =
        document.with_context(|| format!("{}: neither an event nor a document of events", path.display()))?;
    if document.events.is_empty() {
        let oddities: Vec<String> = document.oddities.iter().map(ToString::to_string).collect();
        bail!(
            "{}: it lists no event{}{}",
            path.display(),
            if oddities.is_empty() { "" } else { ": " },
            oddities.join("; ")
        );
    }
    Ok(document)
}

/// When a drain for the event begins, when it has to be done, and when what is left is deleted.
struct Times {
    starts_at: Timestamp,
    deadline: Option<Timestamp>,
}

fn times(ruling: &Ruling, event: &ScheduledEvent, now: Now) -> Times {
    let starts_at = start_of(ruling, event, now.wall);
    let ahead = event.notice(now.wall);
    let deadline = deadline_of(ahead, ahead.is_none().then_some(now.wall));
    let timeout = ruling.profile.as_ref().and_then(|profile| profile.timeout);
    let deadline = match (deadline, timeout) {
        (Some(deadline), Some(timeout)) => Some(deadline.min(plus(starts_at.max(now.wall), timeout))),
        (deadline, _) => deadline,
    };
    Times { starts_at, deadline }
}

fn text(
    policies: &PolicySet,
    labels: &BTreeMap<String, String>,
    event: &ScheduledEvent,
    now: Now,
    bold: bool,
) -> String {
    let mut lines: Vec<(&str, String)> = Vec::new();
    let when = match event.not_before {
        NotBefore::At(at) if at > now.wall => format!("not before {} (in {})", stamp(at), spoken(now.until(at))),
        NotBefore::At(at) => format!("due since {}", stamp(at)),
        NotBefore::Absent => "at any moment".into(),
        NotBefore::Unreadable => "at a time that cannot be read".into(),
    };
    lines.push(("event", format!("{} {} by {}, {when}", event.event_type, event.status, event.source)));
    let Ok(policy) = policies.for_node(NodeTraits { labels, policy: None }) else {
        lines.push(("policy", "none selects a node with these labels".into()));
        lines.push(("action", Action::None.to_string()));
        return print(&lines, bold);
    };
    lines.push(("policy", policy.name.clone()));
    for rule in &policy.rules {
        match rule.matches.mismatch(event, now) {
            Some(why) => lines.push(("", format!("not {}: {why}", rule.name))),
            None => break,
        }
    }
    let judgement = policy.judge(event, now);
    match &judgement {
        Judgement::NoPolicy | Judgement::UnknownPolicy(_) | Judgement::NoRule(_) => {
            lines.push(("rule", "none applies".into()));
            lines.push(("action", Action::None.to_string()));
        }
        Judgement::Observed(ruling) | Judgement::Ruled(ruling) => {
            lines.push(("rule", ruling.rule.clone()));
            let observed = matches!(judgement, Judgement::Observed(_));
            let note = if observed { " (only told: the policy observes)" } else { "" };
            lines.push(("action", format!("{}{note}", ruling.action)));
            if ruling.action > Action::None {
                when_and_how(&mut lines, ruling, event, now);
            }
        }
    }
    print(&lines, bold)
}

fn when_and_how(lines: &mut Vec<(&str, String)>, ruling: &Ruling, event: &ScheduledEvent, now: Now) {
    let Times { starts_at, deadline } = times(ruling, event, now);
    let starts = if starts_at <= now.wall {
        "at once".to_owned()
    } else {
        format!("{} (in {})", stamp(starts_at), spoken(now.until(starts_at)))
    };
    lines.push(("starts", starts));
    let (Some(profile), Some(deadline)) = (&ruling.profile, deadline) else { return };
    let Profile { at_deadline, bare, empty_dir, .. } = profile;
    lines.push(("deadline", format!("{} (in {})", stamp(deadline), spoken(now.until(deadline)))));
    let started_at = starts_at.max(now.wall);
    let order = domain::drain::Order { profile: profile.clone(), started_at, deadline, uncordoned_at: None };
    let at_end = match at_deadline {
        domain::policy::AtDeadline::Leave => "pods still there are left and named".to_owned(),
        domain::policy::AtDeadline::Delete => {
            format!("pods still there are deleted from {} on", stamp(minus(deadline, order.margin())))
        }
    };
    lines.push(("at the end", at_end));
    let stays = |treatment: &domain::policy::Treatment| match treatment {
        domain::policy::Treatment::Evict => "evicted",
        domain::policy::Treatment::Leave => "left",
    };
    lines.push(("pods", format!("without controller {}, with emptyDir {}", stays(bare), stays(empty_dir))));
    let phases: Vec<String> = profile
        .phases
        .iter()
        .map(|phase| match phase.grace {
            Some(grace) => format!("from priority {} (grace up to {})", phase.priority, spoken(grace)),
            None => format!("from priority {}", phase.priority),
        })
        .collect();
    lines.push(("phases", phases.join(", then ")));
}

fn print(lines: &[(&str, String)], bold: bool) -> String {
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    let line = |(name, value): &(&str, String)| {
        let name = format!("{name:<width$}");
        if bold { format!("\u{1b}[1m{name}\u{1b}[0m  {value}\n") } else { format!("{name}  {value}\n") }
    };
    lines.iter().map(line).collect()
}

fn as_json(
    policies: &PolicySet,
    labels: &BTreeMap<String, String>,
    event: &ScheduledEvent,
    now: Now,
) -> serde_json::Value {
    let judgement = policies.judge(NodeTraits { labels, policy: None }, event, now);
    let (Judgement::Ruled(ruling) | Judgement::Observed(ruling)) = &judgement else {
        return json!({"event": event.id.as_str(), "action": "none", "reason": judgement.to_string()});
    };
    let Times { starts_at, deadline } = times(ruling, event, now);
    let acts = ruling.action > Action::None;
    json!({
        "event": event.id.as_str(),
        "action": judgement.action().as_str(),
        "reason": judgement.to_string(),
        "ruling": ruling,
        "startsAt": acts.then_some(starts_at),
        "deadline": deadline.filter(|_| ruling.action == Action::Drain),
    })
}
