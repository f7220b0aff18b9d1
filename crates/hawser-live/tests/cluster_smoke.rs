//! The cluster is what the other tests take it for. `make e2e-cluster` runs it, and a machine that
//! cannot is a failure.

use std::fs;
use std::time::Duration;

use hawser_live::cluster::{BUSYBOX, Cluster, Object, Options, Part, by_agent};
use serde_json::{Value, json};

/// How long something may take that takes seconds on a quiet machine.
const SOON: Duration = Duration::from_secs(120);

fn pod(name: &str, script: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "only",
                "image": BUSYBOX,
                "imagePullPolicy": "Never",
                "command": ["/bin/sh", "-c", script],
            }],
        },
    })
}

fn phase(object: &Value) -> &str {
    object["status"]["phase"].as_str().unwrap_or_default()
}

/// What the machine shows of one cluster, which others may run beside: mounts and cgroups.
fn shown(number: &str, folder: &str) -> Vec<String> {
    let marks =
        [format!("hawser-cluster{number}-"), format!("/run/cluster{number}"), folder.into()];
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("the mount table can be read");
    let names = |folder: &str| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path().display().to_string()).collect::<Vec<_>>()
    };
    let top = names("/sys/fs/cgroup");
    let groups = top.iter().flat_map(|hierarchy| names(hierarchy)).chain(top.clone());
    let all = mounts.lines().map(str::to_owned).chain(groups);
    all.filter(|line| marks.iter().any(|mark| line.contains(mark))).collect()
}

#[test]
fn cluster_one_node_runs_a_pod_and_leaves_nothing() {
    let mut cluster = Cluster::start(Options::nodes(1).audit());
    let kubectl = cluster.kubectl().clone();
    let folder = cluster.folder().to_owned();
    let number = folder.file_name().unwrap().to_str().unwrap().to_owned();
    let seen = || shown(&number, folder.to_str().unwrap());

    kubectl.apply_json(&[pod("hello", "echo hello from $(hostname); sleep 3600")]);
    let hello = Object::within("default", "pod", "hello");
    let running = cluster.wait("pod that runs", &hello, SOON, |pod| phase(pod) == "Running");

    assert_eq!(running["spec"]["nodeName"], "node1");
    assert_eq!(kubectl.logs("default", "hello"), "hello from hello\n");
    let done = kubectl.exec("default", "hello", &["cat", "/proc/sys/kernel/hostname"]);
    assert_eq!((done.status.code(), done.stdout.trim()), (Some(0), "hello"), "{}", done.stderr);
    assert!(by_agent(&cluster.requests()).contains_key("kubelet"), "{:?}", cluster.requests());
    assert_eq!(cluster.volume_traces(), [""; 0]);
    let now = seen();
    assert!(!now.is_empty() && now.iter().all(|line| line.contains("/cgroup/")), "{now:#?}");

    kubectl.delete(&hello);
    cluster.wait("end of the pod", &hello, SOON, Value::is_null);
    cluster.end();
    assert_eq!(seen(), [""; 0]);
    assert!(!folder.exists());
}

#[test]
fn cluster_parts_are_stopped_killed_and_started_again() {
    let mut cluster = Cluster::start(Options::control());
    let kubectl = cluster.kubectl().clone();
    let settings = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": "kept", "namespace": "default" },
        "data": { "word": "stays" },
    });
    kubectl.apply_json(&[settings]);

    cluster.stop(Part::Controllers);
    cluster.stop(Part::Scheduler);
    cluster.kill(Part::Server);
    assert!(!kubectl.run(&["get", "--raw", "/readyz"]).status.success());
    cluster.kill(Part::Etcd);
    for part in [Part::Etcd, Part::Server, Part::Controllers, Part::Scheduler] {
        cluster.start_part(part);
    }

    let kept = Object::within("default", "configmap", "kept");
    let found = cluster.wait("settings", &kept, SOON, |kept| kept["data"]["word"] == "stays");
    assert_eq!(found["kind"], "ConfigMap");
    cluster.end();
}

#[test]
fn cluster_servers_run_side_by_side_and_users_have_the_rights_they_are_given() {
    let (first, second) = (Cluster::start(Options::server()), Cluster::start(Options::server()));
    assert_ne!(first.server(), second.server());

    let nobody = first.user("nobody", None).run(&["get", "nodes"]);
    assert!(nobody.stderr.contains("Forbidden"), "{}", nobody.stderr);
    second.kubectl().ok(&["create", "namespace", "theirs"]);
    assert!(first.kubectl().find(&Object::new("namespace", "theirs")).is_none());

    first.end();
    second.end();
}

#[test]
fn cluster_with_snapshots_knows_them_and_applies_policies_that_change_objects() {
    let cluster = Cluster::start(Options::server().snapshots());

    let kinds = cluster.kubectl().ok(&["api-resources", "-o", "name"]);

    for kind in [
        "volumesnapshots.snapshot.storage.k8s.io",
        "volumegroupsnapshots.groupsnapshot.storage.k8s.io",
        "mutatingadmissionpolicies.admissionregistration.k8s.io",
    ] {
        assert!(kinds.lines().any(|line| line == kind), "{kind} is not in {kinds}");
    }
    cluster.end();
}

#[test]
#[should_panic(expected = "no pod that runs within 5 s\npod default/never was null")]
fn cluster_waits_say_what_there_was_instead() {
    let mut cluster = Cluster::start(Options::server());
    let never = Object::within("default", "pod", "never");
    cluster.wait("pod that runs", &never, Duration::from_secs(5), |pod| phase(pod) == "Running");
}
