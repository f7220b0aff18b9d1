//! Loans: a volume that is held for an operation of something else, which releases it when it ends.

use std::sync::Arc;

use hawser_core::error::{Error, Kind, Result};
use hawser_core::id::VolumeId;
use hawser_core::volume::Volume;

use super::freeze;
use super::job::Job;
use super::record::{GroupRecord, Journal, VolumeRecord, Work};
use super::world::{Subject, World, busy};

/// Keeps every other operation from a volume. One that has it already keeps it; any other is
/// `Kind::Busy`. Answers the volume, and whether an earlier attempt had it already.
pub(crate) async fn take(
    world: &Arc<World>,
    id: &VolumeId,
    loan: &Work,
    job: &Job,
) -> Result<(Volume, bool)> {
    let key = VolumeRecord::key_of(id);
    let is_ours = |journal: &Journal| journal.work == *loan;
    let found = world.records.get::<VolumeRecord>(&key).await?;
    if let Some((record, _)) = found.filter(|(r, _)| r.journal.as_ref().is_none_or(is_ours)) {
        freeze::check_reachable(world, &record.volume, job).await?;
    }
    let mut again = false;
    let lent = world
        .records
        .update::<VolumeRecord>(&key, |record| match &record.journal {
            Some(journal) if is_ours(journal) => {
                again = true;
                Ok(None)
            }
            Some(journal) => Err(busy(&Subject::volume(&record.volume), journal)),
            None => {
                again = false;
                let mut changed = record.clone();
                changed.journal = Some(world.journal(loan.clone()));
                Ok(Some(changed))
            }
        })
        .await?;
    lent.map(|record| (record.volume, again))
        .ok_or_else(|| Error::new(Kind::NotFound, format!("volume {id} is gone")))
}

/// Ends a loan, if it is this one that holds the volume.
pub(crate) async fn give_back(world: &Arc<World>, id: &VolumeId, loan: &Work) -> Result<()> {
    let key = VolumeRecord::key_of(id);
    let Some((record, _)) = world.records.get::<VolumeRecord>(&key).await? else { return Ok(()) };
    if record.journal.as_ref().is_none_or(|journal| journal.work != *loan) {
        return Ok(());
    }
    // Thawed before the journal goes: a crash in between thaws once more, never too rarely.
    freeze::thaw(world, &record.volume).await?;
    world
        .records
        .update::<VolumeRecord>(&key, |record| {
            if record.journal.as_ref().is_none_or(|journal| journal.work != *loan) {
                return Ok(None);
            }
            Ok(Some(VolumeRecord { journal: None, ..record.clone() }))
        })
        .await
        .map(drop)
}

/// True while the operation that borrowed the volume is at work, and so will release it.
pub(crate) async fn is_needed(world: &World, loan: &Work) -> Result<bool> {
    if let Work::LendVolume { to } = loan {
        let borrower = world.records.get::<VolumeRecord>(&VolumeRecord::key_of(to)).await?;
        let journal = borrower.and_then(|(record, _)| record.journal);
        return Ok(journal.is_some_and(|journal| journal.work == Work::CreateVolume));
    }
    if let Work::SnapshotInGroup { group } = loan {
        let borrower = world.records.get::<GroupRecord>(&GroupRecord::key_of(group)).await?;
        let journal = borrower.and_then(|(record, _)| record.journal);
        return Ok(journal.is_some_and(|journal| journal.work == Work::CreateGroup));
    }
    Ok(false)
}
