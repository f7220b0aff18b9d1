//! Start-up: takes up every operation that was cut off, and brings back what a reboot took away.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;
use tracing::{info, warn};

use hawser_core::Timestamp;
use hawser_core::error::{Kind, Result};
use hawser_core::event::EventKind;
use hawser_core::id::{GroupId, SnapshotId, VolumeId};
use hawser_core::name::NodeId;
use hawser_core::operation::Operation;
use hawser_core::place::Place;
use hawser_core::port::store::{Key, Prefix};
use hawser_core::publication::Publication;

use super::driver::Driven;
use super::group;
use super::job::REMEMBERED;
use super::loan;
use super::record::{GroupRecord, SnapshotRecord, VolumeRecord, Work};
use super::restore;
use super::sweep;
use super::world::{Subject, World};

/// As much of a record as tells whether it is held; reading the rest of a hundred thousand would
/// take most of the start-up time.
#[derive(Deserialize)]
struct Peek {
    #[serde(alias = "volume", alias = "snapshot", alias = "group")]
    object: PeekId,
    journal: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct PeekId {
    id: String,
    #[serde(default)]
    publications: Vec<Publication>,
}

impl PeekId {
    fn published(self) -> impl Iterator<Item = (VolumeId, Publication)> {
        let id = self.id.parse::<VolumeId>().ok();
        let of = move |publication| Some((id.clone()?, publication));
        self.publications.into_iter().filter_map(of)
    }
}

/// Takes up what was cut off. Returns when everything is known that holds a record, so that
/// requests meet the same answers as before the stop; the work itself goes on behind.
pub(crate) async fn start(world: &Arc<World>) -> Result<()> {
    remember_history(world).await?;
    let mut held = Vec::new();
    let mut published = Vec::new();
    let unreadable = world
        .records
        .each::<Peek>(&VolumeRecord::prefix(), |peek, _| {
            if peek.journal.is_some() {
                held.push(peek.object.id.clone());
            }
            published.extend(peek.object.published());
        })
        .await?;
    for (key, why) in unreadable {
        warn!(%key, why, "a record cannot be read; see `hawser doctor`");
    }
    let mut lent = Vec::new();
    for id in held {
        let Ok(id) = id.parse::<VolumeId>() else { continue };
        if let Some(Some(work)) = legible(take_up_volume(world, &id).await)?
            && work.is_loan()
        {
            lent.push((id, work));
        }
    }
    for id in held_below(world, &SnapshotRecord::prefix()).await? {
        if let Ok(id) = id.parse::<SnapshotId>() {
            legible(take_up_snapshot(world, &id).await)?;
        }
    }
    for id in held_below(world, &GroupRecord::prefix()).await? {
        if let Ok(id) = id.parse::<GroupId>() {
            legible(take_up_group(world, &id).await)?;
        }
    }
    // Volumes still lent to something that has its own operation are released by that.
    for (id, loan) in lent {
        let world_of_task = world.clone();
        world.tasks.spawn(async move { settle_loan(&world_of_task, &id, &loan).await });
    }
    for id in world.nodes.ids().await? {
        restore::on_node(world, &id, &published).await?;
    }
    world.ready.store(true, Ordering::Release);
    sweep::begin(world, None);
    Ok(())
}

/// The ids of the records that an operation holds.
async fn held_below(world: &World, prefix: &Prefix) -> Result<Vec<String>> {
    let mut held = Vec::new();
    let peek = |peek: Peek, _| {
        if peek.journal.is_some() {
            held.push(peek.object.id);
        }
    };
    world.records.each(prefix, peek).await?;
    Ok(held)
}

/// One record that cannot be read keeps nobody from the others: `hawser doctor` names it.
fn legible<T>(taken_up: Result<T>) -> Result<Option<T>> {
    match taken_up {
        Ok(taken_up) => Ok(Some(taken_up)),
        Err(error) if error.kind() == Kind::Internal => {
            warn!(error = %error.sentence(), "an operation is not taken up");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Remembers a node that dialled in, and brings back what a reboot of it took away.
pub(crate) async fn node_came(world: &Arc<World>, node: &NodeId) -> Result<()> {
    sweep::begin(world, Some(Place::node(node)));
    let mut published = Vec::new();
    world
        .records
        .each::<Peek>(&VolumeRecord::prefix(), |peek, _| {
            published.extend(peek.object.published());
        })
        .await?;
    restore::on_node(world, node, &published).await?;
    world.events.tell(EventKind::NodeChanged, node.as_str(), "dialled in");
    Ok(())
}

/// Takes the newest finished operations into memory; what a crash left beyond them goes.
async fn remember_history(world: &Arc<World>) -> Result<()> {
    let mut operations: Vec<Operation> = Vec::new();
    let history = Prefix::below(&["operation"]);
    world.records.each(&history, |operation, _| operations.push(operation)).await?;
    let excess = operations.len().saturating_sub(REMEMBERED);
    world.jobs.remember(operations.split_off(excess));
    let world_of_task = world.clone();
    world.tasks.spawn(async move {
        for old in operations {
            world_of_task.forget_history(&old.id).await;
        }
    });
    Ok(())
}

/// Resumes the operation of a volume; answers its work.
async fn take_up_volume(world: &Arc<World>, id: &VolumeId) -> Result<Option<Work>> {
    let key = VolumeRecord::key_of(id);
    let Some((record, revision)) = world.records.get::<VolumeRecord>(&key).await? else {
        return Ok(None);
    };
    let Some(journal) = record.journal.clone() else { return Ok(None) };
    let subject = Subject::volume(&record.volume);
    take_up(world, key, record, revision, subject).await?;
    Ok(Some(journal.work))
}

async fn take_up_snapshot(world: &Arc<World>, id: &SnapshotId) -> Result<()> {
    let key = SnapshotRecord::key_of(id);
    let Some((record, revision)) = world.records.get::<SnapshotRecord>(&key).await? else {
        return Ok(());
    };
    if record.journal.is_none() {
        return Ok(());
    }
    let name = record.snapshot.alias.to_string();
    take_up(world, key, record, revision, Subject { id: id.to_string(), name }).await
}

async fn take_up_group(world: &Arc<World>, id: &GroupId) -> Result<()> {
    let key = GroupRecord::key_of(id);
    let Some((record, revision)) = world.records.get::<GroupRecord>(&key).await? else {
        return Ok(());
    };
    let subject = group::subject(&record.group);
    take_up(world, key, record, revision, subject).await
}

async fn take_up<R: Driven>(
    world: &Arc<World>,
    key: Key,
    record: R,
    revision: hawser_core::port::store::Revision,
    subject: Subject,
) -> Result<()> {
    let Some(journal) = record.journal().cloned() else { return Ok(()) };
    if world.may_take_over(&journal) {
        info!(operation.id = %journal.id, operation.kind = %journal.work.kind(), name = subject.name, "resuming");
        world.resume(record, revision, &subject).await?;
        return Ok(());
    }
    // Another instance holds it. If it is still alive it finishes; if not, we do when its lease ends.
    let world_of_task = world.clone();
    world.tasks.spawn(async move {
        let left = journal.expires.duration_since(Timestamp::now());
        let left = Duration::try_from(left).unwrap_or_default() + Duration::from_secs(1);
        tokio::select! {
            () = world_of_task.stop.cancelled() => return,
            () = tokio::time::sleep(left) => {}
        }
        let again = async {
            if let Some((record, revision)) = world_of_task.records.get::<R>(&key).await?
                && record.journal().is_some_and(|journal| world_of_task.may_take_over(journal))
            {
                world_of_task.resume(record, revision, &subject).await?;
            }
            Ok::<_, hawser_core::Error>(())
        };
        if let Err(error) = again.await {
            warn!(error = %error.sentence(), name = subject.name, "an operation was not taken over");
        }
    });
    Ok(())
}

/// Takes a lent volume home once what it was lent to is not being made any more.
async fn settle_loan(world: &Arc<World>, id: &VolumeId, loan: &Work) {
    let mut pause = Duration::from_millis(200);
    loop {
        let settled = async {
            if loan::is_needed(world, loan).await? {
                return Ok(false);
            }
            loan::give_back(world, id, loan).await?;
            Ok::<_, hawser_core::Error>(true)
        };
        match settled.await {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => warn!(volume.id = %id, error = %error.sentence(), "still lent"),
        }
        tokio::select! {
            () = world.stop.cancelled() => return,
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(Duration::from_secs(30)),
        }
    }
}
