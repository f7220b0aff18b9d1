//! Groups: snapshots of several volumes, all of one instant.
//!
//! A group has a record and a journal of its own, which name the volumes and the snapshots that are
//! to be taken of them. The volumes are lent to it, so that no other operation changes them, and
//! stand still from before the first is cut until after the last. Only a cut that is known to be
//! whole is kept: what an attempt left that was cut off is removed before the next begins, because
//! the volumes went on in between.

mod begin;
mod examine;
mod remove;
mod take;

use std::sync::Arc;

use hawser_core::error::{Error, Kind, Result};
use hawser_core::group::{Group, GroupRef};
use hawser_core::port::store::Revision;

use super::driver::Driven;
use super::hold::Hold;
use super::job::{Answer, Job};
use super::record::{GroupHead, GroupRecord, Journal, Member, SnapshotRecord, Work};
use super::world::{Subject, World};

pub(crate) use begin::{begin_create, begin_delete};
pub(crate) use examine::examine;

/// What an operation on a group is about, for people.
pub(crate) fn subject(group: &GroupHead) -> Subject {
    Subject { id: group.id.to_string(), name: group.alias.to_string() }
}

/// A group by id or name.
pub(crate) async fn find(
    world: &World,
    group: &GroupRef,
) -> Result<Option<(GroupRecord, Revision)>> {
    let id = match group {
        GroupRef::Id(id) => id.clone(),
        GroupRef::Alias(alias) => match world.records.name("group", alias).await? {
            Some((id, _)) => id.parse()?,
            None => return Ok(None),
        },
    };
    world.records.get(&GroupRecord::key_of(&id)).await
}

/// A group by id or name, which must exist.
pub(crate) async fn get(world: &World, group: &GroupRef) -> Result<Group> {
    let found = find(world, group).await?;
    let (record, _) =
        found.ok_or_else(|| Error::new(Kind::NotFound, format!("group {group} does not exist")))?;
    view(world, &record.group).await
}

/// The group as callers see it.
async fn view(world: &World, group: &GroupHead) -> Result<Group> {
    let mut snapshots = Vec::with_capacity(group.members.len());
    for member in &group.members {
        snapshots.extend(record_of(world, member).await?.map(|record| record.snapshot));
    }
    let GroupHead { id, alias, created, .. } = group.clone();
    Ok(Group { id, alias, snapshots, created })
}

/// The record of a member's snapshot; `None` before it is written and after it is removed.
async fn record_of(world: &World, member: &Member) -> Result<Option<SnapshotRecord>> {
    let found = world.records.get(&SnapshotRecord::key_of(&member.snapshot)).await?;
    Ok(found.map(|(record, _)| record))
}

impl Driven for GroupRecord {
    async fn forward(
        world: &Arc<World>,
        hold: &Hold<Self>,
        journal: &Journal,
        job: &Job,
    ) -> Result<Answer> {
        if journal.work == Work::DeleteGroup {
            return remove::forward(world, hold, job).await;
        }
        take::forward(world, hold, job).await
    }

    async fn back(
        world: &Arc<World>,
        hold: &Hold<Self>,
        journal: &Journal,
        _job: &Job,
    ) -> Result<()> {
        if journal.work == Work::DeleteGroup {
            return remove::back(world, hold).await;
        }
        take::back(world, hold).await
    }

    fn ended(_record: &Self, _journal: &Journal) -> Answer {
        Answer::Nothing
    }
}
