//! Every port, wrapped.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_core::stream::BoxStream;
use uuid::Uuid;

use hawser_core::attach::{Attach, AttachRecord, Attached, Detach, Health};
use hawser_core::change::Change;
use hawser_core::class::{Capacity, Class};
use hawser_core::connection::ConnectionInfo;
use hawser_core::doctor::Finding;
use hawser_core::error::Result;
use hawser_core::event::Event;
use hawser_core::filesystem::FsKind;
use hawser_core::group::{Group, GroupRef, GroupRequest};
use hawser_core::id::{OperationId, PublicationId, SnapshotId, VolumeId};
use hawser_core::name::{ClassName, NodeId};
use hawser_core::node::NodeRecord;
use hawser_core::operation::Operation;
use hawser_core::page::{Page, PageRequest};
use hawser_core::place::Place;
use hawser_core::port::connector::ConnectorInfo;
use hawser_core::port::control::{OperationFilter, Reply, VolumeFilter, Wait};
use hawser_core::port::host::{
    Content, Copied, FsUsage, HostFacts, HostMount, LoopAttach, LoopDevice, MountEntry, Seen, Tool,
    ToolOutput,
};
use hawser_core::port::kernel::{Disks, Events, Files, Iscsid, Locks, Maps, Nbd};
use hawser_core::port::node::{AttachWork, FormatWork, MountWork};
use hawser_core::port::provider::{
    Blank, Blanks, Expand, Groups, HasCapacity, Held, Inventory, Placement, ProviderInfo,
    Provision, Provisioned, SnapshotAtProvider, Snapshots, VolumeAtProvider,
};
use hawser_core::port::registry::{LockGuard, Registered};
use hawser_core::port::store::{Cas, Key, Listing, Prefix, Revision, Versioned, Watched};
use hawser_core::port::{
    Connector, Control, Host, Node, Nodes, Progress, Provider, Registry, Store,
};
use hawser_core::publication::{MountRequest, Publication, PublishRequest};
use hawser_core::size::ByteSize;
use hawser_core::snapshot::{Snapshot, SnapshotRef, SnapshotRequest};
use hawser_core::volume::{Access, Volume, VolumeRef, VolumeRequest};

use super::wrap::{wrap, wrap_ability};

/// The names of all methods that are points, port by port.
pub const METHODS: &[&[&str]] = &[
    STORE, HOST, CONNECTOR, PROVIDER, SNAPSHOTS, EXPAND, CAPACITY, INVENTORY, GROUPS, PLACEMENT,
    BLANKS, NODE, NODES, REGISTRY, CONTROL,
];

wrap! {
    /// A store with fault points.
    FaultyStore: Store, STORE {
        async fn get(&self, key: &Key) -> Result<Option<Versioned>>;
        async fn create(&self, key: &Key, value: Bytes) -> Result<Cas>;
        async fn put(&self, key: &Key, value: Bytes, expected: Revision) -> Result<Cas>;
        async fn delete(&self, key: &Key, expected: Revision) -> Result<Cas>;
        async fn list(&self, prefix: &Prefix, after: Option<&Key>, limit: usize) -> Result<Listing>;
        async fn watch(&self, prefix: &Prefix, after: Revision) -> Result<BoxStream<'static, Result<Watched>>>;
    }
}

