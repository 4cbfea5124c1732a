//! `remediator policy explain`.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Read};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use domain::marks::{EXCLUDE_FROM_LOAD_BALANCERS, Marking, SCALE_DOWN_DISABLED};
use domain::outlook::Outlook;
use domain::policy::{
    Action, Approve, Judgement, NoPolicy, NodeTraits, POLICY_ANNOTATION, PolicySet, Profile, Ruling, Skip, Treatment,
};
use domain::record::HOLD_ANNOTATION;
use domain::scheduled_event::{Document, NotBefore, ScheduledEvent, decode};
use domain::time::{Monotonic, Now, spoken, stamp};
use jiff::Timestamp;
use serde_json::json;

use super::Output;
use crate::cli::output::say;
use crate::cli::usage;
use crate::clock::Clock;
use crate::policy_files;

#[derive(Debug, Args)]
#[command(after_help = "The event is the text of one event as Azure lists it, or a whole document:\n  \
    {\"EventId\":\"e1\",\"EventType\":\"Redeploy\",\"EventStatus\":\"Scheduled\",\"Resources\":[\"vm\"],\n   \
    \"NotBefore\":\"Sat, 11 Apr 2026 22:26:58 GMT\",\"EventSource\":\"Platform\",\"DurationInSeconds\":-1}")]
pub(in crate::cli) struct Explain {
    /// A file with the event as JSON; `-` for standard input.
    #[arg(long, value_name = "FILE")]
    event: PathBuf,
    /// A policy file, or a folder with policy files; may be given several times. Without it the built-in policy applies.
    #[arg(long, env = "REMEDIATOR_POLICY", value_name = "PATH", value_delimiter = ',')]
    policy: Vec<PathBuf>,
    /// Labels of the node, as `key=value,key=value`.
    #[arg(long, value_name = "LABELS", value_delimiter = ',', value_parser = pair)]
    labels: Vec<(String, String)>,
    /// Annotations of the node, written likewise; `remediator.dev/policy=NAME` gives it a policy by name.
    #[arg(long, value_name = "ANNOTATIONS", value_delimiter = ',', value_parser = pair)]
    annotations: Vec<(String, String)>,
    /// The moment at which the event is seen (RFC 3339); now if it is not given.
    #[arg(long, value_name = "TIME")]
    at: Option<Timestamp>,
    /// How the answer is printed.
    #[arg(long, short, value_name = "FORMAT", default_value = "text")]
    output: Output,
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write labels and annotations as key=value".into()),
    }
}

/// What is told of the node.
struct Node {
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

impl Node {
    fn traits(&self) -> NodeTraits<'_> {
        NodeTraits { labels: &self.labels, policy: self.annotations.get(POLICY_ANNOTATION).map(String::as_str) }
    }
}

