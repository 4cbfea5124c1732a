use super::*;
use crate::yaml;

fn parse(text: &str) -> Result<Vec<Receiver>, String> {
    yaml::read("p.yaml", text, receivers).map_err(|error| error.to_string())
}

fn parse_one(rest: &str) -> Receiver {
    parse(&format!("- {{name: ops, {rest}}}\n")).unwrap().remove(0)
}

#[test]
fn what_a_receiver_leaves_out_is_filled_in() {
    assert_eq!(
        parse_one("format: slack, urlFile: /etc/remediator/slack-url"),
        Receiver {
            name: "ops".into(),
            format: Format::Slack,
            url: Secret::File("/etc/remediator/slack-url".into()),
            headers: Vec::new(),
            on: [Topic::Drain, Topic::Blocked, Topic::Failed, Topic::Released].into(),
            timeout: Duration::from_secs(5),
            proxy: None,
        }
    );
}

// N-02 b: a number is taken as text.
#[test]
fn everything_about_a_receiver_can_be_said() {
    let text = r#"
- name: pager
  format: template
  urlEnv: PAGER_URL
  headers:
    - {name: Authorization, valueFile: /etc/remediator/pager-token}
    - {name: X-Team, valueEnv: TEAM}
    - {name: X-Priority, value: 1}
  on: [event, failed, failed]
  timeout: 1500ms
  proxyFile: /etc/remediator/proxy
  contentType: application/vnd.pager+json
  template: |
    {"summary": "{{ node }}: {{ note }}"}
"#;
    let template =
        Template::new("{\"summary\": \"{{ node }}: {{ note }}\"}\n".into(), "application/vnd.pager+json".into());
    let header = |name: &str, value| Header { name: name.into(), value };
    assert_eq!(
        parse(text).unwrap(),
        [Receiver {
            name: "pager".into(),
            format: Format::Template(template.unwrap()),
            url: Secret::Env("PAGER_URL".into()),
            headers: vec![
                header("Authorization", HeaderText::Secret(Secret::File("/etc/remediator/pager-token".into()))),
                header("X-Team", HeaderText::Secret(Secret::Env("TEAM".into()))),
                header("X-Priority", HeaderText::Plain("1".into())),
            ],
            on: [Topic::Event, Topic::Failed].into(),
            timeout: Duration::from_millis(1500),
            proxy: Some(Secret::File("/etc/remediator/proxy".into())),
        }]
    );
}

#[test]
fn every_format_has_its_word() {
    for (word, format) in [("cloudEvents", Format::CloudEvents), ("slack", Format::Slack), ("teams", Format::Teams)] {
        assert_eq!(parse_one(&format!("format: {word}, urlEnv: U")).format, format);
    }
}

