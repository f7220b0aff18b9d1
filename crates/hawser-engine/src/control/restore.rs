//! After a reboot of a node: what was attached and mounted there is brought back.

use std::sync::Arc;

use tracing::{info, warn};

use hawser_core::error::Result;
use hawser_core::id::VolumeId;
use hawser_core::name::NodeId;
use hawser_core::node::NodeRecord;
use hawser_core::publication::{MountRequest, Publication, PublishRequest};
use hawser_core::volume::VolumeRef;

use super::access::publication_of;
use super::record::{VolumeRecord, Work};
use super::start::{Begun, Decision, on_volume};
use super::world::{World, node_key};

/// Compares the boot of a node with the one it had when it was last recorded; if it changed, brings
/// back the volumes that the node had.
pub(crate) async fn after_reboot(
    world: &Arc<World>,
    id: &NodeId,
    published: &[String],
) -> Result<()> {
    let now = world.node_record(id).await?;
    let before = world.records.get::<NodeRecord>(&node_key(id)).await?;
    world.keep_node(&now).await?;
    let rebooted = before.is_some_and(|(before, _)| before.boot_id != now.boot_id);
    if !rebooted || published.is_empty() {
        return Ok(());
    }
    info!(node.id = %id, "the node was rebooted; bringing its volumes back");
    let (world_of_task, id, published) = (world.clone(), id.clone(), published.to_vec());
    world.tasks.spawn(async move {
        for volume in published.iter().filter_map(|id| id.parse::<VolumeId>().ok()) {
            if let Err(error) = bring_back(&world_of_task, &volume, &id).await {
                warn!(volume.id = %volume, node.id = %id, error = %error.sentence(),
                    "the volume was not brought back");
            }
        }
    });
    Ok(())
}

/// Attaches and mounts a volume on a node as its record says, one folder after the other.
pub(crate) async fn bring_back(world: &Arc<World>, id: &VolumeId, node: &NodeId) -> Result<()> {
    let by_id = VolumeRef::Id(id.clone());
    let (record, _) = world.get_volume(&by_id).await?;
    let Some(publication) = publication_of(&record.volume, node).cloned() else { return Ok(()) };
    let works = works(&publication);
    for (index, work) in works.into_iter().enumerate() {
        let node = node.clone();
        let begun = on_volume(world.clone(), by_id.clone(), work.clone(), move |record| {
            let mut changed = record.clone();
            if index == 0 {
                forget_attachment(&mut changed, &node);
            }
            Ok(Decision::Start(work.clone(), Box::new(changed)))
        })
        .await?;
        if let Begun::Job(job) = begun
            && let Some(result) = job.wait(std::time::Duration::from_secs(600)).await
        {
            result?;
        }
    }
    Ok(())
}

/// The operations that lead from nothing on the node to what the record says.
fn works(publication: &Publication) -> Vec<Work> {
    let node = &publication.node;
    if publication.mounts.is_empty() {
        if publication.attached.is_none() {
            return Vec::new();
        }
        let request = PublishRequest { node: node.clone(), read_only: publication.read_only };
        return vec![Work::AttachVolume { request, new_publication: false }];
    }
    let mounts = publication.mounts.iter().enumerate().map(|(index, mount)| Work::MountVolume {
        request: MountRequest {
            node: node.clone(),
            target: mount.target.clone(),
            read_only: mount.read_only,
            flags: mount.flags.clone(),
        },
        new_publication: false,
        new_attachment: index == 0,
    });
    mounts.collect()
}

fn forget_attachment(record: &mut VolumeRecord, node: &NodeId) {
    for publication in record.volume.publications.iter_mut().filter(|p| p.node == *node) {
        publication.attached = None;
        publication.mounts.iter_mut().for_each(|mount| mount.ready = false);
    }
}
