use super::life::*;
use super::*;

const EVERY_TOPIC: [Topic; 5] = [Topic::Event, Topic::Drain, Topic::Blocked, Topic::Failed, Topic::Released];

fn life_with_receivers() -> Life {
    let mut life = Life::new();
    life.topics = EVERY_TOPIC.into_iter().collect();
    life
}

/// Tells receivers everything that waits in the record: identity and reason of each message.
fn deliver(life: &mut Life) -> Vec<(String, String)> {
    let Some(text) = life.node.record.as_deref() else { return Vec::new() };
    let untold = Record::from_annotation(text).unwrap().untold;
    life.delivered.extend(untold.iter().map(|untold| untold.id.clone()));
    untold.into_iter().map(|untold| (untold.id, untold.reason)).collect()
}

fn reasons_of(messages: &[(String, String)]) -> Vec<&str> {
    messages.iter().map(|(_, reason)| reason.as_str()).collect()
}

// D-07: over all lives one message at each turn, whatever is killed in between.
#[test]
fn every_turn_is_told_once_over_any_number_of_lives() {
    for restarts in [false, true] {
        let mut life = life_with_receivers();
        let mut sent: Vec<(String, String)> = Vec::new();
        let mut next = |life: &mut Life, listed: &[&str]| {
            sent.extend(deliver(life));
            life.settle();
            if restarts {
                life.restart();
                life.see(listed);
                life.settle();
            }
        };
        let event = life.event("e1", "Reboot", "Scheduled", Some(60));
        life.poll(&[&event]);
        next(&mut life, &[&event]);
        life.draining = true;
        life.blocked = vec![(PodName { namespace: "prod".into(), name: "db-1".into() }, "budget".into())];
        life.poll(&[&event]);
        next(&mut life, &[&event]);
        life.pass(60);
        life.finish_drain(&["db-1"]);
        next(&mut life, &[&event]);
        let started = life.event("e1", "Reboot", "Started", None);
        life.poll(&[&started]);
        next(&mut life, &[&started]);
        life.all_over();
        next(&mut life, &[]);
        life.all_over();
        assert_eq!(
            reasons_of(&sent),
            [
                "RebootScheduled",
                "NodeDrainStart",
                "NodeDrainBlocked",
                "NodeDrainError",
                "RebootStarted",
                "RebootEnded",
                "NodeUncordonEnd"
            ],
            "restarts: {restarts}"
        );
        let ids: BTreeSet<&String> = sent.iter().map(|(id, _)| id).collect();
        assert_eq!(ids.len(), sent.len(), "each has an identity of its own");
        assert_eq!(life.node.record, None, "nothing is left on the node in the end");
    }
}

// D-07: a repeat after a kill between sending and recording carries the same id.
#[test]
fn a_message_that_was_sent_but_not_noted_is_the_same_message_in_the_next_life() {
    let mut life = life_with_receivers();
    let event = life.event("e1", "Reboot", "Scheduled", Some(900));
    life.poll(&[&event]);
    let first = deliver(&mut life);
    life.restart();
    life.poll(&[&event]);
    assert_eq!(deliver(&mut life), first);
    life.settle();
    assert_eq!(life.record().untold, []);
    life.restart();
    life.poll(&[&event]);
    assert_eq!(deliver(&mut life), [], "what is noted as told is not told again");
}

#[test]
fn the_same_event_on_another_node_is_another_message() {
    let ids = ["5f0c", "77aa"].map(|uid| {
        let mut life = life_with_receivers();
        life.node.uid = uid.into();
        let event = life.event("e1", "Reboot", "Scheduled", Some(900));
        life.poll(&[&event]);
        deliver(&mut life)[0].0.clone()
    });
    assert_ne!(ids[0], ids[1]);
}

