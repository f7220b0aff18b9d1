//! Removing a group with all of its snapshots.

use std::sync::Arc;

use hawser_core::error::{Error, Kind, Outcome, Result, ResultExt};
use hawser_core::event::EventKind;
use hawser_core::port::Progress;
use hawser_core::snapshot::{Snapshot, SnapshotState};

use super::super::hold::Hold;
use super::super::job::{Answer, Job};
use super::super::record::{Cut, GroupHead, GroupRecord, SnapshotRecord};
use super::super::snapshot::at_provider;
use super::super::world::World;

/// Removes the group.
pub(super) async fn forward(
    world: &Arc<World>,
    hold: &Hold<GroupRecord>,
    job: &Job,
) -> Result<Answer> {
    job.step("removing the snapshots");
    let group = hold.record().await.group;
    let removed = remove(world, hold, &group).await;
    // Something is gone, or may be: from here on there is only forward, whatever fails.
    if let Err(error) = removed {
        let whole = matches!(hold.record().await.group.cut, Cut::Done(_));
        let error = error.context(format!("deleting group {}", group.alias));
        return Err(if whole { error } else { error.with_outcome(Outcome::Unknown) });
    }
    for member in &group.members {
        let message = format!("{} was deleted with group {}", member.alias, group.alias);
        world.events.tell(EventKind::SnapshotDeleted, member.snapshot.as_str(), message);
    }
    Ok(Answer::Nothing)
}

async fn remove(world: &Arc<World>, hold: &Hold<GroupRecord>, group: &GroupHead) -> Result<()> {
    let records = mark(world, group).await?;
    let mut untouched = matches!(group.cut, Cut::Done(_));
    if untouched {
        hold.save(|record| record.group.cut = Cut::Started).await?;
    }
    for record in &records {
        match data(world, &record.snapshot).await {
            Ok(()) => untouched = false,
            Err(error) if untouched && !error.is_unknown() => {
                // Refused before anything was gone: the group is as whole as it was.
                hold.save(|record| record.group.cut = group.cut.clone()).await?;
                return Err(error);
            }
            Err(error) => return Err(error),
        }
    }
    forget(world, group, &records).await?;
    hold.remove().await
}

/// Takes the snapshots out of use, so that nobody begins to copy one, and answers the records of
/// those that are there.
pub(super) async fn mark(world: &World, group: &GroupHead) -> Result<Vec<SnapshotRecord>> {
    let mut records = Vec::with_capacity(group.members.len());
    for member in &group.members {
        let key = SnapshotRecord::key_of(&member.snapshot);
        let marked = world.records.update::<SnapshotRecord>(&key, |record| {
            refuse_if_copied(group, record)?;
            if record.snapshot.state == SnapshotState::Deleting {
                return Ok(None);
            }
            let mut changed = record.clone();
            changed.snapshot.state = SnapshotState::Deleting;
            Ok(Some(changed))
        });
        records.extend(marked.await?);
    }
    Ok(records)
}

/// Refuses while a volume is being copied from a snapshot of the group.
pub(super) fn refuse_if_copied(group: &GroupHead, record: &SnapshotRecord) -> Result<()> {
    let Some(volume) = record.holds.first() else { return Ok(()) };
    let message = format!(
        "snapshot {} of group {} is being copied into volume {volume}; repeat when that is done",
        record.snapshot.alias, group.alias
    );
    Err(Error::new(Kind::Precondition, message))
}

/// Has the provider remove a snapshot.
pub(super) async fn data(world: &World, snapshot: &Snapshot) -> Result<()> {
    let Some(ability) = world.provider(&snapshot.class)?.snapshots() else {
        let message = format!("class {} has no snapshots", snapshot.class);
        return Err(Error::new(Kind::Unsupported, message));
    };
    let removed = ability.delete_snapshot(&at_provider(snapshot)).await;
    removed.context(|| format!("deleting snapshot {}", snapshot.alias)).map(drop)
}

/// Removes the names and the records of the snapshots, and the name of the group.
pub(super) async fn forget(
    world: &World,
    group: &GroupHead,
    records: &[SnapshotRecord],
) -> Result<()> {
    for record in records {
        let (alias, id) = (&record.snapshot.alias, &record.snapshot.id);
        world.records.release_name("snapshot", alias, id.as_str()).await?;
        let key = SnapshotRecord::key_of(id);
        if let Some((_, revision)) = world.records.get::<SnapshotRecord>(&key).await? {
            // A conflict would mean that somebody holds what was marked: then it stays for the next
            // attempt.
            if world.records.delete(&key, revision).await?.is_none() {
                let message = format!("the record of snapshot {alias} was changed meanwhile");
                return Err(Error::new(Kind::Unavailable, message).with_outcome(Outcome::Unknown));
            }
        }
    }
    world.records.release_name("group", &group.alias, group.id.as_str()).await
}

/// Puts the snapshots back into use. Nothing of the group is gone, or there would be no way back.
pub(super) async fn back(world: &Arc<World>, hold: &Hold<GroupRecord>) -> Result<()> {
    for member in hold.record().await.group.members {
        let key = SnapshotRecord::key_of(&member.snapshot);
        let unmarked = world.records.update::<SnapshotRecord>(&key, |record| {
            if record.snapshot.state != SnapshotState::Deleting {
                return Ok(None);
            }
            let mut changed = record.clone();
            changed.snapshot.state = SnapshotState::Ready;
            Ok(Some(changed))
        });
        unmarked.await?;
    }
    hold.finish(|_| {}).await
}
