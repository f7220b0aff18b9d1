//! Which class comes next, and what claims say of it.

mod cluster;
mod decisions;

use serde_json::{Value, json};

use crate::kubernetes::objects::Claim;

/// A bound claim that names this class, and whose volume has that one; empty is none.
fn claim(wanted: &str, current: &str) -> Value {
    let named = |name: &str| if name.is_empty() { Value::Null } else { json!(name) };
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": { "name": "c", "namespace": "ns", "uid": "u-1", "resourceVersion": "7" },
        "spec": { "volumeName": "pv-1", "volumeAttributesClassName": named(wanted) },
        "status": { "phase": "Bound", "currentVolumeAttributesClassName": named(current) },
    })
}

/// The same, with a change that is this far.
fn at(wanted: &str, current: &str, target: &str, status: &str) -> Value {
    let mut claim = claim(wanted, current);
    claim["status"]["modifyVolumeStatus"] =
        json!({ "targetVolumeAttributesClassName": target, "status": status });
    claim
}

fn with_conditions(mut claim: Value, kinds: &[&str]) -> Value {
    let told = |kind| json!({ "type": kind, "status": "True", "lastTransitionTime": "then" });
    claim["status"]["conditions"] = kinds.iter().map(told).collect();
    claim
}

fn read(claim: Value) -> Claim {
    serde_json::from_value(claim).unwrap()
}
