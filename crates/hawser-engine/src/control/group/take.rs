//! Taking a group, and taking that back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hawser_core::error::{Error, Kind, Outcome, Result, ResultExt};
use hawser_core::event::EventKind;
use hawser_core::port::Progress;
use hawser_core::port::provider::{Groups, SnapshotAtProvider, Snapshots};
use hawser_core::snapshot::SnapshotState;
use hawser_core::volume::Volume;

use super::super::freeze;
use super::super::hold::Hold;
use super::super::job::{Answer, Job};
use super::super::loan;
use super::super::record::{Cut, GroupHead, GroupRecord, SnapshotRecord, Work};
use super::super::snapshot::{Wanted, reserve};
use super::super::world::{World, at_provider};
use super::begin::together;
use super::{remove, view};

/// Takes the group.
pub(super) async fn forward(
    world: &Arc<World>,
    hold: &Hold<GroupRecord>,
    job: &Job,
) -> Result<Answer> {
    let group = hold.record().await.group;
    let holder = world.records.reserve_name("group", &group.alias, group.id.as_str()).await?;
    if holder != group.id.as_str() {
        let message = format!("the name {} was taken by group {holder}", group.alias);
        return Err(Error::new(Kind::Exists, message));
    }
    let taken = match &group.cut {
        Cut::Done(taken) => taken.clone(),
        Cut::Never | Cut::Started => {
            let attempt = || format!("taking group {}", group.alias);
            cut(world, hold, job, &group).await.context(attempt)?
        }
    };
    // All of it is there. Who sees a snapshot as ready may have begun to copy it, so from here on
    // there is only forward.
    let completed = complete(world, hold, &group, &taken).await;
    completed.map_err(|error| error.with_outcome(Outcome::Unknown))
}

/// Has the snapshots taken, with all volumes held still, and records that they are of one instant.
async fn cut(
    world: &Arc<World>,
    hold: &Hold<GroupRecord>,
    job: &Job,
    group: &GroupHead,
) -> Result<Vec<SnapshotAtProvider>> {
    job.step("holding the volumes still");
    let volumes = borrow(world, job, group).await?;
    let (groups, snapshots) = together(world, &volumes)?;
    for (member, volume) in group.members.iter().zip(&volumes) {
        let wanted = Wanted {
            id: &member.snapshot,
            alias: &member.alias,
            labels: &group.labels,
            group: Some(&group.id),
            at: group.created,
        };
        reserve(world, volume, snapshots, &wanted).await?;
    }
    if group.cut == Cut::Started {
        forget_earlier(snapshots, group, &volumes).await?;
    } else {
        hold.save(|record| record.group.cut = Cut::Started).await?;
    }
    let taken = hold_and_take(world, job, groups, group, &volumes).await;
    let thawed = thaw(world, &volumes).await;
    let taken = taken?;
    // Snapshots are worth nothing to someone whose volumes stay frozen: tried again until thawed.
    thawed.map_err(|error| error.with_outcome(Outcome::Unknown))?;
    hold.save(|record| record.group.cut = Cut::Done(taken.clone())).await?;
    Ok(taken)
}

/// Keeps every other operation from the volumes, in the order of their ids: of two groups that want
/// the same ones, one gets them all. Answers them in the order of the members.
async fn borrow(world: &Arc<World>, job: &Job, group: &GroupHead) -> Result<Vec<Volume>> {
    let mut lent = BTreeMap::new();
    let ids: BTreeSet<_> = group.members.iter().map(|m| &m.volume).collect();
    for id in ids {
        lent.insert(id, loan::take(world, id, &loan_of(group), job).await?.0);
    }
    Ok(group.members.iter().filter_map(|member| lent.remove(&member.volume)).collect())
}

fn loan_of(group: &GroupHead) -> Work {
    Work::SnapshotInGroup { group: group.id.clone() }
}

