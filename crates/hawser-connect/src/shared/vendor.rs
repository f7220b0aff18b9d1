//! Volumes that a vendor's own client brings to this host: we ask the client, and everything around
//! that is the same for all of them. The disk's node is known beforehand or told by the client; it is
//! waited for, checked, flushed before it is given back, and seen to be gone.

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use hawser_core::attach::{Attach, AttachRecord, Attached, Detach, Health, Identity};
use hawser_core::connection::ConnectionInfo;
use hawser_core::error::{Error, Result};
use hawser_core::port::connector::ConnectorInfo;
use hawser_core::port::kernel::Files;
use hawser_core::port::registry::LockGuard;
use hawser_core::port::{Connector, Host};
use hawser_core::{ByteSize, Change, Kind, Outcome};

use super::digest;
use super::error::AttachError;
use super::fields::Fields;
use super::locks;
use super::release::Failures;
use super::users::{self, Whole};
use super::wait::{self, Deadline};

/// How long a client may take to show a disk, or to take it away, after it has answered.
const DISK_LIMIT: Duration = Duration::from_secs(15);

/// A vendor's client.
#[async_trait]
pub(crate) trait Client: Send + Sync + 'static {
    /// What names a volume to the client.
    type Volume: Send + Sync;

    /// What the connector says of itself.
    fn info(&self) -> &'static ConnectorInfo;

    /// Reads the data of a connection info.
    fn read(&self, info: &ConnectionInfo, fields: &Fields) -> Result<Self::Volume, AttachError>;

    /// The volume as the vendor names it: its identity, and what errors call it.
    fn name(&self, volume: &Self::Volume) -> String;

    /// The node of the volume's disk, where the client has attached it.
    async fn node(&self, host: &dyn Host, volume: &Self::Volume) -> Result<Option<PathBuf>>;

    /// Asks the client for the volume; already there is no error.
    async fn attach(
        &self,
        host: &dyn Host,
        volume: &Self::Volume,
        deadline: Deadline,
    ) -> Result<()>;

    /// Gives the volume back; not there is no error. False when the disk stays all the same.
    async fn detach(
        &self,
        host: &dyn Host,
        volume: &Self::Volume,
        deadline: Deadline,
    ) -> Result<bool>;

    /// Makes the client look for a new size; only of clients that can.
    async fn rescan(&self, _host: &dyn Host, _volume: &Self::Volume) -> Result<()> {
        Ok(())
    }
}

/// A vendor's client as a connector.
pub(crate) struct Vendor<C>(pub(crate) C);

/// What is asked for.
struct Wanted<V> {
    volume: V,
    name: String,
    read_only: bool,
    expected: Vec<Identity>,
}

impl<C: Client> Vendor<C> {
    fn wanted(&self, info: &ConnectionInfo) -> Result<Wanted<C::Volume>, AttachError> {
        let fields = Fields::of(info)?;
        let volume = self.0.read(info, &fields)?;
        Ok(Wanted {
            name: self.0.name(&volume),
            read_only: fields.read_only()?.unwrap_or(false),
            expected: fields.expected(info)?,
            volume,
        })
    }

    /// What the client's name for the volume is worth: the client finds it by that name alone.
    fn identity(&self, name: &str) -> Identity {
        let protocol = self.0.info().protocols.first().copied().unwrap_or_default();
        Identity::new(protocol.to_ascii_lowercase(), name)
    }

    /// Refuses an identity that is not the volume's.
    fn check(&self, wanted: &Wanted<C::Volume>) -> Result<(), AttachError> {
        let found = self.identity(&wanted.name);
        match wanted.expected.iter().find(|expected| **expected != found) {
            None => Ok(()),
            Some(expected) => Err(AttachError::WrongIdentity {
                device: PathBuf::from(&wanted.name),
                expected: expected.clone(),
                found: found.to_string(),
            }),
        }
    }

    async fn lock(
        &self,
        host: &dyn Host,
        name: &str,
        deadline: Deadline,
    ) -> Result<Box<dyn LockGuard>> {
        let protocol = self.0.info().protocols.first().copied().unwrap_or_default();
        let lock = format!("target/{}/{name}", protocol.to_ascii_lowercase());
        locks::alone(host, &lock, name, deadline).await
    }

    /// The disk, once it can be opened; `None` while it is not there.
    async fn disk(&self, host: &dyn Host, volume: &C::Volume) -> Result<Option<Whole>> {
        let Some(node) = self.0.node(host, volume).await? else { return Ok(None) };
        let Some(name) = kernel_name(host.files(), &node)? else { return Ok(None) };
        Ok(Some(Whole { name, node }))
    }

