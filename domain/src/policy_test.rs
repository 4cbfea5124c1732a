//! Tests of policies: what is expected to be done about an event, and when.
//!
//! A test file stands beside its policy (`spot.test.yaml` beside `spot.yaml`) and is as strict. Each case is played
//! through the agent's own [`plan`], on a node that has nothing on it, at every moment that the case names.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error as _, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_saphyr::Spanned;

use crate::node_plan::{FIELD_MANAGER, NodeView, Plan, Sightings, Situation, Stage, plan};
use crate::outlook::Outlook;
use crate::policy::duration_text::{self, DurationText};
use crate::policy::file::check_head;
use crate::policy::words::{EventSourceWord, EventStatusWord};
use crate::policy::{Action, Approve, Judgement, Mode, NoPolicy, POLICY_ANNOTATION, PolicySet, Ruling, TypeMatch};
use crate::record::{HOLD_ANNOTATION, Record};
use crate::scheduled_event::{
    Document, EventId, EventSource, EventStatus, EventType, NotBefore, ScheduledEvent, VmName,
};
use crate::time::{Monotonic, Now, minus, plus};
use crate::yaml::{self, FileError, Mistake, Mistakes};

const KIND: &str = "PolicyTest";

/// The name of the schema of test files. It is a name, not an address.
pub const SCHEMA_ID: &str = "https://remediator.dev/schema/v1alpha1/policy-test.schema.json";

/// When every case begins, in Unix seconds. A policy knows no calendar, so any moment does.
const BEGINNING: i64 = 1_767_225_600;

/// How many plans it takes at most until nothing is left to write: cordon and record, slot, drain.
const MOST_PLANS: usize = 8;

/// The JSON Schema (draft 2020-12) of a test file.
pub fn schema() -> Value {
    crate::policy::schema_of::<TestFile>(SCHEMA_ID)
}

/// Reads the text of a test file; `file` is its name, for the errors, which are all mistakes in the order of the file.
pub fn parse(file: &str, text: &str) -> Result<PolicyTest, Vec<FileError>> {
    yaml::read_all(file, text, |written: TestFile, mistakes| Some(written.into_test(mistakes)))
}

/// The cases for one policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyTest {
    /// Files and folders with the policies that are loaded beside the one that is tested, relative to the test file.
    pub policies: Vec<String>,
    /// The cases.
    pub cases: Vec<Case>,
}

/// An event on a node, and what is expected to be done about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// What it shows, in words.
    pub name: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    moments: Vec<Moment>,
}

/// The event as it is listed at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Moment {
    after: Duration,
    event: ScheduledEvent,
    /// What is expected: the member's name and its text.
    expected: Vec<(&'static str, String)>,
}

/// Something that was not as expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// How long after the event was first seen.
    pub after: Duration,
    /// Which member of `expect`.
    pub what: &'static str,
    /// What the case expects.
    pub expected: String,
    /// What would be done.
    pub found: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { after, what, expected, found } = self;
        if !after.is_zero() {
            write!(out, "after {}: ", duration_text::print(*after))?;
        }
        write!(out, "{what}: expected {expected}, found {found}")
    }
}

impl Case {
    /// Plays the case with these policies and says what was not as expected.
    pub fn play(&self, policies: &PolicySet) -> Vec<Mismatch> {
        let Self { name: _, labels, annotations, moments } = self;
        let node = NodeView {
            name: "node".into(),
            labels: labels.clone(),
            policy: annotations.get(POLICY_ANNOTATION).cloned(),
            held: annotations.contains_key(HOLD_ANNOTATION),
            ready: true,
            ..NodeView::default()
        };
        let mut stage = Rehearsal {
            vm: VmName::new("vm"),
            node,
            sightings: Sightings::default(),
            slot_held: false,
            draining: false,
        };
        let mut mismatches = Vec::new();
        for Moment { after, event, expected } in moments {
            let found = stage.play(policies, event, moment(*after));
            let idle = !found.contains_key("rule");
            // Where nothing is done, it is neither carried out nor only told.
            let expected = expected.iter().filter(|(what, _)| *what != "mode" || !idle);
            mismatches.extend(expected.filter_map(|(what, expected)| {
                let found = found.get(what).cloned().unwrap_or_else(|| NONE.to_owned());
                (found != *expected).then(|| Mismatch { after: *after, what, expected: expected.clone(), found })
            }));
        }
        mismatches
    }
}

