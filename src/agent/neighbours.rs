//! Carries news of other machines' events to their repairs: a machine under repair may be dead, and the repairer does
//! not hear the metadata service.

use std::sync::Arc;
use std::time::Duration;

use domain::fingerprint::fingerprint;
use domain::neighbour::{Repair, news, own_repairs};
use domain::policy::Policy;
use domain::scheduled_event::{Document, VmName};

use super::board::{ApprovalWish, Board};
use crate::azure::provider_id;
use crate::clock::Clock;
use crate::cluster::{Cluster, ClusterError};

/// How often repairs are looked at while events of other machines are listed.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// Over how long the first looks of all neighbours are spread.
const SPREAD: Duration = Duration::from_secs(6);

pub(super) struct Neighbours {
    pub(super) cluster: Cluster,
    pub(super) board: Arc<Board>,
    pub(super) clock: Clock,
    pub(super) node: String,
}

impl Neighbours {
    pub(super) async fn run(self) {
        let share = u32::try_from(fingerprint(&self.node) % 100).unwrap_or_default();
        let offset = SPREAD * share / 100;
        let mut first = true;
        loop {
            let Some((vm, document)) = self.board.foreign_events() else {
                first = true;
                self.board.wish_for_own_repairs(Vec::new());
                self.board.foreign_events_changed().await;
                continue;
            };
            if std::mem::take(&mut first) {
                // All see the same document within a second.
                self.clock.sleep(offset).await;
                continue;
            }
            match self.cluster.list_repairs(provider_id::vm_name).await {
                Ok(repairs) => self.carry(&vm, &document, &repairs).await,
                Err(error) => tracing::debug!(%error, "Repairs of other machines could not be read"),
            }
            tokio::select! {
                biased;
                () = self.board.foreign_events_changed() => self.clock.sleep(offset).await,
                () = self.clock.sleep(LOOK_EVERY) => {}
            }
        }
    }

    async fn carry(&self, vm: &VmName, document: &Document, repairs: &[Repair]) {
        for news in news(document, vm, repairs, self.clock.now().wall) {
            match self.cluster.tell_repair(&news).await {
                Ok(()) => tracing::info!(
                    repair = news.repair,
                    event = %news.observed.event_id,
                    "Told the repair of its machine's {}",
                    news.observed.event_type
                ),
                // Another neighbour was faster.
                Err(error) if error.is_conflict() || error.is_not_found() => {}
                Err(error) => tracing::warn!(%error, repair = news.repair, "The repair could not be told"),
            }
        }
        let own = own_repairs(document, vm, repairs);
        let wishes = if own.is_empty() || !self.approves_own_repairs().await.unwrap_or(false) {
            Vec::new()
        } else {
            let wish = |(event, except)| ApprovalWish { event, except, drained: None, waits_for_others: true };
            own.into_iter().map(wish).collect()
        };
        self.board.wish_for_own_repairs(wishes);
    }

    /// Whether the policy for this node wants that.
    async fn approves_own_repairs(&self) -> Result<bool, ClusterError> {
        let policies = self.board.policies();
        if !policies.policies().iter().any(Policy::approves_own_repairs) {
            return Ok(false);
        }
        let node = self.cluster.get_node(&self.node).await?.view;
        Ok(policies.for_node(node.traits()).is_ok_and(Policy::approves_own_repairs))
    }
}
