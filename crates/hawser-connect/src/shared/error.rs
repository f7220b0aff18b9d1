//! What goes wrong on the way to a volume, whatever the protocol: one variant for each word of the
//! library ([`Reason`]) that a connector can meet.

use std::path::PathBuf;
use std::time::Duration;

use hawser_core::attach::Identity;
use hawser_core::error::Error;
use hawser_core::port::host::ToolFailed;
use hawser_core::port::kernel::KernelError;
use hawser_core::{Classify, Kind, Outcome, Reason};

/// Why a volume could not be attached, detached or grown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AttachError {
    /// A field or an option makes no sense.
    #[error("the connection info is not usable: {why}")]
    Invalid { why: String },
    /// Something is not installed or not loaded.
    #[error("{what} is missing on this host; {advice}")]
    Missing { what: String, advice: String },
    /// Multipath was enforced.
    #[error("multipath is enforced, and this host cannot do it: {why}")]
    NoMultipath { why: String },
    /// The target refuses the name or the secret.
    #[error("{target} does not accept these credentials")]
    AuthFailed { target: String },
    /// Nothing listens.
    #[error("nothing listens at {portal}")]
    PortalRefused { portal: String },
    /// No answer.
    #[error("{portal} does not answer within {} s", limit.as_secs_f64())]
    PortalTimeout { portal: String, limit: Duration },
    /// No way there.
    #[error("{target} cannot be reached: {why}")]
    Unreachable { target: String, why: String },
    /// The portal has no such target.
    #[error("{portal} has no target {target}")]
    TargetNotFound { portal: String, target: String },
    /// The target has no such volume.
    #[error("{target} shows this host no {volume} within {} s", limit.as_secs_f64())]
    VolumeNotFound { target: String, volume: String, limit: Duration },
    /// No adapter.
    #[error("this host has no {kind} adapter that is online")]
    NoHba { kind: &'static str },
    /// Another volume is there.
    #[error(
        "{} is {found}, and {expected} was expected: another volume is where this one should be; \
         nothing was changed on it", device.display()
    )]
    WrongIdentity { device: PathBuf, expected: Identity, found: String },
    /// It does not take writes.
    #[error("{} refuses writes, and it is to be written to", device.display())]
    ReadOnly { device: PathBuf },
    /// Somebody uses it.
    #[error("{} is in use by {users}; let go of it first", device.display())]
    Busy { device: PathBuf, users: String },
    /// Not written out; everything is still there.
    #[error("{}: cached data could not be written out; nothing was detached", device.display())]
    Flush { device: PathBuf, source: KernelError },
    /// Not written out, and detached all the same.
    #[error("{}: cached data was lost by the forced detach", device.display())]
    Lost { device: PathBuf, source: KernelError },
    /// No path to write to.
    #[error("{} has no path that works, so nothing can be written out; nothing was detached", device.display())]
    NoPath { device: PathBuf },
    /// It is still there.
    #[error("{what} is still there after {} s", limit.as_secs_f64())]
    NotRemoved { what: String, limit: Duration },
    /// Not every path works.
    #[error("{what}: not every path works, so it is not grown; {why}")]
    PathsDown { what: String, why: String },
    /// It is not attached here.
    #[error("{what} is not attached on this host")]
    NotAttached { what: String },
    /// A deadline passed.
    #[error("{attempt} did not end within {} s", limit.as_secs_f64())]
    Deadline { attempt: String, limit: Duration },
    /// A program failed.
    #[error("{attempt}")]
    Tool { attempt: String, source: ToolFailed },
    /// The kernel refused.
    #[error("{attempt}")]
    Kernel { attempt: String, source: KernelError },
    /// Several steps of a forced detach failed.
    #[error("{what}: {}", failures.iter().map(Error::sentence).collect::<Vec<_>>().join("; "))]
    Several { what: String, failures: Vec<Error> },
}

