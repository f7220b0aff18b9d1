mod again;
mod cases;
mod contract;
mod data;
mod portals;
mod records;

use hawser_core::attach::{Attach, Identity, Multipath};
use hawser_core::connection::ConnectionInfo;
use hawser_testkit::contract::connector::ConnectorRig;
use hawser_testkit::fake_host::FakeHost;
use hawser_testkit::fake_host::kernel::{FindMultipaths, Lun, Target};
use hawser_testkit::sim::{iscsi, multipath};
use serde_json::{Value, json};

use super::*;

const IQN: &str = "iqn.2020-01.org.example:t1";
const NAA: &str = "6001405aaaaaaaaaaaaaaaaaaaaaaaaa";
const OTHER: &str = "6001405bbbbbbbbbbbbbbbbbbbbbbbbb";

fn info(data: Value) -> ConnectionInfo {
    let info = json!({ "driver_volume_type": "iscsi", "data": data });
    let mut info: ConnectionInfo = serde_json::from_value(info).unwrap();
    info.identity = Some(Identity::new("wwid", format!("3{NAA}")));
    info
}

/// A storage system with one target, its volume under number 1, and another one under 2.
struct Storage {
    host: FakeHost,
    target: Target,
    volume: Lun,
    other: Lun,
    portals: Vec<String>,
}

impl Storage {
    fn new(portals: usize) -> Self {
        let host = FakeHost::new();
        iscsi::install(&host);
        multipath::install(&host);
        let volume = Lun::scsi(NAA, ByteSize::mib(64));
        let other = Lun::scsi(OTHER, ByteSize::mib(32));
        let target = Target::new().with(1, &volume).with(2, &other);
        let portals: Vec<String> = (0..portals).map(|_| iscsi::listen(host.kernel())).collect();
        for portal in &portals {
            iscsi::add_portal(host.kernel(), portal, IQN, &target);
        }
        Self { host, target, volume, other, portals }
    }

    fn rig(self, data: Value) -> ConnectorRig {
        let Self { host, target, volume, other, .. } = self;
        ConnectorRig::new(&Iscsi, host, info(data), ())
            .on_swap(move |_| target.show(1, &other))
            .on_grow(move |_| {
                volume.resize(ByteSize::mib(128));
                ByteSize::mib(128)
            })
    }
}

fn one_way(portal: &str) -> Value {
    json!({ "target_portal": portal, "target_iqn": IQN, "target_lun": 1, "volume_id": "v1" })
}

fn single() -> ConnectorRig {
    let storage = Storage::new(1);
    let data = one_way(&storage.portals[0]);
    storage.rig(data)
}

fn with_chap() -> ConnectorRig {
    let storage = Storage::new(1);
    iscsi::set_chap(storage.host.kernel(), IQN, "user1", "secretsecret12");
    let mut data = one_way(&storage.portals[0]);
    data["auth_method"] = json!("CHAP");
    data["auth_username"] = json!("user1");
    data["auth_password"] = json!("secretsecret12");
    storage.rig(data)
}

fn many_ways(storage: &Storage) -> Value {
    let count = storage.portals.len();
    json!({
        "target_portals": storage.portals, "target_iqns": vec![IQN; count],
        "target_luns": vec![1; count], "volume_id": "v1",
    })
}

fn two_paths(find: FindMultipaths) -> ConnectorRig {
    let storage = Storage::new(2);
    storage.host.kernel().multipathd(find);
    let data = many_ways(&storage);
    let mut rig = storage.rig(data);
    rig.attach = Attach { multipath: Multipath::Enforced, ..Attach::default() };
    rig
}

/// One portal is given, and the target names the other one.
fn discovered() -> ConnectorRig {
    let storage = Storage::new(2);
    storage.host.kernel().multipathd(FindMultipaths::Strict);
    iscsi::set_discovery_chap(storage.host.kernel(), &storage.portals[0], "du", "dpdpdpdpdpdp");
    let mut data = one_way(&storage.portals[0]);
    data["discovery_auth_method"] = json!("CHAP");
    data["discovery_auth_username"] = json!("du");
    data["discovery_auth_password"] = json!("dpdpdpdpdpdp");
    let mut rig = storage.rig(data);
    rig.attach = Attach { multipath: Multipath::Wanted, ..Attach::default() };
    rig
}
