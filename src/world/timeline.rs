//! The story of a run, line by line: when, where, who, and what.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

/// Names of pods that are said one by one; beyond, they are counted.
const MOST_NAMES: usize = 4;

/// What happens to pods of one node within so long is said in one line.
const TOGETHER: Duration = Duration::from_secs(1);

/// Who did something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Who {
    /// Azure.
    Azure,
    /// The agent.
    Agent,
    /// Kubernetes: controllers and kubelets.
    Kubernetes,
    /// A person with kubectl.
    Person,
    /// The scenario: faults.
    Fault,
    /// The simulator itself.
    Checker,
}

impl Who {
    fn word(self) -> &'static str {
        match self {
            Self::Azure => "azure",
            Self::Agent => "agent",
            Self::Kubernetes => "kubernetes",
            Self::Person => "person",
            Self::Fault => "fault",
            Self::Checker => "checker",
        }
    }
}

/// How much a line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Tone {
    /// What goes on all the time.
    Quiet,
    /// A step of the story.
    Plain,
    /// What should be so.
    Good,
    /// What someone should look at.
    Warning,
    /// What must not be.
    Bad,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// When.
    pub at: Timestamp,
    /// The node, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Who.
    pub who: Who,
    /// How much it matters.
    pub tone: Tone,
    /// What.
    pub text: String,
}

/// Takes each line when it is complete.
pub type Sink = Box<dyn FnMut(&Row) + Send>;

/// Pods to which the same happened on one node.
struct Group {
    since: Timestamp,
    tone: Tone,
    pods: Vec<String>,
}

#[derive(Default)]
struct State {
    rows: Vec<Row>,
    groups: BTreeMap<(String, Who, String), Group>,
    sink: Option<Sink>,
}

/// See the module. Clones are handles on the same timeline.
#[derive(Clone, Default)]
pub struct Timeline {
    state: Arc<Mutex<State>>,
}

impl Timeline {
    /// A timeline that hands each line on.
    pub fn with_sink(sink: Sink) -> Self {
        let timeline = Self::default();
        timeline.state().sink = Some(sink);
        timeline
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a line.
    pub fn add(&self, row: Row) {
        let mut state = self.state();
        // What comes after stands after.
        state.close_groups(Timestamp::MAX);
        state.push(row);
    }

    /// Something happened to a pod; `what` as in `evicted`.
    pub fn add_pod(&self, at: Timestamp, node: &str, who: Who, tone: Tone, what: &str, pod: String) {
        let mut state = self.state();
        state.close_groups(at);
        let key = (node.to_owned(), who, what.to_owned());
        state.groups.entry(key).or_insert_with(|| Group { since: at, tone, pods: Vec::new() }).pods.push(pod);
    }

    /// Completes the lines that nothing is added to any more.
    pub fn flush(&self, now: Timestamp) {
        self.state().close_groups(now);
    }

    /// All lines so far.
    pub fn rows(&self) -> Vec<Row> {
        let mut state = self.state();
        state.close_groups(Timestamp::MAX);
        state.rows.clone()
    }
}

impl State {
    /// Completes the groups that have waited long enough.
    fn close_groups(&mut self, now: Timestamp) {
        let complete = |group: &Group| now.duration_since(group.since).unsigned_abs() >= TOGETHER;
        let keys: Vec<_> =
            self.groups.iter().filter(|(_, group)| complete(group)).map(|(key, _)| key.clone()).collect();
        let mut closed: Vec<_> = keys
            .into_iter()
            .filter_map(|key| self.groups.remove(&key).map(|group| (group.since, key, group)))
            .collect();
        closed.sort_by_key(|(since, ..)| *since);
        for (at, (node, who, what), Group { since: _, tone, pods }) in closed {
            self.push(Row { at, node: Some(node), who, tone, text: format!("{}: {what}", names(&pods)) });
        }
    }

