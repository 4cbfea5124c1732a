//! Whatever lists, watches, answers, orders, clocks and restarts do, what must always hold does.

use proptest::prelude::*;

use super::*;
use crate::drain::pod::Standing;

/// What the server says to a request.
#[derive(Clone, Copy, Debug)]
enum How {
    /// It does what is asked, or says that there is no such pod.
    Does,
    /// It does it, and its answer is lost.
    DoesAndIsLost,
    Budget,
    SeveralBudgets,
    Busy(u64),
    Conflict,
    NamespaceEnds,
    NamespaceGone,
    Admission,
    Forbidden,
    Invalid,
}

#[derive(Clone, Debug)]
enum Turn {
    Pass(u64),
    News(usize),
    LoseWatch,
    Answer(usize, How),
    /// Everything that is under way is answered so.
    AnswerAll(How),
    NewPod(u8),
    Deleted(usize, u64),
    CreatedAnew(usize, bool),
    Order(u64, bool, bool),
    SetClock(i64),
    Restart,
}

fn how() -> impl Strategy<Value = How> {
    prop_oneof![
        6 => Just(How::Does),
        1 => Just(How::DoesAndIsLost),
        3 => Just(How::Budget),
        1 => Just(How::SeveralBudgets),
        2 => (0_u64..30).prop_map(How::Busy),
        2 => Just(How::Conflict),
        1 => Just(How::NamespaceEnds),
        1 => Just(How::NamespaceGone),
        1 => Just(How::Admission),
        1 => Just(How::Forbidden),
        1 => Just(How::Invalid),
    ]
}

fn turn() -> impl Strategy<Value = Turn> {
    prop_oneof![
        6 => prop_oneof![1_u64..300, 300_u64..20_000].prop_map(Turn::Pass),
        4 => (1_usize..6).prop_map(Turn::News),
        1 => Just(Turn::LoseWatch),
        6 => (0_usize..20, how()).prop_map(|(which, how)| Turn::Answer(which, how)),
        4 => how().prop_map(Turn::AnswerAll),
        2 => (0_u8..9).prop_map(Turn::NewPod),
        1 => (0_usize..20, 1_u64..120).prop_map(|(which, grace)| Turn::Deleted(which, grace)),
        1 => (0_usize..20, any::<bool>()).prop_map(|(which, here)| Turn::CreatedAnew(which, here)),
        1 => (1_u64..300, any::<bool>(), any::<bool>()).prop_map(|(left, deletes, leaves)| Turn::Order(left, deletes, leaves)),
        1 => prop_oneof![Just(-100_i64), Just(-5), Just(5), Just(100)].prop_map(Turn::SetClock),
        1 => Just(Turn::Restart),
    ]
}

enum News {
    Is(Box<Pod>),
    Gone(PodUid),
}

/// A server, a drain, and what the drain has been shown in this life.
struct World {
    now: Now,
    order: Order,
    drain: Drain,
    pods: BTreeMap<PodUid, Pod>,
    created: u32,
    watching: bool,
    news: VecDeque<News>,
    under_way: Vec<(Request, Monotonic)>,
    shown: BTreeMap<PodUid, Pod>,
    last_list: Option<Monotonic>,
    appeared: BTreeMap<PodUid, Monotonic>,
    namespace_ends: BTreeSet<PodUid>,
    kept_between: BTreeSet<PodUid>,
    asked: BTreeMap<PodUid, Vec<(Monotonic, bool)>>,
    lists: Vec<Monotonic>,
    last_effort: Option<Monotonic>,
    outcome: Option<Outcome>,
}

fn own_name() -> PodName {
    PodName { namespace: "remediator".into(), name: "agent".into() }
}

impl World {
    fn new(notice: u64, deletes: bool, pods: u8) -> Self {
        let order = order(notice, if deletes { AtDeadline::Delete } else { AtDeadline::Leave });
        let mut world = Self {
            now: start(),
            drain: Drain::new(NODE, Some(own_name()), order.clone(), start()),
            order,
            pods: BTreeMap::new(),
            created: 0,
            watching: false,
            news: VecDeque::new(),
            under_way: Vec::new(),
            shown: BTreeMap::new(),
            last_list: None,
            appeared: BTreeMap::new(),
            namespace_ends: BTreeSet::new(),
            kept_between: BTreeSet::new(),
            asked: BTreeMap::new(),
            lists: Vec::new(),
            last_effort: None,
            outcome: None,
        };
        for kind in 0..pods {
            world.create(kind % 9);
        }
        world
    }

