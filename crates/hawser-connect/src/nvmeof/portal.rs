//! Where a subsystem is reached: transport, address and, where it matters, from which address.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::shared::error::AttachError;
use crate::shared::fields::invalid;

/// The port that IANA gave NVMe over TCP and RDMA.
const SERVICE: u16 = 4420;

/// How commands travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Transport {
    Tcp,
    Rdma,
    Fc,
    Loop,
}

impl Transport {
    /// By the words that storage systems use. An unknown one is refused: a guess of `tcp` would
    /// send a Fibre Channel volume over the network.
    pub(super) fn parse(word: &str) -> Result<Self, AttachError> {
        match word.trim().to_ascii_lowercase().as_str() {
            "tcp" => Ok(Self::Tcp),
            "rdma" | "roce" | "rocev2" | "iwarp" | "infiniband" | "ib" => Ok(Self::Rdma),
            "fc" | "fibre_channel" | "fibre-channel" => Ok(Self::Fc),
            "loop" => Ok(Self::Loop),
            _ => Err(invalid("transport_type", "must be tcp, rdma (or RoCEv2), fc or loop")),
        }
    }

    /// The kernel's word.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Rdma => "rdma",
            Self::Fc => "fc",
            Self::Loop => "loop",
        }
    }

    /// The module that speaks it.
    pub(super) fn module(self) -> &'static str {
        match self {
            Self::Tcp => "nvme_tcp",
            Self::Rdma => "nvme_rdma",
            Self::Fc => "nvme_fc",
            Self::Loop => "nvme_loop",
        }
    }
}

/// One way to a subsystem, checked: nothing in it can be taken for an option of the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Portal {
    pub(super) transport: Transport,
    /// `traddr`; only loop has none.
    pub(super) address: Option<String>,
    /// `trsvcid`, for TCP and RDMA.
    pub(super) service: Option<u16>,
    /// `host_traddr`: from which address, or from which Fibre Channel port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) from: Option<String>,
    /// `host_iface`: over which network interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) interface: Option<String>,
}

impl Portal {
    /// Checks every part.
    pub(super) fn new(
        transport: Transport,
        address: Option<&str>,
        service: Option<u16>,
        from: Option<&str>,
        interface: Option<&str>,
    ) -> Result<Self, AttachError> {
        let address = address.map(str::trim).filter(|text| !text.is_empty());
        let from = from.map(str::trim).filter(|text| !text.is_empty());
        let interface = interface.map(str::trim).filter(|text| !text.is_empty());
        if interface.is_some_and(|name| !is_interface(name)) {
            return Err(invalid("host_iface", "must be the name of a network interface"));
        }
        let address = match transport {
            Transport::Loop => address.filter(|text| !text.contains([',', '\n'])).map(Into::into),
            Transport::Tcp | Transport::Rdma => Some(ip_text(address, "the portal's address")?),
            Transport::Fc => Some(fc_text(address, "the portal's address")?),
        };
        let from = match (transport, from) {
            (_, None) | (Transport::Loop, _) => None,
            (Transport::Tcp | Transport::Rdma, from) => Some(ip_text(from, "host_traddr")?),
            (Transport::Fc, from) => Some(fc_text(from, "host_traddr")?),
        };
        let service = match transport {
            Transport::Tcp | Transport::Rdma => Some(service.unwrap_or(SERVICE)),
            Transport::Fc | Transport::Loop => None,
        };
        let interface = interface.filter(|_| transport == Transport::Tcp).map(Into::into);
        Ok(Self { transport, address, service, from, interface })
    }

    /// The same from another Fibre Channel port of this host.
    #[must_use]
    pub(super) fn leaving_from(&self, from: String) -> Self {
        Self { from: Some(from), ..self.clone() }
    }

    /// True when a controller with this address, as sysfs tells it, is on this way.
    pub(super) fn leads_to(&self, transport: &str, address: &str) -> bool {
        if transport != self.transport.as_str() {
            return false;
        }
        let told = |key: &str| told(address, key);
        let same_service = match (self.service, told("trsvcid")) {
            (Some(service), Some(text)) => text.trim() == service.to_string(),
            (None, _) => true,
            (Some(_), None) => false,
        };
        // A way that does not say where it begins is any way there.
        let same_from = self
            .from
            .as_deref()
            .is_none_or(|from| told("host_traddr").is_some_and(|other| same_address(from, other)));
        let same_interface =
            self.interface.as_deref().is_none_or(|name| told("host_iface") == Some(name));
        let same_target = match (self.address.as_deref(), told("traddr")) {
            (Some(own), Some(other)) => same_address(own, other),
            (None, None) => true,
            (None, Some(_)) => self.transport == Transport::Loop,
            (Some(_), None) => false,
        };
        same_service && same_from && same_interface && same_target
    }
}

