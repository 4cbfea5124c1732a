//! How notifications are worded for each kind of receiver.

use domain::notification::{Notification, Topic};
use domain::policy::receiver::{Format, TemplateError};
use serde_json::{Value, json};

/// A message in a chat is no place for more. Slack cuts texts above 40,000 characters, Teams refuses above 28 KB.
const MOST_CHARACTERS: usize = 4000;

/// The content type and the body of the request.
pub(super) fn body(format: &Format, notification: &Notification) -> Result<(String, String), TemplateError> {
    Ok(match format {
        // The media type is the one of a single event in JSON, which some receivers insist on.
        Format::CloudEvents => {
            ("application/cloudevents+json; charset=utf-8".into(), cloud_event(notification).to_string())
        }
        Format::Slack => ("application/json; charset=utf-8".into(), slack(notification).to_string()),
        Format::Teams => ("application/json; charset=utf-8".into(), teams(notification).to_string()),
        Format::Template(template) => (template.content_type().to_owned(), template.render(notification)?),
    })
}

/// <https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md>. The source is the node's path in
/// the API of its cluster, the subject the scheduled event.
fn cloud_event(notification: &Notification) -> Value {
    let Notification { id, topic, reason, warning, note, at, node, event } = notification;
    let mut data = json!({"topic": topic, "reason": reason, "warning": warning, "note": note, "node": node});
    let mut cloud_event = json!({
        "specversion": "1.0",
        "id": id,
        "source": format!("/api/v1/nodes/{node}"),
        "type": format!("dev.remediator.{topic}"),
        "time": at,
        "datacontenttype": "application/json",
    });
    if let Some(event) = event {
        data["event"] = json!(event);
        cloud_event["subject"] = json!(event.id);
    }
    cloud_event["data"] = data;
    cloud_event
}

/// <https://docs.slack.dev/messaging/formatting-message-text>. With an attachment, for its colour, and because the
/// programs that understand Slack's messages understand attachments, but few of them blocks.
fn slack(notification: &Notification) -> Value {
    let colour = match mood(notification) {
        Mood::Bad => Some("danger"),
        Mood::Doubtful => Some("warning"),
        Mood::Good => Some("good"),
        Mood::Neutral => None,
    };
    let fields: Vec<Value> = facts(notification)
        .into_iter()
        .map(|(title, value)| json!({"title": title, "value": for_slack(&value), "short": true}))
        .collect();
    let mut attachment = json!({
        "fallback": for_slack(&cut(&notification.note)),
        "text": for_slack(&cut(&notification.note)),
        "fields": fields,
        "footer": "remediator",
        "ts": notification.at.as_second(),
        // Names are full of characters that Slack would read as emphasis.
        "mrkdwn_in": [],
    });
    if let Some(colour) = colour {
        attachment["color"] = json!(colour);
    }
    json!({"text": for_slack(&headline(notification)), "mrkdwn": false, "attachments": [attachment]})
}

/// Slack has these three read as markup, by which a text could call a whole channel.
fn for_slack(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// <https://learn.microsoft.com/microsoftteams/platform/webhooks-and-connectors/how-to/connectors-using>: a message with
/// one Adaptive Card, which is all that a workflow takes. Rich text blocks show a text as it is; a plain text block
/// would read it as Markdown.
fn teams(notification: &Notification) -> Value {
    let colour = match mood(notification) {
        Mood::Bad => "Attention",
        Mood::Doubtful => "Warning",
        Mood::Good => "Good",
        Mood::Neutral => "Default",
    };
    let run = |text: &str| json!({"type": "TextRun", "text": text});
    let block = |run: Value| json!({"type": "RichTextBlock", "inlines": [run]});
    let mut head = run(&headline(notification));
    head["weight"] = json!("Bolder");
    head["size"] = json!("Medium");
    head["color"] = json!(colour);
    let note = cut(&notification.note);
    let facts: Vec<Value> =
        facts(notification).into_iter().map(|(title, value)| json!({"title": title, "value": value})).collect();
    let mut body = vec![block(head)];
    body.extend(note.lines().filter(|line| !line.trim().is_empty()).map(|line| block(run(line))));
    body.push(json!({"type": "FactSet", "facts": facts}));
    json!({
        "type": "message",
        "attachments": [{
            "contentType": "application/vnd.microsoft.card.adaptive",
            "contentUrl": null,
            "content": {
                "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
                "type": "AdaptiveCard",
                "version": "1.4",
                "msteams": {"width": "Full"},
                "body": body,
            },
        }],
    })
}

/// What colour says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Good,
    Neutral,
    Doubtful,
    Bad,
}

fn mood(notification: &Notification) -> Mood {
    match notification.topic {
        Topic::Failed => Mood::Bad,
        _ if notification.warning => Mood::Doubtful,
        Topic::Released => Mood::Good,
        Topic::Event | Topic::Drain | Topic::Blocked => Mood::Neutral,
    }
}

fn headline(notification: &Notification) -> String {
    format!("{}: {}", notification.node, notification.reason)
}

