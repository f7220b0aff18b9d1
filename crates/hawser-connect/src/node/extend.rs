//! Making this host and the file system see a larger volume.

use std::path::{Path, PathBuf};

use hawser_core::attach::{AttachRecord, Attached, NodeMount};
use hawser_core::filesystem::FsKind;
use hawser_core::id::PublicationId;
use hawser_core::port::host::{Content, HostMount, MountEntry, MountSource};
use hawser_core::{ByteSize, Result};

use super::NodeHalf;
use super::error::NodeError;
use super::table;

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
        let table = self.mount_missing(&mut record, &device).await?;
        if let Some((fs, target)) = growable(&record, &table) {
            self.host.grow_filesystem(&device, fs, &target).await?;
        }
        Ok(there)
    }

    /// Brings back mounts that the record has and the host has not, and answers the mount table. A
    /// host that can grow a file system only while it is not mounted takes it off for a moment: a
    /// process that dies in that moment leaves it off, and the next one marks it as not ready. One
    /// that dies after it brought the mount back leaves the mark, which goes here, too.
    async fn mount_missing(
        &self,
        record: &mut AttachRecord,
        device: &Path,
    ) -> Result<Vec<MountEntry>> {
        let table = self.host.mounts().await?;
        let is_missing = |mount: &NodeMount| table::topmost(&table, &mount.target).is_none();
        let back: Vec<usize> = table::live(record, &table).into_iter().map(|(at, _)| at).collect();
        if back.iter().any(|at| !record.mounts[*at].ready) {
            back.iter().for_each(|at| record.mounts[*at].ready = true);
            self.registry.put(record).await?;
        }
        if !record.mounts.iter().any(is_missing) {
            return Ok(table);
        }
        let Content::Filesystem { fs, .. } = self.host.probe(device).await? else {
            return Ok(table);
        };
        if table::live(record, &table).is_empty() && !record.attach.read_only {
            self.host.check_filesystem(device, fs).await?;
        }
        for mount in record.mounts.iter_mut().filter(|mount| is_missing(mount)) {
            self.host.make_target(&mount.target).await?;
            let request = HostMount {
                source: MountSource::Device { device: device.to_owned(), fs },
                target: mount.target.clone(),
                read_only: mount.read_only,
                flags: mount.flags.clone(),
            };
            self.host.mount(&request).await?;
            mount.ready = true;
            tracing::info!(volume.id = %record.volume, target = %mount.target.display(), "mounted again");
        }
        self.registry.put(record).await?;
        self.host.mounts().await
    }
}

/// A mount of ours through which the file system can be grown. One that is only mounted without the
/// right to write grows with its next writable mount; what others put on a raw volume is theirs.
fn growable(record: &AttachRecord, table: &[MountEntry]) -> Option<(FsKind, PathBuf)> {
    table::live(record, table)
        .into_iter()
        .filter(|(_, entry)| !entry.read_only())
        .find_map(|(_, entry)| Some((entry.fs_type.parse().ok()?, entry.target.clone())))
}
