//! Azure's metadata service and its scheduled events.

use std::time::Duration;

use domain::policy::Judgement;
use domain::scheduled_event::{Document, NotBefore, ScheduledEvent};
use domain::time::{Now, spoken, stamp};

use super::clock_skew::Reading;
use super::{Check, Topic};
use crate::azure::imds::{FIRST_EVENTS_LIMIT, Imds, ImdsError, Instance, LINK_LOCAL, REQUESTS_A_SECOND};
use crate::clock::Clock;

const LIMIT: Duration = Duration::from_secs(5);

/// How often a request is made at the most before its failure counts: a service that is being updated or throttles answers later.
const TRIES: u32 = 3;

/// The longest pause that is kept because the service asks for it.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// How many more requests are made at once to learn how much of the allowance is left. With the first, an agent at one a
/// second and AKS's node problem detector at one in two seconds they stay within it.
const FURTHER: u32 = 2;

/// The agent asks every second, one request at a time.
const SLOW: Duration = Duration::from_secs(1);

/// How often people are told that an answer is still waited for.
const TOLD_EVERY: Duration = Duration::from_secs(10);

/// A first answer that took this long has switched the events on.
const SWITCHED_ON: Duration = Duration::from_secs(8);

/// How the service presented itself.
pub(super) struct Introduction {
    /// Who this machine is, or the last failure.
    answer: Result<Instance, ImdsError>,
    /// How long that answer took.
    took: Duration,
    /// What its clock showed.
    pub(super) reading: Option<Reading>,
    /// The very first request was refused because there had been too many.
    throttled: bool,
    /// One of the further requests was.
    near_limit: bool,
    /// How long all of them took together.
    together: Duration,
}

impl Introduction {
    /// Who this machine is.
    pub(super) fn instance(&self) -> Option<&Instance> {
        self.answer.as_ref().ok()
    }
}

fn is_throttled(error: &ImdsError) -> bool {
    error.code() == 429
}

/// Whether the same request may be answered a little later.
fn may_pass(error: &ImdsError) -> bool {
    matches!(error.code(), 410 | 429 | 500..)
}

async fn pause_after(error: &ImdsError, clock: Clock) {
    let pause = error.retry_after().unwrap_or_default().clamp(Duration::from_secs(1), LONGEST_PAUSE);
    clock.sleep(pause).await;
}

/// Asks who this machine is, several times.
pub(super) async fn introduce(imds: &Imds, clock: Clock) -> Introduction {
    let mut throttled = false;
    let mut tries = 0;
    loop {
        tries += 1;
        let asked = clock.now();
        let answer = imds.dated_instance(LIMIT).await;
        let answered = clock.now();
        let took = answered.monotonic.since(asked.monotonic);
        let (instance, date) = match answer {
            Ok(answer) => answer,
            Err(error) => {
                throttled |= is_throttled(&error);
                if tries < TRIES && may_pass(&error) {
                    pause_after(&error, clock).await;
                    continue;
                }
                let (reading, near_limit, together) = (None, false, took);
                return Introduction { answer: Err(error), took, reading, throttled, near_limit, together };
            }
        };
        let mut near_limit = false;
        for _ in 0..FURTHER {
            near_limit |= imds.instance(LIMIT).await.is_err_and(|error| is_throttled(&error));
        }
        let together = clock.now().monotonic.since(asked.monotonic);
        let whose = "the metadata service";
        let reading = date.map(|date| Reading { whose, asked: asked.wall, answered: answered.wall, date });
        return Introduction { answer: Ok(instance), took, reading, throttled, near_limit, together };
    }
}

/// Whether the service answers, soon, and names this machine.
pub(super) fn service(introduction: &Introduction, address: &str, proxies: &[String]) -> Check {
    const TOPIC: Topic = Topic::MetadataService;
    let took = introduction.took;
    let instance = match &introduction.answer {
        Ok(instance) => instance,
        Err(error) => return Check::fail(TOPIC, error.to_string(), remedy(error)),
    };
    let place = if address == LINK_LOCAL { String::new() } else { format!(" by {address}") };
    let past = match proxies {
        [] => String::new(),
        set => format!(", past the proxy of {}", set.join(" and ")),
    };
    let found = format!("this is {}, answered in {}{place}{past}", instance.name, spoken(took));
    if took > SLOW {
        let advice = "the agent asks every second: look for load on the machine, and for a route to 169.254.169.254 that \
                      does not leave by the primary network interface";
        return Check::warn(TOPIC, found, advice);
    }
    Check::ok(TOPIC, found)
}

