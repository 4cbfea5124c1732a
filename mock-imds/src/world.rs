//! Everything that the mock knows, and how time changes it.
//!
//! The world is advanced lazily: whoever looks at it first says what time it is, and everything that was due by then
//! happens in the order of its own time. What a request sees does therefore not depend on earlier looks.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;

use crate::{
    clock::{Period, later, remaining},
    document::Version,
    error::MockError,
    event::{Entry, Event, EventChange, EventId, EventSpec, Phase},
    fault::{Endpoint, FaultId, FaultKind, FaultSpec, Faults},
    log::{Approval, Change, Log, remember},
    place::list,
    scenario::{Action, IdCase, Scenario, Settings},
    seed::guid,
    vm::{Vm, check_vms, group_of},
};

/// Whether scheduled events are delivered to a placement group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Delivery {
    Asleep,
    /// The first request was made; it is answered at `enabled`, and events are listed from `flows` on.
    Waking {
        enabled: Timestamp,
        flows: Timestamp,
    },
    Enabled {
        flows: Timestamp,
    },
    Flowing,
}

/// What the VMs of one placement group are shown.
#[derive(Debug)]
struct Group {
    incarnation: u64,
    entries: Vec<Entry>,
    delivery: Delivery,
    last_request: Option<Timestamp>,
}

pub(crate) struct World {
    vms: Vec<Arc<Vm>>,
    vm_by_name: BTreeMap<String, usize>,
    settings: Settings,
    speed: f64,
    /// How far the world has been advanced.
    now: Timestamp,
    /// When something happens by itself next, valid unless `touched`: most requests change nothing about it.
    next: Option<Timestamp>,
    /// Whether something has changed that `next` depends on.
    touched: bool,
    /// The groups whose documents may have changed.
    unsettled: BTreeSet<String>,
    /// The groups whose delivery is about to begin.
    waking: BTreeSet<String>,
    steps: VecDeque<(Timestamp, Action)>,
    events: Vec<Event>,
    past_events: VecDeque<Event>,
    groups: BTreeMap<String, Group>,
    faults: Faults,
    log: Log,
    changes: VecDeque<Change>,
    changes_made: u64,
    events_published: u64,
    arrivals: BTreeMap<(String, bool), VecDeque<Timestamp>>,
    open_identity_requests: BTreeMap<String, usize>,
}

impl World {
    pub(crate) fn new(scenario: Scenario, now: Timestamp) -> Self {
        let Scenario { description: _, vms, settings, steps, speed } = scenario;
        let sleeps = settings.first_call_delay > Period::default() || settings.events_after > Period::default();
        let group = || Group {
            incarnation: settings.first_incarnation,
            entries: Vec::new(),
            delivery: if sleeps { Delivery::Asleep } else { Delivery::Flowing },
            last_request: None,
        };
        let mut world = Self {
            groups: vms.iter().map(|vm| (vm.group().to_owned(), group())).collect(),
            steps: steps.into_iter().map(|(at, action)| (later(now, Period(at).at_speed(speed)), action)).collect(),
            vm_by_name: vms.iter().enumerate().map(|(index, vm)| (vm.name.clone(), index)).collect(),
            vms: vms.into_iter().map(Arc::new).collect(),
            settings,
            speed,
            now,
            next: None,
            touched: true,
            unsettled: BTreeSet::new(),
            waking: BTreeSet::new(),
            events: Vec::new(),
            past_events: VecDeque::new(),
            faults: Faults::default(),
            log: Log::default(),
            changes: VecDeque::new(),
            changes_made: 0,
            events_published: 0,
            arrivals: BTreeMap::new(),
            open_identity_requests: BTreeMap::new(),
        };
        world.happen();
        world
    }

    // Time.

    /// When something happens by itself next. That is in the future, because what was due has happened.
    pub(crate) fn next_instant(&self) -> Option<Timestamp> {
        self.next
    }

    fn find_next_instant(&self) -> Option<Timestamp> {
        let step = self.steps.front().map(|(at, _)| *at);
        let event = self.next_event_phase().map(|(at, ..)| at);
        let delivery = self.waking.iter().filter_map(|group| match self.groups.get(group)?.delivery {
            Delivery::Waking { enabled, .. } => Some(enabled),
            Delivery::Enabled { flows } => Some(flows),
            Delivery::Asleep | Delivery::Flowing => None,
        });
        step.into_iter().chain(event).chain(delivery).min()
    }

