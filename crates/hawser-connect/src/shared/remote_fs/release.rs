//! Detaching: users, flush, then the mount, if this was its last user and we made it.

use hawser_core::attach::Detach;
use hawser_core::error::{Error, Result};
use hawser_core::port::Host;
use hawser_core::port::host::{MountEntry, SeenKind};
use hawser_core::port::kernel::LockMode;
use hawser_core::{Change, Kind};

use super::data::Volume;
use super::error::RemoteError;
use super::notes::{MadeMount, Notes};
use super::{ALIVE, RemoteFs, alive, mounted_at, recognised, remove_made, users};
use crate::shared::error::AttachError;
use crate::shared::release::{FLUSH_LIMIT, Failures};
use crate::shared::wait::Deadline;

/// One detach.
struct Release<'a> {
    host: &'a dyn Host,
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
    let release = Release { host, volume, notes: Notes::of(host, volume), detach, deadline };
    match tokio::time::timeout(deadline.left(), release.run(fs)).await {
        Ok(done) => done,
        Err(_) => {
            let attempt = format!("detaching {}", volume.path().display());
            Err(AttachError::Deadline { attempt, limit: detach.deadline }.into())
        }
    }
}

impl Release<'_> {
    async fn run(&self, fs: &dyn RemoteFs) -> Result<Change<()>> {
        let name = format!("mount-{}", self.volume.mount_key());
        let _alone = self.host.locks().lock(&name, LockMode::Exclusive).await?;
        let used = self.notes.in_use()?;
        let made = self.notes.made()?;
        let others = self.notes.used_by_others()?;
        let there = match mounted_at(self.host, &self.volume.target).await? {
            Some(_) if !used && made.is_none() => return Ok(Change::Already(())),
            Some(_) => recognised(self.host, fs, self.volume, &self.notes, self.deadline).await?,
            None => None,
        };
        let Some(entry) = there else {
            // Unmounted by somebody, by a reboot, or never mounted: only traces are left.
            let made = made.or(self.left_folder().await?).filter(|_| !others);
            let left = self.forget(made).await?;
            return Ok(if left { Change::Made(()) } else { Change::Already(()) });
        };
        if !used && others {
            return Ok(Change::Already(()));
        }
        users::refuse_used(self.host, self.volume, self.detach.force).await?;
        let mut failures = Failures::new(self.detach);
        let flushed = self.flush(&entry).await;
        let dead = flushed.is_err();
        let ours = made.as_ref().is_some_and(|made| made.may_be(&entry));
        let last = ours && !others;
        if let Err(source) = flushed {
            let target = self.volume.target.clone();
            // What others still have mounted is not lost.
            let lost = self.detach.force && last;
            failures.take(if lost {
                RemoteError::Lost { target, source }
            } else {
                RemoteError::Flush { target, source }
            })?;
        }
        if last {
            self.unmount(dead, &mut failures).await?;
        }
        self.forget(made.filter(|_| !others)).await?;
        failures.answer(&format!("detaching {}", self.volume.path().display()))
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
        let orderly = if dead { None } else { Some(self.host.unmount(target).await) };
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

    /// A folder that we made during an earlier boot: nobody else closes one to all.
    async fn left_folder(&self) -> Result<Option<MadeMount>> {
        let target = &self.volume.target;
        let seen = self.host.look(target, self.deadline.within(ALIVE).left()).await?;
        let ours = seen.is_some_and(|seen| seen.kind == SeenKind::Folder && seen.mode == 0);
        let folders = vec![target.clone()];
        Ok(ours.then(|| MadeMount { folders, ..MadeMount::default() }))
    }

    /// Removes the traces of this use, and of the mount where it is gone; answers whether there
    /// were any.
    async fn forget(&self, made: Option<MadeMount>) -> Result<bool> {
        let mut left = false;
        if let Some(made) = &made {
            left |= remove_made(self.host, made).await?;
        }
        left |= self.notes.remove_use().await?;
        if made.is_some() {
            left |= self.notes.remove_made().await?;
        }
        Ok(left)
    }
}

fn busy(volume: &Volume, error: Error) -> Error {
    if error.kind() != Kind::Busy {
        return error;
    }
    let (device, users) = (volume.path(), error.sentence());
    AttachError::Busy { device, users }.into()
}
