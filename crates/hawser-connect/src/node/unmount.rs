//! Taking a volume out of a folder, and nothing else that may be there.

use std::path::Path;

use hawser_core::attach::AttachRecord;
use hawser_core::id::PublicationId;
use hawser_core::{Change, Result};

use super::NodeHalf;
use super::error::NodeError;
use super::table;

impl NodeHalf {
    pub(super) async fn unmount_volume(
        &self,
        publication: &PublicationId,
        target: &Path,
    ) -> Result<Change<()>> {
        let _alone = self.gates.enter(self.registry.as_ref(), publication).await?;
        let Some(mut record) = self.current(publication).await? else {
            return Ok(Change::Already(()));
        };
        let table = self.table().await?;
        if !table.is_below(record.attached.as_ref(), target) {
            // Nothing of ours is there; what others have mounted there is theirs.
            self.forget_mount(&mut record, target).await?;
            return Ok(Change::Already(()));
        }
        if let Some(top) = table.topmost(target)
            && table.ours(&record, target).is_none()
        {
            let (target, found) = (target.to_owned(), table::describe(top));
            return Err(NodeError::Stranger { target, found }.into());
        }
        // The last unmount of a frozen file system would wait for a thaw that nobody can make.
        if record.frozen.is_some() {
            self.thaw_record(&mut record).await?;
        }
        self.take_out(&mut record, target).await?;
        tracing::info!(volume.id = %record.volume, target = %target.display(), "unmounted");
        Ok(Change::Made(()))
    }

    /// Unmounts what is ours at the target, removes the folder if it was made for it, and the entry
    /// from the record. What others have mounted there stays.
    pub(super) async fn take_out(&self, record: &mut AttachRecord, target: &Path) -> Result<()> {
        /// A mount is made once; a dropped call whose mount came late makes it twice.
        const MOST: usize = 8;
        for _ in 0..MOST {
            if self.table().await?.ours(record, target).is_none() {
                return self.forget_mount(record, target).await;
            }
            self.host.unmount(target).await?;
        }
        Err(NodeError::MountedAgain { target: target.to_owned(), times: MOST }.into())
    }

    /// Removes a mount that is not there from the record, and what was made for it.
    pub(super) async fn forget_mount(
        &self,
        record: &mut AttachRecord,
        target: &Path,
    ) -> Result<()> {
        let Some(index) = record.mounts.iter().position(|mount| mount.target == target) else {
            return Ok(());
        };
        let stay: Vec<_> = record.mounts.iter().filter(|mount| mount.target != target).collect();
        self.unseal(record, &stay).await?;
        if record.mounts[index].made_target {
            self.host.remove_target(target).await?;
        }
        record.mounts.remove(index);
        self.registry.put(record).await
    }
}
