//! ListVolumes and ControllerGetVolume.

use hawser_api::csi::v1::{
    ControllerGetVolumeRequest, ControllerGetVolumeResponse, ListVolumesRequest,
    ListVolumesResponse, controller_get_volume_response, list_volumes_response,
};
use hawser_core::Result;
use hawser_core::class::Ability;
use hawser_core::name::ClassName;
use hawser_core::page::PageRequest;
use hawser_core::port::control::VolumeFilter;
use hawser_core::volume::Volume;

use super::ControllerService;
use crate::csi::error::required;
use crate::csi::pages::Wanted;
use crate::csi::wire;

/// Volumes, oldest first, with the nodes that have them.
pub(super) async fn list(
    service: &ControllerService,
    request: ListVolumesRequest,
) -> Result<ListVolumesResponse> {
    let wanted = Wanted::read(request.max_entries, &request.starting_token)?;
    let (volumes, next) = volumes(service, wanted).await?;
    let entries = volumes.iter().map(|volume| list_volumes_response::Entry {
        volume: Some(wire::volume(volume)),
        status: Some(list_volumes_response::VolumeStatus {
            published_node_ids: published(service, volume),
        }),
    });
    Ok(ListVolumesResponse { entries: entries.collect(), next_token: next.unwrap_or_default() })
}

/// The volumes of this driver, in pages.
pub(super) async fn volumes(
    service: &ControllerService,
    wanted: Wanted,
) -> Result<(Vec<Volume>, Option<String>)> {
    let (filter, ours) = (VolumeFilter::default(), classes(service).await?);
    let list = |page: PageRequest| {
        let filter = &filter;
        async move { service.control.list_volumes(filter, &page).await }
    };
    let keep = |volume: &Volume| {
        wire::listed(volume) && ours.as_ref().is_none_or(|ours| ours.contains(&volume.class))
    };
    wanted.collect(list, keep).await
}

/// The classes whose volumes this driver lists; all of them when `None`.
async fn classes(service: &ControllerService) -> Result<Option<Vec<ClassName>>> {
    if !service.is_local() {
        return Ok(None);
    }
    let classes = service.control.list_classes().await?;
    let on_nodes = classes.into_iter().filter(|c| c.abilities.contains(&Ability::Placement));
    Ok(Some(on_nodes.map(|class| class.name).collect()))
}

/// The nodes that may use a volume; only told by the driver that publishes.
fn published(service: &ControllerService, volume: &Volume) -> Vec<String> {
    if service.is_local() {
        return Vec::new();
    }
    volume.publications.iter().map(|publication| publication.node.to_string()).collect()
}

/// One volume.
pub(super) async fn get(
    service: &ControllerService,
    request: ControllerGetVolumeRequest,
) -> Result<ControllerGetVolumeResponse> {
    required("volume_id", &request.volume_id)?;
    let volume = service.known(&request.volume_id).await?;
    Ok(ControllerGetVolumeResponse {
        volume: Some(wire::volume(&volume)),
        status: Some(controller_get_volume_response::VolumeStatus {
            published_node_ids: published(service, &volume),
        }),
    })
}
