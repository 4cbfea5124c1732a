use super::pod::{Controller, Deletion};
use super::*;
use crate::policy::{Profile, Treatment};
use crate::time::{minus, plus};

mod properties;

const NODE: &str = "n1";

fn start() -> Now {
    Now { wall: "2026-04-11T22:00:00Z".parse().unwrap(), monotonic: Monotonic::after_start(secs(1000)) }
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn order(notice: u64, at_deadline: AtDeadline) -> Order {
    let started_at = start().wall;
    let profile = Profile { at_deadline, ..Profile::default() };
    Order { profile, started_at, deadline: plus(started_at, secs(notice)), uncordoned_at: None }
}

fn drain(notice: u64, at_deadline: AtDeadline) -> Drain {
    Drain::new(NODE, None, order(notice, at_deadline), start())
}

fn pod(name: &str) -> Pod {
    Pod {
        name: PodName { namespace: "prod".into(), name: name.into() },
        uid: PodUid::new(format!("uid-{name}")),
        node: Some(NODE.into()),
        created_at: Some("2026-04-01T00:00:00Z".parse().unwrap()),
        priority: 0,
        grace: secs(30),
        controller: Controller::Other,
        controller_uid: Some(format!("owner-of-{name}")),
        finished: false,
        mirror: false,
        empty_dir: false,
        tolerates_cordon: false,
        skip: false,
        labels: std::collections::BTreeMap::new(),
        annotations: std::collections::BTreeMap::new(),
        deletion: None,
    }
}

fn terminating(pod: Pod, now: Now, grace: u64) -> Pod {
    Pod { deletion: Some(Deletion { ends_at: plus(now.wall, secs(grace)), grace: secs(grace) }), ..pod }
}

fn budget() -> Answer {
    Answer::Budget(Some("db".into()))
}

/// `evict prod/a 30s`, `delete prod/b 2s`, `list`, `look prod/c`.
fn told(step: &Step) -> Vec<String> {
    let target = |verb: &str, target: &Target| format!("{verb} {} {}s", target.name, target.grace.as_secs());
    step.requests
        .iter()
        .map(|request| match request {
            Request::List => "list".into(),
            Request::Evict(pod) => target("evict", pod),
            Request::Delete(pod) => target("delete", pod),
            Request::Look(pod) => format!("look {}", pod.name),
        })
        .collect()
}

/// A drain whose pods have been listed at the start.
fn listed(mut drain: Drain, pods: &[Pod]) -> (Drain, Step) {
    assert_eq!(told(&drain.step(start())), ["list"]);
    drain.listed(pods.to_vec(), start());
    let step = drain.step(start());
    (drain, step)
}

/// Steps whenever the drain wants to, answering by `answer`, until it is over or `until` is reached.
fn play(
    drain: &mut Drain,
    from: Now,
    until: Duration,
    mut answer: impl FnMut(&mut Drain, &Request, Now),
) -> (Now, Option<Outcome>) {
    let mut now = from;
    loop {
        let step = drain.step(now);
        if step.outcome.is_some() || now.monotonic.since(from.monotonic) >= until {
            return (now, step.outcome);
        }
        for request in &step.requests {
            answer(drain, request, now);
        }
        if step.requests.is_empty() {
            now = now.advanced(step.wake.since(now.monotonic).max(Duration::from_millis(1)));
        }
    }
}

// D-04
#[test]
fn pods_that_go_with_the_node_and_our_own_are_not_touched_and_not_counted() {
    let own = PodName { namespace: "remediator".into(), name: "agent".into() };
    let mut agent = pod("agent");
    agent.name = own.clone();
    let namesake = pod("agent");
    let pods = [
        Pod { controller: Controller::DaemonSet, ..pod("daemon") },
        Pod { mirror: true, ..pod("static") },
        Pod { finished: true, ..pod("job") },
        Pod { uid: PodUid::new("own"), ..agent },
        namesake,
        Pod { controller: Controller::None, ..pod("bare") },
        Pod { empty_dir: true, ..pod("scratch") },
    ];
    let (mut drain, step) = listed(Drain::new(NODE, Some(own), order(900, AtDeadline::Leave), start()), &pods);
    let mut asked = told(&step);
    asked.sort();
    assert_eq!(asked, ["evict prod/agent 30s", "evict prod/bare 30s", "evict prod/scratch 30s"]);
    for uid in ["uid-agent", "uid-bare", "uid-scratch"] {
        drain.vanished(&PodUid::new(uid), start());
    }
    let untouched = pods[..4].to_vec();
    let (_, outcome) = play(&mut drain, start(), secs(60), |drain, request, now| {
        assert_eq!(*request, Request::List);
        drain.listed(untouched.clone(), now);
    });
    assert_eq!(outcome, Some(Outcome { result: DrainResult::Drained, left: vec![], evicted: 3, deleted: 0 }));
}

// D-04, variant
#[test]
fn pods_that_the_policy_leaves_are_named_and_make_the_drain_incomplete() {
    let mut order = order(900, AtDeadline::Leave);
    order.profile.bare = Treatment::Leave;
    order.profile.empty_dir = Treatment::Leave;
    let bare = Pod { controller: Controller::None, ..pod("bare") };
    let scratch = Pod { empty_dir: true, ..pod("scratch") };
    let (mut drain, step) = listed(Drain::new(NODE, None, order, start()), &[bare.clone(), scratch.clone()]);
    assert_eq!(told(&step), Vec::<String>::new());
    assert_eq!(step.reports.len(), 2);
    let (now, outcome) = play(&mut drain, start(), secs(60), |drain, _, now| {
        drain.listed(vec![bare.clone(), scratch.clone()], now);
    });
    let outcome = outcome.unwrap();
    assert_eq!(outcome.result, DrainResult::Incomplete);
    let left: Vec<String> = outcome.left.iter().map(|(name, _)| name.to_string()).collect();
    assert_eq!(left, ["prod/bare", "prod/scratch"]);
    assert!(now.monotonic.since(start().monotonic) < secs(10), "nothing is waited for that will not happen");
}

#[test]
fn a_pod_that_asks_to_be_skipped_is_named_but_holds_nothing_up() {
    let skipped = Pod { skip: true, ..pod("database") };
    let (mut drain, step) = listed(drain(900, AtDeadline::Delete), std::slice::from_ref(&skipped));
    assert_eq!(step.reports, [Report::Kept { pod: skipped.name.clone(), uid: skipped.uid.clone(), why: Kept::Skip }]);
    let (_, outcome) = play(&mut drain, start(), secs(60), |drain, _, now| drain.listed(vec![skipped.clone()], now));
    let outcome = outcome.unwrap();
    assert_eq!((outcome.result, outcome.left.len()), (DrainResult::Drained, 1));
}

#[test]
fn a_pod_that_tolerates_the_cordon_is_evicted_once_and_its_replacement_only_named() {
    let tolerant = Pod { tolerates_cordon: true, ..pod("logger") };
    let (mut drain, step) = listed(drain(900, AtDeadline::Leave), std::slice::from_ref(&tolerant));
    assert_eq!(told(&step), ["evict prod/logger 30s"]);
    drain.answered(&tolerant.uid, &Answer::Accepted, start());
    drain.vanished(&tolerant.uid, start());
    let replacement = Pod { uid: PodUid::new("second"), created_at: Some(plus(start().wall, secs(1))), ..tolerant };
    drain.observed(replacement.clone(), start());
    let (_, outcome) = play(&mut drain, start(), secs(60), |drain, request, now| {
        assert_eq!(*request, Request::List);
        drain.listed(vec![replacement.clone()], now);
    });
    assert_eq!(outcome.unwrap().result, DrainResult::Drained);
}

// D-05
#[test]
fn grace_is_the_least_of_the_pods_own_and_the_whole_seconds_left_and_never_zero() {
    for (notice_millis, own, sent) in
        [(3_000, 60, 3), (3_900, 60, 3), (500, 60, 1), (45_000, 60, 45), (900_000, 60, 60), (900_000, 0, 1)]
    {
        let mut order = order(0, AtDeadline::Leave);
        order.deadline = plus(order.started_at, Duration::from_millis(notice_millis));
        let slow = Pod { grace: secs(own), ..pod("slow") };
        let (_, step) = listed(Drain::new(NODE, None, order, start()), &[slow]);
        assert_eq!(told(&step), [format!("evict prod/slow {sent}s")], "{notice_millis} ms left, {own} s asked for");
    }
}

#[test]
fn a_phase_may_cap_the_grace_of_its_pods() {
    let critical = Pod { priority: 2_000_001_000, grace: secs(300), ..pod("dns") };
    let (_, step) = listed(drain(900, AtDeadline::Leave), &[critical]);
    assert_eq!(told(&step), ["evict prod/dns 30s"]);
}

#[test]
fn system_critical_pods_go_when_all_others_are_gone() {
    let critical = Pod { priority: 2_000_001_000, ..pod("dns") };
    let web = pod("web");
    let (mut drain, step) = listed(drain(900, AtDeadline::Leave), &[web.clone(), critical]);
    assert_eq!(told(&step), ["evict prod/web 30s"]);
    drain.answered(&web.uid, &Answer::Accepted, start());
    drain.observed(terminating(web.clone(), start(), 30), start());
    assert_eq!(told(&drain.step(start())), Vec::<String>::new());
    drain.vanished(&web.uid, start());
    assert_eq!(told(&drain.step(start())), ["evict prod/dns 30s"], "an empty phase takes no time");
}

#[test]
fn system_critical_pods_go_while_the_time_kept_for_them_is_left_even_if_another_is_blocked() {
    let critical = Pod { priority: 2_000_001_000, ..pod("dns") };
    let web = pod("web");
    let (mut drain, _) = listed(drain(120, AtDeadline::Leave), &[web.clone(), critical.clone()]);
    drain.answered(&web.uid, &budget(), start());
    let before = start().advanced(secs(89));
    drain.heard(before);
    assert!(!told(&drain.step(before)).iter().any(|request| request.contains("dns")));
    let then = start().advanced(secs(90));
    drain.heard(then);
    assert!(told(&drain.step(then)).contains(&"evict prod/dns 30s".to_owned()));
}

#[test]
fn with_little_time_all_phases_run_together() {
    let critical = Pod { priority: 2_000_001_000, ..pod("dns") };
    let (_, step) = listed(drain(59, AtDeadline::Leave), &[pod("web"), critical]);
    assert_eq!(step.requests.len(), 2);
}

// D-01
#[test]
fn a_pod_that_its_budget_never_lets_go_is_asked_at_most_20_times_a_minute_and_named() {
    for at_deadline in [AtDeadline::Leave, AtDeadline::Delete] {
        let db = pod("db-1");
        let (mut drain, first) = listed(drain(60, at_deadline), std::slice::from_ref(&db));
        assert_eq!(told(&first), ["evict prod/db-1 30s"]);
        drain.answered(&db.uid, &budget(), start());
        assert_eq!(drain.blocked(), 1);
        let (mut evictions, mut deletions, mut reports) = (vec![start()], vec![], 0);
        let mut now = start();
        let mut seen = db.clone();
        let outcome = loop {
            let step = drain.step(now);
            reports += step.reports.len();
            if let Some(outcome) = step.outcome {
                break outcome;
            }
            if step.requests.is_empty() {
                now = now.advanced(step.wake.since(now.monotonic).max(Duration::from_millis(1)));
            }
            for request in step.requests {
                match request {
                    Request::Evict(_) => {
                        evictions.push(now);
                        drain.answered(&db.uid, &budget(), now);
                    }
                    Request::Delete(target) => {
                        assert_eq!(target.uid, db.uid);
                        assert!(target.grace >= secs(1));
                        deletions.push(now);
                        drain.answered(&db.uid, &Answer::Accepted, now);
                        seen = terminating(db.clone(), now, target.grace.as_secs());
                        drain.observed(seen.clone(), now);
                    }
                    Request::List => drain.listed(vec![seen.clone()], now),
                    Request::Look(_) => panic!("nobody said that the pod was another"),
                }
            }
        };
        assert!((8..=20).contains(&evictions.len()), "{} evictions", evictions.len());
        assert_eq!(outcome.result, DrainResult::Incomplete);
        assert_eq!(outcome.left[0].0, db.name);
        match at_deadline {
            AtDeadline::Leave => {
                assert_eq!((deletions.len(), reports), (0, 1));
                assert!(outcome.left[0].1.contains("PodDisruptionBudget db"), "{}", outcome.left[0].1);
            }
            AtDeadline::Delete => {
                assert_eq!((deletions.len(), reports), (1, 2));
                assert_eq!(deletions[0].monotonic.since(start().monotonic), secs(55), "the margin is 5 s");
                assert!(evictions.iter().all(|at| at.monotonic < deletions[0].monotonic));
            }
        }
    }
}

#[test]
fn free_pods_are_asked_at_once_whatever_happens_to_a_blocked_one() {
    let pods: Vec<Pod> = (0..10).map(|index| pod(&format!("p{index}"))).collect();
    let (mut drain, step) = listed(drain(60, AtDeadline::Leave), &pods);
    assert_eq!(step.requests.len(), 10);
    drain.answered(&pods[0].uid, &budget(), start());
    for pod in &pods[1..] {
        drain.answered(&pod.uid, &Answer::Accepted, start());
        drain.vanished(&pod.uid, start());
    }
    assert_eq!(drain.remaining(), 1);
}

#[test]
fn no_more_requests_are_under_way_than_the_limit() {
    let pods: Vec<Pod> = (0..100).map(|index| pod(&format!("p{index}"))).collect();
    let (mut drain, step) = listed(drain(900, AtDeadline::Leave), &pods);
    assert_eq!(step.requests.len(), MOST_IN_FLIGHT);
    assert!(drain.step(start()).requests.is_empty());
    drain.answered(&pods[0].uid, &Answer::Accepted, start());
    assert_eq!(drain.step(start()).requests.len(), 1);
}

#[test]
fn pods_of_one_controller_are_asked_a_few_at_a_time_more_while_that_goes_well_and_one_when_a_budget_refuses() {
    let pods: Vec<Pod> =
        (0..40).map(|index| Pod { controller_uid: Some("web".into()), ..pod(&format!("p{index:02}")) }).collect();
    let (mut drain, first) = listed(drain(900, AtDeadline::Leave), &pods);
    assert_eq!(first.requests.len(), FIRST_AT_ONCE);
    let (mut now, mut under_way) = (start(), first.requests);
    for _ in 0..8 {
        now = now.advanced(Duration::from_millis(10));
        let Request::Evict(target) = under_way.remove(0) else { panic!("an eviction") };
        drain.answered(&target.uid, &Answer::Accepted, now);
        drain.vanished(&target.uid, now);
        under_way.extend(drain.step(now).requests);
    }
    assert_eq!(under_way.len(), FIRST_AT_ONCE + 8);
    for request in under_way {
        let Request::Evict(target) = request else { panic!("an eviction") };
        drain.answered(&target.uid, &budget(), now);
    }
    assert_eq!(drain.step(now).requests.len(), 1, "one tells for all");
}

#[test]
fn a_request_without_an_answer_does_not_hold_up_the_other_pods_of_its_controller_for_long() {
    let pods: Vec<Pod> =
        (0..3).map(|index| Pod { controller_uid: Some("web".into()), ..pod(&format!("p{index}")) }).collect();
    let (mut drain, _) = listed(drain(900, AtDeadline::Leave), &pods);
    for pod in &pods {
        drain.answered(&pod.uid, &budget(), start());
    }
    let then = start().advanced(secs(2));
    let one = drain.step(then);
    assert_eq!(told(&one).len(), 1);
    assert_eq!(one.wake.since(then.monotonic), secs(1));
    assert_eq!(told(&drain.step(then.advanced(secs(1)))).len(), 1, "the first is still not answered");
}

#[test]
fn the_pods_that_need_longest_to_stop_are_asked_first() {
    let slow = Pod { grace: secs(120), ..pod("z-slow") };
    let (_, step) = listed(drain(900, AtDeadline::Leave), &[pod("a"), slow, pod("b")]);
    assert_eq!(told(&step), ["evict prod/z-slow 120s", "evict prod/a 30s", "evict prod/b 30s"]);
}

// D-02
#[test]
fn after_a_conflict_the_pod_is_looked_at_before_anything_else() {
    let db = pod("db-0");
    let elsewhere = Pod { uid: PodUid::new("u2"), node: Some("n2".into()), ..db.clone() };
    let moved = Pod { node: Some("n2".into()), ..db.clone() };
    for (found, over) in [(None, true), (Some(elsewhere), true), (Some(moved), true), (Some(db.clone()), false)] {
        let (mut drain, _) = listed(drain(900, AtDeadline::Leave), std::slice::from_ref(&db));
        drain.answered(&db.uid, &Answer::Conflict, start());
        assert_eq!(told(&drain.step(start())), ["look prod/db-0"]);
        drain.looked(&db.uid, found, start());
        assert_eq!(drain.remaining() == 0, over);
        if !over {
            assert_eq!(told(&drain.step(start().advanced(secs(1)))), ["evict prod/db-0 30s"]);
        }
    }
}

#[test]
fn a_namesake_with_another_uid_is_never_asked_in_place_of_the_pod_that_was_listed() {
    let first = pod("db-0");
    let (mut drain, _) = listed(drain(900, AtDeadline::Leave), std::slice::from_ref(&first));
    drain.answered(&first.uid, &budget(), start());
    drain.observed(Pod { uid: PodUid::new("u2"), node: Some("n2".into()), ..first.clone() }, start());
    drain.vanished(&first.uid, start());
    let (_, outcome) = play(&mut drain, start(), secs(60), |drain, request, now| {
        assert_eq!(*request, Request::List, "nothing is asked of the pod on the other node");
        drain.listed(vec![], now);
    });
    assert_eq!(outcome.unwrap().result, DrainResult::Drained);
}

// D-03
#[test]
fn a_missing_right_is_loud_only_when_it_lasts_and_does_not_stop_the_others() {
    let (q, r) = (pod("q"), pod("r"));
    let forbidden = Answer::Forbidden("cannot create resource \"pods/eviction\"".into());
    let (mut drain, step) = listed(drain(300, AtDeadline::Leave), &[q.clone(), r.clone()]);
    assert_eq!(step.requests.len(), 2);
    drain.answered(&q.uid, &forbidden, start());
    drain.answered(&r.uid, &Answer::Accepted, start());
    drain.vanished(&r.uid, start());
    assert_eq!(drain.step(start()).reports.len(), 1, "only the eviction of r");
    let (mut asked, mut blocked) = (vec![start().monotonic], 0);
    let mut now = start();
    while now.monotonic.since(start().monotonic) < secs(60) {
        let step = drain.step(now);
        blocked += step.reports.iter().filter(|report| matches!(report, Report::Blocked { .. })).count();
        for request in step.requests {
            if let Request::Evict(_) = request {
                asked.push(now.monotonic);
                drain.answered(&q.uid, &forbidden, now);
            } else {
                drain.listed(vec![q.clone()], now);
            }
        }
        now = now.advanced(Duration::from_millis(100));
    }
    assert_eq!(blocked, 1, "one loud error");
    assert!(asked.len() >= 5 && asked[1..].windows(2).all(|pair| pair[1].since(pair[0]) >= secs(10)));
}

// D-03
#[test]
fn a_pod_of_a_vanishing_namespace_is_waited_for_or_deleted_where_the_policy_deletes() {
    for (at_deadline, next) in [(AtDeadline::Leave, "evict prod/p 30s"), (AtDeadline::Delete, "delete prod/p 30s")] {
        let p = pod("p");
        let (mut drain, _) = listed(drain(300, at_deadline), std::slice::from_ref(&p));
        drain.answered(&p.uid, &Answer::NamespaceTerminating, start());
        let step = drain.step(start().advanced(secs(4)));
        assert_eq!((told(&step).len(), step.reports.len()), (0, 0), "no error and no hurry");
        assert_eq!(told(&drain.step(start().advanced(secs(5)))), [next]);
    }
}

#[test]
fn a_busy_server_is_asked_again_soon_and_a_longer_wait_it_asks_for_is_kept() {
    let p = pod("p");
    let (mut drain, _) = listed(drain(300, AtDeadline::Leave), std::slice::from_ref(&p));
    drain.answered(&p.uid, &Answer::Busy(None), start());
    assert_eq!(told(&drain.step(start().advanced(Duration::from_millis(300)))), ["evict prod/p 30s"]);
    let then = start().advanced(secs(1));
    drain.answered(&p.uid, &Answer::Busy(Some(secs(7))), then);
    assert!(told(&drain.step(then.advanced(Duration::from_millis(6900)))).is_empty());
    assert_eq!(told(&drain.step(then.advanced(secs(7)))), ["evict prod/p 30s"]);
}

#[test]
fn a_pod_already_stopping_too_slowly_is_cut_short_once_and_only_where_the_rule_deletes() {
    let now = start();
    // One that began just now may be given exactly what is left; one that began long ago would be killed at once.
    let fresh = terminating(pod("fresh"), now, 600);
    let old = Pod { deletion: Some(Deletion { ends_at: plus(now.wall, secs(500)), grace: secs(600) }), ..pod("old") };
    let quick = terminating(pod("quick"), now, 10);
    let pods = [fresh.clone(), old.clone(), quick];
    let (mut drain, step) = listed(drain(30, AtDeadline::Delete), &pods);
    assert_eq!(told(&step), ["delete prod/fresh 30s"]);
    drain.answered(&fresh.uid, &Answer::Accepted, now);
    drain.observed(terminating(fresh, now, 30), now);
    let near = now.advanced(secs(25));
    drain.heard(near);
    assert_eq!(told(&drain.step(near)), ["delete prod/old 5s"]);
    let (_, step) = listed(self::drain(30, AtDeadline::Leave), &pods);
    assert_eq!(told(&step), Vec::<String>::new());
}

#[test]
fn a_tighter_deadline_cuts_short_what_was_given_more_time() {
    let p = Pod { grace: secs(60), ..pod("p") };
    let (mut drain, _) = listed(drain(900, AtDeadline::Leave), std::slice::from_ref(&p));
    drain.answered(&p.uid, &Answer::Accepted, start());
    drain.observed(terminating(p.clone(), start(), 60), start());
    let then = start().advanced(secs(2));
    drain.heard(then);
    drain.reorder(order(32, AtDeadline::Delete), then);
    assert_eq!(told(&drain.step(then)), ["delete prod/p 30s"]);
}

#[test]
fn the_drain_is_done_when_the_node_has_looked_empty_for_five_seconds() {
    let p = pod("p");
    let (mut drain, _) = listed(drain(900, AtDeadline::Leave), std::slice::from_ref(&p));
    drain.answered(&p.uid, &Answer::Accepted, start());
    drain.vanished(&p.uid, start());
    assert_eq!(told(&drain.step(start())), ["list"], "the watch alone is not believed");
    drain.listed(vec![], start());
    let early = start().advanced(Duration::from_millis(4900));
    assert_eq!(told(&drain.step(early)), Vec::<String>::new());
    let late = pod("late");
    drain.observed(late.clone(), early);
    assert_eq!(told(&drain.step(early)), ["evict prod/late 30s"], "a pod bound just before the cordon goes too");
    drain.answered(&late.uid, &Answer::Gone, early);
    let (now, outcome) = play(&mut drain, early, secs(60), |drain, _, now| drain.listed(vec![], now));
    assert_eq!(outcome.unwrap().result, DrainResult::Drained);
    assert_eq!(now.monotonic.since(early.monotonic), EMPTY_FOR);
}

#[test]
fn lists_that_fail_are_never_taken_for_an_empty_node() {
    let mut drain = drain(30, AtDeadline::Leave);
    let (now, outcome) = play(&mut drain, start(), secs(60), |drain, _, now| drain.list_failed(now));
    assert_eq!(outcome.unwrap().result, DrainResult::Incomplete);
    assert_eq!(now.monotonic.since(start().monotonic), secs(30), "it ends at its deadline");
}

#[test]
fn a_mute_watch_is_not_trusted_for_longer_than_ten_seconds_or_two_near_the_deadline() {
    for (notice, silence) in [(900, 10), (50, 2)] {
        let p = pod("p");
        let (mut drain, _) = listed(drain(notice, AtDeadline::Leave), std::slice::from_ref(&p));
        drain.answered(&p.uid, &Answer::Accepted, start());
        drain.observed(terminating(p, start(), 30), start());
        let step = drain.step(start());
        assert_eq!(step.wake.since(start().monotonic), secs(silence));
        assert_eq!(told(&drain.step(start().advanced(secs(silence)))), ["list"]);
    }
}

/// A server that takes so long for every eviction, played to the end; when each pod's eviction was sent first, and when
/// each was accepted or deleted.
fn on_a_slow_server(
    drain: &mut Drain,
    first: Step,
    takes: Duration,
) -> (BTreeMap<PodUid, Monotonic>, BTreeMap<PodUid, Monotonic>) {
    let (mut sent, mut done) = (BTreeMap::new(), BTreeMap::new());
    let mut under_way: Vec<(PodUid, Monotonic, Answer)> = Vec::new();
    let (mut now, mut step) = (start(), first);
    while step.outcome.is_none() {
        for request in &step.requests {
            match request {
                Request::Evict(target) => {
                    sent.entry(target.uid.clone()).or_insert(now.monotonic);
                    let in_time = takes <= target.timeout;
                    let answer = if in_time { Answer::Accepted } else { Answer::Busy(None) };
                    let after = takes.min(target.timeout);
                    under_way.push((target.uid.clone(), now.monotonic + after, answer));
                }
                Request::Delete(target) => under_way.push((target.uid.clone(), now.monotonic, Answer::Accepted)),
                Request::List => drain.list_failed(now),
                Request::Look(_) => panic!("nobody spoke of a conflict"),
            }
        }
        now = now.advanced(Duration::from_millis(50));
        let (over, rest): (Vec<_>, Vec<_>) = under_way.into_iter().partition(|(_, at, _)| *at <= now.monotonic);
        under_way = rest;
        for (uid, _, answer) in over {
            drain.answered(&uid, &answer, now);
            if answer == Answer::Accepted {
                done.entry(uid.clone()).or_insert(now.monotonic);
                drain.vanished(&uid, now);
            }
        }
        step = drain.step(now);
    }
    (sent, done)
}

#[test]
fn a_server_that_takes_its_time_still_gets_every_pod_its_signal_before_the_end() {
    for takes in [5, 20] {
        let pods: Vec<Pod> = (0..20).map(|index| pod(&format!("p{index:02}"))).collect();
        let (mut drain, first) = listed(drain(30, AtDeadline::Delete), &pods);
        let (sent, done) = on_a_slow_server(&mut drain, first, secs(takes));
        assert_eq!(sent.len(), 20, "evictions that hang do not hold up the others");
        assert!(sent.values().all(|at| at.since(start().monotonic) <= secs(2)));
        assert_eq!(done.len(), 20, "an eviction of {takes} s: all are evicted or deleted");
    }
}

#[test]
fn a_slow_server_does_not_make_the_pods_of_one_controller_late() {
    for millis in [450, 1000] {
        let pods: Vec<Pod> =
            (0..40).map(|index| Pod { controller_uid: Some("web".into()), ..pod(&format!("p{index:02}")) }).collect();
        let (mut drain, first) = listed(drain(30, AtDeadline::Delete), &pods);
        let (sent, _) = on_a_slow_server(&mut drain, first, Duration::from_millis(millis));
        let last = sent.values().max().unwrap().since(start().monotonic);
        assert!(last <= secs(9), "with {millis} ms an eviction the last is sent after {last:?}");
    }
}

#[test]
fn a_watch_that_cannot_be_opened_is_tried_with_growing_pauses() {
    let p = pod("p");
    let (mut drain, _) = listed(drain(900, AtDeadline::Leave), std::slice::from_ref(&p));
    drain.answered(&p.uid, &Answer::Accepted, start());
    drain.observed(terminating(p.clone(), start(), 300), start());
    let (mut lists, mut now) = (0, start());
    drain.watch_lost(now);
    while now.monotonic.since(start().monotonic) < secs(60) {
        let step = drain.step(now);
        for request in step.requests {
            assert_eq!(request, Request::List);
            lists += 1;
            drain.listed(vec![terminating(p.clone(), start(), 300)], now);
            drain.watch_lost(now);
        }
        now = now.advanced(Duration::from_millis(50));
    }
    assert!((10..=20).contains(&lists), "{lists} lists in a minute");
}

#[test]
fn a_pod_whose_namespace_is_gone_is_named_and_does_not_make_the_drain_spin() {
    let ghost = pod("ghost");
    let (mut drain, _) = listed(drain(60, AtDeadline::Leave), std::slice::from_ref(&ghost));
    drain.answered(&ghost.uid, &Answer::NamespaceGone, start());
    let mut requests = 0;
    let (_, outcome) = play(&mut drain, start(), secs(90), |drain, request, now| {
        requests += 1;
        match request {
            Request::List => drain.listed(vec![ghost.clone()], now),
            _ => drain.answered(&ghost.uid, &Answer::NamespaceGone, now),
        }
    });
    let outcome = outcome.unwrap();
    assert!(requests < 70, "{requests} requests");
    assert!(outcome.left[0].1.contains("namespace does not exist"), "{}", outcome.left[0].1);
}

#[test]
fn a_pod_that_the_server_calls_gone_and_lists_all_the_same_needs_no_hurry() {
    let ghost = pod("ghost");
    let (mut drain, _) = listed(drain(60, AtDeadline::Leave), std::slice::from_ref(&ghost));
    drain.answered(&ghost.uid, &Answer::Gone, start());
    let mut requests = 0;
    play(&mut drain, start(), secs(90), |drain, request, now| {
        requests += 1;
        match request {
            Request::List => drain.listed(vec![ghost.clone()], now),
            _ => drain.answered(&ghost.uid, &Answer::Gone, now),
        }
    });
    assert!(requests < 60, "{requests} requests");
}

#[test]
fn a_drain_that_comes_after_its_deadline_asks_every_pod_and_then_deletes_where_the_rule_does() {
    for began_before in [600, 0] {
        for (at_deadline, deleted) in [(AtDeadline::Leave, 0), (AtDeadline::Delete, 1)] {
            let mut order = order(0, at_deadline);
            order.started_at = minus(start().wall, secs(began_before));
            let p = pod("p");
            let (mut drain, step) = listed(Drain::new(NODE, None, order, start()), std::slice::from_ref(&p));
            assert_eq!(told(&step), ["evict prod/p 5s"]);
            drain.answered(&p.uid, &budget(), start());
            let mut deletions = 0;
            let (now, outcome) = play(&mut drain, start(), secs(60), |drain, request, now| match request {
                Request::List => drain.listed(vec![p.clone()], now),
                Request::Delete(_) => {
                    deletions += 1;
                    drain.answered(&p.uid, &Answer::Accepted, now);
                }
                _ => drain.answered(&p.uid, &budget(), now),
            });
            assert_eq!((deletions, outcome.unwrap().result), (deleted, DrainResult::Incomplete));
            assert_eq!(now.monotonic.since(start().monotonic), secs(5));
        }
    }
}

#[test]
fn a_pod_that_only_a_list_missed_is_asked_at_once() {
    let late = pod("late");
    let (mut drain, _) = listed(drain(30, AtDeadline::Delete), &[]);
    drain.observed(late.clone(), start());
    drain.listed(vec![], start());
    drain.observed(late, start());
    assert_eq!(told(&drain.step(start())), ["evict prod/late 30s"]);
}

#[test]
fn a_pause_that_was_meant_for_minutes_ends_when_seconds_are_left() {
    let p = pod("p");
    let (mut drain, _) = listed(drain(900, AtDeadline::Leave), std::slice::from_ref(&p));
    let mut now = start();
    for _ in 0..6 {
        drain.answered(&p.uid, &budget(), now);
        now = now.advanced(secs(20));
        drain.heard(now);
        assert!(told(&drain.step(now)).contains(&"evict prod/p 30s".to_owned()));
    }
    drain.answered(&p.uid, &budget(), now);
    let preempt = Order { deadline: plus(now.wall, secs(30)), ..order(0, AtDeadline::Delete) };
    drain.reorder(preempt, now);
    let then = now.advanced(secs(4));
    drain.heard(then);
    assert!(told(&drain.step(then)).contains(&"evict prod/p 26s".to_owned()));
}

#[test]
fn a_look_that_fails_does_not_stand_in_the_way_of_the_deletion() {
    let p = pod("p");
    let (mut drain, _) = listed(drain(30, AtDeadline::Delete), std::slice::from_ref(&p));
    drain.answered(&p.uid, &Answer::Conflict, start());
    let (mut looks, mut deleted) = (0, false);
    play(&mut drain, start(), secs(60), |drain, request, now| match request {
        Request::List => drain.listed(vec![p.clone()], now),
        Request::Look(target) => {
            looks += 1;
            drain.look_failed(&target.uid, now);
        }
        Request::Delete(target) => {
            deleted = true;
            drain.answered(&target.uid, &Answer::Accepted, now);
        }
        Request::Evict(_) => panic!("it was not looked at yet"),
    });
    assert!(deleted && looks <= 20, "{looks} looks");
}

#[test]
fn lists_after_a_lost_watch_are_not_far_apart_when_the_end_is_near() {
    let p = pod("p");
    let (mut drain, _) = listed(drain(30, AtDeadline::Leave), std::slice::from_ref(&p));
    drain.answered(&p.uid, &Answer::Accepted, start());
    drain.observed(terminating(p.clone(), start(), 30), start());
    drain.watch_lost(start());
    let mut lists = vec![];
    play(&mut drain, start(), secs(60), |drain, _, now| {
        lists.push(now.monotonic);
        drain.listed(vec![terminating(p.clone(), start(), 30)], now);
        drain.watch_lost(now);
    });
    assert!(lists.windows(2).all(|pair| pair[1].since(pair[0]) <= secs(2)), "{lists:?}");
}

#[test]
fn another_profile_counts_at_once_for_the_pods_that_are_known() {
    let bare = Pod { controller: Controller::None, ..pod("bare") };
    let mut leaving = order(900, AtDeadline::Leave);
    leaving.profile.bare = Treatment::Leave;
    let (mut drain, step) = listed(Drain::new(NODE, None, leaving.clone(), start()), std::slice::from_ref(&bare));
    assert_eq!(told(&step), Vec::<String>::new());
    drain.reorder(order(900, AtDeadline::Leave), start());
    assert_eq!(told(&drain.step(start())), ["evict prod/bare 30s"]);
    drain.answered(&bare.uid, &budget(), start());
    drain.reorder(leaving, start());
    assert_eq!(drain.remaining(), 0);
    assert_eq!(told(&drain.step(start().advanced(secs(5)))), ["list"], "it is not evicted any more");
}

#[test]
fn a_pod_that_came_after_someone_uncordoned_the_node_for_good_is_named_and_stays() {
    let mut order = order(900, AtDeadline::Leave);
    order.uncordoned_at = Some(plus(start().wall, secs(10)));
    let new = Pod { created_at: Some(plus(start().wall, secs(11))), ..pod("new") };
    let (_, step) = listed(Drain::new(NODE, None, order, start()), &[pod("old"), new.clone()]);
    assert_eq!(told(&step), ["evict prod/old 30s"]);
    assert_eq!(step.reports, [Report::Kept { pod: new.name, uid: new.uid, why: Kept::Uncordoned }]);
}

#[test]
fn a_deletion_that_meets_conflicts_is_not_repeated_without_a_pause() {
    let p = pod("p");
    let (mut drain, _) = listed(drain(30, AtDeadline::Delete), std::slice::from_ref(&p));
    drain.answered(&p.uid, &budget(), start());
    let mut deletions = 0;
    play(&mut drain, start(), secs(60), |drain, request, now| match request {
        Request::List => drain.listed(vec![p.clone()], now),
        Request::Delete(target) => {
            deletions += 1;
            assert!(deletions <= 10, "it spins");
            drain.answered(&target.uid, &Answer::Conflict, now);
        }
        Request::Look(target) => drain.looked(&target.uid, Some(p.clone()), now),
        Request::Evict(target) => drain.answered(&target.uid, &budget(), now),
    });
    assert!(deletions >= 3, "{deletions} deletions in the last 5 s");
}

#[test]
fn a_long_margin_is_no_licence_to_ask_every_second() {
    let mut order = order(1800, AtDeadline::Delete);
    order.profile.margin = Some(secs(600));
    let p = pod("p");
    let (mut drain, _) = listed(Drain::new(NODE, None, order, start()), std::slice::from_ref(&p));
    drain.answered(&p.uid, &budget(), start());
    let mut deletions = 0;
    play(&mut drain, start(), secs(1800), |drain, request, now| match request {
        Request::List => drain.listed(vec![p.clone()], now),
        Request::Delete(target) => {
            deletions += 1;
            drain.answered(&target.uid, &Answer::Admission("no".into()), now);
        }
        Request::Look(_) => panic!("nobody spoke of a conflict"),
        Request::Evict(target) => drain.answered(&target.uid, &budget(), now),
    });
    assert!((20..=200).contains(&deletions), "{deletions} deletions in 10 min");
}

// Invariant 9, with a clock that steps: the deadline is Azure's, and it is further away again.
#[test]
fn deletion_stops_when_the_clock_is_set_back_and_the_deadline_is_far_again() {
    let p = pod("p");
    let (mut drain, _) = listed(drain(30, AtDeadline::Delete), std::slice::from_ref(&p));
    drain.answered(&p.uid, &budget(), start());
    let mut now = start().advanced(secs(26));
    drain.heard(now);
    assert_eq!(told(&drain.step(now)), ["delete prod/p 4s"]);
    drain.answered(&p.uid, &Answer::Busy(None), now);
    now.wall = minus(now.wall, secs(20));
    now = now.advanced(secs(1));
    drain.heard(now);
    assert_eq!(told(&drain.step(now)), ["evict prod/p 23s"]);
}

#[test]
fn a_server_clock_that_is_a_little_ahead_does_not_cut_a_pod_short() {
    let p = Pod { grace: secs(60), ..pod("p") };
    let (mut drain, step) = listed(drain(30, AtDeadline::Delete), std::slice::from_ref(&p));
    assert_eq!(told(&step), ["evict prod/p 30s"]);
    drain.answered(&p.uid, &Answer::Accepted, start());
    drain.observed(terminating(p, start().advanced(secs(2)), 30), start());
    assert_eq!(told(&drain.step(start().advanced(secs(1)))), Vec::<String>::new());
}

#[test]
fn the_margin_is_a_fifth_of_the_notice_within_bounds_and_never_more_than_half() {
    let margin = |notice: u64, margin: Option<u64>| {
        let mut order = order(notice, AtDeadline::Delete);
        order.profile.margin = margin.map(Duration::from_secs);
        order.margin()
    };
    assert_eq!(margin(900, None), secs(5));
    assert_eq!(margin(10, None), secs(2));
    assert_eq!(margin(3, None), secs(1));
    assert_eq!(margin(30, Some(2)), secs(2));
    assert_eq!(margin(30, Some(60)), secs(15));
    let began_later = Order { started_at: plus(start().wall, secs(3600)), ..order(30, AtDeadline::Delete) };
    assert_eq!(began_later.margin(), secs(1), "it was written before the clock was set back");
}

/// A small, unreliable API server: everything it does follows from the seed.
struct Server {
    seed: u64,
    pods: BTreeMap<PodUid, Pod>,
    watching: bool,
}

impl Server {
    fn draw(&mut self, below: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % below
    }

    fn delete(&mut self, target: &Target, now: Now) {
        if let Some(pod) = self.pods.get_mut(&target.uid) {
            let shorter = pod.deletion.is_none_or(|deletion| target.grace < deletion.grace);
            if shorter {
                *pod = terminating(pod.clone(), now, target.grace.as_secs());
            }
        }
    }

    fn answer(&mut self, target: &Target, evicts: bool, now: Now) -> Answer {
        match self.draw(10) {
            0 => Answer::Busy(None),
            1 => Answer::Conflict,
            2 if evicts => Answer::SeveralBudgets,
            3 | 4 if evicts => budget(),
            5 => Answer::NamespaceTerminating,
            _ if !self.pods.contains_key(&target.uid) => Answer::Gone,
            _ => {
                self.delete(target, now);
                Answer::Accepted
            }
        }
    }
}

#[test]
fn whatever_the_server_does_the_drain_ends_by_its_deadline_and_keeps_its_limits() {
    for seed in 0..400 {
        let mut server = Server { seed, pods: BTreeMap::new(), watching: false };
        for index in 0..server.draw(40) {
            let mut pod = pod(&format!("p{index}"));
            pod.grace = secs(server.draw(90));
            pod.priority = if server.draw(4) == 0 { 2_000_000_000 } else { 0 };
            server.pods.insert(pod.uid.clone(), pod);
        }
        let notice = 2 + server.draw(200);
        let at_deadline = if server.draw(2) == 0 { AtDeadline::Leave } else { AtDeadline::Delete };
        let mut drain = drain(notice, at_deadline);
        let margin = order(notice, at_deadline).margin();
        let (mut now, deadline) = (start(), start().advanced(secs(notice)));
        let mut asked: BTreeMap<PodUid, Vec<Monotonic>> = BTreeMap::new();
        let mut steps = 0;
        let outcome = loop {
            steps += 1;
            assert!(steps < 20_000, "seed {seed}: the drain spins");
            // Pods end with their grace, and a watch that is alive tells of it.
            let ended: Vec<PodUid> = server
                .pods
                .iter()
                .filter(|(_, pod)| pod.deletion.is_some_and(|deletion| deletion.ends_at <= now.wall))
                .map(|(uid, _)| uid.clone())
                .collect();
            for uid in ended {
                server.pods.remove(&uid);
                if server.watching {
                    drain.vanished(&uid, now);
                }
            }
            if server.draw(50) == 0 {
                server.watching = false;
                drain.watch_lost(now);
            }
            let step = drain.step(now);
            if let Some(outcome) = step.outcome {
                break outcome;
            }
            assert!(now.monotonic < deadline.monotonic, "seed {seed}: still running at the deadline");
            let idle = step.requests.is_empty();
            for request in step.requests {
                match request {
                    Request::List if server.draw(5) == 0 => drain.list_failed(now),
                    Request::List => {
                        server.watching = server.draw(4) > 0;
                        drain.listed(server.pods.values().cloned().collect(), now);
                    }
                    Request::Look(target) if server.draw(3) == 0 => drain.look_failed(&target.uid, now),
                    Request::Look(target) => drain.looked(&target.uid, server.pods.get(&target.uid).cloned(), now),
                    Request::Evict(target) | Request::Delete(target)
                        if target.grace < secs(1) || target.grace.subsec_nanos() > 0 =>
                    {
                        panic!("seed {seed}: grace {:?}", target.grace)
                    }
                    Request::Evict(target) => {
                        let times = asked.entry(target.uid.clone()).or_default();
                        times.push(now.monotonic);
                        let recent = times.iter().filter(|at| now.monotonic.since(**at) < ATTEMPT_WINDOW).count();
                        assert!(recent <= MOST_ATTEMPTS, "seed {seed}: {recent} evictions in a minute");
                        let answer = server.answer(&target, true, now);
                        drain.answered(&target.uid, &answer, now);
                        if let (true, Some(pod)) = (server.watching, server.pods.get(&target.uid)) {
                            drain.observed(pod.clone(), now);
                        }
                    }
                    Request::Delete(target) => {
                        assert_eq!(at_deadline, AtDeadline::Delete, "seed {seed}: deleted past its budget");
                        let forced = now.monotonic >= deadline.monotonic.less(margin);
                        let stopping = server.pods.get(&target.uid).is_none_or(|pod| pod.deletion.is_some());
                        let vanishing = asked.contains_key(&target.uid);
                        assert!(forced || stopping || vanishing, "seed {seed}: deleted before the margin");
                        let answer = server.answer(&target, false, now);
                        drain.answered(&target.uid, &answer, now);
                    }
                }
            }
            if idle {
                now = now.advanced(step.wake.since(now.monotonic).clamp(Duration::from_millis(1), secs(5)));
            }
        };
        assert!(now.monotonic <= deadline.monotonic + secs(5), "seed {seed}");
        if outcome.result == DrainResult::Drained {
            assert!(server.pods.is_empty(), "seed {seed}: drained with pods left");
        } else {
            let named: BTreeSet<&PodName> = outcome.left.iter().map(|(name, _)| name).collect();
            let listed_ever = !named.is_empty();
            assert!(
                !listed_ever || server.pods.values().all(|pod| named.contains(&pod.name)),
                "seed {seed}: not named"
            );
        }
    }
}
