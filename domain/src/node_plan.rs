//! The agent's brain: what to do about one node, given what Azure lists, what the node carries and what the policy says.
//!
//! [`plan`] is level-triggered. It looks at the state of the world, not at what changed, so it may be asked at any time
//! and any number of times, and a new life of the agent comes to the same answer as the old one. Everything that must
//! outlive the agent is in the [`Record`] on the node; the plan says how the record is to change, and nothing is
//! carried out before the node carries the record that explains it.

mod conditions;
mod sightings;
mod telling;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use jiff::{RoundMode, Timestamp, TimestampRound, Unit};

use crate::drain::pod::PodName;
use crate::drain::{Order, Outcome};
use crate::fingerprint::fingerprint;
use crate::marks::{Claim, Claims, MarkChanges, Marking, Marks, TaintEffect};
use crate::notification::{Notification, Topic};
use crate::policy::{Action, Approve, AtDeadline, Judgement, NodeTraits, PolicySet, Profile, Ruling};
use crate::record::{
    DrainRecord, DrainResult, MOST_PODS_NAMED, Record, RecordError, RecordedEvent, Untold, claims_of_other_role,
};
use crate::scheduled_event::{EventId, EventStatus, ScheduledEvent, VmName};
use crate::time::{Monotonic, Now, minus, plus, spoken, stamp};
pub use conditions::{CONDITION_TYPES, ConditionChanges, NodeCondition};
pub use sightings::{ABSENT_FROM, Sightings};
pub use telling::Announcement;
use telling::{farewell, sighting};

/// How much time an event without a `NotBefore` in the future leaves: the impact may begin at any moment.
pub const WITHOUT_NOTICE: Duration = Duration::from_secs(30);

/// The name under which the agent writes its node, by which the API server knows what is its own.
pub const FIELD_MANAGER: &str = "remediator-agent";

/// The name under which the repairer writes nodes.
pub const REPAIRER_FIELD_MANAGER: &str = "remediator-repairer";

/// For how long after its deadline a drain that an earlier life of the agent left unfinished is still gone on with.
const STILL_WORTH_AN_EFFORT: Duration = Duration::from_secs(30);

/// How often a cordon that someone takes away during a drain is put back.
pub const MOST_CORDONS_RESTORED: u32 = 3;

/// How many messages may wait in the record for receivers outside the cluster; the oldest make room.
const MOST_UNTOLD: usize = 6;

/// The labels by which AKS names the pool of a node, the newer first.
const POOL_LABELS: [&str; 2] = ["kubernetes.azure.com/agentpool", "agentpool"];

/// Events whose deadlines are this close are drained for as one, in the way of the hardest.
const SAME_TIME: Duration = Duration::from_secs(10);

/// From so many other machines on that the same befalls, they mind each other: a few more or less in a cluster make no
/// difference to where pods go, nor to the API server.
const MANY_OTHERS: usize = 5;

/// Where the same befalls many machines: how long all of them have to cordon their nodes before the first drain begins.
/// Each asks Azure once a second, and then reads and writes its node.
const OTHERS_CORDON_WITHIN: Duration = Duration::from_secs(3);

/// By how much each of the other machines spreads the beginnings of the drains.
const TURN_EACH: Duration = Duration::from_millis(200);

/// The latest of these beginnings.
const LAST_TURN: Duration = Duration::from_secs(30);

/// With less time than this nobody waits for others.
const TIME_FOR_TURNS: Duration = Duration::from_secs(120);

/// A `NotBefore` that moves away by less than this is not worth a write to the node.
const NOTICE_TOLERANCE: Duration = Duration::from_secs(2);

/// What a plan needs to know of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeView {
    /// Its name.
    pub name: String,
    /// The identity of the object.
    pub uid: String,
    /// The version that was read; a write is refused if the node has changed since.
    pub resource_version: String,
    /// Its labels, by which policies select.
    pub labels: BTreeMap<String, String>,
    /// What its annotation [`crate::policy::POLICY_ANNOTATION`] says.
    pub policy: Option<String>,
    /// The marks on it, whoever set them.
    pub marks: Marks,
    /// Its conditions of the types that the agent writes.
    pub conditions: Vec<NodeCondition>,
    /// Whether its condition `Ready` is `True`.
    pub ready: bool,
    /// The boot that the kubelet reports.
    pub boot_id: Option<String>,
    /// The agent's record.
    pub record: Option<String>,
    /// The repairer's record.
    pub other_record: Option<String>,
    /// Whether a person holds remediator off this node.
    pub held: bool,
}

impl NodeView {
    /// By what it is given its policy.
    pub fn traits(&self) -> NodeTraits<'_> {
        NodeTraits { labels: &self.labels, policy: self.policy.as_deref() }
    }

    /// The pool that it belongs to, empty if its labels name none.
    pub fn pool(&self) -> &str {
        POOL_LABELS.iter().find_map(|label| self.labels.get(*label)).map_or("", String::as_str)
    }

    /// Whether nothing of the agent's is on it.
    pub fn is_clean(&self) -> bool {
        self.record.is_none() && !self.conditions.iter().any(NodeCondition::is_ours)
    }
}

/// A drain that has ended but is not in the record yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedDrain {
    /// When it began, which tells it from the next one.
    pub started_at: Timestamp,
    /// The events that it was for.
    pub events: Vec<EventId>,
    /// How it was done at the end.
    pub profile: Profile,
    /// How it ended.
    pub outcome: Outcome,
    /// When it ended.
    pub at: Timestamp,
}

/// Everything that a plan depends on.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// The machine that this node is.
    pub vm: &'a VmName,
    /// What Azure lists.
    pub sightings: &'a Sightings,
    /// The node.
    pub node: &'a NodeView,
    /// The policies.
    pub policies: &'a PolicySet,
    /// A drain is running in this process.
    pub draining: bool,
    /// The pods that have held that drain up for some time, and why.
    pub blocked: &'a [(PodName, String)],
    /// A drain of this process has ended.
    pub finished: Option<&'a FinishedDrain>,
    /// Whether this node holds one of the slots for drains of its pool.
    pub slot_held: bool,
    /// Whether the API server has just refused, by its admission, to put marks on the node beside the cordon.
    pub marks_refused: bool,
    /// What receivers outside the cluster want to be told.
    pub topics: &'a BTreeSet<Topic>,
    /// The messages that they have been told, or could not be.
    pub told: &'a BTreeSet<String>,
    /// The events that Azure has been told may start.
    pub approved: &'a BTreeMap<EventId, Timestamp>,
    /// The time.
    pub now: Now,
}

