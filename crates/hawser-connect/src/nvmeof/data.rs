//! What a ConnectionInfo says about an NVMe volume, in any of the shapes it has had.

use hawser_core::attach::Identity;
use hawser_core::connection::ConnectionInfo;
use hawser_core::error::Error;
use serde_json::{Map, Value};

use super::ids::{Wanted, hex64, hex128};
use super::options::Options;
use super::portal::{Portal, Transport};
use crate::shared::data::Number;
use crate::shared::error::AttachError;
use crate::shared::fields::{Fields, invalid};
use crate::shared::nvme_host;

/// More would be no multipath but a mistake.
const MOST_PORTALS: usize = 64;

/// More legs than this no mirror has.
const MOST_LEGS: usize = 8;

/// An NVMe volume.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "one is made for each call")]
pub(super) enum Volume {
    /// One namespace.
    One(Target),
    /// Several namespaces that mirror each other.
    Mirror(Mirror),
}

/// A volume that is mirrored over several namespaces by `md`.
#[derive(Clone, Debug)]
pub(super) struct Mirror {
    pub(super) legs: Vec<Target>,
}

/// One namespace: where it is, and what it must be.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// The subsystem.
    pub(super) nqn: String,
    pub(super) portals: Vec<Portal>,
    pub(super) wanted: Wanted,
    /// The caller wants a device that refuses writes.
    pub(super) read_only: bool,
    pub(super) options: Options,
}

/// Reads the data, whatever its shape.
pub(super) fn read(info: &ConnectionInfo) -> Result<Volume, AttachError> {
    let fields = Fields::of(info)?;
    let raw = raw(info)?;
    let legs = match raw.get("volume_replicas").filter(|value| !value.is_null()) {
        None => Vec::new(),
        Some(Value::Array(legs)) if legs.len() <= MOST_LEGS => legs.clone(),
        Some(_) => return Err(invalid("volume_replicas", "must be a list of at most 8")),
    };
    let count = fields.number("replica_count", 0..=MOST_LEGS as u64)?;
    let count = count.map_or(legs.len(), |count| count as usize);
    if legs.is_empty() {
        return Ok(Volume::One(target(info, &fields, &raw, info.identity.as_ref())?));
    }
    if legs.len() != count.max(1) {
        return Err(invalid("volume_replicas", "must have as many entries as replica_count says"));
    }
    let named = if legs.len() == 1 { info.identity.as_ref() } else { None };
    let legs = legs.into_iter().map(|leg| self::leg(info, &raw, leg, named));
    let mut legs = legs.collect::<Result<Vec<_>, _>>()?;
    if legs.len() == 1 {
        return Ok(Volume::One(legs.remove(0)));
    }
    let alias = fields.need_text("alias")?.to_owned();
    if !is_alias(&alias) {
        return Err(invalid("alias", "must have 1 to 32 letters, digits, `-`, `_` or `.`"));
    }
    Ok(Volume::Mirror(Mirror { legs }))
}

/// The fields by their canonical names.
fn raw(info: &ConnectionInfo) -> Result<Map<String, Value>, AttachError> {
    info.parse().map_err(|error| AttachError::Invalid { why: Error::from(error).sentence() })
}

/// One leg is a volume of its own; what it does not say, the whole says.
fn leg(
    info: &ConnectionInfo,
    whole: &Map<String, Value>,
    leg: Value,
    named: Option<&Identity>,
) -> Result<Target, AttachError> {
    let Value::Object(leg) = leg else {
        return Err(invalid("volume_replicas", "must be a list of objects"));
    };
    let of_legs =
        ["volume_replicas", "replica_count", "alias", "vol_uuid", "volume_nguid", "ns_id"];
    let mut data = raw(&ConnectionInfo::new(info.protocol.clone(), leg, None))?;
    for (key, value) in whole {
        if !of_legs.contains(&key.as_str()) && !data.contains_key(key) {
            data.insert(key.clone(), value.clone());
        }
    }
    let one = ConnectionInfo { data: data.clone(), identity: named.cloned(), ..info.clone() };
    target(&one, &Fields::of(&one)?, &data, named)
}

fn target(
    info: &ConnectionInfo,
    fields: &Fields,
    raw: &Map<String, Value>,
    named: Option<&Identity>,
) -> Result<Target, AttachError> {
    let nqn = fields.need_text("target_nqn")?.trim().to_owned();
    if !nvme_host::is_nqn(&nqn) {
        return Err(invalid("target_nqn", "must be an NVMe qualified name (nqn.…) without commas"));
    }
    Ok(Target {
        nqn,
        portals: portals(fields, raw)?,
        wanted: wanted(fields, named)?,
        read_only: fields.read_only()?.unwrap_or(false),
        options: Options::read(fields, raw, &info.secrets)?,
    })
}

