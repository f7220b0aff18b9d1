//! Giving a volume to a node and taking it back: publish, attach, mount, and the way down.

use std::path::Path;
use std::sync::Arc;

use hawser_core::attach::{Attach, Attached, Detach};
use hawser_core::connection::ConnectionInfo;
use hawser_core::error::{Error, Kind, Result, ResultExt};
use hawser_core::event::EventKind;
use hawser_core::filesystem::FormatState;
use hawser_core::id::PublicationId;
use hawser_core::name::NodeId;
use hawser_core::port::Progress;
use hawser_core::port::node::{AttachWork, FormatWork, MountWork};
use hawser_core::publication::{MountRequest, Publication, PublicationState, PublishRequest};
use hawser_core::size::ByteSize;
use hawser_core::volume::Volume;

use super::hold::Hold;
use super::job::{Answer, Job};
use super::record::VolumeRecord;
use super::world::{World, at_provider, check_identity};

pub(crate) fn publication_of<'a>(volume: &'a Volume, node: &NodeId) -> Option<&'a Publication> {
    volume.publications.iter().find(|publication| publication.node == *node)
}

fn publication_mut<'a>(
    record: &'a mut VolumeRecord,
    id: &PublicationId,
) -> Option<&'a mut Publication> {
    record.volume.publications.iter_mut().find(|publication| publication.id == *id)
}

async fn current(hold: &Hold<VolumeRecord>, node: &NodeId) -> Result<(Volume, Publication)> {
    let volume = hold.record().await.volume;
    let publication = publication_of(&volume, node).cloned();
    match publication {
        Some(publication) => Ok((volume, publication)),
        None => {
            let message = format!("volume {} has no publication for {node}", volume.display_name());
            Err(Error::new(Kind::Internal, message))
        }
    }
}

pub(crate) fn publication_answer(record: &VolumeRecord, node: &NodeId) -> Answer {
    publication_of(&record.volume, node)
        .map_or(Answer::Nothing, |found| Answer::Publication(Box::new(found.clone())))
}

pub(crate) fn attached_answer(record: &VolumeRecord, node: &NodeId) -> Answer {
    publication_of(&record.volume, node)
        .and_then(|found| found.attached.clone())
        .map_or(Answer::Nothing, Answer::Attached)
}

/// Gives the right.
pub(crate) async fn publish(
    world: &Arc<World>,
    hold: &Hold<VolumeRecord>,
    job: &Job,
    request: &PublishRequest,
) -> Result<Answer> {
    let info = ensure_published(world, hold, job, &request.node).await?;
    hold.finish(|_| {}).await?;
    tell(world, hold, format!("published to {}", request.node)).await;
    let (_, publication) = current(hold, &request.node).await?;
    Ok(Answer::Published(Box::new(publication), Box::new(info)))
}

/// Gives the right and brings the device.
pub(crate) async fn attach(
    world: &Arc<World>,
    hold: &Hold<VolumeRecord>,
    job: &Job,
    request: &PublishRequest,
) -> Result<Answer> {
    let info = ensure_published(world, hold, job, &request.node).await?;
    ensure_attached(world, hold, job, &request.node, info).await?;
    hold.finish(|_| {}).await?;
    tell(world, hold, format!("attached to {}", request.node)).await;
    Ok(attached_answer(&hold.record().await, &request.node))
}

/// Gives the right, brings the device, makes the file system if it never was, and mounts.
pub(crate) async fn mount(
    world: &Arc<World>,
    hold: &Hold<VolumeRecord>,
    job: &Job,
    request: &MountRequest,
) -> Result<Answer> {
    let info = ensure_published(world, hold, job, &request.node).await?;
    ensure_attached(world, hold, job, &request.node, info).await?;
    ensure_formatted(world, hold, job, request).await?;
    let (volume, publication) = current(hold, &request.node).await?;
    job.step("mounting");
    let work = MountWork {
        publication: publication.id.clone(),
        target: request.target.clone(),
        read_only: request.read_only || publication.read_only,
        flags: request.flags.clone(),
        filesystem: volume.filesystem.as_ref().map(|inside| (inside.kind, inside.uuid)),
        raw: false,
        group: None,
    };
    let node = world.nodes.get(&request.node).await?;
    node.mount(&work).await.context(|| {
        format!("mounting volume {} on {}", volume.display_name(), request.target.display())
    })?;
    hold.finish(|record| {
        let mounts = publication_mut(record, &publication.id).map(|found| &mut found.mounts);
        if let Some(mount) =
            mounts.into_iter().flatten().find(|mount| mount.target == request.target)
        {
            mount.ready = true;
        }
    })
    .await?;
    tell(world, hold, format!("mounted on {}", request.target.display())).await;
    Ok(publication_answer(&hold.record().await, &request.node))
}