/// What the agent is doing about its node, in one word and with what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// No event concerns the node, and nothing of ours is on it.
    Idle,
    /// Events are listed, but the policy wants nothing done.
    Ignoring,
    /// An event is too far away to act; the time for it comes.
    Waiting(Timestamp),
    /// A person holds remediator off this node.
    Held,
    /// The node is or is being cordoned, and that is all the policy wants.
    Cordoned,
    /// The node is cordoned; other nodes of its pool are being drained, and it has to wait for its turn.
    WaitingForSlot,
    /// The node is cordoned; the same befalls many other machines, which are given time to cordon theirs. Until when.
    WaitingForOthers(Timestamp),
    /// The node is being drained until this deadline.
    Draining(Timestamp),
    /// The node is drained; the event is still to come or to end.
    Drained,
    /// The drain ended with pods left; the event is still to come or to end.
    Incomplete,
    /// The events are gone, but the node is not ready, or the autoscaler is removing it.
    AwaitingReady,
    /// The node is being given back.
    Releasing,
    /// The record on the node cannot be read: nothing is done.
    RecordUnreadable(RecordError),
}

impl Stage {
    /// The word for metrics and logs; the words are few and never change.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Ignoring => "ignoring",
            Self::Waiting(_) => "waiting",
            Self::Held => "held",
            Self::Cordoned => "cordoned",
            Self::WaitingForSlot => "waiting-for-slot",
            Self::WaitingForOthers(_) => "waiting-for-others",
            Self::Draining(_) => "draining",
            Self::Drained => "drained",
            Self::Incomplete => "incomplete",
            Self::AwaitingReady => "awaiting-ready",
            Self::Releasing => "releasing",
            Self::RecordUnreadable(_) => "record-unreadable",
        }
    }

    /// Every word that [`Self::word`] may say.
    pub const WORDS: [&'static str; 13] = [
        "idle",
        "ignoring",
        "waiting",
        "held",
        "cordoned",
        "waiting-for-slot",
        "waiting-for-others",
        "draining",
        "drained",
        "incomplete",
        "awaiting-ready",
        "releasing",
        "record-unreadable",
    ];
}

impl fmt::Display for Stage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Idle => out.write_str("no event concerns this node"),
            Self::Ignoring => out.write_str("nothing is done about the listed events"),
            Self::Waiting(until) => write!(out, "the event is far away; acting at {}", stamp(*until)),
            Self::Held => out.write_str("held by annotation remediator.dev/hold: nothing is begun or undone"),
            Self::Cordoned => out.write_str("cordoned until the event is gone"),
            Self::WaitingForSlot => {
                out.write_str("cordoned; other nodes of the pool are being drained, and this one waits for its turn")
            }
            Self::WaitingForOthers(turn) => write!(
                out,
                "cordoned; the same befalls many other machines, which cordon theirs now; draining from {} on",
                stamp(*turn)
            ),
            Self::Draining(deadline) => write!(out, "draining until {} at the latest", stamp(*deadline)),
            Self::Drained => out.write_str("drained; waiting for the event to come and go"),
            Self::Incomplete => out.write_str("drained as far as it went; waiting for the event to come and go"),
            Self::AwaitingReady => out.write_str(
                "the event is gone; waiting for the node to be Ready, and for the autoscaler if that is removing it",
            ),
            Self::Releasing => out.write_str("the event is gone; giving the node back"),
            Self::RecordUnreadable(error) => write!(out, "waiting: {error}"),
        }
    }
}

/// One write to the node: the marks and the record together, or neither.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeWrite {
    /// The version of the node that the plan was made for.
    pub resource_version: String,
    /// What is written of the marks.
    pub marks: MarkChanges,
    /// The record, or `None` to remove it.
    pub record: Option<String>,
    /// What to tell once the write has succeeded.
    pub announcements: Vec<Announcement>,
}

/// The drain that should be running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainOrder {
    /// The events that it is for.
    pub events: Vec<EventId>,
    /// How and until when.
    pub order: Order,
}

/// An event that Azure may be told to start now, as far as this node is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    /// The event.
    pub event: EventId,
    /// How this node was drained, if it and the others that the event concerns have to be empty first.
    pub drained: Option<Order>,
}

/// A slot for a drain that this node needs, or has and still needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotNeed {
    /// The pool, empty if the node's labels name none.
    pub pool: String,
    /// How many slots the pool has.
    pub most: u32,
}

/// What to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What the agent is doing, and why.
    pub stage: Stage,
    /// What to write to the node.
    pub write: Option<NodeWrite>,
    /// The drain that should be running; a running one is stopped if there is none.
    pub drain: Option<DrainOrder>,
    /// What to write of the node's conditions, which is not urgent.
    pub conditions: ConditionChanges,
    /// The slot that is needed, or to be kept; one that is held is given back if there is none.
    pub slot: Option<SlotNeed>,
    /// The events that may be started, once the others that they concern are ready too.
    pub approvals: Vec<Approval>,
    /// What receivers outside the cluster are still to be told, as the node carries it.
    pub notifications: Vec<Notification>,
    /// What to tell, whatever becomes of the write.
    pub announcements: Vec<Announcement>,
    /// When to plan again if nothing happens before.
    pub look_again: Option<Monotonic>,
}

/// When the policy wants the action to begin.
pub fn start_of(ruling: &Ruling, event: &ScheduledEvent, wall: Timestamp) -> Timestamp {
    match (ruling.start.at_most, event.notice(wall)) {
        (Some(at_most), Some(not_before)) => minus(not_before, at_most),
        // Started, or of unknown time: it may be now.
        _ => wall,
    }
}

/// When a drain for an event has to be done: at `NotBefore`; or, if the event came earlier or without notice, soon.
pub fn deadline_of(not_before: Option<Timestamp>, without_notice_since: Option<Timestamp>) -> Option<Timestamp> {
    let soon = without_notice_since.map(|since| plus(since, WITHOUT_NOTICE));
    match (not_before, soon) {
        (Some(at), Some(soon)) => Some(at.min(soon)),
        (at, soon) => at.or(soon),
    }
}

