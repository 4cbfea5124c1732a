//! A drain: which pods go, in which order, with which grace, how a refusal is answered, and what happens at the deadline.
//!
//! [`Drain`] is a state machine without I/O. It is told what the API server lists, what a watch reports and how
//! requests were answered; [`Drain::step`] says which requests to send now and when to ask again. It may be lost at any
//! moment: everything it must not forget stands in the API server, and a new one built from a fresh list goes on.

pub mod answer;
mod order;
pub mod pod;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::fingerprint::fingerprint;
use crate::policy::{AtDeadline, Phase, Profile};
use crate::record::DrainResult;
use crate::time::{Monotonic, Now, plus};
use answer::Answer;
pub use order::{Blocker, Order, Outcome, Report, Request, Step, Target, Why};
use pod::{Kept, Pod, PodName, PodUid, Standing};

/// How many requests for pods are under way at once. Each holds a connection, and the API server answers an eviction
/// in about 10 ms, so more would only cost memory.
pub const MOST_IN_FLIGHT: usize = 16;

/// How many are under way with those that the server sits on: each holds a connection.
const MOST_WITH_HANGING: usize = 64;

/// How many requests for pods of one controller are under way at first. They probably share a disruption budget, and the
/// API server makes evictions that meet at one budget wait for half a second each, up to twenty times.
const FIRST_AT_ONCE: usize = 4;

/// An answer that took longer has probably met others at its budget.
const SLOW_ANSWER: Duration = Duration::from_millis(400);

/// For how long a request without an answer holds up those for other pods of its controller.
const HOLDS_UP_FOR: Duration = Duration::from_secs(1);

/// How many evictions of one pod are asked for in [`ATTEMPT_WINDOW`] at the most.
pub const MOST_ATTEMPTS: usize = 20;

/// See [`MOST_ATTEMPTS`].
pub const ATTEMPT_WINDOW: Duration = Duration::from_secs(60);

/// The longest that a request for a pod may take; the eviction API itself may retry inside the server for 10 s.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(12);

/// For how long the node must look empty: a pod that the scheduler bound just before the cordon appears late.
pub const EMPTY_FOR: Duration = Duration::from_secs(5);

/// Notice below which every second counts: a mute watch is not trusted for long.
const SHORT_NOTICE: Duration = Duration::from_secs(60);

/// What a drain that comes after its deadline is given, as long as the machine is still there; half of it for evictions,
/// half for deletions.
const LAST_EFFORT: Duration = Duration::from_secs(5);

/// The API server's clock may be ahead of ours by so much without a pod's being taken for too slow.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(3);

/// A watch that has lived for this long has worked.
const WATCH_WORKED: Duration = Duration::from_secs(10);

/// The time kept for a later phase whose grace is not given.
const USUAL_GRACE: Duration = Duration::from_secs(30);

/// The shortest grace. Zero would remove the object without the kubelet, while the container runs on.
const LEAST_GRACE: Duration = Duration::from_secs(1);

/// An eviction takes some 10 ms; with less time than this before deletion begins it is not worth asking.
const LEAST_EVICTION: Duration = Duration::from_millis(250);

/// A pod that is refused for longer holds the drain up.
const BLOCKED_FOR: Duration = Duration::from_secs(15);

const SLOW_RETRY: Duration = Duration::from_secs(10);
const LONGEST_BACKOFF: Duration = Duration::from_secs(15);

/// After an accepted eviction the watch should show the deletion; if it does not, the eviction is repeated after this.
const ACCEPTANCE_SHOWS_WITHIN: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InFlight {
    Eviction(Duration),
    Deletion(Duration, Why),
    Look,
}

#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts about one pod's requests")]
struct Tracked {
    pod: Pod,
    in_flight: Option<InFlight>,
    attempts: VecDeque<Monotonic>,
    refusals: u32,
    next_try: Monotonic,
    forced: bool,
    shortened: bool,
    look_first: bool,
    namespace_ends: bool,
    blocked_by: Option<Blocker>,
    blocked_since: Monotonic,
}

impl Tracked {
    fn new(pod: Pod) -> Self {
        Self {
            pod,
            in_flight: None,
            attempts: VecDeque::new(),
            refusals: 0,
            next_try: Monotonic::default(),
            forced: false,
            shortened: false,
            look_first: false,
            namespace_ends: false,
            blocked_by: None,
            blocked_since: Monotonic::default(),
        }
    }

