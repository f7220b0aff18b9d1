//! Bringing back what a node should have and has not: after its reboot, or after an earlier attempt
//! that was cut off.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use tracing::{info, warn};

use hawser_core::attach::{AttachRecord, AttachState};
use hawser_core::error::{Kind, Result};
use hawser_core::id::{PublicationId, VolumeId};
use hawser_core::name::NodeId;
use hawser_core::publication::{MountRequest, Publication, PublishRequest};
use hawser_core::volume::VolumeRef;

use super::access::publication_of;
use super::access_begin::mount_again;
use super::job::Answer;
use super::record::{VolumeRecord, Work};
use super::start::{Begun, Decision, on_volume};
use super::upstream;
use super::world::{Subject, World, busy};

/// How many volumes are brought back at once.
const AT_ONCE: usize = 8;

/// Remembers a node, compares what it has with what the records say, and brings back the rest.
///
/// The records are compared, not the boots: who is killed while bringing back goes on at the next
/// start.
pub(crate) async fn on_node(
    world: &Arc<World>,
    id: &NodeId,
    published: &[(VolumeId, Publication)],
) -> Result<()> {
    world.keep_node(&world.node_record(id).await?).await?;
    upstream::compare(world, id, published).await?;
    let used: Vec<_> = published.iter().filter(|(_, p)| p.node == *id && is_used(p)).collect();
    if used.is_empty() {
        return Ok(());
    }
    let there = There::look(world, id).await?;
    let lost: Vec<_> =
        used.into_iter().filter(|(_, p)| !there.has(p)).map(|(id, _)| id.clone()).collect();
    if lost.is_empty() {
        return Ok(());
    }
    info!(node.id = %id, volumes = lost.len(), "the node lost volumes; bringing them back");
    let (world_of_task, id) = (world.clone(), id.clone());
    world.tasks.spawn(async move {
        let (world, node) = (&world_of_task, &id);
        let each = |volume: VolumeId| async move { keep_bringing_back(world, &volume, node).await };
        stream::iter(lost).for_each_concurrent(AT_ONCE, each).await;
    });
    Ok(())
}

/// True when the node is to have more than the right, and does not see to that by itself.
pub(crate) fn is_used(publication: &Publication) -> bool {
    let used = publication.attached.is_some() || !publication.mounts.is_empty();
    used && !publication.node_led
}

/// What a node has now.
pub(crate) struct There {
    boot_id: String,
    pub(crate) attachments: Vec<AttachRecord>,
}

impl There {
    pub(crate) async fn look(world: &World, id: &NodeId) -> Result<Self> {
        let node = world.nodes.get(id).await?;
        let boot_id = node.describe().await?.boot_id;
        Ok(Self { boot_id, attachments: node.attachments().await? })
    }

    /// False for what went with an earlier boot of the node.
    pub(crate) fn is_of_this_boot(&self, record: &AttachRecord) -> bool {
        record.boot_id == self.boot_id
    }

    /// True when the node has all that the publication says.
    pub(crate) fn has(&self, publication: &Publication) -> bool {
        let found = self.attachments.iter().find(|found| found.publication == publication.id);
        publication.attached.is_some()
            && found.is_some_and(|found| {
                self.is_of_this_boot(found)
                    && found.state == AttachState::Attached
                    && publication.mounts.iter().all(|m| m.ready && has_mount(found, &m.target))
            })
    }
}

fn has_mount(record: &AttachRecord, target: &Path) -> bool {
    record.mounts.iter().any(|mount| mount.target == target && mount.ready)
}

/// Waits for the volume to be free, and for attempts whose outcome is not known.
async fn keep_bringing_back(world: &Arc<World>, volume: &VolumeId, node: &NodeId) {
    let mut pause = Duration::from_millis(100);
    while let Err(error) = bring_back(world, volume, node).await {
        if error.kind() != Kind::Busy && !error.is_unknown() {
            warn!(volume.id = %volume, node.id = %node, error = %error.sentence(),
                "the volume was not brought back");
            return;
        }
        tokio::select! {
            () = world.stop.cancelled() => return,
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(Duration::from_secs(10)),
        }
    }
}

/// Attaches and mounts a volume on a node as its record says, one folder after the other.
pub(crate) async fn bring_back(world: &Arc<World>, id: &VolumeId, node: &NodeId) -> Result<()> {
    let by_id = VolumeRef::Id(id.clone());
    let Some((record, _)) = world.find_volume(&by_id).await? else { return Ok(()) };
    let Some(publication) = publication_of(&record.volume, node).cloned() else { return Ok(()) };
    if let Some(journal) = &record.journal {
        return Err(busy(&Subject::volume(&record.volume), journal));
    }
    if !is_used(&publication) || There::look(world, node).await?.has(&publication) {
        return Ok(());
    }
    for (index, (work, target)) in works(&publication).into_iter().enumerate() {
        let of = publication.id.clone();
        let begun = on_volume(world.clone(), by_id.clone(), work.clone(), move |record| {
            if !is_wanted(record, &of, target.as_deref()) {
                return Ok(Decision::Already(Answer::Nothing));
            }
            let mut changed = record.clone();
            if index == 0 {
                forget_attachment(&mut changed, &of);
            }
            Ok(Decision::Start(work.clone(), Box::new(changed)))
        });
        if let Begun::Job(job) | Begun::Joined(job) = begun.await?
            && let Some(result) = job.wait(Duration::from_secs(600)).await
        {
            result?;
        }
    }
    Ok(())
}

/// The operations that lead from nothing on the node to what the record says, with their folders.
fn works(publication: &Publication) -> Vec<(Work, Option<PathBuf>)> {
    let node = &publication.node;
    if publication.mounts.is_empty() {
        let request = PublishRequest::new(node.clone(), publication.read_only);
        return vec![(Work::AttachVolume { request, new_publication: false }, None)];
    }
    let mounts = publication.mounts.iter().map(|mount| {
        let request = MountRequest {
            node: node.clone(),
            target: mount.target.clone(),
            read_only: mount.read_only,
            flags: mount.flags.clone(),
        };
        (mount_again(request), Some(mount.target.clone()))
    });
    mounts.collect()
}

/// False when somebody has taken it from the node since.
fn is_wanted(record: &VolumeRecord, of: &PublicationId, target: Option<&Path>) -> bool {
    let known = record.volume.publications.iter().find(|publication| publication.id == *of);
    known.is_some_and(|known| {
        target.is_none_or(|target| known.mounts.iter().any(|mount| mount.target == target))
    })
}

fn forget_attachment(record: &mut VolumeRecord, of: &PublicationId) {
    for publication in record.volume.publications.iter_mut().filter(|p| p.id == *of) {
        publication.attached = None;
        publication.mounts.iter_mut().for_each(|mount| mount.ready = false);
    }
}