/// Says what to do about the node.
pub fn plan(situation: &Situation<'_>) -> Plan {
    let persisted = match situation.node.record.as_deref().map(Record::from_annotation).transpose() {
        Ok(record) => record,
        Err(error) => return unreadable(situation, error),
    };
    if let Some(Record { vm: recorded, .. }) = persisted.as_ref().filter(|record| record.vm != *situation.vm) {
        let (recorded, own) = (recorded.clone(), situation.vm.clone());
        return unreadable(situation, RecordError::OtherMachine { recorded, own });
    }
    Planner::new(*situation, persisted).plan()
}

fn unreadable(situation: &Situation<'_>, error: RecordError) -> Plan {
    let note = error.to_string();
    let key = format!("{}/record-unreadable", situation.node.uid);
    let announcement = Announcement::new(key, "RecordUnreadable", note).on(Topic::Failed).warning_if(true);
    // It cannot stand in the record until it is told, so each life tells it; the id is the same.
    let untold = announcement.untold(Topic::Failed, &situation.node.uid, to_the_second(situation.now.wall));
    let wanted = situation.topics.contains(&Topic::Failed) && !situation.told.contains(&untold.id);
    let notifications = wanted.then(|| notification(&untold, &situation.node.name)).into_iter().collect();
    Plan {
        stage: Stage::RecordUnreadable(error),
        write: None,
        drain: None,
        conditions: ConditionChanges::default(),
        slot: None,
        approvals: Vec::new(),
        notifications,
        announcements: vec![announcement],
        look_again: None,
    }
}

fn notification(untold: &Untold, node: &str) -> Notification {
    let Untold { id, topic, reason, warning, note, at, event } = untold.clone();
    Notification { id, topic, reason, warning, note, at, node: node.to_owned(), event }
}

/// An event that calls for a drain.
struct Call {
    event: EventId,
    deadline: Timestamp,
    profile: Profile,
    nodes_at_once: Option<u32>,
    /// Less time is left than the policy wants for a drain that begins now.
    too_late: bool,
}

impl Call {
    /// The call of an event for a drain that began at `started_at`; `None` if it calls for none, or has had it.
    fn of(event: &RecordedEvent, started_at: Timestamp, now: Now) -> Option<Self> {
        if event.drained.is_some() { None } else { Self::had_or_not(event, started_at, now) }
    }

    fn had_or_not(event: &RecordedEvent, started_at: Timestamp, now: Now) -> Option<Self> {
        let ruling = event.ruling.as_ref().filter(|ruling| ruling.action == Action::Drain)?;
        let deadline = deadline_of(event.not_before, event.without_notice_since)?;
        let profile = ruling.profile.clone().unwrap_or_default();
        // The record knows whole seconds only.
        let left = now.until(plus(deadline, Duration::from_secs(1)));
        let too_late = ruling.start.is_too_late(left);
        // A timeout counts from when the event joined the drain; a beginning that lies ahead was written before the clock was
        // set back.
        let began = Some(started_at).filter(|began| *began <= now.wall);
        let joined_at = event.ruled_at.max(began).unwrap_or(now.wall);
        let deadline = profile.timeout.map_or(deadline, |timeout| deadline.min(plus(joined_at, timeout)));
        let nodes_at_once = ruling.nodes_at_once;
        Some(Self { event: event.id.clone(), deadline, profile, nodes_at_once, too_late })
    }
}

/// What a drain that has not begun waits for, on a node that is cordoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// A slot of the pool.
    ForSlot,
    /// Its time among the machines that the same befalls.
    ForOthers(Timestamp),
}

struct Planner<'a> {
    now: Now,
    situation: Situation<'a>,
    /// The record that the node carries.
    persisted: Option<Record>,
    /// The record that it should carry.
    next: Record,
    listed: bool,
    start: Option<Timestamp>,
    /// The other role's record cannot be read, and something waits for that.
    unreadable: Option<RecordError>,
    /// The claims of the other role, or why they cannot be read.
    other: Result<Claims, RecordError>,
    slot: Option<SlotNeed>,
    waits: Option<Wait>,
    on_write: Vec<Announcement>,
    announcements: Vec<Announcement>,
}

impl<'a> Planner<'a> {
    fn new(situation: Situation<'a>, persisted: Option<Record>) -> Self {
        let next = persisted.clone().unwrap_or_else(|| Record::new(situation.vm.clone()));
        Self {
            now: situation.now,
            situation,
            persisted,
            next,
            listed: false,
            start: None,
            unreadable: None,
            other: claims_of_other_role(situation.node.other_record.as_deref()),
            slot: None,
            waits: None,
            on_write: Vec::new(),
            announcements: Vec::new(),
        }
    }

    fn plan(mut self) -> Plan {
        self.mend_times_after_clock_step();
        self.take_up_listed_events();
        self.let_go_of_gone_events();
        self.note_finished_drain();
        self.give_up_drain_that_nobody_went_on_with();
        self.want_cordon_for_new_events();
        let drain = self.order_drain();
        let marks = self.mark_or_release(drain.is_some());
        self.note_blocked_pods();
        self.note_untold();
        let record = (!self.nothing_to_remember()).then(|| self.next.to_annotation());
        let changed = marks.any() || record != self.persisted.as_ref().map(Record::to_annotation);
        let stage = self.stage(drain.as_ref());
        let write = changed.then(|| NodeWrite {
            resource_version: self.situation.node.resource_version.clone(),
            marks,
            record,
            announcements: std::mem::take(&mut self.on_write),
        });
        // A drain begins when the node carries the record of it, so that a new life of the agent goes on with it.
        let recorded = self.persisted.as_ref().and_then(|record| record.drain.as_ref());
        let cordoned = self.situation.node.marks.unschedulable || self.next.uncordoned_at.is_some();
        let may_run =
            self.situation.draining || (cordoned && recorded.is_some_and(|drain| drain.finished_at.is_none()));
        Plan {
            stage,
            conditions: self.conditions(),
            slot: self.slot_need(),
            approvals: self.approvals(),
            notifications: self.notifications(),
            write,
            drain: drain.filter(|_| may_run),
            announcements: self.announcements,
            look_again: self.start.map(|start| self.now.when(start)),
        }
    }

