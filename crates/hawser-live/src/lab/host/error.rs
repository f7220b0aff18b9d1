//! Why the lab did not come to run anything, or stopped.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Result of the lab's steps.
pub type Result<T, E = LabError> = std::result::Result<T, E>;

/// What went wrong, each with what to do about it where the reader can do something.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// Programs of the host that are not there.
    #[error(
        "the lab needs programs that are missing here: {programs}; run `tools/debian-packages` as root"
    )]
    Missing {
        /// Each with the package that has it.
        programs: String,
    },
    /// A guest is built with mounts and file owners.
    #[error("building the guest's image needs root, and there is none in {cache} for this recipe")]
    NotRoot {
        /// Where images are kept.
        cache: PathBuf,
    },
    /// apt does not say where packages come from.
    #[error(
        "apt is set up with no Debian source of the component main; the guest is built from it"
    )]
    NoMirror,
    /// The source lacks the kernel.
    #[error("no kernel of the series {series} in {suite}")]
    NoKernel {
        /// The asked one, as `6.12`.
        series: String,
        /// Where it was looked for.
        suite: String,
    },
    /// A file of the recipe does not say what it must.
    #[error("the recipe {file} has no line {key:?}")]
    Recipe {
        /// The file below `lab/`.
        file: &'static str,
        /// The missing word.
        key: &'static str,
    },
    /// A step outside of the guest.
    #[error("{what} failed: {status}\n{tail}")]
    Step {
        /// What the step does.
        what: String,
        /// How its program ended.
        status: String,
        /// The last lines that it said.
        tail: String,
    },
    /// A test file that cargo did not answer with an executable for.
    #[error("cargo built no executable for {name}")]
    NotBuilt {
        /// The test file or program.
        name: String,
    },
    /// There is no such suite.
    #[error("no suite is named like {filter:?}; `lab list` shows what there is")]
    NoSuite {
        /// What was asked for.
        filter: String,
    },
    /// There is nothing to run.
    #[error("the set has no suites yet")]
    EmptySet,
    /// The guest ended without the job.
    #[error("guest {guest} died before its job ended\n{console}")]
    Died {
        /// Which one of the job.
        guest: u8,
        /// The last lines of its console.
        console: String,
    },
    /// The job did not end in time.
    #[error("the limit of {} s was reached\n{console}", limit.as_secs())]
    Limit {
        /// The suite's limit.
        limit: Duration,
        /// The last lines of the consoles.
        console: String,
    },
    /// Somebody is using what was to be removed.
    #[error("a lab is running with files in {0}; nothing was removed")]
    InUse(PathBuf),
    /// Somebody asked it to stop.
    #[error("interrupted")]
    Interrupted,
    /// A file or process of the host.
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
        self.map_err(|source| LabError::Io { what: what(), source })
    }
}
