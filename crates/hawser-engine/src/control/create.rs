//! Creating volumes: from nothing, from a snapshot, from another volume.

use std::sync::Arc;

use uuid::Uuid;

use hawser_core::Timestamp;
use hawser_core::change::Change;
use hawser_core::error::{Error, Kind, Result, ResultExt};
use hawser_core::event::EventKind;
use hawser_core::filesystem::{Filesystem, FormatState};
use hawser_core::id::{SnapshotId, VolumeId};
use hawser_core::name::{Alias, Scope};
use hawser_core::place::Place;
use hawser_core::port::Progress;
use hawser_core::port::provider::{Provision, ProvisionSource, filesystem_of};
use hawser_core::size::ByteSize;
use hawser_core::snapshot::SnapshotState;
use hawser_core::volume::{Source, SourceRef, Volume, VolumeRequest, VolumeState};

use super::freeze;
use super::hold::Hold;
use super::ids::Named;
use super::job::{Answer, Job};
use super::loan;
use super::record::{Journal, Record, SnapshotRecord, VolumeRecord, Work, name_key};
use super::start::Begun;
use super::sweep::SURE;
use super::world::{ClassEntry, Held, Subject, World, at_provider};

/// Decides about a request and, if there is work, records it and starts it.
pub(crate) async fn begin(world: Arc<World>, request: VolumeRequest) -> Result<Begun> {
    request.validate()?;
    let alias = request.alias.clone();
    let _queue = world.names.lock(name_key("volume", &alias)).await;
    loop {
        let plan = Plan::new(&world, &request).await;
        if let Some((record, revision)) = existing(&world, &alias).await? {
            // An existing volume answers even when its source is gone by now.
            if !record.is_of_remains() {
                compare(&record.volume, &request, plan.as_ref().ok())?;
                if plan.is_err() {
                    compare_size(&world, &record.volume, &request).await?;
                }
            }
            let subject = Subject::volume(&record.volume);
            let work = Work::CreateVolume;
            match world.join_or_busy(&record, revision, &subject, &work).await? {
                Held::Free => {}
                Held::Joined(job) => return Ok(Begun::Joined(job)),
                Held::Stale => continue,
            }
            return Ok(Begun::Answer(Change::Already(Answer::Volume(Box::new(record.view())))));
        }
        let attempt = || format!("creating volume {alias}");
        let plan = plan.context(attempt)?;
        plan.check_limit(&request).context(attempt)?;
        let place = plan.place(&request).await.context(attempt)?;
        let volume = plan.volume(&request, place);
        let journal = world.journal(Work::CreateVolume);
        let record = VolumeRecord { volume, journal: Some(journal.clone()) };
        let begun = if plan.is_recorded_when_made(&world, &request) {
            begin_draft(&world, record, &journal).await?
        } else {
            begin_recorded(&world, &alias, record, &journal).await?
        };
        if let Some(job) = begun {
            return Ok(Begun::Job(job));
        }
    }
}

/// Writes the intent and starts the work; `None` when somebody else was faster.
async fn begin_recorded(
    world: &Arc<World>,
    alias: &Alias,
    record: VolumeRecord,
    journal: &Journal,
) -> Result<Option<Arc<Job>>> {
    let _starting = world.jobs.starting(&journal.id);
    let (key, subject) = (record.key(), Subject::volume(&record.volume));
    let written = world.records.create(&key, &record).await;
    let written = world.written::<VolumeRecord>(written, &key, &journal.id, &subject);
    let Some(revision) = written? else { return Ok(None) };
    let id = record.volume.id.as_str();
    let holder = world.records.reserve_name("volume", alias, id).await;
    if holder.is_ok_and(|holder| holder != id) {
        // Another server was faster; what it made is what the caller asked for, or not.
        if let Err(error) = world.records.delete(&key, revision).await {
            world.adopt::<VolumeRecord>(key, journal.id.clone(), subject);
            return Err(error);
        }
        release_if_dead(world, alias).await?;
        return Ok(None);
    }
    // A name that could not be written is written by the operation.
    Ok(world.launch(record, revision, journal, &subject, false))
}

