//! Which size comes next, and what claims and volumes say of it.

mod cluster;
mod decisions;
mod statuses;

use serde_json::{Value, json};

use crate::kubernetes::objects::{Claim, Volume};

/// A bound claim that asks for this much and has that much.
fn claim(requested: &str, capacity: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": { "name": "c", "namespace": "ns", "uid": "u-1", "resourceVersion": "7" },
        "spec": { "volumeName": "pv-1", "resources": { "requests": { "storage": requested } } },
        "status": { "phase": "Bound", "capacity": { "storage": capacity } },
    })
}

/// The same, with an expansion to a size that is this far.
fn at(requested: &str, capacity: &str, allocated: &str, progress: &str) -> Value {
    let mut claim = claim(requested, capacity);
    claim["status"]["allocatedResources"] = json!({ "storage": allocated });
    if !progress.is_empty() {
        claim["status"]["allocatedResourceStatuses"] = json!({ "storage": progress });
    }
    claim
}

fn with_conditions(mut claim: Value, kinds: &[&str]) -> Value {
    let told = |kind| json!({ "type": kind, "status": "True", "lastTransitionTime": "then" });
    claim["status"]["conditions"] = kinds.iter().map(told).collect();
    claim
}

fn volume(size: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": { "name": "pv-1", "uid": "u-2" },
        "spec": { "capacity": { "storage": size } },
    })
}

fn read(claim: Value) -> Claim {
    serde_json::from_value(claim).unwrap()
}

fn read_volume(volume: Value) -> Volume {
    serde_json::from_value(volume).unwrap()
}

/// The kinds of the conditions in a patch, in order.
fn kinds(patch: &Value) -> Vec<&str> {
    let conditions = patch["status"]["conditions"].as_array().unwrap();
    conditions.iter().map(|condition| condition["type"].as_str().unwrap()).collect()
}
