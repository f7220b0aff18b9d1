//! Where the monitors of a cluster listen, and which of their two protocols the kernel speaks.

use std::net::{IpAddr, SocketAddr};

use crate::shared::error::AttachError;
use crate::shared::fields::{Fields, invalid};

/// Where monitors listen for the first messenger, unless they are told otherwise.
const PORT: u16 = 6789;

/// Where they listen for the second one.
const PORT_V2: u16 = 3300;

/// What the kernel calls the ways to speak to a monitor, the first messenger first.
const MODES: [&str; 5] = ["legacy", "crc", "secure", "prefer-crc", "prefer-secure"];

/// The monitors of one cluster.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Monitors {
    /// All that were given, as `address:port`, IPv6 in brackets.
    pub(super) given: Vec<String>,
    /// Those that the kernel is told: it speaks one messenger to all of them.
    pub(super) used: Vec<String>,
    /// How it speaks to them; nothing where its own default is right.
    pub(super) mode: Option<&'static str>,
}

#[derive(Clone, Copy)]
struct Monitor {
    address: SocketAddr,
    second: bool,
}

/// `mon_addrs`, or `hosts` with their `ports`; and `ms_mode`.
pub(super) fn read(fields: &Fields) -> Result<Monitors, AttachError> {
    let all = addresses(fields)?;
    let mode = match fields.text("ms_mode")? {
        None => None,
        Some(wanted) => {
            let known = MODES.into_iter().find(|mode| *mode == wanted);
            Some(
                known
                    .ok_or_else(|| invalid("ms_mode", &format!("must be {}", MODES.join(", "))))?,
            )
        }
    };
    let second = match mode {
        Some(mode) => mode != "legacy",
        None => all.iter().all(|monitor| monitor.second),
    };
    let text = |monitor: &Monitor| monitor.address.to_string();
    let given: Vec<String> = all.iter().map(text).collect();
    let fit: Vec<String> = all.iter().filter(|m| m.second == second).map(text).collect();
    // Where none has the usual port of the messenger that was asked for, their ports are unusual.
    let used = if fit.is_empty() { given.clone() } else { fit };
    Ok(Monitors { given, used, mode: mode.or(second.then_some("prefer-crc")) })
}

fn addresses(fields: &Fields) -> Result<Vec<Monitor>, AttachError> {
    let given = fields.texts("mon_addrs")?;
    // A monitor with two addresses is written as `[v2:a:3300/0,v1:a:6789/0]`.
    let lists = |text: &String| text.split(',').map(str::to_owned).collect::<Vec<_>>();
    let given: Vec<String> = given.iter().flat_map(lists).collect();
    if !given.is_empty() {
        return given.iter().map(|text| address("mon_addrs", text, None)).collect();
    }
    let hosts = fields.texts("hosts")?;
    let ports = fields.numbers("ports", 1..=65535)?;
    if hosts.is_empty() {
        return Err(invalid("hosts", "must name a monitor"));
    }
    if !ports.is_empty() && ports.len() != hosts.len() {
        return Err(invalid("ports", "must be as many as hosts"));
    }
    let port = |index: usize| ports.get(index).and_then(|port| u16::try_from(*port).ok());
    hosts.iter().enumerate().map(|(i, host)| address("hosts", host, port(i))).collect()
}

/// The kernel resolves no names here: an address, with or without a port.
fn address(field: &str, text: &str, port: Option<u16>) -> Result<Monitor, AttachError> {
    let text = text.trim();
    // The brackets around a list of addresses, which an address of IPv6 has in pairs.
    let text = text.strip_prefix("[v").map_or(text, |_| &text[1..]);
    let open = |text: &str| text.matches('[').count() < text.matches(']').count();
    let text = text.strip_suffix(']').filter(|_| open(text)).unwrap_or(text);
    let text = text.split_once('/').map_or(text, |(address, _)| address);
    let (version, text) = match text.split_once(':') {
        Some(("v1", rest)) => (Some(false), rest),
        Some(("v2", rest)) => (Some(true), rest),
        Some(_) | None => (None, text),
    };
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    let usual = if version == Some(true) { PORT_V2 } else { PORT };
    let address = match (bare.parse::<IpAddr>(), text.parse::<SocketAddr>()) {
        (Ok(address), _) => SocketAddr::new(address, port.unwrap_or(usual)),
        (Err(_), Ok(address)) => address,
        (Err(_), Err(_)) => {
            return Err(invalid(field, "must be IP addresses, with or without a port"));
        }
    };
    Ok(Monitor { address, second: version.unwrap_or(address.port() == PORT_V2) })
}
