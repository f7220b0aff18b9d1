use hawser_core::ByteSize;
use hawser_core::attach::Identity;
use hawser_core::connection::{ConnectionInfo, Protocol};
use hawser_testkit::contract::connector::ConnectorRig;
use hawser_testkit::fake_host::FakeHost;
use hawser_testkit::fake_host::kernel::Lun;
use hawser_testkit::sim::hgst;
use serde_json::{Value, json};

use super::*;
use crate::shared::vendor::Vendor;

static CONNECTOR: Vendor<Hgst> = Vendor(Hgst);

fn info(data: Value) -> ConnectionInfo {
    let Value::Object(data) = data else { unreachable!() };
    ConnectionInfo::new(Protocol::new("hgst"), data, None)
}

fn rig() -> ConnectorRig {
    let host = FakeHost::new();
    hgst::install(&host, "space1", &Lun::new(ByteSize::mib(8)));
    let mut info = info(json!({ "name": "space1", "noremovehost": "another" }));
    info.identity = Some(Identity::new("hgst", "space1"));
    ConnectorRig::new(&CONNECTOR, host, info, ())
}

hawser_testkit::connector_contract!(rig());

#[test]
fn a_name_that_is_a_path_or_an_option_is_refused() {
    for name in ["", "../sda", "-A", "a b", "a/b"] {
        let info = info(json!({ "name": name }));
        let fields = Fields::of(&info).unwrap();
        assert!(Hgst.read(&info, &fields).is_err(), "{name:?}");
    }
}

#[tokio::test]
async fn a_host_outside_of_the_domain_is_told_so() {
    let host = FakeHost::new();
    hgst::install_for(&host, "space1", &Lun::new(ByteSize::mib(8)), "elsewhere");
    let rig = ConnectorRig::new(&CONNECTOR, host, info(json!({ "name": "space1" })), ());

    let said = rig.connect().await.unwrap_err().sentence();

    assert!(said.contains("HGST cluster"), "{said}");
}

#[test]
fn a_name_that_begins_like_ours_counts_unless_two_do() {
    assert_eq!(alike(&["first", "node7.old"], "node7.example"), Some("node7.old"));
    assert_eq!(alike(&["node7.old", "node7.new"], "node7.example"), None);
    assert_eq!(alike(&["node70", "anode7"], "node7.example"), None);
}

hawser_testkit::fuzz_corpus!(corpus, "hgst_domain_list", |bytes| {
    let text = String::from_utf8_lossy(bytes);
    let names: Vec<&str> = text.split_whitespace().collect();
    let own: IpAddr = "192.0.2.17".parse().unwrap();
    if let Some(name) = named(&names, "node7.example", |ip| ip == own) {
        let is_ours = name == "node7.example" || name.parse() == Ok(own);
        assert!(is_ours, "{name} is another host");
    }
    if let Some(name) = alike(&names, "node7.example") {
        assert!(name == "node7" || name.starts_with("node7."), "{name} is another host");
    }
});
