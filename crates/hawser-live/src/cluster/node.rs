//! A node: a container runtime and kubelet, with folders, cgroups and a network of their own.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::cgroups::Cgroup;
use super::control::{Plan, Spec, debian_program};
use super::error::{Attempt, Result};
use super::image::{Image, image};
use super::pki::{Pki, Subject};
use super::ports;
use super::program::run;

/// The image of the container that holds a pod's namespaces.
pub const PAUSE: &str = "localhost/pause:1";

/// An image with a shell and small programs, for the pods of tests.
pub const BUSYBOX: &str = "localhost/busybox:1";

/// One node of a cluster.
#[derive(Debug)]
pub(super) struct Node {
    /// Counted from 1.
    pub(super) number: u8,
    /// Where its pods are.
    pub(super) network: Ipv4Addr,
    /// What its pods are accounted to.
    pub(super) cgroup: Cgroup,
}

/// The name of a node, counted from 1.
pub fn node_name(number: u8) -> String {
    format!("node{number}")
}

/// The network of a node's pods, of 24 bits; clusters side by side have different ones.
fn network(slot: u8, number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 244, 2 * slot + number, 0)
}

fn cgroup_name(slot: u8, number: u8) -> String {
    format!("hawser-cluster{slot}-{}", node_name(number))
}

/// Removes the groups that a killed run of this number left; answers what stays.
pub(super) fn clear(slot: u8) -> Vec<String> {
    (1..=2).flat_map(|number| Cgroup::named(&cgroup_name(slot, number)).remove()).collect()
}

impl Node {
    /// Makes its groups, and remembers its network.
    pub(super) fn make(slot: u8, number: u8) -> Result<Self> {
        let network = network(slot, number);
        let cgroup = Cgroup::make(&cgroup_name(slot, number))?;
        Ok(Self { number, network, cgroup })
    }

    /// Its folder below that of the run.
    pub(super) fn folder(&self) -> String {
        node_name(self.number)
    }

    /// Writes what its programs read; `run` is the folder of the run on the machine.
    pub(super) fn write_files(&self, plan: &Plan<'_>, pki: &Pki, run: &Path) -> Result<()> {
        let name = node_name(self.number);
        let folder = run.join(self.folder());
        for part in ["cni", "containerd", "kubelet", "pods", "plugins", "certificates"] {
            let path = folder.join(part);
            fs::create_dir_all(&path).attempt(|| format!("making {}", path.display()))?;
        }
        let serving = Subject { name: &name, group: None, serves: &[&name, "127.0.0.1"] };
        pki.issue_to(&format!("{name}-serving"), serving)?;
        let write = |file: &str, text: String| {
            let path = folder.join(file);
            fs::write(&path, text).attempt(|| format!("writing {}", path.display()))
        };
        write("containerd.toml", self.containerd_config(plan))?;
        write("cni/cluster.conflist", self.network_config(plan).to_string())?;
        // What pods are told of names; nobody answers there.
        write("resolv.conf", "nameserver 127.0.0.1\n".to_owned())?;
        write("kubelet.json", self.kubelet_config(plan).to_string())
    }

    fn inside(&self, plan: &Plan<'_>, name: &str) -> String {
        plan.inside(&format!("{}/{name}", self.folder()))
    }

    /// The socket of its runtime, as the namespaces see it.
    pub(super) fn runtime_socket(&self, plan: &Plan<'_>) -> String {
        self.inside(plan, "containerd.sock")
    }

    pub(super) fn containerd(&self, plan: &Plan<'_>) -> Spec {
        Spec {
            program: debian_program(plan.debian, "containerd"),
            args: vec![format!("--config={}", self.inside(plan, "containerd.toml"))],
            // It starts its shim by name.
            path: Some(plan.debian.join("usr/bin")),
        }
    }

    pub(super) fn kubelet(&self, plan: &Plan<'_>) -> Result<Spec> {
        let name = node_name(self.number);
        let mut args = vec![
            format!("--config={}", self.inside(plan, "kubelet.json")),
            format!("--kubeconfig={}", plan.inside(&format!("{name}.kubeconfig"))),
            format!("--root-dir={}", self.inside(plan, "kubelet")),
            format!("--cert-dir={}", self.inside(plan, "certificates")),
            format!("--hostname-override={name}"),
        ];
        args.push(format!("--node-ip={}", ports::own_address()?));
        Ok(Spec { program: plan.program("kubelet"), args, path: None })
    }

