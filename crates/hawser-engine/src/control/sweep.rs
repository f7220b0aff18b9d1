//! Removing what is left of volumes that were made and never recorded.
//!
//! A creation that begins as a draft and is cut off leaves a volume that nobody knows of (see
//! docs/adr/0016). Whoever asked for it asks again and is given it; what nobody asks for is removed
//! here. That needs no proof of whose it is: only what holds nothing is removed, by a call that
//! refuses everything else.
//!
//! Before anything is removed, a record says so: it keeps every server from recording the volume at
//! the same time, and it is how a removal that was cut off comes to its end.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tracing::{info, warn};

use hawser_core::Timestamp;
use hawser_core::error::{Error, Kind, Result, ResultExt};
use hawser_core::name::ClassName;
use hawser_core::place::Place;
use hawser_core::port::Progress;
use hawser_core::port::provider::Blank;
use hawser_core::size::ByteSize;
use hawser_core::volume::{Sharing, Volume, VolumeState};

use super::hold::Hold;
use super::job::{Answer, Job};
use super::record::{Journal, VolumeRecord, Work};
use super::world::{Subject, World, at_provider};

/// After this time without a record or a request a volume that holds nothing is abandoned. Longer
/// than an orchestrator takes to come back and ask again, and longer than `SURE` and the slowest
/// write together, so that a creation which another server is about to record is never taken for one
/// that was cut off.
pub const ABANDONED: Duration = Duration::from_secs(300);

/// For so long after the store was seen to hold no record, what a creation made new is safe from
/// every other server without one.
pub(crate) const SURE: Duration = Duration::from_secs(10);

/// How long one removal is waited for before the next is begun.
const EACH: Duration = Duration::from_secs(60);

/// Removes, behind the caller's back, what is left at one place or at all that can be asked now. What
/// fails is tried again when somebody begins the next time.
pub(crate) fn begin(world: &Arc<World>, at: Option<Place>) {
    let Some(patience) = world.drafts else { return };
    let world_of_task = world.clone();
    world.tasks.spawn(async move {
        let (world, at) = (&world_of_task, at.as_ref());
        let before = Remains::find(world, at).await;
        if before.is_empty() {
            return;
        }
        tokio::select! {
            () = world.stop.cancelled() => return,
            () = tokio::time::sleep(patience) => {}
        }
        let mut left = Remains::find(world, at).await;
        left.retain(|remains| before.contains(remains));
        if !left.is_empty() {
            info!(volumes = left.len(), "removing what creations left that were cut off");
        }
        for remains in left {
            if world.stop.is_cancelled() {
                return;
            }
            if let Err(error) = remains.remove(world).await {
                warn!(volume.id = %remains.blank.id, error = %error.sentence(), "not removed");
            }
        }
    });
}

/// A volume that holds nothing, where no record says that it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Remains {
    class: ClassName,
    blank: Blank,
}

impl Remains {
    async fn find(world: &World, at: Option<&Place>) -> BTreeSet<Self> {
        let mut found = BTreeSet::new();
        for entry in &world.classes {
            let Some(blanks) = entry.provider.blanks() else { continue };
            let class = &entry.class.name;
            let looked = blanks.blanks(at).await.unwrap_or_else(|error| {
                warn!(%class, error = %error.sentence(), "not asked for volumes that hold nothing");
                Vec::new()
            });
            for blank in looked {
                let remains = Self { class: class.clone(), blank };
                match remains.are_nobodys(world).await {
                    Ok(true) => drop(found.insert(remains)),
                    Ok(false) => {}
                    Err(error) => {
                        let id = &remains.blank.id;
                        warn!(volume.id = %id, error = %error.sentence(), "not known whose it is");
                    }
                }
            }
        }
        found
    }

    /// True when no record and no draft is of this volume, here.
    async fn are_nobodys(&self, world: &World) -> Result<bool> {
        let key = VolumeRecord::key_of(&self.blank.id);
        match world.records.get::<VolumeRecord>(&key).await? {
            None => Ok(true),
            Some((record, _)) => self.are_second(world, &record).await,
        }
    }

