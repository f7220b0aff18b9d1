//! LOCAL: an image file, a logical volume, a folder or a device that is on this host already.
//!
//! An image gets a loop device, marked with the volume's id; it is found again by image and mark,
//! also after a crash, a restart and a lost record. Folders and devices are used as they are. A
//! logical volume is activated where it is not, and deactivated again only if it was activated here.
//!
//! Data, one of:
//! - `{"path": …, "kind": "file" | "directory" | "device", "volume_id": …, "sector_size": …}`;
//! - `{"file_path": …, "logical_block_size": …, "volume_id": …}`, an image too; `direct_io` false,
//!   `offset` and `size_limit` are refused by name;
//! - `{"vg_name": …, "lv_name": …, "activate": true, "exclusive": false}`; `exclusive` matters in
//!   groups that several hosts share;
//! - os-brick's `{"device_path": …}`.
//!
//! `access_mode` `ro` asks for a device that refuses writes.
//!
//! Needs loop devices for images (any kernel since 5.8, or the `loop` module), and `lvm2` for
//! logical volumes (2.03; 2.02.158 was the first that reports in JSON). Follows os-brick 7
//! `connectors/local.py` and `local_dev/lvm.py`, and what `losetup` 2.38 does with `LOOP_CONFIGURE`.
//!
//! # Identity
//!
//! `image` and `folder`: the volume's id. `lvm`: `GROUP-UUID/VOLUME-UUID`; the device is found by
//! the uuid that device mapper has of it, never by a name or a link.
//!
//! # What LVM does behind one's back
//!
//! Where a guest made a group of its own on an attached volume, this host's LVM may activate that
//! too. Such a device above makes a detach fail as busy and is never taken away here; keep LVM off
//! attached volumes with a devices file (`lvmdevices`) or `global_filter` in `lvm.conf`.

mod data;
mod error;
mod image;
mod look;
mod lvm;

use async_trait::async_trait;
use hawser_core::attach::{Attach, AttachRecord, Attached, Detach, Health};
use hawser_core::connection::{ConnectionInfo, Data, HINTS};
use hawser_core::error::Result;
use hawser_core::port::connector::{
    Abilities, ConnectorInfo, Maturity, Need, Platform, Proof, Proofs,
};
use hawser_core::port::{Connector, Host};
use hawser_core::{ByteSize, Change, Kind};

use data::{Form, Target};
use error::LocalError;
use image::Image;
use look::Found;

use crate::shared::wait::Deadline;

/// What is on this host already; keeps nothing.
pub struct Local;

static INFO: ConnectorInfo = ConnectorInfo {
    protocols: &["LOCAL"],
    maturity: Maturity::Stable,
    note: "images over loop devices, logical volumes, folders and devices of this host; images and \
           logical volumes need root, logical volumes lvm2",
    platforms: &[Platform::X86, Platform::S390, Platform::Ppc64, Platform::All],
    abilities: Abilities { extend: true, multipath: None, encryption: true, reservation: false },
    proofs: Proofs::of(Proof::Kernel("vm_local")).encryption(Proof::Kernel("vm_layers")),
    own: &[],
    needs: &[Need::Root, Need::Module("loop")],
};

impl Target {
    /// The image, where it is one; `read_only` is what the caller asks for.
    fn image(&self, read_only: bool) -> Option<Image<'_>> {
        match &self.form {
            Form::Image { mark, sector_size } => Some(Image {
                path: &self.path,
                mark,
                sector_size: *sector_size,
                read_only: read_only || self.read_only,
            }),
            Form::Folder { .. } | Form::Device | Form::Logical { .. } => None,
        }
    }

    /// The logical volume, where it is one.
    fn logical(&self, read_only: bool) -> Option<lvm::Volume<'_>> {
        match &self.form {
            Form::Logical { name, activate, exclusive, expected } => Some(lvm::Volume {
                name,
                activate: *activate,
                exclusive: *exclusive,
                read_only: read_only || self.read_only,
                expected: expected.clone(),
            }),
            Form::Image { .. } | Form::Folder { .. } | Form::Device => None,
        }
    }

    /// Nothing is mounted for a folder, so an option that is not refused would be lost.
    fn check_flags(&self, flags: &[String]) -> Result<(), LocalError> {
        match (&self.form, flags.first()) {
            (Form::Folder { .. }, Some(flag)) => {
                let option = flag.split('=').next().unwrap_or_default();
                let option = option.chars().take(64).collect();
                Err(LocalError::FolderOption { path: self.path.clone(), option })
            }
            (Form::Folder { .. } | Form::Image { .. } | Form::Device | Form::Logical { .. }, _) => {
                Ok(())
            }
        }
    }

    /// A folder has no mode of its own: whoever mounts it read-only binds it so.
    async fn find_folder(&self) -> Result<Attached, LocalError> {
        match look::at(&self.path).await? {
            Found::Folder => Ok(Attached::Directory { path: self.path.clone() }),
            Found::Nothing => Err(LocalError::Look {
                path: self.path.clone(),
                source: std::io::ErrorKind::NotFound.into(),
            }),
            found @ (Found::File { .. } | Found::Symlink | Found::BlockDevice | Found::Other) => {
                let (path, found) = (self.path.clone(), found.words());
                Err(LocalError::WrongKind { path, wanted: "directory", found })
            }
        }
    }

    /// Looks before it asks the host, which tells the size of a plain file too: a file in the place
    /// of a device would be formatted like one. What is not there, the host reports.
    async fn find_device(&self, host: &dyn Host) -> Result<Attached> {
        match look::behind(&self.path).await? {
            Found::BlockDevice | Found::Nothing => {}
            found @ (Found::File { .. } | Found::Folder | Found::Symlink | Found::Other) => {
                let (path, found) = (self.path.clone(), found.words());
                return Err(LocalError::WrongKind { path, wanted: "device", found }.into());
            }
        }
        let size = host.device_size(&self.path).await.map_err(|error| {
            error.context(format!("looking at the block device {}", self.path.display()))
        })?;
        Ok(Attached::Block { device: self.path.clone(), identity: None, size })
    }

    async fn connect(&self, host: &dyn Host, read_only: bool) -> Result<Change<Attached>> {
        if let Some(image) = self.image(read_only) {
            return image.connect(host).await;
        }
        match self.form {
            Form::Device if read_only || self.read_only => {
                Err(LocalError::ReadOnlyDevice { path: self.path.clone() }.into())
            }
            Form::Device => self.find_device(host).await.map(Change::Already),
            Form::Folder { .. } | Form::Image { .. } | Form::Logical { .. } => {
                Ok(Change::Already(self.find_folder().await?))
            }
        }
    }
}