/// How much of the machine's allowance is left.
pub(super) fn request_limit(introduction: &Introduction) -> Check {
    const TOPIC: Topic = Topic::RequestLimit;
    let advice = "find who else on this machine asks 169.254.169.254, and how often; the agent waits longer between its \
                  requests as long as they are refused";
    let limit = format!("{REQUESTS_A_SECOND} requests a second, of all on this machine");
    if introduction.throttled {
        return Check::warn(
            TOPIC,
            format!("throttled: a first request was answered with 429 (the limit: {limit})"),
            advice,
        );
    }
    if introduction.answer.is_err() {
        return Check::skip(TOPIC, "the metadata service does not answer");
    }
    let together = format!("{} requests within {}", FURTHER + 1, spoken(introduction.together));
    if introduction.near_limit {
        return Check::warn(
            TOPIC,
            format!("near the limit: of {together} at least one was answered with 429 ({limit})"),
            advice,
        );
    }
    Check::ok(TOPIC, format!("{together} were all answered (the limit: {limit})"))
}

/// What to do about a service that gives no usable answer.
fn remedy(error: &ImdsError) -> String {
    match error {
        ImdsError::Unreachable { .. } => {
            "run on a machine of Azure, in a pod with `hostNetwork: true` (AKS's IMDS restriction shuts others out), and let \
             no firewall stop traffic to 169.254.169.254"
        }
        ImdsError::TimedOut(_) => {
            "run with `hostNetwork: true` (AKS's IMDS restriction shuts other pods out), and see that 169.254.169.254 is \
             routed through the primary network interface and its primary address"
        }
        ImdsError::Status { body, .. } if body.contains("metadata header") => {
            "something in between takes the header `Metadata: true` away: reach the service without a proxy"
        }
        ImdsError::Status { status, .. } => match status.as_u16() {
            400 => "reach the service without a proxy: it refuses requests that carry X-Forwarded-For",
            401 | 403 => "something in between answers in its place: reach it directly, with `hostNetwork: true`",
            410 => "the service is being updated, which may take 70 s: ask again",
            429 => "find who else on this machine asks 169.254.169.254, and how often",
            500.. => "ask again; if it lasts, redeploy the machine, or tell Azure's support",
            _ => "is --imds the address of Azure's metadata service?",
        },
        ImdsError::Body(_) | ImdsError::Document(_) | ImdsError::Instance(_) => {
            "is --imds the address of Azure's metadata service? If so, ask again: the agent never takes such an answer for \
             `no events`"
        }
        ImdsError::Address(_) | ImdsError::Client(_) => "give the address of the metadata service with --imds",
    }
    .to_owned()
}

/// What the service says of events.
pub(super) struct Listing {
    answer: Result<Document, ImdsError>,
    took: Duration,
}

/// Asks for the scheduled events, with the patience that the first answer needs; `waiting` is told of it.
pub(super) async fn list_events(imds: &Imds, clock: Clock, mut waiting: impl FnMut(&str)) -> Listing {
    let began = clock.now().monotonic;
    // The instance was asked for a moment ago; the allowance is for a second.
    clock.sleep(Duration::from_secs(1)).await;
    let mut tries = 0;
    loop {
        tries += 1;
        let asked = clock.now().monotonic;
        let mut answer = std::pin::pin!(imds.scheduled_events(FIRST_EVENTS_LIMIT));
        let answer = loop {
            tokio::select! {
                biased;
                answer = &mut answer => break answer,
                () = clock.sleep(TOLD_EVERY) => waiting(&format!(
                    "{}: no answer for {} yet; the first one switches the events on and may take two minutes",
                    Topic::ScheduledEvents.as_str(),
                    spoken(clock.now().monotonic.since(began)),
                )),
            }
        };
        match answer {
            Err(error) if tries < TRIES && may_pass(&error) => pause_after(&error, clock).await,
            answer => return Listing { answer, took: clock.now().monotonic.since(asked) },
        }
    }
}

