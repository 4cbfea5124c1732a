//! Carries out a drain: sends what [`domain::drain::Drain`] asks for and tells it what came back.
//!
//! No decision is taken here. The task may be killed at any await: what has been done stands in the API server, and the
//! next drain starts from a fresh list.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::drain::answer::Answer;
use domain::drain::pod::{Pod, PodName, PodUid};
use domain::drain::{Drain, Order, Outcome, REQUEST_TIMEOUT, Report, Request};
use domain::policy::Profile;
use domain::time::Monotonic;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, FuturesUnordered, StreamExt};
use jiff::Timestamp;
use tokio::sync::Notify;

use crate::cluster::client::next_news;
use crate::cluster::pod::PodNews;
use crate::cluster::recorder::{Recorder, Subject, Tale};
use crate::cluster::{Cluster, ClusterError};
use crate::metrics::Metrics;

/// For how many pods of a drain an Event is written; all of them are in the log.
const MOST_PODS_TOLD: usize = 50;

/// How often a drain shows that it is alive.
const TICK: Duration = Duration::from_secs(5);

/// Gives a running drain its orders, and hears from it how it goes.
#[derive(Clone)]
pub struct Orders {
    /// The latest counts, and none stops the drain.
    latest: Arc<Mutex<Option<Order>>>,
    changed: Arc<Notify>,
    progress: Arc<Mutex<Progress>>,
}

/// How a running drain goes.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// When it last showed that it is alive.
    pub ticked: Monotonic,
    /// The pods that have held it up for some time, and why.
    pub held_up: Vec<(PodName, String)>,
}

impl Orders {
    /// The first order.
    pub fn new(order: Order, now: Monotonic) -> Self {
        let progress = Progress { ticked: now, held_up: Vec::new() };
        Self {
            latest: Arc::new(Mutex::new(Some(order))),
            changed: Arc::new(Notify::new()),
            progress: Arc::new(Mutex::new(progress)),
        }
    }