const NONE: &str = "none";

fn moment(after: Duration) -> Now {
    let beginning = Timestamp::from_second(BEGINNING).unwrap_or_default();
    Now { wall: plus(beginning, after), monotonic: Monotonic::after_start(after) }
}

/// A node whose agent does what it plans.
struct Rehearsal {
    vm: VmName,
    node: NodeView,
    sightings: Sightings,
    slot_held: bool,
    draining: bool,
}

impl Rehearsal {
    /// What is done about the event, as texts by the members of `expect`.
    fn play(&mut self, policies: &PolicySet, event: &ScheduledEvent, now: Now) -> BTreeMap<&'static str, String> {
        let document = Document { events: vec![event.clone()], ..Document::default() };
        self.sightings.see(document, &self.vm);
        let plan = self.settle(policies, now);
        let judgement = policies.judge(self.node.traits(), event, now);
        let record = self.node.record.as_deref().and_then(|record| Record::from_annotation(record).ok());
        let fixed = record.as_ref().and_then(|record| record.event(&event.id)).and_then(|event| event.ruling.clone());
        found(&judgement, fixed, &plan, event, now)
    }

    /// Plans and carries out until nothing is left to do now.
    fn settle(&mut self, policies: &PolicySet, now: Now) -> Plan {
        let mut plans = 0;
        loop {
            plans += 1;
            let next = plan(&Situation {
                vm: &self.vm,
                sightings: &self.sightings,
                node: &self.node,
                policies,
                draining: self.draining,
                blocked: &[],
                finished: None,
                slot_held: self.slot_held,
                marks_refused: false,
                topics: &BTreeSet::new(),
                told: &BTreeSet::new(),
                approved: &BTreeMap::new(),
                now,
            });
            let slot_given = next.slot.is_some() != self.slot_held;
            self.slot_held = next.slot.is_some();
            self.draining = next.drain.is_some();
            match &next.write {
                Some(write) if plans < MOST_PLANS => {
                    self.node.record.clone_from(&write.record);
                    self.node.marks = std::mem::take(&mut self.node.marks).changed(&write.marks);
                    self.node.marks.cordon_manager = self.node.marks.unschedulable.then(|| FIELD_MANAGER.to_owned());
                }
                None if slot_given && plans < MOST_PLANS => {}
                _ => return next,
            }
        }
    }
}

