//! Tells Azure that an event may start before its time, once every node of the cluster that it concerns is ready for it.
//!
//! Starting an event starts it for all its machines, so the nodes agree by a Lease on who tells Azure; whoever creates it
//! does. Nothing here is remembered but for what the Lease says: a new life asks it again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use domain::approval::{ListedNode, still_here, unready};
use domain::drain::REQUEST_TIMEOUT;
use domain::drain::pod::PodName;
use domain::lease::{CLAIM_LASTS, ClaimStep, Lease, Observations, approval_name, claim};
use domain::scheduled_event::{EventId, EventStatus, ScheduledEvent};

use super::board::{ApprovalWish, Board};
use crate::azure::imds::Imds;
use crate::azure::provider_id;
use crate::clock::Clock;
use crate::cluster::lease::LeaseWrite;
use crate::cluster::{Cluster, ClusterError};
use crate::metrics::ResultLabels;

/// How often is looked whether the other nodes are ready.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// How long Azure may take to answer. Three tries fit into the time that a claim lasts.
const LIMIT: Duration = Duration::from_secs(4);

/// How long after a failed try the next one comes; with three tries a claim is not over.
const PAUSE: Duration = Duration::from_secs(1);

const MOST_TRIES: u32 = 3;

pub(super) struct Approver {
    pub(super) imds: Imds,
    pub(super) cluster: Cluster,
    pub(super) board: Arc<Board>,
    pub(super) clock: Clock,
    pub(super) namespace: String,
    pub(super) node: String,
    pub(super) own_pod: Option<PodName>,
}

/// What came of a look at one event.
enum Looked {
    /// Azure was told, by this node or another.
    Approved(&'static str),
    /// It has to wait, for this.
    Waits(String),
}

fn another_is_at_it() -> Looked {
    Looked::Waits("another node is about to tell Azure".into())
}

impl Approver {
    pub(super) async fn run(self) {
        let mut observations = Observations::default();
        let mut told: BTreeMap<EventId, String> = BTreeMap::new();
        loop {
            for event in self.board.approvals_over() {
                self.forget(&event).await;
            }
            let wishes = self.board.approval_wishes();
            told.retain(|event, _| wishes.iter().any(|wish| wish.event == *event));
            if wishes.is_empty() {
                observations.forget();
                self.board.approvals_changed().await;
                continue;
            }
            for wish in wishes {
                let event = self.board.listed_event(&wish.event).filter(|event| event.status == EventStatus::Scheduled);
                let Some(event) = event else { continue };
                let why = match self.look(&wish, &event, &mut observations).await {
                    Ok(Looked::Approved(result)) => {
                        self.board.metrics().approvals.get_or_create(&ResultLabels { result }).inc();
                        self.board.approved(event.id, self.clock.now().wall);
                        continue;
                    }
                    Ok(Looked::Waits(why)) => why,
                    Err(error) => format!("the API server does not say whether it may start: {error}"),
                };
                if told.get(&event.id) != Some(&why) {
                    tracing::info!(event = %event.id, "{} is not started early yet: {why}", event.event_type);
                    told.insert(event.id, why);
                }
            }
            tokio::select! {
                biased;
                () = self.board.approvals_changed() => {}
                () = self.clock.sleep(LOOK_EVERY) => {}
            }
        }
    }

