//! Showing an attached volume in a folder.

use std::path::{Component, Path, PathBuf};

use hawser_core::attach::{AttachRecord, Attached, NodeMount};
use hawser_core::filesystem::FsKind;
use hawser_core::port::host::{Content, HostMount, MountEntry, MountSource};
use hawser_core::port::node::MountWork;
use hawser_core::{Change, Error, Kind, Outcome, Result};
use uuid::Uuid;

use super::NodeHalf;
use super::error::{NodeError, with_undo};
use super::{format, table};

impl NodeHalf {
    pub(super) async fn mount_volume(&self, work: &MountWork) -> Result<Change<()>> {
        check_target(&work.target)?;
        let _alone = self.gates.enter(self.registry.as_ref(), &work.publication).await?;
        let (mut record, attached) = self.attached(&work.publication).await?;
        let table = self.host.mounts().await?;
        if is_mounted(&record, work, &table)? {
            return Ok(Change::Already(()));
        }
        if !self.host.facts().await?.privileged {
            return Err(NodeError::NotPrivileged.into());
        }
        if record.attach.read_only && !work.read_only {
            let (device, what) = (attached.path().to_owned(), "a writable mount");
            return Err(NodeError::ReadOnly { device, what }.into());
        }
        if record.frozen.is_some() {
            return Err(NodeError::Frozen.into());
        }
        let first = table::all_of(&attached, &table).is_empty();
        let source = self.checked_source(&record, &attached, work.filesystem, first).await?;
        self.record_mount(&mut record, work).await?;
        if let Err(error) = self.make_mount(&mut record, work, source).await {
            return Err(self.unmake_mount(&mut record, &work.target, error).await);
        }
        let mount = entry_of(&mut record, &work.target);
        mount.ready = true;
        self.registry
            .put(&record)
            .await
            // The mount is there; the record that leads to it is, too.
            .map_err(|error| error.with_outcome(Outcome::Unknown))?;
        tracing::info!(volume.id = %record.volume, target = %work.target.display(), "mounted");
        Ok(Change::Made(()))
    }

    /// What to mount, after everything that can be checked was.
    async fn checked_source(
        &self,
        record: &AttachRecord,
        attached: &Attached,
        filesystem: Option<(FsKind, Uuid)>,
        first: bool,
    ) -> Result<MountSource> {
        match (attached, filesystem) {
            (Attached::Block { .. }, Some((fs, uuid))) => {
                let device = self.verified_device(record, attached).await?;
                let content = self.host.probe(&device).await?;
                if content == Content::Blank {
                    return Err(NodeError::NeverFormatted { device }.into());
                }
                if !format::is(&content, fs, uuid) {
                    let found = format::in_words(&content);
                    return Err(NodeError::WrongContent { device, fs, uuid, found }.into());
                }
                // Repairing writes, and a mounted file system must not be repaired from below.
                if first && !record.attach.read_only {
                    self.host.check_filesystem(&device, fs).await?;
                }
                Ok(MountSource::Device { device, fs })
            }
            (Attached::Block { device, .. }, None) => {
                Err(NodeError::RawDevice { device: device.clone() }.into())
            }
            (Attached::Directory { path }, None) => {
                self.verify(record, attached).await?;
                Ok(MountSource::Bind { path: path.clone() })
            }
            (Attached::Directory { path }, Some(_)) => {
                Err(NodeError::NoDevice { path: path.clone() }.into())
            }
            (Attached::File { path }, _) => Err(NodeError::PlainFile { path: path.clone() }.into()),
        }
    }

    /// Writes down what is about to be made: the folder, where there is none, and the mount.
    async fn record_mount(&self, record: &mut AttachRecord, work: &MountWork) -> Result<()> {
        // Whether the folder will be ours must be known before it is made: a crash in between would
        // leave a folder that nobody removes, or make one of the user's look like ours.
        let missing = match self.host.usage(&work.target).await {
            Ok(_) => false,
            Err(error) => error.kind() == Kind::NotFound,
        };
        let before = record.mounts.iter().position(|mount| mount.target == work.target);
        let before = before.map(|index| record.mounts.remove(index));
        record.mounts.push(NodeMount {
            target: work.target.clone(),
            read_only: work.read_only,
            flags: work.flags.clone(),
            ready: false,
            made_target: missing || before.is_some_and(|mount| mount.made_target),
        });
        self.registry.put(record).await
    }

    async fn make_mount(
        &self,
        record: &mut AttachRecord,
        work: &MountWork,
        source: MountSource,
    ) -> Result<()> {
        if self.host.make_target(&work.target).await?.is_made() {
            let mount = entry_of(record, &work.target);
            if !mount.made_target {
                mount.made_target = true;
                self.registry.put(record).await?;
            }
        }
        let (target, flags) = (work.target.clone(), work.flags.clone());
        let mount = HostMount { source, target, read_only: work.read_only, flags };
        self.host.mount(&mount).await?;
        // A volume restored or cloned into a larger one carries a file system of the old size.
        if let (MountSource::Device { device, fs }, false) = (&mount.source, mount.read_only) {
            self.host.grow_filesystem(device, *fs, &mount.target).await?;
        }
        Ok(())
    }

