//! SCALEIO: volumes of ScaleIO, now PowerFlex, through the client (SDC) that the vendor has for Linux.
//!
//! Data, as os-brick 7 `scaleio.py` has them in all their shapes: `scaleIO_volname`,
//! `scaleIO_volume_id`, and either
//!
//! - `sdc_guid`: whoever gave the info has mapped the volume to the client of this host, and its disk
//!   is only waited for; at a detach it is written out, and stays until it is unmapped;
//! - or `serverIP`, `serverPort`, `serverUsername`: the volume is mapped here, through the REST
//!   gateway. The password is `serverPassword`, or stands in
//!   `/opt/emc/scaleio/openstack/connector.conf` under `config_group` (the one for the other side
//!   with `failed_over`). `iopsLimit` and `bandwidthLimit` are set where they are given. The
//!   gateway's certificate is checked against `certificate_path`, or against the certificates of
//!   this host; only `verify_certificate: false` leaves that out.
//!
//! The client is asked through `/dev/scini` for its GUID, and to look for new sizes. A disk is found
//! by its link `/dev/disk/by-id/emc-vol-MDM-VOLUME`, which must lead to a disk of the client.
//!
//! What was mapped stands in a note below the run folder, which only root can read: it holds the
//! password where that came with the connection info, because a detach has to log in again.
//!
//! Needs the vendor's SDC (module scini). Proven against a simulator of gateway and client.

mod answer;
mod config;
mod connect;
mod data;
mod disconnect;
mod gateway;
mod note;
mod sdc;
#[cfg(test)]
mod tests;
mod tls;
mod view;
mod wire;

use async_trait::async_trait;
use hawser_core::attach::{Attach, AttachRecord, Attached, Detach, Health};
use hawser_core::connection::ConnectionInfo;
use hawser_core::error::Result;
use hawser_core::port::connector::{
    Abilities, ConnectorInfo, Maturity, Need, Platform, Proof, Proofs,
};
use hawser_core::port::{Connector, Host};
use hawser_core::{ByteSize, Change};

/// ScaleIO; keeps nothing but tokens that the gateway gave out.
pub(crate) struct Scaleio;

static INFO: ConnectorInfo = ConnectorInfo {
    protocols: &["SCALEIO"],
    maturity: Maturity::Preview,
    note: "PowerFlex too, by its REST gateway or mapped by the caller (sdc_guid); the vendor's client \
           and gateway cannot be had, so it is proven against a simulator of both",
    platforms: &[Platform::X86],
    abilities: Abilities { extend: true, multipath: None, encryption: true, reservation: false },
    proofs: Proofs::of(Proof::Simulator),
    own: &[],
    needs: &[
        Need::Root,
        Need::Module("scini"),
        Need::File { path: sdc::DEVICE, from: "the vendor's client, package EMC-ScaleIO-sdc" },
    ],
};

#[async_trait]
impl Connector for Scaleio {
    fn info(&self) -> &'static ConnectorInfo {
        &INFO
    }

    async fn connect(
        &self,
        host: &dyn Host,
        info: &ConnectionInfo,
        attach: &Attach,
    ) -> Result<Change<Attached>> {
        connect::connect(host, &data::read(info)?, attach).await
    }

    async fn disconnect(
        &self,
        host: &dyn Host,
        record: &AttachRecord,
        detach: &Detach,
    ) -> Result<Change<()>> {
        disconnect::disconnect(host, &data::of_record(record)?, detach).await
    }

    async fn extend(&self, host: &dyn Host, record: &AttachRecord) -> Result<ByteSize> {
        view::extend(host, &data::of_record(record)?).await
    }

    async fn lookup(&self, host: &dyn Host, info: &ConnectionInfo) -> Result<Option<Attached>> {
        view::lookup(host, &data::read(info)?).await
    }

    async fn health(&self, host: &dyn Host, record: &AttachRecord) -> Result<Health> {
        view::health(host, &data::of_record(record)?, record.attached.as_ref()).await
    }
}

/// The GUID of this host's client, for the connector properties; `None` without a client.
pub(crate) async fn own_guid(host: &dyn Host) -> Option<String> {
    let there = host.files().resolve(sdc::DEVICE.as_ref()).is_ok_and(|found| found.is_some());
    if there { sdc::guid(host).await.ok() } else { None }
}
