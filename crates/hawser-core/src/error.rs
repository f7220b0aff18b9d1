//! The one error that crosses a port: a [`Kind`], an [`Outcome`] and a chain of causes.
//!
//! Modules keep enums of their own and say with [`Classify`] what each variant means to a caller.
//! A new plug-in therefore adds no variant here. `Display` never repeats its source; whoever prints
//! an error at the edge walks the chain once, with [`Error::chain`].

use std::error::Error as StdError;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::reason::Reason;

/// What every fallible call of a port answers.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a caller can do about an error. `docs/status-codes.md` has a paragraph for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The request can never work as it is.
    Invalid,
    /// The named thing does not exist.
    NotFound,
    /// The name is taken by something that differs from the request.
    Exists,
    /// Another operation holds the thing; repeat later.
    Busy,
    /// The thing is in a state that forbids this; change the state first.
    Precondition,
    /// A size or position is outside what the thing can take.
    OutOfRange,
    /// Storage or another limit is used up.
    NoSpace,
    /// The caller did not say who it is.
    Unauthenticated,
    /// The caller, or this process, may not do this.
    Denied,
    /// This back end, host or build cannot do this.
    Unsupported,
    /// Something needed is not reachable now; repeat later.
    Unavailable,
    /// A deadline passed.
    Timeout,
    /// A fault of Hawser itself or of its state.
    Internal,
}

impl Kind {
    /// Every kind, for tables and tests.
    pub const ALL: [Self; 13] = [
        Self::Invalid,
        Self::NotFound,
        Self::Exists,
        Self::Busy,
        Self::Precondition,
        Self::OutOfRange,
        Self::NoSpace,
        Self::Unauthenticated,
        Self::Denied,
        Self::Unsupported,
        Self::Unavailable,
        Self::Timeout,
        Self::Internal,
    ];

    /// The stable word for this kind, as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::NotFound => "not_found",
            Self::Exists => "exists",
            Self::Busy => "busy",
            Self::Precondition => "precondition",
            Self::OutOfRange => "out_of_range",
            Self::NoSpace => "no_space",
            Self::Unauthenticated => "unauthenticated",
            Self::Denied => "denied",
            Self::Unsupported => "unsupported",
            Self::Unavailable => "unavailable",
            Self::Timeout => "timeout",
            Self::Internal => "internal",
        }
    }
}

/// What is known about the world after a failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Nothing was changed.
    #[default]
    Nothing,
    /// Something was changed and taken back.
    RolledBack,
    /// It may or may not have happened. Never answered as final: the operation stays in the journal.
    Unknown,
}

/// Says what an error of a module means to callers.
///
/// Written as one exhaustive `match`, so that a new variant cannot be forgotten.
pub trait Classify: StdError + Send + Sync + 'static {
    /// What a caller can do about it.
    fn kind(&self) -> Kind;

    /// What is known about the world; most failures change nothing.
    fn outcome(&self) -> Outcome {
        Outcome::Nothing
    }

    /// The word of the host library for it; most errors have none.
    fn reason(&self) -> Option<Reason> {
        None
    }
}

/// An error that crosses a port.
pub struct Error(Box<Inner>);

struct Inner {
    kind: Kind,
    outcome: Outcome,
    reason: Option<Reason>,
    source: Box<dyn StdError + Send + Sync>,
}

/// One line of context above a cause.
#[derive(Debug, thiserror::Error)]
#[error("{attempt}")]
struct Context {
    attempt: String,
    source: Error,
}

/// A plain statement without a deeper cause.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Statement(String);

/// An error that arrived from another process: its lines, outermost first.
#[derive(Debug, thiserror::Error)]
#[error("{line}")]
struct Remote {
    line: String,
    source: Option<Box<Remote>>,
}

