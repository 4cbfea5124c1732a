//! Looks after the own node: has [`domain::node_plan::plan`] decide and carries out what it says.
//!
//! As long as no event concerns the node and nothing of ours is on it, the API server is not asked for anything.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use domain::marks::Marks;
use domain::node_plan::{
    Announcement, Approval, ConditionChanges, DrainOrder, FinishedDrain, NodeView, NodeWrite, Sightings, Situation,
    Stage, plan,
};
use domain::notification::{Notification, Topic};
use domain::policy::receiver::Receiver;
use domain::policy::{Approve, Judgement, Policy};
use domain::record::{Record, RecordedEvent};
use domain::scheduled_event::{EventId, EventType, VmName};
use domain::time::{Monotonic, spoken};
use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio::task::JoinError;
use tokio_util::task::AbortOnDropHandle;

use super::board::{ApprovalWish, Board, Loop};
use super::own_node::{OwnNode, Patience};
use super::spawn;
use crate::clock::Clock;
use crate::cluster::ClusterError;
use crate::cluster::node::{NodeNews, ReadNode};
use crate::cluster::recorder::{Subject, Tale};
use crate::drain::{Ended, Orders, Tools, drain};
use crate::metrics::{EventLabels, Metrics};
use crate::notify::{Deliveries, Notifier};

/// How often a write that met a conflict is planned anew at once; anyone's cordon makes the next write meet one.
const CONFLICTS_AT_ONCE: u32 = 5;

/// How often in a row the node is planned for and written before the loop looks up again.
const MOST_ROUNDS: u32 = 10;

/// How often the loop shows that it is alive.
const TICK: Duration = Duration::from_secs(5);

/// How long admission that refuses marks beside the cordon is not asked again.
const MARKS_REFUSED_FOR: Duration = Duration::from_secs(60);

/// How soon a write is tried again that was denied for once.
const AFTER_DENIAL: Duration = Duration::from_secs(1);

/// How many announcements are remembered so as not to make them again; a node sees a few in a month.
const MOST_REMEMBERED: usize = 256;

struct RunningDrain {
    metrics: Arc<Metrics>,
    started_at: Timestamp,
    orders: Orders,
    events: Vec<EventId>,
    began: Monotonic,
    task: AbortOnDropHandle<Ended>,
    stopping: bool,
}

impl Drop for RunningDrain {
    fn drop(&mut self) {
        self.metrics.no_drain();
    }
}

/// Receivers outside the cluster. What they are to be told stands in the record until they know it.
pub(super) struct Outside {
    notifier: Notifier,
    deliveries: Deliveries,
    receivers: Vec<Receiver>,
    /// What they want to be told.
    topics: BTreeSet<Topic>,
    /// The messages that they have been told, or could not be, and that the record may still have.
    told: BTreeSet<String>,
}

impl Outside {
    pub(super) fn new(notifier: Notifier, deliveries: Deliveries) -> Self {
        Self { notifier, deliveries, receivers: Vec::new(), topics: BTreeSet::new(), told: BTreeSet::new() }
    }

    /// Those of the node's policy are told from now on.
    fn follow(&mut self, policy: Option<&Policy>) {
        let receivers = policy.map(|policy| policy.receivers.as_slice()).unwrap_or_default();
        if self.receivers != receivers {
            self.receivers = receivers.to_vec();
            self.topics = policy.map(Policy::topics).unwrap_or_default();
            self.notifier.configure(self.receivers.clone());
        }
    }

    fn deliver(&self, notifications: Vec<Notification>) {
        for notification in notifications {
            self.notifier.deliver(notification);
        }
    }
}

enum Happened {
    Azure,
    Node(Option<Result<NodeNews, ClusterError>>),
    Drained(Result<Ended, JoinError>),
    Delivered(String),
    ConditionsWritten(Result<Box<ReadNode>, ClusterError>),
    Waited,
}

/// What came of a plan's write.
enum Written {
    /// There was none to do.
    Nothing,
    /// It is done, or the node was not as planned for.
    PlanAgain,
    /// It is tried again then.
    Later(Monotonic),
}

