//! What the loops of the agent tell each other, and what the probes read.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::drain::Order;
use domain::neighbour::has_foreign_events;
use domain::node_plan::{ABSENT_FROM, Sightings, SlotNeed};
use domain::policy::PolicySet;
use domain::scheduled_event::{Document, EventId, ScheduledEvent, VmName};
use domain::time::Monotonic;
use jiff::Timestamp;
use tokio::sync::Notify;

use crate::azure::imds::Instance;
use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::serve::Health;

/// Each loop ticks every 5 s, the poll loop also while a request is pending; without a tick for this long it is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(60);

/// Without a good answer for this long the agent cannot do its job; some lost polls are everyday.
const NOT_READY_AFTER: Duration = Duration::from_secs(15);

/// The loops that must go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loop {
    Poll,
    Steward,
}

/// An event that Azure may be told to start, as far as its wisher knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ApprovalWish {
    pub(super) event: EventId,
    /// The machine that need not be ready: the wisher's own, of which it knows more, or one under repair.
    pub(super) except: VmName,
    /// How the own node was drained, if it has to be empty.
    pub(super) drained: Option<Order>,
    /// Whether the other machines' nodes have to be ready.
    pub(super) waits_for_others: bool,
}

#[derive(Debug)]
struct Approved {
    /// `None` if an earlier life may have approved it, and left its Lease.
    at: Option<Timestamp>,
    /// How many good documents in a row have lacked the event.
    absent: u64,
}

#[derive(Debug, Default)]
struct State {
    policies: Arc<PolicySet>,
    own_wishes: Vec<ApprovalWish>,
    repairs_wishes: Vec<ApprovalWish>,
    approved: BTreeMap<EventId, Approved>,
    /// Events that were approved and are gone.
    over: Vec<EventId>,
    slot_need: Option<SlotNeed>,
    slot_held: bool,
    drain_ticked: Option<Monotonic>,
    instance: Option<Instance>,
    sightings: Sightings,
    trouble: Option<String>,
    node_trouble: Option<String>,
    stopping: bool,
    poll_ticked: Monotonic,
    steward_ticked: Monotonic,
    last_good_poll: Option<Monotonic>,
}

impl State {
    /// Says whether there are any.
    fn forget_approvals_that_are_over(&mut self) -> bool {
        let Self { sightings, approved, over, .. } = self;
        for (event, approved) in &mut *approved {
            let is_listed = sightings.latest().is_some_and(|latest| latest.event(event).is_some());
            approved.absent = if is_listed { 0 } else { approved.absent + 1 };
        }
        over.extend(approved.extract_if(.., |_, approved| approved.absent >= ABSENT_FROM).map(|(event, _)| event));
        !over.is_empty()
    }
}

/// See the module.
pub(super) struct Board {
    clock: Clock,
    metrics: Arc<Metrics>,
    not_ready_after: Duration,
    state: Mutex<State>,
    changed: Notify,
    approvals_changed: Notify,
    slot_need_changed: Notify,
    foreign_events_changed: Notify,
}

