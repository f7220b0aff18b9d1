//! Whether an attachment works, from the record down to the file system.

use hawser_core::Result;
use hawser_core::attach::{AttachRecord, AttachState, Attached, Health, NodeMount};
use hawser_core::id::PublicationId;
use hawser_core::port::host::MountEntry;

use super::NodeHalf;
use super::error::NodeError;
use super::record::in_words;

impl NodeHalf {
    /// Waits for no lock: a call that hangs is one of the things to be told.
    pub(super) async fn check_health(&self, publication: &PublicationId) -> Result<Health> {
        let Some(record) = self.registry.get(publication).await? else {
            return Err(NodeError::NotKnown { publication: publication.clone() }.into());
        };
        if !self.is_of_this_boot(&record).await? {
            return Ok(Health::bad(
                "the host has restarted since the volume was attached: attach it again",
            ));
        }
        let (AttachState::Attached, Some(attached)) = (record.state, &record.attached) else {
            return Ok(Health::bad(in_words(record.state)));
        };
        match self.find_fault(&record, attached).await {
            Ok(None) => Ok(Health::good()),
            Ok(Some(fault)) => Ok(Health::bad(fault)),
            Err(error) => Ok(Health::bad(error.sentence())),
        }
    }

    async fn find_fault(
        &self,
        record: &AttachRecord,
        attached: &Attached,
    ) -> Result<Option<String>> {
        self.verify(record, attached).await?;
        let connector = self.connectors.get(&record.info.protocol)?;
        let health = connector.health(self.host.as_ref(), record).await?;
        if !health.healthy {
            return Ok(Some(health.message));
        }
        let table = self.table().await?;
        for mount in record.mounts.iter().filter(|mount| mount.ready) {
            let entry = table.ours(record, &mount.target);
            if let Some(fault) = mount_fault(mount, entry) {
                return Ok(Some(fault));
            }
            if !mount.raw {
                self.host.usage(&mount.target).await?;
            }
        }
        Ok(None)
    }
}

fn mount_fault(mount: &NodeMount, entry: Option<&MountEntry>) -> Option<String> {
    let target = &mount.target;
    match entry {
        None => Some(format!("the volume is recorded on {target:?} and is not mounted there")),
        Some(entry) if entry.shows_removed() => Some(format!(
            "{target:?} shows a device or folder that was removed since: unmount and mount again"
        )),
        Some(entry) if entry.has_stopped() => Some(format!(
            "the file system on {target:?} has stopped after an error: look at the kernel's log, unmount it everywhere and mount again"
        )),
        Some(entry) if entry.read_only() && !mount.read_only => Some(format!(
            "{target:?} has become read-only, as a file system does after an error: look at the kernel's log, unmount and mount again"
        )),
        Some(_) => None,
    }
}
