//! A `Control` in memory: small, honest about kinds, with names that make it misbehave.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use futures_core::stream::BoxStream;
use futures_util::{StreamExt, stream};
use hawser_core::attach::{Attached, Health, Identity};
use hawser_core::class::{Ability, Capacity, Class};
use hawser_core::connection::ConnectionInfo;
use hawser_core::doctor::{Finding, FindingCode, Repair};
use hawser_core::event::{Event, EventKind};
use hawser_core::filesystem::{Filesystem, FormatState, FsKind};
use hawser_core::group::{Group, GroupRef, GroupRequest};
use hawser_core::id::{GroupId, OperationId, PublicationId, SnapshotId, VolumeId};
use hawser_core::name::{Alias, ClassName, NodeId};
use hawser_core::node::NodeRecord;
use hawser_core::operation::{Failure, Operation, OperationKind, OperationState, ProgressReport};
use hawser_core::page::{Page, PageRequest};
use hawser_core::place::Place;
use hawser_core::port::Control;
use hawser_core::port::control::{OperationFilter, Reply, VolumeFilter, Wait};
use hawser_core::publication::{
    MountPoint, MountRequest, Publication, PublicationState, PublishRequest,
};
use hawser_core::snapshot::{Snapshot, SnapshotRef, SnapshotRequest, SnapshotState};
use hawser_core::volume::{
    Access, Source, SourceRef, Volume, VolumeRef, VolumeRequest, VolumeState,
};
use hawser_core::{ByteSize, Change, Error, Kind, Outcome, Result, Timestamp};
use tokio::sync::broadcast;

pub(super) struct FakeControl {
    state: Mutex<State>,
    events: broadcast::Sender<Event>,
}

#[derive(Default)]
struct State {
    volumes: Vec<Volume>,
    snapshots: Vec<Snapshot>,
    groups: Vec<Group>,
    operations: Vec<Operation>,
    history: Vec<Event>,
    ready: bool,
}

impl Default for FakeControl {
    fn default() -> Self {
        let state = State { ready: true, ..State::default() };
        Self { state: Mutex::new(state), events: broadcast::Sender::new(64) }
    }
}

fn class() -> ClassName {
    "default".parse().unwrap()
}

fn missing(what: &str, name: &dyn std::fmt::Display) -> Error {
    Error::new(Kind::NotFound, format!("{what} {name} does not exist"))
}

fn page<T: Clone>(items: &[T], page: &PageRequest) -> Result<Page<T>> {
    let start = match &page.token {
        None => 0,
        Some(token) => token
            .parse::<usize>()
            .map_err(|_| Error::new(Kind::Invalid, "the page token is none of this list"))?,
    };
    let rest = items.get(start..).unwrap_or_default();
    let next = start + page.limit();
    let next = (next < items.len()).then(|| next.to_string());
    Ok(Page { items: rest.iter().take(page.limit()).cloned().collect(), next })
}

impl State {
    fn volume(&mut self, volume: &VolumeRef) -> Result<&mut Volume> {
        let is = |v: &&mut Volume| match volume {
            VolumeRef::Id(id) => v.id == *id,
            VolumeRef::Alias(alias) => v.aliases.contains(alias),
        };
        self.volumes.iter_mut().find(is).ok_or_else(|| missing("volume", volume))
    }

    fn snapshot(&self, snapshot: &SnapshotRef) -> Result<&Snapshot> {
        let is = |s: &&Snapshot| match snapshot {
            SnapshotRef::Id(id) => s.id == *id,
            SnapshotRef::Alias(alias) => s.alias == *alias,
        };
        self.snapshots.iter().find(is).ok_or_else(|| missing("snapshot", snapshot))
    }

    fn group(&self, group: &GroupRef) -> Result<&Group> {
        let is = |g: &&Group| match group {
            GroupRef::Id(id) => g.id == *id,
            GroupRef::Alias(alias) => g.alias == *alias,
        };
        self.groups.iter().find(is).ok_or_else(|| missing("group", group))
    }
}

