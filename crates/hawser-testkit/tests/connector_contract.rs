//! The contract of connectors can be kept, over one path and over several; and each rule fails when
//! it is broken.

mod sample;

use hawser_core::ByteSize;
use hawser_core::attach::{Attach, Identity, Multipath};
use hawser_core::connection::{ConnectionInfo, Protocol};
use hawser_testkit::contract::connector::ConnectorRig;
use hawser_testkit::fake_host::FakeHost;
use hawser_testkit::fake_host::kernel::{FindMultipaths, Lun, Target};
use hawser_testkit::sim::fc;
use sample::Sample;
use serde_json::json;

const NAA: &str = "6001405aaaaaaaaaaaaaaaaaaaaaaaaa";
const OTHER: &str = "6001405bbbbbbbbbbbbbbbbbbbbbbbbb";

fn rig(multipath: Multipath, find: Option<FindMultipaths>) -> ConnectorRig {
    let host = FakeHost::new();
    let (volume, other) = (Lun::scsi(NAA, ByteSize::mib(8)), Lun::scsi(OTHER, ByteSize::mib(8)));
    let target = Target::new().with(1, &volume).with(2, &other);
    fc::install(host.kernel());
    for (adapter, ours, theirs) in
        [(3, "2100001b32000001", "500a0980000000a1"), (4, "2100001b32000002", "500a0980000000b1")]
    {
        fc::add_adapter(host.kernel(), adapter, ours);
        fc::add_remote_port(host.kernel(), adapter, theirs, &target);
    }
    if let Some(find) = find {
        host.kernel().multipathd(find);
    }
    let wwid = format!("3{NAA}");
    let data = json!({ "addresses": ["3:0:0:1", "4:0:0:1"], "wwid": wwid });
    let serde_json::Value::Object(data) = data else { unreachable!() };
    let identity = Some(Identity::new("wwid", wwid));
    let info = ConnectionInfo::new(Protocol::new("SAMPLE"), data, identity);
    let mut rig = ConnectorRig::new(&Sample, host, info, ())
        .on_swap(move |_| target.show(1, &other))
        .on_grow(move |_| {
            volume.resize(ByteSize::mib(16));
            ByteSize::mib(16)
        });
    rig.attach = Attach { multipath, ..Attach::default() };
    rig
}

hawser_testkit::connector_contract!(one_path, rig(Multipath::Off, None));
hawser_testkit::connector_contract!(
    several_paths,
    rig(Multipath::Wanted, Some(FindMultipaths::Strict))
);
hawser_testkit::connector_contract!(
    found_by_multipathd,
    rig(Multipath::Wanted, Some(FindMultipaths::Greedy))
);
