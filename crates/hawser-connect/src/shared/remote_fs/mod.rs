//! Volumes in file systems of other machines: what NFS, SMB, GlusterFS and their like share.
//!
//! One mount for each export and base folder, at the place where os-brick puts it, shared by all
//! volumes of that export. Who uses a mount stands in [`notes`]; the last one takes it away, if we
//! made it. What is mounted is compared with what was asked for before it is used, by type, source
//! and server; and the device number of the folder must be that of the mount, or writes would land
//! on a disk of this host. The folder below a mount has mode 000, so that a mount that is gone is
//! noticed by whoever writes.
//!
//! Every call that may hang with a dead server has a limit of its own.

mod connector;
pub(crate) mod data;
mod error;
mod notes;
pub(crate) mod options;
mod release;
pub(crate) mod server;
#[cfg(test)]
mod tests;
mod users;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use hawser_core::attach::{Attach, Attached, Health, Identity};
use hawser_core::error::{Error, Result};
use hawser_core::port::Host;
use hawser_core::port::host::{MountEntry, Seen, SeenKind};
use hawser_core::port::kernel::{DeviceEvents, LockMode};
use hawser_core::{ByteSize, Change, Kind, Outcome};
use rustix::io::Errno;

use super::error::AttachError;
use super::wait::Deadline;
pub(crate) use connector::{FileProtocol, Remote};
use data::Volume;
use error::RemoteError;
use notes::{MadeMount, Notes};
use release::disconnect;

/// How long a mounted server may take to say that it is there.
const ALIVE: Duration = Duration::from_secs(10);

/// How soon what is busy is tried again: a mount has no device event.
const AGAIN: Duration = Duration::from_millis(100);

/// One protocol.
#[async_trait]
pub(crate) trait RemoteFs: Send + Sync {
    /// The addresses of the server; none where the protocol does not tell them of a mount.
    async fn addresses(&self, deadline: Deadline) -> Result<Vec<SocketAddr>>;

    /// Whether a line of the mount table is this export; says what it is when it is not. Without
    /// addresses only names are compared.
    fn recognise(
        &self,
        entry: &MountEntry,
        addresses: &[SocketAddr],
    ) -> std::result::Result<(), String>;

    /// Settings that the mount writes and that go with it.
    fn files(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Mounts the export. A failed mount leaves nothing of its own.
    async fn mount(
        &self,
        host: &dyn Host,
        volume: &Volume,
        addresses: &[SocketAddr],
        deadline: Deadline,
    ) -> Result<()>;
}

/// One attempt to attach.
struct Attempt<'a> {
    host: &'a dyn Host,
    fs: &'a dyn RemoteFs,
    volume: &'a Volume,
    notes: Notes<'a>,
    deadline: Deadline,
}

