//! Deciding about a request for a group, or for its end.

use std::collections::BTreeSet;
use std::sync::Arc;

use hawser_core::Timestamp;
use hawser_core::change::Change;
use hawser_core::error::{Error, Kind, Result, ResultExt};
use hawser_core::group::{GroupRef, GroupRequest};
use hawser_core::id::{GroupId, SnapshotId, VolumeId};
use hawser_core::name::{Alias, Labels, Scope};
use hawser_core::port::provider::{Groups, Snapshots};
use hawser_core::volume::{Volume, VolumeRef};

use super::super::freeze;
use super::super::ids::Named;
use super::super::job::Answer;
use super::super::record::{Cut, GroupHead, GroupRecord, Member, Record, Work, name_key};
use super::super::start::Begun;
use super::super::world::{Held, Subject, World};
use super::{find, record_of, remove, subject, view};

/// All of them stand still until the last is cut; and it keeps the record small, whatever a caller
/// sends.
const MOST_MEMBERS: usize = 256;

/// Decides about a request and, if there is work, records it and starts it.
pub(crate) async fn begin_create(world: Arc<World>, request: GroupRequest) -> Result<Begun> {
    let alias = request.alias.clone();
    let attempt = || format!("taking group {alias}");
    let _queue = world.names.lock(name_key("group", &alias)).await;
    loop {
        let wanted = ids_of(&world, &request.volumes).await?;
        check_list(&request, &wanted).context(attempt)?;
        if let Some((record, revision)) = find(&world, &GroupRef::Alias(alias.clone())).await? {
            compare(&record.group, &wanted, &request.labels)?;
            let about = subject(&record.group);
            match world.join_or_busy(&record, revision, &about, &Work::CreateGroup).await? {
                Held::Free => {}
                Held::Joined(job) => return Ok(Begun::Joined(job)),
                Held::Stale => continue,
            }
            let answer = Answer::Group(Box::new(view(&world, &record.group).await?));
            return Ok(Begun::Answer(Change::Already(answer)));
        }
        let volumes = free_volumes(&world, &request.volumes).await.context(attempt)?;
        let Some(volumes) = volumes else { continue };
        together(&world, &volumes).context(attempt)?;
        let journal = world.journal(Work::CreateGroup);
        let group = plan(&world, &request, &volumes).await?;
        let record = GroupRecord { group, journal: Some(journal.clone()) };
        let _starting = world.jobs.starting(&journal.id);
        let (key, about) = (record.key(), subject(&record.group));
        let written = world.records.create(&key, &record).await;
        let written = world.written::<GroupRecord>(written, &key, &journal.id, &about);
        let Some(revision) = written? else { continue };
        let id = record.group.id.as_str();
        let holder = world.records.reserve_name("group", &alias, id).await;
        if holder.is_ok_and(|holder| holder != id) {
            // Another server was faster; what it made is what the caller asked for, or not.
            if let Err(error) = world.records.delete(&key, revision).await {
                world.adopt::<GroupRecord>(key, journal.id, about);
                return Err(error);
            }
            release_if_dead(&world, &alias).await?;
            continue;
        }
        // A name that could not be written is written by the operation.
        if let Some(job) = world.launch(record, revision, &journal, &about, false) {
            return Ok(Begun::Job(job));
        }
    }
}

/// The ids behind the references; `None` for a name that leads nowhere.
async fn ids_of(world: &World, volumes: &[VolumeRef]) -> Result<Vec<Option<VolumeId>>> {
    let mut ids = Vec::with_capacity(volumes.len().min(MOST_MEMBERS));
    for volume in volumes.iter().take(MOST_MEMBERS) {
        ids.push(match volume {
            VolumeRef::Id(id) => Some(id.clone()),
            VolumeRef::Alias(alias) => match world.records.name("volume", alias).await? {
                Some((id, _)) => Some(id.parse()?),
                None => None,
            },
        });
    }
    Ok(ids)
}

/// Refuses a list that no group can be made of.
fn check_list(request: &GroupRequest, wanted: &[Option<VolumeId>]) -> Result<()> {
    if request.volumes.is_empty() {
        return Err(Error::new(Kind::Invalid, "a group needs at least one volume"));
    }
    if request.volumes.len() > MOST_MEMBERS {
        let message = format!("a group has at most {MOST_MEMBERS} volumes");
        return Err(Error::new(Kind::Invalid, message));
    }
    let mut seen = BTreeSet::new();
    match wanted.iter().flatten().find(|id| !seen.insert(*id)) {
        Some(twice) => {
            Err(Error::new(Kind::Invalid, format!("volume {twice} is named more than once")))
        }
        None => Ok(()),
    }
}

/// Refuses a request that differs from the group which has its name. A volume that is gone by now
/// and was named by its name cannot be compared.
fn compare(group: &GroupHead, wanted: &[Option<VolumeId>], labels: &Labels) -> Result<()> {
    let of: BTreeSet<_> = group.members.iter().map(|member| &member.volume).collect();
    if of.len() == wanted.len() && wanted.iter().flatten().all(|id| of.contains(id)) {
        if group.labels == *labels {
            return Ok(());
        }
        let message = format!(
            "group {} exists and differs: its snapshots have the labels {:?}, requested {labels:?}",
            group.alias, group.labels
        );
        return Err(Error::new(Kind::Exists, message));
    }
    let listed = |ids: Vec<String>| ids.join(", ");
    let has = listed(of.iter().map(ToString::to_string).collect());
    let wants = listed(wanted.iter().flatten().map(ToString::to_string).collect());
    let message = format!(
        "group {} exists and differs: it is of volumes {has}, requested {wants}",
        group.alias
    );
    Err(Error::new(Kind::Exists, message))
}

