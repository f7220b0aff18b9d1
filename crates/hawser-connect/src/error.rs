//! What can go wrong with the records that this host's processes share.

use std::io;
use std::path::PathBuf;

use hawser_core::{Classify, Kind, Outcome};

/// Why the registry could not do something.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RegistryError {
    /// The folder of the records cannot be made or kept private.
    #[error("preparing the folder of attachment records {}", .path.display())]
    Folder { path: PathBuf, source: io::Error },
    /// The folder cannot be listed.
    #[error("listing the attachment records in {}", .path.display())]
    List { path: PathBuf, source: io::Error },
    /// A file holds no record that this version understands.
    #[error(
        "reading the attachment record {}; look at the file, then move it away or repair it",
        .path.display()
    )]
    Unreadable { path: PathBuf, source: Unreadable },
    /// A record cannot be written.
    #[error("writing the attachment record {}", .path.display())]
    Write { path: PathBuf, source: io::Error },
    /// A record was written or removed, but nobody can say whether that survives a power cut.
    #[error("making a change of the attachment record {} durable", .path.display())]
    Sync { path: PathBuf, source: io::Error },
    /// A record cannot be removed.
    #[error("removing the attachment record {}", .path.display())]
    Remove { path: PathBuf, source: io::Error },
    /// A worker died.
    #[error("running file work of the registry")]
    Worker(#[source] tokio::task::JoinError),
}

/// Why a file is no record.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreadable {
    #[error("it cannot be read: {0}")]
    Io(io::Error),
    #[error("it is no plain file")]
    NoFile,
    #[error("its name is no publication id with .json")]
    Name,
    #[error("it is larger than any record")]
    TooLarge,
    #[error("it is no record: {0}")]
    Json(serde_json::Error),
    #[error("it was written by a newer Hawser (format {found}, this one knows {known})")]
    Newer { found: u64, known: u64 },
    #[error("it holds the record of another publication")]
    Misplaced,
}

impl Classify for RegistryError {
    fn kind(&self) -> Kind {
        match self {
            Self::Folder { source, .. }
            | Self::List { source, .. }
            | Self::Write { source, .. }
            | Self::Sync { source, .. }
            | Self::Remove { source, .. } => kind_of(source),
            Self::Unreadable { source, .. } => match source {
                Unreadable::Io(source) => kind_of(source),
                Unreadable::NoFile
                | Unreadable::Name
                | Unreadable::TooLarge
                | Unreadable::Json(_)
                | Unreadable::Newer { .. }
                | Unreadable::Misplaced => Kind::Precondition,
            },
            Self::Worker(_) => Kind::Internal,
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            Self::Folder { .. }
            | Self::List { .. }
            | Self::Unreadable { .. }
            | Self::Write { .. }
            | Self::Remove { .. } => Outcome::Nothing,
            Self::Sync { .. } | Self::Worker(_) => Outcome::Unknown,
        }
    }
}

/// What a caller can do about a failed file call.
pub(crate) fn kind_of(error: &io::Error) -> Kind {
    if error.kind() == io::ErrorKind::PermissionDenied
        || error.kind() == io::ErrorKind::ReadOnlyFilesystem
    {
        Kind::Denied
    } else if error.kind() == io::ErrorKind::StorageFull
        || error.kind() == io::ErrorKind::QuotaExceeded
    {
        Kind::NoSpace
    } else {
        Kind::Unavailable
    }
}
