use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use futures_core::stream::BoxStream;
use hawser_core::attach::{Attached, Health, Identity};
use hawser_core::class::{Ability, Capacity, Class};
use hawser_core::connection::ConnectionInfo;
use hawser_core::doctor::Finding;
use hawser_core::event::Event;
use hawser_core::filesystem::{Filesystem, FormatState, FsKind};
use hawser_core::group::{Group, GroupRef, GroupRequest};
use hawser_core::id::{OperationId, PublicationId, SnapshotId, VolumeId};
use hawser_core::name::{ClassName, NodeId};
use hawser_core::node::NodeRecord;
use hawser_core::operation::{Operation, OperationKind, OperationState, ProgressReport};
use hawser_core::page::{Page, PageRequest};
use hawser_core::place::Place;
use hawser_core::port::Control;
use hawser_core::port::control::{OperationFilter, Reply, VolumeFilter, Wait};
use hawser_core::publication::{MountRequest, Publication, PublicationState, PublishRequest};
use hawser_core::snapshot::{Snapshot, SnapshotRef, SnapshotRequest, SnapshotState};
use hawser_core::volume::{
    Access, Sharing, Source, SourceRef, Volume, VolumeRef, VolumeRequest, VolumeState,
};
use hawser_core::{ByteSize, Change, Error, Kind, Result, Timestamp};

use super::{Disk, PASSWORD, Storage, missing, not_here};

/// What the storage rounds sizes up to.
const UNIT: u64 = 1 << 20;

pub(crate) struct FakeControl {
    pub(super) state: Mutex<State>,
    pub(super) storage: Storage,
    /// Every change answers that it goes on, and is done behind the caller.
    pub(crate) slow: Mutex<bool>,
    /// Every change fails like this.
    pub(crate) fail: Mutex<Option<fn() -> Error>>,
    /// Volumes take a password to reach.
    pub(crate) needs_secrets: Mutex<bool>,
    pub(crate) ready: Mutex<bool>,
    pub(crate) sick: Mutex<bool>,
    /// Where volumes and snapshots have folders that are named as they are: what is deleted here goes
    /// by its id, and a storage system that trusts an id would do no better.
    pub(crate) pool: Mutex<Option<PathBuf>>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) volumes: BTreeMap<VolumeId, Volume>,
    pub(super) snapshots: BTreeMap<SnapshotId, Snapshot>,
    pub(super) groups: Vec<Group>,
    nodes: BTreeSet<NodeId>,
}

impl State {
    pub(super) fn volume(&mut self, volume: &VolumeRef) -> Result<&mut Volume> {
        let is = |v: &&mut Volume| match volume {
            VolumeRef::Id(id) => v.id == *id,
            VolumeRef::Alias(alias) => v.aliases.contains(alias),
        };
        self.volumes.values_mut().find(is).ok_or_else(|| missing("volume", volume))
    }

    pub(super) fn snapshot(&self, snapshot: &SnapshotRef) -> Result<&Snapshot> {
        let is = |s: &&Snapshot| match snapshot {
            SnapshotRef::Id(id) => s.id == *id,
            SnapshotRef::Alias(alias) => s.alias == *alias,
        };
        self.snapshots.values().find(is).ok_or_else(|| missing("snapshot", snapshot))
    }
}

impl FakeControl {
    pub(crate) fn new(storage: Storage) -> Self {
        let nodes = ["n1", "n2"].map(|node| node.parse().unwrap()).into();
        Self {
            state: Mutex::new(State { nodes, ..State::default() }),
            storage,
            slow: Mutex::new(false),
            fail: Mutex::new(None),
            needs_secrets: Mutex::new(false),
            ready: Mutex::new(true),
            sick: Mutex::new(false),
            pool: Mutex::new(None),
        }
    }

