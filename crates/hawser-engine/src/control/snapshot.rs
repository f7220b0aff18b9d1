//! Snapshots: taking them, which holds the volume; removing them, which holds the snapshot.

use std::sync::Arc;

use hawser_core::Timestamp;
use hawser_core::change::Change;
use hawser_core::error::{Error, Kind, Outcome, Result, ResultExt};
use hawser_core::event::EventKind;
use hawser_core::group::GroupRef;
use hawser_core::id::{GroupId, SnapshotId};
use hawser_core::name::{Alias, Labels};
use hawser_core::port::Progress;
use hawser_core::port::provider::{SnapshotAtProvider, Snapshots};
use hawser_core::port::store::Revision;
use hawser_core::snapshot::{Snapshot, SnapshotRef, SnapshotRequest, SnapshotState};
use hawser_core::volume::Volume;

use super::driver::Driven;
use super::freeze;
use super::group;
use super::hold::Hold;
use super::ids::Named;
use super::job::{Answer, Job};
use super::record::{Journal, SnapshotRecord, VolumeRecord, Work, name_key};
use super::start::{Begun, Decision, on_volume};
use super::world::{Held, Subject, World, at_provider as volume_at_provider, busy};

/// A snapshot as its provider knows it.
pub(crate) fn at_provider(snapshot: &Snapshot) -> SnapshotAtProvider {
    SnapshotAtProvider {
        id: snapshot.id.clone(),
        handle: snapshot.handle.clone(),
        size: snapshot.size,
        place: snapshot.place.clone(),
    }
}

fn subject(snapshot: &Snapshot) -> Subject {
    Subject { id: snapshot.id.to_string(), name: snapshot.alias.to_string() }
}

/// A snapshot by id or name.
pub(crate) async fn find(
    world: &World,
    snapshot: &SnapshotRef,
) -> Result<Option<(SnapshotRecord, Revision)>> {
    let id = match snapshot {
        SnapshotRef::Id(id) => id.clone(),
        SnapshotRef::Alias(alias) => match world.records.name("snapshot", alias).await? {
            Some((id, _)) => id.parse()?,
            None => return Ok(None),
        },
    };
    world.records.get(&SnapshotRecord::key_of(&id)).await
}

/// A snapshot by id or name, which must exist.
pub(crate) async fn get(
    world: &World,
    snapshot: &SnapshotRef,
) -> Result<(SnapshotRecord, Revision)> {
    find(world, snapshot)
        .await?
        .ok_or_else(|| Error::new(Kind::NotFound, format!("snapshot {snapshot} does not exist")))
}

fn ability<'a>(world: &'a World, volume: &Volume) -> Result<&'a dyn Snapshots> {
    world.provider(&volume.class)?.snapshots().ok_or_else(|| {
        let message = format!("class {} cannot take snapshots", volume.class);
        Error::new(Kind::Unsupported, message)
    })
}

/// Decides about a request and, if there is work, records it and starts it.
pub(crate) async fn begin_create(world: Arc<World>, request: SnapshotRequest) -> Result<Begun> {
    let alias = request.alias.clone();
    let _queue = world.names.lock(name_key("snapshot", &alias)).await;
    let (volume, _) = world.get_volume(&request.volume).await?;
    let by_name = SnapshotRef::Alias(alias.clone());
    while let Some((record, revision)) = find(&world, &by_name).await? {
        let snapshot = &record.snapshot;
        if snapshot.volume != volume.volume.id {
            let message = format!(
                "snapshot {alias} exists and differs: it is of volume {}, requested {}",
                snapshot.volume, volume.volume.id
            );
            return Err(Error::new(Kind::Exists, message));
        }
        match snapshot.state {
            SnapshotState::Ready => {
                let answer = Answer::Snapshot(Box::new(snapshot.clone()));
                return Ok(Begun::Answer(Change::Already(answer)));
            }
            // Its operation is in the volume's record: joined below.
            SnapshotState::Creating => break,
            SnapshotState::Deleting => {
                let (about, work) = (subject(snapshot), Work::CreateVolume);
                match world.join_or_busy(&record, revision, &about, &work).await? {
                    Held::Stale => {}
                    Held::Free | Held::Joined(_) => break,
                }
            }
        }
    }
    let checked = world.clone();
    let work = Work::CreateSnapshot {
        snapshot: SnapshotId::named(&alias),
        alias,
        labels: request.labels.clone(),
    };
    on_volume(world, request.volume, work.clone(), move |record| {
        ability(&checked, &record.volume)?;
        Ok(Decision::Start(work.clone(), Box::new(record.clone())))
    })
    .await
}