/// What is done: by the ruling that is fixed in the record, or by the judgement where that is still to come.
fn found(
    judgement: &Judgement,
    fixed: Option<Ruling>,
    plan: &Plan,
    event: &ScheduledEvent,
    now: Now,
) -> BTreeMap<&'static str, String> {
    let mut found = BTreeMap::from([("stage", plan.stage.word().to_owned())]);
    let (judged, mode) = match judgement {
        Judgement::Ruled(ruling) => (Some(ruling.clone()), "act"),
        Judgement::Observed(ruling) => (Some(ruling.clone()), "observe"),
        Judgement::NoPolicy(_) | Judgement::NoRule(_) => (None, "act"),
    };
    let stronger = |fixed: &Ruling| {
        judged.as_ref().is_some_and(|judged| mode == "act" && Outlook::of(judged, event, now).action > fixed.action)
    };
    let Some(ruling) = fixed.filter(|fixed| !stronger(fixed)).or_else(|| judged.clone()) else {
        if let Judgement::NoRule(policy) | Judgement::NoPolicy(NoPolicy::Unknown(policy)) = judgement {
            found.insert("policy", policy.clone());
        }
        found.insert("action", Action::None.to_string());
        found.insert("reason", reason(judgement).to_owned());
        return found;
    };
    let mut outlook = Outlook::of(&ruling, event, now);
    if let Some(drain) = &plan.drain {
        outlook = outlook.draining(&drain.order);
    }
    found.insert("policy", ruling.policy.clone());
    found.insert("rule", ruling.rule.clone());
    found.insert("action", outlook.action.to_string());
    found.insert("mode", mode.to_owned());
    found.insert("approve", ruling.approve.as_str().to_owned());
    let Outlook { action, cordons, starts, deadline, deletes_from } = outlook;
    if action == Action::None {
        return found;
    }
    found.insert("cordons", When::of(cordons.max(now.wall), now).text());
    found.insert("starts", When::of(starts.max(now.wall), now).text());
    found.extend(deadline.map(|at| ("deadline", When::of(at, now).text())));
    found.extend(deletes_from.map(|at| ("deletesFrom", When::of(at, now).text())));
    found.extend(ruling.marking.taint.as_ref().map(|taint| ("taint", taint.to_string())));
    found.insert("excludeFromLoadBalancers", ruling.marking.exclude_from_load_balancers.to_string());
    found.insert("disableScaleDown", ruling.marking.disable_scale_down.to_string());
    found.extend(ruling.nodes_at_once.map(|most| ("nodesAtOnce", most.to_string())));
    found
}

fn reason(judgement: &Judgement) -> &'static str {
    match judgement {
        Judgement::NoPolicy(NoPolicy::Unselected) => "noPolicy",
        Judgement::NoPolicy(NoPolicy::Unknown(_)) => "unknownPolicy",
        Judgement::NoRule(_) => "noRule",
        Judgement::Observed(_) | Judgement::Ruled(_) => NONE,
    }
}

/// A moment beside that of the sighting: `in 15m` or `5m ago`; or `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    In(Duration),
    Ago(Duration),
    Never,
}

impl When {
    fn of(at: Timestamp, now: Now) -> Self {
        if at < now.wall { Self::Ago(now.since(at)) } else { Self::In(now.until(at)) }
    }

    fn not_before(self, now: Now) -> NotBefore {
        match self {
            Self::In(ahead) => NotBefore::At(plus(now.wall, ahead)),
            Self::Ago(ago) => NotBefore::At(minus(now.wall, ago)),
            Self::Never => NotBefore::Absent,
        }
    }

    fn text(self) -> String {
        match self {
            Self::In(ahead) => format!("in {}", duration_text::print(ahead)),
            Self::Ago(ago) => format!("{} ago", duration_text::print(ago)),
            Self::Never => NONE.to_owned(),
        }
    }
}

impl<'de> Deserialize<'de> for When {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let read = |duration: &str| duration_text::parse(duration).map_err(D::Error::custom);
        match (text.strip_prefix("in "), text.strip_suffix(" ago")) {
            (Some(ahead), _) => read(ahead).map(Self::In),
            (None, Some(ago)) => read(ago).map(Self::Ago),
            (None, None) if text == NONE => Ok(Self::Never),
            (None, None) => Err(D::Error::custom(format!(
                "`{text}` is no moment: write it like `in 15m` or `5m ago`, or write none"
            ))),
        }
    }
}

impl JsonSchema for When {
    fn schema_name() -> Cow<'static, str> {
        "Moment".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let duration = duration_text::PATTERN.trim_start_matches('^').trim_end_matches('$');
        json_schema!({
            "description": "A moment beside that of the sighting: `in 15m` or `5m ago`; or none.",
            "type": "string",
            "pattern": format!("^(in {duration}|{duration} ago|{NONE})$"),
            "examples": ["in 15m", "in 0s", "5m ago"],
        })
    }
}

