//! GetCapacity.

use hawser_api::csi::v1::{GetCapacityRequest, GetCapacityResponse, Topology};
use hawser_core::class::{Ability, Class};
use hawser_core::{Kind, Result};

use super::ControllerService;
use crate::csi::wire::{self, Parameters, bytes};

/// Room for new volumes. What cannot be made here has none; that is an answer, not an error.
pub(super) async fn get(
    service: &ControllerService,
    request: GetCapacityRequest,
) -> Result<GetCapacityResponse> {
    let parameters = Parameters::read(request.parameters);
    let Ok(class) = service.class(parameters.class.as_deref()).await? else {
        return Ok(GetCapacityResponse::default());
    };
    let capabilities = request.volume_capabilities;
    let makes = capabilities.is_empty() || wire::of_many(capabilities).is_ok();
    if !makes || service.check_driver(&class).is_err() {
        return Ok(GetCapacityResponse::default());
    }
    room(service, &class, request.accessible_topology.as_ref()).await
}

async fn room(
    service: &ControllerService,
    class: &Class,
    topology: Option<&Topology>,
) -> Result<GetCapacityResponse> {
    let place = match topology.map(wire::place) {
        None => None,
        Some(Ok(place)) => Some(place),
        Some(Err(_)) => return Ok(GetCapacityResponse::default()),
    };
    // A class without places is reached from everywhere.
    let placed = class.abilities.contains(&Ability::Placement);
    let place = place.filter(|place| placed && !place.pairs().is_empty());
    match service.control.capacity(&class.name, place.as_ref()).await {
        Ok(room) => Ok(GetCapacityResponse {
            available_capacity: bytes(room.available),
            maximum_volume_size: Some(bytes(room.largest_volume)),
            minimum_volume_size: None,
        }),
        // A class that cannot tell refuses when it is full; 0 would keep every pod away from it.
        Err(error) if error.kind() == Kind::Unsupported => Ok(GetCapacityResponse {
            available_capacity: i64::MAX,
            ..GetCapacityResponse::default()
        }),
        Err(error) if error.kind() == Kind::NotFound => Ok(GetCapacityResponse::default()),
        Err(error) => Err(error),
    }
}