#[test]
fn a_mistake_is_answered_with_its_place_and_what_would_be_right() {
    for (text, expected) in [
        ("- {name: Ops, format: slack, urlEnv: U}", "p.yaml:1:10: `Ops` is no name for a receiver: use up to 63 of"),
        (
            "- {name: a, format: slack, urlEnv: U}\n- {name: a, format: teams, urlEnv: U}",
            "p.yaml:2:10: two receivers are named `a`: rename one",
        ),
        (
            "- {name: a, format: discord, urlEnv: U}",
            "p.yaml:1:21: unknown variant `discord`, expected one of cloudEvents, slack, teams, template",
        ),
        ("- {name: a, urlEnv: U}", "p.yaml:1:13: missing field `format`"),
        ("- {name: a, format: slack}", "p.yaml:1:10: the receiver has no URL: write `urlFile`"),
        ("- {name: a, format: slack, urlEnv: U, urlFile: /f}", "p.yaml:1:36: keep one of `urlFile` and `urlEnv`"),
        (
            "- {name: a, format: slack, urlFile: slack-url}",
            "p.yaml:1:37: `urlFile` is the whole path of a file, from `/` on",
        ),
        ("- {name: a, format: slack, urlEnv: OPS-URL}", "p.yaml:1:36: `urlEnv` is the name of an environment variable"),
        (
            "- {name: a, format: slack, urlEnv: U, proxyEnv: P, proxyFile: /p}",
            "p.yaml:1:49: keep one of `proxyFile` and `proxyEnv`",
        ),
        (
            "- {name: a, format: slack, urlEnv: U, on: [drain, fail]}",
            "p.yaml:1:51: unknown variant `fail`, expected one of event, drain, blocked, failed, released",
        ),
        ("- {name: a, format: slack, urlEnv: U, on: []}", "p.yaml:1:43: the receiver would be told nothing"),
        (
            "- {name: a, format: slack, urlEnv: U, timeout: 31s}",
            "p.yaml:1:48: a receiver is given from 1s to 30s to answer",
        ),
        (
            "- {name: a, format: slack, urlEnv: U, timeout: 0s}",
            "p.yaml:1:48: a receiver is given from 1s to 30s to answer",
        ),
        (
            "- {name: a, format: slack, urlEnv: U, timeout: 5}",
            "p.yaml:1:48: `5` is not a duration: write a number and a unit",
        ),
        (
            "- {name: a, format: slack, urlEnv: U, colour: red}",
            "p.yaml:1:39: unknown field `colour`, expected one of name, format,",
        ),
        (
            "- {name: a, format: slack, urlEnv: U, template: x}",
            "p.yaml:1:49: `template` is for `format: template`: leave it out, or change the format",
        ),
        (
            "- {name: a, format: teams, urlEnv: U, contentType: text/plain}",
            "p.yaml:1:52: `contentType` is for `format: template`: leave it out, or change the format",
        ),
        ("- {name: a, format: template, urlEnv: U}", "p.yaml:1:21: `format: template` needs a `template`"),
        (
            "- {name: a, format: template, urlEnv: U, template: '{}', contentType: json}",
            "p.yaml:1:71: `json` is no content type: write one like application/json",
        ),
        (
            "- name: a\n  format: template\n  urlEnv: U\n  template: |\n    {\n      \"a\": \"{{ nod }}\"\n    }\n",
            "p.yaml:5:5: line 2 of the template: undefined value: the names are id, topic,",
        ),
        (
            "- {name: a, format: template, urlEnv: U, template: '{% if %}'}",
            "p.yaml:1:52: line 1 of the template: syntax error: unexpected end of block",
        ),
        (
            "- {name: a, format: template, urlEnv: U, template: '{\"a\": {{ note }}}'}",
            "p.yaml:1:52: the template gives no JSON for a notification on `event` (expected value at line 1 column 7): a \
             value is written as the inside of a JSON string, so write \"{{ note }}\" with the quotes, or {{ note|tojson }} \
             without",
        ),
        (
            "- {name: a, format: slack, urlEnv: U, headers: [{name: 'X Y', value: z}]}",
            "p.yaml:1:56: `X Y` is no name of a header",
        ),
        (
            "- {name: a, format: slack, urlEnv: U, headers: [{name: Host, value: z}]}",
            "p.yaml:1:56: the header Host is written by remediator: leave it out",
        ),
        (
            "- {name: a, format: slack, urlEnv: U, headers: [{name: X-A}]}",
            "p.yaml:1:56: the header X-A needs one of `value`, `valueFile` and `valueEnv`",
        ),
        (
            "- {name: a, format: slack, urlEnv: U, headers: [{name: X-A, value: z, valueEnv: Z}]}",
            "p.yaml:1:68: the header X-A has a value already: keep one of the two",
        ),
        (
            "- {name: a, format: slack, urlEnv: U, headers: [{name: X-A, value: \"a\\nb\"}]}",
            "p.yaml:1:68: the value of X-A must be one line of printable ASCII",
        ),
        ("- {name: a, format: slack, urlEnv: U, headers: [{name: X-A, value: [1]}]}", "p.yaml:1:68: "),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.starts_with(expected), "{text}\n{error}");
    }
}

#[test]
fn a_secret_that_stands_in_the_file_is_refused_and_not_repeated() {
    for (members, advice) in [
        ("url: https://hooks.test/s3cret", "write `urlFile` or `urlEnv`"),
        ("url: {to: https://hooks.test/s3cret}", "write `urlFile` or `urlEnv`"),
        ("urlFile: https://hooks.test/s3cret", "`urlFile` is the whole path"),
        ("urlEnv: https://hooks.test/s3cret", "`urlEnv` is the name"),
        ("urlEnv: U, proxy: http://me:s3cret@proxy.test", "write `proxyFile` or `proxyEnv`"),
        ("urlEnv: U, proxyFile: http://me:s3cret@proxy.test", "`proxyFile` is the whole path"),
        ("urlEnv: U, headers: [{name: X-A, value: \"s3cret\\n\"}]", "one line"),
        ("urlEnv: U, headers: [{name: X-A, valueFile: s3cret}]", "`valueFile` is the whole path"),
    ] {
        let error = parse(&format!("- {{name: a, format: slack, {members}}}")).unwrap_err();
        assert!(error.contains(advice) && !error.contains("s3cret"), "{members}: {error}");
    }
}

#[test]
fn the_value_of_a_header_is_in_no_debug_output() {
    let receiver = parse_one("format: slack, urlEnv: U, headers: [{name: X-A, value: s3cret}]");
    let debug = format!("{receiver:?}");
    assert!(debug.contains("X-A") && !debug.contains("s3cret"), "{debug}");
}