/// What a policy is expected to do about events.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(title = "Test of a policy of remediator")]
struct TestFile {
    /// The version of the policy language.
    #[schemars(with = "String", extend("const" = crate::policy::file::API_VERSION))]
    api_version: Spanned<String>,
    /// What the file is.
    #[schemars(with = "String", extend("const" = KIND))]
    kind: Spanned<String>,
    /// Policy files or folders that are loaded beside the policy that is tested, relative to this file.
    #[serde(default)]
    policies: Vec<String>,
    /// The cases, each on a node of its own.
    #[schemars(with = "Vec<CaseFile>", extend("minItems" = 1))]
    cases: Spanned<Vec<CaseFile>>,
}

/// An event on a node, and what is expected to be done about it.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Case")]
struct CaseFile {
    /// What the case shows, in words.
    #[schemars(with = "String", extend("minLength" = 1))]
    name: Spanned<String>,
    /// The node.
    #[serde(default)]
    node: NodeFile,
    /// The event as it is first seen.
    #[schemars(with = "EventFile")]
    event: Spanned<EventFile>,
    /// What is expected at that moment.
    #[schemars(with = "ExpectFile")]
    expect: Spanned<ExpectFile>,
    /// Later sightings of the same event, in the order of time.
    #[serde(default)]
    then: Vec<LaterFile>,
}

/// What a policy can know of a node.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "Node")]
struct NodeFile {
    /// Its labels, by which policies select it.
    labels: BTreeMap<String, String>,
    /// Its annotations: `remediator.dev/policy` names a policy for it, `remediator.dev/hold` holds the agent off.
    annotations: BTreeMap<String, String>,
}

/// A scheduled event.
#[derive(Clone, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Event")]
struct EventFile {
    /// What happens to the machine; needed at the first sighting.
    #[serde(rename = "type")]
    event_type: Option<TypeMatch>,
    /// How far it has come; at first `Scheduled` without it.
    status: Option<EventStatusWord>,
    /// Who asked for it; `Platform` without it.
    source: Option<EventSourceWord>,
    /// When it begins at the earliest; at any moment without it.
    not_before: Option<When>,
    /// How long it is expected to last; unknown without it.
    duration: Option<DurationText>,
    /// Azure's words; none without it.
    description: Option<String>,
}

/// The event as it is seen later.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Sighting")]
struct LaterFile {
    /// How long after the sighting before this one.
    #[schemars(with = "DurationText")]
    after: Spanned<DurationText>,
    /// What has changed of the event; an event that has started names no time any more.
    #[serde(default)]
    event: EventFile,
    /// What is expected at that moment.
    #[schemars(with = "ExpectFile")]
    expect: Spanned<ExpectFile>,
}

/// What is expected; what is not given may be anything.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Expect")]
struct ExpectFile {
    /// The policy that applies.
    policy: Option<String>,
    /// The rule that applies.
    rule: Option<String>,
    /// Why no rule applies.
    reason: Option<Reason>,
    /// What is done: only a cordon, where too little time is left for a drain.
    action: Action,
    /// Whether it is carried out, or only told; carried out without it.
    #[serde(default)]
    mode: Mode,
    /// What the agent is doing at that moment, as its metric `agent_stage` says it.
    stage: Option<StageWord>,
    /// When the node is cordoned.
    cordons: Option<When>,
    /// When the action begins.
    starts: Option<When>,
    /// When the drain has to be done.
    deadline: Option<When>,
    /// From when on pods that are still there are deleted.
    deletes_from: Option<When>,
    /// Whether the event is started early.
    approve: Option<Approve>,
    /// The taint on the node, as `KEY:EFFECT` or `KEY=VALUE:EFFECT`, or `none`.
    taint: Option<String>,
    /// Whether the node is taken out of load balancers.
    exclude_from_load_balancers: Option<bool>,
    /// Whether the autoscaler is kept from removing the node.
    disable_scale_down: Option<bool>,
    /// How many nodes of the pool are drained at once, or `none`.
    nodes_at_once: Option<Limit>,
}

