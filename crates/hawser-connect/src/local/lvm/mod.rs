//! Logical volumes of LVM: activated where they are not, and then found by the kernel's uuid of
//! their device. What was active before stays so after a detach.

mod note;
#[cfg(test)]
mod tests;
mod tool;

use std::path::Path;
use std::time::Duration;

use hawser_core::attach::{Attached, Detach, Health, Identity};
use hawser_core::error::{Error, Result};
use hawser_core::port::Host;
use hawser_core::port::kernel::Files;
use hawser_core::port::registry::LockGuard;
use hawser_core::{ByteSize, Change, Kind, Outcome};

use super::error::LocalError;
use crate::shared::error::AttachError;
use crate::shared::locks;
use crate::shared::release::Failures;
use crate::shared::users::{self, Whole};
use crate::shared::wait::{self, Deadline};
use note::Note;
use tool::Described;

/// How long a device may take to appear, grow or go after LVM has answered.
const DEVICE_LIMIT: Duration = Duration::from_secs(10);

/// How long LVM may keep a device suspended.
const SUSPEND_LIMIT: Duration = Duration::from_secs(5);

/// How long growing waits for other work on the volume.
const LOCK_LIMIT: Duration = Duration::from_secs(30);

/// How long a first block may take.
const READ_LIMIT: Duration = Duration::from_secs(10);

/// Group and volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) vg: String,
    pub(super) lv: String,
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.vg, self.lv)
    }
}

/// One volume and what is asked of it.
pub(super) struct Volume<'a> {
    pub(super) name: &'a Name,
    /// It may be activated.
    pub(super) activate: bool,
    /// No other host may have it active.
    pub(super) exclusive: bool,
    pub(super) read_only: bool,
    pub(super) expected: Vec<Identity>,
}

/// The device of a volume that is active.
fn device(files: &dyn Files, map_uuid: &str) -> Result<Option<Whole>> {
    for name in files.list(Path::new("/sys/block"))? {
        if name.starts_with("dm-") {
            let disk = Whole::new(name);
            if disk.attribute(files, "dm/uuid")?.as_deref() == Some(map_uuid) {
                return Ok(Some(disk));
            }
        }
    }
    Ok(None)
}

/// True when a device takes reads and writes: between its making and its first table, and while
/// LVM changes that, it does not.
async fn is_live(host: &dyn Host, disk: &Whole, deadline: Deadline) -> Result<bool> {
    let mut events = host.events().subscribe();
    let live = wait::until(&mut *events, deadline.within(SUSPEND_LIMIT), async || {
        let files = host.files();
        let runs = disk.attribute(files, "dm/suspended")?.as_deref() == Some("0");
        Ok((runs && disk.size(files)? > 0).then_some(()))
    })
    .await?;
    Ok(live.is_some())
}

