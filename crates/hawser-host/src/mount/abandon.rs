//! Takes a mount out of the tree although its server is dead or files are open.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hawser_core::Change;
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount as umount2};

use super::target::Place;
use super::{MountError, table, topmost};
use crate::workers::{WorkerError, Workers};

/// How long either way may take. The first hangs where the file system wants to write to its
/// server; the second has taken the mount away by the time it hangs.
const PATIENCE: Duration = Duration::from_secs(5);

/// A mount that is to go.
struct Leaving {
    place: Place,
    /// The kernel's number of the mount.
    id: u64,
    /// No other mount shows the same file system.
    last: bool,
}

impl Leaving {
    /// `None` when nothing is mounted there.
    fn find(target: &Path) -> Result<Option<Self>, MountError> {
        let Some(place) = Place::find(target)? else { return Ok(None) };
        let table = table::read()?;
        let Some(entry) = topmost(&table, &place.path) else { return Ok(None) };
        let last = !table.iter().any(|it| it.device == entry.device && it.id != entry.id);
        Ok(Some(Self { id: entry.id, last, place }))
    }

    fn is_gone(&self) -> Result<bool, MountError> {
        Ok(!table::read()?.iter().any(|entry| entry.id == self.id))
    }

    fn unmount(&self, how: UnmountFlags) -> Result<(), Errno> {
        umount2(self.place.through_parent(), how | UnmountFlags::NOFOLLOW)
    }
}

/// First breaks off what waits for the server (`MNT_FORCE`), then takes the mount out of the tree
/// whoever uses it (`MNT_DETACH`). Either may hang after the mount is gone, while its file system
/// is given up; that is nobody's concern any more.
///
/// Takes no claim: the call that hangs at this target may have one, and is the reason for this.
pub(crate) async fn abandon(
    workers: &Workers,
    limit: Duration,
    target: &Path,
) -> Result<Change<()>, MountError> {
    let path = target.to_owned();
    let found = workers.run("looking for a mount", limit, move || Leaving::find(&path)).await??;
    let Some(leaving) = found.map(Arc::new) else { return Ok(Change::Already(())) };
    // With another mount of the same file system, its calls would be broken off as well.
    if leaving.last {
        match attempt(workers, PATIENCE.min(limit), &leaving, UnmountFlags::FORCE).await {
            Ok(()) => return Ok(Change::Made(())),
            Err(error) => tracing::debug!(%error, ?target, "a forced unmount did not help"),
        }
    }
    match attempt(workers, PATIENCE.min(limit), &leaving, UnmountFlags::DETACH).await {
        Ok(()) => Ok(Change::Made(())),
        Err(Failed::Refused(source)) => {
            Err(MountError::Abandon { target: target.to_owned(), source: source.into() })
        }
        Err(Failed::Other(error)) => Err(error),
    }
}

/// Why the mount is still there.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error(transparent)]
    Refused(#[from] Errno),
    #[error(transparent)]
    Other(#[from] MountError),
}

/// One way; well when the mount is not there any more, whatever the call says.
async fn attempt(
    workers: &Workers,
    limit: Duration,
    leaving: &Arc<Leaving>,
    how: UnmountFlags,
) -> Result<(), Failed> {
    let acting = Arc::clone(leaving);
    let called = workers.run("a forced unmount", limit, move || acting.unmount(how)).await;
    let why = match called {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(errno)) => Failed::Refused(errno),
        Err(late @ WorkerError::Late { .. }) => Failed::Other(late.into()),
        Err(other) => return Err(Failed::Other(other.into())),
    };
    let looking = Arc::clone(leaving);
    let gone = workers.run("reading the mount table", limit, move || looking.is_gone()).await;
    if gone.map_err(MountError::from)?? { Ok(()) } else { Err(why) }
}
