//! Stops and resumes writes to a mounted file system.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use hawser_core::Change;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use tokio::sync::oneshot;

use super::copy::failed;
use super::error::FileError;
use crate::mount::target::{check_plain, open_folder};
use crate::sys;
use crate::workers::{WorkerError, Workers};

fn open_mounted(mounted: &Path) -> Result<OwnedFd, FileError> {
    check_plain(mounted)?;
    // Refuses links; the descriptor for the ioctl must be a real one.
    let place = open_folder(mounted)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(&place, ".", flags, Mode::empty()).map_err(failed("opening", mounted))
}

/// Stops writes. When the caller has given up before the kernel has answered, the worker lets them
/// go on again: nobody would know that they are stopped.
pub(crate) async fn freeze(
    workers: &Workers,
    limit: Duration,
    mounted: &Path,
) -> Result<Change<()>, FileError> {
    let path = mounted.to_owned();
    let (taken, was_taken) = oneshot::channel::<()>();
    let (answer, mut answered) = oneshot::channel();
    let worker = workers.run("freezing a file system", limit, move || {
        let folder = match open_mounted(&path) {
            Ok(folder) => folder,
            Err(error) => return drop(answer.send(Err(error))),
        };
        let frozen = match sys::freeze(&folder) {
            Ok(()) => Ok(Change::Made(())),
            Err(Errno::BUSY) => Ok(Change::Already(())),
            Err(errno) => Err(failed("freezing", &path)(errno)),
        };
        let made = matches!(frozen, Ok(Change::Made(())));
        let sent = answer.send(frozen).is_ok();
        if made && (!sent || was_taken.blocking_recv().is_err()) {
            let _ = sys::thaw(&folder);
        }
    });
    let panicked = || WorkerError::Panicked { what: "freezing a file system" };
    tokio::pin!(worker);
    let answer = tokio::select! {
        answer = &mut answered => answer.map_err(|_| panicked())?,
        ended = &mut worker => {
            ended?;
            answered.try_recv().map_err(|_| panicked())?
        }
    };
    let _ = taken.send(());
    answer
}

/// Lets writes go on. Blocks: for workers only.
pub(crate) fn thaw(mounted: &Path) -> Result<Change<()>, FileError> {
    let folder = open_mounted(mounted)?;
    match sys::thaw(&folder) {
        Ok(()) => Ok(Change::Made(())),
        Err(Errno::INVAL) => Ok(Change::Already(())),
        Err(errno) => Err(failed("thawing", mounted)(errno)),
    }
}

/// Writes everything of one file system out. Blocks: for workers only.
pub(crate) fn sync(path: &Path) -> Result<(), FileError> {
    check_plain(path)?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = open(path, flags, Mode::empty()).map_err(failed("opening", path))?;
    rustix::fs::syncfs(&file).map_err(failed("writing out the file system of", path))
}
