//! ControllerGetVolumeHealth and ControllerListVolumeHealth, new in 1.13.

use hawser_api::csi::v1::{
    ControllerGetVolumeHealthRequest, ControllerGetVolumeHealthResponse,
    ControllerListVolumeHealthRequest, ControllerListVolumeHealthResponse, VolumeHealth,
};
use hawser_core::{Kind, Result};

use super::{ControllerService, by_id, list as volumes};
use crate::csi::error::required;
use crate::csi::node::health_entries;
use crate::csi::pages::Wanted;

/// How many volumes one call asks about: each may be a call of its storage system.
const LOOKED_AT: i32 = 200;

/// Whether one volume works.
pub(super) async fn get(
    service: &ControllerService,
    request: ControllerGetVolumeHealthRequest,
) -> Result<ControllerGetVolumeHealthResponse> {
    required("volume_id", &request.volume_id)?;
    let volume = service.known(&request.volume_id).await?;
    let health = service.control.volume_health(&by_id(&volume.id)).await?;
    let volume_health =
        VolumeHealth { volume_id: volume.id.to_string(), health_statuses: health_entries(&health) };
    Ok(ControllerGetVolumeHealthResponse { volume_health: Some(volume_health) })
}

/// The volumes that do not work. A page may have fewer than were asked for, and a token all the same.
pub(super) async fn list(
    service: &ControllerService,
    request: ControllerListVolumeHealthRequest,
) -> Result<ControllerListVolumeHealthResponse> {
    // Refuses what is not a number of entries.
    Wanted::read(request.max_entries, "")?;
    let most = if request.max_entries == 0 { LOOKED_AT } else { request.max_entries };
    let wanted = Wanted::read(most.min(LOOKED_AT), &request.starting_token)?;
    let (found, next) = volumes::volumes(service, wanted).await?;
    let mut entries = Vec::new();
    for volume in found {
        let health = match service.control.volume_health(&by_id(&volume.id)).await {
            Ok(health) => health,
            // Deleted meanwhile.
            Err(error) if error.kind() == Kind::NotFound => continue,
            Err(error) => hawser_core::attach::Health::bad(error.sentence()),
        };
        let health_statuses = health_entries(&health);
        if !health_statuses.is_empty() {
            entries.push(VolumeHealth { volume_id: volume.id.to_string(), health_statuses });
        }
    }
    Ok(ControllerListVolumeHealthResponse { entries, next_token: next.unwrap_or_default() })
}
