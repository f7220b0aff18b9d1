//! Host-wide locks: one file each, held with `flock(2)`.
//!
//! The kernel lets go of such a lock when its holder dies, however it dies. Inside one process the
//! waiters of a name queue up in order, and only one of them waits for other processes, on a thread
//! of its own: `flock` cannot be waited for in any other way, and cannot be cancelled. A waiter
//! that is dropped leaves that thread behind; when it gets the lock, it lets go at once. Until then
//! it keeps its place in the queue, so there is never more than one thread per name. Those of one
//! process that share a lock share one open file.
//!
//! Whoever lets go as the last one removes the file first, and whoever gets a lock checks that the
//! file still has its name; otherwise a host would collect one file for every volume it ever had.

mod error;
mod file;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use async_trait::async_trait;
use hawser_core::port::kernel::{LockMode, Locks};
use hawser_core::port::registry::LockGuard;
use hawser_core::{Error, Result};
use tokio::sync::{OwnedMutexGuard, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock, oneshot};

use error::LockError;
use file::{Folder, Held, file_name};

/// Locks as files of one folder, and the queues of this process.
///
/// All processes that are to be kept apart must use the same folder.
pub struct FileLocks {
    folder: Arc<Folder>,
    queues: Mutex<Queues>,
}

/// What those of this process that share a lock have in common; locked while one of them asks the
/// kernel on behalf of all.
type Common = Arc<tokio::sync::Mutex<Weak<Held>>>;
/// Who comes next: readers share, a writer is alone, and nobody overtakes.
type Queue = RwLock<Common>;

/// One queue per name that somebody holds or waits for.
struct Queues {
    by_name: HashMap<String, Weak<Queue>>,
    /// Dead entries are dropped when there are so many: cheap on average, and bounded.
    sweep_at: usize,
}

/// The smallest number of queues worth sweeping.
const SWEEP_FROM: usize = 64;

impl FileLocks {
    /// Uses this folder. It is made, where it is missing, with the first lock: a host on which this
    /// process may not make it can be used for everything that needs no lock.
    pub fn new(dir: &Path) -> Self {
        let queues = Queues { by_name: HashMap::new(), sweep_at: SWEEP_FROM };
        Self { folder: Arc::new(Folder::new(dir)), queues: Mutex::new(queues) }
    }

    /// Uses this folder and makes it now, where it is missing. Blocks.
    pub fn open(dir: &Path) -> Result<Self> {
        let locks = Self::new(dir);
        locks.folder.prepare()?;
        Ok(locks)
    }

    /// Waits for the lock of this name. Dropping the future gives it up.
    async fn take(&self, name: &str, mode: LockMode) -> Result<Guard, LockError> {
        let turn = match self.turn(name, mode).await {
            Attempt::Taken(guard) => return Ok(guard),
            Attempt::Open(turn) => turn,
        };
        let (folder, file) = (Arc::clone(&self.folder), file_name(name));
        let path = folder.path().join(&file);
        let lost = |source| LockError::Wait { path: path.clone(), source };
        let first = tokio::task::spawn_blocking(move || try_take(folder, &file, turn)).await;
        match first.map_err(|error| lost(io::Error::other(error)))?? {
            Attempt::Taken(guard) => Ok(guard),
            Attempt::Open(turn) => {
                let taken = wait_on_thread(Arc::clone(&self.folder), file_name(name), turn)?;
                taken.await.map_err(|error| lost(io::Error::other(error)))?
            }
        }
    }

    /// Waits for those of this process. The kernel need not be asked for a lock that is shared with
    /// one of them.
    async fn turn(&self, name: &str, mode: LockMode) -> Attempt {
        let queue = self.queue(name);
        match mode {
            LockMode::Exclusive => Attempt::Open(Turn::Alone(queue.write_owned().await)),
            LockMode::Shared => {
                let reader = queue.read_owned().await;
                let common = Arc::clone(&reader).lock_owned().await;
                match common.upgrade() {
                    Some(held) => {
                        Attempt::Taken(Guard { _held: held, _place: Place::Shared(reader) })
                    }
                    None => Attempt::Open(Turn::Together(common, reader)),
                }
            }
        }
    }

    fn queue(&self, name: &str) -> Arc<Queue> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = queues.by_name.get(name).and_then(Weak::upgrade) {
            return queue;
        }
        if queues.by_name.len() >= queues.sweep_at {
            queues.by_name.retain(|_, queue| queue.strong_count() > 0);
            queues.sweep_at = SWEEP_FROM.max(2 * queues.by_name.len());
        }
        let queue = Arc::default();
        queues.by_name.insert(name.into(), Arc::downgrade(&queue));
        queue
    }
}

#[async_trait]
impl Locks for FileLocks {
    async fn lock(&self, name: &str, mode: LockMode) -> Result<Box<dyn LockGuard>> {
        let guard = self
            .take(name, mode)
            .await
            .map_err(|error| Error::from(error).context(format!("taking the lock {name:?}")))?;
        Ok(Box::new(guard))
    }
}

impl fmt::Debug for FileLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileLocks").field("folder", &self.folder.path()).finish_non_exhaustive()
    }
}

/// Whose turn it is in this process; the kernel is asked next.
enum Turn {
    Alone(OwnedRwLockWriteGuard<Common>),
    Together(OwnedMutexGuard<Weak<Held>>, OwnedRwLockReadGuard<Common>),
}

impl Turn {
    fn mode(&self) -> LockMode {
        match self {
            Self::Alone(_) => LockMode::Exclusive,
            Self::Together(..) => LockMode::Shared,
        }
    }

    fn with(self, held: Held) -> Guard {
        let held = Arc::new(held);
        let place = match self {
            Self::Alone(writer) => Place::Alone(writer),
            Self::Together(mut common, reader) => {
                *common = Arc::downgrade(&held);
                Place::Shared(reader)
            }
        };
        Guard { _held: held, _place: place }
    }
}

/// Keeps a place in the queue of this process; dropping it lets the next one in.
#[expect(dead_code, reason = "held for what dropping it does")]
enum Place {
    Alone(OwnedRwLockWriteGuard<Common>),
    Shared(OwnedRwLockReadGuard<Common>),
}

/// Holds one lock of this host.
struct Guard {
    /// Fields are dropped in order: other processes first, then our own queue.
    _held: Arc<Held>,
    _place: Place,
}

impl LockGuard for Guard {}

enum Attempt {
    Taken(Guard),
    /// Not yet; whoever has the turn goes on.
    Open(Turn),
}

/// One attempt that does not wait for other processes.
fn try_take(folder: Arc<Folder>, file: &str, turn: Turn) -> Result<Attempt, LockError> {
    match folder.try_take(file, turn.mode())? {
        Some(held) => Ok(Attempt::Taken(turn.with(held))),
        None => Ok(Attempt::Open(turn)),
    }
}

/// Waits on a thread that owns the turn. Not on the runtime's blocking pool: a lock that is held
/// for ever must neither fill that pool nor hold up the runtime's end.
fn wait_on_thread(
    folder: Arc<Folder>,
    file: String,
    turn: Turn,
) -> Result<oneshot::Receiver<Result<Guard, LockError>>, LockError> {
    let (send, receive) = oneshot::channel();
    let path = folder.path().join(&file);
    let wait = move || {
        let answer = folder.take(&file, turn.mode()).map(|held| turn.with(held));
        // Nobody waits any more: the guard comes back in the error and lets go here.
        drop(send.send(answer));
    };
    std::thread::Builder::new()
        .name("hawser-lock".into())
        .spawn(wait)
        .map_err(|source| LockError::Wait { path, source })?;
    Ok(receive)
}
