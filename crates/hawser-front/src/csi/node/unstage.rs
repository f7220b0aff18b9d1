//! NodeUnstageVolume: the volume is taken from this host.

use std::path::Path;

use hawser_api::csi::v1::{NodeUnstageVolumeRequest, NodeUnstageVolumeResponse};
use hawser_core::attach::{AttachRecord, Detach};
use hawser_core::error::ResultExt;
use hawser_core::{Reason, Result};
use tracing::warn;

use super::NodeService;
use crate::csi::deadline::HOST;
use crate::csi::error::required;
use crate::csi::wire::volume_id;

/// Takes a volume from this host. What is not here, or never could be, is fine.
pub(super) async fn unstage(
    service: NodeService,
    request: NodeUnstageVolumeRequest,
) -> Result<NodeUnstageVolumeResponse> {
    required("volume_id", &request.volume_id)?;
    required("staging_target_path", &request.staging_target_path)?;
    let staging = service.path("staging_target_path", &request.staging_target_path)?;
    let Ok(volume) = volume_id(&request.volume_id) else {
        return Ok(NodeUnstageVolumeResponse {});
    };
    let _turn = service.driver.busy.enter(volume.as_str())?;
    let detach = Detach { deadline: HOST, ..Detach::default() };
    for record in service.records(&volume).await? {
        take_away(&service, &record, &staging, &detach)
            .await
            .context(|| format!("unstaging volume {volume}"))?;
        service.report_gone(&volume, &record.publication).await;
    }
    // Also where nothing is attached: an earlier call may have come so far and no further.
    service.release(&volume).await?;
    service.driver.staged.forget(&volume);
    Ok(NodeUnstageVolumeResponse {})
}

/// Unmounts and detaches. Data that can no longer be written out is lost already: the device goes all
/// the same, because a device that hangs around is worse.
async fn take_away(
    service: &NodeService,
    record: &AttachRecord,
    staging: &Path,
    detach: &Detach,
) -> Result<()> {
    service.node.unmount(&record.publication, staging).await?;
    match service.node.detach(&record.publication, detach).await {
        Ok(_) => Ok(()),
        Err(error) if error.reason() == Some(Reason::FlushFailed) => {
            warn!(reason = error.sentence(), "what was cached of the volume is lost");
            let forced = Detach { force: true, ..detach.clone() };
            let gone = service.node.detach(&record.publication, &forced).await;
            match gone {
                Err(error) if error.reason() == Some(Reason::DataLost) => Ok(()),
                gone => gone.map(drop),
            }
        }
        Err(error) => Err(error),
    }
}
