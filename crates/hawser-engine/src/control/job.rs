//! Jobs: the operations that run in this process, and the memory of those that ended.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use hawser_core::Timestamp;
use hawser_core::attach::Attached;
use hawser_core::connection::ConnectionInfo;
use hawser_core::error::{Error, Kind, Outcome, Result};
use hawser_core::group::Group;
use hawser_core::id::OperationId;
use hawser_core::operation::{Failure, Operation, OperationKind, OperationState, ProgressReport};
use hawser_core::port::Progress;
use hawser_core::publication::Publication;
use hawser_core::snapshot::Snapshot;
use hawser_core::volume::Volume;

/// What a change answers with.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Volume(Box<Volume>),
    Snapshot(Box<Snapshot>),
    Group(Box<Group>),
    Publication(Box<Publication>),
    /// The right, and how to reach the volume, secrets and all.
    Published(Box<Publication>, Box<ConnectionInfo>),
    Attached(Attached),
    Nothing,
}

/// Where a job is.
#[derive(Clone, Debug)]
pub(crate) enum Phase {
    Running,
    /// The outcome of the last attempt is not known; another follows.
    Waiting(Failure),
    Done(Result<Answer, Failure>, Timestamp),
}

/// One running operation.
pub(crate) struct Job {
    pub(crate) id: OperationId,
    pub(crate) kind: OperationKind,
    pub(crate) subject: String,
    pub(crate) subject_name: String,
    pub(crate) started: Timestamp,
    /// Taken over at start-up: nobody waits for it, so what is unreachable is waited for.
    pub(crate) resumed: bool,
    /// When this process took it up.
    pub(crate) begun: Instant,
    pub(crate) cancel: CancellationToken,
    /// The storage may have been told of the right that is being given.
    published: AtomicBool,
    progress: Mutex<ProgressReport>,
    phase: watch::Sender<Phase>,
}

/// What a new job is about.
pub(crate) struct JobSpec {
    pub(crate) id: OperationId,
    pub(crate) kind: OperationKind,
    pub(crate) subject: String,
    pub(crate) subject_name: String,
    pub(crate) started: Timestamp,
    pub(crate) resumed: bool,
}

impl Job {
    fn new(spec: JobSpec) -> Self {
        let JobSpec { id, kind, subject, subject_name, started, resumed } = spec;
        Self {
            id,
            kind,
            subject,
            subject_name,
            started,
            resumed,
            begun: Instant::now(),
            cancel: CancellationToken::new(),
            published: AtomicBool::new(resumed),
            progress: Mutex::default(),
            phase: watch::Sender::new(Phase::Running),
        }
    }

    /// Runs a call that tells the storage of a right, and remembers whether it may have been told.
    pub(crate) async fn publishing<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        // Set first: the call may be dropped.
        let before = self.published.swap(true, Ordering::Relaxed);
        let told = call.await;
        if told.as_ref().is_err_and(|error| error.outcome() == Outcome::Nothing) {
            self.published.store(before, Ordering::Relaxed);
        }
        told
    }

    /// False when the storage was never told of the right, so that there is nothing to take back.
    pub(crate) fn may_have_published(&self) -> bool {
        self.published.load(Ordering::Relaxed)
    }

    /// The job as callers see it.
    pub(crate) fn view(&self) -> Operation {
        let (state, finished, error) = match &*self.phase.borrow() {
            Phase::Running => (OperationState::Running, None, None),
            Phase::Waiting(failure) => (OperationState::Waiting, None, Some(failure.clone())),
            Phase::Done(Ok(_), at) => (OperationState::Succeeded, Some(*at), None),
            Phase::Done(Err(failure), at) => {
                (OperationState::Failed, Some(*at), Some(failure.clone()))
            }
        };
        Operation {
            id: self.id.clone(),
            kind: self.kind,
            subject: self.subject.clone(),
            subject_name: self.subject_name.clone(),
            state,
            progress: self.progress.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            started: self.started,
            finished,
            error,
        }
    }

    pub(crate) fn set(&self, phase: Phase) {
        self.phase.send_replace(phase);
    }

    /// Waits until the job ended (`Some`), or until its next attempt failed with an unknown outcome
    /// (an error), at most so long (`None`).
    pub(crate) async fn wait(&self, limit: Duration) -> Option<Result<Answer>> {
        let mut phases = self.phase.subscribe();
        // A job that waits for its next attempt has its last failure in the phase already: a caller
        // that joins now wants to hear of the next one.
        let mut skip_waiting = matches!(*phases.borrow_and_update(), Phase::Waiting(_));
        let ended = async {
            loop {
                let phase = phases.borrow_and_update().clone();
                match phase {
                    Phase::Done(Ok(answer), _) => return Ok(answer),
                    Phase::Done(Err(failure), _) => return Err(failure.into()),
                    Phase::Waiting(failure) if !skip_waiting => return Err(failure.into()),
                    Phase::Waiting(_) | Phase::Running => {}
                }
                skip_waiting = false;
                if phases.changed().await.is_err() {
                    return Err(Error::new(Kind::Internal, "an operation vanished"));
                }
            }
        };
        tokio::time::timeout(limit, ended).await.ok()
    }
}