/// A snapshot of a volume, in a group or alone.
fn snapshot_of(volume: Volume, request: SnapshotRequest, group: Option<GroupId>) -> Snapshot {
    Snapshot {
        id: SnapshotId::generate(),
        alias: request.alias,
        volume: volume.id,
        class: volume.class,
        size: volume.size,
        access: volume.access,
        filesystem: volume.filesystem,
        handle: "s-1".to_owned(),
        labels: request.labels,
        place: volume.place,
        group,
        state: SnapshotState::Ready,
        created: Timestamp::now(),
    }
}

impl FakeControl {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(super) fn set_ready(&self, ready: bool) {
        self.state().ready = ready;
    }

    pub(super) fn watchers(&self) -> usize {
        self.events.receiver_count()
    }

    fn tell(&self, kind: EventKind, subject: &str) {
        let mut state = self.state();
        let event = Event {
            sequence: state.history.len() as u64 + 1,
            at: Timestamp::now(),
            kind,
            subject: subject.to_owned(),
            message: "two\nlines\r\n".to_owned(),
        };
        state.history.push(event.clone());
        let _ = self.events.send(event);
    }

    /// What every change does: an operation, and an answer that depends on how long one waits.
    fn reply<T>(
        &self,
        kind: OperationKind,
        subject: &str,
        wait: Wait,
        change: Change<T>,
    ) -> Result<Reply<T>> {
        let pending = wait.is_zero();
        let now = Timestamp::now();
        let operation = Operation {
            id: OperationId::generate(),
            kind,
            subject: subject.to_owned(),
            subject_name: "data".to_owned(),
            state: if pending { OperationState::Running } else { OperationState::Succeeded },
            progress: ProgressReport { step: "copying".to_owned(), done: 1, total: 2 },
            started: now,
            finished: (!pending).then_some(now),
            error: None,
        };
        self.state().operations.insert(0, operation.clone());
        if pending {
            self.tell(EventKind::OperationStarted, operation.id.as_str());
            return Ok(Reply::Pending(operation));
        }
        self.tell(EventKind::OperationFinished, operation.id.as_str());
        Ok(Reply::Done(change))
    }
}

/// Names that make a creation fail in a way of their own.
fn misbehave(alias: &Alias) -> Result<()> {
    let cause = Error::new(Kind::NoSpace, "the pool is full");
    match alias.name() {
        "panic" => panic!("the secret of the pool"),
        "internal" => Err(Error::new(Kind::Internal, "the secret of the pool")),
        "unknown" => {
            Err(Error::new(Kind::Internal, "the secret of the pool").with_outcome(Outcome::Unknown))
        }
        "full" => Err(cause.with_outcome(Outcome::RolledBack).context("creating volume full")),
        _ => Ok(()),
    }
}

#[async_trait]
impl Control for FakeControl {
    async fn create_volume(&self, request: VolumeRequest, wait: Wait) -> Result<Reply<Volume>> {
        request.validate()?;
        misbehave(&request.alias)?;
        let mut state = self.state();
        let known = state.volume(&VolumeRef::Alias(request.alias.clone())).ok().cloned();
        if let Some(known) = known {
            drop(state);
            if request.size.is_some_and(|size| size != known.size) {
                let text = format!("volume {} has {} bytes", request.alias, known.size.get());
                return Err(Error::new(Kind::Exists, text));
            }
            let id = known.id.to_string();
            return self.reply(OperationKind::CreateVolume, &id, wait, Change::Already(known));
        }
        let source = match &request.source {
            None => None,
            Some(SourceRef::Snapshot(snapshot)) => {
                Some(Source::Snapshot(state.snapshot(snapshot)?.id.clone()))
            }
            Some(SourceRef::Volume(volume)) => {
                Some(Source::Volume(state.volume(volume)?.id.clone()))
            }
        };
        let access = request.access.unwrap_or(Access::Filesystem(FsKind::Ext4));
        let volume = Volume {
            id: VolumeId::generate(),
            aliases: vec![request.alias],
            class: request.class.unwrap_or_else(class),
            size: request.size.unwrap_or(ByteSize::gib(1)),
            access,
            sharing: request.sharing,
            source,
            labels: request.labels,
            parameters: request.parameters,
            handle: "h-1".to_owned(),
            place: request.places.into_iter().next(),
            state: VolumeState::Ready,
            filesystem: match access {
                Access::Filesystem(kind) => {
                    Some(Filesystem { kind, uuid: uuid::Uuid::new_v4(), state: FormatState::Never })
                }
                Access::Block | Access::Folder => None,
            },
            identity: Some(Identity::new("image", "h-1")),
            publications: Vec::new(),
            untouched: false,
            operation: None,
            created: Timestamp::now(),
        };
        state.volumes.push(volume.clone());
        drop(state);
        self.tell(EventKind::VolumeChanged, volume.id.as_str());
        let id = volume.id.to_string();
        self.reply(OperationKind::CreateVolume, &id, wait, Change::Made(volume))
    }

