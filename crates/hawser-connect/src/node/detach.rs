//! Taking a volume from this host: only when nothing is mounted, and only the right device.

use std::path::PathBuf;

use hawser_core::attach::{AttachRecord, AttachState, Detach};
use hawser_core::id::PublicationId;
use hawser_core::{Change, Outcome, Result};

use super::NodeHalf;
use super::error::{NodeError, with_undo};
use super::locks::{volume_lock, within};
use super::record::{Unknown, check_identity, expected};
use crate::shared::wait::Deadline;

impl NodeHalf {
    pub(super) async fn detach_volume(
        &self,
        publication: &PublicationId,
        detach: &Detach,
    ) -> Result<Change<()>> {
        let deadline = Deadline::after(detach.deadline);
        let registry = self.registry.as_ref();
        let _alone = self.gates.enter_within(registry, publication, deadline).await?;
        let detach = &Detach { deadline: deadline.rest(), ..detach.clone() };
        let Some(record) = self.current(publication).await? else {
            return Ok(Change::Already(()));
        };
        self.detach_record(record, detach).await?;
        Ok(Change::Made(()))
    }

    /// The caller is alone with the publication.
    pub(super) async fn detach_record(&self, record: AttachRecord, detach: &Detach) -> Result<()> {
        let connector = self.connectors.get(&record.info.protocol)?;
        let deadline = Deadline::after(detach.deadline);
        let lock = volume_lock(&record.volume);
        let what = || format!("volume {}", record.volume);
        let volume = within(deadline, what, self.registry.lock(&lock)).await?;
        let sharers = self.sharers(&record).await?;
        if sharers.there || self.is_anothers(&record).await? {
            return self.leave_to_others(&record).await;
        }
        self.check_unmounted(&record).await?;
        self.check_right_device(&record, detach).await?;
        match self.unseal(&record, &[]).await {
            // A device that does not answer goes as it is.
            Err(error) if detach.force => {
                tracing::warn!(volume.id = %record.volume, error = %error.sentence(),
                    "its read-only mark is left");
            }
            unsealed => unsealed?,
        }
        for mount in record.mounts.iter().filter(|mount| mount.made_target) {
            self.host.remove_target(&mount.target).await?;
        }
        let mut leaving = record.clone();
        leaving.state = AttachState::Detaching;
        leaving.mounts.clear();
        leaving.frozen = None;
        self.registry.put(&leaving).await?;
        // From here the record says that it is going, which keeps others away.
        drop((sharers, volume));
        self.settle_notes().await;
        if let Err(error) = connector.disconnect(self.host.as_ref(), &leaving, detach).await {
            if error.is_unknown() || record.state == AttachState::Detaching {
                return Err(error);
            }
            // It is as it was, for example because somebody has the device open: still usable.
            leaving.state = record.state;
            return Err(match self.registry.put(&leaving).await {
                Ok(()) => error,
                Err(undo) => with_undo(error, &undo),
            });
        }
        self.registry
            .remove(&leaving.publication)
            .await
            .map_err(|error| error.with_outcome(Outcome::Unknown))?;
        self.release_frozen(&leaving.publication);
        tracing::info!(volume.id = %leaving.volume, publication.id = %leaving.publication,
            "detached");
        Ok(())
    }

    /// What an attach was writing down when its caller gave up, or its process died, does not come, and
    /// does not stay, after the detach.
    async fn settle_notes(&self) {
        let files = self.host.files();
        if let Err(error) = files.settled(&files.run_dir()).await {
            tracing::warn!(%error, "a note of an attach that was cut off may stay behind");
        }
    }

    /// Refuses while anything, by whomever, shows the volume.
    async fn check_unmounted(&self, record: &AttachRecord) -> Result<()> {
        let Some(attached) = &record.attached else { return Ok(()) };
        let table = self.table().await?;
        let targets: Vec<PathBuf> =
            table.all_of(attached).iter().map(|entry| entry.target.clone()).collect();
        if targets.is_empty() { Ok(()) } else { Err(NodeError::StillMounted { targets }.into()) }
    }

    /// Refuses when what would be taken away is something else by now. What is gone may go.
    async fn check_right_device(&self, record: &AttachRecord, detach: &Detach) -> Result<()> {
        if record.attached.is_none() {
            return Ok(());
        }
        match self.lookup(record).await {
            Ok(Some(found)) => {
                let (id, path) = (found.identity(), found.path());
                Ok(check_identity(expected(record), id, path, Unknown::Refused)?)
            }
            Ok(None) => Ok(()),
            // With force a storage system that does not answer keeps nothing on this host; the
            // connector still refuses what it can see to be wrong.
            Err(_) if detach.force => Ok(()),
            Err(error) => Err(error),
        }
    }
}
