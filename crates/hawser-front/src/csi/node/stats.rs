//! NodeGetVolumeStats.

use std::path::Path;

use hawser_api::csi::v1::volume_usage::Unit;
use hawser_api::csi::v1::{NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse, VolumeUsage};
use hawser_core::port::host::FsUsage;
use hawser_core::{ByteSize, Result};

use super::NodeService;
use crate::csi::error::required;
use crate::csi::wire::{bytes, volume_id};

/// How full a volume is. Whether it is there is asked before anything else of the path.
pub(super) async fn get(
    service: &NodeService,
    request: NodeGetVolumeStatsRequest,
) -> Result<NodeGetVolumeStatsResponse> {
    required("volume_id", &request.volume_id)?;
    required("volume_path", &request.volume_path)?;
    let volume = volume_id(&request.volume_id)?;
    let record = service.record_at(&volume, &request.volume_path).await?;
    let path = Path::new(&request.volume_path);
    let usage = service.node.usage(&record.publication, path).await?;
    Ok(NodeGetVolumeStatsResponse { usage: told(&usage) })
}

/// Of a device only its size is known; a file system without a limit of files tells none.
fn told(usage: &FsUsage) -> Vec<VolumeUsage> {
    // No file system is without anything used.
    let device = usage.files == 0 && usage.used == ByteSize::ZERO;
    let mut told = vec![VolumeUsage {
        available: if device { 0 } else { bytes(usage.available) },
        total: bytes(usage.total),
        used: bytes(usage.used),
        unit: Unit::Bytes as i32,
    }];
    if usage.files > 0 {
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        told.push(VolumeUsage {
            available: number(usage.files_free),
            total: number(usage.files),
            used: number(usage.files.saturating_sub(usage.files_free)),
            unit: Unit::Inodes as i32,
        });
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_told_where_there_is_a_limit() {
        let device = FsUsage {
            total: ByteSize::gib(1),
            available: ByteSize::gib(1),
            used: ByteSize::ZERO,
            files: 0,
            files_free: 0,
        };
        let mounted = FsUsage { used: ByteSize::mib(1), files: 10, files_free: 4, ..device };

        let [size] = told(&device)[..] else { panic!("bytes alone") };
        assert_eq!((size.total, size.available, size.used), (1 << 30, 0, 0));
        let [_, inodes] = told(&mounted)[..] else { panic!("bytes and inodes") };
        assert_eq!((inodes.total, inodes.available, inodes.used), (10, 4, 6));
    }
}
