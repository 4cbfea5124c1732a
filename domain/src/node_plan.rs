//! The agent's brain: what to do about one node, given what Azure lists, what the node carries and what the policy says.
//!
//! [`plan`] is level-triggered. It looks at the state of the world, not at what changed, so it may be asked at any time
//! and any number of times, and a new life of the agent comes to the same answer as the old one. Everything that must
//! outlive the agent is in the [`Record`] on the node; the plan says how the record is to change, and nothing is
//! carried out before the node carries the record that explains it.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use jiff::{RoundMode, Timestamp, TimestampRound, Unit};

use crate::drain::{Order, Outcome};
use crate::policy::{Action, AtDeadline, Judgement, PolicySet, Profile, Ruling};
use crate::record::{
    Claim, DrainRecord, DrainResult, MOST_PODS_NAMED, Record, RecordError, RecordedEvent, cordon_claim_of_other_role,
};
use crate::scheduled_event::{Document, EventId, EventStatus, NotBefore, ScheduledEvent, VmName};
use crate::time::{Monotonic, Now, minus, plus, spoken, stamp};

/// How many good documents in a row must lack an event before it counts as gone.
pub const ABSENT_FROM: u64 = 2;

/// How much time an event without a `NotBefore` in the future leaves: the impact may begin at any moment.
pub const WITHOUT_NOTICE: Duration = Duration::from_secs(30);

/// The name under which the agent writes its node, by which the API server knows what is its own.
pub const FIELD_MANAGER: &str = "remediator-agent";

/// How often a cordon that someone takes away during a drain is put back.
pub const MOST_CORDONS_RESTORED: u32 = 3;

/// Events whose deadlines are this close are drained for as one, in the way of the hardest.
const SAME_TIME: Duration = Duration::from_secs(10);

/// A `NotBefore` that moves away by less than this is not worth a write to the node.
const NOTICE_TOLERANCE: Duration = Duration::from_secs(2);

/// What Azure has listed so far in this life of the agent. Only good documents count: a failed poll is not told here.
#[derive(Clone, Debug, Default)]
pub struct Sightings {
    documents: u64,
    latest: Option<Document>,
    last_listed: BTreeMap<EventId, u64>,
}

impl Sightings {
    /// A good document has arrived on this machine.
    pub fn see(&mut self, document: Document, vm: &VmName) {
        self.documents += 1;
        for event in document.events_of(vm) {
            self.last_listed.insert(event.id.clone(), self.documents);
        }
        let oldest = self.documents.saturating_sub(ABSENT_FROM);
        self.last_listed.retain(|_, listed| *listed > oldest);
        self.latest = Some(document);
    }

    /// The events that the latest good document lists for the machine.
    pub fn events_of<'a>(&'a self, vm: &'a VmName) -> impl Iterator<Item = &'a ScheduledEvent> {
        self.latest.iter().flat_map(move |document| document.events_of(vm))
    }

    /// Whether enough good documents in a row lack the event, or do not list it for this machine.
    pub fn is_gone(&self, id: &EventId) -> bool {
        self.documents >= ABSENT_FROM && !self.last_listed.contains_key(id)
    }

    /// Whether the latest document lists an event that concerns the machine.
    pub fn concern(&self, vm: &VmName) -> bool {
        self.events_of(vm).next().is_some()
    }
}

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
    /// Whether it is cordoned.
    pub unschedulable: bool,
    /// Who wrote the cordon that is there, as far as the API server knows.
    pub cordon_manager: Option<String>,
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

