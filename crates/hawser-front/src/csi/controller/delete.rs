//! DeleteVolume.

use hawser_api::csi::v1::{DeleteVolumeRequest, DeleteVolumeResponse};
use hawser_core::Result;

use super::{ControllerService, by_id};
use crate::csi::answer::done;
use crate::csi::deadline::Deadline;
use crate::csi::error::required;
use crate::csi::wire;

/// Removes a volume, whoever made it. What is not there, or never could be, is fine.
pub(super) async fn delete(
    service: ControllerService,
    request: DeleteVolumeRequest,
    deadline: Deadline,
) -> Result<DeleteVolumeResponse> {
    required("volume_id", &request.volume_id)?;
    if let Ok(id) = wire::volume_id(&request.volume_id) {
        done(service.control.delete_volume(&by_id(&id), deadline.work).await?)?;
    }
    Ok(DeleteVolumeResponse {})
}
