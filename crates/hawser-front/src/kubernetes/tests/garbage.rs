//! CVE-2020-8569: whatever users and others write into objects, the controllers do not fall over it.
//! Objects as the API server may have them lack parts and have texts and numbers that mean nothing; all
//! controllers look at them, and at what they are changed to.

use std::cell::Cell;
use std::sync::Once;
use std::time::Duration;

use hawser_core::ByteSize;
use hawser_core::name::{Alias, Labels, Scope};
use hawser_core::port::Control;
use hawser_core::snapshot::{SnapshotRef, SnapshotRequest};
use hawser_core::volume::{VolumeRef, VolumeRequest};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

use super::fake::FakeApi;
use super::rig::{DRIVER, Rig};
use crate::kubernetes::objects::{
    Attachment, AttributesClass, Claim, Content, CsiNode, GroupClass, GroupContent, Node, Object,
    Snapshot, SnapshotClass, StorageClass, Volume,
};

/// One damage: where, and what is there instead.
type Damage = (prop::sample::Index, Instead);

#[derive(Clone, Debug)]
enum Instead {
    Nothing,
    Text(String),
    Number(i64),
}

/// What becomes of one object: as it is made, as it is changed, and whether somebody deletes it.
#[derive(Clone, Debug)]
struct Fate {
    made: Vec<Damage>,
    changed: Vec<Damage>,
    deleted: bool,
}

fn damage() -> impl Strategy<Value = Damage> {
    let known = prop::sample::select(vec![
        "",
        "\u{0}",
        "../../etc",
        "-1Gi",
        "1Gi",
        "3Gi",
        "99999999999999999999E",
        "1e400",
        "Bound",
        "Block",
        "1",
        "ControllerResizeInProgress",
        "NodeResizePending",
        "${pvc.annotations['",
        VOLUME,
        SNAPSHOT,
    ]);
    let text = prop_oneof![
        4 => known.prop_map(str::to_owned),
        1 => Just("é".repeat(2000)),
        1 => "\\PC{0,40}",
    ];
    let number = prop_oneof![Just(0), Just(-1), Just(i64::MIN), Just(i64::MAX), any::<i64>()];
    let instead = prop_oneof![
        2 => Just(Instead::Nothing),
        3 => text.prop_map(Instead::Text),
        1 => number.prop_map(Instead::Number),
    ];
    (any::<prop::sample::Index>(), instead)
}

fn fates() -> impl Strategy<Value = Vec<Fate>> {
    // Most are whole: behind the first thing that means nothing the others are not looked at.
    let damages = || prop_oneof![3 => Just(Vec::new()), 2 => prop::collection::vec(damage(), 1..4)];
    let fate = (damages(), damages(), prop::bool::weighted(0.3))
        .prop_map(|(made, changed, deleted)| Fate { made, changed, deleted });
    prop::collection::vec(fate, objects().len())
}

/// All places of an object but those that the API server itself sees to.
fn places(value: &Value, path: &str, all: &mut Vec<String>) {
    const KEPT: [&str; 5] = ["apiVersion", "kind", "metadata", "status", "spec"];
    const OWN: [&str; 8] = [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
    ];
    let below: Vec<(String, &Value)> = match value {
        Value::Object(fields) => {
            let escaped = |key: &str| key.replace('~', "~0").replace('/', "~1");
            fields.iter().map(|(key, value)| (escaped(key), value)).collect()
        }
        Value::Array(items) => {
            items.iter().enumerate().map(|(n, item)| (n.to_string(), item)).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    };
    for (key, value) in below {
        let own = path == "/metadata" && OWN.contains(&key.as_str());
        let kept = path.is_empty() && KEPT.contains(&key.as_str());
        let place = format!("{path}/{key}");
        if !own {
            places(value, &place, all);
        }
        if !own && !kept {
            all.push(place);
        }
    }
}

/// Damages an object as its schema allows: a text stays a text.
fn damaged(object: &mut Value, damages: &[Damage]) {
    for (place, instead) in damages {
        let mut all = Vec::new();
        places(object, "", &mut all);
        if all.is_empty() {
            return;
        }
        let place = place.get(&all);
        let Some(there) = object.pointer_mut(place) else { continue };
        match (there, instead) {
            (_, Instead::Nothing) => remove(object, place),
            (there @ Value::String(_), Instead::Text(text)) => *there = json!(text),
            (there @ Value::Number(_), Instead::Number(number)) => {
                // An int32 of the API; the server refuses what is none, as it refuses a text.
                let is_short = place.ends_with("/errorCode");
                *there = if is_short { json!(*number as i32) } else { json!(number) };
            }
            (there @ Value::Bool(_), Instead::Number(number)) => *there = json!(number % 2 == 0),
            _ => {}
        }
    }
}

fn remove(object: &mut Value, place: &str) {
    let Some((parent, key)) = place.rsplit_once('/') else { return };
    match object.pointer_mut(parent) {
        Some(Value::Object(fields)) => {
            fields.remove(&key.replace("~1", "/").replace("~0", "~"));
        }
        Some(Value::Array(items)) => drop(items.remove(key.parse().expect("a place in a list"))),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) | None => {}
    }
}

