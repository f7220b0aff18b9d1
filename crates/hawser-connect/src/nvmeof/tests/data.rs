//! Every shape of connection info, and everything that is wrong with one.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::data::{self, Target, Volume};
use super::super::ids::{Ids, Selector};
use super::super::portal::{Portal, Transport};
use super::*;

fn one(data: Value) -> Target {
    match data::read(&info(data)).unwrap() {
        Volume::One(target) => target,
        Volume::Mirror(_) => panic!("a mirror"),
    }
}

fn tcp(address: &str) -> Portal {
    Portal::new(Transport::Tcp, Some(address), Some(4420), None, None).unwrap()
}

#[test]
fn the_new_shape_is_read_in_both_spellings() {
    let snake = one(data());
    let camel = one(json!({
        "targetNqn": NQN, "volUuid": UUID.replace('-', "").to_uppercase(),
        "portals": [{ "address": "10.0.0.1", "port": 4420, "transport": "TCP" },
                    { "address": "10.0.0.2", "port": "4420", "transport": "tcp" }],
    }));

    assert_eq!(snake.portals, [tcp("10.0.0.1"), tcp("10.0.0.2")]);
    assert_eq!(camel.portals, snake.portals);
    assert_eq!(camel.wanted.key, snake.wanted.key, "one volume in two spellings");
}

#[test]
fn the_old_shape_is_read_with_its_aliases() {
    let old = one(json!({
        "nqn": NQN, "transport_type": "tcp", "target_portal": "10.0.0.1", "target_port": 4420,
        "volume_nguid": "0011223344556677889900aabbccddee", "ns_id": "1", "host_nqn": "nqn.a:h",
    }));
    let opensds = one(json!({
        "targetNQN": NQN, "transporType": "tcp", "targetIP": "10.0.0.1", "targetPort": "4420",
        "volUuid": UUID,
    }));

    assert_eq!(old.portals, [tcp("10.0.0.1")]);
    assert_eq!(opensds.portals, old.portals);
    assert_eq!(old.options.host_nqn.as_deref(), Some("nqn.a:h"));
    assert!(matches!(&old.wanted.by, Selector::Identity(id) if id.scheme == "nguid"));
}

#[test]
fn one_replica_is_a_plain_volume_and_more_are_a_mirror() {
    let leg = |n: u8| {
        json!({ "target_nqn": format!("nqn.a:{n}"), "vol_uuid": UUID,
                "portals": [[format!("10.0.0.{n}"), 4420, "RoCEv2"]] })
    };
    let single = one(json!({ "vol_uuid": "volume-1", "alias": "v", "replica_count": 1,
        "volume_replicas": [leg(1)] }));
    let both = data::read(&info(json!({ "vol_uuid": "volume-1", "alias": "v",
        "replica_count": null, "volume_replicas": [leg(1), leg(2)] })))
    .unwrap();

    assert_eq!(single.nqn, "nqn.a:1");
    assert_eq!(single.portals[0].transport, Transport::Rdma);
    assert!(matches!(both, Volume::Mirror(mirror) if mirror.legs.len() == 2));
}

#[tokio::test]
async fn a_mirror_is_refused_with_its_reason() {
    use hawser_core::port::Connector;
    let leg =
        json!({ "target_nqn": NQN, "vol_uuid": UUID, "portals": [["10.0.0.1", 4420, "tcp"]] });
    let mirror = info(json!({ "alias": "v", "volume_replicas": [leg.clone(), leg] }));

    let error = Nvmeof.connect(&FakeHost::new(), &mirror, &all_paths()).await.unwrap_err();

    assert_eq!(error.reason(), Some(hawser_core::Reason::UnsupportedProtocol), "{error:?}");
    assert!(error.sentence().contains("mirrored over 2 namespaces"), "{error:?}");
}

#[test]
fn fibre_channel_is_never_taken_for_tcp() {
    let fc = one(json!({ "target_nqn": NQN, "vol_uuid": UUID, "portals": [
        ["nn-0x10000090FA000001:pn-0x10000090fa000002", "none", "fc"]] }));

    assert_eq!(fc.portals[0].transport, Transport::Fc);
    let address = fc.portals[0].address.as_deref();
    assert_eq!(address, Some("nn-0x10000090fa000001:pn-0x10000090fa000002"));
    assert!(
        data::read(&info(json!({ "target_nqn": NQN, "vol_uuid": UUID,
        "portals": [["10.0.0.1", 4420, "carrier-pigeon"]] })))
        .is_err()
    );
}

