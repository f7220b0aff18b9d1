//! Who may have a volume: the decisions before a publish, attach, mount and the way down.

use std::path::{Component, PathBuf};
use std::sync::Arc;

use hawser_core::error::{Error, Kind, Result};
use hawser_core::id::PublicationId;
use hawser_core::name::NodeId;
use hawser_core::place::Place;
use hawser_core::publication::{
    MountPoint, MountRequest, Publication, PublicationState, PublishRequest,
};
use hawser_core::volume::{Sharing, Volume, VolumeRef};

use super::access::{attached_answer, publication_answer, publication_of};
use super::job::Answer;
use super::record::{VolumeRecord, Work};
use super::start::{Begun, Decision, on_volume};
use super::world::World;

/// Begins to publish.
pub(crate) async fn publish(
    world: Arc<World>,
    volume: VolumeRef,
    request: PublishRequest,
) -> Result<Begun> {
    let from = known_node(&world, &request.node).await?;
    let work = Work::PublishVolume { request: request.clone(), new_publication: true };
    on_volume(world, volume, work.clone(), move |record| {
        let mut changed = record.clone();
        check_reached(&record.volume, &from, &request.node)?;
        if !add_publication(&mut changed.volume, &request)? {
            return Ok(Decision::Already(publication_answer(record, &request.node)));
        }
        Ok(Decision::Start(work.clone(), Box::new(changed)))
    })
    .await
}

/// Begins to attach.
pub(crate) async fn attach(
    world: Arc<World>,
    volume: VolumeRef,
    request: PublishRequest,
) -> Result<Begun> {
    let from = known_node(&world, &request.node).await?;
    let wanted = Work::AttachVolume { request: request.clone(), new_publication: false };
    on_volume(world, volume, wanted, move |record| {
        let mut changed = record.clone();
        check_reached(&record.volume, &from, &request.node)?;
        let new_publication = add_publication(&mut changed.volume, &request)?;
        let known = publication_of(&record.volume, &request.node);
        if known.is_some_and(|publication| publication.attached.is_some()) {
            return Ok(Decision::Already(attached_answer(record, &request.node)));
        }
        let work = Work::AttachVolume { request: request.clone(), new_publication };
        Ok(Decision::Start(work, Box::new(changed)))
    })
    .await
}

/// Begins to mount.
pub(crate) async fn mount(
    world: Arc<World>,
    volume: VolumeRef,
    request: MountRequest,
) -> Result<Begun> {
    check_target(&request)?;
    let from = known_node(&world, &request.node).await?;
    let wanted = Work::MountVolume {
        request: request.clone(),
        new_publication: false,
        new_attachment: false,
        new_mount: false,
    };
    on_volume(world, volume, wanted, move |record| {
        check_reached(&record.volume, &from, &request.node)?;
        decide_mount(record, &request)
    })
    .await
}

fn decide_mount(record: &VolumeRecord, request: &MountRequest) -> Result<Decision> {
    let known = publication_of(&record.volume, &request.node);
    let name = record.volume.display_name();
    if record.volume.access == hawser_core::volume::Access::Block {
        let message = format!(
            "volume {name} is a raw device and cannot be mounted; use: hawser volume attach {name}"
        );
        return Err(Error::new(Kind::Unsupported, message));
    }
    if let Some(mount) = known.and_then(|p| p.mounts.iter().find(|m| m.target == request.target)) {
        if mount.read_only == request.read_only && mount.flags == request.flags {
            if mount.ready {
                return Ok(Decision::Already(publication_answer(record, &request.node)));
            }
            let work = mount_again(request.clone());
            return Ok(Decision::Start(work, Box::new(record.clone())));
        }
        let options = |read_only: bool, flags: &[String]| {
            let access = if read_only { "ro" } else { "rw" };
            std::iter::once(access)
                .chain(flags.iter().map(String::as_str))
                .collect::<Vec<_>>()
                .join(",")
        };
        let message = format!(
            "volume {name} is mounted on {} and differs: options are {}, requested {}",
            request.target.display(),
            options(mount.read_only, &mount.flags),
            options(request.read_only, &request.flags)
        );
        return Err(Error::new(Kind::Exists, message));
    }
    let mut changed = record.clone();
    // A second, read-only folder of a volume that the node may write needs no right of its own.
    let new_publication = match known {
        Some(publication) if !publication.read_only => false,
        Some(_) | None => {
            let wanted = PublishRequest::new(request.node.clone(), request.read_only);
            add_publication(&mut changed.volume, &wanted)?
        }
    };
    let new_attachment = known.is_none_or(|publication| publication.attached.is_none());
    let mounts = changed.volume.publications.iter_mut().find(|p| p.node == request.node);
    if let Some(publication) = mounts {
        publication.mounts.push(MountPoint {
            target: request.target.clone(),
            read_only: request.read_only,
            flags: request.flags.clone(),
            ready: false,
        });
    }
    let request = request.clone();
    let work = Work::MountVolume { request, new_publication, new_attachment, new_mount: true };
    Ok(Decision::Start(work, Box::new(changed)))
}

