//! Where a driver listens: the address forms that are seen in the wild.

use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use super::error::{CsiError, cut};

/// The path of a Unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint(PathBuf);

/// `sun_path` has 108 bytes, the last of which is NUL.
const LONGEST: usize = 107;

impl Endpoint {
    /// The path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl FromStr for Endpoint {
    type Err = CsiError;

    /// Reads `unix:///csi/csi.sock`, `unix:/csi/csi.sock`, `unix://csi/csi.sock`, which means the
    /// same, and a bare absolute path. `Kind::Invalid` for everything else: there is no TCP.
    fn from_str(text: &str) -> Result<Self, CsiError> {
        let refuse = |why| CsiError::Endpoint { endpoint: cut(text), why };
        let path = match text.strip_prefix("unix:") {
            Some(rest) => match rest.strip_prefix("//") {
                Some(rest) if rest.starts_with('/') => rest.to_owned(),
                Some(rest) => format!("/{rest}"),
                None => rest.to_owned(),
            },
            None if text.contains("://") => return Err(refuse("only Unix sockets are served")),
            None => text.to_owned(),
        };
        if !path.starts_with('/') {
            return Err(refuse("give an absolute path"));
        }
        if path.len() > LONGEST {
            return Err(refuse("the kernel allows at most 107 bytes"));
        }
        if path.bytes().any(|byte| byte.is_ascii_control()) {
            return Err(refuse("it has control characters"));
        }
        let path = PathBuf::from(path);
        let plain = |part| matches!(part, Component::RootDir | Component::Normal(_));
        if path.file_name().is_none() || !path.components().all(plain) {
            return Err(refuse("give the path of a file, without .."));
        }
        Ok(Self(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_in_use_names_the_same_socket() {
        for text in
            ["unix:///csi/csi.sock", "unix:/csi/csi.sock", "unix://csi/csi.sock", "/csi/csi.sock"]
        {
            let endpoint: Endpoint = text.parse().unwrap();
            assert_eq!(endpoint.path(), Path::new("/csi/csi.sock"), "{text}");
        }
    }

    /// CVE-2021-36779: a driver that anybody in the cluster can call over TCP.
    #[test]
    fn only_the_path_of_a_socket_is_an_endpoint() {
        let long = format!("/{}", "x".repeat(107));
        for text in [
            "",
            "/",
            "unix://",
            "csi.sock",
            "tcp://0.0.0.0:10000",
            "unix:///csi/../etc/csi.sock",
            "/csi/\n.sock",
            &long,
        ] {
            assert!(text.parse::<Endpoint>().is_err(), "{text:?}");
        }
    }
}
