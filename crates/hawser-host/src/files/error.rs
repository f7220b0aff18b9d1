//! Why a call about files failed.

use std::path::PathBuf;

use hawser_core::{Classify, Kind, Outcome};

use crate::errno::kind_of_io;
use crate::mount::MountError;
use crate::workers::WorkerError;

/// Why a call about files failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    #[error("{attempt} {path:?}")]
    Call { attempt: &'static str, path: PathBuf, source: std::io::Error },
    #[error("{path:?} is there already")]
    Exists { path: PathBuf },
    #[error("{path:?} is not {what}")]
    WrongType { path: PathBuf, what: &'static str },
    #[error("copying {path:?}: it became shorter meanwhile")]
    Shrunk { path: PathBuf },
    #[error("copying {path:?}: something is mounted there; unmount it first")]
    MountInside { path: PathBuf },
    #[error("folders lie deeper than {most} levels at {path:?}")]
    TooDeep { path: PathBuf, most: usize },
    #[error("work on {path:?} was given up by its caller")]
    Cancelled { path: PathBuf },
    #[error("{group} is no group")]
    NoGroup { group: u32 },
    #[error("{source}, and taking back {path:?} failed too ({undo})")]
    Undo { path: PathBuf, undo: std::io::Error, source: Box<FileError> },
    #[error(transparent)]
    Path(#[from] MountError),
    #[error(transparent)]
    Worker(#[from] WorkerError),
}

impl Classify for FileError {
    fn kind(&self) -> Kind {
        match self {
            Self::Call { source, .. } => kind_of_io(source),
            Self::Exists { .. } => Kind::Exists,
            Self::WrongType { .. } | Self::NoGroup { .. } => Kind::Invalid,
            Self::Shrunk { .. } | Self::MountInside { .. } => Kind::Precondition,
            Self::TooDeep { .. } => Kind::OutOfRange,
            Self::Cancelled { .. } => Kind::Unavailable,
            Self::Undo { source, .. } => source.kind(),
            Self::Path(source) => source.kind(),
            Self::Worker(source) => source.kind(),
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            Self::Call { .. }
            | Self::Exists { .. }
            | Self::WrongType { .. }
            | Self::Shrunk { .. }
            | Self::MountInside { .. }
            | Self::TooDeep { .. }
            | Self::Cancelled { .. }
            | Self::NoGroup { .. } => Outcome::Nothing,
            Self::Undo { .. } => Outcome::Unknown,
            Self::Path(source) => source.outcome(),
            Self::Worker(source) => source.outcome(),
        }
    }
}