/// Why no rule applies.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
enum Reason {
    /// No policy selects the node.
    NoPolicy,
    /// The node names a policy that is not loaded.
    UnknownPolicy,
    /// The policy has no rule for the event.
    NoRule,
}

/// A number, or `none`.
#[derive(Clone, Copy)]
struct Limit(Option<u32>);

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct LimitVisitor;

        impl Visitor<'_> for LimitVisitor {
            type Value = Limit;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a whole number, or none")
            }

            fn visit_u64<E: serde::de::Error>(self, most: u64) -> Result<Self::Value, E> {
                u32::try_from(most).map(|most| Limit(Some(most))).map_err(E::custom)
            }

            fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<Self::Value, E> {
                if word == NONE {
                    Ok(Limit(None))
                } else {
                    Err(E::custom(format!("`{word}` is neither a whole number nor none")))
                }
            }
        }

        deserializer.deserialize_any(LimitVisitor)
    }
}

impl JsonSchema for Limit {
    fn schema_name() -> Cow<'static, str> {
        "Limit".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A number, or none.",
            "anyOf": [{"type": "integer", "minimum": 1}, {"const": NONE}],
        })
    }
}

/// A word for what the agent is doing.
#[derive(Clone)]
struct StageWord(&'static str);

impl<'de> Deserialize<'de> for StageWord {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        let known = Stage::WORDS.iter().find(|known| **known == word).map(|known| Self(known));
        known.ok_or_else(|| D::Error::custom(format!("unknown stage `{word}`: use one of {}", Stage::WORDS.join(", "))))
    }
}

impl JsonSchema for StageWord {
    fn schema_name() -> Cow<'static, str> {
        "Stage".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"description": "What the agent is doing.", "type": "string", "enum": Stage::WORDS})
    }
}

impl TestFile {
    fn into_test(self, mistakes: &mut Mistakes) -> PolicyTest {
        let Self { api_version, kind, policies, cases } = self;
        mistakes.take(check_head(&api_version, &kind, KIND));
        if cases.value.is_empty() {
            mistakes.take::<()>(Err(Mistake::at(&cases, "a test file has one case at least")));
        }
        let mut names = BTreeSet::new();
        let mut checked = Vec::with_capacity(cases.value.len());
        for case in cases.value {
            if !names.insert(case.name.value.clone()) {
                let message = format!("two cases are named `{}`: rename one", case.name.value);
                mistakes.take::<()>(Err(Mistake::at(&case.name, message)));
            }
            checked.extend(case.into_case(mistakes));
        }
        PolicyTest { policies, cases: checked }
    }
}

impl CaseFile {
    fn into_case(self, mistakes: &mut Mistakes) -> Option<Case> {
        let Self { name, node: NodeFile { labels, annotations }, event, expect, then } = self;
        if name.value.trim().is_empty() {
            mistakes.take::<()>(Err(Mistake::at(&name, "say in `name` what the case shows")));
        }
        let Some(event_type) = event.value.event_type.clone() else {
            let message = "the event needs `type`: Freeze, Reboot, Redeploy, Preempt, Terminate or Unknown";
            return mistakes.take(Err(Mistake::at(&event, message)));
        };
        let beginning = ScheduledEvent {
            id: EventId::new("event"),
            event_type: type_of(event_type),
            status: EventStatus::Scheduled,
            source: EventSource::Platform,
            resources: vec![VmName::new("vm")],
            not_before: NotBefore::Absent,
            duration: None,
            description: String::new(),
        };
        let seen = event.value.changed(beginning, moment(Duration::ZERO));
        let mut moments =
            vec![Moment { after: Duration::ZERO, event: seen, expected: into_expected(&expect, mistakes) }];
        let mut passed = Duration::ZERO;
        for LaterFile { after, event, expect } in then {
            if after.value.0.is_zero() {
                mistakes.take::<()>(Err(Mistake::at(&after, "`after` must be longer than 0s")));
            }
            passed = passed.saturating_add(after.value.0);
            let last = moments.last().map(|moment| moment.event.clone())?;
            let seen = event.changed(last, moment(passed));
            moments.push(Moment { after: passed, event: seen, expected: into_expected(&expect, mistakes) });
        }
        Some(Case { name: name.value, labels, annotations, moments })
    }
}

