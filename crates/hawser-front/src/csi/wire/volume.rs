//! Volumes.

use std::collections::BTreeMap;

use hawser_api::csi::v1::volume_content_source::{SnapshotSource, Type, VolumeSource};
use hawser_api::csi::v1::{self, VolumeContentSource};
use hawser_core::volume::{Source, Volume, VolumeState};

use super::{bytes, topology};

/// A volume as the protocol tells it. The context is fixed for the volume's life.
pub(in crate::csi) fn volume(volume: &Volume) -> v1::Volume {
    v1::Volume {
        capacity_bytes: bytes(volume.size),
        volume_id: volume.id.to_string(),
        volume_context: BTreeMap::from([("class".to_owned(), volume.class.to_string())]),
        content_source: volume.source.as_ref().map(content_source),
        accessible_topology: volume.place.iter().map(topology).collect(),
    }
}

/// What a volume was made from.
fn content_source(source: &Source) -> VolumeContentSource {
    let source = match source {
        Source::Snapshot(id) => Type::Snapshot(SnapshotSource { snapshot_id: id.to_string() }),
        Source::Volume(id) => Type::Volume(VolumeSource { volume_id: id.to_string() }),
    };
    VolumeContentSource { r#type: Some(source) }
}

/// True when a list has the volume: one that is being made is not there for anybody yet.
pub(in crate::csi) fn listed(volume: &Volume) -> bool {
    match volume.state {
        VolumeState::Creating => false,
        VolumeState::Ready | VolumeState::Deleting => true,
    }
}
