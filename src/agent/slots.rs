//! Takes, renews and gives back a slot, where a policy limits how many nodes of a pool are drained at once.

use std::sync::Arc;
use std::time::Duration;

use domain::fingerprint::fingerprint;
use domain::lease::{Lease, Observations, SLOT_LASTS, SLOT_RENEWED_EVERY, SlotStep, slot};
use domain::node_plan::SlotNeed;

use super::board::Board;
use crate::clock::Clock;
use crate::cluster::lease::LeaseWrite;
use crate::cluster::{Cluster, ClusterError};

/// How often a node that waits looks for a free slot, before it is spread over the nodes by up to half as much again.
const LOOK_EVERY: Duration = Duration::from_secs(4);

pub(super) struct Slots {
    pub(super) cluster: Cluster,
    pub(super) board: Arc<Board>,
    pub(super) clock: Clock,
    pub(super) namespace: String,
    pub(super) node: String,
}

impl Slots {
    pub(super) async fn run(self) {
        let mut observations = Observations::default();
        let mut held: Option<Lease> = None;
        loop {
            let pause = match self.board.slot_need() {
                None => {
                    observations.forget();
                    let Some(lease) = held.take() else {
                        self.board.slot_need_changed().await;
                        continue;
                    };
                    self.board.hold_slot(false);
                    if let Err(error) = self.cluster.delete_lease(&self.namespace, &lease).await {
                        tracing::warn!(%error, slot = lease.name, "The slot could not be given back; it expires");
                    }
                    continue;
                }
                Some(need) => match self.get_or_keep(&need, &mut observations).await {
                    Ok(Some(lease)) => {
                        if held.is_none() {
                            tracing::info!(slot = lease.name, "This node has its turn to be drained");
                        }
                        held = Some(lease);
                        self.board.hold_slot(true);
                        SLOT_RENEWED_EVERY
                    }
                    Ok(None) => {
                        // A drain that has begun goes on; whether it has, the plan knows.
                        held = None;
                        self.board.hold_slot(false);
                        self.spread(LOOK_EVERY)
                    }
                    Err(error) => {
                        tracing::warn!(%error, "The slots of the pool could not be looked at or written; trying again");
                        self.spread(LOOK_EVERY)
                    }
                },
            };
            tokio::select! {
                biased;
                () = self.board.slot_need_changed() => {}
                () = self.clock.sleep(pause) => {}
            }
        }
    }

    async fn get_or_keep(
        &self,
        need: &SlotNeed,
        observations: &mut Observations,
    ) -> Result<Option<Lease>, ClusterError> {
        let leases = self.cluster.list_slots(&self.namespace, &need.pool).await?;
        let (name, resource_version) = match slot(need, &leases, &self.node, observations, self.clock.now().monotonic) {
            SlotStep::Wait => return Ok(None),
            SlotStep::Create(name) => (name, None),
            SlotStep::Renew(lease) | SlotStep::TakeOver(lease) => (lease.name, Some(lease.resource_version)),
        };
        let write = LeaseWrite {
            name,
            resource_version,
            holder: self.node.clone(),
            lasts: SLOT_LASTS,
            at: self.clock.now().wall,
            done: false,
            slot_of: Some(need.pool.clone()),
        };
        match self.cluster.write_lease(&self.namespace, &write).await {
            Ok(lease) => Ok(Some(lease)),
            // Another node was faster.
            Err(error) if error.is_conflict() => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn spread(&self, pause: Duration) -> Duration {
        pause + pause / 2 * u32::try_from(fingerprint(&self.node) % 100).unwrap_or_default() / 100
    }
}