    /// Instants that we wrote ourselves cannot lie ahead, unless the clock was set back since; left as they are, what is
    /// counted from them would take as much longer.
    fn mend_times_after_clock_step(&mut self) {
        let now = to_the_second(self.now.wall);
        let mend = |at: &mut Timestamp| *at = (*at).min(now);
        for event in &mut self.next.events {
            event.without_notice_since.as_mut().map(mend);
            event.ruled_at.as_mut().map(mend);
        }
        // A running drain is known by its beginning, so that is mended where it is used.
        self.next.uncordoned_at.as_mut().map(mend);
    }

    fn take_up_listed_events(&mut self) {
        let Situation { vm, sightings, policies, node, .. } = self.situation;
        for event in sightings.events_of(vm) {
            self.listed = true;
            let judgement = policies.judge(node.traits(), event, self.now);
            // What the record tells of has been told.
            let known = self.persisted.as_ref().and_then(|record| record.event(&event.id));
            let is_news = known.is_none_or(|known| known.status != event.status);
            let told = is_news.then(|| {
                // What is fixed goes on, whatever the policy says by now, unless that is more.
                let fixed = known.and_then(|known| known.ruling.clone());
                let counts = fixed.filter(|fixed| fixed.action >= judgement.action()).map(Judgement::Ruled);
                sighting(event, counts.as_ref().unwrap_or(&judgement), self.now)
            });
            self.announcements.extend(told.clone());
            let position = self.next.events.iter().position(|recorded| recorded.id == event.id);
            let wanted = judgement.action() > Action::None;
            if position.is_none() && !wanted {
                continue;
            }
            if let Some(told) = &told {
                self.leave_untold(told);
            }
            let mut recorded = match position {
                Some(position) => self.next.events[position].clone(),
                None => RecordedEvent::new(event, to_the_second(self.now.wall)),
            };
            recorded.status = event.status.clone();
            if let Some(at) = self.situation.approved.get(&event.id).filter(|_| recorded.approved_at.is_none()) {
                recorded.approved_at = Some(to_the_second(*at));
                self.tell_on_write(telling::approved(event));
            }
            self.note_notice(&mut recorded, event);
            self.apply(&mut recorded, event, judgement);
            match position {
                // Its time had not come, and the policy has changed its mind.
                Some(position) if recorded.ruling.is_none() && !wanted => {
                    drop(self.next.events.remove(position));
                }
                Some(position) => self.next.events[position] = recorded,
                None => self.next.events.push(recorded),
            }
        }
    }

    fn note_notice(&self, recorded: &mut RecordedEvent, event: &ScheduledEvent) {
        let wall = self.now.wall;
        match event.notice(wall) {
            Some(at) => {
                let moved = recorded.not_before.is_none_or(|known| at < known || at > plus(known, NOTICE_TOLERANCE));
                if moved {
                    recorded.not_before = Some(at);
                }
                recorded.without_notice_since = None;
            }
            // It came before its time, or never had one. If its time has simply passed, that was the deadline.
            None if recorded.not_before.is_none_or(|known| known > wall) => {
                recorded.without_notice_since.get_or_insert(to_the_second(wall));
            }
            None => {}
        }
    }

    /// Fixes what is done about the event, once its time has come. Afterwards only something stronger replaces it.
    fn apply(&mut self, recorded: &mut RecordedEvent, event: &ScheduledEvent, judgement: Judgement) {
        let Judgement::Ruled(ruling) = judgement else { return };
        let fixed = recorded.ruling.as_ref().map_or(Action::None, |fixed| fixed.action);
        let start = start_of(&ruling, event, self.now.wall);
        if ruling.action > fixed && !self.situation.node.held && start > self.now.wall {
            self.start = Some(self.start.map_or(start, |known| known.min(start)));
        }
        let asked = ruling.action;
        let ruling = self.for_now(ruling, start, recorded);
        if ruling.action <= fixed || self.situation.node.held {
            return;
        }
        if asked == Action::Drain && ruling.action < asked && start <= self.now.wall {
            self.tell_on_write(telling::too_late(&recorded.id, &ruling));
        }
        if start <= self.now.wall || ruling.start.cordon_at_once {
            // Nobody could act before its time was over, and it is still listed: then it has come without notice.
            let deadline = deadline_of(recorded.not_before, recorded.without_notice_since);
            if fixed < Action::Drain && deadline.is_some_and(|deadline| deadline <= self.now.wall) {
                recorded.not_before = None;
                recorded.without_notice_since = Some(to_the_second(self.now.wall));
            }
            recorded.ruling = Some(ruling);
            recorded.ruled_at = Some(to_the_second(self.now.wall));
            recorded.drained = None;
        }
    }

    /// What of a ruling can be begun now: only the cordon, where it is too early or too late for the drain.
    fn for_now(&self, ruling: Ruling, start: Timestamp, recorded: &RecordedEvent) -> Ruling {
        let wall = self.now.wall;
        let too_early = ruling.start.cordon_at_once && start > wall;
        // Where nobody could act yet, a time that has passed counts as none.
        let not_before = recorded.not_before.filter(|at| *at > wall || recorded.ruling.is_some());
        let deadline = deadline_of(not_before, recorded.without_notice_since);
        let left = self.now.until(deadline.unwrap_or_else(|| plus(wall, WITHOUT_NOTICE)));
        let too_late = ruling.start.is_too_late(left);
        if ruling.action == Action::Drain && (too_early || too_late) { ruling.cordoning() } else { ruling }
    }

    fn let_go_of_gone_events(&mut self) {
        let sightings = self.situation.sightings;
        let (gone, there): (Vec<_>, Vec<_>) =
            self.next.events.drain(..).partition(|recorded| sightings.is_gone(&recorded.id));
        self.next.events = there;
        for event in gone {
            self.tell_on_write(farewell(&event, self.now.wall));
        }
    }

