//! Why a lock could not be taken.

use std::io;
use std::path::PathBuf;

use hawser_core::{Classify, Kind};

/// Why a lock could not be taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum LockError {
    /// The folder of the lock files cannot be made.
    #[error("making the folder of lock files {}", .path.display())]
    Folder { path: PathBuf, source: io::Error },
    /// Others can place files in the folder, or it is none.
    #[error(
        "the folder of lock files {} {why}; remove it, or name another one", .path.display()
    )]
    Foreign { path: PathBuf, why: &'static str },
    /// A lock file cannot be opened or locked.
    #[error("taking the lock file {}", .path.display())]
    Take { path: PathBuf, source: io::Error },
    /// The waiting thread cannot be started, or died.
    #[error("waiting for the lock file {}", .path.display())]
    Wait { path: PathBuf, source: io::Error },
}

impl Classify for LockError {
    fn kind(&self) -> Kind {
        match self {
            Self::Foreign { .. } => Kind::Denied,
            Self::Folder { source, .. } | Self::Take { source, .. } | Self::Wait { source, .. } => {
                kind_of(source)
            }
        }
    }
}

/// What a caller can do about a failed file call.
fn kind_of(error: &io::Error) -> Kind {
    use io::ErrorKind as E;
    if [E::PermissionDenied, E::ReadOnlyFilesystem].contains(&error.kind()) {
        Kind::Denied
    } else if [E::StorageFull, E::QuotaExceeded].contains(&error.kind()) {
        Kind::NoSpace
    } else {
        Kind::Unavailable
    }
}