    async fn look(
        &self,
        wish: &ApprovalWish,
        event: &ScheduledEvent,
        observations: &mut Observations,
    ) -> Result<Looked, ClusterError> {
        let name = approval_name(&event.id);
        let lease = self.cluster.get_lease(&self.namespace, &name).await?;
        let now = self.clock.now().monotonic;
        let step = claim(lease.as_ref(), &self.node, observations, now);
        // To look at all nodes is dear, and nobody has to who need not tell Azure.
        if !matches!(step, ClaimStep::Done | ClaimStep::Wait)
            && let Some(why) = self.waits_for(wish, event).await?
        {
            return Ok(Looked::Waits(why));
        }
        let held = match step {
            ClaimStep::Done => return Ok(Looked::Approved("by-another")),
            ClaimStep::Wait => return Ok(another_is_at_it()),
            // Azure is told by whoever holds the claim from now on, for as long as it lasts.
            ClaimStep::Create | ClaimStep::TakeOver | ClaimStep::Post => {
                match self.write(&name, lease.as_ref(), false).await {
                    Ok(held) => held,
                    Err(error) if error.is_conflict() => {
                        return Ok(another_is_at_it());
                    }
                    Err(error) => return Err(error),
                }
            }
        };
        if let Err(why) = self.tell_azure(wish, event).await {
            self.board.metrics().approvals.get_or_create(&ResultLabels { result: "failed" }).inc();
            return Ok(Looked::Waits(why));
        }
        tracing::info!(event = %event.id, "Told Azure that {} may start", event.event_type);
        if let Err(error) = self.write(&name, Some(&held), true).await {
            tracing::warn!(%error, "The Lease of the approval could not be written; another node may tell Azure once more");
        }
        Ok(Looked::Approved("approved"))
    }

    /// What the event has to wait for.
    async fn waits_for(&self, wish: &ApprovalWish, event: &ScheduledEvent) -> Result<Option<String>, ClusterError> {
        if wish.waits_for_others && event.resources.iter().any(|vm| *vm != wish.except) {
            let nodes: Vec<ListedNode> = self.cluster.list_nodes(provider_id::vm_name, &event.resources).await?;
            let unready = unready(event, &wish.except, &nodes, &self.board.policies(), self.clock.now());
            if let Some(first) = unready.first() {
                let more = if unready.len() > 1 { format!(" (and {} more)", unready.len() - 1) } else { String::new() };
                return Ok(Some(format!("node {}: {}{more}", first.node, first.why)));
            }
        }
        if let Some(order) = &wish.drained {
            let (pods, _) = self.cluster.list_pods(&self.node, REQUEST_TIMEOUT).await?;
            if let Some(pod) = still_here(&pods, order, self.own_pod.as_ref()).first() {
                return Ok(Some(format!("pod {pod} is on this node, although it was drained")));
            }
        }
        Ok(None)
    }

    /// The event is gone, and nobody needs its claim any more. Every node that it concerned does this; one is first.
    async fn forget(&self, event: &EventId) {
        let name = approval_name(event);
        let forgotten = match self.cluster.get_lease(&self.namespace, &name).await {
            Ok(Some(lease)) => self.cluster.delete_lease(&self.namespace, &lease).await,
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = forgotten {
            tracing::warn!(%error, lease = name, "The Lease of an approval could not be deleted; it does no harm");
        }
    }

    async fn tell_azure(&self, wish: &ApprovalWish, event: &ScheduledEvent) -> Result<(), String> {
        let mut tries = 1;
        loop {
            // The plan may have changed its mind while nodes and pods were looked at, as when somebody uncordons the node.
            let is_scheduled = |event: ScheduledEvent| event.status == EventStatus::Scheduled;
            if !self.board.approval_wishes().contains(wish)
                || !self.board.listed_event(&event.id).is_some_and(is_scheduled)
            {
                return Err("it is no longer wanted".into());
            }
            match self.imds.start(&event.id, LIMIT).await {
                Ok(()) => return Ok(()),
                Err(error) if tries < MOST_TRIES && error.code() != 400 => {
                    tracing::debug!(%error, "Azure could not be told; trying again");
                    self.clock.sleep(PAUSE.max(error.retry_after().unwrap_or_default().min(PAUSE * 2))).await;
                    tries += 1;
                }
                Err(error) => return Err(format!("Azure could not be told: {error}")),
            }
        }
    }

    async fn write(&self, name: &str, lease: Option<&Lease>, done: bool) -> Result<Lease, ClusterError> {
        let write = LeaseWrite {
            name: name.to_owned(),
            resource_version: lease.map(|lease| lease.resource_version.clone()),
            holder: self.node.clone(),
            lasts: CLAIM_LASTS,
            at: self.clock.now().wall,
            done,
            slot_of: None,
        };
        self.cluster.write_lease(&self.namespace, &write).await
    }
}
