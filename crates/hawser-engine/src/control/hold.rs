//! [`Hold`]: the exclusive right of one operation to change one record.

use std::time::Duration;

use tokio::sync::Mutex;

use hawser_core::Timestamp;
use hawser_core::error::Result;
use hawser_core::id::{InstanceId, OperationId};
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
    holder: Option<InstanceId>,
    state: Mutex<(R, Revision)>,
}

/// How a hold stands after its record was read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// As it was.
    Held,
    /// Its last write was made, though nobody heard of it: the operation has ended.
    Ended,
    /// The lease ran out, and another server drives the operation.
    TakenOver,
}

impl<R: Record> Hold<R> {
    pub(crate) fn new(
        records: Records,
        operation: OperationId,
        record: R,
        revision: Revision,
    ) -> Self {
        let holder = record.journal().map(|journal| journal.holder.clone());
        Self { records, operation, holder, state: Mutex::new((record, revision)) }
    }

    /// The record as it was last read or written.
    pub(crate) async fn record(&self) -> R {
        self.state.lock().await.0.clone()
    }

    /// Reads the record again, and says whether this operation still holds it.
    pub(crate) async fn reload(&self) -> Result<Standing> {
        let mut state = self.state.lock().await;
        let Some((record, revision)) = self.records.get::<R>(&state.0.key()).await? else {
            return Ok(Standing::Ended);
        };
        let standing = match record.journal().filter(|journal| journal.id == self.operation) {
            None => Standing::Ended,
            Some(journal) if self.holder.as_ref() == Some(&journal.holder) => Standing::Held,
            Some(_) => Standing::TakenOver,
        };
        *state = (record, revision);
        Ok(standing)
    }

    /// True when the operation is known to be taken back.
    pub(crate) async fn is_undoing(&self) -> bool {
        self.state.lock().await.0.journal().is_some_and(|journal| journal.undoing)
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
        if self.is_undoing().await {
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
