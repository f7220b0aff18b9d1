//! Looking at the files behind a local volume, on a worker: a dead disk must not stop the runtime.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use super::error::LocalError;

/// What is at a path; a symlink there is not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    File { length: u64 },
    Folder,
    Symlink,
    BlockDevice,
    Other,
}

impl Found {
    /// In words, for errors.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Nothing => "not there",
            Self::File { .. } => "a plain file",
            Self::Folder => "a folder",
            Self::Symlink => "a symlink, which is not followed",
            Self::BlockDevice => "a block device",
            Self::Other => "neither a plain file nor a folder nor a block device",
        }
    }
}

/// What is at a path now.
pub(super) async fn at(path: &Path) -> Result<Found, LocalError> {
    on_worker(path, |path| classify(fs::symlink_metadata(path))).await
}

/// What a path leads to: names of devices are often symlinks, such as `/dev/vg/lv`.
pub(super) async fn behind(path: &Path) -> Result<Found, LocalError> {
    on_worker(path, |path| classify(fs::metadata(path))).await
}

fn classify(looked: io::Result<fs::Metadata>) -> io::Result<Found> {
    match looked {
        Ok(meta) if meta.is_symlink() => Ok(Found::Symlink),
        Ok(meta) if meta.is_dir() => Ok(Found::Folder),
        Ok(meta) if meta.is_file() => Ok(Found::File { length: meta.len() }),
        Ok(meta) if meta.file_type().is_block_device() => Ok(Found::BlockDevice),
        Ok(_) => Ok(Found::Other),
        Err(error) if is_absent(&error) => Ok(Found::Nothing),
        Err(error) => Err(error),
    }
}

/// The path as the kernel spells it: symlinks of its folders resolved. The last component stays,
/// because the file may be gone; so does everything when its folder is gone.
pub(super) async fn resolve(path: &Path) -> Result<PathBuf, LocalError> {
    on_worker(path, |path| {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Ok(path.to_path_buf());
        };
        match fs::canonicalize(folder) {
            Ok(folder) => Ok(folder.join(name)),
            Err(error) if is_absent(&error) => Ok(path.to_path_buf()),
            Err(error) => Err(error),
        }
    })
    .await
}

fn is_absent(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.kind() == io::ErrorKind::NotADirectory
}

async fn on_worker<T: Send + 'static>(
    path: &Path,
    look: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
) -> Result<T, LocalError> {
    let owned = path.to_path_buf();
    let looked = tokio::task::spawn_blocking(move || look(&owned)).await;
    looked
        .unwrap_or_else(|died| Err(io::Error::other(died)))
        .map_err(|source| LocalError::Look { path: path.into(), source })
}
