//! A snapshot: a point in time of a volume, kept by its provider.

use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::filesystem::Filesystem;
use crate::id::{GroupId, SnapshotId, VolumeId};
use crate::name::{Alias, ClassName, Labels};
use crate::place::Place;
use crate::size::ByteSize;
use crate::volume::Access;

/// A snapshot as callers see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Its id.
    pub id: SnapshotId,
    /// What it was called by whoever made it.
    pub alias: Alias,
    /// The volume it was taken of; that volume may be gone.
    pub volume: VolumeId,
    /// The class it lives in.
    pub class: ClassName,
    /// The size of the volume at that time; the smallest size of a restored volume.
    pub size: ByteSize,
    /// What the volume was used as.
    pub access: Access,
    /// What was inside.
    pub filesystem: Option<Filesystem>,
    /// The provider's own name for it.
    pub handle: String,
    /// Free pairs.
    pub labels: Labels,
    /// Where the storage behind it is; everywhere when `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    /// The group it was taken with, and goes with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupId>,
    /// Where it is in its life.
    pub state: SnapshotState,
    /// When it was asked for.
    pub created: Timestamp,
}

/// Where a snapshot is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SnapshotState {
    /// Being taken.
    Creating,
    /// Can be restored.
    Ready,
    /// Being removed.
    Deleting,
}

/// What a caller wants a snapshot to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotRequest {
    /// What to call it.
    pub alias: Alias,
    /// Of which volume.
    pub volume: crate::volume::VolumeRef,
    /// Free pairs.
    pub labels: Labels,
}

/// How a caller names a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SnapshotRef {
    /// By internal id.
    Id(SnapshotId),
    /// By the name in some world.
    Alias(Alias),
}