wrap! {
    /// A host with fault points.
    FaultyHost: Host, HOST {
        plain {
            fn files(&self) -> &dyn Files {
                self.inner.files()
            }
            fn events(&self) -> &dyn Events {
                self.inner.events()
            }
            fn disks(&self) -> &dyn Disks {
                self.inner.disks()
            }
            fn maps(&self) -> &dyn Maps {
                self.inner.maps()
            }
            fn nbd(&self) -> &dyn Nbd {
                self.inner.nbd()
            }
            fn iscsid(&self) -> &dyn Iscsid {
                self.inner.iscsid()
            }
            fn locks(&self) -> &dyn Locks {
                self.inner.locks()
            }
        }
        async fn facts(&self) -> Result<HostFacts>;
        async fn run(&self, tool: &Tool) -> Result<ToolOutput>;
        async fn mounts(&self) -> Result<Vec<MountEntry>>;
        async fn mount(&self, request: &HostMount) -> Result<Change<()>>;
        async fn unmount(&self, target: &Path) -> Result<Change<()>>;
        async fn abandon_mount(&self, target: &Path) -> Result<Change<()>>;
        async fn make_target(&self, target: &Path) -> Result<Change<()>>;
        async fn make_target_file(&self, target: &Path) -> Result<Change<()>>;
        async fn remove_target(&self, target: &Path) -> Result<Change<()>>;
        async fn make_folder(&self, folder: &Path, mode: u32) -> Result<Change<()>>;
        async fn look(&self, path: &Path, limit: Duration) -> Result<Option<Seen>>;
        async fn loop_devices(&self) -> Result<Vec<LoopDevice>>;
        async fn attach_loop(&self, request: &LoopAttach) -> Result<Change<LoopDevice>>;
        async fn detach_loop(&self, device: &LoopDevice, force: bool) -> Result<Change<()>>;
        async fn resize_loop(&self, device: &LoopDevice) -> Result<ByteSize>;
        async fn device_size(&self, device: &Path) -> Result<ByteSize>;
        async fn probe(&self, device: &Path) -> Result<Content>;
        async fn make_filesystem(&self, device: &Path, fs: FsKind, uuid: Uuid) -> Result<()>;
        async fn check_filesystem(&self, device: &Path, fs: FsKind) -> Result<Change<()>>;
        async fn grow_filesystem(&self, device: &Path, fs: FsKind, mounted: &Path) -> Result<Change<()>>;
        async fn freeze(&self, mounted: &Path) -> Result<Change<()>>;
        async fn thaw(&self, mounted: &Path) -> Result<Change<()>>;
        async fn sync_filesystem(&self, path: &Path) -> Result<()>;
        async fn give_to_group(&self, folder: &Path, group: u32) -> Result<Change<()>>;
        async fn usage(&self, path: &Path) -> Result<FsUsage>;
        async fn copy_file(&self, from: &Path, to: &Path, progress: &dyn Progress) -> Result<Copied>;
        async fn copy_tree(&self, from: &Path, to: &Path, progress: &dyn Progress) -> Result<Copied>;
    }
}

wrap! {
    /// A connector with fault points.
    FaultyConnector: Connector, CONNECTOR {
        plain {
            fn info(&self) -> &'static ConnectorInfo {
                self.inner.info()
            }
        }
        async fn connect(&self, host: &dyn Host, info: &ConnectionInfo, attach: &Attach) -> Result<Change<Attached>>;
        async fn disconnect(&self, host: &dyn Host, record: &AttachRecord, detach: &Detach) -> Result<Change<()>>;
        async fn extend(&self, host: &dyn Host, record: &AttachRecord) -> Result<ByteSize>;
        async fn lookup(&self, host: &dyn Host, info: &ConnectionInfo) -> Result<Option<Attached>>;
        async fn health(&self, host: &dyn Host, record: &AttachRecord) -> Result<Health>;
    }
}

wrap! {
    /// A provider with fault points, its abilities included.
    FaultyProvider: Provider, PROVIDER {
        plain {
            fn info(&self) -> &'static ProviderInfo {
                self.inner.info()
            }
            fn handle(&self, id: &VolumeId) -> String {
                self.inner.handle(id)
            }
            fn default_access(&self) -> Access {
                self.inner.default_access()
            }
            fn snapshots(&self) -> Option<&dyn Snapshots> {
                self.inner.snapshots().map(|_| self as &dyn Snapshots)
            }
            fn clones(&self) -> bool {
                self.inner.clones()
            }
            fn expand(&self) -> Option<&dyn Expand> {
                self.inner.expand().map(|_| self as &dyn Expand)
            }
            fn capacity(&self) -> Option<&dyn HasCapacity> {
                self.inner.capacity().map(|_| self as &dyn HasCapacity)
            }
            fn inventory(&self) -> Option<&dyn Inventory> {
                self.inner.inventory().map(|_| self as &dyn Inventory)
            }
            fn groups(&self) -> Option<&dyn Groups> {
                self.inner.groups().map(|_| self as &dyn Groups)
            }
            fn placement(&self) -> Option<&dyn Placement> {
                self.inner.placement().map(|_| self as &dyn Placement)
            }
            fn blanks(&self) -> Option<&dyn Blanks> {
                self.inner.blanks().map(|_| self as &dyn Blanks)
            }
        }
        async fn check(&self, wanted: &Provision) -> Result<ByteSize>;
        async fn create(&self, wanted: &Provision, progress: &dyn Progress) -> Result<Change<Provisioned>>;
        async fn delete(&self, volume: &VolumeAtProvider) -> Result<Change<()>>;
        async fn publish(&self, volume: &VolumeAtProvider, node: &NodeRecord, read_only: bool) -> Result<ConnectionInfo>;
        async fn unpublish(&self, volume: &VolumeAtProvider, node: &NodeRecord) -> Result<Change<()>>;
        async fn health(&self, volume: &VolumeAtProvider) -> Result<Health>;
    }
}

