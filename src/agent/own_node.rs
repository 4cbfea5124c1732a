//! What is known of the own Node, and for how long it may be believed.
//!
//! While no event concerns it and it carries no record, nothing is read and no watch is held.

use std::time::Duration;

use domain::node_plan::NodeWrite;
use domain::scheduled_event::VmName;
use domain::time::Monotonic;
use futures::stream::BoxStream;

use crate::azure::provider_id;
use crate::clock::Clock;
use crate::cluster::client::next_news;
use crate::cluster::node::{NodeNews, ReadNode};
use crate::cluster::{Cluster, ClusterError};

/// A watch that has ended sooner without a word has not worked.
const WATCH_WORKED: Duration = Duration::from_secs(5);

const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// While the node cannot be read, this is said with every so many tries.
const TELL_EVERY: u32 = 5;

/// Failures in a row, and until when to wait.
#[derive(Debug, Default)]
pub(super) struct Patience {
    failures: u32,
    until: Monotonic,
}

impl Patience {
    /// Waits longer from failure to failure; says until when.
    pub(super) fn failed(&mut self, now: Monotonic) -> Monotonic {
        let pause = Duration::from_millis(250) * 2_u32.saturating_pow(self.failures.min(8));
        self.failures = self.failures.saturating_add(1);
        self.until = now + pause.min(LONGEST_PAUSE);
        self.until
    }

    /// Whether nothing has failed since the last success.
    pub(super) fn is_first(&self) -> bool {
        self.failures == 0
    }

    pub(super) fn succeeded(&mut self) {
        *self = Self::default();
    }

    /// Until when to wait, if that is still to come.
    pub(super) fn wait(&self, now: Monotonic) -> Option<Monotonic> {
        (self.until > now).then_some(self.until)
    }
}

/// See the module.
pub(super) struct OwnNode {
    cluster: Cluster,
    clock: Clock,
    name: String,
    /// The node as it was last read or written.
    node: Option<ReadNode>,
    /// Whether it has ever been read.
    seen: bool,
    /// Whether it is certain that it carries nothing of ours. A write whose outcome is unknown makes it uncertain.
    clean: bool,
    watch: Option<BoxStream<'static, Result<NodeNews, ClusterError>>>,
    watch_began: Monotonic,
    /// Why the node could not be read, as long as that is so.
    trouble: Option<String>,
    reading: Patience,
    watching: Patience,
    provider_id_checked: bool,
}

