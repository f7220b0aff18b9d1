//! Files that are written as a whole or not at all, and durably.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FlockOperation, OFlags, flock, fstat};
use rustix::io::Errno;

/// What names of drafts begin and end with. Not by the name of the target: programs that list its
/// folder (`iscsiadm`) take names apart.
const BEGINNING: &str = ".hawser.";
const END: &str = ".new";

/// A complete file beside the one that it is to become; removed again unless it was renamed.
pub(super) struct Draft {
    path: PathBuf,
    /// Locked: a draft that is not is of a process that died.
    file: File,
}

impl Draft {
    pub(super) fn write(target: &Path, data: &[u8], mode: u32) -> io::Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let (Some(folder), Some(_)) = (target.parent(), target.file_name()) else {
            return Err(Errno::INVAL.into());
        };
        make_folder(folder, mode)?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("{BEGINNING}{}.{number}{END}", std::process::id()));
        let file = loop {
            let file = open_new(&path)?;
            flock(&file, FlockOperation::LockExclusive)?;
            // Somebody may have taken it for a dead process's before it was locked.
            if fstat(&file)?.st_nlink > 0 {
                break file;
            }
        };
        // From here on it is removed again.
        let mut draft = Self { path, file };
        draft.file.write_all(data)?;
        // Whatever the umask of this process is.
        draft.file.set_permissions(fs::Permissions::from_mode(mode))?;
        draft.file.sync_all()?;
        Ok(draft)
    }

    /// Removes the drafts in a folder, and in the folders in it, whose processes have died.
    pub(super) fn clear_dead(folder: &Path) -> io::Result<()> {
        for inner in clear_dead_in(folder)? {
            clear_dead_in(&inner)?;
        }
        Ok(())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Answers the folders in it.
fn clear_dead_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut folders = Vec::new();
    for entry in entries {
        let entry = entry?;
        // As the folder tells it: what is mounted there may not answer.
        let kind = entry.file_type()?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if kind.is_dir() {
            folders.push(entry.path());
        } else if kind.is_file() && name.starts_with(BEGINNING) && name.ends_with(END) {
            remove_if_dead(&entry.path())?;
        }
    }
    Ok(folders)
}

fn remove_if_dead(draft: &Path) -> io::Result<()> {
    let found = OpenOptions::new().read(true).custom_flags(no_follow()).open(draft);
    let file = match found {
        // It has become what it was to be.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => remove_if_there(draft),
        // Somebody writes it.
        Err(Errno::WOULDBLOCK) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Opens a file that must not exist; one of a process that died and had our number makes way.
fn open_new(path: &Path) -> io::Result<File> {
    let open = || {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600).custom_flags(no_follow()).open(path)
    };
    match open() {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            remove_if_there(path)?;
            open()
        }
        opened => opened,
    }
}

fn no_follow() -> i32 {
    (OFlags::NOFOLLOW | OFlags::CLOEXEC).bits() as i32
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Makes the folder of a file where it is missing, as private as the file.
fn make_folder(folder: &Path, mode: u32) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let mode = if mode & 0o077 == 0 { 0o700 } else { 0o755 };
    DirBuilder::new().recursive(true).mode(mode).create(folder)?;
    sync_folder(folder)
}

/// Makes a change of a name durable.
pub(super) fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    match File::open(folder)?.sync_all() {
        // Folders of the kernel have nothing to write out.
        Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(()),
        synced => synced,
    }
}