    /// Takes back what a failed mount has made, as far as it is there.
    async fn unmake_mount(&self, record: &mut AttachRecord, target: &Path, error: Error) -> Error {
        match self.take_out(record, target).await {
            Ok(()) => error.with_outcome(Outcome::RolledBack),
            Err(undo) => with_undo(error, &undo),
        }
    }

    /// Unmounts what is ours at the target, removes the folder if it was made for it, and the entry
    /// from the record. What others have mounted there stays.
    pub(super) async fn take_out(&self, record: &mut AttachRecord, target: &Path) -> Result<()> {
        /// A mount is made once; a dropped call whose mount came late makes it twice.
        const MOST: usize = 8;
        for _ in 0..MOST {
            let table = self.host.mounts().await?;
            if table::ours(record, &table, target).is_none() {
                return self.forget_mount(record, target).await;
            }
            self.host.unmount(target).await?;
        }
        Err(NodeError::MountedAgain { target: target.to_owned(), times: MOST }.into())
    }

    /// Removes a mount that is not there from the record, and the folder made for it.
    pub(super) async fn forget_mount(
        &self,
        record: &mut AttachRecord,
        target: &Path,
    ) -> Result<()> {
        let Some(index) = record.mounts.iter().position(|mount| mount.target == target) else {
            return Ok(());
        };
        if record.mounts[index].made_target {
            self.host.remove_target(target).await?;
        }
        record.mounts.remove(index);
        self.registry.put(record).await
    }
}

/// True when exactly this mount is there. One that is there with other options is refused with both.
fn is_mounted(
    record: &AttachRecord,
    work: &MountWork,
    table: &[MountEntry],
) -> Result<bool, NodeError> {
    let recorded = record.mounts.iter().find(|mount| mount.target == work.target);
    let Some(mount) = recorded.filter(|_| table::ours(record, table, &work.target).is_some())
    else {
        return Ok(false);
    };
    if mount.read_only != work.read_only || !same_flags(&mount.flags, &work.flags) {
        return Err(NodeError::MountedOtherwise {
            target: work.target.clone(),
            there: options(mount.read_only, &mount.flags),
            wanted: options(work.read_only, &work.flags),
        });
    }
    // A mount that was never answered may lack its last steps: they are made again.
    Ok(mount.ready)
}

fn entry_of<'a>(record: &'a mut AttachRecord, target: &Path) -> &'a mut NodeMount {
    let found = record.mounts.iter_mut().find(|mount| mount.target == target);
    found.expect("the caller has put the mount into the record")
}

/// Only one spelling of a path is taken, so that a target is found again by comparing.
fn check_target(target: &Path) -> Result<(), NodeError> {
    let parts: Vec<_> = target.components().collect();
    let plain = parts.iter().skip(1).all(|part| matches!(part, Component::Normal(_)));
    let rebuilt: PathBuf = parts.iter().collect();
    let bytes = target.as_os_str().as_encoded_bytes();
    let good = target.is_absolute()
        && parts.len() > 1
        && plain
        && rebuilt.as_os_str() == target.as_os_str()
        // PATH_MAX, with its terminator.
        && bytes.len() < 4096
        && !bytes.contains(&0);
    if good { Ok(()) } else { Err(NodeError::BadTarget { target: target.to_owned() }) }
}

/// The order of flags means nothing.
fn same_flags(one: &[String], other: &[String]) -> bool {
    let sorted = |flags: &[String]| {
        let mut flags = flags.to_vec();
        flags.sort();
        flags.dedup();
        flags
    };
    sorted(one) == sorted(other)
}

fn options(read_only: bool, flags: &[String]) -> String {
    let access = if read_only { "ro" } else { "rw" };
    std::iter::once(access).chain(flags.iter().map(String::as_str)).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_absolute_targets_are_taken() {
        check_target(Path::new("/mnt/data")).unwrap();
        for bad in ["", "/", "mnt", "/mnt/", "/mnt//x", "/mnt/./x", "/mnt/../x", "/mnt/x\0y"] {
            assert!(check_target(Path::new(bad)).is_err(), "{bad:?}");
        }
        assert!(check_target(Path::new(&format!("/{}", "x/".repeat(3000)))).is_err());
    }

    #[test]
    fn flags_are_compared_as_a_set() {
        let flags = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();

        assert!(same_flags(&flags("nodev,noatime"), &flags("noatime,nodev,nodev")));
        assert!(!same_flags(&flags("nodev"), &flags("noatime")));
    }
}