fn type_of(word: TypeMatch) -> EventType {
    match word {
        TypeMatch::Is(event_type) => event_type,
        TypeMatch::Unknown => EventType::Other("Unknown".into()),
    }
}

impl EventFile {
    /// The event with what this says of it.
    fn changed(self, mut event: ScheduledEvent, now: Now) -> ScheduledEvent {
        let Self { event_type, status, source, not_before, duration, description } = self;
        if let Some(event_type) = event_type {
            event.event_type = type_of(event_type);
        }
        if let Some(EventStatusWord(status)) = status {
            if status == EventStatus::Started {
                event.not_before = NotBefore::Absent;
            }
            event.status = status;
        }
        if let Some(EventSourceWord(source)) = source {
            event.source = source;
        }
        if let Some(when) = not_before {
            event.not_before = when.not_before(now);
        }
        event.duration = duration.map(|text| text.0).or(event.duration);
        event.description = description.unwrap_or(event.description);
        event
    }
}

fn into_expected(expect: &Spanned<ExpectFile>, mistakes: &mut Mistakes) -> Vec<(&'static str, String)> {
    let ExpectFile {
        policy,
        rule,
        reason,
        action,
        mode,
        stage,
        cordons,
        starts,
        deadline,
        deletes_from,
        approve,
        taint,
        exclude_from_load_balancers,
        disable_scale_down,
        nodes_at_once,
    } = expect.value.clone();
    let mut wrong = |message: &str| {
        mistakes.take::<()>(Err(Mistake::at(expect, message)));
    };
    if reason.is_some() && (rule.is_some() || action != Action::None) {
        wrong("`reason` says why no rule applies: leave `rule` out, and write `action: none`");
    }
    let given = |when: &Option<When>| when.is_some_and(|when| when != When::Never);
    if action == Action::None && [cordons, starts, deadline, deletes_from].iter().any(given) {
        wrong("with `action: none` nothing begins and nothing has a deadline: leave the times out");
    }
    if action == Action::Cordon && [deadline, deletes_from].iter().any(given) {
        wrong("a cordon has no deadline: leave `deadline` and `deletesFrom` out");
    }
    let mode = match mode {
        _ if reason.is_some() => None,
        Mode::Act => Some("act"),
        Mode::Observe => Some("observe"),
    };
    let reason = reason.map(|reason| match reason {
        Reason::NoPolicy => "noPolicy",
        Reason::UnknownPolicy => "unknownPolicy",
        Reason::NoRule => "noRule",
    });
    let members = [
        ("policy", policy),
        ("rule", rule),
        ("reason", reason.map(str::to_owned)),
        ("action", Some(action.to_string())),
        // Where nothing is done, nothing is carried out or told.
        ("mode", mode.filter(|_| action > Action::None).map(str::to_owned)),
        ("stage", stage.map(|stage| stage.0.to_owned())),
        ("cordons", cordons.map(When::text)),
        ("starts", starts.map(When::text)),
        ("deadline", deadline.map(When::text)),
        ("deletesFrom", deletes_from.map(When::text)),
        ("approve", approve.map(|approve| approve.as_str().to_owned())),
        ("taint", taint),
        ("excludeFromLoadBalancers", exclude_from_load_balancers.map(|set| set.to_string())),
        ("disableScaleDown", disable_scale_down.map(|set| set.to_string())),
        ("nodesAtOnce", nodes_at_once.map(|limit| limit.0.map_or_else(|| NONE.to_owned(), |most| most.to_string()))),
    ];
    members.into_iter().filter_map(|(what, text)| text.map(|text| (what, text))).collect()
}

#[cfg(test)]
mod tests;
