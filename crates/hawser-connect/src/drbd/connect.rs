//! Bringing a resource up and taking the right to write.

use std::time::Duration;

use hawser_core::attach::Attached;
use hawser_core::error::{Error, Result};
use hawser_core::port::Host;
use hawser_core::port::registry::LockGuard;
use hawser_core::secret::Secret;
use hawser_core::{ByteSize, Change, Outcome};

use super::admin::{Admin, Note};
use super::data::Target;
use super::error::DrbdError;
use super::status::Resource;
use crate::shared::error::AttachError;
use crate::shared::locks;
use crate::shared::modules;
use crate::shared::users;
use crate::shared::wait::{self, Deadline};

/// How long peers may take to find each other.
const PEERS: Duration = Duration::from_secs(10);
/// How long a device may take to appear with its size.
const READY: Duration = Duration::from_secs(10);
/// How long a working device may take to read a block.
pub(super) const ANSWER: Duration = Duration::from_secs(5);
/// How long taking back may take, whatever the deadline says.
const UNDO: Duration = Duration::from_secs(20);

/// One attach.
pub(super) struct Connect<'a> {
    pub(super) admin: Admin<'a>,
    pub(super) secret: Option<&'a Secret>,
    pub(super) read_only: bool,
    pub(super) deadline: Deadline,
}

/// Waits for the resource's lock.
pub(super) async fn lock(
    host: &dyn Host,
    target: &Target,
    deadline: Deadline,
) -> Result<Box<dyn LockGuard>> {
    let name = format!("target-drbd-{}", target.name);
    locks::alone(host, &name, &target.name, deadline).await
}

/// What a caller is told.
pub(super) fn describe(host: &dyn Host, target: &Target) -> Result<Attached> {
    let disk = target.disk();
    let size = ByteSize::bytes(disk.size(host.files())?);
    Ok(Attached::Block { device: disk.node, identity: Some(target.identity()), size })
}

/// True when the block layer refuses writes.
pub(super) fn is_read_only(host: &dyn Host, target: &Target) -> Result<bool> {
    Ok(target.disk().attribute(host.files(), "ro")?.as_deref() == Some("1"))
}

/// Reads the first block through the device.
pub(super) async fn read_block(host: &dyn Host, target: &Target, limit: Duration) -> Result<()> {
    let disk = host.disks().open(&target.disk().node).await?;
    disk.read(0, 4096, limit).await.map(drop).map_err(Error::from)
}

