//! NVMEOF: a namespace of an NVMe subsystem, over TCP, RDMA, Fibre Channel or the kernel's loop.
//!
//! Controllers are made through `/dev/nvme-fabrics` and deleted through sysfs; nvme-cli is not
//! needed. A namespace is found by UUID, NGUID or EUI64, and the target itself is asked whether it
//! is the one (Identify, CNS 3) before it is handed out, grown or flushed: the kernel's copy of the
//! ids is old as soon as the target gives the namespace's number to another volume. A bare `ns_id`
//! is taken where nothing better is given: what the target has under that number now is held to its
//! ids from then on, and a namespace without ids is refused. Nothing is ever guessed.
//!
//! Several portals become one device by the kernel's native multipath. Controllers are made with
//! `ctrl_loss_tmo=-1`: with the kernel's default of 600 s a long outage takes the device away with
//! all that was not written.
//!
//! What we made stands in a note per subsystem (see [`book`]): controllers of others are used and
//! never deleted; ours go when no volume claims them and nobody uses another of their namespaces.
//!
//! Data, in snake or camel case, are those of os-brick 7 `connectors/nvmeof.py` in all the shapes
//! they have had: `{"target_nqn", "portals": [[address, port, transport], …], "vol_uuid" |
//! "volume_nguid" | "ns_id"}`, `{"nqn", "target_portal", "target_port", "transport_type", …}`,
//! and `volume_replicas`. Beside those: transports `fc` (addresses `nn-0x…:pn-0x…`) and `loop`,
//! `volume_eui`, `host_nqn`, `host_id`, `host_traddr`, `host_iface`, `dhchap_secret`,
//! `dhchap_ctrl_secret`, `hdr_digest`, `data_digest`, `nr_io_queues`, `queue_size`,
//! `ctrl_loss_tmo`, `reconnect_delay`, `keep_alive_tmo`, `fast_io_fail_tmo`.
//!
//! Needs the modules nvme_fabrics and nvme_tcp, nvme_rdma, nvme_fc or nvme_loop. Written against
//! Linux 6.12, and what 6.1 does differently.

mod book;
mod connect;
mod data;
mod device;
mod disconnect;
mod fabrics;
mod find;
mod ids;
mod options;
mod portal;
mod reach;
mod refusal;
mod release;
mod sight;
mod sysfs;
#[cfg(test)]
mod tests;
mod view;

use async_trait::async_trait;
use hawser_core::attach::{Attach, AttachRecord, Attached, Detach, Health};
use hawser_core::connection::ConnectionInfo;
use hawser_core::error::{Error, Result};
use hawser_core::port::connector::{
    Abilities, ConnectorInfo, Maturity, Need, PathsBy, Platform, Proof, Proofs,
};
use hawser_core::port::{Connector, Host};
use hawser_core::{ByteSize, Change, Kind, Reason};

use data::{Mirror, Target, Volume};

/// NVMe over Fabrics; keeps nothing.
pub(crate) struct Nvmeof;

static INFO: ConnectorInfo = ConnectorInfo {
    protocols: &["NVMEOF"],
    maturity: Maturity::Stable,
    note: "TCP, RDMA, Fibre Channel and loop through /dev/nvme-fabrics, without nvme-cli; native \
           multipath with ANA, dm-multipath where that is off; DH-HMAC-CHAP; os-brick has it on x86 \
           only, nothing in the protocol asks for that. Reservations are not proven: the kernel's \
           target has them since 6.13 only. Mirrors over several namespaces (volume_replicas with \
           two entries or more, which os-brick assembles with mdadm) and TLS are refused by name",
    platforms: &[Platform::All],
    abilities: Abilities {
        extend: true,
        multipath: Some(PathsBy::NativeOrDeviceMapper),
        encryption: true,
        reservation: true,
    },
    proofs: Proofs::of(Proof::Kernel("vm_nvme_tcp")).encryption(Proof::Kernel("vm_nvme_tcp")),
    own: &[],
    needs: &[
        Need::Root,
        Need::Module("nvme_core"),
        Need::Module("nvme_fabrics"),
        Need::Module("nvme_tcp"),
    ],
};

fn one(volume: Volume) -> Result<Target> {
    match volume {
        Volume::One(target) => Ok(target),
        Volume::Mirror(Mirror { legs, .. }) => {
            let count = legs.len();
            let message =
                format!("a volume that is mirrored over {count} namespaces is not supported");
            Err(Error::new(Kind::Unsupported, message)
                .with_reason(Some(Reason::UnsupportedProtocol)))
        }
    }
}

#[async_trait]
impl Connector for Nvmeof {
    fn info(&self) -> &'static ConnectorInfo {
        &INFO
    }

    async fn connect(
        &self,
        host: &dyn Host,
        info: &ConnectionInfo,
        attach: &Attach,
    ) -> Result<Change<Attached>> {
        connect::connect(host, &one(data::read(info)?)?, attach).await
    }

    async fn disconnect(
        &self,
        host: &dyn Host,
        record: &AttachRecord,
        detach: &Detach,
    ) -> Result<Change<()>> {
        disconnect::disconnect(host, &one(data::read(&record.info)?)?, record, detach).await
    }

    async fn extend(&self, host: &dyn Host, record: &AttachRecord) -> Result<ByteSize> {
        view::extend(host, &one(data::read(&record.info)?)?).await
    }

    async fn lookup(&self, host: &dyn Host, info: &ConnectionInfo) -> Result<Option<Attached>> {
        view::lookup(host, &one(data::read(info)?)?).await
    }

    async fn health(&self, host: &dyn Host, record: &AttachRecord) -> Result<Health> {
        view::health(host, &one(data::read(&record.info)?)?, record.attach.multipath).await
    }
}
