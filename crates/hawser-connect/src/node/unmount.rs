//! Taking a volume out of a folder, and nothing else that may be there.

use std::path::Path;

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
        let table = self.host.mounts().await?;
        if !table::is_below(record.attached.as_ref(), &table, target) {
            // Nothing of ours is there; what others have mounted there is theirs.
            self.forget_mount(&mut record, target).await?;
            return Ok(Change::Already(()));
        }
        if let Some(top) = table::topmost(&table, target)
            && table::ours(&record, &table, target).is_none()
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
}
