//! Volumes that nobody claims any more are removed: what external-provisioner does when a claim is
//! deleted.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use hawser_api::csi::v1::DeleteVolumeRequest;
use hawser_api::csi::v1::controller_server::Controller;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::error::ClusterError;
use super::events::About;
use super::names::{
    DELETION_SECRET, DELETION_SECRET_NAMESPACE, PROVISIONED_BY, PROVISIONER_FINALIZER,
};
use super::objects::{Attachment, Key, Object, SecretRef, Volume};
use super::office::{CALL_LIMIT, Office};
use super::queue::{Next, Queue};
use super::table::Changed;
use crate::csi::within;

/// How many volumes are worked on at once.
const WORKERS: usize = 64;

/// Removes volumes.
pub(super) struct Remover {
    office: Arc<Office>,
    queue: Queue<Key>,
}

/// What there is to do for a volume.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Nothing,
    /// Its storage is to go, and then its object.
    Remove,
    /// Its storage stays, so nothing keeps the object.
    Release,
    /// Its storage is to go before its object does.
    Hold,
}

impl Remover {
    pub(super) fn new(office: Arc<Office>) -> Arc<Self> {
        Arc::new(Self { office, queue: Queue::default() })
    }

    /// A volume has changed.
    pub(super) fn heard_volume(&self, changed: &Changed<Volume>) {
        if changed.now.as_deref().is_some_and(|volume| self.step(volume) != Step::Nothing) {
            self.queue.add(changed.key.clone());
        }
    }

    /// An attachment has changed: its volume may be free now.
    pub(super) fn heard_attachment(&self, changed: &Changed<Attachment>) {
        let (None, Some(before)) = (&changed.now, &changed.before) else { return };
        if let Some(name) = &before.spec.source.persistent_volume_name {
            self.queue.add(Key::global(name));
        }
    }

    /// Works until it is told to stop.
    pub(super) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let this = self.clone();
        let work = move |key| this.clone().work(key);
        self.queue.run(WORKERS, stop, work).await;
    }

    fn step(&self, volume: &Volume) -> Step {
        let ours = volume.csi().is_some_and(|csi| self.office.driver(&csi.driver).is_some());
        // One that somebody made by hand says nothing, and is removed as it asks for.
        let others =
            volume.annotation(PROVISIONED_BY).is_some_and(|by| self.office.driver(by).is_none());
        if !ours || others {
            return Step::Nothing;
        }
        let kept = volume.has_finalizer(PROVISIONER_FINALIZER);
        let delete = volume.spec.persistent_volume_reclaim_policy.as_deref() == Some("Delete");
        match (delete, volume.is("Released"), volume.is_going()) {
            (false, ..) if kept => Step::Release,
            (true, true, going) if kept || !going => Step::Remove,
            // As when its class, or somebody, has changed its mind after it was made.
            (true, false, false) if !kept && volume.is("Bound") => Step::Hold,
            (..) => Step::Nothing,
        }
    }

    async fn work(self: Arc<Self>, key: Key) -> Next {
        let Some(volume) = self.office.tables.volumes.get(&key) else { return Next::Done };
        let done = match self.step(&volume) {
            Step::Nothing => return Next::Done,
            Step::Release => self.release(&volume).await.map(drop),
            Step::Hold => self.hold(&volume).await,
            Step::Remove => self.remove(&volume).await,
        };
        let Err(error) = done else { return Next::Done };
        if error.is_conflict() || error.is_absent() {
            return Next::After(Duration::from_secs(1));
        }
        let reason = error.sentence();
        warn!(volume = %key, reason, "not removed yet");
        self.office.events.warning(About::of(&*volume), "VolumeFailedDelete", reason);
        Next::Retry
    }

    async fn remove(&self, volume: &Volume) -> Result<(), ClusterError> {
        let attached = |attachment: &Attachment| {
            attachment.spec.source.persistent_volume_name.as_deref() == Some(volume.name())
        };
        if let Some(there) = self.office.tables.attachments.all(attached).first() {
            let (name, node) = (volume.name(), &there.spec.node_name);
            return Err(ClusterError::NotYet(format!(
                "volume {name} is still attached to node {node}"
            )));
        }
        let Some(csi) = volume.csi() else { return Ok(()) };
        let services = self.office.driver(&csi.driver);
        let Some(controller) = services.and_then(|services| services.controller()) else {
            return Ok(());
        };
        let request = DeleteVolumeRequest {
            volume_id: csi.volume_handle.clone(),
            secrets: self.office.secret(secret(volume).as_ref()).await?,
        };
        controller.delete_volume(within(CALL_LIMIT, request)).await?;
        info!(volume = volume.name(), "removed");
        let volume = self.release(volume).await?;
        let key = volume.key();
        self.office.cluster.delete::<Volume>(&key, volume.uid()).await
    }

    /// Puts on the mark that keeps the object as long as there is storage.
    async fn hold(&self, volume: &Volume) -> Result<(), ClusterError> {
        let mut finalizers = volume.finalizers().to_vec();
        finalizers.push(PROVISIONER_FINALIZER.to_owned());
        self.finalize(volume, &finalizers).await.map(drop)
    }

    /// Takes off the mark that keeps the object; answers it as it is then.
    async fn release(&self, volume: &Volume) -> Result<Volume, ClusterError> {
        if !volume.has_finalizer(PROVISIONER_FINALIZER) {
            return Ok(volume.clone());
        }
        let mut left = volume.finalizers().to_vec();
        left.retain(|there| there != PROVISIONER_FINALIZER);
        self.finalize(volume, &left).await
    }

    async fn finalize(
        &self,
        volume: &Volume,
        finalizers: &[String],
    ) -> Result<Volume, ClusterError> {
        let patch = json!({ "metadata": {
            "uid": volume.uid(), "resourceVersion": volume.meta_version(), "finalizers": finalizers,
        }});
        self.office.cluster.patch::<Volume>(&volume.key(), &patch).await
    }
}

/// What removing it takes, as it was when it was made.
fn secret(volume: &Volume) -> Option<SecretRef> {
    let name = volume.annotation(DELETION_SECRET)?.to_owned();
    let namespace = volume.annotation(DELETION_SECRET_NAMESPACE)?.to_owned();
    Some(SecretRef { name, namespace })
}
