//! What a driver is made of, and how it is set up.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hawser_core::attach::Multipath;
use hawser_core::class::Ability;
use hawser_core::name::NodeId;
use hawser_core::port::{Control, Node, Upstream};

use super::endpoint::Endpoint;
use super::metrics::Metrics;
use super::registration::KubeletAnswer;

/// What a driver is made of. What is there decides what it serves.
#[derive(Clone)]
pub struct CsiParts {
    /// What at least one class can do. The same in every process of a driver, so that each of them
    /// says the same of itself.
    pub abilities: HashSet<Ability>,
    /// For the controller services; `None` in a process that serves one node alone.
    pub control: Option<Arc<dyn Control>>,
    /// For the node service; `None` in a process that serves the controller alone.
    pub node: Option<Arc<dyn Node>>,
    /// The control half as a node sees it.
    pub upstream: Arc<dyn Upstream>,
    /// Where calls are counted; one for all drivers of a process.
    pub metrics: Metrics,
}

/// The drivers of Hawser. Their names stand in every PersistentVolume and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CsiDriver {
    /// Volumes are published to nodes by the controller: `csi.hawser.storage`.
    Published,
    /// Storage on the nodes themselves, `local.csi.hawser.storage`: a volume is where it is, and the
    /// node asks for the right to use it when it needs it.
    Local,
}

impl CsiDriver {
    /// The name of the driver.
    pub fn name(self) -> &'static str {
        match self {
            Self::Published => "csi.hawser.storage",
            Self::Local => "local.csi.hawser.storage",
        }
    }
}

/// How a driver is set up.
#[derive(Clone, Debug)]
pub struct CsiSettings {
    /// Which one.
    pub driver: CsiDriver,
    /// Where it listens.
    pub endpoint: Endpoint,
    /// What version it says it is.
    pub version: String,
    /// The node that the node service serves.
    pub node_id: NodeId,
    /// The most volumes that a node may have; 0 is no limit.
    pub max_volumes_per_node: u32,
    /// Where the kubelet keeps its folders: staging and target paths must lie below. Any absolute
    /// path is taken when `None`.
    pub kubelet_dir: Option<PathBuf>,
    /// Registers itself with the kubelet.
    pub registration: Option<Registration>,
    /// Says that it can tell about health: new in 1.13, and refused by programs that do not know it.
    pub health: bool,
    /// Over how many paths volumes are attached.
    pub multipath: Multipath,
    /// How long calls that are at work are waited for when the driver is told to stop.
    pub grace: Duration,
}

impl CsiSettings {
    /// A driver as it is when nobody says otherwise.
    pub fn new(driver: CsiDriver, endpoint: Endpoint, node_id: NodeId) -> Self {
        Self {
            driver,
            endpoint,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            node_id,
            max_volumes_per_node: 64,
            kubelet_dir: None,
            registration: None,
            health: false,
            multipath: Multipath::default(),
            grace: Duration::from_secs(25),
        }
    }
}

/// How a driver registers itself with the kubelet.
#[derive(Clone, Debug)]
pub struct Registration {
    /// Where the kubelet looks for plug-ins: `<kubelet-dir>/plugins_registry`.
    pub folder: PathBuf,
    /// The driver's socket as the kubelet sees it, which may be mounted elsewhere here.
    pub endpoint: PathBuf,
    /// What the kubelet answered.
    pub answer: KubeletAnswer,
}
