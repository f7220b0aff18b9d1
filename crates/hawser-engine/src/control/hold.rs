//! [`Hold`]: the exclusive right of one operation to change one record.

use std::time::Duration;

use tokio::sync::Mutex;

use hawser_core::Timestamp;
use hawser_core::error::Result;
use hawser_core::id::{InstanceId, OperationId};
use hawser_core::port::store::Revision;

use super::draft::{DRAFT, Draft};
use super::record::Record;
use super::records::{RecordError, Records};

/// For how long nobody else may take over an operation whose holder has fallen silent. Long enough
/// for a paused machine, short enough that a dead server's work is not stuck for minutes.
pub(crate) const LEASE: Duration = Duration::from_secs(60);

/// The exclusive right of one operation to change one record.
///
/// The journal in the record is the right; this is the handle to it. Every save is a compare-and-set,
/// so a right that was lost (a lease that ran out) is noticed before anything is overwritten.
///
/// A draft is a right only among the operations of this process; its first save creates the record, or
/// finds that another server was faster.
pub(crate) struct Hold<R> {
    records: Records,
    operation: OperationId,
    holder: Option<InstanceId>,
    state: Mutex<State<R>>,
}

struct State<R> {
    record: R,
    base: Base,
}

/// What the next save is made upon.
enum Base {
    /// The record in the store.
    Stored(Revision),
    /// Nothing: it is to be created.
    Draft {
        draft: Draft,
        /// A write of it got no answer, so what is found in the store may be it.
        perhaps_written: bool,
    },
}

/// How a hold stands after its record was read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// As it was.
    Held,
    /// Its last write was made, though nobody heard of it: the operation has ended.
    Ended,
    /// The lease ran out, and another server drives the operation; or it was a draft, and another
    /// server recorded the same first.
    TakenOver,
}

impl<R: Record> Hold<R> {
    pub(crate) fn new(
        records: Records,
        operation: OperationId,
        record: R,
        revision: Revision,
    ) -> Self {
        Self::upon(records, operation, record, Base::Stored(revision))
    }

    /// A hold of a record that is written with the first save.
    pub(crate) fn draft(records: Records, operation: OperationId, record: R, draft: Draft) -> Self {
        Self::upon(records, operation, record, Base::Draft { draft, perhaps_written: false })
    }

    fn upon(records: Records, operation: OperationId, record: R, base: Base) -> Self {
        let holder = record.journal().map(|journal| journal.holder.clone());
        Self { records, operation, holder, state: Mutex::new(State { record, base }) }
    }

    /// The record as it was last read or written.
    pub(crate) async fn record(&self) -> R {
        self.state.lock().await.record.clone()
    }

    /// Reads the record again, and says whether this operation still holds it.
    pub(crate) async fn reload(&self) -> Result<Standing> {
        let mut state = self.state.lock().await;
        let found = self.records.get::<R>(&state.record.key()).await?;
        let standing = match (&state.base, &found) {
            (Base::Stored(_), None) => return Ok(Standing::Ended),
            (Base::Draft { .. }, None) => return Ok(Standing::TakenOver),
            (Base::Draft { draft, .. }, Some((_, DRAFT))) => {
                let live = draft.is_live();
                return Ok(if live { Standing::Held } else { Standing::TakenOver });
            }
            (base, Some((record, _))) => self.standing(base, record),
        };
        if let Some((record, revision)) = found {
            *state = State { record, base: Base::Stored(revision) };
        }
        Ok(standing)
    }

    fn standing(&self, base: &Base, found: &R) -> Standing {
        match (found.journal(), base) {
            (Some(journal), _) if journal.id == self.operation => {
                let ours = self.holder.as_ref() == Some(&journal.holder);
                if ours { Standing::Held } else { Standing::TakenOver }
            }
            (_, Base::Stored(_)) | (None, Base::Draft { perhaps_written: true, .. }) => {
                Standing::Ended
            }
            // Another operation's, or nothing that we wrote.
            (_, Base::Draft { .. }) => Standing::TakenOver,
        }
    }

    /// True when the operation is known to be taken back.
    pub(crate) async fn is_undoing(&self) -> bool {
        self.state.lock().await.record.journal().is_some_and(|journal| journal.undoing)
    }

    /// How long ago the store held no such record; `None` when it does.
    pub(crate) async fn unwritten_for(&self) -> Option<Duration> {
        match &self.state.lock().await.base {
            Base::Stored(_) => None,
            Base::Draft { draft, .. } => Some(draft.age()),
        }
    }

    /// Changes the record, durably.
    pub(crate) async fn save(&self, change: impl FnOnce(&mut R)) -> Result<()> {
        let mut state = self.state.lock().await;
        let mut changed = state.record.clone();
        change(&mut changed);
        let key = changed.key();
        let written = match &mut state.base {
            Base::Stored(revision) => self.records.put(&key, &changed, *revision).await?,
            Base::Draft { draft, .. } if !draft.is_live() => None,
            Base::Draft { perhaps_written, .. } => {
                let before = std::mem::replace(perhaps_written, true);
                let created = self.records.create(&key, &changed).await;
                // Also what is dropped in the middle of this may have been written.
                *perhaps_written =
                    before || created.as_ref().is_err_and(hawser_core::Error::is_unknown);
                created?
            }
        };
        let Some(revision) = written else { return Err(RecordError::HoldLost { key }.into()) };
        *state = State { record: changed, base: Base::Stored(revision) };
        Ok(())
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
        let key = state.record.key();
        let removed = match &state.base {
            Base::Stored(revision) => self.records.delete(&key, *revision).await?,
            Base::Draft { .. } => None,
        };
        if removed.is_some() { Ok(()) } else { Err(RecordError::HoldLost { key }.into()) }
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