    /// Lets everything happen that is due by `now`.
    pub(crate) fn advance(&mut self, now: Timestamp) {
        while let Some(at) = self.next_instant().filter(|at| *at <= now) {
            self.now = at;
            self.touched = true;
            self.happen();
        }
        self.now = self.now.max(now);
    }

    /// Does something, and then everything that is due because of it.
    pub(crate) fn act<T>(&mut self, operation: impl FnOnce(&mut Self) -> T) -> T {
        let result = operation(self);
        self.happen();
        result
    }

    /// Lets everything happen that is due now.
    fn happen(&mut self) {
        while self.touched {
            self.touched = false;
            if let Some((_, action)) = self.steps.pop_front_if(|(at, _)| *at <= self.now) {
                self.perform(action);
                self.touched = true;
            } else if let Some((_, index, phase)) = self.next_event_phase().filter(|(at, ..)| *at <= self.now) {
                self.enter(index, phase);
            } else {
                self.settle();
                self.next = self.find_next_instant();
            }
        }
    }

    /// The index of the event whose phase changes next, and how.
    fn next_event_phase(&self) -> Option<(Timestamp, usize, Phase)> {
        let phases = self.events.iter().enumerate().filter_map(|(index, event)| {
            let deletion = self.events.iter().enumerate().filter(|(other, candidate)| {
                *other != index && event.deletion.is_some() && candidate.deletion == event.deletion
            });
            event.next_phase(deletion.map(|(_, candidate)| candidate)).map(|(at, phase)| (at, index, phase))
        });
        phases.min_by_key(|(at, index, _)| (*at, *index))
    }

    /// Brings the documents up to date; one that has changed is a new incarnation.
    fn settle(&mut self) {
        for name in &self.waking {
            let Some(group) = self.groups.get_mut(name) else { continue };
            if let Delivery::Waking { enabled, flows } = group.delivery
                && enabled <= self.now
            {
                group.delivery = Delivery::Enabled { flows };
            }
            if let Delivery::Enabled { flows } = group.delivery
                && flows <= self.now
            {
                group.delivery = Delivery::Flowing;
            }
        }
        let mut unsettled = std::mem::take(&mut self.unsettled);
        unsettled.extend(self.waking.iter().cloned());
        let groups = &self.groups;
        self.waking.retain(|name| groups.get(name).is_some_and(|group| group.delivery != Delivery::Flowing));
        for name in unsettled {
            let Some(group) = self.groups.get_mut(&name) else { continue };
            let entries: Vec<Entry> = match group.delivery {
                Delivery::Flowing => self.events.iter().filter(|event| event.group == name).map(Event::entry).collect(),
                Delivery::Enabled { .. } => Vec::new(),
                // Nobody sees the document now, so nothing about it can change.
                Delivery::Asleep | Delivery::Waking { .. } => continue,
            };
            if entries != group.entries {
                group.entries = entries;
                group.incarnation = group.incarnation.saturating_add(self.settings.incarnation_step);
            }
        }
    }

    /// The document of this group, and what happens next, may be another from now on.
    fn touch(&mut self, group: String) {
        self.unsettled.insert(group);
        self.touched = true;
    }

    fn perform(&mut self, action: Action) {
        let done = match action {
            Action::Publish(spec) => self.publish(&spec).map(drop),
            Action::Cancel(key) => self.cancel(&key).map(drop),
            Action::Approve(key) => self.approve(&key).map(drop),
            Action::Start(key) => self.start(&key).map(drop),
            Action::Finish(key) => self.finish(&key).map(drop),
            Action::Change(key, change) => self.change(&key, &change).map(drop),
            Action::Set(spec) => self.set_fault(&spec).map(drop),
            // Faults may have ended by themselves; then there is nothing left to clear.
            Action::Clear(key) => {
                self.clear_faults(&key);
                Ok(())
            }
        };
        if let Err(error) = done {
            self.note("Skipped", None, error.to_string());
        }
    }