    fn create(&mut self, kind: u8) {
        self.created += 1;
        let mut new = pod(&format!("p{:03}", self.created));
        new.created_at = Some(self.now.wall);
        new.grace = secs(u64::from(self.created * 37 % 100));
        match kind {
            0 => new.controller = Controller::DaemonSet,
            1 => new.mirror = true,
            2 => new.name = own_name(),
            3 => new.finished = true,
            4 => (new.controller, new.empty_dir) = (Controller::None, true),
            5 => new.tolerates_cordon = true,
            6 => new.priority = 2_000_000_000,
            7 => new.skip = true,
            _ => new.controller_uid = Some("web".into()),
        }
        self.put(new);
    }

    fn put(&mut self, pod: Pod) {
        self.appeared.entry(pod.uid.clone()).or_insert(self.now.monotonic);
        if pod.node.as_deref() == Some(NODE) {
            self.news.push_back(News::Is(Box::new(pod.clone())));
        }
        self.pods.insert(pod.uid.clone(), pod);
    }

    fn nth(&self, which: usize) -> Option<Pod> {
        if self.pods.is_empty() { None } else { self.pods.values().nth(which % self.pods.len()).cloned() }
    }

    fn delete(&mut self, uid: &PodUid, grace: u64) {
        let Some(pod) = self.pods.get(uid).cloned() else { return };
        let shorter = pod.deletion.is_none_or(|deletion| secs(grace) < deletion.grace);
        if shorter {
            self.put(terminating(pod, self.now, grace));
        }
    }

    /// Pods whose time is over are gone.
    fn end_pods(&mut self) {
        let over = |pod: &Pod| pod.deletion.is_some_and(|deletion| deletion.ends_at <= self.now.wall);
        let ended: Vec<PodUid> = self.pods.iter().filter(|(_, pod)| over(pod)).map(|(uid, _)| uid.clone()).collect();
        for uid in ended {
            self.pods.remove(&uid);
            self.news.push_back(News::Gone(uid));
        }
    }

    fn tell(&mut self, most: usize) {
        if !self.watching {
            return self.news.clear();
        }
        for _ in 0..most {
            match self.news.pop_front() {
                Some(News::Is(pod)) => {
                    self.shown.insert(pod.uid.clone(), (*pod).clone());
                    self.drain.observed(*pod, self.now);
                }
                Some(News::Gone(uid)) => {
                    self.shown.remove(&uid);
                    self.drain.vanished(&uid, self.now);
                }
                None => self.drain.heard(self.now),
            }
        }
    }

    fn answer(&mut self, request: &Request, how: How) {
        let uid = match request {
            Request::List => return self.answer_list(how),
            Request::Look(target) => {
                return match how {
                    How::Busy(_) | How::Forbidden | How::DoesAndIsLost => self.drain.look_failed(&target.uid, self.now),
                    _ => {
                        // By its name, as the API does it.
                        let found = self.pods.values().find(|pod| pod.name == target.name).cloned();
                        match &found {
                            Some(pod) if pod.uid == target.uid => drop(self.shown.insert(pod.uid.clone(), pod.clone())),
                            _ => drop(self.shown.remove(&target.uid)),
                        }
                        self.drain.looked(&target.uid, found, self.now);
                    }
                };
            }
            Request::Evict(target) | Request::Delete(target) => target.uid.clone(),
        };
        let exists = self.pods.contains_key(&uid);
        let answer = match how {
            How::Does | How::DoesAndIsLost if exists => {
                let (Request::Evict(target) | Request::Delete(target)) = request else { return };
                self.delete(&uid, target.grace.as_secs());
                if matches!(how, How::Does) { Answer::Accepted } else { Answer::Busy(None) }
            }
            How::Does | How::DoesAndIsLost => Answer::Gone,
            How::Budget => budget(),
            How::SeveralBudgets => Answer::SeveralBudgets,
            How::Busy(0) => Answer::Busy(None),
            How::Busy(seconds) => Answer::Busy(Some(secs(seconds))),
            How::Conflict => Answer::Conflict,
            How::NamespaceEnds => Answer::NamespaceTerminating,
            How::NamespaceGone => Answer::NamespaceGone,
            How::Admission => Answer::Admission("no".into()),
            How::Forbidden => Answer::Forbidden("no".into()),
            How::Invalid => Answer::Invalid("no".into()),
        };
        match answer {
            Answer::NamespaceTerminating | Answer::NamespaceGone => drop(self.namespace_ends.insert(uid.clone())),
            Answer::Gone => drop(self.shown.remove(&uid)),
            _ => {}
        }
        self.drain.answered(&uid, &answer, self.now);
    }