    /// The instant from which the budget of attempts allows another one.
    fn budget_from(&self) -> Monotonic {
        match self.attempts.front() {
            Some(oldest) if self.attempts.len() >= MOST_ATTEMPTS => *oldest + ATTEMPT_WINDOW,
            _ => Monotonic::default(),
        }
    }

    /// Whether the last request was accepted, and the watch may not have shown it yet.
    fn just_accepted(&self) -> bool {
        self.refusals == 0 && !self.attempts.is_empty()
    }

    /// What to ask for next and when, if anything. `most` is the longest grace that phase and deadline leave, `left`
    /// the time to the deadline, `open` when the pod's phase begins.
    fn next_request(
        &self,
        order: &Order,
        force_at: Option<Monotonic>,
        most: Duration,
        left: Duration,
        open: Monotonic,
        now: Now,
    ) -> Option<(Monotonic, InFlight)> {
        if self.look_first && !self.forced {
            return Some((self.next_try, InFlight::Look));
        }
        if let Some(deletion) = self.pod.deletion {
            let (force_at, grace) = (force_at?, whole_seconds(left));
            let too_slow = deletion.ends_at > plus(order.deadline, CLOCK_TOLERANCE) && grace < deletion.grace;
            if self.shortened || !too_slow {
                return None;
            }
            let due = if deletion.running_for(now.wall) < grace { now.monotonic } else { force_at };
            let retry = if self.just_accepted() { now.monotonic } else { self.next_try.max(self.budget_from()) };
            return Some((due.max(retry), InFlight::Deletion(grace, Why::TooSlow)));
        }
        let grace = whole_seconds(self.pod.grace.min(most));
        if self.forced {
            return Some((self.next_try, InFlight::Deletion(grace, Why::DeadlineNear)));
        }
        if self.namespace_ends && force_at.is_some() {
            return Some((self.next_try.max(self.budget_from()), InFlight::Deletion(grace, Why::NamespaceEnds)));
        }
        let due = self.next_try.max(self.budget_from()).max(open);
        // Just before the deletion there is no time left for an eviction.
        let due = match force_at {
            Some(force_at) if due + LEAST_EVICTION > force_at => due.max(force_at),
            _ => due,
        };
        Some((due, InFlight::Eviction(grace)))
    }

    fn note_attempt(&mut self, now: Monotonic) {
        if self.attempts.len() >= MOST_ATTEMPTS {
            self.attempts.pop_front();
        }
        self.attempts.push_back(now);
    }
}

/// What is under way.
struct Load {
    /// How many more requests may be sent.
    room: usize,
    controllers: BTreeMap<String, ControllerLoad>,
}

/// What is under way for the pods of one controller.
#[derive(Default)]
struct ControllerLoad {
    /// Evictions that were asked for just now.
    evictions: usize,
    /// Pods that are not leaving yet.
    to_ask: usize,
}

/// How fast the pods of one controller can be asked.
#[derive(Clone, Copy, Debug)]
struct Pace {
    at_once: usize,
    /// How many have to be under way so that all are asked in time.
    needed: usize,
    latency: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { at_once: FIRST_AT_ONCE, needed: 0, latency: Duration::ZERO }
    }
}

impl Pace {
    fn learn(&mut self, answer: &Answer, took: Duration) {
        self.latency = took;
        self.at_once = match answer {
            // The others would be refused as well.
            Answer::Budget(_) => 1,
            Answer::Accepted | Answer::Gone if took < SLOW_ANSWER => (self.at_once + 1).min(MOST_IN_FLIGHT),
            _ => (self.at_once / 2).max(2),
        };
    }

    /// How many may be under way if so many are to be asked in so much time. A slow server is no reason to be late; a
    /// budget that refuses is.
    fn at_once(&mut self, pods: usize, time: Duration) -> usize {
        if self.at_once == 1 {
            return 1;
        }
        // All are to be asked in a quarter of the time: they need the rest to stop.
        let needed = self.latency.as_millis() * pods as u128 * 4 / time.as_millis().max(1);
        self.needed = self.needed.max(usize::try_from(needed).unwrap_or(MOST_IN_FLIGHT));
        self.at_once.max(self.needed).min(MOST_IN_FLIGHT)
    }
}