/// A snapshot that is to be taken.
pub(crate) struct Wanted<'a> {
    pub(crate) id: &'a SnapshotId,
    pub(crate) alias: &'a Alias,
    pub(crate) labels: &'a Labels,
    /// The group it is taken with.
    pub(crate) group: Option<&'a GroupId>,
    pub(crate) at: Timestamp,
}

/// Takes the snapshot, with the volume held still where it is mounted.
pub(crate) async fn forward(
    world: &Arc<World>,
    hold: &Hold<VolumeRecord>,
    job: &Job,
    wanted: &Wanted<'_>,
) -> Result<Answer> {
    if let Some(taken) = told(world, wanted.id).await? {
        return end(world, hold, taken).await;
    }
    let volume = hold.record().await.volume;
    let ability = ability(world, &volume)?;
    let attempt = || format!("taking snapshot {} of {}", wanted.alias, volume.display_name());
    freeze::check_reachable(world, &volume, job).await.context(attempt)?;
    let Reserved { mut record, revision, again } = reserve(world, &volume, ability, wanted).await?;
    if again && freeze::may_have_moved(&volume) {
        ability.delete_snapshot(&at_provider(&record.snapshot)).await.context(attempt)?;
    }
    freeze::freeze(world, &volume).await?;
    job.step("taking the snapshot");
    let at_provider = volume_at_provider(&volume);
    let taking = ability.snapshot(&at_provider, wanted.id, job);
    let taken = freeze::held(world, std::slice::from_ref(&volume), taking).await.context(attempt);
    let thawed = freeze::thaw(world, &volume).await;
    let taken = taken?.into_inner();
    // A snapshot is worth nothing to someone whose volume stays frozen: tried again until thawed.
    thawed.map_err(|error| error.with_outcome(Outcome::Unknown))?;
    record.snapshot.handle = taken.handle;
    record.snapshot.size = taken.size;
    record.snapshot.state = SnapshotState::Ready;
    let key = SnapshotRecord::key_of(wanted.id);
    if world.records.put(&key, &record, revision).await?.is_none() {
        let message = format!("the record of snapshot {} was changed meanwhile", wanted.alias);
        return Err(Error::new(Kind::Unavailable, message).with_outcome(Outcome::Unknown));
    }
    end(world, hold, record.snapshot).await
}

/// The snapshot, where an earlier attempt came so far as to record it as ready. Who saw that may have
/// begun to copy it: it is not taken again and not taken back.
async fn told(world: &World, id: &SnapshotId) -> Result<Option<Snapshot>> {
    let found = world.records.get::<SnapshotRecord>(&SnapshotRecord::key_of(id)).await?;
    let snapshot = found.map(|(record, _)| record.snapshot);
    Ok(snapshot.filter(|snapshot| snapshot.state != SnapshotState::Creating))
}

/// Ends the operation of a snapshot that is ready: whatever fails, there is only forward.
async fn end(world: &Arc<World>, hold: &Hold<VolumeRecord>, snapshot: Snapshot) -> Result<Answer> {
    hold.finish(|_| {}).await.map_err(|error| error.with_outcome(Outcome::Unknown))?;
    let message = format!("{} was taken", snapshot.alias);
    world.events.tell(EventKind::SnapshotChanged, snapshot.id.as_str(), message);
    Ok(Answer::Snapshot(Box::new(snapshot)))
}

