//! Groups of snapshots: all of them, or none.
//!
//! The pool has no clock of its own: a group is of one instant because the caller holds its volumes
//! still around the call. What must never be is a group whose members are of different calls.

use async_trait::async_trait;
use hawser_core::id::SnapshotId;
use hawser_core::port::Progress;
use hawser_core::port::provider::{Groups, SnapshotAtProvider, Snapshots, VolumeAtProvider};
use hawser_core::{Change, Error, Outcome, Result};

use super::LocalPool;
use super::shelf::Shelf;

#[async_trait]
impl Groups for LocalPool {
    async fn snapshot_group(
        &self,
        members: &[(VolumeAtProvider, SnapshotId)],
        progress: &dyn Progress,
    ) -> Result<Change<Vec<SnapshotAtProvider>>> {
        let there = self.count_snapshots(members).await?;
        if there > 0 && there < members.len() {
            // An earlier call was cut off, and who knows what was written since.
            self.remove_all(members).await?;
        }
        let mut taken = Vec::with_capacity(members.len());
        for (volume, id) in members {
            match self.snapshot(volume, id, progress).await {
                Ok(snapshot) => taken.push(snapshot.into_inner()),
                Err(error) => return Err(self.take_back(members, error).await),
            }
        }
        Ok(if there < members.len() { Change::Made(taken) } else { Change::Already(taken) })
    }
}

impl LocalPool {
    /// How many of the snapshots are there, once nothing works on them any more: what a caller left
    /// that went away may just be taking its place.
    async fn count_snapshots(&self, members: &[(VolumeAtProvider, SnapshotId)]) -> Result<usize> {
        let mut there = 0;
        for (_, id) in members {
            let id = id.to_string();
            let lock = self.pool.locks.hold(&id).await;
            let found = self
                .on_pool(move |pool| {
                    let _lock = lock;
                    pool.find_item(Shelf::Snapshots, &id)
                })
                .await?;
            there += usize::from(found.is_some());
        }
        Ok(there)
    }

    /// Removes the snapshots, and what was begun of them.
    async fn remove_all(&self, members: &[(VolumeAtProvider, SnapshotId)]) -> Result<()> {
        for (volume, id) in members {
            let left = SnapshotAtProvider {
                id: id.clone(),
                handle: self.snapshot_handle(id),
                size: volume.size,
                place: volume.place.clone(),
            };
            self.delete_snapshot(&left).await?;
        }
        Ok(())
    }

    /// Removes what a call made that failed, and answers why it failed.
    async fn take_back(&self, members: &[(VolumeAtProvider, SnapshotId)], error: Error) -> Error {
        match self.remove_all(members).await {
            Ok(()) => error.with_outcome(Outcome::RolledBack),
            Err(left) => left
                .with_outcome(Outcome::Unknown)
                .context(format!("taking back a group that failed ({})", error.sentence())),
        }
    }
}