    fn note_finished_drain(&mut self) {
        let Some(finished) = self.situation.finished else { return };
        let this_one =
            |drain: &&mut DrainRecord| drain.finished_at.is_none() && drain.started_at == finished.started_at;
        let Some(drain) = self.next.drain.as_mut().filter(this_one) else { return };
        let Outcome { result, left, .. } = &finished.outcome;
        drain.finished_at = Some(to_the_second(finished.at));
        drain.left = left.iter().take(MOST_PODS_NAMED).map(|(name, _)| name.to_string()).collect();
        drain.left_count = u32::try_from(left.len()).unwrap_or(u32::MAX);
        let told = telling::drain_ended(drain, &finished.outcome, finished.at);
        for event in &mut self.next.events {
            // An event that moves other pods has still to be drained for.
            let profile = event.ruling.as_ref().and_then(|ruling| ruling.profile.clone()).unwrap_or_default();
            if finished.events.contains(&event.id) && profile.moves_the_same_pods(&finished.profile) {
                event.drained = Some(*result);
            }
        }
        self.tell_on_write(told);
    }

    /// A drain that a life of the agent left unfinished is not gone on with when its time is long over, or when the machine
    /// has restarted since: then what it was for is over, or under way.
    fn give_up_drain_that_nobody_went_on_with(&mut self) {
        let node = self.situation.node;
        if self.situation.draining || self.situation.finished.is_some() || node.held {
            return;
        }
        let restarted = node.boot_id.is_some() && self.next.boot_id.is_some() && node.boot_id != self.next.boot_id;
        let now = self.now.wall;
        let is_over = |drain: &&mut DrainRecord| {
            drain.finished_at.is_none()
                && drain.deadline <= now
                && (restarted || plus(drain.deadline, STILL_WORTH_AN_EFFORT) <= now)
        };
        let Some(drain) = self.next.drain.as_mut().filter(is_over) else { return };
        drain.finished_at = Some(to_the_second(now));
        let nobody_looked = Outcome { result: DrainResult::Incomplete, left: Vec::new(), evicted: 0, deleted: 0 };
        let told = telling::drain_ended(drain, &nobody_looked, now);
        for event in &mut self.next.events {
            let due = deadline_of(event.not_before, event.without_notice_since);
            if event.is_to_be_drained() && due.is_none_or(|due| due <= now) {
                event.drained = Some(DrainResult::Incomplete);
            }
        }
        self.tell_on_write(told);
    }

    fn note_blocked_pods(&mut self) {
        let blocked = self.situation.blocked;
        if blocked.is_empty() || !self.situation.draining || self.situation.node.held {
            return;
        }
        let Some(drain) = self.next.drain.as_mut() else { return };
        if drain.finished_at.is_none() && !drain.blocked_told {
            drain.blocked_told = true;
            let told = telling::drain_blocked(drain, blocked);
            self.tell_on_write(told);
        }
    }

    /// Something to be told with the write, which is lost with this life if the write succeeds and the process dies then;
    /// so what receivers outside the cluster want to know stands in the record until they know it.
    fn tell_on_write(&mut self, announcement: Announcement) {
        self.leave_untold(&announcement);
        self.on_write.push(announcement);
    }

    fn leave_untold(&mut self, announcement: &Announcement) {
        let Some(topic) = announcement.topic.filter(|topic| self.situation.topics.contains(topic)) else { return };
        let untold = announcement.untold(topic, &self.situation.node.uid, to_the_second(self.now.wall));
        if self.next.untold.iter().any(|known| known.id == untold.id) {
            return;
        }
        if self.next.untold.len() >= MOST_UNTOLD {
            self.next.untold.remove(0);
        }
        self.next.untold.push(untold);
    }

    /// Only what the node carries already, so that it is not forgotten.
    fn notifications(&self) -> Vec<Notification> {
        let node = &self.situation.node.name;
        let untold = self.persisted.iter().flat_map(|record| &record.untold);
        let untold = untold.filter(|untold| !self.situation.told.contains(&untold.id));
        untold.map(|untold| notification(untold, node)).collect()
    }

    /// What has been told, or what nobody wants to be told any more, is forgotten.
    fn note_untold(&mut self) {
        let Situation { told, topics, .. } = self.situation;
        self.next.untold.retain(|untold| topics.contains(&untold.topic) && !told.contains(&untold.id));
    }

    /// An event that came after the cordon was given up is another reason for it.
    fn want_cordon_for_new_events(&mut self) {
        let node = self.situation.node;
        let Some(given_up) = self.next.uncordoned_at.filter(|_| !node.held) else { return };
        if self.next.events.iter().any(|event| event.ruled_at > Some(given_up)) {
            self.next.cordon_restored = 0;
            self.next.uncordoned_at = None;
            self.next.claims.cordon = self.next.claims.cordon.filter(|_| node.marks.unschedulable);
        }
    }

    /// The drain that the events call for, and the record of it.
    fn order_drain(&mut self) -> Option<DrainOrder> {
        self.try_again_where_the_deadline_moved_away();
        let running =
            self.next.drain.as_ref().filter(|drain| drain.finished_at.is_none()).map(|drain| drain.started_at);
        let started_at = running.unwrap_or_else(|| to_the_second(self.now.wall));
        let mut calling: Vec<Call> =
            self.next.events.iter().filter_map(|event| Call::of(event, started_at, self.now)).collect();
        if running.is_none() {
            // It may have become too late while the node waited for its turn.
            let is_late =
                |call: &Call| call.too_late || (call.nodes_at_once.is_some() && call.deadline <= self.now.wall);
            for late in calling.extract_if(.., |call| is_late(call)) {
                let ruling = self.next.event(&late.event).and_then(|event| event.ruling.as_ref());
                self.announcements.extend(ruling.map(|ruling| telling::too_late(&late.event, ruling)));
            }
        }
        let Some(deadline) = calling.iter().map(|call| call.deadline).min() else {
            // Its events are gone; another drain is another drain.
            if running.is_some() {
                self.next.drain = None;
            }
            return None;
        };
        if self.situation.node.held {
            return None;
        }
        if running.is_none()
            && let Some(turn) = self.turn(&calling, deadline)
        {
            self.waits = Some(Wait::ForOthers(turn));
            self.start = Some(self.start.map_or(turn, |start| start.min(turn)));
            return None;
        }
        // Only where every event leaves room for it does one drain wait for others.
        let most = calling.iter().map(|call| call.nodes_at_once).min().flatten();
        if let Some(most) = most {
            self.slot = Some(SlotNeed { pool: self.situation.node.pool().to_owned(), most });
            if running.is_none() && !self.situation.slot_held {
                self.waits = Some(Wait::ForSlot);
                return None;
            }
        }
        // The most urgent event says how the drain is done; of some that come at about the same time, the hardest.
        let profile = calling
            .iter()
            .filter(|call| call.deadline <= plus(deadline, SAME_TIME))
            .max_by_key(|call| (call.profile.at_deadline == AtDeadline::Delete, std::cmp::Reverse(call.deadline)))
            .map(|call| call.profile.clone())
            .unwrap_or_default();
        let events = calling.into_iter().map(|call| call.event).collect();
        if running.is_none() {
            self.next.cordon_restored = 0;
            self.next.uncordoned_at = None;
            let left = spoken(self.now.until(deadline));
            let note = format!("Draining until {} at the latest (in {left}).", stamp(deadline));
            let key = format!("drain/{started_at}/start");
            self.tell_on_write(Announcement::new(key, "NodeDrainStart", note).on(Topic::Drain));
        }
        let mut recorded = self.next.drain.take().filter(|_| running.is_some());
        recorded.get_or_insert_with(|| DrainRecord::new(started_at, deadline)).deadline = deadline;
        self.next.drain = recorded;
        let uncordoned_at = self.next.uncordoned_at;
        Some(DrainOrder { events, order: Order { profile, started_at, deadline, uncordoned_at } })
    }

