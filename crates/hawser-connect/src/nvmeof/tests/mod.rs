//! What the connector does on a fake kernel.

mod cases;
mod data;
mod library;

use hawser_core::attach::{Attach, AttachRecord, Attached, Detach, Identity, Multipath};
use hawser_core::connection::ConnectionInfo;
use hawser_core::error::Result;
use hawser_core::{ByteSize, Change};
use hawser_testkit::contract::connector::ConnectorRig;
use hawser_testkit::fake_host::FakeHost;
use hawser_testkit::fake_host::kernel::{FindMultipaths, Lun, Target};
use hawser_testkit::sim::{multipath, nvme};
use serde_json::{Value, json};

use super::Nvmeof;

pub(super) const NQN: &str = "nqn.2020-01.org.example:s1";
pub(super) const UUID: &str = "0b9d5a10-1111-4222-8333-444455556666";
pub(super) const OTHER: &str = "0b9d5a10-1111-4222-8333-444455557777";
pub(super) const A: &str = "10.0.0.1:4420";
pub(super) const B: &str = "10.0.0.2:4420";

/// A host, a subsystem with one namespace at two portals, and the namespace.
pub(super) struct Lab {
    pub(super) host: FakeHost,
    pub(super) target: Target,
    pub(super) lun: Lun,
}

pub(super) fn lab() -> Lab {
    lab_with(true)
}

pub(super) fn lab_with(native: bool) -> Lab {
    let host = FakeHost::new();
    nvme::install(host.kernel(), native);
    let lun = nvme::namespace(UUID, ByteSize::mib(64));
    let target = Target::new().with(1, &lun);
    nvme::add_subsystem(host.kernel(), NQN, &target, &[A, B]);
    Lab { host, target, lun }
}

pub(super) fn data() -> Value {
    json!({
        "target_nqn": NQN, "vol_uuid": UUID,
        "portals": [["10.0.0.1", 4420, "tcp"], ["10.0.0.2", "4420", "tcp"]],
    })
}

pub(super) fn info(data: Value) -> ConnectionInfo {
    serde_json::from_value(json!({ "driver_volume_type": "nvmeof", "data": data })).unwrap()
}

pub(super) fn record(info: &ConnectionInfo) -> AttachRecord {
    ConnectorRig::new(&Nvmeof, FakeHost::new(), info.clone(), ()).intent()
}

pub(super) fn all_paths() -> Attach {
    Attach { multipath: Multipath::Wanted, ..Attach::default() }
}

impl Lab {
    pub(super) async fn connect(&self, data: Value) -> Result<Change<Attached>> {
        use hawser_core::port::Connector;
        Nvmeof.connect(&self.host, &info(data), &all_paths()).await
    }

    pub(super) async fn disconnect(&self, data: Value, detach: &Detach) -> Result<Change<()>> {
        use hawser_core::port::Connector;
        Nvmeof.disconnect(&self.host, &record(&info(data)), detach).await
    }

    pub(super) fn controllers(&self) -> Vec<String> {
        self.host.kernel().edit(|tree| tree.list("/sys/class/nvme"))
    }
}

fn rig_over(Lab { host, target, lun }: Lab, attach: Attach) -> ConnectorRig {
    let identity = json!({ "scheme": "uuid", "value": UUID });
    let mut data = data();
    data["ns_id"] = json!(1);
    let info = json!({ "driver_volume_type": "nvmeof", "data": data, "identity": identity });
    let mut rig = ConnectorRig::new(&Nvmeof, host, serde_json::from_value(info).unwrap(), ())
        .on_swap(move |_| target.show(1, &nvme::namespace(OTHER, ByteSize::mib(64))))
        .on_grow(move |_| {
            lun.resize(ByteSize::mib(128));
            ByteSize::mib(128)
        });
    rig.attach = attach;
    rig
}

/// One way.
fn rig() -> ConnectorRig {
    rig_over(lab(), Attach::default())
}

/// Every way, by the kernel's native multipath.
fn multipath_rig() -> ConnectorRig {
    rig_over(lab(), all_paths())
}

/// Every way, by device mapper.
fn map_rig() -> ConnectorRig {
    let lab = lab_with(false);
    multipath::install(&lab.host);
    lab.host.kernel().multipathd(FindMultipaths::Strict);
    rig_over(lab, all_paths())
}

hawser_testkit::connector_contract!(rig());
hawser_testkit::connector_contract!(multipath_contract, multipath_rig());
hawser_testkit::connector_contract!(map_contract, map_rig());