    fn answer_list(&mut self, how: How) {
        if !matches!(how, How::Does | How::Budget | How::Conflict) {
            return self.drain.list_failed(self.now);
        }
        let here: Vec<Pod> = self.pods.values().filter(|pod| pod.node.as_deref() == Some(NODE)).cloned().collect();
        self.shown = here.iter().map(|pod| (pod.uid.clone(), pod.clone())).collect();
        self.drain.listed(here, self.now);
        self.last_list = Some(self.now.monotonic);
        self.news.clear();
        self.watching = true;
    }

    fn deadline(&self) -> Monotonic {
        let ordered = self.now.when(self.order.deadline);
        self.last_effort.map_or(ordered, |last_effort| ordered.max(last_effort))
    }

    /// From when pods may be deleted past their budgets.
    fn deletions_from(&self) -> Monotonic {
        let deadline = self.deadline();
        let late = self.last_effort.is_some_and(|last_effort| last_effort >= deadline);
        deadline.less(if late { LAST_EFFORT / 2 } else { self.order.margin() })
    }

    /// Lets the drain step, and checks all that it says; the instant at which it wants to step again.
    fn step(&mut self) -> Result<Monotonic, TestCaseError> {
        self.end_pods();
        let late: Vec<(Request, Monotonic)> = self
            .under_way
            .extract_if(.., |(request, sent)| {
                let timeout = match request {
                    Request::List => REQUEST_TIMEOUT,
                    Request::Evict(target) | Request::Delete(target) | Request::Look(target) => target.timeout,
                };
                self.now.monotonic.since(*sent) >= timeout
            })
            .collect();
        for (request, _) in late {
            self.answer(&request, How::Busy(0));
        }
        let step = self.drain.step(self.now);
        for request in &step.requests {
            self.check(request)?;
            self.under_way.push((request.clone(), self.now.monotonic));
        }
        if self.now.monotonic >= self.deadline() {
            prop_assert!(step.outcome.is_some(), "it goes on after its deadline");
        }
        let again = self.drain.step(self.now);
        prop_assert_eq!(again.requests, vec![], "nothing has happened since");
        prop_assert_eq!(again.outcome, None, "it is over once");
        if let Some(outcome) = step.outcome {
            prop_assert_eq!(step.requests, vec![]);
            self.check_outcome(&outcome)?;
            self.outcome = Some(outcome);
        } else {
            prop_assert!(again.wake > self.now.monotonic, "it spins");
        }
        Ok(step.wake)
    }

