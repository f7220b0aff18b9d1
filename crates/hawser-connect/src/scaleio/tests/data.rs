use proptest::prelude::*;

use super::*;
use crate::scaleio::data::{Way, read};

fn legacy() -> Value {
    json!({ "scaleIO_volname": "v", "serverIP": "192.0.2.61", "serverPort": 443,
            "serverUsername": "admin", "serverPassword": "x" })
}

#[test]
fn every_shape_is_read() {
    for data in [
        json!({ "scaleIO_volname": "v", "scaleIO_volume_id": "0A1B", "sdc_guid": "g" }),
        json!({ "scaleIoVolname": "v", "scaleIoVolumeId": "0a1b", "sdcGuid": "g" }),
        json!({ "scaleIOVolname": "v", "scaleIOVolumeId": "0a1b", "sdc_guid": "g", "x": [1] }),
    ] {
        let volume = read(&info(data)).unwrap();
        assert_eq!((volume.name.as_str(), volume.id.as_deref()), ("v", Some("0a1b")));
        assert!(matches!(volume.way, Way::Mapped(guid) if guid == "g"));
    }
    let volume = read(&info(legacy())).unwrap();
    let Way::Gateway(access) = volume.way else { panic!("{volume:?}") };
    assert!(access.verify, "checked unless told otherwise");
    assert_eq!(access.at(), "192.0.2.61:443");
    assert!(!format!("{access:?}").contains("\"x\""), "{access:?}");
    let six = read(&info(with(legacy(), "serverIP", json!("[fd00::1]")))).unwrap();
    assert!(matches!(six.way, Way::Gateway(access) if access.at() == "[fd00::1]:443"));
}

#[test]
fn what_is_wrong_is_refused_by_its_name() {
    for (field, value) in [
        ("scaleIO_volname", Value::Null),
        ("scaleIO_volume_id", json!("../../etc")),
        ("scaleIO_volume_id", json!(7)),
        ("serverIP", Value::Null),
        ("serverIP", json!("a b")),
        ("serverIP", json!("a/b")),
        ("serverUsername", Value::Null),
        ("serverUsername", json!("a:b")),
        ("server_port", json!(70000)),
        ("certificate_path", json!("ca.pem")),
        ("verify_certificate", json!("maybe")),
        ("iops_limit", json!(-1)),
        ("failed_over", json!(3)),
    ] {
        let error = read(&info(with(legacy(), field, value))).unwrap_err().to_string();
        let bare = |text: &str| text.to_ascii_lowercase().replace('_', "");
        assert!(bare(&error).contains(&bare(field)), "{field}: {error}");
    }
    let no_id = json!({ "scaleIO_volname": "v", "sdc_guid": "g" });
    assert!(read(&info(no_id)).unwrap_err().to_string().contains("scaleIO_volume_id"));
}

#[test]
fn settings_are_read_as_python_reads_them() {
    let text = "san_password = outside\n[a]\nSAN_Password: p%%w # x\n;san_password = no\n[b]\n\
                replicating_san_password = r\nbroken\n[a]\nsan_username = u\n";

    assert_eq!(config::value(text, "a", "san_password").as_deref(), Some("p%w # x"));
    assert_eq!(config::value(text, "a", "san_username").as_deref(), Some("u"));
    assert_eq!(config::value(text, "b", "replicating_san_password").as_deref(), Some("r"));
    assert_eq!(config::value(text, "b", "san_password"), None);
}

#[test]
fn links_and_guids_are_taken_apart() {
    assert_eq!(sdc::volume_of("emc-vol-1f2e-0a1b"), Some("0a1b"));
    for link in ["emc-vol-0a1b", "emc-vol--0a1b", "emc-vol-1f-0a-part1", "scsi-emc-vol-1-2"] {
        assert_eq!(sdc::volume_of(link), None, "{link}");
    }
    let guid = [[7; 8], [1; 8], [2; 8]].concat();
    let text = "01010101-0101-0101-0202-020202020202";
    assert_eq!(sdc::read_guid(&guid).as_deref(), Some(text));
    assert_eq!(sdc::read_guid(&[0; 24]), None, "a client that was never set up");
    assert_eq!(sdc::read_guid(&[1; 20]), None);
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,80}", bytes: Vec<u8>, number: i64) {
        let _ = (config::value(&text, "a", "b"), sdc::volume_of(&text));
        let _ = (sdc::read_guid(&bytes), tls::read(&bytes), tls::read(text.as_bytes()));
        for field in ["scaleIO_volname", "scaleIO_volume_id", "sdc_guid", "serverIP", "serverPort",
                      "serverUsername", "certificate_path", "iopsLimit", "config_group"] {
            for value in [json!(text), json!(number), json!([text]), json!({ "a": number })] {
                let _ = read(&info(with(legacy(), field, value)));
            }
        }
    }

    #[test]
    fn an_accepted_id_is_harmless_in_an_address(id in "\\PC{0,20}") {
        let volume = read(&info(with(legacy(), "scaleIO_volume_id", json!(id))));
        if let Ok(Some(id)) = volume.map(|volume| volume.id) {
            prop_assert!(id.bytes().all(|byte| byte.is_ascii_alphanumeric()));
        }
    }
}
