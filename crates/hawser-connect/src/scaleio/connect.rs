//! Connect: the volume is mapped to this host, then its disk is waited for.

use std::sync::Arc;
use std::time::Duration;

use hawser_core::attach::{Attach, Attached};
use hawser_core::error::{Error, Result};
use hawser_core::port::Host;
use hawser_core::port::registry::LockGuard;
use hawser_core::{ByteSize, Change, Outcome};

use super::data::{self, Access, Volume, Way};
use super::disconnect::give_back;
use super::gateway::Gateway;
use super::note::{self, Note};
use super::sdc;
use crate::shared::error::AttachError;
use crate::shared::fields::invalid;
use crate::shared::locks;
use crate::shared::users::Whole;
use crate::shared::wait::{self, Deadline};

/// How long the client may take to show a disk, or to take it away.
pub(super) const DISK_LIMIT: Duration = Duration::from_secs(15);

/// Attaches a volume.
pub(super) async fn connect(
    host: &dyn Host,
    volume: &Volume,
    attach: &Attach,
) -> Result<Change<Attached>> {
    let deadline = Deadline::after(attach.deadline);
    if let Some(id) = &volume.id {
        check(volume, id)?;
    }
    let guard = lock(host, volume, deadline).await?;
    let guid = sdc::guid(host).await?;
    let read_only = attach.read_only || volume.read_only;
    match &volume.way {
        Way::Mapped(told) => {
            check_client(told, &guid)?;
            let id = volume.id.clone().unwrap_or_default();
            let call = Call { host, volume, id, guid, read_only, deadline };
            call.wait_for_mapped().await
        }
        Way::Gateway(access) => {
            let gateway = Gateway::open(host, access, guard.clone(), deadline)?;
            let id = match &volume.id {
                Some(id) => id.clone(),
                // What the name means now, whatever it meant before.
                None => gateway.resolve(&volume.name).await?,
            };
            check(volume, &id)?;
            let call = Call { host, volume, id, guid, read_only, deadline };
            call.bring(&gateway, access).await
        }
    }
}

/// One call at a time for one volume.
pub(super) async fn lock(
    host: &dyn Host,
    volume: &Volume,
    deadline: Deadline,
) -> Result<Arc<dyn LockGuard>> {
    let name = format!("target/scaleio/{}", volume.key());
    Ok(Arc::from(locks::alone(host, &name, &volume.words(), deadline).await?))
}

/// Refuses a volume that is not the expected one.
fn check(volume: &Volume, id: &str) -> Result<(), AttachError> {
    match volume.refuses(id) {
        None => Ok(()),
        Some(expected) => Err(AttachError::WrongIdentity {
            device: volume.words().into(),
            expected: expected.clone(),
            found: data::identity(id).to_string(),
        }),
    }
}

/// Refuses a volume that was mapped to another host: its disk would never come.
fn check_client(told: &str, own: &str) -> Result<(), AttachError> {
    let bare = |text: &str| -> String {
        text.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase()
    };
    if bare(told) == bare(own) {
        return Ok(());
    }
    Err(invalid("sdc_guid", &format!("is not the client of this host, which is {own}")))
}

/// What is answered for a disk.
pub(super) fn describe(host: &dyn Host, disk: &Whole, id: &str) -> Result<Attached> {
    Ok(Attached::Block {
        device: disk.node.clone(),
        identity: Some(data::identity(id)),
        size: ByteSize::bytes(disk.size(host.files())?),
    })
}

/// Waits until the disk and its link are gone.
pub(super) async fn vanish(host: &dyn Host, id: &str, disk: &str, limit: Deadline) -> Result<()> {
    let mut events = host.events().subscribe();
    let disk = Whole::new(disk);
    let gone = wait::until(&mut *events, limit.within(DISK_LIMIT), async || {
        let files = host.files();
        let there = files.resolve(&disk.folder())?.is_some() || sdc::has_link(files, id)?;
        Ok((!there).then_some(()))
    })
    .await?;
    gone.ok_or_else(|| {
        let what = disk.node.display().to_string();
        AttachError::NotRemoved { what, limit: DISK_LIMIT }.into()
    })
}

/// One connect.
struct Call<'a> {
    host: &'a dyn Host,
    volume: &'a Volume,
    id: String,
    guid: String,
    read_only: bool,
    deadline: Deadline,
}