/// The volumes, if no operation holds one of them; `None` when they are to be read again.
async fn free_volumes(world: &Arc<World>, volumes: &[VolumeRef]) -> Result<Option<Vec<Volume>>> {
    let mut found = Vec::with_capacity(volumes.len());
    for volume in volumes {
        let (record, revision) = world.get_volume(volume).await?;
        let about = Subject::volume(&record.volume);
        match world.join_or_busy(&record, revision, &about, &Work::CreateGroup).await? {
            Held::Free => found.push(record.volume),
            Held::Joined(_) | Held::Stale => return Ok(None),
        }
    }
    Ok(Some(found))
}

/// What the provider of the volumes can do for a group of them. Refuses volumes of which one instant
/// cannot be kept.
pub(super) fn together<'w>(
    world: &'w World,
    volumes: &[Volume],
) -> Result<(&'w dyn Groups, &'w dyn Snapshots)> {
    let refused = |message| Err(Error::new(Kind::Precondition, message));
    let Some((first, rest)) = volumes.split_first() else {
        return Err(Error::new(Kind::Invalid, "a group needs at least one volume"));
    };
    for other in rest {
        let names = format!("volumes {} and {}", first.display_name(), other.display_name());
        if other.class != first.class {
            let (a, b) = (&first.class, &other.class);
            return refused(format!("{names} are in different classes ({a}, {b})"));
        }
        if other.place != first.place {
            return refused(format!("{names} are at different places"));
        }
    }
    let provider = world.provider(&first.class)?;
    let (Some(groups), Some(snapshots)) = (provider.groups(), provider.snapshots()) else {
        let class = &first.class;
        return refused(format!("class {class} cannot take several volumes at one instant"));
    };
    volumes.iter().try_for_each(freeze::check_can_be_still)?;
    Ok((groups, snapshots))
}

/// The group that will be made.
async fn plan(world: &World, request: &GroupRequest, volumes: &[Volume]) -> Result<GroupHead> {
    let id = GroupId::named(&request.alias);
    let mut members = Vec::with_capacity(volumes.len());
    for (index, volume) in volumes.iter().enumerate() {
        let alias = match readable_name(world, &request.alias, volume).await? {
            Some(alias) => alias,
            None => Alias::native(format!("{id}.{}", index + 1))?,
        };
        let (volume, snapshot) = (volume.id.clone(), SnapshotId::generate());
        members.push(Member { volume, snapshot, alias });
    }
    Ok(GroupHead {
        id,
        alias: request.alias.clone(),
        labels: request.labels.clone(),
        members,
        cut: Cut::Never,
        created: Timestamp::now(),
    })
}

/// `GROUP.VOLUME`, where people gave both names, and nobody has this one.
async fn readable_name(world: &World, group: &Alias, volume: &Volume) -> Result<Option<Alias>> {
    let of_volume = volume.aliases.iter().find(|alias| alias.scope() == Scope::Native);
    let (Scope::Native, Some(of_volume)) = (group.scope(), of_volume) else { return Ok(None) };
    let name = format!("{}.{}", group.name(), of_volume.name());
    let Ok(alias) = Alias::native(name) else { return Ok(None) };
    let free = world.records.name("snapshot", &alias).await?.is_none();
    Ok(free.then_some(alias))
}

/// Releases a name that leads to no group. A record is written before its name and removed after
/// it, so such a name is nobody's.
async fn release_if_dead(world: &World, alias: &Alias) -> Result<()> {
    if let Some((id, _)) = world.records.name("group", alias).await?
        && find(world, &GroupRef::Alias(alias.clone())).await?.is_none()
    {
        world.records.release_name("group", alias, &id).await?;
    }
    Ok(())
}

/// Begins to remove a group; absent is fine.
pub(crate) async fn begin_delete(world: Arc<World>, group: GroupRef) -> Result<Begun> {
    loop {
        let Some((record, revision)) = find(&world, &group).await? else {
            return Ok(Begun::Answer(Change::Already(Answer::Nothing)));
        };
        let about = subject(&record.group);
        let work = Work::DeleteGroup;
        match world.join_or_busy(&record, revision, &about, &work).await? {
            Held::Free => {}
            Held::Joined(job) => return Ok(Begun::Joined(job)),
            Held::Stale => continue,
        }
        for member in &record.group.members {
            if let Some(snapshot) = record_of(&world, member).await? {
                remove::refuse_if_copied(&record.group, &snapshot)?;
            }
        }
        let journal = world.journal(work);
        let mut changed = record.clone();
        changed.journal = Some(journal.clone());
        let key = changed.key();
        let _starting = world.jobs.starting(&journal.id);
        let written = world.records.put(&key, &changed, revision).await;
        let written = world.written::<GroupRecord>(written, &key, &journal.id, &about);
        let Some(revision) = written? else { continue };
        if let Some(job) = world.launch(changed, revision, &journal, &about, false) {
            return Ok(Begun::Job(job));
        }
    }
}
