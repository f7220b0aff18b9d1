mod cases;
mod contract;
mod data;
mod machines;

use hawser_core::attach::{Attach, Identity, Multipath};
use hawser_core::connection::ConnectionInfo;
use hawser_testkit::contract::connector::ConnectorRig;
use hawser_testkit::fake_host::FakeHost;
use hawser_testkit::fake_host::kernel::{FindMultipaths, Lun, Target};
use hawser_testkit::sim::{fc, multipath};
use serde_json::{Value, json};

use super::*;

const NAA: &str = "6001405aaaaaaaaaaaaaaaaaaaaaaaaa";
const OTHER: &str = "6001405bbbbbbbbbbbbbbbbbbbbbbbbb";
/// Our ports.
const OURS: [&str; 2] = ["2100001b32000001", "2100001b32000002"];
/// Theirs: the first is seen by the first of ours, the second by the second.
const THEIRS: [&str; 2] = ["500a0980000000a1", "500a0980000000b1"];

fn info(data: Value) -> ConnectionInfo {
    let info = json!({ "driver_volume_type": "fibre_channel", "data": data });
    let mut info: ConnectionInfo = serde_json::from_value(info).unwrap();
    info.identity = Some(Identity::new("wwid", format!("3{NAA}")));
    info
}

/// A storage system with the volume under number 1 and another under 2, both at every port.
struct Storage {
    host: FakeHost,
    target: Target,
    volume: Lun,
    other: Lun,
}

impl Storage {
    fn new() -> Self {
        let host = FakeHost::new();
        fc::install(host.kernel());
        multipath::install(&host);
        let volume = Lun::scsi(NAA, ByteSize::mib(64));
        let other = Lun::scsi(OTHER, ByteSize::mib(32));
        let target = Target::new().with(1, &volume).with(2, &other);
        Self { host, target, volume, other }
    }

    /// With this many adapters on PCI, each in a fabric of its own.
    fn with_fabrics(count: usize) -> Self {
        let storage = Self::new();
        for (number, (ours, theirs)) in (3..).zip(OURS.iter().zip(THEIRS)).take(count) {
            fc::add_adapter(storage.host.kernel(), number, ours);
            fc::add_remote_port(storage.host.kernel(), number, theirs, &storage.target);
        }
        storage
    }

    fn rig(self, data: Value) -> ConnectorRig {
        let Self { host, target, volume, other } = self;
        ConnectorRig::new(&FibreChannel, host, info(data), ())
            .on_swap(move |_| target.show(1, &other))
            .on_grow(move |_| {
                volume.resize(ByteSize::mib(128));
                ByteSize::mib(128)
            })
    }
}

fn one_port() -> Value {
    json!({ "target_wwn": [THEIRS[0]], "target_lun": 1, "volume_id": "v1" })
}

fn both_ports() -> Value {
    json!({ "target_wwns": THEIRS, "target_luns": [1, 1], "volume_id": "v1" })
}

fn single() -> ConnectorRig {
    Storage::with_fabrics(1).rig(one_port())
}

fn two_paths() -> ConnectorRig {
    let storage = Storage::with_fabrics(2);
    storage.host.kernel().multipathd(FindMultipaths::Strict);
    let mut rig = storage.rig(both_ports());
    rig.attach = Attach { multipath: Multipath::Enforced, ..Attach::default() };
    rig
}

/// An IBM Z whose port is a virtual one and scans, or a port that wants volumes to be named.
fn s390x(npiv: bool) -> ConnectorRig {
    let storage = Storage::new();
    storage.host.set_machine("s390x");
    fc::add_ccw_adapter(storage.host.kernel(), 0, "c05076ffe5005611", "0.0.1940");
    if npiv {
        fc::set_npiv(storage.host.kernel(), 0, true);
    }
    fc::add_remote_port(storage.host.kernel(), 0, THEIRS[0], &storage.target);
    storage.rig(one_port())
}

/// A logical partition with a virtual adapter.
fn ppc64() -> ConnectorRig {
    let storage = Storage::new();
    storage.host.set_machine("ppc64le");
    fc::add_vio_adapter(storage.host.kernel(), 1, "c0507601d8120000");
    fc::add_remote_port(storage.host.kernel(), 1, THEIRS[0], &storage.target);
    storage.rig(one_port())
}

/// The devices of the SCSI layer.
fn devices(host: &FakeHost) -> Vec<String> {
    host.files().list("/sys/class/scsi_device".as_ref()).unwrap()
}
