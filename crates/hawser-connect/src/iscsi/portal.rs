//! Where a target listens.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// The port that IANA gave to iSCSI.
const PORT: u16 = 3260;

/// An address, or a name, and a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(super) struct Portal {
    /// An address in the one spelling that the standard library gives it, or a name in lower case.
    pub(super) address: String,
    pub(super) port: u16,
}

impl Portal {
    /// Reads `ADDRESS[:PORT][,TPGT]`, IPv6 addresses with or without brackets.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let text = text.split_once(',').map_or(text, |(portal, _)| portal);
        if let Some(rest) = text.strip_prefix('[') {
            let (address, rest) = rest.split_once(']')?;
            let port = match rest.strip_prefix(':') {
                Some(port) => parse_port(port)?,
                None if rest.is_empty() => PORT,
                None => return None,
            };
            return Self::new(address, port);
        }
        if text.parse::<IpAddr>().is_ok() {
            return Self::new(text, PORT);
        }
        match text.rsplit_once(':') {
            Some((address, port)) if !address.contains(':') => {
                Self::new(address, parse_port(port)?)
            }
            Some(_) => None,
            None => Self::new(text, PORT),
        }
    }

    /// From two files of sysfs.
    pub(super) fn of_parts(address: &str, port: &str) -> Option<Self> {
        let address = address.trim().trim_start_matches('[').trim_end_matches(']');
        Self::new(address, parse_port(port.trim())?)
    }

    fn new(address: &str, port: u16) -> Option<Self> {
        let address = match address.parse::<IpAddr>() {
            Ok(address) => address.to_canonical().to_string(),
            Err(_) => name(address)?,
        };
        Some(Self { address, port })
    }

    /// The name of its record in the node database.
    pub(super) fn file_name(&self) -> String {
        format!("{},{}", self.address, self.port)
    }
}

/// A host name, or an IPv6 address with its interface: it becomes part of file names and arguments.
fn name(text: &str) -> Option<String> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b".-_%:".contains(&byte);
    let good = (1..=255).contains(&text.len())
        && text.bytes().all(legal)
        && text.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric());
    good.then(|| text.to_ascii_lowercase())
}

fn parse_port(text: &str) -> Option<u16> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| digits && *port != 0)
}

impl fmt::Display for Portal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, port } = self;
        if address.contains(':') {
            write!(f, "[{address}]:{port}")
        } else {
            write!(f, "{address}:{port}")
        }
    }
}
