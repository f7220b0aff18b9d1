//! One attempt to make or remove something: a folder of its own in `staging/`.
//!
//! The folder is what makes a dropped caller harmless. A copy whose caller is gone may still run on
//! a worker of the host; its target lies in a folder that nobody else uses and that is removed with
//! whatever is in it, so it can neither finish late nor spoil the next attempt.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use hawser_core::Change;
use hawser_core::id::{SnapshotId, VolumeId};
use rustix::io::Errno;

use super::error::LocalError;
use super::folder::Folder;
use super::ledger::Reservation;
use super::lock::IdLock;
use super::pool::Pool;
use super::remove::remove_folder;

/// The name under which a new thing grows in its attempt's folder.
pub(super) const NEW: &str = "new";
/// The name under which an old thing dies there.
pub(super) const OLD: &str = "old";
/// Attempts that belong to no id: what the pool's file system can do is tried out there.
pub(super) const PROBE: &str = "probe";

/// A folder in `staging/` that is being worked in; removed with all that is in it unless
/// [`Attempt::close`] says that nothing is left in it. Dropping it removes it in the background,
/// and the id stays locked until that is done.
pub(super) struct Attempt {
    pool: Arc<Pool>,
    name: String,
    folder: Option<Folder>,
    lock: Option<IdLock>,
    pub(super) room: Option<Reservation>,
    open: bool,
}

impl Attempt {
    /// Makes the folder. `lock` is held until the attempt has ended.
    pub(super) fn begin(
        pool: &Arc<Pool>,
        id: &str,
        lock: Option<IdLock>,
        room: Option<Reservation>,
    ) -> Result<Self, LocalError> {
        loop {
            let number = pool.next_attempt.fetch_add(1, Ordering::Relaxed);
            let name = format!("{id}.{number}");
            // Known as live before it exists, so that a survey never takes it for dead.
            pool.live().insert(name.clone());
            let made = pool.staging.make_folder(&name, 0o700);
            if made.as_ref().is_err_and(|error| error.errno() == Some(Errno::EXIST)) {
                // Left by an earlier process; not ours to use.
                pool.live().remove(&name);
                continue;
            }
            let pool = Arc::clone(pool);
            let mut attempt = Self { pool, name, folder: None, lock, room, open: true };
            let opened = made.and_then(|()| attempt.pool.staging.find_folder(&attempt.name));
            return match opened {
                Ok(Some(folder)) => {
                    attempt.folder = Some(folder);
                    Ok(attempt)
                }
                Ok(None) => {
                    let path = attempt.pool.staging.path().join(&attempt.name);
                    Err(attempt.fail(LocalError::Missing { path }))
                }
                Err(error) => Err(attempt.fail(error)),
            };
        }
    }

    /// The folder.
    pub(super) fn folder(&self) -> &Folder {
        self.folder.as_ref().expect("begin answers only attempts with a folder")
    }

    /// Ends an attempt whose folder is empty again. A folder that cannot be removed harms nothing
    /// and is found by the survey. Answers the id's lock, for what is still to do.
    pub(super) fn close(mut self) -> Option<IdLock> {
        match self.pool.staging.remove_empty(&self.name) {
            Ok(true) => {}
            Ok(false) => tracing::warn!(name = self.name, "a finished attempt left something"),
            Err(error) => tracing::warn!(%error, "removing a finished attempt"),
        }
        let lock = self.lock.take();
        self.end();
        lock
    }

    /// Ends an attempt and leaves what is in its folder for the next call on the id.
    pub(super) fn leave(mut self) {
        self.end();
    }

    /// Takes back what the attempt made, and answers the failure that ended it.
    pub(super) fn fail(mut self, failure: LocalError) -> LocalError {
        let removed = remove_folder(&self.pool.staging, &self.name);
        self.end();
        match removed {
            Ok(_) => failure,
            Err(source) => LocalError::LeftBehind {
                path: self.pool.staging.path().join(&self.name),
                failure: failure.to_string(),
                source: Box::new(source),
            },
        }
    }

    /// Removes what is in the attempt's folder, and the folder.
    pub(super) fn empty(mut self) -> Result<u64, LocalError> {
        let removed = remove_folder(&self.pool.staging, &self.name);
        self.end();
        removed.map(Change::into_inner)
    }

    fn end(&mut self) {
        self.open = false;
        self.pool.live().remove(&self.name);
        self.room = None;
        self.lock = None;
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.open {
            return;
        }
        let (pool, name) = (Arc::clone(&self.pool), self.name.clone());
        let (lock, room) = (self.lock.take(), self.room.take());
        let tidy = move || {
            if let Err(error) = remove_folder(&pool.staging, &name) {
                tracing::warn!(%error, "removing what an abandoned attempt left");
            }
            pool.live().remove(&name);
            drop((lock, room));
        };
        // Dropped by an async caller, so not here; without a runtime nobody is held up by it.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(tidy)),
            Err(_) => tidy(),
        }
    }
}

impl Pool {
    pub(super) fn live(&self) -> std::sync::MutexGuard<'_, std::collections::HashSet<String>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes what attempts on this id left in `staging/`; true when there was something. The
    /// caller holds the id's lock, so none of them is at work.
    pub(super) fn clear_attempts(&self, id: &str) -> Result<bool, LocalError> {
        let mut found = false;
        for name in self.staging.names()? {
            if attempt_owner(&name) == Some(id) {
                found |= remove_folder(&self.staging, &name)?.is_made();
            }
        }
        Ok(found)
    }

    /// Removes empty folders of attempts that a power cut left; what is not empty stays for the
    /// retry of its operation and for the survey. Nothing of this process is at work yet.
    pub(super) fn sweep_empty(&self) -> Result<(), LocalError> {
        for name in self.staging.names()? {
            let swept = match attempt_owner(&name) {
                Some(PROBE) => remove_folder(&self.staging, &name).map(drop),
                Some(_) => self.staging.remove_empty(&name).map(drop),
                None => Ok(()),
            };
            // No reason to keep the pool from its users; the survey shows what is left.
            if let Err(error) = swept {
                tracing::warn!(%error, "sweeping the staging folder");
            }
        }
        Ok(())
    }
}

/// Whose attempt a name in `staging/` is: a volume's or snapshot's id, or the probe; `None` for
/// names that we do not give.
pub(super) fn attempt_owner(name: &str) -> Option<&str> {
    let (owner, number) = name.split_once('.')?;
    let ours =
        owner == PROBE || owner.parse::<VolumeId>().is_ok() || owner.parse::<SnapshotId>().is_ok();
    let counted = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    (ours && counted).then_some(owner)
}
