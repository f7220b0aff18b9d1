//! Why the kernel did not do something.

use std::io;
use std::time::Duration;

use crate::error::{Classify, Kind, Outcome};

/// Why the kernel did not do something. Connectors tell cases apart by [`KernelError::errno`].
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// It refused.
    #[error("{attempt}")]
    Refused {
        /// What was attempted, and on what.
        attempt: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// It has not answered; it may still happen.
    #[error(
        "{attempt} did not answer within {} s; it may still happen: look for a dead server or device",
        limit.as_secs_f64()
    )]
    Late {
        /// What was attempted, and on what.
        attempt: String,
        /// How long was waited.
        limit: Duration,
    },
    /// It was not asked: too many calls hang already.
    #[error("{attempt} was not begun")]
    NotBegun {
        /// What was to be attempted.
        attempt: String,
        /// Why not.
        source: io::Error,
    },
    /// The answer makes no sense.
    #[error("{attempt}: the answer is not what it should be: {why}")]
    Nonsense {
        /// What was attempted, and on what.
        attempt: String,
        /// What is wrong with the answer.
        why: String,
    },
}

impl KernelError {
    /// A refusal with an errno.
    pub fn refused(attempt: impl Into<String>, errno: i32) -> Self {
        Self::Refused { attempt: attempt.into(), source: io::Error::from_raw_os_error(errno) }
    }

    /// The kernel's number for its reason, where it gave one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Refused { source, .. } => source.raw_os_error(),
            Self::Late { .. } | Self::NotBegun { .. } | Self::Nonsense { .. } => None,
        }
    }
}

impl Classify for KernelError {
    fn kind(&self) -> Kind {
        match self {
            Self::Refused { source, .. } => kind_of(source),
            Self::Late { .. } => Kind::Timeout,
            Self::NotBegun { .. } | Self::Nonsense { .. } => Kind::Unavailable,
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            Self::Late { .. } => Outcome::Unknown,
            Self::Refused { .. } | Self::NotBegun { .. } | Self::Nonsense { .. } => {
                Outcome::Nothing
            }
        }
    }
}

/// What a caller can do about a reason of the kernel, where the connector knows no better.
fn kind_of(source: &io::Error) -> Kind {
    use io::ErrorKind as E;
    let kind = source.kind();
    if kind == E::NotFound {
        Kind::NotFound
    } else if [E::PermissionDenied, E::ReadOnlyFilesystem].contains(&kind) {
        Kind::Denied
    } else if kind == E::ResourceBusy {
        Kind::Busy
    } else if [E::StorageFull, E::QuotaExceeded].contains(&kind) {
        Kind::NoSpace
    } else if kind == E::TimedOut {
        Kind::Timeout
    } else if kind == E::Unsupported {
        Kind::Unsupported
    } else {
        Kind::Unavailable
    }
}