/// Whether scheduled events are on, and which are listed; `judge` says what the policies make of one, if that is known.
pub(super) fn scheduled_events(
    listing: Option<Listing>,
    instance: Option<&Instance>,
    judge: impl Fn(&ScheduledEvent) -> Option<Judgement>,
    now: Now,
) -> Check {
    const TOPIC: Topic = Topic::ScheduledEvents;
    let (Some(Listing { answer, took }), Some(instance)) = (listing, instance) else {
        return Check::skip(TOPIC, "the metadata service does not answer");
    };
    let document = match answer {
        Ok(document) => document,
        Err(error @ ImdsError::TimedOut(_)) => {
            let advice = "ask again: the first answer switches the events on and is late at times; if it stays away, tell \
                          Azure's support, for nothing will announce an event of this machine";
            return Check::fail(TOPIC, error.to_string(), advice);
        }
        Err(error) => return Check::fail(TOPIC, error.to_string(), remedy(&error)),
    };
    let state = if took > SWITCHED_ON {
        format!("on, switched on by this request, which took {}", spoken(took))
    } else {
        "on".to_owned()
    };
    let own: Vec<String> = document.events_of(&instance.name).map(|event| describe(event, judge(event), now)).collect();
    let listed = match (document.events.len(), own.as_slice()) {
        (0, _) => "no event is listed".to_owned(),
        (all, []) => format!("{all} listed, none of them of this machine"),
        (all, own) => format!("{all} listed, of this machine {}: {}", own.len(), own.join("; ")),
    };
    let odd: Vec<String> = document.oddities.iter().map(|oddity| format!("; odd: {oddity}")).collect();
    Check::ok(TOPIC, format!("{state}; {listed}{}", odd.concat()))
}

