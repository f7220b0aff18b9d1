//! Making a file system: only where the record allows it and a read shows that it may be.

use std::path::Path;

use hawser_core::filesystem::{FormatState, FsKind};
use hawser_core::port::host::Content;
use hawser_core::port::node::FormatWork;
use hawser_core::{Change, Outcome, Result};
use uuid::Uuid;

use super::NodeHalf;
use super::error::NodeError;

impl NodeHalf {
    pub(super) async fn format_device(&self, work: &FormatWork) -> Result<Change<()>> {
        let _alone = self.gates.enter(self.registry.as_ref(), &work.publication).await?;
        let (record, attached) = self.attached(&work.publication).await?;
        if work.state == FormatState::Done {
            return Err(NodeError::FormattedBefore.into());
        }
        let device = self.verified_device(&record, &attached).await?;
        if record.attach.read_only {
            return Err(NodeError::ReadOnly { device, what: "making a file system" }.into());
        }
        let table = self.table().await?;
        let mounted = table.all_of(&attached);
        if !mounted.is_empty() {
            let targets = mounted.iter().map(|entry| entry.target.clone()).collect();
            return Err(NodeError::StillMounted { targets }.into());
        }
        let content = self.host.probe(&device).await?;
        may_format(&device, work.state, &content, work.uuid)?;
        if work.state == FormatState::Never {
            // Blank. The caller records that before anything is written.
            return Ok(Change::Already(()));
        }
        self.host.make_filesystem(&device, work.fs, work.uuid).await?;
        // mkfs has run, whatever this says.
        let made = self.host.probe(&device).await;
        let made = made.map_err(|error| error.with_outcome(Outcome::Unknown))?;
        if !is(&made, work.fs, work.uuid) {
            let (fs, uuid, found) = (work.fs, work.uuid, in_words(&made));
            return Err(NodeError::MadeOtherwise { device, fs, uuid, found }.into());
        }
        tracing::info!(volume.id = %record.volume, device = %device.display(), fs = %work.fs,
            "formatted");
        Ok(Change::Made(()))
    }
}

/// Whether a device with this content may be formatted. The one place that decides it.
fn may_format(
    device: &Path,
    state: FormatState,
    content: &Content,
    uuid: Uuid,
) -> Result<(), NodeError> {
    let (device, found) = (device.to_owned(), in_words(content));
    match (state, content) {
        (FormatState::Done, _) => Err(NodeError::FormattedBefore),
        (FormatState::Never | FormatState::Started, Content::Blank) => Ok(()),
        (FormatState::Never, Content::Filesystem { .. } | Content::Other(_) | Content::Data) => {
            Err(NodeError::NotBlank { device, found })
        }
        // Ours, and never mounted: the record says `Done` before the first mount. It may be a torso
        // with a good superblock, so it is made anew.
        (FormatState::Started, Content::Filesystem { uuid: Some(there), .. }) if *there == uuid => {
            Ok(())
        }
        // A torso of ours without a superblock; the device was blank when we began.
        (FormatState::Started, Content::Data) => Ok(()),
        (FormatState::Started, Content::Filesystem { .. } | Content::Other(_)) => {
            Err(NodeError::NotOurs { device, uuid, found })
        }
    }
}

/// True when the device shows exactly this file system.
pub(super) fn is(content: &Content, fs: FsKind, uuid: Uuid) -> bool {
    *content == Content::Filesystem { fs, uuid: Some(uuid) }
}

/// What is on a device, for refusals.
pub(super) fn in_words(content: &Content) -> String {
    match content {
        Content::Blank => "nothing".into(),
        Content::Filesystem { fs, uuid: Some(uuid) } => format!("{fs} {uuid}"),
        Content::Filesystem { fs, uuid: None } => format!("{fs} without a readable UUID"),
        Content::Other(what) => format!("a signature of {what}"),
        Content::Data => "data without a known signature".into(),
    }
}
