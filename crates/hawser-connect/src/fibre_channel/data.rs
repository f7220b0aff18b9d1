//! What a connection info says about a Fibre Channel volume, checked.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use hawser_core::attach::Identity;
use hawser_core::connection::ConnectionInfo;
use hawser_core::port::connector::Platform;

use super::lun::Lun;
use crate::shared::digest;
use crate::shared::error::AttachError;
use crate::shared::fields::{Fields, invalid};
use crate::shared::scsi::Addressing;

/// More ports than any storage system shows one volume on.
const MOST_PORTS: usize = 64;

/// The name of a port, world-wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Wwn(pub(super) u64);

impl fmt::Display for Wwn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A text that is no name of a port.
#[derive(Debug)]
pub(super) struct NoWwn;

impl FromStr for Wwn {
    type Err = NoWwn;

    /// 16 hexadecimal digits in any case, with `0x` before them, or with colons between the bytes.
    fn from_str(text: &str) -> Result<Self, NoWwn> {
        let text = text.trim();
        let bare = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text);
        let digits: String = match bare.contains(':') {
            false => bare.to_owned(),
            true if bare.split(':').all(|byte| byte.len() == 2) => bare.replace(':', ""),
            true => return Err(NoWwn),
        };
        let legal = digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        match u64::from_str_radix(&digits, 16) {
            Ok(number) if legal && number != 0 => Ok(Self(number)),
            Ok(_) | Err(_) => Err(NoWwn),
        }
    }
}

/// A port of the storage system, and the number under which it shows the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Port {
    pub(super) wwpn: Wwn,
    pub(super) lun: Lun,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Volume {
    /// Where it is shown; at least one.
    pub(super) ports: Vec<Port>,
    /// Which of our ports may use which of theirs, where the storage system said so.
    pub(super) zones: Option<BTreeMap<Wwn, Vec<Port>>>,
    /// Where no port is known, its number may be looked for at all of them.
    pub(super) wildcard: bool,
    pub(super) read_only: bool,
    /// What the device must be.
    pub(super) expected: Vec<Identity>,
    /// Tells it from other volumes, in the names of locks.
    pub(super) key: String,
}

impl Volume {
    /// The ports that one of our own may use.
    pub(super) fn ports_for(&self, ours: Wwn) -> &[Port] {
        match &self.zones {
            None => &self.ports,
            Some(zones) => zones.get(&ours).map(Vec::as_slice).unwrap_or_default(),
        }
    }
}

/// Reads the data; numbers of volumes are read as this platform writes them.
pub(super) fn read(info: &ConnectionInfo, platform: Platform) -> Result<Volume, AttachError> {
    let fields = Fields::of(info)?;
    let ports = ports(&fields, platform)?;
    let key = match fields.volume_id()? {
        Some(id) => id,
        None => {
            let way = |port: &Port| format!("{} {}", port.wwpn, port.lun);
            ports.iter().map(way).collect::<Vec<_>>().join("\n")
        }
    };
    Ok(Volume {
        zones: zones(&fields, &ports, platform)?,
        wildcard: fields.flag("enable_wildcard_scan")?.unwrap_or(true),
        read_only: fields.read_only()?.unwrap_or(false),
        expected: fields.expected(info)?,
        key: digest::short(key.as_bytes()),
        ports,
    })
}

fn wwn(field: &str, text: &str) -> Result<Wwn, AttachError> {
    text.parse().map_err(|_| invalid(field, "must have 16 hexadecimal digits in each name"))
}

/// The plural fields win over the single ones, each for itself.
fn ports(fields: &Fields, platform: Platform) -> Result<Vec<Port>, AttachError> {
    let (mut field, mut wwns) = ("target_wwns", fields.texts("target_wwns")?);
    if wwns.is_empty() {
        (field, wwns) = ("target_wwn", fields.texts("target_wwn")?);
    }
    if wwns.is_empty() {
        return Err(invalid("target_wwns", "is missing"));
    }
    if wwns.len() > MOST_PORTS {
        return Err(invalid(field, "names more than 64 ports for one volume"));
    }
    let mode = Addressing::of(fields)?;
    let mut numbers = fields.numbers("target_luns", 0..=Lun::LARGEST)?;
    if numbers.is_empty() {
        numbers = fields.numbers("target_lun", 0..=Lun::LARGEST)?;
    }
    let numbers = match numbers.len() {
        0 => return Err(invalid("target_lun", "is missing")),
        1 => vec![numbers[0]; wwns.len()],
        length if length == wwns.len() => numbers,
        length => {
            let why = format!("has {length} entries, and {field} has {}", wwns.len());
            return Err(invalid("target_luns", &why));
        }
    };
    let mut ports: Vec<Port> = Vec::new();
    for (text, number) in wwns.iter().zip(numbers) {
        let lun = Lun::of(number, mode, platform).map_err(|why| invalid("target_lun", why))?;
        let port = Port { wwpn: wwn(field, text)?, lun };
        if ports.iter().any(|other| other.wwpn == port.wwpn && other.lun != port.lun) {
            return Err(invalid(field, "names one port twice, with different numbers"));
        }
        if !ports.contains(&port) {
            ports.push(port);
        }
    }
    Ok(ports)
}

/// Reads `initiator_target_lun_map`, which os-brick adds, or `initiator_target_map`. Ports that are
/// not among those of the volume are left out.
fn zones(
    fields: &Fields,
    ports: &[Port],
    platform: Platform,
) -> Result<Option<BTreeMap<Wwn, Vec<Port>>>, AttachError> {
    const WITH_LUNS: &str = "initiator_target_lun_map";
    const PLAIN: &str = "initiator_target_map";
    let (field, map) = match fields.object(WITH_LUNS)? {
        Some(map) if map.names().next().is_some() => (WITH_LUNS, map),
        Some(_) | None => match fields.object(PLAIN)? {
            Some(map) if map.names().next().is_some() => (PLAIN, map),
            Some(_) | None => return Ok(None),
        },
    };
    let mode = Addressing::of(fields)?;
    let mut zones = BTreeMap::new();
    for name in map.names() {
        let ours = wwn(field, name)?;
        let theirs = match field {
            WITH_LUNS => {
                let pairs = map.pairs(name).map_err(|_| {
                    invalid(field, "must give each port a list of pairs of a name and a number")
                })?;
                let mut theirs = Vec::new();
                for (text, number) in pairs {
                    let lun = Lun::of(number, mode, platform).map_err(|why| invalid(field, why))?;
                    theirs.push((wwn(field, &text)?, Some(lun)));
                }
                theirs
            }
            _ => {
                let texts = map
                    .texts(name)
                    .map_err(|_| invalid(field, "must give each port a list of names"))?;
                let mut theirs = Vec::new();
                for text in texts {
                    theirs.push((wwn(field, &text)?, None));
                }
                theirs
            }
        };
        let mut known = Vec::new();
        for (wwpn, lun) in theirs {
            match ports.iter().find(|port| port.wwpn == wwpn) {
                Some(port) => known.push(Port { wwpn, lun: lun.unwrap_or(port.lun) }),
                None => tracing::warn!(%wwpn, "{field} names a port that is not the volume's"),
            }
        }
        zones.insert(ours, known);
    }
    Ok(Some(zones))
}