/// A drain that has ended but is not in the record yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedDrain {
    /// When it began, which tells it from the next one.
    pub started_at: Timestamp,
    /// The events that it was for.
    pub events: Vec<EventId>,
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
    /// A drain of this process has ended.
    pub finished: Option<&'a FinishedDrain>,
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
    /// The node is being drained until this deadline.
    Draining(Timestamp),
    /// The node is drained; the event is still to come or to end.
    Drained,
    /// The drain ended with pods left; the event is still to come or to end.
    Incomplete,
    /// The events are gone, but the node is not ready.
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
            Self::Draining(_) => "draining",
            Self::Drained => "drained",
            Self::Incomplete => "incomplete",
            Self::AwaitingReady => "awaiting-ready",
            Self::Releasing => "releasing",
            Self::RecordUnreadable(_) => "record-unreadable",
        }
    }

    /// Every word that [`Self::word`] may say.
    pub const WORDS: [&'static str; 11] = [
        "idle",
        "ignoring",
        "waiting",
        "held",
        "cordoned",
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
            Self::Draining(deadline) => write!(out, "draining until {} at the latest", stamp(*deadline)),
            Self::Drained => out.write_str("drained; waiting for the event to come and go"),
            Self::Incomplete => out.write_str("drained as far as it went; waiting for the event to come and go"),
            Self::AwaitingReady => out.write_str("the event is gone; waiting for the node to be Ready"),
            Self::Releasing => out.write_str("the event is gone; giving the node back"),
            Self::RecordUnreadable(error) => write!(out, "waiting: {error}"),
        }
    }
}

/// Something to tell people about, once for each key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// What makes it the same announcement when it is made again, also by another life of the agent.
    pub key: String,
    /// A reason in CamelCase, as Kubernetes Events have them.
    pub reason: String,
    /// Whether someone should look at it.
    pub warning: bool,
    /// What happened, why, and what comes next.
    pub note: String,
}

/// One write to the node: the marks and the record together, or neither.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeWrite {
    /// The version of the node that the plan was made for.
    pub resource_version: String,
    /// The cordon is set or taken away; untouched if `None`.
    pub unschedulable: Option<bool>,
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

/// What to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What the agent is doing, and why.
    pub stage: Stage,
    /// What to write to the node.
    pub write: Option<NodeWrite>,
    /// The drain that should be running; a running one is stopped if there is none.
    pub drain: Option<DrainOrder>,
    /// What to tell, whatever becomes of the write.
    pub announcements: Vec<Announcement>,
    /// When to plan again if nothing happens before.
    pub look_again: Option<Monotonic>,
}