wrap_ability! {
    Snapshots by snapshots, SNAPSHOTS {
        plain {
            fn snapshot_handle(&self, id: &SnapshotId) -> String {
                self.inner.snapshots().expect("asked for through the getter").snapshot_handle(id)
            }
        }
        async fn snapshot(&self, volume: &VolumeAtProvider, id: &SnapshotId, progress: &dyn Progress) -> Result<Change<SnapshotAtProvider>>;
        async fn delete_snapshot(&self, snapshot: &SnapshotAtProvider) -> Result<Change<()>>;
    }
}

wrap_ability! {
    Expand by expand, EXPAND {
        async fn expand(&self, volume: &VolumeAtProvider, size: ByteSize) -> Result<Change<ByteSize>>;
    }
}

wrap_ability! {
    HasCapacity by capacity, CAPACITY {
        async fn capacity(&self) -> Result<Capacity>;
    }
}

wrap_ability! {
    Inventory by inventory, INVENTORY {
        async fn list(&self) -> Result<Held>;
        async fn survey(&self, fix: bool) -> Result<Vec<Finding>>;
    }
}

wrap_ability! {
    Groups by groups, GROUPS {
        async fn snapshot_group(&self, members: &[(VolumeAtProvider, SnapshotId)], progress: &dyn Progress) -> Result<Change<Vec<SnapshotAtProvider>>>;
    }
}

wrap_ability! {
    Placement by placement, PLACEMENT {
        async fn place(&self, wanted: &Provision, places: &[Place]) -> Result<Place>;
        async fn capacity_at(&self, place: &Place) -> Result<Capacity>;
    }
}

wrap_ability! {
    Blanks by blanks, BLANKS {
        async fn blanks(&self, at: Option<&Place>) -> Result<Vec<Blank>>;
        async fn delete_blank(&self, blank: &Blank) -> Result<Change<()>>;
    }
}

wrap! {
    /// A node with fault points.
    FaultyNode: Node, NODE {
        async fn describe(&self) -> Result<NodeRecord>;
        async fn attach(&self, work: &AttachWork) -> Result<Change<Attached>>;
        async fn detach(&self, publication: &PublicationId, detach: &Detach) -> Result<Change<()>>;
        async fn format(&self, work: &FormatWork) -> Result<Change<()>>;
        async fn mount(&self, work: &MountWork) -> Result<Change<()>>;
        async fn unmount(&self, publication: &PublicationId, target: &Path) -> Result<Change<()>>;
        async fn extend(&self, publication: &PublicationId, size: ByteSize) -> Result<ByteSize>;
        async fn freeze(&self, publication: &PublicationId) -> Result<Change<()>>;
        async fn thaw(&self, publication: &PublicationId) -> Result<Change<()>>;
        async fn attachments(&self) -> Result<Vec<AttachRecord>>;
        async fn usage(&self, publication: &PublicationId, target: &Path) -> Result<FsUsage>;
        async fn health(&self, publication: &PublicationId) -> Result<Health>;
        async fn survey(&self, fix: bool) -> Result<Vec<Finding>>;
    }
}

