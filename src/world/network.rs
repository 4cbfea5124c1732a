//! What lies between an agent and those whom it speaks to: nothing, or what a seed makes of it.
//!
//! An agent that is killed is killed at an await. What matters to the outside are its awaits on one of its two lines, before a
//! request leaves or before an answer arrives, so a death is planned as "at the n-th crossing": the request is never sent, or it
//! is carried out and nobody hears of it.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use domain::time::Monotonic;
use futures::StreamExt;
use futures::future::{BoxFuture, FutureExt};
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use tokio::sync::Notify;
use tower::{BoxError, Service, ServiceExt};

use super::api_server::ApiServer;
use super::api_server::store::Actor;
use super::scenario::Partition;
use crate::clock::Clock;

/// What requests to the API server meet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weather {
    /// How many of a hundred go wrong.
    pub faults: u8,
    /// How long one takes at the most.
    pub latency: Duration,
}

/// The line before an API server that takes only so many requests a second.
#[derive(Clone, Debug)]
pub struct WaitingLine {
    clock: Clock,
    gap: Duration,
    /// When the next request may pass.
    next: Arc<Mutex<Monotonic>>,
}

impl WaitingLine {
    /// A line through which `per_second` requests pass; all if it is 0.
    pub fn new(clock: Clock, per_second: u32) -> Self {
        let gap = Duration::from_secs(1).checked_div(per_second).unwrap_or_default();
        Self { clock, gap, next: Arc::new(Mutex::new(clock.now().monotonic)) }
    }

    async fn pass(&self) {
        let turn = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            let turn = self.clock.now().monotonic.max(*next);
            *next = turn + self.gap;
            turn
        };
        self.clock.sleep_until(turn).await;
    }
}

/// A request to the metadata service, or the answer to it.
#[derive(Clone, Debug)]
pub enum Exchange {
    /// It arrives.
    Asked {
        /// Whether it tells Azure something, instead of asking.
        tells: bool,
        /// Its body.
        body: Bytes,
    },
    /// It has been answered, and the answer has come through.
    Answered {
        /// As above.
        tells: bool,
        /// The status.
        status: StatusCode,
        /// The body of the answer.
        body: Bytes,
    },
}

/// Looks on at what a machine asks the metadata service about scheduled events.
pub type Witness = Arc<dyn Fn(Exchange) + Send + Sync>;

/// The path under which events are listed.
const EVENTS: &str = "/metadata/scheduledevents";

/// The lines of one machine. Clones are handles on the same lines.
#[derive(Clone)]
pub struct Lines {
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
    killed: Arc<Notify>,
    waiting_line: WaitingLine,
}

struct State {
    dice: fastrand::Rng,
    weather: Weather,
    /// The machine has power.
    up: bool,
    /// Nothing moves on the machine.
    frozen: bool,
    /// The API server answers nobody.
    api_away: bool,
    /// Whom this machine does not reach.
    partition: Option<Partition>,
    /// How many crossings the agent has left, if it is to die.
    dies_after: Option<u32>,
}

impl State {
    fn reaches_azure(&self) -> bool {
        !matches!(self.partition, Some(Partition::Azure | Partition::Both))
    }

    fn reaches_api_server(&self) -> bool {
        !self.api_away && !matches!(self.partition, Some(Partition::ApiServer | Partition::Both))
    }
}

/// The connection was lost.
#[derive(Debug, thiserror::Error)]
#[error("connection reset by peer")]
struct Reset;

/// What becomes of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Arrives,
    /// Never reaches the server.
    IsLost,
    /// Is carried out, but its answer is lost.
    LosesItsAnswer,
    /// Is carried out, but nobody ever answers.
    HangsAfterwards,
    /// Is turned away.
    IsRefused(StatusCode),
    /// Arrives, but what it watches breaks off after a while.
    BreaksOff(Duration),
    /// Arrives, but what it watches falls silent after a while.
    FallsSilent(Duration),
}

