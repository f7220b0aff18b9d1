//! Deleting, expanding and labelling volumes, and the table of what drives a volume's operations.

use std::collections::BTreeMap;
use std::sync::Arc;

use hawser_core::Timestamp;
use hawser_core::change::Change;
use hawser_core::error::{Error, Kind, Outcome, Result, ResultExt};
use hawser_core::event::EventKind;
use hawser_core::id::OperationId;
use hawser_core::operation::OperationKind;
use hawser_core::port::Progress;
use hawser_core::size::ByteSize;
use hawser_core::volume::{Volume, VolumeRef, VolumeState};

use super::driver::{Driven, end};
use super::hold::Hold;
use super::job::{Answer, Job, JobSpec};
use super::record::{Journal, VolumeRecord, Work};
use super::start::{Begun, Decision, on_volume};
use super::world::{Subject, World, at_provider, busy};
use super::{access, create, snapshot, sweep};

impl Driven for VolumeRecord {
    async fn forward(
        world: &Arc<World>,
        hold: &Hold<Self>,
        journal: &Journal,
        job: &Job,
    ) -> Result<Answer> {
        match &journal.work {
            Work::CreateVolume => create::forward(world, hold, job).await,
            Work::DeleteVolume => delete_forward(world, hold, job).await,
            Work::ExpandVolume { size } => expand_forward(world, hold, job, *size).await,
            Work::CreateSnapshot { snapshot, alias, labels } => {
                let (group, at) = (None, journal.started);
                let wanted = snapshot::Wanted { id: snapshot, alias, labels, group, at };
                snapshot::forward(world, hold, job, &wanted).await
            }
            Work::PublishVolume { request, .. } => access::publish(world, hold, job, request).await,
            Work::UnpublishVolume { node } => access::unpublish(world, hold, job, node).await,
            Work::AttachVolume { request, .. } => access::attach(world, hold, job, request).await,
            Work::DetachVolume { node } => access::detach(world, hold, job, node).await,
            Work::MountVolume { request, .. } => access::mount(world, hold, job, request).await,
            Work::UnmountVolume { node, target } => {
                access::unmount(world, hold, job, node, target.as_deref()).await
            }
            Work::SweepVolume { class, place } => {
                sweep::forward(world, hold, job, class, place.as_ref()).await
            }
            Work::DeleteSnapshot
            | Work::CreateGroup
            | Work::DeleteGroup
            | Work::LendVolume { .. }
            | Work::SnapshotInGroup { .. } => Err(not_a_volume_operation(journal)),
        }
    }

    async fn back(
        world: &Arc<World>,
        hold: &Hold<Self>,
        journal: &Journal,
        job: &Job,
    ) -> Result<()> {
        match &journal.work {
            Work::CreateVolume => create::back(world, hold).await,
            Work::DeleteVolume => {
                hold.finish(|record| record.volume.state = VolumeState::Ready).await
            }
            // What was reached stays: a larger volume is never made smaller, a folder that was
            // unmounted is not mounted again. The same request goes on from there.
            Work::ExpandVolume { .. }
            | Work::UnpublishVolume { .. }
            | Work::DetachVolume { .. }
            | Work::UnmountVolume { .. } => hold.finish(access::settle).await,
            Work::CreateSnapshot { snapshot, alias, .. } => {
                snapshot::back(world, hold, snapshot, alias).await
            }
            Work::PublishVolume { request, new_publication } => {
                let made = access::Made { publication: *new_publication, attachment: false };
                access::take_back(world, hold, job, &request.node, made, None).await
            }
            Work::AttachVolume { request, new_publication } => {
                let made = access::Made { publication: *new_publication, attachment: true };
                access::take_back(world, hold, job, &request.node, made, None).await
            }
            Work::MountVolume { request, new_publication, new_attachment, new_mount } => {
                let made =
                    access::Made { publication: *new_publication, attachment: *new_attachment };
                let target = new_mount.then_some(request.target.as_path());
                access::take_back(world, hold, job, &request.node, made, target).await
            }
            Work::SweepVolume { .. } => sweep::let_go(hold).await,
            Work::DeleteSnapshot
            | Work::CreateGroup
            | Work::DeleteGroup
            | Work::LendVolume { .. }
            | Work::SnapshotInGroup { .. } => Err(not_a_volume_operation(journal)),
        }
    }

