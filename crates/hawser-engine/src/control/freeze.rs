//! Holding the file systems of a volume still, wherever it is mounted.

use std::sync::Arc;

use hawser_core::error::{Error, Result, ResultExt};
use hawser_core::publication::Publication;
use hawser_core::volume::Volume;

use super::world::World;

fn mounted(volume: &Volume) -> impl Iterator<Item = &Publication> {
    volume.publications.iter().filter(|publication| publication.attached.is_some())
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
