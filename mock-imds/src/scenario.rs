//! Scenarios: the VMs, the settings of the service, and a timeline of what happens to them.
//!
//! A scenario is strict YAML: an unknown key is an error, and every error says where in the file it is and what would
//! be right.

use std::{collections::BTreeSet, fs, io, path::Path, time::Duration};

use serde::{Deserialize, Serialize};
use serde_saphyr::{Location, Spanned};

use crate::{
    clock::Period,
    event::{EventChange, EventSpec},
    fault::FaultSpec,
    place::{list, wrong},
    vm::{Vm, check_vms, group_of},
};

/// Why there is no scenario. The message names the file, the line and the column.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The file cannot be read.
    #[error("{file}: cannot read the scenario: {source}; give the path of a scenario file")]
    Read {
        /// The file.
        file: String,
        /// Why it cannot be read.
        source: io::Error,
    },
    /// The file does not say what a scenario must say.
    #[error("{file}:{line}:{column}: {message}")]
    Invalid {
        /// The file.
        file: String,
        /// The line, from 1.
        line: u64,
        /// The column, from 1.
        column: u64,
        /// What is wrong and what would be right.
        message: String,
    },
}

/// How `EventId`s are written that the scenario does not give.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum IdCase {
    /// `C7061BAC-AFDC-4513-B24B-AA5F13A16123`
    #[default]
    Upper,
    /// `c7061bac-afdc-4513-b24b-aa5f13a16123`
    Lower,
}

/// How the service behaves while nothing is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Settings {
    /// What everything is made from that looks random.
    pub seed: u64,
    /// The letter case of `EventId`s.
    pub event_ids: IdCase,
    /// The first `DocumentIncarnation`.
    pub first_incarnation: u64,
    /// How much a change raises it.
    pub incarnation_step: u64,
    /// Requests a second and VM to instance metadata and scheduled events together; 0 is no limit.
    pub requests_per_second: usize,
    /// Requests a second and VM for identity tokens; 0 is no limit.
    pub identity_requests_per_second: usize,
    /// Requests of a VM for identity tokens that may be open at once; 0 is no limit.
    pub identity_requests_at_once: usize,
    /// How long a placement group's first answer takes. With this or `events_after`, scheduled events are off until
    /// the first request, and again after `deactivate_after` without one.
    pub first_call_delay: Period,
    /// How long after the first answer events are listed.
    pub events_after: Period,
    /// How long without requests until scheduled events are off.
    pub deactivate_after: Period,
    /// Whether the document has an `ETag` and `If-None-Match` is answered with 304.
    pub etag: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            seed: 0,
            event_ids: IdCase::Upper,
            first_incarnation: 1,
            incarnation_step: 1,
            requests_per_second: 5,
            identity_requests_per_second: 20,
            identity_requests_at_once: 5,
            first_call_delay: Period::default(),
            events_after: Period::default(),
            deactivate_after: Period(Duration::from_hours(24)),
            etag: false,
        }
    }
}

/// What a step of the timeline does. Events and faults are called by their names.
#[derive(Debug, Clone)]
pub(crate) enum Action {
    Publish(EventSpec),
    Cancel(String),
    Approve(String),
    Start(String),
    Finish(String),
    Change(String, EventChange),
    Set(FaultSpec),
    Clear(String),
}

/// VMs, settings and a timeline.
#[derive(Debug, Clone)]
pub struct Scenario {
    pub(crate) description: String,
    pub(crate) vms: Vec<Vm>,
    pub(crate) settings: Settings,
    /// In the order of their time.
    pub(crate) steps: Vec<(Duration, Action)>,
    pub(crate) speed: f64,
}

impl Scenario {
    /// These VMs, default settings, and nothing happens.
    pub fn new(vms: impl IntoIterator<Item = Vm>) -> Self {
        Self {
            description: String::new(),
            vms: vms.into_iter().collect(),
            settings: Settings::default(),
            steps: Vec::new(),
            speed: 1.0,
        }
    }

    /// One VM to which nothing happens.
    pub fn single(vm: impl Into<String>) -> Self {
        Self::new([Vm::new(vm)])
    }

    /// The same with these settings.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// The same with its timeline and the phases of its events at `speed` times the pace. `NotBefore` tells the wall
    /// time at which the event will start all the same; latencies and limits stay as they are. A speed that is not a
    /// positive number is ignored.
    #[must_use]
    pub fn at_speed(mut self, speed: f64) -> Self {
        if speed.is_finite() && speed > 0.0 {
            self.speed = speed;
        }
        self
    }

