//! Why there is no cluster, or no answer of one.

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

/// Result of what is done to a cluster.
pub type Result<T, E = ClusterError> = std::result::Result<T, E>;

/// What went wrong, each with what to do about it where the reader can do something.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// Programs of the machine that are not there.
    #[error("a cluster needs programs that are missing here: {programs}")]
    Missing {
        /// Each with the package that has it.
        programs: String,
    },
    /// There is no Go.
    #[error(
        "building {name} needs Go 1.26 or newer, and there is none on the path or in /usr/local/go: \
         unpack a release of https://go.dev/dl there, or name it in the variable GO"
    )]
    NoGo {
        /// What was to be built.
        name: String,
    },
    /// Mounts, cgroups and network devices are root's.
    #[error("a cluster needs root: it makes mounts, cgroups and network devices of its own")]
    NotRoot,
    /// A line of the recipe.
    #[error("lab/cluster.versions, line {line}: {text:?} is not understood")]
    Versions {
        /// Counted from 1.
        line: usize,
        /// The line.
        text: String,
    },
    /// Something that the recipe does not have.
    #[error("lab/cluster.versions has nothing named {name:?}")]
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// The module proxy does not give it.
    #[error(
        "{name} cannot be had: the Go module proxy that is set up here gives no {module} {version}: \
         {answer}"
    )]
    NotServed {
        /// What was asked for.
        name: String,
        /// The module that has it.
        module: String,
        /// The pinned version.
        version: String,
        /// What Go said.
        answer: String,
    },
    /// A module that is built together with others.
    #[error(
        "the go.mod of {module} takes {other} from a folder beside it: lab/cluster.versions needs a \
         line \"local VERSION\" for it"
    )]
    Local {
        /// The module.
        module: String,
        /// What it takes from there.
        other: String,
    },
    /// A program that had to succeed.
    #[error("{what} failed: {status}\n{tail}")]
    Step {
        /// What it does.
        what: String,
        /// How it ended.
        status: ExitStatus,
        /// The last lines that it said.
        tail: String,
    },
    /// A program that took too long and was killed.
    #[error("{what} did not end within {} s\n{tail}", limit.as_secs())]
    Slow {
        /// What it does.
        what: String,
        /// How long it had.
        limit: Duration,
        /// The last lines that it said.
        tail: String,
    },
    /// A part of the cluster that should run.
    #[error("{name} ended: {status}\n{tail}")]
    Ended {
        /// Which one.
        name: String,
        /// How it ended.
        status: ExitStatus,
        /// The last lines of its log.
        tail: String,
    },
    /// Something that should have become the case.
    #[error("no {what} within {} s\n{state}", limit.as_secs())]
    Waited {
        /// What was waited for.
        what: String,
        /// How long.
        limit: Duration,
        /// What there was instead, and the last lines of the logs.
        state: String,
    },
    /// kubelet wants an address that is not of this machine alone.
    #[error("this machine has no address but those of loopback, and kubelet takes none of them")]
    NoAddress,
    /// A certificate that could not be made.
    #[error("making the certificate of {whose}")]
    Certificate {
        /// Its subject.
        whose: String,
        /// What the library said.
        source: rcgen::Error,
    },
    /// An answer that is not what it should be.
    #[error("reading {what}")]
    Json {
        /// Whose answer.
        what: String,
        /// Where it goes wrong.
        source: serde_json::Error,
    },
    /// A file or process of the machine.
    #[error("{what}")]
    Io {
        /// What was attempted, and on what.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
}

/// Adds what was attempted to a bare system error.
pub(super) trait Attempt<T> {
    /// Says what was attempted, and on what.
    fn attempt(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T> Attempt<T> for io::Result<T> {
    fn attempt(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| ClusterError::Io { what: what(), source })
    }
}

/// An error and its causes, each said once.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(&format!(": {cause}"));
        next = cause.source();
    }
    text
}
