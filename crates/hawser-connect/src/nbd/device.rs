//! Devices of the kernel's NBD client, as sysfs shows them.

use std::path::Path;
use std::time::Duration;

use hawser_core::ByteSize;
use hawser_core::attach::Attached;
use hawser_core::error::{Error, Result};
use hawser_core::port::Host;
use hawser_core::port::kernel::Files;

use super::data::Target;
use crate::shared::error::AttachError;
use crate::shared::users::Whole;
use crate::shared::wait::{self, Deadline};

/// How long a device may take to go.
const REMOVAL: Duration = Duration::from_secs(30);

/// A device that has an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Device {
    pub(super) index: u32,
    pub(super) disk: Whole,
    /// What it was made with.
    pub(super) backend: String,
}

impl Device {
    /// The device of this number, if it has an export of a known name.
    pub(super) fn of_index(files: &dyn Files, index: u32) -> Result<Option<Self>> {
        let disk = Whole::new(format!("nbd{index}"));
        let backend = disk.attribute(files, "backend")?;
        Ok(backend.map(|backend| Self { index, disk, backend }))
    }

    /// What a caller is told about it.
    pub(super) fn describe(&self, files: &dyn Files, target: &Target) -> Result<Attached> {
        Ok(Attached::Block {
            device: self.disk.node.clone(),
            identity: Some(target.identity()),
            size: ByteSize::bytes(self.disk.size(files)?),
        })
    }

    /// True when the block layer refuses writes.
    pub(super) fn is_read_only(&self, files: &dyn Files) -> Result<bool> {
        Ok(self.disk.attribute(files, "ro")?.as_deref() == Some("1"))
    }

    /// Its logical block size.
    pub(super) fn block_size(&self, files: &dyn Files) -> Result<u64> {
        let size = self.disk.attribute(files, "queue/logical_block_size")?;
        Ok(size.and_then(|text| text.parse().ok()).unwrap_or(512).clamp(512, 4096))
    }

    /// Reads the block with this byte through the device: an answer of the server itself.
    pub(super) async fn read_block(&self, host: &dyn Host, at: u64, limit: Duration) -> Result<()> {
        let block = self.block_size(host.files())?;
        let disk = host.disks().open(&self.disk.node).await?;
        let read = disk.read(at / block * block, block as usize, limit).await;
        read.map(drop).map_err(Error::from)
    }

    /// Takes the device away and waits until the kernel has let go of it. The caller has made sure
    /// that nobody uses it.
    pub(super) async fn take_away(&self, host: &dyn Host, deadline: Deadline) -> Result<()> {
        let mut events = host.events().subscribe();
        let asked = host.nbd().detach(self.index).await;
        let deadline = deadline.within(REMOVAL);
        // Also after a refusal: it may have come too late to matter.
        let deadline = if asked.is_err() { deadline.within(Duration::ZERO) } else { deadline };
        let gone = wait::until(&mut *events, deadline, async || {
            let now = Self::of_index(host.files(), self.index)?;
            Ok(now.is_none_or(|now| now.backend != self.backend).then_some(()))
        })
        .await?;
        match (gone, asked) {
            (Some(()), _) => Ok(()),
            (None, Err(error)) => {
                let attempt = format!("disconnecting {}", self.disk.node.display());
                Err(AttachError::kernel(attempt)(error).into())
            }
            (None, Ok(())) => {
                let what = self.disk.node.display().to_string();
                Err(AttachError::NotRemoved { what, limit: deadline.limit() }.into())
            }
        }
    }
}

/// Devices that have to do with one export.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Made for this volume.
    pub(super) ours: Vec<Device>,
    /// Over the same export, for another volume.
    pub(super) others: Vec<Device>,
}

/// Looks through all devices. Those that other programs made tell no export, or another one.
pub(super) fn find(files: &dyn Files, target: &Target) -> Result<Found> {
    let backend = target.backend();
    let mut found = Found::default();
    for name in files.list(Path::new("/sys/block"))? {
        let index = name.strip_prefix("nbd").and_then(|number| number.parse().ok());
        let Some(index) = index else { continue };
        match Device::of_index(files, index)? {
            Some(device) if device.backend == backend => found.ours.push(device),
            Some(device) if target.shares_export(&device.backend) => found.others.push(device),
            Some(_) | None => {}
        }
    }
    Ok(found)
}
