//! [`World`]: everything the use cases share, and how an operation takes hold of a record.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::warn;

use hawser_core::Timestamp;
use hawser_core::attach::Identity;
use hawser_core::class::Class;
use hawser_core::error::{Error, Kind, Result, ResultExt};
use hawser_core::event::EventKind;
use hawser_core::id::{InstanceId, OperationId, VolumeId};
use hawser_core::name::{ClassName, NodeId};
use hawser_core::node::NodeRecord;
use hawser_core::operation::Operation;
use hawser_core::port::provider::VolumeAtProvider;
use hawser_core::port::store::{Key, Revision};
use hawser_core::port::{Nodes, Provider};
use hawser_core::volume::{Volume, VolumeRef};

use super::driver::{Driven, backoff, drive};
use super::events::Events;
use super::freeze::check_can_be_still;
use super::hold::{Hold, LEASE};
use super::job::{Found, Job, JobSpec, Jobs};
use super::names::NameLocks;
use super::record::{Journal, VolumeRecord, Work};
use super::records::Records;

/// A class and the provider behind it.
#[derive(Clone)]
pub struct ClassEntry {
    /// How it is shown.
    pub class: Class,
    /// What stands behind it.
    pub provider: Arc<dyn Provider>,
}

/// Everything the use cases share.
pub(crate) struct World {
    pub(crate) instance: InstanceId,
    pub(crate) records: Records,
    pub(crate) classes: Vec<ClassEntry>,
    pub(crate) nodes: Arc<dyn Nodes>,
    pub(crate) jobs: Jobs,
    pub(crate) events: Events,
    pub(crate) names: NameLocks,
    /// Owns every task the engine starts.
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
    pub(crate) ready: AtomicBool,
    /// Finished operations are written to the store.
    pub(crate) history: bool,
    /// Volumes may be made before they are recorded; what is left of one waits so long to be asked
    /// for again.
    pub(crate) drafts: Option<Duration>,
}

impl World {
    /// A class by name, or the default one.
    pub(crate) fn class(&self, name: Option<&ClassName>) -> Result<&ClassEntry> {
        let found = match name {
            Some(name) => self.classes.iter().find(|entry| entry.class.name == *name),
            None => self.classes.iter().find(|entry| entry.class.default),
        };
        found.ok_or_else(|| {
            let known: Vec<_> =
                self.classes.iter().map(|entry| entry.class.name.as_str()).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            let message = match name {
                Some(name) => format!("class {name} does not exist; the classes are: {known}"),
                None => format!("no default class is set; name one of: {known}"),
            };
            Error::new(Kind::NotFound, message)
        })
    }

    /// The provider of a volume's class.
    pub(crate) fn provider(&self, class: &ClassName) -> Result<&Arc<dyn Provider>> {
        Ok(&self.class(Some(class))?.provider)
    }

    /// A volume by id or name.
    pub(crate) async fn find_volume(
        &self,
        volume: &VolumeRef,
    ) -> Result<Option<(VolumeRecord, Revision)>> {
        let id = match volume {
            VolumeRef::Id(id) => id.clone(),
            VolumeRef::Alias(alias) => match self.records.name("volume", alias).await? {
                Some((id, _)) => id.parse()?,
                None => return Ok(None),
            },
        };
        self.records.get(&VolumeRecord::key_of(&id)).await
    }

    /// A volume by id or name, which must exist.
    pub(crate) async fn get_volume(&self, volume: &VolumeRef) -> Result<(VolumeRecord, Revision)> {
        self.find_volume(volume)
            .await?
            .ok_or_else(|| Error::new(Kind::NotFound, format!("volume {volume} does not exist")))
    }

    /// What is known of a node: from itself while it is connected, else from the last time.
    pub(crate) async fn node_record(&self, id: &NodeId) -> Result<NodeRecord> {
        if let Ok(node) = self.nodes.get(id).await {
            return node.describe().await.context(|| format!("asking node {id} about itself"));
        }
        let found = self.records.get::<NodeRecord>(&node_key(id)).await?;
        found.map(|(record, _)| record).ok_or_else(|| {
            Error::new(Kind::NotFound, format!("node {id} does not exist or never reported in"))
        })
    }

    /// Remembers what a node said of itself, so that it can be unpublished when it is gone.
    pub(crate) async fn keep_node(&self, node: &NodeRecord) -> Result<()> {
        let key = node_key(&node.id);
        loop {
            let written = match self.records.get::<NodeRecord>(&key).await? {
                // When it was last seen is worth no write by itself.
                Some((known, _))
                    if NodeRecord { last_seen: node.last_seen, ..known.clone() } == *node =>
                {
                    return Ok(());
                }
                Some((_, revision)) => self.records.put(&key, node, revision).await?,
                None => self.records.create(&key, node).await?,
            };
            if written.is_some() {
                return Ok(());
            }
        }
    }

