//! ControllerExpandVolume.

use hawser_api::csi::v1::{ControllerExpandVolumeRequest, ControllerExpandVolumeResponse};
use hawser_core::volume::{Access, Volume};
use hawser_core::{ByteSize, Result};

use super::{ControllerService, by_id};
use crate::csi::answer::{done, supported};
use crate::csi::deadline::Deadline;
use crate::csi::error::{CsiError, required};
use crate::csi::wire::{Capability, Range, bytes, fits};

/// The coarsest unit of any storage system: whole gibibytes. What is larger by less was rounded.
const COARSEST: ByteSize = ByteSize::gib(1);

/// Makes a volume larger.
pub(super) async fn expand(
    service: ControllerService,
    request: ControllerExpandVolumeRequest,
    deadline: Deadline,
) -> Result<ControllerExpandVolumeResponse> {
    required("volume_id", &request.volume_id)?;
    if request.capacity_range.is_none() {
        return Err(CsiError::Missing { field: "capacity_range" }.into());
    }
    let range = Range::read(request.capacity_range)?;
    let wanted = request.volume_capability.map(Capability::read).transpose()?;
    let volume = service.known(&request.volume_id).await?;
    if let Some(why) = wanted.and_then(|wanted| fits(&volume, &wanted)) {
        return Err(CsiError::Unfit { volume: volume.id, why }.into());
    }
    let size = range.required.unwrap_or(volume.size);
    if let Some(limit) = range.limit.filter(|limit| volume.size > *limit && size <= volume.size) {
        return Err(CsiError::EmptyRange { required: volume.size, limit }.into());
    }
    let volume = if size > volume.size {
        let reply = service.control.expand_volume(&by_id(&volume.id), size, deadline.work).await;
        done(reply.map_err(supported)?)?.into_inner()
    } else {
        volume
    };
    Ok(ControllerExpandVolumeResponse {
        capacity_bytes: bytes(told(volume.size, size)),
        node_expansion_required: needs_node(&volume),
    })
}

/// The size that is told: what was asked for, where the storage only rounded it up.
fn told(there: ByteSize, asked: ByteSize) -> ByteSize {
    if there >= asked && there.saturating_sub(asked) < COARSEST { asked } else { there }
}

/// Whether a node has to look: a file system has to be grown, and a device that is attached has to
/// be read anew. The node makes sure of every layer.
fn needs_node(volume: &Volume) -> bool {
    match volume.access {
        Access::Folder => false,
        Access::Filesystem(_) => true,
        Access::Block => !volume.publications.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_only_rounded_up_is_told_as_asked() {
        let gib = ByteSize::gib;
        let odd = ByteSize::bytes(3 << 29);

        assert_eq!(told(gib(2), odd), odd);
        assert_eq!(told(gib(2), gib(2)), gib(2));
        assert_eq!(told(gib(9), gib(2)), gib(9));
    }
}
