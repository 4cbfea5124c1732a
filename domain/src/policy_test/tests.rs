use super::*;
use crate::policy::file;

const HEAD: &str = "apiVersion: remediator.dev/v1alpha1\nkind: PolicyTest\n";

fn set(rest: &str) -> PolicySet {
    let head = "apiVersion: remediator.dev/v1alpha1\nkind: Policy\nmetadata: {name: p}\n";
    PolicySet::new(vec![file::parse("p.yaml", &format!("{head}{rest}")).unwrap()]).unwrap()
}

/// Plays one case, given from its event on, and says what was not as expected.
fn play(policies: &PolicySet, case: &str) -> Vec<String> {
    let test = parse("p.test.yaml", &format!("{HEAD}cases:\n  - name: case\n    {}", case.replace('\n', "\n    ")));
    let test = test.unwrap_or_else(|errors| panic!("{errors:?}"));
    test.cases[0].play(policies).iter().map(ToString::to_string).collect()
}

const EVERYTHING: &str = "events:
  - {name: freeze, match: {type: Freeze}, action: none, approve: immediately}
  - {name: far, action: drain, start: {atMost: 30m, atLeast: 1m, cordonAtOnce: true}, approve: {User: whenDrained}}
drain:
  taint: {value: soon}
  excludeFromLoadBalancers: true
  nodesAtOnce: 1
  profiles: {default: {atDeadline: delete, margin: 10s, timeout: 20m}}
";

#[test]
fn a_case_that_expects_what_is_done_has_no_mismatch() {
    let policies = set(EVERYTHING);
    let far = "event: {type: Redeploy, source: User, notBefore: in 2h}
expect:
  policy: p
  rule: far
  action: drain
  stage: cordoned
  cordons: in 0s
  starts: in 1h30m
  deadline: in 1h50m
  deletesFrom: in 1h49m50s
  approve: whenDrained
  taint: status-taint.cluster-autoscaler.kubernetes.io/remediator=soon:NoSchedule
  excludeFromLoadBalancers: true
  disableScaleDown: false
  nodesAtOnce: 1
then:
  - after: 1h30m
    expect: {action: drain, stage: draining, starts: in 0s, deadline: in 20m, deletesFrom: in 19m50s}
  - after: 5m
    event: {status: Started}
    expect: {action: drain, stage: draining, starts: in 0s, deadline: in 30s, deletesFrom: in 20s}
";
    assert_eq!(play(&policies, far), Vec::<String>::new());
    let freeze = "event: {type: Freeze, duration: 5s}\nexpect: {rule: freeze, action: none, approve: immediately}\n";
    assert_eq!(play(&policies, freeze), Vec::<String>::new());
}

#[test]
fn every_difference_is_named_with_its_moment() {
    let case = "event: {type: Redeploy, notBefore: in 2h}
expect: {policy: q, action: cordon, starts: in 5m, taint: none}
then:
  - after: 1h30m
    expect: {action: drain, stage: cordoned, nodesAtOnce: 2}
";
    assert_eq!(
        play(&set(EVERYTHING), case),
        [
            "policy: expected q, found p",
            "action: expected cordon, found drain",
            "starts: expected in 5m, found in 1h30m",
            "taint: expected none, found \
             status-taint.cluster-autoscaler.kubernetes.io/remediator=soon:NoSchedule",
            "after 1h30m: stage: expected cordoned, found draining",
            "after 1h30m: nodesAtOnce: expected 2, found 1",
        ]
    );
}

