//! Objects of the snapshot controller: those that its sidecar, whose work is done here, reads and
//! writes.

use std::collections::BTreeMap;

use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use serde::Deserialize;

use super::Meta;
use super::meta::object;

/// Somebody's wish for a snapshot; read as the source of volumes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubernetes) struct Snapshot {
    pub(in crate::kubernetes) metadata: Meta,
    pub(in crate::kubernetes) status: SnapshotStatus,
}

/// What has become of the wish.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kubernetes) struct SnapshotStatus {
    pub(in crate::kubernetes) bound_volume_snapshot_content_name: Option<String>,
    pub(in crate::kubernetes) ready_to_use: Option<bool>,
    pub(in crate::kubernetes) restore_size: Option<String>,
}

object!(
    Snapshot,
    "VolumeSnapshot",
    "snapshot.storage.k8s.io",
    "v1",
    "volumesnapshots",
    NamespaceResourceScope
);

/// A snapshot of the cluster.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubernetes) struct Content {
    pub(in crate::kubernetes) metadata: Meta,
    pub(in crate::kubernetes) spec: ContentSpec,
    pub(in crate::kubernetes) status: Option<ContentStatus>,
}

/// What is to be taken, or was taken elsewhere.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kubernetes) struct ContentSpec {
    pub(in crate::kubernetes) driver: String,
    pub(in crate::kubernetes) deletion_policy: String,
    pub(in crate::kubernetes) source: ContentSource,
    pub(in crate::kubernetes) volume_snapshot_class_name: Option<String>,
    pub(in crate::kubernetes) volume_snapshot_ref: ObjectRef,
    pub(in crate::kubernetes) source_volume_mode: Option<String>,
}

/// A volume to take it of, or a snapshot that is there.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kubernetes) struct ContentSource {
    pub(in crate::kubernetes) volume_handle: Option<String>,
    pub(in crate::kubernetes) snapshot_handle: Option<String>,
}

/// Another object.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub(in crate::kubernetes) struct ObjectRef {
    pub(in crate::kubernetes) namespace: String,
    pub(in crate::kubernetes) name: String,
    pub(in crate::kubernetes) uid: String,
}

/// What there is.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kubernetes) struct ContentStatus {
    pub(in crate::kubernetes) snapshot_handle: Option<String>,
    pub(in crate::kubernetes) ready_to_use: Option<bool>,
    pub(in crate::kubernetes) creation_time: Option<i64>,
    pub(in crate::kubernetes) restore_size: Option<i64>,
    pub(in crate::kubernetes) volume_group_snapshot_handle: Option<String>,
    pub(in crate::kubernetes) error: Option<ContentError>,
}

/// Why not.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubernetes) struct ContentError {
    pub(in crate::kubernetes) message: Option<String>,
}

object!(
    Content,
    "VolumeSnapshotContent",
    "snapshot.storage.k8s.io",
    "v1",
    "volumesnapshotcontents",
    ClusterResourceScope
);

/// How snapshots of a class are taken.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kubernetes) struct SnapshotClass {
    pub(in crate::kubernetes) metadata: Meta,
    pub(in crate::kubernetes) driver: String,
    #[serde(deserialize_with = "super::meta::nullable")]
    pub(in crate::kubernetes) parameters: BTreeMap<String, String>,
}

object!(
    SnapshotClass,
    "VolumeSnapshotClass",
    "snapshot.storage.k8s.io",
    "v1",
    "volumesnapshotclasses",
    ClusterResourceScope
);

/// A group of snapshots of the cluster.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubernetes) struct GroupContent {
    pub(in crate::kubernetes) metadata: Meta,
    pub(in crate::kubernetes) spec: GroupContentSpec,
    pub(in crate::kubernetes) status: Option<GroupContentStatus>,
}

/// What is to be taken, or was taken elsewhere.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kubernetes) struct GroupContentSpec {
    pub(in crate::kubernetes) driver: String,
    pub(in crate::kubernetes) deletion_policy: String,
    pub(in crate::kubernetes) source: GroupSource,
    pub(in crate::kubernetes) volume_group_snapshot_class_name: Option<String>,
    pub(in crate::kubernetes) volume_group_snapshot_ref: ObjectRef,
}

/// Volumes to take it of, or a group that is there.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kubernetes) struct GroupSource {
    #[serde(deserialize_with = "super::meta::nullable")]
    pub(in crate::kubernetes) volume_handles: Vec<String>,
    pub(in crate::kubernetes) group_snapshot_handles: Option<GroupHandles>,
}

/// A group that is there.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kubernetes) struct GroupHandles {
    pub(in crate::kubernetes) volume_group_snapshot_handle: String,
    #[serde(deserialize_with = "super::meta::nullable")]
    pub(in crate::kubernetes) volume_snapshot_handles: Vec<String>,
}

/// What there is.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kubernetes) struct GroupContentStatus {
    pub(in crate::kubernetes) volume_group_snapshot_handle: Option<String>,
    pub(in crate::kubernetes) ready_to_use: Option<bool>,
    pub(in crate::kubernetes) creation_time: Option<String>,
    #[serde(deserialize_with = "super::meta::nullable")]
    pub(in crate::kubernetes) volume_snapshot_info_list: Vec<GroupMember>,
    pub(in crate::kubernetes) error: Option<ContentError>,
}

/// One snapshot of a group.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kubernetes) struct GroupMember {
    pub(in crate::kubernetes) snapshot_handle: String,
    pub(in crate::kubernetes) volume_handle: String,
}

object!(
    GroupContent,
    "VolumeGroupSnapshotContent",
    "groupsnapshot.storage.k8s.io",
    "v1",
    "volumegroupsnapshotcontents",
    ClusterResourceScope
);

/// How groups of a class are taken.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kubernetes) struct GroupClass {
    pub(in crate::kubernetes) metadata: Meta,
    pub(in crate::kubernetes) driver: String,
    #[serde(deserialize_with = "super::meta::nullable")]
    pub(in crate::kubernetes) parameters: BTreeMap<String, String>,
}

object!(
    GroupClass,
    "VolumeGroupSnapshotClass",
    "groupsnapshot.storage.k8s.io",
    "v1",
    "volumegroupsnapshotclasses",
    ClusterResourceScope
);
