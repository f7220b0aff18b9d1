//! Mounting a cluster, and recognising its mount.

use std::net::SocketAddr;
use std::path::PathBuf;

use async_trait::async_trait;
use hawser_core::Outcome;
use hawser_core::error::{Error, Result};
use hawser_core::port::Host;
use hawser_core::port::host::{MountEntry, Tool};

use super::data::Cluster;
use crate::shared::error::AttachError;
use crate::shared::remote_fs::RemoteFs;
use crate::shared::remote_fs::data::Volume;
use crate::shared::wait::Deadline;

/// Stands beside a list of servers that we made, so that it is known as ours after a reboot too.
const MARK: &str = "bs_list.hawser";

#[async_trait]
impl RemoteFs for Cluster {
    /// A mount does not tell them.
    async fn addresses(&self, _deadline: Deadline) -> Result<Vec<SocketAddr>> {
        Ok(Vec::new())
    }

    fn recognise(
        &self,
        entry: &MountEntry,
        _addresses: &[SocketAddr],
    ) -> std::result::Result<(), String> {
        let kind = ["fuse.pstorage", "fuse.vstorage"].contains(&entry.fs_type.as_str());
        let source = ["pstorage://", "vstorage://"]
            .iter()
            .find_map(|prefix| entry.source.strip_prefix(prefix))
            .unwrap_or(&entry.source);
        if kind && source == self.name {
            return Ok(());
        }
        Err(format!("{} ({})", entry.source, entry.fs_type))
    }

    fn files(&self) -> Vec<PathBuf> {
        if self.servers.is_empty() {
            return Vec::new();
        }
        vec![self.folder().join("bs_list"), self.folder().join(MARK), self.folder()]
    }

    fn left_files(&self, host: &dyn Host) -> Result<Vec<PathBuf>> {
        let marked = host.files().read(&self.folder().join(MARK))?.is_some();
        Ok(if marked { self.files() } else { Vec::new() })
    }

    async fn mount(
        &self,
        host: &dyn Host,
        volume: &Volume,
        _addresses: &[SocketAddr],
        deadline: Deadline,
    ) -> Result<()> {
        let list = self.folder().join("bs_list");
        let ours = !self.left_files(host)?.is_empty();
        let before = host.files().read(&list)?.filter(|_| !ours);
        match self.mount_listed(host, volume, before.as_deref(), deadline).await {
            Ok(()) => Ok(()),
            Err(error) => {
                // The list of somebody else comes back; ours goes with the mount.
                if let Some(before) = before.filter(|_| !self.servers.is_empty())
                    && let Err(undo) = host.files().store(&list, &before, 0o644).await
                {
                    let undo = Error::from(undo).sentence();
                    return Err(
                        error.context(format!("{} was not restored ({undo})", list.display()))
                    );
                }
                Err(error)
            }
        }
    }
}

impl Cluster {
    async fn mount_listed(
        &self,
        host: &dyn Host,
        volume: &Volume,
        before: Option<&[u8]>,
        deadline: Deadline,
    ) -> Result<()> {
        let list: String = self.servers.iter().map(|server| format!("{server}\n")).collect();
        // What is not known here is whether a file was written; no mount can come of that.
        let no_mount = |error| Error::from(error).with_outcome(Outcome::Nothing);
        if !list.is_empty() && before.is_none() {
            let mark = self.folder().join(MARK);
            let why = b"bs_list was made by hawser and goes with its last mount\n";
            host.files().store(&mark, why, 0o644).await.map_err(no_mount)?;
        }
        if !list.is_empty() && before != Some(list.as_bytes()) {
            let file = self.folder().join("bs_list");
            host.files().store(&file, list.as_bytes(), 0o644).await.map_err(no_mount)?;
        }
        if let Some(password) = &self.password {
            let mut tool = Tool::new("pstorage")
                .args(["-c", &self.name, "auth-node", "-P"])
                .limit(deadline.left());
            tool.stdin = Some(password.clone());
            let ran = host.run(&tool).await.map_err(|e| e.with_outcome(Outcome::Nothing))?;
            if ran.code != Some(0) {
                return Err(AttachError::AuthFailed { target: self.name.clone() }.into());
            }
        }
        let mut tool = Tool::new("pstorage-mount")
            .args(["-c", &self.name])
            .args(&self.flags)
            .arg(&volume.target)
            .limit(deadline.left());
        // The client is the file system; it must stay.
        tool.leaves_daemon = true;
        let output = host.run(&tool).await?;
        if output.code == Some(0) {
            return Ok(());
        }
        let failed = output.failed();
        let said = failed.stderr.to_ascii_lowercase();
        let target = self.name.clone();
        Err(if said.contains("authenticat") {
            AttachError::AuthFailed { target }
        } else if said.contains("not found") {
            AttachError::TargetNotFound { portal: self.servers.join(", "), target }
        } else {
            AttachError::Tool { attempt: format!("mounting {target}"), source: failed }
        }
        .into())
    }
}
