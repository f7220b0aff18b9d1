//! The frame of every call: one span, one log line and one count; a request is never written out.

use std::time::{Duration, Instant};

use hawser_core::{Error, Kind, Result};
use tonic::{Code, Request, Response, Status};
use tracing::{Instrument, Span, debug, error, field, info, info_span, warn};
use uuid::Uuid;

use super::answer::status;
use super::deadline::Deadline;
use super::driver::Driver;
use super::error::cut;
use super::wire::{About, Subject};

/// Whether a call changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    Reads,
    Changes,
}

impl Driver {
    /// Answers a call that changes nothing; it ends with its caller.
    pub(super) async fn read<Q: About, A, F>(
        &self,
        method: &'static str,
        request: Request<Q>,
        work: impl FnOnce(Q, Deadline) -> F,
    ) -> Result<Response<A>, Status>
    where
        F: Future<Output = Result<A>>,
    {
        let deadline = Deadline::of(request.metadata());
        let request = request.into_inner();
        let (id, span) = self.span(method, request.about());
        let work = work(request, deadline);
        self.observe(method, Effect::Reads, id, span, work).await
    }

    /// Answers a call that changes something: its work goes on when the caller leaves.
    pub(super) async fn change<Q: About, A, F>(
        &self,
        method: &'static str,
        request: Request<Q>,
        work: impl FnOnce(Q, Deadline) -> F,
    ) -> Result<Response<A>, Status>
    where
        A: Send + 'static,
        F: Future<Output = Result<A>> + Send + 'static,
    {
        let deadline = Deadline::of(request.metadata());
        let request = request.into_inner();
        let (id, span) = self.span(method, request.about());
        let work = self.tasks.run(deadline.answer, work(request, deadline));
        self.observe(method, Effect::Changes, id, span, work).await
    }

    fn span(&self, method: &'static str, subject: Subject<'_>) -> (String, Span) {
        let id = Uuid::new_v4().simple().to_string();
        let span = info_span!(
            "csi.call",
            csi.driver = self.settings.driver.name(),
            csi.method = method,
            request.id = %id,
            volume.id = field::Empty,
            name = field::Empty,
        );
        match subject {
            Subject::Nothing => &span,
            Subject::Volume(volume) => span.record("volume.id", cut(volume)),
            Subject::Name(name) => span.record("name", cut(name)),
        };
        (id, span)
    }

    async fn observe<A>(
        &self,
        method: &'static str,
        effect: Effect,
        id: String,
        span: Span,
        work: impl Future<Output = Result<A>>,
    ) -> Result<Response<A>, Status> {
        let watch = Watch { span: &span, answered: false, begun: Instant::now() };
        let answer = work.instrument(span.clone()).await;
        let took = watch.stop();
        let _entered = span.enter();
        let (code, answer) = match answer {
            Ok(answer) => (Code::Ok, Ok(Response::new(answer))),
            Err(error) => {
                let status = status(&error, &id);
                log_failure(&error, status.code(), took);
                (status.code(), Err(status))
            }
        };
        self.parts.metrics.count(self.settings.driver, method, code, took);
        let seconds = took.as_secs_f64();
        match (code, effect) {
            (Code::Ok, Effect::Reads) => debug!(code = "OK", seconds, "answered"),
            (Code::Ok, Effect::Changes) => info!(code = "OK", seconds, "answered"),
            // Logged above, with its reason.
            (_, Effect::Reads | Effect::Changes) => {}
        }
        answer
    }
}

fn log_failure(failure: &Error, code: Code, took: Duration) {
    let (kind, reason) = (failure.kind().as_str(), failure.sentence());
    let (code, seconds) = (word(code), took.as_secs_f64());
    if failure.kind() == Kind::Internal {
        error!(code, seconds, kind, reason, "failed");
    } else if matches!(failure.kind(), Kind::Unavailable | Kind::Timeout) || failure.is_unknown() {
        warn!(code, seconds, kind, reason, "not done");
    } else {
        info!(code, seconds, kind, reason, "refused");
    }
}

/// The code as gRPC of Go writes it, so that numbers of sidecars and drivers stand side by side.
pub(super) fn word(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}

/// Says so when a call ends without an answer: its caller left.
struct Watch<'a> {
    span: &'a Span,
    answered: bool,
    begun: Instant,
}

impl Watch<'_> {
    fn stop(mut self) -> Duration {
        self.answered = true;
        self.begun.elapsed()
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if !self.answered {
            let seconds = self.begun.elapsed().as_secs_f64();
            self.span.in_scope(|| info!(seconds, "the caller left before the answer"));
        }
    }
}
