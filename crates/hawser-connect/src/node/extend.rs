//! Making this host and the file system see a larger volume.

use std::path::{Path, PathBuf};

use hawser_core::attach::{AttachRecord, Attached, NodeMount};
use hawser_core::filesystem::FsKind;
use hawser_core::id::PublicationId;
use hawser_core::port::host::{Content, HostMount, MountSource};
use hawser_core::{ByteSize, Result};

use super::NodeHalf;
use super::error::NodeError;
use super::table::Table;

impl NodeHalf {
    pub(super) async fn extend_volume(
        &self,
        publication: &PublicationId,
        wanted: ByteSize,
    ) -> Result<ByteSize> {
        let _alone = self.gates.enter(self.registry.as_ref(), publication).await?;
        let (mut record, attached) = self.attached(publication).await?;
        // Growing writes, and a write to a frozen file system waits for its thaw.
        if record.frozen.is_some() {
            return Err(NodeError::Frozen.into());
        }
        self.verify(&record, &attached).await?;
        let connector = self.connectors.get(&record.info.protocol)?;
        let there = connector.extend(self.host.as_ref(), &record).await?;
        let Some(Attached::Block { device, size, .. }) = &mut record.attached else {
            return Ok(there);
        };
        if there < wanted {
            return Err(NodeError::TooSmall { device: device.clone(), there, wanted }.into());
        }
        let device = device.clone();
        if *size != there {
            *size = there;
            self.registry.put(&record).await?;
        }
        self.mount_missing(&mut record, &device).await?;
        if let Some((fs, target)) = growable(&record, &self.table().await?) {
            self.host.grow_filesystem(&device, fs, &target).await?;
        }
        Ok(there)
    }

    /// Brings back mounts that the record has and the host has not. A host that can grow a file system
    /// only while it is not mounted takes it off for a moment: a process that dies in that moment
    /// leaves it off, and the next one marks it as not ready. One that dies after it brought the mount
    /// back leaves the mark, which goes here, too.
    async fn mount_missing(&self, record: &mut AttachRecord, device: &Path) -> Result<()> {
        let table = self.table().await?;
        let back: Vec<usize> = table.live(record).into_iter().map(|(at, _)| at).collect();
        if back.iter().any(|at| !record.mounts[*at].ready) {
            back.iter().for_each(|at| record.mounts[*at].ready = true);
            self.registry.put(record).await?;
        }
        let is_missing = |at: &usize| table.topmost(&record.mounts[*at].target).is_none();
        let missing: Vec<usize> = (0..record.mounts.len()).filter(is_missing).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let fs = match missing.iter().all(|at| record.mounts[*at].raw) {
            true => None,
            false => self.filesystem_on(record, device, back.is_empty()).await?,
        };
        for at in missing {
            let source = match (record.mounts[at].raw, fs) {
                (true, _) => MountSource::Raw { device: device.to_owned() },
                (false, Some(fs)) => MountSource::Device { device: device.to_owned(), fs },
                (false, None) => continue,
            };
            self.put_back(record, at, source).await?;
        }
        self.registry.put(record).await
    }

    /// What is on a device, sound enough to be mounted where nothing of it is.
    async fn filesystem_on(
        &self,
        record: &AttachRecord,
        device: &Path,
        first: bool,
    ) -> Result<Option<FsKind>> {
        let Content::Filesystem { fs, .. } = self.host.probe(device).await? else {
            return Ok(None);
        };
        if first && !record.attach.read_only {
            self.host.check_filesystem(device, fs).await?;
        }
        Ok(Some(fs))
    }

    /// Makes one mount of the record again.
    async fn put_back(
        &self,
        record: &mut AttachRecord,
        at: usize,
        source: MountSource,
    ) -> Result<()> {
        let NodeMount { target, read_only, flags, .. } = record.mounts[at].clone();
        self.make_target_for(&source, &target).await?;
        if let (MountSource::Raw { device }, true) = (&source, read_only) {
            self.seal(record, device).await?;
        }
        let request = HostMount { source, target, read_only, flags };
        self.host.mount(&request).await?;
        record.mounts[at].ready = true;
        tracing::info!(volume.id = %record.volume, target = %request.target.display(),
            "mounted again");
        Ok(())
    }
}

/// A mount of ours through which the file system can be grown. One that is only mounted without the
/// right to write grows with its next writable mount; what others put on a raw volume is theirs.
fn growable(record: &AttachRecord, table: &Table<'_>) -> Option<(FsKind, PathBuf)> {
    table
        .live(record)
        .into_iter()
        .filter(|(at, entry)| !record.mounts[*at].raw && !entry.read_only())
        .find_map(|(_, entry)| Some((entry.fs_type.parse().ok()?, entry.target.clone())))
}
