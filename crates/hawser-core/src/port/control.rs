//! The control port: everything a front end can ask for.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use futures_core::stream::BoxStream;

use crate::attach::{Attached, Health};
use crate::change::Change;
use crate::class::{Capacity, Class};
use crate::doctor::Finding;
use crate::error::Result;
use crate::event::Event;
use crate::group::{Group, GroupRef, GroupRequest};
use crate::id::OperationId;
use crate::name::{ClassName, Labels, NodeId};
use crate::node::NodeRecord;
use crate::operation::{Operation, OperationState};
use crate::page::{Page, PageRequest};
use crate::place::Place;
use crate::publication::{MountRequest, Publication, PublishRequest};
use crate::size::ByteSize;
use crate::snapshot::{Snapshot, SnapshotRef, SnapshotRequest};
use crate::volume::{Volume, VolumeRef, VolumeRequest};

/// How long a caller waits for a change before it gets the operation instead.
pub type Wait = Duration;

/// The engine as front ends see it; implemented in process by the engine, and remotely by the
/// clients of `hawser-api`.
///
/// # Contract
///
/// - Every change is idempotent by name or id, journaled before it acts and exclusive per volume.
/// - A change that is not done within `wait` answers [`Reply::Pending`] and goes on; the same request
///   again joins it. Dropping the future never stops or loses the work.
/// - A request that differs from the existing object of that name is `Kind::Exists`, with both values
///   in the message. Another operation on the same volume is `Kind::Busy`, and names it.
/// - An unknown outcome is never answered as final.
#[async_trait]
pub trait Control: Send + Sync {
    /// Makes a volume, from nothing or from a source.
    async fn create_volume(&self, request: VolumeRequest, wait: Wait) -> Result<Reply<Volume>>;

    /// Removes a volume. Absent is `Already`; published is `Kind::Precondition`.
    async fn delete_volume(&self, volume: &VolumeRef, wait: Wait) -> Result<Reply<()>>;

    /// Makes a volume larger, and its file system where it is mounted.
    async fn expand_volume(
        &self,
        volume: &VolumeRef,
        size: ByteSize,
        wait: Wait,
    ) -> Result<Reply<Volume>>;

    /// Adds, changes (`Some`) and removes (`None`) labels.
    async fn label_volume(
        &self,
        volume: &VolumeRef,
        patch: BTreeMap<String, Option<String>>,
        wait: Wait,
    ) -> Result<Reply<Volume>>;

    /// One volume.
    async fn get_volume(&self, volume: &VolumeRef) -> Result<Volume>;

    /// Volumes, in the order of their ids: oldest first, but for those whose id follows from their name.
    async fn list_volumes(&self, filter: &VolumeFilter, page: &PageRequest)
    -> Result<Page<Volume>>;

    /// Whether a volume works, at its storage and where it is attached.
    async fn volume_health(&self, volume: &VolumeRef) -> Result<Health>;

    /// Takes a snapshot; a mounted file system is frozen for that moment.
    async fn create_snapshot(
        &self,
        request: SnapshotRequest,
        wait: Wait,
    ) -> Result<Reply<Snapshot>>;

    /// Removes a snapshot. Absent is `Already`; a member of a group, which goes with its group, is
    /// `Kind::Invalid`.
    async fn delete_snapshot(&self, snapshot: &SnapshotRef, wait: Wait) -> Result<Reply<()>>;

    /// One snapshot.
    async fn get_snapshot(&self, snapshot: &SnapshotRef) -> Result<Snapshot>;

    /// Snapshots, oldest first; of one volume where one is named.
    async fn list_snapshots(
        &self,
        volume: Option<&VolumeRef>,
        page: &PageRequest,
    ) -> Result<Page<Snapshot>>;

