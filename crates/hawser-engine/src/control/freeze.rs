//! Holding the file systems of a volume still, wherever it is mounted.
//!
//! A node that is away is waited for only for a while: it lets go of what it holds by itself, when its
//! process starts or nobody asks any more ([`FREEZE_LIMIT`]). So whoever copies asks again and again,
//! and keeps only what was held until its end.

use std::sync::Arc;
use std::time::Duration;

use hawser_core::error::{Error, Kind, Result, ResultExt};
use hawser_core::port::node::FREEZE_LIMIT;
use hawser_core::publication::Publication;
use hawser_core::volume::{Access, Volume};
use tracing::warn;

use super::job::Job;
use super::world::World;

/// How long work that was cut off waits for a node that was there when it began: as long as a server
/// and its nodes need to find each other again. Until then the volume cannot be taken from a dead node.
const NODE_PATIENCE: Duration = Duration::from_secs(60);

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

/// True when what an earlier attempt copied is worth nothing: nobody knows whether the volume was held
/// still until its end.
pub(crate) fn may_have_moved(volume: &Volume) -> bool {
    mounted(volume).next().is_some()
}

/// Refuses while a node that has the volume is away. `Kind::Unavailable`, for which work that was cut
/// off is tried again; after [`NODE_PATIENCE`] it is given up.
pub(crate) async fn check_reachable(world: &Arc<World>, volume: &Volume, job: &Job) -> Result<()> {
    for publication in mounted(volume) {
        let attempt = || {
            let (name, node) = (volume.display_name(), &publication.node);
            format!("holding volume {name} still on node {node}")
        };
        let found = world.nodes.get(&publication.node).await.context(attempt);
        let Err(error) = found else { continue };
        let waited = job.resumed && job.begun.elapsed() > NODE_PATIENCE;
        if error.kind() == Kind::Unavailable && waited {
            return Err(Error::from_remote(Kind::Precondition, error.outcome(), error.chain()));
        }
        return Err(error);
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

/// Lets writes go on, on every node; one that fails does not keep the others frozen. One that is away
/// does so by itself, and must not keep anybody from taking the volume from it.
pub(crate) async fn thaw(world: &Arc<World>, volume: &Volume) -> Result<()> {
    let mut first: Option<Error> = None;
    for publication in mounted(volume) {
        let node = match world.nodes.get(&publication.node).await {
            Err(error) if error.kind() == Kind::Unavailable && !error.is_unknown() => {
                warn!(volume.id = %volume.id, node.id = %publication.node,
                    "the node is away, and lets the volume go on by itself");
                continue;
            }
            node => node,
        };
        let thawed = async { node?.thaw(&publication.id).await };
        let thawed = thawed.await.context(|| {
            format!("letting volume {} go on, on node {}", volume.display_name(), publication.node)
        });
        if let Err(error) = thawed {
            first.get_or_insert(error);
        }
    }
    first.map_or(Ok(()), Err)
}

/// Does work on volumes that [`freeze`] holds still, and makes sure that they were held until its end:
/// a node that was started anew or could not be reached thaws what it finds frozen, and one that leads
/// may have mounted the volume since.
pub(crate) async fn held<T>(
    world: &Arc<World>,
    volumes: &[Volume],
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    let renewals = async {
        loop {
            tokio::time::sleep(FREEZE_LIMIT / 3).await;
            for volume in volumes {
                match let_go(world, volume).await {
                    Ok(None) => {}
                    Ok(Some(error)) => return error,
                    // The last look decides.
                    Err(error) => warn!(error = %error.sentence(), "it may be let go of"),
                }
            }
        }
    };
    let done = tokio::select! {
        done = work => done?,
        error = renewals => return Err(error),
    };
    for volume in volumes {
        if let Some(error) = let_go(world, volume).await? {
            return Err(error);
        }
    }
    Ok(done)
}

/// Why a volume was not held still all the time; it is from now on.
async fn let_go(world: &Arc<World>, volume: &Volume) -> Result<Option<Error>> {
    for publication in mounted(volume) {
        let again =
            async { world.nodes.get(&publication.node).await?.freeze(&publication.id).await };
        let attempt = || {
            let (name, node) = (volume.display_name(), &publication.node);
            format!("making sure that volume {name} was held still on node {node}")
        };
        if again.await.context(attempt)?.is_made() {
            let message = format!(
                "volume {} was let go of on node {} before it was copied; repeat",
                volume.display_name(),
                publication.node
            );
            return Ok(Some(Error::new(Kind::Unavailable, message)));
        }
    }
    Ok(None)
}
