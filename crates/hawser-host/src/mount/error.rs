//! Why a mount call failed.

use std::io;
use std::path::PathBuf;

use hawser_core::{Classify, Kind, Outcome};
use rustix::io::Errno;

use crate::errno::kind_of_io;
use crate::workers::WorkerError;

/// Why a mount call failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MountError {
    #[error("{path:?} is not an absolute path without `..`")]
    NotPlain { path: PathBuf },
    #[error(
        "{path:?} leads through a symbolic link that others could have placed; name the real folder"
    )]
    Symlink { path: PathBuf },
    #[error("opening {path:?}")]
    Open { path: PathBuf, source: io::Error },
    #[error("{path:?} is there and is not a folder")]
    NotAFolder { path: PathBuf },
    #[error("{path:?} is there and is not a plain file")]
    NotAFile { path: PathBuf },
    #[error("{path:?} is not a block device")]
    NotADevice { path: PathBuf },
    #[error("making the folder {path:?}")]
    MakeFolder { path: PathBuf, source: io::Error },
    #[error("making the file {path:?}")]
    MakeFile { path: PathBuf, source: io::Error },
    #[error("removing {path:?}")]
    Remove { path: PathBuf, source: io::Error },
    #[error("reading the mount table")]
    ReadTable(#[source] io::Error),
    #[error("the mount table has a malformed line {line}: {text:?}")]
    MalformedTable { line: usize, text: String },
    #[error("the mount option {option:?} is refused: {why}")]
    Option { option: String, why: &'static str },
    #[error("another mount call is at work at {target:?}")]
    AtWork { target: PathBuf },
    #[error("{target:?} has something else mounted: {what}; unmount it first")]
    Taken { target: PathBuf, what: String },
    #[error("{target:?} is mounted {now} already, and {wanted} was asked for; unmount it first")]
    OtherAccess { target: PathBuf, now: &'static str, wanted: &'static str },
    #[error("mounting {source_name} on {target:?}{}", said(log))]
    Mount { source_name: String, target: PathBuf, log: String, source: io::Error },
    #[error("unmounting {target:?}, which is in use{}", users(by))]
    InUse { target: PathBuf, by: Vec<String> },
    #[error("unmounting {target:?}")]
    Unmount { target: PathBuf, source: io::Error },
    #[error("taking the mount on {target:?} out of the tree by force")]
    Abandon { target: PathBuf, source: io::Error },
    #[error("taking back the mount on {target:?} that could not be made read-only ({first})")]
    Undo { target: PathBuf, first: Errno, source: io::Error },
    #[error(transparent)]
    Worker(#[from] WorkerError),
}

/// What the kernel's file system code said, as an addition to a sentence.
fn said(log: &str) -> String {
    if log.is_empty() { String::new() } else { format!(" (the kernel says: {log})") }
}

fn users(by: &[String]) -> String {
    if by.is_empty() { String::new() } else { format!(" by {}", by.join(", ")) }
}

impl Classify for MountError {
    fn kind(&self) -> Kind {
        match self {
            Self::NotPlain { .. }
            | Self::Symlink { .. }
            | Self::Option { .. }
            | Self::NotADevice { .. } => Kind::Invalid,
            Self::NotAFolder { .. }
            | Self::NotAFile { .. }
            | Self::Taken { .. }
            | Self::OtherAccess { .. } => Kind::Precondition,
            Self::Open { source, .. }
            | Self::MakeFolder { source, .. }
            | Self::MakeFile { source, .. }
            | Self::Remove { source, .. }
            | Self::Unmount { source, .. }
            | Self::Abandon { source, .. }
            | Self::Undo { source, .. }
            | Self::ReadTable(source) => kind_of_io(source),
            Self::MalformedTable { .. } => Kind::Internal,
            Self::AtWork { .. } | Self::InUse { .. } => Kind::Busy,
            // An option that the file system refuses is EINVAL; so is a damaged superblock, and
            // only the kernel's own words tell them apart.
            Self::Mount { source, log, .. } => {
                let invalid = Errno::from_io_error(source) == Some(Errno::INVAL);
                if invalid && !log.contains("nknown parameter") {
                    Kind::Precondition
                } else {
                    kind_of_io(source)
                }
            }
            Self::Worker(source) => source.kind(),
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            Self::Undo { .. } => Outcome::Unknown,
            Self::Worker(source) => source.outcome(),
            Self::NotPlain { .. }
            | Self::Symlink { .. }
            | Self::Open { .. }
            | Self::NotAFolder { .. }
            | Self::NotAFile { .. }
            | Self::NotADevice { .. }
            | Self::MakeFolder { .. }
            | Self::MakeFile { .. }
            | Self::Remove { .. }
            | Self::ReadTable(_)
            | Self::MalformedTable { .. }
            | Self::Option { .. }
            | Self::AtWork { .. }
            | Self::Taken { .. }
            | Self::OtherAccess { .. }
            | Self::Mount { .. }
            | Self::InUse { .. }
            | Self::Unmount { .. }
            | Self::Abandon { .. } => Outcome::Nothing,
        }
    }
}
