//! Mounting a volume, and recognising its mount.

use std::net::SocketAddr;
use std::time::Duration;

use async_trait::async_trait;
use hawser_core::error::{Error, Result};
use hawser_core::port::Host;
use hawser_core::port::host::{MountEntry, Tool, ToolOutput};

use super::data::Source;
use crate::shared::error::AttachError;
use crate::shared::remote_fs::RemoteFs;
use crate::shared::remote_fs::data::Volume;
use crate::shared::remote_fs::server;
use crate::shared::wait::Deadline;

/// How mount.glusterfs ends when the mount table has a GlusterFS at the folder.
const ALREADY_MOUNTED: i32 = 32;

#[async_trait]
impl RemoteFs for Source {
    /// A mount does not tell them.
    async fn addresses(&self, _deadline: Deadline) -> Result<Vec<SocketAddr>> {
        Ok(Vec::new())
    }

    fn recognise(
        &self,
        entry: &MountEntry,
        _addresses: &[SocketAddr],
    ) -> std::result::Result<(), String> {
        if entry.fs_type == "fuse.glusterfs" && self.is_source(&entry.source) {
            return Ok(());
        }
        Err(format!("{} ({})", entry.source, entry.fs_type))
    }

    /// Its cache of attributes (md-cache) is in the client, where the kernel has no say; a second is
    /// its setting unless a volume has another.
    fn attribute_age(&self) -> Duration {
        Duration::from_millis(1100)
    }

    async fn mount(
        &self,
        host: &dyn Host,
        volume: &Volume,
        _addresses: &[SocketAddr],
        deadline: Deadline,
    ) -> Result<()> {
        self.find_server(deadline).await?;
        let said_before = self.log_length(host);
        let mut options = vec![format!("log-file={}", self.log.display())];
        options.push(if volume.read_only { "ro" } else { "rw" }.into());
        options.extend(self.backups().map(|list| format!("backup-volfile-servers={list}")));
        options.extend(self.options.words());
        let mut tool = Tool::new("mount.glusterfs")
            .arg(&self.export)
            .arg(&volume.target)
            .args(["-o", &options.join(",")])
            .limit(deadline.left());
        // The client is the file system; it must stay.
        tool.leaves_daemon = true;
        let output = host.run(&tool).await?;
        // Somebody was faster; what is mounted there is looked at next.
        if output.code == Some(0) || output.code == Some(ALREADY_MOUNTED) {
            return Ok(());
        }
        Err(self.mount_error(&output, &self.log_since(host, said_before)))
    }
}

impl Source {
    /// One server that answers is enough; the client finds it by itself, and takes long to give up
    /// where there is none.
    async fn find_server(&self, deadline: Deadline) -> Result<(), AttachError> {
        if self.options.value("transport").is_some_and(|transport| transport != "tcp") {
            return Ok(());
        }
        let mut last = None;
        for name in &self.servers {
            let found = match server::addresses(name, deadline).await {
                Ok(addresses) => server::answering(name, &addresses, self.port, deadline).await,
                Err(error) => Err(error),
            };
            match found {
                Ok(_) => return Ok(()),
                Err(error) => last = Some(error),
            }
        }
        last.map_or(Ok(()), Err)
    }

    fn log_length(&self, host: &dyn Host) -> usize {
        host.files().read(&self.log).ok().flatten().map_or(0, |log| log.len())
    }

    /// What the client wrote since. A log that is too long to be read says nothing.
    fn log_since(&self, host: &dyn Host, length: usize) -> String {
        let log = host.files().read(&self.log).ok().flatten().unwrap_or_default();
        // It may have been cut meanwhile.
        let new = log.get(length..).unwrap_or(&log);
        String::from_utf8_lossy(new).into_owned()
    }

    /// What a failed mount means: the program has one exit code for everything, the log has words.
    pub(super) fn mount_error(&self, output: &ToolOutput, log: &str) -> Error {
        let failed = output.failed();
        let said = format!("{}\n{log}", failed.stderr).to_ascii_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
        let (portal, target) = (self.servers.join(", "), self.export.clone());
        let meant = if has(&["authentication failed", "not authorized", "permission denied"]) {
            AttachError::AuthFailed { target }
        } else if has(&["volume file from server", "'volume file'", "failed to fetch volume"])
            || has(&["subdirectory", "subdir mount"])
        {
            AttachError::TargetNotFound { portal, target }
        } else if has(&["dns resolution failed", "connection refused", "all subvolumes are down"]) {
            AttachError::Unreachable { target: portal, why: "its bricks do not answer".into() }
        } else if has(&["/dev/fuse", "fuse device"]) {
            AttachError::Missing {
                what: "the kernel module fuse".into(),
                advice: "load it with modprobe fuse".into(),
            }
        } else {
            let log = self.log.display();
            let attempt = format!("mounting {target}; the log {log} says more");
            AttachError::Tool { attempt, source: failed }
        };
        meant.into()
    }
}
