//! Objects that tests of a driver make, as JSON. All of them are in the namespace `default`.

use serde_json::{Value, json};

use crate::cluster::{BUSYBOX, Object};

/// Where pods show a claim that is mounted.
pub const FOLDER: &str = "/data";

/// Where pods show a claim that is a raw device.
pub const DEVICE: &str = "/dev/disk";

/// A claim by name.
pub fn claim_of(name: &str) -> Object {
    Object::within("default", "persistentvolumeclaim", name)
}

/// A pod by name.
pub fn pod_of(name: &str) -> Object {
    Object::within("default", "pod", name)
}

/// A snapshot by name.
pub fn snapshot_of(name: &str) -> Object {
    Object::within("default", "volumesnapshot", name)
}

/// When a class makes its volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// When they are claimed.
    Immediate,
    /// When a pod that uses the claim has a node.
    WaitForFirstConsumer,
}

/// A class of a driver; its volumes can grow.
pub fn storage_class(name: &str, driver: &str, binding: Binding, parameters: Value) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": { "name": name },
        "provisioner": driver,
        "volumeBindingMode": format!("{binding:?}"),
        "allowVolumeExpansion": true,
        "parameters": parameters,
    })
}

/// A class of snapshots.
pub fn snapshot_class(name: &str, driver: &str) -> Value {
    json!({
        "apiVersion": "snapshot.storage.k8s.io/v1",
        "kind": "VolumeSnapshotClass",
        "metadata": { "name": name },
        "driver": driver,
        "deletionPolicy": "Delete",
    })
}

/// What volumes can be changed to.
pub fn attributes_class(name: &str, driver: &str, parameters: Value) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttributesClass",
        "metadata": { "name": name },
        "driverName": driver,
        "parameters": parameters,
    })
}

/// A claim, with more in its specification.
pub fn claim(name: &str, class: &str, size: &str, more: Value) -> Value {
    let mut spec = json!({
        "storageClassName": class,
        "accessModes": ["ReadWriteOnce"],
        "resources": { "requests": { "storage": size } },
    });
    if let (Some(spec), Value::Object(more)) = (spec.as_object_mut(), more) {
        spec.extend(more);
    }
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": { "name": name, "namespace": "default" },
        "spec": spec,
    })
}

/// What a claim gets when it is to hold what a snapshot holds.
pub fn from_snapshot(name: &str) -> Value {
    let source =
        json!({ "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": name });
    json!({ "dataSource": source })
}

/// What a claim gets when it is to hold what another one holds.
pub fn from_claim(name: &str) -> Value {
    json!({ "dataSource": { "kind": "PersistentVolumeClaim", "name": name } })
}

/// What a claim of a raw device gets.
pub fn raw() -> Value {
    json!({ "volumeMode": "Block" })
}

/// A snapshot of a claim.
pub fn snapshot(name: &str, class: &str, claim: &str) -> Value {
    json!({
        "apiVersion": "snapshot.storage.k8s.io/v1",
        "kind": "VolumeSnapshot",
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "volumeSnapshotClassName": class,
            "source": { "persistentVolumeClaimName": claim },
        },
    })
}

/// A pod that stays, with a claim mounted at [`FOLDER`].
pub fn pod(name: &str, claim: &str) -> Value {
    pod_with(name, claim, json!({ "volumeMounts": [{ "name": "volume", "mountPath": FOLDER }] }))
}

/// A pod that stays, with the device of a claim at [`DEVICE`].
pub fn raw_pod(name: &str, claim: &str) -> Value {
    pod_with(name, claim, json!({ "volumeDevices": [{ "name": "volume", "devicePath": DEVICE }] }))
}

/// A pod whose only container has more; it does nothing but stay, unless that says otherwise.
pub fn pod_with(name: &str, claim: &str, more: Value) -> Value {
    let mut container = json!({
        "name": "only",
        "image": BUSYBOX,
        "imagePullPolicy": "Never",
        "command": ["/bin/sleep", "2147483647"],
    });
    if let (Some(container), Value::Object(more)) = (container.as_object_mut(), more) {
        container.extend(more);
    }
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "restartPolicy": "Never",
            // Not at once: the server would forget the pod while its volumes are still mounted.
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
            "volumes": [{
                "name": "volume",
                "persistentVolumeClaim": { "claimName": claim },
            }],
        },
    })
}

/// The `phase` of a claim, volume or pod.
pub fn phase(object: &Value) -> &str {
    object["status"]["phase"].as_str().unwrap_or_default()
}

/// The name of an object.
pub fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// True when a condition of an object is so.
pub fn has_condition(object: &Value, kind: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.filter(|found| found["type"] == kind).any(|found| found["status"] == "True")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_carries_what_is_added_to_it() {
        let copy = claim("copy", "local", "64Mi", from_claim("data"));
        assert_eq!(copy["spec"]["dataSource"]["name"], "data");
        assert_eq!(copy["spec"]["resources"]["requests"]["storage"], "64Mi");
        assert_eq!(claim("disk", "local", "64Mi", raw())["spec"]["volumeMode"], "Block");
    }

    #[test]
    fn a_condition_counts_when_it_is_true() {
        let pod = json!({ "status": { "conditions": [
            { "type": "Ready", "status": "False" }, { "type": "PodScheduled", "status": "True" },
        ]}});
        assert!(has_condition(&pod, "PodScheduled"));
        assert!(!has_condition(&pod, "Ready"));
        assert!(!has_condition(&json!({}), "Ready"));
    }
}
