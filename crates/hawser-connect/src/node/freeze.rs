//! Stopping and starting writes for a snapshot, so that neither a dead process nor a lost link leaves
//! them stopped: what nobody asks for any more is thawed after [`FREEZE_LIMIT`].

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use hawser_core::attach::{AttachRecord, AttachState, Attached};
use hawser_core::error::ResultExt;
use hawser_core::id::PublicationId;
use hawser_core::port::host::MountEntry;
use hawser_core::port::node::FREEZE_LIMIT;
use hawser_core::port::registry::LockGuard;
use hawser_core::{Change, Error, Result};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::warn;

use super::NodeHalf;
use super::error::{NodeError, with_undo};
use super::locks::frozen_lock;

/// How long to wait for the lock of a frozen file system before its holder counts as alive: a free
/// lock is had at once, so this only bounds a slow disk.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);
/// Between two attempts to thaw what should be thawed: writers wait for it.
const THAW_PAUSE: Duration = Duration::from_secs(5);

/// What this process keeps frozen.
pub(super) struct Frozen {
    /// Says to other processes that this one is alive and will thaw it.
    _lock: Box<dyn LockGuard>,
    /// Until when. Whoever drops this ends the watch over it.
    until: watch::Sender<Instant>,
}

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
            Ok(Change::Made(())) => {
                self.keep_frozen(&record.publication);
                Ok(Change::Made(()))
            }
            Ok(Change::Already(())) if ours_before => {
                self.keep_frozen(&record.publication);
                Ok(Change::Already(()))
            }
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

    /// Puts off the end of a freeze: somebody still wants it.
    fn keep_frozen(&self, publication: &PublicationId) {
        if let Some(frozen) = self.frozen_here().get(publication) {
            frozen.until.send_replace(Instant::now() + FREEZE_LIMIT);
        }
    }

    /// Begins to watch over a file system that is frozen. The watch does not keep the node half: it
    /// ends with the last that has it.
    fn begin_watch(&self, publication: &PublicationId, until: watch::Receiver<Instant>) {
        let kept = Arc::downgrade(&self.frozen);
        let half = Self { frozen: Arc::default(), ..self.clone() };
        tokio::spawn(half.watch_frozen(kept, publication.clone(), until));
    }

    /// Thaws a file system that nobody asked to keep frozen for too long.
    async fn watch_frozen(
        mut self,
        kept: Weak<Mutex<HashMap<PublicationId, Frozen>>>,
        publication: PublicationId,
        mut until: watch::Receiver<Instant>,
    ) {
        loop {
            let end = *until.borrow_and_update();
            tokio::select! {
                // Put off, or thawed by whoever had it frozen.
                changed = until.changed() => match changed {
                    Ok(()) => continue,
                    Err(_) => return,
                },
                () = tokio::time::sleep_until(end) => {}
            }
            let Some(frozen) = kept.upgrade() else { return };
            self.frozen = frozen;
            let thawed = self.thaw_volume(&publication).await;
            self.frozen = Arc::default();
            match thawed {
                Ok(_) => {
                    warn!(publication = %publication, "thawed: nobody asked to keep it frozen");
                    return;
                }
                Err(error) => {
                    warn!(publication = %publication, error = %error.sentence(),
                        "nobody asked to keep it frozen, and it could not be thawed");
                    tokio::time::sleep(THAW_PAUSE).await;
                }
            }
        }
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
                let (until, watched) = watch::channel(Instant::now() + FREEZE_LIMIT);
                let frozen = Frozen { _lock: guard?, until };
                self.frozen_here().insert(publication.clone(), frozen);
                self.begin_watch(publication, watched);
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
        let frozen = self.frozen_here().remove(publication);
        drop(frozen);
    }

    fn frozen_here(&self) -> MutexGuard<'_, HashMap<PublicationId, Frozen>> {
        self.frozen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