/// Every id of the data must fit, and what the caller calls it too.
fn wanted(fields: &Fields, named: Option<&Identity>) -> Result<Wanted, AttachError> {
    let mut ids = Vec::new();
    for (field, scheme) in
        [("vol_uuid", "uuid"), ("volume_nguid", "nguid"), ("volume_eui", "eui"), ("wwn", "wwid")]
    {
        let Some(text) = fields.text(field)?.map(str::trim).filter(|text| !text.is_empty()) else {
            continue;
        };
        let legal = match scheme {
            "uuid" | "nguid" => hex128(text).is_some(),
            "eui" => hex64(text).or(hex128(text).map(|_| 1)).is_some(),
            _ => true,
        };
        if !legal {
            return Err(invalid(field, "must be an id in hexadecimal digits, and not zero"));
        }
        ids.push(Identity::new(scheme, text));
    }
    let number = fields.number("ns_id", 1..=0xffff_fffe)?;
    let number = number.and_then(|number| u32::try_from(number).ok());
    Wanted::new(ids, number, named.cloned()).ok_or_else(|| {
        let why = "vol_uuid, volume_nguid or volume_eui is missing: a namespace is not guessed";
        AttachError::Invalid { why: why.into() }
    })
}

fn portals(fields: &Fields, raw: &Map<String, Value>) -> Result<Vec<Portal>, AttachError> {
    let from = fields.text("host_traddr")?;
    let interface = fields.text("host_iface")?;
    let transport = fields.text("transport_type")?;
    let shape = || invalid("portals", "must be a list of [address, port, transport]");
    let mut portals: Vec<Portal> = Vec::new();
    let list = match raw.get("portals").filter(|value| !value.is_null()) {
        None => Vec::new(),
        Some(Value::Array(list)) if list.len() <= MOST_PORTALS => list.clone(),
        Some(_) => return Err(shape()),
    };
    for entry in &list {
        let (address, port, word, own) = match entry {
            Value::Array(parts) if (1..=3).contains(&parts.len()) => {
                (parts.first(), parts.get(1), parts.get(2), None)
            }
            Value::Object(parts) => {
                let any = |names: &[&str]| names.iter().find_map(|name| parts.get(*name));
                let own = any(&["host_traddr", "hostTraddr"]);
                (
                    any(&["address", "traddr", "target_portal", "targetPortal"]),
                    any(&["port", "trsvcid", "target_port", "targetPort"]),
                    any(&["transport", "trtype", "transport_type", "transportType"]),
                    own,
                )
            }
            Value::Array(_)
            | Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_) => return Err(shape()),
        };
        let text = |value: Option<&Value>| match value {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(shape()),
        };
        let word = text(word)?.or(transport.map(str::to_owned));
        let own = text(own)?;
        let from = own.as_deref().or(from);
        portals.push(portal(text(address)?.as_deref(), port, word.as_deref(), from, interface)?);
    }
    if portals.is_empty() {
        let (address, port) = (fields.text("target_portal")?, raw.get("target_port"));
        if address.is_none() && transport != Some("loop") {
            return Err(invalid("portals", "is missing, and so is target_portal"));
        }
        portals.push(portal(address, port, transport, from, interface)?);
    }
    let mut unique: Vec<Portal> = Vec::new();
    for portal in portals {
        if !unique.contains(&portal) {
            unique.push(portal);
        }
    }
    Ok(unique)
}

fn portal(
    address: Option<&str>,
    port: Option<&Value>,
    transport: Option<&str>,
    from: Option<&str>,
    interface: Option<&str>,
) -> Result<Portal, AttachError> {
    let transport = Transport::parse(transport.unwrap_or("tcp"))?;
    let given = match port {
        // Fibre Channel has no ports, and storage systems fill the place with all kinds of things.
        None | Some(Value::Null) => None,
        Some(_) if matches!(transport, Transport::Fc | Transport::Loop) => None,
        Some(value) => Some(value),
    };
    let service = match given {
        None => None,
        Some(value) => {
            let number = serde_json::from_value::<Number>(value.clone()).ok();
            let port = number.and_then(|n| u16::try_from(n.0).ok()).filter(|port| *port != 0);
            Some(port.ok_or_else(|| invalid("target_port", "must be a number from 1 to 65535"))?)
        }
    };
    let (address, service) = match (address, service) {
        (Some(text), None) if matches!(transport, Transport::Tcp | Transport::Rdma) => {
            split_port(text)
        }
        (address, service) => (address, service),
    };
    Portal::new(transport, address, service, from, interface)
}

/// `10.0.0.1:4420` and `[fd00::1]:4420`; an address of version 6 alone has colons of its own.
fn split_port(text: &str) -> (Option<&str>, Option<u16>) {
    let alone = (Some(text), None);
    let Some((address, port)) = text.rsplit_once(':') else { return alone };
    if address.contains(':') && !address.ends_with(']') {
        return alone;
    }
    match port.parse::<u16>() {
        Ok(port) if port != 0 => (Some(address), Some(port)),
        Ok(_) | Err(_) => alone,
    }
}

fn is_alias(text: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (1..=32).contains(&text.len()) && text.chars().all(legal) && !text.starts_with(['-', '.'])
}