fn facts(notification: &Notification) -> Vec<(&'static str, String)> {
    let mut facts = vec![("Node", notification.node.clone())];
    if let Some(event) = &notification.event {
        facts.push(("Event", format!("{}, {}", event.event_type, event.status)));
        if let Some(at) = event.not_before {
            facts.push(("Not before", domain::time::stamp(at)));
        }
        facts.push(("Source", event.source.clone()));
        facts.push(("Event ID", event.id.clone()));
    }
    facts
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(MOST_CHARACTERS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use domain::notification::NotifiedEvent;

    use super::*;

    fn told() -> Notification {
        Notification {
            id: "e1/drain".into(),
            topic: Topic::Drain,
            reason: "NodeDrainStart".into(),
            warning: false,
            note: "He said \"stop\"\na\\b & <!channel> *now*".into(),
            at: "2026-04-11T22:00:00.5Z".parse().unwrap(),
            node: "aks-np1-12345678-vmss00000o".into(),
            event: Some(NotifiedEvent {
                id: "C7061BAC-AFDC-4513-B24B-AA5F13A16123".into(),
                event_type: "Redeploy".into(),
                source: "Platform".into(),
                status: "Scheduled".into(),
                not_before: Some("2026-04-11T22:10:00Z".parse().unwrap()),
            }),
        }
    }

    fn written(format: &Format, notification: &Notification) -> (String, Value) {
        let (content_type, body) = body(format, notification).unwrap();
        (content_type, serde_json::from_str(&body).unwrap())
    }

    #[test]
    fn a_cloud_event_says_what_happened_to_which_node_in_the_members_of_the_specification() {
        let expected = json!({
            "specversion": "1.0",
            "id": "e1/drain",
            "source": "/api/v1/nodes/aks-np1-12345678-vmss00000o",
            "type": "dev.remediator.drain",
            "subject": "C7061BAC-AFDC-4513-B24B-AA5F13A16123",
            "time": "2026-04-11T22:00:00.5Z",
            "datacontenttype": "application/json",
            "data": {
                "topic": "drain",
                "reason": "NodeDrainStart",
                "warning": false,
                "note": "He said \"stop\"\na\\b & <!channel> *now*",
                "node": "aks-np1-12345678-vmss00000o",
                "event": {
                    "id": "C7061BAC-AFDC-4513-B24B-AA5F13A16123",
                    "type": "Redeploy",
                    "source": "Platform",
                    "status": "Scheduled",
                    "notBefore": "2026-04-11T22:10:00Z",
                },
            },
        });
        let content_type = "application/cloudevents+json; charset=utf-8".to_owned();
        assert_eq!(written(&Format::CloudEvents, &told()), (content_type, expected));
        let (_, without) = written(&Format::CloudEvents, &Notification { event: None, ..told() });
        assert!(without.get("subject").is_none() && without["data"].get("event").is_none(), "{without}");
    }

    #[test]
    fn a_message_for_slack_has_a_headline_the_text_as_it_is_and_the_facts() {
        let field = |title: &str, value: &str| json!({"title": title, "value": value, "short": true});
        let expected = json!({
            "text": "aks-np1-12345678-vmss00000o: NodeDrainStart",
            "mrkdwn": false,
            "attachments": [{
                "fallback": "He said \"stop\"\na\\b &amp; &lt;!channel&gt; *now*",
                "text": "He said \"stop\"\na\\b &amp; &lt;!channel&gt; *now*",
                "fields": [
                    field("Node", "aks-np1-12345678-vmss00000o"),
                    field("Event", "Redeploy, Scheduled"),
                    field("Not before", "2026-04-11 22:10:00Z"),
                    field("Source", "Platform"),
                    field("Event ID", "C7061BAC-AFDC-4513-B24B-AA5F13A16123"),
                ],
                "footer": "remediator",
                "ts": 1_775_944_800,
                "mrkdwn_in": [],
            }],
        });
        assert_eq!(written(&Format::Slack, &told()), ("application/json; charset=utf-8".to_owned(), expected));
    }

    #[test]
    fn a_card_for_teams_has_a_headline_each_line_as_it_is_and_the_facts() {
        let block = |run: Value| json!({"type": "RichTextBlock", "inlines": [run]});
        let expected = json!({
            "type": "message",
            "attachments": [{
                "contentType": "application/vnd.microsoft.card.adaptive",
                "contentUrl": null,
                "content": {
                    "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
                    "type": "AdaptiveCard",
                    "version": "1.4",
                    "msteams": {"width": "Full"},
                    "body": [
                        block(json!({
                            "type": "TextRun",
                            "text": "aks-np1-12345678-vmss00000o: NodeDrainStart",
                            "weight": "Bolder",
                            "size": "Medium",
                            "color": "Default",
                        })),
                        block(json!({"type": "TextRun", "text": "He said \"stop\""})),
                        block(json!({"type": "TextRun", "text": "a\\b & <!channel> *now*"})),
                        {"type": "FactSet", "facts": [
                            {"title": "Node", "value": "aks-np1-12345678-vmss00000o"},
                            {"title": "Event", "value": "Redeploy, Scheduled"},
                            {"title": "Not before", "value": "2026-04-11 22:10:00Z"},
                            {"title": "Source", "value": "Platform"},
                            {"title": "Event ID", "value": "C7061BAC-AFDC-4513-B24B-AA5F13A16123"},
                        ]},
                    ],
                },
            }],
        });
        assert_eq!(written(&Format::Teams, &told()), ("application/json; charset=utf-8".to_owned(), expected));
    }

    #[test]
    fn colour_says_whether_someone_should_look() {
        for (topic, warning, colour, text) in [
            (Topic::Failed, true, json!("danger"), "Attention"),
            (Topic::Blocked, true, json!("warning"), "Warning"),
            (Topic::Released, false, json!("good"), "Good"),
            (Topic::Event, false, Value::Null, "Default"),
        ] {
            let told = Notification { topic, warning, ..told() };
            assert_eq!(slack(&told)["attachments"][0]["color"], colour, "{topic}");
            let head = &teams(&told)["attachments"][0]["content"]["body"][0]["inlines"][0];
            assert_eq!(head["color"], text, "{topic}");
        }
    }

    #[test]
    fn a_text_that_no_chat_would_take_is_cut() {
        let told = Notification { note: "é".repeat(50_000), ..told() };
        assert!(slack(&told).to_string().len() < 28_000);
        assert!(teams(&told).to_string().len() < 28_000);
    }
}
