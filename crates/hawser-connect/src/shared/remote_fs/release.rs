//! Detaching: users, flush, then the mount, if this was its last user and we made it.

use std::time::Duration;

use hawser_core::attach::Detach;
use hawser_core::error::{Error, Result};
use hawser_core::port::Host;
use hawser_core::port::host::{MountEntry, SeenKind};
use hawser_core::port::kernel::LockMode;
use hawser_core::{Change, Kind};

use super::data::Volume;
use super::error::RemoteError;
use super::notes::{MadeMount, Notes};
use super::{
    ALIVE, Patience, RemoteFs, alive, is_recognised, mounted_at, remove_made, users,
    wait_for_program,
};
use crate::shared::error::AttachError;
use crate::shared::release::{FLUSH_LIMIT, Failures};
use crate::shared::wait::Deadline;

/// How long an unmount that answers busy is repeated: somebody may just be leaving.
const PATIENCE: Duration = Duration::from_secs(1);

/// How far an attempt came.
enum Step {
    Done(Change<()>),
    /// Somebody mounts or unmounts there at this moment, so it must be looked at again.
    AtWork(Error),
}

/// One detach.
struct Release<'a> {
    host: &'a dyn Host,
    fs: &'a dyn RemoteFs,
    volume: &'a Volume,
    notes: Notes<'a>,
    detach: &'a Detach,
    deadline: Deadline,
}

/// Takes a volume away from this host, and its mount with the last one.
pub(super) async fn disconnect(
    host: &dyn Host,
    fs: &dyn RemoteFs,
    volume: &Volume,
    detach: &Detach,
) -> Result<Change<()>> {
    let deadline = Deadline::after(detach.deadline);
    let release = Release { host, fs, volume, notes: Notes::of(host, volume), detach, deadline };
    match tokio::time::timeout(deadline.left(), release.run()).await {
        Ok(done) => done,
        Err(_) => {
            let attempt = format!("detaching {}", volume.path().display());
            Err(AttachError::Deadline { attempt, limit: detach.deadline }.into())
        }
    }
}

