//! NodeUnpublishVolume: a volume is no longer shown to a pod.

use hawser_api::csi::v1::{NodeUnpublishVolumeRequest, NodeUnpublishVolumeResponse};
use hawser_core::Result;
use hawser_core::error::ResultExt;

use super::NodeService;
use crate::csi::error::required;
use crate::csi::paths;
use crate::csi::wire::volume_id;

/// Takes a volume from a target, and the target away. What is not there, or never could be, is fine.
pub(super) async fn unpublish(
    service: NodeService,
    request: NodeUnpublishVolumeRequest,
) -> Result<NodeUnpublishVolumeResponse> {
    required("volume_id", &request.volume_id)?;
    required("target_path", &request.target_path)?;
    let target = service.path("target_path", &request.target_path)?;
    let Ok(volume) = volume_id(&request.volume_id) else {
        return Ok(NodeUnpublishVolumeResponse {});
    };
    let _turn = service.driver.busy.enter(volume.as_str())?;
    for record in service.records(&volume).await? {
        let gone = service.node.unmount(&record.publication, &target).await;
        gone.context(|| format!("unpublishing volume {volume}"))?;
    }
    paths::remove_leftover(&target).await;
    Ok(NodeUnpublishVolumeResponse {})
}
