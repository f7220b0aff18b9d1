//! ControllerModifyVolume.

use hawser_api::csi::v1::{ControllerModifyVolumeRequest, ControllerModifyVolumeResponse};
use hawser_core::Result;

use super::{ControllerService, by_id};
use crate::csi::answer::{done, supported};
use crate::csi::deadline::Deadline;
use crate::csi::error::{CsiError, required};
use crate::csi::wire;

/// Sets labels; those that are not named stay. Nothing is changed when one cannot be.
pub(super) async fn modify(
    service: ControllerService,
    request: ControllerModifyVolumeRequest,
    deadline: Deadline,
) -> Result<ControllerModifyVolumeResponse> {
    required("volume_id", &request.volume_id)?;
    if request.mutable_parameters.is_empty() {
        return Err(CsiError::Missing { field: "mutable_parameters" }.into());
    }
    let volume = service.known(&request.volume_id).await?;
    let labels = wire::mutable_labels(request.mutable_parameters)?;
    if !labels.is_empty() {
        let patch = labels.iter().map(|(key, value)| (key.to_owned(), Some(value.to_owned())));
        let patch = patch.collect();
        let reply = service.control.label_volume(&by_id(&volume.id), patch, deadline.work).await;
        done(reply.map_err(supported)?)?;
    }
    Ok(ControllerModifyVolumeResponse {})
}
