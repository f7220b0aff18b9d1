//! NodePublishVolume: a staged volume is shown to a pod.

use std::path::Path;

use hawser_api::csi::v1::{NodePublishVolumeRequest, NodePublishVolumeResponse};
use hawser_core::Result;
use hawser_core::attach::AttachRecord;
use hawser_core::error::ResultExt;
use hawser_core::id::VolumeId;
use hawser_core::port::node::MountWork;

use super::grant::{check_use, secrets};
use super::{NodeService, is_staged};
use crate::csi::answer::supported;
use crate::csi::context::{self, Context};
use crate::csi::error::{CsiError, required};
use crate::csi::flags::Flags;
use crate::csi::wire::{Capability, Mode, Use, volume_id};

/// Shows a staged volume at a target: a second mount of the same device, not one of the staging
/// folder, so that each has options of its own.
pub(super) async fn publish(
    service: NodeService,
    request: NodePublishVolumeRequest,
) -> Result<NodePublishVolumeResponse> {
    // Nothing here needs them; taken into custody all the same.
    drop(secrets(request.secrets));
    required("volume_id", &request.volume_id)?;
    required("target_path", &request.target_path)?;
    let wanted = Capability::required("volume_capability", request.volume_capability)?;
    if request.staging_target_path.is_empty() {
        return Err(CsiError::NoStagingPath.into());
    }
    let staging = service.path("staging_target_path", &request.staging_target_path)?;
    let target = service.path("target_path", &request.target_path)?;
    let context = context::read(&request.publish_context)?;
    let volume = volume_id(&request.volume_id)?;
    let _turn = service.driver.busy.enter(volume.as_str())?;
    let record = staged(&service, &volume, context.as_ref(), &wanted, &staging).await?;
    let known = service.known(&volume, context.as_ref()).await?;
    check_use(&volume, known.access, &wanted)?;
    check_alone(&record, &wanted, &staging, &target)?;
    let (flags, group) = match &wanted.usage {
        Use::Block => (Vec::new(), None),
        Use::Mount { flags, group, .. } => {
            let flags = Flags::of(known.access, flags)?;
            // Those that came with the folder cannot be given to one pod alone.
            if flags.attach.iter().any(|flag| !record.attach.mount_flags.contains(flag)) {
                return Err(CsiError::StagedOtherwise { volume }.into());
            }
            (flags.mount, *group)
        }
    };
    let work = MountWork {
        publication: record.publication,
        target,
        read_only: request.readonly || record.attach.read_only || wanted.mode.reads_only(),
        flags,
        filesystem: known.filesystem,
        raw: wanted.usage == Use::Block,
        group,
    };
    let shown = service.node.mount(&work).await.map_err(supported);
    shown.context(|| format!("publishing volume {volume}"))?;
    Ok(NodePublishVolumeResponse {})
}

/// The attachment of a staged volume: by the right that the context names, where there is one.
async fn staged(
    service: &NodeService,
    volume: &VolumeId,
    context: Option<&Context>,
    wanted: &Capability,
    staging: &Path,
) -> Result<AttachRecord> {
    let is_it = |record: &AttachRecord| {
        let right = context.is_none_or(|context| context.publication == record.publication);
        right && is_staged(record, &wanted.usage, staging)
    };
    let found = service.records(volume).await?.into_iter().find(is_it);
    found.ok_or_else(|| CsiError::NotStaged { volume: volume.clone() }.into())
}

/// A volume for one pod is not shown to two. Kubernetes lets several pods of a node share any other,
/// so nothing else is refused here.
fn check_alone(
    record: &AttachRecord,
    wanted: &Capability,
    staging: &Path,
    target: &Path,
) -> Result<(), CsiError> {
    if wanted.mode != Mode::OnePod {
        return Ok(());
    }
    let other =
        record.mounts.iter().find(|there| there.target != *staging && there.target != *target);
    match other {
        None => Ok(()),
        Some(there) => Err(CsiError::PublishedElsewhere {
            volume: record.volume.clone(),
            target: there.target.clone(),
        }),
    }
}