/// Starts the work with nothing written: the request itself is the intent, because it is repeated
/// until it is answered. `None` when somebody else was faster.
async fn begin_draft(
    world: &Arc<World>,
    record: VolumeRecord,
    journal: &Journal,
) -> Result<Option<Arc<Job>>> {
    let (key, subject) = (record.key(), Subject::volume(&record.volume));
    // What an earlier attempt left is removed under the same lock, by whoever finds no draft.
    let _beginning = world.names.lock(key.clone()).await;
    if world.records.get::<VolumeRecord>(&key).await?.is_some() {
        return Ok(None);
    }
    let _starting = world.jobs.starting(&journal.id);
    let Some(draft) = world.records.draft(&key, &record)? else { return Ok(None) };
    let hold = Hold::draft(world.records.clone(), journal.id.clone(), record, draft);
    Ok(world.launch_held(hold, journal, &subject, false))
}

async fn existing(
    world: &World,
    alias: &Alias,
) -> Result<Option<(VolumeRecord, hawser_core::port::store::Revision)>> {
    world.find_volume(&hawser_core::volume::VolumeRef::Alias(alias.clone())).await
}

/// Releases a name that leads to no volume. A record is written before its name and removed after
/// it, so such a name is nobody's.
async fn release_if_dead(world: &World, alias: &Alias) -> Result<()> {
    if let Some((id, _)) = world.records.name("volume", alias).await?
        && existing(world, alias).await?.is_none()
    {
        world.records.release_name("volume", alias, &id).await?;
    }
    Ok(())
}

/// A request with everything that it leaves open decided.
struct Plan<'a> {
    entry: &'a ClassEntry,
    size: ByteSize,
    access: hawser_core::volume::Access,
    source: Option<Source>,
    /// Where the source is.
    source_place: Option<Place>,
    wanted: Provision,
}

impl<'a> Plan<'a> {
    async fn new(world: &'a World, request: &VolumeRequest) -> Result<Self> {
        let source = match &request.source {
            None => None,
            Some(source) => Some(Origin::find(world, source).await?),
        };
        let class = request.class.as_ref().or(source.as_ref().map(|origin| &origin.class));
        let entry = world.class(class)?;
        let provider = &entry.provider;
        if let Some(origin) = &source {
            origin.check(entry, request)?;
        }
        let size = request.size.or(source.as_ref().map(|origin| origin.size)).unwrap_or_default();
        let access = request
            .access
            .or(source.as_ref().map(|origin| origin.access))
            .unwrap_or_else(|| provider.default_access());
        let wanted = Provision {
            id: VolumeId::generate(),
            size,
            access,
            source: source.as_ref().map(|origin| origin.at_provider.clone()),
            parameters: request.parameters.clone(),
            place: None,
        };
        let size = provider.check(&wanted).await?;
        let source_place = source.as_ref().and_then(|origin| origin.place.clone());
        let source = source.map(|origin| origin.source);
        Ok(Self { entry, size, access, source, source_place, wanted })
    }

    /// Refuses what would be larger than it may be: once it is made, others may have it.
    fn check_limit(&self, request: &VolumeRequest) -> Result<()> {
        let Some(limit) = request.limit.filter(|limit| self.size > *limit) else { return Ok(()) };
        let message = format!("it would have {}, and at most {limit} are asked for", self.size);
        Err(Error::new(Kind::OutOfRange, message))
    }

    /// Where the volume will be: a copy is made where its source is, anything else where the
    /// provider has room for it.
    async fn place(&self, request: &VolumeRequest) -> Result<Option<Place>> {
        let Some(placement) = self.entry.provider.placement() else { return Ok(None) };
        let Some(place) = &self.source_place else {
            return placement.place(&self.wanted, &request.places).await.map(Some);
        };
        if request.places.is_empty() || request.places.iter().any(|p| place.is_reached_from(p)) {
            return Ok(Some(place.clone()));
        }
        let message = format!(
            "the source is at {place}, and a copy stays with it; asked for: {}",
            listed(&request.places)
        );
        Err(Error::new(Kind::NoSpace, message))
    }

    /// True when the record is written once, with the volume made: whoever asks repeats that until it
    /// is answered, the id follows from the name, there is no source that must be held, and what a
    /// crash leaves can be told from what somebody uses.
    fn is_recorded_when_made(&self, world: &World, request: &VolumeRequest) -> bool {
        world.drafts.is_some()
            && request.alias.scope() == Scope::Csi
            && self.source.is_none()
            && self.entry.provider.blanks().is_some()
    }

