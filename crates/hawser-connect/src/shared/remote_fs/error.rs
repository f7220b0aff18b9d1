//! What goes wrong with mounts from other machines only.

use std::path::PathBuf;

use hawser_core::error::Error;
use hawser_core::{Classify, Kind, Outcome, Reason};

/// Why a volume in a file system of another machine could not be attached, found or taken away.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RemoteError {
    /// Writable where it must not be, or the other way round.
    #[error(
        "{} is mounted {} already, and was asked for {}; disconnect what uses it first",
        target.display(), mode(!*read_only), mode(*read_only)
    )]
    OtherAccess { target: PathBuf, read_only: bool },
    /// It cannot refuse writes.
    #[error(
        "{} cannot be mounted without the right to write: {protocol} has no way to ask for it; \
         attach it for writing and bind it read-only", target.display()
    )]
    NoReadOnly { target: PathBuf, protocol: &'static str },
    /// The mount is dead.
    #[error(
        "{} is a dead mount that Hawser did not make; unmount it (umount {})",
        target.display(), target.display()
    )]
    DeadForeign { target: PathBuf, source: Error },
    /// The server is silent.
    #[error("{} is mounted, and {export} does not answer", target.display())]
    Silent { target: PathBuf, export: String, source: Error },
    /// Nothing is mounted after the mount.
    #[error(
        "{export} was mounted, and {} is not on it: what is written there would land on a disk of \
         this host", target.display()
    )]
    NotMounted { target: PathBuf, export: String },
    /// It is not there.
    #[error("{export} has no {}", path.display())]
    NoVolume { path: PathBuf, export: String },
    /// It is something else.
    #[error("{} is {found}, and a volume is {wanted}", path.display())]
    WrongKind { path: PathBuf, wanted: &'static str, found: &'static str },
    /// Not written out.
    #[error("{}: cached data could not be written out; it stays mounted", target.display())]
    Flush { target: PathBuf, source: Error },
    /// Not written out, and detached all the same.
    #[error("{}: cached data was lost by the forced detach", target.display())]
    Lost { target: PathBuf, source: Error },
    /// The way back failed too.
    #[error("taking back the mount on {} failed too ({undo})", target.display())]
    Undo { target: PathBuf, undo: String, source: Error },
}

fn mode(read_only: bool) -> &'static str {
    if read_only { "read-only" } else { "writable" }
}

impl Classify for RemoteError {
    fn kind(&self) -> Kind {
        match self {
            Self::OtherAccess { .. }
            | Self::DeadForeign { .. }
            | Self::NotMounted { .. }
            | Self::WrongKind { .. }
            | Self::Lost { .. } => Kind::Precondition,
            Self::NoReadOnly { .. } => Kind::Unsupported,
            Self::Silent { .. } | Self::Flush { .. } => Kind::Unavailable,
            Self::NoVolume { .. } => Kind::NotFound,
            Self::Undo { source, .. } => source.kind(),
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            Self::Lost { .. } | Self::Undo { .. } => Outcome::Unknown,
            Self::OtherAccess { .. }
            | Self::NoReadOnly { .. }
            | Self::DeadForeign { .. }
            | Self::NotMounted { .. }
            | Self::WrongKind { .. }
            | Self::Silent { .. }
            | Self::Flush { .. }
            | Self::NoVolume { .. } => Outcome::Nothing,
        }
    }

    fn reason(&self) -> Option<Reason> {
        match self {
            Self::OtherAccess { read_only, .. } => (!read_only).then_some(Reason::DeviceReadOnly),
            Self::NoReadOnly { .. } => Some(Reason::InvalidParameters),
            Self::DeadForeign { .. } | Self::Silent { .. } => Some(Reason::TargetUnreachable),
            Self::NotMounted { .. } | Self::WrongKind { .. } => Some(Reason::IdentityMismatch),
            Self::NoVolume { .. } => Some(Reason::LunNotFound),
            Self::Flush { .. } => Some(Reason::FlushFailed),
            Self::Lost { .. } => Some(Reason::DataLost),
            Self::Undo { source, .. } => source.reason(),
        }
    }
}
