//! Mounting a share, and recognising its mount.

use std::net::SocketAddr;

use async_trait::async_trait;
use hawser_core::error::Result;
use hawser_core::port::Host;
use hawser_core::port::host::{HostMount, MountEntry, MountSource};

use super::data::Share;
use crate::shared::error::AttachError;
use crate::shared::fields::invalid;
use crate::shared::remote_fs::RemoteFs;
use crate::shared::remote_fs::data::Volume;
use crate::shared::remote_fs::server;
use crate::shared::wait::Deadline;

/// The newest dialect; the kernel would begin with older ones.
const VERSION: &str = "3.1.1";

#[async_trait]
impl RemoteFs for Share {
    async fn addresses(&self, deadline: Deadline) -> Result<Vec<SocketAddr>> {
        Ok(server::addresses(&self.server, deadline).await?)
    }

    fn recognise(
        &self,
        entry: &MountEntry,
        addresses: &[SocketAddr],
    ) -> std::result::Result<(), String> {
        let found = || format!("{} ({})", entry.source, entry.fs_type);
        if !["cifs", "smb3"].contains(&entry.fs_type.as_str()) {
            return Err(found());
        }
        let from = server::mounted_from(entry);
        let is_server = |ip| addresses.iter().any(|address| address.ip() == ip);
        match from {
            Some(ip) if self.is_source(&entry.source) => {
                if !addresses.is_empty() && !is_server(ip) {
                    let server = &self.server;
                    return Err(format!("{} from {ip}, which is not {server} any more", found()));
                }
            }
            None if self.is_source(&entry.source) => {}
            Some(ip) if self.is_path(&entry.source) && is_server(ip) => {}
            Some(_) | None => return Err(found()),
        }
        self.check_terms(entry).map_err(|why| format!("{}, {why}", found()))
    }

    async fn mount(
        &self,
        host: &dyn Host,
        volume: &Volume,
        addresses: &[SocketAddr],
        deadline: Deadline,
    ) -> Result<()> {
        let mut flags = self.options.words();
        let mut secrets = Vec::new();
        self.say_who(&mut flags, &mut secrets)?;
        let address = server::answering(&self.server, addresses, self.port, deadline).await?;
        flags.push(format!("ip={}", server::text(&address)));
        if !self.options.has("vers") {
            flags.push(format!("vers={VERSION}"));
        }
        let source =
            MountSource::Network { fs_type: "cifs".into(), source: self.source(), secrets };
        let target = volume.target.clone();
        let request = HostMount { source, target, read_only: volume.read_only, flags };
        match host.mount(&request).await {
            Ok(_) => Ok(()),
            Err(error) => Err(server::mount_error(&self.server, &volume.export, "cifs", error)),
        }
    }
}

impl Share {
    /// A mount in another's name, or in the clear where it must be sealed, is not ours to use.
    fn check_terms(&self, entry: &MountEntry) -> std::result::Result<(), String> {
        let option = |name: &str| entry.super_options.iter().find_map(|o| o.strip_prefix(name));
        match (&self.who.user, option("username=")) {
            (Some(user), Some(mounted)) if !user.eq_ignore_ascii_case(mounted) => {
                return Err(format!("in the name of {mounted}, not of {user}"));
            }
            (Some(_) | None, _) => {}
        }
        if self.options.has("seal") && !entry.super_options.iter().any(|option| option == "seal") {
            return Err("without the encryption that was asked for".into());
        }
        Ok(())
    }

    fn say_who(
        &self,
        flags: &mut Vec<String>,
        secrets: &mut Vec<(String, hawser_core::secret::Secret)>,
    ) -> Result<(), AttachError> {
        let who = &self.who;
        let kerberos = self.options.value("sec").is_some_and(|sec| sec.starts_with("krb5"));
        match &who.user {
            None if who.guest => flags.push("sec=none".into()),
            None if kerberos => {}
            None => {
                let why = "is missing: give username, a credentials file, or the option guest";
                return Err(invalid("username", why));
            }
            Some(user) => {
                flags.push(format!("username={user}"));
                let password = who.password.clone().unwrap_or_default();
                secrets.push(("password".into(), password));
            }
        }
        if let Some(domain) = &who.domain {
            flags.push(format!("domain={domain}"));
        }
        Ok(())
    }
}