    async fn delete_volume(&self, volume: &VolumeRef, wait: Wait) -> Result<Reply<()>> {
        let mut state = self.state();
        let Some(found) = state.volume(volume).ok().cloned() else {
            drop(state);
            return self.reply(OperationKind::DeleteVolume, "", wait, Change::Already(()));
        };
        if !found.publications.is_empty() {
            return Err(Error::new(Kind::Precondition, format!("volume {volume} is published")));
        }
        if !wait.is_zero() {
            state.volumes.retain(|other| other.id != found.id);
        }
        drop(state);
        self.reply(OperationKind::DeleteVolume, found.id.as_str(), wait, Change::Made(()))
    }

    async fn expand_volume(
        &self,
        volume: &VolumeRef,
        size: ByteSize,
        wait: Wait,
    ) -> Result<Reply<Volume>> {
        let mut state = self.state();
        let found = state.volume(volume)?;
        if size < found.size {
            return Err(Error::new(Kind::OutOfRange, format!("{volume} is larger already")));
        }
        let grows = size > found.size;
        found.size = size;
        let found = found.clone();
        drop(state);
        let id = found.id.to_string();
        let change = if grows { Change::Made(found) } else { Change::Already(found) };
        self.reply(OperationKind::ExpandVolume, &id, wait, change)
    }

    async fn label_volume(
        &self,
        volume: &VolumeRef,
        patch: BTreeMap<String, Option<String>>,
        wait: Wait,
    ) -> Result<Reply<Volume>> {
        let mut state = self.state();
        let found = state.volume(volume)?;
        found.labels = found.labels.patched(&patch)?;
        let found = found.clone();
        drop(state);
        let id = found.id.to_string();
        self.reply(OperationKind::LabelVolume, &id, wait, Change::Made(found))
    }

    async fn get_volume(&self, volume: &VolumeRef) -> Result<Volume> {
        self.state().volume(volume).cloned()
    }

    async fn list_volumes(
        &self,
        filter: &VolumeFilter,
        which: &PageRequest,
    ) -> Result<Page<Volume>> {
        let fits = |volume: &&Volume| {
            filter.class.as_ref().is_none_or(|class| *class == volume.class)
                && volume.labels.matches(&filter.labels)
        };
        let volumes: Vec<_> = self.state().volumes.iter().filter(fits).cloned().collect();
        page(&volumes, which)
    }

    async fn volume_health(&self, volume: &VolumeRef) -> Result<Health> {
        self.state().volume(volume).map(|_| Health::good())
    }