impl Board {
    pub(super) fn new(clock: Clock, metrics: Arc<Metrics>, poll_interval: Duration, policies: PolicySet) -> Self {
        let not_ready_after = NOT_READY_AFTER.max(poll_interval * 5);
        let state = State { policies: Arc::new(policies), ..State::default() };
        Self {
            clock,
            metrics,
            not_ready_after,
            state: Mutex::new(state),
            changed: Notify::new(),
            approvals_changed: Notify::new(),
            slot_need_changed: Notify::new(),
            foreign_events_changed: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The state is changed by plain assignments only, so a panic elsewhere cannot leave it half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The loop is alive.
    pub(super) fn tick(&self, which: Loop) {
        let now = self.clock.now().monotonic;
        let mut state = self.state();
        match which {
            Loop::Poll => state.poll_ticked = now,
            Loop::Steward => state.steward_ticked = now,
        }
    }

    /// Azure has said who this machine is.
    pub(super) fn identified(&self, instance: Instance) {
        self.state().instance = Some(instance);
        self.changed.notify_one();
    }

    /// Azure has listed its events; it has said before who this machine is.
    pub(super) fn seen(&self, document: Document) {
        let now = self.clock.now().monotonic;
        let mut state = self.state();
        let Some(vm) = state.instance.as_ref().map(|instance| instance.name.clone()) else { return };
        let is_news =
            state.trouble.is_some() || state.sightings.latest().is_none_or(|latest| latest.events != document.events);
        let foreign = is_news && has_foreign_events(&document, &vm);
        state.sightings.see(document, &vm);
        let over = state.forget_approvals_that_are_over();
        state.last_good_poll = Some(now);
        state.trouble = None;
        drop(state);
        if foreign {
            self.foreign_events_changed.notify_one();
        }
        if over {
            self.approvals_changed.notify_one();
        }
        self.changed.notify_one();
    }

    /// Azure has not answered, or not well: nothing is known from it.
    pub(super) fn troubled(&self, trouble: String) {
        self.state().trouble = Some(trouble);
    }

    /// The node cannot be read although it is needed, or can again.
    pub(super) fn node_trouble(&self, trouble: Option<String>) {
        self.state().node_trouble = trouble;
    }

    /// The process is to end.
    pub(super) fn stop(&self) {
        self.state().stopping = true;
        self.changed.notify_one();
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.state().stopping
    }

    /// Waits until Azure has said something new, or the process is to end.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    pub(super) fn policies(&self) -> Arc<PolicySet> {
        Arc::clone(&self.state().policies)
    }

    /// The policy files have changed.
    pub(super) fn change_policies(&self, policies: PolicySet) {
        self.state().policies = Arc::new(policies);
        self.metrics.policy_generation.inc();
        self.changed.notify_one();
    }

    /// The event with this key, as Azure lists it; none while Azure does not answer, because nobody knows then.
    pub(super) fn listed_event(&self, id: &EventId) -> Option<ScheduledEvent> {
        let state = self.state();
        let latest = state.sightings.latest().filter(|_| state.trouble.is_none())?;
        latest.event(id).cloned()
    }

    /// The document and the own machine, if it tells of events of other machines.
    pub(super) fn foreign_events(&self) -> Option<(VmName, Document)> {
        let state = self.state();
        let vm = state.instance.as_ref()?.name.clone();
        let latest = state.sightings.latest().filter(|latest| has_foreign_events(latest, &vm))?;
        // Nobody knows whether they are still listed while Azure does not answer.
        if state.trouble.is_some() {
            return None;
        }
        Some((vm, latest.clone()))
    }

    /// Waits until events of other machines are listed, or others than before.
    pub(super) async fn foreign_events_changed(&self) {
        self.foreign_events_changed.notified().await;
    }

    /// What the plan wants Azure to be told about the own machine's events.
    pub(super) fn wish_for(&self, wishes: Vec<ApprovalWish>) {
        let mut state = self.state();
        if state.own_wishes != wishes {
            state.own_wishes = wishes;
            self.approvals_changed.notify_one();
        }
    }

    /// What Azure is to be told on behalf of machines under repair.
    pub(super) fn wish_for_own_repairs(&self, wishes: Vec<ApprovalWish>) {
        let mut state = self.state();
        if state.repairs_wishes != wishes {
            state.repairs_wishes = wishes;
            self.approvals_changed.notify_one();
        }
    }

    /// All wishes that are open.
    pub(super) fn approval_wishes(&self) -> Vec<ApprovalWish> {
        let state = self.state();
        let is_approved = |event: &EventId| state.approved.get(event).is_some_and(|approved| approved.at.is_some());
        let open = |wish: &&ApprovalWish| !is_approved(&wish.event);
        state.own_wishes.iter().chain(&state.repairs_wishes).filter(open).cloned().collect()
    }

    /// Waits until the wishes have changed.
    pub(super) async fn approvals_changed(&self) {
        self.approvals_changed.notified().await;
    }

    /// Azure was told that the event may start.
    pub(super) fn approved(&self, event: EventId, at: Timestamp) {
        self.state().approved.insert(event, Approved { at: Some(at), absent: 0 });
        self.changed.notify_one();
    }

    /// An earlier life was to approve the event; whether it has is not known, if `at` is `None`.
    pub(super) fn recall_approval(&self, event: EventId, at: Option<Timestamp>) {
        self.state().approved.entry(event).or_insert(Approved { at, absent: 0 });
    }

    pub(super) fn approvals(&self) -> BTreeMap<EventId, Timestamp> {
        self.state().approved.iter().filter_map(|(event, approved)| Some((event.clone(), approved.at?))).collect()
    }

    /// The events that were approved and have gone since this was last asked.
    pub(super) fn approvals_over(&self) -> Vec<EventId> {
        std::mem::take(&mut self.state().over)
    }

    /// The plan needs a slot, or none.
    pub(super) fn need_slot(&self, need: Option<SlotNeed>) {
        let mut state = self.state();
        if state.slot_need != need {
            state.slot_need = need;
            self.slot_need_changed.notify_one();
        }
    }

    pub(super) fn slot_need(&self) -> Option<SlotNeed> {
        self.state().slot_need.clone()
    }

    /// Waits until another slot is needed, or none.
    pub(super) async fn slot_need_changed(&self) {
        self.slot_need_changed.notified().await;
    }

    /// This node holds a slot, or does not.
    pub(super) fn hold_slot(&self, held: bool) {
        self.metrics.slot_held.set(i64::from(held));
        let mut state = self.state();
        if state.slot_held != held {
            state.slot_held = held;
            self.changed.notify_one();
        }
    }

    pub(super) fn holds_slot(&self) -> bool {
        self.state().slot_held
    }

    /// When the running drain last showed that it is alive; `None` if none is running.
    pub(super) fn drain_ticked(&self, at: Option<Monotonic>) {
        self.state().drain_ticked = at;
    }

    pub(super) fn vm(&self) -> Option<VmName> {
        self.state().instance.as_ref().map(|instance| instance.name.clone())
    }

    pub(super) fn sightings(&self) -> Sightings {
        self.state().sightings.clone()
    }
}

impl Health for Board {
    fn alive(&self) -> Result<(), String> {
        let now = self.clock.now().monotonic;
        let state = self.state();
        let loops = [
            ("poll loop", Some(state.poll_ticked)),
            ("steward", Some(state.steward_ticked)),
            ("drain", state.drain_ticked),
        ];
        for (name, ticked) in loops {
            let silent = ticked.map(|ticked| now.since(ticked)).unwrap_or_default();
            if silent >= STUCK_AFTER {
                return Err(format!("the {name} has not ticked for {}s", silent.as_secs()));
            }
        }
        Ok(())
    }

    fn ready(&self) -> Result<(), String> {
        let now = self.clock.now().monotonic;
        let state = self.state();
        let why = || state.trouble.clone().unwrap_or_else(|| "the first answer has not come yet".into());
        match state.last_good_poll {
            None => Err(format!("no answer from the metadata service yet: {}", why())),
            Some(at) if now.since(at) > self.not_ready_after => {
                Err(format!("no good answer from the metadata service for {}s: {}", now.since(at).as_secs(), why()))
            }
            Some(_) => state.node_trouble.clone().map_or(Ok(()), Err),
        }
    }

    fn metrics(&self) -> String {
        let now = self.clock.now().monotonic;
        let last = self.state().last_good_poll.unwrap_or_default();
        self.metrics.render(now.since(last))
    }
}