/// When the pods are to be listed, and how far the watch can be trusted.
#[derive(Clone, Debug, Default)]
struct Listing {
    in_flight: bool,
    done_once: bool,
    failures: u32,
    not_before: Monotonic,
    heard: Monotonic,
    watch_began: Monotonic,
    watch_lost: bool,
    watch_failures: u32,
    /// The first and the last of the latest lists in a row on which nothing was left to evict.
    empty: Option<(Monotonic, Monotonic)>,
}

/// A drain of one node.
#[derive(Clone, Debug)]
pub struct Drain {
    node: String,
    own: Option<PodName>,
    order: Order,
    pods: BTreeMap<PodUid, Tracked>,
    kept: BTreeMap<PodUid, (Pod, Kept)>,
    gone: BTreeSet<PodUid>,
    /// Pods that an answer has called gone.
    called_gone: BTreeSet<PodUid>,
    /// Pods that were deleted instead of evicted.
    deleted: BTreeSet<PodUid>,
    /// How fast the pods of a controller can be asked, where that has been learnt.
    paces: BTreeMap<String, Pace>,
    listing: Listing,
    phases_together: bool,
    /// Until when a drain that began after its deadline goes on.
    last_effort: Option<Monotonic>,
    reports: Vec<Report>,
    over: bool,
}

impl Drain {
    /// A drain of `node` that knows nothing of its pods yet. `own` is the pod that this program runs in.
    ///
    /// If the deadline has passed already, because nobody drained in time, the drain still asks all pods once and, where
    /// the rule deletes, deletes them.
    pub fn new(node: impl Into<String>, own: Option<PodName>, order: Order, now: Now) -> Self {
        let late = order.deadline <= now.wall;
        Self {
            last_effort: late.then(|| now.monotonic + LAST_EFFORT),
            node: node.into(),
            own,
            order,
            pods: BTreeMap::new(),
            kept: BTreeMap::new(),
            gone: BTreeSet::new(),
            called_gone: BTreeSet::new(),
            deleted: BTreeSet::new(),
            paces: BTreeMap::new(),
            listing: Listing::default(),
            phases_together: false,
            reports: Vec::new(),
            over: false,
        }
    }

    /// Gives the drain a new order, for instance an earlier deadline.
    pub fn reorder(&mut self, order: Order, now: Now) {
        if self.order == order {
            return;
        }
        self.order = order;
        let soon = now.monotonic + self.backoff_cap(now);
        for tracked in self.pods.values_mut() {
            tracked.forced = false;
            // A pause that an eighth of the old time was worth may be too long for the new.
            tracked.next_try = tracked.next_try.min(soon);
        }
        // Another profile may evict what the old one kept, and the other way round.
        let tracked = self.pods.values().map(|tracked| tracked.pod.clone());
        let all: Vec<Pod> = tracked.chain(self.kept.values().map(|(pod, _)| pod.clone())).collect();
        for pod in all {
            self.observe(pod, now);
        }
        self.choose_phases(now);
    }

    /// How many pods are refused at the moment.
    pub fn blocked(&self) -> usize {
        self.pods.values().filter(|tracked| tracked.blocked_by.is_some() && tracked.pod.deletion.is_none()).count()
    }

    /// The pods that have been refused for a while, and by whom: that a budget makes a pod wait for its turn is everyday.
    pub fn held_up(&self, now: Now) -> Vec<(PodName, String)> {
        let patience = BLOCKED_FOR.min(self.time_left(now) / 2);
        let held_up = self.pods.values().filter(|tracked| tracked.pod.deletion.is_none()).filter_map(|tracked| {
            let blocker = tracked.blocked_by.as_ref()?;
            let long = now.monotonic.since(tracked.blocked_since) >= patience;
            long.then(|| (tracked.pod.name.clone(), blocker.to_string()))
        });
        held_up.collect()
    }

    /// How many pods still have to go.
    pub fn remaining(&self) -> usize {
        self.pods.len()
    }