impl Connect<'_> {
    /// Brings the resource up and takes the right to write, or finds it so.
    pub(super) async fn run(&self) -> Result<Change<Attached>> {
        let (host, target) = (self.admin.host, self.admin.target);
        modules::need(host, "drbd").await?;
        let _lock = lock(host, target, self.deadline).await?;
        let found = self.admin.look().await?;
        let noted = self.admin.note()?;
        if let (Some(note), Some(found)) = (noted, &found)
            && found.primary
        {
            return self.keep(note, found).await.map(Change::Already);
        }
        // What was before an attach that was cut off is in its note already.
        let note = match noted {
            Some(note) if found.is_some() => Note { read_only: self.read_only, ..note },
            Some(_) | None => self.first_note(found.as_ref()).await?,
        };
        self.make(note).await.map(Change::Made)
    }

    /// How things are before anything is done.
    async fn first_note(&self, found: Option<&Resource>) -> Result<Note> {
        let was_primary = found.is_some_and(|found| found.primary);
        if was_primary {
            let disk = self.admin.target.disk();
            users::refuse_used(self.admin.host, &disk, false, self.deadline).await?;
        }
        Ok(Note { was_up: found.is_some(), was_primary, read_only: self.read_only })
    }

    async fn keep(&self, note: Note, found: &Resource) -> Result<Attached> {
        let (host, target) = (self.admin.host, self.admin.target);
        if note.read_only != self.read_only {
            let (device, read_only) = (target.disk().node, self.read_only);
            return Err(DrbdError::OtherMode { device, read_only }.into());
        }
        if found.stands_alone() {
            return Err(DrbdError::StandAlone { name: target.name.clone() }.into());
        }
        self.ready().await?;
        describe(host, target)
    }

    async fn make(&self, note: Note) -> Result<Attached> {
        let made = match self.admin.write_note(&note).await {
            Ok(()) => self.bring_up(note).await,
            Err(error) => Err(error),
        };
        match made {
            Ok(attached) => Ok(attached),
            Err(error) => {
                let name = self.admin.target.name.clone();
                match self.take_back(note).await {
                    Ok(true) => Err(error.with_outcome(Outcome::RolledBack)),
                    Ok(false) => Err(error),
                    Err(undo) => {
                        let undo = undo.sentence();
                        Err(DrbdError::Undo { name, undo, source: error }.into())
                    }
                }
            }
        }
    }

    async fn bring_up(&self, note: Note) -> Result<Attached> {
        let (host, target) = (self.admin.host, self.admin.target);
        // What others have brought up is left as they set it up. An attach of ours that was cut off
        // may have brought up half of it, without its peers.
        if !note.was_up {
            self.admin.adjust(self.secret).await?;
        }
        let found = self.wait_for_peers().await?;
        if !found.primary {
            self.admin.promote().await?;
        }
        self.ready().await?;
        describe(host, target)
    }

    /// Waits until the peers have found each other. Nothing tells of it but the kernel when asked.
    async fn wait_for_peers(&self) -> Result<Resource> {
        let target = self.admin.target;
        let deadline = self.deadline.within(PEERS);
        let mut events = self.admin.host.events().subscribe();
        let name = || target.name.clone();
        loop {
            let Some(found) = self.admin.look().await? else {
                return Err(AttachError::NotAttached { what: name() }.into());
            };
            if found.stands_alone() {
                return Err(DrbdError::StandAlone { name: name() }.into());
            }
            if found.is_complete() {
                return Ok(found);
            }
            if wait::again(&mut *events, deadline).await {
                continue;
            }
            if found.is_connected() || target.degraded {
                return Ok(found);
            }
            let state = |way: &super::status::Connection| format!("{} {}", way.peer, way.state);
            let states = found.connections.iter().map(state).collect::<Vec<_>>().join(", ");
            return Err(DrbdError::NoPeer { name: name(), states, limit: deadline.limit() }.into());
        }
    }

    /// Waits for the device, sets its mode, and reads from it.
    async fn ready(&self) -> Result<()> {
        let (host, target) = (self.admin.host, self.admin.target);
        let disk = target.disk();
        let mut events = host.events().subscribe();
        let there = wait::until(&mut *events, self.deadline.within(READY), async || {
            let there = disk.size(host.files())? > 0 && disk.has_node(host.files())?;
            Ok(there.then_some(()))
        })
        .await?;
        if there.is_none() {
            let attempt = format!("waiting for {}", disk.node.display());
            return Err(AttachError::Deadline { attempt, limit: READY }.into());
        }
        if is_read_only(host, target)? != self.read_only {
            host.disks().set_read_only(&disk.node, self.read_only).await?;
        }
        let answer = read_block(host, target, self.deadline.within(ANSWER).left()).await;
        answer.map_err(|source| DrbdError::Dead { device: disk.node.clone(), source }.into())
    }

    /// Takes back what a failed attach did; false when that was nothing.
    async fn take_back(&self, note: Note) -> Result<bool> {
        let changed = give_back(&self.admin, note, Deadline::after(UNDO)).await?;
        self.admin.remove_notes().await?;
        Ok(changed)
    }
}

/// Brings the resource back to what it was before it was attached; false when it is so. The caller
/// has made sure that nobody uses it.
pub(super) async fn give_back(admin: &Admin<'_>, note: Note, deadline: Deadline) -> Result<bool> {
    let (host, target) = (admin.host, admin.target);
    let Some(found) = admin.look().await? else { return Ok(false) };
    let mut changed = false;
    if is_read_only(host, target)? && found.primary {
        host.disks().set_read_only(&target.disk().node, false).await?;
        changed = true;
    }
    if found.primary && !note.was_primary {
        admin.demote().await?;
        changed = true;
    }
    if note.was_up {
        return Ok(changed);
    }
    admin.down().await?;
    let mut events = host.events().subscribe();
    loop {
        if admin.look().await?.is_none() {
            return Ok(true);
        }
        if !wait::again(&mut *events, deadline).await {
            let what = format!("the resource {}", target.name);
            return Err(AttachError::NotRemoved { what, limit: deadline.limit() }.into());
        }
    }
}
