//! Groups and their snapshots against each other, for the doctor.

use std::collections::HashSet;

use hawser_core::doctor::{Finding, FindingCode};
use hawser_core::error::Result;
use hawser_core::group::GroupRef;
use hawser_core::snapshot::Snapshot;

use super::super::doctor::finding;
use super::super::record::{GroupHead, SnapshotRecord};
use super::super::world::World;
use super::{find, record_of};

/// Groups that lack a snapshot, and snapshots of a group that is lost. What seems to be so is read
/// again: the doctor reads one list after the other, and groups come and go meanwhile.
pub(crate) async fn examine(
    world: &World,
    groups: &[&GroupHead],
    snapshots: &[&Snapshot],
) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let known: HashSet<_> = snapshots.iter().map(|snapshot| &snapshot.id).collect();
    for group in groups {
        for member in &group.members {
            let there = known.contains(&member.snapshot);
            if there || record_of(world, member).await?.is_some() {
                continue;
            }
            if !is_at_rest(world, group).await? {
                break;
            }
            let explanation = format!(
                "group {} lacks its snapshot {} of volume {}",
                group.alias, member.alias, member.volume
            );
            let advice = format!("delete the group: hawser snapshot group delete {}", group.id);
            findings.push(broken(group.id.to_string(), explanation, &advice));
        }
    }
    let known: HashSet<_> = groups.iter().map(|group| &group.id).collect();
    for snapshot in snapshots {
        let Some(id) = snapshot.group.as_ref().filter(|id| !known.contains(id)) else { continue };
        let found = find(world, &GroupRef::Id(id.clone())).await?;
        if found.is_some() || is_gone(world, snapshot).await? {
            continue;
        }
        let explanation =
            format!("snapshot {} is part of group {id}, which does not exist", snapshot.alias);
        let advice = format!("delete it alone: hawser snapshot delete {}", snapshot.id);
        findings.push(broken(snapshot.id.to_string(), explanation, &advice));
    }
    Ok(findings)
}

fn broken(subject: String, explanation: String, advice: &str) -> Finding {
    finding(FindingCode::BrokenGroup, subject, explanation, advice, false)
}

/// False when somebody has begun to remove the group, or has removed it.
async fn is_at_rest(world: &World, group: &GroupHead) -> Result<bool> {
    let now = find(world, &GroupRef::Id(group.id.clone())).await?;
    Ok(now.is_some_and(|(record, _)| record.journal.is_none()))
}

async fn is_gone(world: &World, snapshot: &Snapshot) -> Result<bool> {
    let key = SnapshotRecord::key_of(&snapshot.id);
    Ok(world.records.get::<SnapshotRecord>(&key).await?.is_none())
}
