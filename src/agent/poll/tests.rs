use std::sync::Mutex;

use domain::policy::PolicySet;
use domain::scheduled_event::EventId;
use jiff::Timestamp;
use reqwest::Request;
use tokio_util::task::AbortOnDropHandle;

use super::*;
use crate::metrics::Metrics;
use crate::scripted::{Answer, Log};
use crate::serve::Health;

const EMPTY: &str = r#"{"DocumentIncarnation":1,"Events":[]}"#;

const INSTANCE: &str = r#"{"compute":{"name":"vm_24"}}"#;

fn empty() -> Answer {
    Answer::Body(200, EMPTY.into())
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// When a request about events was asked and answered, and how many were under way then.
#[derive(Clone, Copy, Debug)]
struct Asked {
    at: Monotonic,
    under_way: usize,
}

/// A poll loop, once a second, whose metadata service answers by a script.
struct Scene {
    board: Arc<Board>,
    metrics: Arc<Metrics>,
    clock: Clock,
    asked: Arc<Mutex<Vec<Asked>>>,
    poll: AbortOnDropHandle<()>,
}

/// One request fewer under way as soon as it is answered or given up.
struct UnderWay(Arc<Mutex<usize>>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        *self.0.lock().unwrap() -= 1;
    }
}

impl Scene {
    /// `script` says what comes of the n-th request about events, from 0, and at what time since the start it is asked.
    fn new(script: impl Fn(usize, Duration) -> Answer + Clone + Send + Sync + 'static) -> Self {
        Self::with(|_| Answer::Body(200, INSTANCE.into()), script)
    }

    /// `instance` says what comes of a request about the machine itself.
    fn with(
        instance: impl Fn(Duration) -> Answer + Clone + Send + Sync + 'static,
        script: impl Fn(usize, Duration) -> Answer + Clone + Send + Sync + 'static,
    ) -> Self {
        let clock = Clock::starting_at("2026-04-11T22:00:00Z".parse::<Timestamp>().unwrap());
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let (register, under_way) = (Arc::clone(&asked), Arc::new(Mutex::new(0)));
        let transport = tower::service_fn(move |request: Request| {
            assert_eq!(request.headers()["metadata"], "true");
            let at = clock.now().monotonic.since_start();
            let answer = if request.url().path() == "/metadata/instance" {
                instance(at)
            } else {
                let mut register = register.lock().unwrap();
                let number = register.len();
                register.push(Asked { at: Monotonic::after_start(at), under_way: *under_way.lock().unwrap() });
                script(number, at)
            };
            *under_way.lock().unwrap() += 1;
            let guard = UnderWay(Arc::clone(&under_way));
            async move {
                let _guard = guard;
                answer.give().await
            }
        });
        let metrics = Arc::new(Metrics::default());
        let board = Arc::new(Board::new(clock, Arc::clone(&metrics), secs(1), PolicySet::default()));
        let imds = Imds::through("http://169.254.169.254", transport).unwrap();
        let poll = tokio::spawn(poll(imds, Arc::clone(&board), clock, secs(1), "node".into()));
        Self { board, metrics, clock, asked, poll: AbortOnDropHandle::new(poll) }
    }

    /// Goes on until so long after the start, looking at the probes every half second.
    async fn until(&self, end: Duration, mut look: impl FnMut(Duration, Result<(), String>)) {
        // Never at the moment of a request.
        let mut at = self.clock.now().monotonic.since_start() + Duration::from_millis(250);
        while at < end {
            self.clock.sleep_until(Monotonic::after_start(at)).await;
            // The steward is not here, and must not spoil what is said of the poll loop.
            self.board.tick(Loop::Steward);
            self.board.alive().unwrap();
            look(at, self.board.ready());
            at += Duration::from_millis(500);
        }
    }

    async fn run(&self, end: Duration) {
        self.until(end, |_, _| {}).await;
    }

    fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// The pauses between one request and the next that began within this time.
    fn pauses(&self, from: Duration, to: Duration) -> Vec<Duration> {
        let asked = self.asked();
        let within = asked.windows(2).filter(|pair| (from..to).contains(&pair[0].at.since_start()));
        within.map(|pair| pair[1].at.since(pair[0].at)).collect()
    }

    fn polls(&self, result: &'static str, code: u16) -> u64 {
        self.metrics.polls.get_or_create(&PollLabels { result, code }).get()
    }

    fn age_of_the_last_good_poll(&self) -> f64 {
        let metrics = Health::metrics(&*self.board);
        let line = metrics.lines().find(|line| line.starts_with("remediator_imds_last_good_poll_age_seconds "));
        line.unwrap_or_else(|| panic!("{metrics}")).rsplit(' ').next().unwrap().parse().unwrap()
    }
}

