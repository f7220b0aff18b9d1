//! What a connection info says about an iSCSI volume, checked.

use std::fmt;

use hawser_core::attach::Identity;
use hawser_core::connection::ConnectionInfo;
use hawser_core::secret::Secret;
use serde::{Deserialize, Serialize};

use super::portal::Portal;
use crate::shared::digest;
use crate::shared::error::AttachError;
use crate::shared::fields::{Fields, invalid};
use crate::shared::scsi::Addressing;

/// More ways to one volume than any storage system has.
const MOST_TARGETS: usize = 64;

/// The largest number of a volume: 14 bits of a flat address, with the bits that say so.
const LARGEST_LUN: u64 = 0xffff;

/// What carries the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Transport {
    /// TCP, by the kernel or by an adapter that says it is TCP.
    Tcp,
    /// RDMA.
    Iser,
}

/// One way to one volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Target {
    pub(super) portal: Portal,
    pub(super) iqn: String,
    /// As the kernel counts.
    pub(super) lun: u64,
    pub(super) transport: Transport,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.iqn, self.portal)
    }
}

/// A volume, without its secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Volume {
    /// The ways that were given; at least one.
    pub(super) targets: Vec<Target>,
    /// One way was given, and there may be more: the target knows.
    pub(super) discover: bool,
    /// The record of an interface to use, as `iscsiadm -I` takes it.
    pub(super) iface: String,
    pub(super) transport: Transport,
    pub(super) read_only: bool,
    /// What the device must be.
    pub(super) expected: Vec<Identity>,
    /// Tells it from other volumes, in names of notes and locks.
    pub(super) key: String,
}

/// Reads the data.
pub(super) fn read(info: &ConnectionInfo) -> Result<Volume, AttachError> {
    let fields = Fields::of(info)?;
    let transport = match info.protocol.as_str() {
        "ISER" => Transport::Iser,
        _ => Transport::Tcp,
    };
    let (targets, discover) = targets(&fields, transport)?;
    let key = match fields.volume_id()? {
        Some(id) => id,
        None => {
            let way = |target: &Target| format!("{target} {}", target.lun);
            targets.iter().map(way).collect::<Vec<_>>().join("\n")
        }
    };
    Ok(Volume {
        discover,
        iface: iface(&fields, transport)?,
        transport,
        read_only: fields.read_only()?.unwrap_or(false),
        expected: fields.expected(info)?,
        key: digest::short(key.as_bytes()),
        targets,
    })
}

fn targets(fields: &Fields, transport: Transport) -> Result<(Vec<Target>, bool), AttachError> {
    let plural = (fields.texts("target_portals")?, fields.texts("target_iqns")?);
    let single = (fields.texts("target_portal")?, fields.texts("target_iqn")?);
    // Several portals of one target come with one name.
    let (portals, iqns) = match plural {
        (portals, iqns) if !portals.is_empty() && !iqns.is_empty() => (portals, iqns),
        (portals, _) if !portals.is_empty() && !single.1.is_empty() => (portals, single.1),
        (_, iqns) if !iqns.is_empty() && !single.0.is_empty() => (single.0, iqns),
        _ => single,
    };
    if portals.is_empty() {
        return Err(invalid("target_portal", "is missing"));
    }
    if iqns.is_empty() {
        return Err(invalid("target_iqn", "is missing"));
    }
    let count = portals.len().max(iqns.len());
    if count > MOST_TARGETS {
        return Err(invalid("target_portals", "names more than 64 ways to one volume"));
    }
    let iqns = spread("target_iqns", iqns, count)?;
    let portals = spread("target_portals", portals, count)?;
    let luns = luns(fields, count)?;
    let mut targets = Vec::new();
    for ((portal, iqn), lun) in portals.iter().zip(iqns).zip(luns) {
        let why = "must be an address or a name, with a port where it is not 3260";
        let portal = Portal::parse(portal).ok_or_else(|| invalid("target_portal", why))?;
        let target = Target { portal, iqn: check_iqn(iqn)?, lun, transport };
        if !targets.contains(&target) {
            targets.push(target);
        }
    }
    Ok((targets, count == 1))
}

/// One for all, or one for each.
fn spread(name: &str, list: Vec<String>, count: usize) -> Result<Vec<String>, AttachError> {
    match list.len() {
        length if length == count => Ok(list),
        1 => Ok(vec![list[0].clone(); count]),
        length => {
            let why = format!("has {length} entries, and the volume has {count} ways");
            Err(invalid(name, &why))
        }
    }
}

fn luns(fields: &Fields, count: usize) -> Result<Vec<u64>, AttachError> {
    let mode = Addressing::of(fields)?;
    let plural = fields.numbers("target_luns", 0..=LARGEST_LUN)?;
    let given = match plural.is_empty() {
        true => fields.numbers("target_lun", 0..=LARGEST_LUN)?,
        false => plural,
    };
    let luns = match given.len() {
        0 => vec![0; count],
        1 => vec![given[0]; count],
        length if length == count => given,
        length => {
            let why = format!("has {length} entries, and the volume has {count} ways");
            return Err(invalid("target_luns", &why));
        }
    };
    Ok(luns.into_iter().map(|lun| mode.lun(lun)).collect())
}

