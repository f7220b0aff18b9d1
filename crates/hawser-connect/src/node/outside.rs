//! What the library asks of the node half beyond the port: records, and volumes without one.

use hawser_core::Change;
use hawser_core::attach::{AttachRecord, Attached, Detach};
use hawser_core::connection::ConnectionInfo;
use hawser_core::error::Result;
use hawser_core::id::PublicationId;
use hawser_core::port::node::AttachWork;
use hawser_core::port::{Connector, Host};

use super::NodeHalf;
use crate::shared::wait::Deadline;

impl NodeHalf {
    /// This host.
    pub(crate) fn host(&self) -> &dyn Host {
        self.host.as_ref()
    }

    /// Every connector.
    pub(crate) fn all_connectors(&self) -> impl Iterator<Item = &dyn Connector> {
        self.connectors.iter()
    }

    /// The connector of an info.
    pub(crate) fn connector(&self, info: &ConnectionInfo) -> Result<&dyn Connector> {
        Ok(self.connectors.get(&info.protocol)?.0)
    }

    /// The record of a publication.
    pub(crate) async fn record(&self, id: &PublicationId) -> Result<Option<AttachRecord>> {
        self.registry.get(id).await
    }

    /// The record of a publication that is fully attached, and what is attached.
    pub(crate) async fn attached_record(
        &self,
        id: &PublicationId,
    ) -> Result<(AttachRecord, Attached)> {
        self.attached(id).await
    }

    /// What is attached for a record now.
    pub(crate) async fn find_recorded(&self, record: &AttachRecord) -> Result<Option<Attached>> {
        self.lookup(record).await
    }

    /// What is attached for this information now, without a record that says how.
    pub(crate) async fn find(&self, info: &ConnectionInfo) -> Result<Option<Attached>> {
        self.connectors.get(&info.protocol)?.lookup(self.host.as_ref(), info, None).await
    }

    /// Detaches a volume that may have no record: whoever attached it, or a crash, may have lost it.
    /// An intent is written first, so that a crash in the middle is found.
    pub(crate) async fn detach_known(
        &self,
        work: &AttachWork,
        detach: &Detach,
    ) -> Result<Change<()>> {
        let deadline = Deadline::after(detach.deadline);
        let (registry, publication) = (self.registry.as_ref(), &work.publication);
        let _alone = self.gates.enter_within(registry, publication, deadline).await?;
        let mut record = match self.current(&work.publication).await? {
            Some(record) => record,
            None if self.find(&work.info).await?.is_none() => return Ok(Change::Already(())),
            None => {
                let boot_id = self.host.facts().await?.boot_id;
                self.claim(work, None, boot_id, deadline).await?
            }
        };
        // A storage system may have to be asked once more, and records hold no secrets.
        record.info.secrets = work.info.secrets.clone();
        let detach = Detach { deadline: deadline.rest(), ..detach.clone() };
        self.detach_record(record, &detach).await?;
        Ok(Change::Made(()))
    }
}
