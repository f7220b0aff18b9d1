//! Stopping and starting writes for a snapshot, so that a dead process never leaves them stopped.

use std::path::PathBuf;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use hawser_core::attach::{AttachRecord, AttachState, Attached};
use hawser_core::error::ResultExt;
use hawser_core::id::PublicationId;
use hawser_core::port::host::MountEntry;
use hawser_core::port::registry::LockGuard;
use hawser_core::{Change, Error, Result};

use super::NodeHalf;
use super::error::{NodeError, with_undo};
use super::locks::frozen_lock;

/// How long to wait for the lock of a frozen file system before its holder counts as alive: a free
/// lock is had at once, so this only bounds a slow disk.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);

impl NodeHalf {
    pub(super) async fn freeze_volume(&self, publication: &PublicationId) -> Result<Change<()>> {
        let _alone = self.gates.enter(self.registry.as_ref(), publication).await?;
        let Some(mut record) = self.current(publication).await? else {
            return Ok(Change::Already(()));
        };
        match (record.state, record.attached.clone()) {
            (AttachState::Attached, Some(attached @ Attached::Block { .. })) => {
                self.freeze_device(&mut record, &attached).await
            }
            (
                AttachState::Attached,
                Some(Attached::Directory { path } | Attached::File { path }),
            ) => {
                self.host.sync_filesystem(&path).await?;
                Ok(Change::Already(()))
            }
            (AttachState::Intent | AttachState::Detaching, _) | (AttachState::Attached, None) => {
                Ok(Change::Already(()))
            }
        }
    }

    async fn freeze_device(
        &self,
        record: &mut AttachRecord,
        attached: &Attached,
    ) -> Result<Change<()>> {
        let Some(target) = self.frozen_place(record).await? else { return Ok(Change::Already(())) };
        self.verify(record, attached).await?;
        if !self.claim_frozen(&record.publication).await? {
            return Err(NodeError::Frozen.into());
        }
        let ours_before = record.frozen.is_some();
        record.frozen = Some(target.clone());
        if let Err(error) = self.registry.put(record).await {
            if !ours_before {
                self.release_frozen(&record.publication);
            }
            return Err(error);
        }
        match self.host.freeze(&target).await {
            Ok(Change::Made(())) => Ok(Change::Made(())),
            Ok(Change::Already(())) if ours_before => Ok(Change::Already(())),
            Ok(Change::Already(())) => {
                record.frozen = None;
                self.registry.put(record).await?;
                self.release_frozen(&record.publication);
                Err(NodeError::FrozenByOthers { target }.into())
            }
            Err(error) => Err(self.undo_freeze(record, error).await),
        }
    }

    async fn undo_freeze(&self, record: &mut AttachRecord, error: Error) -> Error {
        match self.thaw_record(record).await {
            Ok(_) => error,
            Err(undo) => with_undo(error, &undo),
        }
    }

    pub(super) async fn thaw_volume(&self, publication: &PublicationId) -> Result<Change<()>> {
        let _alone = self.gates.enter(self.registry.as_ref(), publication).await?;
        match self.current(publication).await? {
            Some(mut record) if record.frozen.is_some() => self.thaw_record(&mut record).await,
            Some(_) | None => {
                self.release_frozen(publication);
                Ok(Change::Already(()))
            }
        }
    }

    /// Thaws what the record says is frozen; the caller is alone with the publication.
    pub(super) async fn thaw_record(&self, record: &mut AttachRecord) -> Result<Change<()>> {
        // Frozen is the file system, not the mount: any mount of it will do, and without one there
        // is nothing left to thaw.
        let change = match self.frozen_place(record).await? {
            Some(target) => {
                let attempt = || format!("letting writes to {target:?} go on");
                self.host.thaw(&target).await.context(attempt)?
            }
            None => Change::Already(()),
        };
        record.frozen = None;
        self.registry.put(record).await?;
        self.release_frozen(&record.publication);
        Ok(change)
    }

    /// A mount through which the file system is frozen or thawed: the recorded one, else any of
    /// ours that can be written through; none means that nothing can write.
    async fn frozen_place(&self, record: &AttachRecord) -> Result<Option<PathBuf>> {
        let table = self.table().await?;
        if let Some(target) = &record.frozen
            && table.ours(record, target).is_some()
        {
            return Ok(Some(target.clone()));
        }
        // What is on a device that is shown as it is, is known to its user alone.
        let freezable =
            |(at, entry): &(usize, &MountEntry)| !record.mounts[*at].raw && !entry.read_only();
        let writable = table.live(record).into_iter().find(freezable);
        Ok(writable.map(|(_, entry)| entry.target.clone()))
    }

    /// Takes the lock that says a living process keeps this file system frozen; `false` when
    /// another one does.
    pub(super) async fn claim_frozen(&self, publication: &PublicationId) -> Result<bool> {
        if self.frozen_here().contains_key(publication) {
            return Ok(true);
        }
        let name = frozen_lock(publication);
        match tokio::time::timeout(LOCK_PATIENCE, self.registry.lock(&name)).await {
            Ok(guard) => {
                let guard = guard?;
                self.frozen_here().insert(publication.clone(), guard);
                Ok(true)
            }
            Err(_) => Ok(false),
        }
    }

    /// True when this process froze it and has not thawed it yet.
    pub(super) fn keeps_frozen(&self, publication: &PublicationId) -> bool {
        self.frozen_here().contains_key(publication)
    }

    /// Gives that lock back.
    pub(super) fn release_frozen(&self, publication: &PublicationId) {
        let guard = self.frozen_here().remove(publication);
        drop(guard);
    }

    fn frozen_here(
        &self,
    ) -> MutexGuard<'_, std::collections::HashMap<PublicationId, Box<dyn LockGuard>>> {
        self.frozen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