impl std::fmt::Display for Portal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let address = self.address.as_deref().unwrap_or("this host");
        match (self.service, address.contains(':')) {
            (Some(service), true) => write!(f, "[{address}]:{service}")?,
            (Some(service), false) => write!(f, "{address}:{service}")?,
            (None, _) => f.write_str(address)?,
        }
        write!(f, " ({}", self.transport.as_str())?;
        if let Some(from) = &self.from {
            write!(f, " from {from}")?;
        }
        f.write_str(")")
    }
}

/// A value of `traddr=10.0.0.1,trsvcid=4420,src_addr=10.0.0.9`. Kernels add keys as they grow.
fn told<'a>(address: &'a str, key: &str) -> Option<&'a str> {
    let pairs = address.trim().split(',').filter_map(|pair| pair.split_once('='));
    pairs.filter(|(name, _)| name.trim() == key).map(|(_, value)| value.trim()).next()
}

/// Addresses have many spellings.
fn same_address(a: &str, b: &str) -> bool {
    match (ip(a), ip(b)) {
        (Some(a), Some(b)) => a == b,
        (None, None) => match (fc(a), fc(b)) {
            (Some(a), Some(b)) => a == b,
            (None, None) => a == b,
            (Some(_), None) | (None, Some(_)) => false,
        },
        (Some(_), None) | (None, Some(_)) => false,
    }
}

/// An address, without brackets; a zone of a link-local one counts.
fn ip(text: &str) -> Option<(IpAddr, Option<&str>)> {
    let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
    let (address, zone) = match bare.split_once('%') {
        Some((address, zone)) => (address, Some(zone)),
        None => (bare, None),
    };
    let address: IpAddr = address.parse().ok()?;
    Some((address.to_canonical(), zone))
}

fn ip_text(text: Option<&str>, field: &str) -> Result<String, AttachError> {
    let text = text.ok_or_else(|| invalid(field, "is missing"))?;
    let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
    match ip(bare) {
        Some((_, None)) => Ok(bare.to_owned()),
        Some((_, Some(zone))) if is_interface(zone) => Ok(bare.to_owned()),
        Some(_) | None => Err(invalid(field, "must be an IP address")),
    }
}

/// `nn-0x20000025b5000001:pn-0x20000025b5000002`, with or without `0x`: node and port name.
fn fc(text: &str) -> Option<(u64, u64)> {
    let (node, port) = text.trim().split_once(':')?;
    let name = |text: &str, prefix: &str| {
        let digits = text.strip_prefix(prefix)?;
        let digits = digits.strip_prefix("0x").unwrap_or(digits);
        let legal = digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        if legal { u64::from_str_radix(digits, 16).ok().filter(|name| *name != 0) } else { None }
    };
    Some((name(node, "nn-")?, name(port, "pn-")?))
}

/// The one spelling that every kernel reads.
fn fc_text(text: Option<&str>, field: &str) -> Result<String, AttachError> {
    let text = text.ok_or_else(|| invalid(field, "is missing"))?;
    let (node, port) = fc(&text.to_ascii_lowercase())
        .ok_or_else(|| invalid(field, "must be nn-0xNODENAME:pn-0xPORTNAME for fc"))?;
    Ok(fc_address(node, port))
}

/// A Fibre Channel address of NVMe.
pub(super) fn fc_address(node: u64, port: u64) -> String {
    format!("nn-0x{node:016x}:pn-0x{port:016x}")
}

fn is_interface(name: &str) -> bool {
    let legal = |c: char| c.is_ascii_graphic() && !matches!(c, ',' | '/' | '%');
    (1..=15).contains(&name.len()) && name.chars().all(legal)
}

#[cfg(test)]
hawser_testkit::fuzz_corpus!(corpus, "nvme_address", |bytes| {
    let text = String::from_utf8_lossy(bytes);
    for key in ["traddr", "trsvcid", "host_traddr", "src_addr"] {
        if let Some(value) = told(&text, key) {
            assert!(same_address(value, value), "{value:?}");
        }
    }
});