    /// When the drain may begin, if that is later, because the same befalls many other machines and there is time: the others
    /// are given some to cordon their nodes, so that no pod moves from one to the next, and they begin one after the other,
    /// so that they do not overrun the API server together.
    fn turn(&self, calling: &[Call], deadline: Timestamp) -> Option<Timestamp> {
        let document = self.situation.sightings.latest()?;
        let recorded = || calling.iter().filter_map(|call| self.next.event(&call.event));
        let befalls = |event: &&ScheduledEvent| recorded().any(|recorded| recorded.event_type == event.event_type);
        let machines = document.events.iter().filter(befalls).flat_map(|event| &event.resources);
        let others: BTreeSet<&VmName> = machines.filter(|vm| *vm != self.situation.vm).collect();
        if others.len() < MANY_OTHERS || self.now.until(deadline) < TIME_FOR_TURNS {
            return None;
        }
        let spread = TURN_EACH.saturating_mul(u32::try_from(others.len()).unwrap_or(u32::MAX)).min(LAST_TURN);
        // Nodes of a pool are called alike, and spread all the same.
        let share = u32::try_from(fingerprint(&self.situation.node.name) % 1000).unwrap_or_default();
        let turn =
            plus(recorded().filter_map(|event| event.ruled_at).max()?, OTHERS_CORDON_WITHIN + spread * share / 1000);
        (turn > self.now.wall).then_some(turn)
    }

    /// A drain that its deadline ended with pods left goes on if the event turns out to come later, or if another
    /// event leaves more time than the one whose deadline that was.
    fn try_again_where_the_deadline_moved_away(&mut self) {
        let by_deadline = |drain: &&DrainRecord| {
            drain.finished_at.is_some_and(|at| plus(at, Duration::from_secs(1)) >= drain.deadline)
        };
        let Some(drain) = self.next.drain.as_ref().filter(by_deadline) else { return };
        for event in &mut self.next.events {
            let deadline = Call::had_or_not(event, drain.started_at, self.now).map(|call| call.deadline);
            let moved_away = deadline.is_some_and(|deadline| deadline > drain.deadline && deadline > self.now.wall);
            if event.drained == Some(DrainResult::Incomplete) && moved_away {
                event.drained = None;
            }
        }
    }

    /// Sets the marks or takes them away, and says so.
    fn mark_or_release(&mut self, drain_called_for: bool) -> MarkChanges {
        if !self.next.events.iter().any(|event| event.ruling.is_some()) {
            return self.release();
        }
        if self.situation.node.held {
            self.look_at_marks();
            return MarkChanges::default();
        }
        let unschedulable = self.cordon(drain_called_for || self.waits.is_some());
        let beside = self.mark_beside_cordon();
        MarkChanges { unschedulable, ..beside }
    }

    /// Notes what has become of the marks that are claimed, where nothing is done about them.
    fn look_at_marks(&mut self) {
        let other = self.other.clone().unwrap_or_default();
        let marks = &self.situation.node.marks;
        self.next.claims.cordon = self.next.claims.cordon.map(|claim| claim.seen(marks.unschedulable, other.cordon));
        self.next.claims.look(&other, marks);
    }

    /// The marks that the policy wants beside the cordon.
    fn mark_beside_cordon(&mut self) -> MarkChanges {
        if self.situation.marks_refused && !self.next.marks_refused {
            self.next.marks_refused = true;
            let key = format!("{}/marks-refused", self.newest_event());
            let note = "An admission policy or webhook refuses the taint, label or annotation that the policy asks for: the \
                        node is only cordoned. Let it pass, or take them out of the policy.";
            self.tell_on_write(Announcement::new(key, "NodeMarksRefused", note).on(Topic::Failed).warning_if(true));
        }
        let other = self.other.clone().unwrap_or_default();
        if self.next.marks_refused {
            self.next.claims.look(&other, &self.situation.node.marks);
            return MarkChanges::default();
        }
        let mut wanted = Marking::default();
        for ruling in self.next.events.iter().filter_map(|event| event.ruling.as_ref()) {
            wanted.taint = wanted.taint.or_else(|| ruling.marking.taint.clone());
            wanted.exclude_from_load_balancers |= ruling.marking.exclude_from_load_balancers;
            wanted.disable_scale_down |= ruling.marking.disable_scale_down;
        }
        // It would delete the pods that are still to be evicted, and those that nobody wants evicted.
        let still_to_drain = self.next.events.iter().any(RecordedEvent::is_to_be_drained);
        let drain_is_over = !still_to_drain && self.next.events.iter().any(|event| event.drained.is_some());
        wanted.taint = wanted.taint.filter(|taint| taint.effect != TaintEffect::NoExecute || drain_is_over);
        self.next.claims.take(&wanted, &other, &self.situation.node.marks)
    }