    fn ended(record: &Self, journal: &Journal) -> Answer {
        match &journal.work {
            Work::CreateVolume | Work::ExpandVolume { .. } => create::ended(record, journal),
            Work::PublishVolume { request, .. } => {
                access::publication_answer(record, &request.node)
            }
            Work::MountVolume { request, .. } => access::publication_answer(record, &request.node),
            Work::AttachVolume { request, .. } => access::attached_answer(record, &request.node),
            Work::CreateSnapshot { .. }
            | Work::DeleteVolume
            | Work::UnpublishVolume { .. }
            | Work::DetachVolume { .. }
            | Work::UnmountVolume { .. }
            | Work::SweepVolume { .. }
            | Work::DeleteSnapshot
            | Work::CreateGroup
            | Work::DeleteGroup
            | Work::LendVolume { .. }
            | Work::SnapshotInGroup { .. } => Answer::Nothing,
        }
    }
}

fn not_a_volume_operation(journal: &Journal) -> Error {
    let message = format!("{} cannot be driven on a volume's record", journal.work.kind());
    Error::new(Kind::Internal, message).with_outcome(Outcome::Unknown)
}

/// Begins to delete a volume; absent is fine.
pub(crate) async fn begin_delete(world: Arc<World>, volume: VolumeRef) -> Result<Begun> {
    if world.find_volume(&volume).await?.is_none() {
        return Ok(Begun::Answer(Change::Already(Answer::Nothing)));
    }
    let begun = on_volume(world.clone(), volume.clone(), Work::DeleteVolume, |record| {
        refuse_if_published(&record.volume)?;
        let mut changed = record.clone();
        changed.volume.state = VolumeState::Deleting;
        Ok(Decision::Start(Work::DeleteVolume, Box::new(changed)))
    });
    match begun.await {
        // Somebody else's deletion came to its end meanwhile.
        Err(error)
            if error.kind() == Kind::NotFound && world.find_volume(&volume).await?.is_none() =>
        {
            Ok(Begun::Answer(Change::Already(Answer::Nothing)))
        }
        begun => begun,
    }
}

fn refuse_if_published(volume: &Volume) -> Result<()> {
    let Some(publication) = volume.publications.first() else { return Ok(()) };
    let name = volume.display_name();
    let node = &publication.node;
    let message = match publication.mounts.first() {
        Some(mount) => format!(
            "volume {name} is mounted on {} of node {node}; unmount it first: hawser unmount {name}",
            mount.target.display()
        ),
        None => format!(
            "volume {name} is in use by node {node}; release it first: hawser volume detach {name}"
        ),
    };
    Err(Error::new(Kind::Precondition, message))
}

async fn delete_forward(
    world: &Arc<World>,
    hold: &Hold<VolumeRecord>,
    job: &Job,
) -> Result<Answer> {
    let volume = hold.record().await.volume;
    let name = volume.display_name();
    job.step("removing the volume");
    world
        .provider(&volume.class)?
        .delete(&at_provider(&volume))
        .await
        .context(|| format!("deleting volume {name} in class {}", volume.class))?;
    // The data is gone: from here on there is only forward, whatever fails.
    forget(world, hold, &volume).await.map_err(|error| error.with_outcome(Outcome::Unknown))?;
    world.events.tell(EventKind::VolumeDeleted, volume.id.as_str(), format!("{name} was deleted"));
    Ok(Answer::Nothing)
}

/// Removes the names and then the record, so that a name never leads to nothing.
async fn forget(world: &World, hold: &Hold<VolumeRecord>, volume: &Volume) -> Result<()> {
    for alias in &volume.aliases {
        world.records.release_name("volume", alias, volume.id.as_str()).await?;
    }
    hold.remove().await
}

