//! Errors as gRPC statuses.
//!
//! The code comes from [`crate::status`]; details are never sent. A call that the driver serves is
//! never answered as unimplemented, which would tell the caller that the driver has no such call:
//! what a class or host cannot do is a request that cannot work.

use hawser_core::operation::{Operation, OperationState};
use hawser_core::port::control::Reply;
use hawser_core::{Change, Error, Kind, Result};
use tonic::{Code, Status};

use super::error::CsiError;

/// Messages become events in Kubernetes, which are cut at 1024 bytes.
const LONGEST: usize = 1000;

/// The status of an error. A fault of our own says only where to look.
pub(super) fn status(error: &Error, request: &str) -> Status {
    let code = Code::from_i32(crate::status::of(error).grpc);
    if error.kind() == Kind::Internal {
        let message = format!("a fault of Hawser itself: see its log for the request {request}");
        return Status::new(code, message);
    }
    let mut message = error.sentence();
    if message.len() > LONGEST {
        let end = (0..=LONGEST).rev().find(|end| message.is_char_boundary(*end)).unwrap_or(0);
        message.truncate(end);
        message.push('…');
    }
    Status::new(code, message)
}

/// True when a caller takes the error for the end of the matter: what it did must be undone.
pub(super) fn is_final(error: &Error) -> bool {
    match Code::from_i32(crate::status::of(error).grpc) {
        Code::Cancelled
        | Code::DeadlineExceeded
        | Code::ResourceExhausted
        | Code::Aborted
        | Code::Unavailable => false,
        Code::Ok
        | Code::Unknown
        | Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::Internal
        | Code::DataLoss
        | Code::Unauthenticated => true,
    }
}

/// What a class or host cannot do, as a request that cannot work.
pub(super) fn supported(error: Error) -> Error {
    if error.kind() != Kind::Unsupported {
        return error;
    }
    Error::from_remote(Kind::Invalid, error.outcome(), error.chain()).with_reason(error.reason())
}

/// What a change came to; one that goes on is `Kind::Busy`, with its progress in words.
pub(super) fn done<T>(reply: Reply<T>) -> Result<Change<T>> {
    match reply {
        Reply::Done(change) => Ok(change),
        Reply::Pending(operation) => Err(CsiError::Pending { what: words(&operation) }.into()),
    }
}

fn words(operation: &Operation) -> String {
    let step = match operation.progress.step.as_str() {
        "" => "at work",
        step => step,
    };
    let percent = match operation.progress.total {
        0 => String::new(),
        total => {
            let part = u128::from(operation.progress.done.min(total)) * 100 / u128::from(total);
            format!(", {part} %")
        }
    };
    match operation.state {
        OperationState::Waiting => format!(
            "{} of {}: the outcome is not known yet, it is being found out",
            operation.kind, operation.subject_name
        ),
        OperationState::Running | OperationState::Succeeded | OperationState::Failed => {
            format!("{} of {}: still {step}{percent}", operation.kind, operation.subject_name)
        }
    }
}

#[cfg(test)]
mod tests {
    use hawser_core::id::OperationId;
    use hawser_core::operation::{OperationKind, ProgressReport};
    use hawser_core::{Outcome, Timestamp};

    use super::*;

    #[test]
    fn an_unknown_outcome_is_never_final_and_a_fault_says_nothing_of_itself() {
        for kind in Kind::ALL {
            let error = Error::new(kind, "the pool's own words").with_outcome(Outcome::Unknown);

            let status = status(&error, "r-1");

            assert!(!is_final(&error), "{kind:?}");
            assert!(status.details().is_empty());
            assert_eq!(
                status.message().contains("the pool's own words"),
                kind != Kind::Internal,
                "{status}"
            );
        }
        let fault = status(&Error::new(Kind::Internal, "x"), "r-1");
        assert!(fault.message().contains("r-1") && fault.code() == Code::Internal);
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        let status = status(&Error::new(Kind::Busy, "ü".repeat(4000)), "r");

        assert!(status.message().len() < LONGEST + 8 && status.message().ends_with('…'));
    }

    #[test]
    fn what_cannot_be_done_is_no_missing_call() {
        let error = supported(Error::new(Kind::Unsupported, "no clones").context("creating v"));

        assert_eq!(
            (error.kind(), error.sentence().as_str()),
            (Kind::Invalid, "creating v: no clones")
        );
        assert_eq!(supported(Error::new(Kind::Busy, "b")).kind(), Kind::Busy);
    }

    #[test]
    fn a_pending_change_says_how_far_it_is() {
        let operation = Operation {
            id: OperationId::generate(),
            kind: OperationKind::CreateVolume,
            subject: "vol".into(),
            subject_name: "csi:pvc-1".into(),
            state: OperationState::Running,
            progress: ProgressReport { step: "copying".into(), done: 2, total: 5 },
            started: Timestamp::now(),
            finished: None,
            error: None,
        };

        let error = done::<()>(Reply::Pending(operation)).unwrap_err();

        assert_eq!(error.kind(), Kind::Busy);
        assert!(error.to_string().contains("csi:pvc-1: still copying, 40 %"), "{error}");
    }
}
