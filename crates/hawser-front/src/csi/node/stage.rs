//! NodeStageVolume: the volume is brought to this host, made usable, and shown in its staging folder.

use std::path::{Path, PathBuf};

use hawser_api::csi::v1::{NodeStageVolumeRequest, NodeStageVolumeResponse};
use hawser_core::attach::{Attach, Attached, Detach};
use hawser_core::error::ResultExt;
use hawser_core::filesystem::{Filesystem, FormatState};
use hawser_core::id::{PublicationId, VolumeId};
use hawser_core::port::node::{AttachWork, FormatWork, MountWork};
use hawser_core::port::upstream::{Fact, Grant};
use hawser_core::{Error, Outcome, Result};
use tracing::warn;

use super::grant::{check_use, secrets};
use super::{Known, NodeService, is_staged};
use crate::csi::answer::{is_final, supported};
use crate::csi::context;
use crate::csi::deadline::HOST;
use crate::csi::error::{CsiError, required};
use crate::csi::flags::Flags;
use crate::csi::wire::{Capability, Use, volume_id};

/// Brings a volume to this host.
pub(super) async fn stage(
    service: NodeService,
    request: NodeStageVolumeRequest,
) -> Result<NodeStageVolumeResponse> {
    let secrets = secrets(request.secrets);
    required("volume_id", &request.volume_id)?;
    required("staging_target_path", &request.staging_target_path)?;
    let wanted = Capability::required("volume_capability", request.volume_capability)?;
    let staging = service.path("staging_target_path", &request.staging_target_path)?;
    let context = context::read(&request.publish_context)?;
    let volume = volume_id(&request.volume_id)?;
    let _turn = service.driver.busy.enter(volume.as_str())?;
    let mut grant = service.grant(&volume, context, wanted.mode.reads_only()).await?;
    grant.info.add_secrets(secrets);
    let records = service.records(&volume).await?;
    // Before anything is begun: what is refused here changes nothing, and so nothing is taken back.
    let flags = match flags_of(&volume, &grant, &wanted) {
        Ok(flags) => flags,
        Err(refused) => {
            if records.is_empty() {
                service.release(&volume).await?;
            }
            return Err(refused.into());
        }
    };
    let before = records.iter().find(|record| {
        record.publication == grant.publication && is_staged(record, &wanted.usage, &staging)
    });
    if before.is_some_and(|record| record.attach.mount_flags != flags.attach) {
        return Err(CsiError::StagedOtherwise { volume }.into());
    }
    let before = before.is_some();
    let job = Job { service, volume, grant, wanted, staging, flags, before };
    match job.run().await {
        Ok(()) => {
            job.service.driver.staged.keep(&job.volume, Known::from(&job.grant));
            Ok(NodeStageVolumeResponse {})
        }
        Err(error) => Err(job.undo(supported(error)).await),
    }
}

/// The options of a use that the volume bears.
fn flags_of(volume: &VolumeId, grant: &Grant, wanted: &Capability) -> Result<Flags, CsiError> {
    check_use(volume, grant.access, wanted)?;
    match &wanted.usage {
        Use::Block => Ok(Flags::default()),
        Use::Mount { flags, .. } => Flags::of(grant.access, flags),
    }
}

/// A volume on its way to this host, for a use that it bears.
struct Job {
    service: NodeService,
    volume: VolumeId,
    grant: Grant,
    wanted: Capability,
    staging: PathBuf,
    flags: Flags,
    /// It was staged before this call.
    before: bool,
}

impl Job {
    async fn run(&self) -> Result<()> {
        self.clear_stale().await?;
        let fact = Fact::Attached(self.attach().await?);
        // Before it is used: a device of another identity than the record's is refused there.
        self.service.report(&self.volume, &self.grant.publication, fact).await?;
        if let Some(inside) = &self.grant.filesystem {
            self.format(inside).await?;
        }
        match &self.wanted.usage {
            Use::Block => Ok(()),
            Use::Mount { group, .. } => self.mount(*group).await,
        }
    }

