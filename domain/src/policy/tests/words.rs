//! Every word of the policy language: what it does, and what it must not be combined with.

use super::*;
use crate::marks::{DEFAULT_TAINT_KEY, Taint, TaintEffect};

fn mistake(rest: &str) -> String {
    parse(&format!("{HEAD}{rest}")).unwrap_err()
}

/// The rule that judges an event which is `ahead` seconds ahead.
fn rule_ahead(policy: &Policy, ahead: u64) -> String {
    let at = crate::time::plus(now().wall, Duration::from_secs(ahead));
    rule_for(policy, &event("Reboot", &format!(r#","EventStatus":"Scheduled","NotBefore":"{at}""#)))
}

#[test]
fn notice_is_how_far_ahead_the_event_is_at_this_moment() {
    let policy = policy(
        "events:
  - {name: far, match: {notice: {atLeast: 1h}}, action: none}
  - {name: near, match: {notice: {below: 1m}}, action: drain}
  - {name: between, match: {notice: {atLeast: 1m, below: 1h}}, action: cordon}
",
    );
    for (ahead, rule) in [(3600, "far"), (3599, "between"), (60, "between"), (59, "near"), (0, "near")] {
        assert_eq!(rule_ahead(&policy, ahead), rule, "{ahead} s ahead");
    }
    let started = event("Reboot", r#","EventStatus":"Started","NotBefore":"Sat, 11 Apr 2026 23:30:00 GMT""#);
    assert_eq!(rule_for(&policy, &started), "near", "an event that has started gives no notice");
    assert_eq!(rule_for(&policy, &event("Reboot", "")), "near", "an event that names no time gives none");
}

#[test]
fn a_description_contains_a_text_in_any_letter_case_or_matches_an_expression() {
    let policy = policy(
        r"events:
  - {name: repair, match: {description: {contains: Emergency REPAIR}}, action: drain}
  - {name: numbered, match: {description: {matches: 'rack \d+$'}}, action: cordon}
  - {name: rest, action: none}
",
    );
    let of = |text: &str| rule_for(&policy, &event("Reboot", &format!(r#","Description":"{text}""#)));
    assert_eq!(of("Host server is undergoing an emergency repair."), "repair");
    assert_eq!(of("Work on rack 12"), "numbered");
    assert_eq!(of("Work on RACK 12"), "rest", "an expression is not blind to letter case by itself");
    assert_eq!(of(""), "rest");
    assert_eq!(
        mistake("events: [{name: a, match: {description: {contains: ''}}, action: none}]\n"),
        "p.yaml:4:52: every description contains the empty text: leave `description` out"
    );
    assert!(
        mistake("events: [{name: a, match: {description: {matches: 'rack ('}}, action: none}]\n")
            .starts_with("p.yaml:4:51: `rack (` is no regular expression: ")
    );
    assert!(
        mistake("events: [{name: a, match: {description: {contains: a, matches: b}}, action: none}]\n")
            .starts_with("p.yaml:4:")
    );
}

#[test]
fn unknown_is_every_type_that_this_version_does_not_know() {
    let policy = policy("events: [{name: odd, match: {type: [Unknown, Freeze]}, action: cordon}]\n");
    for event_type in ["SpotRebalanceRecommendation", "", "Freeze"] {
        assert_eq!(policy.judge(&event(event_type, ""), now()).action(), Action::Cordon, "{event_type:?}");
    }
    assert_eq!(policy.judge(&event("Reboot", ""), now()), Judgement::NoRule("p".into()));
}

#[test]
fn the_words_of_azure_are_written_as_azure_writes_them() {
    for (member, expected) in [
        ("type: reboot", "unknown type `reboot`"),
        ("source: user", "unknown source `user`"),
        ("status: started", "unknown status `started`"),
    ] {
        let answer = mistake(&format!("events: [{{name: a, match: {{{member}}}, action: none}}]\n"));
        assert!(answer.contains(expected), "{answer}");
    }
}

#[test]
fn a_rule_that_an_earlier_one_leaves_no_event_is_a_mistake() {
    let pair = |first: &str, second: &str| {
        parse(&format!(
            "{HEAD}events:\n  - {{name: a, {first} action: none}}\n  - {{name: b, {second} action: drain}}\n"
        ))
    };
    for (wide, narrow) in [
        ("", "match: {type: Reboot},"),
        ("match: {type: [Reboot, Freeze]},", "match: {type: Freeze, source: User},"),
        ("match: {type: Unknown},", "match: {type: Unknown},"),
        ("match: {notice: {below: 1h}},", "match: {notice: {below: 30m}},"),
        ("match: {duration: {atLeast: 5s}},", "match: {duration: {atLeast: 5s, below: 10s}},"),
        ("match: {status: [Scheduled, Started]},", "match: {status: Started},"),
        ("match: {description: {contains: x}},", "match: {description: {contains: x}, type: Freeze},"),
    ] {
        assert_eq!(
            pair(wide, narrow).unwrap_err(),
            "p.yaml:6:12: this rule never applies, because `a` above takes all its events: move it up",
            "{wide} {narrow}"
        );
        assert!(wide == narrow || wide.contains("Unknown") || pair(narrow, wide).is_ok(), "{wide} {narrow}");
    }
    for (first, second) in [
        ("match: {type: Reboot},", "match: {type: [Reboot, Freeze]},"),
        ("match: {type: Unknown},", "match: {type: Reboot},"),
        ("match: {notice: {below: 1h}},", "match: {notice: {atLeast: 30m}},"),
        ("match: {duration: {below: 10s}},", ""),
        ("match: {description: {contains: x}},", "match: {description: {matches: x}},"),
        ("match: {source: User},", "match: {status: Started},"),
    ] {
        assert!(pair(first, second).is_ok(), "{first} {second}");
    }
}

#[test]
fn bounds_that_hold_for_nothing_or_everything_are_mistakes() {
    for (member, expected) in [
        ("notice: {}", "4:28: `notice` needs `below`, `atLeast` or both"),
        ("duration: {}", "4:28: `duration` needs `below`, `atLeast` or both"),
        (
            "notice: {below: 5m, atLeast: 5m}",
            "4:36: no notice is both `atLeast` and `below`: `below` must be the larger",
        ),
        ("notice: {below: 0s}", "4:36: no notice is `below: 0s`"),
        (
            "status: Started, notice: {below: 1m}",
            "4:53: an event that has started gives no notice: match on one of the two",
        ),
    ] {
        let answer = mistake(&format!("events: [{{name: a, match: {{{member}}}, action: none}}]\n"));
        let what = expected.split_once(": ").unwrap().1;
        assert!(answer.starts_with("p.yaml:4:") && answer.ends_with(what), "{answer}");
    }
}

#[test]
fn start_says_from_when_on_until_when_and_whether_the_cordon_waits() {
    let policy = policy("events: [{name: a, action: drain, start: {atMost: 30m, atLeast: 1m, cordonAtOnce: true}}]\n");
    let start = Start {
        at_most: Some(Duration::from_secs(1800)),
        at_least: Some(Duration::from_secs(60)),
        cordon_at_once: true,
    };
    assert_eq!(policy.rules[0].start, start);
    let plain = super::policy("events: [{name: a, action: cordon}]\n");
    assert_eq!(plain.rules[0].start, Start::default());
}

#[test]
fn a_start_that_contradicts_its_rule_is_a_mistake() {
    for (rule, expected) in [
        ("action: none, start: {atMost: 1m}", "`start` is for a cordon or a drain, but this rule says none"),
        (
            "action: drain, start: {atMost: 0s}",
            "with `atMost: 0s` nothing would begin before the event does: give it time",
        ),
        (
            "action: drain, match: {status: Started}, start: {atMost: 1m}",
            "an event that has started is not ahead any more: leave `atMost` out, or match `Scheduled`",
        ),
        (
            "action: cordon, start: {atLeast: 1m}",
            "`atLeast` says when it is too late for a drain, but this rule says cordon",
        ),
        (
            "action: drain, start: {atMost: 1m, atLeast: 1m}",
            "`atLeast` must be shorter than `atMost`, or no drain could begin",
        ),
        (
            "action: cordon, start: {atMost: 1m, cordonAtOnce: true}",
            "`cordonAtOnce` is for a drain that begins later, but this rule says cordon",
        ),
        (
            "action: drain, start: {cordonAtOnce: true}",
            "without `atMost` the drain begins at once, and the cordon with it",
        ),
    ] {
        let answer = mistake(&format!("events:\n  - {{name: a, {rule}}}\n"));
        // The place is that of the value which contradicts.
        let value = rule.rfind(": ").map(|at| at + 2 + "  - {name: a, ".len() + 1).unwrap();
        assert_eq!(answer, format!("p.yaml:5:{value}: {expected}"));
    }
}

#[test]
fn approve_is_one_word_for_all_or_one_for_each_source() {
    let policy = policy(
        "events:
  - {name: own, match: {type: Reboot}, action: drain, approve: {User: whenDrained}}
  - {name: pause, match: {type: Freeze}, action: none, approve: immediately}
  - {name: rest, action: drain}
",
    );
    let approve = |event_type: &str, source: &str| match policy
        .judge(&event(event_type, &format!(r#","EventSource":"{source}""#)), now())
    {
        Judgement::Ruled(ruling) => ruling.approve,
        other => panic!("{other}"),
    };
    assert_eq!(approve("Reboot", "User"), Approve::WhenDrained);
    assert_eq!(approve("Reboot", "Platform"), Approve::Never);
    assert_eq!(approve("Reboot", "Marketplace"), Approve::Never, "a source that nobody knows");
    assert_eq!(approve("Freeze", "User"), Approve::Immediately);
    assert_eq!(approve("Freeze", "Platform"), Approve::Immediately);
    assert_eq!(approve("Freeze", ""), Approve::Never);
    assert_eq!(approve("Redeploy", "User"), Approve::Never);
}

#[test]
fn what_is_started_when_drained_has_to_be_drained() {
    for approve in ["whenDrained", "{User: whenDrained}"] {
        for (action, column) in [("none", 43), ("cordon", 45)] {
            assert_eq!(
                mistake(&format!("events: [{{name: a, action: {action}, approve: {approve}}}]\n")),
                format!(
                    "p.yaml:4:{column}: `whenDrained` is for `action: drain`, but this rule says {action}: write immediately or \
                     never"
                )
            );
        }
    }
    assert!(mistake("events: [{name: a, action: drain, approve: {Azure: never}}]\n").contains("unknown field `Azure`"));
    assert!(mistake("events: [{name: a, action: drain, approve: always}]\n").contains("unknown variant `always`"));
}

#[test]
fn a_taint_has_the_usual_key_unless_it_names_another() {
    let marking = |drain: &str| policy(&format!("drain: {drain}\n")).marking;
    assert_eq!(marking("{}"), Marking::default());
    assert_eq!(marking("{taint: {}}").taint, Some(Taint::default()));
    let taint = marking("{taint: {key: example.com/leaving, value: soon, effect: NoExecute}}").taint.unwrap();
    assert_eq!(taint.to_string(), "example.com/leaving=soon:NoExecute");
    assert_eq!(taint.effect, TaintEffect::NoExecute);
    assert_eq!(Taint::default().to_string(), format!("{DEFAULT_TAINT_KEY}:NoSchedule"));
    let beside = marking("{excludeFromLoadBalancers: true, disableScaleDown: true}");
    assert!(beside.exclude_from_load_balancers && beside.disable_scale_down && beside.taint.is_none());
}

#[test]
fn a_taint_that_is_none_or_somebody_elses_is_a_mistake() {
    for (taint, expected) in [
        (
            "key: node.kubernetes.io/unschedulable",
            "4:22: taint `node.kubernetes.io/unschedulable` belongs to Kubernetes",
        ),
        (
            "key: node.cloudprovider.kubernetes.io/shutdown",
            "4:22: taint `node.cloudprovider.kubernetes.io/shutdown` belongs",
        ),
        ("key: ToBeDeletedByClusterAutoscaler", "4:22: taint `ToBeDeletedByClusterAutoscaler` belongs to Kubernetes"),
        ("key: DeletionCandidateOfClusterAutoscaler", "4:22: taint `DeletionCandidateOfClusterAutoscaler` belongs"),
        ("key: 'a b'", "4:22: `a b` is no key for a taint: write NAME or PREFIX/NAME"),
        ("key: Example.com/a", "4:22: `Example.com/a` is no key for a taint"),
        ("key: ''", "4:22: `` is no key for a taint"),
        ("value: -a", "4:24: `-a` is no value for a taint: use up to 63 of a-z, A-Z, 0-9, `-`, `_` and `.`"),
        ("effect: NoStart", "4:25: unknown variant `NoStart`, expected one of NoSchedule, PreferNoSchedule, NoExecute"),
    ] {
        let answer = mistake(&format!("drain: {{taint: {{{taint}}}}}\n"));
        assert!(answer.starts_with(&format!("p.yaml:{expected}")), "{answer}");
    }
}

fn profile(members: &str) -> Profile {
    policy(&format!("drain: {{profiles: {{x: {members}}}}}\n")).profiles["x"].clone()
}

#[test]
fn pods_and_skip_say_which_pods_a_drain_is_about() {
    let narrow = profile("{pods: {matchExpressions: [{key: onFreeze, operator: Exists}]}}");
    assert_eq!(narrow.pods.unwrap().to_string(), "onFreeze");
    assert_eq!(profile("{}").pods, None);
    let skip = profile("{skip: {labels: {app: osd}, annotations: {example.com/keep: 'yes'}}}").skip;
    assert_eq!(skip.labels, BTreeMap::from([("app".to_owned(), "osd".to_owned())]));
    assert_eq!(skip.annotations, BTreeMap::from([("example.com/keep".to_owned(), "yes".to_owned())]));
}

#[test]
fn pods_and_skip_that_mean_nothing_are_mistakes() {
    for (members, expected) in [
        ("pods: {matchExpressions: [{key: a, operator: NotIn}]}", "the expression on `a` needs `values`"),
        (
            "pods: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}",
            "the expression on `a` takes no `values`",
        ),
        ("pods: {matchLabels: {'a b': c}}", "`a b` is no key of a label: write NAME or PREFIX/NAME"),
        (
            "pods: {matchLabels: {a: 'b c'}}",
            "`b c` is no value of a label: use up to 63 of a-z, A-Z, 0-9, `-`, `_` and `.`",
        ),
        ("skip: {}", "`skip` needs `labels`, `annotations` or both, each with keys and values"),
        ("skip: {labels: {'a b': c}}", "`a b` is no key of a label: write NAME or PREFIX/NAME"),
    ] {
        let answer = mistake(&format!("drain: {{profiles: {{x: {{{members}}}}}}}\n"));
        assert_eq!(answer, format!("p.yaml:4:30: {expected}"), "{members}");
    }
    let long = "y".repeat(64);
    assert_eq!(
        mistake(&format!("drain: {{profiles: {{x: {{skip: {{annotations: {{a: {long}}}}}}}}}}}\n")),
        "p.yaml:4:30: annotation `a` can be told by values of up to 63 characters only"
    );
}

#[test]
fn nodes_at_once_holds_up_drains_but_not_what_ends_the_machine() {
    let policy = policy(
        "events:
  - {name: look, match: {type: Freeze}, action: cordon}
  - {name: all, action: drain}
drain: {nodesAtOnce: 2}
",
    );
    let limit = |event_type: &str| match policy.judge(&event(event_type, ""), now()) {
        Judgement::Ruled(ruling) => ruling.nodes_at_once,
        other => panic!("{other}"),
    };
    for (event_type, most) in
        [("Reboot", Some(2)), ("Redeploy", Some(2)), ("Preempt", None), ("Terminate", None), ("Freeze", None)]
    {
        assert_eq!(limit(event_type), most, "{event_type}");
    }
    assert_eq!(
        mistake("drain: {nodesAtOnce: 0}\n"),
        "p.yaml:4:22: with `nodesAtOnce: 0` no node would ever be drained: leave it out for no limit"
    );
}

#[test]
fn a_profile_that_leaves_no_time_is_a_mistake() {
    for (members, expected) in [
        ("{timeout: 0s}", "4:33: with `timeout: 0s` nothing would be evicted: give it time"),
        ("{margin: 0s}", "4:32: with `margin: 0s` nothing would be deleted before the deadline: give it time"),
        ("{timeout: 5s, margin: 5s}", "4:45: `margin` must be shorter than `timeout`"),
        ("{phases: []}", "4:32: a profile has 1 to 8 phases; leave `phases` out for the usual two"),
        (
            "{phases: [{priority: 0, grace: 0s}]}",
            "4:54: a `grace` of 0s would remove pods without stopping them: give them time",
        ),
    ] {
        assert_eq!(mistake(&format!("drain: {{profiles: {{x: {members}}}}}\n")), format!("p.yaml:{expected}"));
    }
}

#[test]
fn a_ruling_with_everything_survives_being_written_and_read() {
    let policy = policy(
        "events:
  - {name: all, action: drain, profile: x, start: {atMost: 1h, atLeast: 1m, cordonAtOnce: true}, approve: whenDrained}
drain:
  taint: {value: leaving}
  excludeFromLoadBalancers: true
  disableScaleDown: true
  nodesAtOnce: 3
  profiles:
    x:
      timeout: 10m
      margin: 20s
      atDeadline: delete
      bare: leave
      emptyDir: leave
      pods: {matchLabels: {a: b}}
      skip: {labels: {c: d}}
      phases: [{priority: 1, grace: 1m}]
",
    );
    let Judgement::Ruled(ruling) = policy.judge(&event("Reboot", ""), now()) else { panic!("has a rule") };
    let text = serde_json::to_string(&ruling).unwrap();
    assert_eq!(serde_json::from_str::<Ruling>(&text).unwrap(), ruling, "{text}");
}

#[test]
fn a_member_that_would_mean_everything_without_a_value_needs_one() {
    let in_event = [
        "match: ",
        "match: {type: }",
        "match: {source: }",
        "match: {status: }",
        "match: {duration: }",
        "match: {notice: {below: }}",
        "match: {description: }",
        "start: {atMost: }",
        "start: {atLeast: }",
        "start: {cordonAtOnce: }",
        "approve: ",
        "profile: ",
    ];
    let in_event = in_event.map(|what| format!("events: [{{name: a, action: drain, {what}}}]\n"));
    let in_profile = ["pods", "skip", "phases", "timeout", "margin"];
    let in_profile = in_profile.map(|what| format!("drain: {{profiles: {{x: {{{what}: }}}}}}\n"));
    let others = ["selector:\n", "drain: {taint: }\n", "drain: {nodesAtOnce: }\n"].map(str::to_owned);
    for text in others.iter().chain(&in_event).chain(&in_profile) {
        assert!(mistake(text).starts_with("p.yaml:4:"), "{text}");
    }
    assert!(parse(&format!("{HEAD}selector: {{}}\n")).is_ok());
}

#[test]
fn a_repairs_own_restart_is_approved_only_if_the_policy_says_so() {
    assert!(policy("repair: {approveOwnRepairs: true}\n").approves_own_repairs());
    assert!(!policy("").approves_own_repairs());
    assert!(!policy("mode: observe\nrepair: {approveOwnRepairs: true}\n").approves_own_repairs());
}