    async fn create_snapshot(
        &self,
        request: SnapshotRequest,
        wait: Wait,
    ) -> Result<Reply<Snapshot>> {
        let mut state = self.state();
        let volume = state.volume(&request.volume)?.clone();
        let known = state.snapshot(&SnapshotRef::Alias(request.alias.clone())).ok().cloned();
        let change = match known {
            Some(known) => Change::Already(known),
            None => Change::Made(snapshot_of(volume, request, None)),
        };
        if let Change::Made(snapshot) = &change {
            state.snapshots.push(snapshot.clone());
        }
        drop(state);
        let id = change.get().id.to_string();
        self.reply(OperationKind::CreateSnapshot, &id, wait, change)
    }

    async fn delete_snapshot(&self, snapshot: &SnapshotRef, wait: Wait) -> Result<Reply<()>> {
        let mut state = self.state();
        let id = state.snapshot(snapshot).ok().map(|found| found.id.clone());
        state.snapshots.retain(|other| Some(&other.id) != id.as_ref());
        drop(state);
        let change = if id.is_some() { Change::Made(()) } else { Change::Already(()) };
        self.reply(OperationKind::DeleteSnapshot, "", wait, change)
    }

    async fn get_snapshot(&self, snapshot: &SnapshotRef) -> Result<Snapshot> {
        self.state().snapshot(snapshot).cloned()
    }

    async fn list_snapshots(
        &self,
        volume: Option<&VolumeRef>,
        which: &PageRequest,
    ) -> Result<Page<Snapshot>> {
        let mut state = self.state();
        let of = volume.map(|volume| state.volume(volume).map(|v| v.id.clone())).transpose()?;
        let fits = |s: &&Snapshot| of.as_ref().is_none_or(|id| s.volume == *id);
        let snapshots: Vec<_> = state.snapshots.iter().filter(fits).cloned().collect();
        page(&snapshots, which)
    }

    async fn create_group(&self, request: GroupRequest, wait: Wait) -> Result<Reply<Group>> {
        let mut state = self.state();
        let mut volumes = Vec::new();
        for volume in &request.volumes {
            volumes.push(state.volume(volume)?.clone());
        }
        if volumes.iter().any(|volume| !volume.publications.is_empty()) {
            let text = format!("a volume of group {} cannot be held still", request.alias);
            return Err(Error::new(Kind::Precondition, text));
        }
        let known = state.group(&GroupRef::Alias(request.alias.clone())).ok().cloned();
        let change = match known {
            Some(known) => Change::Already(known),
            None => {
                let id = GroupId::generate();
                let members = volumes.into_iter().enumerate().map(|(index, volume)| {
                    let alias = Alias::native(format!("{id}.{index}")).unwrap();
                    let of = VolumeRef::Id(volume.id.clone());
                    let labels = request.labels.clone();
                    let wanted = SnapshotRequest { alias, volume: of, labels };
                    snapshot_of(volume, wanted, Some(id.clone()))
                });
                let snapshots: Vec<_> = members.collect();
                let created = Timestamp::now();
                Change::Made(Group { id, alias: request.alias, snapshots, created })
            }
        };
        if let Change::Made(group) = &change {
            state.snapshots.extend(group.snapshots.clone());
            state.groups.push(group.clone());
        }
        drop(state);
        let id = change.get().id.to_string();
        self.reply(OperationKind::CreateGroup, &id, wait, change)
    }

    async fn delete_group(&self, group: &GroupRef, wait: Wait) -> Result<Reply<()>> {
        let mut state = self.state();
        let id = state.group(group).ok().map(|found| found.id.clone());
        state.groups.retain(|other| Some(&other.id) != id.as_ref());
        state.snapshots.retain(|other| other.group.is_none() || other.group != id);
        drop(state);
        let change = if id.is_some() { Change::Made(()) } else { Change::Already(()) };
        self.reply(OperationKind::DeleteGroup, "", wait, change)
    }

    async fn get_group(&self, group: &GroupRef) -> Result<Group> {
        self.state().group(group).cloned()
    }

