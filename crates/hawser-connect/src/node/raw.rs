//! Devices that are shown as they are, in a file.
//!
//! That a mount refuses writes keeps nobody from writing to a device that is shown in it. So while a
//! device is shown to readers it has the read-only mark of the block layer, and is shown to nobody
//! else in another way: the mark goes with the last of them. Which mounts keep it is in the record,
//! so that it is taken off also by a process that did not set it.

use std::path::{Path, PathBuf};

use hawser_core::Result;
use hawser_core::attach::{AttachRecord, Attached, NodeMount};
use hawser_core::port::node::MountWork;

use super::NodeHalf;
use super::error::NodeError;
use super::record::{Unknown, check_identity, expected};
use super::table::{self, Table};

impl NodeHalf {
    /// Keeps everybody from writing to a device that is shown to readers.
    pub(super) async fn seal(&self, record: &AttachRecord, device: &Path) -> Result<()> {
        // One that was attached so refuses writes by itself, until it is detached.
        if record.attach.read_only {
            return Ok(());
        }
        Ok(self.host.disks().set_read_only(device, true).await?)
    }

    /// The same again, after whoever brought the device back may have allowed writes.
    pub(super) async fn seal_again(&self, record: &AttachRecord, device: &Path) -> Result<()> {
        match record.mounts.iter().any(|mount| seals(record, mount)) {
            true => self.seal(record, device).await,
            false => Ok(()),
        }
    }

    /// Lets the device be written to again when the mounts that stay allow it. What has the device's
    /// name and is something else by now is left alone.
    pub(super) async fn unseal(&self, record: &AttachRecord, stay: &[&NodeMount]) -> Result<()> {
        let was_sealed = record.mounts.iter().any(|mount| seals(record, mount));
        if !was_sealed || stay.iter().any(|mount| seals(record, mount)) {
            return Ok(());
        }
        let Some(Attached::Block { device, .. }) = &record.attached else { return Ok(()) };
        let Some(found) = self.lookup(record).await? else { return Ok(()) };
        let (id, path) = (found.identity(), found.path());
        let right = check_identity(expected(record), id, path, Unknown::Refused);
        if let Err(wrong) = right {
            tracing::warn!(volume.id = %record.volume, %wrong, "its read-only mark is left");
            return Ok(());
        }
        if path != device {
            return Ok(());
        }
        Ok(self.host.disks().set_read_only(device, false).await?)
    }
}

/// True when a mount is why its device refuses writes.
fn seals(record: &AttachRecord, mount: &NodeMount) -> bool {
    mount.raw && mount.read_only && !record.attach.read_only
}

/// How something is shown.
#[derive(Clone, Copy)]
struct Shown {
    raw: bool,
    read_only: bool,
}

impl Shown {
    /// Two mounts of a file system are one file system. A device below one must not be written to,
    /// nor read while that is; and no device is both writable and not.
    fn bears(self, other: Self) -> bool {
        match (self.raw, other.raw) {
            (false, false) => true,
            (true, true) => self.read_only == other.read_only,
            (true, false) | (false, true) => self.read_only && other.read_only,
        }
    }

    fn in_words(self) -> &'static str {
        match (self.raw, self.read_only) {
            (true, true) => "as a read-only device",
            (true, false) => "as a writable device",
            (false, true) => "as a read-only file system",
            (false, false) => "as a writable file system",
        }
    }
}

/// Refuses to show a device in a way that does not go with those in which it is shown elsewhere, by
/// whomever.
pub(super) fn check_beside(
    record: &AttachRecord,
    attached: &Attached,
    work: &MountWork,
    table: &Table<'_>,
) -> Result<(), NodeError> {
    let wanted = Shown { raw: work.raw, read_only: work.read_only };
    let there = table.all_of(attached).into_iter().map(|entry| {
        let raw = table::is_raw(attached, entry);
        (entry.target.clone(), Shown { raw, read_only: entry.read_only() })
    });
    // One that was taken off by hand may still keep the device from being written to.
    let recorded = record
        .mounts
        .iter()
        .filter(|mount| mount.raw)
        .map(|mount| (mount.target.clone(), Shown { raw: true, read_only: mount.read_only }));
    let clash = there
        .chain(recorded)
        .find(|(target, shown)| *target != work.target && !shown.bears(wanted));
    match clash {
        None => Ok(()),
        Some((target, shown)) => Err(beside(attached, target, shown, wanted)),
    }
}

fn beside(attached: &Attached, target: PathBuf, there: Shown, wanted: Shown) -> NodeError {
    let device = attached.path().to_owned();
    NodeError::Beside { device, target, there: there.in_words(), wanted: wanted.in_words() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_written_is_shown_in_one_way_alone() {
        let [read_device, write_device] =
            [true, false].map(|read_only| Shown { raw: true, read_only });
        let [read_files, write_files] =
            [true, false].map(|read_only| Shown { raw: false, read_only });

        for (one, other, bears) in [
            (write_device, write_device, true),
            (read_device, read_device, true),
            (read_device, write_device, false),
            (read_files, write_files, true),
            (read_files, read_device, true),
            (write_files, read_device, false),
            (write_files, write_device, false),
            (read_files, write_device, false),
        ] {
            let both = (one.bears(other), other.bears(one));
            assert_eq!(both, (bears, bears), "{} {}", one.in_words(), other.in_words());
        }
    }
}
