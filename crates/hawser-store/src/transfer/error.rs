//! Why records could not be moved.

use std::io;

use hawser_core::port::store::{Key, KeyError};
use hawser_core::{Classify, Kind, Outcome};

use super::line::LONGEST_LINE;
use crate::LARGEST_VALUE;

/// What is wrong with an export file, with its file, or with the store it should go into.
#[derive(Debug, thiserror::Error)]
pub(super) enum TransferError {
    #[error("writing the export")]
    Write(#[source] io::Error),
    #[error("reading the export")]
    Read(#[source] io::Error),
    #[error("keeping a copy of the export in the temporary directory while it is checked")]
    Spool(#[source] io::Error),
    #[error("line {line} of the export")]
    Line { line: u64, source: LineError },
    #[error(
        "the store holds {0}, which is not in the export; import into an empty store, or into one that an earlier import of the same file left incomplete"
    )]
    Foreign(Key),
    #[error("the store holds {0} with another value than the export; import into an empty store")]
    Differs(Key),
    #[error("{0} was written by someone else during the import; stop the server and import again")]
    Raced(Key),
    #[error("the import was stopped; import the same file again")]
    Stopped,
}

/// What is wrong with one line.
#[derive(Debug, thiserror::Error)]
pub(super) enum LineError {
    #[error("this is no export of a hawser store: its first line is not the header")]
    NoHeader,
    #[error(
        "the export has version {found}, and this hawser reads version {known}; use a newer hawser"
    )]
    Newer { found: u64, known: u64 },
    #[error("the line is longer than {LONGEST_LINE} bytes")]
    TooLong,
    #[error("the line is no record")]
    Malformed(#[source] serde_json::Error),
    #[error("the line is no record: it needs a key, and either a value or base64")]
    Shape,
    #[error("the record has no usable key")]
    Key(#[source] KeyError),
    #[error("the value of {0} is no base64")]
    Base64(Key, #[source] base64::DecodeError),
    #[error("the value of {0} is larger than {LARGEST_VALUE} bytes")]
    TooLarge(Key),
    #[error("{0} is a secret, and secrets are not imported")]
    Secret(Key),
    #[error("{0} is there twice")]
    Twice(Key),
    #[error("the export ends without its last line, so records are missing; export again")]
    Truncated,
    #[error("the last line counts {said} records, but there are {found}; export again")]
    Count { said: u64, found: u64 },
    #[error("something follows the last line")]
    Trailing,
}

impl Classify for TransferError {
    fn kind(&self) -> Kind {
        match self {
            Self::Write(source) | Self::Spool(source) => io_kind(source),
            Self::Read(_) | Self::Stopped => Kind::Unavailable,
            Self::Line { source, .. } => source.kind(),
            Self::Foreign(_) | Self::Differs(_) => Kind::Precondition,
            Self::Raced(_) => Kind::Busy,
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            // Some records are in by then; importing again completes them.
            Self::Raced(_) | Self::Stopped => Outcome::Unknown,
            Self::Write(_)
            | Self::Read(_)
            | Self::Spool(_)
            | Self::Line { .. }
            | Self::Foreign(_)
            | Self::Differs(_) => Outcome::Nothing,
        }
    }
}

impl Classify for LineError {
    fn kind(&self) -> Kind {
        match self {
            Self::Newer { .. } => Kind::Precondition,
            Self::NoHeader
            | Self::TooLong
            | Self::Malformed(_)
            | Self::Shape
            | Self::Key(_)
            | Self::Base64(..)
            | Self::TooLarge(_)
            | Self::Secret(_)
            | Self::Twice(_)
            | Self::Truncated
            | Self::Count { .. }
            | Self::Trailing => Kind::Invalid,
        }
    }
}

fn io_kind(error: &io::Error) -> Kind {
    let kind = error.kind();
    if matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
        Kind::NoSpace
    } else if kind == io::ErrorKind::PermissionDenied {
        Kind::Denied
    } else {
        Kind::Unavailable
    }
}
