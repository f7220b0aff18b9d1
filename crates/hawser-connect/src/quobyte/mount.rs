//! Mounting a volume, and recognising its mount.

use std::net::SocketAddr;

use async_trait::async_trait;
use hawser_core::error::Result;
use hawser_core::port::Host;
use hawser_core::port::host::{MountEntry, Tool};

use crate::shared::error::AttachError;
use crate::shared::remote_fs::RemoteFs;
use crate::shared::remote_fs::data::Volume;
use crate::shared::wait::Deadline;

/// `registry/volume`.
pub(super) struct Export(pub(super) String);

#[async_trait]
impl RemoteFs for Export {
    /// A mount does not tell them.
    async fn addresses(&self, _deadline: Deadline) -> Result<Vec<SocketAddr>> {
        Ok(Vec::new())
    }

    fn recognise(
        &self,
        entry: &MountEntry,
        _addresses: &[SocketAddr],
    ) -> std::result::Result<(), String> {
        let kind = ["quobyte", "fuse.quobyte", "fuse"].contains(&entry.fs_type.as_str());
        let source = entry.source.strip_prefix("quobyte@").unwrap_or(&entry.source);
        // The client may show its registry by another name than it was asked by.
        let volume = |text: &str| text.trim_end_matches('/').rsplit('/').next().map(str::to_owned);
        if kind && volume(source) == volume(&self.0) {
            return Ok(());
        }
        Err(format!("{} ({})", entry.source, entry.fs_type))
    }

    async fn mount(
        &self,
        host: &dyn Host,
        volume: &Volume,
        _addresses: &[SocketAddr],
        deadline: Deadline,
    ) -> Result<()> {
        let mut options = vec![if volume.read_only { "ro" } else { "rw" }.to_owned()];
        options.extend(volume.options.words());
        let mut tool = Tool::new("mount")
            .args(["-t", "quobyte", "-o", &options.join(","), &self.0])
            .arg(&volume.target)
            .limit(deadline.left());
        // The client is the file system; it must stay.
        tool.leaves_daemon = true;
        let output = host.run(&tool).await?;
        if output.code == Some(0) {
            return Ok(());
        }
        let failed = output.failed();
        let (portal, target) = ("the registry".to_owned(), self.0.clone());
        let said = failed.stderr.to_ascii_lowercase();
        Err(if said.contains("not found") {
            AttachError::TargetNotFound { portal, target }
        } else {
            AttachError::Tool { attempt: format!("mounting {target}"), source: failed }
        }
        .into())
    }
}
