use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;

use axum::Router;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::routing::any;
use domain::notification::NotifiedEvent;
use domain::policy::receiver::{Format, Header, HeaderText, Secret, Template};
use domain::time::Monotonic;
use futures::FutureExt;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use super::*;
use crate::scripted::{Answer, Log};

/// A request that a receiver has got.
#[derive(Clone, Debug)]
struct Seen {
    at: Monotonic,
    method: String,
    url: String,
    headers: reqwest::header::HeaderMap,
    body: String,
}

fn retry_after(status: u16, value: &str) -> Answer {
    Answer::With(status, "retry-after", value.to_owned())
}

fn sent_to(status: u16, location: &str) -> Answer {
    Answer::With(status, "location", location.to_owned())
}

/// Receivers in this process, and a notifier that reaches them.
struct Scene {
    clock: Clock,
    metrics: Arc<Metrics>,
    notifier: Notifier,
    deliveries: Deliveries,
    folder: TempDir,
    seen: Arc<Mutex<Vec<Seen>>>,
    _work: AbortOnDropHandle<()>,
}

impl Scene {
    /// `script` says what comes of a request to a host; the number counts the requests to this host, from 0.
    fn new(script: impl Fn(&str, usize) -> Answer + Clone + Send + Sync + 'static) -> Self {
        let clock = Clock::starting_at("2026-04-11T22:00:00Z".parse().unwrap());
        let metrics = Arc::new(Metrics::default());
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let register = Arc::clone(&seen);
        let transport = tower::service_fn(move |request: Request| {
            let host = request.url().host_str().unwrap().to_owned();
            let to_host = format!("://{host}");
            let mut register = register.lock().unwrap();
            let number = register.iter().filter(|seen| seen.url.contains(&to_host)).count();
            register.push(Seen {
                at: clock.now().monotonic,
                method: request.method().to_string(),
                url: request.url().to_string(),
                headers: request.headers().clone(),
                body: String::from_utf8(request.body().unwrap().as_bytes().unwrap().to_vec()).unwrap(),
            });
            drop(register);
            let answer = script(&host, number);
            answer.give()
        });
        let (notifier, deliveries, work) = notifier_through(transport, clock, Arc::clone(&metrics));
        let work = AbortOnDropHandle::new(tokio::spawn(work));
        let folder = tempfile::tempdir().unwrap();
        Self { clock, metrics, notifier, deliveries, folder, seen, _work: work }
    }

    /// One receiver, `ops`, whose n-th answer is the n-th of these; the last goes on for ever.
    fn answering(answers: &[Answer]) -> Self {
        let answers = answers.to_vec();
        let scene = Self::new(move |_, number| answers.get(number).or(answers.last()).unwrap().clone());
        scene.notifier.configure(vec![scene.receiver("ops")]);
        scene
    }