/// Objects of all kinds that mean one another, and the storage of [`Stored`].
fn objects() -> Vec<Value> {
    let mut all = volumes();
    all.extend(snapshots());
    all.extend(nodes());
    all
}

/// What objects call storage that is there.
const VOLUME: &str = "vol-01k5zzzzzzzzzzzzzzzzzzzzzz";
const SNAPSHOT: &str = "snap-01k5zzzzzzzzzzzzzzzzzzzzzz";

/// Storage that is there, and a secret to reach it with.
struct Stored {
    volume: String,
    snapshot: String,
}

impl Stored {
    async fn begin(rig: &Rig) -> Self {
        let name = |name: &str| Alias::new(Scope::Csi, name.to_owned()).expect("a name");
        let wait = Default::default;
        let volume = VolumeRequest::new(name("pvc-uid-old"), ByteSize::gib(1));
        rig.control.create_volume(volume, wait()).await.expect("a volume");
        let volume = VolumeRef::Alias(name("pvc-uid-old"));
        let snapshot = SnapshotRequest {
            alias: name("cut"),
            volume: volume.clone(),
            labels: Labels::default(),
        };
        rig.control.create_snapshot(snapshot, wait()).await.expect("a snapshot");
        rig.api.put(json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "name": "login", "namespace": "shop" }, "data": { "user": "bWU=" },
        }));
        rig.api.put(json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": { "name": DRIVER },
            "spec": { "storageCapacity": true },
        }));
        let snapshot = SnapshotRef::Alias(name("cut"));
        Self {
            volume: rig.control.get_volume(&volume).await.expect("a volume").id.to_string(),
            snapshot: rig.control.get_snapshot(&snapshot).await.expect("one").id.to_string(),
        }
    }

    /// An object that means this storage.
    fn meant(&self, object: &Value) -> Value {
        let text = object.to_string().replace(VOLUME, &self.volume);
        serde_json::from_str(&text.replace(SNAPSHOT, &self.snapshot)).expect("an object")
    }
}

