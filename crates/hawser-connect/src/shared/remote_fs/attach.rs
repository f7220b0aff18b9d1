//! Attaching: the mount is made, joined, or made anew where it is dead.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use hawser_core::attach::{Attach, Attached, Identity};
use hawser_core::error::{Error, Result};
use hawser_core::port::Host;
use hawser_core::port::host::MountEntry;
use hawser_core::port::kernel::LockMode;
use hawser_core::{Change, Kind, Outcome};
use rustix::io::Errno;

use super::data::Volume;
use super::error::RemoteError;
use super::notes::{MadeMount, Notes};
use super::{
    ALIVE, Patience, RemoteFs, alive, find, mounted_at, remove_made, server, wait_for_program,
};
use crate::shared::error::AttachError;
use crate::shared::wait::Deadline;

/// One attempt to attach.
struct Attempt<'a> {
    host: &'a dyn Host,
    fs: &'a dyn RemoteFs,
    volume: &'a Volume,
    notes: Notes<'a>,
    deadline: Deadline,
}

/// Mounts the export, if it is not mounted yet, and finds the volume in it.
pub(super) async fn connect(
    host: &dyn Host,
    fs: &dyn RemoteFs,
    volume: &Volume,
    attach: &Attach,
) -> Result<Change<Attached>> {
    let deadline = Deadline::after(attach.deadline);
    let attempt = Attempt { host, fs, volume, notes: Notes::of(host, volume), deadline };
    match tokio::time::timeout(deadline.left(), attempt.run()).await {
        Ok(done) => done,
        Err(_) => {
            let attempt = format!("attaching {}", volume.export);
            Err(AttachError::Deadline { attempt, limit: attach.deadline }.into())
        }
    }
}

