//! ValidateVolumeCapabilities.

use hawser_api::csi::v1::validate_volume_capabilities_response::Confirmed;
use hawser_api::csi::v1::volume_capability::AccessType;
use hawser_api::csi::v1::{
    ValidateVolumeCapabilitiesRequest, ValidateVolumeCapabilitiesResponse, VolumeCapability,
};
use hawser_core::Result;
use hawser_core::filesystem::FsKind;

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
    let mut wanted = request.volume_capabilities.clone();
    let unknown = take_unknown_fs(&mut wanted);
    let wanted = wanted.into_iter().map(Capability::read).collect::<Result<Vec<_>>>()?;
    let volume = service.known(&request.volume_id).await?;
    if let Some(message) = unknown.or_else(|| wanted.iter().find_map(|one| fits(&volume, one))) {
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

/// Takes out file systems that this driver does not know, and says which was the first. The protocol
/// leaves the names of file systems open, so one is a use that the volume does not have, which is what
/// was asked; what the protocol itself does not know stays INVALID_ARGUMENT. csi-sanity asks for neither.
fn take_unknown_fs(wanted: &mut [VolumeCapability]) -> Option<String> {
    let mut first = None;
    for one in wanted {
        let Some(AccessType::Mount(mount)) = &mut one.access_type else { continue };
        if let Err(unknown) = mount.fs_type.parse::<FsKind>()
            && !mount.fs_type.is_empty()
        {
            first.get_or_insert_with(|| unknown.to_string());
            mount.fs_type.clear();
        }
    }
    first
}