fn volumes() -> Vec<Value> {
    let marks = json!({
        "team": "login",
        "volume.kubernetes.io/storage-provisioner": DRIVER,
        "volume.kubernetes.io/selected-node": "n1",
        "pv.kubernetes.io/bound-by-controller": "yes",
    });
    let claim = |name: &str, volume: &str, phase: &str, source: Value| {
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": name, "namespace": "shop", "uid": format!("uid-{name}"),
                "annotations": marks, "labels": { "a": "b" },
                "finalizers": ["provisioner.storage.kubernetes.io/cloning-protection"],
            },
            "spec": {
                "storageClassName": "gold", "accessModes": ["ReadWriteOnce"],
                "volumeMode": "Filesystem", "volumeName": volume, "dataSource": source,
                "resources": { "requests": { "storage": "2Gi" } },
                "volumeAttributesClassName": "fast",
            },
            "status": {
                "phase": phase, "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"],
                "allocatedResources": { "storage": "2Gi" },
                "allocatedResourceStatuses": { "storage": "ControllerResizeInfeasible" },
                "currentVolumeAttributesClassName": "slow",
                "modifyVolumeStatus": {
                    "targetVolumeAttributesClassName": "fast", "status": "InProgress",
                },
                "conditions": [{ "type": "Resizing", "status": "True", "reason": "" }],
            },
        })
    };
    let named = |kind: &str, name: &str| {
        let group = if kind == "VolumeSnapshot" { "snapshot.storage.k8s.io" } else { "" };
        json!({ "apiGroup": group, "kind": kind, "name": name })
    };
    let secret = json!({ "name": "login", "namespace": "shop" });
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {
            "name": "pv",
            "annotations": {
                "pv.kubernetes.io/provisioned-by": DRIVER,
                "volume.kubernetes.io/provisioner-deletion-secret-name": "login",
                "volume.kubernetes.io/provisioner-deletion-secret-namespace": "shop",
                "volume.alpha.kubernetes.io/pre-resize-capacity": "1Gi",
            },
            "finalizers": [
                "external-provisioner.volume.kubernetes.io/finalizer",
                "external-attacher/csi-hawser-storage",
            ],
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "1Gi" },
            "claimRef": { "namespace": "shop", "name": "old", "uid": "uid-old" },
            "csi": {
                "driver": DRIVER, "volumeHandle": VOLUME,
                "fsType": "ext4", "readOnly": true, "volumeAttributes": { "a": "b" },
                "controllerPublishSecretRef": secret, "controllerExpandSecretRef": secret,
            },
            "mountOptions": ["noatime"],
            "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [{
                "key": "topology.hawser.storage/node", "operator": "In", "values": ["n1"],
            }] }] } },
            "persistentVolumeReclaimPolicy": "Delete", "storageClassName": "gold",
            "volumeAttributesClassName": "slow", "volumeMode": "Filesystem",
        },
        "status": { "phase": "Bound" },
    });
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": "gold" },
        "provisioner": DRIVER, "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate",
        "allowVolumeExpansion": true, "mountOptions": ["noatime"],
        "parameters": {
            "csi.storage.k8s.io/fstype": "ext4", "class": "default",
            "csi.storage.k8s.io/provisioner-secret-name": "${pvc.annotations['team']}",
            "csi.storage.k8s.io/provisioner-secret-namespace": "${pvc.namespace}",
        },
        "allowedTopologies": [{ "matchLabelExpressions": [{
            "key": "topology.hawser.storage/node", "values": ["n1"],
        }] }],
    });
    let attributes = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass",
        "metadata": { "name": "fast" }, "driverName": DRIVER,
        "parameters": { "label.tier": "gold" },
    });
    vec![
        class,
        attributes,
        volume,
        claim("old", "pv", "Bound", named("PersistentVolumeClaim", "older")),
        claim("new", "", "Pending", Value::Null),
        claim("copy", "", "Pending", named("VolumeSnapshot", "nightly")),
        claim("clone", "", "Pending", named("PersistentVolumeClaim", "old")),
    ]
}