#[test]
fn what_nobody_wants_to_be_told_is_not_kept() {
    let mut life = Life::new();
    let event = life.event("e1", "Reboot", "Scheduled", Some(900));
    life.poll(&[&event]);
    assert_eq!(life.record().untold, [], "there are no receivers");
    let mut life = life_with_receivers();
    life.topics.remove(&Topic::Event);
    life.poll(&[&event]);
    assert_eq!(reasons_of(&deliver(&mut life)), ["NodeDrainStart"]);
    let mut life = life_with_receivers();
    life.poll(&[&event]);
    assert_eq!(life.record().untold.len(), 2);
    life.topics.clear();
    life.poll(&[&event]);
    assert_eq!(life.record().untold, [], "the receivers were taken out of the configuration");
}

#[test]
fn an_event_that_nothing_is_done_about_is_no_message() {
    let mut life = life_with_receivers();
    let freeze = life.event("f", "Freeze", "Scheduled", Some(900));
    life.poll(&[&freeze]);
    assert_eq!((life.node.record.clone(), life.writes), (None, 0));
}

#[test]
fn messages_that_nobody_takes_are_kept_after_the_release_and_never_fill_the_record() {
    let mut life = life_with_receivers();
    for round in 0..12 {
        let event = life.event(&format!("e{round}"), "Preempt", "Scheduled", Some(60));
        let wordy = event.replace(r#""Description":"""#, &format!(r#""Description":"{}""#, "要注意，".repeat(100)));
        life.poll(&[&wordy]);
        life.finish_drain(&["db-1"]);
        life.all_over();
        assert!(!life.node.marks.unschedulable, "the node is given back all the same");
        let text = life.node.record.clone().expect("there is something to tell");
        assert!(text.len() <= crate::record::MOST_BYTES, "{} bytes", text.len());
        assert!(life.record().untold.len() <= MOST_UNTOLD);
    }
    assert_eq!(life.record().untold.last().unwrap().reason, "NodeUncordonEnd", "the newest are kept");
    deliver(&mut life);
    life.settle();
    assert_eq!(life.node.record, None);
}

#[test]
fn a_message_that_waits_does_not_make_a_released_node_look_busy() {
    let mut life = life_with_receivers();
    let event = life.event("e1", "Reboot", "Scheduled", Some(900));
    life.poll(&[&event]);
    life.poll(&[]);
    let plan = life.poll(&[]);
    assert_eq!(plan.stage, Stage::Idle);
    let writes = life.writes;
    for _ in 0..5 {
        life.poll(&[]);
    }
    assert_eq!(life.writes, writes);
    // An event that comes meanwhile is acted on in full.
    let next = life.event("e2", "Reboot", "Scheduled", Some(900));
    assert!(life.poll(&[&next]).drain.is_some());
}

#[test]
fn what_is_told_is_what_is_done_although_the_policy_says_less_by_now() {
    let mut life = Life::with(policy(
        "events:\n- {name: begun, match: {status: Started}, action: none}\n- {name: rest, action: drain}\n",
    ));
    life.topics = Topic::ALL.into();
    life.poll(&[&life.event("e1", "Reboot", "Scheduled", Some(601))]);
    life.finish_drain(&[]);
    life.poll(&[&life.event("e1", "Reboot", "Started", None)]);
    let untold = life.record().untold;
    let started = untold.iter().find(|untold| untold.reason == "RebootStarted").expect("receivers are told of it");
    assert!(started.note.contains("rule p/rest says drain"), "{}", started.note);
}

#[test]
fn receivers_are_told_of_a_cordon_that_no_drain_follows_and_of_a_record_that_cannot_be_read() {
    let mut life = Life::with(policy("events: [{name: all, action: cordon}]\n"));
    life.topics = Topic::ALL.into();
    let event = life.event("e1", "Reboot", "Scheduled", Some(601));
    life.poll(&[&event]);
    let reasons: Vec<String> = life.record().untold.into_iter().map(|untold| untold.reason).collect();
    assert!(reasons.contains(&"NodeCordonEnd".to_owned()), "{reasons:?}");
    life.node.record = Some("?".into());
    let told = life.poll(&[&event]).notifications;
    assert_eq!(told.iter().map(|told| told.reason.as_str()).collect::<Vec<_>>(), ["RecordUnreadable"]);
    life.delivered.insert(told[0].id.clone());
    assert_eq!(life.poll(&[&event]).notifications, []);
}
