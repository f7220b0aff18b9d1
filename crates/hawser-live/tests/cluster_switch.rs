//! Whoever does the sidecars' work leaves volumes that the other can grow and delete: a cluster is moved
//! from sidecars to our controller and back, under a pod that goes on running. `make e2e-cluster
//! NAME=cluster_switch` runs it, and a machine that cannot is a failure.

use hawser_live::cluster::driver::objects::{
    Binding, claim, claim_of, pod, pod_of, snapshot, snapshot_class, snapshot_of, storage_class,
};
use hawser_live::cluster::driver::{
    Chart, Driver, Half, Hawser, LOCAL, Records, SOON, Sidecar, Stamps, claim_warnings, inside,
    install, room_in, snapshot_controller, wait_bound, wait_gone, wait_leader, wait_running,
    wait_size,
};
use hawser_live::cluster::{Cluster, Limits, Object, Options};
use serde_json::{Value, json};

const CLASS: &str = "switch";
/// What grows under its pod also where root lacks `CAP_SYS_RESOURCE`, which ext4 needs for it; and its
/// sizes, of which the smallest is the least that xfs takes.
const FS: &str = "xfs";
const SIZE: &str = "320Mi";
const GROWN: &str = "512Mi";

/// Who does the sidecars' work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Ours,
    Sidecars,
}

impl Work {
    fn other(self) -> Self {
        match self {
            Self::Ours => Self::Sidecars,
            Self::Sidecars => Self::Ours,
        }
    }

    /// Installs what its chart has, and starts it over the records that are there.
    fn start(self, cluster: &mut Cluster) -> Driver {
        let hawser = Hawser::new(Half::Both).records(Records::Cluster);
        let mut driver = match self {
            Self::Ours => {
                install(cluster, Chart::Alone, Stamps::ByControllers);
                let driver = Driver::start(cluster, hawser.without_sidecars());
                wait_leader(cluster);
                driver
            }
            Self::Sidecars => {
                install(cluster, Chart::WithSidecars, Stamps::ByControllers);
                let mut driver = Driver::start(cluster, hawser);
                driver.add_sidecars(cluster, LOCAL, &Sidecar::OF_NODES, Limits::Raised);
                driver
            }
        };
        driver.add(snapshot_controller(cluster, Limits::Raised));
        driver
    }
}

fn cluster() -> Cluster {
    let options = Options::nodes(1).snapshots().program("snapshot-controller");
    let sidecars = Sidecar::OF_NODES.into_iter();
    Cluster::start(sidecars.fold(options, |options, sidecar| options.program(sidecar.program())))
}

/// Makes a claim with a pod that runs; answers the volume.
fn uses(cluster: &mut Cluster, name: &str) -> Value {
    let size = claim(name, CLASS, SIZE, json!({}));
    cluster.kubectl().apply_json(&[size, pod(name, name)]);
    let volume = wait_bound(cluster, name);
    wait_running(cluster, name);
    volume
}

/// Lets one side make volumes and a snapshot, and the other grow and delete them.
fn switch(first: Work) {
    let mut cluster = cluster();
    let kubectl = cluster.kubectl().clone();
    let mut driver = first.start(&mut cluster);
    let parameters = json!({ "class": "local", "csi.storage.k8s.io/fstype": FS });
    kubectl.apply_json(&[
        storage_class(CLASS, LOCAL, Binding::WaitForFirstConsumer, parameters),
        snapshot_class(CLASS, LOCAL),
    ]);
    let kept = uses(&mut cluster, "kept");
    let deleted = uses(&mut cluster, "deleted");
    inside(&cluster, "kept", "echo words >/data/words && sync");
    kubectl.apply_json(&[snapshot("kept-1", CLASS, "kept")]);
    let ready = |snapshot: &Value| snapshot["status"]["readyToUse"] == true;
    cluster.wait("snapshot that is ready", &snapshot_of("kept-1"), SOON, ready);

    driver.stop();
    driver = first.other().start(&mut cluster);

    // Grown under a pod that never noticed, by somebody who did not make it.
    let before = room_in(&cluster, "kept");
    let change = json!({ "spec": { "resources": { "requests": { "storage": GROWN } } } });
    kubectl.patch(&claim_of("kept"), &change);
    wait_size(&mut cluster, "kept", GROWN);
    assert!(room_in(&cluster, "kept") > before * 5 / 4);
    assert_eq!(inside(&cluster, "kept", "cat /data/words"), "words");

    // New ones are made beside what the other side has published.
    let late = uses(&mut cluster, "late");
    delete(&mut cluster, "late");
    gone_with_its_volume(&mut cluster, &late);
    delete(&mut cluster, "deleted");
    gone_with_its_volume(&mut cluster, &deleted);
    kubectl.delete(&snapshot_of("kept-1"));
    wait_gone(&mut cluster, &snapshot_of("kept-1"));
    delete(&mut cluster, "kept");
    gone_with_its_volume(&mut cluster, &kept);

    let failed = claim_warnings(&kubectl, &["ProvisioningFailed", "ClaimLost"]);
    assert_eq!(failed, [""; 0]);
    driver.assert_nothing_left(&cluster);
    driver.stop();
    cluster.end();
}

/// Deletes a pod and its claim, and waits until both are gone.
fn delete(cluster: &mut Cluster, name: &str) {
    for object in [pod_of(name), claim_of(name)] {
        cluster.kubectl().delete(&object);
        wait_gone(cluster, &object);
    }
}

fn gone_with_its_volume(cluster: &mut Cluster, volume: &Value) {
    let name = volume["metadata"]["name"].as_str().expect("a volume has a name");
    wait_gone(cluster, &Object::new("persistentvolume", name));
}

#[test]
fn cluster_our_controller_grows_and_deletes_what_sidecars_made() {
    switch(Work::Sidecars);
}

#[test]
fn cluster_sidecars_grow_and_delete_what_our_controller_made() {
    switch(Work::Ours);
}
