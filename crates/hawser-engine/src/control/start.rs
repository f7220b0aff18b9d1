//! How a change begins: decided and journaled in a task of the engine's own, then waited for.

use std::sync::Arc;
use std::time::Duration;

use hawser_core::change::Change;
use hawser_core::error::{Error, Kind, Outcome, Result};
use hawser_core::port::control::Reply;
use hawser_core::volume::VolumeRef;

use super::job::{Answer, Job};
use super::record::{VolumeRecord, Work};
use super::world::{Held, Subject, World};

/// What came of a request at once.
pub(crate) enum Begun {
    /// There was nothing to do.
    Answer(Change<Answer>),
    /// The work is recorded and runs.
    Job(Arc<Job>),
    /// The same work was asked for before, and runs: what it makes was not made for this request.
    Joined(Arc<Job>),
}

/// What a use case wants of a volume that no operation holds.
pub(crate) enum Decision {
    /// Nothing: it is so.
    Already(Answer),
    /// This work, with the record changed like this in the same write.
    Start(Work, Box<VolumeRecord>),
}

/// Runs `begin` as a task of the engine, so that a caller who goes away between the journal's
/// write and the start of the work takes nothing with it; then waits for the end.
pub(crate) async fn change(
    world: &Arc<World>,
    begin: impl Future<Output = Result<Begun>> + Send + 'static,
    wait: Duration,
) -> Result<Reply<Answer>> {
    if world.stop.is_cancelled() {
        return Err(Error::new(Kind::Unavailable, "the server is stopping; repeat later"));
    }
    let begun = world.tasks.spawn(begin).await.map_err(|error| {
        Error::from_source(Kind::Internal, error).with_outcome(Outcome::Unknown)
    })??;
    match begun {
        Begun::Answer(answer) => Ok(Reply::Done(answer)),
        Begun::Job(job) => match job.wait(wait).await {
            Some(result) => Ok(Reply::Done(Change::Made(result?))),
            None => Ok(Reply::Pending(job.view())),
        },
        Begun::Joined(job) => match job.wait(wait).await {
            // What goes was there when this was asked for, too.
            Some(Ok(Answer::Nothing)) => Ok(Reply::Done(Change::Made(Answer::Nothing))),
            Some(result) => Ok(Reply::Done(Change::Already(result?))),
            None => Ok(Reply::Pending(job.view())),
        },
    }
}

/// Begins work on an existing volume: joins the same request, refuses another, else decides.
pub(crate) async fn on_volume(
    world: Arc<World>,
    volume: VolumeRef,
    wanted: Work,
    decide: impl Fn(&VolumeRecord) -> Result<Decision>,
) -> Result<Begun> {
    loop {
        let (record, revision) = world.get_volume(&volume).await?;
        let subject = Subject::volume(&record.volume);
        match world.join_or_busy(&record, revision, &subject, &wanted).await? {
            Held::Free => {}
            Held::Joined(job) => return Ok(Begun::Joined(job)),
            Held::Stale => continue,
        }
        match decide(&record)? {
            Decision::Already(answer) => return Ok(Begun::Answer(Change::Already(answer))),
            Decision::Start(work, mut changed) => {
                let journal = world.journal(work);
                changed.journal = Some(journal.clone());
                let key = VolumeRecord::key_of(&changed.volume.id);
                let _starting = world.jobs.starting(&journal.id);
                let written = world.records.put(&key, &*changed, revision).await;
                let written = world.written::<VolumeRecord>(written, &key, &journal.id, &subject);
                let Some(revision) = written? else { continue };
                if let Some(job) = world.launch(*changed, revision, &journal, &subject, false) {
                    return Ok(Begun::Job(job));
                }
            }
        }
    }
}
