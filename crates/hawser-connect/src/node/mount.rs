//! Showing an attached volume in a folder, or its device in a file.

use std::path::{Component, Path, PathBuf};

use hawser_core::attach::{AttachRecord, Attached, NodeMount};
use hawser_core::port::host::{Content, HostMount, MountEntry, MountSource};
use hawser_core::port::node::MountWork;
use hawser_core::{Change, Error, Kind, Outcome, Result};

use super::NodeHalf;
use super::error::{NodeError, with_undo};
use super::table::{self, Table};
use super::{format, raw};

impl NodeHalf {
    pub(super) async fn mount_volume(&self, work: &MountWork) -> Result<Change<()>> {
        check_target(&work.target)?;
        if work.raw && (work.filesystem.is_some() || work.group.is_some()) {
            return Err(NodeError::RawWithMore.into());
        }
        let _alone = self.gates.enter(self.registry.as_ref(), &work.publication).await?;
        let (mut record, attached) = self.attached(&work.publication).await?;
        let table = self.table().await?;
        if is_mounted(&record, work, &table)? {
            return self.give_again(&record, work).await;
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
        let table = self.without_spent(&mut record, work, table).await?;
        raw::check_beside(&record, &attached, work, &table)?;
        let first = table.all_of(&attached).is_empty();
        let source = self.checked_source(&record, &attached, work, first).await?;
        self.forget_otherwise(&mut record, work, &table).await?;
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

    /// Takes off a mount of ours that does not work any more, so that it is made anew.
    async fn without_spent<'a>(
        &'a self,
        record: &mut AttachRecord,
        work: &MountWork,
        table: Table<'a>,
    ) -> Result<Table<'a>> {
        let recorded = record.mounts.iter().any(|mount| mount.target == work.target);
        let spent = |entry: &MountEntry| is_spent(record, entry, work);
        if !recorded || !table.ours(record, &work.target).is_some_and(spent) {
            return Ok(table);
        }
        tracing::warn!(volume.id = %record.volume, target = %work.target.display(),
            "what is mounted there does not work any more, and is mounted again");
        self.take_out(record, &work.target).await?;
        self.table().await
    }

    /// The group of a mount that is there: its next user may be another one.
    async fn give_again(&self, record: &AttachRecord, work: &MountWork) -> Result<Change<()>> {
        match work.group.filter(|_| !work.read_only) {
            None => Ok(Change::Already(())),
            // What is changed would wait for a thaw.
            Some(_) if record.frozen.is_some() => Err(NodeError::Frozen.into()),
            Some(group) => self.host.give_to_group(&work.target, group).await,
        }
    }

    /// What to mount, after everything that can be checked was.
    async fn checked_source(
        &self,
        record: &AttachRecord,
        attached: &Attached,
        work: &MountWork,
        first: bool,
    ) -> Result<MountSource> {
        match (attached, work.filesystem) {
            (_, _) if work.raw => {
                let device = self.verified_device(record, attached).await?;
                Ok(MountSource::Raw { device })
            }
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

    /// What was shown at the target in another way, and is not any more, takes its traces along.
    async fn forget_otherwise(
        &self,
        record: &mut AttachRecord,
        work: &MountWork,
        table: &Table<'_>,
    ) -> Result<()> {
        let otherwise = |mount: &NodeMount| {
            mount.target == work.target
                && (mount.raw, mount.read_only) != (work.raw, work.read_only)
        };
        if !record.mounts.iter().any(otherwise) {
            return Ok(());
        }
        match table.topmost(&work.target) {
            None => self.forget_mount(record, &work.target).await,
            // It may still be there, below what covers it.
            Some(top) => {
                let (target, found) = (work.target.clone(), table::describe(top));
                Err(NodeError::Stranger { target, found }.into())
            }
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
            raw: work.raw,
        });
        self.registry.put(record).await
    }

    async fn make_mount(
        &self,
        record: &mut AttachRecord,
        work: &MountWork,
        source: MountSource,
    ) -> Result<()> {
        if self.make_target_for(&source, &work.target).await?.is_made() {
            let mount = entry_of(record, &work.target);
            if !mount.made_target {
                mount.made_target = true;
                self.registry.put(record).await?;
            }
        }
        if let (MountSource::Raw { device }, true) = (&source, work.read_only) {
            self.seal(record, device).await?;
        }
        let (target, flags) = (work.target.clone(), work.flags.clone());
        let mount = HostMount { source, target, read_only: work.read_only, flags };
        self.host.mount(&mount).await?;
        // A volume restored or cloned into a larger one carries a file system of the old size.
        if let (MountSource::Device { device, fs }, false) = (&mount.source, mount.read_only) {
            self.host.grow_filesystem(device, *fs, &mount.target).await?;
        }
        if let (Some(group), false) = (work.group, work.read_only) {
            self.host.give_to_group(&mount.target, group).await?;
        }
        Ok(())
    }

    /// Makes what a mount of this stands on.
    pub(super) async fn make_target_for(
        &self,
        source: &MountSource,
        target: &Path,
    ) -> Result<Change<()>> {
        match source {
            MountSource::Raw { .. } => self.host.make_target_file(target).await,
            MountSource::Device { .. } | MountSource::Bind { .. } | MountSource::Network { .. } => {
                self.host.make_target(target).await
            }
        }
    }

    /// Takes back what a failed mount has made, as far as it is there.
    async fn unmake_mount(&self, record: &mut AttachRecord, target: &Path, error: Error) -> Error {
        match self.take_out(record, target).await {
            Ok(()) => error.with_outcome(Outcome::RolledBack),
            Err(undo) => with_undo(error, &undo),
        }
    }
}

/// True when exactly this mount is there. One that is there otherwise is refused.
fn is_mounted(
    record: &AttachRecord,
    work: &MountWork,
    table: &Table<'_>,
) -> Result<bool, NodeError> {
    let recorded = record.mounts.iter().find(|mount| mount.target == work.target);
    let (Some(mount), Some(entry)) = (recorded, table.ours(record, &work.target)) else {
        return Ok(false);
    };
    let differs = [
        (mount.raw != work.raw, "whether it is shown as a device"),
        (mount.read_only != work.read_only, "the right to write"),
        (!same_flags(&mount.flags, &work.flags), "a mount option"),
    ];
    if let Some((_, what)) = differs.into_iter().find(|(differs, _)| *differs) {
        return Err(NodeError::MountedOtherwise { target: work.target.clone(), what });
    }
    // A mount that was never answered may lack its last steps: they are made again.
    Ok(mount.ready && !is_spent(record, entry, work))
}

/// True when a mount shows a device that went, or a file system that has stopped after an error, as
/// which it may also have become read-only.
fn is_spent(record: &AttachRecord, entry: &MountEntry, work: &MountWork) -> bool {
    let block = matches!(record.attached, Some(Attached::Block { .. }));
    let refuses = entry.read_only() && !work.read_only;
    entry.shows_removed() || (block && (refuses || entry.has_stopped()))
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
