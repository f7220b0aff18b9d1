//! Secrets that a class names reach whoever needs them, and nobody else: no log at any level, no event,
//! no object of the cluster has them. `make e2e-cluster NAME=cluster_secrets` runs it, and a machine
//! that cannot is a failure.

use hawser_live::cluster::driver::objects::{
    Binding, claim, claim_of, from_snapshot, pod, pod_of, snapshot, snapshot_class, snapshot_of,
    storage_class,
};
use hawser_live::cluster::driver::{
    ACCOUNT, ATTACHED, Chart, Driver, Half, Hawser, Records, SOON, Stamps, inside, install,
    snapshot_controller, wait_bound, wait_gone, wait_leader, wait_running, wait_size,
};
use hawser_live::cluster::{Cluster, Limits, Options};
use serde_json::{Value, json};

const CLASS: &str = "guarded";
const SECRET: &str = "login";
const SIZE: &str = "320Mi";
const GROWN: &str = "512Mi";

/// What must be found nowhere, and how an object of the server spells it.
const PLANTED: &str = "planted-word-of-passage";
const ENCODED: &str = "cGxhbnRlZC13b3JkLW9mLXBhc3NhZ2U";

/// Calls whose secrets the class names, by the names that sidecars gave them.
const PURPOSES: [&str; 5] =
    ["provisioner", "controller-publish", "node-stage", "node-publish", "controller-expand"];

/// Parameters that name the secret for a purpose.
fn named(purposes: &[&str]) -> Value {
    let keys = purposes.iter().flat_map(|purpose| {
        [("name", SECRET), ("namespace", "default")].map(|(what, value)| {
            (format!("csi.storage.k8s.io/{purpose}-secret-{what}"), Value::from(value))
        })
    });
    Value::Object(keys.collect())
}

fn with(mut parameters: Value, more: Value) -> Value {
    if let (Some(all), Value::Object(more)) = (parameters.as_object_mut(), more) {
        all.extend(more);
    }
    parameters
}

/// The secret, and the right to read it, which users give as `rbac.secrets` of the chart does.
fn secret() -> [Value; 3] {
    let rules = json!([{
        "apiGroups": [""], "resources": ["secrets"], "resourceNames": [SECRET], "verbs": ["get"],
    }]);
    [
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": SECRET, "namespace": "default" },
            "stringData": { "password": PLANTED, "auth_password": PLANTED, "username": "someone" },
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": { "name": "login", "namespace": "default" }, "rules": rules,
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": { "name": "login", "namespace": "default" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "login" },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": ACCOUNT }],
        }),
    ]
}

fn has_it(text: &str) -> bool {
    text.contains(PLANTED) || text.contains(ENCODED)
}

/// Every object that somebody may read who may not read secrets.
fn objects(cluster: &Cluster) -> String {
    let kinds = [
        "persistentvolumeclaim",
        "persistentvolume",
        "volumeattachment",
        "volumesnapshot",
        "volumesnapshotcontent",
        "records.hawser.storage",
        "event",
        "pod",
    ];
    kinds.map(|kind| Value::from(cluster.kubectl().list(kind)).to_string()).concat()
}

#[test]
fn cluster_secrets_of_classes_are_in_no_log_event_or_object() {
    let options = Options::nodes(1).audit().snapshots().program("snapshot-controller");
    let mut cluster = Cluster::start(options);
    install(&cluster, Chart::Alone, Stamps::ByPolicy);
    let kubectl = cluster.kubectl().clone();
    kubectl.apply_json(&secret());
    let hawser = Hawser::new(Half::Controller).without_sidecars().log("trace");
    let mut controller = Driver::start(&mut cluster, hawser.records(Records::Cluster));
    let mut node = Driver::start(&mut cluster, Hawser::new(Half::Node).log("trace"));
    wait_leader(&mut cluster);
    controller.add(snapshot_controller(&cluster, Limits::Raised));
    let fs = json!({ "class": "local", "csi.storage.k8s.io/fstype": "xfs" });
    let mut snapshots = snapshot_class(CLASS, ATTACHED);
    snapshots["parameters"] = named(&["snapshotter", "snapshotter-list"]);
    let class = storage_class(CLASS, ATTACHED, Binding::Immediate, with(named(&PURPOSES), fs));
    kubectl.apply_json(&[class, snapshots]);

    kubectl.apply_json(&[claim("data", CLASS, SIZE, json!({})), pod("writer", "data")]);
    wait_bound(&mut cluster, "data");
    wait_running(&mut cluster, "writer");
    inside(&cluster, "writer", "echo words >/data/words && sync");
    kubectl.apply_json(&[snapshot("data-1", CLASS, "data")]);
    let ready = |snapshot: &Value| snapshot["status"]["readyToUse"] == true;
    cluster.wait("snapshot that is ready", &snapshot_of("data-1"), SOON, ready);
    kubectl
        .apply_json(&[claim("copy", CLASS, SIZE, from_snapshot("data-1")), pod("reader", "copy")]);
    wait_running(&mut cluster, "reader");
    let change = json!({ "spec": { "resources": { "requests": { "storage": GROWN } } } });
    kubectl.patch(&claim_of("data"), &change);
    wait_size(&mut cluster, "data", GROWN);
    let seen = objects(&cluster);
    for object in [pod_of("writer"), pod_of("reader"), snapshot_of("data-1")] {
        kubectl.delete(&object);
        wait_gone(&mut cluster, &object);
    }
    for object in [claim_of("data"), claim_of("copy")] {
        kubectl.delete(&object);
        wait_gone(&mut cluster, &object);
    }
    controller.assert_nothing_left(&cluster);

    let read = cluster.requests().into_iter().filter(|request| {
        request.user == ACCOUNT
            && (request.verb.as_str(), request.resource.as_str()) == ("get", "secrets")
            && request.name == SECRET
            && request.code == 200
    });
    // For the volume, for its right, for the snapshot at the least.
    assert!(read.count() >= 3, "the controller did not need it, so it proves nothing");
    assert!(seen.contains("nodeStageSecretRef"), "the nodes did not need it");
    assert!(!has_it(&seen), "an object has it");
    for process in [controller.process(), node.process()] {
        let log = std::fs::read_to_string(process.log()).expect("a log");
        assert!(log.contains("TRACE"), "the log of {} does not have everything", process.name());
        let leaked: Vec<&str> = log.lines().filter(|line| has_it(line)).collect();
        assert!(leaked.is_empty(), "{}: {leaked:#?}", process.name());
    }
    node.stop();
    controller.stop();
    cluster.end();
}
