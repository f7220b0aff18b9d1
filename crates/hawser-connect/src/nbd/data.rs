//! What a ConnectionInfo says about a network block device, checked.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hawser_core::attach::Identity;
use hawser_core::connection::ConnectionInfo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::error::NbdError;
use crate::shared::digest;
use crate::shared::error::AttachError;
use crate::shared::fields::{Fields, invalid};

/// The port that IANA gave to NBD.
const PORT: u64 = 10809;

/// More connections than this bring nothing; the kernel makes a queue of each.
const MOST_CONNECTIONS: u64 = 16;

/// The longest export name of the protocol.
const LONGEST_EXPORT: usize = 4096;

/// The longest path of a Unix socket, without the closing NUL.
const LONGEST_SOCKET: usize = 107;

/// What sysfs shows is one page; a longer name of the device is told by its digest.
const LONGEST_BACKEND: usize = 1024;

/// What stays as it is in a URI.
const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Over TCP; a name or an address, without brackets.
    Tcp { host: String, port: u16 },
    /// A socket of this host.
    Unix { socket: PathBuf },
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix { socket } => write!(f, "{}", socket.display()),
        }
    }
}

/// One export of a server, and how its device is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) place: Place,
    pub(super) export: String,
    pub(super) connections: usize,
    /// How long a request may take.
    pub(super) timeout: Duration,
    /// How long a device without a connection waits for a new one.
    pub(super) dead_timeout: Duration,
    pub(super) read_only: bool,
    /// A logical block size that the caller insists on.
    pub(super) block_size: Option<u32>,
    pub(super) volume_id: Option<String>,
}

/// Reads the data, and refuses what cannot be this volume.
pub(super) fn read(info: &ConnectionInfo) -> Result<Target, NbdError> {
    let fields = Fields::of(info)?;
    let target = parse(&fields)?;
    for expected in fields.expected(info)? {
        if !target.is(&expected) {
            return Err(NbdError::OtherIdentity {
                target: target.uri(),
                expected,
                found: target.identity(),
            });
        }
    }
    Ok(target)
}

fn parse(fields: &Fields) -> Result<Target, NbdError> {
    let export = fields.need_text("export_name")?.to_owned();
    if export.len() > LONGEST_EXPORT {
        return Err(invalid("export_name", "must have at most 4096 bytes").into());
    }
    let seconds = |name, least, default| {
        fields.number(name, least..=86_400).map(|n| Duration::from_secs(n.unwrap_or(default)))
    };
    let target = Target {
        place: place(fields)?,
        export,
        connections: fields.number("connections", 1..=MOST_CONNECTIONS)?.unwrap_or(1) as usize,
        // Without a limit a request to a dead server would never end, nor would its process.
        timeout: seconds("timeout", 1, 30)?,
        dead_timeout: seconds("dead_conn_timeout", 0, 60)?,
        read_only: read_only(fields)?,
        block_size: block_size(fields)?,
        volume_id: fields.volume_id()?,
    };
    refuse_tls(fields)?;
    Ok(target)
}

fn place(fields: &Fields) -> Result<Place, AttachError> {
    let host = fields.text("host")?.map(str::trim);
    let socket = fields.text("unix_socket")?;
    let port = fields.number("port", 1..=65_535)?;
    match (host, socket) {
        (Some(_), Some(_)) => Err(invalid("host", "and unix_socket are both given: use one")),
        (None, None) => Err(invalid("host", "is missing, and so is unix_socket: give one")),
        (None, Some(socket)) => {
            let absolute = socket.starts_with('/') && socket.len() <= LONGEST_SOCKET;
            let path = Path::new(socket);
            if !absolute {
                return Err(invalid(
                    "unix_socket",
                    "must be an absolute path of at most 107 bytes",
                ));
            }
            Ok(Place::Unix { socket: path.components().collect() })
        }
        (Some(host), None) => {
            let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
            let bare = bare.unwrap_or(host).to_ascii_lowercase();
            let legal = |c: char| c.is_ascii_alphanumeric() || ".:-_%".contains(c);
            if bare.is_empty() || bare.len() > 253 || !bare.chars().all(legal) {
                return Err(invalid("host", "must be a host name or an IP address"));
            }
            let port = u16::try_from(port.unwrap_or(PORT)).unwrap_or_default();
            Ok(Place::Tcp { host: bare, port })
        }
    }
}

fn read_only(fields: &Fields) -> Result<bool, AttachError> {
    match (fields.read_only()?, fields.flag("readonly")?) {
        (Some(a), Some(b)) if a != b => Err(invalid("readonly", "and access_mode disagree")),
        (Some(read_only), _) | (None, Some(read_only)) => Ok(read_only),
        (None, None) => Ok(false),
    }
}

fn block_size(fields: &Fields) -> Result<Option<u32>, AttachError> {
    match fields.number("block_size", 512..=4096)? {
        None => Ok(None),
        Some(size) if size.is_power_of_two() => Ok(u32::try_from(size).ok()),
        Some(_) => Err(invalid("block_size", "must be 512, 1024, 2048 or 4096")),
    }
}

fn refuse_tls(fields: &Fields) -> Result<(), NbdError> {
    let Some(tls) = fields.object("tls")? else { return Ok(()) };
    match tls.text("mode")? {
        None | Some("off") => Ok(()),
        Some("require") => Err(NbdError::TlsAsked),
        Some(_) => Err(invalid("tls.mode", "must be off or require").into()),
    }
}

impl Target {
    /// The export as a URI of the NBD project: what tells exports apart.
    pub(super) fn uri(&self) -> String {
        let export = utf8_percent_encode(&self.export, KEPT);
        match &self.place {
            Place::Tcp { .. } => format!("nbd://{}/{export}", self.place),
            Place::Unix { socket } => {
                let socket = socket.to_string_lossy();
                format!("nbd+unix:///{export}?socket={}", utf8_percent_encode(&socket, KEPT))
            }
        }
    }

    /// The export and the volume it is attached for. The kernel keeps it with the device, and the
    /// device is found again by it.
    pub(super) fn backend(&self) -> String {
        let volume = self.volume_id.as_deref().unwrap_or_default();
        format!("{}#{}", shown(self.uri()), utf8_percent_encode(volume, KEPT))
    }

    /// True when a device with this backend has the same export open, for whatever volume.
    pub(super) fn shares_export(&self, backend: &str) -> bool {
        backend.split_once('#').is_some_and(|(uri, _)| uri == shown(self.uri()))
    }

    /// What the volume is called where nothing else is known: NBD servers tell no identity.
    pub(super) fn identity(&self) -> Identity {
        match &self.volume_id {
            Some(volume) => Identity::new("nbd", volume),
            None => Identity::new("nbd", self.uri()),
        }
    }

    fn is(&self, expected: &Identity) -> bool {
        *expected == self.identity() || *expected == Identity::new("nbd", self.uri())
    }

    /// The lock of the export. Two attaches of one export must not run side by side.
    pub(super) fn lock(&self) -> String {
        format!("target-{}", self.uri())
    }
}

fn shown(uri: String) -> String {
    if uri.len() <= LONGEST_BACKEND {
        return uri;
    }
    format!("nbd:digest:{}", digest::short(uri.as_bytes()))
}
