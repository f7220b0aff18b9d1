//! The one thread that writes: it commits whatever waits, together, with one flush to the disk.

use std::sync::Arc;

use bytes::Bytes;
use hawser_core::Outcome;
use hawser_core::port::store::{Cas, Key, Revision};
use redb::{Database, Durability, ReadableTable};
use tokio::sync::{mpsc, oneshot};
use tracing::error;

use super::changes::{Bell, Changes, Committed};
use super::error::EmbeddedError;
use super::file::{DATA, META, REVISION, read_meta};
use super::live::{Failure, Live, is_broken};

/// How many changes wait in the queue before callers wait to get into it.
pub(super) const QUEUE: usize = 1024;

/// The most changes of one commit; larger ones gain nothing more from sharing the flush and make
/// the first of them wait for the last.
const BATCH: usize = 512;

/// The most bytes of one commit, so that large values do not pile up in redb's write buffer.
const BATCH_BYTES: usize = 4 << 20;

/// What is to happen to a key.
pub(super) enum Action {
    /// Write a key that must not exist.
    Create(Bytes),
    /// Write a key that must have this revision.
    Put(Bytes, Revision),
    /// Remove a key that must have this revision.
    Delete(Revision),
}

/// One change in the queue, and who waits for its answer. A caller that went away does not stop
/// it: the change is made, and nobody is told.
pub(super) struct Change {
    pub(super) key: Key,
    pub(super) action: Action,
    pub(super) answer: oneshot::Sender<Result<Cas, EmbeddedError>>,
}

/// The state of the writing thread.
pub(super) struct Writer {
    pub(super) live: Arc<Live>,
    pub(super) changes: Arc<Changes>,
    pub(super) bell: Bell,
    pub(super) latest: Revision,
}

/// What a batch did, before anyone is told.
struct Applied {
    answers: Vec<Cas>,
    committed: Vec<Committed>,
}

impl Writer {
    /// Works until every sender of the queue is gone and the queue is empty, then closes the file.
    pub(super) fn run(mut self, mut queue: mpsc::Receiver<Change>) {
        while let Some(first) = queue.blocking_recv() {
            let mut bytes = first.action.size();
            let mut batch = vec![first];
            while batch.len() < BATCH && bytes < BATCH_BYTES {
                let Ok(next) = queue.try_recv() else { break };
                bytes += next.action.size();
                batch.push(next);
            }
            self.write(batch);
        }
        self.live.close();
    }

    fn write(&mut self, batch: Vec<Change>) {
        let mut result = self.apply(&batch);
        if let Err(Failure::Database(redb::Error::PreviousIo, generation)) = &result {
            // A read met the disk error that stopped the database; this batch was not begun.
            result = match self.live.reopen(*generation) {
                Ok(()) => self.apply(&batch),
                Err(error) => Err(Failure::Absent(error)),
            };
        }
        match result {
            Ok(applied) => self.announce(batch, applied),
            Err(failure) => self.refuse(batch, failure),
        }
    }

    fn apply(&self, batch: &[Change]) -> Result<Applied, Failure> {
        self.live.with(|database| apply(database, batch, self.latest))
    }

    fn announce(&mut self, batch: Vec<Change>, applied: Applied) {
        if let Some(last) = applied.committed.last() {
            self.latest = last.revision;
            // Before the answers: a watch from an answered revision finds the ring that far.
            self.changes.add(applied.committed);
            self.bell.send_replace(());
        }
        for (change, cas) in batch.into_iter().zip(applied.answers) {
            let _ = change.answer.send(Ok(cas));
        }
    }

    fn refuse(&mut self, batch: Vec<Change>, failure: Failure) {
        let path = self.live.file().path().to_path_buf();
        match failure {
            Failure::Absent(error) => {
                let source = Arc::new(error);
                answer_error(batch, || EmbeddedError::Reopen { source: Arc::clone(&source) });
            }
            Failure::Database(error, generation) => {
                let source = Arc::new(error);
                let outcome = self.settle(&source, generation);
                answer_error(batch, || EmbeddedError::Write {
                    path: path.clone(),
                    outcome,
                    source: Arc::clone(&source),
                });
            }
        }
    }

    /// Finds out whether a commit that failed happened all the same.
    fn settle(&mut self, error: &redb::Error, generation: u64) -> Outcome {
        error!(store.path = %self.live.file().path().display(), %error, "a commit failed");
        if is_broken(error) && self.live.reopen(generation).is_err() {
            return Outcome::Unknown;
        }
        match self.live.with(|database| read_meta(database, REVISION)) {
            Ok(found) if found == self.latest.0 => Outcome::Nothing,
            Ok(found) => {
                // It is in the file, but the disk would not confirm it: nobody may rely on it.
                self.latest = Revision(found);
                self.changes.skip_to(self.latest);
                self.bell.send_replace(());
                Outcome::Unknown
            }
            Err(_) => Outcome::Unknown,
        }
    }
}

fn answer_error(batch: Vec<Change>, error: impl Fn() -> EmbeddedError) {
    for change in batch {
        let _ = change.answer.send(Err(error()));
    }
}

impl Action {
    fn size(&self) -> usize {
        match self {
            Self::Create(value) | Self::Put(value, _) => value.len(),
            Self::Delete(_) => 0,
        }
    }
}

/// Makes the changes of a batch one after the other in one transaction, each seeing those before.
fn apply(database: &Database, batch: &[Change], latest: Revision) -> Result<Applied, redb::Error> {
    let mut transaction = database.begin_write()?;
    transaction.set_durability(Durability::Immediate)?;
    transaction.set_quick_repair(true);
    let mut applied = Applied { answers: Vec::with_capacity(batch.len()), committed: Vec::new() };
    {
        let mut data = transaction.open_table(DATA)?;
        let mut next = latest.0;
        for change in batch {
            let key = change.key.as_str();
            let found = data.get(key)?.map(|found| Revision(found.value().0));
            let (expected, value) = match &change.action {
                Action::Create(value) => (None, Some(value)),
                Action::Put(value, expected) => (Some(*expected), Some(value)),
                Action::Delete(expected) => (Some(*expected), None),
            };
            if found != expected {
                applied.answers.push(Cas::Conflict);
                continue;
            }
            next += 1;
            match value {
                Some(value) => drop(data.insert(key, (next, value.as_ref()))?),
                None => drop(data.remove(key)?),
            }
            let revision = Revision(next);
            applied.answers.push(Cas::Done(revision));
            let (key, value) = (change.key.clone(), value.cloned());
            applied.committed.push(Committed { key, revision, value });
        }
    }
    if let Some(last) = applied.committed.last() {
        transaction.open_table(META)?.insert(REVISION, last.revision.0)?;
        transaction.commit()?;
    } else {
        // Nothing but conflicts: there is nothing to flush.
        transaction.abort()?;
    }
    Ok(applied)
}