    fn volume(&self, request: &VolumeRequest, place: Option<Place>) -> Volume {
        let id = VolumeId::named(&request.alias);
        let filesystem = filesystem_of(self.access).map(|kind| Filesystem {
            kind,
            uuid: Uuid::new_v4(),
            state: FormatState::Never,
        });
        Volume {
            handle: self.entry.provider.handle(&id),
            id,
            aliases: vec![request.alias.clone()],
            class: self.entry.class.name.clone(),
            size: self.size,
            access: self.access,
            sharing: request.sharing,
            source: self.source.clone(),
            labels: request.labels.clone(),
            parameters: request.parameters.clone(),
            place,
            state: VolumeState::Creating,
            filesystem,
            identity: None,
            publications: Vec::new(),
            untouched: true,
            operation: None,
            created: Timestamp::now(),
        }
    }
}

/// What a volume is made from, as it is now.
struct Origin {
    source: Source,
    class: hawser_core::name::ClassName,
    size: ByteSize,
    access: hawser_core::volume::Access,
    place: Option<Place>,
    at_provider: ProvisionSource,
}

impl Origin {
    async fn find(world: &World, source: &SourceRef) -> Result<Self> {
        match source {
            SourceRef::Snapshot(snapshot) => {
                let (record, _) = super::snapshot::get(world, snapshot).await?;
                let snapshot = record.snapshot;
                Ok(Self {
                    class: snapshot.class.clone(),
                    size: snapshot.size,
                    access: snapshot.access,
                    place: snapshot.place.clone(),
                    at_provider: ProvisionSource::Snapshot(super::snapshot::at_provider(&snapshot)),
                    source: Source::Snapshot(snapshot.id),
                })
            }
            SourceRef::Volume(volume) => {
                let (record, _) = world.get_volume(volume).await?;
                let volume = record.volume;
                Ok(Self {
                    class: volume.class.clone(),
                    size: volume.size,
                    access: volume.access,
                    place: volume.place.clone(),
                    at_provider: ProvisionSource::Volume(at_provider(&volume)),
                    source: Source::Volume(volume.id),
                })
            }
        }
    }

    fn check(&self, entry: &ClassEntry, request: &VolumeRequest) -> Result<()> {
        if entry.class.name != self.class {
            return Err(Error::new(
                Kind::Unsupported,
                format!(
                    "the source is in class {} and the new volume in class {}; a copy stays in its class",
                    self.class, entry.class.name
                ),
            ));
        }
        if matches!(self.source, Source::Volume(_)) && !entry.provider.clones() {
            return Err(Error::new(
                Kind::Unsupported,
                format!("class {} cannot clone volumes", self.class),
            ));
        }
        if let Some(size) = request.size.filter(|size| *size < self.size) {
            return Err(Error::new(
                Kind::OutOfRange,
                format!("{size} is smaller than the {} of its source", self.size),
            ));
        }
        match request.access {
            Some(access) if access != self.access => Err(Error::new(
                Kind::Invalid,
                format!("the source is used as {}, the new volume cannot be {access}", self.access),
            )),
            Some(_) | None => Ok(()),
        }
    }
}

