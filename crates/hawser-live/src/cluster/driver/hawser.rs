//! Our own program beside a cluster: what it is started with.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::{ACCOUNT, ATTACHED, LOCAL, NAMESPACE};
use crate::cluster::{Cluster, node_name};
use crate::process::binary;

/// The folder of everything that an instance has, below that of the run. Pods have it too.
pub(super) const STATE: &str = "hawser";

/// The pool in it.
pub(super) const POOL: &str = "pool";

/// Which halves of the driver a process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// Both, on the first node.
    Both,
    /// The one that talks to storage and to the cluster.
    Controller,
    /// The one that acts on the first node.
    Node,
}

/// Where the records are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Records {
    /// In a file of the state folder.
    File,
    /// In the cluster, as a Deployment has them.
    Cluster,
}

/// A process to be started on the first node.
#[derive(Clone, Debug)]
pub struct Hawser {
    half: Half,
    alone: bool,
    records: Records,
    bare: bool,
    replica: u8,
    log: Option<&'static str>,
}

impl Hawser {
    /// It calls itself by [`ACCOUNT`] and has the rights of the chart. Its class `local` is a pool of
    /// images, as the chart makes it; its class `null` keeps nothing, needs no
    /// node, and takes a moment for each call.
    pub fn new(half: Half) -> Self {
        Self { half, alone: false, records: Records::File, bare: false, replica: 1, log: None }
    }

    /// How much it says, as `--log` has it.
    pub fn log(mut self, filter: &'static str) -> Self {
        self.log = Some(filter);
        self
    }

    /// One more of a controller: it has sockets and a state folder of its own.
    pub fn replica(mut self, number: u8) -> Self {
        self.replica = number;
        self
    }

    /// It does what the sidecars do.
    pub fn without_sidecars(mut self) -> Self {
        self.alone = true;
        self
    }

    /// Where its records are.
    pub fn records(mut self, records: Records) -> Self {
        self.records = records;
        self
    }

    /// With no settings at all: what users get who set nothing.
    pub fn default_settings(mut self) -> Self {
        self.bare = true;
        self
    }

    /// What its process is called.
    pub(super) fn name(&self) -> String {
        let name = match self.half {
            Half::Both => "hawser",
            Half::Controller => "hawser-controller",
            Half::Node => "hawser-node",
        };
        self.numbered(name)
    }

    /// A name that no other replica has.
    fn numbered(&self, name: &str) -> String {
        if self.replica == 1 { name.to_owned() } else { format!("{name}{}", self.replica) }
    }

    /// True when a kubelet gets to know it.
    pub(super) fn registers(&self) -> bool {
        self.half != Half::Controller
    }

    /// The socket of one of its drivers, as programs in the cluster see it.
    pub(super) fn socket(&self, cluster: &Cluster, driver: &str) -> PathBuf {
        match self.half {
            Half::Both | Half::Node => {
                cluster.kubelet_folder(1).join("plugins").join(driver).join("csi.sock")
            }
            // Short: the name of a socket has at most 108 bytes.
            Half::Controller => cluster.inside(format!("{}.sock", self.numbered(driver))),
        }
    }

    /// The command that starts it; makes the folders that somebody else makes elsewhere.
    #[track_caller]
    pub(super) fn command(&self, cluster: &Cluster) -> Command {
        let mut command = cluster.command(binary());
        let mode = match self.half {
            Half::Both => "all",
            Half::Controller => "controller",
            Half::Node => "node",
        };
        let state = cluster.inside(self.numbered(STATE));
        command.args(["csi", "--mode", mode, "--node-id", &node_name(1)]);
        command.arg("--state-dir").arg(&state);
        for (flag, driver) in [("--endpoint", ATTACHED), ("--local-endpoint", LOCAL)] {
            let socket = self.socket(cluster, driver);
            command.arg(flag).arg(format!("unix://{}", socket.display()));
        }
        if self.registers() {
            let kubelet = cluster.kubelet_folder(1);
            for folder in [
                format!("plugins/{ATTACHED}"),
                format!("plugins/{LOCAL}"),
                "plugins_registry".into(),
            ] {
                make(cluster, &format!("{}/kubelet/{folder}", node_name(1)));
            }
            command.arg("--kubelet-dir").arg(&kubelet);
            command.arg("--registration-dir").arg(kubelet.join("plugins_registry"));
        }
        if !self.bare {
            let settings = format!(
                "default_class = \"local\"\n[class.local]\nprovider = \"local\"\nkind = \"image\"\n\
                 path = \"{}/{POOL}\"\n[class.null]\nprovider = \"null\"\n\
                 latency = 300\n",
                state.display()
            );
            let file = format!("{}.toml", self.numbered("hawser"));
            fs::write(cluster.folder().join(&file), settings)
                .expect("the folder of the run can be written");
            command.arg("--config").arg(cluster.inside(file));
        }
        if let Some(filter) = self.log {
            command.args(["--log", filter]);
        }
        self.reach(cluster, &mut command);
        command
    }

    /// How it reaches the cluster, where it does.
    #[track_caller]
    fn reach(&self, cluster: &Cluster, command: &mut Command) {
        if self.half == Half::Node {
            return;
        }
        let config = account(cluster);
        if self.records == Records::Cluster {
            let store = format!("kubernetes:{NAMESPACE}?kubeconfig={}", config.display());
            command.arg("--store").arg(store);
        }
        if self.alone {
            command.args(["--kubernetes", "--namespace", NAMESPACE]);
            command.arg("--kubeconfig").arg(config);
        }
    }
}

/// The kubeconfig of the chart's account for the controller, as programs in the cluster see it. Who
/// has a certificate with the name of an account has its rights, and no others.
#[track_caller]
pub(super) fn account(cluster: &Cluster) -> PathBuf {
    // With the group that a pod's token has: the server gives those a share of its time.
    let kubectl = cluster.user(ACCOUNT, Some("system:serviceaccounts"));
    let file = kubectl.config.file_name().expect("a kubeconfig is a file").to_owned();
    cluster.inside(file)
}

/// Makes a folder below that of the run.
#[track_caller]
pub(super) fn make(cluster: &Cluster, folder: &str) {
    let path = cluster.folder().join(folder);
    fs::create_dir_all(&path).unwrap_or_else(|error| panic!("making {}: {error}", path.display()));
}
