//! What is written of room: which objects, what they say, and when.

mod objects;

use proptest::prelude::*;
use serde_json::json;

use super::plan::pairs;
use super::room::{self, Room};
use super::*;
use hawser_api::csi::v1::GetCapacityResponse;

const DRIVER: &str = "local.csi.hawser.storage";
const NODE: &str = "topology.hawser.storage/node";
const GIB: i64 = 1 << 30;

fn csi_node(name: &str) -> Arc<CsiNode> {
    let drivers = json!([{ "name": DRIVER, "nodeID": name, "topologyKeys": [NODE] }]);
    let object = json!({ "metadata": { "name": name }, "spec": { "drivers": drivers } });
    Arc::new(serde_json::from_value(object).unwrap())
}

fn node(name: &str, place: &str) -> Arc<Node> {
    let object = json!({ "metadata": { "name": name, "labels": { NODE: place } } });
    Arc::new(serde_json::from_value(object).unwrap())
}

fn class(name: &str, driver: &str, mode: &str) -> Arc<StorageClass> {
    let object = json!({
        "metadata": { "name": name },
        "provisioner": driver,
        "volumeBindingMode": mode,
        "parameters": {
            "class": "local", "type": "ssd", "fsType": "xfs",
            "csi.storage.k8s.io/fstype": "ext4", "csi.storage.k8s.io/provisioner-secret-name": "s",
        },
    });
    Arc::new(serde_json::from_value(object).unwrap())
}

fn pair(class: &str, node: &str) -> Pair {
    let segment = Some([(NODE.to_owned(), node.to_owned())].into());
    Pair { driver: DRIVER.to_owned(), class: class.to_owned(), segment }
}

fn room(available: i64, largest: Option<i64>) -> Room {
    let answer = GetCapacityResponse {
        available_capacity: available,
        maximum_volume_size: largest,
        minimum_volume_size: None,
    };
    answer.into()
}