    /// A journal for new work, held by this instance.
    pub(crate) fn journal(&self, work: Work) -> Journal {
        let now = Timestamp::now();
        Journal {
            id: OperationId::generate(),
            work,
            holder: self.instance.clone(),
            expires: now.saturating_add(LEASE).unwrap_or(now),
            started: now,
            undoing: false,
        }
    }

    /// What holds this record, if anything does: the same request is joined, another one is
    /// `Kind::Busy`. An operation that nobody drives is taken up first.
    pub(crate) async fn join_or_busy<R: Driven>(
        self: &Arc<Self>,
        record: &R,
        revision: Revision,
        subject: &Subject,
        wanted: &Work,
    ) -> Result<Held> {
        let Some(journal) = record.journal() else { return Ok(Held::Free) };
        let running = match self.jobs.find(&journal.id) {
            Found::Running(job) => Some(job),
            Found::Starting => {
                // Between the write of its journal and its start there is no wait but the store's.
                tokio::time::sleep(Duration::from_millis(1)).await;
                return Ok(Held::Stale);
            }
            // A lent volume is released by whoever it was lent to; see `recover`.
            Found::Unknown if journal.work.is_loan() => None,
            Found::Unknown if self.may_take_over(journal) => {
                match self.resume(record.clone(), revision, subject).await? {
                    Some(job) => Some(job),
                    // It ended, or somebody else took it, since the record was read.
                    None => return Ok(Held::Stale),
                }
            }
            Found::Unknown => None,
        };
        match running {
            Some(job) if journal.work.same_request(wanted) && !journal.undoing => {
                Ok(Held::Joined(job))
            }
            Some(_) | None => Err(busy(subject, journal)),
        }
    }

    /// True when the holder of a journal is this instance in an earlier life, or has fallen silent.
    pub(crate) fn may_take_over(&self, journal: &Journal) -> bool {
        journal.holder == self.instance || journal.expires < Timestamp::now()
    }

    /// Drives an operation whose journal is in the record already; `None` when somebody else took it
    /// in the meantime.
    pub(crate) async fn resume<R: Driven>(
        self: &Arc<Self>,
        mut record: R,
        revision: Revision,
        subject: &Subject,
    ) -> Result<Option<Arc<Job>>> {
        let now = Timestamp::now();
        let instance = self.instance.clone();
        let Some(journal) = record.journal_mut() else { return Ok(None) };
        // A lent volume is released by whoever it was lent to; see `recover`.
        if journal.work.is_loan() {
            return Ok(None);
        }
        journal.holder = instance;
        journal.expires = now.saturating_add(LEASE).unwrap_or(now);
        let journal = journal.clone();
        let _starting = self.jobs.starting(&journal.id);
        match self.records.put(&record.key(), &record, revision).await? {
            Some(revision) => Ok(self.launch(record, revision, &journal, subject, true)),
            None => Ok(None),
        }
    }

    /// Starts to drive an operation whose journal was just written; `None` when it runs already.
    pub(crate) fn launch<R: Driven>(
        self: &Arc<Self>,
        record: R,
        revision: Revision,
        journal: &Journal,
        subject: &Subject,
        resumed: bool,
    ) -> Option<Arc<Job>> {
        let hold = Hold::new(self.records.clone(), journal.id.clone(), record, revision);
        self.launch_held(hold, journal, subject, resumed)
    }

    /// The same with the right in hand.
    pub(crate) fn launch_held<R: Driven>(
        self: &Arc<Self>,
        hold: Hold<R>,
        journal: &Journal,
        subject: &Subject,
        resumed: bool,
    ) -> Option<Arc<Job>> {
        let job = self.jobs.start(JobSpec {
            id: journal.id.clone(),
            kind: journal.work.kind(),
            subject: subject.id.clone(),
            subject_name: subject.name.clone(),
            started: journal.started,
            resumed,
        })?;
        self.events.tell(
            EventKind::OperationStarted,
            job.id.as_str(),
            format!("{} of {}", job.kind, job.subject_name),
        );
        self.tasks.spawn(drive(self.clone(), hold, journal.clone(), job.clone()));
        Some(job)
    }