    fn note(&mut self, what: &'static str, event: Option<EventId>, detail: String) {
        self.changes_made += 1;
        remember(&mut self.changes, Change { number: self.changes_made, time: self.now, what, event, detail });
    }

    fn enter(&mut self, index: usize, phase: Phase) {
        let Some(event) = self.events.get_mut(index) else { return };
        event.enter(phase, self.now);
        let (id, detail, group) = (event.id.clone(), describe(event), event.group.clone());
        if !event.is_listed() {
            let event = self.events.remove(index);
            remember(&mut self.past_events, event);
        }
        self.touch(group);
        self.note(phase.as_str(), Some(id), detail);
    }

    // Events.

    fn find(&self, key: &str) -> Result<usize, MockError> {
        let found = self.events.iter().position(|event| event.is_called(key));
        found.ok_or_else(|| MockError::UnknownEvent { key: key.to_owned() })
    }

    fn find_scheduled(&self, key: &str, verb: &'static str) -> Result<usize, MockError> {
        let index = self.find(key)?;
        match &self.events[index] {
            event if event.phase == Phase::Scheduled => Ok(index),
            event => Err(MockError::NotScheduled { id: event.id.clone(), phase: event.phase, verb }),
        }
    }

    pub(crate) fn publish(&mut self, spec: &EventSpec) -> Result<EventId, MockError> {
        let group = group_of(&self.vms, &spec.vms)?.to_owned();
        for key in [&spec.name, &spec.id].into_iter().flatten() {
            if self.find(&key.value).is_ok() {
                let message =
                    format!("an event `{}` is listed already; give the new one another id or name", key.value);
                return Err(MockError::Invalid(message));
            }
        }
        self.events_published += 1;
        let id = spec.id.as_ref().map_or_else(
            || {
                let id = guid(self.settings.seed, "event", self.events_published);
                if self.settings.event_ids == IdCase::Upper { id.to_ascii_uppercase() } else { id }
            },
            |id| id.value.clone(),
        );
        let id = EventId(id);
        let event = spec.publish(id.clone(), group.clone(), self.now, self.speed);
        let (phase, detail) = (event.phase, describe(&event));
        self.events.push(event);
        self.touch(group);
        self.note(phase.as_str(), Some(id.clone()), detail);
        Ok(id)
    }

    pub(crate) fn cancel(&mut self, key: &str) -> Result<EventId, MockError> {
        let index = self.find_scheduled(key, "cancelled")?;
        Ok(self.force(index, Phase::Cancelled))
    }

    pub(crate) fn start(&mut self, key: &str) -> Result<EventId, MockError> {
        let index = self.find_scheduled(key, "started")?;
        Ok(self.force(index, Phase::Started))
    }

    pub(crate) fn finish(&mut self, key: &str) -> Result<EventId, MockError> {
        let index = self.find(key)?;
        Ok(self.force(index, Phase::Finished))
    }

    fn force(&mut self, index: usize, phase: Phase) -> EventId {
        let id = self.events[index].id.clone();
        self.enter(index, phase);
        id
    }

    pub(crate) fn change(&mut self, key: &str, change: &EventChange) -> Result<EventId, MockError> {
        if let Some(contradiction) = change.contradiction() {
            return Err(MockError::Invalid(contradiction.to_owned()));
        }
        let index = self.find(key)?;
        let event = &mut self.events[index];
        if change.status == Some(Phase::Scheduled) && event.phase == Phase::Started {
            return Err(MockError::NotScheduled { id: event.id.clone(), phase: event.phase, verb: "scheduled" });
        }
        let before = event.phase;
        event.apply(change, self.now);
        let what = if event.phase == before { "Changed" } else { event.phase.as_str() };
        let (id, detail, group) = (event.id.clone(), describe(event), event.group.clone());
        self.touch(group);
        self.note(what, Some(id.clone()), detail);
        Ok(id)
    }

    pub(crate) fn approve(&mut self, key: &str) -> Result<EventId, MockError> {
        let index = self.find(key)?;
        Ok(self.approve_at(index, None))
    }