    fn secret(&self, name: &str, content: &str) -> Secret {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        Secret::File(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A receiver of everything at `https://NAME.test`.
    fn receiver(&self, name: &str) -> Receiver {
        Receiver {
            name: name.into(),
            format: Format::CloudEvents,
            url: self.secret(&format!("{name}-url"), &format!("https://{name}.test/s3cret\n")),
            headers: Vec::new(),
            on: Topic::ALL.into(),
            timeout: Duration::from_secs(5),
            proxy: None,
        }
    }

    async fn delivered(&mut self) -> (String, bool) {
        let Delivered { id, gave_up } = self.deliveries.next().await;
        (id, gave_up)
    }

    fn nothing_is_delivered(&mut self) -> bool {
        self.deliveries.next().now_or_never().is_none()
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    fn seen_by(&self, receiver: &str) -> Vec<String> {
        let url = format!("https://{receiver}.test/");
        let to_it = self.seen().into_iter().filter(|seen| seen.url.starts_with(&url));
        to_it
            .map(|seen| {
                serde_json::from_str::<serde_json::Value>(&seen.body).unwrap()["id"].as_str().unwrap().to_owned()
            })
            .collect()
    }

    /// The seconds between one request and the next.
    fn pauses(&self) -> Vec<f64> {
        let seen = self.seen();
        seen.windows(2).map(|pair| pair[1].at.since(pair[0].at).as_secs_f64()).collect()
    }

    /// How many notifications were delivered, tried again, given up and dropped.
    fn counts(&self, receiver: &str) -> [u64; 4] {
        ["delivered", "retried", "failed", "dropped"].map(|result| {
            let labels = crate::metrics::NotificationLabels { receiver: receiver.into(), result };
            self.metrics.notifications.get_or_create(&labels).get()
        })
    }

    /// Lets everything happen that can happen now.
    async fn settle(&self) {
        self.clock.sleep(Duration::from_millis(1)).await;
    }
}

fn told(id: &str) -> Notification {
    Notification {
        id: id.into(),
        topic: Topic::Drain,
        reason: "NodeDrainStart".into(),
        warning: false,
        note: "Draining".into(),
        at: "2026-04-11T22:00:00Z".parse().unwrap(),
        node: "n1".into(),
        event: None,
    }
}

// N-01 a
#[tokio::test(start_paused = true)]
async fn any_answer_of_success_is_success() {
    let answers = [200, 201, 202, 204].map(Answer::Status);
    let mut scene = Scene::answering(&answers);
    for id in ["a", "b", "c", "d"] {
        scene.notifier.deliver(told(id));
        assert_eq!(scene.delivered().await, (id.into(), false));
    }
    assert_eq!((scene.seen().len(), scene.counts("ops")), (4, [4, 0, 0, 0]));
}

// N-01 b
#[tokio::test(start_paused = true)]
async fn a_receiver_that_fails_is_tried_again_with_growing_pauses_until_it_takes_the_notification_once() {
    let mut scene = Scene::answering(&[Answer::Status(500), Answer::Refused, Answer::Status(408), Answer::Status(200)]);
    scene.notifier.deliver(told("a"));
    assert_eq!(scene.delivered().await, ("a".into(), false));
    let pauses = scene.pauses();
    assert!((0.5..0.625).contains(&pauses[0]), "{pauses:?}");
    assert!((1.0..1.25).contains(&pauses[1]), "{pauses:?}");
    assert!((2.0..2.5).contains(&pauses[2]), "{pauses:?}");
    assert_eq!((pauses.len(), scene.counts("ops")), (3, [1, 3, 0, 0]));
    let seen = scene.seen();
    assert!(seen.iter().all(|other| other.body == seen[0].body && other.method == "POST"), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn agents_of_different_nodes_do_not_come_back_at_the_same_moment() {
    let mut scene = Scene::answering(&[Answer::Status(503), Answer::Status(503), Answer::Status(200)]);
    let mut pauses = BTreeSet::new();
    for node in 0..20 {
        scene.seen.lock().unwrap().clear();
        scene.notifier.deliver(Notification { node: format!("n{node}"), ..told(&format!("e{node}")) });
        scene.delivered().await;
        pauses.insert(scene.seen()[1].at.since(scene.seen()[0].at));
    }
    assert!(pauses.len() > 10, "{pauses:?}");
}

// N-01 c
#[tokio::test(start_paused = true)]
async fn a_receiver_that_asks_to_wait_is_given_that_time() {
    for value in ["3", "Sat, 11 Apr 2026 22:00:03 GMT"] {
        let mut scene = Scene::answering(&[retry_after(429, value), Answer::Status(200)]);
        scene.notifier.deliver(told("a"));
        assert_eq!(scene.delivered().await, ("a".into(), false));
        assert!((3.0..3.75).contains(&scene.pauses()[0]), "{value}: {:?}", scene.pauses());
    }
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_asks_for_hours_is_given_a_minute_each_time_and_five_minutes_in_all() {
    let mut scene = Scene::answering(&[retry_after(503, "7200")]);
    scene.notifier.deliver(told("a"));
    assert_eq!(scene.delivered().await, ("a".into(), true));
    let pauses = scene.pauses();
    assert!(pauses.len() >= 3 && pauses.iter().all(|pause| (60.0..75.0).contains(pause)), "{pauses:?}");
    let took = scene.clock.now().monotonic.since_start();
    assert!(took < Duration::from_secs(300), "{took:?}");
}

// N-01 d
#[tokio::test(start_paused = true)]
async fn a_receiver_that_is_silent_is_given_up_after_its_time_at_each_of_six_tries() {
    let mut scene = Scene::answering(&[Answer::Never]);
    scene.notifier.deliver(told("a"));
    assert_eq!(scene.delivered().await, ("a".into(), true));
    assert_eq!((scene.seen().len(), scene.counts("ops")), (6, [0, 5, 1, 0]));
    assert!((5.5..5.625).contains(&scene.pauses()[0]), "{:?}", scene.pauses());
    assert!(scene.clock.now().monotonic.since_start() < Duration::from_secs(60));
}

// N-01 e
#[tokio::test(start_paused = true)]
async fn a_receiver_that_refuses_a_notification_for_what_it_is_is_not_asked_again() {
    for status in [400, 401, 403, 404, 410, 413] {
        let mut scene = Scene::answering(&[Answer::Status(status)]);
        scene.notifier.deliver(told("a"));
        assert_eq!(scene.delivered().await, ("a".into(), true));
        assert_eq!((scene.seen().len(), scene.counts("ops")), (1, [0, 0, 1, 0]), "{status}");
    }
}

// N-02 d
#[tokio::test(start_paused = true)]
async fn a_redirect_is_followed_on_the_same_host_with_the_whole_notification_and_three_times_at_most() {
    for (answers, requests, gave_up) in [
        (vec![sent_to(301, "/new"), sent_to(308, "newer"), sent_to(307, "/newest"), Answer::Status(200)], 4, false),
        (vec![sent_to(302, "/again")], 4, true),
        (vec![sent_to(301, "https://elsewhere.test/s3cret")], 1, true),
        (vec![sent_to(301, "http://ops.test/s3cret")], 1, true),
        (vec![sent_to(301, "https://ops.test:8443/s3cret")], 1, true),
        // The answer would have to be fetched, and says nothing about the notification.
        (vec![sent_to(303, "/status"), Answer::Status(200)], 1, true),
        (vec![Answer::Status(301)], 1, true),
        (vec![sent_to(307, "https://")], 1, true),
    ] {
        let mut scene = Scene::answering(&answers);
        scene.notifier.deliver(told("a"));
        assert_eq!(scene.delivered().await, ("a".into(), gave_up));
        let seen = scene.seen();
        assert_eq!(seen.len(), requests, "{seen:?}");
        assert!(seen.iter().all(|other| other.method == "POST" && other.body == seen[0].body), "{seen:?}");
        assert_eq!(scene.counts("ops")[2], u64::from(gave_up));
    }
}

#[tokio::test(start_paused = true)]
async fn a_redirect_to_the_same_host_may_lead_to_https() {
    let mut scene = Scene::answering(&[sent_to(301, "https://ops.test/s3cret"), Answer::Status(200)]);
    std::fs::write(scene.path("ops-url"), "http://ops.test/s3cret").unwrap();
    scene.notifier.deliver(told("a"));
    assert_eq!(scene.delivered().await, ("a".into(), false));
}

#[tokio::test(start_paused = true)]
async fn a_slow_receiver_holds_up_no_other() {
    let mut scene = Scene::new(|host, _| if host == "slow.test" { Answer::Never } else { Answer::Status(200) });
    scene.notifier.configure(vec![scene.receiver("slow"), scene.receiver("ops")]);
    for id in ["a", "b", "c"] {
        scene.notifier.deliver(told(id));
    }
    scene.settle().await;
    assert_eq!(scene.seen_by("ops"), ["a", "b", "c"]);
    assert_eq!(scene.seen_by("slow"), ["a"], "one after the other");
    assert!(scene.nothing_is_delivered(), "the slow one still has to take them");
    assert_eq!(scene.delivered().await, ("a".into(), true));
}

#[tokio::test(start_paused = true)]
async fn each_receiver_is_told_what_it_wants_and_what_nobody_wants_is_done_at_once() {
    let mut scene = Scene::new(|_, _| Answer::Status(200));
    let on = |name, topics: &[Topic]| Receiver { on: topics.iter().copied().collect(), ..scene.receiver(name) };
    let receivers = vec![on("ops", &[Topic::Drain, Topic::Failed]), on("pager", &[Topic::Failed])];
    assert!(!scene.notifier.wants(Topic::Failed));
    scene.notifier.configure(receivers);
    assert_eq!(Topic::ALL.map(|topic| scene.notifier.wants(topic)), [false, true, false, true, false]);
    for (id, topic) in [("a", Topic::Released), ("b", Topic::Drain), ("c", Topic::Failed)] {
        scene.notifier.deliver(Notification { topic, ..told(id) });
        assert_eq!(scene.delivered().await, (id.into(), false));
    }
    assert_eq!((scene.seen_by("ops"), scene.seen_by("pager")), (vec!["b".into(), "c".into()], vec!["c".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn what_is_on_its_way_is_not_sent_again() {
    let mut scene = Scene::answering(&[Answer::Status(503), Answer::Status(200)]);
    for _ in 0..3 {
        scene.notifier.deliver(told("a"));
        scene.notifier.deliver(told("b"));
        scene.settle().await;
    }
    assert_eq!(scene.delivered().await, ("a".into(), false));
    // Nobody has fetched yet what became of it.
    scene.settle().await;
    scene.notifier.deliver(told("b"));
    assert_eq!(scene.delivered().await, ("b".into(), false));
    scene.settle().await;
    assert_eq!(scene.seen_by("ops"), ["a", "a", "b"]);
    assert!(scene.nothing_is_delivered());
    scene.notifier.deliver(told("b"));
    assert_eq!(scene.delivered().await, ("b".into(), false), "whoever wants to tell it once more may");
}

#[tokio::test(start_paused = true)]
async fn when_there_is_no_more_room_the_oldest_is_dropped_and_counted() {
    let mut scene = Scene::answering(&[Answer::Never]);
    let ids: Vec<String> = (0..70).map(|number| format!("n{number}")).collect();
    scene.notifier.deliver(told(&ids[0]));
    scene.settle().await;
    for id in &ids[1..] {
        scene.notifier.deliver(told(id));
    }
    // The first is under way and 64 wait, so five found no room.
    for id in &ids[1..6] {
        assert_eq!(scene.delivered().await, (id.clone(), true));
    }
    assert_eq!(scene.counts("ops"), [0, 0, 0, 5]);
    assert!(scene.nothing_is_delivered());
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_stays_keeps_its_queue_and_one_that_goes_is_given_up() {
    let mut scene =
        Scene::new(
            |host, _| if host == "ops.test" || host == "gone.test" { Answer::Never } else { Answer::Status(200) },
        );
    scene.notifier.configure(vec![scene.receiver("gone"), scene.receiver("ops")]);
    scene.notifier.deliver(told("a"));
    scene.notifier.deliver(told("b"));
    scene.settle().await;
    let moved = Receiver { url: scene.secret("moved", "https://moved.test/"), ..scene.receiver("ops") };
    scene.notifier.configure(vec![moved, scene.receiver("new")]);
    scene.notifier.deliver(told("c"));
    for (id, gave_up) in [("a", true), ("b", true), ("c", false)] {
        assert_eq!(scene.delivered().await, (id.into(), gave_up));
    }
    assert_eq!(scene.seen_by("moved"), ["a", "b", "c"]);
    assert_eq!(scene.seen_by("new"), ["c"]);
    assert_eq!((scene.counts("gone"), scene.counts("ops")), ([0, 0, 0, 2], [3, 1, 0, 0]));
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_comes_back_under_its_name_begins_anew() {
    let mut scene = Scene::answering(&[Answer::Never, Answer::Status(200)]);
    scene.notifier.deliver(told("a"));
    scene.settle().await;
    scene.notifier.configure(Vec::new());
    scene.notifier.configure(vec![scene.receiver("ops")]);
    scene.notifier.deliver(told("b"));
    assert_eq!(scene.delivered().await, ("a".into(), true));
    assert_eq!(scene.delivered().await, ("b".into(), false));
}

#[tokio::test(start_paused = true)]
async fn the_end_waits_until_everything_is_delivered() {
    let mut scene = Scene::answering(&[Answer::Status(503), Answer::Status(200)]);
    scene.notifier.deliver(told("a"));
    scene.notifier.deliver(told("b"));
    assert_eq!(scene.notifier.flush(Duration::from_secs(8)).await, 0);
    assert!(scene.clock.now().monotonic.since_start() < Duration::from_secs(1));
    assert_eq!(scene.delivered().await, ("a".into(), false));
    assert_eq!(scene.delivered().await, ("b".into(), false));
}

#[tokio::test(start_paused = true)]
async fn the_end_does_not_wait_for_a_pause_that_would_outlast_it_and_leaves_the_rest_to_another_life() {
    let mut scene = Scene::answering(&[retry_after(429, "30")]);
    scene.notifier.deliver(told("a"));
    scene.notifier.deliver(told("b"));
    scene.settle().await;
    assert_eq!(scene.notifier.flush(Duration::from_secs(8)).await, 2);
    assert!(scene.clock.now().monotonic.since_start() < Duration::from_secs(1), "there was nothing to wait for");
    assert!(scene.nothing_is_delivered(), "another life tells them again");
}

#[tokio::test(start_paused = true)]
async fn the_end_comes_at_its_time_whatever_a_receiver_does() {
    let scene = Scene::answering(&[Answer::Never]);
    scene.notifier.deliver(told("a"));
    scene.settle().await;
    assert_eq!(scene.notifier.flush(Duration::from_secs(2)).await, 1);
    let took = scene.clock.now().monotonic.since_start();
    assert!((Duration::from_secs(2)..Duration::from_millis(2100)).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_url_or_a_header_that_changes_in_its_file_is_used_from_the_next_try_on() {
    let mut scene = Scene::answering(&[Answer::Status(503), Answer::Status(200)]);
    let header = |name: &str, value| Header { name: name.into(), value };
    let headers = vec![
        header("Authorization", HeaderText::Secret(scene.secret("token", "Bearer one\n"))),
        header("X-Team", HeaderText::Plain("infra".into())),
        header("X-Folder", HeaderText::Secret(Secret::Env("CARGO_MANIFEST_DIR".into()))),
    ];
    scene.notifier.configure(vec![Receiver { headers, ..scene.receiver("ops") }]);
    scene.notifier.deliver(told("a"));
    scene.settle().await;
    std::fs::write(scene.path("ops-url"), "https://new.test/").unwrap();
    std::fs::write(scene.path("token"), "Bearer two").unwrap();
    scene.delivered().await;
    let seen = scene.seen();
    assert_eq!([&seen[0].headers["authorization"], &seen[1].headers["authorization"]], ["Bearer one", "Bearer two"]);
    assert_eq!([&*seen[0].url, &*seen[1].url], ["https://ops.test/s3cret", "https://new.test/"]);
    assert_eq!([&seen[0].headers["x-team"], &seen[0].headers["x-folder"]], ["infra", env!("CARGO_MANIFEST_DIR")]);
    assert_eq!(seen[0].headers["user-agent"], concat!("remediator/", env!("CARGO_PKG_VERSION")));
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_cannot_be_read_is_told_once_and_tried_again() {
    let log = Log::default();
    let _listening = log.listen();
    let mut scene = Scene::answering(&[Answer::Status(200)]);
    std::fs::remove_file(scene.path("ops-url")).unwrap();
    scene.notifier.deliver(told("a"));
    scene.notifier.deliver(told("b"));
    assert_eq!(scene.delivered().await, ("a".into(), true));
    std::fs::write(scene.path("ops-url"), "https://ops.test/").unwrap();
    assert_eq!(scene.delivered().await, ("b".into(), false));
    let text = log.text();
    assert_eq!(text.matches("WARN").count(), 1, "{text}");
    let expected = format!("its URL cannot be read from {}: entity not found", scene.path("ops-url").display());
    assert!(text.contains(&expected) && text.contains("Receiver ops takes notifications again"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn no_secret_is_in_a_log_a_metric_or_what_debug_prints() {
    let log = Log::default();
    let _listening = log.listen();
    let mut scene = Scene::new(|host, number| match (host, number) {
        ("ops.test", 0) => Answer::Refused,
        ("ops.test", 1) => Answer::Never,
        ("ops.test", 2) => Answer::Status(500),
        _ => sent_to(301, "https://elsewhere.test/s3cret"),
    });
    let secret = |content: &str| scene.secret(&format!("f{}", content.len()), content);
    let header = |value| vec![Header { name: "X-Token".into(), value }];
    let receivers = vec![
        scene.receiver("ops"),
        Receiver { url: secret("s3cret without scheme"), ..scene.receiver("none") },
        Receiver { url: secret("ftp://s3cret.test"), ..scene.receiver("ftp") },
        Receiver { url: secret("https://user:s3cret@users.test"), ..scene.receiver("users") },
        Receiver { headers: header(HeaderText::Secret(secret("s3cret\nand more"))), ..scene.receiver("headers") },
        Receiver { headers: header(HeaderText::Plain("s3cret\u{7f}".into())), ..scene.receiver("plain") },
        Receiver { proxy: Some(secret("http://:s3cret@:0:0")), ..scene.receiver("proxied") },
    ];
    let debug = format!("{receivers:?}");
    scene.notifier.configure(receivers);
    scene.notifier.deliver(told("a"));
    assert_eq!(scene.delivered().await, ("a".into(), true));
    let log = log.text();
    let metrics = scene.metrics.render(Duration::ZERO);
    for receiver in ["ops", "none", "ftp", "users", "headers", "plain", "proxied"] {
        assert!(log.contains(&format!("Receiver {receiver} does not take a notification")), "{receiver}: {log}");
        assert!(metrics.contains(&format!("receiver=\"{receiver}\"")), "{metrics}");
    }
    for text in [log, metrics, debug] {
        assert!(!text.contains("s3cret") && !text.contains("elsewhere"), "{text}");
    }
}

// N-02 a
#[tokio::test(start_paused = true)]
async fn the_body_of_a_template_is_valid_json_with_the_text_as_it_was() {
    let text = r#"{"text": "{{ node }}: {{ note }} ({{ event.type }})"}"#.to_owned();
    let template = Template::new(text, "application/json".into()).unwrap();
    let mut scene = Scene::new(|_, _| Answer::Status(200));
    let receivers = vec![
        Receiver { format: Format::Template(template), ..scene.receiver("own") },
        Receiver { format: Format::Slack, ..scene.receiver("slack") },
        Receiver { format: Format::Teams, ..scene.receiver("teams") },
        scene.receiver("events"),
    ];
    scene.notifier.configure(receivers);
    let event = NotifiedEvent {
        id: "e1".into(),
        event_type: "Reboot".into(),
        source: "User".into(),
        status: "Scheduled".into(),
        not_before: None,
    };
    let note = "He said \"stop\"\na\\b";
    scene.notifier.deliver(Notification { note: note.into(), event: Some(event), ..told("a") });
    scene.delivered().await;
    for Seen { url, body, headers, .. } in scene.seen() {
        let json: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert!(!body.contains("&#") && !body.contains("&quot;"), "{body}");
        let text = match url.split('.').next().unwrap() {
            "https://own" => json["text"].as_str().unwrap().to_owned(),
            "https://slack" => json["attachments"][0]["text"].as_str().unwrap().to_owned(),
            "https://events" => json["data"]["note"].as_str().unwrap().to_owned(),
            _ => {
                let lines = &json["attachments"][0]["content"]["body"];
                [1, 2].map(|line| lines[line]["inlines"][0]["text"].as_str().unwrap()).join("\n")
            }
        };
        assert!(text.contains(note), "{url}: {text}");
        assert!(headers["content-type"].to_str().unwrap().contains("json"), "{url}");
    }
}

// N-03
#[tokio::test(start_paused = true)]
async fn ten_thousand_notifications_make_no_more_series_than_ten() {
    let mut scene = Scene::answering(&[Answer::Status(200)]);
    let mut series = Vec::new();
    for number in 0..10_000 {
        scene.notifier.deliver(Notification { node: format!("n{}", number % 50), ..told(&format!("e{number}")) });
        scene.delivered().await;
        scene.seen.lock().unwrap().clear();
        if number == 10 || number == 9_999 {
            series.push(scene.metrics.render(Duration::ZERO).lines().count());
        }
    }
    assert_eq!(series[0], series[1]);
    assert_eq!(scene.counts("ops"), [10_000, 0, 0, 0]);
}

/// A server on a socket whose answers follow from the path; what it gets is kept.
async fn server(register: Arc<Mutex<Vec<(String, HeaderMap, String)>>>) -> SocketAddr {
    let answer = move |uri: Uri, headers: HeaderMap, body: String| {
        register.lock().unwrap().push((uri.to_string(), headers, body));
        let status = match uri.path() {
            "/moved/s3cret" => StatusCode::TEMPORARY_REDIRECT,
            "/away/s3cret" => StatusCode::MOVED_PERMANENTLY,
            _ => StatusCode::CREATED,
        };
        // The same server under another name.
        let port = uri.query().unwrap_or_default();
        let location = match uri.path() {
            "/away/s3cret" => format!("http://localhost:{port}/elsewhere"),
            _ => "/here/s3cret".into(),
        };
        async move { (status, [(header::LOCATION, location)]) }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(axum::serve(listener, Router::new().fallback(any(answer))).into_future());
    address
}

#[tokio::test]
async fn over_a_real_socket_redirects_are_followed_on_the_host_only_and_no_secret_is_logged() {
    let log = Log::default();
    let _listening = log.listen();
    let register: Arc<Mutex<Vec<(String, HeaderMap, String)>>> = Arc::default();
    let port = server(Arc::clone(&register)).await.port();
    let clock = Clock::system();
    let (notifier, mut deliveries, work) = notifier(clock, Arc::default());
    let _work = AbortOnDropHandle::new(tokio::spawn(work));
    let folder = tempfile::tempdir().unwrap();
    let secret = |name: &str, content: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        Secret::File(path)
    };
    let receiver = |name: &str, url: String| Receiver {
        name: name.into(),
        format: Format::CloudEvents,
        url: secret(name, url),
        headers: vec![Header {
            name: "X-Token".into(),
            value: HeaderText::Secret(secret("token", "s3cret-token".into())),
        }],
        on: Topic::ALL.into(),
        timeout: Duration::from_secs(5),
        proxy: None,
    };
    let receivers = [
        (receiver("here", format!("http://127.0.0.1:{port}/here/s3cret")), false, vec!["/here/s3cret".to_owned()]),
        (
            receiver("moved", format!("http://127.0.0.1:{port}/moved/s3cret")),
            false,
            vec!["/moved/s3cret".into(), "/here/s3cret".into()],
        ),
        (
            receiver("away", format!("http://127.0.0.1:{port}/away/s3cret?{port}")),
            true,
            vec![format!("/away/s3cret?{port}")],
        ),
        (
            Receiver {
                proxy: Some(secret("proxy", format!("http://me:s3cret@127.0.0.1:{port}"))),
                ..receiver("proxied", "http://receiver.test/s3cret".into())
            },
            false,
            vec!["http://receiver.test/s3cret".into()],
        ),
    ];
    for (receiver, gave_up, paths) in receivers {
        let name = receiver.name.clone();
        notifier.configure(vec![receiver]);
        notifier.deliver(told(&name));
        assert_eq!(deliveries.next().await, Delivered { id: name.clone(), gave_up });
        let got = std::mem::take(&mut *register.lock().unwrap());
        assert_eq!(got.iter().map(|(uri, ..)| uri.clone()).collect::<Vec<_>>(), paths, "{name}");
        for (_, headers, body) in got {
            assert_eq!(headers["x-token"], "s3cret-token");
            assert_eq!(headers["content-type"], "application/cloudevents+json; charset=utf-8");
            assert_eq!(headers.get_all("user-agent").iter().count(), 1);
            assert!(body.contains(&format!("\"id\":\"{name}\"")), "{body}");
        }
    }
    let log = log.text();
    assert!(log.contains("Receiver away does not take a notification: it answered 301"), "{log}");
    assert!(!log.contains("s3cret"), "{log}");
}

#[tokio::test]
async fn what_a_connection_says_is_put_into_words_without_the_url() {
    let open = server(Arc::default()).await.port();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = listener.local_addr().unwrap().port();
    drop(listener);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("url");
    let receiver = Receiver {
        name: "ops".into(),
        format: Format::Slack,
        url: Secret::File(path.clone()),
        headers: Vec::new(),
        on: Topic::ALL.into(),
        timeout: Duration::from_secs(5),
        proxy: None,
    };
    for (url, expected) in [
        (format!("http://127.0.0.1:{closed}/s3cret"), "it cannot be reached: connection refused"),
        (format!("https://127.0.0.1:{open}/s3cret"), "it cannot be reached: no TLS connection could be agreed upon"),
    ] {
        std::fs::write(&path, url).unwrap();
        let limit = Duration::from_secs(5);
        let error = post::post(&Transport::network(), &receiver, &told("a"), limit, told("a").at).await.unwrap_err();
        assert_eq!(error.to_string(), expected);
        assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");
    }
}
