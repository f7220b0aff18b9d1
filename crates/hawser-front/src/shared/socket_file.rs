//! The file of a socket.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The file of a socket, removed with it unless another server's has taken its place.
pub(crate) struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl SocketFile {
    /// The file that is there now.
    pub(crate) fn new(path: &Path) -> io::Result<Self> {
        let there = fs::symlink_metadata(path)?;
        Ok(Self { path: path.to_owned(), device: there.dev(), inode: there.ino() })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if let Ok(there) = fs::symlink_metadata(&self.path)
            && (there.dev(), there.ino()) == (self.device, self.inode)
        {
            let _ = fs::remove_file(&self.path);
        }
    }
}