impl Release<'_> {
    async fn run(&self) -> Result<Change<()>> {
        let name = format!("mount-{}", self.volume.mount_key());
        let _alone = self.host.locks().lock(&name, LockMode::Exclusive).await?;
        wait_for_program(self.host, self.volume, &self.notes, self.deadline).await?;
        let mut patience = Patience::new(self.host, self.deadline);
        loop {
            let at_work = match self.attempt().await? {
                Step::Done(change) => return Ok(change),
                Step::AtWork(error) => Err(error),
            };
            if !patience.allows(&at_work).await {
                return at_work;
            }
        }
    }

    async fn attempt(&self) -> Result<Step> {
        let used = self.notes.in_use()?;
        let made = self.notes.made()?;
        let others = self.notes.used_by_others()?;
        let there = mounted_at(self.host, &self.volume.target).await?;
        let Some(entry) = there else { return self.forget_gone(made, others, None).await };
        if !used && (others || made.is_none()) {
            return Ok(Step::Done(Change::Already(())));
        }
        if is_recognised(&entry, self.fs, &self.notes, self.deadline).await? {
            return self.take_away(&entry, made, others).await;
        }
        self.forget_gone(made, others, Some(entry.id)).await
    }

    /// Unmounted by somebody, by a reboot, or never mounted: only traces are left. What is mounted
    /// there, if anything, is another's.
    async fn forget_gone(
        &self,
        made: Option<MadeMount>,
        others: bool,
        mounted: Option<u64>,
    ) -> Result<Step> {
        let made = match made {
            _ if others => None,
            None if mounted.is_none() => self.left().await?,
            made => made,
        };
        let left = match self.forget_folders(made.as_ref()).await {
            Ok(left) => left,
            // A mount that its caller gave up is under way.
            Err(error) if error.kind() == Kind::Busy => return Ok(Step::AtWork(error)),
            Err(error) => return Err(error),
        };
        let now = mounted_at(self.host, &self.volume.target).await?.map(|entry| entry.id);
        if now.is_some() && now != mounted {
            let what = format!("{} was mounted meanwhile", self.volume.target.display());
            return Ok(Step::AtWork(Error::new(Kind::Busy, what)));
        }
        let left = self.forget_notes(made.is_some()).await? || left;
        Ok(Step::Done(if left { Change::Made(()) } else { Change::Already(()) }))
    }

    /// Users, flush, and the mount where this was the last use of it.
    async fn take_away(
        &self,
        entry: &MountEntry,
        made: Option<MadeMount>,
        others: bool,
    ) -> Result<Step> {
        users::refuse_used(self.host, self.volume, self.detach.force).await?;
        let mut failures = Failures::new(self.detach);
        let ours = made.as_ref().is_some_and(|made| made.may_be(entry));
        let last = ours && !others;
        let flushed = self.flush(entry).await;
        let dead = flushed.is_err();
        if let Err(source) = flushed {
            let now = mounted_at(self.host, &self.volume.target).await?;
            if now.map(|now| now.id) != Some(entry.id) {
                // An unmount that its caller gave up has come through.
                let what = format!("{} was unmounted meanwhile", self.volume.target.display());
                return Ok(Step::AtWork(Error::new(Kind::Busy, what)));
            }
            let target = self.volume.target.clone();
            // What others still have mounted is not lost.
            failures.take(if self.detach.force && last {
                RemoteError::Lost { target, source }
            } else {
                RemoteError::Flush { target, source }
            })?;
        }
        if last {
            self.unmount(dead, &mut failures).await?;
        }
        let made = made.filter(|_| !others);
        self.forget_folders(made.as_ref()).await?;
        self.forget_notes(made.is_some()).await?;
        let what = format!("detaching {}", self.volume.path().display());
        failures.answer(&what).map(Step::Done)
    }

    /// Writes out what is cached. A dead server is found within seconds first.
    async fn flush(&self, entry: &MountEntry) -> Result<()> {
        alive(self.host, entry, self.volume, self.deadline).await?;
        let limit = self.deadline.within(FLUSH_LIMIT);
        let target = &self.volume.target;
        match tokio::time::timeout(limit.left(), self.host.sync_filesystem(target)).await {
            Ok(done) => done,
            Err(_) => {
                let attempt = format!("writing out {}", target.display());
                Err(AttachError::Deadline { attempt, limit: limit.limit() }.into())
            }
        }
    }

    async fn unmount(&self, dead: bool, failures: &mut Failures<'_>) -> Result<()> {
        let target = &self.volume.target;
        let force = self.detach.force;
        // A dead server would make an orderly unmount hang.
        let orderly = if dead { None } else { Some(self.unmount_orderly().await) };
        match orderly {
            Some(Ok(_)) => {}
            Some(Err(_)) | None if force => drop(self.host.abandon_mount(target).await?),
            Some(Err(error)) => failures.take(busy(self.volume, error))?,
            None => {}
        }
        if mounted_at(self.host, target).await?.is_some() {
            let limit = ALIVE;
            let what = format!("the mount {}", target.display());
            return Err(AttachError::NotRemoved { what, limit }.into());
        }
        Ok(())
    }

    async fn unmount_orderly(&self) -> Result<Change<()>> {
        let mut patience = Patience::new(self.host, self.deadline.within(PATIENCE));
        loop {
            let done = self.host.unmount(&self.volume.target).await;
            if !patience.allows(&done).await {
                return done;
            }
        }
    }

    /// What we made during an earlier boot: a folder that is closed to all, as nobody else makes it,
    /// and settings with our mark.
    async fn left(&self) -> Result<Option<MadeMount>> {
        let target = &self.volume.target;
        let seen = self.host.look(target, self.deadline.within(ALIVE).left()).await?;
        let ours = seen.is_some_and(|seen| seen.kind == SeenKind::Folder && seen.mode == 0);
        let folders = if ours { vec![target.clone()] } else { Vec::new() };
        let files = self.fs.left_files(self.host)?;
        let any = ours || !files.is_empty();
        Ok(any.then(|| MadeMount { folders, files, ..MadeMount::default() }))
    }

    /// Removes what was made for the mount; answers whether there was anything.
    async fn forget_folders(&self, made: Option<&MadeMount>) -> Result<bool> {
        match made {
            Some(made) => remove_made(self.host, made).await,
            None => Ok(false),
        }
    }

    /// Removes the note of this use, and of the mount; answers whether there was one.
    async fn forget_notes(&self, mount_too: bool) -> Result<bool> {
        let used = self.notes.remove_use().await?;
        Ok(mount_too && self.notes.remove_made().await? || used)
    }
}

fn busy(volume: &Volume, error: Error) -> Error {
    if error.kind() != Kind::Busy {
        return error;
    }
    let (device, users) = (volume.path(), error.sentence());
    AttachError::Busy { device, users }.into()
}