    /// Sets the cordon, or finds it there; `None` leaves it as it is.
    fn cordon(&mut self, drain_called_for: bool) -> Option<bool> {
        let node = self.situation.node;
        let Marks { unschedulable, cordon_manager, .. } = &node.marks;
        let autoscaler_gave_up = self.next.removed_by_autoscaler && !node.marks.removed_by_autoscaler();
        self.next.removed_by_autoscaler = node.marks.removed_by_autoscaler();
        let other = self.other.as_ref().ok().and_then(|other| other.cordon);
        let Some(claim) = self.next.claims.cordon else {
            self.next.boot_id = self.next.boot_id.take().or_else(|| node.boot_id.clone());
            let by_us = cordon_manager.as_deref() == Some(FIELD_MANAGER);
            // Our record of it may have been taken away, but not the cordon itself.
            let claim = if by_us && other.is_none() { Claim::Ours } else { Claim::on(*unschedulable, other) };
            self.next.claims.cordon = Some(claim);
            if *unschedulable {
                if claim == Claim::Foreign {
                    let note = "The node was cordoned before its scheduled event; it stays so afterwards.";
                    self.tell_cordon("cordoned-before", false, note);
                }
                return None;
            }
            let note = "Cordoned for a scheduled event of the machine; given back when it is over.";
            self.tell_cordon("cordon", false, note);
            return Some(true);
        };
        if *unschedulable {
            self.next.claims.cordon = Some(claim.seen(true, other));
            return None;
        }
        if autoscaler_gave_up {
            self.next.claims.cordon = Some(Claim::Ours);
            self.next.uncordoned_at = None;
            let note =
                "The autoscaler gave up removing the node and uncordoned it: cordoned again for the scheduled event.";
            self.tell_cordon(&format!("autoscaler/{}", node.resource_version), false, note);
            return Some(true);
        }
        let restored = self.next.cordon_restored;
        if drain_called_for && restored < MOST_CORDONS_RESTORED {
            self.next.cordon_restored += 1;
            self.next.claims.cordon = Some(Claim::Ours);
            let times = restored + 1;
            let note = format!(
                "Someone uncordoned the node during its drain: cordoned again ({times} of {MOST_CORDONS_RESTORED} times)."
            );
            self.tell_cordon(&format!("restored-{times}"), true, &note);
            return Some(true);
        }
        if self.next.uncordoned_at.is_none() {
            // From here on the node is theirs: a later cordon is not ours to take away.
            self.next.claims.cordon = Some(Claim::Foreign);
            self.next.uncordoned_at = Some(to_the_second(self.now.wall));
            let note =
                "Someone uncordoned the node while its event is still listed; it stays so. New pods may be lost.";
            let key = format!("{}/uncordoned/{restored}/{claim:?}", self.newest_event());
            self.tell_on_write(Announcement::new(key, "NodeUncordoned", note).on(Topic::Failed).warning_if(true));
        }
        None
    }

    fn tell_cordon(&mut self, what: &str, warning: bool, note: &str) {
        let key = format!("{}/{what}", self.newest_event());
        let mut told = Announcement::new(key, "NodeCordonEnd", note).warning_if(warning);
        // Of a drain its beginning and its end are told.
        if !self.next.events.iter().any(RecordedEvent::drains) {
            told = told.on(Topic::Drain);
            self.leave_untold(&told);
        }
        // Told first, because everything else follows from it.
        self.on_write.insert(0, told);
    }

    /// What tells one round of messages about the cordon from the next, which another event begins.
    fn newest_event(&self) -> String {
        self.next.events.last().map(|event| event.id.as_str().to_ascii_lowercase()).unwrap_or_default()
    }

    /// Gives the node back: undoes what is ours and what nobody else needs.
    fn release(&mut self) -> MarkChanges {
        let node = self.situation.node;
        if self.next.claims.none() {
            self.next.drain = None;
            return MarkChanges::default();
        }
        // A new life has to hear from Azure first: another event may be listed by now. If the autoscaler gives up removing the
        // node, it takes away its own cordon, but not ours.
        let heard = self.situation.sightings.tell_what_is_gone();
        let left_to_autoscaler = node.marks.removed_by_autoscaler() && self.next.claims.cordon == Some(Claim::Ours);
        if !heard || node.held || !node.ready || left_to_autoscaler {
            self.look_at_marks();
            return MarkChanges::default();
        }
        let other = match self.other.clone() {
            Ok(other) => other,
            Err(error) => {
                let key = format!("{}/other-record-unreadable", node.uid);
                self.announcements.push(Announcement::new(key, "RecordUnreadable", error.to_string()).warning_if(true));
                self.unreadable = Some(error);
                return MarkChanges::default();
            }
        };
        let unschedulable = self.next.claims.cordon.take().and_then(|claim| self.give_up_cordon(claim, other.cordon));
        // Whoever keeps the marks where they are must not keep the node out of use. They are tried again with the next look.
        if self.situation.marks_refused {
            return MarkChanges { unschedulable, ..MarkChanges::default() };
        }
        let beside = self.next.claims.give_up(&other, &node.marks);
        MarkChanges { unschedulable, ..beside }
    }

    /// Takes the cordon away if it is ours and nobody else needs it, and says that the node is given back.
    fn give_up_cordon(&mut self, claim: Claim, other: Option<Claim>) -> Option<bool> {
        let node = self.situation.node;
        let restarted = match (&self.next.boot_id, &node.boot_id) {
            (Some(before), Some(now)) if before != now => " The machine did restart.",
            (Some(_), Some(_)) => " The machine did not restart.",
            _ => "",
        };
        // While nobody of us looked, or a hold forbade it, someone may have taken our cordon away and set one of their own.
        let ours_by_name = [FIELD_MANAGER, REPAIRER_FIELD_MANAGER];
        let by_another = node.marks.cordon_manager.as_deref().is_some_and(|manager| !ours_by_name.contains(&manager));
        let ours = claim.is_last(other) && !by_another;
        let cordoned = node.marks.unschedulable;
        let what = match (ours && cordoned, other) {
            (true, _) => "Uncordoned: the scheduled event is over.",
            (false, Some(_)) => "Left cordoned for a repair of this node.",
            (false, None) if cordoned && claim == Claim::Ours => "Left cordoned: someone else has cordoned it since.",
            (false, None) if cordoned => "Left cordoned, as it was before the scheduled event.",
            (false, None) => "Given back: the scheduled event is over.",
        };
        let stay = if self.situation.marks_refused {
            " An admission policy or webhook does not let taint, label or annotation be taken away: they stay until it does."
        } else {
            ""
        };
        let began = self.next.drain.take().map(|drain| drain.started_at);
        let key = format!("{}/release/{:?}/{began:?}", node.uid, self.persisted.as_ref().map(Record::to_annotation));
        let told = Announcement::new(key, "NodeUncordonEnd", format!("{what}{restarted}{stay}")).on(Topic::Released);
        self.tell_on_write(told.warning_if(self.situation.marks_refused));
        self.next.boot_id = None;
        self.next.cordon_restored = 0;
        self.next.uncordoned_at = None;
        self.next.marks_refused = false;
        self.next.removed_by_autoscaler = false;
        (ours && cordoned).then_some(false)
    }