pub(super) struct Steward {
    tools: Tools,
    board: Arc<Board>,
    clock: Clock,
    dry_run: bool,
    node: OwnNode,
    /// The write of the node's conditions that is under way.
    writing_conditions: Option<BoxFuture<'static, Result<ReadNode, ClusterError>>>,
    conditions: Patience,
    /// Until when the API server's admission, which has just refused marks beside the cordon, is not asked again.
    marks_refused_until: Option<Monotonic>,
    /// The last write, if nobody knows whether it was done.
    unanswered: Option<NodeWrite>,
    /// Whether the last write was denied, and not by an admission policy or webhook.
    denied_before: bool,
    outside: Outside,
    drain: Option<RunningDrain>,
    /// What stopped drains have asked for and still wait for.
    winding_down: Vec<AbortOnDropHandle<()>>,
    finished: Option<FinishedDrain>,
    writing: Patience,
    /// With another writer who takes back what we write.
    fighting: Patience,
    stage: Stage,
    told: VecDeque<String>,
    unseen: BTreeSet<EventId>,
    /// Whether the node has been read in this life.
    has_looked: bool,
    counted: BTreeSet<EventId>,
    /// In a dry run: what would stand on the node.
    imagined: Option<(Option<String>, Marks)>,
}

impl Steward {
    pub(super) fn new(tools: Tools, outside: Outside, board: Arc<Board>, name: String, dry_run: bool) -> Self {
        tools.metrics.stage(&Stage::Idle);
        Self {
            clock: tools.cluster.clock(),
            node: OwnNode::new(tools.cluster.clone(), name),
            tools,
            board,
            dry_run,
            writing_conditions: None,
            conditions: Patience::default(),
            marks_refused_until: None,
            unanswered: None,
            denied_before: false,
            outside,
            drain: None,
            winding_down: Vec::new(),
            finished: None,
            writing: Patience::default(),
            fighting: Patience::default(),
            stage: Stage::Idle,
            told: VecDeque::new(),
            unseen: BTreeSet::new(),
            has_looked: false,
            counted: BTreeSet::new(),
            imagined: None,
        }
    }

    /// Runs for ever, or until it is asked to stop and nothing is under way any more.
    pub(super) async fn run(mut self) {
        while !self.board.is_stopping() {
            self.board.tick(Loop::Steward);
            let look_again = self.look_after_node().await;
            let next_tick = self.clock.now().monotonic + TICK;
            let look_again = look_again.map_or(next_tick, |at| at.min(next_tick));
            let happened = tokio::select! {
                biased;
                () = self.board.changed() => Happened::Azure,
                outcome = finish(&mut self.drain) => Happened::Drained(outcome),
                delivered = self.outside.deliveries.next() => Happened::Delivered(delivered.id),
                written = finish_writing(&mut self.writing_conditions) => Happened::ConditionsWritten(written.map(Box::new)),
                news = self.node.next_news() => Happened::Node(news),
                () = self.clock.sleep_until(look_again) => Happened::Waited,
            };
            match happened {
                Happened::Azure | Happened::Waited => {}
                Happened::Drained(outcome) => self.drain_ended(outcome),
                Happened::Delivered(id) => drop(self.outside.told.insert(id)),
                Happened::ConditionsWritten(written) => self.conditions_written(written),
                Happened::Node(news) => {
                    if !self.node.take(news) {
                        self.stop_drain();
                    }
                }
            }
        }
        if self.drain.is_some() {
            self.stop_drain();
            let ended = finish(&mut self.drain).await;
            self.drain_ended(ended);
        }
        for task in self.winding_down {
            // However it ended, the record says where the next start goes on.
            let _ = task.await;
        }
    }