/// Removes what an attempt that was cut off may have taken: the volumes have changed since.
async fn forget_earlier(
    snapshots: &dyn Snapshots,
    group: &GroupHead,
    volumes: &[Volume],
) -> Result<()> {
    for (member, volume) in group.members.iter().zip(volumes) {
        let left = SnapshotAtProvider {
            id: member.snapshot.clone(),
            handle: snapshots.snapshot_handle(&member.snapshot),
            size: volume.size,
            place: volume.place.clone(),
        };
        let attempt = || format!("removing snapshot {} of an earlier instant", member.alias);
        snapshots.delete_snapshot(&left).await.context(attempt)?;
    }
    Ok(())
}

/// Freezes all, has all taken, and makes sure that all stayed frozen until then. Whatever comes of
/// it, what may be frozen is left to the caller.
async fn hold_and_take(
    world: &Arc<World>,
    job: &Job,
    groups: &dyn Groups,
    group: &GroupHead,
    volumes: &[Volume],
) -> Result<Vec<SnapshotAtProvider>> {
    for volume in volumes {
        freeze::freeze(world, volume).await?;
    }
    job.step("taking the snapshots");
    let ids = group.members.iter().map(|member| member.snapshot.clone());
    let members: Vec<_> = volumes.iter().map(at_provider).zip(ids).collect();
    let taken = freeze::held(world, volumes, groups.snapshot_group(&members, job)).await?;
    let taken = taken.into_inner();
    if taken.iter().map(|snapshot| &snapshot.id).ne(members.iter().map(|(_, id)| id)) {
        return Err(Error::new(Kind::Internal, "the provider took other snapshots than asked for"));
    }
    Ok(taken)
}

/// Lets all volumes go on; one that fails does not keep the others frozen.
async fn thaw(world: &Arc<World>, volumes: &[Volume]) -> Result<()> {
    let mut first = Ok(());
    for volume in volumes {
        first = first.and(freeze::thaw(world, volume).await);
    }
    first
}

/// Makes the snapshots known as ready, lets go of the volumes, and ends the operation.
async fn complete(
    world: &Arc<World>,
    hold: &Hold<GroupRecord>,
    group: &GroupHead,
    taken: &[SnapshotAtProvider],
) -> Result<Answer> {
    for snapshot in taken {
        let key = SnapshotRecord::key_of(&snapshot.id);
        let known = world.records.update::<SnapshotRecord>(&key, |record| {
            if record.snapshot.state != SnapshotState::Creating {
                return Ok(None);
            }
            let mut changed = record.clone();
            changed.snapshot.handle = snapshot.handle.clone();
            changed.snapshot.size = snapshot.size;
            changed.snapshot.state = SnapshotState::Ready;
            Ok(Some(changed))
        });
        if known.await?.is_none() {
            let message = format!("the record of snapshot {} vanished", snapshot.id);
            return Err(Error::new(Kind::Unavailable, message));
        }
    }
    give_back(world, group).await?;
    hold.finish(|_| {}).await?;
    for member in &group.members {
        let message = format!("{} was taken with group {}", member.alias, group.alias);
        world.events.tell(EventKind::SnapshotChanged, member.snapshot.as_str(), message);
    }
    Ok(Answer::Group(Box::new(view(world, group).await?)))
}

/// Lets go of all volumes; one that fails does not keep the others.
async fn give_back(world: &Arc<World>, group: &GroupHead) -> Result<()> {
    let mut first = Ok(());
    for member in &group.members {
        first = first.and(loan::give_back(world, &member.volume, &loan_of(group)).await);
    }
    first
}

/// Removes all that `forward` may have made, and the record.
pub(super) async fn back(world: &Arc<World>, hold: &Hold<GroupRecord>) -> Result<()> {
    hold.turn_back().await?;
    let group = hold.record().await.group;
    give_back(world, &group).await?;
    let records = remove::mark(world, &group).await?;
    for record in &records {
        remove::data(world, &record.snapshot).await?;
    }
    remove::forget(world, &group, &records).await?;
    hold.remove().await
}