fn snapshots() -> Vec<Value> {
    let group = "groupsnapshot.storage.k8s.io/v1";
    let single = "snapshot.storage.k8s.io/v1";
    let marked = |name: &str, group: &str| {
        let secret = format!("{group}.storage.kubernetes.io/deletion-secret-name");
        let secret_at = format!("{secret}space");
        json!({
            "name": name,
            "annotations": {
                secret: "login",
                secret_at: "shop",
                "snapshot.storage.kubernetes.io/volumesnapshot-being-created": "yes",
                "snapshot.storage.kubernetes.io/allow-volume-mode-change": "true",
            },
            "finalizers": [
                "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection",
                "groupsnapshot.storage.kubernetes.io/volumegroupsnapshotcontent-bound-protection",
            ],
        })
    };
    let wish = |name: &str| json!({ "namespace": "shop", "name": name, "uid": "uid-1" });
    let content = |name: &str, source: Value, status: Value| {
        json!({
            "apiVersion": single, "kind": "VolumeSnapshotContent",
            "metadata": marked(name, "snapshot"),
            "spec": {
                "driver": DRIVER, "deletionPolicy": "Delete", "source": source,
                "volumeSnapshotClassName": "fast", "volumeSnapshotRef": wish("nightly"),
                "sourceVolumeMode": "Filesystem",
            },
            "status": status,
        })
    };
    let status = json!({
        "snapshotHandle": SNAPSHOT, "readyToUse": true,
        "creationTime": 1_700_000_000_000_000_000_i64, "restoreSize": 1 << 30,
        "volumeGroupSnapshotHandle": "grp-01k5zzzzzzzzzzzzzzzzzzzzzz",
        "error": { "message": "earlier" },
    });
    let handles = json!({ "volumeHandles": [VOLUME] });
    let group_content = |name: &str, source: Value| {
        json!({
            "apiVersion": group, "kind": "VolumeGroupSnapshotContent",
            "metadata": marked(name, "groupsnapshot"),
            "spec": {
                "driver": DRIVER, "deletionPolicy": "Delete", "source": source,
                "volumeGroupSnapshotClassName": "groups", "volumeGroupSnapshotRef": wish("all"),
            },
            "status": {
                "volumeGroupSnapshotHandle": "grp-01k5zzzzzzzzzzzzzzzzzzzzzz", "readyToUse": false,
                "creationTime": "2026-01-01T00:00:00Z",
                "volumeSnapshotInfoList": [{ "snapshotHandle": "snap-1", "volumeHandle": "v" }],
            },
        })
    };
    let given = json!({ "groupSnapshotHandles": {
        "volumeGroupSnapshotHandle": "grp-01k5zzzzzzzzzzzzzzzzzzzzzz",
        "volumeSnapshotHandles": [SNAPSHOT],
    }});
    vec![
        json!({
            "apiVersion": single, "kind": "VolumeSnapshot",
            "metadata": {
                "name": "nightly", "namespace": "shop", "uid": "uid-1",
                "finalizers":
                    ["provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection"],
            },
            "status": {
                "boundVolumeSnapshotContentName": "cut", "readyToUse": true, "restoreSize": "1Gi",
            },
        }),
        content("cut", json!({ "snapshotHandle": SNAPSHOT }), status),
        content("wanted", json!({ "volumeHandle": VOLUME }), json!({})),
        json!({
            "apiVersion": single, "kind": "VolumeSnapshotClass", "metadata": { "name": "fast" },
            "driver": DRIVER, "deletionPolicy": "Delete", "parameters": { "label.team": "blue" },
        }),
        group_content("cuts", given),
        group_content("wants", handles),
        json!({
            "apiVersion": group, "kind": "VolumeGroupSnapshotClass",
            "metadata": { "name": "groups" }, "driver": DRIVER, "parameters": { "label.team": "blue" },
        }),
    ]
}

fn nodes() -> Vec<Value> {
    let attachment = |name: &str, attached: bool| {
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
            "metadata": {
                "name": name, "finalizers": ["external-attacher/csi-hawser-storage"],
                "annotations": { "csi.alpha.kubernetes.io/node-id": "n1" },
            },
            "spec": {
                "attacher": DRIVER, "nodeName": "n1", "source": { "persistentVolumeName": "pv" },
            },
            "status": {
                "attached": attached, "attachmentMetadata": { "a": "b" },
                "attachError": { "message": "earlier" },
                "detachError": { "message": "earlier" },
            },
        })
    };
    vec![
        attachment("there", true),
        attachment("wanted-there", false),
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": { "name": "n1" },
            "spec": { "drivers": [{
                "name": DRIVER, "nodeID": "n1", "topologyKeys": ["topology.hawser.storage/node"],
            }] },
        }),
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": "n1", "labels": { "topology.hawser.storage/node": "n1" } },
            "spec": { "taints": [{ "key": "hawser.storage/not-ready", "effect": "NoSchedule" }] },
        }),
    ]
}