    /// Takes away what is left of a right that was taken back: its device may be dead, and the new
    /// one would be refused beside it. Whatever is still shown elsewhere is somebody's, and stays.
    async fn clear_stale(&self) -> Result<()> {
        for record in self.service.records(&self.volume).await? {
            let elsewhere = record.mounts.iter().any(|mount| mount.target != self.staging);
            if record.publication == self.grant.publication || elsewhere {
                continue;
            }
            warn!(publication.id = %record.publication, "an earlier right is still attached");
            self.service.node.unmount(&record.publication, &self.staging).await?;
            let detach = Detach { force: true, deadline: HOST, ..Detach::default() };
            self.service.node.detach(&record.publication, &detach).await?;
        }
        Ok(())
    }

    async fn attach(&self) -> Result<Attached> {
        let work = AttachWork {
            publication: self.grant.publication.clone(),
            volume: self.volume.clone(),
            info: self.grant.info.clone(),
            attach: Attach {
                deadline: HOST,
                read_only: self.grant.read_only,
                mount_flags: self.flags.attach.clone(),
                multipath: self.service.driver.settings.multipath,
                ..Attach::default()
            },
        };
        let attached = self.service.node.attach(&work).await;
        Ok(attached.context(|| format!("attaching volume {}", self.volume))?.into_inner())
    }

    /// Makes the file system of a volume that never had one: seen blank, recorded, made, recorded. A
    /// report that is not taken stops it here, because the record decides what may be made again.
    async fn format(&self, inside: &Filesystem) -> Result<()> {
        let publication = &self.grant.publication;
        let work = |state| FormatWork {
            publication: publication.clone(),
            fs: inside.kind,
            uuid: inside.uuid,
            state,
        };
        let context = || format!("formatting volume {}", self.volume);
        let (service, volume) = (&self.service, &self.volume);
        match inside.state {
            FormatState::Done => return Ok(()),
            FormatState::Never => {
                service.node.format(&work(FormatState::Never)).await.context(context)?;
                let told = service.tell(volume, publication, Fact::FormatBegins).await;
                told.context(|| format!("recording that volume {volume} is to be formatted"))?;
            }
            FormatState::Started => {}
        }
        service.node.format(&work(FormatState::Started)).await.context(context)?;
        let told = service.tell(volume, publication, Fact::Formatted).await;
        // mkfs has run; the same again makes it anew, because nothing was mounted yet.
        told.map_err(|error| error.with_outcome(Outcome::Unknown))
            .context(|| format!("recording that volume {volume} was formatted"))
    }

    async fn mount(&self, group: Option<u32>) -> Result<()> {
        let known = Known::from(&self.grant);
        let work = MountWork {
            publication: self.grant.publication.clone(),
            target: self.staging.clone(),
            read_only: self.grant.read_only,
            flags: self.flags.mount.clone(),
            filesystem: known.filesystem,
            raw: false,
            group,
        };
        let mounted = self.service.node.mount(&work).await;
        mounted.map(drop).context(|| format!("mounting volume {}", self.volume))
    }

    /// Takes back what was done before an error that the caller takes for the end of the matter: it
    /// will not unstage. What was staged before stays so.
    async fn undo(&self, error: Error) -> Error {
        if !is_final(&error) || self.before {
            return error;
        }
        match self.take_back().await {
            Ok(()) => error,
            Err(undo) => {
                let lines = [error.chain(), vec![format!("taking back: {}", undo.sentence())]];
                Error::from_remote(error.kind(), Outcome::Unknown, lines.concat())
            }
        }
    }

    async fn take_back(&self) -> Result<()> {
        let publication = &self.grant.publication;
        let records = self.service.records(&self.volume).await?;
        let ours = records.iter().find(|record| record.publication == *publication);
        let used = |path: &Path| path != self.staging;
        if ours.is_some_and(|record| record.mounts.iter().any(|mount| used(&mount.target))) {
            return Ok(());
        }
        if ours.is_some() {
            self.forget(publication).await?;
        }
        self.service.release(&self.volume).await
    }

    async fn forget(&self, publication: &PublicationId) -> Result<()> {
        self.service.node.unmount(publication, &self.staging).await?;
        let detach = Detach { deadline: HOST, ..Detach::default() };
        self.service.node.detach(publication, &detach).await?;
        self.service.report_gone(&self.volume, publication).await;
        Ok(())
    }
}
