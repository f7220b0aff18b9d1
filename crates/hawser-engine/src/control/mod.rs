//! The control half: decides, journals, and talks to storage systems and nodes.
//!
//! A change goes through four hands. `start` runs its decision as a task of the engine's own.
//! The decision (`create`, `volume`, `snapshot`, `group`, `access_begin`) finds that nothing is to do, joins
//! the same request, refuses, or writes the journal. `driver` runs the journaled work forward or
//! back until its outcome is known. `recover` hands it what a crash cut off, `sweep` removes what was cut
//! off before anything was written.

mod access;
mod access_begin;
mod create;
mod doctor;
mod draft;
mod driver;
mod events;
mod freeze;
mod group;
mod hold;
mod ids;
mod job;
mod loan;
mod names;
mod query;
mod record;
mod records;
mod recover;
mod restore;
mod snapshot;
mod start;
mod sweep;
#[cfg(test)]
mod tests;
mod upstream;
mod volume;
mod world;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_core::stream::BoxStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use hawser_core::attach::{Attached, Health};
use hawser_core::class::{Capacity, Class};
use hawser_core::doctor::Finding;
use hawser_core::error::{Error, Kind, Result};
use hawser_core::event::Event;
use hawser_core::group::{Group, GroupRef, GroupRequest};
use hawser_core::id::{InstanceId, OperationId, VolumeId};
use hawser_core::name::{ClassName, NodeId};
use hawser_core::node::NodeRecord;
use hawser_core::operation::{Operation, OperationKind};
use hawser_core::page::{Page, PageRequest};
use hawser_core::place::Place;
use hawser_core::port::control::{OperationFilter, Reply, VolumeFilter, Wait};
use hawser_core::port::upstream::{Claim, Grant, Report};
use hawser_core::port::{Control, Nodes, Store, Upstream};
use hawser_core::publication::{MountRequest, Publication, PublishRequest};
use hawser_core::size::ByteSize;
use hawser_core::snapshot::{Snapshot, SnapshotRef, SnapshotRequest};
use hawser_core::volume::{Volume, VolumeRef, VolumeRequest};

use job::Answer;
use start::change;
pub use sweep::ABANDONED;
pub use world::ClassEntry;
use world::World;

/// What an engine is made of.
pub struct EngineParts {
    /// Which instance this is: one state folder.
    pub instance: InstanceId,
    /// Where the records are.
    pub store: Arc<dyn Store>,
    /// The classes and their providers.
    pub classes: Vec<ClassEntry>,
    /// The nodes.
    pub nodes: Arc<dyn Nodes>,
    /// Write finished operations to the store, so that they are listed after a restart too. Not
    /// where every write is dear.
    pub history: bool,
    /// Record a volume that an orchestrator asks for, and asks for again until it hears of it, when
    /// it is made and not before: one write instead of two. What a crash left of one is removed when
    /// nobody has asked for it for so long; see [`ABANDONED`]. Not where a write costs little.
    pub drafts: Option<Duration>,
}

/// The control half of Hawser.
pub struct Engine {
    world: Arc<World>,
}

impl Engine {
    /// An engine that has not looked at its records yet; see [`Engine::start`].
    pub fn new(parts: EngineParts) -> Self {
        let EngineParts { instance, store, classes, nodes, history, drafts } = parts;
        let world = World {
            instance,
            records: records::Records::new(store),
            classes,
            nodes,
            jobs: job::Jobs::default(),
            events: events::Events::new(),
            names: names::NameLocks::default(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            ready: AtomicBool::new(false),
            history,
            drafts,
        };
        Self { world: Arc::new(world) }
    }

    /// Takes up every operation that was cut off, and brings back what a reboot took away.
    pub async fn start(&self) -> Result<()> {
        recover::start(&self.world).await
    }

    /// A node dialled in: remembers it, and brings back what a reboot of it took away.
    pub async fn node_came(&self, node: &NodeId) -> Result<()> {
        recover::node_came(&self.world, node).await
    }

    /// Takes no more changes, and waits for the running ones, at most so long. What is still running
    /// then is taken up at the next start.
    pub async fn stop(&self, limit: Duration) {
        self.world.stop.cancel();
        self.world.tasks.close();
        let _ = tokio::time::timeout(limit, self.world.tasks.wait()).await;
    }
}

fn of_another_kind() -> Error {
    Error::new(Kind::Internal, "an operation answered with something of another kind")
}

fn turn<T>(reply: Reply<Answer>, take: impl FnOnce(Answer) -> Option<T>) -> Result<Reply<T>> {
    use hawser_core::Change;
    Ok(match reply {
        Reply::Pending(operation) => Reply::Pending(operation),
        Reply::Done(Change::Made(answer)) => {
            Reply::Done(Change::Made(take(answer).ok_or_else(of_another_kind)?))
        }
        Reply::Done(Change::Already(answer)) => {
            Reply::Done(Change::Already(take(answer).ok_or_else(of_another_kind)?))
        }
    })
}

fn volume_of(answer: Answer) -> Option<Volume> {
    if let Answer::Volume(volume) = answer { Some(*volume) } else { None }
}

fn group_of(answer: Answer) -> Option<Group> {
    if let Answer::Group(group) = answer { Some(*group) } else { None }
}

fn publication_of(answer: Answer) -> Option<Publication> {
    match answer {
        Answer::Publication(publication) | Answer::Published(publication, _) => Some(*publication),
        Answer::Volume(_)
        | Answer::Snapshot(_)
        | Answer::Group(_)
        | Answer::Attached(_)
        | Answer::Nothing => None,
    }
}

fn attached_of(answer: Answer) -> Option<Attached> {
    if let Answer::Attached(attached) = answer { Some(attached) } else { None }
}

fn nothing_of(_answer: Answer) -> Option<()> {
    Some(())
}

#[async_trait]
impl Control for Engine {
    async fn create_volume(&self, request: VolumeRequest, wait: Wait) -> Result<Reply<Volume>> {
        let begin = create::begin(self.world.clone(), request);
        turn(change(&self.world, begin, wait).await?, volume_of)
    }