#[test]
fn whatever_is_wrong_is_told_with_the_fields_name() {
    let with = |key: &str, value: Value| {
        let mut all = data();
        all[key] = value;
        all
    };
    for (field, bad) in [
        ("target_nqn", with("target_nqn", json!(null))),
        ("target_nqn", with("target_nqn", json!("nqn.a,hostnqn=nqn.evil"))),
        ("target_nqn", with("target_nqn", json!("nqn.a\nb"))),
        ("portals", with("portals", json!([]))),
        ("portals", with("portals", json!("10.0.0.1"))),
        ("portals", with("portals", json!([[]]))),
        ("address", with("portals", json!([["10.0.0.1,nqn=x", 1, "tcp"]]))),
        ("address", with("portals", json!([["storage.example", 1, "tcp"]]))),
        ("address", with("portals", json!([["10.0.0.1", 1, "fc"]]))),
        ("target_port", with("portals", json!([["10.0.0.1", 70000, "tcp"]]))),
        ("transport_type", with("portals", json!([["10.0.0.1", 1, "udp"]]))),
        ("vol_uuid", with("vol_uuid", json!("not-a-uuid"))),
        ("vol_uuid", with("vol_uuid", json!("00000000-0000-0000-0000-000000000000"))),
        ("volume_nguid", with("volume_nguid", json!("12"))),
        ("ns_id", with("ns_id", json!(0))),
        ("access_mode", with("access_mode", json!("wr"))),
        ("host_nqn", with("host_nqn", json!("x"))),
        ("host_id", with("host_id", json!("x"))),
        ("host_iface", with("host_iface", json!("eth0,x"))),
        ("ctrl_loss_tmo", with("ctrl_loss_tmo", json!(-2))),
        ("reconnect_delay", with("reconnect_delay", json!(0))),
        ("queue_size", with("queue_size", json!(1))),
        ("dhchap_secret", with("dhchap_secret", json!("hunter2"))),
        ("dhchap_secret", with("dhchap_secret", json!("DHHC-1:00:a,b:"))),
        ("tls", with("tls", json!(true))),
        ("replica_count", with("replica_count", json!("many"))),
        ("volume_replicas", with("volume_replicas", json!([7]))),
    ] {
        let said = data::read(&info(bad.clone())).unwrap_err().to_string();
        assert!(said.contains(field), "{bad}: {said}");
        assert!(!said.contains("hunter2"), "{said}");
    }
}

#[test]
fn a_volume_without_any_id_is_not_guessed() {
    let mut bare = data();
    bare.as_object_mut().unwrap().remove("vol_uuid");

    let said = data::read(&info(bare)).unwrap_err().to_string();

    assert!(said.contains("vol_uuid") && said.contains("not guessed"), "{said}");
}

#[test]
fn portals_come_with_ports_brackets_and_zones() {
    let portal = |text: &str| {
        one(json!({ "target_nqn": NQN, "vol_uuid": UUID, "target_portal": text })).portals.remove(0)
    };

    assert_eq!(portal("10.0.0.1:4421").service, Some(4421));
    assert_eq!(portal("10.0.0.1").service, Some(4420));
    assert_eq!(portal("[fd00::1]:4421").address.as_deref(), Some("fd00::1"));
    assert_eq!(portal("[fd00::1]").address.as_deref(), Some("fd00::1"));
    assert_eq!(portal("fd00::1").address.as_deref(), Some("fd00::1"));
    assert_eq!(portal("fe80::1%eth0").address.as_deref(), Some("fe80::1%eth0"));
}

#[test]
fn a_controller_is_known_by_its_address_in_any_spelling() {
    let portal = one(json!({ "target_nqn": NQN, "vol_uuid": UUID,
        "target_portal": "[FD00:0::1]:4420" }))
    .portals
    .remove(0);
    let bound = Portal { from: Some("10.0.0.9".into()), ..tcp("10.0.0.1") };

    assert!(portal.leads_to("tcp", "traddr=fd00::1,trsvcid=4420,src_addr=fd00::2\n"));
    assert!(!portal.leads_to("rdma", "traddr=fd00::1,trsvcid=4420"));
    assert!(!portal.leads_to("tcp", "traddr=fd00::1,trsvcid=4421"));
    assert!(!portal.leads_to("tcp", "traddr=fd00::2,trsvcid=4420"));
    assert!(tcp("10.0.0.1").leads_to("tcp", "traddr=10.0.0.1,trsvcid=4420,host_traddr=10.0.0.9"));
    assert!(bound.leads_to("tcp", "traddr=10.0.0.1,trsvcid=4420,host_traddr=10.0.0.9"));
    assert!(!bound.leads_to("tcp", "traddr=10.0.0.1,trsvcid=4420"));
}

