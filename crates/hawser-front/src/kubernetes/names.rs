//! Names that Kubernetes and the sidecars have given to annotations, finalizers and reasons. They
//! stand in objects that sidecars may take over, and the other way round.

/// Which provisioner shall make a volume for a claim.
pub(super) const STORAGE_PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
/// The same, as older clusters write it.
pub(super) const BETA_STORAGE_PROVISIONER: &str = "volume.beta.kubernetes.io/storage-provisioner";
/// Where the scheduler wants the first pod that uses a claim.
pub(super) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// On a claim: its volume is bound to it, too.
pub(super) const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// On a claim: a controller chose the volume, not a person.
pub(super) const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// On a volume: who made it.
pub(super) const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// On a volume: what is needed to remove it; its class may be gone by then.
pub(super) const DELETION_SECRET: &str = "volume.kubernetes.io/provisioner-deletion-secret-name";
/// The namespace of [`DELETION_SECRET`].
pub(super) const DELETION_SECRET_NAMESPACE: &str =
    "volume.kubernetes.io/provisioner-deletion-secret-namespace";
/// On a volume: what is needed to change its attributes.
pub(super) const MODIFY_SECRET: &str = "volume.kubernetes.io/controller-modify-secret-name";
/// The namespace of [`MODIFY_SECRET`].
pub(super) const MODIFY_SECRET_NAMESPACE: &str =
    "volume.kubernetes.io/controller-modify-secret-namespace";
/// On a volume: how large its claim was before it grew, until a node has made the file system grow,
/// too. Whoever binds the volume anew takes it for the size of the claim.
pub(super) const PRE_RESIZE_CAPACITY: &str = "volume.alpha.kubernetes.io/pre-resize-capacity";
/// On a claim: its volume has grown and no node has to do anything about it.
pub(super) const NODE_EXPANSION_NOT_REQUIRED: &str =
    "volume.kubernetes.io/node-expansion-not-required";
/// Keeps a volume until its storage is gone.
pub(super) const PROVISIONER_FINALIZER: &str =
    "external-provisioner.volume.kubernetes.io/finalizer";
/// Keeps the source of a copy until the copy is made.
pub(super) const CLONE_FINALIZER: &str = "provisioner.storage.kubernetes.io/cloning-protection";
/// Keeps a snapshot until the volumes that are being made from it are made.
pub(super) const SNAPSHOT_SOURCE_FINALIZER: &str =
    "provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection";
/// Keeps a content until its snapshot is gone.
pub(super) const CONTENT_FINALIZER: &str =
    "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection";
/// On a content: its snapshot is being taken, or may be. It is not removed before that is known.
pub(super) const SNAPSHOT_BEING_CREATED: &str =
    "snapshot.storage.kubernetes.io/volumesnapshot-being-created";
/// On a content: the snapshot controller wants it removed.
pub(super) const SNAPSHOT_BEING_DELETED: &str =
    "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted";
/// On a content: what is needed to take and to remove its snapshot.
pub(super) const SNAPSHOT_SECRET: &str = "snapshot.storage.kubernetes.io/deletion-secret-name";
/// The namespace of [`SNAPSHOT_SECRET`].
pub(super) const SNAPSHOT_SECRET_NAMESPACE: &str =
    "snapshot.storage.kubernetes.io/deletion-secret-namespace";
/// On a content: its snapshot is one of this group, and is taken with it.
pub(super) const GROUP_HANDLE: &str = "groupsnapshot.storage.k8s.io/volumeGroupSnapshotHandle";
/// Keeps the content of a group until the group is gone.
pub(super) const GROUP_CONTENT_FINALIZER: &str =
    "groupsnapshot.storage.kubernetes.io/volumegroupsnapshotcontent-bound-protection";
/// As [`SNAPSHOT_BEING_CREATED`], of a group.
pub(super) const GROUP_BEING_CREATED: &str =
    "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-being-created";
/// As [`SNAPSHOT_BEING_DELETED`], of a group.
pub(super) const GROUP_BEING_DELETED: &str =
    "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-being-deleted";
/// As [`SNAPSHOT_SECRET`], of a group.
pub(super) const GROUP_SECRET: &str = "groupsnapshot.storage.kubernetes.io/deletion-secret-name";
/// The namespace of [`GROUP_SECRET`].
pub(super) const GROUP_SECRET_NAMESPACE: &str =
    "groupsnapshot.storage.kubernetes.io/deletion-secret-namespace";
/// In a volume's attributes: which provisioner made it.
pub(super) const PROVISIONER_IDENTITY: &str = "storage.kubernetes.io/csiProvisionerIdentity";
/// On an attachment: the node's own id, for when the node is gone.
pub(super) const NODE_ID: &str = "csi.alpha.kubernetes.io/node-id";
/// What parameters for the sidecars begin with.
pub(super) const RESERVED: &str = "csi.storage.k8s.io/";

/// On what is written of a driver's room: the driver.
pub(super) const DRIVER_LABEL: &str = "csi.storage.k8s.io/drivername";
/// On what is written of a driver's room: who keeps it up to date.
pub(super) const MANAGED_BY_LABEL: &str = "csi.storage.k8s.io/managed-by";
/// The sidecar whose work this is: what either has written, the other takes over.
pub(super) const MANAGED_BY: &str = "external-provisioner";

/// What keeps an attachment, and the volume of an attachment, until it is undone.
pub(super) fn attacher_finalizer(driver: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    format!("external-attacher/{}", driver.chars().map(plain).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_finalizer_of_a_driver_has_no_dots() {
        let name = attacher_finalizer("local.csi.hawser.storage");
        assert_eq!(name, "external-attacher/local-csi-hawser-storage");
    }
}