/// Mounts the export, if it is not mounted yet, and finds the volume in it.
async fn connect(
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
        for file in self.fs.files() {
            if !made.files.contains(&file) && self.host.files().read(&file)?.is_none() {
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

/// Repeats a call that answers that somebody is at work, until it is through or the time is.
struct Patience {
    events: Box<dyn DeviceEvents>,
    deadline: Deadline,
}

impl Patience {
    fn new(host: &dyn Host, deadline: Deadline) -> Self {
        Self { events: host.events().subscribe(), deadline }
    }

    /// True, after a moment, when the call is to be made again.
    async fn allows<T>(&mut self, done: &Result<T>) -> bool {
        let busy = done.as_ref().is_err_and(|error| error.kind() == Kind::Busy);
        if !busy || self.deadline.passed() {
            return false;
        }
        self.events.changed(self.deadline.left().min(AGAIN)).await;
        true
    }
}

/// The mount that a path leads to.
async fn mounted_at(host: &dyn Host, target: &Path) -> Result<Option<MountEntry>> {
    Ok(host.mounts().await?.into_iter().rev().find(|entry| entry.target == target))
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

/// Removes what was made for a mount that is gone, and answers whether there was anything; what
/// others use meanwhile stays.
async fn remove_made(host: &dyn Host, made: &MadeMount) -> Result<bool> {
    let mut removed = false;
    for folder in made.folders.iter().rev() {
        removed |= host.remove_target(folder).await?.is_made();
    }
    for file in &made.files {
        removed |= host.files().remove(file).await?;
    }
    Ok(removed)
}

/// The server answers, and the folder is really on the mount.
async fn alive(
    host: &dyn Host,
    entry: &MountEntry,
    volume: &Volume,
    deadline: Deadline,
) -> Result<()> {
    let seen = host.look(&volume.target, deadline.within(ALIVE).left()).await?;
    if seen.is_some_and(|seen| seen.device == entry.device && seen.kind == SeenKind::Folder) {
        return Ok(());
    }
    let (target, export) = (volume.target.clone(), volume.export.clone());
    Err(RemoteError::NotMounted { target, export }.into())
}

/// A mount whose server or daemon has forgotten it: it never comes back by itself.
fn is_dead(error: &Error) -> bool {
    matches!(server::errno(error), Some(Errno::STALE | Errno::NOTCONN | Errno::SHUTDOWN))
}

/// The volume in the mounted file system.
async fn find(host: &dyn Host, volume: &Volume, deadline: Deadline) -> Result<Seen> {
    let path = volume.path();
    let seen = host.look(&path, deadline.within(ALIVE).left()).await?;
    let Some(seen) = seen else {
        let export = volume.export.clone();
        return Err(RemoteError::NoVolume { path, export }.into());
    };
    let wanted = if volume.name.is_some() { SeenKind::File } else { SeenKind::Folder };
    if seen.kind == wanted {
        return Ok(seen);
    }
    let (wanted, found) = (words(wanted), words(seen.kind));
    Err(RemoteError::WrongKind { path, wanted, found }.into())
}

fn words(kind: SeenKind) -> &'static str {
    match kind {
        SeenKind::File => "a plain file",
        SeenKind::Folder => "a folder",
        SeenKind::Symlink => "a symlink, which is not followed",
        SeenKind::BlockDevice => "a block device",
        SeenKind::Other => "neither a file nor a folder",
    }
}

/// True when a mount is that of the volume: by our note, by its names, or by its server's address.
async fn is_recognised(
    entry: &MountEntry,
    fs: &dyn RemoteFs,
    notes: &Notes<'_>,
    deadline: Deadline,
) -> Result<bool> {
    if notes.made()?.is_some_and(|made| made.is(entry)) || fs.recognise(entry, &[]).is_ok() {
        return Ok(true);
    }
    // Two names of one server: the kernel shows the name of the first mount for both.
    if server::mounted_from(entry).is_none() {
        return Ok(false);
    }
    let addresses = fs.addresses(deadline).await?;
    Ok(fs.recognise(entry, &addresses).is_ok())
}

/// The mount of a volume, if it is there.
async fn recognised(
    host: &dyn Host,
    fs: &dyn RemoteFs,
    volume: &Volume,
    notes: &Notes<'_>,
    deadline: Deadline,
) -> Result<Option<MountEntry>> {
    let Some(entry) = mounted_at(host, &volume.target).await? else { return Ok(None) };
    Ok(is_recognised(&entry, fs, notes, deadline).await?.then_some(entry))
}

/// What is attached now. Asks nobody but this host.
async fn lookup(host: &dyn Host, fs: &dyn RemoteFs, volume: &Volume) -> Result<Option<Attached>> {
    let notes = Notes::of(host, volume);
    if !notes.in_use()? {
        return Ok(None);
    }
    let deadline = Deadline::after(ALIVE);
    let entry = recognised(host, fs, volume, &notes, deadline).await?;
    Ok(entry.map(|_| volume.attached()))
}

/// The size of a file as its server tells it now; nothing for a folder.
async fn extend(host: &dyn Host, fs: &dyn RemoteFs, volume: &Volume) -> Result<ByteSize> {
    let deadline = Deadline::after(3 * ALIVE);
    let notes = Notes::of(host, volume);
    let Some(entry) = recognised(host, fs, volume, &notes, deadline).await? else {
        let what = volume.path().display().to_string();
        return Err(AttachError::NotAttached { what }.into());
    };
    alive(host, &entry, volume, deadline).await?;
    let seen = find(host, volume, deadline).await?;
    let size = if volume.name.is_some() { seen.length } else { 0 };
    Ok(ByteSize::bytes(size))
}

/// Whether the mount is there, is the right one, answers, and has the volume.
async fn health(host: &dyn Host, fs: &dyn RemoteFs, volume: &Volume) -> Result<Health> {
    let deadline = Deadline::after(2 * ALIVE);
    let notes = Notes::of(host, volume);
    let target = volume.target.display();
    let Some(entry) = mounted_at(host, &volume.target).await? else {
        return Ok(Health::bad(format!("{} is not mounted on {target}", volume.export)));
    };
    if !is_recognised(&entry, fs, &notes, deadline).await? {
        let what = format!("{} ({})", entry.source, entry.fs_type);
        return Ok(Health::bad(format!("{target} has something else mounted: {what}")));
    }
    let works = match alive(host, &entry, volume, deadline).await {
        Ok(()) => find(host, volume, deadline).await.map(drop),
        Err(error) => Err(error),
    };
    match works {
        Ok(()) => Ok(Health::good()),
        // The host could not be asked at all: that says nothing of the volume.
        Err(error) if error.kind() == Kind::Internal => Err(error),
        Err(error) => Ok(Health::bad(error.sentence())),
    }
}