    /// Plans and acts until there is nothing to do now; says when to look again.
    async fn look_after_node(&mut self) -> Option<Monotonic> {
        let mut conflicts = 0;
        for _ in 0..MOST_ROUNDS {
            self.board.tick(Loop::Steward);
            let progress = self.drain.as_ref().map(|running| running.orders.progress());
            self.board.drain_ticked(progress.as_ref().map(|progress| progress.ticked));
            if self.board.is_stopping() {
                return None;
            }
            let sightings = self.board.sightings();
            let vm = self.board.vm();
            self.counted.retain(|id| !sightings.is_gone(id));
            let concerned = vm.as_ref().is_some_and(|vm| sightings.concern(vm));
            if self.node.is_clean() && !concerned {
                self.rest();
                return None;
            }
            let mut node = match self.node.read(concerned).await {
                Ok(node) => node.view,
                Err(until) => {
                    self.tell_unseen(vm.as_ref(), &sightings);
                    return Some(until);
                }
            };
            self.board.node_trouble(self.node.trouble());
            let vm = vm.or_else(|| vm_of_record(&node))?;
            self.node.check_provider_id(&vm);
            if !std::mem::replace(&mut self.has_looked, true) {
                self.check_policy(&node);
                self.recall_approvals(&node);
            }
            self.tell_of_unanswered_write(&node);
            if let Some((record, marks)) = &self.imagined {
                node.record.clone_from(record);
                node.marks.clone_from(marks);
            }
            self.count_events(&vm, &sightings, &node);
            let policies = self.board.policies();
            let policy = policies.for_node(node.traits()).ok();
            // What was begun is told to its end by those who were told of its beginning.
            if !self.dry_run && (policy.is_some() || node.record.is_none()) {
                self.outside.follow(policy);
            }
            let plan = plan(&Situation {
                vm: &vm,
                sightings: &sightings,
                node: &node,
                policies: &policies,
                draining: self.drain.is_some(),
                blocked: progress.as_ref().map_or(&[], |progress| &progress.held_up),
                finished: self.finished.as_ref(),
                // A dry run waits for nobody.
                slot_held: self.dry_run || self.board.holds_slot(),
                marks_refused: self.marks_refused_until.is_some_and(|until| self.clock.now().monotonic < until),
                topics: &self.outside.topics,
                told: &self.outside.told,
                approved: &self.board.approvals(),
                now: self.clock.now(),
            });
            let tales = self.announce(&node, &plan.announcements);
            self.drive_drain(plan.drain.filter(|_| !self.dry_run), &plan.stage);
            self.outside.deliver(plan.notifications);
            self.board.need_slot(plan.slot);
            self.board.wish_for(plan.approvals.into_iter().map(|approval| wish(approval, &vm)).collect());
            let conditions = plan.conditions;
            let written = match plan.write {
                // What has ended is in the record; what was held back for that can go on.
                None if self.finished.take().is_some() => Written::PlanAgain,
                None => Written::Nothing,
                Some(write) if self.dry_run => {
                    self.imagine(&node, write);
                    Written::PlanAgain
                }
                Some(write) => self.write(&node, &write, &mut conflicts).await,
            };
            // The cordon is the first thing that an event causes in the cluster; people are told after it.
            self.tell(tales);
            self.enter(plan.stage);
            match written {
                Written::Nothing => {
                    let again = self.write_conditions(conditions);
                    return plan.look_again.into_iter().chain(self.node.read_again()).chain(again).min();
                }
                Written::Later(until) => return Some(until),
                Written::PlanAgain => {}
            }
        }
        // Someone changes the node as fast as we do; the loop must go on listening meanwhile.
        Some(self.fighting.failed(self.clock.now().monotonic))
    }

    /// Nothing concerns the node: everything that costs the API server something is let go.
    fn rest(&mut self) {
        self.node.rest();
        self.stop_drain();
        self.fighting.succeeded();
        self.finished = None;
        self.imagined = None;
        self.outside.told.clear();
        self.marks_refused_until = None;
        self.board.need_slot(None);
        self.board.wish_for(Vec::new());
        self.board.drain_ticked(None);
        self.board.node_trouble(None);
        self.enter(Stage::Idle);
    }

    /// Begins to write the node's conditions, beside everything else; says when to try again if it may not yet.
    fn write_conditions(&mut self, changes: ConditionChanges) -> Option<Monotonic> {
        if self.dry_run || !changes.any() || self.writing_conditions.is_some() {
            return None;
        }
        let now = self.clock.now();
        let wait = self.conditions.wait(now.monotonic);
        if wait.is_none() {
            let (cluster, name) = (self.tools.cluster.clone(), self.node.name().to_owned());
            let write = async move { cluster.write_conditions(&name, &changes, now.wall).await };
            self.writing_conditions = Some(write.boxed());
        }
        wait
    }

    fn conditions_written(&mut self, written: Result<Box<ReadNode>, ClusterError>) {
        self.writing_conditions = None;
        match written {
            Ok(node) => {
                self.conditions.succeeded();
                self.node.take_up(*node);
            }
            Err(error) => {
                if self.conditions.is_first() {
                    tracing::warn!(%error, "The node's conditions could not be written; trying again");
                }
                self.conditions.failed(self.clock.now().monotonic);
            }
        }
    }

    fn enter(&mut self, stage: Stage) {
        if self.stage == stage {
            return;
        }
        tracing::info!(stage = stage.word(), "{stage}");
        self.tools.metrics.stage(&stage);
        self.stage = stage;
    }

    fn count_events(&mut self, vm: &VmName, sightings: &Sightings, node: &NodeView) {
        for event in sightings.events_of(vm) {
            if !self.counted.insert(event.id.clone()) {
                continue;
            }
            let known = EventType::KNOWN.iter().find(|known| **known == event.event_type.as_str());
            let event_type = known.copied().unwrap_or("Other");
            let now = self.clock.now();
            let (action, mode) = match self.board.policies().judge(node.traits(), event, now) {
                Judgement::Observed(ruling) => (ruling.action.as_str(), "observe"),
                judgement => (judgement.action().as_str(), "act"),
            };
            let notice = event.notice(now.wall).map(|at| now.until(at)).unwrap_or_default();
            self.tools.metrics.event_seen(&EventLabels { event_type, action, mode }, notice);
        }
    }

