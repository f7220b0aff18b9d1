//! Upstream's sidecars beside a driver, as processes.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{LOCAL, NAMESPACE};
use crate::cluster::{Cluster, Limits, Process};

/// A sidecar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sidecar {
    /// Makes volumes of claims, and publishes how much room there is.
    Provisioner,
    /// Lets nodes use volumes.
    Attacher,
    /// Makes volumes larger, and changes them.
    Resizer,
    /// Takes snapshots.
    Snapshotter,
}

impl Sidecar {
    /// Every one of them.
    pub const ALL: [Self; 4] =
        [Self::Provisioner, Self::Attacher, Self::Resizer, Self::Snapshotter];

    /// Those of storage that never leaves its node: nothing is attached.
    pub const OF_NODES: [Self; 3] = [Self::Provisioner, Self::Resizer, Self::Snapshotter];

    /// Its name in `lab/cluster.versions`.
    pub fn program(self) -> &'static str {
        match self {
            Self::Provisioner => "csi-provisioner",
            Self::Attacher => "csi-attacher",
            Self::Resizer => "csi-resizer",
            Self::Snapshotter => "csi-snapshotter",
        }
    }

    /// What the chart gives it besides limits and addresses.
    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Provisioner => {
                &["--extra-create-metadata", "--strict-topology", "--immediate-topology=false"]
            }
            Self::Attacher => &["--worker-threads=50", "--reconcile-sync=1m"],
            Self::Resizer => &["--handle-volume-inuse-error=false", "--extra-modify-metadata"],
            Self::Snapshotter => &["--extra-create-metadata"],
        }
    }
}

/// What sidecars are told of their driver.
#[derive(Clone, Debug)]
pub(super) struct Side {
    /// The driver's name.
    pub(super) driver: String,
    /// Its socket, as programs in the cluster see it.
    pub(super) socket: PathBuf,
    /// Who they are to the server.
    pub(super) config: PathBuf,
    /// How fast they may ask it.
    pub(super) limits: Limits,
    /// With what the chart gives them, or as they are by themselves.
    pub(super) as_in_chart: bool,
}

impl Side {
    #[track_caller]
    pub(super) fn start(&self, cluster: &Cluster, sidecar: Sidecar) -> Process {
        let mut command = cluster.command(cluster.program(sidecar.program()));
        command.arg(format!("--csi-address={}", self.socket.display()));
        reach(&mut command, &self.config, self.limits);
        if self.as_in_chart {
            command.arg("--timeout=60s").args(sidecar.arguments());
            if sidecar == Sidecar::Provisioner && self.driver == LOCAL {
                // Nothing owns what a process publishes; the cluster ends with it.
                command.args(["--enable-capacity", "--capacity-ownerref-level=-1"]);
                command.env("NAMESPACE", NAMESPACE);
            }
        }
        cluster.start_process(sidecar.program(), &mut command)
    }
}

/// Starts the controller of snapshots, which is the cluster's, whoever does the sidecars' work.
#[track_caller]
pub fn snapshot_controller(cluster: &Cluster, limits: Limits) -> Process {
    start_snapshot_controller(cluster, limits, &[])
}

/// The same, for groups of snapshots too.
#[track_caller]
pub fn group_controller(cluster: &Cluster) -> Process {
    let groups = ["--feature-gates=CSIVolumeGroupSnapshot=true"];
    start_snapshot_controller(cluster, Limits::Raised, &groups)
}

#[track_caller]
fn start_snapshot_controller(cluster: &Cluster, limits: Limits, more: &[&str]) -> Process {
    let mut command = cluster.command(cluster.program("snapshot-controller"));
    reach(&mut command, &cluster.inside("admin.kubeconfig"), limits);
    command.args(more);
    cluster.start_process("snapshot-controller", &mut command)
}

fn reach(command: &mut Command, config: &Path, limits: Limits) {
    command.arg(format!("--kubeconfig={}", config.display()));
    match limits {
        Limits::Stock => {}
        Limits::Raised => {
            command.args(["--kube-api-qps=1000", "--kube-api-burst=1000"]);
        }
    }
}