    async fn publish(
        &self,
        volume: &VolumeRef,
        request: PublishRequest,
        wait: Wait,
    ) -> Result<Reply<Publication>> {
        let mut state = self.state();
        let found = state.volume(volume)?;
        let id = found.id.to_string();
        let known = found.publications.iter().find(|p| p.node == request.node).cloned();
        let change = match known {
            Some(known) => Change::Already(known),
            None => {
                let json = serde_json::json!({
                    "driver_volume_type": "iscsi",
                    "data": { "target_iqn": "iqn.x", "auth_password": "hunter2" },
                    "identity": { "scheme": "wwid", "value": "1" },
                });
                let publication = Publication {
                    id: PublicationId::generate(),
                    node: request.node,
                    read_only: request.read_only,
                    node_led: request.node_led,
                    claimed: false,
                    single_node: false,
                    needs_secrets: true,
                    state: PublicationState::Published,
                    info: Some(ConnectionInfo::try_from(json)?),
                    attached: None,
                    mounts: Vec::new(),
                };
                found.publications.push(publication.clone());
                Change::Made(publication)
            }
        };
        drop(state);
        self.reply(OperationKind::PublishVolume, &id, wait, change)
    }

    async fn unpublish(&self, volume: &VolumeRef, node: &NodeId, wait: Wait) -> Result<Reply<()>> {
        let mut state = self.state();
        let found = state.volume(volume)?;
        let before = found.publications.len();
        found.publications.retain(|publication| publication.node != *node);
        let made = found.publications.len() < before;
        let id = found.id.to_string();
        drop(state);
        let change = if made { Change::Made(()) } else { Change::Already(()) };
        self.reply(OperationKind::UnpublishVolume, &id, wait, change)
    }

    async fn attach(
        &self,
        volume: &VolumeRef,
        request: PublishRequest,
        wait: Wait,
    ) -> Result<Reply<Attached>> {
        let node = request.node.clone();
        self.publish(volume, request, Duration::from_secs(1)).await?;
        let attached = Attached::Block {
            device: PathBuf::from("/dev/loop3"),
            identity: Some(Identity::new("image", "h-1")),
            size: ByteSize::gib(1),
        };
        let mut state = self.state();
        let found = state.volume(volume)?;
        let id = found.id.to_string();
        for publication in found.publications.iter_mut().filter(|p| p.node == node) {
            publication.attached = Some(attached.clone());
        }
        drop(state);
        self.reply(OperationKind::AttachVolume, &id, wait, Change::Made(attached))
    }

    async fn detach(&self, volume: &VolumeRef, node: &NodeId, wait: Wait) -> Result<Reply<()>> {
        self.unpublish(volume, node, wait).await
    }

    async fn mount(
        &self,
        volume: &VolumeRef,
        request: MountRequest,
        wait: Wait,
    ) -> Result<Reply<Publication>> {
        let publish = PublishRequest::new(request.node.clone(), request.read_only);
        self.attach(volume, publish, Duration::from_secs(1)).await?;
        let mut state = self.state();
        let found = state.volume(volume)?;
        let id = found.id.to_string();
        let publication = found.publications.iter_mut().find(|p| p.node == request.node);
        let publication = publication.ok_or_else(|| missing("node", &request.node))?;
        publication.mounts.push(MountPoint {
            target: request.target,
            read_only: request.read_only,
            flags: request.flags,
            ready: true,
        });
        let publication = publication.clone();
        drop(state);
        self.reply(OperationKind::MountVolume, &id, wait, Change::Made(publication))
    }

    async fn unmount(
        &self,
        volume: &VolumeRef,
        node: &NodeId,
        target: Option<PathBuf>,
        wait: Wait,
    ) -> Result<Reply<()>> {
        let mut state = self.state();
        let found = state.volume(volume)?;
        let id = found.id.to_string();
        let mut made = false;
        for publication in found.publications.iter_mut().filter(|p| p.node == *node) {
            let before = publication.mounts.len();
            publication.mounts.retain(|m| target.as_ref().is_some_and(|t| m.target != *t));
            made |= publication.mounts.len() < before;
        }
        if made {
            found.publications.retain(|p| p.node != *node || !p.mounts.is_empty());
        }
        drop(state);
        let change = if made { Change::Made(()) } else { Change::Already(()) };
        self.reply(OperationKind::UnmountVolume, &id, wait, change)
    }