    fn describe(&self, host: &dyn Host, disk: &Whole, name: &str) -> Result<Attached> {
        Ok(Attached::Block {
            device: disk.node.clone(),
            identity: Some(self.identity(name)),
            size: ByteSize::bytes(disk.size(host.files())?),
        })
    }

    async fn appear(
        &self,
        host: &dyn Host,
        wanted: &Wanted<C::Volume>,
        deadline: Deadline,
    ) -> Result<Whole> {
        let mut events = host.events().subscribe();
        let deadline = deadline.within(DISK_LIMIT);
        loop {
            if let Some(disk) = self.disk(host, &wanted.volume).await?
                && disk.size(host.files())? > 0
            {
                return Ok(disk);
            }
            if deadline.passed() {
                return Err(AttachError::VolumeNotFound {
                    target: "the client".into(),
                    volume: wanted.name.clone(),
                    limit: DISK_LIMIT,
                }
                .into());
            }
            events.changed(deadline.left().min(wait::RECHECK)).await;
        }
    }

    async fn set_mode(&self, host: &dyn Host, disk: &Whole, read_only: bool) -> Result<()> {
        let now = disk.attribute(host.files(), "ro")?.as_deref() == Some("1");
        if read_only && !now {
            let attempt = format!("making {} refuse writes", disk.node.display());
            host.disks()
                .set_read_only(&disk.node, true)
                .await
                .map_err(AttachError::kernel(attempt))?;
        }
        if now && !read_only {
            return Err(AttachError::ReadOnly { device: disk.node.clone() }.into());
        }
        Ok(())
    }

    async fn bring(
        &self,
        host: &dyn Host,
        wanted: &Wanted<C::Volume>,
        read_only: bool,
        deadline: Deadline,
    ) -> Result<Change<Attached>> {
        if let Some(disk) = self.disk(host, &wanted.volume).await? {
            self.set_mode(host, &disk, read_only).await?;
            return Ok(Change::Already(self.describe(host, &disk, &wanted.name)?));
        }
        let note = self.note(host, &wanted.name);
        if let Err(source) = host.files().store(&note, wanted.name.as_bytes(), 0o600).await {
            // Nothing was asked for yet; a note that cannot be removed only makes a detach ask.
            let _ = host.files().remove(&note).await;
            return Err(AttachError::kernel("noting what the client is asked for")(source).into());
        }
        let brought = match self.0.attach(host, &wanted.volume, deadline).await {
            Ok(()) => match self.appear(host, wanted, deadline).await {
                Ok(disk) => match self.set_mode(host, &disk, read_only).await {
                    Ok(()) => self.describe(host, &disk, &wanted.name),
                    Err(error) => Err(error),
                },
                Err(error) => Err(error),
            },
            Err(error) if !error.is_unknown() => {
                return Err(match host.files().remove(&note).await {
                    Ok(_) => error,
                    Err(_) => error.with_outcome(Outcome::Unknown),
                });
            }
            Err(error) => Err(error),
        };
        match brought {
            Ok(attached) => Ok(Change::Made(attached)),
            Err(error) => Err(match self.give_back(host, wanted, deadline).await {
                Ok(_) if error.is_unknown() => error,
                Ok(_) => error.with_outcome(Outcome::RolledBack),
                Err(undo) => {
                    let failures = vec![error, undo];
                    let what = format!("taking {} back", wanted.name);
                    Error::from(AttachError::Several { what, failures })
                        .with_outcome(Outcome::Unknown)
                }
            }),
        }
    }

    /// A note that the client was asked for a volume: its disk may come after whoever asked is gone.
    fn note(&self, host: &dyn Host, name: &str) -> PathBuf {
        let protocol = self.0.info().protocols.first().copied().unwrap_or_default();
        let file = format!("{}-{}", protocol.to_ascii_lowercase(), digest::short(name.as_bytes()));
        host.files().run_dir().join("vendor").join(file)
    }

    /// Gives the volume back, and forgets that it was asked for.
    async fn give_back(
        &self,
        host: &dyn Host,
        wanted: &Wanted<C::Volume>,
        deadline: Deadline,
    ) -> Result<bool> {
        let gone = self.0.detach(host, &wanted.volume, deadline).await?;
        host.files()
            .remove(&self.note(host, &wanted.name))
            .await
            .map_err(AttachError::kernel("removing a note"))?;
        Ok(gone)
    }