    /// The approvals of one POST: all of them, or none if the document does not list one.
    pub(crate) fn approve_listed(&mut self, vm: &Vm, version: Version, ids: &[String]) -> Result<(), MockError> {
        let listed = self.groups.get(vm.group()).map(|group| group.entries.as_slice()).unwrap_or_default();
        let unknown = ids
            .iter()
            .find(|id| !listed.iter().any(|entry| entry.id.eq_ignore_ascii_case(id) && version.knows(&entry.kind)));
        if let Some(id) = unknown {
            return Err(MockError::UnknownEvent { key: id.clone() });
        }
        for id in ids {
            let index = self.find(id)?;
            self.approve_at(index, Some(vm.name.clone()));
        }
        Ok(())
    }

    fn approve_at(&mut self, index: usize, vm: Option<String>) -> EventId {
        let event = &mut self.events[index];
        let repeated = event.approved.is_some() || event.phase != Phase::Scheduled;
        event.approved.get_or_insert(self.now);
        let id = event.id.clone();
        let by = vm.as_ref().map_or_else(|| "elsewhere".to_owned(), |vm| format!("by {vm}"));
        let detail = format!("{by}{}: {}", if repeated { ", again" } else { "" }, describe(event));
        let group = event.group.clone();
        self.touch(group);
        self.log.approve(Approval { time: self.now, vm, event: id.clone(), repeated });
        self.note("Approved", Some(id.clone()), detail);
        id
    }

    // Faults.

    pub(crate) fn set_fault(&mut self, spec: &FaultSpec) -> Result<FaultId, MockError> {
        check_vms(&self.vms, spec.vms())?;
        spec.check()?;
        let fault = self.faults.add(spec, self.now, self.speed);
        let (id, detail) = (fault.id, describe_fault(fault));
        self.note("Fault", None, detail);
        Ok(id)
    }

    /// Clears the fault with this number or name, or all for `all`; tells how many there were.
    pub(crate) fn clear_faults(&mut self, key: &str) -> usize {
        let cleared = self.faults.clear(key);
        if cleared > 0 {
            self.note("Cleared", None, format!("fault {key}"));
        }
        cleared
    }

    /// The faults that this request meets; those that concern the state have done their work already.
    pub(crate) fn meet_faults(&mut self, vm: &Vm, endpoint: Endpoint) -> Vec<FaultKind> {
        let met = self.faults.take(&vm.name, endpoint, self.now);
        for fault in &met {
            let Some(group) = self.groups.get_mut(vm.group()) else { continue };
            match fault {
                FaultKind::SkippedIncarnations(by) => group.incarnation = group.incarnation.saturating_add(*by),
                FaultKind::SlowFirstCall(delay) => {
                    let enabled = later(self.now, delay.0);
                    group.delivery = Delivery::Waking { enabled, flows: later(enabled, self.settings.events_after.0) };
                    self.waking.insert(vm.group().to_owned());
                    self.touched = true;
                }
                _ => {}
            }
        }
        met
    }

    // Requests.

    /// Counts a request to scheduled events, which keeps them awake, and tells how long its answer takes at least.
    pub(crate) fn wake(&mut self, vm: &Vm) -> Duration {
        let settings = &self.settings;
        let Some(group) = self.groups.get_mut(vm.group()) else { return Duration::ZERO };
        let sleeps = settings.first_call_delay > Period::default() || settings.events_after > Period::default();
        let silent_too_long =
            group.last_request.is_some_and(|last| later(last, settings.deactivate_after.0) <= self.now);
        if sleeps && silent_too_long && group.delivery == Delivery::Flowing {
            group.delivery = Delivery::Asleep;
        }
        if group.delivery == Delivery::Asleep {
            let enabled = later(self.now, settings.first_call_delay.0);
            group.delivery = Delivery::Waking { enabled, flows: later(enabled, settings.events_after.0) };
            self.waking.insert(vm.group().to_owned());
            self.touched = true;
        }
        group.last_request = Some(self.now);
        match group.delivery {
            Delivery::Waking { enabled, .. } => remaining(self.now, enabled),
            _ => Duration::ZERO,
        }
    }