    fn push(&mut self, row: Row) {
        if let Some(sink) = &mut self.sink {
            sink(&row);
        }
        self.rows.push(row);
    }
}

/// `a, b, c and 3 more`.
pub fn names(all: &[String]) -> String {
    let shown = if all.len() <= MOST_NAMES + 1 { all.len() } else { MOST_NAMES };
    let mut text = all.get(..shown).unwrap_or_default().join(", ");
    if shown < all.len() {
        // Writing to a String cannot fail.
        let _ = write!(text, " and {} more", all.len() - shown);
    }
    text
}

/// How lines are printed.
#[derive(Clone, Debug)]
pub struct Style {
    /// When the story began, from which its time counts.
    pub begins: Timestamp,
    /// How wide the column of nodes is.
    pub node_width: usize,
    /// How wide the terminal is; lines are not broken if `None`.
    pub width: Option<usize>,
    /// Whether there are colours.
    pub colours: bool,
}

impl Style {
    /// The heading above the lines.
    pub fn heading(&self) -> String {
        let text = format!("{:<8}  {:<node$}  {:<10}  WHAT", "TIME", "NODE", "WHO", node = self.node_width);
        self.paint(&text, "1")
    }

    /// A line, or several where it is broken.
    pub fn row(&self, row: &Row) -> String {
        let node = row.node.as_deref().unwrap_or("-");
        let time = elapsed(row.at.duration_since(self.begins).try_into().unwrap_or_default());
        let front = format!("{time:<8}  {node:<width$}  {:<10}  ", row.who.word(), width = self.node_width);
        let indent = front.chars().count();
        let room = self.width.map_or(usize::MAX, |width| width.saturating_sub(indent).max(20));
        let lines = broken(&row.text, room);
        let mut out =
            format!("{}{}", self.paint(&front, "2"), self.paint(lines.first().map_or("", |line| line), code(row)));
        for line in lines.iter().skip(1) {
            let _ = write!(out, "\n{:indent$}{}", "", self.paint(line, code(row)));
        }
        out
    }

    /// Text of several words, broken to the width of the terminal.
    pub fn paragraph(&self, text: &str) -> String {
        broken(text, self.width.unwrap_or(usize::MAX)).join("\n")
    }

    /// The text in a colour, on a terminal.
    pub fn paint(&self, text: &str, code: &str) -> String {
        if self.colours && !code.is_empty() && !text.is_empty() {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

/// The colour of a line.
fn code(row: &Row) -> &'static str {
    match (row.tone, row.who) {
        (Tone::Bad, _) => "1;31",
        (Tone::Warning, _) => "33",
        (Tone::Good, _) => "32",
        (Tone::Quiet, _) => "2",
        (Tone::Plain, Who::Azure) => "36",
        (Tone::Plain, Who::Agent) => "1",
        (Tone::Plain, _) => "",
    }
}

/// `03:25`, or `1:03:25` from an hour on.
pub fn elapsed(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds / 3600 {
        0 => format!("{:02}:{:02}", seconds / 60, seconds % 60),
        hours => format!("{hours}:{:02}:{:02}", seconds / 60 % 60, seconds % 60),
    }
}

/// The text in lines of at most so many characters, broken between words where that is possible.
fn broken(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let Some(line) = lines.last_mut() else { continue };
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(word.to_owned());
            continue;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_775_944_800 + seconds).unwrap()
    }

    #[test]
    fn pods_that_share_a_fate_share_a_line_and_it_stands_before_what_comes_after() {
        let timeline = Timeline::default();
        for pod in 0..7 {
            timeline.add_pod(at(0), "a", Who::Agent, Tone::Plain, "evicted", format!("web-{pod}"));
        }
        let text = "drained".to_owned();
        timeline.add(Row { at: at(0), node: Some("a".into()), who: Who::Agent, tone: Tone::Good, text });
        timeline.add_pod(at(3), "a", Who::Agent, Tone::Plain, "evicted", "late".into());
        let rows: Vec<String> = timeline.rows().into_iter().map(|row| row.text).collect();
        assert_eq!(rows, ["web-0, web-1, web-2, web-3 and 3 more: evicted", "drained", "late: evicted"]);
    }

    #[test]
    fn a_long_line_is_broken_under_its_own_column() {
        let style = Style { begins: at(0), node_width: 5, width: Some(50), colours: false };
        let text = "one two three four five six seven eight".to_owned();
        let row = Row { at: at(65), node: Some("np1-0".into()), who: Who::Azure, tone: Tone::Plain, text };
        assert_eq!(
            style.row(&row),
            "01:05     np1-0  azure       one two three four\n                             five six seven eight"
        );
    }
}
