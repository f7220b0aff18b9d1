#![doc = include_str!("manual.md")]

mod aoe;
mod disco;
mod drbd;
mod error;
mod fibre_channel;
mod glusterfs;
mod gpfs;
mod hgst;
mod huawei_sds;
mod iscsi;
mod layers;
mod library;
mod local;
mod nbd;
mod nfs;
pub mod node;
mod nvmeof;
mod properties;
mod quobyte;
mod rbd;
mod record_file;
mod registry;
mod scaleio;
mod scality;
mod shared;
mod smb;
mod vzstorage;

use hawser_core::connection::Protocol;
use hawser_core::port::Connector;

pub use hawser_host::HostSettings;
pub use library::open;
pub use local::Local;
pub use registry::FileRegistry;
use shared::remote_fs::Remote;
use shared::vendor::Vendor;

/// Every connector that is built in.
pub static CONNECTORS: &[&dyn Connector] = &[
    &Vendor(disco::Disco),
    &Vendor(hgst::Hgst),
    &Vendor(huawei_sds::HuaweiSds),
    &local::Local,
    &aoe::Aoe,
    &drbd::Drbd,
    &fibre_channel::FibreChannel,
    &iscsi::Iscsi,
    &nbd::Nbd,
    &nvmeof::Nvmeof,
    &rbd::Rbd,
    &scaleio::Scaleio,
    &Remote(nfs::Nfs),
    &Remote(smb::Smb),
    &Remote(glusterfs::Glusterfs),
    &Remote(quobyte::Quobyte),
    &Remote(scality::Scality),
    &Remote(vzstorage::Vzstorage),
    &gpfs::Gpfs,
];

/// The connector that answers to a protocol.
pub fn find(protocol: &Protocol) -> Option<&'static dyn Connector> {
    CONNECTORS
        .iter()
        .find(|connector| connector.info().protocols.contains(&protocol.as_str()))
        .copied()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_protocol_has_one_connector_and_its_canonical_name() {
        let mut seen = BTreeSet::new();

        for name in CONNECTORS.iter().flat_map(|connector| connector.info().protocols) {
            assert_eq!(Protocol::new(name).as_str(), *name, "not the canonical spelling");
            assert!(seen.insert(name), "{name} has two connectors");
            assert!(find(&Protocol::new(name)).is_some());
        }
    }

    #[test]
    fn a_connector_is_found_by_any_spelling_and_unknown_ones_are_not() {
        assert!(find(&Protocol::new(" local ")).is_some());
        assert!(find(&Protocol::new("carrier-pigeon")).is_none());
    }
}
