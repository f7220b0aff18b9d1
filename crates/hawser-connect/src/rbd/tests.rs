use hawser_core::connection::ConnectionInfo;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::data;

fn info(data: Value) -> ConnectionInfo {
    serde_json::from_value(json!({ "driver_volume_type": "rbd", "data": data })).unwrap()
}

#[test]
fn names_hosts_and_keys_of_every_form_are_read() {
    let keyring = "[client.other]\n key = AAAA\n[client.cinder]\n\tkey = QVFB\n";
    let image = data::read(&info(json!({
        "name": "volumes/ns/v1@s", "hosts": ["192.0.2.1", "2001:db8::1"], "ports": ["6789", 3300],
        "auth_username": "cinder", "keyring": keyring,
    })))
    .unwrap();

    assert_eq!(image.name(), "volumes/ns/v1@s");
    assert_eq!(image.monitors(), "192.0.2.1:6789,[2001:db8::1]:3300");
    let key = hawser_core::secret::Secret::new("QVFB");
    assert_eq!(
        image.request(Some(&key), false, 30),
        "192.0.2.1:6789,[2001:db8::1]:3300 \
         name=cinder,secret=QVFB,mount_timeout=30,_pool_ns=ns,ro volumes v1 s"
    );
    assert!(!format!("{image:?}").contains("QVFB"), "a secret is shown");
}

#[test]
fn what_cannot_be_meant_is_refused_by_its_field() {
    for (data, field) in [
        (json!({ "hosts": ["192.0.2.1"] }), "name"),
        (json!({ "name": "image", "hosts": ["192.0.2.1"] }), "name"),
        (json!({ "name": "a/b/c/d", "hosts": ["192.0.2.1"] }), "name"),
        (json!({ "name": "pool/im age", "hosts": ["192.0.2.1"] }), "name"),
        (json!({ "name": "p/i" }), "hosts"),
        (json!({ "name": "p/i", "hosts": ["mon.example"] }), "hosts"),
        (json!({ "name": "p/i", "hosts": ["192.0.2.1"], "ports": [1, 2] }), "ports"),
        (json!({ "name": "p/i", "hosts": ["192.0.2.1"], "auth_username": "a,b" }), "auth_username"),
        (json!({ "name": "p/i", "hosts": ["192.0.2.1"], "secret": "no key!" }), "secret"),
        (json!({ "name": "p/i", "hosts": ["192.0.2.1"], "cluster_name": "../x" }), "cluster_name"),
    ] {
        let said = data::read(&info(data.clone())).unwrap_err().to_string();
        assert!(said.contains(&format!(": {field} ")), "{data}: {said}");
        assert!(!said.contains("no key!"), "{said}");
    }
}

proptest! {
    #[test]
    fn any_name_and_keyring_is_read_or_refused(name in "\\PC{0,30}", keyring in "\\PC{0,60}") {
        let _ = data::read(&info(json!({ "name": name, "hosts": ["192.0.2.1"], "keyring": keyring })));
    }
}
