//! Takes back the right to use a volume.

use hawser_api::csi::v1::ControllerUnpublishVolumeRequest;
use hawser_api::csi::v1::controller_server::Controller;
use tracing::info;

use super::publish::source_of;
use super::{Attacher, patches};
use crate::csi::{Services, within};
use crate::kubernetes::error::ClusterError;
use crate::kubernetes::names::{NODE_ID, attacher_finalizer};
use crate::kubernetes::objects::{Attachment, Object};
use crate::kubernetes::office::CALL_LIMIT;

impl Attacher {
    pub(super) async fn detach(
        &self,
        attachment: &Attachment,
        driver: &Services,
    ) -> Result<(), ClusterError> {
        if !driver.is_local() {
            self.revoke(attachment, driver).await?;
        }
        self.release(attachment, driver).await?;
        info!(attachment = attachment.name(), "detached");
        Ok(())
    }

    async fn revoke(&self, attachment: &Attachment, driver: &Services) -> Result<(), ClusterError> {
        let volume = self.volume_of(attachment)?;
        let source = source_of(&volume, driver)?;
        let node_id = self.old_node_id(attachment)?;
        let secret = source.controller_publish_secret_ref.as_ref();
        let request = ControllerUnpublishVolumeRequest {
            volume_id: source.volume_handle.clone(),
            node_id,
            secrets: self.office.secret(secret).await?,
        };
        let request = within(CALL_LIMIT, request);
        self.service(driver)?.controller_unpublish_volume(request).await?;
        Ok(())
    }

    /// What the driver called the node when the volume was attached. It is never empty, which would
    /// mean all nodes.
    pub(super) fn old_node_id(&self, attachment: &Attachment) -> Result<String, ClusterError> {
        match attachment.annotation(NODE_ID) {
            Some(id) => Ok(id.to_owned()),
            None => self.node_id(attachment),
        }
    }

    /// The finalizer goes first: an attachment that goes and is not held is detached whatever its
    /// status says, while one that is held has to be detached again.
    ///
    /// The answers are not told to the table. The object may be gone by then, and another one of the
    /// same name be known, or none: the watch says which.
    async fn release(
        &self,
        attachment: &Attachment,
        driver: &Services,
    ) -> Result<(), ClusterError> {
        let (key, cluster) = (attachment.key(), &self.office.cluster);
        let mut rest = attachment.clone();
        if let Some(patch) = patches::release(attachment, &attacher_finalizer(driver.name())) {
            rest = cluster.patch(&key, &patch).await?;
        }
        if rest.finalizers().is_empty() {
            return Ok(());
        }
        if let Some(patch) = patches::detached(&rest) {
            cluster.patch_status::<Attachment>(&key, &patch).await?;
        }
        Ok(())
    }
}
