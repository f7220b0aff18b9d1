//! The driver that ours is compared with: csi-driver-host-path and upstream's sidecars.

use std::path::PathBuf;

use serde_json::json;

use super::hawser::make;
use super::registrar::Registrar;
use super::sidecars::{Side, Sidecar};
use super::{wait_registered, wait_socket};
use crate::cluster::{Cluster, Limits, Process, node_name};

/// The program of `lab/cluster.versions`.
const PROGRAM: &str = "hostpathplugin";

/// The peer's driver at work.
pub struct Peer {
    /// Ends before the driver does.
    sidecars: Vec<Process>,
    driver: Process,
    _registrar: Registrar,
}

impl Peer {
    /// What it is called.
    pub const NAME: &'static str = "hostpath.csi.k8s.io";

    /// Starts it with these sidecars, all of them as they are by themselves, but for their limits. Its
    /// volumes are folders and need no attaching.
    #[track_caller]
    pub fn start(cluster: &mut Cluster, sidecars: &[Sidecar], limits: Limits) -> Self {
        cluster.kubectl().apply_json(&[json!({
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSIDriver",
            "metadata": { "name": Self::NAME },
            "spec": { "attachRequired": false, "podInfoOnMount": true, "fsGroupPolicy": "File" },
        })]);
        make(cluster, &format!("{}/kubelet/plugins/{}", node_name(1), Self::NAME));
        make(cluster, "hostpath");
        let socket = socket(cluster);
        let mut command = cluster.command(cluster.program(PROGRAM));
        command.arg(format!("--endpoint=unix://{}", socket.display()));
        command.arg(format!("--statedir={}", cluster.inside("hostpath").display()));
        command.arg(format!("--nodeid={}", node_name(1)));
        let mut driver = cluster.start_process(PROGRAM, &mut command);
        wait_socket(&mut driver, &cluster.seen(&socket));
        let registrar = Registrar::start(cluster, Self::NAME, &socket);
        wait_registered(cluster, Self::NAME);
        let side = Side {
            driver: Self::NAME.to_owned(),
            socket,
            config: cluster.inside("admin.kubeconfig"),
            limits,
            as_in_chart: false,
        };
        let sidecars = sidecars.iter().map(|sidecar| side.start(cluster, *sidecar)).collect();
        Self { sidecars, driver, _registrar: registrar }
    }

    /// Lets something run as long as the driver does, and end before it.
    pub fn add(&mut self, process: Process) {
        self.sidecars.push(process);
    }

    /// Its processes, the driver first.
    pub fn processes(&mut self) -> Vec<&mut Process> {
        let driver = std::iter::once(&mut self.driver);
        driver.chain(&mut self.sidecars).collect()
    }
}

fn socket(cluster: &Cluster) -> PathBuf {
    cluster.kubelet_folder(1).join("plugins").join(Peer::NAME).join("csi.sock")
}
