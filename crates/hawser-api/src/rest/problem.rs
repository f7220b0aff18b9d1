//! A refusal: `application/problem+json` of RFC 9457.

use hawser_core::{Error, Kind, Outcome};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::mirror::mirror;

/// Where each kind is explained; the kind follows as the fragment.
const TYPE_BASE: &str = "https://github.com/hawser-storage/hawser/blob/main/docs/status-codes.md#";

mirror!(
    /// What a caller can do about an error.
    #[schema(as = Kind)]
    KindView = Kind {
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
        /// The caller, or the server, may not do this.
        Denied,
        /// This back end, host or build cannot do this.
        Unsupported,
        /// Something needed is not reachable now; repeat later.
        Unavailable,
        /// A deadline passed.
        Timeout,
        /// A fault of Hawser itself; the log has it under the trace id.
        Internal,
    }
);

mirror!(
    /// What is known about the world after a failure.
    #[schema(as = Outcome)]
    OutcomeView = Outcome {
        /// Nothing was changed.
        Nothing,
        /// Something was changed and taken back.
        RolledBack,
        /// It may or may not have happened; the operation stays until it is known.
        Unknown,
    }
);

/// Why a request was refused or failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// A link that explains this kind of problem.
    #[serde(rename = "type")]
    pub kind_link: String,
    /// The kind in a few words.
    pub title: String,
    /// The HTTP status, repeated.
    pub status: u16,
    /// The whole sentence: what was attempted, on what, and why not.
    pub detail: String,
    /// What a caller can do about it.
    pub kind: KindView,
    /// What is known about the world.
    pub outcome: OutcomeView,
    /// The same as `detail`, one line per layer, outermost first.
    pub messages: Vec<String>,
    /// Finds this request in the server's log.
    pub trace_id: String,
    /// True when the same request may work later.
    pub retryable: bool,
}

impl Problem {
    /// A problem with these lines; the caller has decided what may be told.
    pub fn new(
        kind: Kind,
        outcome: Outcome,
        messages: Vec<String>,
        status: u16,
        trace_id: &str,
    ) -> Self {
        Self {
            kind_link: format!("{TYPE_BASE}{}", kind.as_str()),
            title: title(kind).to_owned(),
            status,
            detail: messages.join(": "),
            kind: kind.into(),
            outcome: outcome.into(),
            messages,
            trace_id: trace_id.to_owned(),
            retryable: is_retryable(kind, outcome),
        }
    }
}

impl From<Problem> for Error {
    fn from(problem: Problem) -> Self {
        let lines =
            if problem.messages.is_empty() { vec![problem.detail] } else { problem.messages };
        Self::from_remote(problem.kind.into(), problem.outcome.into(), lines)
    }
}

/// True when the same request may work later without anything being changed by the caller.
pub fn is_retryable(kind: Kind, outcome: Outcome) -> bool {
    let by_kind = match kind {
        Kind::Busy | Kind::Unavailable | Kind::Timeout => true,
        Kind::Invalid
        | Kind::NotFound
        | Kind::Exists
        | Kind::Precondition
        | Kind::OutOfRange
        | Kind::NoSpace
        | Kind::Unauthenticated
        | Kind::Denied
        | Kind::Unsupported
        | Kind::Internal => false,
    };
    by_kind || outcome == Outcome::Unknown
}

fn title(kind: Kind) -> &'static str {
    match kind {
        Kind::Invalid => "The request cannot work as it is",
        Kind::NotFound => "There is no such thing",
        Kind::Exists => "The name is taken by something different",
        Kind::Busy => "Another operation is at work",
        Kind::Precondition => "Its state forbids this",
        Kind::OutOfRange => "The value is out of range",
        Kind::NoSpace => "There is no room",
        Kind::Unauthenticated => "Say who you are",
        Kind::Denied => "Not allowed",
        Kind::Unsupported => "This cannot be done here",
        Kind::Unavailable => "Something needed is not reachable",
        Kind::Timeout => "It took too long",
        Kind::Internal => "A fault inside Hawser",
    }
}
