//! ControllerPublishVolume and ControllerUnpublishVolume.

use hawser_api::csi::v1::{
    ControllerPublishVolumeRequest, ControllerPublishVolumeResponse,
    ControllerUnpublishVolumeRequest, ControllerUnpublishVolumeResponse,
};
use hawser_core::id::VolumeId;
use hawser_core::name::NodeId;
use hawser_core::port::control::Wait;
use hawser_core::publication::PublishRequest;
use hawser_core::{Error, Kind, Result};

use super::{ControllerService, by_id};
use crate::csi::answer::{done, is_final, supported};
use crate::csi::context::Context;
use crate::csi::deadline::Deadline;
use crate::csi::error::{CsiError, cut, required};
use crate::csi::wire::{Capability, fits, volume_id};

/// Gives a node the right to use a volume.
pub(super) async fn publish(
    service: ControllerService,
    request: ControllerPublishVolumeRequest,
    deadline: Deadline,
) -> Result<ControllerPublishVolumeResponse> {
    required("volume_id", &request.volume_id)?;
    required("node_id", &request.node_id)?;
    let wanted = Capability::required("volume_capability", request.volume_capability)?;
    let volume = service.known(&request.volume_id).await?;
    let node = node_id(&request.node_id)?;
    if let Some(why) = fits(&volume, &wanted) {
        return Err(CsiError::Unfit { volume: volume.id, why }.into());
    }
    let read_only = request.readonly || wanted.mode.reads_only();
    let most = service.driver.settings.max_volumes_per_node;
    let crowd = &service.driver.crowd;
    let seat = crowd.enter(service.control.as_ref(), &node, &volume.id, most).await?;
    let single_node = wanted.mode.single_node();
    let request = PublishRequest { node: node.clone(), read_only, node_led: true, single_node };
    let reply = service.control.publish(&by_id(&volume.id), request, deadline.work).await;
    let change = match reply.and_then(done) {
        Ok(change) => change,
        Err(error) => {
            if !is_final(&error) {
                seat.keep();
            }
            return Err(supported(error));
        }
    };
    seat.keep();
    let publish_context = Context::of(&volume, change.get()).write();
    Ok(ControllerPublishVolumeResponse { publish_context })
}

/// A text that is no id names no node that exists.
fn node_id(text: &str) -> Result<NodeId, CsiError> {
    text.parse().map_err(|_| CsiError::Unknown { what: "node", id: cut(text) })
}

/// Takes the right back from one node, or from all. What is gone has no right.
pub(super) async fn unpublish(
    service: ControllerService,
    request: ControllerUnpublishVolumeRequest,
    deadline: Deadline,
) -> Result<ControllerUnpublishVolumeResponse> {
    required("volume_id", &request.volume_id)?;
    let Ok(volume) = volume_id(&request.volume_id) else {
        return Ok(ControllerUnpublishVolumeResponse {});
    };
    let nodes = match request.node_id.as_str() {
        "" => match service.control.get_volume(&by_id(&volume)).await {
            Ok(known) => known.publications.into_iter().map(|there| there.node).collect(),
            Err(error) if error.kind() == Kind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        },
        text => node_id(text).into_iter().collect(),
    };
    for node in nodes {
        revoke(&service, &volume, &node, deadline.work).await?;
    }
    Ok(ControllerUnpublishVolumeResponse {})
}

async fn revoke(
    service: &ControllerService,
    volume: &VolumeId,
    node: &NodeId,
    wait: Wait,
) -> Result<()> {
    let reply = service.control.unpublish(&by_id(volume), node, wait).await;
    match reply.and_then(done) {
        Ok(_) => {}
        Err(error) if error.kind() == Kind::NotFound && !error.is_unknown() => {
            refuse_unless_gone(service, volume, error).await?;
        }
        Err(error) => return Err(error),
    }
    service.driver.crowd.leave(node, volume);
    Ok(())
}

/// What was not found may also be the class, the node, or something of the storage: then the volume
/// is there, and the right stands.
async fn refuse_unless_gone(
    service: &ControllerService,
    volume: &VolumeId,
    error: Error,
) -> Result<()> {
    match service.control.get_volume(&by_id(volume)).await {
        Err(gone) if gone.kind() == Kind::NotFound => Ok(()),
        Err(other) => Err(other),
        // As not found, it would say that there is no such volume.
        Ok(_) => Err(Error::from_remote(Kind::Precondition, error.outcome(), error.chain())),
    }
}
