//! What goes wrong with images only.

use hawser_core::error::Error;
use hawser_core::{Classify, Kind, Outcome, Reason};

/// Why an image could not be mapped.
#[derive(Debug, thiserror::Error)]
pub(super) enum RbdError {
    #[error(
        "{name} has features that this kernel does not know; switch them off with \
         rbd feature disable, or use a newer kernel"
    )]
    Features { name: String },
    #[error(
        "the kernel does not take what it is told of {name}: look whether secret is the key of a \
         Ceph user, and whether this kernel knows ms_mode"
    )]
    Options { name: String },
    #[error("the cluster at {monitors} has no {name}, or this user may not know of it")]
    NoImage { name: String, monitors: String },
    #[error("{name} was mapped and is not there; somebody else unmapped it")]
    Vanished { name: String },
    #[error("{name} is mapped {there}, and {wanted} was asked for; unmap it first")]
    OtherMode { name: String, there: &'static str, wanted: &'static str },
    #[error(
        "there is no key for the Ceph user {user}: give secret or keyring, or put a keyring into {file}"
    )]
    NoKey { user: String, file: String },
    #[error("what had been mapped could not be unmapped again ({undo})")]
    Undo { undo: String, source: Error },
}

impl Classify for RbdError {
    fn kind(&self) -> Kind {
        match self {
            Self::Features { .. } => Kind::Unsupported,
            Self::NoImage { .. } => Kind::NotFound,
            Self::Vanished { .. } => Kind::Unavailable,
            Self::OtherMode { .. } => Kind::Precondition,
            Self::NoKey { .. } | Self::Options { .. } => Kind::Invalid,
            Self::Undo { source, .. } => source.kind(),
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            Self::Undo { .. } | Self::Vanished { .. } => Outcome::Unknown,
            Self::Features { .. }
            | Self::NoImage { .. }
            | Self::Options { .. }
            | Self::OtherMode { .. }
            | Self::NoKey { .. } => Outcome::Nothing,
        }
    }

    fn reason(&self) -> Option<Reason> {
        match self {
            Self::Features { .. } => Some(Reason::ToolOrModuleMissing),
            Self::NoImage { .. } => Some(Reason::LunNotFound),
            Self::Options { .. } => Some(Reason::InvalidParameters),
            Self::OtherMode { there: "read-only", .. } => Some(Reason::DeviceReadOnly),
            Self::NoKey { .. } => Some(Reason::AuthFailed),
            Self::Undo { source, .. } => source.reason(),
            Self::Vanished { .. } | Self::OtherMode { .. } => None,
        }
    }
}