    /// A list of all pods of the node has arrived.
    pub fn listed(&mut self, pods: Vec<Pod>, now: Now) {
        let uids: BTreeSet<&PodUid> = pods.iter().map(|pod| &pod.uid).collect();
        let vanished: Vec<PodUid> = self.pods.keys().filter(|uid| !uids.contains(uid)).cloned().collect();
        self.kept.retain(|uid, _| uids.contains(uid));
        for uid in vanished {
            self.remove(&uid);
        }
        for pod in pods {
            self.observe(pod, now);
        }
        let first = !self.listing.done_once;
        self.listing = Listing {
            in_flight: false,
            done_once: true,
            failures: 0,
            heard: now.monotonic,
            // The next watch goes on from here.
            watch_began: now.monotonic,
            watch_lost: false,
            empty: match self.listing.empty {
                _ if !self.pods.is_empty() => None,
                Some((since, _)) => Some((since, now.monotonic)),
                None => Some((now.monotonic, now.monotonic)),
            },
            ..self.listing
        };
        if first {
            self.choose_phases(now);
        }
    }

    /// The list failed: it says nothing about the pods.
    pub fn list_failed(&mut self, now: Now) {
        self.listing.in_flight = false;
        self.listing.failures = self.listing.failures.saturating_add(1);
        let pause = doubled(Duration::from_millis(250), self.listing.failures).min(Duration::from_secs(5));
        self.listing.not_before = now.monotonic + pause.min(self.time_left(now) / 4).max(Duration::from_millis(100));
    }

    /// The watch reports a pod, new or changed.
    pub fn observed(&mut self, pod: Pod, now: Now) {
        self.heard(now);
        self.observe(pod, now);
    }

    /// The watch reports that a pod is gone.
    pub fn vanished(&mut self, uid: &PodUid, now: Now) {
        self.heard(now);
        self.kept.remove(uid);
        self.remove(uid);
    }

    /// The watch is alive, but has nothing to report.
    pub fn heard(&mut self, now: Now) {
        self.listing.heard = now.monotonic;
    }

    /// The watch has ended, or could not be opened: the pods are to be listed again, soon after a watch that has worked,
    /// with growing pauses after one that has not.
    pub fn watch_lost(&mut self, now: Now) {
        if now.monotonic.since(self.listing.watch_began) >= WATCH_WORKED {
            self.listing.watch_failures = 0;
        }
        let pause = doubled(Duration::from_millis(250), self.listing.watch_failures).min(Duration::from_secs(5));
        let pause = pause.min(self.time_left(now) / 4).min(self.trusted_silence(now));
        self.listing.watch_failures = self.listing.watch_failures.saturating_add(1);
        self.listing.not_before = now.monotonic + pause.max(Duration::from_millis(100));
        self.listing.watch_lost = true;
    }