impl Call<'_> {
    fn disk(&self) -> Result<Option<Whole>> {
        let disk = sdc::find(self.host.files(), &self.id)?;
        match disk {
            Some(disk) if disk.size(self.host.files())? > 0 => Ok(Some(disk)),
            Some(_) | None => Ok(None),
        }
    }

    /// The volume was mapped by others.
    async fn wait_for_mapped(&self) -> Result<Change<Attached>> {
        if let Some(there) = self.as_it_is().await? {
            return Ok(there);
        }
        let before = note::read(self.host, self.volume)?;
        let note = Note::of(self.volume, &self.id, self.read_only, false);
        let made = match note.store(self.host, self.volume).await {
            Ok(()) => self.appear().await,
            Err(error) => Err(error),
        };
        match made {
            Ok(attached) => Ok(Change::Made(attached)),
            Err(error) if before.is_some() => Err(error),
            Err(error) => Err(self.forget(error).await),
        }
    }

    /// Maps the volume here.
    async fn bring(&self, gateway: &Gateway, access: &Access) -> Result<Change<Attached>> {
        if let Some(there) = self.as_it_is().await? {
            return Ok(there);
        }
        // A call that was cut off may have mapped it.
        let begun = note::read(self.host, self.volume)?.is_some_and(|note| note.ours);
        let note = Note::of(self.volume, &self.id, self.read_only, true);
        let mapped = match note.store(self.host, self.volume).await {
            Ok(()) => gateway.map(&self.id, &self.guid).await,
            Err(error) => Err(error),
        };
        let mapped = match mapped {
            Ok(mapped) => mapped,
            Err(error) if error.is_unknown() => return Err(self.undo(gateway, error).await),
            Err(error) if begun => return Err(error),
            Err(error) => return Err(self.forget(error).await),
        };
        match self.appear().await {
            Ok(attached) => {
                self.limit(gateway, access).await;
                Ok(Change::Made(attached))
            }
            // What others mapped is not ours to take away.
            Err(error) if !mapped && !begun => Err(self.forget(error).await),
            Err(error) => Err(self.undo(gateway, error).await),
        }
    }

    /// What is attached already.
    async fn as_it_is(&self) -> Result<Option<Change<Attached>>> {
        let Some(disk) = self.disk()? else { return Ok(None) };
        if self.refuses_writes(&disk)? != self.read_only {
            let noted = note::read(self.host, self.volume)?;
            let ours = noted.as_ref().is_some_and(|note| note.ours);
            if !self.read_only && !noted.is_some_and(|note| note.read_only) {
                return Err(AttachError::ReadOnly { device: disk.node }.into());
            }
            let note = Note::of(self.volume, &self.id, self.read_only, ours);
            note.store(self.host, self.volume).await?;
            self.set_mode(&disk).await?;
        }
        Ok(Some(Change::Already(describe(self.host, &disk, &self.id)?)))
    }

    /// Waits for the disk.
    async fn appear(&self) -> Result<Attached> {
        let mut events = self.host.events().subscribe();
        let deadline = self.deadline.within(DISK_LIMIT);
        let disk = wait::until(&mut *events, deadline, async || self.disk()).await?;
        let Some(disk) = disk else {
            let (target, volume) = ("the ScaleIO client".to_owned(), self.volume.words());
            let limit = deadline.limit();
            return Err(AttachError::VolumeNotFound { target, volume, limit }.into());
        };
        if self.refuses_writes(&disk)? != self.read_only {
            if !self.read_only {
                return Err(AttachError::ReadOnly { device: disk.node }.into());
            }
            self.set_mode(&disk).await?;
        }
        describe(self.host, &disk, &self.id)
    }

    fn refuses_writes(&self, disk: &Whole) -> Result<bool> {
        Ok(disk.attribute(self.host.files(), "ro")?.as_deref() == Some("1"))
    }

    async fn set_mode(&self, disk: &Whole) -> Result<()> {
        let attempt = format!("making {} refuse or take writes", disk.node.display());
        let set = self.host.disks().set_read_only(&disk.node, self.read_only).await;
        Ok(set.map_err(AttachError::kernel(attempt))?)
    }

    /// Limits are a wish: a volume without them is better than none.
    async fn limit(&self, gateway: &Gateway, access: &Access) {
        if access.iops.is_none() && access.bandwidth.is_none() {
            return;
        }
        if let Err(error) = gateway.limit(&self.id, &self.guid, access).await {
            tracing::warn!(volume = %self.id, error = %error.sentence(), "no limits were set");
        }
    }

    /// Nothing was mapped: the note goes.
    async fn forget(&self, error: Error) -> Error {
        match note::remove(self.host, self.volume).await {
            Ok(()) => error,
            Err(_) => error.with_outcome(Outcome::Unknown),
        }
    }

    /// Takes back what was mapped.
    async fn undo(&self, gateway: &Gateway, error: Error) -> Error {
        let host = self.host;
        let disk = sdc::find(host.files(), &self.id).ok().flatten();
        let volume = (self.id.as_str(), self.guid.as_str());
        let undone = give_back(host, gateway, volume, disk.as_ref(), self.deadline).await;
        let undone = match undone {
            Ok(()) => note::remove(host, self.volume).await,
            Err(error) => Err(error),
        };
        match undone {
            Ok(()) => error.with_outcome(Outcome::RolledBack),
            Err(undo) => {
                let what = format!("taking {} back", self.volume.words());
                let failures = vec![error, undo];
                Error::from(AttachError::Several { what, failures }).with_outcome(Outcome::Unknown)
            }
        }
    }
}