    fn remove_folder(&self, id: &str) {
        if let Some(pool) = &*self.pool.lock().unwrap() {
            let _ = std::fs::remove_dir_all(pool.join(id));
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn volume_of(&self, id: &str) -> Option<Volume> {
        self.state().volumes.get(&id.parse().ok()?).cloned()
    }

    pub(crate) fn count(&self) -> usize {
        self.state().volumes.len()
    }

    pub(super) fn may(&self) -> Result<()> {
        match *self.fail.lock().unwrap() {
            Some(make) => Err(make()),
            None => Ok(()),
        }
    }

    /// The answer of a change that is done; the caller may be told that it goes on.
    pub(super) fn reply<T>(&self, kind: OperationKind, change: Change<T>) -> Result<Reply<T>> {
        if !*self.slow.lock().unwrap() {
            return Ok(Reply::Done(change));
        }
        Ok(Reply::Pending(Operation {
            id: OperationId::generate(),
            kind,
            subject: "vol".into(),
            subject_name: "csi:data".into(),
            state: OperationState::Running,
            progress: ProgressReport { step: "copying".into(), done: 2, total: 5 },
            started: Timestamp::now(),
            finished: None,
            error: None,
        }))
    }
}

/// What at least one class can do.
pub(crate) fn abilities() -> HashSet<Ability> {
    classes().into_iter().flat_map(|class| class.abilities).collect()
}

fn classes() -> Vec<Class> {
    use Ability::*;
    let class = |name: &str, abilities: &[Ability]| Class {
        name: name.parse().unwrap(),
        provider: "fake".into(),
        settings: BTreeMap::new(),
        abilities: abilities.to_vec(),
        default: name == "default",
    };
    vec![
        class("default", &[Snapshots, Clones, Expand, Capacity, Groups]),
        class("files", &[Snapshots]),
        class("local", &[Snapshots, Expand, Capacity, Placement]),
    ]
}

fn differs(what: &str) -> Error {
    Error::new(Kind::Exists, format!("it exists and differs: {what}"))
}

fn rounded(size: ByteSize) -> ByteSize {
    size.round_up(UNIT).unwrap_or(size)
}

fn access_of(request: &VolumeRequest, source: Option<Access>) -> Result<Access> {
    let folders = request.class.as_ref().is_some_and(|class| class.as_str() == "files");
    let default = if folders { Access::Folder } else { Access::Filesystem(FsKind::Ext4) };
    let access = request.access.or(source).unwrap_or(default);
    if (access == Access::Folder) != folders {
        return Err(Error::new(Kind::Unsupported, format!("the class has no {access}")));
    }
    if source.is_some_and(|source| source != access) {
        return Err(Error::new(Kind::Invalid, "the source is used otherwise"));
    }
    Ok(access)
}

/// One page in the order of ids; a token is the last id of the page before.
fn page<T: Clone>(items: Vec<(String, T)>, page: &PageRequest, prefix: &str) -> Result<Page<T>> {
    if page.token.as_ref().is_some_and(|token| !token.starts_with(prefix)) {
        return Err(Error::new(Kind::Invalid, "not a token of this list"));
    }
    let rest = items.into_iter().filter(|(id, _)| page.token.as_ref().is_none_or(|t| id > t));
    let found: Vec<_> = rest.take(page.limit()).collect();
    let next = found.last().filter(|_| found.len() == page.limit()).map(|(id, _)| id.clone());
    Ok(Page { items: found.into_iter().map(|(_, item)| item).collect(), next })
}

#[async_trait]
impl Control for FakeControl {
    async fn create_volume(&self, request: VolumeRequest, _: Wait) -> Result<Reply<Volume>> {
        self.may()?;
        request.validate()?;
        if let Some(key) = request.parameters.keys().find(|key| *key != "type") {
            return Err(Error::new(Kind::Invalid, format!("unknown parameter {key}")));
        }
        let mut state = self.state();
        let known = state.volume(&VolumeRef::Alias(request.alias.clone())).ok().cloned();
        let (source, access, least) = match &request.source {
            None => (None, None, ByteSize::ZERO),
            Some(SourceRef::Snapshot(snapshot)) => {
                let found = state.snapshot(snapshot)?;
                (Some(Source::Snapshot(found.id.clone())), Some(found.access), found.size)
            }
            Some(SourceRef::Volume(volume)) => {
                let found = state.volume(volume)?;
                (Some(Source::Volume(found.id.clone())), Some(found.access), found.size)
            }
        };
        let access = access_of(&request, access)?;
        let size = rounded(request.size.unwrap_or(least));
        if size < least {
            return Err(Error::new(Kind::OutOfRange, "smaller than its source"));
        }
        if let Some(known) = known {
            drop(state);
            let same = known.size == size
                && known.access == access
                && known.sharing == request.sharing
                && known.parameters == request.parameters
                && known.source == source;
            if !same {
                return Err(differs("size, use, parameters or source"));
            }
            return self.reply(OperationKind::CreateVolume, Change::Already(known));
        }
        if request.limit.is_some_and(|limit| size > limit) {
            return Err(Error::new(Kind::OutOfRange, format!("{size} is above the limit")));
        }
        let id = VolumeId::generate();
        let class = request.class.unwrap_or_else(|| "default".parse().unwrap());
        let at_node = || Place::node(&"n1".parse().unwrap());
        let place = (class.as_str() == "local")
            .then(|| request.places.first().cloned().unwrap_or_else(at_node));
        let inside =
            |kind| Filesystem { kind, uuid: uuid::Uuid::new_v4(), state: FormatState::Never };
        let volume = Volume {
            aliases: vec![request.alias],
            class,
            size,
            access,
            sharing: request.sharing,
            source,
            labels: request.labels,
            parameters: request.parameters,
            handle: id.to_string(),
            place,
            state: VolumeState::Ready,
            filesystem: match access {
                Access::Filesystem(kind) => Some(inside(kind)),
                Access::Block | Access::Folder => None,
            },
            identity: Some(Identity::new("serial", id.as_str())),
            publications: Vec::new(),
            untouched: true,
            operation: None,
            created: Timestamp::now(),
            id,
        };
        self.storage.disks().insert(volume.id.clone(), Disk { size, content: None });
        state.volumes.insert(volume.id.clone(), volume.clone());
        drop(state);
        self.reply(OperationKind::CreateVolume, Change::Made(volume))
    }

    async fn delete_volume(&self, volume: &VolumeRef, _: Wait) -> Result<Reply<()>> {
        self.may()?;
        if let VolumeRef::Id(id) = volume {
            self.remove_folder(id.as_str());
        }
        let mut state = self.state();
        let Some(found) = state.volume(volume).ok().cloned() else {
            return Ok(Reply::Done(Change::Already(())));
        };
        if !found.publications.is_empty() {
            return Err(Error::new(Kind::Precondition, format!("volume {volume} is in use")));
        }
        state.volumes.remove(&found.id);
        drop(state);
        self.storage.disks().remove(&found.id);
        self.reply(OperationKind::DeleteVolume, Change::Made(()))
    }

    async fn expand_volume(
        &self,
        volume: &VolumeRef,
        size: ByteSize,
        _: Wait,
    ) -> Result<Reply<Volume>> {
        self.may()?;
        let mut state = self.state();
        let found = state.volume(volume)?;
        found.size = rounded(size).max(found.size);
        let found = found.clone();
        drop(state);
        if let Some(disk) = self.storage.disks().get_mut(&found.id) {
            disk.size = found.size;
        }
        self.reply(OperationKind::ExpandVolume, Change::Made(found))
    }

    async fn label_volume(
        &self,
        volume: &VolumeRef,
        patch: BTreeMap<String, Option<String>>,
        _: Wait,
    ) -> Result<Reply<Volume>> {
        self.may()?;
        let mut state = self.state();
        let found = state.volume(volume)?;
        found.labels = found.labels.patched(&patch)?;
        let found = found.clone();
        drop(state);
        self.reply(OperationKind::LabelVolume, Change::Made(found))
    }

    async fn get_volume(&self, volume: &VolumeRef) -> Result<Volume> {
        self.state().volume(volume).cloned()
    }

    async fn list_volumes(&self, _: &VolumeFilter, wanted: &PageRequest) -> Result<Page<Volume>> {
        let volumes = self.state().volumes.clone();
        page(volumes.into_iter().map(|(id, v)| (id.into(), v)).collect(), wanted, "vol-")
    }

    async fn volume_health(&self, volume: &VolumeRef) -> Result<Health> {
        self.state().volume(volume)?;
        let sick = *self.sick.lock().unwrap();
        Ok(if sick { Health::bad("a path is down") } else { Health::good() })
    }

    async fn create_snapshot(&self, request: SnapshotRequest, _: Wait) -> Result<Reply<Snapshot>> {
        self.may()?;
        let mut state = self.state();
        let volume = state.volume(&request.volume)?.clone();
        let by_name = SnapshotRef::Alias(request.alias.clone());
        if let Ok(known) = state.snapshot(&by_name).cloned() {
            drop(state);
            if known.volume != volume.id {
                return Err(differs("volume"));
            }
            return self.reply(OperationKind::CreateSnapshot, Change::Already(known));
        }
        let snapshot = super::groups::cut(&volume, request.alias, request.labels, None);
        state.snapshots.insert(snapshot.id.clone(), snapshot.clone());
        drop(state);
        self.reply(OperationKind::CreateSnapshot, Change::Made(snapshot))
    }

    async fn delete_snapshot(&self, snapshot: &SnapshotRef, _: Wait) -> Result<Reply<()>> {
        self.may()?;
        if let SnapshotRef::Id(id) = snapshot {
            self.remove_folder(id.as_str());
        }
        let mut state = self.state();
        let Ok(found) = state.snapshot(snapshot).cloned() else {
            return Ok(Reply::Done(Change::Already(())));
        };
        if found.group.is_some() {
            return Err(Error::new(Kind::Invalid, "it goes with its group"));
        }
        state.snapshots.remove(&found.id);
        drop(state);
        self.reply(OperationKind::DeleteSnapshot, Change::Made(()))
    }

    async fn get_snapshot(&self, snapshot: &SnapshotRef) -> Result<Snapshot> {
        self.state().snapshot(snapshot).cloned()
    }

    async fn list_snapshots(
        &self,
        volume: Option<&VolumeRef>,
        wanted: &PageRequest,
    ) -> Result<Page<Snapshot>> {
        let of = match volume {
            Some(VolumeRef::Id(id)) => Some(id.clone()),
            Some(VolumeRef::Alias(_)) | None => None,
        };
        let snapshots = self.state().snapshots.clone();
        let fits = |s: &Snapshot| of.as_ref().is_none_or(|id| s.volume == *id);
        let fitting = snapshots.into_iter().filter(|(_, s)| fits(s));
        page(fitting.map(|(id, s)| (id.into(), s)).collect(), wanted, "snap-")
    }

    async fn create_group(&self, request: GroupRequest, _: Wait) -> Result<Reply<Group>> {
        self.take_group(request)
    }

    async fn delete_group(&self, group: &GroupRef, _: Wait) -> Result<Reply<()>> {
        self.remove_group(group)
    }

    async fn get_group(&self, group: &GroupRef) -> Result<Group> {
        self.group(group)
    }

    async fn publish(
        &self,
        volume: &VolumeRef,
        request: PublishRequest,
        _: Wait,
    ) -> Result<Reply<Publication>> {
        self.may()?;
        let mut state = self.state();
        if !state.nodes.contains(&request.node) {
            return Err(missing("node", &request.node));
        }
        let needs_secrets = *self.needs_secrets.lock().unwrap();
        let found = state.volume(volume)?;
        let change = add(found, &request, needs_secrets)?;
        drop(state);
        self.reply(OperationKind::PublishVolume, change)
    }

    async fn unpublish(&self, volume: &VolumeRef, node: &NodeId, _: Wait) -> Result<Reply<()>> {
        self.may()?;
        let mut state = self.state();
        state.volume(volume)?.publications.retain(|publication| publication.node != *node);
        drop(state);
        self.reply(OperationKind::UnpublishVolume, Change::Made(()))
    }

    async fn attach(&self, _: &VolumeRef, _: PublishRequest, _: Wait) -> Result<Reply<Attached>> {
        not_here()
    }

    async fn detach(&self, _: &VolumeRef, _: &NodeId, _: Wait) -> Result<Reply<()>> {
        not_here()
    }

    async fn mount(&self, _: &VolumeRef, _: MountRequest, _: Wait) -> Result<Reply<Publication>> {
        not_here()
    }

    async fn unmount(
        &self,
        _: &VolumeRef,
        _: &NodeId,
        _: Option<PathBuf>,
        _: Wait,
    ) -> Result<Reply<()>> {
        not_here()
    }

    async fn get_operation(&self, _: &OperationId, _: Wait) -> Result<Operation> {
        not_here()
    }

    async fn list_operations(
        &self,
        _: &OperationFilter,
        _: &PageRequest,
    ) -> Result<Page<Operation>> {
        not_here()
    }

    async fn cancel_operation(&self, _: &OperationId) -> Result<Operation> {
        not_here()
    }

    async fn list_classes(&self) -> Result<Vec<Class>> {
        Ok(classes())
    }

    async fn capacity(&self, class: &ClassName, place: Option<&Place>) -> Result<Capacity> {
        let room = match (class.as_str(), place) {
            ("default", None) => ByteSize::gib(100),
            ("local", Some(place)) if place.pairs().get("node").is_some_and(|n| n == "n1") => {
                ByteSize::gib(10)
            }
            ("local", Some(_)) => ByteSize::ZERO,
            ("local", None) => ByteSize::gib(10),
            (_, _) => return Err(Error::new(Kind::Unsupported, "it cannot tell")),
        };
        Ok(Capacity { total: room, available: room, largest_volume: room, ..Capacity::NONE })
    }

    async fn list_nodes(&self) -> Result<Vec<NodeRecord>> {
        not_here()
    }

    async fn events(&self, _: Option<u64>) -> Result<BoxStream<'static, Event>> {
        not_here()
    }

    async fn doctor(&self, _: bool) -> Result<Vec<Finding>> {
        not_here()
    }

    async fn ready(&self) -> Result<bool> {
        Ok(*self.ready.lock().unwrap())
    }
}

/// Gives a node the right to a volume, by the rules of the engine.
pub(super) fn add(
    volume: &mut Volume,
    request: &PublishRequest,
    needs_secrets: bool,
) -> Result<Change<Publication>> {
    if let Some(known) = volume.publications.iter().find(|p| p.node == request.node) {
        if known.read_only != request.read_only {
            return Err(differs("the right to write"));
        }
        return Ok(Change::Already(known.clone()));
    }
    match (volume.sharing, volume.publications.first()) {
        (Sharing::SingleWriter, Some(other)) => {
            let message = format!("volume {} is with node {}", volume.id, other.node);
            return Err(Error::new(Kind::Precondition, message));
        }
        (Sharing::ManyReaders, _) if !request.read_only => {
            return Err(Error::new(Kind::Precondition, "it is for readers only"));
        }
        (_, Some(other)) if request.single_node || other.single_node => {
            let message = format!("volume {} is with node {}", volume.id, other.node);
            return Err(Error::new(Kind::Precondition, message));
        }
        (Sharing::SingleWriter | Sharing::ManyReaders | Sharing::ManyWriters, _) => {}
    }
    let info = serde_json::json!({
        "driver_volume_type": "iscsi",
        "data": {
            "target_iqn": "iqn.2026-01.fake", "target_lun": 1,
            // As storage systems send it, whether it is needed or not.
            "auth_password": PASSWORD,
        },
        "identity": { "scheme": "serial", "value": volume.id },
    });
    let publication = Publication {
        id: PublicationId::generate(),
        node: request.node.clone(),
        read_only: request.read_only,
        node_led: request.node_led,
        claimed: false,
        single_node: request.single_node,
        needs_secrets,
        state: PublicationState::Published,
        info: Some(ConnectionInfo::try_from(info)?),
        attached: None,
        mounts: Vec::new(),
    };
    volume.untouched = false;
    volume.publications.push(publication.clone());
    Ok(Change::Made(publication))
}

/// What tests change behind everybody's back.
impl FakeControl {
    /// A volume was made this much earlier.
    pub(crate) fn age(&self, id: &str, by: std::time::Duration) {
        let id: VolumeId = id.parse().unwrap();
        let mut state = self.state();
        let volume = state.volumes.get_mut(&id).unwrap();
        volume.created = volume.created.checked_sub(by).unwrap();
    }

    /// The storage of a volume is gone, and with it all that was known of it.
    pub(crate) fn lose(&self, id: &str) {
        self.state().volumes.remove(&id.parse().unwrap());
    }

    pub(crate) fn set_snapshot_state(&self, id: &str, to: SnapshotState) {
        let id: SnapshotId = id.parse().unwrap();
        self.state().snapshots.get_mut(&id).unwrap().state = to;
    }
}
