//! What nodes ask and tell that act by themselves, because an orchestrator on their host says so.

use std::sync::Arc;
use std::time::Duration;

use tracing::warn;

use hawser_core::attach::AttachState;
use hawser_core::change::Change;
use hawser_core::error::{Error, Kind, Outcome, Result};
use hawser_core::filesystem::FormatState;
use hawser_core::id::VolumeId;
use hawser_core::name::NodeId;
use hawser_core::port::upstream::{Claim, Fact, Grant, Report};
use hawser_core::publication::{Publication, PublicationState, PublishRequest};
use hawser_core::volume::{Volume, VolumeRef};

use super::access::publication_of;
use super::access_begin;
use super::job::Answer;
use super::record::{VolumeRecord, Work};
use super::restore::There;
use super::start::{Begun, Decision, on_volume};
use super::world::{Subject, World, busy, check_identity};

/// How long a node's call waits for an operation on the volume before it is told that it is busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// Everything a node needs to use a volume.
pub(crate) async fn grant(world: &Arc<World>, claim: &Claim) -> Result<Grant> {
    let by_id = VolumeRef::Id(claim.volume.clone());
    let (record, _) = world.get_volume(&by_id).await?;
    let known = publication_of(&record.volume, &claim.node);
    match known {
        Some(publication) => refuse_unless_led(&record.volume, publication)?,
        None if may_publish(claim, &record.volume) => {}
        None => return Err(not_published(&record.volume, &claim.node)),
    }
    // What is published and needs no secret is answered from the record, without a write.
    if let Some(publication) = known
        && publication.state == PublicationState::Published
        && !publication.needs_secrets
        && record.journal.is_none()
        && let Some(info) = &publication.info
    {
        let mut info = info.clone();
        info.identity = record.volume.identity.clone().or(info.identity);
        return Ok(grant_of(&record.volume, publication, info));
    }
    publish(world, claim).await
}

/// True when a node may take a volume that nobody published to it: only what is part of a place can be
/// taken, by a node that is there. Whoever may use a volume that several nodes reach is decided by the
/// orchestrator, before a node asks.
fn may_publish(claim: &Claim, volume: &Volume) -> bool {
    claim.publish && volume.place.is_some()
}

/// Publishes, or asks the provider once more for the secrets, which are in no record.
async fn publish(world: &Arc<World>, claim: &Claim) -> Result<Grant> {
    let by_id = VolumeRef::Id(claim.volume.clone());
    let read_only = {
        let (record, _) = world.get_volume(&by_id).await?;
        publication_of(&record.volume, &claim.node).map_or(claim.read_only, |p| p.read_only)
    };
    let request =
        PublishRequest { node_led: true, ..PublishRequest::new(claim.node.clone(), read_only) };
    let from = access_begin::known_node(world, &claim.node).await?;
    let work = |new_publication| Work::PublishVolume { request: request.clone(), new_publication };
    let begun = on_volume(world.clone(), by_id.clone(), work(false), |record| {
        let mut changed = record.clone();
        access_begin::check_reached(&record.volume, &from, &claim.node)?;
        let new_publication = access_begin::add_publication(&mut changed.volume, &request)?;
        if new_publication {
            if !may_publish(claim, &record.volume) {
                return Err(not_published(&record.volume, &claim.node));
            }
            for added in changed.volume.publications.iter_mut().filter(|p| p.node == claim.node) {
                added.claimed = true;
            }
        }
        Ok(Decision::Start(work(new_publication), Box::new(changed)))
    });
    let answer = match begun.await? {
        Begun::Job(job) | Begun::Joined(job) => job.wait(PATIENCE).await,
        Begun::Answer(answer) => Some(Ok(answer.into_inner())),
    };
    let info = match answer {
        Some(answer) => answer?,
        None => Answer::Nothing,
    };
    // An operation whose last write was not confirmed does not know the secrets any more.
    let Answer::Published(_, info) = info else { return Err(still_publishing(claim)) };
    let (record, _) = world.get_volume(&by_id).await?;
    match publication_of(&record.volume, &claim.node) {
        Some(publication) => Ok(grant_of(&record.volume, publication, *info)),
        None => Err(not_published(&record.volume, &claim.node)),
    }
}

