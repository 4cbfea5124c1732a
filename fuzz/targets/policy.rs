//! Whatever an operator writes into a policy file: a mistake is answered with its place, and a policy that is read judges
//! every event by its first rule that matches.
//!
//! An input is a policy, and after a line with a `%`, which no YAML file has, an answer of the metadata service.

#![no_main]
#![allow(clippy::expect_used, clippy::panic, reason = "a panic is how a target reports what it found")]

mod place;

use std::collections::BTreeSet;

use domain::policy::{Action, DEFAULT_PROFILE, Judgement, Mode, NodeTraits, Policy, PolicySet, Ruling, file};
use domain::scheduled_event::{EventType, ScheduledEvent, decode};
use domain::time::{Monotonic, Now};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &str| {
    let (text, answer) = input.split_once("\n%\n").unwrap_or((input, ""));
    let policy = match file::parse("policy.yaml", text) {
        Ok(policy) => policy,
        Err(error) => return place::assert_place(text, &error),
    };
    a_policy_is_complete_and_valid(&policy);
    let written = decode(answer.as_bytes()).map(|document| document.events).unwrap_or_default();
    for event in usual_events().iter().chain(&written) {
        the_first_rule_that_matches_is_applied(&policy, event);
    }
    for (index, rule) in policy.rules.iter().enumerate() {
        let covered = policy.rules[..index].iter().find(|earlier| earlier.matches.covers(&rule.matches));
        assert_eq!(covered, None, "rule {} can never apply", rule.name);
    }
    for event in usual_events().iter().filter(|event| policy.types_without_rule().contains(&event.event_type.as_str()))
    {
        assert!(matches!(policy.judge(event, now()), Judgement::NoRule(_)), "there is a rule after all for {event:?}");
    }
    two_policies_for_one_node_need_different_priorities(&policy);
});

fn now() -> Now {
    Now { wall: "2026-04-11T22:00:00Z".parse().expect("a time"), monotonic: Monotonic::default() }
}

/// One of each type, and one of a type that nobody knows yet.
fn usual_events() -> Vec<ScheduledEvent> {
    let listed: Vec<String> = EventType::KNOWN
        .iter()
        .chain(&["Rebalance"])
        .map(|word| {
            format!(
                r#"{{"EventId":"{word}","EventType":"{word}","EventStatus":"Scheduled","Resources":["np1_0"],
                "EventSource":"Platform","NotBefore":"Sat, 11 Apr 2026 22:26:58 GMT","DurationInSeconds":5}}"#
            )
        })
        .collect();
    decode(format!(r#"{{"Events":[{}]}}"#, listed.join(",")).as_bytes()).expect("a document").events
}

fn a_policy_is_complete_and_valid(policy: &Policy) {
    assert!(policy.profiles.contains_key(DEFAULT_PROFILE), "no default profile");
    let names: BTreeSet<&str> = policy.rules.iter().map(|rule| rule.name.as_str()).collect();
    assert_eq!(names.len(), policy.rules.len(), "two rules of one name");
    for rule in &policy.rules {
        assert!(policy.profiles.contains_key(&rule.profile), "rule {} names no profile", rule.name);
        assert!(rule.start.at_most.is_none_or(|time| !time.is_zero()), "rule {} never starts ahead", rule.name);
    }
    for (name, profile) in &policy.profiles {
        assert!(!profile.phases.is_empty() && profile.phases.is_sorted_by(|a, b| a.priority < b.priority), "{name}");
        assert!(profile.phases.iter().all(|phase| phase.grace.is_none_or(|grace| !grace.is_zero())), "{name}");
        let times = (profile.margin, profile.timeout);
        assert!(times.0.zip(times.1).is_none_or(|(margin, timeout)| margin < timeout), "profile {name}: {times:?}");
    }
}

fn the_first_rule_that_matches_is_applied(policy: &Policy, event: &ScheduledEvent) {
    let judgement = policy.judge(event, now());
    let first = policy.rules.iter().find(|rule| rule.matches.mismatch(event, now()).is_none());
    let (observed, ruling) = match &judgement {
        Judgement::Ruled(ruling) => (false, ruling),
        Judgement::Observed(ruling) => (true, ruling),
        Judgement::NoRule(_) => return assert_eq!(first, None, "a rule is passed over"),
        Judgement::NoPolicy(_) => panic!("a policy judged as if there were none"),
    };
    let rule = first.expect("a judgement without a rule");
    assert_eq!((&ruling.rule, ruling.action, &ruling.policy), (&rule.name, rule.action, &policy.name));
    assert_eq!(ruling.profile.as_ref(), policy.profiles.get(&rule.profile).filter(|_| rule.action == Action::Drain));
    assert_eq!(observed, policy.mode == Mode::Observe);
    assert!(!observed || judgement.action() == Action::None, "an observer acts");
    // It is kept with the node, and read again by the next life of the agent.
    let text = serde_json::to_string(ruling).expect("a ruling can be written");
    assert_eq!(serde_json::from_str::<Ruling>(&text).expect("a ruling can be read"), *ruling);
}

fn two_policies_for_one_node_need_different_priorities(policy: &Policy) {
    let labels = policy.selector.match_labels.clone();
    let mut twin = policy.clone();
    twin.name.push_str("-twin");
    if PolicySet::new(vec![policy.clone(), twin.clone()]).is_ok() {
        assert!(!policy.selector.matches(&labels), "nothing says which of two policies counts");
    }
    twin.priority = policy.priority ^ 1;
    let set = PolicySet::new(vec![policy.clone(), twin]).expect("their priorities differ");
    let chosen = set.for_node(NodeTraits { labels: &labels, policy: None });
    assert_eq!(chosen.is_ok(), policy.selector.matches(&labels));
    let first = |chosen: &Policy| set.policies().iter().all(|other| other.priority <= chosen.priority);
    assert!(chosen.as_ref().is_ok_and(|chosen| first(chosen)) || chosen.is_err());
}
