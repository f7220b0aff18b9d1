//! The pool folder: its layout, its lock, and what is counted when it is opened.
//!
//! ```text
//! pool.json                 format version, pool id, kind of volumes; its lock is the pool's lock
//! volumes/<vol id>.img      an image, or
//! volumes/<vol id>/         a folder: data/ is the volume, meta.json its size
//! snapshots/<snap id>…      the same for snapshots
//! staging/<id>.<n>/         one attempt to make or remove something of that id
//! ```
//!
//! Only ids become names here.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::fs::{FileType, FlockOperation};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::error::LocalError;
use super::folder::Folder;
use super::ledger::Ledger;
use super::lock::Locks;
use super::settings::{PoolKind, Settings};

/// The newest layout that this version reads and the one that it writes.
const FORMAT: u64 = 1;
const POOL_FILE: &str = "pool.json";
const POOL_FILE_NEW: &str = "pool.json.new";
/// A process that was just killed may take a moment to let go of its lock.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
/// More than any file of ours: what is longer was not written by us.
const MOST_RECORD: u64 = 64 * 1024;

/// What `pool.json` says.
#[derive(Debug, Serialize, Deserialize)]
struct PoolFile {
    format: u64,
    id: Uuid,
    kind: PoolKind,
}

/// The part of `pool.json` that every format has.
#[derive(Deserialize)]
struct Format {
    format: u64,
}

/// An open pool; nobody else has it open.
pub(super) struct Pool {
    pub(super) settings: Settings,
    pub(super) root: Folder,
    pub(super) volumes: Folder,
    pub(super) snapshots: Folder,
    pub(super) staging: Folder,
    pub(super) ledger: Arc<Ledger>,
    pub(super) locks: Arc<Locks>,
    /// Names in `staging/` that work of this process uses.
    pub(super) live: Mutex<HashSet<String>>,
    pub(super) next_attempt: AtomicU64,
    /// Copies share their blocks, so they need no room of their own.
    pub(super) shares_blocks: AtomicBool,
    /// Held for the life of the pool: the kernel gives it back when the process ends.
    _lock: OwnedFd,
}

impl Pool {
    /// Opens a pool, making it in an empty or missing folder. Blocks.
    pub(super) fn open(mut settings: Settings) -> Result<Self, LocalError> {
        settings.validate()?;
        let root = open_root(&settings)?;
        settings.path = root.path().to_owned();
        if root.find(POOL_FILE)?.is_none() {
            initialise(&root, settings.kind)?;
        }
        let lock = lock_pool(&root)?;
        check_pool_file(&root, &lock, settings.kind)?;
        // Made after pool.json, each by itself: a crash in between is mended by the next opening.
        let volumes = root.ensure_folder("volumes", 0o700)?;
        let snapshots = root.ensure_folder("snapshots", 0o700)?;
        let staging = root.ensure_folder("staging", 0o700)?;
        root.sync().map_err(LocalError::io("syncing", root.path()))?;
        let ledger = Arc::new(Ledger::new(settings.overcommit, settings.reserve));
        let pool = Self {
            settings,
            root,
            volumes,
            snapshots,
            staging,
            ledger,
            locks: Arc::default(),
            live: Mutex::default(),
            next_attempt: AtomicU64::new(0),
            shares_blocks: AtomicBool::new(false),
            _lock: lock,
        };
        pool.count()?;
        pool.sweep_empty()?;
        Ok(pool)
    }

    /// True when volumes are folders.
    pub(super) fn is_folder_pool(&self) -> bool {
        match self.settings.kind {
            PoolKind::Image => false,
            PoolKind::Folder => true,
        }
    }
}

/// Opens the pool's folder by its real path, which is what the kernel will show of its files.
fn open_root(settings: &Settings) -> Result<Folder, LocalError> {
    let path = &settings.path;
    // Parents are not made: a missing parent is more often a disk that is not mounted.
    match rustix::fs::mkdir(path, rustix::fs::Mode::from_raw_mode(0o700)) {
        Ok(()) => {
            if let Some(parent) = path.parent() {
                let parent = Folder::open(parent)?;
                parent.sync().map_err(LocalError::io("syncing", parent.path()))?;
            }
        }
        Err(Errno::EXIST) => {}
        Err(source) => return Err(LocalError::io("making pool folder", path)(source)),
    }
    let real = std::fs::canonicalize(path).map_err(|error| {
        let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        LocalError::io("finding the real path of", path)(errno)
    })?;
    if real.to_str().is_none() {
        return Err(LocalError::PathText { path: real });
    }
    Folder::open(&real)
}