    /// True when two attempts were placed differently: the record says that the volume is elsewhere,
    /// and there it is.
    async fn are_second(&self, world: &World, record: &VolumeRecord) -> Result<bool> {
        let volume = &record.volume;
        if record.journal.is_some() || !self.are_apart_from(volume) {
            return Ok(false);
        }
        let first = world.provider(&volume.class)?.health(&at_provider(volume)).await?;
        Ok(first.healthy)
    }

    /// What does not say on which node it is may be anywhere.
    fn are_apart_from(&self, volume: &Volume) -> bool {
        let node = |place: &Option<Place>| place.as_ref().and_then(Place::node_id);
        let nodes = node(&volume.place).zip(node(&self.blank.place));
        volume.class != self.class || nodes.is_some_and(|(first, here)| first != here)
    }

    /// Records that they are removed, if they still are nobody's, and waits until they are.
    async fn remove(&self, world: &Arc<World>) -> Result<()> {
        let key = VolumeRecord::key_of(&self.blank.id);
        let (class, place) = (self.class.clone(), self.blank.place.clone());
        let journal = world.journal(Work::SweepVolume { class, place });
        let _starting = world.jobs.starting(&journal.id);
        // A draft begins under the same lock, and looks at the store as this does.
        let beginning = world.names.lock(key.clone()).await;
        let (record, known) = match world.records.get::<VolumeRecord>(&key).await? {
            None => (self.record(world, &journal)?, None),
            Some((record, revision)) if self.are_second(world, &record).await? => {
                (VolumeRecord { journal: Some(journal.clone()), ..record }, Some(revision))
            }
            Some(_) => return Ok(()),
        };
        let subject = Subject::volume(&record.volume);
        let written = match known {
            None => world.records.create(&key, &record).await,
            Some(revision) => world.records.put(&key, &record, revision).await,
        };
        let written = world.written::<VolumeRecord>(written, &key, &journal.id, &subject)?;
        drop(beginning);
        let Some(revision) = written else { return Ok(()) };
        match world.launch(record, revision, &journal, &subject, false) {
            Some(job) => job.wait(EACH).await.map_or(Ok(()), |result| result.map(drop)),
            None => Ok(()),
        }
    }

    /// The record of a volume of which there are only remains.
    fn record(&self, world: &World, journal: &Journal) -> Result<VolumeRecord> {
        let provider = world.provider(&self.class)?;
        let id = self.blank.id.clone();
        let volume = Volume {
            handle: provider.handle(&id),
            id,
            aliases: Vec::new(),
            class: self.class.clone(),
            size: ByteSize::ZERO,
            access: provider.default_access(),
            sharing: Sharing::SingleWriter,
            source: None,
            labels: Default::default(),
            parameters: Default::default(),
            place: self.blank.place.clone(),
            state: VolumeState::Deleting,
            filesystem: None,
            identity: None,
            publications: Vec::new(),
            untouched: false,
            operation: None,
            created: Timestamp::now(),
        };
        Ok(VolumeRecord { volume, journal: Some(journal.clone()) })
    }
}

/// Removes what is left, unless it holds something by now.
pub(crate) async fn forward(
    world: &Arc<World>,
    hold: &Hold<VolumeRecord>,
    job: &Job,
    class: &ClassName,
    place: Option<&Place>,
) -> Result<Answer> {
    let id = hold.record().await.volume.id;
    job.step("removing what is left of the volume");
    let provider = world.provider(class)?;
    let Some(blanks) = provider.blanks() else {
        let message = format!("class {class} cannot tell which volumes hold nothing");
        return Err(Error::new(Kind::Unsupported, message));
    };
    let blank = Blank { id, place: place.cloned() };
    blanks
        .delete_blank(&blank)
        .await
        .context(|| format!("removing what is left of volume {} in class {class}", blank.id))?;
    let_go(hold).await?;
    Ok(Answer::Nothing)
}

/// Ends the removal, whatever came of it: what stays is found again the next time.
pub(crate) async fn let_go(hold: &Hold<VolumeRecord>) -> Result<()> {
    if hold.record().await.is_of_remains() {
        hold.remove().await
    } else {
        hold.finish(|_| {}).await
    }
}
