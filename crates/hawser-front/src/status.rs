//! The one map from error kinds to HTTP statuses and gRPC codes.
//!
//! `docs/status-codes.md` explains each line to users and operators; a test keeps the two together.

use hawser_core::{Error, Kind, Outcome};

/// How an error is told to a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The HTTP status.
    pub http: u16,
    /// The number of the gRPC code, from the gRPC specification.
    pub grpc: i32,
}

/// gRPC `UNAVAILABLE`.
const GRPC_UNAVAILABLE: i32 = 14;

/// The status of an error. An unknown outcome is always told as one that may be repeated, whatever
/// its kind: a caller that takes a final answer for it would forget work that is still going on.
pub fn of(error: &Error) -> Status {
    from_parts(error.kind(), error.outcome())
}

/// [`of`] for an error that is data already.
pub fn from_parts(kind: Kind, outcome: Outcome) -> Status {
    let status = by_kind(kind);
    let retryable = match kind {
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
    match outcome {
        Outcome::Unknown if !retryable => Status { http: 503, grpc: GRPC_UNAVAILABLE },
        Outcome::Unknown => Status { http: 503, ..status },
        Outcome::Nothing | Outcome::RolledBack => status,
    }
}

fn by_kind(kind: Kind) -> Status {
    let (http, grpc) = match kind {
        Kind::Invalid => (400, 3),
        Kind::NotFound => (404, 5),
        Kind::Exists => (409, 6),
        Kind::Busy => (409, 10),
        Kind::Precondition => (412, 9),
        Kind::OutOfRange => (400, 11),
        Kind::NoSpace => (507, 8),
        Kind::Unauthenticated => (401, 16),
        Kind::Denied => (403, 7),
        Kind::Unsupported => (501, 12),
        Kind::Unavailable => (503, GRPC_UNAVAILABLE),
        Kind::Timeout => (504, 4),
        Kind::Internal => (500, 13),
    };
    Status { http, grpc }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = include_str!("../../../docs/status-codes.md");

    /// The names of the codes, from the gRPC specification; the document uses them.
    const GRPC_NAMES: [&str; 17] = [
        "OK",
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    ];

    #[test]
    fn the_document_has_every_kind_with_its_codes_and_advice() {
        for kind in Kind::ALL {
            let status = by_kind(kind);
            let row = format!(
                "| [`{0}`](#{0}) | {1} | {2} |",
                kind.as_str(),
                status.http,
                GRPC_NAMES[status.grpc as usize]
            );
            assert!(DOCUMENT.contains(&row), "no table row {row}");
            let heading = format!("\n## {}\n", kind.as_str());
            let (_, section) = DOCUMENT.split_once(&heading).expect("a section for every kind");
            let section = section.split("\n## ").next().unwrap();
            for part in ["**Meaning.**", "**User.**", "**Operator.**"] {
                assert!(section.contains(part), "{kind:?} lacks {part}");
            }
        }
    }

    #[test]
    fn an_unknown_outcome_is_never_final() {
        for kind in Kind::ALL {
            let status = from_parts(kind, Outcome::Unknown);
            assert_eq!(status.http, 503, "{kind:?}");
            assert!([4, 10, 14].contains(&status.grpc), "{kind:?}");
        }
    }

    #[test]
    fn a_kind_that_may_be_repeated_keeps_its_own_grpc_code() {
        assert_eq!(from_parts(Kind::Busy, Outcome::Unknown).grpc, 10);
        assert_eq!(from_parts(Kind::Timeout, Outcome::Unknown).grpc, 4);
        assert_eq!(from_parts(Kind::Internal, Outcome::Unknown).grpc, 14);
    }
}
