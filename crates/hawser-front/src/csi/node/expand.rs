//! NodeExpandVolume: host and file system see a larger volume.

use std::path::Path;

use hawser_api::csi::v1::{NodeExpandVolumeRequest, NodeExpandVolumeResponse};
use hawser_core::attach::AttachRecord;
use hawser_core::error::ResultExt;
use hawser_core::id::VolumeId;
use hawser_core::{ByteSize, Result};

use super::grant::secrets;
use super::{NodeService, shows};
use crate::csi::answer::supported;
use crate::csi::error::{CsiError, cut, required};
use crate::csi::wire::{Capability, Range, Use, bytes, volume_id};

/// Makes every layer of a volume on this host as large as its storage, at least as large as is asked
/// for. Without a wish, whatever the device has by now is used.
pub(super) async fn expand(
    service: NodeService,
    request: NodeExpandVolumeRequest,
) -> Result<NodeExpandVolumeResponse> {
    drop(secrets(request.secrets));
    required("volume_id", &request.volume_id)?;
    required("volume_path", &request.volume_path)?;
    let volume = volume_id(&request.volume_id)?;
    let wanted = request.volume_capability.map(Capability::read).transpose()?;
    let block = wanted.is_some_and(|wanted| wanted.usage == Use::Block);
    let paths = [request.volume_path.as_str(), request.staging_target_path.as_str()];
    let record = find(&service, &volume, paths, block).await?;
    let range = Range::read(request.capacity_range)?;
    let _turn = service.driver.busy.enter(volume.as_str())?;
    let size = range.required.unwrap_or(ByteSize::ZERO);
    let there = service.node.extend(&record.publication, size).await.map_err(supported);
    let there = there.context(|| format!("expanding volume {volume} on this node"))?;
    Ok(NodeExpandVolumeResponse { capacity_bytes: bytes(there) })
}

/// The attachment at one of the paths. A kubelet names the device of a volume that is not mounted by
/// a path of its own, so that such a volume is found by its id alone.
async fn find(
    service: &NodeService,
    volume: &VolumeId,
    paths: [&str; 2],
    block: bool,
) -> Result<AttachRecord> {
    let is_it = |record: &AttachRecord| {
        let device = record.attached.as_ref().map(|attached| attached.path());
        let at = |path: &&str| shows(record, path) || device == Some(Path::new(path));
        (block && record.attached.is_some()) || paths.iter().any(at)
    };
    let found = service.records(volume).await?.into_iter().find(is_it);
    found.ok_or_else(|| CsiError::NotThere { volume: volume.clone(), path: cut(paths[0]) }.into())
}
