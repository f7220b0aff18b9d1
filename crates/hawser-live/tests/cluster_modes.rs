//! What a claim, a class or a pod may ask for beside room, on a real Kubernetes: who may use a volume,
//! how it is mounted, for which group, with which file system; and snapshots of several volumes at one
//! instant. `make e2e-cluster NAME=cluster_modes` runs it, and a machine that cannot is a failure.

use hawser_live::cluster::driver::objects::{
    Binding, claim, claim_of, from_snapshot, pod, pod_of, storage_class,
};
use hawser_live::cluster::driver::{
    Chart, Driver, Half, Hawser, LOCAL, Records, SOON, Stamps, group_controller, inside, install,
    wait_bound, wait_gone, wait_leader, wait_running,
};
use hawser_live::cluster::{Cluster, Object, Options};
use serde_json::{Value, json};

/// Large enough for every file system.
const SIZE: &str = "320Mi";

/// The group that a pod wants its files to belong to, and the user that its programs are.
const GROUP: u32 = 2000;
const USER: u32 = 1000;

/// Our driver alone, with its class of images on the node.
fn start(options: Options) -> (Cluster, Driver) {
    let mut cluster = Cluster::start(options);
    install(&cluster, Chart::Alone, Stamps::ByPolicy);
    let hawser = Hawser::new(Half::Both).without_sidecars().records(Records::Cluster);
    let driver = Driver::start(&mut cluster, hawser);
    wait_leader(&mut cluster);
    (cluster, driver)
}

fn class(name: &str, fs: &str) -> Value {
    let parameters = json!({ "class": "local", "csi.storage.k8s.io/fstype": fs });
    storage_class(name, LOCAL, Binding::WaitForFirstConsumer, parameters)
}

/// Makes a claim and its pod; answers the volume when the pod runs.
#[track_caller]
fn uses(cluster: &mut Cluster, claim: Value, pod: Value) -> Value {
    let names = [&claim, &pod].map(|object| object["metadata"]["name"].clone());
    let [claim_name, pod_name] = names.each_ref().map(|name| name.as_str().expect("a name"));
    cluster.kubectl().apply_json(&[claim, pod]);
    let volume = wait_bound(cluster, claim_name);
    wait_running(cluster, pod_name);
    volume
}

/// Deletes pods and claims, and waits until nothing is left of any volume.
fn finish(mut cluster: Cluster, driver: Driver, pods: &[&str], claims: &[&str]) {
    for object in pods.iter().map(|pod| pod_of(pod)).chain(claims.iter().map(|name| claim_of(name)))
    {
        cluster.kubectl().delete(&object);
        wait_gone(&mut cluster, &object);
    }
    driver.assert_nothing_left(&cluster);
    driver.stop();
    cluster.end();
}

/// The line of a pod's mounts that is its claim.
fn mounted(cluster: &Cluster, pod: &str) -> String {
    inside(cluster, pod, "grep ' /data ' /proc/mounts")
}

#[test]
fn cluster_volumes_are_mounted_as_classes_and_pods_want_it() {
    let (mut cluster, driver) = start(Options::nodes(1));
    let mut quiet = class("quiet", "ext4");
    quiet["mountOptions"] = json!(["noatime", "sync"]);
    cluster.kubectl().apply_json(&[class("xfs", "xfs"), class("btrfs", "btrfs"), quiet]);

    for (name, class) in [("xfs", "xfs"), ("btrfs", "btrfs"), ("ext4", "quiet")] {
        uses(&mut cluster, claim(name, class, SIZE, json!({})), pod(name, name));
        let line = mounted(&cluster, name);
        assert!(line.contains(&format!(" /data {name} ")), "{line}");
        assert!(line.contains("nosuid") && line.contains("nodev"), "{line}");
        inside(&cluster, name, "echo words >/data/words && sync");
    }
    let line = mounted(&cluster, "ext4");
    assert!(line.contains("noatime") && line.contains("sync"), "{line}");

    // Somebody who only reads it, in the same node and at the same time as its writer.
    let mut reader = pod("reader", "ext4");
    reader["spec"]["volumes"][0]["persistentVolumeClaim"]["readOnly"] = json!(true);
    cluster.kubectl().apply_json(&[reader]);
    wait_running(&mut cluster, "reader");
    assert_eq!(inside(&cluster, "reader", "cat /data/words"), "words");
    let written = inside(&cluster, "reader", "echo other >/data/words 2>/dev/null || echo refused");
    assert_eq!(written, "refused");
    assert_eq!(inside(&cluster, "ext4", "cat /data/words"), "words");

    // Programs that are not root own what their group may write.
    let mut of_group = pod("member", "of-group");
    of_group["spec"]["securityContext"] = json!({ "runAsUser": USER, "fsGroup": GROUP });
    uses(&mut cluster, claim("of-group", "xfs", SIZE, json!({})), of_group);
    inside(&cluster, "member", "echo mine >/data/mine");
    assert_eq!(inside(&cluster, "member", "stat -c %g /data/mine"), GROUP.to_string());

    let pods = ["member", "reader", "xfs", "btrfs", "ext4"];
    finish(cluster, driver, &pods, &["xfs", "btrfs", "ext4", "of-group"]);
}

