//! Grows ext4 by unmounting it for a moment.
//!
//! The kernel grows a mounted ext4 only for a process with `CAP_SYS_RESOURCE`, which some containers
//! and sandboxes do not give to root. Then, if nobody uses the file system, it is unmounted, grown
//! by `resize2fs` and mounted again; if somebody does, as a container whose folder it is, the error
//! says what is missing, and it grows when it is mounted the next time.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hawser_core::Change;
use hawser_core::filesystem::FsKind;
use hawser_core::port::host::{HostMount, MountEntry, MountSource, Tool};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

use super::error::BlockError;
use super::{fsck, grow};
use crate::exec::Exec;
use crate::mount::{self, Claims, MountError};
use crate::workers::{WorkerError, Workers};

/// What the work needs of the host, as it goes on when its caller has gone away.
pub(crate) struct Parts {
    pub(crate) exec: Arc<Exec>,
    pub(crate) workers: Workers,
    pub(crate) claims: Arc<Claims>,
    pub(crate) limit: Duration,
}

/// The request that makes a mount of the table once more.
pub(super) fn mount_again(device: &Path, entry: &MountEntry) -> HostMount {
    // What the table shows and a mount does not take: states, not options.
    const STATES: [&str; 4] = ["rw", "ro", "relatime", "seclabel"];
    let flags = entry.options.iter().chain(&entry.super_options);
    HostMount {
        source: MountSource::Device { device: device.to_owned(), fs: FsKind::Ext4 },
        target: entry.target.clone(),
        read_only: entry.read_only(),
        flags: flags.filter(|flag| !STATES.contains(&flag.as_str())).cloned().collect(),
    }
}

/// An error where unmounting `entry` would leave its file system mounted on another folder: as the
/// kernel has one state for all its mounts, nothing would be gained.
pub(super) fn refuse_elsewhere(
    device: &Path,
    entry: &MountEntry,
    table: &[MountEntry],
) -> Result<(), BlockError> {
    let mut others = table.iter().filter(|other| other.device == entry.device && *other != entry);
    others.next().map_or(Ok(()), |other| {
        let by = format!("it is also mounted on {:?}", other.target);
        Err(BlockError::MountedElsewhere { device: device.to_owned(), by })
    })
}

/// The same where the mount cannot be seen: in another mount namespace. Blocks.
fn refuse_held(device: &Path) -> Result<(), BlockError> {
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match open(device, flags, Mode::empty()) {
        Ok(_) => Ok(()),
        Err(Errno::BUSY) => {
            let by = "another mount namespace or process holds it".to_owned();
            Err(BlockError::MountedElsewhere { device: device.to_owned(), by })
        }
        Err(source) => Err(BlockError::Open { path: device.to_owned(), source: source.into() }),
    }
}

/// Unmounts, checks, grows and mounts again. Runs to its end also when the caller goes away: a
/// volume that stays unmounted would be worse than one that was grown for nobody.
pub(crate) async fn grow_ext4(
    parts: Parts,
    device: &Path,
    request: HostMount,
) -> Result<Change<()>, BlockError> {
    let device = device.to_owned();
    let work = tokio::spawn(async move { parts.grow(&device, &request).await });
    work.await.unwrap_or(Err(WorkerError::Panicked { what: "growing a file system" }.into()))
}

impl Parts {
    async fn grow(&self, device: &Path, request: &HostMount) -> Result<Change<()>, BlockError> {
        tracing::info!(
            device = %device.display(), target = %request.target.display(),
            "unmounting for a moment to grow ext4: this process lacks CAP_SYS_RESOURCE"
        );
        let target = request.target.clone();
        let unmount = self.mount_call(move |claims| mount::unmount(claims, &target)).await?;
        unmount.map_err(|source| BlockError::NotWhileMounted { device: device.into(), source })?;
        let grown = self.grow_unmounted(device).await;
        let again = request.clone();
        let mounted = self.mount_call(move |claims| mount::mount(claims, &again)).await?;
        mounted.map_err(|source| BlockError::MountAgain { device: device.into(), source })?;
        grown.map(Change::Made)
    }

    async fn grow_unmounted(&self, device: &Path) -> Result<(), BlockError> {
        let fs = FsKind::Ext4;
        let path = device.to_owned();
        // It may be mounted at a second place meanwhile; then nothing is touched.
        let alone = move || fsck::refuse_mounted(&path, fs).and_then(|()| refuse_held(&path));
        self.workers.run("reading the mount table", self.limit, alone).await??;
        // resize2fs insists on a full check before it works on what is not mounted.
        let check = Tool::new("e2fsck").args(["-f", "-p"]).arg(device);
        let output = self.exec.run(&check.limit(fsck::LIMIT)).await?;
        fsck::verdict(device, fs, &output)?;
        let output = self.exec.run(&grow::command(device, fs, Path::new("/"))).await?;
        let failed = |source| BlockError::Grow { fs, device: device.to_owned(), source };
        output.ok().map_err(failed)?;
        Ok(())
    }

    async fn mount_call<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Claims) -> Result<T, MountError> + Send + 'static,
    ) -> Result<Result<T, MountError>, BlockError> {
        let claims = Arc::clone(&self.claims);
        Ok(self.workers.run("a mount", self.limit, move || call(&claims)).await?)
    }
}