    /// An eviction or deletion was answered.
    pub fn answered(&mut self, uid: &PodUid, answer: &Answer, now: Now) {
        let backoff_cap = self.backoff_cap(now);
        let Some(tracked) = self.pods.get_mut(uid) else {
            // It was asked before another order left it where it is.
            if *answer == Answer::Gone && self.kept.remove(uid).is_some() {
                self.called_gone.insert(uid.clone());
            }
            return;
        };
        let request = tracked.in_flight.take();
        if let (Some(controller), Some(InFlight::Eviction(_))) = (&tracked.pod.controller_uid, request) {
            let took = tracked.attempts.back().map_or(Duration::ZERO, |sent| now.monotonic.since(*sent));
            self.paces.entry(controller.clone()).or_default().learn(answer, took);
        }
        let (name, forced) = (tracked.pod.name.clone(), tracked.forced);
        let refused = tracked.refusals;
        tracked.refusals = refused.saturating_add(1);
        tracked.shortened &= *answer == Answer::Accepted;
        let jitter = spread(uid, refused);
        let pause = match answer {
            Answer::Gone => {
                self.called_gone.insert(uid.clone());
                return self.remove(uid);
            }
            Answer::Accepted => {
                tracked.refusals = 0;
                tracked.blocked_by = None;
                let pod = name.clone();
                match request {
                    Some(InFlight::Deletion(grace, why)) => {
                        if why != Why::TooSlow {
                            self.deleted.insert(uid.clone());
                        }
                        self.reports.push(Report::Deleted { pod, uid: uid.clone(), grace, why });
                    }
                    Some(InFlight::Eviction(grace)) => {
                        self.reports.push(Report::Evicted { pod, uid: uid.clone(), grace });
                    }
                    Some(InFlight::Look) | None => {}
                }
                ACCEPTANCE_SHOWS_WITHIN
            }
            Answer::Conflict => {
                tracked.look_first = true;
                // Once forced deletion has begun nobody looks any more, and the next deletion may meet the same.
                if forced { doubled(Duration::from_millis(200), refused) } else { Duration::ZERO }
            }
            Answer::Busy(retry_after) => {
                let quick = doubled(Duration::from_millis(200), refused).min(Duration::from_secs(5)).mul_f64(jitter);
                quick.max(retry_after.unwrap_or_default()).min(backoff_cap)
            }
            Answer::NamespaceTerminating => {
                tracked.namespace_ends = true;
                Duration::from_secs(5).min(backoff_cap)
            }
            Answer::NamespaceGone => {
                tracked.namespace_ends = true;
                SLOW_RETRY.min(backoff_cap)
            }
            Answer::Budget(_) | Answer::Admission(_) => {
                doubled(Duration::from_secs(1), refused).min(backoff_cap).mul_f64(jitter).max(Duration::from_secs(1))
            }
            Answer::SeveralBudgets => backoff_cap,
            // An API server that has just started refuses everyone for a moment; only a refusal that lasts is a fault.
            Answer::Forbidden(_) if refused == 0 => Duration::from_secs(1),
            Answer::Forbidden(_) | Answer::Invalid(_) => SLOW_RETRY,
        };
        // Once forced deletion has begun there are mostly seconds left: no pause that was meant for minutes.
        let refused_late = forced && *answer != Answer::Accepted;
        let pause = if refused_late { pause.min(backoff_cap) } else { pause };
        tracked.next_try = now.monotonic + pause;
        let passing = matches!(answer, Answer::Forbidden(_)) && refused == 0;
        if let Some(blocker) = Blocker::of(answer).filter(|_| !passing) {
            let known = tracked.blocked_by.as_ref().is_some_and(|known| {
                std::mem::discriminant(known) == std::mem::discriminant(&blocker)
                    && !matches!((known, &blocker), (Blocker::Budget(a), Blocker::Budget(b)) if a != b)
            });
            if tracked.blocked_by.is_none() {
                tracked.blocked_since = now.monotonic;
            }
            tracked.blocked_by = Some(blocker.clone());
            if !known {
                self.reports.push(Report::Blocked { pod: name, uid: uid.clone(), by: blocker });
            }
        }
    }

    /// A pod was read after a conflict; `None` if there is none of that name.
    pub fn looked(&mut self, uid: &PodUid, found: Option<Pod>, now: Now) {
        match found {
            Some(pod) if pod.uid == *uid && pod.node.as_deref() == Some(self.node.as_str()) => {
                if let Some(tracked) = self.pods.get_mut(uid) {
                    tracked.in_flight = None;
                    tracked.look_first = false;
                    tracked.next_try = now.monotonic + Duration::from_millis(200);
                }
                self.observe(pod, now);
            }
            _ => {
                self.kept.remove(uid);
                self.remove(uid);
            }
        }
    }

    /// The read after a conflict failed: it is repeated.
    pub fn look_failed(&mut self, uid: &PodUid, now: Now) {
        let backoff_cap = self.backoff_cap(now);
        if let Some(tracked) = self.pods.get_mut(uid) {
            tracked.in_flight = None;
            let pause = doubled(Duration::from_millis(500), tracked.refusals).min(backoff_cap);
            tracked.refusals = tracked.refusals.saturating_add(1);
            tracked.next_try = now.monotonic + pause;
        }
    }

    /// What has happened since the last step, for a drain that will step no more.
    pub fn take_reports(&mut self) -> Vec<Report> {
        std::mem::take(&mut self.reports)
    }

    /// Says what to do now.
    pub fn step(&mut self, now: Now) -> Step {
        let deadline = self.deadline(now);
        if self.over {
            return Step { requests: Vec::new(), reports: Vec::new(), wake: deadline, outcome: None };
        }
        let outcome = self.outcome(now, deadline);
        if outcome.is_some() {
            self.over = true;
            let reports = self.take_reports();
            return Step { requests: Vec::new(), reports, wake: deadline, outcome };
        }
        let mut wake = deadline;
        let mut requests = Vec::new();
        self.step_list(now, &mut requests, &mut wake);
        self.step_pods(now, &mut requests, &mut wake);
        Step { requests, reports: self.take_reports(), wake, outcome: None }
    }