    fn containerd_config(&self, plan: &Plan<'_>) -> String {
        let text = |value: &str| Value::from(value).to_string();
        let inside = |name: &str| text(&self.inside(plan, name));
        let debian = |path: PathBuf| text(&path.display().to_string());
        format!(
            "version = 2\n\
             root = {root}\n\
             state = {state}\n\
             [grpc]\naddress = {socket}\n\
             [debug]\nlevel = \"warn\"\n\
             [plugins.\"io.containerd.internal.v1.opt\"]\npath = {opt}\n\
             [plugins.\"io.containerd.grpc.v1.cri\"]\n\
             sandbox_image = \"{PAUSE}\"\n\
             # A machine may keep the right to lower its own score from root.\n\
             restrict_oom_score_adj = true\n\
             [plugins.\"io.containerd.grpc.v1.cri\".cni]\n\
             bin_dir = {cni}\nconf_dir = {conf}\n\
             [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\n\
             runtime_type = \"io.containerd.runc.v2\"\n\
             [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc.options]\n\
             BinaryName = {runc}\nSystemdCgroup = false\n",
            root = inside("containerd/root"),
            state = inside("containerd/state"),
            socket = inside("containerd.sock"),
            opt = inside("containerd/opt"),
            cni = debian(plan.debian.join("usr/lib/cni")),
            conf = inside("cni"),
            runc = debian(debian_program(plan.debian, "runc")),
        )
    }

    /// Each pod has a pair of devices to the machine, and no way out of it.
    fn network_config(&self, plan: &Plan<'_>) -> Value {
        json!({
            "cniVersion": "0.4.0",
            "name": "cluster",
            "plugins": [{
                "type": "ptp",
                "ipMasq": false,
                "ipam": {
                    "type": "host-local",
                    "dataDir": self.inside(plan, "containerd/addresses"),
                    "ranges": [[{ "subnet": format!("{}/24", self.network) }]],
                    "routes": [{ "dst": "0.0.0.0/0" }],
                },
            }],
        })
    }

    fn kubelet_config(&self, plan: &Plan<'_>) -> Value {
        let name = node_name(self.number);
        let inside = |file: &str| self.inside(plan, file);
        let port = plan.ports.kubelets[usize::from(self.number != 1)];
        let gates = plan.options.gates.iter().filter_map(|gate| {
            let (name, value) = gate.split_once('=')?;
            Some((name.to_owned(), Value::from(value == "true")))
        });
        json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": "127.0.0.1",
            "port": port,
            "readOnlyPort": 0,
            "healthzPort": 0,
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": self.cgroup.path(),
            "cgroupsPerQOS": true,
            "enforceNodeAllocatable": ["none"],
            "failCgroupV1": false,
            "failSwapOn": false,
            // The machine is shared with others, and may be as full as they like.
            "evictionHard": {
                "memory.available": "1Mi",
                "nodefs.available": "1Mi",
                "nodefs.inodesFree": "1",
                "imagefs.available": "1Mi",
                "imagefs.inodesFree": "1",
            },
            "imageGCHighThresholdPercent": 100,
            "makeIPTablesUtilChains": false,
            "podLogsDir": inside("pods"),
            "volumePluginDir": inside("plugins"),
            "resolvConf": inside("resolv.conf"),
            // A volume that has grown is noticed once per turn, a minute by itself.
            "syncFrequency": "5s",
            "containerRuntimeEndpoint": format!("unix://{}", inside("containerd.sock")),
            "authentication": {
                "anonymous": { "enabled": false },
                "webhook": { "enabled": true },
                "x509": { "clientCAFile": plan.inside("ca.crt") },
            },
            "authorization": { "mode": "Webhook" },
            "tlsCertFile": plan.inside(&format!("{name}-serving.crt")),
            "tlsPrivateKeyFile": plan.inside(&format!("{name}-serving.key")),
            "featureGates": Map::from_iter(gates),
        })
    }
}

/// The images that every node has.
pub(super) fn images(debian: &Path) -> Result<Vec<Image>> {
    let busybox = debian_program(debian, "busybox");
    let mut list = super::program::of_machine(&busybox.to_string_lossy());
    let applets = run("busybox", list.arg("--list"), std::time::Duration::from_secs(20))?;
    // Nothing has to be compiled for it: what a sandbox needs is a process that stays.
    let pause = image(PAUSE, &[(&busybox, "/bin/sleep")], &["/bin/sleep", "2147483647"]);
    let mut shell = image(BUSYBOX, &[(&busybox, "/bin/busybox")], &["/bin/sh"]);
    for applet in applets.lines().filter(|applet| *applet != "busybox") {
        shell = shell.link("busybox", &format!("/bin/{applet}"));
    }
    Ok(vec![pause, shell])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_clusters_side_by_side_have_other_networks() {
        let mut all: Vec<Ipv4Addr> =
            (0..8).flat_map(|slot| [network(slot, 1), network(slot, 2)]).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 16);
    }
}
