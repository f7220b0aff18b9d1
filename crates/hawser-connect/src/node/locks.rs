//! Who may work on a publication: one call of this process, and one process of this host.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use hawser_core::Result;
use hawser_core::id::{PublicationId, VolumeId};
use hawser_core::port::Registry;
use hawser_core::port::registry::LockGuard;
use tokio::sync::{Mutex as Gate, OwnedMutexGuard};

use super::error::NodeError;
use crate::shared::wait::Deadline;

/// One gate per publication that somebody works on or waits for; no entry outlives its users.
#[derive(Default)]
pub(super) struct Gates(Mutex<HashMap<PublicationId, Weak<Gate<()>>>>);

impl Gates {
    /// Waits until this caller is alone with the publication, in this process and on this host.
    ///
    /// The gate comes first: host-wide locks may be file locks that one process shares with itself.
    pub(super) async fn enter(
        self: &Arc<Self>,
        registry: &dyn Registry,
        publication: &PublicationId,
    ) -> Result<Alone> {
        let mut place = self.place(publication);
        place.inside = Some(place.gate().lock_owned().await);
        let host = registry.lock(&format!("publication/{publication}")).await?;
        Ok(Alone { _host: host, _place: place })
    }

    /// The same, but fails when others hold it until the deadline: nothing was done then.
    pub(super) async fn enter_within(
        self: &Arc<Self>,
        registry: &dyn Registry,
        publication: &PublicationId,
        deadline: Deadline,
    ) -> Result<Alone> {
        let what = || format!("{publication}");
        within(deadline, what, self.enter(registry, publication)).await
    }

    /// The same, but answers `None` when others hold it for longer than `limit`.
    pub(super) async fn try_enter(
        self: &Arc<Self>,
        registry: &dyn Registry,
        publication: &PublicationId,
        limit: Duration,
    ) -> Result<Option<Alone>> {
        tokio::time::timeout(limit, self.enter(registry, publication)).await.ok().transpose()
    }

    fn place(self: &Arc<Self>, publication: &PublicationId) -> Place {
        let mut map = self.map();
        let gate = map.get(publication).and_then(Weak::upgrade).unwrap_or_default();
        map.insert(publication.clone(), Arc::downgrade(&gate));
        Place { gates: Arc::clone(self), id: publication.clone(), gate: Some(gate), inside: None }
    }

    fn map(&self) -> MutexGuard<'_, HashMap<PublicationId, Weak<Gate<()>>>> {
        // The map is consistent after every statement, so a panic elsewhere cannot have broken it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.map().len()
    }
}

/// Nobody else works on the publication until this is dropped.
pub(super) struct Alone {
    // Dropped first: the next one in this process finds the host-wide lock free.
    _host: Box<dyn LockGuard>,
    _place: Place,
}

/// A place at the gate, waiting or inside; the last one to leave takes the entry along.
struct Place {
    gates: Arc<Gates>,
    id: PublicationId,
    gate: Option<Arc<Gate<()>>>,
    inside: Option<OwnedMutexGuard<()>>,
}

impl Place {
    fn gate(&self) -> Arc<Gate<()>> {
        self.gate.clone().expect("the gate is taken only when the place is dropped")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut map = self.gates.map();
        self.inside = None;
        self.gate = None;
        if map.get(&self.id).is_some_and(|gate| gate.strong_count() == 0) {
            map.remove(&self.id);
        }
    }
}

/// Waits for a lock no longer than a call may take. Whoever holds it may hang with a dead server.
pub(super) async fn within<T>(
    deadline: Deadline,
    what: impl FnOnce() -> String,
    lock: impl Future<Output = Result<T>>,
) -> Result<T> {
    match tokio::time::timeout(deadline.left(), lock).await {
        Ok(locked) => locked,
        Err(_) => Err(NodeError::OtherWork { what: what(), limit: deadline.limit() }.into()),
    }
}

/// Held while an attach looks for other attachments of a volume and claims it.
pub(super) fn volume_lock(volume: &VolumeId) -> String {
    format!("volume/{volume}")
}

/// Held by the process that froze a file system until it thaws it, so that others can tell a
/// snapshot that is being taken from a freeze whose owner died.
pub(super) fn frozen_lock(publication: &PublicationId) -> String {
    format!("frozen/{publication}")
}