fn owner(uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: "apps/v1".into(),
        kind: "Deployment".into(),
        name: "hawser".into(),
        uid: uid.into(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}

fn written(pair: &Pair, name: &str) -> Arc<Capacity> {
    let mut object = room::object(pair, "hawser", room(GIB, None), None);
    object["metadata"]["name"] = name.into();
    Arc::new(serde_json::from_value(object).unwrap())
}

#[test]
fn a_pair_is_a_place_and_a_class_that_waits() {
    let classes = [
        class("fast", DRIVER, "WaitForFirstConsumer"),
        class("slow", DRIVER, "WaitForFirstConsumer"),
        class("now", DRIVER, "Immediate"),
        class("theirs", "ebs.csi.example.com", "WaitForFirstConsumer"),
    ];
    let csi_nodes = ["n1", "n2", "n3", "n4"].map(csi_node);
    // Two nodes in one place, and one that is gone.
    let nodes = [node("n1", "a"), node("n2", "b"), node("n3", "b")];

    let found = pairs(&[DRIVER], &classes, &csi_nodes, &nodes);

    let all = [pair("fast", "a"), pair("slow", "a"), pair("fast", "b"), pair("slow", "b")];
    assert_eq!(found, all.into());
    assert!(pairs(&[], &classes, &csi_nodes, &nodes).is_empty());
}

#[test]
fn the_driver_is_asked_with_its_own_parameters_and_the_place() {
    let request = room::request(&pair("fast", "a"), &class("fast", DRIVER, "Immediate"));

    let parameters = [("class", "local"), ("type", "ssd")];
    assert_eq!(
        request.parameters,
        parameters.map(|(key, value)| (key.into(), value.into())).into()
    );
    assert_eq!(request.accessible_topology.unwrap().segments, pair("fast", "a").segment.unwrap());
    assert!(request.volume_capabilities.is_empty());
}

#[test]
fn an_object_is_what_the_sidecar_would_have_written() {
    let object =
        room::object(&pair("fast", "a"), "hawser", room(10 * GIB, Some(GIB)), Some(&owner("u")));

    let name = pair("fast", "a").object_name();
    assert_eq!(
        object,
        json!({
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSIStorageCapacity",
            "metadata": {
                "name": name,
                "namespace": "hawser",
                "labels": {
                    "csi.storage.k8s.io/drivername": DRIVER,
                    "csi.storage.k8s.io/managed-by": "external-provisioner",
                },
                "ownerReferences": [{
                    "apiVersion": "apps/v1", "kind": "Deployment", "name": "hawser", "uid": "u",
                    "controller": true,
                }],
            },
            "storageClassName": "fast",
            "nodeTopology": { "matchLabels": { NODE: "a" } },
            "capacity": "10Gi",
            "maximumVolumeSize": "1Gi",
        })
    );
    let without = room::object(&pair("fast", "a"), "hawser", room(-1, None), None);
    assert_eq!(without["capacity"], "0");
    assert!(without.get("maximumVolumeSize").is_none());
}

#[test]
fn only_what_is_different_is_written() {
    let object = |json| serde_json::from_value::<Capacity>(json).unwrap();
    let known = object(json!({ "capacity": "10240Mi", "maximumVolumeSize": "1Gi" }));

    assert_eq!(room::patch(&known, room(10 * GIB, Some(GIB)), None), None);
    let less = room::patch(&known, room(9 * GIB, Some(GIB)), None);
    assert_eq!(less, Some(json!({ "capacity": "9Gi" })));
    let unlimited = room::patch(&known, room(10 * GIB, None), None);
    assert_eq!(unlimited, Some(json!({ "maximumVolumeSize": null })));
    let new = room::patch(&object(json!({})), room(0, None), None);
    assert_eq!(new, Some(json!({ "capacity": "0" })));
}

#[test]
fn an_object_gets_its_owner_and_loses_the_one_that_controlled_it() {
    let theirs = json!({ "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "theirs" });
    let mut old = serde_json::to_value(owner("old")).unwrap();
    let object = |owners| {
        let meta = json!({ "resourceVersion": "7", "ownerReferences": owners });
        serde_json::from_value::<Capacity>(json!({ "metadata": meta, "capacity": "1Gi" })).unwrap()
    };

    let patch = room::patch(&object(json!([theirs, old])), room(GIB, None), Some(&owner("new")));

    let all = json!([theirs, owner("new")]);
    let meta = json!({ "resourceVersion": "7", "ownerReferences": all });
    assert_eq!(patch, Some(json!({ "metadata": meta })));
    old["uid"] = "new".into();
    assert_eq!(room::patch(&object(json!([old])), room(GIB, None), Some(&owner("new"))), None);
}

#[test]
fn what_is_missing_too_many_or_not_wanted_is_due() {
    let wanted = [pair("fast", "a"), pair("fast", "b"), pair("fast", "c")];
    let mut odd = (*written(&pair("fast", "x"), "odd")).clone();
    odd.node_topology.as_mut().unwrap().match_expressions.push(serde::de::IgnoredAny);
    let objects = [
        written(&wanted[0], "one"),
        written(&wanted[1], "two"),
        written(&wanted[1], "three"),
        written(&pair("gone", "a"), "four"),
        Arc::new(odd),
    ];
    let plan = Plan::new(wanted.clone().into(), &objects);

    let due = plan.due(false, &Touched::default());

    let nowhere = Pair { segment: None, ..pair("fast", "x") };
    let [_, two, missing] = wanted;
    assert_eq!(due, [two, missing, nowhere, pair("gone", "a")]);
    assert_eq!(plan.due(true, &Touched::default()).len(), 5);
}

#[test]
fn a_volume_touches_all_classes_where_it_is() {
    let wanted = [pair("fast", "a"), pair("fast", "b"), pair("slow", "a")];
    let objects: Vec<_> = wanted.iter().map(|pair| written(pair, &pair.object_name())).collect();
    let plan = Plan::new(wanted.clone().into(), &objects);
    let due = |volume: serde_json::Value| {
        let mut touched = Touched::default();
        touched.volume(DRIVER, &serde_json::from_value(volume).unwrap());
        plan.due(false, &touched)
    };

    let terms =
        json!([{ "matchExpressions": [{ "key": NODE, "operator": "In", "values": ["a"] }] }]);
    let there = json!({ "required": { "nodeSelectorTerms": terms } });
    let placed = due(json!({ "spec": { "nodeAffinity": there, "storageClassName": "fast" } }));
    assert_eq!(placed, [pair("fast", "a"), pair("slow", "a")]);
    let anywhere = due(json!({ "spec": { "storageClassName": "fast" } }));
    assert_eq!(anywhere, [pair("fast", "a"), pair("fast", "b")]);
    assert!(due(json!({})).is_empty());
}

fn any_pair() -> impl Strategy<Value = Pair> {
    let segment = proptest::collection::btree_map("[a-c]{1,2}", "[a-c]{0,2}", 0..3);
    ("[a-c]{1,2}", "[a-c]{1,2}", segment).prop_map(|(driver, class, segment)| Pair {
        driver,
        class,
        segment: Some(segment),
    })
}

proptest! {
    #[test]
    fn an_object_says_which_pair_it_is_for(pair in any_pair(), bytes in 0..i64::MAX) {
        let object = room::object(&pair, "hawser", room(bytes, Some(bytes)), None);
        let object: Capacity = serde_json::from_value(object).unwrap();

        prop_assert_eq!(Pair::of(&object), pair);
        prop_assert_eq!(room::patch(&object, room(bytes, Some(bytes)), None), None);
    }

    #[test]
    fn no_two_pairs_share_a_name(one in any_pair(), other in any_pair()) {
        prop_assert_eq!(one == other, one.object_name() == other.object_name());
    }
}