    /// After a write of a journal: what came of it; one that got no answer is looked after.
    pub(crate) fn written<R: Driven>(
        self: &Arc<Self>,
        written: Result<Option<Revision>>,
        key: &Key,
        operation: &OperationId,
        subject: &Subject,
    ) -> Result<Option<Revision>> {
        if written.as_ref().is_err_and(Error::is_unknown) {
            self.adopt::<R>(key.clone(), operation.clone(), subject.clone());
        }
        written
    }

    /// Drives an operation whose journal may be in a record without anybody who drives it, if it is.
    /// Until then the record would be held for nothing.
    pub(crate) fn adopt<R: Driven>(
        self: &Arc<Self>,
        key: Key,
        operation: OperationId,
        subject: Subject,
    ) {
        let world = self.clone();
        self.tasks.spawn(async move {
            for number in 0_u32.. {
                let taken = async {
                    match world.records.get::<R>(&key).await? {
                        Some((record, revision))
                            if record.journal().is_some_and(|found| found.id == operation) =>
                        {
                            world.resume(record, revision, &subject).await.map(drop)
                        }
                        Some(_) | None => Ok(()),
                    }
                };
                let Err(error) = taken.await else { return };
                warn!(error = %error.sentence(), operation.id = %operation, "not taken up yet");
                tokio::select! {
                    () = world.stop.cancelled() => return,
                    () = tokio::time::sleep(backoff(number)) => {}
                }
            }
        });
    }

    /// Writes a finished operation to the history, behind the caller's back: losing the last entries
    /// in a crash loses no work, only the memory of it.
    pub(crate) fn keep_history(
        self: &Arc<Self>,
        operation: Operation,
        forgotten: Vec<OperationId>,
    ) {
        if !self.history {
            return;
        }
        let world = self.clone();
        self.tasks.spawn(async move {
            let written = world.records.create(&history_key(&operation.id), &operation).await;
            if let Err(error) = written {
                warn!(error = %error.sentence(), "a finished operation was not recorded");
            }
            for old in forgotten {
                world.forget_history(&old).await;
            }
        });
    }

    /// Removes a finished operation from the history; one that stays is removed at the next start.
    pub(crate) async fn forget_history(&self, id: &OperationId) {
        let key = history_key(id);
        if let Ok(Some((_, revision))) = self.records.get::<Operation>(&key).await {
            let _ = self.records.delete(&key, revision).await;
        }
    }
}

/// What holds a record.
pub(crate) enum Held {
    /// Nothing.
    Free,
    /// The same request.
    Joined(Arc<Job>),
    /// The record is not as it was read: to be read again.
    Stale,
}

/// What an operation is about, for people.
#[derive(Clone)]
pub(crate) struct Subject {
    pub(crate) id: String,
    pub(crate) name: String,
}

impl Subject {
    pub(crate) fn volume(volume: &Volume) -> Self {
        Self { id: volume.id.to_string(), name: volume.display_name() }
    }
}

/// Somebody else is at it.
pub(crate) fn busy(subject: &Subject, journal: &Journal) -> Error {
    let what = if let Work::LendVolume { to } = &journal.work {
        format!("it is being copied into volume {to}")
    } else if let Work::SnapshotInGroup { group } = &journal.work {
        format!("it is held still for group {group}")
    } else {
        format!("operation {} ({}) is at work on it", journal.id, journal.work.kind())
    };
    Error::new(Kind::Busy, format!("{} is busy: {what}; repeat when that is done", subject.name))
}

pub(crate) fn node_key(id: &NodeId) -> Key {
    Key::join(&["node", id.as_str()])
}

pub(crate) fn history_key(id: &OperationId) -> Key {
    Key::join(&["operation", id.as_str()])
}

/// A volume as its provider knows it.
pub(crate) fn at_provider(volume: &Volume) -> VolumeAtProvider {
    VolumeAtProvider {
        id: volume.id.clone(),
        handle: volume.handle.clone(),
        size: volume.size,
        access: volume.access,
        parameters: volume.parameters.clone(),
        place: volume.place.clone(),
        in_use: check_can_be_still(volume).is_err(),
    }
}

/// Refuses a device that is not the one the volume is known by.
pub(crate) fn check_identity(
    volume: &VolumeId,
    expected: Option<&Identity>,
    found: Option<&Identity>,
) -> Result<()> {
    match (expected, found) {
        (Some(expected), Some(found)) if expected != found => Err(Error::new(
            Kind::Precondition,
            format!("the device attached for {volume} is {found}, expected {expected}; refused"),
        )),
        (Some(_) | None, _) => Ok(()),
    }
}
