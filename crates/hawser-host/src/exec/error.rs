//! Why a program did not run to its end.

use std::time::Duration;

use hawser_core::{Classify, Kind, Outcome};

use crate::errno::kind_of_io;

/// Why a program did not run to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExecError {
    #[error("{program:?} is not the bare name of a program")]
    NotAName { program: String },
    #[error("the program {program} is not on this host: install the package {package}")]
    Missing { program: String, package: &'static str },
    #[error("the program {program} is not on this host (looked in {})", super::DIRECTORIES.join(", "))]
    MissingUnknown { program: String },
    #[error("an argument of {program} has a NUL character")]
    Nul { program: String },
    #[error("starting {command}")]
    Start { command: String, source: std::io::Error },
    #[error("waiting for {command}")]
    Wait { command: String, source: std::io::Error },
    #[error("{command} was ended after {} s", limit.as_secs_f64())]
    Late { command: String, limit: Duration },
}

impl Classify for ExecError {
    fn kind(&self) -> Kind {
        match self {
            Self::NotAName { .. } | Self::Nul { .. } => Kind::Invalid,
            Self::Missing { .. } | Self::MissingUnknown { .. } => Kind::Unsupported,
            Self::Start { source, .. } => kind_of_io(source),
            Self::Wait { .. } => Kind::Internal,
            Self::Late { .. } => Kind::Timeout,
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            Self::NotAName { .. }
            | Self::Missing { .. }
            | Self::MissingUnknown { .. }
            | Self::Nul { .. }
            | Self::Start { .. } => Outcome::Nothing,
            Self::Wait { .. } | Self::Late { .. } => Outcome::Unknown,
        }
    }
}
