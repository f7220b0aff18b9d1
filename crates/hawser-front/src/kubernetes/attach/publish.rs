//! Gives a node the right to use a volume.

use std::collections::BTreeMap;
use std::sync::Arc;

use hawser_api::csi::v1::ControllerPublishVolumeRequest;
use hawser_api::csi::v1::controller_server::Controller;
use tracing::info;

use super::{Attacher, patches};
use crate::csi::{Services, within};
use crate::kubernetes::capability;
use crate::kubernetes::error::ClusterError;
use crate::kubernetes::names::attacher_finalizer;
use crate::kubernetes::objects::{Attachment, CsiSource, Object, Volume};
use crate::kubernetes::office::CALL_LIMIT;

impl Attacher {
    pub(super) async fn attach(
        &self,
        attachment: &Attachment,
        driver: &Services,
    ) -> Result<(), ClusterError> {
        if driver.is_local() {
            // There should be no attachments of it; nobody must wait for one that is there.
            return self.tell_attached(attachment, &BTreeMap::new()).await;
        }
        // All that can be wrong is found before the first finalizer, which has to be undone again.
        let volume = self.volume_of(attachment)?;
        let source = source_of(&volume, driver)?;
        if volume.is_going() {
            let name = volume.name();
            return Err(ClusterError::Wrong(format!("PersistentVolume {name} is being deleted")));
        }
        let node = self.node_id(attachment)?;
        let mut request = request(&volume, source, &node)?;
        let secret = source.controller_publish_secret_ref.as_ref();
        request.secrets = self.office.secret(secret).await?;

        // The volume comes first: without it nobody could undo what the attachment stands for.
        self.hold_volume(&volume, driver).await?;
        let held = self.hold_attachment(attachment, driver, &node).await?;
        let attachment = held.as_deref().unwrap_or(attachment);
        let request = within(CALL_LIMIT, request);
        let answer = self.service(driver)?.controller_publish_volume(request).await?;
        self.tell_attached(attachment, &answer.into_inner().publish_context).await?;
        info!(attachment = attachment.name(), volume = volume.name(), node.id = node, "attached");
        Ok(())
    }

    async fn hold_volume(&self, volume: &Volume, driver: &Services) -> Result<(), ClusterError> {
        if let Some(patch) = patches::hold(volume, &attacher_finalizer(driver.name())) {
            let held = self.office.cluster.patch(&volume.key(), &patch).await?;
            self.office.tables.volumes.tell(held);
        }
        Ok(())
    }

    async fn hold_attachment(
        &self,
        attachment: &Attachment,
        driver: &Services,
        node: &str,
    ) -> Result<Option<Arc<Attachment>>, ClusterError> {
        let finalizer = attacher_finalizer(driver.name());
        let Some(patch) = patches::hold_on(attachment, &finalizer, node) else { return Ok(None) };
        let held = self.office.cluster.patch(&attachment.key(), &patch).await?;
        Ok(Some(self.office.tables.attachments.tell(held)))
    }

    async fn tell_attached(
        &self,
        attachment: &Attachment,
        context: &BTreeMap<String, String>,
    ) -> Result<(), ClusterError> {
        if let Some(patch) = patches::attached(attachment, context) {
            let told = self.office.cluster.patch_status(&attachment.key(), &patch).await?;
            self.office.tables.attachments.tell(told);
        }
        Ok(())
    }

    /// The volume of an attachment.
    pub(super) fn volume_of(&self, attachment: &Attachment) -> Result<Arc<Volume>, ClusterError> {
        let source = &attachment.spec.source;
        let name = match (&source.persistent_volume_name, &source.inline_volume_spec) {
            (Some(name), None) => name,
            (_, Some(_)) => {
                let driver = &attachment.spec.attacher;
                let why = format!("driver {driver} takes over no volumes of in-tree drivers");
                return Err(ClusterError::Wrong(why));
            }
            (None, None) => {
                return Err(ClusterError::Wrong("the attachment names no volume".to_owned()));
            }
        };
        let absent = || ClusterError::NotYet(format!("there is no PersistentVolume {name}"));
        self.office.tables.volumes.named(name).ok_or_else(absent)
    }

    /// What the driver calls the node of an attachment, as its kubelet says.
    pub(super) fn node_id(&self, attachment: &Attachment) -> Result<String, ClusterError> {
        let (node, driver) = (&attachment.spec.node_name, &attachment.spec.attacher);
        let known = self.office.tables.csi_nodes.named(node);
        let id = known.as_ref().and_then(|known| known.driver(driver)).map(|found| &found.node_id);
        let absent = || ClusterError::NotYet(format!("node {node} has no driver {driver}"));
        id.filter(|id| !id.is_empty()).cloned().ok_or_else(absent)
    }

    pub(super) fn service(
        &self,
        driver: &Services,
    ) -> Result<impl Controller + use<>, ClusterError> {
        let absent = || ClusterError::NotYet(format!("{} has no controller here", driver.name()));
        driver.controller().ok_or_else(absent)
    }
}

/// Where a volume comes from, if it is a volume of this driver.
pub(super) fn source_of<'a>(
    volume: &'a Volume,
    driver: &Services,
) -> Result<&'a CsiSource, ClusterError> {
    let ours = volume.csi().filter(|source| source.driver == driver.name());
    ours.ok_or_else(|| {
        let (name, driver) = (volume.name(), driver.name());
        ClusterError::Wrong(format!("PersistentVolume {name} is not of driver {driver}"))
    })
}

/// The request but for its secrets.
pub(super) fn request(
    volume: &Volume,
    source: &CsiSource,
    node: &str,
) -> Result<ControllerPublishVolumeRequest, ClusterError> {
    Ok(ControllerPublishVolumeRequest {
        volume_id: source.volume_handle.clone(),
        node_id: node.to_owned(),
        volume_capability: Some(capability::of_volume(volume)?),
        readonly: source.read_only,
        volume_context: source.volume_attributes.clone(),
        ..ControllerPublishVolumeRequest::default()
    })
}
