//! Loop devices that carry our mark against the records.

use std::path::Path;

use hawser_core::Result;
use hawser_core::attach::{AttachRecord, AttachState};
use hawser_core::doctor::{Finding, FindingCode};
use hawser_core::error::Kind;
use hawser_core::id::VolumeId;
use hawser_core::port::host::{LoopDevice, MountEntry};

use super::super::NodeHalf;
use super::super::locks::volume_lock;
use super::{finding, repaired};

/// How the kernel tells a backing file that has no name any more.
const DELETED: &str = " (deleted)";

impl NodeHalf {
    pub(super) async fn survey_loops(&self, fix: bool) -> Result<Vec<Finding>> {
        let facts = self.host.facts().await?;
        let loops = match self.host.loop_devices().await {
            Ok(loops) => loops,
            // Without root there are no loop devices of ours.
            Err(error)
                if !facts.privileged
                    && matches!(error.kind(), Kind::Denied | Kind::Unsupported) =>
            {
                return Ok(Vec::new());
            }
            Err(error) => return Err(error),
        };
        let mut findings = Vec::new();
        for device in &loops {
            if let Some(volume) = marked(device) {
                findings.extend(self.survey_loop(device, &volume, &facts.boot_id, fix).await?);
            }
        }
        Ok(findings)
    }

    async fn survey_loop(
        &self,
        device: &LoopDevice,
        volume: &VolumeId,
        boot_id: &str,
        fix: bool,
    ) -> Result<Vec<Finding>> {
        // While this is held nobody writes an intent for the volume; a record goes only after its
        // device. So a device that is there after the records were read, and is in none, is stray.
        let _volume = self.registry.lock(&volume_lock(volume)).await?;
        let registered = self.registry.list().await?;
        if !self.host.loop_devices().await?.contains(device) {
            return Ok(Vec::new());
        }
        if registered.records.iter().any(|record| names(record, device, volume, boot_id)) {
            return Ok(backing_gone(device, volume).into_iter().collect());
        }
        let table = self.host.mounts().await?;
        let mounted: Vec<_> = mounts_of(device, &table).collect();
        let found = stray(device, volume);
        if !mounted.is_empty() || !registered.unreadable.is_empty() {
            let mounts = mounted.into_iter().map(|entry| unrecorded(entry, device, volume));
            return Ok(std::iter::once(found).chain(mounts).collect());
        }
        let result = match fix {
            true => Some(self.host.detach_loop(device, false).await.map(|_| ())),
            false => None,
        };
        Ok(vec![repaired(found, result)])
    }
}

/// The volume in the device's mark; devices of others have none and are never looked at.
fn marked(device: &LoopDevice) -> Option<VolumeId> {
    device.mark.as_ref()?.parse().ok()
}

/// True when the record may be the reason why the device is there. One that is not fully attached
/// may have made any device of its volume.
fn names(record: &AttachRecord, device: &LoopDevice, volume: &VolumeId, boot_id: &str) -> bool {
    let named = record.attached.as_ref().is_none_or(|attached| attached.path() == device.device);
    record.volume == *volume
        && record.boot_id == boot_id
        && (named || record.state != AttachState::Attached)
}

fn mounts_of<'a>(
    device: &'a LoopDevice,
    table: &'a [MountEntry],
) -> impl Iterator<Item = &'a MountEntry> {
    let node = &device.device;
    table.iter().filter(move |entry| Path::new(&entry.source) == node || entry.binds(node, table))
}

fn is_deleted(device: &LoopDevice) -> bool {
    device.backing_file.as_os_str().as_encoded_bytes().ends_with(DELETED.as_bytes())
}

fn stray(device: &LoopDevice, volume: &VolumeId) -> Finding {
    let gone = if is_deleted(device) {
        "; its file was deleted, and its space comes back only when the device goes"
    } else {
        ""
    };
    finding(
        FindingCode::LoopWithoutRecord,
        device.device.display(),
        format!(
            "the device carries the mark of volume {volume} and no attachment record names it: its record was lost{gone}"
        ),
        format!(
            "unmount it where it is mounted, then `losetup -d {}`; `--fix` does that when nothing is mounted from it and every record can be read",
            device.device.display()
        ),
    )
}

fn backing_gone(device: &LoopDevice, volume: &VolumeId) -> Option<Finding> {
    is_deleted(device).then(|| {
        finding(
            FindingCode::RecordWithoutStorage,
            device.device.display(),
            format!(
                "volume {volume} is attached, and its file {} was deleted below it: the data is there only until the device goes",
                device.backing_file.display()
            ),
            "copy the data elsewhere now, then unmount and detach the volume; `--fix` does not do this",
        )
    })
}

fn unrecorded(entry: &MountEntry, device: &LoopDevice, volume: &VolumeId) -> Finding {
    finding(
        FindingCode::MountWithoutRecord,
        entry.target.display(),
        format!(
            "{} of volume {volume} is mounted here, and no attachment record names the device",
            device.device.display()
        ),
        format!(
            "`umount {}` when nobody needs it, then run doctor again; `--fix` does not do this",
            entry.target.display()
        ),
    )
}
