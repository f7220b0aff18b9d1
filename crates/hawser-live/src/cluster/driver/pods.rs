//! Our driver in pods, from the manifests that users apply.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::hawser::{STATE, make};
use super::manifests::{self, Chart};
use super::waits::SOON;
use super::{ATTACHED, Driver, LOCAL, NAMESPACE, wait_registered_on};
use crate::cluster::kubectl::unwrap;
use crate::cluster::ports::own_port;
use crate::cluster::program::{self, Need};
use crate::cluster::{Cluster, Image, Object, Result, image, node_name};
use crate::process::binary;

const CONTROLLER_IMAGE: &str = "localhost/hawser:1";
const NODE_IMAGE: &str = "localhost/hawser-node:1";

/// Where users have the kubelet.
const KUBELET: &str = "/var/lib/kubelet";

/// What a node that has pools of images uses, of the image that users run. Everything else in that
/// one is for protocols that a lab of one kernel does not have.
const TOOLS: [Need; 10] = [
    ("mkfs.ext4", "e2fsprogs"),
    ("e2fsck", "e2fsprogs"),
    ("resize2fs", "e2fsprogs"),
    ("dumpe2fs", "e2fsprogs"),
    ("tune2fs", "e2fsprogs"),
    ("mkfs.xfs", "xfsprogs"),
    ("xfs_growfs", "xfsprogs"),
    ("blkid", "util-linux"),
    ("mount", "mount"),
    ("umount", "mount"),
];

/// Files that those, and the search for host names, read where they are there.
const FILES: [&str; 2] = ["/etc/mke2fs.conf", "/etc/nsswitch.conf"];

/// How long until pods are counted again.
const REPLACE_PAUSE: Duration = Duration::from_millis(500);

impl Driver {
    /// Applies `hawser.yaml` and its certificates, and waits until its pods and the kubelet say that
    /// they are ready. The pods run the program that the same build made.
    #[track_caller]
    pub fn in_pods(cluster: &mut Cluster) -> Self {
        for image in unwrap(images()) {
            cluster.load(&image);
        }
        let nodes = cluster.node_count();
        let lab = Lab::of(cluster);
        let all = manifests::objects(cluster, Chart::Alone);
        let all: Vec<Value> = all.into_iter().flat_map(|object| lab.adapted(object)).collect();
        (1..=nodes).for_each(|number| make(cluster, &state(number)));
        let kubectl = cluster.kubectl().clone();
        kubectl.apply_json(&all);
        manifests::install_certificates(cluster);
        manifests::wait_for_policy(&kubectl);
        let mut driver = Self::empty(cluster);
        driver.in_pods = true;
        wait_ready(cluster);
        // Their own volumes are mounted below the kubelet's folder too.
        driver.own_traces = cluster.volume_traces();
        driver
    }

    /// Deletes the pods, and waits until others are in their place.
    #[track_caller]
    pub fn replace_pods(&mut self, cluster: &mut Cluster) {
        let others: Vec<String> = cluster.volume_traces();
        let others: Vec<String> =
            others.into_iter().filter(|trace| !self.own_traces.contains(trace)).collect();
        let namespace = format!("--namespace={NAMESPACE}");
        let names =
            |cluster: &Cluster| cluster.kubectl().ok(&["get", "pods", "-o", "name", &namespace]);
        let count = names(cluster).lines().count();
        // It waits until they are gone; those who count them may not have heard of it yet.
        cluster.kubectl().ok(&["delete", "pods", "--all", &namespace]);
        let there = |cluster: &Cluster| names(cluster).lines().count() == count;
        unwrap(cluster.try_wait_for("new pods", SOON, REPLACE_PAUSE, there));
        wait_ready(cluster);
        self.own_traces = cluster.volume_traces();
        self.own_traces.retain(|trace| !others.contains(trace));
    }
}

