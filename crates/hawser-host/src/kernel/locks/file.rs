//! The files behind the locks.

use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use hawser_core::port::kernel::LockMode;
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use super::error::LockError;

/// The folder of the lock files.
pub(super) struct Folder {
    path: PathBuf,
    /// It was there and ours when we looked.
    ready: AtomicBool,
}

impl Folder {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.into(), ready: AtomicBool::new(false) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the folder where it is missing, and refuses one in which others can place files:
    /// everybody may make a folder below `/run/lock`.
    pub(super) fn prepare(&self) -> Result<(), LockError> {
        let path = || self.path.clone();
        let failed = |source| LockError::Folder { path: path(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(&self.path).map_err(failed)?;
        let found = fs::symlink_metadata(&self.path).map_err(failed)?;
        let ours = found.uid() == 0 || found.uid() == rustix::process::geteuid().as_raw();
        // In a folder with the sticky bit nobody can replace the files of another.
        let closed = found.mode() & 0o022 == 0 || found.mode() & 0o1000 != 0;
        let why = match (found.is_dir(), ours, closed) {
            (false, ..) => "is no folder of its own",
            (_, false, _) => "belongs to another user",
            (.., false) => "can be written by others",
            (true, true, true) => {
                self.ready.store(true, Ordering::Relaxed);
                return Ok(());
            }
        };
        Err(LockError::Foreign { path: path(), why })
    }

    /// Takes a lock if no other process is in the way. Blocks for file calls only.
    pub(super) fn try_take(&self, file: &str, mode: LockMode) -> Result<Option<Held>, LockError> {
        let how = match mode {
            LockMode::Shared => FlockOperation::NonBlockingLockShared,
            LockMode::Exclusive => FlockOperation::NonBlockingLockExclusive,
        };
        let path = self.path.join(file);
        match self.flock(&path, how) {
            Ok(file) => Ok(Some(Held { path, file, mode })),
            Err(LockError::Take { source, .. }) if source.kind() == io::ErrorKind::WouldBlock => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Takes a lock and waits for other processes, for ever if it must be.
    pub(super) fn take(&self, file: &str, mode: LockMode) -> Result<Held, LockError> {
        let how = match mode {
            LockMode::Shared => FlockOperation::LockShared,
            LockMode::Exclusive => FlockOperation::LockExclusive,
        };
        let path = self.path.join(file);
        let file = self.flock(&path, how)?;
        Ok(Held { path, file, mode })
    }

    /// Opens and locks the file, again where its last holder removed it in between.
    fn flock(&self, path: &Path, how: FlockOperation) -> Result<File, LockError> {
        let failed = |source| LockError::Take { path: path.into(), source };
        loop {
            let file = self.open(path)?;
            loop {
                match rustix::fs::flock(&file, how) {
                    Ok(()) => break,
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(failed(error.into())),
                }
            }
            if is_named(&file, path).map_err(failed)? {
                return Ok(file);
            }
        }
    }

    fn open(&self, path: &Path) -> Result<File, LockError> {
        if !self.ready.load(Ordering::Relaxed) {
            self.prepare()?;
        }
        let open = || {
            OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags((OFlags::NOFOLLOW | OFlags::CLOEXEC).bits() as i32)
                .open(path)
        };
        let opened = match open() {
            // Somebody cleaned up below /run.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.prepare()?;
                open()
            }
            opened => opened,
        };
        opened.map_err(|source| LockError::Take { path: path.into(), source })
    }
}

/// True when the open file is the one of this name.
fn is_named(file: &File, path: &Path) -> io::Result<bool> {
    let ours = file.metadata()?;
    match fs::symlink_metadata(path) {
        Ok(now) => Ok((now.dev(), now.ino()) == (ours.dev(), ours.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// A lock file that this process holds; closing it lets go.
pub(super) struct Held {
    path: PathBuf,
    file: File,
    mode: LockMode,
}

impl Drop for Held {
    fn drop(&mut self) {
        let alone = match self.mode {
            // Only who holds it alone removes the file, so the name is still that of our file.
            LockMode::Exclusive => true,
            // The kernel does not change a lock from shared to exclusive in one step: in between,
            // another may have had it alone and removed the file.
            LockMode::Shared => {
                rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive).is_ok()
                    && is_named(&self.file, &self.path).unwrap_or(false)
            }
        };
        if alone {
            // A failure leaves an empty file that the next holder uses.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// File names have at most 255 bytes; this leaves room for the digest and the ending.
const LONGEST: usize = 160;

/// Any name as a file name of its own: what is not plain is escaped, what is long ends in a digest.
pub(super) fn file_name(name: &str) -> String {
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
