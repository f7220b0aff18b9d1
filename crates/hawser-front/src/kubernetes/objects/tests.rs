//! What the API server writes can be read.

use serde_json::json;

use super::*;

#[test]
fn a_node_without_drivers_has_none() {
    let node: CsiNode =
        serde_json::from_value(json!({ "metadata": { "name": "n" }, "spec": { "drivers": null } }))
            .unwrap();

    assert_eq!((node.name(), node.spec.drivers.len()), ("n", 0));
    assert!(node.driver("csi.hawser.storage").is_none());
}

#[test]
fn fields_that_are_not_used_are_passed_over_and_missing_ones_are_empty() {
    let claim: Claim = serde_json::from_value(json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": { "name": "c", "namespace": "n", "uid": "u", "resourceVersion": "12" },
        "spec": { "volumeMode": "Block", "selector": {}, "unheard": [1, 2] },
    }))
    .unwrap();

    assert_eq!(claim.key(), Key::within("n", "c"));
    assert_eq!((claim.revision(), claim.is_block(), claim.is_bound()), (12, true, false));
    assert!(claim.spec.selector.is_some() && claim.class_name().is_none());
    assert!(serde_json::from_value::<Claim>(json!({ "spec": { "accessModes": 7 } })).is_err());
}

#[test]
fn the_old_way_to_name_a_class_is_heard_and_an_empty_name_is_none() {
    let claim = |annotation: &str, class: &str| -> Claim {
        serde_json::from_value(json!({
            "metadata": { "annotations": { "volume.beta.kubernetes.io/storage-class": annotation } },
            "spec": { "storageClassName": class },
        }))
        .unwrap()
    };
    assert_eq!(claim("old", "new").class_name(), Some("old"));
    assert_eq!(claim("", "new").class_name(), Some("new"));
    assert_eq!(claim("", "").class_name(), None);
}