#[async_trait]
impl Connector for Local {
    fn info(&self) -> &'static ConnectorInfo {
        &INFO
    }

    fn counts(&self, data: &Data, field: &str) -> bool {
        match field {
            "device_path" => data::is_given_by_device_path(data),
            _ => !HINTS.contains(&field),
        }
    }

    async fn connect(
        &self,
        host: &dyn Host,
        info: &ConnectionInfo,
        attach: &Attach,
    ) -> Result<Change<Attached>> {
        let target = data::read(info)?;
        target.check_flags(&attach.mount_flags)?;
        if let Some(volume) = target.logical(attach.read_only) {
            return volume.connect(host, Deadline::after(attach.deadline)).await;
        }
        let work = target.connect(host, attach.read_only);
        match tokio::time::timeout(attach.deadline, work).await {
            Ok(done) => done,
            // Whether a device appears after all is unknown; connect and disconnect both find it.
            Err(_) => {
                let (path, limit) = (target.path.clone(), attach.deadline);
                Err(LocalError::Deadline { path, limit }.into())
            }
        }
    }

    async fn disconnect(
        &self,
        host: &dyn Host,
        record: &AttachRecord,
        detach: &Detach,
    ) -> Result<Change<()>> {
        let target = match data::read(&record.info) {
            Ok(target) => target,
            // Connect refused it by name, so nothing of this record is attached.
            Err(LocalError::IdentityMismatch { .. } | LocalError::NoIdentity { .. }) => {
                return Ok(Change::Already(()));
            }
            Err(error) => return Err(error.into()),
        };
        if let Some(volume) = target.logical(record.attach.read_only) {
            return volume.disconnect(host, detach).await;
        }
        match target.image(record.attach.read_only) {
            Some(image) => image.disconnect(host, detach).await,
            None => Ok(Change::Already(())),
        }
    }

    async fn extend(&self, host: &dyn Host, record: &AttachRecord) -> Result<ByteSize> {
        let target = data::read(&record.info)?;
        if let Some(image) = target.image(record.attach.read_only) {
            return image.extend(host).await;
        }
        if let Some(volume) = target.logical(record.attach.read_only) {
            return volume.extend(host).await;
        }
        match target.form {
            Form::Device => match target.find_device(host).await? {
                Attached::Block { size, .. } => Ok(size),
                Attached::Directory { .. } | Attached::File { .. } => Ok(ByteSize::ZERO),
            },
            Form::Folder { .. } | Form::Image { .. } | Form::Logical { .. } => {
                target.find_folder().await?;
                Ok(ByteSize::ZERO)
            }
        }
    }

    async fn lookup(&self, host: &dyn Host, info: &ConnectionInfo) -> Result<Option<Attached>> {
        let target = data::read(info)?;
        if let Some(image) = target.image(false) {
            return image.lookup(host).await;
        }
        if let Some(volume) = target.logical(false) {
            return volume.lookup(host).await;
        }
        let found = match target.form {
            Form::Device => target.find_device(host).await,
            Form::Folder { .. } | Form::Image { .. } | Form::Logical { .. } => {
                target.find_folder().await.map_err(Into::into)
            }
        };
        match found {
            Ok(attached) => Ok(Some(attached)),
            Err(error) if error.kind() == Kind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn health(&self, host: &dyn Host, record: &AttachRecord) -> Result<Health> {
        let target = match data::read(&record.info) {
            Ok(target) => target,
            Err(error @ (LocalError::IdentityMismatch { .. } | LocalError::NoIdentity { .. })) => {
                return Ok(Health::bad(error.to_string()));
            }
            Err(error) => return Err(error.into()),
        };
        if let Some(image) = target.image(record.attach.read_only) {
            return image.health(host, record.attached.as_ref()).await;
        }
        if let Some(volume) = target.logical(record.attach.read_only) {
            return volume.health(host, record.attached.as_ref()).await;
        }
        Ok(match self.lookup(host, &record.info).await {
            Ok(Some(_)) => Health::good(),
            Ok(None) => Health::bad(format!("{} is not there", target.path.display())),
            Err(error) if error.kind() == Kind::Precondition => Health::bad(error.sentence()),
            Err(error) => return Err(error),
        })
    }
}

#[cfg(test)]
mod tests;