impl Progress for Job {
    fn step(&self, what: &str) {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        *progress = ProgressReport { step: what.to_owned(), done: 0, total: 0 };
    }

    fn amount(&self, done: u64, total: u64) {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.done = done;
        progress.total = total;
    }
}

/// How many finished operations are remembered.
pub(crate) const REMEMBERED: usize = 1000;

/// All operations that this process knows.
#[derive(Default)]
pub(crate) struct Jobs {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    running: HashMap<OperationId, Arc<Job>>,
    /// Their journal is being written; nobody drives them yet, and nobody else may.
    starting: HashSet<OperationId>,
    /// Oldest first.
    finished: VecDeque<Operation>,
}

/// Whether this process drives an operation.
pub(crate) enum Found {
    Running(Arc<Job>),
    /// It will in a moment.
    Starting,
    /// It does not: the operation ended, or nobody drives it.
    Unknown,
}

/// See [`Jobs::starting`].
pub(crate) struct Starting<'a> {
    jobs: &'a Jobs,
    id: OperationId,
}

impl Drop for Starting<'_> {
    fn drop(&mut self) {
        self.jobs.lock().starting.remove(&self.id);
    }
}

impl Jobs {
    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a job; `None` when one with this id runs already.
    pub(crate) fn start(&self, spec: JobSpec) -> Option<Arc<Job>> {
        let mut inner = self.lock();
        if inner.running.contains_key(&spec.id) {
            return None;
        }
        let job = Arc::new(Job::new(spec));
        inner.running.insert(job.id.clone(), job.clone());
        Some(job)
    }

    pub(crate) fn get(&self, id: &OperationId) -> Option<Arc<Job>> {
        self.lock().running.get(id).cloned()
    }

    /// Says that this process is about to write a journal and to drive it. Until the guard goes, a
    /// record that shows the journal already is not taken for one that an earlier life left.
    pub(crate) fn starting(&self, id: &OperationId) -> Starting<'_> {
        self.lock().starting.insert(id.clone());
        Starting { jobs: self, id: id.clone() }
    }

    /// What this process knows of the operation that a record names.
    pub(crate) fn find(&self, id: &OperationId) -> Found {
        let inner = self.lock();
        match inner.running.get(id) {
            Some(job) => Found::Running(job.clone()),
            None if inner.starting.contains(id) => Found::Starting,
            None => Found::Unknown,
        }
    }

    /// Moves an ended job to the memory; answers those that no longer fit in it.
    pub(crate) fn retire(&self, job: &Job) -> (Operation, Vec<OperationId>) {
        let operation = job.view();
        let mut inner = self.lock();
        inner.running.remove(&job.id);
        inner.finished.push_back(operation.clone());
        let excess = inner.finished.len().saturating_sub(REMEMBERED);
        let forgotten = inner.finished.drain(..excess).map(|old| old.id).collect();
        (operation, forgotten)
    }

    /// Takes operations of an earlier life into the memory, oldest first.
    pub(crate) fn remember(&self, operations: Vec<Operation>) {
        let mut inner = self.lock();
        for operation in operations.into_iter().rev() {
            inner.finished.push_front(operation);
        }
    }

    /// One operation, running or remembered.
    pub(crate) fn view(&self, id: &OperationId) -> Option<Operation> {
        let inner = self.lock();
        match inner.running.get(id) {
            Some(job) => Some(job.view()),
            None => inner.finished.iter().rev().find(|operation| operation.id == *id).cloned(),
        }
    }

    /// All operations, newest first.
    pub(crate) fn all(&self) -> Vec<Operation> {
        let inner = self.lock();
        let mut all: Vec<_> = inner.finished.iter().cloned().collect();
        all.extend(inner.running.values().map(|job| job.view()));
        all.sort_by(|a, b| b.id.cmp(&a.id));
        all
    }
}
