//! One form for all the ways to write one connection info: whether two mean the same is decided here.

use std::collections::BTreeMap;

use hawser_core::connection::{ConnectionInfo, Data};
use hawser_core::error::Error;
use hawser_core::port::Connector;
use serde_json::{Value, json};

use super::data::Number;
use super::digest;
use super::error::AttachError;

/// Fields that are numbers in every protocol, so that `"0x10"` is 16 there. In other fields a text
/// may be a name, and `01` is not 1.
const NUMBERS: [&str; 3] = ["target_lun", "target_luns", "target_port"];

/// The fields that count, in snake case and in one order, with every number and flag as a text.
pub(crate) fn fields(
    connector: &dyn Connector,
    info: &ConnectionInfo,
) -> Result<BTreeMap<String, Value>, AttachError> {
    let read = info.parse::<Data>();
    let mut data =
        read.map_err(|error| AttachError::Invalid { why: Error::from(error).sentence() })?;
    data.retain(|_, value| !value.is_null());
    let counting = data.iter().filter(|(field, _)| connector.counts(&data, field));
    Ok(counting.map(|(field, value)| (field.clone(), plain(field, value))).collect())
}

/// Protocols whose volumes are found by their id alone; elsewhere it is what the owner calls them.
const BY_ID: [&str; 1] = ["HUAWEISDSHYPERVISOR"];

/// The fields that count and say where the volume is, whatever it is called.
pub(crate) fn address(
    connector: &dyn Connector,
    info: &ConnectionInfo,
) -> Result<BTreeMap<String, Value>, AttachError> {
    let mut fields = fields(connector, info)?;
    if !BY_ID.contains(&info.protocol.as_str()) {
        fields.remove("volume_id");
    }
    Ok(fields)
}

/// A short text that is the same for all infos that mean the same. What the device must be does not
/// count: it may be learnt later.
pub(crate) fn digest(
    connector: &dyn Connector,
    info: &ConnectionInfo,
) -> Result<String, AttachError> {
    let what = json!([info.protocol.as_str(), fields(connector, info)?]);
    Ok(digest::short(what.to_string().as_bytes()))
}

fn plain(field: &str, value: &Value) -> Value {
    match value {
        Value::Array(list) => list.iter().map(|one| plain(field, one)).collect(),
        Value::Object(map) => {
            let map: BTreeMap<_, _> = map.iter().map(|(key, one)| (key, plain(key, one))).collect();
            json!(map)
        }
        Value::String(_) if NUMBERS.contains(&field) => {
            match serde_json::from_value::<Number>(value.clone()) {
                Ok(Number(number)) => number.to_string().into(),
                Err(_) => value.clone(),
            }
        }
        Value::Number(number) => number.to_string().into(),
        Value::Bool(flag) => flag.to_string().into(),
        Value::String(_) | Value::Null => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use crate::find;

    use super::*;

    fn same(protocol: &str, one: Value, other: Value) -> bool {
        let digest = |data: Value| {
            let info = json!({ "driver_volume_type": protocol, "data": data });
            let info: ConnectionInfo = serde_json::from_value(info).unwrap();
            digest(find(&info.protocol).unwrap(), &info).unwrap()
        };
        digest(one) == digest(other)
    }

    #[test]
    fn spellings_numbers_as_texts_hints_and_unknown_keys_make_no_difference() {
        let plain = json!({ "target_iqn": "iqn.a", "target_portal": "a:1", "target_lun": 16 });
        for other in [
            json!({ "targetIQN": "iqn.a", "targetPortal": "a:1", "lun": "0x10" }),
            json!({ "target_iqn": "iqn.a", "target_portal": "a:1", "target_lun": "16",
                "device_path": "/dev/sdb", "multipathId": "3600", "qos_specs": { "a": 1 },
                "discard": true, "vendor_word": 7, "wwn": null }),
        ] {
            assert!(same("iscsi", plain.clone(), other.clone()), "{other}");
        }
        for other in [
            json!({ "target_iqn": "iqn.a", "target_portal": "a:1", "target_lun": 17 }),
            json!({ "target_iqn": "iqn.a", "target_portal": "a:2", "target_lun": 16 }),
            json!({ "target_iqn": "iqn.a", "target_portal": "a:1", "target_lun": 16,
                "access_mode": "ro" }),
        ] {
            assert!(!same("iscsi", plain.clone(), other.clone()), "{other}");
        }
    }

    #[test]
    fn the_name_of_a_volume_is_no_address_where_there_is_another() {
        let named = |protocol: &str, id: &str| {
            let data = json!({ "volume_id": id, "target_iqn": "iqn.a", "target_lun": 1 });
            let info = json!({ "driver_volume_type": protocol, "data": data });
            let info: ConnectionInfo = serde_json::from_value(info).unwrap();
            address(find(&info.protocol).unwrap(), &info).unwrap()
        };

        assert_eq!(named("iscsi", "a"), named("iscsi", "b"));
        assert_ne!(named("huaweisdshypervisor", "a"), named("huaweisdshypervisor", "b"));
    }

    #[test]
    fn a_text_that_looks_like_a_number_is_still_a_name() {
        let export = |name: &str| json!({ "host": "a", "export_name": name });

        assert!(!same("nbd", export("1"), export("01")));
        assert!(!same("nbd", export("16"), export("0x10")));
        assert!(same("nbd", export("1"), json!({ "host": "a", "exportName": 1 })));
    }

    #[test]
    fn a_device_path_counts_where_it_is_the_volume() {
        let given = |path: &str| json!({ "device_path": path });
        assert!(!same("gpfs", given("/gpfs/a"), given("/gpfs/b")));
        assert!(!same("local", given("/dev/sda"), given("/dev/sdb")));

        let image = json!({ "path": "/a.img", "kind": "file" });
        let echoed = json!({ "path": "/a.img", "kind": "file", "device_path": "/dev/loop1" });
        assert!(same("local", image, echoed));
    }
}