wrap! {
    /// The way to the nodes, with fault points.
    FaultyNodes: Nodes, NODES {
        async fn get(&self, id: &NodeId) -> Result<Arc<dyn Node>>;
        async fn ids(&self) -> Result<Vec<NodeId>>;
    }
}

wrap! {
    /// A registry with fault points.
    FaultyRegistry: Registry, REGISTRY {
        async fn lock(&self, name: &str) -> Result<Box<dyn LockGuard>>;
        async fn get(&self, publication: &PublicationId) -> Result<Option<AttachRecord>>;
        async fn put(&self, record: &AttachRecord) -> Result<()>;
        async fn remove(&self, publication: &PublicationId) -> Result<Change<()>>;
        async fn list(&self) -> Result<Registered>;
    }
}

wrap! {
    /// The engine with fault points: a caller that dies before or after its call.
    FaultyControl: Control, CONTROL {
        async fn create_volume(&self, request: VolumeRequest, wait: Wait) -> Result<Reply<Volume>>;
        async fn delete_volume(&self, volume: &VolumeRef, wait: Wait) -> Result<Reply<()>>;
        async fn expand_volume(&self, volume: &VolumeRef, size: ByteSize, wait: Wait) -> Result<Reply<Volume>>;
        async fn label_volume(&self, volume: &VolumeRef, patch: BTreeMap<String, Option<String>>, wait: Wait) -> Result<Reply<Volume>>;
        async fn get_volume(&self, volume: &VolumeRef) -> Result<Volume>;
        async fn list_volumes(&self, filter: &VolumeFilter, page: &PageRequest) -> Result<Page<Volume>>;
        async fn volume_health(&self, volume: &VolumeRef) -> Result<Health>;
        async fn create_snapshot(&self, request: SnapshotRequest, wait: Wait) -> Result<Reply<Snapshot>>;
        async fn delete_snapshot(&self, snapshot: &SnapshotRef, wait: Wait) -> Result<Reply<()>>;
        async fn get_snapshot(&self, snapshot: &SnapshotRef) -> Result<Snapshot>;
        async fn list_snapshots(&self, volume: Option<&VolumeRef>, page: &PageRequest) -> Result<Page<Snapshot>>;
        async fn create_group(&self, request: GroupRequest, wait: Wait) -> Result<Reply<Group>>;
        async fn delete_group(&self, group: &GroupRef, wait: Wait) -> Result<Reply<()>>;
        async fn get_group(&self, group: &GroupRef) -> Result<Group>;
        async fn publish(&self, volume: &VolumeRef, request: PublishRequest, wait: Wait) -> Result<Reply<Publication>>;
        async fn unpublish(&self, volume: &VolumeRef, node: &NodeId, wait: Wait) -> Result<Reply<()>>;
        async fn attach(&self, volume: &VolumeRef, request: PublishRequest, wait: Wait) -> Result<Reply<Attached>>;
        async fn detach(&self, volume: &VolumeRef, node: &NodeId, wait: Wait) -> Result<Reply<()>>;
        async fn mount(&self, volume: &VolumeRef, request: MountRequest, wait: Wait) -> Result<Reply<Publication>>;
        async fn unmount(&self, volume: &VolumeRef, node: &NodeId, target: Option<PathBuf>, wait: Wait) -> Result<Reply<()>>;
        async fn get_operation(&self, id: &OperationId, wait: Wait) -> Result<Operation>;
        async fn list_operations(&self, filter: &OperationFilter, page: &PageRequest) -> Result<Page<Operation>>;
        async fn cancel_operation(&self, id: &OperationId) -> Result<Operation>;
        async fn list_classes(&self) -> Result<Vec<Class>>;
        async fn capacity(&self, class: &ClassName, place: Option<&Place>) -> Result<Capacity>;
        async fn list_nodes(&self) -> Result<Vec<NodeRecord>>;
        async fn events(&self, after: Option<u64>) -> Result<BoxStream<'static, Event>>;
        async fn doctor(&self, fix: bool) -> Result<Vec<Finding>>;
        async fn ready(&self) -> Result<bool>;
    }
}