    async fn delete_volume(&self, volume: &VolumeRef, wait: Wait) -> Result<Reply<()>> {
        let begin = volume::begin_delete(self.world.clone(), volume.clone());
        turn(change(&self.world, begin, wait).await?, nothing_of)
    }

    async fn expand_volume(
        &self,
        volume: &VolumeRef,
        size: ByteSize,
        wait: Wait,
    ) -> Result<Reply<Volume>> {
        let begin = volume::begin_expand(self.world.clone(), volume.clone(), size);
        turn(change(&self.world, begin, wait).await?, volume_of)
    }

    async fn label_volume(
        &self,
        volume: &VolumeRef,
        patch: BTreeMap<String, Option<String>>,
        wait: Wait,
    ) -> Result<Reply<Volume>> {
        let begin = volume::label(self.world.clone(), volume.clone(), patch);
        turn(change(&self.world, begin, wait).await?, volume_of)
    }

    async fn get_volume(&self, volume: &VolumeRef) -> Result<Volume> {
        Ok(self.world.get_volume(volume).await?.0.view())
    }

    async fn list_volumes(
        &self,
        filter: &VolumeFilter,
        page: &PageRequest,
    ) -> Result<Page<Volume>> {
        query::volumes(&self.world, filter, page).await
    }

    async fn volume_health(&self, volume: &VolumeRef) -> Result<Health> {
        query::health(&self.world, volume).await
    }

    async fn create_snapshot(
        &self,
        request: SnapshotRequest,
        wait: Wait,
    ) -> Result<Reply<Snapshot>> {
        let by_name = SnapshotRef::Alias(request.alias.clone());
        let begin = snapshot::begin_create(self.world.clone(), request);
        match change(&self.world, begin, wait).await? {
            // The answer of an attempt whose last write was not confirmed: read it.
            Reply::Done(done) if matches!(done.get(), Answer::Nothing) => {
                let snapshot = self.get_snapshot(&by_name).await?;
                Ok(Reply::Done(done.map(|_| snapshot)))
            }
            reply @ (Reply::Done(_) | Reply::Pending(_)) => turn(reply, |answer| {
                if let Answer::Snapshot(snapshot) = answer { Some(*snapshot) } else { None }
            }),
        }
    }

    async fn delete_snapshot(&self, snapshot: &SnapshotRef, wait: Wait) -> Result<Reply<()>> {
        let begin = snapshot::begin_delete(self.world.clone(), snapshot.clone());
        turn(change(&self.world, begin, wait).await?, nothing_of)
    }

    async fn get_snapshot(&self, snapshot: &SnapshotRef) -> Result<Snapshot> {
        Ok(snapshot::get(&self.world, snapshot).await?.0.snapshot)
    }

    async fn list_snapshots(
        &self,
        volume: Option<&VolumeRef>,
        page: &PageRequest,
    ) -> Result<Page<Snapshot>> {
        query::snapshots(&self.world, volume, page).await
    }

    async fn create_group(&self, request: GroupRequest, wait: Wait) -> Result<Reply<Group>> {
        let by_name = GroupRef::Alias(request.alias.clone());
        let begin = group::begin_create(self.world.clone(), request);
        match change(&self.world, begin, wait).await? {
            // The answer of an attempt whose last write was not confirmed: read it.
            Reply::Done(done) if matches!(done.get(), Answer::Nothing) => {
                let group = self.get_group(&by_name).await?;
                Ok(Reply::Done(done.map(|_| group)))
            }
            reply @ (Reply::Done(_) | Reply::Pending(_)) => turn(reply, group_of),
        }
    }

    async fn delete_group(&self, group: &GroupRef, wait: Wait) -> Result<Reply<()>> {
        let begin = group::begin_delete(self.world.clone(), group.clone());
        turn(change(&self.world, begin, wait).await?, nothing_of)
    }

    async fn get_group(&self, group: &GroupRef) -> Result<Group> {
        group::get(&self.world, group).await
    }

