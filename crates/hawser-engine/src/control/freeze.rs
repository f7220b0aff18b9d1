//! Holding the file systems of a volume still, wherever it is mounted.

use std::sync::Arc;

use hawser_core::error::{Error, Kind, Result, ResultExt};
use hawser_core::publication::Publication;
use hawser_core::volume::{Access, Volume};

use super::world::World;

/// Where the volume may be mounted. A node that leads tells of that only afterwards.
fn mounted(volume: &Volume) -> impl Iterator<Item = &Publication> {
    volume.publications.iter().filter(|p| p.attached.is_some() || leads_and_writes(p))
}

fn leads_and_writes(publication: &Publication) -> bool {
    publication.node_led && !publication.read_only
}

/// Refuses a volume that somebody may write to past every file system that could be frozen.
pub(crate) fn check_can_be_still(volume: &Volume) -> Result<()> {
    let beyond_reach = |publication: &&Publication| {
        let attached = publication.attached.is_some();
        let used = match volume.access {
            // A device that was attached and is not mounted was given to somebody to use as it is.
            Access::Filesystem(_) => {
                attached && !publication.node_led && publication.mounts.is_empty()
            }
            Access::Block | Access::Folder => attached || publication.node_led,
        };
        used && !publication.read_only
    };
    let Some(publication) = volume.publications.iter().find(beyond_reach) else { return Ok(()) };
    let (name, node) = (volume.display_name(), &publication.node);
    let what = match volume.access {
        Access::Filesystem(_) | Access::Block => "a device",
        Access::Folder => "a folder",
    };
    let advice = match (publication.node_led, publication.mounts.is_empty()) {
        (true, _) => "stop what uses it there first".to_owned(),
        (false, true) => format!("detach it first: hawser volume detach {name}"),
        (false, false) => format!("unmount it first: hawser unmount {name}"),
    };
    let message = format!(
        "volume {name} cannot be held still: node {node} may write to it as {what}; {advice}"
    );
    Err(Error::new(Kind::Precondition, message))
}

/// Refuses while a node that has the volume is away, before anything has begun: what may be frozen
/// on a node is not let go of before that node says so.
pub(crate) async fn check_reachable(world: &Arc<World>, volume: &Volume) -> Result<()> {
    for publication in mounted(volume) {
        let attempt = || {
            let (name, node) = (volume.display_name(), &publication.node);
            format!("holding volume {name} still on node {node}")
        };
        world.nodes.get(&publication.node).await.context(attempt)?;
    }
    Ok(())
}

/// Stops writes to a volume on every node that has it.
pub(crate) async fn freeze(world: &Arc<World>, volume: &Volume) -> Result<()> {
    for publication in mounted(volume) {
        let frozen =
            async { world.nodes.get(&publication.node).await?.freeze(&publication.id).await };
        if let Err(error) = frozen.await {
            let error = error.context(format!(
                "holding volume {} still on node {}",
                volume.display_name(),
                publication.node
            ));
            return match thaw(world, volume).await {
                Ok(()) => Err(error),
                Err(second) => Err(Error::context(
                    second,
                    format!("letting it go on after a failure ({})", error.sentence()),
                )),
            };
        }
    }
    Ok(())
}

/// Lets writes go on, on every node; one that fails does not keep the others frozen.
pub(crate) async fn thaw(world: &Arc<World>, volume: &Volume) -> Result<()> {
    let mut first: Option<Error> = None;
    for publication in mounted(volume) {
        let thawed =
            async { world.nodes.get(&publication.node).await?.thaw(&publication.id).await };
        let thawed = thawed.await.context(|| {
            format!("letting volume {} go on, on node {}", volume.display_name(), publication.node)
        });
        if let Err(error) = thawed {
            first.get_or_insert(error);
        }
    }
    first.map_or(Ok(()), Err)
}

/// Makes sure that nobody has let go of what [`freeze`] holds: a node that was started anew thaws
/// what it finds frozen, and one that leads may have mounted the volume since.
pub(crate) async fn check_held(world: &Arc<World>, volume: &Volume) -> Result<()> {
    for publication in mounted(volume) {
        let again =
            async { world.nodes.get(&publication.node).await?.freeze(&publication.id).await };
        let attempt = || {
            let (name, node) = (volume.display_name(), &publication.node);
            format!("making sure that volume {name} was held still on node {node}")
        };
        if again.await.context(attempt)?.is_made() {
            let message = format!(
                "volume {} was let go of on node {} before all snapshots were taken; repeat",
                volume.display_name(),
                publication.node
            );
            return Err(Error::new(Kind::Unavailable, message));
        }
    }
    Ok(())
}
