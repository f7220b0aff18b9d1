//! The manifests and examples for Kubernetes on a real API server: it takes every field of them, gives
//! the accounts the rights that are meant, and the admission policy marks the claims that it should.
//! `make e2e-cluster` runs it, and a machine that cannot is a failure.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hawser_live::cluster::{Cluster, Kubectl, Object, Options};
use hawser_live::process::command;
use serde_json::{Value, json};

/// How long the server may take to follow a policy or a class; nothing tells when it does.
const SOON: Duration = Duration::from_secs(60);

/// Where everything is installed.
const NAMESPACE: &str = "hawser-system";

const DRIVER: &str = "csi.hawser.storage";
const LOCAL_DRIVER: &str = "local.csi.hawser.storage";

/// Both are written: older programs read the second.
const STAMPS: [&str; 2] =
    ["volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner"];

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// The YAML files of a folder, in order.
fn files(folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(repository(folder)).expect("a folder of the repository");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let yaml = paths.filter(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    let mut found: Vec<String> = yaml.map(|path| path.display().to_string()).collect();
    found.sort();
    assert!(!found.is_empty(), "no manifests in {folder}");
    found
}

/// A server with the resource definitions and the namespace, in which nothing runs.
fn server() -> Cluster {
    let cluster = Cluster::start(Options::server().snapshots());
    let kubectl = cluster.kubectl();
    kubectl.ok(&["apply", "--server-side", "-f", &repository("deploy/crds").display().to_string()]);
    kubectl.ok(&["create", "namespace", NAMESPACE]);
    // Its controller does not run here, and pods are refused without it.
    kubectl.ok(&["create", "serviceaccount", "default", "--namespace=default"]);
    cluster
}

/// Installs the manifests for real.
fn install(kubectl: &Kubectl) {
    let manifests = repository("deploy/kubernetes/hawser.yaml").display().to_string();
    kubectl.ok(&["apply", "--server-side", "--force-conflicts", "-f", &manifests]);
}

#[test]
fn cluster_a_server_takes_every_manifest_and_example() {
    let cluster = server();

    for file in files("deploy/kubernetes").iter().chain(&files("examples/kubernetes")) {
        let said = cluster.kubectl().ok(&[
            "apply",
            "--server-side",
            "--force-conflicts",
            "--dry-run=server",
            "--validate=strict",
            "-f",
            file,
        ]);
        assert!(said.contains("serverside-applied"), "{file}: {said}");
    }
    cluster.end();
}

#[test]
fn cluster_certificates_are_secrets_that_the_manifests_name() {
    let cluster = server();
    let kubectl = cluster.kubectl();
    install(kubectl);

    let made = command(repository("deploy/kubernetes/certificates")).output().expect("the script");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    kubectl.apply(String::from_utf8(made.stdout).expect("YAML is text"));

    for (kind, name) in [("deployment", "hawser-controller"), ("daemonset", "hawser-node")] {
        let found = kubectl.find(&Object::within(NAMESPACE, kind, name)).expect(name);
        let volumes = found["spec"]["template"]["spec"]["volumes"].as_array().expect("volumes");
        let tls = volumes.iter().find(|volume| volume["name"] == "tls").expect("certificates");
        let secret = tls["secret"]["secretName"].as_str().expect("a secret");
        let secret = kubectl.find(&Object::within(NAMESPACE, "secret", secret)).expect(secret);
        for key in ["ca.crt", "tls.crt", "tls.key"] {
            assert!(secret["data"][key].is_string(), "{name}: no {key}");
        }
    }
    cluster.end();
}

/// The pods of a manifest as the server has them, with the name of their workload.
fn pods(kubectl: &Kubectl, file: &str) -> Vec<(String, Value)> {
    let args = ["apply", "--server-side", "--force-conflicts", "--dry-run=server", "-o", "json"];
    let said = kubectl.ok(&[&args[..], &["-f", file]].concat());
    let all: Value = serde_json::from_str(&said).expect("kubectl speaks JSON");
    let items = all["items"].as_array().expect("a list").iter();
    let workloads = items.filter(|item| item["spec"]["template"].is_object());
    let pod = |item: &Value| {
        let name = item["metadata"]["name"].as_str().expect("a name").to_owned();
        (name, item["spec"]["template"]["spec"].clone())
    };
    workloads.map(pod).collect()
}

/// Only the driver of a node may do everything, because mounts that pods see need it.
#[test]
fn cluster_containers_have_no_right_that_they_can_do_without() {
    let cluster = server();
    for file in ["hawser.yaml", "hawser-sidecars.yaml"] {
        let path = repository("deploy/kubernetes").join(file).display().to_string();
        let pods = pods(cluster.kubectl(), &path);
        assert_eq!(pods.len(), 2, "{file} has a controller and a node");
        for (workload, pod) in pods {
            let what = format!("{file}: {workload}");
            assert_ne!(pod["hostPID"], true, "{what} sees the processes of the host");
            assert_ne!(pod["hostIPC"], true, "{what} sees the memory of others");
            let of_node = workload == "hawser-node";
            if !of_node {
                assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{what} may be root");
                let volumes = pod["volumes"].as_array().expect("volumes");
                assert!(volumes.iter().all(|volume| volume["hostPath"].is_null()), "{volumes:#?}");
            }
            for container in pod["containers"].as_array().expect("containers") {
                let rights = &container["securityContext"];
                let what = format!("{what}, {}: {rights:#}", container["name"]);
                assert_eq!(rights["readOnlyRootFilesystem"], true, "{what}");
                if of_node && container["name"] == "hawser" {
                    assert_eq!(rights["privileged"], true, "{what}");
                    continue;
                }
                assert_ne!(rights["privileged"], true, "{what}");
                assert_eq!(rights["allowPrivilegeEscalation"], false, "{what}");
                assert_eq!(rights["capabilities"], json!({ "drop": ["ALL"] }), "{what}");
                assert_eq!(rights["seccompProfile"]["type"], "RuntimeDefault", "{what}");
            }
        }
    }
    cluster.end();
}

#[test]
fn cluster_accounts_have_the_rights_that_they_need_and_no_others() {
    let cluster = server();
    let kubectl = cluster.kubectl();
    install(kubectl);
    let can = |account: &str, verb: &str, what: &str, namespace: &str| {
        let user = format!("--as=system:serviceaccount:{NAMESPACE}:{account}");
        let namespace = format!("--namespace={namespace}");
        let done = kubectl.run(&["auth", "can-i", verb, what, &user, &namespace]);
        match done.stdout.trim() {
            "yes" => true,
            "no" => false,
            other => panic!("{verb} {what}: {other} {}", done.stderr),
        }
    };

    for (verb, what, namespace) in [
        ("create", "persistentvolumes", "default"),
        ("patch", "persistentvolumeclaims", "default"),
        ("patch", "volumeattachments.storage.k8s.io", "default"),
        ("get", "persistentvolumeclaims", "default"),
        ("get", "csidrivers.storage.k8s.io", "default"),
        ("get", "volumeattributesclasses.storage.k8s.io", "default"),
        ("get", "volumesnapshots.snapshot.storage.k8s.io", "default"),
        ("list", "volumesnapshots.snapshot.storage.k8s.io", "default"),
        ("patch", "volumesnapshots.snapshot.storage.k8s.io", "default"),
        ("watch", "volumesnapshotcontents.snapshot.storage.k8s.io", "default"),
        ("create", "records.hawser.storage", NAMESPACE),
        ("patch", "records.hawser.storage/hawser--tick", NAMESPACE),
        ("create", "secrets", NAMESPACE),
        ("patch", "secrets/hawser--tick", NAMESPACE),
        ("create", "leases.coordination.k8s.io", NAMESPACE),
        ("update", "leases.coordination.k8s.io/hawser-csi-controller", NAMESPACE),
    ] {
        assert!(can("hawser-controller", verb, what, namespace), "cannot {verb} {what}");
    }
    for (verb, what, namespace) in [
        ("get", "secrets", "default"),
        ("list", "secrets", "kube-system"),
        ("create", "records.hawser.storage", "default"),
        ("create", "pods", NAMESPACE),
        ("patch", "secrets/hawser-node-tls", NAMESPACE),
        ("update", "leases.coordination.k8s.io/another", NAMESPACE),
        ("patch", "nodes", "default"),
        ("delete", "volumesnapshots.snapshot.storage.k8s.io", "default"),
        ("watch", "csidrivers.storage.k8s.io", "default"),
        ("delete", "persistentvolumeclaims", "default"),
        ("create", "clusterrolebindings.rbac.authorization.k8s.io", "default"),
    ] {
        assert!(!can("hawser-controller", verb, what, namespace), "can {verb} {what}");
    }
    for (verb, what) in [
        ("get", "secrets"),
        ("get", "nodes"),
        ("get", "persistentvolumes"),
        ("get", "records.hawser.storage"),
    ] {
        assert!(!can("hawser-node", verb, what, NAMESPACE), "a node can {verb} {what}");
    }
    cluster.end();
}

fn class(name: &str, provisioner: &str, binding: &str) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": { "name": name },
        "provisioner": provisioner,
        "volumeBindingMode": binding,
    })
}