fn describe(event: &ScheduledEvent, judgement: Option<Judgement>, now: Now) -> String {
    let ScheduledEvent { event_type, status, not_before, .. } = event;
    let when = match not_before {
        NotBefore::At(at) => format!(" not before {} (in {})", stamp(*at), spoken(now.until(*at))),
        NotBefore::Absent | NotBefore::Unreadable => String::new(),
    };
    let judged = judgement.map(|judgement| format!(", {judgement}")).unwrap_or_default();
    format!("{event_type} {status}{when}{judged}")
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use domain::policy::{NodeTraits, Policy, PolicySet};
    use domain::scheduled_event::{VmName, decode};
    use domain::time::Monotonic;
    use reqwest::{Request, Response};
    use tower::{BoxError, service_fn};

    use super::*;
    use crate::doctor::Verdict;

    const INSTANCE: &str = r#"{"compute":{"name":"np1_0","resourceId":"/r"}}"#;

    /// A service that answers with these, one after another, and with the last for ever. 0 stands for no answer at all.
    fn service_that_says(answers: &[(u16, &'static str)]) -> Imds {
        let answers = Arc::new(Mutex::new(answers.to_vec()));
        let transport = service_fn(move |_: Request| {
            let mut answers = answers.lock().unwrap();
            let (code, body) = if answers.len() > 1 { answers.remove(0) } else { answers[0] };
            async move {
                if code == 0 {
                    std::future::pending::<()>().await;
                }
                let answer = http::Response::builder().status(code).header("Date", "Sat, 11 Apr 2026 22:00:00 GMT");
                Ok::<Response, BoxError>(Response::from(answer.body(body)?))
            }
        });
        Imds::through(LINK_LOCAL, transport).unwrap()
    }

    fn clock() -> Clock {
        Clock::starting_at("2026-04-11T22:00:00Z".parse().unwrap())
    }

    async fn introduced(answers: &[(u16, &'static str)]) -> (Check, Check) {
        let introduction = introduce(&service_that_says(answers), clock()).await;
        (service(&introduction, LINK_LOCAL, &[]), request_limit(&introduction))
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_that_answers_is_well_and_its_clock_is_read() {
        let introduction = introduce(&service_that_says(&[(200, INSTANCE)]), clock()).await;
        let check = service(&introduction, LINK_LOCAL, &["HTTP_PROXY".to_owned()]);
        assert_eq!(
            check,
            Check::ok(Topic::MetadataService, "this is np1_0, answered in 0ms, past the proxy of HTTP_PROXY")
        );
        assert_eq!(request_limit(&introduction).verdict, Verdict::Ok);
        assert_eq!(introduction.reading.unwrap().date, "2026-04-11T22:00:00Z".parse().unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn throttling_is_told_from_being_near_the_limit_and_from_failing() {
        let (service, limit) = introduced(&[(429, ""), (200, INSTANCE)]).await;
        assert_eq!((service.verdict, limit.verdict), (Verdict::Ok, Verdict::Warn));
        assert!(limit.found.starts_with("throttled"), "{}", limit.found);
        let (service, limit) = introduced(&[(200, INSTANCE), (429, ""), (200, INSTANCE)]).await;
        assert_eq!((service.verdict, limit.verdict), (Verdict::Ok, Verdict::Warn));
        assert!(limit.found.starts_with("near the limit: of 3 requests"), "{}", limit.found);
        let (service, limit) = introduced(&[(429, "Throttle Result: Too Many Requests")]).await;
        assert_eq!((service.verdict, limit.verdict), (Verdict::Fail, Verdict::Warn));
        assert!(service.advice.unwrap().contains("who else"));
    }

    #[tokio::test(start_paused = true)]
    async fn what_passes_by_itself_is_waited_for_and_the_rest_is_answered_with_advice() {
        assert_eq!(introduced(&[(500, ""), (410, ""), (200, INSTANCE)]).await.0.verdict, Verdict::Ok);
        for (code, body, advice) in [
            (0, "", "hostNetwork"),
            (400, "Bad request: . Required metadata header not specified", "`Metadata: true`"),
            (400, "Bad request", "X-Forwarded-For"),
            (403, "", "hostNetwork"),
            (404, "", "--imds"),
            (410, "", "70 s"),
            (500, "", "ask again"),
            (200, "<html>", "--imds"),
        ] {
            let (service, limit) = introduced(&[(code, body)]).await;
            assert_eq!((service.verdict, limit.verdict), (Verdict::Fail, Verdict::Skip), "{code} {body}");
            assert!(service.advice.as_ref().unwrap().contains(advice), "{code} {body}: {service:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_answer_about_events_is_waited_for_aloud() {
        let slow = service_fn(|_: Request| async {
            tokio::time::sleep(Duration::from_secs(110)).await;
            let body = r#"{"DocumentIncarnation":1,"Events":[]}"#;
            Ok::<_, BoxError>(Response::from(http::Response::new(body)))
        });
        let mut told = Vec::new();
        let imds = Imds::through(LINK_LOCAL, slow).unwrap();
        let listing = list_events(&imds, clock(), |text| told.push(text.to_owned())).await;
        assert!(told[0].contains("two minutes"), "{told:?}");
        let check = judged(listing);
        assert_eq!(check.verdict, Verdict::Ok);
        assert!(check.found.contains("switched on by this request, which took 1m 50s"), "{}", check.found);
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_that_never_lists_events_fails() {
        let check = judged(list_events(&service_that_says(&[(0, "")]), clock(), |_| ()).await);
        assert_eq!(check.verdict, Verdict::Fail);
        assert!(check.found.contains("130s"), "{}", check.found);
    }

    fn judged(listing: Listing) -> Check {
        let policies = PolicySet::new(vec![Policy::built_in().unwrap()]).unwrap();
        let instance = Instance { name: VmName::new("np1_0"), resource_id: String::new() };
        let now = Now { wall: "2026-04-11T22:00:00Z".parse().unwrap(), monotonic: Monotonic::default() };
        let labels = std::collections::BTreeMap::new();
        let traits = NodeTraits { labels: &labels, policy: None };
        let judge = |event: &_| Some(policies.judge(traits, event, now));
        scheduled_events(Some(listing), Some(&instance), judge, now)
    }

    #[test]
    fn the_events_of_this_machine_are_told_with_what_the_policy_says() {
        let event = |id: &str, vm: &str| {
            format!(
                r#"{{"EventId":"{id}","EventType":"Redeploy","EventStatus":"Scheduled","Resources":["{vm}"],
                "NotBefore":"Sat, 11 Apr 2026 22:10:00 GMT","EventSource":"Platform"}}"#
            )
        };
        let check = |events: &str| {
            let document = decode(format!(r#"{{"Events":[{events}]}}"#).as_bytes()).unwrap();
            judged(Listing { answer: Ok(document), took: Duration::ZERO }).found
        };
        assert_eq!(check(""), "on; no event is listed");
        assert_eq!(check(&event("e1", "other")), "on; 1 listed, none of them of this machine");
        assert_eq!(
            check(&format!("{},{}", event("e1", "other"), event("e2", "NP1_0"))),
            "on; 2 listed, of this machine 1: Redeploy Scheduled not before 2026-04-11 22:10:00Z (in 10m), rule \
             default/reboot-or-move says drain"
        );
    }
}