async fn tell(world: &World, hold: &Hold<VolumeRecord>, message: String) {
    let id = hold.record().await.volume.id;
    world.events.tell(EventKind::VolumeChanged, id.as_str(), message);
}

/// Asks the provider, and answers how to reach the volume, secrets and all.
async fn ensure_published(
    world: &Arc<World>,
    hold: &Hold<VolumeRecord>,
    job: &Job,
    node: &NodeId,
) -> Result<ConnectionInfo> {
    job.step("publishing");
    let (volume, publication) = current(hold, node).await?;
    let node = world.node_record(node).await?;
    let provider = world.provider(&volume.class)?;
    // Asked again even when published: secrets are not kept in the record.
    let mut info = job
        .publishing(provider.publish(&at_provider(&volume), &node, publication.read_only))
        .await
        .context(|| format!("publishing volume {} to node {}", volume.display_name(), node.id))?;
    // What was learned at the first attach binds from then on.
    info.identity = volume.identity.clone().or(info.identity);
    let known = info.without_secrets();
    if publication.state != PublicationState::Published || publication.info.as_ref() != Some(&known)
    {
        hold.save(|record| {
            if let Some(found) = publication_mut(record, &publication.id) {
                found.state = PublicationState::Published;
                found.needs_secrets = !info.secrets.is_empty();
                found.info = Some(known);
            }
        })
        .await?;
    }
    Ok(info)
}

async fn ensure_attached(
    world: &Arc<World>,
    hold: &Hold<VolumeRecord>,
    job: &Job,
    node: &NodeId,
    info: ConnectionInfo,
) -> Result<()> {
    job.step("attaching");
    let (volume, publication) = current(hold, node).await?;
    let attach = Attach { read_only: publication.read_only, ..Attach::default() };
    let work =
        AttachWork { publication: publication.id.clone(), volume: volume.id.clone(), info, attach };
    let attached = world
        .nodes
        .get(node)
        .await?
        .attach(&work)
        .await
        .context(|| format!("attaching volume {} to node {node}", volume.display_name()))?
        .into_inner();
    check_identity(&volume.id, volume.identity.as_ref(), attached.identity())?;
    if publication.attached.as_ref() != Some(&attached) {
        hold.save(|record| {
            if record.volume.identity.is_none() {
                record.volume.identity = attached.identity().cloned();
            }
            if let Some(found) = publication_mut(record, &publication.id) {
                found.attached = Some(attached);
            }
        })
        .await?;
    }
    Ok(())
}

/// Makes the file system of a volume that never had one. What is recorded before and after decides
/// what may be formatted again: see ADR 0003.
async fn ensure_formatted(
    world: &Arc<World>,
    hold: &Hold<VolumeRecord>,
    job: &Job,
    request: &MountRequest,
) -> Result<()> {
    let (volume, publication) = current(hold, &request.node).await?;
    let Some(inside) = &volume.filesystem else { return Ok(()) };
    if inside.state == FormatState::Done {
        return Ok(());
    }
    if publication.read_only {
        let message = format!(
            "volume {} was never formatted; mount it once with the right to write",
            volume.display_name()
        );
        return Err(Error::new(Kind::Precondition, message));
    }
    job.step("formatting");
    let node = world.nodes.get(&request.node).await?;
    let attempt = || format!("formatting volume {}", volume.display_name());
    let work = |state| FormatWork {
        publication: publication.id.clone(),
        fs: inside.kind,
        uuid: inside.uuid,
        state,
    };
    if inside.state == FormatState::Never {
        // `Started` allows to write over what looks like a torso of ours, so it is recorded only
        // after a read has shown the device blank.
        node.format(&work(FormatState::Never)).await.context(attempt)?;
        save_format(hold, FormatState::Started).await?;
    }
    node.format(&work(FormatState::Started)).await.context(attempt)?;
    save_format(hold, FormatState::Done).await
}

async fn save_format(hold: &Hold<VolumeRecord>, state: FormatState) -> Result<()> {
    hold.save(|record| {
        if let Some(inside) = &mut record.volume.filesystem {
            inside.state = state;
        }
    })
    .await
}

/// Takes the right back.
pub(crate) async fn unpublish(
    world: &Arc<World>,
    hold: &Hold<VolumeRecord>,
    job: &Job,
    node: &NodeId,
) -> Result<Answer> {
    revoke(world, hold, job, node).await?;
    hold.finish(|_| {}).await?;
    tell(world, hold, format!("unpublished from {node}")).await;
    Ok(Answer::Nothing)
}