    async fn write(&mut self, node: &NodeView, write: &NodeWrite, conflicts: &mut u32) -> Written {
        let now = self.clock.now().monotonic;
        if let Some(until) = self.writing.wait(now).max(self.fighting.wait(now)) {
            return Written::Later(until);
        }
        match self.node.write(write).await {
            Ok(()) => {
                self.writing.succeeded();
                self.denied_before = false;
                self.finished = None;
                let tales = self.announce(node, &write.announcements);
                self.tell(tales);
                Written::PlanAgain
            }
            Err(error) if error.is_conflict() && *conflicts < CONFLICTS_AT_ONCE => {
                *conflicts += 1;
                Written::PlanAgain
            }
            // An API server that has just started may refuse for a moment what it allows afterwards.
            Err(error) if error.is_denied() && !error.is_by_admission() && !self.denied_before => {
                self.denied_before = true;
                tracing::warn!(%error, "The node could not be written; trying again");
                Written::Later(self.clock.now().monotonic + AFTER_DENIAL)
            }
            Err(error) if error.is_denied() && write.marks.beside_cordon() => {
                tracing::warn!(%error, "The marks beside the cordon are refused; writing the cordon alone");
                self.marks_refused_until = Some(now + MARKS_REFUSED_FOR);
                Written::PlanAgain
            }
            Err(error) => {
                if !matches!(error, ClusterError::Refused(_)) {
                    self.unanswered = Some(write.clone());
                }
                tracing::warn!(%error, "The node could not be written; trying again");
                Written::Later(self.writing.failed(self.clock.now().monotonic))
            }
        }
    }

    fn imagine(&mut self, node: &NodeView, write: NodeWrite) {
        let cordon = match write.marks.unschedulable {
            Some(true) => "cordon the node and ",
            Some(false) => "uncordon the node and ",
            None => "",
        };
        tracing::info!("Dry run: would {cordon}write its record");
        tracing::debug!(record = write.record.as_deref().unwrap_or("none"), "The record");
        for Announcement { reason, note, .. } in &write.announcements {
            tracing::info!(reason, "Dry run: would tell: {note}");
        }
        self.imagined = Some((write.record, node.marks.clone().changed(&write.marks)));
    }

    /// An event is listed, but nothing can be done while the node cannot be read: that must not go unheard.
    fn tell_unseen(&mut self, vm: Option<&VmName>, sightings: &Sightings) {
        self.board.node_trouble(self.node.trouble());
        let Some(vm) = vm else { return };
        for event in sightings.events_of(vm) {
            if self.unseen.insert(event.id.clone()) {
                tracing::warn!(
                    event = %event.id,
                    "{} {} is listed for this machine, but its node cannot be read",
                    event.event_type,
                    event.status
                );
            }
        }
        self.unseen.retain(|id| !sightings.is_gone(id));
    }

    /// A policy that leaves this node out is more often a mistake than a wish.
    fn check_policy(&self, node: &NodeView) {
        if let Err(why) = self.board.policies().for_node(node.traits()) {
            tracing::warn!("Nothing is done about the events of this node: {why}");
        }
    }

    /// What an earlier life may have approved is known again, so that the Leases go with the events: the machine usually
    /// restarts in between.
    fn recall_approvals(&self, node: &NodeView) {
        let Some(Ok(record)) = node.record.as_deref().map(Record::from_annotation) else { return };
        let to_approve =
            |event: &RecordedEvent| event.ruling.as_ref().is_some_and(|ruling| ruling.approve != Approve::Never);
        for event in record.events.into_iter().filter(to_approve) {
            self.board.recall_approval(event.id, event.approved_at);
        }
    }

    /// Stops the drain that is running, if any; its task ends at once and hands over what is under way.
    fn stop_drain(&mut self) {
        if let Some(running) = self.drain.as_mut().filter(|running| !running.stopping) {
            running.stopping = true;
            running.orders.stop();
        }
    }

    /// A write whose answer was lost may have been done all the same; then what it brought about is told now.
    fn tell_of_unanswered_write(&mut self, node: &NodeView) {
        let is_news = |write: &mut NodeWrite| write.resource_version != node.resource_version;
        if let Some(write) = self.unanswered.take_if(is_news).filter(|write| write.record == node.record) {
            let tales = self.announce(node, &write.announcements);
            self.tell(tales);
        }
    }

