//! What can be typed after `hawser csi`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::settings::SettingsFlags;

/// Which half of the driver runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// Both, on one machine
    All,
    /// The half that talks to storage; nodes dial in
    Controller,
    /// The half that acts on this host
    Node,
}

/// The options of `hawser csi`.
#[derive(Args, Clone, Debug)]
pub(crate) struct CsiArgs {
    /// The socket of the driver csi.hawser.storage: unix:///csi/csi.sock
    #[arg(long, env = "CSI_ENDPOINT", value_name = "UNIX-SOCKET")]
    pub(crate) endpoint: String,
    /// The socket of the driver local.csi.hawser.storage, for classes whose volumes never leave their
    /// node; not served unless given
    #[arg(long, env = "HAWSER_LOCAL_ENDPOINT", value_name = "UNIX-SOCKET")]
    pub(crate) local_endpoint: Option<String>,
    /// Which half runs
    #[arg(long, env = "HAWSER_CSI_MODE", value_enum, default_value = "all")]
    pub(crate) mode: Mode,
    /// How many volumes may be published to one node
    #[arg(long, env = "HAWSER_MAX_VOLUMES_PER_NODE", value_name = "N", default_value_t = 64)]
    pub(crate) max_volumes_per_node: u32,
    /// The folder of the kubelet; paths to stage and publish at must be below it
    #[arg(long, env = "HAWSER_KUBELET_DIR", value_name = "DIR")]
    pub(crate) kubelet_dir: Option<PathBuf>,
    /// Register with the kubelet in this folder, such as /var/lib/kubelet/plugins_registry
    #[arg(long, env = "HAWSER_REGISTRATION_DIR", value_name = "DIR")]
    pub(crate) registration_dir: Option<PathBuf>,
    /// Say that volumes can be asked for their health (CSI 1.13, alpha)
    #[arg(long, env = "HAWSER_CSI_HEALTH")]
    pub(crate) health: bool,
    /// Serve /metrics and /healthz at this address
    #[arg(long, env = "HAWSER_METRICS", value_name = "ADDRESS:PORT")]
    pub(crate) metrics: Option<SocketAddr>,
    /// Do what the sidecars do: watch claims, attachments and snapshots of the cluster
    #[arg(long, env = "HAWSER_KUBERNETES")]
    pub(crate) kubernetes: bool,
    /// How to reach the cluster; as a pod does unless given
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The namespace of the lease and of our records; the pod's own unless given
    #[arg(long, env = "HAWSER_NAMESPACE", value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// Tell of success in events too, not only of failures
    #[arg(long, env = "HAWSER_SUCCESS_EVENTS")]
    pub(crate) success_events: bool,
    /// The name of the pod that this process runs in, for the lease and for events
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    pub(crate) pod_name: Option<String>,
    /// Take this taint off nodes whose kubelet lists the drivers, such as hawser.storage/not-ready
    #[arg(long, env = "HAWSER_STARTUP_TAINT", value_name = "KEY")]
    pub(crate) startup_taint: Option<String>,
    /// Where the controller takes in nodes: HOST:PORT
    #[arg(long, env = "HAWSER_LINK_SERVER", value_name = "HOST:PORT")]
    pub(crate) link_server: Option<String>,
    #[command(flatten)]
    pub(crate) settings: SettingsFlags,
}