/// A name of a target becomes a folder and an argument: nothing but what RFC 3722 leaves of ASCII.
fn check_iqn(iqn: String) -> Result<String, AttachError> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b".:-_".contains(&byte);
    let kind = ["iqn.", "eui.", "naa."]
        .iter()
        .any(|kind| iqn.get(..4).is_some_and(|start| start.eq_ignore_ascii_case(kind)));
    if !kind || iqn.len() > 223 || !iqn.bytes().all(legal) {
        return Err(invalid(
            "target_iqn",
            "must begin with iqn., eui. or naa. and have at most 223 letters, digits and .:-_",
        ));
    }
    Ok(iqn)
}

fn iface(fields: &Fields, transport: Transport) -> Result<String, AttachError> {
    let given = fields.text("iscsi_iface")?.or(fields.text("transport")?);
    let name = match (given, transport) {
        (None | Some("" | "default" | "tcp"), Transport::Tcp) => "default",
        (None | Some("" | "default" | "iser"), Transport::Iser) => "iser",
        (Some(name), _) => name,
    };
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b".:-_".contains(&byte);
    if name.len() > 64 || !name.bytes().all(legal) || name.starts_with(['.', '-']) {
        return Err(invalid("iscsi_iface", "must be the name of an interface record"));
    }
    Ok(name.to_owned())
}

/// Who this host says it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chap {
    pub(super) username: String,
    pub(super) password: Secret,
    /// Who the target must prove to be.
    pub(super) target: Option<(String, Secret)>,
    /// Digests in the order of preference.
    pub(super) algorithms: Option<String>,
}

/// The credentials of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Credentials {
    pub(super) session: Option<Chap>,
    pub(super) discovery: Option<Chap>,
}

/// Reads the credentials; the secrets are no part of the data any more.
pub(super) fn credentials(info: &ConnectionInfo) -> Result<Credentials, AttachError> {
    let fields = Fields::of(info)?;
    Ok(Credentials {
        session: chap(info, &fields, "auth", "session_secrets")?,
        discovery: chap(info, &fields, "discovery_auth", "discovery_secrets")?,
    })
}

fn chap(
    info: &ConnectionInfo,
    fields: &Fields,
    prefix: &str,
    object: &str,
) -> Result<Option<Chap>, AttachError> {
    let name = |field: &str| format!("{prefix}_{field}");
    let method = fields.text(&name("method"))?.unwrap_or_default();
    if !["", "none", "chap"].iter().any(|known| method.eq_ignore_ascii_case(known)) {
        return Err(invalid(&name("method"), "must be CHAP or None"));
    }
    // As csi-lib-iscsi nests them; the passwords were split off when the info was read.
    let nested = fields.object(object)?;
    let user = |field: &str, inner: [&str; 2]| -> Result<Option<String>, AttachError> {
        let mut given = fields.text(&name(field))?;
        for spelling in inner {
            if let (None, Some(nested)) = (given, &nested) {
                given = nested.text(spelling)?;
            }
        }
        Ok(given.filter(|user| !user.is_empty()).map(str::to_owned))
    };
    let username = user("username", ["user_name", "userName"])?;
    let Some(username) = username.filter(|_| !method.eq_ignore_ascii_case("none")) else {
        return match method.eq_ignore_ascii_case("chap") {
            true => Err(invalid(&name("username"), "is missing, and the method is CHAP")),
            false => Ok(None),
        };
    };
    let secret = |field: &str| -> Result<Option<Secret>, AttachError> {
        let name = name(field);
        info.secrets.get(&name).map(|secret| check_secret(&name, secret)).transpose()
    };
    let password = secret("password")?;
    let password = password.ok_or_else(|| invalid(&name("password"), "is missing"))?;
    let target =
        match (user("username_in", ["user_name_in", "userNameIn"])?, secret("password_in")?) {
            (Some(user), Some(secret)) => Some((check_user(&name("username_in"), user)?, secret)),
            (None, None) => None,
            (Some(_), None) => return Err(invalid(&name("password_in"), "is missing")),
            (None, Some(_)) => return Err(invalid(&name("username_in"), "is missing")),
        };
    let algorithms = fields.text("auth_algs")?.map(check_algorithms).transpose()?;
    let username = check_user(&name("username"), username)?;
    Ok(Some(Chap { username, password, target, algorithms }))
}

/// What stands on one line of a record: iscsiadm cuts blanks off its ends, and takes `<empty>` for
/// nothing.
fn fits_a_line(text: &str) -> bool {
    (1..=255).contains(&text.len())
        && text.trim() == text
        && text != "<empty>"
        && !text.chars().any(char::is_control)
}

fn check_user(name: &str, user: String) -> Result<String, AttachError> {
    match fits_a_line(&user) {
        true => Ok(user),
        false => Err(invalid(name, "must have 1 to 255 bytes and no blank at its ends")),
    }
}

fn check_secret(name: &str, secret: &Secret) -> Result<Secret, AttachError> {
    match fits_a_line(secret.expose()) {
        true => Ok(secret.clone()),
        false => Err(invalid(
            name,
            "must have 1 to 255 bytes, no control characters and no blank at its ends",
        )),
    }
}

fn check_algorithms(text: &str) -> Result<String, AttachError> {
    let known = |name: &str| {
        let known = ["MD5", "SHA1", "SHA256", "SHA3-256"].into_iter();
        known.into_iter().find(|known| known.eq_ignore_ascii_case(name.trim()))
    };
    let names: Option<Vec<&str>> = text.split(',').map(known).collect();
    match names {
        Some(names) => Ok(names.join(",")),
        None => Err(invalid("auth_algs", "must be a list of MD5, SHA1, SHA256 and SHA3-256")),
    }
}
