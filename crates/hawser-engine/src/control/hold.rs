//! [`Hold`]: the exclusive right of one operation to change one record.

use std::time::Duration;

use tokio::sync::Mutex;

use hawser_core::Timestamp;
use hawser_core::error::Result;
use hawser_core::id::OperationId;
use hawser_core::port::store::Revision;

use super::record::Record;
use super::records::{RecordError, Records};

/// For how long nobody else may take over an operation whose holder has fallen silent. Long enough
/// for a paused machine, short enough that a dead server's work is not stuck for minutes.
pub(crate) const LEASE: Duration = Duration::from_secs(60);

/// The exclusive right of one operation to change one record.
///
/// The journal in the record is the right; this is the handle to it. Every save is a compare-and-set,
/// so a right that was lost (a lease that ran out) is noticed before anything is overwritten.
pub(crate) struct Hold<R> {
    records: Records,
    operation: OperationId,
    state: Mutex<(R, Revision)>,
}

impl<R: Record> Hold<R> {
    pub(crate) fn new(
        records: Records,
        operation: OperationId,
        record: R,
        revision: Revision,
    ) -> Self {
        Self { records, operation, state: Mutex::new((record, revision)) }
    }

    /// The record as it was last read or written.
    pub(crate) async fn record(&self) -> R {
        self.state.lock().await.0.clone()
    }

    /// Reads the record again. `false` when this operation no longer holds it.
    pub(crate) async fn reload(&self) -> Result<bool> {
        let mut state = self.state.lock().await;
        match self.records.get::<R>(&state.0.key()).await? {
            Some((record, revision)) => {
                let ours = record.journal().is_some_and(|journal| journal.id == self.operation);
                *state = (record, revision);
                Ok(ours)
            }
            None => Ok(false),
        }
    }

    /// Changes the record, durably.
    pub(crate) async fn save(&self, change: impl FnOnce(&mut R)) -> Result<()> {
        let mut state = self.state.lock().await;
        let mut changed = state.0.clone();
        change(&mut changed);
        let key = changed.key();
        match self.records.put(&key, &changed, state.1).await? {
            Some(revision) => {
                *state = (changed, revision);
                Ok(())
            }
            None => Err(RecordError::HoldLost { key }.into()),
        }
    }

    /// Changes the record and ends the hold in the same write.
    pub(crate) async fn finish(&self, change: impl FnOnce(&mut R)) -> Result<()> {
        self.save(|record| {
            change(record);
            *record.journal_mut() = None;
        })
        .await
    }

    /// Removes the record, and the hold with it.
    pub(crate) async fn remove(&self) -> Result<()> {
        let state = self.state.lock().await;
        let key = state.0.key();
        match self.records.delete(&key, state.1).await? {
            Some(_) => Ok(()),
            None => Err(RecordError::HoldLost { key }.into()),
        }
    }

    /// From now on the operation is being taken back.
    pub(crate) async fn turn_back(&self) -> Result<()> {
        if self.state.lock().await.0.journal().is_some_and(|journal| journal.undoing) {
            return Ok(());
        }
        self.save(|record| {
            if let Some(journal) = record.journal_mut() {
                journal.undoing = true;
            }
        })
        .await
    }

    /// Keeps others from taking over for another [`LEASE`].
    pub(crate) async fn renew(&self, now: Timestamp) -> Result<()> {
        self.save(|record| {
            if let Some(journal) = record.journal_mut() {
                journal.expires = now.saturating_add(LEASE).unwrap_or(now);
            }
        })
        .await
    }
}