    /// Whether this request of the VM, for a token or for anything else, is one too many within a second.
    pub(crate) fn is_over_limit(&mut self, vm: &str, identity: bool) -> bool {
        let limit =
            if identity { self.settings.identity_requests_per_second } else { self.settings.requests_per_second };
        let arrivals = self.arrivals.entry((vm.to_owned(), identity)).or_default();
        while arrivals.pop_front_if(|arrival| later(*arrival, Duration::from_secs(1)) <= self.now).is_some() {}
        if limit > 0 && arrivals.len() >= limit {
            return true;
        }
        if limit > 0 {
            arrivals.push_back(self.now);
        }
        false
    }

    /// Counts a request for a token as open, unless too many are.
    pub(crate) fn open_identity_request(&mut self, vm: &str) -> bool {
        let limit = self.settings.identity_requests_at_once;
        let open = self.open_identity_requests.entry(vm.to_owned()).or_default();
        let admitted = limit == 0 || *open < limit;
        *open += usize::from(admitted);
        admitted
    }

    pub(crate) fn close_identity_request(&mut self, vm: &str) {
        if let Some(open) = self.open_identity_requests.get_mut(vm) {
            *open = open.saturating_sub(1);
        }
    }

    /// Incarnation and entries of the VM's document.
    pub(crate) fn document(&self, vm: &Vm) -> (u64, &[Entry]) {
        self.groups
            .get(vm.group())
            .map_or((self.settings.first_incarnation, &[]), |group| (group.incarnation, &group.entries))
    }

    // What there is.

    pub(crate) fn now(&self) -> Timestamp {
        self.now
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn vms(&self) -> &[Arc<Vm>] {
        &self.vms
    }

    pub(crate) fn vm(&self, name: &str) -> Result<&Arc<Vm>, MockError> {
        let found = self.vm_by_name.get(name).and_then(|index| self.vms.get(*index));
        found.ok_or_else(|| MockError::UnknownVm {
            name: name.to_owned(),
            known: list(self.vms.iter().map(|vm| vm.name.as_str())),
        })
    }

    /// The event with this identifier or name: the listed one, else the last one that is over.
    pub(crate) fn event(&self, key: &str) -> Result<&Event, MockError> {
        let found = self.events.iter().chain(self.past_events.iter().rev()).find(|event| event.is_called(key));
        found.ok_or_else(|| MockError::UnknownEvent { key: key.to_owned() })
    }

    /// Listed events first, then those that are over, oldest first.
    pub(crate) fn events(&self) -> impl Iterator<Item = &Event> {
        self.events.iter().chain(&self.past_events)
    }

    pub(crate) fn incarnations(&self) -> BTreeMap<String, u64> {
        self.groups.iter().map(|(name, group)| (name.clone(), group.incarnation)).collect()
    }

    pub(crate) fn faults(&self) -> &Faults {
        &self.faults
    }

    pub(crate) fn log(&self) -> &Log {
        &self.log
    }

    pub(crate) fn log_mut(&mut self) -> &mut Log {
        &mut self.log
    }

    /// How many changes there have been.
    pub(crate) fn changes_made(&self) -> u64 {
        self.changes_made
    }

    pub(crate) fn changes(&self) -> &VecDeque<Change> {
        &self.changes
    }

    /// Whether nothing will happen any more unless somebody interferes.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.next_instant().is_none()
    }
}

fn describe(event: &Event) -> String {
    let name = event.name.as_ref().map_or_else(String::new, |name| format!(" ({name})"));
    let not_before = match event.phase {
        Phase::Scheduled => format!(", not before {}", crate::document::http_date(event.not_before)),
        _ => String::new(),
    };
    format!("{}{name} of {}{not_before}", event.kind, event.vms.join(", "))
}

fn describe_fault(fault: &crate::fault::Fault) -> String {
    let kind = serde_json::to_string(&fault.kind).unwrap_or_default();
    let whom = if fault.vms.is_empty() { "all VMs".to_owned() } else { fault.vms.join(", ") };
    let name = fault.name.as_ref().map_or_else(String::new, |name| format!(" ({name})"));
    let requests = fault.requests_left.map_or_else(String::new, |left| format!(", requests: {left}"));
    let until = fault.until.map_or_else(String::new, |until| format!(", until {until:.0}"));
    format!("{}{name} for {whom}{requests}{until}", kind.trim_matches('"'))
}

#[cfg(test)]
mod tests;