/// What a snapshot has before it is taken.
pub(crate) struct Reserved {
    record: SnapshotRecord,
    revision: Revision,
    /// An earlier attempt had it, and may have taken the snapshot.
    again: bool,
}

/// The snapshot's record and name; those of an earlier attempt where there are any.
pub(crate) async fn reserve(
    world: &World,
    volume: &Volume,
    ability: &dyn Snapshots,
    wanted: &Wanted<'_>,
) -> Result<Reserved> {
    let key = SnapshotRecord::key_of(wanted.id);
    let snapshot = Snapshot {
        id: wanted.id.clone(),
        alias: wanted.alias.clone(),
        volume: volume.id.clone(),
        class: volume.class.clone(),
        size: volume.size,
        access: volume.access,
        filesystem: volume.filesystem.clone(),
        handle: ability.snapshot_handle(wanted.id),
        labels: wanted.labels.clone(),
        place: volume.place.clone(),
        group: wanted.group.cloned(),
        state: SnapshotState::Creating,
        created: wanted.at,
    };
    let record = SnapshotRecord { snapshot, holds: Vec::new(), journal: None };
    let found = match world.records.create(&key, &record).await? {
        Some(revision) => Reserved { record, revision, again: false },
        None => {
            let (record, revision) = world.records.get(&key).await?.ok_or_else(|| {
                Error::new(Kind::Unavailable, "the snapshot's record vanished")
                    .with_outcome(Outcome::Unknown)
            })?;
            Reserved { record, revision, again: true }
        }
    };
    loop {
        let holder =
            world.records.reserve_name("snapshot", wanted.alias, wanted.id.as_str()).await?;
        if holder == wanted.id.as_str() {
            return Ok(found);
        }
        // Records are written before their names and removed after them: a name without a record
        // is nobody's.
        let holder_id: SnapshotId = holder.parse()?;
        let key = SnapshotRecord::key_of(&holder_id);
        if world.records.get::<SnapshotRecord>(&key).await?.is_some() {
            let message = format!("the name {} was taken by snapshot {holder}", wanted.alias);
            return Err(Error::new(Kind::Exists, message));
        }
        world.records.release_name("snapshot", wanted.alias, &holder).await?;
    }
}

/// Removes all that `forward` may have made.
pub(crate) async fn back(
    world: &Arc<World>,
    hold: &Hold<VolumeRecord>,
    id: &SnapshotId,
    alias: &Alias,
) -> Result<()> {
    if told(world, id).await?.is_some() {
        return hold.finish(|_| {}).await;
    }
    hold.turn_back().await?;
    let volume = hold.record().await.volume;
    let key = SnapshotRecord::key_of(id);
    // Written before anything is frozen, and removed after everything is thawed.
    if let Some((record, revision)) = world.records.get::<SnapshotRecord>(&key).await? {
        freeze::thaw(world, &volume).await?;
        ability(world, &volume)?.delete_snapshot(&at_provider(&record.snapshot)).await?;
        world.records.release_name("snapshot", alias, id.as_str()).await?;
        let _ = world.records.delete(&key, revision).await?;
    }
    hold.finish(|_| {}).await
}