/// Makes a mount that the record has and the node lost. Whatever fails, the record keeps it.
pub(crate) fn mount_again(request: MountRequest) -> Work {
    Work::MountVolume { request, new_publication: false, new_attachment: false, new_mount: false }
}

/// Remembers the node, so that the right can be taken back when the node is gone, and answers where
/// it is.
pub(super) async fn known_node(world: &World, node: &NodeId) -> Result<Place> {
    let record = world.node_record(node).await?;
    world.keep_node(&record).await?;
    let mut pairs = record.topology;
    pairs.insert(Place::NODE.to_owned(), node.to_string());
    Ok(Place::new(pairs))
}

/// Refuses a node that cannot reach the volume.
pub(super) fn check_reached(volume: &Volume, from: &Place, node: &NodeId) -> Result<()> {
    match &volume.place {
        Some(place) if !place.is_reached_from(from) => {
            let name = volume.display_name();
            let message = format!("volume {name} is at {place} and cannot be reached from {node}");
            Err(Error::new(Kind::Precondition, message))
        }
        Some(_) | None => Ok(()),
    }
}

/// A target is absolute and says plainly where it is.
fn check_target(request: &MountRequest) -> Result<()> {
    let target = &request.target;
    let plain = target.is_absolute()
        && target
            .components()
            .all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
        && target.as_os_str().len() < 4096
        && !target.as_os_str().as_encoded_bytes().contains(&0);
    if plain && target.parent().is_some() {
        return Ok(());
    }
    let message = format!(
        "{} is not a folder to mount on: give an absolute path without ..",
        target.display()
    );
    Err(Error::new(Kind::Invalid, message))
}

/// Adds the right of a node, if nobody's right stands against it. `false` when it is there already.
pub(super) fn add_publication(volume: &mut Volume, request: &PublishRequest) -> Result<bool> {
    let PublishRequest { node, read_only, node_led, single_node } = request;
    let (read_only, node_led, single_node) = (*read_only, *node_led, *single_node);
    let name = volume.display_name();
    let words = |read_only: bool| if read_only { "read-only" } else { "for writing" };
    if let Some(known) = publication_of(volume, node) {
        if known.node_led != node_led {
            let led = |by_node: bool| if by_node { "the node itself" } else { "the server" };
            let message = format!(
                "volume {name} is with {node} already, and used there by {}; release it first",
                led(known.node_led)
            );
            return Err(Error::new(Kind::Precondition, message));
        }
        if known.read_only == read_only {
            return Ok(false);
        }
        let message = format!(
            "volume {name} is published to {node} and differs: {}, requested {}",
            words(known.read_only),
            words(read_only)
        );
        return Err(Error::new(Kind::Exists, message));
    }
    match volume.sharing {
        Sharing::SingleWriter => {
            if let Some(other) = volume.publications.first() {
                let message = format!(
                    "volume {name} has one writer at a time and is with node {}; release it there first",
                    other.node
                );
                return Err(Error::new(Kind::Precondition, message));
            }
        }
        Sharing::ManyReaders if !read_only => {
            let message = format!("volume {name} is for readers only; ask for it read-only");
            return Err(Error::new(Kind::Precondition, message));
        }
        Sharing::ManyReaders | Sharing::ManyWriters => {}
    }
    if let Some(other) = volume.publications.iter().find(|p| single_node || p.single_node) {
        let whose = if single_node { "is asked for" } else { "is used" };
        let message = format!(
            "volume {name} {whose} by one node alone and is with node {}; release it there first",
            other.node
        );
        return Err(Error::new(Kind::Precondition, message));
    }
    volume.untouched = false;
    volume.publications.push(Publication {
        id: PublicationId::generate(),
        node: node.clone(),
        read_only,
        node_led,
        claimed: false,
        single_node,
        needs_secrets: false,
        state: PublicationState::Publishing,
        info: None,
        attached: None,
        mounts: Vec::new(),
    });
    Ok(true)
}

