//! When the startup taint goes.

use http::Method;
use tokio::task::JoinHandle;

use super::*;
use crate::kubernetes::tests::desk;
use crate::kubernetes::tests::fake::{FakeApi, Fault};
use crate::kubernetes::tests::rig::{DRIVER, LOCAL};

const TAINT: &str = "hawser.storage/not-ready";

struct Cluster {
    api: FakeApi,
    stop: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
}

impl Cluster {
    fn working() -> Self {
        let api = FakeApi::new();
        let office = desk::office(&api);
        let taints = Taints::new(office.clone(), TAINT.into());
        let stop = CancellationToken::new();
        let (one, other) = (taints.clone(), taints.clone());
        let nodes = office.tables.nodes.clone();
        let csi_nodes = office.tables.csi_nodes.clone();
        let tasks = vec![
            tokio::spawn(nodes.keep(api.client(), stop.clone(), move |changed| {
                one.heard_node(&changed);
            })),
            tokio::spawn(csi_nodes.keep(api.client(), stop.clone(), move |changed| {
                other.heard_csi_node(&changed);
            })),
            tokio::spawn(taints.run(stop.clone())),
        ];
        Self { api, stop, tasks }
    }

    async fn stop(self) {
        self.stop.cancel();
        for task in self.tasks {
            task.await.unwrap();
        }
    }

    /// A node with these taints; answers its uid.
    fn node(&self, name: &str, taints: &[&str]) -> Value {
        let taints: Vec<_> = taints
            .iter()
            .map(
                |key| json!({ "key": key, "value": "v", "effect": "NoSchedule", "timeAdded": "t" }),
            )
            .collect();
        let node = self.api.put(json!({
            "apiVersion": "v1", "kind": "Node", "metadata": { "name": name },
            "spec": { "podCIDR": "10.0.0.0/24", "taints": taints },
        }));
        node["metadata"]["uid"].clone()
    }

    /// What its kubelet says.
    fn drivers(&self, name: &str, node: &Value, drivers: &[&str]) {
        let drivers: Vec<_> =
            drivers.iter().map(|driver| json!({ "name": driver, "nodeID": name })).collect();
        let owner = json!({ "apiVersion": "v1", "kind": "Node", "name": name, "uid": node });
        self.api.put(json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "CSINode",
            "metadata": { "name": name, "ownerReferences": [owner] },
            "spec": { "drivers": drivers },
        }));
    }

    /// Waits until a node has these taints.
    async fn tainted(&self, name: &str, taints: &[&str]) -> Value {
        let keys = |node: &Value| -> Vec<String> {
            let there = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
            there.iter().map(|taint| taint["key"].as_str().unwrap().to_owned()).collect()
        };
        self.api.wait(&format!("nodes/{name}"), |node| keys(node) == taints).await
    }
}

/// Time enough for anything that would be done wrongly.
async fn a_while() {
    tokio::time::sleep(Duration::from_secs(600)).await;
}

#[tokio::test(start_paused = true)]
async fn the_taint_goes_when_the_kubelet_lists_all_drivers() {
    let cluster = Cluster::working();
    let uid = cluster.node("n1", &["theirs", TAINT]);

    cluster.drivers("n1", &uid, &[DRIVER, "ebs.csi.example.com"]);
    a_while().await;
    assert_eq!(cluster.api.writes(), [""; 0], "the other driver is missing");
    cluster.drivers("n1", &uid, &[DRIVER, LOCAL]);

    let node = cluster.tainted("n1", &["theirs"]).await;
    let kept = json!({ "key": "theirs", "value": "v", "effect": "NoSchedule", "timeAdded": "t" });
    assert_eq!(node["spec"], json!({ "podCIDR": "10.0.0.0/24", "taints": [kept] }));
    assert_eq!(cluster.api.writes(), ["PATCH /api/v1/nodes/n1"]);
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_comes_after_its_drivers_is_heard_of_too() {
    let cluster = Cluster::working();
    let uid = cluster.node("n1", &["theirs"]);
    cluster.drivers("n1", &uid, &[DRIVER, LOCAL]);
    a_while().await;
    assert_eq!(cluster.api.writes(), [""; 0], "it has no taint of ours");

    cluster.node("n1", &[TAINT]);

    cluster.tainted("n1", &[]).await;
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_an_earlier_node_of_the_name_left_is_not_believed() {
    let cluster = Cluster::working();
    let uid = cluster.node("n1", &[TAINT]);

    cluster.drivers("n1", &json!("that-of-the-old-node"), &[DRIVER, LOCAL]);
    a_while().await;

    assert_eq!(cluster.api.writes(), [""; 0]);
    cluster.drivers("n1", &uid, &[DRIVER, LOCAL]);
    cluster.tainted("n1", &[]).await;
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_taint_that_somebody_adds_meanwhile_stays() {
    let cluster = Cluster::working();
    let uid = cluster.node("n1", &[TAINT]);
    // The first try comes too late, the second to a server that is busy.
    cluster.api.fail(1, Method::PATCH, "/nodes/", Fault::Slow(Duration::from_secs(5)));
    cluster.api.fail(1, Method::PATCH, "/nodes/", Fault::Refused(500));

    cluster.drivers("n1", &uid, &[DRIVER, LOCAL]);
    let begun = |api: &FakeApi| !api.writes().is_empty();
    assert!(cluster.api.until(begun).await);
    cluster.node("n1", &[TAINT, "new"]);

    cluster.tainted("n1", &["new"]).await;
    cluster.stop().await;
}

#[test]
fn the_patch_holds_only_for_the_node_that_was_read() {
    let node: Node = serde_json::from_value(json!({
        "metadata": { "name": "n1", "resourceVersion": "7" },
        "spec": { "taints": [{ "key": TAINT, "effect": "NoSchedule" }, { "key": TAINT, "effect": "NoExecute" }] },
    }))
    .unwrap();

    let patch = without(&node, TAINT);

    assert_eq!(patch, json!({ "metadata": { "resourceVersion": "7" }, "spec": { "taints": [] } }));
}
