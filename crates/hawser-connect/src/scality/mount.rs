//! Mounting the file system, and recognising its mount.

use std::net::SocketAddr;

use async_trait::async_trait;
use hawser_core::error::Result;
use hawser_core::port::Host;
use hawser_core::port::host::{MountEntry, Tool};

use crate::shared::error::AttachError;
use crate::shared::remote_fs::RemoteFs;
use crate::shared::remote_fs::data::Volume;
use crate::shared::wait::Deadline;

/// What is mounted.
pub(super) const SETTINGS: &str = "/etc/sfused.conf";

/// The one file system.
pub(super) struct Sofs;

#[async_trait]
impl RemoteFs for Sofs {
    /// A mount does not tell them.
    async fn addresses(&self, _deadline: Deadline) -> Result<Vec<SocketAddr>> {
        Ok(Vec::new())
    }

    fn recognise(
        &self,
        entry: &MountEntry,
        _addresses: &[SocketAddr],
    ) -> std::result::Result<(), String> {
        let fs = entry.fs_type == "sofs" || entry.fs_type.starts_with("fuse");
        if fs && (entry.source == SETTINGS || entry.source.ends_with("fuse")) {
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
        let mut tool = Tool::new("mount")
            .args(["-t", "sofs", SETTINGS])
            .arg(&volume.target)
            .limit(deadline.left());
        // The client is the file system; it must stay.
        tool.leaves_daemon = true;
        let output = host.run(&tool).await?;
        let attempt = format!("mounting SOFS on {}", volume.target.display());
        output.ok().map_err(AttachError::tool(attempt))?;
        Ok(())
    }
}