    /// How the node is drained, as last ordered.
    pub fn profile(&self) -> &Profile {
        &self.order.profile
    }

    /// How long the answer to a list may take: a connection that leads nowhere must leave time for another.
    pub fn patience(&self, now: Now) -> Duration {
        (self.time_left(now) / 4).clamp(LEAST_GRACE, REQUEST_TIMEOUT)
    }

    fn step_list(&mut self, now: Now, requests: &mut Vec<Request>, wake: &mut Monotonic) {
        if self.listing.in_flight {
            return;
        }
        let silence = self.trusted_silence(now);
        let due = match self.listing.empty {
            _ if !self.listing.done_once || self.listing.watch_lost => self.listing.not_before,
            Some((since, _)) => self.listing.not_before.max(since + EMPTY_FOR),
            None if self.pods.is_empty() => self.listing.not_before,
            None => self.listing.not_before.max(self.listing.heard + silence),
        };
        if due <= now.monotonic {
            self.listing.in_flight = true;
            requests.push(Request::List);
        } else {
            *wake = (*wake).min(due);
        }
    }

    /// For how long a watch may be mute and still be believed.
    fn trusted_silence(&self, now: Now) -> Duration {
        Duration::from_secs(if self.time_left(now) < SHORT_NOTICE { 2 } else { 10 })
    }

    /// When deletion past the budgets begins, where the rule deletes.
    fn force_at(&self, now: Now) -> Option<Monotonic> {
        let deadline = self.deadline(now);
        let margin = match self.last_effort {
            Some(last_effort) if last_effort >= deadline => LAST_EFFORT / 2,
            _ => self.order.margin(),
        };
        (self.order.profile.at_deadline == AtDeadline::Delete).then(|| deadline.less(margin))
    }

    /// What is under way, and how much more may be. A request that has no answer for long holds up nobody.
    fn load(&self, now: Now) -> Load {
        let (mut under_way, mut recent) = (0, 0);
        let mut controllers: BTreeMap<String, ControllerLoad> = BTreeMap::new();
        for tracked in self.pods.values() {
            let sent = tracked.attempts.back().filter(|_| tracked.in_flight.is_some());
            let is_recent = sent.is_some_and(|sent| now.monotonic.since(*sent) < HOLDS_UP_FOR);
            under_way += usize::from(sent.is_some());
            recent += usize::from(is_recent);
            if let Some(controller) = &tracked.pod.controller_uid {
                let load = controllers.entry(controller.clone()).or_default();
                load.to_ask += usize::from(tracked.pod.deletion.is_none());
                let is_eviction = matches!(tracked.in_flight, Some(InFlight::Eviction(_)));
                load.evictions += usize::from(is_recent && is_eviction);
            }
        }
        let room = MOST_IN_FLIGHT.saturating_sub(recent).min(MOST_WITH_HANGING.saturating_sub(under_way));
        Load { room, controllers }
    }