    /// What the node's conditions should say from now on.
    fn conditions(&self) -> ConditionChanges {
        if self.situation.node.held {
            return ConditionChanges::default();
        }
        conditions::changes(&self.next, &self.situation.node.conditions)
    }

    /// The slot to take or to keep: while the node waits for its drain or is drained, and while an event that it was for
    /// goes on.
    fn slot_need(&self) -> Option<SlotNeed> {
        // A drain that a hold stops goes on afterwards.
        let stopped =
            self.situation.node.held && self.next.drain.as_ref().is_some_and(|drain| drain.finished_at.is_none());
        let going_on = self.next.events.iter().filter(|event| stopped || event.status == EventStatus::Started);
        let most = going_on.filter_map(|event| event.ruling.as_ref()?.nodes_at_once).min();
        let kept = most.filter(|_| self.situation.slot_held);
        let kept = kept.map(|most| SlotNeed { pool: self.situation.node.pool().to_owned(), most });
        self.slot.clone().or(kept)
    }

    /// The events that may be started as far as this node is concerned.
    fn approvals(&self) -> Vec<Approval> {
        let Situation { vm, sightings, policies, node, approved, .. } = self.situation;
        if node.held || self.unreadable.is_some() {
            return Vec::new();
        }
        let wish = |event: &ScheduledEvent| {
            if event.status != EventStatus::Scheduled || approved.contains_key(&event.id) {
                return None;
            }
            // What was fixed counts, and it counts from when the node carries it.
            let recorded = self.persisted.as_ref().and_then(|record| record.event(&event.id));
            let fixed = recorded.and_then(|recorded| recorded.ruling.as_ref()).map(|ruling| ruling.approve);
            let approve = fixed.or_else(|| match policies.judge(node.traits(), event, self.now) {
                // What is only looked at is in no record.
                Judgement::Ruled(ruling) if ruling.action == Action::None => Some(ruling.approve),
                _ => None,
            })?;
            // Where the cordon was away, there may be new pods.
            let stayed_cordoned = node.marks.unschedulable
                && self.persisted.as_ref().is_some_and(|record| record.uncordoned_at.is_none());
            let drained = recorded.is_some_and(|recorded| recorded.drained == Some(DrainResult::Drained));
            if recorded.is_some_and(|recorded| recorded.approved_at.is_some()) {
                return None;
            }
            let drained = match approve {
                Approve::Never => return None,
                Approve::WhenDrained if !drained || !stayed_cordoned => return None,
                Approve::WhenDrained => Some(self.drained_as(recorded?)?),
                Approve::Immediately => None,
            };
            Some(Approval { event: event.id.clone(), drained })
        };
        sightings.events_of(vm).filter_map(wish).collect()
    }

    /// How the last drain, which was for this event, was done.
    fn drained_as(&self, event: &RecordedEvent) -> Option<Order> {
        // Another event's drain may have taken its place since, and gone with that event.
        let (started_at, deadline) = match self.persisted.as_ref()?.drain.as_ref() {
            Some(drain) => (drain.started_at, drain.deadline),
            None => (event.ruled_at?, deadline_of(event.not_before, event.without_notice_since)?),
        };
        let profile = event.ruling.as_ref()?.profile.clone().unwrap_or_default();
        Some(Order { profile, started_at, deadline, uncordoned_at: None })
    }

    fn nothing_to_remember(&self) -> bool {
        self.next.events.is_empty() && self.next.claims.none() && self.next.untold.is_empty()
    }

    fn stage(&self, drain: Option<&DrainOrder>) -> Stage {
        let node = self.situation.node;
        let acting: Vec<&Ruling> = self.next.events.iter().filter_map(|event| event.ruling.as_ref()).collect();
        let claimed = self.persisted.as_ref().is_some_and(|record| !record.claims.none());
        if node.held && (self.listed || claimed || !acting.is_empty()) {
            return Stage::Held;
        }
        if let Some(DrainOrder { order, .. }) = drain {
            return Stage::Draining(order.deadline);
        }
        match self.waits {
            Some(Wait::ForSlot) => return Stage::WaitingForSlot,
            Some(Wait::ForOthers(turn)) => return Stage::WaitingForOthers(turn),
            None => {}
        }
        if !acting.is_empty() {
            let results = self.next.events.iter().filter_map(|event| event.drained);
            return match results.max_by_key(|result| *result == DrainResult::Incomplete) {
                Some(DrainResult::Incomplete) => Stage::Incomplete,
                Some(DrainResult::Drained) => Stage::Drained,
                None => Stage::Cordoned,
            };
        }
        if let Some(error) = &self.unreadable {
            return Stage::RecordUnreadable(error.clone());
        }
        if self.next.claims.cordon.is_some() {
            return Stage::AwaitingReady;
        }
        match self.start {
            _ if claimed => Stage::Releasing,
            Some(start) => Stage::Waiting(start),
            None if self.listed => Stage::Ignoring,
            None => Stage::Idle,
        }
    }
}

/// Records are read by people and written in whole seconds.
fn to_the_second(at: Timestamp) -> Timestamp {
    at.round(TimestampRound::new().smallest(Unit::Second).mode(RoundMode::Trunc)).unwrap_or(at)
}

#[cfg(test)]
mod tests;
