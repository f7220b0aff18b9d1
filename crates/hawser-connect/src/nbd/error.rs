//! What can go wrong with a network block device, beyond what goes wrong everywhere.

use std::path::PathBuf;

use hawser_core::attach::Identity;
use hawser_core::{Classify, Error, Kind, Outcome, Reason};

use crate::shared::error::AttachError;

/// Why a network block device could not be made, grown or taken away.
#[derive(Debug, thiserror::Error)]
pub(super) enum NbdError {
    #[error(transparent)]
    Attach(#[from] AttachError),
    #[error(
        "tls.mode is require, and the kernel's NBD client cannot speak TLS; reach the server over \
         a trusted network, a tunnel or a Unix socket, with tls.mode off"
    )]
    TlsAsked,
    #[error(
        "{server} insists on TLS, which the kernel's NBD client cannot speak; let it serve this \
         export without TLS over a trusted network, a tunnel or a Unix socket"
    )]
    TlsRequired { server: String },
    #[error("{server} does not let this host have the export {export:?}{}", said(.message))]
    Forbidden { server: String, export: String, message: String },
    #[error("{server} refuses the export {export:?}: it {why}{}", said(.message))]
    Refused { server: String, export: String, why: &'static str, message: String },
    #[error("{server} speaks the old NBD handshake, which knows no exports; use a newer server")]
    OldStyle { server: String },
    #[error("{server} does not speak NBD as it should: {why}")]
    Nonsense { server: String, why: String },
    #[error("talking to {server}")]
    Talk { server: String, source: std::io::Error },
    #[error("the export {export:?} of {server} is empty")]
    Empty { server: String, export: String },
    #[error(
        "the export {export:?} of {server} takes no blocks smaller than {least} bytes; \
         the kernel takes 512 to 4096 and was asked for {wanted}"
    )]
    Blocks { server: String, export: String, least: u32, wanted: u32 },
    #[error(
        "{server} tells each connection something else about the export {export:?} \
         ({first}, then {then})"
    )]
    Differs { server: String, export: String, first: String, then: String },
    #[error("refusing {target}: it is {found}, and {expected} was expected")]
    OtherIdentity { target: String, expected: Identity, found: Identity },
    #[error(
        "{} has this export already, as {backend}; two devices over one export destroy it: \
         disconnect that one first", .device.display()
    )]
    Taken { device: PathBuf, backend: String },
    #[error(
        "{} is attached {}, and was asked for {}; disconnect it first",
        .device.display(), mode(!*.read_only), mode(*.read_only)
    )]
    OtherMode { device: PathBuf, read_only: bool },
    #[error(
        "the export has {export} bytes, less than its device {} with {size}; \
         nothing was made smaller", .device.display()
    )]
    Shrunk { device: PathBuf, export: u64, size: u64 },
    #[error(
        "{server} has {export} bytes now, but not on the connections that {} has, which end at \
         {size}; detach the volume and attach it again to see the rest", .device.display()
    )]
    OldConnections { server: String, device: PathBuf, export: u64, size: u64, source: Error },
    #[error(
        "this kernel does not tell which export {} has (/sys/block/{name}/backend), so it could \
         not be found again; use Linux 5.14 or newer", .device.display()
    )]
    NoBackend { device: PathBuf, name: String },
    #[error("{} does not answer{}", .device.display(), reconnected(*.renewed))]
    Dead { device: PathBuf, renewed: bool, source: Error },
    #[error("taking {} away again failed too ({undo})", .device.display())]
    Undo { device: PathBuf, undo: String, source: Error },
}

fn said(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(" (it says: {message})") }
}

fn mode(read_only: bool) -> &'static str {
    if read_only { "read-only" } else { "read-write" }
}

fn reconnected(renewed: bool) -> &'static str {
    if renewed { ", with new connections either" } else { "" }
}

impl Classify for NbdError {
    fn kind(&self) -> Kind {
        match self {
            Self::Attach(error) => error.kind(),
            Self::TlsAsked
            | Self::TlsRequired { .. }
            | Self::OldStyle { .. }
            | Self::Blocks { .. }
            | Self::NoBackend { .. } => Kind::Unsupported,
            Self::Forbidden { .. } => Kind::Denied,
            Self::Refused { .. }
            | Self::Nonsense { .. }
            | Self::Talk { .. }
            | Self::Differs { .. }
            | Self::Dead { .. } => Kind::Unavailable,
            Self::Empty { .. }
            | Self::OtherIdentity { .. }
            | Self::OtherMode { .. }
            | Self::Shrunk { .. }
            | Self::OldConnections { .. } => Kind::Precondition,
            Self::Taken { .. } => Kind::Busy,
            Self::Undo { source, .. } => source.kind(),
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            Self::Attach(error) => error.outcome(),
            Self::Undo { .. } => Outcome::Unknown,
            Self::OldConnections { .. } => Outcome::RolledBack,
            Self::TlsAsked
            | Self::TlsRequired { .. }
            | Self::Forbidden { .. }
            | Self::Refused { .. }
            | Self::OldStyle { .. }
            | Self::Nonsense { .. }
            | Self::Talk { .. }
            | Self::Empty { .. }
            | Self::Blocks { .. }
            | Self::Differs { .. }
            | Self::OtherIdentity { .. }
            | Self::Taken { .. }
            | Self::OtherMode { .. }
            | Self::Shrunk { .. }
            | Self::NoBackend { .. }
            | Self::Dead { .. } => Outcome::Nothing,
        }
    }

    fn reason(&self) -> Option<Reason> {
        match self {
            Self::Attach(error) => error.reason(),
            Self::TlsAsked | Self::TlsRequired { .. } | Self::OldStyle { .. } => {
                Some(Reason::UnsupportedProtocol)
            }
            Self::NoBackend { .. } => Some(Reason::ToolOrModuleMissing),
            Self::Forbidden { .. } => Some(Reason::AuthFailed),
            Self::Refused { .. }
            | Self::Nonsense { .. }
            | Self::Talk { .. }
            | Self::Differs { .. } => Some(Reason::TargetUnreachable),
            Self::Empty { .. } => Some(Reason::LunNotFound),
            Self::Blocks { .. } => Some(Reason::InvalidParameters),
            Self::OtherIdentity { .. } => Some(Reason::IdentityMismatch),
            Self::Taken { .. } => Some(Reason::DeviceBusy),
            Self::OtherMode { read_only, .. } => (!read_only).then_some(Reason::DeviceReadOnly),
            Self::Shrunk { .. } => None,
            Self::OldConnections { .. } | Self::Dead { .. } => Some(Reason::PathsDown),
            Self::Undo { source, .. } => source.reason(),
        }
    }
}