    fn step_pods(&mut self, now: Now, requests: &mut Vec<Request>, wake: &mut Monotonic) {
        let left = self.time_left(now);
        let force_at = self.force_at(now);
        let end = force_at.unwrap_or(self.deadline(now));
        let forcing = force_at.is_some_and(|force_at| now.monotonic >= force_at);
        if let Some(force_at) = force_at.filter(|_| !forcing) {
            *wake = (*wake).min(force_at);
        }
        let open_at = self.phases_open_at(now);
        let Load { mut room, mut controllers } = self.load(now);
        // The pods that need longest to stop are asked first.
        let mut urgency: Vec<(usize, std::cmp::Reverse<Duration>, PodUid)> = self
            .pods
            .iter()
            .filter(|(_, tracked)| tracked.in_flight.is_none())
            .map(|(uid, tracked)| (self.phase_of(&tracked.pod), std::cmp::Reverse(tracked.pod.grace), uid.clone()))
            .collect();
        urgency.sort();
        for (phase, _, uid) in urgency {
            let limit = self.order.profile.phases.get(phase).and_then(|phase| phase.grace).unwrap_or(Duration::MAX);
            let open = open_at.get(&phase).copied().unwrap_or_default();
            let Some(tracked) = self.pods.get_mut(&uid) else { continue };
            // The clock may be set back, and the deadline with it move away.
            let forced_before = std::mem::replace(&mut tracked.forced, forcing);
            if forcing && !forced_before && !tracked.just_accepted() {
                tracked.next_try = now.monotonic;
            }
            let Some((due, kind)) = tracked.next_request(&self.order, force_at, limit.min(left), left, open, now)
            else {
                continue;
            };
            if due > now.monotonic {
                *wake = (*wake).min(due);
                continue;
            }
            if room == 0 {
                *wake = (*wake).min(now.monotonic + HOLDS_UP_FOR);
                continue;
            }
            // A deletion asks no budget, and so meets nobody there.
            if let (Some(controller), InFlight::Eviction(_)) = (&tracked.pod.controller_uid, kind) {
                let load = controllers.entry(controller.clone()).or_default();
                let pace = self.paces.entry(controller.clone()).or_default();
                if load.evictions >= pace.at_once(load.to_ask, end.since(now.monotonic)) {
                    *wake = (*wake).min(now.monotonic + HOLDS_UP_FOR);
                    continue;
                }
                load.evictions += 1;
            }
            room -= 1;
            tracked.in_flight = Some(kind);
            tracked.note_attempt(now.monotonic);
            let timeout = match (kind, force_at) {
                // An eviction that the server sits on must not stand in the way of the deletion.
                (InFlight::Eviction(_), Some(force_at)) => force_at.since(now.monotonic),
                _ => left.max(LEAST_GRACE),
            };
            let timeout = timeout.min(REQUEST_TIMEOUT);
            let name = tracked.pod.name.clone();
            let target = |grace| Target { name, uid, grace, timeout };
            requests.push(match kind {
                InFlight::Look => Request::Look(target(LEAST_GRACE)),
                InFlight::Eviction(grace) => Request::Evict(target(grace)),
                InFlight::Deletion(grace, why) => {
                    tracked.shortened |= why == Why::TooSlow;
                    Request::Delete(target(grace))
                }
            });
        }
    }

    fn outcome(&self, now: Now, deadline: Monotonic) -> Option<Outcome> {
        let looked_empty = |least: Duration| self.listing.empty.is_some_and(|(since, last)| last.since(since) >= least);
        let at_deadline = now.monotonic >= deadline;
        if !looked_empty(EMPTY_FOR) && !at_deadline {
            return None;
        }
        let mut left: Vec<(PodName, String)> = Vec::new();
        for tracked in self.pods.values() {
            let why = match (&tracked.blocked_by, tracked.pod.deletion) {
                (_, Some(_)) => "it was still stopping at the deadline".to_owned(),
                (Some(blocker), None) => blocker.to_string(),
                (None, None) if tracked.namespace_ends => {
                    "its namespace is being deleted, but it was still there".to_owned()
                }
                (None, None) => "it was not asked in time".to_owned(),
            };
            left.push((tracked.pod.name.clone(), why));
        }
        left.extend(self.kept.values().map(|(pod, why)| (pod.name.clone(), why.to_string())));
        left.sort();
        let kept_back = self.kept.values().any(|(_, why)| why.is_unfinished_business());
        // A list of long ago says nothing about now.
        let is_fresh = self.listing.empty.is_some_and(|(_, last)| now.monotonic.since(last) <= REQUEST_TIMEOUT);
        let drained = is_fresh && self.pods.is_empty() && !kept_back;
        let result = if drained { DrainResult::Drained } else { DrainResult::Incomplete };
        let deleted = self.gone.intersection(&self.deleted).count();
        Some(Outcome { result, left, evicted: self.gone.len() - deleted, deleted })
    }

