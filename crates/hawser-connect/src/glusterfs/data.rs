//! A volume of a cluster, and the servers that describe it.

use std::path::{Path, PathBuf};

use hawser_core::connection::ConnectionInfo;

use crate::shared::error::AttachError;
use crate::shared::fields::{Fields, invalid};
use crate::shared::remote_fs::data::{Volume, digest};
use crate::shared::remote_fs::options::Options;

/// The port of glusterd.
const PORT: u16 = 24007;

/// A volume of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Source {
    /// Every server that may be asked, those of the export first.
    pub(super) servers: Vec<String>,
    /// The volume and the folder in it, without slashes around.
    pub(super) volume: String,
    /// As it is given to the program.
    pub(super) export: String,
    /// The options of the mount.
    pub(super) options: Options,
    /// Where the client writes what happens to it.
    pub(super) log: PathBuf,
    pub(super) port: u16,
}

impl Source {
    /// Reads `server[,server]:/volume[/folder]` and where else it may be asked for.
    pub(super) fn read(info: &ConnectionInfo, volume: &Volume) -> Result<Self, AttachError> {
        let wrong = || invalid("export", "must be server:/volume");
        let (servers, name) = split(&volume.export).ok_or_else(wrong)?;
        let mut options = volume.options.clone();
        // The program is a script: it takes words apart at blanks and patterns.
        if let Some(word) = options.words().iter().find(|word| !word.chars().all(is_plain)) {
            let word: String = word.chars().take(64).collect();
            return Err(invalid(
                "options",
                &format!(
                    "has {word:?}, which has characters that \
                                                    mount.glusterfs does not take"
                ),
            ));
        }
        let mut servers: Vec<String> = servers.split(',').map(str::to_owned).collect();
        let more = Fields::of(info)?.texts("backup_servers")?;
        let by_option = options.take(&["backup-volfile-servers", "backupvolfile-server"]);
        servers.extend(more);
        servers.extend(by_option.iter().flat_map(|list| backup_servers(list)));
        if let Some(server) = servers.iter().find(|server| !is_server(server)) {
            let server: String = server.chars().take(64).collect();
            return Err(invalid("backup_servers", &format!("has {server:?}, which is no server")));
        }
        let mut seen = Vec::new();
        servers.retain(|server| {
            !seen.contains(server) && {
                seen.push(server.clone());
                true
            }
        });
        let port = options.port("server-port")?.unwrap_or(PORT);
        let log = match options.take(&["log-file"]) {
            Some(file) if Path::new(&file).is_absolute() => PathBuf::from(file),
            Some(_) => return Err(invalid("options", "have log-file, which must be absolute")),
            None => format!("/var/log/glusterfs/hawser-{}.log", digest(&volume.export)).into(),
        };
        let (volume, export) = (name.to_owned(), volume.export.clone());
        Ok(Self { servers, volume, export, options, log, port })
    }

    /// True when a source of the mount table is this volume, from any of its servers.
    pub(super) fn is_source(&self, source: &str) -> bool {
        split(source).is_some_and(|(servers, volume)| {
            volume == self.volume
                && servers.split(',').all(|server| self.servers.iter().any(|own| own == server))
        })
    }

    /// The servers beyond those of the export, as the program takes them.
    pub(super) fn backups(&self) -> Option<String> {
        let named = split(&self.export).map_or("", |(servers, _)| servers);
        let extra: Vec<String> = self
            .servers
            .iter()
            .filter(|server| !named.split(',').any(|name| name == **server))
            .map(|server| if server.contains(':') { format!("[{server}]") } else { server.clone() })
            .collect();
        (!extra.is_empty()).then(|| extra.join(":"))
    }
}

/// Servers and volume. An IPv6 address has colons of its own, so the last one counts.
fn split(export: &str) -> Option<(&str, &str)> {
    let (servers, volume) = export.rsplit_once(':')?;
    let volume = volume.trim_matches('/');
    let legal = servers.split(',').all(is_server)
        && !volume.is_empty()
        && volume.chars().all(is_plain)
        && volume.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
    legal.then_some((servers, volume))
}

/// `a:b:[fd00::1]`, as mount.glusterfs writes it.
fn backup_servers(list: &str) -> Vec<String> {
    let mut servers = Vec::new();
    let mut rest = list;
    while !rest.is_empty() {
        let (server, after) = match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((server, after)) => (server, after.strip_prefix(':').unwrap_or(after)),
            None => rest.split_once(':').unwrap_or((rest, "")),
        };
        servers.push(server.to_owned());
        rest = after;
    }
    servers
}

fn is_server(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-:%_".contains(c);
    !text.is_empty() && !text.starts_with('-') && text.chars().all(plain)
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "._-/:%=+@[]".contains(c)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn exports_are_split_at_the_last_colon() {
        for (export, servers, volume) in [
            ("a:/vol", "a", "vol"),
            ("a:vol", "a", "vol"),
            ("a,b:/vol/sub", "a,b", "vol/sub"),
            ("fd00::1:/vol", "fd00::1", "vol"),
        ] {
            assert_eq!(split(export), Some((servers, volume)), "{export}");
        }
        for export in
            ["", "vol", "a:", "a:/", ":/vol", "a,:/vol", "a:/v$(x)", "a:/v/../w", "/etc/x"]
        {
            assert_eq!(split(export), None, "{export}");
        }
    }

    #[test]
    fn backup_servers_are_taken_apart_with_their_brackets() {
        assert_eq!(backup_servers("a:b"), ["a", "b"]);
        assert_eq!(backup_servers("a:[fd00::1]:b"), ["a", "fd00::1", "b"]);
        assert!(backup_servers("").is_empty());
    }

    proptest! {
        #[test]
        fn any_text_is_an_export_or_none(text in "\\PC{0,40}") {
            if let Some((servers, volume)) = split(&text) {
                prop_assert!(servers.split(',').all(is_server) && volume.chars().all(is_plain));
            }
            let _ = backup_servers(&text);
        }
    }
}