/// Begins to remove a snapshot; absent is fine.
pub(crate) async fn begin_delete(world: Arc<World>, snapshot: SnapshotRef) -> Result<Begun> {
    loop {
        let Some((record, revision)) = find(&world, &snapshot).await? else {
            return Ok(Begun::Answer(Change::Already(Answer::Nothing)));
        };
        refuse_if_in_group(&world, &record.snapshot).await?;
        let about = subject(&record.snapshot);
        let work = Work::DeleteSnapshot;
        match world.join_or_busy(&record, revision, &about, &work).await? {
            Held::Free => {}
            Held::Joined(job) => return Ok(Begun::Joined(job)),
            Held::Stale => continue,
        }
        refuse_if_in_use(&world, &record).await?;
        let journal = world.journal(work);
        let mut changed = record.clone();
        changed.snapshot.state = SnapshotState::Deleting;
        changed.journal = Some(journal.clone());
        let key = SnapshotRecord::key_of(&record.snapshot.id);
        let _starting = world.jobs.starting(&journal.id);
        let written = world.records.put(&key, &changed, revision).await;
        let written = world.written::<SnapshotRecord>(written, &key, &journal.id, &about);
        let Some(revision) = written? else { continue };
        if let Some(job) = world.launch(changed, revision, &journal, &about, false) {
            return Ok(Begun::Job(job));
        }
    }
}

/// A snapshot of a group goes with its group. Where the group is lost, it goes alone.
async fn refuse_if_in_group(world: &World, snapshot: &Snapshot) -> Result<()> {
    let Some(id) = &snapshot.group else { return Ok(()) };
    let Some((found, _)) = group::find(world, &GroupRef::Id(id.clone())).await? else {
        return Ok(());
    };
    let (alias, group) = (&snapshot.alias, &found.group.alias);
    let message = format!(
        "snapshot {alias} is part of group {group} ({id}) and goes with it: \
         hawser snapshot group delete {id}"
    );
    Err(Error::new(Kind::Invalid, message))
}

async fn refuse_if_in_use(world: &World, record: &SnapshotRecord) -> Result<()> {
    let snapshot = &record.snapshot;
    if let Some(volume) = record.holds.first() {
        let message = format!(
            "snapshot {} is being copied into volume {volume}; repeat later",
            snapshot.alias
        );
        return Err(Error::new(Kind::Busy, message));
    }
    // One that is ready may have its operation still, which ends when it finds the snapshot ready.
    let is_its_own = |work: &Work| matches!(work, Work::CreateSnapshot { snapshot: taken, .. } if *taken == snapshot.id);
    let key = VolumeRecord::key_of(&snapshot.volume);
    if let Some((volume, _)) = world.records.get::<VolumeRecord>(&key).await?
        && let Some(journal) = &volume.journal
        && (snapshot.state == SnapshotState::Creating || is_its_own(&journal.work))
    {
        return Err(busy(&subject(snapshot), journal));
    }
    Ok(())
}

impl Driven for SnapshotRecord {
    async fn forward(
        world: &Arc<World>,
        hold: &Hold<Self>,
        _journal: &Journal,
        job: &Job,
    ) -> Result<Answer> {
        let snapshot = hold.record().await.snapshot;
        job.step("removing the snapshot");
        let provider = world.provider(&snapshot.class)?;
        let Some(ability) = provider.snapshots() else {
            let message = format!("class {} has no snapshots", snapshot.class);
            return Err(Error::new(Kind::Unsupported, message));
        };
        ability
            .delete_snapshot(&at_provider(&snapshot))
            .await
            .context(|| format!("deleting snapshot {}", snapshot.alias))?;
        // The data is gone: from here on there is only forward, whatever fails.
        let forgotten = async {
            let id = snapshot.id.as_str();
            world.records.release_name("snapshot", &snapshot.alias, id).await?;
            hold.remove().await
        };
        forgotten.await.map_err(|error| error.with_outcome(Outcome::Unknown))?;
        let message = format!("{} was deleted", snapshot.alias);
        world.events.tell(EventKind::SnapshotDeleted, snapshot.id.as_str(), message);
        Ok(Answer::Nothing)
    }

    async fn back(
        _world: &Arc<World>,
        hold: &Hold<Self>,
        _journal: &Journal,
        _job: &Job,
    ) -> Result<()> {
        hold.finish(|record| record.snapshot.state = SnapshotState::Ready).await
    }

    fn ended(_record: &Self, _journal: &Journal) -> Answer {
        Answer::Nothing
    }
}
