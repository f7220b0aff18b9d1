//! What can go wrong with a DRBD resource, beyond what goes wrong everywhere.

use std::path::PathBuf;

use hawser_core::{Classify, Error, Kind, Outcome, Reason};

/// Why a resource could not be used, grown or given back.
#[derive(Debug, thiserror::Error)]
pub(super) enum DrbdError {
    #[error(
        "the resource {name} stands alone: its peers disagree about the data (split brain), or do \
         not accept each other's secret; the kernel's log tells which. Which side's data counts is \
         for a person to decide: nothing was discarded"
    )]
    StandAlone { name: String },
    #[error(
        "no peer of the resource {name} answers within {} s ({states}); using it now could split \
         its data. With allow_degraded it is used all the same", .limit.as_secs_f64()
    )]
    NoPeer { name: String, states: String, limit: std::time::Duration },
    #[error("the resource {name} is used on another host, and its configuration allows one only")]
    PeerPrimary { name: String },
    #[error(
        "the resource {name} has no data that is up to date within reach; a first synchronisation, \
         or a decision which data counts, is a person's"
    )]
    NoData { name: String },
    #[error(
        "the disk below the resource {name} has no metadata of DRBD; drbdadm create-md makes it, \
         and is not run here, because it may destroy what is on the disk"
    )]
    NoMetadata { name: String },
    #[error(
        "{} belongs to the resource {other}, and {name} was asked for", .device.display()
    )]
    OtherResource { device: PathBuf, name: String, other: String },
    #[error("the resource {name} is there without {}", .device.display())]
    OtherDevice { device: PathBuf, name: String },
    #[error(
        "{} is attached {}, and was asked for {}; disconnect it first",
        .device.display(), mode(!*.read_only), mode(*.read_only)
    )]
    OtherMode { device: PathBuf, read_only: bool },
    #[error("{} does not answer", .device.display())]
    Dead { device: PathBuf, source: Error },
    #[error("taking the resource {name} back failed too ({undo})")]
    Undo { name: String, undo: String, source: Error },
}

fn mode(read_only: bool) -> &'static str {
    if read_only { "read-only" } else { "read-write" }
}

impl Classify for DrbdError {
    fn kind(&self) -> Kind {
        match self {
            Self::NoPeer { .. } | Self::Dead { .. } => Kind::Unavailable,
            Self::StandAlone { .. }
            | Self::PeerPrimary { .. }
            | Self::NoData { .. }
            | Self::NoMetadata { .. }
            | Self::OtherResource { .. }
            | Self::OtherDevice { .. }
            | Self::OtherMode { .. } => Kind::Precondition,
            Self::Undo { source, .. } => source.kind(),
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            Self::Undo { .. } => Outcome::Unknown,
            Self::StandAlone { .. }
            | Self::NoPeer { .. }
            | Self::PeerPrimary { .. }
            | Self::NoData { .. }
            | Self::NoMetadata { .. }
            | Self::OtherResource { .. }
            | Self::OtherDevice { .. }
            | Self::OtherMode { .. }
            | Self::Dead { .. } => Outcome::Nothing,
        }
    }

    fn reason(&self) -> Option<Reason> {
        match self {
            Self::StandAlone { .. } | Self::Dead { .. } => Some(Reason::PathsDown),
            Self::NoPeer { .. } => Some(Reason::TargetUnreachable),
            Self::PeerPrimary { .. } => Some(Reason::Reserved),
            Self::NoData { .. } | Self::NoMetadata { .. } => Some(Reason::LunNotFound),
            Self::OtherResource { .. } | Self::OtherDevice { .. } => Some(Reason::IdentityMismatch),
            Self::OtherMode { read_only, .. } => (!read_only).then_some(Reason::DeviceReadOnly),
            Self::Undo { source, .. } => source.reason(),
        }
    }
}
