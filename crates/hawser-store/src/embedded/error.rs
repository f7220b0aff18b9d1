//! Why the embedded store could not do what it was asked.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use hawser_core::port::store::LONGEST_KEY;
use hawser_core::{Classify, Kind, Outcome};

use crate::LARGEST_VALUE;

/// Everything that can go wrong with the one file of an embedded store.
#[derive(Debug, thiserror::Error)]
pub(super) enum EmbeddedError {
    #[error("the store setting {0:?} names no file; write embedded:/path/of/the/file")]
    NoPath(String),
    #[error(
        "another hawser server uses the store {path}; stop that server, or give this one a state directory of its own"
    )]
    Held { path: PathBuf },
    #[error(
        "the store {path} has format {found}, and this hawser knows formats up to {known}; run the newer hawser that wrote it, or move its records here with `hawser store export` there and `hawser store import` here"
    )]
    Newer { path: PathBuf, found: u64, known: u64 },
    #[error(
        "the file {path} is no hawser store or is damaged, and was left as it is; move it away, then start with an empty store and restore the last `hawser store export` with `hawser store import`"
    )]
    Damaged { path: PathBuf, source: Box<redb::Error> },
    #[error("the store {path} is not a regular file; choose another path")]
    NotAFile { path: PathBuf },
    #[error("opening the store {path}")]
    Open { path: PathBuf, source: io::Error },
    #[error("reading {what} from the store {path}")]
    Read { what: String, path: PathBuf, source: Box<redb::Error> },
    #[error("writing to the store {path}")]
    Write { path: PathBuf, outcome: Outcome, source: Arc<redb::Error> },
    #[error("the store was closed by a disk error and could not be opened again")]
    Reopen { source: Arc<EmbeddedError> },
    #[error("the store is closed")]
    Closed { outcome: Outcome },
    #[error("a store key has {0} bytes, the most is {LONGEST_KEY}")]
    KeyTooLong(usize),
    #[error("the value of {key} has {size} bytes, the most is {LARGEST_VALUE}")]
    ValueTooLarge { key: String, size: usize },
}

impl Classify for EmbeddedError {
    fn kind(&self) -> Kind {
        match self {
            Self::NoPath(_) | Self::NotAFile { .. } | Self::KeyTooLong(_) => Kind::Invalid,
            Self::Held { .. } => Kind::Busy,
            Self::Newer { .. } => Kind::Precondition,
            Self::Damaged { .. } => Kind::Internal,
            Self::Open { source, .. } => io_kind(source),
            Self::Read { source, .. } => redb_kind(source),
            Self::Write { source, .. } => redb_kind(source),
            Self::Reopen { source } => source.kind(),
            Self::Closed { .. } => Kind::Unavailable,
            Self::ValueTooLarge { .. } => Kind::OutOfRange,
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            Self::Write { outcome, .. } | Self::Closed { outcome } => *outcome,
            Self::NoPath(_)
            | Self::Held { .. }
            | Self::Newer { .. }
            | Self::Damaged { .. }
            | Self::NotAFile { .. }
            | Self::Open { .. }
            | Self::Read { .. }
            | Self::Reopen { .. }
            | Self::KeyTooLong(_)
            | Self::ValueTooLarge { .. } => Outcome::Nothing,
        }
    }
}

fn redb_kind(error: &redb::Error) -> Kind {
    // redb's enum is open, so this cannot be an exhaustive match; what is not about the disk is a
    // fault of the file or of ours.
    if let redb::Error::Io(source) = error {
        return io_kind(source);
    }
    if let redb::Error::PreviousIo = error {
        return Kind::Unavailable;
    }
    Kind::Internal
}

fn io_kind(error: &io::Error) -> Kind {
    use io::ErrorKind::{
        FileTooLarge, NotFound, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull,
    };
    let kind = error.kind();
    if matches!(kind, StorageFull | QuotaExceeded | FileTooLarge) {
        Kind::NoSpace
    } else if matches!(kind, PermissionDenied | ReadOnlyFilesystem) {
        Kind::Denied
    } else if kind == NotFound {
        Kind::NotFound
    } else {
        Kind::Unavailable
    }
}