    fn check(&mut self, request: &Request) -> Result<(), TestCaseError> {
        let now = self.now.monotonic;
        let within_a_minute = |at: &Monotonic| now.since(*at) < ATTEMPT_WINDOW;
        let target = match request {
            Request::List => {
                self.lists.push(now);
                let lists = self.lists.iter().filter(|at| within_a_minute(at)).count();
                prop_assert!(lists <= 120, "{} lists in a minute", lists);
                return Ok(());
            }
            Request::Evict(target) | Request::Delete(target) | Request::Look(target) => target,
        };
        let twice = self.under_way.iter().any(|(request, _)| match request {
            Request::Evict(other) | Request::Delete(other) | Request::Look(other) => other.uid == target.uid,
            Request::List => false,
        });
        // An order that leaves a pod and another that evicts it again make it a new one.
        prop_assert!(!twice || self.kept_between.contains(&target.uid), "two requests for {} at once", target.name);
        // 8: only pods that were seen here, with their UID, and none that must not be touched.
        let Some(pod) = self.shown.get(&target.uid) else {
            return Err(TestCaseError::fail(format!("{} was not seen on the node", target.name)));
        };
        prop_assert_eq!((&pod.name, pod.node.as_deref()), (&target.name, Some(NODE)));
        prop_assert_eq!(pod.standing(&self.order, Some(&own_name())), Standing::Evicted);
        prop_assert!(target.timeout > Duration::ZERO && target.timeout <= REQUEST_TIMEOUT);
        // 9: budgets are passed only near the deadline, where the rule says so.
        let left = self.deadline().since(now).max(secs(1));
        match request {
            Request::Evict(_) => prop_assert_eq!(pod.deletion, None, "it is leaving already"),
            Request::Delete(_) => {
                prop_assert_eq!(self.order.profile.at_deadline, AtDeadline::Delete);
                let is_time = now >= self.deletions_from();
                let may = pod.deletion.is_some() || self.namespace_ends.contains(&target.uid);
                prop_assert!(is_time || may, "{} is deleted before its time", target.name);
            }
            Request::Look(_) | Request::List => {}
        }
        let most = if pod.deletion.is_some() { left } else { pod.grace.max(secs(1)).min(left) };
        prop_assert!(target.grace >= secs(1) && target.grace.subsec_nanos() == 0 && target.grace <= most);
        // 13: requests are bounded.
        let asked = self.asked.entry(target.uid.clone()).or_default();
        asked.push((now, matches!(request, Request::Evict(_))));
        let recent = asked.iter().filter(|(at, _)| within_a_minute(at));
        let (evictions, all) = (recent.clone().filter(|(_, evicts)| *evicts).count(), recent.count());
        prop_assert!(evictions <= MOST_ATTEMPTS, "{} evictions of one pod in a minute", evictions);
        prop_assert!(all <= 3 * MOST_ATTEMPTS, "{} requests for one pod in a minute", all);
        prop_assert!(self.under_way.len() <= MOST_WITH_HANGING + 1);
        Ok(())
    }

    fn check_outcome(&self, outcome: &Outcome) -> Result<(), TestCaseError> {
        let named: BTreeSet<&PodName> = outcome.left.iter().map(|(name, _)| name).collect();
        prop_assert!(outcome.left.iter().all(|(_, why)| !why.is_empty()));
        // 10: every pod that is left is named.
        for pod in self.shown.values().filter(|pod| pod.node.as_deref() == Some(NODE)) {
            match pod.standing(&self.order, Some(&own_name())) {
                Standing::Uncounted => {}
                Standing::Kept(why) => {
                    prop_assert!(named.contains(&pod.name), "{} is kept and not named", pod.name);
                    prop_assert!(!why.is_unfinished_business() || outcome.result == DrainResult::Incomplete);
                }
                Standing::Evicted => {
                    prop_assert!(named.contains(&pod.name), "{} is left and not named", pod.name);
                    prop_assert_eq!(outcome.result, DrainResult::Incomplete);
                }
            }
        }
        if outcome.result == DrainResult::Drained {
            let listed = self.last_list.expect("a drain without a list is no success");
            for pod in self.pods.values().filter(|pod| pod.node.as_deref() == Some(NODE)) {
                let went = pod.standing(&self.order, Some(&own_name())) != Standing::Evicted;
                prop_assert!(went || self.appeared[&pod.uid] >= listed, "{} is still there", pod.name);
            }
        } else if self.now.monotonic < self.deadline() {
            let business = |pod: &Pod| match pod.standing(&self.order, Some(&own_name())) {
                Standing::Kept(why) => why.is_unfinished_business(),
                _ => false,
            };
            prop_assert!(self.shown.values().any(business), "it was given up before its deadline");
        }
        Ok(())
    }

