//! What can go wrong between the cluster and the drivers.

use hawser_core::{Classify, Kind, Outcome};
use tonic::{Code, Status};

/// Why something is not as an object asks for, or is not known to be.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The API server did not do what was asked of it.
    #[error("{attempt}")]
    Api {
        /// What was asked.
        attempt: String,
        /// Its answer, or why there is none.
        source: Box<kube::Error>,
    },
    /// The driver did not do what was asked of it. Its words are for users.
    #[error("{}", .0.message())]
    Driver(#[source] Spoken),
    /// An object asks for what cannot be.
    #[error("{0}")]
    Wrong(String),
    /// Something else has to come first; it is looked at again when it comes, and now and then.
    #[error("{0}")]
    NotYet(String),
    /// The node that was chosen for it is gone, so another one must be chosen.
    #[error("{0}")]
    NoNode(String),
    /// Another process leads now.
    #[error("the lease was lost: another process leads now, or the API server cannot be reached")]
    NotLeading,
}

/// A status of gRPC as an error whose words are said once.
#[derive(Debug, Clone)]
pub struct Spoken(Status);

impl Spoken {
    fn message(&self) -> &str {
        self.0.message()
    }
}

impl std::fmt::Display for Spoken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the driver answered {:?}", self.0.code())
    }
}

impl std::error::Error for Spoken {}

impl From<Status> for ClusterError {
    fn from(status: Status) -> Self {
        Self::Driver(Spoken(status))
    }
}

impl Classify for ClusterError {
    fn kind(&self) -> Kind {
        match self {
            Self::Api { .. } => match self.status() {
                Some(401) => Kind::Unauthenticated,
                Some(403) => Kind::Denied,
                Some(404) => Kind::NotFound,
                Some(409) => Kind::Busy,
                Some(400 | 422) => Kind::Invalid,
                Some(_) | None => Kind::Unavailable,
            },
            Self::Driver(_) | Self::NotLeading => Kind::Unavailable,
            Self::Wrong(_) => Kind::Invalid,
            Self::NotYet(_) | Self::NoNode(_) => Kind::Precondition,
        }
    }

    fn outcome(&self) -> Outcome {
        Outcome::Unknown
    }
}

impl ClusterError {
    /// The code of the driver's answer.
    pub(super) fn code(&self) -> Option<Code> {
        match self {
            Self::Driver(Spoken(status)) => Some(status.code()),
            Self::Api { .. }
            | Self::Wrong(_)
            | Self::NotYet(_)
            | Self::NoNode(_)
            | Self::NotLeading => None,
        }
    }

    /// True when the API server has no such object.
    pub(super) fn is_absent(&self) -> bool {
        self.status() == Some(404)
    }

    /// True when the API server has more to do than it can now.
    pub(super) fn is_throttled(&self) -> bool {
        self.status() == Some(429)
    }

    /// True when the API server, or a policy of the cluster, does not take it however often it is sent.
    pub(super) fn is_refused(&self) -> bool {
        matches!(self.status(), Some(400 | 403 | 422))
    }

    /// True when the object is not as the change expected it, or is there already.
    pub(super) fn is_conflict(&self) -> bool {
        self.status() == Some(409) || self.is_of_another()
    }

    /// True when another object has the name by now: a patch that says whose it is would change that.
    fn is_of_another(&self) -> bool {
        let Self::Api { source, .. } = self else { return false };
        let kube::Error::Api(status) = &**source else { return false };
        let mut causes = status.details.iter().flat_map(|details| &details.causes);
        status.code == 422 && causes.any(|cause| cause.field == "metadata.uid")
    }

    /// The status of the API server's answer.
    fn status(&self) -> Option<u16> {
        let Self::Api { source, .. } = self else { return None };
        if let kube::Error::Api(status) = &**source { Some(status.code) } else { None }
    }

    /// All of it in one line, for events and logs.
    pub(super) fn sentence(&self) -> String {
        match self {
            Self::Api { attempt, source } => format!("{attempt}: {source}"),
            Self::Driver(_)
            | Self::Wrong(_)
            | Self::NotYet(_)
            | Self::NoNode(_)
            | Self::NotLeading => self.to_string(),
        }
    }

    /// True when the driver may still be at work, so that the same call must be repeated until its
    /// outcome is known.
    pub(super) fn may_be_at_work(&self) -> bool {
        self.code().is_some_and(may_be_at_work)
    }
}

/// The codes that all callers of CSI take for "maybe in progress".
pub(super) fn may_be_at_work(code: Code) -> bool {
    match code {
        Code::Cancelled | Code::DeadlineExceeded | Code::Aborted | Code::Unavailable => true,
        Code::Ok
        | Code::Unknown
        | Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::Internal
        | Code::DataLoss
        | Code::Unauthenticated => false,
    }
}