/// Whether the controllers can read an object: one that they could not would end their watch.
fn is_readable(object: &Value) -> bool {
    fn reads<K: Object>(object: &Value) -> bool {
        serde_json::from_value::<K>(object.clone()).is_ok()
    }
    match object["kind"].as_str().expect("a kind") {
        "PersistentVolumeClaim" => reads::<Claim>(object),
        "PersistentVolume" => reads::<Volume>(object),
        "StorageClass" => reads::<StorageClass>(object),
        "VolumeAttributesClass" => reads::<AttributesClass>(object),
        "VolumeSnapshot" => reads::<Snapshot>(object),
        "VolumeSnapshotContent" => reads::<Content>(object),
        "VolumeSnapshotClass" => reads::<SnapshotClass>(object),
        "VolumeGroupSnapshotContent" => reads::<GroupContent>(object),
        "VolumeGroupSnapshotClass" => reads::<GroupClass>(object),
        "VolumeAttachment" => reads::<Attachment>(object),
        "CSINode" => reads::<CsiNode>(object),
        "Node" => reads::<Node>(object),
        other => panic!("{other} is not known"),
    }
}

thread_local! {
    static FALLS: Cell<usize> = const { Cell::new(0) };
}

/// Counts what panics in this thread: the runtime catches it in tasks.
fn count_falls() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            FALLS.set(FALLS.get() + 1);
            before(info);
        }));
    });
    FALLS.set(0);
}

/// Where an object is on the server.
fn path(object: &Value) -> String {
    let kind = object["kind"].as_str().expect("a kind").to_ascii_lowercase();
    let plural = if kind.ends_with("class") { format!("{kind}es") } else { format!("{kind}s") };
    let metadata = &object["metadata"];
    let name = metadata["name"].as_str().expect("a name");
    match metadata["namespace"].as_str() {
        Some(namespace) => format!("{plural}/{namespace}/{name}"),
        None => format!("{plural}/{name}"),
    }
}

/// Lets the controllers look at all of it, for as long as they have to do with it.
async fn live_through(fates: &[Fate]) -> Result<(), String> {
    let mut rig = Rig::new();
    let stored = Stored::begin(&rig).await;
    let objects = objects();
    let readable = |api: &FakeApi, path: &str| match api.object(path) {
        Some(object) if !is_readable(&object) => Err(format!("cannot be read: {object:#}")),
        Some(_) | None => Ok(()),
    };
    for (object, fate) in objects.iter().zip(fates) {
        let mut made = stored.meant(object);
        damaged(&mut made, &fate.made);
        rig.api.put(made);
        readable(&rig.api, &path(object))?;
    }
    rig.start();
    tokio::time::sleep(Duration::from_secs(30)).await;
    for (object, fate) in objects.iter().zip(fates) {
        let path = path(object);
        if rig.api.object(&path).is_some() {
            rig.api.update(&path, |object| damaged(object, &fate.changed));
        }
        readable(&rig.api, &path)?;
        if fate.deleted && rig.api.object(&path).is_some() {
            delete(&rig.api, object, &path);
        }
    }
    tokio::time::sleep(Duration::from_secs(90)).await;
    rig.stop().await;
    Ok(())
}

/// Deletes an object, as those do whose it is.
fn delete(api: &FakeApi, object: &Value, path: &str) {
    let begin = |object: &mut Value, mark: &str| {
        if object["metadata"]["annotations"].is_object() {
            object["metadata"]["annotations"][mark] = json!("yes");
        }
    };
    match object["kind"].as_str().expect("a kind") {
        "PersistentVolume" => drop(api.update(path, |volume| {
            volume["status"] = json!({ "phase": "Released" });
        })),
        "VolumeSnapshotContent" => drop(api.update(path, |content| {
            begin(content, "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted");
        })),
        "VolumeGroupSnapshotContent" => drop(api.update(path, |content| {
            begin(content, "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-being-deleted");
        })),
        _ => {}
    }
    api.delete(path);
}

#[test]
fn no_object_makes_a_controller_fall_over() {
    count_falls();
    // Each is two minutes of all controllers, so a thousand take one of ours.
    let cases = (Config::default().cases / 4).min(1000);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new(config);

    let outcome = runner.run(&fates(), |fates| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .expect("a runtime");
        let lived = runtime.block_on(live_through(&fates));
        prop_assert!(lived.is_ok(), "{}", lived.unwrap_err());
        prop_assert_eq!(FALLS.replace(0), 0, "something fell over");
        Ok(())
    });

    outcome.unwrap();
}