    /// Takes snapshots of several volumes, all of one instant. Volumes that cannot be taken together
    /// (of different classes or places, of a class without groups) and a volume whose content cannot
    /// be held still for that instant are `Kind::Precondition`. Whatever fails, no member stays.
    async fn create_group(&self, request: GroupRequest, wait: Wait) -> Result<Reply<Group>>;

    /// Removes a group and all of its snapshots, which cannot be removed one by one. Absent is
    /// `Already`; a member that is being copied from is `Kind::Precondition`.
    async fn delete_group(&self, group: &GroupRef, wait: Wait) -> Result<Reply<()>>;

    /// One group.
    async fn get_group(&self, group: &GroupRef) -> Result<Group>;

    /// Gives a node the right to use a volume.
    async fn publish(
        &self,
        volume: &VolumeRef,
        request: PublishRequest,
        wait: Wait,
    ) -> Result<Reply<Publication>>;

    /// Takes that right back; answers when the node can no longer write. Attached or mounted is
    /// `Kind::Precondition`, but for a publication that the node leads: there the node may be dead.
    async fn unpublish(&self, volume: &VolumeRef, node: &NodeId, wait: Wait) -> Result<Reply<()>>;

    /// Publishes where needed, and brings the volume to the node.
    async fn attach(
        &self,
        volume: &VolumeRef,
        request: PublishRequest,
        wait: Wait,
    ) -> Result<Reply<Attached>>;

    /// Takes the volume from the node and unpublishes it. Mounted is `Kind::Precondition`.
    async fn detach(&self, volume: &VolumeRef, node: &NodeId, wait: Wait) -> Result<Reply<()>>;

    /// Publishes, attaches and formats where needed, and mounts.
    async fn mount(
        &self,
        volume: &VolumeRef,
        request: MountRequest,
        wait: Wait,
    ) -> Result<Reply<Publication>>;

    /// Unmounts one folder, or all of them, of a node; takes the volume from the node with the last.
    async fn unmount(
        &self,
        volume: &VolumeRef,
        node: &NodeId,
        target: Option<PathBuf>,
        wait: Wait,
    ) -> Result<Reply<()>>;

    /// One operation; waits until it is final, at most so long.
    async fn get_operation(&self, id: &OperationId, wait: Wait) -> Result<Operation>;

    /// Operations, newest first.
    async fn list_operations(
        &self,
        filter: &OperationFilter,
        page: &PageRequest,
    ) -> Result<Page<Operation>>;

    /// Asks an operation to stop and take back what it did, where that is safe;
    /// `Kind::Precondition` where it is not.
    async fn cancel_operation(&self, id: &OperationId) -> Result<Operation>;

    /// All classes.
    async fn list_classes(&self) -> Result<Vec<Class>>;

    /// How much room a class has, in all or at one place; `Kind::Unsupported` where its provider
    /// cannot tell.
    async fn capacity(&self, class: &ClassName, place: Option<&Place>) -> Result<Capacity>;

    /// All nodes that were ever seen.
    async fn list_nodes(&self) -> Result<Vec<NodeRecord>>;

    /// Changes from now on, or after the event with this sequence number.
    async fn events(&self, after: Option<u64>) -> Result<BoxStream<'static, Event>>;

    /// Things that do not belong together, in the records, in the storage and on the nodes; with
    /// `fix` repairs what is provably safe.
    async fn doctor(&self, fix: bool) -> Result<Vec<Finding>>;

    /// True when start-up recovery is through and changes are taken.
    async fn ready(&self) -> Result<bool>;
}

/// The answer to a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply<T> {
    /// Done.
    Done(Change<T>),
    /// Not done yet; the operation goes on.
    Pending(Operation),
}

/// Which volumes are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeFilter {
    /// Of this class.
    pub class: Option<ClassName>,
    /// With these labels.
    pub labels: Labels,
}

/// Which operations are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperationFilter {
    /// In this state.
    pub state: Option<OperationState>,
    /// Of this object's id.
    pub subject: Option<String>,
}