impl OwnNode {
    pub(super) fn new(cluster: Cluster, name: String) -> Self {
        let clock = cluster.clock();
        Self {
            cluster,
            clock,
            name,
            node: None,
            seen: false,
            clean: false,
            watch: None,
            watch_began: Monotonic::default(),
            trouble: None,
            reading: Patience::default(),
            watching: Patience::default(),
            provider_id_checked: false,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is certain that nothing of ours is on the node.
    pub(super) fn is_clean(&self) -> bool {
        self.clean
    }

    /// Why the node cannot be read.
    pub(super) fn trouble(&self) -> Option<String> {
        self.trouble.as_ref().map(|trouble| format!("node {} cannot be read: {trouble}", self.name))
    }

    /// Nobody needs the node: nothing is kept that costs anything.
    pub(super) fn rest(&mut self) {
        self.trouble = None;
        self.node = None;
        self.watch = None;
    }

    /// What is known of the node counts no more; it may carry anything.
    pub(super) fn doubt(&mut self) {
        self.clean = false;
        self.node = None;
    }

    /// The node as it is, read and watched if need be; or when to try again.
    pub(super) async fn read(&mut self, concerned: bool) -> Result<ReadNode, Monotonic> {
        let now = self.clock.now().monotonic;
        if let Some(node) = self.node.as_ref().filter(|_| !self.wants_watch(concerned, now)) {
            return Ok(node.clone());
        }
        let until = match self.reading.wait(now) {
            Some(until) => until,
            None => match self.look_and_watch(concerned).await {
                Ok(()) => Monotonic::default(),
                Err(error) => {
                    let hint = if error.is_not_found() { "; is NODE_NAME or --node right?" } else { "" };
                    if self.reading.failures.is_multiple_of(TELL_EVERY) {
                        tracing::warn!(%error, node = self.name, "The node could not be read; trying again{hint}");
                    }
                    self.trouble = Some(error.to_string());
                    self.reading.failed(self.clock.now().monotonic)
                }
            },
        };
        // What is already known of the node is good enough to go on with: a write insists on the version it is for.
        self.node.clone().ok_or(until)
    }

    /// Whether a watch is needed, missing, and not to be waited for.
    fn wants_watch(&self, concerned: bool, now: Monotonic) -> bool {
        self.watch.is_none() && (concerned || !self.clean) && self.watching.wait(now).is_none()
    }

    /// When to read or watch again what could not be read or watched.
    pub(super) fn read_again(&self) -> Option<Monotonic> {
        let now = self.clock.now().monotonic;
        let watching = self.watching.wait(now).filter(|_| self.watch.is_none());
        self.reading.wait(now).into_iter().chain(watching).min()
    }

    async fn look_and_watch(&mut self, concerned: bool) -> Result<(), ClusterError> {
        let read = self.cluster.get_node(&self.name).await.inspect_err(|error| {
            if error.is_not_found() {
                self.lose();
            }
        })?;
        self.reading.succeeded();
        self.trouble = None;
        let version = read.view.resource_version.clone();
        self.know(read);
        let now = self.clock.now().monotonic;
        if self.wants_watch(concerned, now) {
            self.watch = Some(self.cluster.watch_node(&self.name, &version));
            self.watch_began = now;
        }
        Ok(())
    }

    /// Carries out a plan's write.
    pub(super) async fn write(&mut self, write: &NodeWrite) -> Result<(), ClusterError> {
        match self.cluster.write_node(&self.name, write).await {
            Ok(written) => {
                match write.marks.unschedulable {
                    Some(true) => tracing::info!(node = self.name, "Cordoned the node"),
                    Some(false) => tracing::info!(node = self.name, "Uncordoned the node"),
                    None => tracing::debug!(node = self.name, "Wrote the record"),
                }
                self.know(written);
                Ok(())
            }
            Err(error) => {
                self.doubt();
                Err(error)
            }
        }
    }

    /// Takes up the node as somebody has told of it, unless more is known already: a watch may still tell of versions before
    /// our own last write, and after one of unknown outcome only a new look tells what came of it.
    pub(super) fn take_up(&mut self, node: ReadNode) {
        let known = self.node.as_ref().map(|node| node.view.resource_version.as_str());
        if known.is_some_and(|known| !is_older(&node.view.resource_version, known)) {
            self.know(node);
        }
    }

    /// The next news of the node, or never while nobody watches it.
    pub(super) async fn next_news(&mut self) -> Option<Result<NodeNews, ClusterError>> {
        next_news(&mut self.watch).await
    }

    /// Takes up what the watch has said; `false` if the node is gone.
    pub(super) fn take(&mut self, news: Option<Result<NodeNews, ClusterError>>) -> bool {
        match news {
            Some(Ok(NodeNews::Changed(node))) => {
                self.watching.succeeded();
                self.take_up(*node);
            }
            Some(Ok(NodeNews::Alive)) => self.watching.succeeded(),
            Some(Ok(NodeNews::Deleted)) => {
                tracing::warn!(node = self.name, "The Node was deleted");
                self.lose();
                return false;
            }
            Some(Err(error)) => {
                tracing::debug!(%error, "Watch of the node ended; reading it again");
                self.watch_ended();
            }
            None => self.watch_ended(),
        }
        true
    }

    fn watch_ended(&mut self) {
        self.watch = None;
        let now = self.clock.now().monotonic;
        if now.since(self.watch_began) < WATCH_WORKED {
            self.watching.failed(now);
        }
    }

    fn know(&mut self, node: ReadNode) {
        self.seen = true;
        self.clean = node.view.is_clean();
        self.node = Some(node);
    }

    /// The node does not exist, and so carries nothing. It may not exist yet; then it is looked for until it was seen.
    fn lose(&mut self) {
        self.clean = self.seen;
        self.node = None;
        self.watch = None;
    }

    /// The node's provider id is only compared: it may be missing for minutes, and Azure's own word counts.
    pub(super) fn check_provider_id(&mut self, vm: &VmName) {
        let Some(node) = self.node.as_ref().filter(|node| !node.provider_id.is_empty()) else { return };
        if self.provider_id_checked {
            return;
        }
        self.provider_id_checked = true;
        if provider_id::vm_name(&node.provider_id).as_ref() != Some(vm) {
            tracing::warn!(
                provider_id = node.provider_id,
                %vm,
                "The node's provider id names another machine than Azure does; is NODE_NAME or --node right?"
            );
        }
    }
}

/// Whether a version is before another. Versions are numbers that grow
/// (<https://github.com/kubernetes/enhancements/tree/master/keps/sig-api-machinery/5504-comparable-resource-version>);
/// where they are not, every news counts.
fn is_older(version: &str, than: &str) -> bool {
    matches!((version.parse::<u128>(), than.parse::<u128>()), (Ok(version), Ok(than)) if version < than)
}
