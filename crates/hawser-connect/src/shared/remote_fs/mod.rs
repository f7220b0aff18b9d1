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

mod attach;
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
mod view;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use hawser_core::Kind;
use hawser_core::error::Result;
use hawser_core::port::Host;
use hawser_core::port::host::{MountEntry, Seen, SeenKind};
use hawser_core::port::kernel::DeviceEvents;
use rustix::io::Errno;

use super::error::AttachError;
use super::wait::Deadline;
pub(crate) use connector::{FileProtocol, Remote};
use data::Volume;
use error::RemoteError;
use notes::{MadeMount, Notes};

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

    /// For how long the client may answer from memory what the servers know better; nothing that
    /// the kernel can be asked to forget.
    fn attribute_age(&self) -> Duration {
        Duration::ZERO
    }

    /// Settings that the mount writes and that go with it where they were not there before: files,
    /// then folders of their own.
    fn files(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Those of them that carry a mark of ours and are there, although no note tells of them.
    fn left_files(&self, _host: &dyn Host) -> Result<Vec<PathBuf>> {
        Ok(Vec::new())
    }

    /// Mounts the export. A failed mount leaves nothing of its own but [`RemoteFs::files`]; an error
    /// with an unknown outcome means that the mount may still come.
    async fn mount(
        &self,
        host: &dyn Host,
        volume: &Volume,
        addresses: &[SocketAddr],
        deadline: Deadline,
    ) -> Result<()>;
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

/// Where a mount was begun and nobody has seen it: waits for the program that may be at it still.
async fn wait_for_program(
    host: &dyn Host,
    volume: &Volume,
    notes: &Notes<'_>,
    deadline: Deadline,
) -> Result<()> {
    if notes.made()?.is_none_or(|made| made.shown.is_some()) {
        return Ok(());
    }
    let mut patience = Patience::new(host, deadline);
    loop {
        let users = users::mounting(volume.target.clone()).await;
        let done = if users.is_empty() {
            Ok(())
        } else {
            let (device, users) = (volume.target.clone(), users.join(", "));
            Err(AttachError::Busy { device, users }.into())
        };
        if !patience.allows(&done).await {
            return done;
        }
    }
}

/// The mount that a path leads to.
async fn mounted_at(host: &dyn Host, target: &Path) -> Result<Option<MountEntry>> {
    Ok(host.mounts().await?.into_iter().rev().find(|entry| entry.target == target))
}

/// Removes what was made for a mount that is gone, and answers whether there was anything; what
/// others use meanwhile stays.
async fn remove_made(host: &dyn Host, made: &MadeMount) -> Result<bool> {
    let mut removed = false;
    for folder in made.folders.iter().rev() {
        removed |= host.remove_target(folder).await?.is_made();
    }
    for file in &made.files {
        removed |= match host.files().remove(file).await {
            // A folder that others use meanwhile.
            Err(error) if error.errno() == Some(Errno::NOTEMPTY.raw_os_error()) => false,
            done => done?,
        };
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