/// Takes the device and the right away.
pub(crate) async fn detach(
    world: &Arc<World>,
    hold: &Hold<VolumeRecord>,
    job: &Job,
    node: &NodeId,
) -> Result<Answer> {
    take_device(world, hold, job, node).await?;
    revoke(world, hold, job, node).await?;
    hold.finish(|_| {}).await?;
    tell(world, hold, format!("detached from {node}")).await;
    Ok(Answer::Nothing)
}

/// Unmounts one folder or all; with the last, takes the device and the right away.
pub(crate) async fn unmount(
    world: &Arc<World>,
    hold: &Hold<VolumeRecord>,
    job: &Job,
    node: &NodeId,
    target: Option<&Path>,
) -> Result<Answer> {
    job.step("unmounting");
    let volume = hold.record().await.volume;
    if let Some(publication) = publication_of(&volume, node) {
        for mount in &publication.mounts {
            if target.is_none_or(|target| target == mount.target) {
                unmount_one(world, hold, publication, &mount.target).await?;
            }
        }
    }
    let volume = hold.record().await.volume;
    if publication_of(&volume, node).is_some_and(|publication| publication.mounts.is_empty()) {
        take_device(world, hold, job, node).await?;
        revoke(world, hold, job, node).await?;
    }
    hold.finish(|_| {}).await?;
    tell(world, hold, format!("unmounted on {node}")).await;
    Ok(Answer::Nothing)
}

async fn unmount_one(
    world: &Arc<World>,
    hold: &Hold<VolumeRecord>,
    publication: &Publication,
    target: &Path,
) -> Result<()> {
    let node = world.nodes.get(&publication.node).await?;
    node.unmount(&publication.id, target)
        .await
        .context(|| format!("unmounting {}", target.display()))?;
    hold.save(|record| {
        if let Some(found) = publication_mut(record, &publication.id) {
            found.mounts.retain(|mount| mount.target != target);
        }
    })
    .await
}

async fn take_device(
    world: &Arc<World>,
    hold: &Hold<VolumeRecord>,
    job: &Job,
    node: &NodeId,
) -> Result<()> {
    job.step("detaching");
    let volume = hold.record().await.volume;
    let Some(publication) = publication_of(&volume, node) else { return Ok(()) };
    // Asked even when nothing is recorded as attached: a crash may have come before the record.
    world
        .nodes
        .get(node)
        .await?
        .detach(&publication.id, &Detach::default())
        .await
        .context(|| format!("detaching volume {} from {node}", volume.display_name()))?;
    if publication.attached.is_some() {
        hold.save(|record| {
            if let Some(found) = publication_mut(record, &publication.id) {
                found.attached = None;
            }
        })
        .await?;
    }
    Ok(())
}

async fn revoke(
    world: &Arc<World>,
    hold: &Hold<VolumeRecord>,
    job: &Job,
    node: &NodeId,
) -> Result<()> {
    job.step("unpublishing");
    let volume = hold.record().await.volume;
    let Some(publication) = publication_of(&volume, node) else { return Ok(()) };
    let record = world.node_record(node).await?;
    world
        .provider(&volume.class)?
        .unpublish(&at_provider(&volume), &record)
        .await
        .context(|| format!("unpublishing volume {} from {node}", volume.display_name()))?;
    hold.save(|record| record.volume.publications.retain(|found| found.id != publication.id)).await
}

/// What an operation made by itself, and so takes away when it is taken back.
#[derive(Clone, Copy)]
pub(crate) struct Made {
    pub(crate) publication: bool,
    pub(crate) attachment: bool,
}

/// Takes back what a publish, attach or mount did, down to where it began.
pub(crate) async fn take_back(
    world: &Arc<World>,
    hold: &Hold<VolumeRecord>,
    job: &Job,
    node: &NodeId,
    made: Made,
    target: Option<&Path>,
) -> Result<()> {
    hold.turn_back().await?;
    let volume = hold.record().await.volume;
    if let Some(publication) = publication_of(&volume, node) {
        if let Some(target) = target {
            unmount_one(world, hold, publication, target).await?;
        }
        if made.attachment {
            take_device(world, hold, job, node).await?;
        }
        if made.publication && job.may_have_published() {
            revoke(world, hold, job, node).await?;
        } else if made.publication {
            let id = publication.id.clone();
            hold.save(|record| record.volume.publications.retain(|found| found.id != id)).await?;
        }
    }
    hold.finish(settle).await
}

/// A publication that stays is a whole one.
pub(crate) fn settle(record: &mut VolumeRecord) {
    for publication in &mut record.volume.publications {
        publication.state = PublicationState::Published;
    }
}

/// The device's new size, for the record.
pub(crate) fn note_device_size(record: &mut VolumeRecord, id: &PublicationId, seen: ByteSize) {
    if let Some(Attached::Block { size, .. }) =
        publication_mut(record, id).and_then(|found| found.attached.as_mut())
    {
        *size = seen;
    }
}