/// Begins to take the right back.
pub(crate) async fn unpublish(world: Arc<World>, volume: VolumeRef, node: NodeId) -> Result<Begun> {
    let work = Work::UnpublishVolume { node: node.clone() };
    on_volume(world, volume, work.clone(), move |record| {
        let Some(publication) = publication_of(&record.volume, &node) else {
            return Ok(Decision::Already(Answer::Nothing));
        };
        refuse_if_mounted(&record.volume, publication)?;
        // A node that leads is told by others to let go, or is dead: the storage system keeps it out.
        if publication.attached.is_some() && !publication.node_led {
            let name = record.volume.display_name();
            let message = format!(
                "volume {name} is attached to {node}; detach it first: hawser volume detach {name}"
            );
            return Err(Error::new(Kind::Precondition, message));
        }
        Ok(Decision::Start(work.clone(), Box::new(unpublishing(record, &node))))
    })
    .await
}

/// Begins to take the device and the right away.
pub(crate) async fn detach(world: Arc<World>, volume: VolumeRef, node: NodeId) -> Result<Begun> {
    let work = Work::DetachVolume { node: node.clone() };
    on_volume(world, volume, work.clone(), move |record| {
        let Some(publication) = publication_of(&record.volume, &node) else {
            return Ok(Decision::Already(Answer::Nothing));
        };
        refuse_if_mounted(&record.volume, publication)?;
        Ok(Decision::Start(work.clone(), Box::new(unpublishing(record, &node))))
    })
    .await
}

/// Begins to unmount.
pub(crate) async fn unmount(
    world: Arc<World>,
    volume: VolumeRef,
    node: NodeId,
    target: Option<PathBuf>,
) -> Result<Begun> {
    let work = Work::UnmountVolume { node: node.clone(), target: target.clone() };
    on_volume(world, volume, work.clone(), move |record| {
        let known = publication_of(&record.volume, &node);
        let there = known.is_some_and(|publication| {
            publication.mounts.iter().any(|m| target.as_ref().is_none_or(|t| *t == m.target))
        });
        if !there {
            return Ok(Decision::Already(Answer::Nothing));
        }
        Ok(Decision::Start(work.clone(), Box::new(record.clone())))
    })
    .await
}

fn unpublishing(record: &VolumeRecord, node: &NodeId) -> VolumeRecord {
    let mut changed = record.clone();
    for publication in changed.volume.publications.iter_mut().filter(|p| p.node == *node) {
        publication.state = PublicationState::Unpublishing;
    }
    changed
}

fn refuse_if_mounted(volume: &Volume, publication: &Publication) -> Result<()> {
    let Some(mount) = publication.mounts.first() else { return Ok(()) };
    let name = volume.display_name();
    let message = format!(
        "volume {name} is mounted on {} of node {}; unmount it first: hawser unmount {name}",
        mount.target.display(),
        publication.node
    );
    Err(Error::new(Kind::Precondition, message))
}