    /// When the drain has to be done, unless it was stopped.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.latest().map(|order| order.deadline)
    }

    /// How the drain goes.
    pub fn progress(&self) -> Progress {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the order, if it is another.
    pub fn give(&self, order: Order) {
        self.replace(Some(order));
    }

    /// Asks for nothing more. Evictions that are under way must be waited for (see [`Ended`]): one that breaks off in the
    /// middle may keep its disruption budget used up for two minutes.
    pub fn stop(&self) {
        self.replace(None);
    }

    fn replace(&self, order: Option<Order>) {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if *latest != order {
            *latest = order;
            self.changed.notify_one();
        }
    }

    fn latest(&self) -> Option<Order> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What a drain works with.
#[derive(Clone)]
pub struct Tools {
    /// The API server.
    pub cluster: Cluster,
    /// Where it tells.
    pub recorder: Recorder,
    /// Where it counts.
    pub metrics: Arc<Metrics>,
    /// The pod that this process runs in.
    pub own_pod: Option<PodName>,
}

enum Done {
    Listed(Result<(Vec<Pod>, String), ClusterError>),
    Watching(Result<BoxStream<'static, Result<PodNews, ClusterError>>, ClusterError>),
    Answered(PodUid, Answer),
    Looked(PodUid, Result<Option<Pod>, ClusterError>),
}

enum Happened {
    Ordered,
    Done(Done),
    News(Option<Result<PodNews, ClusterError>>),
    Waited,
}

/// How a drain's task ended.
pub struct Ended {
    /// How the drain ended, and how it was done at the end; `None` if it was stopped.
    pub over: Option<(Outcome, Profile)>,
    /// What is under way, to be waited for beside everything else.
    pub under_way: BoxFuture<'static, ()>,
}

/// Drains a node until it is empty or the deadline has come, or until it is stopped.
pub async fn drain(tools: Tools, node: String, orders: Orders) -> Ended {
    let clock = tools.cluster.clock();
    let Some(order) = orders.latest() else { return Ended { over: None, under_way: Box::pin(async {}) } };
    let mut drain = Drain::new(node.clone(), tools.own_pod.clone(), order, clock.now());
    let mut asking: FuturesUnordered<BoxFuture<'static, Done>> = FuturesUnordered::new();
    let mut looking: FuturesUnordered<BoxFuture<'static, Done>> = FuturesUnordered::new();
    let mut watch: Option<BoxStream<'static, Result<PodNews, ClusterError>>> = None;
    let mut pods_told = 0;
    let over = loop {
        let step = drain.step(clock.now());
        for report in step.reports {
            tell(&tools, report, &mut pods_told);
        }
        tools.metrics.blocked_pods.set(i64::try_from(drain.blocked()).unwrap_or(i64::MAX));
        tools.metrics.remaining_pods.set(i64::try_from(drain.remaining()).unwrap_or(i64::MAX));
        let now = clock.now();
        *orders.progress.lock().unwrap_or_else(PoisonError::into_inner) =
            Progress { ticked: now.monotonic, held_up: drain.held_up(now) };
        if let Some(outcome) = step.outcome {
            break Some((outcome, drain.profile().clone()));
        }
        for request in step.requests {
            let under_way = match request {
                Request::Evict(_) | Request::Delete(_) => &mut asking,
                Request::List | Request::Look(_) => &mut looking,
            };
            under_way.push(send(tools.cluster.clone(), node.clone(), request, drain.patience(now)));
        }
        let happened = tokio::select! {
            biased;
            () = orders.changed.notified() => Happened::Ordered,
            Some(done) = asking.next() => Happened::Done(done),
            Some(done) = looking.next() => Happened::Done(done),
            news = next_news(&mut watch) => Happened::News(news),
            () = clock.sleep_until(step.wake.min(now.monotonic + TICK)) => Happened::Waited,
        };
        let now = clock.now();
        match happened {
            Happened::Waited => {}
            Happened::Ordered => {
                let Some(order) = orders.latest() else { break None };
                drain.reorder(order, now);
            }
            Happened::Done(Done::Answered(uid, answer)) => drain.answered(&uid, &answer, now),
            Happened::Done(Done::Looked(uid, Ok(found))) => drain.looked(&uid, found, now),
            Happened::Done(Done::Looked(uid, Err(_))) => drain.look_failed(&uid, now),
            Happened::Done(Done::Listed(Ok((pods, version)))) => {
                drain.listed(pods, now);
                // The old watch may be mute; a new one goes on from this list.
                watch = None;
                looking.push(open_watch(tools.cluster.clone(), node.clone(), version));
            }
            Happened::Done(Done::Listed(Err(error))) => {
                tracing::warn!(%error, "Pods of the node could not be listed; trying again");
                drain.list_failed(now);
            }
            Happened::Done(Done::Watching(Ok(opened))) => watch = Some(opened),
            Happened::News(Some(Ok(PodNews::Changed(pod)))) => drain.observed(*pod, now),
            Happened::News(Some(Ok(PodNews::Gone(uid)))) => drain.vanished(&uid, now),
            Happened::News(Some(Ok(PodNews::Alive))) => drain.heard(now),
            Happened::News(None) => {
                watch = None;
                drain.watch_lost(now);
            }
            Happened::Done(Done::Watching(Err(error))) | Happened::News(Some(Err(error))) => {
                tracing::debug!(%error, "Watch of the node's pods ended; listing again");
                watch = None;
                drain.watch_lost(now);
            }
        }
    };
    let under_way = Box::pin(async move {
        while let Some(done) = asking.next().await {
            if let Done::Answered(uid, answer) = done {
                drain.answered(&uid, &answer, clock.now());
            }
        }
        for report in drain.take_reports() {
            tell(&tools, report, &mut pods_told);
        }
    });
    Ended { over, under_way }
}

fn send(cluster: Cluster, node: String, request: Request, patience: Duration) -> BoxFuture<'static, Done> {
    Box::pin(async move {
        match request {
            Request::List => Done::Listed(cluster.list_pods(&node, patience).await),
            Request::Evict(target) => Done::Answered(target.uid.clone(), cluster.evict(&target).await),
            Request::Delete(target) => Done::Answered(target.uid.clone(), cluster.delete_pod(&target).await),
            Request::Look(target) => {
                let found = cluster.get_pod(&target.name, target.timeout).await;
                Done::Looked(target.uid, found)
            }
        }
    })
}

fn open_watch(cluster: Cluster, node: String, from: String) -> BoxFuture<'static, Done> {
    Box::pin(async move { Done::Watching(cluster.watch_pods(&node, &from, REQUEST_TIMEOUT).await) })
}

fn tell(tools: &Tools, report: Report, pods_told: &mut usize) {
    let (pod, uid, reason, warning, note) = match report {
        Report::Evicted { pod, uid, grace } => {
            let note =
                format!("Evicted with {} s of grace: the node's machine has a scheduled event.", grace.as_secs());
            (pod, uid, "Evicted", false, note)
        }
        Report::Deleted { pod, uid, grace, why } => {
            (pod, uid, "Evicted", true, format!("Deleted with {} s of grace: {why}.", grace.as_secs()))
        }
        Report::Blocked { pod, uid, by } => (pod, uid, "FailedToEvict", true, format!("Not evicted yet: {by}.")),
        Report::Kept { pod, uid, why } => (pod, uid, "FailedToEvict", true, format!("Not evicted: {why}.")),
    };
    if warning {
        tracing::warn!(%pod, "{note}");
    } else {
        tracing::info!(%pod, "{note}");
    }
    if *pods_told < MOST_PODS_TOLD {
        *pods_told += 1;
        let at = tools.cluster.clock().now().wall;
        let key = format!("{reason}/{note}");
        let reason = reason.to_owned();
        tools.recorder.tell(Tale { about: Subject::Pod(pod, uid), key, reason, warning, note, at });
    }
}
