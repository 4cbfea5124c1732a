use super::*;
use crate::scheduled_event::decode;

mod documents;
mod shipped;
mod words;

fn event(event_type: &str, members: &str) -> ScheduledEvent {
    let body = format!(r#"{{"Events":[{{"EventId":"e1","EventType":"{event_type}","Resources":["vm"]{members}}}]}}"#);
    decode(body.as_bytes()).unwrap().events.remove(0)
}

fn parse(text: &str) -> Result<Policy, String> {
    file::parse("p.yaml", text).map_err(|error| error.to_string())
}

const HEAD: &str = "apiVersion: remediator.dev/v1alpha1\nkind: Policy\nmetadata: {name: p}\n";

fn policy(rest: &str) -> Policy {
    parse(&format!("{HEAD}{rest}")).unwrap()
}

fn now() -> Now {
    Now { wall: "2026-04-11T22:00:00Z".parse().unwrap(), monotonic: crate::time::Monotonic::default() }
}

fn rule_for(policy: &Policy, event: &ScheduledEvent) -> String {
    match policy.judge(event, now()) {
        Judgement::Ruled(ruling) | Judgement::Observed(ruling) => ruling.rule,
        other => other.to_string(),
    }
}

#[test]
fn the_built_in_policy_drains_for_everything_but_a_freeze() {
    let policy = Policy::built_in().unwrap();
    let say = |event_type| policy.judge(&event(event_type, ""), now()).action();
    assert_eq!(say("Freeze"), Action::None);
    for event_type in ["Reboot", "Redeploy", "Preempt", "Terminate"] {
        assert_eq!(say(event_type), Action::Drain, "{event_type}");
    }
    assert_eq!(policy.judge(&event("SpotRebalanceRecommendation", ""), now()), Judgement::NoRule("default".into()));
    for (event_type, at_deadline) in [("Reboot", AtDeadline::Leave), ("Terminate", AtDeadline::Delete)] {
        let Judgement::Ruled(ruling) = policy.judge(&event(event_type, ""), now()) else {
            panic!("{event_type} has a rule")
        };
        assert_eq!(ruling.start.at_most, Some(Duration::from_secs(30 * 60)));
        assert_eq!(ruling.profile.unwrap().at_deadline, at_deadline);
    }
}

#[test]
fn an_observing_policy_decides_but_its_action_is_none() {
    let policy = policy("mode: observe\nevents: [{name: all, action: drain}]\n");
    let judgement = policy.judge(&event("Reboot", ""), now());
    assert_eq!(judgement.action(), Action::None);
    assert_eq!(judgement.to_string(), "rule p/all would say drain, but the policy only observes");
}

#[test]
fn the_first_rule_that_matches_wins() {
    let policy = policy(
        "events:
  - {name: short-freeze, match: {type: Freeze, duration: {below: 10s}}, action: none}
  - {name: long-freeze, match: {type: Freeze, duration: {atLeast: 10s}}, action: cordon}
  - {name: ours, match: {source: User}, action: none}
  - {name: running, match: {type: [Reboot, Redeploy], status: Started}, action: cordon}
  - {name: odd, match: {type: Unknown}, action: cordon}
  - {name: rest, action: drain}
",
    );
    for (event, rule) in [
        (event("Freeze", r#","DurationInSeconds":5"#), "short-freeze"),
        (event("Freeze", r#","DurationInSeconds":10"#), "long-freeze"),
        (event("Freeze", r#","DurationInSeconds":-1"#), "rest"),
        (event("Freeze", ""), "rest"),
        (event("Reboot", r#","EventSource":"User""#), "ours"),
        (event("Reboot", r#","EventStatus":"Started""#), "running"),
        (event("Reboot", r#","EventStatus":"Scheduled""#), "rest"),
        (event("Rebalance", ""), "odd"),
    ] {
        assert_eq!(rule_for(&policy, &event), rule, "{event:?}");
    }
}

#[test]
fn a_mistake_is_answered_with_its_place_and_what_would_be_right() {
    for (text, expected) in [
        (
            "events:\n  - {name: a, match: {type: Rebot}, action: drain}\n",
            "p.yaml:5:29: unknown type `Rebot`: use Freeze, Reboot, Redeploy, Preempt, Terminate or Unknown",
        ),
        (
            "events:\n  - {name: a, match: {type: [Reboot, Rebot]}, action: drain}\n",
            "p.yaml:5:38: unknown type `Rebot`: use Freeze, Reboot, Redeploy, Preempt, Terminate or Unknown",
        ),
        (
            "events:\n  - {name: a, match: {source: Azure}, action: drain}\n",
            "p.yaml:5:31: unknown source `Azure`: use Platform or User",
        ),
        (
            "events:\n  - {name: a, action: evict}\n",
            "p.yaml:5:23: unknown variant `evict`, expected one of none, cordon, drain",
        ),
        (
            "events:\n  - {name: a, action: drain, profile: fast}\n",
            "p.yaml:5:39: no profile `fast` under drain.profiles: there are default",
        ),
        (
            "events:\n  - {name: a, action: cordon, profile: default}\n",
            "p.yaml:5:40: a profile is for `action: drain`, but this rule says cordon",
        ),
        (
            "events:\n  - {name: a, action: none}\n  - {name: a, action: none}\n",
            "p.yaml:6:12: two rules are named `a`: rename one",
        ),
        (
            "events:\n  - {name: a, action: drain, start: {atMost: 15}}\n",
            "p.yaml:5:46: `15` is not a duration: write a number and a unit, like 500ms, 30s, 15m or 1h30m",
        ),
        (
            "events:\n  - {name: a, action: drain, begin: {atMost: 15m}}\n",
            "p.yaml:5:30: unknown field `begin`, expected one of name, match, action, profile, start, approve",
        ),
        (
            "events:\n  - {name: a, match: {duration: {below: 1s, atLeast: 2s}}, action: none}\n",
            "p.yaml:5:33: no duration is both `atLeast` and `below`: `below` must be the larger",
        ),
        (
            "drain: {profiles: {x: {phases: [{priority: 5}, {priority: 5}]}}}\n",
            "p.yaml:4:59: phases are listed by ascending `priority`",
        ),
        (
            "drain: {profiles: {x: {margin: 10s, timeout: 5s}}}\n",
            "p.yaml:4:32: `margin` must be shorter than `timeout`",
        ),
        (
            "selector: {matchExpressions: [{key: a, operator: In}]}\n",
            "p.yaml:4:11: the expression on `a` needs `values`",
        ),
        ("mode: dry\n", "p.yaml:4:7: unknown variant `dry`, expected one of act, observe"),
        ("kind: Policy\n", "p.yaml:4:1: duplicate mapping key `kind` is not allowed here"),
    ] {
        assert_eq!(parse(&format!("{HEAD}{text}")).unwrap_err(), expected, "{text}");
    }
    assert_eq!(parse("").unwrap_err(), "p.yaml:1:1: unexpected end of file");
    assert!(
        parse("apiVersion: v1\nkind: Policy\nmetadata: {name: p}\n")
            .unwrap_err()
            .starts_with("p.yaml:1:13: unknown apiVersion `v1`")
    );
    assert!(
        parse("apiVersion: remediator.dev/v1alpha1\nkind: Policy\nmetadata: {name: P}\n")
            .unwrap_err()
            .starts_with("p.yaml:3:18: `P` is no name")
    );
}

#[test]
fn durations_may_be_fractions_of_a_second() {
    let policy = policy(
        "events: [{name: a, match: {duration: {below: 1500ms}}, action: drain, start: {atMost: 250ms}}]
drain: {profiles: {default: {margin: 100ms, timeout: 800ms, phases: [{priority: 0, grace: 500ms}]}}}
",
    );
    assert_eq!(policy.rules[0].start.at_most, Some(Duration::from_millis(250)));
    assert_eq!(policy.profiles["default"].margin, Some(Duration::from_millis(100)));
    assert_eq!(policy.profiles["default"].phases[0].grace, Some(Duration::from_millis(500)));
}

#[test]
fn a_ruling_survives_being_written_and_read() {
    let Judgement::Ruled(ruling) = Policy::built_in().unwrap().judge(&event("Preempt", ""), now()) else {
        panic!("has a rule")
    };
    let text = serde_json::to_string(&ruling).unwrap();
    assert_eq!(serde_json::from_str::<Ruling>(&text).unwrap(), ruling);
}

fn selecting(name: &str, priority: i32, selector: &str) -> Policy {
    let text =
        format!("{}selector: {selector}\npriority: {priority}\n", HEAD.replace("name: p", &format!("name: {name}")));
    parse(&text).unwrap()
}

#[test]
fn the_policy_of_highest_priority_that_selects_the_node_counts() {
    let set = PolicySet::new(vec![
        selecting("rest", 0, "{}"),
        selecting("spot", 10, "{matchLabels: {spot: 'true'}}"),
        selecting("gpu", 5, "{matchExpressions: [{key: gpu, operator: Exists}]}"),
    ])
    .unwrap();
    let name = |labels: &[(&str, &str)]| {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        set.for_node(NodeTraits { labels: &labels, policy: None }).unwrap().name.clone()
    };
    assert_eq!(name(&[]), "rest");
    assert_eq!(name(&[("gpu", "a100")]), "gpu");
    assert_eq!(name(&[("gpu", "a100"), ("spot", "true")]), "spot");
}

#[test]
fn two_policies_that_could_select_one_node_need_different_priorities() {
    let pair = |a: &str, b: &str| PolicySet::new(vec![selecting("a", 0, a), selecting("b", 0, b)]);
    assert!(matches!(pair("{}", "{matchLabels: {x: '1'}}"), Err(PolicySetError::Tie(_))));
    assert!(pair("{matchLabels: {x: '1'}}", "{matchLabels: {x: '2'}}").is_ok());
    assert!(pair("{matchLabels: {x: '1'}}", "{matchExpressions: [{key: x, operator: NotIn, values: ['1']}]}").is_ok());
    assert!(pair("{matchLabels: {x: '1'}}", "{matchExpressions: [{key: x, operator: DoesNotExist}]}").is_ok());
    assert!(pair("{matchLabels: {x: '1'}}", "{matchLabels: {y: '1'}}").is_err());
    let twins = PolicySet::new(vec![selecting("a", 0, "{}"), selecting("a", 1, "{}")]);
    assert_eq!(twins, Err(PolicySetError::SameName("a".into())));
}

#[test]
fn a_node_that_names_a_policy_has_that_one_whatever_the_selectors_say() {
    let set = PolicySet::new(vec![selecting("rest", 0, "{}"), selecting("spot", 10, "{matchLabels: {spot: 'true'}}")]);
    let set = set.unwrap();
    let (none, labels) = (BTreeMap::new(), BTreeMap::from([("spot".to_owned(), "true".to_owned())]));
    let of = |labels, policy| set.for_node(NodeTraits { labels, policy }).map(|policy| policy.name.clone());
    assert_eq!(of(&labels, None).as_deref(), Ok("spot"));
    assert_eq!(of(&labels, Some("rest")).as_deref(), Ok("rest"));
    assert_eq!(of(&none, Some("spot")).as_deref(), Ok("spot"));
    let unknown = of(&labels, Some("sport")).unwrap_err();
    assert_eq!(unknown, NoPolicy::Unknown("sport".into()));
    assert_eq!(Judgement::NoPolicy(unknown.clone()).action(), Action::None);
    assert_eq!(unknown.to_string(), "annotation remediator.dev/policy names policy sport, which is not loaded");
}

#[test]
fn every_mistake_of_a_file_is_told_in_the_order_of_the_file() {
    let text = format!(
        "{HEAD}drain:
  nodesAtOnce: 0
  profiles: {{slow: {{timeout: 0s}}}}
events:
  - {{name: A, action: drain}}
  - {{name: b, action: none, start: {{atMost: 1m}}}}
  - {{name: b, action: drain, profile: slow}}
"
    );
    let mistakes = file::parse_all("p.yaml", &text).unwrap_err();
    let places: Vec<(u64, u64)> = mistakes.iter().map(|mistake| (mistake.line, mistake.column)).collect();
    // The profile `slow` is known, although it is wrong, and the third rule is no less covered by the first.
    assert_eq!(places, [(5, 16), (6, 30), (8, 12), (9, 45), (10, 12), (10, 12)], "{mistakes:#?}");
    assert_eq!(file::parse("p.yaml", &text).unwrap_err(), mistakes[0]);
}

#[test]
fn what_is_valid_but_probably_not_meant_is_warned_of() {
    let all = "{name: all, action: drain}";
    for (text, expected) in [
        ("events: [{name: a, match: {type: Freeze}, action: none}]", "no rule is about Reboot, Redeploy"),
        ("events: [{name: all, action: none}]\ndrain: {profiles: {fast: {}}}", "no rule uses the drain profile fast"),
        (
            "events: [{name: all, action: drain, approve: immediately}]",
            "rule all drains, but has the event started at once",
        ),
        (
            "events: [{name: all, action: drain, approve: {User: immediately}}]",
            "rule all drains, but has the event started at once",
        ),
        (&format!("events: [{all}]\ndrain: {{taint: {{key: example.com/maintenance}}}}"), "may then add none"),
        (
            &format!("events: [{all}]\ndrain: {{taint: {{key: remediator.kubernetes.azure.com/unschedulable}}}}"),
            "that of AKS's own auto-drain",
        ),
    ] {
        let warnings = policy(&format!("{text}\n")).warnings();
        assert!(matches!(warnings.as_slice(), [only] if only.contains(expected)), "{text}: {warnings:?}");
    }
    assert_eq!(policy(&format!("events: [{all}]\ndrain: {{taint: {{}}}}\n")).warnings(), Vec::<String>::new());
}

#[test]
fn event_types_without_a_rule_are_found() {
    let policy = policy("events: [{name: a, match: {type: [Reboot, Preempt]}, action: drain}]\n");
    assert_eq!(policy.types_without_rule(), ["Freeze", "Redeploy", "Terminate"]);
}

proptest::proptest! {
    /// Whatever is cut out of a policy file, doubled or put into it: a policy or a mistake with its place, no panic.
    #[test]
    fn a_mangled_policy_file_is_a_policy_or_a_mistake_with_a_place(
        from in 0_usize..2000,
        length in 0_usize..40,
        insert in "[ -~\n\t\u{e9}]{0,12}",
    ) {
        let mut text: Vec<char> = include_str!("../../../policies/spot.yaml").chars().collect();
        let from = from.min(text.len());
        let to = (from + length).min(text.len());
        text.splice(from..to, insert.chars());
        let text: String = text.into_iter().collect();
        if let Err(error) = file::parse("p.yaml", &text) {
            let lines = u64::try_from(text.lines().count()).unwrap() + 1;
            proptest::prop_assert!((1..=lines).contains(&error.line) && error.column >= 1, "{}", error);
            proptest::prop_assert!(!error.message.is_empty() && !error.message.contains('\n'), "{}", error);
        }
    }
}