impl Explain {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let Self { event, policy, labels, annotations, at, output } = self;
        let policies = policy_files::load(&policy).map_err(usage)?;
        let document = read_events(&event).map_err(usage)?;
        let node = Node { labels: labels.into_iter().collect(), annotations: annotations.into_iter().collect() };
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
                        say("");
                    }
                    say(print(&lines(&policies, &node, event, now), bold).trim_end());
                }
            }
            Output::Json => {
                let answers: Vec<_> =
                    document.events.iter().map(|event| as_json(&policies, &node, event, now)).collect();
                say(&serde_json::to_string_pretty(&answers)?);
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

/// A name and what is to be said under it; without a name it goes on with what is above.
type Line = (&'static str, String);

fn lines(policies: &PolicySet, node: &Node, event: &ScheduledEvent, now: Now) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    let when = match event.not_before {
        NotBefore::At(at) if at > now.wall => format!("not before {}", moment(at, now)),
        NotBefore::At(at) => format!("due since {}", stamp(at)),
        NotBefore::Absent => "at any moment".into(),
        NotBefore::Unreadable => "at a time that cannot be read".into(),
    };
    lines.push(("event", format!("{} {} by {}, {when}", event.event_type, event.status, event.source)));
    if !event.description.is_empty() {
        lines.push(("", format!("“{}”", event.description)));
    }
    let policy = match policies.for_node(node.traits()) {
        Ok(policy) => policy,
        Err(why) => {
            let why = match why {
                NoPolicy::Unselected => "none selects a node with these labels".to_owned(),
                NoPolicy::Unknown(_) => format!("none: {why}"),
            };
            lines.push(("policy", why));
            lines.push(("action", Action::None.to_string()));
            return lines;
        }
    };
    let by_name = if node.traits().policy.is_some() { ", which the node names" } else { "" };
    lines.push(("policy", format!("{}{by_name}", policy.name)));
    for rule in &policy.rules {
        match rule.matches.mismatch(event, now) {
            Some(why) => lines.push(("", format!("not {}: {why}", rule.name))),
            None => break,
        }
    }
    let judgement = policy.judge(event, now);
    let (Judgement::Observed(ruling) | Judgement::Ruled(ruling)) = &judgement else {
        lines.push(("rule", "none applies".into()));
        lines.push(("action", Action::None.to_string()));
        return lines;
    };
    lines.push(("rule", ruling.rule.clone()));
    let outlook = Outlook::of(ruling, event, now);
    let note = match &judgement {
        Judgement::Observed(_) => " (only told: the policy observes)",
        _ if node.annotations.contains_key(HOLD_ANNOTATION) => " (but the node is held: nothing is begun)",
        _ if outlook.action < ruling.action => " (too little time is left for the drain)",
        _ => "",
    };
    lines.push(("action", format!("{}{note}", outlook.action)));
    if outlook.action > Action::None {
        when_and_how(&mut lines, ruling, outlook, now);
    }
    let approve = match ruling.approve {
        Approve::Never => return lines,
        Approve::WhenDrained => "the event is started as soon as every node that it concerns is drained",
        Approve::Immediately => "the event is started as soon as it is seen",
    };
    lines.push(("approve", approve.into()));
    lines
}

fn when_and_how(lines: &mut Vec<Line>, ruling: &Ruling, outlook: Outlook, now: Now) {
    let begin = |at: Timestamp| if at <= now.wall { "at once".to_owned() } else { moment(at, now) };
    let Outlook { action: _, cordons, starts, deadline, deletes_from } = outlook;
    if cordons < starts {
        lines.push(("cordon", begin(cordons)));
    }
    lines.push(("starts", begin(starts)));
    if let (Some(profile), Some(deadline)) = (&ruling.profile, deadline) {
        lines.push(("deadline", moment(deadline, now)));
        let at_end = deletes_from.map_or_else(
            || "pods still there are left and named".to_owned(),
            |from| format!("pods still there are deleted from {} on", stamp(from)),
        );
        lines.push(("at the end", at_end));
        pods(lines, profile);
    }
    marking(lines, &ruling.marking);
    if let Some(most) = ruling.nodes_at_once {
        lines.push(("at once", format!("{most} of the pool's nodes at most; the others wait, cordoned")));
    }
}

fn pods(lines: &mut Vec<Line>, profile: &Profile) {
    let Profile { bare, empty_dir, pods, skip, phases, .. } = profile;
    let stays = |treatment: &Treatment| match treatment {
        Treatment::Evict => "evicted",
        Treatment::Leave => "left",
    };
    lines.push(("pods", format!("without controller {}, with emptyDir {}", stays(bare), stays(empty_dir))));
    if let Some(selector) = pods {
        lines.push(("", format!("only those with {selector}")));
    }
    let Skip { labels, annotations } = skip;
    for (what, members) in [("label", labels), ("annotation", annotations)] {
        lines.extend(members.iter().map(|(key, value)| ("", format!("not those with {what} {key}={value}"))));
    }
    let phases: Vec<String> = phases
        .iter()
        .map(|phase| match phase.grace {
            Some(grace) => format!("from priority {} (grace up to {})", phase.priority, spoken(grace)),
            None => format!("from priority {}", phase.priority),
        })
        .collect();
    lines.push(("phases", phases.join(", then ")));
}

fn marking(lines: &mut Vec<Line>, marking: &Marking) {
    let Marking { taint, exclude_from_load_balancers, disable_scale_down } = marking;
    if let Some(taint) = taint {
        lines.push(("taint", taint.to_string()));
    }
    if *exclude_from_load_balancers {
        lines.push(("label", EXCLUDE_FROM_LOAD_BALANCERS.into()));
    }
    if *disable_scale_down {
        lines.push(("annotation", SCALE_DOWN_DISABLED.into()));
    }
}

fn moment(at: Timestamp, now: Now) -> String {
    format!("{} (in {})", stamp(at), spoken(now.until(at)))
}

fn print(lines: &[Line], bold: bool) -> String {
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    let line = |(name, value): &Line| {
        let name = format!("{name:<width$}");
        if bold { format!("\u{1b}[1m{name}\u{1b}[0m  {value}\n") } else { format!("{name}  {value}\n") }
    };
    lines.iter().map(line).collect()
}

fn as_json(policies: &PolicySet, node: &Node, event: &ScheduledEvent, now: Now) -> serde_json::Value {
    let judgement = policies.judge(node.traits(), event, now);
    let (Judgement::Ruled(ruling) | Judgement::Observed(ruling)) = &judgement else {
        return json!({"event": event.id.as_str(), "action": "none", "reason": judgement.to_string()});
    };
    let Outlook { action, cordons, starts, deadline, deletes_from } = Outlook::of(ruling, event, now);
    let acts = action > Action::None;
    json!({
        "event": event.id.as_str(),
        "action": judgement.action().min(action).as_str(),
        "reason": judgement.to_string(),
        "ruling": ruling,
        "cordonsAt": acts.then_some(cordons),
        "startsAt": acts.then_some(starts),
        "deadline": deadline,
        "deletesFrom": deletes_from,
    })
}
