//! What tests of a driver wait for.

use std::time::Duration;

use serde_json::Value;

use super::objects::{claim_of, phase, pod_of};
use crate::cluster::{Cluster, Object};

/// How long something may take that takes seconds on a quiet machine.
pub const SOON: Duration = Duration::from_secs(180);

/// Waits until a claim and its volume are bound; answers the volume.
#[track_caller]
pub fn wait_bound(cluster: &mut Cluster, claim: &str) -> Value {
    let bound =
        cluster.wait("bound claim", &claim_of(claim), SOON, |found| phase(found) == "Bound");
    let name = bound["spec"]["volumeName"].as_str().unwrap_or_default();
    let volume = Object::new("persistentvolume", name);
    cluster.wait("bound volume", &volume, SOON, |volume| phase(volume) == "Bound")
}

/// Waits until a pod runs.
#[track_caller]
pub fn wait_running(cluster: &mut Cluster, pod: &str) -> Value {
    cluster.wait("pod that runs", &pod_of(pod), SOON, |pod| phase(pod) == "Running")
}

/// Waits until an object is gone, with everything that keeps it.
#[track_caller]
pub fn wait_gone(cluster: &mut Cluster, object: &Object) {
    cluster.wait(&format!("end of {object}"), object, SOON, Value::is_null);
}

/// Waits until a claim has so much room and its file system has grown with it.
#[track_caller]
pub fn wait_size(cluster: &mut Cluster, claim: &str, size: &str) {
    let what = format!("claim of {size}");
    let grown = |claim: &Value| {
        let waits = claim["status"]["conditions"].as_array().is_some_and(|all| !all.is_empty());
        claim["status"]["capacity"]["storage"] == size && !waits
    };
    cluster.wait(&what, &claim_of(claim), SOON, grown);
}

/// Runs a script in the only container of a pod; answers what it said.
///
/// # Panics
///
/// When it fails, with everything that it said.
#[track_caller]
pub fn inside(cluster: &Cluster, pod: &str, script: &str) -> String {
    let done = cluster.kubectl().exec("default", pod, &["/bin/sh", "-c", script]);
    assert!(
        done.status.success(),
        "{script} in pod {pod}: {}\n{}{}",
        done.status,
        done.stdout,
        done.stderr
    );
    done.stdout.trim().to_owned()
}

/// How many KiB a mounted claim has, as `df` in the pod sees it.
#[track_caller]
pub fn room_in(cluster: &Cluster, pod: &str) -> u64 {
    // In the portable form, which never breaks a line.
    let said = inside(cluster, pod, "df -P -k /data | tail -n 1");
    let number = said.split_whitespace().nth(1).and_then(|number| number.parse().ok());
    number.unwrap_or_else(|| panic!("df says {said:?}"))
}