#[test]
fn what_is_fixed_at_the_first_act_holds_although_another_rule_matches_later() {
    let policies = set("events:
  - {name: announced, match: {status: Scheduled}, action: drain}
  - {name: begun, action: cordon}
");
    let case = "event: {type: Reboot, notBefore: in 10m}
expect: {rule: announced, action: drain, deadline: in 10m}
then:
  - after: 1m
    event: {status: Started}
    expect: {rule: announced, action: drain, stage: draining, deadline: in 30s}
";
    assert_eq!(play(&policies, case), Vec::<String>::new());
    let begun = "event: {type: Reboot, status: Started}\nexpect: {rule: begun, action: cordon, stage: cordoned}\n";
    assert_eq!(play(&policies, begun), Vec::<String>::new());
}

#[test]
fn a_drain_for_which_it_is_too_late_is_a_cordon() {
    let case = "event: {type: Redeploy, status: Started}\nexpect: {rule: far, action: cordon, stage: cordoned}\n";
    assert_eq!(play(&set(EVERYTHING), case), Vec::<String>::new());
}

#[test]
fn a_policy_that_observes_fails_a_case_that_expects_it_to_act() {
    let policies = set("mode: observe\nevents: [{name: all, action: drain}]\n");
    let event = "event: {type: Reboot, notBefore: in 10m}\n";
    assert_eq!(play(&policies, &format!("{event}expect: {{action: drain}}\n")), ["mode: expected act, found observe"]);
    assert_eq!(
        play(&policies, &format!("{event}expect: {{action: drain, mode: observe, stage: ignoring, starts: in 0s}}\n")),
        Vec::<String>::new()
    );
}

#[test]
fn a_case_says_why_no_rule_applies() {
    let policies = set("selector: {matchLabels: {a: b}}\nevents: [{name: f, match: {type: Freeze}, action: none}]\n");
    for (node, expect) in [
        ("labels: {a: b}", "policy: p, reason: noRule"),
        ("labels: {a: c}", "policy: none, rule: none, reason: noPolicy"),
        ("annotations: {remediator.dev/policy: q}", "policy: q, reason: unknownPolicy"),
    ] {
        let expect = expect.replace(" rule: none,", "");
        let case = format!("node: {{{node}}}\nevent: {{type: Reboot}}\nexpect: {{{expect}, action: none}}\n");
        assert_eq!(play(&policies, &case), Vec::<String>::new(), "{node}");
    }
}

#[test]
fn moments_are_told_ahead_or_ago() {
    let policies = set("events: [{name: all, action: drain}]\n");
    let case = "event: {type: Reboot, notBefore: in 10m}
expect: {action: drain, deadline: in 10m}
then:
  - after: 11m
    expect: {action: drain, deadline: 1m ago}
";
    assert_eq!(play(&policies, case), Vec::<String>::new());
    let past = "event: {type: Reboot, notBefore: 5m ago}\nexpect: {action: drain, starts: in 0s, deadline: in 30s}\n";
    assert_eq!(play(&policies, past), Vec::<String>::new());
}

#[test]
fn mistakes_in_a_test_file_are_answered_with_their_places() {
    let case = |members: &str| format!("{HEAD}cases:\n  - {{name: c, {members}}}\n");
    for (text, expected) in [
        (format!("{HEAD}cases: []\n"), "3:8: a test file has one case at least"),
        (HEAD.replace("PolicyTest", "Policy") + "cases: []\n", "2:7: unknown kind `Policy`: write PolicyTest"),
        (case("event: {}, expect: {action: none}"), "4:22: the event needs `type`: Freeze, Reboot,"),
        (case("event: {type: Rebot}, expect: {action: none}"), "4:29: unknown type `Rebot`: use Freeze"),
        (
            case("event: {type: Reboot, notBefore: 15m}, expect: {action: none}"),
            "4:48: `15m` is no moment: write it like",
        ),
        (case("event: {type: Reboot}, expect: {rule: a}"), "4:47: missing field `action`"),
        (
            case("event: {type: Reboot}, expect: {action: none, starts: in 0s}"),
            "4:46: with `action: none` nothing begins",
        ),
        (case("event: {type: Reboot}, expect: {action: cordon, deadline: in 0s}"), "4:46: a cordon has no deadline"),
        (case("event: {type: Reboot}, expect: {action: drain, reason: noRule}"), "4:46: `reason` says why no rule"),
        (
            case("event: {type: Reboot}, expect: {action: none, stage: lost}"),
            "4:68: unknown stage `lost`: use one of idle",
        ),
        (
            case("event: {type: Reboot}, expect: {action: none}, then: [{after: 0s, expect: {action: none}}]"),
            "4:77: `after` must be longer than 0s",
        ),
    ] {
        let error = parse("t.yaml", &text).unwrap_err().remove(0).to_string();
        assert!(error.starts_with(&format!("t.yaml:{expected}")), "{error}");
    }
    let twins = case("event: {type: Reboot}, expect: {action: none}")
        + "  - {name: c, event: {type: Freeze}, expect: {action: none}}\n";
    assert_eq!(parse("t.yaml", &twins).unwrap_err()[0].to_string(), "t.yaml:5:12: two cases are named `c`: rename one");
}