fn listed(places: &[Place]) -> String {
    places.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Refuses a request that differs from the volume which has its name.
fn compare(volume: &Volume, request: &VolumeRequest, plan: Option<&Plan<'_>>) -> Result<()> {
    let mut differences = Vec::new();
    let mut differ = |what: &str, has: String, wants: String| {
        if has != wants {
            differences.push(format!("{what} is {has}, requested {wants}"));
        }
    };
    if let Some(class) = &request.class {
        differ("class", volume.class.to_string(), class.to_string());
    }
    if let (Some(_), Some(plan)) = (request.size, plan) {
        differ("size", volume.size.to_string(), plan.size.to_string());
    }
    if let Some(access) = request.access {
        differ("use", volume.access.to_string(), access.to_string());
    }
    differ("sharing", volume.sharing.as_str().into(), request.sharing.as_str().into());
    differ("parameters", format!("{:?}", volume.parameters), format!("{:?}", request.parameters));
    if let Some(place) = &volume.place
        && !request.places.is_empty()
        && !request.places.iter().any(|wanted| place.is_reached_from(wanted))
    {
        differ("place", place.to_string(), listed(&request.places));
    }
    let source = |source: Option<&Source>| source.map_or("nothing".into(), ToString::to_string);
    match (plan, &request.source) {
        (Some(plan), _) => {
            differ("source", source(volume.source.as_ref()), source(plan.source.as_ref()));
        }
        (None, None) => differ("source", source(volume.source.as_ref()), source(None)),
        // The source is gone, so it cannot be compared; the name and the rest agree.
        (None, Some(_)) => {}
    }
    if differences.is_empty() {
        return Ok(());
    }
    let name = volume.display_name();
    let message = format!("volume {name} exists and differs: {}", differences.join("; "));
    Err(Error::new(Kind::Exists, message))
}

/// The same for the size alone, where there is no plan: its source is gone, or nobody is there to ask.
/// What the provider makes of a size is not guessed: a repetition would be refused for ever.
async fn compare_size(world: &World, volume: &Volume, request: &VolumeRequest) -> Result<()> {
    let Some(size) = request.size.filter(|size| *size != volume.size) else { return Ok(()) };
    let size = size_made_of(world, volume, size).await?;
    if size == volume.size {
        return Ok(());
    }
    let (name, has) = (volume.display_name(), volume.size);
    let message = format!("volume {name} exists and differs: size is {has}, requested {size}");
    Err(Error::new(Kind::Exists, message))
}

/// The size that a volume's provider makes of this one.
pub(crate) async fn size_made_of(
    world: &World,
    volume: &Volume,
    size: ByteSize,
) -> Result<ByteSize> {
    let wanted = Provision {
        id: volume.id.clone(),
        size,
        access: volume.access,
        source: None,
        parameters: volume.parameters.clone(),
        place: volume.place.clone(),
    };
    world.provider(&volume.class)?.check(&wanted).await
}

/// Makes the volume.
pub(crate) async fn forward(
    world: &Arc<World>,
    hold: &Hold<VolumeRecord>,
    job: &Job,
) -> Result<Answer> {
    let volume = hold.record().await.volume;
    let name = volume.display_name();
    for alias in &volume.aliases {
        let holder = world.records.reserve_name("volume", alias, volume.id.as_str()).await?;
        if holder != volume.id.as_str() {
            let message = format!("the name {alias} was taken by volume {holder}");
            return Err(Error::new(Kind::Exists, message));
        }
    }
    let (source, lent) = match &volume.source {
        None => (None, Vec::new()),
        Some(Source::Snapshot(id)) => (Some(hold_snapshot(world, hold, id).await?), Vec::new()),
        Some(Source::Volume(id)) => {
            let lent = lend(world, hold, job, id).await?;
            (Some(ProvisionSource::Volume(at_provider(&lent))), vec![lent])
        }
    };
    let volume = hold.record().await.volume;
    job.step(if source.is_some() { "copying" } else { "making the volume" });
    let wanted = Provision {
        id: volume.id.clone(),
        size: volume.size,
        access: volume.access,
        source,
        parameters: volume.parameters.clone(),
        place: volume.place.clone(),
    };
    let provider = world.provider(&volume.class)?;
    let create = async || {
        let made = freeze::held(world, &lent, provider.create(&wanted, job)).await;
        made.context(|| format!("creating volume {name} in class {}", volume.class))
    };
    let mut made = create().await?;
    // What an earlier attempt made, or this one long ago, another server may be about to remove or to
    // record. A record keeps it from both; then the volume is made again, should it be gone by now.
    if let Some(age) = hold.unwritten_for().await
        && (!made.is_made() || age > SURE)
    {
        hold.save(|_| {}).await?;
        made = create().await?;
    }
    let made = made.into_inner();
    release_source(world, &volume).await?;
    hold.finish(|record| {
        record.volume.handle = made.handle;
        record.volume.size = made.size;
        record.volume.identity = made.identity;
        record.volume.state = VolumeState::Ready;
    })
    .await?;
    world.events.tell(EventKind::VolumeChanged, volume.id.as_str(), format!("{name} was created"));
    Ok(Answer::Volume(Box::new(hold.record().await.view())))
}

/// Removes all that `forward` may have made, and the record. Also of a draft: what is being removed
/// must be ours alone, and without a record another server may have made it, too, and use it.
pub(crate) async fn back(world: &Arc<World>, hold: &Hold<VolumeRecord>) -> Result<()> {
    hold.turn_back().await?;
    let volume = hold.record().await.volume;
    release_source(world, &volume).await?;
    world.provider(&volume.class)?.delete(&at_provider(&volume)).await?;
    for alias in &volume.aliases {
        world.records.release_name("volume", alias, volume.id.as_str()).await?;
    }
    hold.remove().await
}

/// Keeps a snapshot from being deleted while the volume is copied from it.
async fn hold_snapshot(
    world: &World,
    hold: &Hold<VolumeRecord>,
    id: &SnapshotId,
) -> Result<ProvisionSource> {
    let volume = hold.record().await.volume.id;
    let held = world
        .records
        .update::<SnapshotRecord>(&SnapshotRecord::key_of(id), |record| {
            if record.snapshot.state != SnapshotState::Ready {
                let message = format!("snapshot {} is not ready", record.snapshot.alias);
                return Err(Error::new(Kind::Busy, message));
            }
            if record.holds.contains(&volume) {
                return Ok(None);
            }
            let mut changed = record.clone();
            changed.holds.push(volume.clone());
            Ok(Some(changed))
        })
        .await?;
    let Some(record) = held else {
        return Err(Error::new(Kind::NotFound, format!("the source, snapshot {id}, is gone")));
    };
    follow_source(hold, record.snapshot.filesystem.clone(), record.snapshot.size).await?;
    Ok(ProvisionSource::Snapshot(super::snapshot::at_provider(&record.snapshot)))
}

/// Holds a volume still while another is copied from it.
async fn lend(
    world: &Arc<World>,
    hold: &Hold<VolumeRecord>,
    job: &Job,
    id: &VolumeId,
) -> Result<Volume> {
    let copy = hold.record().await.volume;
    let loan = Work::LendVolume { to: copy.id.clone() };
    let (source, again) = loan::take(world, id, &loan, job).await?;
    if again && freeze::may_have_moved(&source) {
        let removed = world.provider(&copy.class)?.delete(&at_provider(&copy)).await;
        removed.context(|| "removing a copy of an earlier instant".into())?;
    }
    freeze::freeze(world, &source).await?;
    follow_source(hold, source.filesystem.clone(), source.size).await?;
    Ok(source)
}

/// What is inside a copy is what was inside its source; a source that was never formatted gives a
/// blank copy, which keeps the UUID that was chosen for it. A source that was expanded after the
/// copy was asked for gives a larger copy.
async fn follow_source(
    hold: &Hold<VolumeRecord>,
    inside: Option<Filesystem>,
    size: ByteSize,
) -> Result<()> {
    let known = hold.record().await.volume;
    let inside = inside.filter(|inside| inside.state != FormatState::Never);
    let inside = inside.or(known.filesystem.clone());
    let size = size.max(known.size);
    if inside == known.filesystem && size == known.size {
        return Ok(());
    }
    hold.save(|record| {
        record.volume.filesystem = inside;
        record.volume.size = size;
    })
    .await
}

/// Lets go of the source, whatever it is and whether or not it was held.
async fn release_source(world: &Arc<World>, volume: &Volume) -> Result<()> {
    match &volume.source {
        None => Ok(()),
        Some(Source::Snapshot(id)) => {
            let key = SnapshotRecord::key_of(id);
            let released = world.records.update::<SnapshotRecord>(&key, |record| {
                if !record.holds.contains(&volume.id) {
                    return Ok(None);
                }
                let mut changed = record.clone();
                changed.holds.retain(|held| *held != volume.id);
                Ok(Some(changed))
            });
            released.await.map(drop)
        }
        Some(Source::Volume(id)) => {
            loan::give_back(world, id, &Work::LendVolume { to: volume.id.clone() }).await
        }
    }
}

/// The journal's answer when the volume turned out to be there.
pub(crate) fn ended(record: &VolumeRecord, _journal: &Journal) -> Answer {
    Answer::Volume(Box::new(record.view()))
}
