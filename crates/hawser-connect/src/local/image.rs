//! Image files: a loop device over the file, found again by file and mark, never by number.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use hawser_core::attach::{Attached, Detach, Health, Identity};
use hawser_core::error::{Error, Result, ResultExt};
use hawser_core::port::Host;
use hawser_core::port::host::{LoopAttach, LoopDevice};
use hawser_core::{ByteSize, Change, Outcome, Reason};

use super::error::LocalError;
use super::look::{self, Found};
use crate::shared::release::Failures;

/// What the kernel appends to the name of a backing file that was removed.
const DELETED: &[u8] = b" (deleted)";

/// One image and what its device must be like.
pub(super) struct Image<'a> {
    pub(super) path: &'a Path,
    pub(super) mark: &'a str,
    pub(super) sector_size: Option<u32>,
    pub(super) read_only: bool,
}

/// Loop devices that have to do with one image.
struct Devices {
    /// Over the file that is there now, with our mark.
    ours: Vec<LoopDevice>,
    /// With our mark, over a file that had this name and was removed.
    orphaned: Vec<LoopDevice>,
    /// Over the file that is there now, without our mark.
    foreign: Vec<LoopDevice>,
}

impl Image<'_> {
    /// Attaches the image, or finds it attached.
    pub(super) async fn connect(&self, host: &dyn Host) -> Result<Change<Attached>> {
        match look::at(self.path).await? {
            Found::File { .. } => {}
            Found::Nothing => return Err(self.look_error()),
            found @ (Found::Folder | Found::Symlink | Found::BlockDevice | Found::Other) => {
                return Err(self.wrong_kind(found).into());
            }
        }
        let devices = self.devices(host).await?;
        if let Some(device) = devices.ours.first() {
            self.check(device)?;
            return Ok(Change::Already(self.describe(host, device).await?));
        }
        if let Some(device) = devices.orphaned.into_iter().next() {
            let (path, device) = (self.path.into(), device.device);
            return Err(LocalError::Replaced { path, device }.into());
        }
        if let Some(device) = devices.foreign.into_iter().next() {
            let (path, device) = (self.path.into(), device.device);
            return Err(LocalError::Foreign { path, device }.into());
        }
        self.attach(host).await
    }

    /// Attaches; takes back what it did when anything fails after that.
    async fn attach(&self, host: &dyn Host) -> Result<Change<Attached>> {
        let request = LoopAttach {
            file: self.path.into(),
            mark: self.mark.into(),
            read_only: self.read_only,
            sector_size: self.sector_size.unwrap_or(512),
        };
        let attempt = || format!("attaching the image {}", self.path.display());
        let attached = match host.attach_loop(&request).await {
            Ok(attached) => attached,
            // There was no device of ours before: one that is there now is from this call.
            Err(error) if error.is_unknown() => {
                return Err(self.undo(host, error.context(attempt())).await);
            }
            Err(error) => return Err(error.context(attempt())),
        };
        let checked = match self.check(attached.get()) {
            Ok(()) => self.describe(host, attached.get()).await,
            Err(error) => Err(error.into()),
        };
        match checked {
            Ok(described) => Ok(attached.map(|_| described)),
            Err(error) if attached.is_made() => Err(self.undo(host, error).await),
            Err(error) => Err(error),
        }
    }

    /// Takes away what a failed attach made, and answers its error with what is known now.
    async fn undo(&self, host: &dyn Host, error: Error) -> Error {
        match self.disconnect(host, &Detach::default()).await {
            Ok(Change::Made(())) => error.with_outcome(Outcome::RolledBack),
            // A call whose end nobody saw may still be under way: its error goes on saying so.
            Ok(Change::Already(())) => error,
            Err(undo) => {
                let (path, undo) = (self.path.into(), undo.sentence());
                LocalError::Undo { path, undo, source: error }.into()
            }
        }
    }

    /// Detaches every device over this image that has our mark. The recorded number is not asked:
    /// by now it can be anybody's.
    pub(super) async fn disconnect(&self, host: &dyn Host, detach: &Detach) -> Result<Change<()>> {
        let devices = self.devices(host).await?;
        let mut made = false;
        let mut failures = Failures::new(detach);
        for device in devices.ours.iter().chain(&devices.orphaned) {
            let attempt = || format!("detaching {}", device.device.display());
            match host.detach_loop(device, detach.force).await.context(attempt) {
                Ok(change) => made |= change.is_made(),
                // Force passes nobody who uses it, and success would hide that it is still there.
                Err(error) if error.reason() == Some(Reason::DeviceBusy) => return Err(error),
                Err(error) => failures.take(error)?,
            }
        }
        if failures.is_empty() && !made {
            return Ok(Change::Already(()));
        }
        failures.answer(&format!("detaching {}", self.path.display()))
    }

    /// Makes the device as large as the image.
    pub(super) async fn extend(&self, host: &dyn Host) -> Result<ByteSize> {
        let devices = self.devices(host).await?;
        let not_attached = || LocalError::NotAttached { path: self.path.into() };
        let device = devices.ours.first().ok_or_else(not_attached)?;
        let size = host.device_size(&device.device).await?.get();
        match look::at(self.path).await? {
            // A device counts whole sectors of 512 bytes.
            Found::File { length } if length / 512 * 512 >= size => {}
            Found::File { length } => {
                let (path, device) = (self.path.into(), device.device.clone());
                return Err(LocalError::Shrunk { path, device, image: length, size }.into());
            }
            Found::Nothing => return Err(self.look_error()),
            found @ (Found::Folder | Found::Symlink | Found::BlockDevice | Found::Other) => {
                return Err(self.wrong_kind(found).into());
            }
        }
        host.resize_loop(device)
            .await
            .map_err(|error| error.context(format!("resizing {}", device.device.display())))
    }

    /// What is attached now.
    pub(super) async fn lookup(&self, host: &dyn Host) -> Result<Option<Attached>> {
        let devices = self.devices(host).await?;
        match devices.ours.first().or(devices.orphaned.first()) {
            Some(device) => self.describe(host, device).await.map(Some),
            None => Ok(None),
        }
    }

    /// Whether image and device are there and belong together.
    pub(super) async fn health(
        &self,
        host: &dyn Host,
        recorded: Option<&Attached>,
    ) -> Result<Health> {
        let shown = self.path.display();
        let found = look::at(self.path).await?;
        if !matches!(found, Found::File { .. }) {
            return Ok(Health::bad(format!("the image {shown} is {}", found.words())));
        }
        let devices = self.devices(host).await?;
        if let Some(device) = devices.orphaned.first() {
            let device = device.device.display();
            return Ok(Health::bad(format!("{device} has an image {shown} that was replaced")));
        }
        let Some(device) = devices.ours.first() else {
            return Ok(Health::bad(format!("the image {shown} has no loop device")));
        };
        let node = device.device.display();
        if let Err(error) = self.check(device) {
            return Ok(Health::bad(error.to_string()));
        }
        if let Some(other) = devices.ours.get(1).or(devices.foreign.first()) {
            let other = other.device.display();
            return Ok(Health::bad(format!("{shown} has two loop devices: {node} and {other}")));
        }
        Ok(match recorded.map(Attached::path) {
            Some(path) if path != device.device => Health::bad(format!(
                "{shown} is attached as {node}, and was recorded as {}",
                path.display()
            )),
            Some(_) | None => Health::good(),
        })
    }

    async fn devices(&self, host: &dyn Host) -> Result<Devices> {
        let real = look::resolve(self.path).await?;
        let mut found = Devices { ours: Vec::new(), orphaned: Vec::new(), foreign: Vec::new() };
        for device in host.loop_devices().await? {
            let marked = device.mark.as_deref() == Some(self.mark);
            if device.backing_file == real {
                if marked { &mut found.ours } else { &mut found.foreign }.push(device);
            } else if marked && is_deleted(&device.backing_file, &real) {
                found.orphaned.push(device);
            }
        }
        Ok(found)
    }

    /// Refuses a device that is not as it was asked for.
    fn check(&self, device: &LoopDevice) -> Result<(), LocalError> {
        let (path, node): (PathBuf, PathBuf) = (self.path.into(), device.device.clone());
        if device.mark.as_deref() != Some(self.mark) {
            return Err(LocalError::IdentityMismatch {
                path,
                expected: self.identity(),
                found: Identity::new("image", device.mark.as_deref().unwrap_or("unmarked")),
            });
        }
        if device.read_only != self.read_only {
            return Err(LocalError::OtherMode { path, device: node, read_only: self.read_only });
        }
        match self.sector_size {
            Some(wanted) if wanted != device.sector_size => Err(LocalError::OtherSectors {
                path,
                device: node,
                wanted,
                found: device.sector_size,
            }),
            Some(_) | None => Ok(()),
        }
    }

    async fn describe(&self, host: &dyn Host, device: &LoopDevice) -> Result<Attached> {
        let size = host.device_size(&device.device).await.map_err(|error| {
            error.context(format!("reading the size of {}", device.device.display()))
        })?;
        Ok(Attached::Block { device: device.device.clone(), identity: Some(self.identity()), size })
    }

    fn identity(&self) -> Identity {
        Identity::new("image", self.mark)
    }

    fn wrong_kind(&self, found: Found) -> LocalError {
        LocalError::WrongKind { path: self.path.into(), wanted: "file", found: found.words() }
    }

    fn look_error(&self) -> Error {
        let source = std::io::ErrorKind::NotFound.into();
        LocalError::Look { path: self.path.into(), source }.into()
    }
}

fn is_deleted(backing: &Path, real: &Path) -> bool {
    backing.as_os_str().as_bytes().strip_suffix(DELETED).map(OsStr::from_bytes)
        == Some(real.as_os_str())
}