impl Lines {
    /// Lines on which the seed decides. All machines wait in one line for the API server.
    pub fn new(seed: u64, weather: Weather, waiting_line: WaitingLine) -> Self {
        let dice = fastrand::Rng::with_seed(seed);
        let state =
            State { dice, weather, up: true, frozen: false, api_away: false, partition: None, dies_after: None };
        Self { state: Arc::new(Mutex::new(state)), changed: Arc::default(), killed: Arc::default(), waiting_line }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Plain assignments only: a panic elsewhere cannot leave it half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The machine loses its power, and the agent its life; or it has power again.
    pub fn power(&self, up: bool) {
        self.state().up = up;
        self.changed.notify_waiters();
        if !up {
            self.killed.notify_one();
        }
    }

    /// Waits until the machine has power and moves.
    pub async fn alive(&self) {
        self.until(|state| state.up && !state.frozen).await;
    }

    async fn until(&self, is_so: impl Fn(&State) -> bool) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // From here on no change is missed, even one that comes before the wait below.
            changed.as_mut().enable();
            if is_so(&self.state()) {
                return;
            }
            changed.await;
        }
    }

    /// Draws the pause between two lives of an agent.
    pub fn pause(&self) -> Duration {
        Duration::from_millis(self.state().dice.u64(500..8000))
    }

    /// Nothing goes wrong any more.
    pub fn calm(&self) {
        let mut state = self.state();
        state.weather = Weather::default();
        state.dies_after = None;
        drop(state);
        self.cut_off(false);
        self.part(None);
    }

    /// The machine stands still, or goes on.
    pub fn freeze(&self, frozen: bool) {
        self.state().frozen = frozen;
        self.changed.notify_waiters();
    }

    /// The API server answers nobody, or answers again.
    pub fn cut_off(&self, away: bool) {
        self.state().api_away = away;
        self.changed.notify_waiters();
    }

    /// The machine does not reach somebody, or reaches all again.
    pub fn part(&self, partition: Option<Partition>) {
        self.state().partition = partition;
        self.changed.notify_waiters();
    }

    /// The agent dies at one of its next crossings.
    pub fn kill_soon(&self) {
        let mut state = self.state();
        state.dies_after = Some(state.dice.u32(..30));
    }

    /// A new life of the agent begins; what was to end the last one does not end this one.
    pub fn born(&self) {
        self.state().dies_after = None;
        // A permit may be left from a death that came when there was no life.
        let _ = self.killed.notified().now_or_never();
    }

    /// Waits until the agent has to die.
    pub async fn killed(&self) {
        self.killed.notified().await;
    }

    /// A request leaves, or an answer arrives.
    async fn cross(&self) {
        let dead = {
            let mut state = self.state();
            match &mut state.dies_after {
                Some(0) => true,
                Some(left) => {
                    *left -= 1;
                    false
                }
                None => false,
            }
        };
        if dead {
            self.killed.notify_one();
            std::future::pending::<()>().await;
        }
        self.until(|state| !state.frozen).await;
    }

    fn draw(&self, watches: bool) -> (Duration, Duration, Fate) {
        let mut state = self.state();
        if !state.reaches_api_server() {
            return (Duration::ZERO, Duration::ZERO, Fate::IsLost);
        }
        let Weather { faults, latency } = state.weather;
        let mut share = || {
            let millis = u64::try_from(latency.as_millis()).unwrap_or_default();
            Duration::from_millis(if millis == 0 { 0 } else { state.dice.u64(0..=millis / 2) })
        };
        let (there, back) = (share(), share());
        if state.dice.u8(..100) >= faults {
            return (there, back, Fate::Arrives);
        }
        let while_open = Duration::from_millis(state.dice.u64(..45_000));
        let fate = match state.dice.u8(..6) {
            0..=2 if watches => Fate::BreaksOff(while_open),
            3 | 4 if watches => Fate::FallsSilent(while_open),
            0 => Fate::IsLost,
            1 => Fate::LosesItsAnswer,
            2 => Fate::HangsAfterwards,
            3 => Fate::IsRefused(StatusCode::INTERNAL_SERVER_ERROR),
            4 => Fate::IsRefused(StatusCode::SERVICE_UNAVAILABLE),
            _ => Fate::IsRefused(StatusCode::TOO_MANY_REQUESTS),
        };
        (there, back, fate)
    }

    /// How an agent on this machine reaches the API server.
    pub fn to_api_server(
        &self,
        server: &ApiServer,
        actor: Actor,
    ) -> impl Service<Request<kube::client::Body>, Response = Response<Body>, Error = BoxError, Future: Send>
    + Clone
    + Send
    + 'static {
        let (lines, server) = (self.clone(), server.service(actor));
        tower::service_fn(
            move |request: Request<kube::client::Body>| -> BoxFuture<'static, Result<Response<Body>, BoxError>> {
                let (lines, server) = (lines.clone(), server.clone());
                Box::pin(async move {
                    lines.cross().await;
                    let watches = request.uri().query().is_some_and(|query| query.contains("watch="));
                    let (there, back, fate) = lines.draw(watches);
                    tokio::time::sleep(there).await;
                    lines.waiting_line.pass().await;
                    let answer = match fate {
                        Fate::IsLost => return Err(Reset.into()),
                        Fate::IsRefused(code) => turned_away(code),
                        Fate::Arrives => whole(server.oneshot(request).await),
                        Fate::BreaksOff(after) => whole(server.oneshot(request).await).map(|body| cut(body, after)),
                        Fate::FallsSilent(after) => whole(server.oneshot(request).await).map(|body| muted(body, after)),
                        Fate::LosesItsAnswer => {
                            drop(server.oneshot(request).await);
                            return Err(Reset.into());
                        }
                        Fate::HangsAfterwards => {
                            let kept = server.oneshot(request).await;
                            std::future::pending::<()>().await;
                            whole(kept)
                        }
                    };
                    tokio::time::sleep(back).await;
                    lines.cross().await;
                    Ok(if watches { answer.map(|body| while_connected(body, lines)) } else { answer })
                })
            },
        )
    }

    /// How an agent on this machine reaches the metadata service.
    pub fn to_metadata_service(
        &self,
        service: Router,
        witness: Witness,
    ) -> impl Service<reqwest::Request, Response = reqwest::Response, Error = BoxError, Future: Send>
    + Clone
    + Send
    + Sync
    + 'static {
        let lines = self.clone();
        tower::service_fn(move |request: reqwest::Request| -> BoxFuture<'static, Result<reqwest::Response, BoxError>> {
            let (lines, service, witness) = (lines.clone(), service.clone(), Arc::clone(&witness));
            Box::pin(async move {
                lines.cross().await;
                if !lines.state().reaches_azure() {
                    return Err(Reset.into());
                }
                let about_events = request.url().path() == EVENTS;
                let tells = request.method() == Method::POST;
                if about_events {
                    let said = request.body().and_then(reqwest::Body::as_bytes).unwrap_or_default();
                    witness(Exchange::Asked { tells, body: Bytes::copy_from_slice(said) });
                }
                let request: Request<reqwest::Body> = request.try_into()?;
                let (head, body) = whole(service.oneshot(request.map(Body::new)).await).into_parts();
                let body = body.collect().await?.to_bytes();
                lines.cross().await;
                if !lines.state().reaches_azure() {
                    return Err(Reset.into());
                }
                if about_events {
                    witness(Exchange::Answered { tells, status: head.status, body: body.clone() });
                }
                Ok(Response::from_parts(head, body).into())
            })
        })
    }
}

fn whole(answer: Result<Response<Body>, Infallible>) -> Response<Body> {
    match answer {
        Ok(answer) => answer,
        Err(never) => match never {},
    }
}

/// An answer that goes on, such as a watch, breaks off when the machine loses its power or the server is not reached.
fn while_connected(body: Body, lines: Lines) -> Body {
    let lost = async move { lines.until(|state| !state.up || !state.reaches_api_server()).await };
    Body::from_stream(body.into_data_stream().take_until(Box::pin(lost)))
}

fn cut(body: Body, after: Duration) -> Body {
    Body::from_stream(body.into_data_stream().take_until(tokio::time::sleep(after)))
}

fn muted(body: Body, after: Duration) -> Body {
    let heard = body.into_data_stream().take_until(tokio::time::sleep(after));
    Body::from_stream(heard.chain(futures::stream::pending()))
}

/// A server that is overloaded or has lost its store answers in plain text, not with a `Status`.
fn turned_away(code: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::from(Bytes::from_static(b"please try again later")));
    *response.status_mut() = code;
    response
}
