//! What a connection info says.

use hawser_core::attach::Identity;
use hawser_core::connection::ConnectionInfo;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::data::{credentials, read};
use super::super::discovery;
use super::super::portal::Portal;
use super::IQN;

fn envelope(protocol: &str, data: Value) -> ConnectionInfo {
    serde_json::from_value(json!({ "driver_volume_type": protocol, "data": data })).unwrap()
}

fn ways(data: Value) -> Result<Vec<(String, String, u64)>, String> {
    match read(&envelope("iscsi", data)) {
        Ok(volume) => Ok(volume
            .targets
            .iter()
            .map(|way| (way.portal.to_string(), way.iqn.clone(), way.lun))
            .collect()),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn portals_are_read_in_every_spelling() {
    for (text, portal) in [
        ("192.0.2.10", "192.0.2.10:3260"),
        ("192.0.2.10:3261", "192.0.2.10:3261"),
        ("192.0.2.10:3260,1", "192.0.2.10:3260"),
        ("[2001:DB8::1]:3260", "[2001:db8::1]:3260"),
        ("[2001:db8:0:0::1]", "[2001:db8::1]:3260"),
        ("2001:db8::1", "[2001:db8::1]:3260"),
        ("Target.Example:3260", "target.example:3260"),
        ("[fe80::1%eth0]:3260", "[fe80::1%eth0]:3260"),
    ] {
        assert_eq!(Portal::parse(text).map(|p| p.to_string()).as_deref(), Some(portal), "{text}");
    }
    for bad in ["", ":3260", "a:b", "a:0", "a:65536", "../x:1", "-h:1", "a b:1", "[::1", "[::1]x"] {
        assert_eq!(Portal::parse(bad), None, "{bad}");
    }
    assert_eq!(Portal::parse("2001:db8::1").unwrap().file_name(), "2001:db8::1,3260");
}

#[test]
fn one_way_and_several_are_read_in_both_spellings() {
    let one = vec![("192.0.2.10:3260".to_owned(), IQN.to_owned(), 1)];
    for data in [
        json!({ "target_portal": "192.0.2.10:3260", "target_iqn": IQN, "target_lun": 1 }),
        json!({ "targetPortal": "192.0.2.10", "targetIqn": IQN, "targetLun": "1" }),
        json!({ "targetPortal": ["192.0.2.10"], "targetIQN": [IQN], "lun": "0x1" }),
        json!({ "target_portals": ["192.0.2.10"], "target_iqns": [IQN], "target_luns": [1],
            "target_portal": "198.51.100.1", "target_iqn": "iqn.x:other", "target_lun": 9 }),
    ] {
        assert_eq!(ways(data.clone()).unwrap(), one, "{data}");
    }
    let two = ways(json!({ "target_portals": ["192.0.2.10", "192.0.2.11"],
        "target_iqns": ["iqn.x:a", "iqn.x:b"], "target_luns": [1, 2] }));
    assert_eq!(two.unwrap()[1], ("192.0.2.11:3260".into(), "iqn.x:b".into(), 2));
    let spread = ways(json!({ "target_portals": ["192.0.2.10", "192.0.2.11"], "iqn": IQN }));
    assert_eq!(spread.unwrap()[1], ("192.0.2.11:3260".into(), IQN.into(), 0), "LUN 0 is legal");
}

#[test]
fn what_makes_no_sense_is_refused_by_its_field() {
    let with = |key: &str, value: Value| {
        let mut data = json!({ "target_portal": "192.0.2.10", "target_iqn": IQN, "target_lun": 1 });
        data[key] = value;
        data
    };
    for (field, data) in [
        ("target_portal", json!({ "target_iqn": IQN })),
        ("target_iqn", json!({ "target_portal": "192.0.2.10" })),
        ("target_portal", with("target_portal", json!("over there"))),
        ("target_portal", with("target_portal", json!(7))),
        ("target_iqn", with("target_iqn", json!("../../etc"))),
        ("target_iqn", with("target_iqn", json!("iqn.x/../y"))),
        ("target_iqn", with("target_iqn", json!("iqn.x\nnode.startup = automatic"))),
        ("target_lun", with("target_lun", json!(-1))),
        ("target_lun", with("target_lun", json!(1 << 20))),
        ("target_luns", with("target_luns", json!([1, 2]))),
        ("addressing_mode", with("addressing_mode", json!("other"))),
        ("iscsi_iface", with("iscsi_iface", json!("../x"))),
        ("access_mode", with("access_mode", json!("w"))),
        (
            "target_iqns",
            json!({ "target_portals": ["192.0.2.1", "192.0.2.2", "192.0.2.3"],
                "target_iqns": ["iqn.x:a", "iqn.x:b"] }),
        ),
    ] {
        let error = ways(data.clone()).expect_err(field);
        assert!(error.contains(field), "{field}: {error}");
    }
}

#[test]
fn the_identity_may_come_twice() {
    let mut info = envelope(
        "ISER",
        json!({ "target_portal": "192.0.2.10", "target_iqn": IQN, "wwn": "naa.6" }),
    );
    info.identity = Some(Identity::new("wwid", "36"));

    let volume = read(&info).unwrap();

    assert_eq!(volume.expected.len(), 2);
    assert_eq!((volume.iface.as_str(), volume.discover), ("iser", true));
}

#[test]
fn credentials_come_flat_or_nested_and_complete() {
    let with = |more: Value| {
        let mut data = json!({ "target_portal": "192.0.2.10", "target_iqn": IQN });
        for (key, value) in more.as_object().unwrap() {
            data[key] = value.clone();
        }
        credentials(&envelope("iscsi", data))
    };

    let flat = with(json!({ "auth_username": "u", "auth_password": "p", "auth_username_in": "ti",
        "auth_password_in": "tp", "auth_algs": "sha256, md5" }))
    .unwrap()
    .session
    .expect("a name without a method is CHAP");
    let nested = with(json!({ "session_secrets": { "secretsType": "chap", "userName": "u",
        "password": "p", "userNameIn": "ti", "passwordIn": "tp" }, "auth_algs": "sha256, md5" }))
    .unwrap();
    assert_eq!(Some(&flat), nested.session.as_ref());
    assert_eq!(flat.algorithms.as_deref(), Some("SHA256,MD5"));
    assert_eq!(with(json!({})).unwrap().session, None);
    assert_eq!(with(json!({ "auth_method": "None", "auth_username": "u" })).unwrap().session, None);
    for (field, bad) in [
        ("auth_method", json!({ "auth_method": "SRP", "auth_username": "u" })),
        ("auth_username", json!({ "auth_method": "CHAP" })),
        ("auth_password", json!({ "auth_username": "u" })),
        ("auth_password", json!({ "auth_username": "u", "auth_password": "a\nb" })),
        ("auth_password", json!({ "auth_username": "u", "auth_password": " p" })),
        (
            "auth_password_in",
            json!({ "auth_username": "u", "auth_password": "p",
            "auth_username_in": "x" }),
        ),
        ("auth_algs", json!({ "auth_username": "u", "auth_password": "p", "auth_algs": "ROT13" })),
        ("discovery_auth_password", json!({ "discovery_auth_username": "u" })),
    ] {
        let error = with(bad).expect_err(field).to_string();
        assert!(error.contains(field), "{field}: {error}");
        assert!(!error.contains("a\nb"), "{error}");
    }
}

#[test]
fn what_a_target_lists_is_read_line_by_line() {
    let text = include_str!("../../../testdata/corpus/iscsiadm_sendtargets/lio");

    let found: Vec<String> =
        discovery::parse(text).iter().map(|(portal, iqn)| format!("{portal} {iqn}")).collect();

    assert_eq!(
        found,
        [
            "127.0.1.1:3260 iqn.2024-01.com.example:t0",
            "127.0.1.2:3260 iqn.2024-01.com.example:t0",
            "[fd00:1ab::1]:3260 iqn.2024-01.com.example:t1",
        ]
    );
}

proptest! {
    #[test]
    fn any_portal_is_read_or_none(text in "\\PC{0,40}") {
        if let Some(portal) = Portal::parse(&text) {
            prop_assert_eq!(Portal::parse(&portal.to_string()), Some(portal.clone()));
            prop_assert!(!portal.file_name().contains('/'));
            prop_assert!(!portal.to_string().starts_with('-'));
        }
    }

    #[test]
    fn any_listing_is_read(text in "\\PC{0,200}") {
        let _ = discovery::parse(&text);
    }

    #[test]
    fn any_data_is_read_or_refused(
        portal in "\\PC{0,30}", iqn in "\\PC{0,30}", lun: i64, extra in "\\PC{0,20}"
    ) {
        for (portal, iqn, lun) in [
            (json!(portal), json!(iqn), json!(lun)),
            (json!([portal, portal]), json!([iqn]), json!([lun, extra])),
            (json!({ "a": portal }), json!(lun), json!(extra)),
        ] {
            let data = json!({ "target_portal": portal, "target_iqn": iqn, "target_lun": lun,
                "volume_id": extra, "auth_username": extra, "auth_password": extra });
            let info = json!({ "driver_volume_type": "iscsi", "data": data });
            if let Ok(info) = serde_json::from_value(info) {
                let _ = (read(&info), credentials(&info));
            }
        }
    }
}

hawser_testkit::fuzz_corpus!(sendtargets, "iscsiadm_sendtargets", |bytes| {
    let text = String::from_utf8_lossy(bytes);
    let _ = discovery::parse(&text);
});

hawser_testkit::fuzz_corpus!(portals, "iscsi_portal", |bytes| {
    if let Some(portal) = Portal::parse(&String::from_utf8_lossy(bytes)) {
        assert_eq!(Portal::parse(&portal.to_string()), Some(portal.clone()));
        assert!(!portal.file_name().contains('/'));
    }
});
