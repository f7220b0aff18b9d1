//! Storage that is part of a node, on two nodes: each volume is made on the node of its pod, over the
//! node link and its certificates, and no pod is sent where its volume is not. `make e2e-cluster
//! NAME=cluster_nodes` runs it, and a machine that cannot is a failure.

use std::collections::BTreeSet;

use hawser_live::cluster::driver::objects::{
    Binding, claim, claim_of, has_condition, name, phase, pod, pod_of, storage_class,
};
use hawser_live::cluster::driver::{
    ATTACHED, Driver, LOCAL, SOON, inside, pool_of, wait_bound, wait_gone, wait_running,
};
use hawser_live::cluster::{Cluster, Options, node_name};
use serde_json::{Value, json};

const TOPOLOGY: &str = "topology.hawser.storage/node";

/// A pod that wants to be on one node.
fn pod_on(name: &str, claim: &str, node: u8) -> Value {
    let mut pod = pod(name, claim);
    pod["spec"]["nodeSelector"] = json!({ "kubernetes.io/hostname": node_name(node) });
    pod
}

/// The volume and the image that the pool of its node has of it.
fn image_of(volume: &Value) -> String {
    let handle = volume["spec"]["csi"]["volumeHandle"].as_str().expect("a volume has a handle");
    format!("volumes/{handle}.img")
}

/// Makes a claim and its pod on a node; answers the volume when the pod runs and has written.
fn uses(cluster: &mut Cluster, class: &str, name: &str, node: u8) -> Value {
    let objects = [claim(name, class, "32Mi", json!({})), pod_on(name, name, node)];
    cluster.kubectl().apply_json(&objects);
    let volume = wait_bound(cluster, name);
    let running = wait_running(cluster, name);
    assert_eq!(running["spec"]["nodeName"], node_name(node));
    inside(cluster, name, &format!("echo {name} >/data/name && sync"));
    volume
}

#[test]
fn cluster_volumes_of_two_nodes_are_made_and_used_where_their_pods_are() {
    let mut cluster = Cluster::start(Options::nodes(2));
    let driver = Driver::in_pods(&mut cluster);
    let parameters = json!({ "class": "local", "csi.storage.k8s.io/fstype": "ext4" });
    let class = |csi| storage_class(csi, csi, Binding::WaitForFirstConsumer, parameters.clone());
    cluster.kubectl().apply_json(&[class(LOCAL), class(ATTACHED)]);

    let mut images = [BTreeSet::new(), BTreeSet::new()];
    for (csi, word) in [(LOCAL, "local"), (ATTACHED, "attached")] {
        for node in [1, 2] {
            let volume = uses(&mut cluster, csi, &format!("{word}-{node}"), node);

            let terms = &volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"];
            let place = &terms[0]["matchExpressions"][0];
            assert_eq!(place["key"], TOPOLOGY, "{volume:#}");
            assert_eq!(place["values"], json!([node_name(node)]), "{volume:#}");
            images[usize::from(node) - 1].insert(image_of(&volume));
        }
    }
    for node in [1, 2] {
        assert_eq!(pool_of(&cluster, node), images[usize::from(node) - 1], "node {node}");
    }

    // A pod that may only be where the volume is not waits, and its neighbour is left alone.
    cluster.kubectl().delete(&pod_of("local-1"));
    wait_gone(&mut cluster, &pod_of("local-1"));
    cluster.kubectl().apply_json(&[pod_on("elsewhere", "local-1", 2)]);
    let refused = |pod: &Value| {
        let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        conditions.into_iter().any(|found| found["reason"] == "Unschedulable")
    };
    let waiting = cluster.wait("pod that cannot run", &pod_of("elsewhere"), SOON, refused);
    assert_eq!(phase(&waiting), "Pending");
    assert!(!has_condition(&waiting, "PodScheduled"), "{} runs", name(&waiting));
    cluster.kubectl().apply_json(&[pod_on("again", "local-1", 1)]);
    wait_running(&mut cluster, "again");
    assert_eq!(inside(&cluster, "again", "cat /data/name"), "local-1");

    for pod in ["elsewhere", "again", "local-2", "attached-1", "attached-2"] {
        cluster.kubectl().delete(&pod_of(pod));
        wait_gone(&mut cluster, &pod_of(pod));
    }
    for claim in ["local-1", "local-2", "attached-1", "attached-2"] {
        cluster.kubectl().delete(&claim_of(claim));
        wait_gone(&mut cluster, &claim_of(claim));
    }
    driver.assert_nothing_left(&cluster);
    driver.stop();
    cluster.end();
}
