//! What the path of a resource does not tell.

/// What a write to the status of an object may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StatusPart {
    /// There is no such part: the status, if any, is a field as others.
    Missing,
    /// The status and nothing else, as of attachments and of all custom resources.
    Alone,
    /// The status and the metadata, finalizers among it, as in the core group.
    WithMetadata,
}

pub(super) struct Known {
    pub(super) group: &'static str,
    pub(super) plural: &'static str,
    pub(super) kind: &'static str,
    pub(super) namespaced: bool,
    pub(super) status: StatusPart,
}

const STORAGE: &str = "storage.k8s.io";
const SNAPSHOT: &str = "snapshot.storage.k8s.io";
const GROUP_SNAPSHOT: &str = "groupsnapshot.storage.k8s.io";

/// The groups that are there unless a test says otherwise, and their versions.
pub(super) static GROUPS: &[(&str, &[&str])] = &[
    ("", &["v1"]),
    ("coordination.k8s.io", &["v1"]),
    (STORAGE, &["v1"]),
    (SNAPSHOT, &["v1"]),
    (GROUP_SNAPSHOT, &["v1", "v1beta2", "v1beta1"]),
    ("hawser.storage", &["v1"]),
];

static KNOWN: &[Known] = {
    use StatusPart::{Alone, Missing, WithMetadata};
    &[
        cluster("", "namespaces", "Namespace", WithMetadata),
        cluster("", "nodes", "Node", WithMetadata),
        cluster("", "persistentvolumes", "PersistentVolume", WithMetadata),
        namespaced("", "persistentvolumeclaims", "PersistentVolumeClaim", WithMetadata),
        namespaced("", "events", "Event", Missing),
        namespaced("", "pods", "Pod", WithMetadata),
        namespaced("", "secrets", "Secret", Missing),
        namespaced("coordination.k8s.io", "leases", "Lease", Missing),
        cluster(STORAGE, "csidrivers", "CSIDriver", Missing),
        cluster(STORAGE, "csinodes", "CSINode", Missing),
        namespaced(STORAGE, "csistoragecapacities", "CSIStorageCapacity", Missing),
        cluster(STORAGE, "storageclasses", "StorageClass", Missing),
        cluster(STORAGE, "volumeattachments", "VolumeAttachment", Alone),
        cluster(STORAGE, "volumeattributesclasses", "VolumeAttributesClass", Missing),
        namespaced(SNAPSHOT, "volumesnapshots", "VolumeSnapshot", Alone),
        cluster(SNAPSHOT, "volumesnapshotcontents", "VolumeSnapshotContent", Alone),
        cluster(SNAPSHOT, "volumesnapshotclasses", "VolumeSnapshotClass", Missing),
        namespaced(GROUP_SNAPSHOT, "volumegroupsnapshots", "VolumeGroupSnapshot", Alone),
        cluster(GROUP_SNAPSHOT, "volumegroupsnapshotcontents", "VolumeGroupSnapshotContent", Alone),
        cluster(GROUP_SNAPSHOT, "volumegroupsnapshotclasses", "VolumeGroupSnapshotClass", Missing),
        namespaced("hawser.storage", "records", "Record", Missing),
    ]
};

const fn cluster(
    group: &'static str,
    plural: &'static str,
    kind: &'static str,
    status: StatusPart,
) -> Known {
    Known { group, plural, kind, namespaced: false, status }
}

const fn namespaced(
    group: &'static str,
    plural: &'static str,
    kind: &'static str,
    status: StatusPart,
) -> Known {
    Known { group, plural, kind, namespaced: true, status }
}

pub(super) fn known(group: &str, plural: &str) -> Option<&'static Known> {
    of_group(group).find(|known| known.plural == plural)
}

pub(super) fn of_group(group: &str) -> impl Iterator<Item = &'static Known> {
    KNOWN.iter().filter(move |known| known.group == group)
}

/// Whether the server has the types of this group itself, rather than from a definition.
pub(super) fn is_builtin(group: &str) -> bool {
    let own = [STORAGE, "apiextensions.k8s.io", "coordination.k8s.io", "events.k8s.io"];
    !group.contains('.') || own.contains(&group)
}
