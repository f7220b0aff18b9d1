//! An export, and the versions in which it is asked for.

use hawser_core::port::host::MountEntry;

use crate::shared::error::AttachError;
use crate::shared::fields::invalid;
use crate::shared::remote_fs::data::Volume;
use crate::shared::remote_fs::options::Options;
use crate::shared::remote_fs::server::bare;

/// The port of NFS.
const PORT: u16 = 2049;

/// One version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    V4(u8),
    V3,
}

/// All versions, as they are tried.
const NEWEST_FIRST: [Version; 4] = [Version::V4(2), Version::V4(1), Version::V4(0), Version::V3];

/// A folder of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Export {
    /// The server as it was written, IPv6 in brackets.
    pub(super) server: String,
    /// The folder.
    pub(super) path: String,
    /// The versions to try, in this order.
    pub(super) versions: Vec<Version>,
    /// The options of the mount without those that say the version.
    pub(super) options: Options,
    /// Where the server listens.
    pub(super) port: u16,
}

impl Export {
    /// Reads `server:/path` and the version from the options.
    pub(super) fn read(volume: &Volume) -> Result<Self, AttachError> {
        let wrong = || invalid("export", "must be server:/path, an IPv6 address in brackets");
        let (server, path) = split(&volume.export).ok_or_else(wrong)?;
        let mut options = volume.options.clone();
        let versions = versions(&mut options)?;
        let port = options.port("port")?.unwrap_or(PORT);
        Ok(Self { server: server.into(), path: path.into(), versions, options, port })
    }

    /// `server:/path`, as it is given to the kernel.
    pub(super) fn source(&self) -> String {
        format!("{}:{}", self.server, self.path)
    }

    /// The kernel's own spelling of a source, against this one.
    pub(super) fn compare(&self, entry: &MountEntry) -> Compared {
        let Some((server, path)) = split(&entry.source) else { return Compared::Other };
        if trimmed(path) != trimmed(&self.path) {
            return Compared::Other;
        }
        if bare(server).eq_ignore_ascii_case(bare(&self.server)) {
            Compared::SameName
        } else {
            Compared::OtherName
        }
    }
}

/// What two sources have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compared {
    /// Server and path by name.
    SameName,
    /// Only the path: the server may have two names.
    OtherName,
    /// Nothing that matters.
    Other,
}

fn split(export: &str) -> Option<(&str, &str)> {
    let at = match export.strip_prefix('[') {
        Some(rest) => rest.find(']')? + 2,
        None => export.find(':')?,
    };
    let (server, path) = (export.get(..at)?, export.get(at..)?.strip_prefix(':')?);
    let odd = |c: char| "/[],".contains(c) || c.is_whitespace();
    let legal = !bare(server).is_empty() && !bare(server).contains(odd);
    (legal && path.starts_with('/')).then_some((server, path))
}

fn trimmed(path: &str) -> &str {
    match path.trim_end_matches('/') {
        "" => "/",
        path => path,
    }
}

/// Takes the version out of the options; all versions when they say none.
fn versions(options: &mut Options) -> Result<Vec<Version>, AttachError> {
    let unknown = |text: &str| {
        let text: String = text.chars().take(16).collect();
        Err(invalid("options", &format!("ask for version {text:?}; 3, 4, 4.0, 4.1 and 4.2 exist")))
    };
    let short: Vec<String> = options
        .words()
        .into_iter()
        .filter(|word| word.starts_with('v') && word.chars().nth(1).is_some_and(|c| c.is_numeric()))
        .collect();
    let minor = options.take(&["minorversion"]);
    let mut asked = options.take(&["vers", "nfsvers"]);
    for word in short {
        options.take_flag(&[&word]);
        asked = Some(word[1..].to_owned());
    }
    match (asked.as_deref(), minor.as_deref()) {
        (None, None) => Ok(NEWEST_FIRST.to_vec()),
        (Some("3"), None) => Ok(vec![Version::V3]),
        (Some("4"), None) => Ok(NEWEST_FIRST[..3].to_vec()),
        (Some("4.0"), None) | (Some("4") | None, Some("0")) => Ok(vec![Version::V4(0)]),
        (Some("4.1"), None) | (Some("4") | None, Some("1")) => Ok(vec![Version::V4(1)]),
        (Some("4.2"), None) | (Some("4") | None, Some("2")) => Ok(vec![Version::V4(2)]),
        (Some(text), _) | (None, Some(text)) => unknown(text),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn asked(options: &str) -> Result<Vec<Version>, AttachError> {
        versions(&mut Options::parse(options).unwrap())
    }

    #[test]
    fn exports_are_split_at_their_server() {
        for (export, server, path) in [
            ("nas:/exports/vol", "nas", "/exports/vol"),
            ("10.0.0.1:/", "10.0.0.1", "/"),
            ("[fd00::1]:/a:b", "[fd00::1]", "/a:b"),
            ("[fe80::1%eth0]:/a", "[fe80::1%eth0]", "/a"),
            ("nas:/all vols", "nas", "/all vols"),
        ] {
            assert_eq!(split(export), Some((server, path)));
        }
        for export in [
            "",
            "nas",
            "nas:",
            "nas:x",
            ":/x",
            "fd00::1:/x",
            "[fd00::1:/x",
            "[]:/x",
            "a,b:/x",
            "a b:/x",
        ] {
            assert_eq!(split(export), None, "{export}");
        }
    }

    #[test]
    fn every_way_to_ask_for_a_version_is_understood() {
        use Version::{V3, V4};
        for (options, versions) in [
            ("", NEWEST_FIRST.to_vec()),
            ("-o vers=3", vec![V3]),
            ("-o nfsvers=4.1", vec![V4(1)]),
            ("-o vers=4,minorversion=2", vec![V4(2)]),
            ("-o minorversion=1", vec![V4(1)]),
            ("-o vers=4", vec![V4(2), V4(1), V4(0)]),
            ("-o v4.0", vec![V4(0)]),
            ("-o v3,hard", vec![V3]),
        ] {
            assert_eq!(asked(options).unwrap(), versions, "{options}");
        }
        for options in ["-o vers=2", "-o vers=4.3", "-o vers=3,minorversion=1", "-o vers", "-o v9"]
        {
            if options != "-o vers" {
                assert!(asked(options).is_err(), "{options}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_text_is_an_export_or_none(text in "\\PC{0,40}") {
            if let Some((server, path)) = split(&text) {
                prop_assert_eq!(format!("{server}:{path}"), text.as_str());
            }
            if let Ok(mut options) = Options::parse(&text) {
                let _ = versions(&mut options);
            }
        }
    }
}
