//! The driver: runs a journaled operation to its end, forward or back, however often that takes.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tracing::{Instrument, info, info_span, warn};

use hawser_core::Timestamp;
use hawser_core::error::{Error, Kind, Outcome, Result};
use hawser_core::event::EventKind;
use hawser_core::operation::{Failure, OperationKind};

use super::hold::{Hold, LEASE, Standing};
use super::job::{Answer, Job, Phase};
use super::record::{Journal, Record};
use super::world::World;

/// A record whose operations can be driven.
pub(crate) trait Driven: Record {
    /// Does the work. Every step finds out by itself whether it was done before, so that this can
    /// run again after a failure or a crash at any point. Ends with the journal cleared.
    fn forward(
        world: &Arc<World>,
        hold: &Hold<Self>,
        journal: &Journal,
        job: &Job,
    ) -> impl Future<Output = Result<Answer>> + Send;

    /// Takes the work back, or settles on what was reached where that is the rule. May run again,
    /// like `forward`. Ends with the journal cleared.
    fn back(
        world: &Arc<World>,
        hold: &Hold<Self>,
        journal: &Journal,
        job: &Job,
    ) -> impl Future<Output = Result<()>> + Send;

    /// The answer of an operation that turned out to have ended in an attempt whose last write was
    /// not confirmed.
    fn ended(record: &Self, journal: &Journal) -> Answer;
}

/// How one attempt went.
enum Attempt {
    Ended(Result<Answer>),
    /// Not known; try again.
    Later(Error),
}

/// Runs an operation until its outcome is known and recorded.
pub(crate) async fn drive<R: Driven>(
    world: Arc<World>,
    hold: Hold<R>,
    journal: Journal,
    job: Arc<Job>,
) {
    let span = info_span!(
        "operation",
        operation.id = %job.id,
        operation.kind = %job.kind,
        volume.id = %job.subject,
    );
    run(&world, &hold, &journal, &job).instrument(span).await;
}

async fn run<R: Driven>(world: &Arc<World>, hold: &Hold<R>, journal: &Journal, job: &Arc<Job>) {
    let mut reload = false;
    let mut failed: Option<Error> = None;
    for number in 0_u32.. {
        let attempt = AssertUnwindSafe(attempt(world, hold, journal, job, reload, &mut failed))
            .catch_unwind()
            .await
            .unwrap_or_else(|_| {
                let message = "the operation ran into a fault of Hawser itself; it is tried again";
                Attempt::Later(Error::new(Kind::Internal, message).with_outcome(Outcome::Unknown))
            });
        match attempt {
            Attempt::Ended(result) => return end(world, job, result),
            Attempt::Later(error) => {
                let pause = backoff(number);
                warn!(error = %error.sentence(), ?pause, "outcome unknown; trying again");
                job.set(Phase::Waiting(Failure::from(&error.with_outcome(Outcome::Unknown))));
                tokio::select! {
                    () = world.stop.cancelled() => return,
                    () = tokio::time::sleep(pause) => {}
                }
                job.set(Phase::Running);
                reload = true;
            }
        }
    }
}

async fn attempt<R: Driven>(
    world: &Arc<World>,
    hold: &Hold<R>,
    journal: &Journal,
    job: &Arc<Job>,
    reload: bool,
    failed: &mut Option<Error>,
) -> Attempt {
    if reload && let Some(known) = look_again(hold, journal, job, failed).await {
        return known;
    }
    if !hold.is_undoing().await && failed.is_none() {
        match renewing(hold, forward(world, hold, journal, job)).await {
            Ok(answer) => return Attempt::Ended(Ok(answer)),
            Err(error) if is_open(&error, job) => return Attempt::Later(error),
            Err(error) => *failed = Some(error),
        }
        // Whoever cancels drops the work at some await, with a write perhaps made and not answered.
        if job.cancel.is_cancelled()
            && let Some(known) = look_again(hold, journal, job, failed).await
        {
            return known;
        }
    }
    match renewing(hold, R::back(world, hold, journal, job)).await {
        Ok(()) => Attempt::Ended(Err(failed.take().unwrap_or_else(interrupted))),
        Err(error) => Attempt::Later(error.context(format!(
                "taking back {}{}",
                job.kind,
                failed
                    .as_ref()
                    .map(|e| format!(", which failed ({})", e.sentence()))
                    .unwrap_or_default()
            ))),
    }
}

