//! Attachments that were changed behind their back: now and then they are compared with what the
//! driver says, and done again.

use std::collections::HashSet;
use std::time::Duration;

use hawser_api::csi::v1::ListVolumesRequest;
use hawser_api::csi::v1::controller_server::Controller;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{Attacher, Task};
use crate::csi::{Services, within};
use crate::kubernetes::error::ClusterError;
use crate::kubernetes::names::attacher_finalizer;
use crate::kubernetes::objects::{Attachment, Object};
use crate::kubernetes::office::CALL_LIMIT;

/// How often: as the sidecar does.
const EVERY: Duration = Duration::from_secs(60);

/// How many volumes are asked for at once.
const PAGE: i32 = 1000;

/// A volume and a node that may use it, as the driver calls them.
type Right = (String, String);

impl Attacher {
    pub(super) async fn repair(&self, stop: CancellationToken) {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            for driver in self.office.drivers.iter().filter(|driver| !driver.is_local()) {
                let compared = tokio::select! {
                    () = stop.cancelled() => return,
                    compared = self.compare(driver) => compared,
                };
                if let Err(error) = compared {
                    let (driver, reason) = (driver.name(), error.sentence());
                    warn!(csi.driver = driver, reason, "attachments were not compared");
                }
            }
        }
    }

    /// Compares all attachments of a driver with what it says.
    pub(super) async fn compare(&self, driver: &Services) -> Result<(), ClusterError> {
        let table = &self.office.tables.attachments;
        // Known before the driver is asked: what it says is newer.
        let known = table.all(|attachment| attachment.spec.attacher == driver.name());
        if known.is_empty() {
            return Ok(());
        }
        let given = self.given(driver).await?;
        for attachment in known {
            let Ok(right) = self.right(&attachment, driver) else { continue };
            let unchanged = |now: &Attachment| now.revision() == attachment.revision();
            if is_astray(&attachment, given.contains(&right))
                && table.get(&attachment.key()).is_some_and(|now| unchanged(&now))
            {
                let (name, (volume, node)) = (attachment.name().to_owned(), right);
                warn!(attachment = name, volume.id = volume, node.id = node, "it has drifted");
                self.astray().insert(name.clone());
                self.queue.add(Task::Attachment(name));
            }
        }
        Ok(())
    }

    /// All rights that the driver has given.
    async fn given(&self, driver: &Services) -> Result<HashSet<Right>, ClusterError> {
        let service = self.service(driver)?;
        let mut given = HashSet::new();
        let mut starting_token = String::new();
        loop {
            let request = ListVolumesRequest { max_entries: PAGE, starting_token };
            let answer = service.list_volumes(within(CALL_LIMIT, request)).await?.into_inner();
            for entry in answer.entries {
                let (Some(volume), Some(status)) = (entry.volume, entry.status) else { continue };
                let nodes = status.published_node_ids.into_iter();
                given.extend(nodes.map(|node| (volume.volume_id.clone(), node)));
            }
            starting_token = answer.next_token;
            if starting_token.is_empty() {
                return Ok(given);
            }
        }
    }

    /// The right that an attachment stands for.
    fn right(&self, attachment: &Attachment, driver: &Services) -> Result<Right, ClusterError> {
        let volume = self.volume_of(attachment)?;
        let source = super::publish::source_of(&volume, driver)?;
        Ok((source.volume_handle.clone(), self.old_node_id(attachment)?))
    }
}

/// Whether an attachment that has nothing to be done, according to its status, needs it all the same.
/// One that is not done yet is tried again anyway.
pub(super) fn is_astray(attachment: &Attachment, given: bool) -> bool {
    let attached = attachment.status.attached;
    let held = attachment.has_finalizer(&attacher_finalizer(&attachment.spec.attacher));
    match attachment.is_going() {
        false => attached && !given,
        true => !held && (attached || given),
    }
}