#[test]
fn cluster_a_volume_of_one_pod_is_used_by_one_pod() {
    let (mut cluster, driver) = start(Options::nodes(1));
    cluster.kubectl().apply_json(&[class("xfs", "xfs")]);
    let alone = claim("alone", "xfs", SIZE, json!({ "accessModes": ["ReadWriteOncePod"] }));

    let volume = uses(&mut cluster, alone, pod("first", "alone"));

    assert_eq!(volume["spec"]["accessModes"], json!(["ReadWriteOncePod"]));
    cluster.kubectl().apply_json(&[pod("second", "alone")]);
    let refused = |pod: &Value| {
        let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        conditions.into_iter().any(|found| found["reason"] == "Unschedulable")
    };
    cluster.wait("pod that has to wait", &pod_of("second"), SOON, refused);
    inside(&cluster, "first", "echo first >/data/name && sync");
    cluster.kubectl().delete(&pod_of("first"));
    wait_gone(&mut cluster, &pod_of("first"));
    wait_running(&mut cluster, "second");
    assert_eq!(inside(&cluster, "second", "cat /data/name"), "first");
    finish(cluster, driver, &["second"], &["alone"]);
}

/// An object of the groups of snapshots.
fn of_groups(kind: &str, name: &str, more: Value) -> Value {
    let mut object = json!({
        "apiVersion": "groupsnapshot.storage.k8s.io/v1",
        "kind": kind,
        "metadata": { "name": name },
    });
    if let (Some(object), Value::Object(more)) = (object.as_object_mut(), more) {
        object.extend(more);
    }
    object
}

#[test]
fn cluster_snapshots_of_several_volumes_are_of_one_instant_and_can_be_restored() {
    let options = Options::nodes(1).snapshots().program("snapshot-controller");
    let (mut cluster, mut driver) = start(options);
    driver.add(group_controller(&cluster));
    let kubectl = cluster.kubectl().clone();
    let group_class = json!({ "driver": LOCAL, "deletionPolicy": "Delete", "parameters": {} });
    kubectl.apply_json(&[
        class("xfs", "xfs"),
        of_groups("VolumeGroupSnapshotClass", "both", group_class),
    ]);
    for name in ["left", "right"] {
        let mut member = claim(name, "xfs", SIZE, json!({}));
        member["metadata"]["labels"] = json!({ "app": "shop" });
        uses(&mut cluster, member, pod(name, name));
        inside(&cluster, name, &format!("echo {name} >/data/name && sync"));
    }

    let group = Object::within("default", "volumegroupsnapshot", "noon");
    let mut wish = of_groups(
        "VolumeGroupSnapshot",
        "noon",
        json!({ "spec": {
            "volumeGroupSnapshotClassName": "both",
            "source": { "selector": { "matchLabels": { "app": "shop" } } },
        }}),
    );
    wish["metadata"]["namespace"] = json!("default");
    kubectl.apply_json(&[wish]);
    let ready = |group: &Value| group["status"]["readyToUse"] == true;
    cluster.wait("group of snapshots that is ready", &group, SOON, ready);

    let members = kubectl.list("volumesnapshot");
    assert_eq!(members.len(), 2, "{members:#?}");
    for member in &members {
        assert_eq!(member["status"]["readyToUse"], true, "{member:#}");
        assert_eq!(member["status"]["volumeGroupSnapshotName"], "noon", "{member:#}");
    }
    // Which member is whose is told by what it holds.
    let mut restored = Vec::new();
    for (number, member) in members.iter().enumerate() {
        let name = format!("restored-{number}");
        let snapshot = member["metadata"]["name"].as_str().expect("a name");
        let from = claim(&name, "xfs", SIZE, from_snapshot(snapshot));
        uses(&mut cluster, from, pod(&name, &name));
        restored.push(inside(&cluster, &name, "cat /data/name"));
    }
    restored.sort();
    assert_eq!(restored, ["left", "right"]);

    kubectl.delete(&group);
    wait_gone(&mut cluster, &group);
    let all = ["left", "right", "restored-0", "restored-1"];
    finish(cluster, driver, &all, &all);
}