impl Volume<'_> {
    /// Keeps two of us from judging who activated it.
    async fn lock(&self, host: &dyn Host, deadline: Deadline) -> Result<Box<dyn LockGuard>> {
        let name = self.name.to_string();
        locks::alone(host, &format!("target/lvm/{name}"), &name, deadline).await
    }

    /// What LVM says of it; another volume of its name is refused.
    async fn look(&self, host: &dyn Host) -> Result<Option<Described>> {
        let Some(found) = tool::describe(host, self.name).await? else { return Ok(None) };
        let identity = Identity::new("lvm", found.identity());
        for expected in &self.expected {
            if *expected != identity {
                let device = Path::new("/dev").join(self.name.to_string());
                let (expected, found) = (expected.clone(), identity.to_string());
                return Err(AttachError::WrongIdentity { device, expected, found }.into());
            }
        }
        match found.not_usable() {
            None => Ok(Some(found)),
            Some(what) => Err(invalid(&format!("{} is {what}", self.name))),
        }
    }

    async fn need(&self, host: &dyn Host) -> Result<Described> {
        let missing = || LocalError::NoVolume { name: self.name.to_string() };
        Ok(self.look(host).await?.ok_or_else(missing)?)
    }

    fn answer(&self, host: &dyn Host, found: &Described, disk: &Whole) -> Result<Attached> {
        Ok(Attached::Block {
            device: disk.node.clone(),
            identity: Some(Identity::new("lvm", found.identity())),
            size: ByteSize::bytes(disk.size(host.files())?),
        })
    }

    /// Attaches the volume, or finds it active.
    pub(super) async fn connect(
        &self,
        host: &dyn Host,
        deadline: Deadline,
    ) -> Result<Change<Attached>> {
        let _lock = self.lock(host, deadline).await?;
        let found = self.need(host).await?;
        if let Some(disk) = device(host.files(), &found.map_uuid())? {
            let note = note::read(host, self.name)?;
            let ours = note.filter(|note| note.map_uuid == found.map_uuid());
            if !is_live(host, &disk, deadline).await? {
                if ours.is_none() {
                    return Err(LocalError::HalfActive { name: self.name.to_string() }.into());
                }
                // A program that was killed has left it half made; to be told again mends it.
                tool::activate(host, self.name, self.exclusive).await?;
            }
            self.check(host, &found, &disk, ours.as_ref()).await?;
            return Ok(Change::Already(self.answer(host, &found, &disk)?));
        }
        if !self.activate {
            return Err(LocalError::NotActive { name: self.name.to_string() }.into());
        }
        match self.make(host, &found, deadline).await {
            Ok(attached) => Ok(Change::Made(attached)),
            Err(error) => Err(self.undo(host, &found, error).await),
        }
    }

    /// Refuses a device that is not as it was asked for. One of ours that was to refuse writes may
    /// still take them when its attach was cut off: that is made good.
    async fn check(
        &self,
        host: &dyn Host,
        found: &Described,
        disk: &Whole,
        ours: Option<&Note>,
    ) -> Result<()> {
        if self.exclusive && found.is_shared_now() {
            return Err(LocalError::NotExclusive { name: self.name.to_string() }.into());
        }
        let there = disk.attribute(host.files(), "ro")?.as_deref() == Some("1");
        let path = Path::new("/dev").join(self.name.to_string());
        match (there, self.read_only) {
            (true, true) | (false, false) => Ok(()),
            (true, false) => Err(AttachError::ReadOnly { device: disk.node.clone() }.into()),
            (false, true) => match ours {
                Some(note) if note.read_only => set_read_only(host, disk).await,
                Some(_) => {
                    let device = disk.node.clone();
                    Err(LocalError::OtherMode { path, device, read_only: true }.into())
                }
                None => Err(LocalError::ReadOnlyDevice { path }.into()),
            },
        }
    }

    async fn make(
        &self,
        host: &dyn Host,
        found: &Described,
        deadline: Deadline,
    ) -> Result<Attached> {
        let map_uuid = found.map_uuid();
        note::write(host, self.name, &map_uuid, self.read_only).await?;
        let mut events = host.events().subscribe();
        tool::activate(host, self.name, self.exclusive).await?;
        let limit = deadline.within(DEVICE_LIMIT);
        let disk = wait::until(&mut *events, limit, async || {
            let disk = device(host.files(), &map_uuid)?;
            let is_there = |disk: &Whole| disk.has_node(host.files());
            Ok(match disk {
                Some(disk) if is_there(&disk)? => Some(disk),
                Some(_) | None => None,
            })
        })
        .await?;
        let late = || AttachError::Deadline {
            attempt: format!("waiting for the device of {}", self.name),
            limit: limit.limit(),
        };
        let disk = disk.ok_or_else(late)?;
        if self.read_only {
            set_read_only(host, &disk).await?;
        }
        self.answer(host, found, &disk)
    }

    /// Takes back what a failed attach made, and answers its error with what is known now.
    async fn undo(&self, host: &dyn Host, found: &Described, error: Error) -> Error {
        match self.take_away(host, &found.map_uuid()).await {
            Ok(()) => error.with_outcome(Outcome::RolledBack),
            Err(undo) => {
                let path = Path::new("/dev").join(self.name.to_string());
                LocalError::Undo { path, undo: undo.sentence(), source: error }.into()
            }
        }
    }

    /// Deactivates it, makes sure that it is gone, and forgets it.
    async fn take_away(&self, host: &dyn Host, map_uuid: &str) -> Result<()> {
        let mut events = host.events().subscribe();
        if device(host.files(), map_uuid)?.is_some() {
            tool::deactivate(host, self.name).await?;
        }
        let gone = wait::until(&mut *events, Deadline::after(DEVICE_LIMIT), async || {
            Ok(device(host.files(), map_uuid)?.is_none().then_some(()))
        })
        .await?;
        let (what, limit) = (format!("the device of {}", self.name), DEVICE_LIMIT);
        gone.ok_or(AttachError::NotRemoved { what, limit })?;
        note::remove(host, self.name).await
    }

    /// Deactivates the volume if it was activated here.
    pub(super) async fn disconnect(&self, host: &dyn Host, detach: &Detach) -> Result<Change<()>> {
        let deadline = Deadline::after(detach.deadline);
        let _lock = self.lock(host, deadline).await?;
        let Some(note) = note::read(host, self.name)? else { return Ok(Change::Already(())) };
        let Some(disk) = device(host.files(), &note.map_uuid)? else {
            note::remove(host, self.name).await?;
            return Ok(Change::Already(()));
        };
        // By name LVM is told what to deactivate, so the name must be this volume's now.
        let found = self.need(host).await?;
        if found.map_uuid() != note.map_uuid {
            let expected = Identity::new("lvm", &note.map_uuid);
            let found = format!("lvm:{}", found.map_uuid());
            return Err(AttachError::WrongIdentity { device: disk.node, expected, found }.into());
        }
        users::refuse_used(host, &disk, detach.force, deadline).await?;
        let mut failures = Failures::new(detach);
        // What a program that was killed left half made has no size yet: it has taken no write, and
        // fails every flush.
        if disk.size(host.files())? > 0 {
            failures.flush(host, &disk.node, deadline).await?;
        }
        if let Err(error) = self.take_away(host, &note.map_uuid).await {
            failures.take(error)?;
        }
        failures.answer(&format!("deactivating {}", self.name))
    }

    /// Makes the device as large as the volume.
    pub(super) async fn extend(&self, host: &dyn Host) -> Result<ByteSize> {
        let _lock = self.lock(host, Deadline::after(LOCK_LIMIT)).await?;
        let found = self.need(host).await?;
        let missing = || AttachError::NotAttached { what: self.name.to_string() };
        let disk = device(host.files(), &found.map_uuid())?.ok_or_else(missing)?;
        let mut events = host.events().subscribe();
        if disk.size(host.files())? < found.size() {
            // lvextend does this where it runs; here the volume grew on another host.
            tool::refresh(host, self.name).await?;
        }
        let grown = wait::until(&mut *events, Deadline::after(DEVICE_LIMIT), async || {
            let size = disk.size(host.files())?;
            Ok((size >= found.size()).then_some(size))
        })
        .await?;
        let (attempt, limit) = (format!("growing {}", disk.node.display()), DEVICE_LIMIT);
        Ok(ByteSize::bytes(grown.ok_or(AttachError::Deadline { attempt, limit })?))
    }

    /// What is active now.
    pub(super) async fn lookup(&self, host: &dyn Host) -> Result<Option<Attached>> {
        let Some(found) = self.look(host).await? else { return Ok(None) };
        let disk = device(host.files(), &found.map_uuid())?;
        disk.map(|disk| self.answer(host, &found, &disk)).transpose()
    }

    /// Whether its device is there and answers.
    pub(super) async fn health(
        &self,
        host: &dyn Host,
        recorded: Option<&Attached>,
    ) -> Result<Health> {
        let found = match self.lookup(host).await {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(Health::bad(format!("{} is not active", self.name))),
            Err(error) if error.kind() == Kind::Precondition => {
                return Ok(Health::bad(error.sentence()));
            }
            Err(error) => return Err(error),
        };
        let node = found.path();
        if let Some(path) = recorded.map(Attached::path).filter(|path| *path != node) {
            let (node, path) = (node.display(), path.display());
            let said = format!("{} is {node}, and was recorded as {path}", self.name);
            return Ok(Health::bad(said));
        }
        let read = match host.disks().open(node).await {
            Ok(disk) => disk.read(0, 4096, READ_LIMIT).await.map(drop),
            Err(error) => Err(error),
        };
        Ok(match read {
            Ok(()) => Health::good(),
            Err(error) => {
                Health::bad(format!("{}: {}", node.display(), Error::from(error).sentence()))
            }
        })
    }
}

async fn set_read_only(host: &dyn Host, disk: &Whole) -> Result<()> {
    let attempt = format!("making {} refuse writes", disk.node.display());
    let set = host.disks().set_read_only(&disk.node, true).await;
    Ok(set.map_err(AttachError::kernel(attempt))?)
}

fn invalid(why: &str) -> Error {
    AttachError::Invalid { why: format!("lv_name must be a volume to use, and {why}") }.into()
}