/// When the policy wants the action to begin.
pub fn start_of(ruling: &Ruling, event: &ScheduledEvent, wall: Timestamp) -> Timestamp {
    match (ruling.start_at_most, event.notice(wall)) {
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
    let announcement = Announcement { key, reason: "RecordUnreadable".into(), warning: true, note };
    Plan {
        stage: Stage::RecordUnreadable(error),
        write: None,
        drain: None,
        announcements: vec![announcement],
        look_again: None,
    }
}

/// An event that calls for a drain.
struct Call {
    event: EventId,
    ruled_at: Option<Timestamp>,
    deadline: Timestamp,
    profile: Profile,
}

impl Call {
    /// The call of an event for a drain that began at `started_at`; `None` if it calls for none, or has had it.
    fn of(event: &RecordedEvent, started_at: Timestamp) -> Option<Self> {
        if event.drained.is_some() { None } else { Self::had_or_not(event, started_at) }
    }

    fn had_or_not(event: &RecordedEvent, started_at: Timestamp) -> Option<Self> {
        let ruling = event.ruling.as_ref().filter(|ruling| ruling.action == Action::Drain)?;
        let deadline = deadline_of(event.not_before, event.without_notice_since)?;
        let profile = ruling.profile.clone().unwrap_or_default();
        // A timeout counts from when the event joined the drain.
        let joined_at = event.ruled_at.map_or(started_at, |ruled_at| ruled_at.max(started_at));
        let deadline = profile.timeout.map_or(deadline, |timeout| deadline.min(plus(joined_at, timeout)));
        Some(Self { event: event.id.clone(), ruled_at: event.ruled_at, deadline, profile })
    }
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
            on_write: Vec::new(),
            announcements: Vec::new(),
        }
    }

    fn plan(mut self) -> Plan {
        self.take_up_listed_events();
        self.let_go_of_gone_events();
        self.note_finished_drain();
        let drain = self.order_drain();
        let unschedulable = self.cordon_or_release(drain.is_some());
        let record = (!self.nothing_to_remember()).then(|| self.next.to_annotation());
        let changed = unschedulable.is_some() || record != self.persisted.as_ref().map(Record::to_annotation);
        let stage = self.stage(drain.as_ref());
        let write = changed.then(|| NodeWrite {
            resource_version: self.situation.node.resource_version.clone(),
            unschedulable,
            record,
            announcements: std::mem::take(&mut self.on_write),
        });
        // A drain begins when the node carries the record of it, so that a new life of the agent goes on with it.
        let recorded = self.persisted.as_ref().and_then(|record| record.drain.as_ref());
        let cordoned = self.situation.node.unschedulable || self.next.uncordoned_at.is_some();
        let may_run =
            self.situation.draining || (cordoned && recorded.is_some_and(|drain| drain.finished_at.is_none()));
        Plan {
            stage,
            write,
            drain: drain.filter(|_| may_run),
            announcements: self.announcements,
            look_again: self.start.map(|start| self.now.when(start)),
        }
    }

    fn take_up_listed_events(&mut self) {
        let Situation { vm, sightings, policies, node, .. } = self.situation;
        for event in sightings.events_of(vm) {
            self.listed = true;
            let judgement = policies.judge(&node.labels, event);
            // What the record tells of has been told.
            let known = self.persisted.as_ref().and_then(|record| record.event(&event.id));
            if known.is_none_or(|known| known.status != event.status) {
                self.announcements.push(self.sighting(event, &judgement));
            }
            let position = self.next.events.iter().position(|recorded| recorded.id == event.id);
            let wanted = judgement.action() > Action::None;
            if position.is_none() && !wanted {
                continue;
            }
            let mut recorded = match position {
                Some(position) => self.next.events[position].clone(),
                None => RecordedEvent::new(event, to_the_second(self.now.wall)),
            };
            recorded.status = event.status.clone();
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
        if ruling.action <= fixed || self.situation.node.held {
            return;
        }
        let start = start_of(&ruling, event, self.now.wall);
        if start <= self.now.wall {
            // Nobody could act before its time was over, and it is still listed: then it has come without notice.
            let deadline = deadline_of(recorded.not_before, recorded.without_notice_since);
            if fixed < Action::Drain && deadline.is_some_and(|deadline| deadline <= self.now.wall) {
                recorded.not_before = None;
                recorded.without_notice_since = Some(to_the_second(self.now.wall));
            }
            recorded.ruling = Some(ruling);
            recorded.ruled_at = Some(to_the_second(self.now.wall));
            recorded.drained = None;
        } else {
            self.start = Some(self.start.map_or(start, |known| known.min(start)));
        }
    }

    fn let_go_of_gone_events(&mut self) {
        let sightings = self.situation.sightings;
        let (gone, there): (Vec<_>, Vec<_>) =
            self.next.events.drain(..).partition(|recorded| sightings.is_gone(&recorded.id));
        self.next.events = there;
        for event in gone {
            self.on_write.push(farewell(&event, self.now.wall));
        }
    }

    fn note_finished_drain(&mut self) {
        let Some(finished) = self.situation.finished else { return };
        let Outcome { result, left, evicted, deleted } = &finished.outcome;
        let this_one =
            |drain: &&mut DrainRecord| drain.finished_at.is_none() && drain.started_at == finished.started_at;
        let Some(drain) = self.next.drain.as_mut().filter(this_one) else { return };
        drain.finished_at = Some(to_the_second(finished.at));
        drain.left = left.iter().take(MOST_PODS_NAMED).map(|(name, _)| name.to_string()).collect();
        drain.left_count = u32::try_from(left.len()).unwrap_or(u32::MAX);
        let lasted = spoken(Duration::try_from(finished.at.duration_since(drain.started_at)).unwrap_or_default());
        let key = format!("drain/{}/{result}", drain.started_at);
        let pods = if *evicted == 1 { "pod" } else { "pods" };
        let went = match deleted {
            0 => format!("{evicted} {pods} evicted"),
            _ => format!("{evicted} {pods} evicted, {deleted} deleted without asking their disruption budget"),
        };
        let (reason, note) = match (result, left.as_slice()) {
            (DrainResult::Drained, []) => ("NodeDrainEnd", format!("Drained in {lasted}: {went}.")),
            (DrainResult::Drained, left) => {
                ("NodeDrainEnd", format!("Drained in {lasted}: {went}; left as asked for: {}.", naming(left)))
            }
            (DrainResult::Incomplete, []) => {
                ("NodeDrainError", format!("Drain ended after {lasted} before anyone could list what was left."))
            }
            (DrainResult::Incomplete, left) => {
                ("NodeDrainError", format!("Drain ended after {lasted}: {went}; left: {}.", naming(left)))
            }
        };
        let warning = *result == DrainResult::Incomplete || *deleted > 0 || !left.is_empty();
        for event in &mut self.next.events {
            if finished.events.contains(&event.id) {
                event.drained = Some(*result);
            }
        }
        self.on_write.push(Announcement { key, reason: reason.into(), warning, note });
    }

    /// The drain that the events call for, and the record of it.
    fn order_drain(&mut self) -> Option<DrainOrder> {
        self.try_again_where_the_deadline_moved_away();
        let running =
            self.next.drain.as_ref().filter(|drain| drain.finished_at.is_none()).map(|drain| drain.started_at);
        let started_at = running.unwrap_or_else(|| to_the_second(self.now.wall));
        let calling: Vec<Call> = self.next.events.iter().filter_map(|event| Call::of(event, started_at)).collect();
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
        // An event that came after the cordon was given up is another reason for it.
        if calling.iter().any(|call| self.next.uncordoned_at.is_some_and(|given_up| call.ruled_at > Some(given_up))) {
            self.next.cordon_restored = 0;
            self.next.uncordoned_at = None;
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
            self.on_write.push(Announcement { key, reason: "NodeDrainStart".into(), warning: false, note });
        }
        let mut recorded = self.next.drain.take().filter(|_| running.is_some());
        recorded.get_or_insert_with(|| DrainRecord::new(started_at, deadline)).deadline = deadline;
        self.next.drain = recorded;
        let uncordoned_at = self.next.uncordoned_at;
        Some(DrainOrder { events, order: Order { profile, started_at, deadline, uncordoned_at } })
    }

    /// A drain that its deadline ended with pods left goes on if the event turns out to come later, or if another
    /// event leaves more time than the one whose deadline that was.
    fn try_again_where_the_deadline_moved_away(&mut self) {
        let Some(drain) = self.next.drain.as_ref().filter(|drain| drain.finished_at.is_some()) else { return };
        for event in &mut self.next.events {
            let deadline = Call::had_or_not(event, drain.started_at).map(|call| call.deadline);
            let moved_away = deadline.is_some_and(|deadline| deadline > drain.deadline && deadline > self.now.wall);
            if event.drained == Some(DrainResult::Incomplete) && moved_away {
                event.drained = None;
            }
        }
    }

    /// Sets or takes away the cordon, and says so; `None` leaves it as it is.
    fn cordon_or_release(&mut self, drain_called_for: bool) -> Option<bool> {
        let node = self.situation.node;
        let other = cordon_claim_of_other_role(node.other_record.as_deref());
        let acting = self.next.events.iter().any(|event| event.ruling.is_some());
        if !acting {
            return self.release(other);
        }
        if node.held {
            return None;
        }
        let Some(claim) = self.next.claims.cordon else {
            self.next.boot_id = node.boot_id.clone();
            let by_us = node.cordon_manager.as_deref() == Some(FIELD_MANAGER);
            self.next.claims.cordon = Some(match (node.unschedulable, other) {
                (false, _) => Claim::Ours,
                (true, Ok(Some(of_other_role))) => of_other_role,
                // Our record of it has been taken away, but not the cordon itself.
                (true, _) if by_us => Claim::Ours,
                (true, _) => Claim::Foreign,
            });
            if node.unschedulable {
                if self.next.claims.cordon == Some(Claim::Foreign) {
                    let note = "The node was cordoned before its scheduled event; it stays so afterwards.";
                    self.tell_cordon("cordoned-before", false, note);
                }
                return None;
            }
            let note = "Cordoned for a scheduled event of the machine; given back when it is over.";
            self.tell_cordon("cordon", false, note);
            return Some(true);
        };
        if node.unschedulable {
            return None;
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
                "Someone uncordoned the node while its event is still listed; it stays so. New pods may be lost."
                    .into();
            let key = format!("{}/uncordoned/{restored}/{claim:?}", self.first_event());
            self.on_write.push(Announcement { key, reason: "NodeUncordoned".into(), warning: true, note });
        }
        None
    }

    fn tell_cordon(&mut self, what: &str, warning: bool, note: &str) {
        let key = format!("{}/{what}", self.first_event());
        // Told first, because everything else follows from it.
        self.on_write.insert(0, Announcement { key, reason: "NodeCordonEnd".into(), warning, note: note.into() });
    }

    fn first_event(&self) -> String {
        self.next.events.first().map(|event| event.id.as_str().to_ascii_lowercase()).unwrap_or_default()
    }

    /// Gives the node back: undoes what is ours and what nobody else needs.
    fn release(&mut self, other: Result<Option<Claim>, RecordError>) -> Option<bool> {
        let node = self.situation.node;
        let Some(claim) = self.next.claims.cordon else {
            self.next.drain = None;
            return None;
        };
        if node.held || !node.ready {
            return None;
        }
        let other = match other {
            Ok(other) => other,
            Err(error) => {
                let key = format!("{}/other-record-unreadable", node.uid);
                let reason = "RecordUnreadable".into();
                self.announcements.push(Announcement { key, reason, warning: true, note: error.to_string() });
                self.unreadable = Some(error);
                return None;
            }
        };
        let restarted = match (&self.next.boot_id, &node.boot_id) {
            (Some(before), Some(now)) if before != now => " The machine did restart.",
            (Some(_), Some(_)) => " The machine did not restart.",
            _ => "",
        };
        // While nobody of us looked, or a hold forbade it, someone may have taken our cordon away and set one of their own.
        let by_another = node.cordon_manager.as_deref().is_some_and(|manager| manager != FIELD_MANAGER);
        let ours = claim == Claim::Ours && other.is_none() && !by_another;
        let note = match (ours && node.unschedulable, other) {
            (true, _) => format!("Uncordoned: the scheduled event is over.{restarted}"),
            (false, Some(_)) => format!("Left cordoned for a repair of this node.{restarted}"),
            (false, None) if node.unschedulable && claim == Claim::Ours => {
                format!("Left cordoned: someone else has cordoned it since.{restarted}")
            }
            (false, None) if node.unschedulable => {
                format!("Left cordoned, as it was before the scheduled event.{restarted}")
            }
            (false, None) => format!("Given back: the scheduled event is over.{restarted}"),
        };
        let began = self.next.drain.as_ref().map(|drain| drain.started_at);
        let key = format!("{}/release/{:?}/{began:?}", node.uid, self.persisted.as_ref().map(Record::to_annotation));
        self.on_write.push(Announcement { key, reason: "NodeUncordonEnd".into(), warning: false, note });
        self.next.claims.cordon = None;
        self.next.drain = None;
        self.next.boot_id = None;
        self.next.cordon_restored = 0;
        self.next.uncordoned_at = None;
        (ours && node.unschedulable).then_some(false)
    }

    fn nothing_to_remember(&self) -> bool {
        self.next.events.is_empty() && self.next.claims.cordon.is_none()
    }

    fn stage(&self, drain: Option<&DrainOrder>) -> Stage {
        let node = self.situation.node;
        let acting: Vec<&Ruling> = self.next.events.iter().filter_map(|event| event.ruling.as_ref()).collect();
        let claimed = self.persisted.as_ref().is_some_and(|record| record.claims.cordon.is_some());
        if node.held && (self.listed || claimed || !acting.is_empty()) {
            return Stage::Held;
        }
        if let Some(DrainOrder { order, .. }) = drain {
            return Stage::Draining(order.deadline);
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

    /// An event is listed, in this state, and this is what the policy says.
    fn sighting(&self, event: &ScheduledEvent, judgement: &Judgement) -> Announcement {
        let status = match &event.status {
            EventStatus::Other(_) => "Listed",
            status => status.as_str(),
        };
        let when = match event.not_before {
            NotBefore::At(at) if at > self.now.wall => {
                format!(", not before {} (in {})", stamp(at), spoken(self.now.until(at)))
            }
            NotBefore::At(at) => format!(", due since {}", stamp(at)),
            NotBefore::Absent => String::new(),
            NotBefore::Unreadable => ", at a time that could not be read".into(),
        };
        let source = &event.source;
        let description = match event.description.trim() {
            "" => String::new(),
            text => format!(" Azure: \u{201c}{}\u{201d}", text.chars().take(400).collect::<String>()),
        };
        let has_started = if event.status == EventStatus::Started { " has started" } else { "" };
        let mut note = format!("{} by {source}{has_started}{when}: {judgement}.{description}", event.event_type);
        if let Judgement::Ruled(ruling) = judgement {
            let start = start_of(ruling, event, self.now.wall);
            if ruling.action > Action::None && start > self.now.wall {
                note = format!("{note} Begins at {}.", stamp(start));
            }
        }
        Announcement {
            key: format!("{}/{status}", event.id.as_str().to_ascii_lowercase()),
            reason: format!("{}{status}", type_in_reason(&event.event_type)),
            warning: judgement.action() > Action::None,
            note,
        }
    }
}

fn farewell(event: &RecordedEvent, wall: Timestamp) -> Announcement {
    let due = event.without_notice_since.is_some() || event.not_before.is_some_and(|not_before| not_before <= wall);
    let (word, note) = match event.status {
        EventStatus::Started => ("Ended", format!("{} is over.", event.event_type)),
        _ if due => ("Ended", format!("{} is no longer listed; nobody saw whether it took place.", event.event_type)),
        _ => ("Cancelled", format!("{} was cancelled before it started.", event.event_type)),
    };
    Announcement {
        key: format!("{}/{word}", event.id.as_str().to_ascii_lowercase()),
        reason: format!("{}{word}", type_in_reason(&event.event_type)),
        warning: false,
        note,
    }
}

/// The type at the front of a reason, which must be one word.
fn type_in_reason(event_type: &crate::scheduled_event::EventType) -> String {
    let word: String = event_type.as_str().chars().filter(char::is_ascii_alphanumeric).take(60).collect();
    if word.is_empty() { "Event".into() } else { word }
}

fn naming(left: &[(crate::drain::pod::PodName, String)]) -> String {
    const MOST: usize = 5;
    let mut text: Vec<String> = left.iter().take(MOST).map(|(name, why)| format!("{name} ({why})")).collect();
    if left.len() > MOST {
        text.push(format!("and {} more", left.len() - MOST));
    }
    text.join(", ")
}

/// Records are read by people and written in whole seconds.
fn to_the_second(at: Timestamp) -> Timestamp {
    at.round(TimestampRound::new().smallest(Unit::Second).mode(RoundMode::Trunc)).unwrap_or(at)
}

#[cfg(test)]
mod tests;