/// Waits until every pod of the manifests is ready and every kubelet knows the drivers.
#[track_caller]
fn wait_ready(cluster: &mut Cluster) {
    let nodes = cluster.node_count();
    let sets = (1..=nodes).map(|number| ("daemonset", daemon_set(number), "numberReady"));
    let controller = ("deployment", "hawser-controller".to_owned(), "readyReplicas");
    for (kind, name, field) in sets.chain([controller]) {
        let object = Object::within(NAMESPACE, kind, &name);
        cluster.wait(&format!("ready {name}"), &object, SOON, |set| set["status"][field] == 1);
    }
    for (number, csi) in (1..=nodes).flat_map(|number| [(number, ATTACHED), (number, LOCAL)]) {
        wait_registered_on(cluster, number, csi);
    }
}

fn images() -> Result<Vec<Image>> {
    program::check(&TOOLS)?;
    let start = ["/usr/bin/hawser"];
    let hawser = binary();
    let controller = image(CONTROLLER_IMAGE, &[], &start).program(&hawser, "/usr/bin/hawser")?;
    let files = FILES.map(Path::new);
    let files: Vec<(&Path, &str)> =
        files.iter().filter(|file| file.is_file()).map(|file| (*file, path(file))).collect();
    let mut node = image(NODE_IMAGE, &files, &start).program(&hawser, "/usr/bin/hawser")?;
    for (tool, _) in TOOLS {
        if let Some(found) = program::find(tool) {
            node = node.program(&found, path(&found))?;
        }
    }
    Ok(vec![controller, node])
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap_or_default()
}

/// The state folder of a node, below the folder of the run.
pub(super) fn state(number: u8) -> String {
    if number == 1 { STATE.to_owned() } else { format!("{STATE}{number}") }
}

/// The name of the DaemonSet of a node.
fn daemon_set(number: u8) -> String {
    if number == 1 { "hawser-node".to_owned() } else { format!("hawser-node{number}") }
}

/// What a lab without services and DNS, on a machine whose network all pods share, forces on the
/// manifests. Everything else of them stays as it is.
struct Lab {
    nodes: Vec<LabNode>,
    /// The port of the server.
    server: u16,
    /// Ports of the manifests, and free ones of this machine for each.
    ports: [(u16, u16); 2],
}

/// What differs between nodes that are one machine.
struct LabNode {
    number: u8,
    /// The kubelet's folder.
    kubelet: String,
    /// The state folder of the node: below that of the run, so that what it leaves is found.
    state: String,
    /// The port of its figures.
    metrics: u16,
}

/// The same in the manifests.
const METRICS: u16 = 9809;

impl Lab {
    #[track_caller]
    fn of(cluster: &Cluster) -> Self {
        let node = |number| LabNode {
            number,
            kubelet: cluster.kubelet_folder(number).display().to_string(),
            state: cluster.inside(state(number)).display().to_string(),
            metrics: unwrap(own_port()),
        };
        Self {
            nodes: (1..=cluster.node_count()).map(node).collect(),
            server: cluster.ports.server,
            ports: [7781, 9808].map(|port| (port, unwrap(own_port()))),
        }
    }

    /// What the lab makes of an object: a DaemonSet becomes one for each node, because nodes of one
    /// machine have no folder of the kubelet in common.
    fn adapted(&self, mut object: Value) -> Vec<Value> {
        if object["kind"] == "Deployment" {
            // A second one would want the same ports of the machine.
            object["spec"]["replicas"] = json!(1);
            self.adapt_pod(&mut object["spec"]["template"]["spec"], None);
            return vec![object];
        }
        if object["kind"] != "DaemonSet" {
            return vec![object];
        }
        let each = self.nodes.iter().map(|node| {
            let mut set = object.clone();
            set["metadata"]["name"] = json!(daemon_set(node.number));
            let label = json!(node.number.to_string());
            set["spec"]["selector"]["matchLabels"]["lab-node"] = label.clone();
            set["spec"]["template"]["metadata"]["labels"]["lab-node"] = label;
            let pod = &mut set["spec"]["template"]["spec"];
            pod["nodeSelector"]["kubernetes.io/hostname"] = json!(node_name(node.number));
            self.adapt_pod(pod, Some(node));
            set
        });
        each.collect()
    }

