//! A cluster, its servers, and how it is mounted.

use std::path::PathBuf;

use hawser_core::connection::ConnectionInfo;
use hawser_core::secret::Secret;

use crate::shared::error::AttachError;
use crate::shared::fields::{Fields, invalid};
use crate::shared::remote_fs::data::Volume;

/// A cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cluster {
    pub(super) name: String,
    pub(super) servers: Vec<String>,
    pub(super) password: Option<Secret>,
    /// Flags of the mount program.
    pub(super) flags: Vec<String>,
}

impl Cluster {
    /// Reads `[MDS1[,MDS2]:/]CLUSTER` and the flags.
    pub(super) fn read(info: &ConnectionInfo, volume: &Volume) -> Result<Self, AttachError> {
        let (servers, name) = split(&volume.export)?;
        let flags = flags(Fields::of(info)?.text("options")?.unwrap_or_default())?;
        let password = info.secrets.get("password").cloned();
        Ok(Self { name: name.into(), servers, password, flags })
    }

    /// Where the client looks for the cluster's servers.
    pub(super) fn folder(&self) -> PathBuf {
        PathBuf::from("/etc/pstorage/clusters").join(&self.name)
    }
}

fn split(export: &str) -> Result<(Vec<String>, &str), AttachError> {
    let wrong = |why: &str| Err(invalid("export", why));
    let (servers, name) = match export.rfind(":/") {
        Some(at) => (export[..at].split(',').map(str::to_owned).collect(), &export[at + 2..]),
        None => (Vec::new(), export),
    };
    if name.contains(':') {
        return wrong("must not carry the password here: give it as password");
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    if name.is_empty() || name.starts_with('-') || !name.chars().all(plain) {
        return wrong("must be [MDS1[,MDS2]:/]CLUSTER");
    }
    let server = |c: char| c.is_ascii_alphanumeric() || ".-:[]_".contains(c);
    if servers.iter().any(|text: &String| text.is_empty() || !text.chars().all(server)) {
        return wrong("has servers that are none");
    }
    Ok((servers, name))
}

/// `-u USER -g GROUP -m MODE`, and nothing that names files.
fn flags(text: &str) -> Result<Vec<String>, AttachError> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    for pair in words.chunks(2) {
        match pair {
            ["-u" | "-g" | "-m", value] if value.chars().all(plain) => {}
            _ => return Err(invalid("options", "may have -u USER, -g GROUP and -m MODE only")),
        }
    }
    Ok(words.into_iter().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn servers_and_cluster_are_told_apart() {
        let servers = |export| split(export).unwrap().0;
        assert_eq!(split("mds1,mds2:2510:/c1").unwrap().1, "c1");
        assert_eq!(servers("mds1,mds2:2510:/c1"), ["mds1", "mds2:2510"]);
        assert!(servers("c1").is_empty());
        for export in ["", "c1:secret", "mds:/", "a b:/c", "mds:/c/d", ",:/c", "-c", "m$:/c"] {
            assert!(split(export).is_err(), "{export}");
        }
    }

    #[test]
    fn only_flags_of_owner_group_and_mode_are_taken() {
        assert_eq!(flags("-u stack -g qemu -m 0770").unwrap().len(), 6);
        for text in ["-u", "-l /etc/passwd", "-u /x", "-o ro", "stack"] {
            assert!(flags(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_cluster_or_refused(text in "\\PC{0,40}") {
            let _ = (split(&text), flags(&text));
        }
    }
}
