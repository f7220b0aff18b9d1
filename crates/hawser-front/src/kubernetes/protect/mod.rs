//! Snapshots stay until the volumes that are being made from them are made: marked with the finalizer
//! of external-provisioner, so that either goes on where the other was.
//!
//! The mark is put on before the driver is asked, and taken off when no claim waits for a copy any more.
//! What is left by whoever was killed meanwhile, or by a sidecar, is swept now and then.

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use hawser_core::{Classify, Kind};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::error::ClusterError;
use super::names::{BETA_STORAGE_PROVISIONER, SNAPSHOT_SOURCE_FINALIZER, STORAGE_PROVISIONER};
use super::objects::{Claim, DataSource, Key, Object, Snapshot};
use super::office::Office;
use super::queue::{Next, Queue};
use super::table::Changed;

/// How often marks that nobody needs are looked for; the first time at start. That of the sidecar.
const ROUND: Duration = Duration::from_secs(300);

/// How many snapshots are let go of at once.
const WORKERS: usize = 8;

/// How often a mark is put on anew when others write the snapshot at the same time.
const TRIES: usize = 4;

/// Keeps a snapshot while volumes are made from it. Without the right to do so, they are made from it
/// all the same, as by the sidecar.
pub(super) async fn hold(office: &Office, snapshot: Snapshot) -> Result<(), ClusterError> {
    let key = snapshot.key();
    let gone = || ClusterError::NotYet(format!("snapshot {} is being deleted", key.name));
    let mut seen = snapshot;
    for _ in 0..TRIES {
        if seen.has_finalizer(SNAPSHOT_SOURCE_FINALIZER) {
            return Ok(());
        }
        if seen.is_going() {
            return Err(gone());
        }
        let mut finalizers = seen.finalizers().to_vec();
        finalizers.push(SNAPSHOT_SOURCE_FINALIZER.to_owned());
        match finalize(office, &seen, &finalizers).await {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == Kind::Denied => {
                debug!(snapshot = %key, reason = error.sentence(), "used without protection");
                return Ok(());
            }
            Err(error) if error.is_conflict() => {}
            Err(error) => return Err(error),
        }
        seen = office.cluster.get(&key).await?.ok_or_else(gone)?;
    }
    Err(ClusterError::NotYet(format!("snapshot {} is being changed by others", key.name)))
}

async fn finalize(
    office: &Office,
    snapshot: &Snapshot,
    finalizers: &[String],
) -> Result<(), ClusterError> {
    let patch = json!({ "metadata": {
        "uid": snapshot.uid(),
        "resourceVersion": snapshot.meta_version(),
        "finalizers": finalizers,
    }});
    office.cluster.patch::<Snapshot>(&snapshot.key(), &patch).await.map(drop)
}

/// Lets go of snapshots that nobody copies any more.
pub(super) struct Protector {
    office: Arc<Office>,
    queue: Queue<Key>,
}

impl Protector {
    pub(super) fn new(office: Arc<Office>) -> Arc<Self> {
        Arc::new(Self { office, queue: Queue::default() })
    }

    /// A claim has changed: when it waits no more, its source may go.
    pub(super) fn heard_claim(&self, changed: &Changed<Claim>) {
        let Some(before) = changed.before.as_deref().filter(|claim| waits(claim)) else { return };
        if changed.now.as_deref().is_some_and(waits) || !self.is_ours(before) {
            return;
        }
        sources(before).for_each(|key| self.queue.add(key));
    }

    /// Claims of other drivers are looked after by their provisioners.
    fn is_ours(&self, claim: &Claim) -> bool {
        let marks = [STORAGE_PROVISIONER, BETA_STORAGE_PROVISIONER];
        let mut marks = marks.into_iter().filter_map(|mark| claim.annotation(mark));
        marks.any(|driver| self.office.driver(driver).is_some())
    }

    /// Works until it is told to stop.
    pub(super) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let this = self.clone();
        let work = move |key| this.clone().work(key);
        tokio::join!(self.rounds(stop.clone()), self.queue.run(WORKERS, stop, work));
    }

    async fn rounds(&self, stop: CancellationToken) {
        loop {
            match self.round().await {
                Ok(()) => {}
                // No kind of that name, or no right: then there are no marks of ours, either.
                Err(error) if error.is_absent() || error.kind() == Kind::Denied => {
                    debug!(reason = error.sentence(), "marks of snapshots are not looked for");
                }
                Err(error) => {
                    warn!(reason = error.sentence(), "marks of snapshots were not looked for");
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(ROUND) => {}
            }
        }
    }

    /// Looks for snapshots that are marked, and for which nobody waits.
    async fn round(&self) -> Result<(), ClusterError> {
        let snapshots: Vec<Snapshot> = self.office.cluster.list_metadata().await?;
        // After the list: whoever has marked one since then has a claim that is known by now.
        let claims = self.office.tables.claims.all(waits);
        let wanted: HashSet<Key> = claims.iter().flat_map(|claim| sources(claim)).collect();
        let marked = snapshots.iter().filter(|it| it.has_finalizer(SNAPSHOT_SOURCE_FINALIZER));
        marked
            .map(Object::key)
            .filter(|key| !wanted.contains(key))
            .for_each(|key| self.queue.add(key));
        Ok(())
    }

    async fn work(self: Arc<Self>, key: Key) -> Next {
        match self.release(&key).await {
            Ok(()) => Next::Done,
            Err(error) if error.kind() == Kind::Denied => {
                debug!(snapshot = %key, reason = error.sentence(), "its mark stays");
                Next::Done
            }
            Err(error) => {
                debug!(snapshot = %key, reason = error.sentence(), "its mark is not off yet");
                Next::Retry
            }
        }
    }

    async fn release(&self, key: &Key) -> Result<(), ClusterError> {
        let Some(snapshot) = self.office.cluster.get::<Snapshot>(key).await? else { return Ok(()) };
        if !snapshot.has_finalizer(SNAPSHOT_SOURCE_FINALIZER) {
            return Ok(());
        }
        // Whoever copies it still lets go of it then.
        let copies = |claim: &Claim| waits(claim) && sources(claim).any(|source| source == *key);
        if self.office.tables.claims.any(copies) {
            return Ok(());
        }
        let mut left = snapshot.finalizers().to_vec();
        left.retain(|there| there != SNAPSHOT_SOURCE_FINALIZER);
        match finalize(&self.office, &snapshot, &left).await {
            Ok(()) => {
                info!(snapshot = %key, "no volume is being made from it any more");
                Ok(())
            }
            Err(error) if error.is_absent() => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// True when a claim has no volume yet.
fn waits(claim: &Claim) -> bool {
    matches!(claim.status.phase.as_deref(), None | Some("" | "Pending"))
}

/// The snapshots that a claim names. Either field counts, and so does another namespace: other drivers'
/// provisioners may copy from there.
fn sources(claim: &Claim) -> impl Iterator<Item = Key> {
    let own = claim.key().namespace;
    let named = [&claim.spec.data_source, &claim.spec.data_source_ref].into_iter().flatten();
    let snapshots = named.filter(|source| source.kind == "VolumeSnapshot");
    snapshots.map(move |DataSource { namespace, name, .. }| {
        let namespace = namespace.as_deref().filter(|there| !there.is_empty()).unwrap_or(&own);
        Key::within(namespace, name)
    })
}
