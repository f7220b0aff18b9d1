//! Snapshots and groups of them.

use hawser_api::csi::v1::{self, VolumeGroupSnapshot};
use hawser_core::Timestamp;
use hawser_core::group::Group;
use hawser_core::snapshot::{Snapshot, SnapshotState};

use super::bytes;

/// A snapshot as the protocol tells it.
pub(in crate::csi) fn snapshot(snapshot: &Snapshot) -> v1::Snapshot {
    v1::Snapshot {
        size_bytes: bytes(snapshot.size),
        snapshot_id: snapshot.id.to_string(),
        source_volume_id: snapshot.volume.to_string(),
        creation_time: Some(timestamp(snapshot.created)),
        ready_to_use: snapshot.state == SnapshotState::Ready,
        group_snapshot_id: snapshot.group.as_ref().map_or_else(String::new, ToString::to_string),
        // Only told by drivers that say they do.
        accessible_topology: Vec::new(),
    }
}

/// A group as the protocol tells it.
pub(in crate::csi) fn group(group: &Group) -> VolumeGroupSnapshot {
    VolumeGroupSnapshot {
        group_snapshot_id: group.id.to_string(),
        snapshots: group.snapshots.iter().map(snapshot).collect(),
        creation_time: Some(timestamp(group.created)),
        ready_to_use: group.snapshots.iter().all(|one| one.state == SnapshotState::Ready),
    }
}

/// A moment.
fn timestamp(at: Timestamp) -> prost_types::Timestamp {
    prost_types::Timestamp { seconds: at.as_second(), nanos: at.subsec_nanosecond() }
}