    fn drive_drain(&mut self, wanted: Option<DrainOrder>, stage: &Stage) {
        match (wanted, &mut self.drain) {
            (None, None) => {}
            (None, Some(running)) => {
                if !running.stopping {
                    tracing::info!("The drain is stopped: {stage}");
                }
                self.stop_drain();
            }
            // It ends in a moment; then the next look starts another.
            (Some(_), Some(running)) if running.stopping => {}
            (Some(DrainOrder { events, order }), Some(running)) => {
                running.started_at = order.started_at;
                running.events = events;
                running.orders.give(order);
            }
            // It has just ended, and the record is still to tell of it.
            (Some(_), None) if self.finished.is_some() => {}
            (Some(DrainOrder { events, order }), None) => {
                let (started_at, metrics) = (order.started_at, Arc::clone(&self.tools.metrics));
                if self.clock.now().since(started_at) > Duration::from_secs(2) {
                    tracing::info!(began = %started_at, "Going on with a drain that had begun before");
                }
                let orders = Orders::new(order, self.clock.now().monotonic);
                let task = spawn(drain(self.tools.clone(), self.node.name().to_owned(), orders.clone()));
                let began = self.clock.now().monotonic;
                self.drain = Some(RunningDrain { metrics, started_at, orders, events, began, task, stopping: false });
            }
        }
    }

    fn drain_ended(&mut self, ended: Result<Ended, JoinError>) {
        let Some(running) = self.drain.take() else { return };
        let (outcome, profile) = match ended {
            Ok(Ended { over, under_way }) => {
                self.winding_down.retain(|task| !task.is_finished());
                self.winding_down.push(spawn(under_way));
                let Some(over) = over else { return };
                over
            }
            Err(error) => {
                // The record says that a drain is due, so the next plan starts another.
                tracing::error!(%error, "The drain failed; starting it again");
                return;
            }
        };
        let now = self.clock.now();
        let took = now.monotonic.since(running.began);
        let spare = running.orders.deadline().map(|deadline| now.until(deadline)).unwrap_or_default();
        self.tools.metrics.drain_ended(outcome.result.as_str(), took, spare);
        let (result, evicted, took) = (outcome.result, outcome.evicted, spoken(took));
        if outcome.left.is_empty() {
            tracing::info!(%result, evicted, took, "The drain has ended");
        } else {
            tracing::warn!(%result, evicted, took, left = outcome.left.len(), "The drain has ended with pods left");
        }
        for (pod, why) in &outcome.left {
            tracing::warn!(%pod, "Left on the node: {why}");
        }
        let (started_at, events) = (running.started_at, running.events.clone());
        self.finished = Some(FinishedDrain { started_at, events, profile, outcome, at: now.wall });
    }

    /// Logs what has not been said yet, and makes Events of it.
    fn announce(&mut self, node: &NodeView, announcements: &[Announcement]) -> Vec<Tale> {
        let mut tales = Vec::new();
        for Announcement { key, reason, warning, note, .. } in announcements {
            let remembered = format!("{reason}/{key}");
            if self.told.contains(&remembered) {
                continue;
            }
            if self.told.len() >= MOST_REMEMBERED {
                self.told.pop_front();
            }
            self.told.push_back(remembered);
            if *warning {
                tracing::warn!(reason, "{note}");
            } else {
                tracing::info!(reason, "{note}");
            }
            tales.push(Tale {
                about: Subject::Node { name: node.name.clone(), uid: node.uid.clone() },
                key: key.clone(),
                reason: reason.clone(),
                warning: *warning,
                note: note.clone(),
                at: self.clock.now().wall,
            });
        }
        tales
    }

    fn tell(&self, tales: Vec<Tale>) {
        for tale in tales.into_iter().filter(|_| !self.dry_run) {
            self.tools.recorder.tell(tale);
        }
    }
}

/// What Azure is to be told about an event of this machine.
fn wish(approval: Approval, vm: &VmName) -> ApprovalWish {
    let Approval { event, drained } = approval;
    ApprovalWish { event, except: vm.clone(), waits_for_others: drained.is_some(), drained }
}

async fn finish_writing<T>(under_way: &mut Option<BoxFuture<'static, T>>) -> T {
    match under_way {
        Some(write) => write.await,
        None => std::future::pending().await,
    }
}

/// The machine that a record names, for as long as Azure has not said it in this life.
fn vm_of_record(node: &NodeView) -> Option<VmName> {
    Record::from_annotation(node.record.as_deref()?).ok().map(|record| record.vm)
}

async fn finish(drain: &mut Option<RunningDrain>) -> Result<Ended, JoinError> {
    match drain {
        Some(running) => (&mut running.task).await,
        None => std::future::pending().await,
    }
}
