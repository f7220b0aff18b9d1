//! Volumes that go: they are held as long as an attachment needs them.

use tracing::{debug, warn};

use super::waiting::volume;
use super::{Attacher, SOON, patches};
use crate::kubernetes::names::attacher_finalizer;
use crate::kubernetes::objects::{Object, Volume};
use crate::kubernetes::queue::Next;

impl Attacher {
    /// The finalizer by which a volume of ours that goes is held.
    pub(super) fn held(&self, volume: &Volume) -> Option<String> {
        let driver = self.office.driver(&volume.csi()?.driver)?;
        let finalizer = attacher_finalizer(driver.name());
        (volume.is_going() && volume.has_finalizer(&finalizer)).then_some(finalizer)
    }

    /// Lets a volume go that no attachment needs any more. None can come: a volume that goes is not
    /// attached, and an attachment that is held is known here until the watch says it is gone.
    pub(super) async fn let_go(&self, name: &str) -> Next {
        let tables = &self.office.tables;
        let Some(going) = tables.volumes.named(name) else { return Next::Done };
        let Some(finalizer) = self.held(&going) else { return Next::Done };
        if tables.attachments.any(|attachment| volume(attachment) == name) {
            return Next::Done;
        }
        let Some(patch) = patches::release(&*going, &finalizer) else { return Next::Done };
        // The answer is not told to the table: the volume may be gone with it.
        match self.office.cluster.patch::<Volume>(&going.key(), &patch).await {
            Ok(_) => debug!(volume = name, "let go"),
            Err(error) if error.is_absent() => {}
            Err(error) if error.is_conflict() => return Next::After(SOON),
            Err(error) => {
                warn!(volume = name, reason = error.sentence(), "a volume was not let go");
                return Next::Retry;
            }
        }
        Next::Done
    }
}