    fn adapt_pod(&self, pod: &mut Value, node: Option<&LabNode>) {
        each_text(pod, &|text| self.moved(text, node));
        pod["hostNetwork"] = json!(true);
        pod["dnsPolicy"] = json!("Default");
        let name = format!("hawser-controller.{NAMESPACE}.svc");
        pod["hostAliases"] = json!([{ "ip": "127.0.0.1", "hostnames": [name] }]);
        if let Some(node) = node {
            adapt_volumes(pod, &node.state);
        }
        for container in pod["containers"].as_array_mut().into_iter().flatten() {
            self.adapt_container(container, node);
        }
    }

    fn ports(&self, node: Option<&LabNode>) -> Vec<(u16, u16)> {
        let metrics = node.map(|node| (METRICS, node.metrics));
        self.ports.into_iter().chain(metrics).collect()
    }

    fn adapt_container(&self, container: &mut Value, node: Option<&LabNode>) {
        let is_node = container["image"].as_str().is_some_and(|name| name.contains("hawser-node"));
        container["image"] = json!(if is_node { NODE_IMAGE } else { CONTROLLER_IMAGE });
        container["imagePullPolicy"] = json!("Never");
        if let Some(list) = container["env"].as_array_mut() {
            list.push(json!({ "name": "KUBERNETES_SERVICE_HOST", "value": "127.0.0.1" }));
            let port = self.server.to_string();
            list.push(json!({ "name": "KUBERNETES_SERVICE_PORT", "value": port }));
        }
        let ports = self.ports(node);
        for port in container["ports"].as_array_mut().into_iter().flatten() {
            let moved = ports.iter().find(|(from, _)| port["containerPort"] == *from);
            if let Some((_, to)) = moved {
                port["containerPort"] = json!(to);
            }
        }
    }

    fn moved(&self, text: &str, node: Option<&LabNode>) -> String {
        let mut text = match node {
            Some(node) => text.replace(KUBELET, &node.kubelet),
            None => text.to_owned(),
        };
        for (from, to) in self.ports(node) {
            if let Some(host) = text.strip_suffix(&format!(":{from}")) {
                text = format!("{host}:{to}");
            }
        }
        text
    }
}

/// The node's state below the folder of the run; and without folders that this machine lacks, as the
/// chart's `node.hostPaths` does it: the kubelet would make them on the machine itself.
fn adapt_volumes(pod: &mut Value, state: &str) {
    let mut gone = Vec::new();
    for volume in pod["volumes"].as_array_mut().into_iter().flatten() {
        let Some(path) = volume["hostPath"]["path"].as_str() else { continue };
        if volume["name"] == "state" {
            volume["hostPath"]["path"] = json!(state);
        } else if !path.starts_with("/run/") && !Path::new(path).exists() {
            gone.push(volume["name"].clone());
        }
    }
    if let Some(volumes) = pod["volumes"].as_array_mut() {
        volumes.retain(|volume| !gone.contains(&volume["name"]));
    }
    for container in pod["containers"].as_array_mut().into_iter().flatten() {
        if let Some(mounts) = container["volumeMounts"].as_array_mut() {
            mounts.retain(|mount| !gone.contains(&mount["name"]));
        }
    }
}