    async fn publish(
        &self,
        volume: &VolumeRef,
        request: PublishRequest,
        wait: Wait,
    ) -> Result<Reply<Publication>> {
        let begin = access_begin::publish(self.world.clone(), volume.clone(), request);
        turn(change(&self.world, begin, wait).await?, publication_of)
    }

    async fn unpublish(&self, volume: &VolumeRef, node: &NodeId, wait: Wait) -> Result<Reply<()>> {
        let begin = access_begin::unpublish(self.world.clone(), volume.clone(), node.clone());
        turn(change(&self.world, begin, wait).await?, nothing_of)
    }

    async fn attach(
        &self,
        volume: &VolumeRef,
        request: PublishRequest,
        wait: Wait,
    ) -> Result<Reply<Attached>> {
        let begin = access_begin::attach(self.world.clone(), volume.clone(), request);
        turn(change(&self.world, begin, wait).await?, attached_of)
    }

    async fn detach(&self, volume: &VolumeRef, node: &NodeId, wait: Wait) -> Result<Reply<()>> {
        let begin = access_begin::detach(self.world.clone(), volume.clone(), node.clone());
        turn(change(&self.world, begin, wait).await?, nothing_of)
    }

    async fn mount(
        &self,
        volume: &VolumeRef,
        request: MountRequest,
        wait: Wait,
    ) -> Result<Reply<Publication>> {
        let begin = access_begin::mount(self.world.clone(), volume.clone(), request);
        turn(change(&self.world, begin, wait).await?, publication_of)
    }

    async fn unmount(
        &self,
        volume: &VolumeRef,
        node: &NodeId,
        target: Option<PathBuf>,
        wait: Wait,
    ) -> Result<Reply<()>> {
        let begin = access_begin::unmount(self.world.clone(), volume.clone(), node.clone(), target);
        turn(change(&self.world, begin, wait).await?, nothing_of)
    }

    async fn get_operation(&self, id: &OperationId, wait: Wait) -> Result<Operation> {
        if let Some(job) = self.world.jobs.get(id) {
            // Whatever comes of it is in the view.
            let _ = job.wait(wait).await;
            return Ok(job.view());
        }
        self.world.jobs.view(id).ok_or_else(|| {
            Error::new(Kind::NotFound, format!("operation {id} does not exist or was forgotten"))
        })
    }

    async fn list_operations(
        &self,
        filter: &OperationFilter,
        page: &PageRequest,
    ) -> Result<Page<Operation>> {
        query::operations(&self.world, filter, page)
    }

    async fn cancel_operation(&self, id: &OperationId) -> Result<Operation> {
        let Some(job) = self.world.jobs.get(id) else {
            let operation = self.get_operation(id, Wait::ZERO).await?;
            let message = format!("operation {id} has ended ({})", operation.kind);
            return Err(Error::new(Kind::Precondition, message));
        };
        match job.kind {
            // These make something new, which can be taken away again.
            OperationKind::CreateVolume
            | OperationKind::CreateSnapshot
            | OperationKind::CreateGroup => {
                job.cancel.cancel();
                let _ = job.wait(Duration::from_secs(10)).await;
                Ok(job.view())
            }
            OperationKind::DeleteVolume
            | OperationKind::ExpandVolume
            | OperationKind::LabelVolume
            | OperationKind::DeleteSnapshot
            | OperationKind::DeleteGroup
            | OperationKind::PublishVolume
            | OperationKind::UnpublishVolume
            | OperationKind::AttachVolume
            | OperationKind::DetachVolume
            | OperationKind::MountVolume
            | OperationKind::UnmountVolume
            | OperationKind::LendVolume => {
                let message = format!("operation {id} ({}) cannot be cancelled safely", job.kind);
                Err(Error::new(Kind::Precondition, message))
            }
        }
    }

    async fn list_classes(&self) -> Result<Vec<Class>> {
        Ok(self.world.classes.iter().map(|entry| entry.class.clone()).collect())
    }

    async fn capacity(&self, class: &ClassName, place: Option<&Place>) -> Result<Capacity> {
        query::capacity(&self.world, class, place).await
    }

    async fn list_nodes(&self) -> Result<Vec<NodeRecord>> {
        query::nodes(&self.world).await
    }

    async fn events(&self, after: Option<u64>) -> Result<BoxStream<'static, Event>> {
        Ok(self.world.events.stream(after))
    }

    async fn doctor(&self, fix: bool) -> Result<Vec<Finding>> {
        doctor::examine(&self.world, fix).await
    }

    async fn ready(&self) -> Result<bool> {
        Ok(self.world.ready.load(Ordering::Acquire))
    }
}

#[async_trait]
impl Upstream for Engine {
    async fn grant(&self, claim: &Claim) -> Result<Grant> {
        upstream::grant(&self.world, claim).await
    }

    async fn report(&self, report: &Report) -> Result<()> {
        upstream::report(&self.world, report).await
    }

    async fn release(&self, volume: &VolumeId, node: &NodeId) -> Result<()> {
        upstream::release(&self.world, volume, node).await
    }
}
