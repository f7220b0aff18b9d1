//! NodeGetVolumeHealth and NodeGetStorageHealth, new in 1.13.

use hawser_api::csi::v1::node_get_storage_health_response::StorageBackendHealth;
use hawser_api::csi::v1::volume_health::VolumeHealthEntry;
use hawser_api::csi::v1::{
    NodeGetStorageHealthResponse, NodeGetVolumeHealthRequest, NodeGetVolumeHealthResponse,
    StorageHealthErrorType, VolumeHealth, VolumeHealthErrorType,
};
use hawser_core::Result;
use hawser_core::attach::Health;

use super::NodeService;
use crate::csi::error::{CsiError, cut, required};
use crate::csi::wire::volume_id;

/// What a machine reads of a volume that does not work; what is wrong stands in the message.
const REASON: &str = "Unhealthy";
/// What a machine reads of storage whose volumes do not work here.
const STORAGE_REASON: &str = "AttachmentsUnhealthy";

/// What is wrong, as the protocol tells it; nothing when nothing is. Whether it can still be read is
/// not known, so the milder word is told.
pub(in crate::csi) fn health_entries(health: &Health) -> Vec<VolumeHealthEntry> {
    if health.healthy {
        return Vec::new();
    }
    vec![VolumeHealthEntry {
        status: VolumeHealthErrorType::Degraded as i32,
        reason: REASON.to_owned(),
        message: health.message.clone(),
    }]
}

/// Whether a volume works here.
pub(super) async fn volume(
    service: &NodeService,
    request: NodeGetVolumeHealthRequest,
) -> Result<NodeGetVolumeHealthResponse> {
    required("volume_id", &request.volume_id)?;
    let volume = volume_id(&request.volume_id)?;
    let records = service.records(&volume).await?;
    let Some(record) = records.first() else {
        let id = cut(&request.volume_id);
        return Err(CsiError::Unknown { what: "volume", id }.into());
    };
    let health = service.node.health(&record.publication).await?;
    let volume_health =
        VolumeHealth { volume_id: volume.to_string(), health_statuses: health_entries(&health) };
    Ok(NodeGetVolumeHealthResponse { volume_health: Some(volume_health) })
}

/// Whether storage works from here: as well as what is attached of it.
pub(super) async fn storage(service: &NodeService) -> Result<NodeGetStorageHealthResponse> {
    let (mut all, mut bad) = (0usize, Vec::new());
    for record in service.node.attachments().await? {
        all += 1;
        let health = match service.node.health(&record.publication).await {
            Ok(health) => health,
            Err(error) => Health::bad(error.sentence()),
        };
        if !health.healthy {
            bad.push(format!("{}: {}", record.volume, health.message));
        }
    }
    let Some(first) = bad.first() else { return Ok(NodeGetStorageHealthResponse::default()) };
    let status = if bad.len() == all {
        StorageHealthErrorType::StorageUnreachable
    } else {
        StorageHealthErrorType::StorageDegraded
    };
    let health = StorageBackendHealth {
        status: status as i32,
        reason: STORAGE_REASON.to_owned(),
        message: format!("{} of {all} volumes do not work here, such as {first}", bad.len()),
        volume_capability: None,
    };
    Ok(NodeGetStorageHealthResponse { backend_health: vec![health] })
}
