//! The manifests of `deploy/kubernetes`, as users apply them.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::objects::{Binding, claim, storage_class};
use super::waits::SOON;
use crate::cluster::kubectl::unwrap;
use crate::cluster::{Cluster, Kubectl};
use crate::process::command;

/// What runs pods; everything else of the manifests is there for a process of a node too.
const WORKLOADS: [&str; 2] = ["Deployment", "DaemonSet"];

/// What marks claims as they are made.
const POLICY: [&str; 2] = ["MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"];

/// What a claim is marked with.
pub const STAMP: &str = "volume.kubernetes.io/storage-provisioner";

/// A file of `deploy/kubernetes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chart {
    /// `hawser.yaml`: the controller does what the sidecars do.
    Alone,
    /// `hawser-sidecars.yaml`.
    WithSidecars,
}

/// Whether claims are marked as they are made, or by the controller-manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamps {
    /// By the chart's admission policy.
    ByPolicy,
    /// By the controller-manager, as before Kubernetes 1.36.
    ByControllers,
}

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// The objects of a chart, one by one.
#[track_caller]
pub(super) fn objects(cluster: &Cluster, chart: Chart) -> Vec<Value> {
    let file = match chart {
        Chart::Alone => "hawser.yaml",
        Chart::WithSidecars => "hawser-sidecars.yaml",
    };
    let path = repository("deploy/kubernetes").join(file).display().to_string();
    // By kubectl, so that each number is what it is when users apply the file: 0400 is one of eights.
    let args = ["create", "--dry-run=client", "--validate=ignore", "-o", "json", "-f", &path];
    let said = cluster.kubectl().ok(&args);
    let found = split(&said);
    assert!(found.len() > 10, "{path} has only {} objects", found.len());
    found
}

/// The objects in what kubectl says: a list, or one after the other.
fn split(said: &str) -> Vec<Value> {
    let values = serde_json::Deserializer::from_str(said).into_iter::<Value>();
    let values = values.map(|value| value.expect("kubectl speaks JSON"));
    let each =
        values.flat_map(|mut value| match value.get_mut("items").and_then(Value::as_array_mut) {
            Some(items) => std::mem::take(items),
            None => vec![value],
        });
    each.collect()
}

/// Applies a chart but for what runs in pods.
#[track_caller]
pub fn install(cluster: &Cluster, chart: Chart, stamps: Stamps) {
    let mut left_out = WORKLOADS.to_vec();
    if stamps == Stamps::ByControllers {
        left_out.extend(POLICY);
    }
    let mut all = objects(cluster, chart);
    all.retain(|object| !left_out.iter().any(|kind| object["kind"] == *kind));
    cluster.kubectl().apply_json(&all);
    if chart == Chart::Alone && stamps == Stamps::ByPolicy {
        wait_for_policy(cluster.kubectl());
    }
}

/// Applies the certificates of the node link; the namespace has to be there.
#[track_caller]
pub(super) fn install_certificates(cluster: &Cluster) {
    let made = command(repository("deploy/kubernetes/certificates")).output();
    let made = made.unwrap_or_else(|error| panic!("running the script of certificates: {error}"));
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    cluster.kubectl().apply(String::from_utf8_lossy(&made.stdout));
}

/// Waits until the server follows the policy; nothing tells when it does, so it is tried, with claims
/// that are never made.
#[track_caller]
pub(super) fn wait_for_policy(kubectl: &Kubectl) {
    let class = storage_class("probe", super::ATTACHED, Binding::Immediate, json!({}));
    kubectl.apply_json(&[class]);
    let probe = claim("probe", "probe", "1Mi", json!({})).to_string();
    let args = ["create", "--dry-run=server", "-o", "json", "-f", "-"];
    let begun = Instant::now();
    loop {
        let said = unwrap(kubectl.try_ok(&args, probe.as_bytes()));
        let claim: Value = serde_json::from_str(&said).unwrap_or_default();
        if claim["metadata"]["annotations"][STAMP].is_string() {
            break;
        }
        assert!(begun.elapsed() < SOON, "no claim was marked within {SOON:?}");
        std::thread::sleep(Duration::from_millis(200));
    }
    kubectl.ok(&["delete", "storageclass", "probe"]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_found_in_a_list_and_one_after_the_other() {
        let list = r#"{"kind":"List","items":[{"kind":"A"},{"kind":"B"}]}"#;
        assert_eq!(split(list), [json!({ "kind": "A" }), json!({ "kind": "B" })]);
        let row = "{\"kind\":\"A\"}\n{\"kind\":\"B\"}\n";
        assert_eq!(split(row), split(list));
    }
}