    /// What the file says it is about.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// The VMs in the order of the file.
    pub fn vms(&self) -> &[Vm] {
        &self.vms
    }

    /// The time of the last step.
    pub fn length(&self) -> Duration {
        self.steps.last().map_or(Duration::ZERO, |(at, _)| Period(*at).at_speed(self.speed))
    }

    /// Reads a scenario file.
    pub fn from_file(path: &Path) -> Result<Self, ScenarioError> {
        let file = path.display().to_string();
        let text = fs::read_to_string(path).map_err(|source| ScenarioError::Read { file: file.clone(), source })?;
        Self::from_yaml(&file, &text)
    }

    /// Reads a scenario from `text`; `file` is what errors call it.
    pub fn from_yaml(file: &str, text: &str) -> Result<Self, ScenarioError> {
        let invalid = |location: Location, message: String| ScenarioError::Invalid {
            file: file.to_owned(),
            line: location.line().max(1),
            column: location.column().max(1),
            message,
        };
        let options = serde_saphyr::options! { with_snippet: false };
        let written: WrittenScenario = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
            let location = error.location().unwrap_or(Location::UNKNOWN);
            invalid(location, one_line(&error.render_with_formatter(&serde_saphyr::UserMessageFormatter)))
        })?;
        written.check().map_err(|wrong| invalid(wrong.referenced, wrong.value))
    }
}