/// A claim with more in its specification.
fn claim(name: &str, class: &str, more: Value) -> Value {
    let mut spec = json!({
        "storageClassName": class,
        "accessModes": ["ReadWriteOnce"],
        "resources": { "requests": { "storage": "1Gi" } },
    });
    if let (Some(spec), Value::Object(more)) = (spec.as_object_mut(), more) {
        spec.extend(more);
    }
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": { "name": name, "namespace": "default" },
        "spec": spec,
    })
}

/// What a claim is marked with. There is no controller-manager here, so nobody else marks it.
fn stamps(kubectl: &Kubectl, name: &str) -> [Option<String>; 2] {
    let claim = Object::within("default", "persistentvolumeclaim", name);
    let found = kubectl.find(&claim).expect("the claim");
    STAMPS.map(|key| found["metadata"]["annotations"][key].as_str().map(str::to_owned))
}

/// Waits until the server follows the policy for a class: it makes claims until one is marked.
fn wait_for_policy(kubectl: &Kubectl, class: &str) {
    let begun = Instant::now();
    for number in 0.. {
        let name = format!("probe-{class}-{number}");
        kubectl.apply_json(&[claim(&name, class, json!({}))]);
        if stamps(kubectl, &name)[0].is_some() {
            return;
        }
        assert!(begun.elapsed() < SOON, "no claim of {class} was marked within {SOON:?}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn both(driver: &str) -> [Option<String>; 2] {
    [Some(driver.to_owned()), Some(driver.to_owned())]
}

const NEITHER: [Option<String>; 2] = [None, None];

#[test]
fn cluster_claims_are_marked_when_the_controller_manager_would_mark_them() {
    let cluster = server();
    let kubectl = cluster.kubectl();
    install(kubectl);
    let waits = class("waits", LOCAL_DRIVER, "WaitForFirstConsumer");
    let foreign = class("foreign", "csi.example.org", "Immediate");
    kubectl.apply_json(&[class("at-once", DRIVER, "Immediate"), waits, foreign]);
    wait_for_policy(kubectl, "at-once");

    kubectl.apply_json(&[
        claim("plain", "at-once", json!({})),
        claim("named", "at-once", json!({ "volumeName": "made-by-hand" })),
        claim("selecting", "at-once", json!({ "selector": { "matchLabels": { "a": "b" } } })),
        claim("of-others", "foreign", json!({})),
        claim("waiting", "waits", json!({})),
    ]);

    assert_eq!(stamps(kubectl, "plain"), both(DRIVER));
    assert_eq!(stamps(kubectl, "named"), NEITHER);
    assert_eq!(stamps(kubectl, "selecting"), NEITHER);
    assert_eq!(stamps(kubectl, "of-others"), NEITHER);
    assert_eq!(stamps(kubectl, "waiting"), NEITHER, "no node was chosen yet");

    // As the scheduler does it.
    let node = "volume.kubernetes.io/selected-node=node1";
    kubectl.ok(&["annotate", "persistentvolumeclaim", "waiting", node, "--namespace=default"]);
    assert_eq!(stamps(kubectl, "waiting"), both(LOCAL_DRIVER));

    // A change of something else marks nothing, and takes no mark away.
    let label = ["label", "persistentvolumeclaim", "plain", "named", "a=b", "--namespace=default"];
    kubectl.ok(&label);
    assert_eq!(stamps(kubectl, "plain"), both(DRIVER));
    assert_eq!(stamps(kubectl, "named"), NEITHER);
    cluster.end();
}

#[test]
fn cluster_claims_of_the_default_class_are_marked() {
    let cluster = server();
    let kubectl = cluster.kubectl();
    install(kubectl);
    let mut default = class("standard", LOCAL_DRIVER, "Immediate");
    default["metadata"]["annotations"] =
        json!({ "storageclass.kubernetes.io/is-default-class": "true" });
    kubectl.apply_json(&[default]);
    wait_for_policy(kubectl, "standard");
    let mut unnamed = claim("unnamed", "standard", json!({}));
    if let Some(spec) = unnamed["spec"].as_object_mut() {
        spec.remove("storageClassName");
    }

    kubectl.apply_json(&[unnamed]);

    assert_eq!(stamps(kubectl, "unnamed"), both(LOCAL_DRIVER));
    cluster.end();
}