    fn observe(&mut self, pod: Pod, now: Now) {
        let here = pod.node.as_deref() == Some(self.node.as_str());
        let standing = pod.standing(&self.order, self.own.as_ref());
        match standing {
            Standing::Evicted if here => {
                self.listing.empty = None;
                self.kept.remove(&pod.uid);
                // The server said that it was gone, and yet it is here: whatever that is, it needs no hurry.
                let is_back = self.gone.remove(&pod.uid) && self.called_gone.contains(&pod.uid);
                let tracked = self.pods.entry(pod.uid.clone()).or_insert_with(|| Tracked::new(pod.clone()));
                tracked.pod = pod;
                if is_back {
                    tracked.next_try = now.monotonic + SLOW_RETRY;
                }
            }
            Standing::Kept(why) if here => {
                self.pods.remove(&pod.uid);
                let (name, uid) = (pod.name.clone(), pod.uid.clone());
                if self.kept.insert(uid.clone(), (pod, why)).is_none_or(|(_, known)| known != why) {
                    self.reports.push(Report::Kept { pod: name, uid, why });
                }
            }
            _ => {
                self.kept.remove(&pod.uid);
                self.remove(&pod.uid);
            }
        }
    }

    fn remove(&mut self, uid: &PodUid) {
        if self.pods.remove(uid).is_some() {
            self.gone.insert(uid.clone());
        }
    }

    /// When the drain ends at the latest.
    fn deadline(&self, now: Now) -> Monotonic {
        let ordered = now.when(self.order.deadline);
        self.last_effort.map_or(ordered, |last_effort| ordered.max(last_effort))
    }

    fn time_left(&self, now: Now) -> Duration {
        self.deadline(now).since(now.monotonic)
    }

    /// The longest pause after a refusal: an eighth of the time left, from 1 s to 15 s.
    fn backoff_cap(&self, now: Now) -> Duration {
        (self.time_left(now) / 8).clamp(Duration::from_secs(1), LONGEST_BACKOFF)
    }

    /// The phase that the kubelet would count the pod to: the highest that begins at or below its priority, or else
    /// the lowest (<https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/#pod-priority-graceful-node-shutdown>).
    fn phase_of(&self, pod: &Pod) -> usize {
        self.order.profile.phases.iter().rposition(|phase| phase.priority <= pod.priority).unwrap_or(0)
    }

    fn phases_with_pods(&self) -> BTreeSet<usize> {
        self.pods.values().map(|tracked| self.phase_of(&tracked.pod)).collect()
    }

    fn time_kept_for(&self, phase: usize) -> Duration {
        let grace = |phase: &Phase| phase.grace.unwrap_or(USUAL_GRACE);
        self.order.profile.phases.get(phase).map_or(Duration::ZERO, grace)
    }

    /// When each phase that has pods may begin: the first at once, a later one when the earlier are empty, or at the
    /// latest when only the time kept for it and those after it is left.
    fn phases_open_at(&self, now: Now) -> BTreeMap<usize, Monotonic> {
        let deadline = self.deadline(now);
        let occupied = self.phases_with_pods();
        let mut kept = Duration::ZERO;
        let mut open_at: BTreeMap<usize, Monotonic> = BTreeMap::new();
        for phase in occupied.iter().rev() {
            kept += self.time_kept_for(*phase);
            open_at.insert(*phase, if self.phases_together { now.monotonic } else { deadline.less(kept) });
        }
        if let Some(mut first) = open_at.first_entry() {
            first.insert(now.monotonic);
        }
        open_at
    }

    /// Phases one after the other need time; with less than twice what the later ones keep, all run together.
    fn choose_phases(&mut self, now: Now) {
        let kept: Duration = self.phases_with_pods().iter().skip(1).map(|phase| self.time_kept_for(*phase)).sum();
        self.phases_together = self.time_left(now) < kept * 2;
    }
}

/// Whole seconds, rounded down, at least one.
fn whole_seconds(duration: Duration) -> Duration {
    Duration::from_secs(duration.as_secs()).max(LEAST_GRACE)
}

fn doubled(first: Duration, times: u32) -> Duration {
    first.saturating_mul(2_u32.saturating_pow(times.min(16)))
}

/// A factor from 0.8 to 1.2 that differs from pod to pod and from try to try, and is the same in every run.
fn spread(uid: &PodUid, attempt: u32) -> f64 {
    let drawn = fingerprint(&format!("{}/{attempt}", uid.as_str())) % 1000;
    #[allow(clippy::cast_precision_loss, reason = "a number below 1000 is exact")]
    let part = drawn as f64 / 1000.0;
    0.8 + 0.4 * part
}

#[cfg(test)]
mod tests;
