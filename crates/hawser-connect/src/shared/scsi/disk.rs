//! Disks of the SCSI layer.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hawser_core::error::Result;
use hawser_core::port::Host;
use hawser_core::port::kernel::{Files, KernelResult};

use super::address::Address;
use crate::shared::error::AttachError;
use crate::shared::users::Whole;
use crate::shared::wait::{self, Deadline};

/// How long a disk may take to go: the kernel waits for what is under way on a path that fails.
pub(crate) const REMOVAL_LIMIT: Duration = Duration::from_secs(30);

/// The folder of a SCSI device.
pub(super) fn folder(address: Address) -> PathBuf {
    PathBuf::from(format!("/sys/class/scsi_device/{address}/device"))
}

/// A SCSI device that is a disk with a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScsiDisk {
    /// Where it is.
    pub(crate) address: Address,
    /// What the kernel made of it.
    pub(crate) disk: Whole,
    /// Counts all disks that the kernel ever had: tells it from one that had its name before. Older
    /// kernels have none.
    sequence: Option<String>,
}

impl ScsiDisk {
    /// The disk at an address; `None` until the disk driver has taken it and its node is there.
    pub(crate) fn find(files: &dyn Files, address: Address) -> Result<Option<Self>> {
        let Some(name) = files.list(&folder(address).join("block"))?.into_iter().next() else {
            return Ok(None);
        };
        let disk = Whole::new(name);
        if !disk.has_node(files)? {
            return Ok(None);
        }
        let sequence = disk.attribute(files, "diskseq")?;
        Ok(Some(Self { address, disk, sequence }))
    }

    /// True when this very disk is still there.
    pub(crate) fn is_there(&self, files: &dyn Files) -> Result<bool> {
        Ok(Self::find(files, self.address)?.is_some_and(|now| now == *self))
    }

    /// The state of the device: `running`, `blocked`, `transport-offline` and so on.
    pub(crate) fn state(&self, files: &dyn Files) -> Result<String> {
        Ok(files.read_text(&folder(self.address).join("state"))?.unwrap_or_else(|| "gone".into()))
    }

    /// Its folder as a device.
    pub(super) fn folder(&self) -> PathBuf {
        folder(self.address)
    }

    /// Takes it away, whoever uses it: the caller has made sure that nobody does. A disk that went
    /// by itself is no error.
    pub(crate) async fn delete(&self, host: &dyn Host, deadline: Deadline) -> Result<()> {
        match self.is_there(host.files())? {
            true => delete_at(host, self.address, deadline).await,
            false => Ok(()),
        }
    }

    /// Lets everything that is sent to it fail, so that nothing more reaches what is behind it.
    pub(crate) async fn cut_off(&self, host: &dyn Host, deadline: Deadline) -> Result<()> {
        let (file, limit) = (self.folder().join("state"), deadline.within(REMOVAL_LIMIT).left());
        absent_is_done(host.files().write(&file, b"offline\n", limit).await).map_err(|source| {
            AttachError::kernel(format!("cutting {} off", self.disk.node.display()))(source)
        })?;
        Ok(())
    }

    /// Makes the kernel ask for names and size again.
    pub(crate) async fn rescan(&self, host: &dyn Host, deadline: Deadline) -> Result<()> {
        let file = self.folder().join("rescan");
        let limit = deadline.within(REMOVAL_LIMIT).left();
        host.files()
            .write(&file, b"1", limit)
            .await
            .map_err(AttachError::kernel(format!("rescanning {}", self.disk.node.display())))?;
        Ok(())
    }

    /// True when neither the device nor its disk nor its node is there any more; others may have
    /// their names by now.
    pub(crate) fn is_gone(&self, files: &dyn Files) -> Result<bool> {
        let sequence = self.disk.attribute(files, "diskseq")?;
        let same_disk = match &self.sequence {
            Some(ours) => sequence.as_ref() == Some(ours),
            None => self.leads_to_us(files)?,
        };
        let same_device = files.resolve(&self.folder())?.is_some() && self.has_our_disk(files)?;
        Ok(!same_disk && !same_device)
    }

    /// Without a sequence: the disk of our name stands on a device with our address.
    fn leads_to_us(&self, files: &dyn Files) -> Result<bool> {
        let device = files.resolve(&self.disk.folder().join("device"))?;
        let address = device.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
        Ok(address.is_some_and(|text| text.parse::<Address>().is_ok_and(|a| a == self.address)))
    }

    /// The device at our address has no disk (ours may be going), or the one that we know.
    fn has_our_disk(&self, files: &dyn Files) -> Result<bool> {
        match Self::find(files, self.address)? {
            None => Ok(true),
            Some(now) => Ok(now == *self),
        }
    }
}

/// Takes the device at an address away, with its disk or without one; none there is no error.
pub(crate) async fn delete_at(host: &dyn Host, address: Address, deadline: Deadline) -> Result<()> {
    let (file, limit) = (folder(address).join("delete"), deadline.within(REMOVAL_LIMIT).left());
    absent_is_done(host.files().write(&file, b"1", limit).await)
        .map_err(AttachError::kernel(format!("taking the SCSI device {address} away")))?;
    Ok(())
}

/// Waits until disks are gone.
pub(crate) async fn gone(host: &dyn Host, disks: &[ScsiDisk], deadline: Deadline) -> Result<()> {
    let mut events = host.events().subscribe();
    let limit = deadline.within(REMOVAL_LIMIT);
    let files = host.files();
    let left = async || {
        for disk in disks {
            if !disk.is_gone(files)? {
                return Ok(None);
            }
        }
        Ok(Some(()))
    };
    if wait::until(&mut *events, limit, left).await?.is_some() {
        return Ok(());
    }
    let names: Vec<_> = disks.iter().map(|disk| disk.disk.node.display().to_string()).collect();
    Err(AttachError::NotRemoved { what: names.join(", "), limit: limit.limit() }.into())
}

/// A file of a device that went meanwhile.
pub(crate) fn absent_is_done(written: KernelResult<()>) -> KernelResult<()> {
    const ENOENT: i32 = 2;
    const ENXIO: i32 = 6;
    const ENODEV: i32 = 19;
    match written {
        Err(error) if [Some(ENOENT), Some(ENXIO), Some(ENODEV)].contains(&error.errno()) => Ok(()),
        written => written,
    }
}
