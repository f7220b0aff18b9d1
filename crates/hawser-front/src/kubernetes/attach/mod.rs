//! Attachments: gives nodes the right to use volumes, and takes it back. What external-attacher 4.12
//! does for other drivers.
//!
//! Before the driver is asked for the first time, a finalizer holds the volume and then the
//! attachment: whatever happens afterwards, whoever works on the attachment next knows that there may
//! be something to take back, and from where. Every step can be repeated.

mod drift;
mod patches;
mod publish;
mod unpublish;
mod volume;
mod waiting;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hawser_core::Timestamp;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use self::patches::Undone;
use self::waiting::Waiting;
use super::error::ClusterError;
use super::names::attacher_finalizer;
use super::objects::{Attachment, CsiNode, Object, Volume};
use super::office::Office;
use super::queue::{Next, Queue};
use super::table::Changed;
use crate::csi::Services;

/// How many attachments are worked on at once. Most of the time is spent waiting for storage.
const WORKERS: usize = 64;

/// When to look again after somebody else was faster, should the watch not say so before.
const SOON: Duration = Duration::from_secs(1);

/// Keeps attachments.
pub(super) struct Attacher {
    office: Arc<Office>,
    queue: Queue<Task>,
    waiting: Waiting,
    /// Attachments that are done according to their status, but not according to the driver.
    astray: Mutex<HashSet<String>>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Task {
    Attachment(String),
    /// A volume that goes, which may be held for nothing.
    Volume(String),
}

/// What an attachment asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Attach,
    Detach,
    Nothing,
}

impl Wish {
    /// What is not done yet, according to the object. One that goes and is not held was never begun,
    /// or is undone.
    fn of(attachment: &Attachment) -> Self {
        let finalizer = attacher_finalizer(&attachment.spec.attacher);
        match attachment.is_going() {
            false if !attachment.status.attached => Self::Attach,
            true if attachment.has_finalizer(&finalizer) => Self::Detach,
            false | true => Self::Nothing,
        }
    }

    fn whatever_its_status(attachment: &Attachment) -> Self {
        if attachment.is_going() { Self::Detach } else { Self::Attach }
    }
}

impl Attacher {
    /// Nothing is done before [`run`](Self::run).
    pub(super) fn new(office: Arc<Office>) -> Arc<Self> {
        let (queue, waiting, astray) = Default::default();
        Arc::new(Self { office, queue, waiting, astray })
    }

    /// An attachment has changed. What is told of failures changes no wish: it would be tried again
    /// at once.
    pub(super) fn heard_attachment(&self, changed: &Changed<Attachment>) {
        let (before, now) = (changed.before.as_deref(), changed.now.as_deref());
        let same = |before: &&Attachment| now.is_some_and(|now| now.uid() == before.uid());
        if let Some(before) = before.filter(|before| !same(before)) {
            self.heard_gone(before);
        }
        let Some(now) = now.filter(|now| self.office.driver(&now.spec.attacher).is_some()) else {
            return;
        };
        let wish = Wish::of(now);
        if wish != Wish::Nothing && before.filter(same).map(Wish::of) != Some(wish) {
            self.queue.add(Task::Attachment(changed.key.name.clone()));
        }
    }

    /// Its volume may go now, or to another node.
    fn heard_gone(&self, attachment: &Attachment) {
        let Some(name) = &attachment.spec.source.persistent_volume_name else { return };
        if self.office.tables.volumes.named(name).is_some_and(|it| self.held(&it).is_some()) {
            self.queue.add(Task::Volume(name.clone()));
        }
        self.wake(self.waiting.for_volume(name));
    }

    /// A volume has changed.
    pub(super) fn heard_volume(&self, changed: &Changed<Volume>) {
        let Some(now) = &changed.now else { return };
        if self.held(now).is_some() {
            self.queue.add(Task::Volume(changed.key.name.clone()));
        }
        // A finalizer, which is written here, lets nothing succeed that has failed.
        let same =
            |before: &Arc<Volume>| before.spec == now.spec && before.is_going() == now.is_going();
        if !changed.before.as_ref().is_some_and(same) {
            self.wake(self.waiting.for_volume(&changed.key.name));
        }
    }