/// Reads the record again; answers when that settles the attempt.
async fn look_again<R: Driven>(
    hold: &Hold<R>,
    journal: &Journal,
    job: &Job,
    failed: &mut Option<Error>,
) -> Option<Attempt> {
    let undoing = hold.is_undoing().await;
    let standing = match hold.reload().await {
        Ok(standing) => standing,
        Err(error) => return Some(Attempt::Later(error)),
    };
    match (standing, failed.take()) {
        (Standing::Held, error) => {
            *failed = error;
            None
        }
        (Standing::TakenOver, _) => Some(Attempt::Ended(Err(taken_over(job)))),
        // What can be cancelled is marked before it is taken back: it had ended by then.
        (Standing::Ended, Some(_)) if job.cancel.is_cancelled() && !undoing => {
            Some(Attempt::Ended(Ok(R::ended(&hold.record().await, journal))))
        }
        (Standing::Ended, Some(error)) => Some(Attempt::Ended(Err(error))),
        (Standing::Ended, None) if undoing => Some(Attempt::Ended(Err(interrupted()))),
        (Standing::Ended, None) => {
            Some(Attempt::Ended(Ok(R::ended(&hold.record().await, journal))))
        }
    }
}

/// The work, unless somebody cancels it first.
async fn forward<R: Driven>(
    world: &Arc<World>,
    hold: &Hold<R>,
    journal: &Journal,
    job: &Job,
) -> Result<Answer> {
    tokio::select! {
        result = R::forward(world, hold, journal, job) => result,
        () = job.cancel.cancelled() => {
            Err(Error::new(Kind::Precondition, format!("{} was cancelled", job.kind)))
        }
    }
}

/// True when the failure does not settle the operation.
fn is_open(error: &Error, job: &Job) -> bool {
    // Whoever asked for a resumed operation is gone; what is merely unreachable (a node that has
    // not dialled in yet) is no reason to take back what may be complete.
    error.is_unknown()
        || (job.resumed && matches!(error.kind(), Kind::Unavailable | Kind::Timeout))
        || (job.resumed && error.kind() == Kind::Busy && !is_given_up(job.kind))
}

/// True when somebody who uses the volume settles it: a folder with open files stays mounted, also
/// when it was a server of an earlier life that was asked to unmount it.
fn is_given_up(kind: OperationKind) -> bool {
    matches!(kind, OperationKind::UnmountVolume | OperationKind::DetachVolume)
}

/// Runs work while keeping the lease.
async fn renewing<R: Record, T>(
    hold: &Hold<R>,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    let renewals = async {
        loop {
            tokio::time::sleep(LEASE / 3).await;
            if let Err(error) = hold.renew(Timestamp::now()).await {
                warn!(error = %error.sentence(), "the lease could not be renewed");
            }
        }
    };
    tokio::select! {
        result = work => result,
        () = renewals => unreachable!("renewals never end"),
    }
}

fn interrupted() -> Error {
    Error::new(Kind::Unavailable, "the server stopped during the operation, which was taken back")
        .with_outcome(Outcome::RolledBack)
}

fn taken_over(job: &Job) -> Error {
    let message = format!(
        "another server is at work on {}, or was, and operation {} gave way to it; repeat the request",
        job.subject_name, job.id
    );
    Error::new(Kind::Unavailable, message).with_outcome(Outcome::Unknown)
}

/// 1, 2, 4 … 60 seconds.
pub(crate) fn backoff(number: u32) -> Duration {
    Duration::from_secs(1 << number.min(6)).min(Duration::from_secs(60))
}

/// Tells everybody who waits, and remembers it.
pub(crate) fn end(world: &Arc<World>, job: &Arc<Job>, result: Result<Answer>) {
    let outcome = match &result {
        Ok(_) => {
            info!("done");
            "succeeded".to_owned()
        }
        Err(error) => {
            info!(error = %error.sentence(), "failed");
            error.sentence()
        }
    };
    let phase = Phase::Done(result.map_err(|error| Failure::from(&error)), Timestamp::now());
    job.set(phase);
    let (operation, forgotten) = world.jobs.retire(job);
    world.keep_history(operation, forgotten);
    world.events.tell(
        EventKind::OperationFinished,
        job.id.as_str(),
        format!("{} of {}: {outcome}", job.kind, job.subject_name),
    );
}