    async fn get_operation(&self, id: &OperationId, _: Wait) -> Result<Operation> {
        let state = self.state();
        let found = state.operations.iter().find(|operation| operation.id == *id);
        found.cloned().ok_or_else(|| missing("operation", id))
    }

    async fn list_operations(
        &self,
        filter: &OperationFilter,
        which: &PageRequest,
    ) -> Result<Page<Operation>> {
        let fits = |operation: &&Operation| {
            filter.state.is_none_or(|state| state == operation.state)
                && filter.subject.as_ref().is_none_or(|subject| *subject == operation.subject)
        };
        let operations: Vec<_> = self.state().operations.iter().filter(fits).cloned().collect();
        page(&operations, which)
    }

    async fn cancel_operation(&self, id: &OperationId) -> Result<Operation> {
        let mut state = self.state();
        let found = state.operations.iter_mut().find(|operation| operation.id == *id);
        let found = found.ok_or_else(|| missing("operation", id))?;
        if found.state.is_final() {
            return Err(Error::new(Kind::Precondition, format!("operation {id} is over")));
        }
        found.state = OperationState::Failed;
        found.finished = Some(Timestamp::now());
        found.error = Some(Failure {
            kind: Kind::Internal,
            outcome: Outcome::RolledBack,
            messages: vec!["the secret of the pool".to_owned()],
            reason: None,
        });
        Ok(found.clone())
    }

    async fn list_classes(&self) -> Result<Vec<Class>> {
        Ok(vec![Class {
            name: class(),
            provider: "local".to_owned(),
            settings: BTreeMap::from([("path".to_owned(), "/pool".to_owned())]),
            abilities: vec![Ability::Snapshots, Ability::Expand],
            default: true,
        }])
    }

    async fn capacity(&self, name: &ClassName, place: Option<&Place>) -> Result<Capacity> {
        if *name != class() {
            return Err(missing("class", name));
        }
        Ok(Capacity {
            total: ByteSize::gib(10),
            available: ByteSize::gib(if place.is_some() { 3 } else { 8 }),
            promised: ByteSize::gib(2),
            used: ByteSize::gib(1),
            largest_volume: ByteSize::gib(8),
        })
    }

    async fn list_nodes(&self) -> Result<Vec<NodeRecord>> {
        Ok(vec![NodeRecord {
            id: "n1".parse().unwrap(),
            properties: BTreeMap::from([("wwpns".to_owned(), serde_json::json!(["1", "2"]))]),
            topology: BTreeMap::from([("zone".to_owned(), "a".to_owned())]),
            boot_id: "b".to_owned(),
            privileged: true,
            last_seen: Timestamp::now(),
        }])
    }

    async fn events(&self, after: Option<u64>) -> Result<BoxStream<'static, Event>> {
        let state = self.state();
        let live = self.events.subscribe();
        let history =
            after.map(|after| state.history[(after as usize).min(state.history.len())..].to_vec());
        let live =
            stream::unfold(live, |mut live| async { live.recv().await.ok().map(|e| (e, live)) });
        Ok(stream::iter(history.unwrap_or_default()).chain(live).boxed())
    }

    async fn doctor(&self, fix: bool) -> Result<Vec<Finding>> {
        Ok([Some(Repair::Done), Some(Repair::Failed("in use".to_owned())), None]
            .into_iter()
            .map(|repair| Finding {
                code: FindingCode::LoopWithoutRecord,
                subject: "/dev/loop9".to_owned(),
                explanation: "no record names it".to_owned(),
                advice: "detach it".to_owned(),
                fixable: true,
                repair: repair.filter(|_| fix),
            })
            .collect())
    }

    async fn ready(&self) -> Result<bool> {
        Ok(self.state().ready)
    }
}
