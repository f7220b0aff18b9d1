//! The driver's own pods are replaced while others use its volumes, as in an upgrade: what is mounted
//! stays mounted, and the new pods go on with it. `make e2e-cluster NAME=cluster_upgrade` runs it, and a
//! machine that cannot is a failure.

use hawser_live::cluster::driver::objects::{Binding, claim, claim_of, pod, pod_of, storage_class};
use hawser_live::cluster::driver::{
    ATTACHED, Driver, LOCAL, inside, room_in, wait_bound, wait_gone, wait_running, wait_size,
};
use hawser_live::cluster::{Cluster, Options};
use serde_json::json;

/// What grows under its pod also where root lacks `CAP_SYS_RESOURCE`, and the least that it takes.
const FS: &str = "xfs";
const SIZE: &str = "320Mi";
const GROWN: &str = "512Mi";

#[test]
fn cluster_volumes_outlive_the_pods_of_the_driver() {
    let mut cluster = Cluster::start(Options::nodes(1));
    let mut driver = Driver::in_pods(&mut cluster);
    let parameters = json!({ "class": "local", "csi.storage.k8s.io/fstype": FS });
    let class = |csi| storage_class(csi, csi, Binding::WaitForFirstConsumer, parameters.clone());
    cluster.kubectl().apply_json(&[class(LOCAL), class(ATTACHED)]);
    let uses = [("local", LOCAL), ("attached", ATTACHED)];
    for (name, csi) in uses {
        cluster.kubectl().apply_json(&[claim(name, csi, SIZE, json!({})), pod(name, name)]);
        wait_bound(&mut cluster, name);
        wait_running(&mut cluster, name);
        inside(&cluster, name, "echo before >/data/words && sync");
    }

    driver.replace_pods(&mut cluster);

    for (name, _) in uses {
        let script = "cat /data/words && echo after >/data/words && sync && cat /data/words";
        assert_eq!(inside(&cluster, name, script), "before\nafter");
        let before = room_in(&cluster, name);
        let change = json!({ "spec": { "resources": { "requests": { "storage": GROWN } } } });
        cluster.kubectl().patch(&claim_of(name), &change);
        wait_size(&mut cluster, name, GROWN);
        assert!(room_in(&cluster, name) > before * 5 / 4, "{name} has not grown");
    }
    for (name, _) in uses {
        cluster.kubectl().delete(&pod_of(name));
        wait_gone(&mut cluster, &pod_of(name));
        cluster.kubectl().delete(&claim_of(name));
        wait_gone(&mut cluster, &claim_of(name));
    }
    driver.assert_nothing_left(&cluster);
    driver.stop();
    cluster.end();
}