fn still_publishing(claim: &Claim) -> Error {
    let message = format!("volume {} is still being published to {}", claim.volume, claim.node);
    Error::new(Kind::Busy, message).with_outcome(Outcome::Unknown)
}

fn not_published(volume: &Volume, node: &NodeId) -> Error {
    let message = format!("volume {} is not published to {node}", volume.display_name());
    Error::new(Kind::Precondition, message)
}

fn refuse_unless_led(volume: &Volume, publication: &Publication) -> Result<()> {
    if publication.node_led {
        return Ok(());
    }
    let message = format!(
        "volume {} is used on {} by hawser itself; detach it there first: hawser volume detach {}",
        volume.display_name(),
        publication.node,
        volume.display_name()
    );
    Err(Error::new(Kind::Precondition, message))
}

fn grant_of(
    volume: &Volume,
    publication: &Publication,
    info: hawser_core::connection::ConnectionInfo,
) -> Grant {
    Grant {
        volume: volume.id.clone(),
        publication: publication.id.clone(),
        read_only: publication.read_only,
        info,
        access: volume.access,
        filesystem: volume.filesystem.clone(),
        size: volume.size,
    }
}

/// Records what a node did or found: one write, which is its own journal.
pub(crate) async fn report(world: &Arc<World>, report: &Report) -> Result<()> {
    let give_up = tokio::time::Instant::now() + PATIENCE;
    loop {
        let noted = world
            .records
            .update::<VolumeRecord>(&VolumeRecord::key_of(&report.volume), |record| {
                if let Some(journal) = &record.journal {
                    return Err(busy(&Subject::volume(&record.volume), journal));
                }
                note(record, report)
            })
            .await;
        match noted {
            Ok(Some(_)) => return Ok(()),
            // The volume is gone, and with it all that could be wrong about it.
            Ok(None) if report.fact == Fact::Detached => return Ok(()),
            Ok(None) => {
                let message = format!("volume {} does not exist", report.volume);
                return Err(Error::new(Kind::NotFound, message));
            }
            Err(error) if error.kind() == Kind::Busy => {
                wait_for_operation(world, &report.volume, give_up, error).await?;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Waits for the operation that holds the volume; answers `busy` when that takes too long.
async fn wait_for_operation(
    world: &Arc<World>,
    volume: &VolumeId,
    give_up: tokio::time::Instant,
    busy: Error,
) -> Result<()> {
    let left = give_up.saturating_duration_since(tokio::time::Instant::now());
    if left.is_zero() {
        return Err(busy);
    }
    let found = world.records.get::<VolumeRecord>(&VolumeRecord::key_of(volume)).await?;
    let job = found
        .and_then(|(record, _)| record.journal)
        .and_then(|journal| world.jobs.get(&journal.id));
    match job {
        // However it ended, the record tells.
        Some(job) => drop(job.wait(left).await),
        // Lent, or another server's: there is nothing here to wait for.
        None => tokio::time::sleep(left.min(Duration::from_millis(100))).await,
    }
    Ok(())
}

/// The record with a fact in it; `None` where it says so already.
fn note(record: &VolumeRecord, report: &Report) -> Result<Option<VolumeRecord>> {
    let mut changed = record.clone();
    let volume = &mut changed.volume;
    let mine = |p: &&mut Publication| p.id == report.publication && p.node == report.node;
    let Some(publication) = volume.publications.iter_mut().find(mine) else {
        if report.fact == Fact::Detached {
            return Ok(None);
        }
        return Err(not_published(&record.volume, &report.node));
    };
    refuse_unless_led(&record.volume, publication)?;
    match &report.fact {
        Fact::Attached(attached) => {
            check_identity(&volume.id, volume.identity.as_ref(), attached.identity())?;
            if volume.identity.is_none() {
                volume.identity = attached.identity().cloned();
            }
            publication.attached = Some(attached.clone());
        }
        Fact::Detached => publication.attached = None,
        Fact::FormatBegins | Fact::Formatted => note_format(volume, &report.fact)?,
    }
    Ok((changed.volume != record.volume).then_some(changed))
}

fn note_format(volume: &mut Volume, fact: &Fact) -> Result<()> {
    let name = volume.display_name();
    let refused = |why: &str| {
        Err(Error::new(Kind::Precondition, format!("volume {name} cannot be formatted: {why}")))
    };
    let Some(inside) = &mut volume.filesystem else {
        return refused("it is not used as a file system");
    };
    inside.state = match (inside.state, fact) {
        (FormatState::Never | FormatState::Started, Fact::FormatBegins) => FormatState::Started,
        (FormatState::Done, Fact::FormatBegins) => {
            return refused("it has a file system, and may hold data");
        }
        (FormatState::Never, _) => return refused("nobody said that it begins"),
        (FormatState::Started | FormatState::Done, _) => FormatState::Done,
    };
    Ok(())
}

/// Takes back a right that the node claimed by itself.
pub(crate) async fn release(world: &Arc<World>, volume: &VolumeId, node: &NodeId) -> Result<()> {
    let by_id = VolumeRef::Id(volume.clone());
    let Some((record, _)) = world.find_volume(&by_id).await? else { return Ok(()) };
    if publication_of(&record.volume, node).is_none_or(|publication| !publication.claimed) {
        return Ok(());
    }
    match access_begin::unpublish(world.clone(), by_id, node.clone()).await? {
        Begun::Answer(Change::Made(_) | Change::Already(_)) => Ok(()),
        Begun::Job(job) | Begun::Joined(job) => match job.wait(PATIENCE).await {
            Some(result) => result.map(drop),
            None => {
                let message = format!("volume {volume} is still being taken from {node}");
                Err(Error::new(Kind::Busy, message).with_outcome(Outcome::Unknown))
            }
        },
    }
}

/// Compares what a node has with what it had said: reports get lost with their link. Rights that it
/// claimed and does not use are taken back.
pub(crate) async fn compare(
    world: &Arc<World>,
    node: &NodeId,
    published: &[(VolumeId, Publication)],
) -> Result<()> {
    let led: Vec<_> = published.iter().filter(|(_, p)| p.node == *node && p.node_led).collect();
    if led.is_empty() {
        return Ok(());
    }
    let there = There::look(world, node).await?;
    for (volume, publication) in led {
        let found = there.attachments.iter().find(|record| record.publication == publication.id);
        let attached = found
            .filter(|record| record.state == AttachState::Attached && there.is_of_this_boot(record))
            .and_then(|record| record.attached.clone());
        let settled = match (attached, found) {
            (Some(attached), _) if publication.attached.as_ref() != Some(&attached) => {
                tell(world, volume, publication, Fact::Attached(attached)).await
            }
            (None, None) if publication.claimed => release(world, volume, node).await,
            (None, _) if publication.attached.is_some() => {
                tell(world, volume, publication, Fact::Detached).await
            }
            (Some(_) | None, _) => Ok(()),
        };
        if let Err(error) = settled {
            warn!(volume.id = %volume, node.id = %node, error = %error.sentence(),
                "what the node has was not recorded");
        }
    }
    Ok(())
}

async fn tell(
    world: &Arc<World>,
    volume: &VolumeId,
    publication: &Publication,
    fact: Fact,
) -> Result<()> {
    let of = Report {
        volume: volume.clone(),
        publication: publication.id.clone(),
        node: publication.node.clone(),
        fact,
    };
    report(world, &of).await
}
