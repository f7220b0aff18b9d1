//! Our driver in pods, from the manifests that users apply.

use std::path::Path;

use serde_json::{Value, json};

use super::hawser::{STATE, make};
use super::manifests::{self, Chart};
use super::waits::SOON;
use super::{Driver, NAMESPACE};
use crate::cluster::kubectl::unwrap;
use crate::cluster::ports::own_port;
use crate::cluster::program::{self, Need};
use crate::cluster::{Cluster, Image, Object, Result, image};
use crate::process::binary;

const CONTROLLER_IMAGE: &str = "localhost/hawser:1";
const NODE_IMAGE: &str = "localhost/hawser-node:1";

/// Where users have the kubelet.
const KUBELET: &str = "/var/lib/kubelet";

/// What a node that has pools of images uses, of the image that users run. Everything else in that
/// one is for protocols that a lab of one kernel does not have.
const TOOLS: [Need; 8] = [
    ("mkfs.ext4", "e2fsprogs"),
    ("e2fsck", "e2fsprogs"),
    ("resize2fs", "e2fsprogs"),
    ("dumpe2fs", "e2fsprogs"),
    ("tune2fs", "e2fsprogs"),
    ("blkid", "util-linux"),
    ("mount", "mount"),
    ("umount", "mount"),
];

/// Files that those, and the search for host names, read where they are there.
const FILES: [&str; 2] = ["/etc/mke2fs.conf", "/etc/nsswitch.conf"];

impl Driver {
    /// Applies `hawser.yaml` and its certificates, and waits until its pods and the kubelet say that
    /// they are ready. The pods run the program that the same build made.
    #[track_caller]
    pub fn in_pods(cluster: &mut Cluster) -> Self {
        for image in unwrap(images()) {
            cluster.load(&image);
        }
        let lab = Lab::of(cluster);
        let mut all = manifests::objects(cluster, Chart::Alone);
        all.iter_mut().for_each(|object| lab.adapt(object));
        make(cluster, STATE);
        let kubectl = cluster.kubectl().clone();
        kubectl.apply_json(&all);
        manifests::install_certificates(cluster);
        manifests::wait_for_policy(&kubectl);
        let mut driver = Self::empty(cluster);
        driver.in_pods = true;
        for (kind, name, field) in [
            ("daemonset", "hawser-node", "numberReady"),
            ("deployment", "hawser-controller", "readyReplicas"),
        ] {
            let object = Object::within(NAMESPACE, kind, name);
            cluster.wait(&format!("ready {name}"), &object, SOON, |set| set["status"][field] == 1);
        }
        driver.wait_registered(cluster);
        // Their own volumes are mounted below the kubelet's folder too.
        driver.own_traces = cluster.volume_traces();
        driver
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

/// What a lab without services and DNS, on a machine whose network all pods share, forces on the
/// manifests. Everything else of them stays as it is.
struct Lab {
    /// The kubelet's folder.
    kubelet: String,
    /// The state folder of the node: below that of the run, so that what it leaves is found.
    state: String,
    /// The port of the server.
    server: u16,
    /// Ports of the manifests, and free ones of this machine for each.
    ports: [(u16, u16); 3],
}

impl Lab {
    #[track_caller]
    fn of(cluster: &Cluster) -> Self {
        Self {
            kubelet: cluster.kubelet_folder(1).display().to_string(),
            state: cluster.inside(STATE).display().to_string(),
            server: cluster.ports.server,
            ports: [7781, 9808, 9809].map(|port| (port, unwrap(own_port()))),
        }
    }

    fn adapt(&self, object: &mut Value) {
        if object["kind"] == "Deployment" {
            // A second one would want the same ports of the machine.
            object["spec"]["replicas"] = json!(1);
        } else if object["kind"] != "DaemonSet" {
            return;
        }
        let pod = &mut object["spec"]["template"]["spec"];
        each_text(pod, &|text| self.moved(text));
        pod["hostNetwork"] = json!(true);
        pod["dnsPolicy"] = json!("Default");
        let name = format!("hawser-controller.{NAMESPACE}.svc");
        pod["hostAliases"] = json!([{ "ip": "127.0.0.1", "hostnames": [name] }]);
        self.adapt_volumes(pod);
        for container in pod["containers"].as_array_mut().into_iter().flatten() {
            self.adapt_container(container);
        }
    }

    fn adapt_container(&self, container: &mut Value) {
        let is_node = container["image"].as_str().is_some_and(|name| name.contains("hawser-node"));
        container["image"] = json!(if is_node { NODE_IMAGE } else { CONTROLLER_IMAGE });
        container["imagePullPolicy"] = json!("Never");
        if let Some(list) = container["env"].as_array_mut() {
            list.push(json!({ "name": "KUBERNETES_SERVICE_HOST", "value": "127.0.0.1" }));
            let port = self.server.to_string();
            list.push(json!({ "name": "KUBERNETES_SERVICE_PORT", "value": port }));
        }
        for port in container["ports"].as_array_mut().into_iter().flatten() {
            let moved = self.ports.iter().find(|(from, _)| port["containerPort"] == *from);
            if let Some((_, to)) = moved {
                port["containerPort"] = json!(to);
            }
        }
    }

    /// The node's state below the folder of the run; and without folders that this machine lacks, as
    /// the chart's `node.hostPaths` does it: the kubelet would make them on the machine itself.
    fn adapt_volumes(&self, pod: &mut Value) {
        let mut gone = Vec::new();
        for volume in pod["volumes"].as_array_mut().into_iter().flatten() {
            let Some(path) = volume["hostPath"]["path"].as_str() else { continue };
            if volume["name"] == "state" {
                volume["hostPath"]["path"] = json!(self.state);
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

    fn moved(&self, text: &str) -> String {
        let mut text = text.replace(KUBELET, &self.kubelet);
        for (from, to) in self.ports {
            if let Some(host) = text.strip_suffix(&format!(":{from}")) {
                text = format!("{host}:{to}");
            }
        }
        text
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
        Lab {
            kubelet: "/run/cluster0/node1/kubelet".into(),
            state: "/run/cluster0/hawser".into(),
            server: 6443,
            ports: [(7781, 40001), (9808, 40002), (9809, 40003)],
        }
    }

    /// A DaemonSet with what the chart has, as far as it is changed.
    fn daemon_set() -> Value {
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
    fn a_daemon_set_runs_on_the_ports_and_folders_of_the_lab() {
        let mut set = daemon_set();
        lab().adapt(&mut set);

        let pod = &set["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        assert_eq!(container["image"], NODE_IMAGE);
        assert_eq!(container["args"][0], "--kubelet-dir=/run/cluster0/node1/kubelet");
        assert_eq!(container["args"][1], "--metrics=0.0.0.0:40003");
        assert_eq!(container["ports"][0]["containerPort"], 40003);
        assert_eq!(container["env"][1]["value"], "6443");
        assert_eq!(container["volumeMounts"], json!([{ "name": "state" }]));
        assert_eq!(pod["volumes"].as_array().unwrap().len(), 2);
        assert_eq!(pod["volumes"][0]["hostPath"]["path"], "/run/cluster0/hawser");
        assert_eq!(pod["hostNetwork"], true);
    }

    #[test]
    fn what_runs_no_pods_stays_as_it_is() {
        let class = json!({ "kind": "StorageClass", "parameters": { "a": "/var/lib/kubelet" } });
        let mut adapted = class.clone();
        lab().adapt(&mut adapted);
        assert_eq!(adapted, class);
    }
}