    /// Waits until the disk is gone.
    async fn vanish(&self, host: &dyn Host, disk: &Whole, deadline: Deadline) -> Result<()> {
        let mut events = host.events().subscribe();
        let gone = wait::until(&mut *events, deadline.within(DISK_LIMIT), async || {
            Ok(host.files().resolve(&disk.folder())?.is_none().then_some(()))
        })
        .await?;
        gone.ok_or_else(|| {
            let what = disk.node.display().to_string();
            AttachError::NotRemoved { what, limit: DISK_LIMIT }.into()
        })
    }
}

/// The name in sysfs of the disk at a node; `None` when there is no disk.
pub(crate) fn kernel_name(files: &dyn Files, node: &Path) -> Result<Option<String>> {
    let Some((major, minor)) = files.device_number(node)? else { return Ok(None) };
    let link = files.resolve(Path::new(&format!("/sys/dev/block/{major}:{minor}")))?;
    Ok(link.and_then(|path| Some(path.file_name()?.to_str()?.to_owned())))
}

#[async_trait]
impl<C: Client> Connector for Vendor<C> {
    fn info(&self) -> &'static ConnectorInfo {
        self.0.info()
    }

    async fn connect(
        &self,
        host: &dyn Host,
        info: &ConnectionInfo,
        attach: &Attach,
    ) -> Result<Change<Attached>> {
        let wanted = self.wanted(info)?;
        self.check(&wanted)?;
        let deadline = Deadline::after(attach.deadline);
        let _lock = self.lock(host, &wanted.name, deadline).await?;
        self.bring(host, &wanted, attach.read_only || wanted.read_only, deadline).await
    }

    async fn disconnect(
        &self,
        host: &dyn Host,
        record: &AttachRecord,
        detach: &Detach,
    ) -> Result<Change<()>> {
        let wanted = self.wanted(&record.info)?;
        if self.check(&wanted).is_err() {
            // Connect refused it by name, so nothing of this record is attached.
            return Ok(Change::Already(()));
        }
        let deadline = Deadline::after(detach.deadline);
        let _lock = self.lock(host, &wanted.name, deadline).await?;
        let Some(disk) = self.disk(host, &wanted.volume).await? else {
            if host.files().resolve(&self.note(host, &wanted.name))?.is_none() {
                return Ok(Change::Already(()));
            }
            self.give_back(host, &wanted, deadline).await?;
            return Ok(Change::Made(()));
        };
        users::refuse_used(host, &disk, detach.force, deadline).await?;
        let mut failures = Failures::new(detach);
        failures.flush(host, &disk.node, deadline).await?;
        match self.give_back(host, &wanted, deadline).await {
            Ok(false) => {}
            Ok(true) => {
                if let Err(error) = self.vanish(host, &disk, deadline).await {
                    failures.take(error)?;
                }
            }
            Err(error) => failures.take(error)?,
        }
        failures.answer(&format!("detaching {}", wanted.name))
    }

    async fn extend(&self, host: &dyn Host, record: &AttachRecord) -> Result<ByteSize> {
        let wanted = self.wanted(&record.info)?;
        if !self.0.info().abilities.extend {
            let message = "the client of this storage system cannot grow an attached volume; \
                           detach and attach it to see its new size";
            return Err(Error::new(Kind::Unsupported, message));
        }
        let _lock = self.lock(host, &wanted.name, Deadline::after(DISK_LIMIT)).await?;
        let missing = || AttachError::NotAttached { what: wanted.name.clone() };
        let disk = self.disk(host, &wanted.volume).await?.ok_or_else(missing)?;
        self.0.rescan(host, &wanted.volume).await?;
        Ok(ByteSize::bytes(disk.size(host.files())?))
    }

    async fn lookup(&self, host: &dyn Host, info: &ConnectionInfo) -> Result<Option<Attached>> {
        let wanted = self.wanted(info)?;
        match self.disk(host, &wanted.volume).await? {
            Some(disk) => self.describe(host, &disk, &wanted.name).map(Some),
            None => Ok(None),
        }
    }

    async fn health(&self, host: &dyn Host, record: &AttachRecord) -> Result<Health> {
        let wanted = self.wanted(&record.info)?;
        let Some(disk) = self.disk(host, &wanted.volume).await? else {
            return Ok(Health::bad(format!("{} has no disk", wanted.name)));
        };
        let recorded = record.attached.as_ref().map(Attached::path);
        Ok(match recorded.filter(|path| *path != disk.node) {
            Some(path) => Health::bad(format!(
                "{} is {}, and was recorded as {}",
                wanted.name,
                disk.node.display(),
                path.display()
            )),
            None => Health::good(),
        })
    }
}