// A-01 a
#[tokio::test(start_paused = true)]
async fn an_error_now_and_then_costs_one_poll_and_nothing_else() {
    let rare = [10, 500, 1000, 1500];
    let busy = || Answer::Body(503, r#"{"error":"busy"}"#.into());
    let scene = Scene::new(move |number, _| if rare.contains(&number) { busy() } else { empty() });
    scene.until(secs(3600), |at, ready| assert!(ready.is_ok() || at < secs(1), "at {at:?}: {ready:?}")).await;
    let asked = scene.asked();
    for number in rare {
        let pause = asked[number + 1].at.since(asked[number].at);
        assert!(pause <= secs(2), "{pause:?} after poll {number}");
    }
    assert_eq!((scene.polls("status", 503), scene.polls("ok", 200)), (4, asked.len() as u64 - 4));
    assert!(asked.len() > 3590, "{} polls in an hour", asked.len());
}

// A-02, N-04 b
#[tokio::test(start_paused = true)]
async fn while_azure_is_away_it_is_asked_at_least_every_ten_seconds_and_only_readiness_tells() {
    let (gone, back) = (secs(60), secs(660));
    let scene = Scene::new(move |_, at| if (gone..back).contains(&at) { Answer::Refused } else { empty() });
    scene
        .until(secs(700), |at, ready| {
            if (secs(2)..gone).contains(&at) || at > back + secs(10) {
                assert_eq!(ready, Ok(()), "at {at:?}");
            } else if (gone + secs(20)..back).contains(&at) {
                let why = ready.unwrap_err();
                assert!(why.contains("no good answer from the metadata service for"), "at {at:?}: {why}");
            }
        })
        .await;
    let pauses = scene.pauses(gone + secs(30), back);
    assert!(pauses.len() > 40 && pauses.iter().all(|pause| *pause <= secs(10)), "{pauses:?}");
    let different: BTreeSet<Duration> = pauses.iter().copied().collect();
    assert!(different.len() > pauses.len() / 2, "the pauses are spread: {pauses:?}");
}

// A-03 a
#[tokio::test(start_paused = true)]
async fn the_first_answer_may_take_almost_two_minutes() {
    let slow = Answer::After(secs(110), Box::new(empty()));
    let scene = Scene::new(move |number, _| if number == 0 { slow.clone() } else { empty() });
    scene.until(secs(130), |at, ready| assert_eq!(ready.is_ok(), at > secs(110), "at {at:?}: {ready:?}")).await;
    assert_eq!(scene.polls("timeout", 0), 0);
    assert!(scene.asked().iter().all(|asked| asked.under_way == 0), "never two at once: {:?}", scene.asked());
    assert_eq!(scene.pauses(secs(0), secs(1)), [secs(110)], "the next question comes with the answer");
}

// A-03 b
#[tokio::test(start_paused = true)]
async fn a_late_answer_is_used_and_a_silent_request_is_given_up_after_five_seconds() {
    let late = |millis| Answer::After(Duration::from_millis(millis), Box::new(empty()));
    let answers = [empty(), late(1500), late(4000), Answer::Never];
    let scene = Scene::new(move |number, _| answers.get(number).cloned().unwrap_or_else(empty));
    scene.run(secs(30)).await;
    assert_eq!(scene.polls("timeout", 0), 1);
    assert_eq!(scene.polls("ok", 200) + 1, scene.asked().len() as u64, "all others were used");
    assert!(scene.asked().iter().all(|asked| asked.under_way == 0), "never two at once: {:?}", scene.asked());
    let pauses = scene.pauses(secs(0), secs(30));
    assert_eq!(pauses[1..3], [Duration::from_millis(1500), secs(4)]);
    assert!((secs(5)..=secs(7)).contains(&pauses[3]), "{pauses:?}");
}

// A-04
#[tokio::test(start_paused = true)]
async fn each_answer_that_is_no_list_is_one_failed_poll_and_a_throttled_machine_waits_as_long_as_it_is_told() {
    let text = |status, body: &str| Answer::Body(status, body.into());
    let bad = [
        text(200, ""),
        text(200, ""),
        text(200, ""),
        Answer::With(429, "retry-after", "7".into()),
        text(410, ""),
        text(404, ""),
        text(500, r#"{"error":"x"}"#),
        text(400, r#"{"error":"Bad request. api-version is invalid or was not specified in the request."}"#),
        text(200, r#"{"DocumentIncarnation":5,"Eve"#),
        text(200, "<html><body>busy</body></html>"),
    ];
    let count = bad.len();
    let event = r#"{"EventId":"e1","EventType":"Reboot","EventStatus":"Started","Resources":["vm_24"],"NotBefore":""}"#;
    let listed = format!(r#"{{"DocumentIncarnation":1,"Events":[{event}]}}"#);
    let good = move || Answer::Body(200, listed.clone());
    let scene = Scene::new(move |number, _| bad.get(number.wrapping_sub(3)).cloned().unwrap_or_else(&good));
    scene
        .until(secs(20), |at, _| {
            let gone = scene.board.sightings().is_gone(&EventId::new("e1"));
            assert!(!gone || at < secs(3), "gone at {at:?}");
        })
        .await;
    let age = scene.age_of_the_last_good_poll();
    assert!((16.0..=20.0).contains(&age), "the third poll came after two seconds, and since then {age} s have passed");
    scene
        .until(secs(150), |at, _| {
            assert!(!scene.board.sightings().is_gone(&EventId::new("e1")), "gone at {at:?}");
        })
        .await;
    let pauses = scene.pauses(secs(0), secs(150));
    let during = &pauses[3..3 + count];
    assert!(during.iter().all(|pause| *pause <= secs(10)), "{during:?}");
    assert!(during[3] >= secs(7), "{during:?}");
    assert_eq!(scene.polls("body", 0), 5);
    for status in [429, 410, 404, 500, 400] {
        assert_eq!(scene.polls("status", status), 1, "{status}");
    }
    assert!(scene.age_of_the_last_good_poll() <= 1.0);
}

// A-07
#[tokio::test(start_paused = true)]
async fn an_odd_entry_is_told_once_for_as_long_as_it_is_listed() {
    let log = Log::default();
    let _listening = log.listen();
    let odd = r#"{"DocumentIncarnation":"7","Events":[
        {"EventId":"a","EventType":"SpotRebalanceRecommendation","EventStatus":"Scheduled","Resources":["vm_24"]},
        {"EventType":"Reboot","EventStatus":"Scheduled","Resources":["vm_24"]},
        {"EventId":"b","EventType":"Reboot","EventStatus":"Scheduled","Resources":null}]}"#;
    let scene = Scene::new(move |_, _| Answer::Body(200, odd.into()));
    scene.run(secs(300)).await;
    assert_eq!(scene.polls("ok", 200), 300);
    assert_eq!(log.count("Odd entry in the list of scheduled events"), 3, "{}", log.text());
}

// A-12 b
#[tokio::test(start_paused = true)]
async fn a_service_that_was_never_reached_is_told_once_a_minute_with_what_the_pod_needs() {
    for trouble in [Answer::Refused, Answer::Never] {
        let log = Log::default();
        let listening = log.listen();
        let script = trouble.clone();
        let instance = move |at| if at < secs(600) { script.clone() } else { Answer::Body(200, INSTANCE.into()) };
        let scene = Scene::with(instance, |_, _| empty());
        scene.until(secs(599), |at, ready| assert!(ready.is_err(), "ready at {at:?}")).await;
        let told = log.count("WARN");
        assert!((9..=10).contains(&told), "{trouble:?}: told {told} times in ten minutes");
        assert_eq!(log.count("the pod needs `hostNetwork: true`"), told);
        let failed = scene.polls("unreachable", 0) + scene.polls("timeout", 0);
        assert!(failed > 40, "{failed} failed polls are counted");
        let why = scene.board.ready().unwrap_err();
        assert!(why.contains("hostNetwork: true"), "{why}");
        scene.run(secs(620)).await;
        assert_eq!(scene.board.ready(), Ok(()), "it works without a restart");
        drop(listening);
    }
}

// N-04 a
#[tokio::test(start_paused = true)]
async fn a_poll_loop_that_stands_still_is_noticed_within_two_minutes() {
    let scene = Scene::new(|_, _| empty());
    scene.run(secs(30)).await;
    let Scene { board, clock, poll, .. } = scene;
    drop(poll);
    clock.sleep(secs(120)).await;
    board.tick(Loop::Steward);
    let why = board.alive().unwrap_err();
    assert!(why.starts_with("the poll loop has not ticked for"), "{why}");
}

// N-04 c
#[tokio::test(start_paused = true)]
async fn a_drain_keeps_the_process_alive_for_as_long_as_it_goes_on_and_no_longer() {
    let scene = Scene::new(|_, _| empty());
    for _ in 0..14 * 12 {
        scene.board.drain_ticked(Some(scene.clock.now().monotonic));
        scene.run(scene.clock.now().monotonic.since_start() + secs(5)).await;
    }
    scene.clock.sleep(secs(60)).await;
    scene.board.tick(Loop::Steward);
    assert!(scene.board.alive().unwrap_err().starts_with("the drain has not ticked for"));
    scene.board.drain_ticked(None);
    assert_eq!(scene.board.alive(), Ok(()));
}