/// Changes every text in a value.
fn each_text(value: &mut Value, change: &impl Fn(&str) -> String) {
    match value {
        Value::String(text) => *text = change(text),
        Value::Array(items) => items.iter_mut().for_each(|item| each_text(item, change)),
        Value::Object(fields) => fields.values_mut().for_each(|field| each_text(field, change)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Runs a command of the program in the pod that leads.
#[track_caller]
pub(super) fn hawser(cluster: &Cluster, args: &[&str]) -> String {
    let place = format!("--namespace={NAMESPACE}");
    let mut all = vec!["exec", "deployment/hawser-controller", &place, "-c", "hawser", "--"];
    all.push("hawser");
    all.extend(args);
    cluster.kubectl().ok(&all)
}

/// The end of what every pod of ours said.
pub(super) fn logs(driver: &Driver) -> String {
    let place = format!("--namespace={NAMESPACE}");
    let label = "--selector=app.kubernetes.io/name=hawser";
    let args = ["logs", &place, label, "--all-containers", "--prefix", "--tail=40"];
    driver.kubectl.try_ok(&args, &[]).unwrap_or_else(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lab() -> Lab {
        let node = |number: u8| LabNode {
            number,
            kubelet: format!("/run/cluster0/node{number}/kubelet"),
            state: format!("/run/cluster0/hawser{number}"),
            metrics: 40002 + u16::from(number),
        };
        let nodes = vec![node(1), node(2)];
        Lab { nodes, server: 6443, ports: [(7781, 40001), (9808, 40002)] }
    }

    /// A DaemonSet with what the chart has, as far as it is changed.
    fn chart_set() -> Value {
        let folder = |name: &str, path: &str| json!({ "name": name, "hostPath": { "path": path } });
        json!({ "kind": "DaemonSet", "spec": { "template": { "spec": {
            "containers": [{
                "image": "ghcr.io/hawser-storage/hawser-node:0.1.0",
                "args": ["--kubelet-dir=/var/lib/kubelet", "--metrics=0.0.0.0:9809"],
                "env": [],
                "ports": [{ "containerPort": 9809 }],
                "volumeMounts": [{ "name": "state" }, { "name": "lacking" }],
            }],
            "volumes": [
                folder("state", "/var/lib/hawser"),
                folder("lacking", "/no/such/folder"),
                folder("locks", "/run/lock/hawser"),
            ],
        }}}})
    }

    #[test]
    fn a_daemon_set_runs_on_the_ports_and_folders_of_each_node() {
        let sets = lab().adapted(chart_set());

        assert_eq!(sets.len(), 2);
        for (set, number) in sets.iter().zip(["1", "2"]) {
            let pod = &set["spec"]["template"]["spec"];
            let container = &pod["containers"][0];
            let kubelet = format!("--kubelet-dir=/run/cluster0/node{number}/kubelet");
            assert_eq!(container["image"], NODE_IMAGE);
            assert_eq!(container["args"][0], kubelet);
            let port = if number == "1" { 40003 } else { 40004 };
            assert_eq!(container["args"][1], format!("--metrics=0.0.0.0:{port}"));
            assert_eq!(container["ports"][0]["containerPort"], port);
            assert_eq!(container["env"][1]["value"], "6443");
            assert_eq!(container["volumeMounts"], json!([{ "name": "state" }]));
            assert_eq!(pod["volumes"].as_array().unwrap().len(), 2);
            let state = format!("/run/cluster0/hawser{number}");
            assert_eq!(pod["volumes"][0]["hostPath"]["path"], state);
            assert_eq!(pod["nodeSelector"]["kubernetes.io/hostname"], format!("node{number}"));
            assert_eq!(set["spec"]["selector"]["matchLabels"]["lab-node"], number);
            assert_eq!(pod["hostNetwork"], true);
        }
        assert_ne!(sets[0]["metadata"]["name"], sets[1]["metadata"]["name"]);
    }

    #[test]
    fn what_runs_no_pods_stays_as_it_is() {
        let class = json!({ "kind": "StorageClass", "parameters": { "a": "/var/lib/kubelet" } });
        assert_eq!(lab().adapted(class.clone()), [class]);
    }
}