impl Classify for AttachError {
    fn kind(&self) -> Kind {
        match self {
            Self::Invalid { .. } => Kind::Invalid,
            Self::Missing { .. } | Self::NoMultipath { .. } | Self::NoHba { .. } => {
                Kind::Unsupported
            }
            Self::AuthFailed { .. } => Kind::Denied,
            Self::PortalRefused { .. }
            | Self::Unreachable { .. }
            | Self::Flush { .. }
            | Self::NoPath { .. }
            | Self::Tool { .. } => Kind::Unavailable,
            Self::PortalTimeout { .. } | Self::NotRemoved { .. } | Self::Deadline { .. } => {
                Kind::Timeout
            }
            Self::TargetNotFound { .. } | Self::VolumeNotFound { .. } => Kind::NotFound,
            Self::WrongIdentity { .. }
            | Self::ReadOnly { .. }
            | Self::Lost { .. }
            | Self::PathsDown { .. }
            | Self::NotAttached { .. } => Kind::Precondition,
            Self::Busy { .. } => Kind::Busy,
            Self::Kernel { source, .. } => source.kind(),
            Self::Several { failures, .. } => failures.first().map_or(Kind::Internal, Error::kind),
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            Self::Deadline { .. } | Self::NotRemoved { .. } | Self::Lost { .. } => Outcome::Unknown,
            Self::Kernel { source, .. } => source.outcome(),
            Self::Several { failures, .. } if failures.iter().any(Error::is_unknown) => {
                Outcome::Unknown
            }
            Self::Invalid { .. }
            | Self::Missing { .. }
            | Self::NoMultipath { .. }
            | Self::AuthFailed { .. }
            | Self::PortalRefused { .. }
            | Self::PortalTimeout { .. }
            | Self::Unreachable { .. }
            | Self::TargetNotFound { .. }
            | Self::VolumeNotFound { .. }
            | Self::NoHba { .. }
            | Self::WrongIdentity { .. }
            | Self::ReadOnly { .. }
            | Self::Busy { .. }
            | Self::Flush { .. }
            | Self::NoPath { .. }
            | Self::PathsDown { .. }
            | Self::NotAttached { .. }
            | Self::Tool { .. }
            | Self::Several { .. } => Outcome::Nothing,
        }
    }

    fn reason(&self) -> Option<Reason> {
        match self {
            Self::Invalid { .. } => Some(Reason::InvalidParameters),
            Self::Missing { .. } => Some(Reason::ToolOrModuleMissing),
            Self::NoMultipath { .. } => Some(Reason::MultipathUnavailable),
            Self::AuthFailed { .. } => Some(Reason::AuthFailed),
            Self::PortalRefused { .. } => Some(Reason::PortalRefused),
            Self::PortalTimeout { .. } => Some(Reason::PortalTimeout),
            Self::Unreachable { .. } => Some(Reason::TargetUnreachable),
            Self::TargetNotFound { .. } => Some(Reason::TargetNotFound),
            Self::VolumeNotFound { .. } => Some(Reason::LunNotFound),
            Self::NoHba { .. } => Some(Reason::NoHba),
            Self::WrongIdentity { .. } => Some(Reason::IdentityMismatch),
            Self::ReadOnly { .. } => Some(Reason::DeviceReadOnly),
            Self::Busy { .. } => Some(Reason::DeviceBusy),
            Self::Flush { .. } | Self::NoPath { .. } => Some(Reason::FlushFailed),
            Self::Lost { .. } => Some(Reason::DataLost),
            Self::NotRemoved { .. } => Some(Reason::NotRemoved),
            Self::PathsDown { .. } => Some(Reason::PathsDown),
            Self::Deadline { .. } => Some(Reason::HostTimeout),
            Self::Several { failures, .. } => {
                let mut reasons = failures.iter().map(Error::reason);
                let first = reasons.next().flatten();
                let alike = failures.len() == 1 || first.is_some() && reasons.all(|r| r == first);
                if alike { first } else { Some(Reason::Several) }
            }
            Self::NotAttached { .. } | Self::Tool { .. } | Self::Kernel { .. } => None,
        }
    }
}

impl AttachError {
    /// A refusal of the kernel with what was attempted.
    pub(crate) fn kernel(attempt: impl Into<String>) -> impl FnOnce(KernelError) -> Self {
        let attempt = attempt.into();
        |source| Self::Kernel { attempt, source }
    }

    /// A failed program with what was attempted.
    pub(crate) fn tool(attempt: impl Into<String>) -> impl FnOnce(ToolFailed) -> Self {
        let attempt = attempt.into();
        |source| Self::Tool { attempt, source }
    }
}
