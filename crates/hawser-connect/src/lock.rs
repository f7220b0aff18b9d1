//! Host-wide locks: one file each, held with `flock(2)`.
//!
//! The kernel lets go of such a lock when its holder dies, however it dies. Inside one process the
//! waiters of a name queue up in order, and only the first of them waits for other processes, on a
//! thread of its own: `flock` cannot be waited for in any other way, and cannot be cancelled. A
//! waiter that is dropped leaves that thread behind; when it gets the lock, it lets go at once.
//! Until then it keeps its place in the queue, so there is never more than one thread per name.
//!
//! The holder removes the file before it lets go, and whoever gets a lock checks that the file still
//! has its name; otherwise a host would collect one file for every volume it ever had.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use hawser_core::port::registry::LockGuard;
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use tokio::sync::{OwnedMutexGuard, oneshot};

use crate::error::LockError;

/// The folder of the lock files, and the queues of this process.
pub(crate) struct Locks {
    dir: PathBuf,
    queues: Mutex<Queues>,
}

type Queue = tokio::sync::Mutex<()>;

/// One queue per name that somebody holds or waits for.
struct Queues {
    by_name: HashMap<String, Weak<Queue>>,
    /// Dead entries are dropped when there are so many: cheap on average, and bounded.
    sweep_at: usize,
}

/// The smallest number of queues worth sweeping.
const SWEEP_FROM: usize = 64;

impl Locks {
    /// Uses this folder, and makes it where it is missing. Blocks.
    pub(crate) fn open(dir: &Path) -> Result<Self, LockError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(|source| LockError::Folder { path: dir.into(), source })?;
        let queues = Queues { by_name: HashMap::new(), sweep_at: SWEEP_FROM };
        Ok(Self { dir: dir.into(), queues: Mutex::new(queues) })
    }

    /// Waits for the lock of this name. Dropping the future gives it up.
    pub(crate) async fn lock(&self, name: &str) -> Result<Guard, LockError> {
        let turn = self.queue(name).lock_owned().await;
        let path = self.dir.join(file_name(name));
        let at = path.clone();
        let first = tokio::task::spawn_blocking(move || try_take(at, turn)).await;
        let lost = |source| LockError::Wait { path: path.clone(), source };
        match first.map_err(|error| lost(io::Error::other(error)))?? {
            Attempt::Taken(guard) => Ok(guard),
            Attempt::Held(turn) => {
                wait_on_thread(&path, turn)?.await.map_err(|error| lost(io::Error::other(error)))?
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

/// Holds one lock of this host.
pub(crate) struct Guard {
    path: PathBuf,
    /// Closing it lets go. Fields are dropped in order: other processes first, then our own queue.
    _file: File,
    _turn: OwnedMutexGuard<()>,
}

impl LockGuard for Guard {}

impl Drop for Guard {
    fn drop(&mut self) {
        // Only the holder removes the file, so the name is still that of our file. A failure leaves
        // an empty file that the next holder uses.
        let _ = fs::remove_file(&self.path);
    }
}

enum Attempt {
    Taken(Guard),
    Held(OwnedMutexGuard<()>),
}

/// One attempt that does not wait for other processes.
fn try_take(path: PathBuf, turn: OwnedMutexGuard<()>) -> Result<Attempt, LockError> {
    match take(&path, FlockOperation::NonBlockingLockExclusive) {
        Ok(file) => Ok(Attempt::Taken(Guard { path, _file: file, _turn: turn })),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Attempt::Held(turn)),
        Err(source) => Err(LockError::Take { path, source }),
    }
}

/// Waits on a thread that owns the turn. Not on the runtime's blocking pool: a lock that is held
/// for ever must neither fill that pool nor hold up the runtime's end.
fn wait_on_thread(
    path: &Path,
    turn: OwnedMutexGuard<()>,
) -> Result<oneshot::Receiver<Result<Guard, LockError>>, LockError> {
    let (send, receive) = oneshot::channel();
    let at = path.to_path_buf();
    let wait = move || {
        let taken = take(&at, FlockOperation::LockExclusive);
        let answer = match taken {
            Ok(file) => Ok(Guard { path: at, _file: file, _turn: turn }),
            Err(source) => Err(LockError::Take { path: at, source }),
        };
        // Nobody waits any more: the guard comes back in the error and lets go here.
        drop(send.send(answer));
    };
    std::thread::Builder::new()
        .name("hawser-lock".into())
        .spawn(wait)
        .map_err(|source| LockError::Wait { path: path.into(), source })?;
    Ok(receive)
}

/// Opens and locks the file, again where its holder removed it in between.
fn take(path: &Path, how: FlockOperation) -> io::Result<File> {
    loop {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags((OFlags::NOFOLLOW | OFlags::CLOEXEC).bits() as i32)
            .open(path)?;
        loop {
            match rustix::fs::flock(&file, how) {
                Ok(()) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let ours = file.metadata()?;
        match fs::symlink_metadata(path) {
            Ok(now) if (now.dev(), now.ino()) == (ours.dev(), ours.ino()) => return Ok(file),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
}

/// File names have at most 255 bytes; this leaves room for the digest and the ending.
const LONGEST: usize = 160;

/// Any name as a file name of its own: what is not plain is escaped, what is long ends in a digest.
fn file_name(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len() + 8);
    for (index, byte) in name.bytes().enumerate() {
        let plain = byte.is_ascii_lowercase()
            || byte.is_ascii_digit()
            || b"_-".contains(&byte)
            || (byte == b'.' && index > 0);
        if plain {
            escaped.push(byte as char);
        } else {
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    if name.is_empty() {
        // No escape is a lone `%`, and a file without a name before its ending would be hidden.
        escaped.push('%');
    }
    if escaped.len() > LONGEST {
        escaped.truncate(LONGEST);
        // `+` is in no escaped name, so a long name never meets a short one.
        escaped.push('+');
        for byte in Sha256::digest(name.as_bytes()) {
            let _ = write!(escaped, "{byte:02x}");
        }
    }
    escaped + ".lock"
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn different_names_have_different_files() {
        let long = "x".repeat(5000);
        let names = ["a", "A", "a/b", "a%2Fb", "a.b", ".", "..", "", "%", "\0", "ü", "+", &long];

        let files: BTreeSet<_> = names.iter().map(|name| file_name(name)).collect();

        assert_eq!(files.len(), names.len());
        assert!(files.iter().all(|file| !file.starts_with('.')), "{files:?}");
    }

    #[test]
    fn dead_queues_are_swept() {
        let dir = tempfile::tempdir().unwrap();
        let locks = Locks::open(dir.path()).unwrap();

        for number in 0..10_000 {
            drop(locks.queue(&number.to_string()));
        }

        assert!(locks.queues.lock().unwrap().by_name.len() <= SWEEP_FROM);
    }

    proptest! {
        #[test]
        fn any_name_is_one_plain_file_name(name in "\\PC{0,400}", other in "\\PC{0,8}") {
            let file = file_name(&name);

            prop_assert!(file.len() <= 255 && !file.starts_with('.'));
            prop_assert!(file.bytes().all(|b| b.is_ascii_graphic() && b != b'/'));
            prop_assert_eq!(file == file_name(&other), name == other);
        }
    }
}