#[test]
fn ids_are_compared_whatever_their_spelling() {
    let ids = Ids::of_sysfs(
        &format!("uuid.{UUID}"),
        "00112233-4455-6677-8899-00aabbccddee",
        "00 25 38 b1 11 22 33 44",
        "7",
    );
    let is = |scheme: &str, value: &str| ids.is(&Identity::new(scheme, value));

    assert!(is("uuid", &UUID.replace('-', "").to_uppercase()));
    assert!(is("nguid", "0x0011223344556677889900AABBCCDDEE"));
    assert!(is("eui", "002538b111223344"));
    assert!(is("eui", "0011223344556677889900aabbccddee"), "udev calls the NGUID eui");
    assert!(is("wwid", &format!("uuid.{UUID}")));
    assert!(is("wwid", "nvme-eui.0011223344556677889900aabbccddee"));
    assert!(!is("uuid", OTHER));
    assert!(!is("uuid", "0011223344556677889900aabbccddee"), "it has a UUID of its own");
    assert!(!is("image", UUID));
    assert!(!is("uuid", ""));
}

#[test]
fn a_namespace_without_a_uuid_is_known_by_its_nguid_as_the_kernel_shows_it() {
    let nguid = "00112233-4455-6677-8899-00aabbccddee";
    let ids = Ids::of_sysfs("eui.0011223344556677889900aabbccddee", nguid, "", "1");

    assert_eq!(ids.uuid, None);
    assert!(ids.is(&Identity::new("uuid", nguid)));
    assert_eq!(ids.strongest().unwrap().scheme, "nguid");
}

#[test]
fn what_the_target_says_is_compared_as_far_as_it_says_something() {
    let lun = nvme::namespace(UUID, ByteSize::mib(1));
    let told = Ids::of_descriptors(&lun.descriptors().unwrap());
    let shown = Ids::of_sysfs(&format!("uuid.{UUID}"), "", "", "1");
    let other = Ids::of_sysfs(&format!("uuid.{OTHER}"), "", "", "1");

    assert_eq!(told.agrees(&shown), Some(true));
    assert_eq!(told.agrees(&other), Some(false));
    assert_eq!(Ids::of_identify(&lun.identify().unwrap()).agrees(&shown), None);
}

proptest! {
    #[test]
    fn any_data_is_read_or_refused(key in "[a-z_]{1,14}", text in "\\PC{0,40}", number: i64) {
        for value in [json!(text), json!(number), json!([[text, number, text]]), json!({ "a": text })] {
            let mut all = data();
            all[&key] = value.clone();
            let _ = data::read(&info(all));
            for field in ["portals", "vol_uuid", "ns_id", "volume_replicas", "ctrl_loss_tmo"] {
                let mut all = data();
                all[field] = value.clone();
                let _ = data::read(&info(all));
            }
        }
    }

    #[test]
    fn any_bytes_are_ids_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = (Ids::of_descriptors(&bytes), Ids::of_identify(&bytes));
        let text = String::from_utf8_lossy(&bytes);
        let _ = Ids::of_sysfs(&text, &text, &text, &text).words();
        let _ = tcp("10.0.0.1").leads_to("tcp", &text);
    }

    #[test]
    fn no_checked_value_can_smuggle_an_option(text in "[\\PC,\\n]{0,60}") {
        let mut all = data();
        all["host_traddr"] = json!(text);
        all["host_iface"] = json!(text);
        all["host_nqn"] = json!(text);
        if let Ok(Volume::One(target)) = data::read(&info(all)) {
            let from = target.portals[0].from.clone().unwrap_or_default();
            let interface = target.portals[0].interface.clone().unwrap_or_default();
            let nqn = target.options.host_nqn.clone().unwrap_or_default();
            let written = [from, interface, nqn].concat();
            prop_assert!(!written.contains([',', '\n']));
        }
    }
}
