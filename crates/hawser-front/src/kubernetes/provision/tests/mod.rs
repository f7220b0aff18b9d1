//! Claims get volumes: what tests of it share.

mod claims;
mod leaks;
mod lost;
mod told;
mod waiting;

use serde_json::{Value, json};

use crate::kubernetes::tests::fake::FakeApi;
use crate::kubernetes::tests::rig::{DRIVER, Rig};

fn phase(object: &Value) -> &str {
    object["status"]["phase"].as_str().unwrap_or_default()
}

fn bound(object: &Value) -> bool {
    phase(object) == "Bound"
}

/// Where the volume of a claim is.
fn volume_of(claim: &Value) -> String {
    format!("persistentvolumes/pvc-{}", claim["metadata"]["uid"].as_str().unwrap())
}

/// What users were warned of.
fn warnings(api: &FakeApi) -> Vec<String> {
    let events = api.objects("events");
    let warnings = events.iter().filter(|event| event["type"] == "Warning");
    warnings.map(|event| event["message"].as_str().unwrap_or_default().to_owned()).collect()
}

/// The class `late`, whose claims wait for their pod.
fn late_class(rig: &Rig) {
    rig.api.put(json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": "late" },
        "provisioner": DRIVER, "volumeBindingMode": "WaitForFirstConsumer",
    }));
}

/// A node that has the driver.
fn node(rig: &Rig, name: &str) {
    rig.api.put(json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": name, "labels": { "topology.hawser.storage/node": name } },
    }));
    rig.api.put(json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": { "name": name },
        "spec": { "drivers": [{
            "name": DRIVER, "nodeID": name, "topologyKeys": ["topology.hawser.storage/node"],
        }] },
    }));
}