    /// The drivers of a node have changed.
    pub(super) fn heard_csi_node(&self, changed: &Changed<CsiNode>) {
        let id = |node: &Option<Arc<CsiNode>>, driver: &Services| {
            node.as_ref()?.driver(driver.name()).map(|known| known.node_id.clone())
        };
        let differs = |driver| id(&changed.before, driver) != id(&changed.now, driver);
        if self.office.drivers.iter().any(differs) {
            self.wake(self.waiting.for_node(&changed.key.name));
        }
    }

    fn wake(&self, attachments: Vec<String>) {
        attachments.into_iter().for_each(|name| self.queue.add(Task::Attachment(name)));
    }

    /// Works until it is told to stop.
    pub(super) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let this = self.clone();
        let work = move |task| {
            let this = this.clone();
            async move { this.work(task).await }
        };
        tokio::join!(self.queue.run(WORKERS, stop.clone(), work), self.repair(stop));
    }

    async fn work(&self, task: Task) -> Next {
        match task {
            Task::Attachment(name) => self.attachment(&name).await,
            Task::Volume(name) => self.let_go(&name).await,
        }
    }

    async fn attachment(&self, name: &str) -> Next {
        let astray = self.astray().remove(name);
        let Some(attachment) = self.office.tables.attachments.named(name) else {
            self.waiting.forget(name);
            return Next::Done;
        };
        let Some(driver) = self.office.driver(&attachment.spec.attacher) else {
            return Next::Done;
        };
        let wish = match astray {
            true => Wish::whatever_its_status(&attachment),
            false => Wish::of(&attachment),
        };
        let (done, undone) = match wish {
            Wish::Attach => (self.attach(&attachment, driver).await, Undone::Attach),
            Wish::Detach => (self.detach(&attachment, driver).await, Undone::Detach),
            Wish::Nothing => (Ok(()), Undone::Attach),
        };
        match done {
            Ok(()) => {
                self.waiting.forget(name);
                Next::Done
            }
            Err(error) => {
                if astray {
                    self.astray().insert(name.to_owned());
                }
                self.waiting.add(&attachment);
                self.failed(&attachment, undone, &error).await
            }
        }
    }

    async fn failed(&self, attachment: &Attachment, undone: Undone, error: &ClusterError) -> Next {
        if error.is_conflict() || error.is_absent() {
            let (name, reason) = (attachment.name(), error.sentence());
            debug!(attachment = name, reason, "somebody else was faster");
            return Next::After(SOON);
        }
        self.tell_failure(attachment, undone, error).await;
        Next::Retry
    }

    fn astray(&self) -> MutexGuard<'_, HashSet<String>> {
        self.astray.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells a failure in the status, for people and for the kubelet, unless it is told already.
    async fn tell_failure(&self, attachment: &Attachment, undone: Undone, error: &ClusterError) {
        let key = attachment.key();
        // Its state may be newer by what was done before the failure.
        let known = self.office.tables.attachments.get(&key);
        let Some(known) = known.filter(|known| known.uid() == attachment.uid()) else { return };
        let Some(patch) = patches::failure(&known, undone, error, Timestamp::now()) else { return };
        let (volume, node) = (waiting::volume(attachment), &attachment.spec.node_name);
        let reason = error.sentence();
        warn!(attachment = key.name, volume, node, reason, "{}", undone.words());
        match self.office.cluster.patch_status(&key, &patch).await {
            // One that is not held may be gone by now, and is not to be known again.
            Ok(told) if Wish::of(&told) == Wish::Nothing => {}
            Ok(told) => drop(self.office.tables.attachments.tell(told)),
            Err(error) => {
                let reason = error.sentence();
                debug!(attachment = key.name, reason, "the failure was not told");
            }
        }
    }
}

#[cfg(test)]
mod tests;
