//! What connection infos say.

use proptest::prelude::*;

use super::super::data::{Volume, read};
use super::*;

fn volume(data: Value) -> Result<Volume, String> {
    read(&info(data), Platform::X86).map_err(|error| error.to_string())
}

fn ports(data: Value) -> Vec<(String, u64)> {
    let ports = volume(data).unwrap().ports;
    ports.iter().map(|port| (port.wwpn.to_string(), port.lun.kernel())).collect()
}

fn a(lun: u64) -> (String, u64) {
    (THEIRS[0].into(), lun)
}

fn b(lun: u64) -> (String, u64) {
    (THEIRS[1].into(), lun)
}

#[test]
fn every_shape_of_ports_and_numbers_is_read() {
    for (data, expected) in [
        (json!({ "target_wwn": "500A0980000000A1", "target_lun": 1 }), vec![a(1)]),
        (json!({ "targetWwn": THEIRS, "targetLun": "0x1F" }), vec![a(31), b(31)]),
        (json!({ "targetWWNs": THEIRS, "targetLun": 0 }), vec![a(0), b(0)]),
        (json!({ "target_wwns": THEIRS, "target_luns": ["1", 2] }), vec![a(1), b(2)]),
        (json!({ "target_wwns": THEIRS, "target_luns": [7] }), vec![a(7), b(7)]),
        // As os-brick's documentation has it: the plural wins.
        (
            json!({ "target_wwn": [THEIRS[0]], "target_lun": 1, "target_wwns": THEIRS,
                "target_luns": [1, 2] }),
            vec![a(1), b(2)],
        ),
        (
            json!({ "target_wwn": "50:0a:09:80:00:00:00:a1", "lun": 300,
                "addressing_mode": "SAM2" }),
            vec![a(16684)],
        ),
        (json!({ "target_wwn": [THEIRS[0], THEIRS[0]], "target_lun": 1 }), vec![a(1)]),
    ] {
        assert_eq!(ports(data.clone()), expected, "{data}");
    }
}

#[test]
fn what_is_wrong_is_told_by_the_name_of_its_field() {
    for (data, field) in [
        (json!({ "target_lun": 1 }), "target_wwns"),
        (json!({ "target_wwn": THEIRS[0] }), "target_lun"),
        (json!({ "target_wwn": "iqn.x", "target_lun": 1 }), "target_wwn"),
        (json!({ "target_wwn": 7, "target_lun": 1 }), "target_wwn"),
        (json!({ "target_wwn": THEIRS[0], "target_lun": -1 }), "target_lun"),
        (json!({ "target_wwn": THEIRS[0], "target_lun": 4_294_967_296_u64 }), "target_lun"),
        (json!({ "target_wwns": THEIRS, "target_luns": [1, 2, 3] }), "target_luns"),
        (json!({ "target_wwns": [THEIRS[0], THEIRS[0]], "target_luns": [1, 2] }), "target_wwns"),
        (
            json!({ "target_wwn": THEIRS[0], "target_lun": 1, "initiator_target_map": [] }),
            "initiator_target_map",
        ),
        (
            json!({ "target_wwn": THEIRS[0], "target_lun": 1, "initiator_target_map": { "x": [] } }),
            "initiator_target_map",
        ),
        (
            json!({ "target_wwn": THEIRS[0], "target_lun": 1,
                "initiatorTargetLunMap": { OURS[0]: [THEIRS[0]] } }),
            "initiator_target_lun_map",
        ),
        (
            json!({ "target_wwn": THEIRS[0], "target_lun": 1, "enable_wildcard_scan": 7 }),
            "enable_wildcard_scan",
        ),
        (
            json!({ "target_wwn": THEIRS[0], "target_lun": 20000, "addressing_mode": "SAM3-flat" }),
            "target_lun",
        ),
    ] {
        let said = volume(data.clone()).unwrap_err();
        assert!(said.contains(&format!(": {field} ")), "{data}: {said}");
    }
}

#[test]
fn a_map_tells_which_ports_go_together() {
    let zoned = |data: Value| {
        let volume = volume(data).unwrap();
        OURS.map(|ours| {
            let ports = volume.ports_for(ours.parse().unwrap());
            ports.iter().map(|port| (port.wwpn.to_string(), port.lun.kernel())).collect::<Vec<_>>()
        })
    };
    let mut data = json!({ "target_wwns": THEIRS, "target_lun": 1 });
    assert_eq!(zoned(data.clone()), [vec![a(1), b(1)], vec![a(1), b(1)]], "none: all with all");
    data["initiator_target_map"] = Value::Null;
    assert_eq!(zoned(data.clone()), [vec![a(1), b(1)], vec![a(1), b(1)]]);
    data["initiator_target_map"] =
        json!({ OURS[0].to_uppercase(): ["500A0980000000A1", "500a098000000fff"] });
    assert_eq!(zoned(data.clone()), [vec![a(1)], vec![]], "a port of another volume is left out");
    data["initiator_target_lun_map"] = json!({ OURS[1]: [[THEIRS[1], 5]] });
    assert_eq!(zoned(data), [vec![], vec![b(5)]], "the one with numbers says more");
}

proptest! {
    #[test]
    fn any_data_is_read_or_refused(text in "\\PC{0,20}", number: i64, wwn in "[0-9a-fA-F:x]{0,24}") {
        for value in [json!(text), json!(number), json!([wwn]), json!({ wwn.clone(): [wwn] })] {
            for field in ["target_wwn", "target_wwns", "target_lun", "target_luns",
                "initiator_target_map", "initiator_target_lun_map", "addressing_mode"] {
                let mut data = json!({ "target_wwn": THEIRS[0], "target_lun": 1 });
                data[field] = value.clone();
                for platform in [Platform::X86, Platform::S390] {
                    let _ = read(&info(data.clone()), platform);
                }
            }
        }
    }
}