impl Attempt<'_> {
    async fn run(&self) -> Result<Change<Attached>> {
        let name = format!("mount-{}", self.volume.mount_key());
        let _alone = self.host.locks().lock(&name, LockMode::Exclusive).await?;
        let addresses = self.fs.addresses(self.deadline).await?;
        wait_for_program(self.host, self.volume, &self.notes, self.deadline).await?;
        if let Some(entry) = mounted_at(self.host, &self.volume.target).await? {
            self.check_entry(&entry, &addresses)?;
            match alive(self.host, &entry, self.volume, self.deadline).await {
                Ok(()) => return self.join(&entry).await,
                Err(dead) => self.clear_dead(&entry, dead).await?,
            }
        }
        self.make(&addresses).await
    }

    /// What is mounted there must be what was asked for.
    fn check_entry(&self, entry: &MountEntry, addresses: &[SocketAddr]) -> Result<()> {
        let Volume { target, export, read_only, .. } = self.volume;
        self.fs.recognise(entry, addresses).map_err(|found| AttachError::WrongIdentity {
            device: target.clone(),
            expected: Identity::new("export", export),
            found,
        })?;
        if entry.read_only() != *read_only {
            let (target, read_only) = (target.clone(), *read_only);
            return Err(RemoteError::OtherAccess { target, read_only }.into());
        }
        Ok(())
    }

    /// The mount is there and works: one more user of it.
    async fn join(&self, entry: &MountEntry) -> Result<Change<Attached>> {
        self.find().await?;
        if let Some(mut made) = self.notes.made()?.filter(|made| made.shown.is_none()) {
            // Made by somebody of us who died before it was seen.
            made.shown = Some(entry.into());
            self.notes.store_made(&made).await?;
        }
        if self.notes.in_use()? {
            return Ok(Change::Already(self.volume.attached()));
        }
        if let Err(error) = self.notes.store_use().await {
            // The note may be there although the answer says otherwise.
            return match self.notes.remove_use().await {
                Ok(_) => Err(error.with_outcome(Outcome::Nothing)),
                Err(undo) => Err(self.undo_failed(&undo, error)),
            };
        }
        Ok(Change::Made(self.volume.attached()))
    }

    /// Takes a dead mount of ours away, so that it can be made anew. Nobody can use it any more;
    /// whoever still has a file of it open keeps it, and then there is nothing to be done here.
    async fn clear_dead(&self, entry: &MountEntry, dead: Error) -> Result<()> {
        let Volume { target, export, .. } = self.volume;
        if !is_dead(&dead) {
            let (target, export) = (target.clone(), export.clone());
            return Err(RemoteError::Silent { target, export, source: dead }.into());
        }
        if !self.notes.made()?.is_some_and(|made| made.may_be(entry)) {
            return Err(RemoteError::DeadForeign { target: target.clone(), source: dead }.into());
        }
        self.host.unmount(target).await?;
        Ok(())
    }

    /// Mounts it, and takes everything back when that fails.
    async fn make(&self, addresses: &[SocketAddr]) -> Result<Change<Attached>> {
        let mut made = self.notes.made()?.unwrap_or_default();
        made.target = self.volume.target.clone();
        made.shown = None;
        self.add_folders(&mut made).await?;
        let left = self.fs.left_files(self.host)?;
        for file in self.fs.files() {
            let ours = left.contains(&file) || self.host.files().resolve(&file)?.is_none();
            if ours && !made.files.contains(&file) {
                made.files.push(file);
            }
        }
        let mut may_come = false;
        match self.make_noted(&mut made, addresses, &mut may_come).await {
            Ok(()) => Ok(Change::Made(self.volume.attached())),
            Err(error) => Err(self.take_back(&made, may_come, error).await),
        }
    }

    /// Folders that this mount needs and that go with the last one that needs them.
    async fn add_folders(&self, made: &mut MadeMount) -> Result<()> {
        made.folders.extend(self.notes.shared_folders()?);
        made.folders.extend(missing(self.host, &self.volume.target, self.deadline).await?);
        // A folder sorts before those in it.
        made.folders.sort();
        made.folders.dedup();
        Ok(())
    }

    async fn make_folders(&self, made: &MadeMount) -> Result<()> {
        for folder in &made.folders {
            // The mount point itself is closed to all; folders above it are ordinary ones.
            let mode = if *folder == self.volume.target { 0o000 } else { 0o755 };
            self.host.make_folder(folder, mode).await?;
        }
        Ok(())
    }

    async fn make_noted(
        &self,
        made: &mut MadeMount,
        addresses: &[SocketAddr],
        may_come: &mut bool,
    ) -> Result<()> {
        let Volume { target, export, .. } = self.volume;
        self.notes.store_made(made).await?;
        self.notes.store_use().await?;
        match self.make_folders(made).await {
            // Another mount went and took a folder with it.
            Err(error) if error.kind() == Kind::NotFound => {
                self.add_folders(made).await?;
                self.notes.store_made(made).await?;
                self.make_folders(made).await?;
            }
            done => done?,
        }
        // A call that was given up may be at work there still.
        let mut patience = Patience::new(self.host, self.deadline);
        let mounted = loop {
            let done = self.fs.mount(self.host, self.volume, addresses, self.deadline).await;
            if !patience.allows(&done).await {
                break done;
            }
        };
        *may_come = mounted.as_ref().is_err_and(Error::is_unknown);
        mounted?;
        let Some(entry) = mounted_at(self.host, target).await? else {
            let (target, export) = (target.clone(), export.clone());
            return Err(RemoteError::NotMounted { target, export }.into());
        };
        self.check_entry(&entry, addresses)?;
        alive(self.host, &entry, self.volume, self.deadline).await?;
        self.find().await?;
        made.shown = Some((&entry).into());
        self.notes.store_made(made).await
    }

    /// After a failure: as it was before.
    async fn take_back(&self, made: &MadeMount, may_come: bool, error: Error) -> Error {
        match self.try_take_back(made, may_come).await {
            Ok(true) => error.with_outcome(Outcome::RolledBack),
            // A mount that hangs in the kernel may appear after all: it stays in the notes.
            Ok(false) => error.with_outcome(Outcome::Unknown),
            Err(undo) => self.undo_failed(&undo, error),
        }
    }

    /// False when the mount may still appear.
    async fn try_take_back(&self, made: &MadeMount, may_come: bool) -> Result<bool> {
        let target = &self.volume.target;
        match mounted_at(self.host, target).await? {
            Some(_) => drop(self.host.unmount(target).await?),
            None if may_come => return Ok(false),
            None => {}
        }
        self.notes.remove_use().await?;
        if self.notes.used_by_others()? {
            return Ok(true);
        }
        remove_made(self.host, made).await?;
        self.notes.remove_made().await?;
        Ok(true)
    }

    fn undo_failed(&self, undo: &Error, source: Error) -> Error {
        let (target, undo) = (self.volume.target.clone(), undo.sentence());
        RemoteError::Undo { target, undo, source }.into()
    }

    async fn find(&self) -> Result<()> {
        find(self.host, self.volume, self.deadline).await.map(drop)
    }
}

/// Folders on the way to the target that are not there, outermost first.
async fn missing(host: &dyn Host, target: &Path, deadline: Deadline) -> Result<Vec<PathBuf>> {
    let mut folders = Vec::new();
    for folder in target.ancestors() {
        if host.look(folder, deadline.within(ALIVE).left()).await?.is_some() {
            break;
        }
        folders.insert(0, folder.to_path_buf());
    }
    Ok(folders)
}

/// A mount whose server or daemon has forgotten it: it never comes back by itself.
fn is_dead(error: &Error) -> bool {
    matches!(server::errno(error), Some(Errno::STALE | Errno::NOTCONN | Errno::SHUTDOWN))
}