/// Writes `pool.json` into a folder that holds nothing of others.
fn initialise(root: &Folder, kind: PoolKind) -> Result<(), LocalError> {
    // A fresh file system has lost+found; pool.json.new is an initialisation that was cut off.
    let foreign = root.names()?.into_iter().any(|n| n != "lost+found" && n != POOL_FILE_NEW);
    if foreign {
        return Err(LocalError::Foreign { path: root.path().to_owned() });
    }
    root.remove_file(POOL_FILE_NEW)?;
    let file = PoolFile { format: FORMAT, id: Uuid::new_v4(), kind };
    write_record(root, POOL_FILE_NEW, &file)?;
    match root.move_to(POOL_FILE_NEW, root, POOL_FILE) {
        // Somebody else was faster; the lock decides who goes on.
        Err(error) if error.errno() == Some(Errno::EXIST) => {
            root.remove_file(POOL_FILE_NEW)?;
        }
        other => other?,
    }
    root.sync().map_err(LocalError::io("syncing", root.path()))
}

/// Takes the pool's lock, waiting a little for a process that is just ending.
fn lock_pool(root: &Folder) -> Result<OwnedFd, LocalError> {
    let path = root.path().join(POOL_FILE);
    let missing = || LocalError::Missing { path: path.clone() };
    let file = root.find_file(POOL_FILE, false)?.ok_or_else(missing)?;
    let started = Instant::now();
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::WOULDBLOCK) if started.elapsed() < LOCK_PATIENCE => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(Errno::WOULDBLOCK) => {
                return Err(LocalError::InUse { path: root.path().to_owned() });
            }
            Err(source) => return Err(LocalError::io("locking", path)(source)),
        }
    }
}

fn check_pool_file(root: &Folder, file: &OwnedFd, kind: PoolKind) -> Result<(), LocalError> {
    let path = root.path().join(POOL_FILE);
    let text = read_small(file, &path)?;
    let malformed = |source| LocalError::PoolFile { path: path.clone(), source };
    let found = serde_json::from_slice::<Format>(&text).map_err(malformed)?.format;
    if found > FORMAT {
        let path = root.path().to_owned();
        return Err(LocalError::NewerFormat { path, found, known: FORMAT });
    }
    let pool: PoolFile = serde_json::from_slice(&text).map_err(malformed)?;
    if pool.kind != kind {
        return Err(LocalError::OtherKind {
            path: root.path().to_owned(),
            found: pool.kind.as_str(),
            wanted: kind.as_str(),
        });
    }
    Ok(())
}

/// Writes a small JSON file that must not exist, and makes its content durable; its name is durable
/// once the folder is synced.
pub(super) fn write_record(
    folder: &Folder,
    name: &str,
    record: &impl Serialize,
) -> Result<(), LocalError> {
    let path = folder.path().join(name);
    let json = serde_json::to_vec(record)
        .map_err(|source| LocalError::Record { path: path.clone(), source })?;
    let mut file = std::fs::File::from(folder.make_file(name)?);
    file.write_all(&json).map_err(|error| io(error, "writing", path.clone()))?;
    file.sync_all().map_err(|error| io(error, "syncing", path))
}

/// Reads a small JSON file; `None` when there is none.
pub(super) fn read_record<T: serde::de::DeserializeOwned>(
    folder: &Folder,
    name: &str,
) -> Result<Option<T>, LocalError> {
    let path = folder.path().join(name);
    let Some(file) = folder.find_file(name, false)? else { return Ok(None) };
    let text = read_small(&file, &path)?;
    serde_json::from_slice(&text).map(Some).map_err(|source| LocalError::Record { path, source })
}

fn read_small(file: &OwnedFd, path: &std::path::Path) -> Result<Vec<u8>, LocalError> {
    let stat = rustix::fs::fstat(file).map_err(LocalError::io("looking at", path))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        let path = path.to_owned();
        return Err(LocalError::WrongType { path, expected: "a regular file" });
    }
    let file = file.try_clone().map_err(|error| io(error, "opening", path.to_owned()))?;
    let mut text = Vec::new();
    std::fs::File::from(file)
        .take(MOST_RECORD + 1)
        .read_to_end(&mut text)
        .map_err(|error| io(error, "reading", path.to_owned()))?;
    if text.len() as u64 > MOST_RECORD {
        return Err(LocalError::RecordTooLong { path: path.to_owned() });
    }
    Ok(text)
}

fn io(error: std::io::Error, verb: &'static str, path: PathBuf) -> LocalError {
    let source = Errno::from_io_error(&error).unwrap_or(Errno::IO);
    LocalError::Io { verb, path, source }
}
