//! Mounting an export, and recognising its mount.

use std::net::SocketAddr;

use async_trait::async_trait;
use hawser_core::error::{Error, Result};
use hawser_core::port::Host;
use hawser_core::port::host::{HostMount, MountEntry, MountSource, Tool, ToolOutput};
use rustix::io::Errno;

use super::data::{Compared, Export, Version};
use crate::shared::error::AttachError;
use crate::shared::remote_fs::RemoteFs;
use crate::shared::remote_fs::data::Volume;
use crate::shared::remote_fs::server;
use crate::shared::wait::Deadline;

#[async_trait]
impl RemoteFs for Export {
    async fn addresses(&self, deadline: Deadline) -> Result<Vec<SocketAddr>> {
        Ok(server::addresses(&self.server, deadline).await?)
    }

    fn recognise(
        &self,
        entry: &MountEntry,
        addresses: &[SocketAddr],
    ) -> std::result::Result<(), String> {
        let found = || format!("{} ({})", entry.source, entry.fs_type);
        if !["nfs", "nfs4"].contains(&entry.fs_type.as_str()) {
            return Err(found());
        }
        let from = server::mounted_from(entry);
        let is_server = |ip| addresses.iter().any(|address| address.ip() == ip);
        match (self.compare(entry), from) {
            (Compared::SameName, Some(ip)) if !addresses.is_empty() && !is_server(ip) => {
                Err(format!("{} from {ip}, which is not {} any more", found(), self.server))
            }
            (Compared::SameName, _) => Ok(()),
            (Compared::OtherName, Some(ip)) if is_server(ip) => Ok(()),
            (Compared::OtherName | Compared::Other, _) => Err(found()),
        }
    }

    async fn mount(
        &self,
        host: &dyn Host,
        volume: &Volume,
        addresses: &[SocketAddr],
        deadline: Deadline,
    ) -> Result<()> {
        let mut answering = None;
        let mut refused = None;
        for version in &self.versions {
            let mounted = match version {
                Version::V3 => self.mount_v3(host, volume, deadline).await,
                Version::V4(minor) => {
                    let address = match answering {
                        Some(address) => address,
                        None => self.server_address(addresses, deadline).await?,
                    };
                    answering = Some(address);
                    self.mount_v4(host, volume, *minor, &address).await
                }
            };
            match mounted {
                // Only this means that an older version may do; anything else would hide why.
                Err(error) if server::errno(&error) == Some(Errno::PROTONOSUPPORT) => {
                    tracing::debug!(?version, export = %volume.export, "not spoken by the server");
                    refused.get_or_insert(error);
                }
                Err(error) => {
                    let error = server::mount_error(&self.server, &volume.export, "nfsv4", error);
                    // The version that was asked for says more than the last resort.
                    let helper_missing =
                        *version == Version::V3 && error.kind() == hawser_core::Kind::Unsupported;
                    return Err(match refused {
                        Some(first) if helper_missing => self.unspoken(volume, first, &error),
                        Some(_) | None => error,
                    });
                }
                Ok(()) => return Ok(()),
            }
        }
        match refused {
            Some(error) => Err(server::mount_error(&self.server, &volume.export, "nfsv4", error)),
            None => Ok(()),
        }
    }
}

impl Export {
    /// An address that answers; over RDMA there is nothing to ask by TCP.
    async fn server_address(
        &self,
        addresses: &[SocketAddr],
        deadline: Deadline,
    ) -> Result<SocketAddr, AttachError> {
        let rdma = self.options.has("rdma")
            || self.options.value("proto").is_some_and(|proto| proto.starts_with("rdma"));
        match addresses.first() {
            Some(first) if rdma => Ok(*first),
            Some(_) | None => server::answering(&self.server, addresses, self.port, deadline).await,
        }
    }

    async fn mount_v4(
        &self,
        host: &dyn Host,
        volume: &Volume,
        minor: u8,
        address: &SocketAddr,
    ) -> Result<()> {
        let mut flags = self.options.words();
        flags.push(format!("vers=4.{minor}"));
        flags.push(format!("addr={}", server::text(address)));
        if minor == 0 && !self.options.has("clientaddr") {
            // Where the server calls back; later versions use the same connection.
            if let Ok(own) = server::own_address(address).await {
                flags.push(format!("clientaddr={own}"));
            }
        }
        let source = MountSource::Network {
            fs_type: "nfs4".into(),
            source: self.source(),
            secrets: Vec::new(),
        };
        let target = volume.target.clone();
        let request = HostMount { source, target, read_only: volume.read_only, flags };
        host.mount(&request).await.map(drop)
    }

    async fn mount_v3(&self, host: &dyn Host, volume: &Volume, deadline: Deadline) -> Result<()> {
        let mut options = vec!["vers=3".to_owned(), "retry=0".to_owned()];
        options.push(if volume.read_only { "ro" } else { "rw" }.into());
        options.extend(self.options.words());
        let mut tool = Tool::new("mount.nfs")
            .args([&self.source()])
            .arg(&volume.target)
            .args(["-o", &options.join(",")])
            .limit(deadline.left());
        // It starts rpc.statd, which must stay.
        tool.leaves_daemon = true;
        let output = host.run(&tool).await?;
        if output.code == Some(0) {
            return Ok(());
        }
        Err(self.helper_error(volume, &output))
    }

    /// What `mount.nfs` means; it has one exit code for everything.
    fn helper_error(&self, volume: &Volume, output: &ToolOutput) -> Error {
        let failed = output.failed();
        let said = failed.stderr.to_ascii_lowercase();
        let (server, export) = (self.server.clone(), volume.export.clone());
        let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
        let meant = if has(&["access denied", "permission denied", "operation not permitted"]) {
            AttachError::AuthFailed { target: export }
        } else if has(&["connection refused", "program not registered", "rpc prog"]) {
            AttachError::PortalRefused { portal: server }
        } else if has(&["timed out", "no route to host", "unreachable", "host is down"]) {
            AttachError::Unreachable { target: server, why: failed.stderr }
        } else if has(&["no such file", "does not exist", "stale"]) {
            AttachError::TargetNotFound { portal: server, target: export }
        } else if has(&["not supported"]) {
            let why = "it does not speak version 3".to_owned();
            AttachError::Unreachable { target: server, why }
        } else {
            AttachError::Tool { attempt: format!("mounting {export}"), source: failed }
        };
        meant.into()
    }

    /// The server speaks no version 4, and version 3 cannot be tried here.
    fn unspoken(&self, volume: &Volume, first: Error, helper: &Error) -> Error {
        let error = server::mount_error(&self.server, &volume.export, "nfsv4", first);
        error.context(format!("version 3 could not be tried ({})", helper.sentence()))
    }
}
