//! Reading an attachment record as it is true now, and the device it names.

use std::path::{Path, PathBuf};

use hawser_core::attach::{AttachRecord, AttachState, Attached, Identity};
use hawser_core::id::PublicationId;
use hawser_core::{Result, error::ResultExt};

use super::NodeHalf;
use super::error::NodeError;

impl NodeHalf {
    /// The record of a publication, with what an earlier boot took away taken out.
    ///
    /// Folders made for mounts survive a boot, the mounts on them do not; they are removed here,
    /// because nobody would know them afterwards. The boot id stays: it says that nothing of this
    /// boot is behind the record yet.
    pub(super) async fn current(&self, id: &PublicationId) -> Result<Option<AttachRecord>> {
        let Some(mut record) = self.registry.get(id).await? else { return Ok(None) };
        if self.is_of_this_boot(&record).await? || is_bare(&record) {
            return Ok(Some(record));
        }
        for mount in record.mounts.iter().filter(|mount| mount.made_target) {
            self.host.remove_target(&mount.target).await?;
        }
        remember_identity(&mut record);
        record.state = AttachState::Intent;
        record.attached = None;
        record.mounts.clear();
        record.frozen = None;
        self.registry.put(&record).await?;
        Ok(Some(record))
    }

    /// True when what the record names can still be there.
    pub(super) async fn is_of_this_boot(&self, record: &AttachRecord) -> Result<bool> {
        Ok(self.host.facts().await?.boot_id == record.boot_id)
    }

    /// The record of a publication that is fully attached, and what is attached.
    pub(super) async fn attached(&self, id: &PublicationId) -> Result<(AttachRecord, Attached)> {
        let Some(record) = self.current(id).await? else {
            return Err(NodeError::NotKnown { publication: id.clone() }.into());
        };
        match (record.state, record.attached.clone()) {
            (AttachState::Attached, Some(attached)) => Ok((record, attached)),
            (state, _) => {
                Err(NodeError::NotAttached { publication: id.clone(), state: in_words(state) }
                    .into())
            }
        }
    }

    /// The block device of a record, after its connector has found it again at the same place with
    /// the same identity.
    pub(super) async fn verified_device(
        &self,
        record: &AttachRecord,
        attached: &Attached,
    ) -> Result<PathBuf> {
        let Attached::Block { device, .. } = attached else {
            return Err(NodeError::NoDevice { path: attached.path().to_owned() }.into());
        };
        self.verify(record, attached).await?;
        Ok(device.clone())
    }

    /// Refuses when what is attached is gone, elsewhere or something else.
    pub(super) async fn verify(&self, record: &AttachRecord, attached: &Attached) -> Result<()> {
        let recorded = attached.path().to_owned();
        let Some(found) = self.lookup(record).await? else {
            return Err(NodeError::Gone { recorded }.into());
        };
        check_identity(expected(record), found.identity(), found.path(), Unknown::Refused)?;
        if found.path() != recorded {
            return Err(NodeError::Moved { recorded, found: found.path().to_owned() }.into());
        }
        Ok(())
    }

    /// What the connector finds for the record now.
    pub(super) async fn lookup(&self, record: &AttachRecord) -> Result<Option<Attached>> {
        let connector = self.connectors.get(&record.info.protocol)?;
        let attempt = || format!("looking up volume {} on this host", record.volume);
        let attach = Some(&record.attach);
        connector.lookup(self.host.as_ref(), &record.info, attach).await.context(attempt)
    }
}

/// Nothing of an earlier boot is left in it.
fn is_bare(record: &AttachRecord) -> bool {
    record.state == AttachState::Intent
        && record.attached.is_none()
        && record.mounts.is_empty()
        && record.frozen.is_none()
}

/// Keeps what the device said of itself: it is enforced from the first attach on, also where the
/// provider could not know it.
pub(super) fn remember_identity(record: &mut AttachRecord) {
    if record.info.identity.is_none() {
        record.info.identity = record.attached.as_ref().and_then(Attached::identity).cloned();
    }
}

/// What the device of a record must say of itself.
pub(super) fn expected(record: &AttachRecord) -> Option<&Identity> {
    // What was seen on this host is of the scheme that the connector will tell again.
    record.attached.as_ref().and_then(Attached::identity).or(record.info.identity.as_ref())
}

/// What to make of a device that says nothing of itself.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Unknown {
    /// It may be: some connectors cannot tell.
    Allowed,
    /// It said something before, so silence is another device or a broken one.
    Refused,
}

/// Refuses a device by name when it is not the expected one.
pub(super) fn check_identity(
    expected: Option<&Identity>,
    found: Option<&Identity>,
    device: &Path,
    unknown: Unknown,
) -> Result<(), NodeError> {
    let wrong = |expected: &Identity, found: String| {
        let expected = expected.clone();
        NodeError::WrongIdentity { device: device.to_owned(), expected, found }
    };
    match (expected, found) {
        (Some(expected), Some(found)) if expected != found => {
            Err(wrong(expected, found.to_string()))
        }
        (Some(expected), None) if unknown == Unknown::Refused => {
            Err(wrong(expected, "nothing that could be read".into()))
        }
        (Some(_), Some(_)) | (Some(_), None) | (None, _) => Ok(()),
    }
}

/// A state for refusals.
pub(super) fn in_words(state: AttachState) -> &'static str {
    match state {
        AttachState::Intent => "attaching was begun and not finished, or the host has restarted",
        AttachState::Attached => "attached",
        AttachState::Detaching => "detaching was begun and not finished",
    }
}
