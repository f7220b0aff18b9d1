//! ValidateVolumeCapabilities.

use hawser_api::csi::v1::validate_volume_capabilities_response::Confirmed;
use hawser_api::csi::v1::{ValidateVolumeCapabilitiesRequest, ValidateVolumeCapabilitiesResponse};
use hawser_core::Result;

use super::ControllerService;
use crate::csi::error::{CsiError, required};
use crate::csi::wire::{Capability, fits};

/// Says whether a volume can be used like this; that it cannot is an answer, not an error.
pub(super) async fn validate(
    service: &ControllerService,
    request: ValidateVolumeCapabilitiesRequest,
) -> Result<ValidateVolumeCapabilitiesResponse> {
    required("volume_id", &request.volume_id)?;
    if request.volume_capabilities.is_empty() {
        return Err(CsiError::Missing { field: "volume_capabilities" }.into());
    }
    let wanted = request
        .volume_capabilities
        .iter()
        .cloned()
        .map(Capability::read)
        .collect::<Result<Vec<_>>>()?;
    let volume = service.known(&request.volume_id).await?;
    if let Some(message) = wanted.iter().find_map(|one| fits(&volume, one)) {
        return Ok(ValidateVolumeCapabilitiesResponse { confirmed: None, message });
    }
    let confirmed = Confirmed {
        volume_context: request.volume_context,
        volume_capabilities: request.volume_capabilities,
        parameters: request.parameters,
        mutable_parameters: request.mutable_parameters,
    };
    Ok(ValidateVolumeCapabilitiesResponse { confirmed: Some(confirmed), message: String::new() })
}
