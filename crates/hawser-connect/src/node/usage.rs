//! How full a volume is.

use std::path::Path;
use std::time::Duration;

use hawser_core::attach::{AttachState, Attached};
use hawser_core::id::PublicationId;
use hawser_core::port::host::FsUsage;
use hawser_core::{ByteSize, Kind, Result};

use super::NodeHalf;
use super::error::NodeError;

/// Whoever asks does so every minute, of every volume: a dead server must not keep the others
/// waiting.
const LIMIT: Duration = Duration::from_secs(4);

impl NodeHalf {
    /// Waits for no lock: whoever holds it may hang with the same server.
    pub(super) async fn usage_of(
        &self,
        publication: &PublicationId,
        target: &Path,
    ) -> Result<FsUsage> {
        let silent = || NodeError::Silent { target: target.to_owned(), limit: LIMIT };
        match tokio::time::timeout(LIMIT, self.ask_usage(publication, target)).await {
            Ok(Err(error)) if error.kind() == Kind::Timeout => Err(silent().into()),
            Ok(answer) => answer,
            Err(_) => Err(silent().into()),
        }
    }

    async fn ask_usage(&self, publication: &PublicationId, target: &Path) -> Result<FsUsage> {
        let Some(record) = self.registry.get(publication).await? else {
            return Err(NodeError::NotKnown { publication: publication.clone() }.into());
        };
        let not_there = || {
            let (publication, target) = (publication.clone(), target.to_owned());
            NodeError::NotShown { publication, target }
        };
        let mount = record.mounts.iter().find(|mount| mount.target == target && mount.ready);
        let (AttachState::Attached, Some(attached), Some(mount)) =
            (record.state, &record.attached, mount)
        else {
            return Err(not_there().into());
        };
        if !self.is_of_this_boot(&record).await?
            || self.table().await?.ours(&record, target).is_none()
        {
            return Err(not_there().into());
        }
        match attached {
            // What is on it is known to its user alone.
            Attached::Block { device, .. } if mount.raw => {
                let total = self.host.device_size(device).await?;
                let used = ByteSize::ZERO;
                Ok(FsUsage { total, available: total, used, files: 0, files_free: 0 })
            }
            Attached::Block { .. } | Attached::Directory { .. } | Attached::File { .. } => {
                self.host.usage(target).await
            }
        }
    }
}
