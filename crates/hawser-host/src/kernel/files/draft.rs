//! Files that are written as a whole or not at all, and durably.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::OFlags;
use rustix::io::Errno;

/// A complete file beside the one that it is to become; removed again unless it was renamed.
pub(super) struct Draft {
    path: PathBuf,
}

impl Draft {
    pub(super) fn write(target: &Path, data: &[u8], mode: u32) -> io::Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let (Some(folder), Some(_)) = (target.parent(), target.file_name()) else {
            return Err(Errno::INVAL.into());
        };
        make_folder(folder, mode)?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // Not by the name of the target: programs that list its folder (`iscsiadm`) take names apart.
        let path = folder.join(format!(".hawser.{}.{number}.new", std::process::id()));
        let flags = (OFlags::NOFOLLOW | OFlags::CLOEXEC).bits() as i32;
        let open = || {
            OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .custom_flags(flags)
                .open(&path)
        };
        let mut file = match open() {
            // Of a process that died and had our number.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                fs::remove_file(&path)?;
                open()?
            }
            opened => opened?,
        };
        let draft = Self { path: path.clone() };
        file.write_all(data)?;
        // Whatever the umask of this process is.
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.sync_all()?;
        Ok(draft)
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