    /// Time goes on to this instant, and the drain steps whenever it wants to.
    fn pass(&mut self, millis: u64) -> Result<(), TestCaseError> {
        let until = self.now.monotonic + Duration::from_millis(millis);
        for _ in 0..5000 {
            let wake = self.step()?;
            if self.outcome.is_some() || self.now.monotonic >= until {
                return Ok(());
            }
            let next = wake.min(until).since(self.now.monotonic).min(secs(1));
            self.now = self.now.advanced(next.max(Duration::from_millis(1)));
        }
        Err(TestCaseError::fail("it spins"))
    }

    fn take(&mut self, turn: &Turn) -> Result<(), TestCaseError> {
        match *turn {
            Turn::Pass(millis) => return self.pass(millis),
            Turn::News(most) => self.tell(most),
            Turn::LoseWatch if self.watching => {
                self.watching = false;
                self.drain.watch_lost(self.now);
            }
            Turn::Answer(which, how) if !self.under_way.is_empty() => {
                let (request, _) = self.under_way.remove(which % self.under_way.len());
                self.answer(&request, how);
            }
            // There is nothing to lose or to answer.
            Turn::LoseWatch | Turn::Answer(..) => {}
            Turn::AnswerAll(how) => {
                for (request, _) in std::mem::take(&mut self.under_way) {
                    self.answer(&request, how);
                }
            }
            Turn::NewPod(kind) => self.create(kind),
            Turn::Deleted(which, grace) => {
                if let Some(pod) = self.nth(which) {
                    self.delete(&pod.uid, grace);
                }
            }
            Turn::CreatedAnew(which, here) => {
                if let Some(old) = self.nth(which) {
                    self.pods.remove(&old.uid);
                    self.news.push_back(News::Gone(old.uid.clone()));
                    self.created += 1;
                    let node = if here { NODE } else { "n2" };
                    let uid = PodUid::new(format!("anew-{}", self.created));
                    let created_at = Some(self.now.wall);
                    self.put(Pod { uid, created_at, node: Some(node.into()), deletion: None, ..old });
                }
            }
            Turn::Order(left, deletes, leaves) => {
                let treatment = if leaves { Treatment::Leave } else { Treatment::Evict };
                self.order.deadline = plus(self.now.wall, secs(left));
                self.order.profile.at_deadline = if deletes { AtDeadline::Delete } else { AtDeadline::Leave };
                (self.order.profile.bare, self.order.profile.empty_dir) = (treatment, treatment);
                self.drain.reorder(self.order.clone(), self.now);
                let left = |pod: &Pod| matches!(pod.standing(&self.order, Some(&own_name())), Standing::Kept(_));
                self.kept_between.extend(self.shown.values().filter(|pod| left(pod)).map(|pod| pod.uid.clone()));
            }
            Turn::SetClock(ahead_by) => self.now.wall += jiff::SignedDuration::from_secs(ahead_by),
            Turn::Restart => {
                self.drain = Drain::new(NODE, Some(own_name()), self.order.clone(), self.now);
                let late = self.order.deadline <= self.now.wall;
                self.last_effort = late.then(|| self.now.monotonic + LAST_EFFORT);
                self.under_way.clear();
                self.shown.clear();
                self.namespace_ends.clear();
                self.asked.clear();
                self.lists.clear();
                self.last_list = None;
                self.watching = false;
            }
        }
        self.step().map(drop)
    }
}

proptest! {
    #[test]
    fn a_drain_keeps_its_limits_names_what_is_left_and_ends_by_its_deadline(
        notice in 1_u64..200,
        deletes: bool,
        pods in 0_u8..25,
        turns in prop::collection::vec(turn(), 1..80),
        // What the server says to everything that is asked when the turns are over.
        last in how(),
    ) {
        let mut world = World::new(notice, deletes, pods);
        for turn in turns {
            world.take(&turn)?;
            if world.outcome.is_some() {
                return Ok(());
            }
        }
        for _ in 0..5_000 {
            world.take(&Turn::AnswerAll(last))?;
            world.tell(100);
            world.pass(250)?;
            if world.outcome.is_some() {
                return Ok(());
            }
        }
        prop_assert!(false, "the drain never ends");
    }
}