/// Begins to make a volume larger.
pub(crate) async fn begin_expand(
    world: Arc<World>,
    volume: VolumeRef,
    size: ByteSize,
) -> Result<Begun> {
    let classes = world.clone();
    let size = real_size(&world, &volume, size).await?;
    on_volume(world, volume, Work::ExpandVolume { size }, move |record| {
        let volume = &record.volume;
        let name = volume.display_name();
        if size < volume.size {
            let message = format!(
                "volume {name} has {}, it cannot be made smaller ({size} requested)",
                volume.size
            );
            return Err(Error::new(Kind::OutOfRange, message));
        }
        if classes.provider(&volume.class)?.expand().is_none() {
            let message = format!("class {} cannot expand volumes", volume.class);
            return Err(Error::new(Kind::Unsupported, message));
        }
        // Even at the right size a node may not have seen it yet, after a failure half-way.
        let attached = volume.publications.iter().any(|p| p.attached.is_some());
        if size == volume.size && !attached {
            return Ok(Decision::Already(Answer::Volume(Box::new(record.view()))));
        }
        Ok(Decision::Start(Work::ExpandVolume { size }, Box::new(record.clone())))
    })
    .await
}

/// The size that the provider makes of this one: a repetition of a request that was rounded up is no
/// request for a smaller volume. What it cannot make as a volume is judged as it is.
async fn real_size(world: &World, volume: &VolumeRef, size: ByteSize) -> Result<ByteSize> {
    let volume = world.get_volume(volume).await?.0.volume;
    world.provider(&volume.class)?;
    Ok(create::size_made_of(world, &volume, size).await.unwrap_or(size))
}

async fn expand_forward(
    world: &Arc<World>,
    hold: &Hold<VolumeRecord>,
    job: &Job,
    size: ByteSize,
) -> Result<Answer> {
    let volume = hold.record().await.volume;
    let name = volume.display_name();
    job.step("making the volume larger");
    let provider = world.provider(&volume.class)?;
    let Some(expand) = provider.expand() else {
        return Err(Error::new(
            Kind::Unsupported,
            format!("class {} cannot expand volumes", volume.class),
        ));
    };
    let reached = expand
        .expand(&at_provider(&volume), size)
        .await
        .context(|| format!("expanding volume {name} to {size}"))?
        .into_inner();
    if reached != volume.size {
        hold.save(|record| record.volume.size = reached).await?;
    }
    for publication in volume.publications.iter().filter(|p| p.attached.is_some()) {
        job.step("making the host see it");
        let node = world.nodes.get(&publication.node).await?;
        let seen = node.extend(&publication.id, reached).await.context(|| {
            format!(
                "volume {name} has {reached} now, but node {} does not use it yet; repeat the expansion",
                publication.node
            )
        })?;
        hold.save(|record| access::note_device_size(record, &publication.id, seen)).await?;
    }
    hold.finish(|_| {}).await?;
    world.events.tell(
        EventKind::VolumeChanged,
        volume.id.as_str(),
        format!("{name} has {reached}"),
    );
    Ok(Answer::Volume(Box::new(hold.record().await.view())))
}

/// Changes labels: one write, which is its own journal. It is listed like any other operation.
pub(crate) async fn label(
    world: Arc<World>,
    volume: VolumeRef,
    patch: BTreeMap<String, Option<String>>,
) -> Result<Begun> {
    let (found, _) = world.get_volume(&volume).await?;
    let mut made = false;
    let changed = world
        .records
        .update::<VolumeRecord>(&VolumeRecord::key_of(&found.volume.id), |record| {
            if let Some(journal) = &record.journal {
                return Err(busy(&Subject::volume(&record.volume), journal));
            }
            let labels = record.volume.labels.patched(&patch)?;
            made = labels != record.volume.labels;
            let mut changed = record.clone();
            changed.volume.labels = labels;
            Ok(made.then_some(changed))
        })
        .await?;
    let Some(record) = changed else {
        return Err(Error::new(Kind::NotFound, format!("volume {volume} does not exist")));
    };
    let answer = Answer::Volume(Box::new(record.view()));
    if made {
        let id = record.volume.id.as_str();
        world.events.tell(EventKind::VolumeChanged, id, "labels were changed");
        let subject = Subject::volume(&record.volume);
        if let Some(job) = world.jobs.start(JobSpec {
            id: OperationId::generate(),
            kind: OperationKind::LabelVolume,
            subject: subject.id,
            subject_name: subject.name,
            started: Timestamp::now(),
            resumed: false,
        }) {
            end(&world, &job, Ok(answer.clone()));
        }
        return Ok(Begun::Answer(Change::Made(answer)));
    }
    Ok(Begun::Answer(Change::Already(answer)))
}
