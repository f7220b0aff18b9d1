//! What can go wrong with an AoE volume, beyond what goes wrong everywhere.

use std::path::PathBuf;

use hawser_core::{Classify, Error, Kind, Outcome, Reason};

/// Why an AoE volume could not be attached, grown or taken away.
#[derive(Debug, thiserror::Error)]
pub(super) enum AoeError {
    #[error("the interface {interface} is not up, so no AoE target is reached over it")]
    InterfaceDown { interface: String },
    #[error("no AoE target answers as {name} within {} s", .limit.as_secs_f64())]
    NoAnswer { name: String, limit: std::time::Duration },
    #[error("{} does not answer", .device.display())]
    Dead { device: PathBuf, source: Error },
    #[error(
        "{} is attached {}, and was asked for {}; disconnect it first",
        .device.display(), mode(!*.read_only), mode(*.read_only)
    )]
    OtherMode { device: PathBuf, read_only: bool },
    #[error("the target of {} shrank from {before} to {now} bytes", .device.display())]
    Shrunk { device: PathBuf, before: u64, now: u64 },
    #[error("the identity of {} cannot be read, so it is not known which volume it is", .device.display())]
    NoIdentity { device: PathBuf, source: Error },
    #[error("taking {} away again failed too ({undo})", .device.display())]
    Undo { device: PathBuf, undo: String, source: Error },
}

fn mode(read_only: bool) -> &'static str {
    if read_only { "read-only" } else { "read-write" }
}

impl Classify for AoeError {
    fn kind(&self) -> Kind {
        match self {
            Self::InterfaceDown { .. } | Self::Dead { .. } | Self::NoIdentity { .. } => {
                Kind::Unavailable
            }
            Self::NoAnswer { .. } => Kind::NotFound,
            Self::OtherMode { .. } | Self::Shrunk { .. } => Kind::Precondition,
            Self::Undo { source, .. } => source.kind(),
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            Self::Undo { .. } => Outcome::Unknown,
            Self::InterfaceDown { .. }
            | Self::NoAnswer { .. }
            | Self::Dead { .. }
            | Self::OtherMode { .. }
            | Self::Shrunk { .. }
            | Self::NoIdentity { .. } => Outcome::Nothing,
        }
    }

    fn reason(&self) -> Option<Reason> {
        match self {
            Self::InterfaceDown { .. } => Some(Reason::TargetUnreachable),
            Self::NoAnswer { .. } => Some(Reason::TargetNotFound),
            Self::Dead { .. } | Self::NoIdentity { .. } => Some(Reason::PathsDown),
            Self::OtherMode { read_only, .. } => (!read_only).then_some(Reason::DeviceReadOnly),
            Self::Shrunk { .. } => None,
            Self::Undo { source, .. } => source.reason(),
        }
    }
}