impl Error {
    /// An error without a deeper cause; `message` says what was attempted, on what, and why not.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            outcome: Outcome::Nothing,
            reason: None,
            source: Box::new(Statement(message.into())),
        }))
    }

    /// An error of a module together with its meaning.
    pub fn from_source(kind: Kind, source: impl StdError + Send + Sync + 'static) -> Self {
        let source = Box::new(source);
        Self(Box::new(Inner { kind, outcome: Outcome::Nothing, reason: None, source }))
    }

    /// Rebuilds an error that another process reported; `lines` is its [`Error::chain`].
    pub fn from_remote(kind: Kind, outcome: Outcome, lines: Vec<String>) -> Self {
        let chain = lines
            .into_iter()
            .rev()
            .fold(None, |source, line| Some(Box::new(Remote { line, source })));
        let source =
            chain.unwrap_or_else(|| Box::new(Remote { line: kind.as_str().into(), source: None }));
        Self(Box::new(Inner { kind, outcome, reason: None, source }))
    }

    /// The same error below one more line that says what was attempted and on what.
    #[must_use]
    pub fn context(self, attempt: impl Into<String>) -> Self {
        let (kind, outcome, reason) = (self.kind(), self.outcome(), self.reason());
        let source = Box::new(Context { attempt: attempt.into(), source: self });
        Self(Box::new(Inner { kind, outcome, reason, source }))
    }

    /// The same error with another statement about the world.
    #[must_use]
    pub fn with_outcome(mut self, outcome: Outcome) -> Self {
        self.0.outcome = outcome;
        self
    }

    /// The same error with a word of the host library.
    #[must_use]
    pub fn with_reason(mut self, reason: Option<Reason>) -> Self {
        self.0.reason = reason;
        self
    }

    /// The word of the host library for it, where it has one.
    pub fn reason(&self) -> Option<Reason> {
        self.0.reason
    }

    /// What a caller can do about it.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// What is known about the world after it.
    pub fn outcome(&self) -> Outcome {
        self.0.outcome
    }

    /// True when nobody can say whether it happened.
    pub fn is_unknown(&self) -> bool {
        self.0.outcome == Outcome::Unknown
    }

    /// The kernel's number for its reason, where a cause has one: the outermost is told. An error
    /// that came from another process has none.
    pub fn errno(&self) -> Option<i32> {
        let first: &(dyn StdError + 'static) = &*self.0.source;
        std::iter::successors(Some(first), |&error| error.source())
            .find_map(|error| error.downcast_ref::<std::io::Error>()?.raw_os_error())
    }

    /// Every line of the error, outermost first, each said once.
    pub fn chain(&self) -> Vec<String> {
        let mut lines = vec![self.to_string()];
        let mut next = self.source();
        while let Some(error) = next {
            let line = error.to_string();
            if lines.last() != Some(&line) {
                lines.push(line);
            }
            next = error.source();
        }
        lines
    }

    /// The whole chain as one sentence, `: ` between the lines.
    pub fn sentence(&self) -> String {
        self.chain().join(": ")
    }
}

impl<E: Classify> From<E> for Error {
    fn from(source: E) -> Self {
        let (kind, outcome, reason) = (source.kind(), source.outcome(), source.reason());
        Self(Box::new(Inner { kind, outcome, reason, source: Box::new(source) }))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.source.fmt(f)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}/{:?}: {}", self.0.kind, self.0.outcome, self.sentence())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.source()
    }
}

/// Adds a line of context to a failed [`Result`].
pub trait ResultExt<T> {
    /// See [`Error::context`]; the closure runs only on failure.
    fn context(self, attempt: impl FnOnce() -> String) -> Result<T>;
}

impl<T> ResultExt<T> for Result<T> {
    fn context(self, attempt: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| error.context(attempt()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("reading the disk")]
    struct Leaf(#[source] std::io::Error);

    impl Classify for Leaf {
        fn kind(&self) -> Kind {
            Kind::Unavailable
        }
        fn outcome(&self) -> Outcome {
            Outcome::Unknown
        }
    }

    #[test]
    fn the_chain_says_each_line_once_and_keeps_kind_and_outcome() {
        let error = Error::from(Leaf(std::io::Error::other("cable pulled"))).context("mounting v1");

        assert_eq!(error.chain(), ["mounting v1", "reading the disk", "cable pulled"]);
        assert_eq!(error.kind(), Kind::Unavailable);
        assert!(error.is_unknown());
    }

    #[test]
    fn an_error_survives_the_way_through_another_process() {
        let error = Error::from(Leaf(std::io::Error::other("cable pulled"))).context("mounting v1");

        let back = Error::from_remote(error.kind(), error.outcome(), error.chain());

        assert_eq!(back.chain(), error.chain());
        assert_eq!(back.kind(), error.kind());
        assert!(back.is_unknown());
    }

    #[test]
    fn the_number_of_the_kernel_is_found_below_any_context() {
        let refused = || crate::port::kernel::KernelError::refused("mounting a:/b", 13);

        assert_eq!(Error::from(refused()).errno(), Some(13));
        assert_eq!(Error::from(refused()).context("attaching v1").context("v1").errno(), Some(13));
        let source = std::io::Error::from_raw_os_error(116);
        assert_eq!(Error::from_source(Kind::Unavailable, source).errno(), Some(116));
        assert_eq!(Error::from(Leaf(std::io::Error::other("cable pulled"))).errno(), None);
        assert_eq!(Error::new(Kind::Busy, "open").errno(), None);
    }

    #[test]
    fn every_kind_has_its_own_word() {
        let words: std::collections::BTreeSet<_> = Kind::ALL.iter().map(|k| k.as_str()).collect();
        assert_eq!(words.len(), Kind::ALL.len());
    }
}