/// The parser's message without the position that it appends and without line breaks, in the words of the file's
/// author where the parser uses its own.
fn one_line(message: &str) -> String {
    let first = message.lines().next().unwrap_or_default();
    let text = first.rsplit_once(" at line ").map_or(first, |(text, _)| text);
    let text = text.strip_prefix("error: ").unwrap_or(text).trim();
    match text {
        "expected sequence start" => "a list is needed here: `[a, b]`, or lines that begin with `- `".to_owned(),
        "expected mapping start" => "keys with values are needed here: `{key: value}`".to_owned(),
        "unexpected end of file" => "the file ends too early; a scenario needs at least `vms`".to_owned(),
        _ if text.starts_with("invalid u") => "a whole number, 0 or more, is needed here".to_owned(),
        _ => text.to_owned(),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenScenario {
    #[serde(default)]
    description: String,
    vms: Spanned<Vec<Spanned<Vm>>>,
    #[serde(default)]
    settings: Settings,
    #[serde(default)]
    steps: Vec<Spanned<WrittenStep>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenStep {
    at: Period,
    event: Option<EventSpec>,
    cancel: Option<Spanned<String>>,
    approve: Option<Spanned<String>>,
    start: Option<Spanned<String>>,
    finish: Option<Spanned<String>>,
    change: Option<Spanned<String>>,
    to: Option<Spanned<EventChange>>,
    fault: Option<FaultSpec>,
    clear: Option<Spanned<String>>,
}

impl WrittenScenario {
    fn check(self) -> Result<Scenario, Spanned<String>> {
        if self.vms.value.is_empty() {
            return Err(wrong(
                &self.vms,
                "there is no VM; give at least one, as `- name: aks-np1-12345678-vmss_0`".into(),
            ));
        }
        let mut names = BTreeSet::new();
        for vm in &self.vms.value {
            let name = &vm.value.name;
            if name.is_empty() || name.contains(|c: char| c == '/' || c.is_whitespace()) {
                return Err(wrong(vm, format!("`{name}` is no VM name; give one without spaces and slashes")));
            }
            if !names.insert(name.to_ascii_lowercase()) {
                return Err(wrong(vm, format!("there are two VMs `{name}`; give each a name of its own")));
            }
        }
        let vms: Vec<Vm> = self.vms.value.into_iter().map(|vm| vm.value).collect();
        let mut in_order: Vec<_> = self.steps;
        in_order.sort_by_key(|step| step.value.at);
        let mut known = Known { vms: &vms, events: BTreeSet::new(), ids: BTreeSet::new(), faults: BTreeSet::new() };
        let steps = in_order
            .into_iter()
            .map(|step| Ok((step.value.at.0, known.check(step)?)))
            .collect::<Result<_, Spanned<String>>>()?;
        Ok(Scenario { description: self.description, settings: self.settings, steps, speed: 1.0, vms })
    }
}

/// An action on the event of this name.
type ByName = fn(String) -> Action;

/// What earlier steps have introduced.
struct Known<'a> {
    vms: &'a [Vm],
    events: BTreeSet<String>,
    ids: BTreeSet<String>,
    faults: BTreeSet<String>,
}

impl Known<'_> {
    fn check(&mut self, step: Spanned<WrittenStep>) -> Result<Action, Spanned<String>> {
        let whole = wrong(
            &step,
            "a step does one thing; give it one of event, cancel, approve, start, finish, change, fault, clear".into(),
        );
        let WrittenStep { at: _, event, cancel, approve, start, finish, change, to, fault, clear } = step.value;
        let mut actions = Vec::new();
        if let Some(spec) = event {
            // What is missing has no place of its own; it is missing in the step.
            self.introduce(&spec).map_err(|wrong| match wrong.referenced {
                Location::UNKNOWN => Spanned::new(wrong.value, whole.referenced, whole.defined),
                _ => wrong,
            })?;
            actions.push(Action::Publish(spec));
        }
        let by_name: [(_, ByName); 4] =
            [(cancel, Action::Cancel), (approve, Action::Approve), (start, Action::Start), (finish, Action::Finish)];
        for (name, action) in by_name {
            if let Some(name) = name {
                actions.push(action(self.event(name)?));
            }
        }
        match (change, to) {
            (Some(name), Some(to)) => {
                if let Some(contradiction) = to.value.contradiction() {
                    return Err(wrong(&to, contradiction.to_owned()));
                }
                actions.push(Action::Change(self.event(name)?, to.value));
            }
            (Some(name), None) => {
                return Err(wrong(
                    &name,
                    "`change` needs `to`, which says what becomes new: `to: {notice: 5m}`".into(),
                ));
            }
            (None, Some(to)) => return Err(wrong(&to, "`to` needs `change`, which names the event".into())),
            (None, None) => {}
        }
        if let Some(spec) = fault {
            check_vms(self.vms, spec.vms())?;
            spec.check()?;
            if let Some(name) = &spec.name {
                self.faults.insert(name.value.clone());
            }
            actions.push(Action::Set(spec));
        }
        if let Some(name) = clear {
            if name.value != "all" && !self.faults.contains(&name.value) {
                let faults = list(self.faults.iter().map(String::as_str).chain(["all"]));
                return Err(wrong(
                    &name,
                    format!("no earlier step sets a fault `{}`; clear one of {faults}", name.value),
                ));
            }
            actions.push(Action::Clear(name.value));
        }
        match (actions.pop(), actions.is_empty()) {
            (Some(action), true) => Ok(action),
            _ => Err(whole),
        }
    }

    fn introduce(&mut self, spec: &EventSpec) -> Result<(), Spanned<String>> {
        group_of(self.vms, &spec.vms)?;
        if let Some(name) = &spec.name
            && !self.events.insert(name.value.clone())
        {
            return Err(wrong(name, format!("there is an event `{}` already; give this one another name", name.value)));
        }
        if let Some(id) = &spec.id
            && !self.ids.insert(id.value.to_ascii_lowercase())
        {
            return Err(wrong(id, format!("there is an event with the id `{}` already; give another one", id.value)));
        }
        Ok(())
    }

    fn event(&self, name: Spanned<String>) -> Result<String, Spanned<String>> {
        if self.events.contains(&name.value) {
            return Ok(name.value);
        }
        let events = list(self.events.iter().map(String::as_str));
        let right =
            if events.is_empty() { "no earlier step names one".to_owned() } else { format!("give one of {events}") };
        Err(wrong(&name, format!("no earlier step has an event named `{}`; {right}", name.value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VM: &str = "vms: [{name: a_1}, {name: b_2}]\n";

    fn error(text: &str) -> String {
        Scenario::from_yaml("bad.yaml", text).unwrap_err().to_string()
    }

    #[test]
    fn a_bad_scenario_says_where_what_is_wrong_and_what_would_be_right() {
        for (steps, expected) in [
            (
                "steps:\n  - at: 5s\n    event: {type: Rebot, vms: [a_1]}\n",
                "bad.yaml:4:19: unknown variant `Rebot`, expected one of Freeze, Reboot, Redeploy, Preempt, Terminate, other",
            ),
            (
                "steps:\n  - at: 5s\n    event: {type: Reboot, vms: [c_3]}\n",
                "bad.yaml:4:33: there is no VM `c_3`; give one of a_1, b_2",
            ),
            (
                "steps:\n  - at: 5s\n    event: {type: Reboot, vms: [a_1, b_2]}\n",
                "bad.yaml:4:38: `b_2` is in another placement group than the VMs before it; give it an event of its own",
            ),
            (
                "steps:\n  - at: 5s\n    cancel: first\n",
                "bad.yaml:4:13: no earlier step has an event named `first`; no earlier step names one",
            ),
            (
                "steps:\n  - {at: 5s, cancel: first}\n  - {at: 6s, event: {name: first, type: Reboot, vms: [a_1]}}\n",
                "bad.yaml:3:22: no earlier step has an event named `first`; no earlier step names one",
            ),
            (
                "steps:\n  - {at: 5s, event: {name: x, type: Reboot, vms: [a_1]}}\n  - {at: 6s, finish: y}\n",
                "bad.yaml:4:22: no earlier step has an event named `y`; give one of x",
            ),
            (
                "steps:\n  - at: -5s\n    clear: all\n",
                "bad.yaml:3:9: the length of time `-5s` is negative; it must be 0s or more",
            ),
            (
                "steps:\n  - at: soon\n    clear: all\n",
                "bad.yaml:3:9: `soon` is not a length of time; write it like 500ms, 30s, 15m or 1h 30m, up to 366 days",
            ),
            (
                "steps:\n  - at: 5s\n",
                "bad.yaml:3:5: a step does one thing; give it one of event, cancel, approve, start, finish, change, fault, clear",
            ),
            (
                "steps:\n  - {at: 5s, fault: {kind: {status: {code: 99}}}}\n",
                "bad.yaml:3:28: 99 is not an answer's HTTP status; give one from 200 to 599",
            ),
            (
                "steps:\n  - {at: 5s, fault: {kind: hang, vms: [c_3]}}\n",
                "bad.yaml:3:40: there is no VM `c_3`; give one of a_1, b_2",
            ),
            (
                "steps:\n  - {at: 5s, clear: cable}\n",
                "bad.yaml:3:21: no earlier step sets a fault `cable`; clear one of all",
            ),
            (
                "settings: {sede: 5}\n",
                "bad.yaml:2:12: unknown field `sede`, expected one of seed, eventIds, firstIncarnation, incarnationStep, requestsPerSecond, identityRequestsPerSecond, identityRequestsAtOnce, firstCallDelay, eventsAfter, deactivateAfter, etag",
            ),
        ] {
            assert_eq!(error(&format!("{VM}{steps}")), expected);
        }
    }

    #[test]
    fn bad_vms_say_where_they_are() {
        for (text, expected) in [
            ("vms: []\n", "bad.yaml:1:6: there is no VM; give at least one, as `- name: aks-np1-12345678-vmss_0`"),
            (
                "vms:\n  - name: a_1\n  - name: A_1\n",
                "bad.yaml:3:5: there are two VMs `A_1`; give each a name of its own",
            ),
            ("vms: a\n", "bad.yaml:1:6: a list is needed here: `[a, b]`, or lines that begin with `- `"),
            ("", "bad.yaml:1:1: the file ends too early; a scenario needs at least `vms`"),
            ("vms:\n  - zone: 1\n", "bad.yaml:2:5: missing field `name`"),
            ("vms:\n  - name: a b\n", "bad.yaml:2:5: `a b` is no VM name; give one without spaces and slashes"),
        ] {
            assert_eq!(error(text), expected);
        }
        assert!(error("vms: [\n").starts_with("bad.yaml:"), "{}", error("vms: [\n"));
        assert_eq!(error("vms: [\n").lines().count(), 1);
    }

    #[test]
    fn steps_are_carried_out_in_the_order_of_their_time() {
        let text = format!("{VM}steps:\n  - {{at: 9s, fault: {{kind: hang}}}}\n  - {{at: 1s, clear: all}}\n");
        let scenario = Scenario::from_yaml("ok.yaml", &text).unwrap();
        assert!(matches!(
            scenario.steps.as_slice(),
            [(_, Action::Clear(_)), (last, Action::Set(_))] if *last == Duration::from_secs(9)
        ));
        assert_eq!(scenario.at_speed(9.0).length(), Duration::from_secs(1));
    }
}
