//! CSI drivers beside a cluster, as processes of its first node or in pods: ours, which does the
//! sidecars' work or leaves it to them, and the peer's. With them what every test of a driver needs:
//! objects to make, crowds of them, and everything that volumes can leave behind.

mod crowd;
mod events;
mod hawser;
mod left;
mod manifests;
pub mod objects;
mod peer;
mod pods;
mod registrar;
mod sidecars;
mod waits;

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

pub use crowd::{CLAIMS, Crowd, Following, Kind, Moments, PODS, SNAPSHOTS, VOLUMES};
pub use events::{claim_events, claim_warnings, warnings_of};
pub use hawser::{Half, Hawser, Records};
pub use left::{pool, pool_of};
pub use manifests::{Chart, STAMP, Stamps, install};
pub use peer::Peer;
pub use registrar::Registrar;
pub use sidecars::{Sidecar, group_controller, snapshot_controller};
pub use waits::{SOON, inside, room_in, wait_bound, wait_gone, wait_running, wait_size};

use super::kubectl::unwrap;
use super::program::{SHOWN_LINES, run};
use super::{Cluster, Kubectl, Limits, Object, Process, node_name, say};
use crate::process::binary;
use sidecars::Side;

/// Where everything is installed.
pub const NAMESPACE: &str = "hawser-system";

/// The driver whose volumes are attached.
pub const ATTACHED: &str = "csi.hawser.storage";

/// The driver for storage of the node itself.
pub const LOCAL: &str = "local.csi.hawser.storage";

/// Who leads among several controllers.
pub const LEASE: &str = "hawser-csi-controller";

/// Who the controller is to the server: the account of the chart.
pub const ACCOUNT: &str = "system:serviceaccount:hawser-system:hawser-controller";

/// How long a driver may take until it listens.
const START_LIMIT: Duration = Duration::from_secs(60);

/// How long a program may take to end when it is asked to.
const STOP_LIMIT: Duration = Duration::from_secs(30);

/// How long one command may take.
const COMMAND_LIMIT: Duration = Duration::from_secs(60);

/// Our driver at work, with what runs beside it. Killed when dropped; a test that fails shows the end
/// of its logs.
pub struct Driver {
    /// What it is started with, where it is a process.
    hawser: Option<Hawser>,
    /// That process, unless it was stopped.
    process: Option<Process>,
    /// Programs beside it, in the order in which they were started.
    beside: Vec<Process>,
    in_pods: bool,
    /// Mounts that are its own and no volumes'.
    own_traces: Vec<String>,
    kubectl: Kubectl,
}

impl Driver {
    fn empty(cluster: &Cluster) -> Self {
        Self {
            hawser: None,
            process: None,
            beside: Vec::new(),
            in_pods: false,
            own_traces: Vec::new(),
            kubectl: cluster.kubectl().clone(),
        }
    }

    /// Starts a process of ours, and waits until it listens and the kubelet knows it.
    #[track_caller]
    pub fn start(cluster: &mut Cluster, hawser: Hawser) -> Self {
        let mut driver = Self::start_unheard(cluster, hawser);
        driver.wait_listening(cluster);
        driver
    }

    /// The same of a controller that has to wait until another one no longer leads: only who leads
    /// listens.
    #[track_caller]
    pub fn start_standby(cluster: &mut Cluster, hawser: Hawser) -> Self {
        let mut driver = Self::start_unheard(cluster, hawser);
        driver.wait_standby();
        driver
    }

    #[track_caller]
    fn start_unheard(cluster: &mut Cluster, hawser: Hawser) -> Self {
        let mut driver = Self::empty(cluster);
        driver.hawser = Some(hawser);
        driver.start_again(cluster);
        driver
    }

    /// Starts the process that was killed or stopped, and does not wait.
    #[track_caller]
    pub fn start_again(&mut self, cluster: &Cluster) {
        let hawser = self.hawser.as_ref().expect("a driver that is a process");
        let process = cluster.start_process(&hawser.name(), &mut hawser.command(cluster));
        self.process = Some(process);
    }

    /// Waits until it listens on both sockets, and the kubelet knows it.
    #[track_caller]
    pub fn wait_listening(&mut self, cluster: &mut Cluster) {
        let hawser = self.hawser.clone().expect("a driver that is a process");
        for driver in [ATTACHED, LOCAL] {
            let socket = cluster.seen(hawser.socket(cluster, driver));
            wait_socket(self.process(), &socket);
        }
        if hawser.registers() {
            self.wait_registered(cluster);
        }
    }

    /// Waits until it says that another one leads.
    #[track_caller]
    pub fn wait_standby(&mut self) {
        let begun = Instant::now();
        let process = self.process();
        while !process.log_end(SHOWN_LINES).contains("another process leads") {
            unwrap(process.check());
            let (waited, name) = (begun.elapsed(), process.name());
            assert!(waited < START_LIMIT, "{name} does not wait\n{}", process.log_end(SHOWN_LINES));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    #[track_caller]
    fn wait_registered(&self, cluster: &mut Cluster) {
        for driver in [ATTACHED, LOCAL] {
            wait_registered(cluster, driver);
        }
    }

    /// The process.
    ///
    /// # Panics
    ///
    /// When it was killed or stopped, or runs in pods.
    #[track_caller]
    pub fn process(&mut self) -> &mut Process {
        self.process.as_mut().expect("a process of the driver runs")
    }

    /// Its processes, its own first.
    pub fn processes(&mut self) -> Vec<&mut Process> {
        self.process.iter_mut().chain(&mut self.beside).collect()
    }

    /// Lets something run as long as the driver does, and end before it.
    pub fn add(&mut self, process: Process) {
        self.beside.push(process);
    }

    /// Starts sidecars of one of its drivers, with the rights and arguments of the chart.
    #[track_caller]
    pub fn add_sidecars(
        &mut self,
        cluster: &Cluster,
        driver: &str,
        sidecars: &[Sidecar],
        limits: Limits,
    ) {
        let hawser = self.hawser.as_ref().expect("a driver that is a process");
        let side = Side {
            driver: driver.to_owned(),
            socket: hawser.socket(cluster, driver),
            config: hawser::account(cluster),
            limits,
            as_in_chart: true,
        };
        self.beside.extend(sidecars.iter().map(|sidecar| side.start(cluster, *sidecar)));
    }

    /// Kills it as a crash would; what is beside it stays.
    #[track_caller]
    pub fn kill(&mut self) {
        self.process().kill();
        self.process = None;
    }

    /// Asks everything to end, what is beside it first: sidecars end by themselves, and badly, when
    /// their driver does. Volumes stay as they are.
    #[track_caller]
    pub fn stop(mut self) {
        for mut process in std::mem::take(&mut self.beside).into_iter().rev() {
            unwrap(process.stop(STOP_LIMIT));
        }
        if let Some(mut process) = self.process.take() {
            unwrap(process.stop(STOP_LIMIT));
        }
    }

    /// Runs a command of the program where the control half is; answers what it said.
    #[track_caller]
    pub fn hawser(&self, cluster: &Cluster, args: &[&str]) -> String {
        if self.in_pods {
            return pods::hawser(cluster, args);
        }
        let mut command = cluster.command(binary());
        command.args(args).env("HAWSER_STATE_DIR", cluster.inside(hawser::STATE));
        unwrap(run(&format!("hawser {}", args.join(" ")), &mut command, COMMAND_LIMIT))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        for process in self.process.iter().chain(&self.beside) {
            say(&format!("{} ends so:\n{}", process.name(), process.log_end(SHOWN_LINES)));
        }
        if self.in_pods {
            say(&format!("the pods end so:\n{}", pods::logs(self)));
        }
    }
}

/// Takes the lease from a leader that was killed, as it would expire: whoever knows that it is dead
/// need not wait for that.
#[track_caller]
pub fn free_lease(cluster: &Cluster) {
    cluster.kubectl().delete(&Object::within(NAMESPACE, "lease", LEASE));
}

/// Waits until a controller leads.
#[track_caller]
pub fn wait_leader(cluster: &mut Cluster) {
    let lease = Object::within(NAMESPACE, "lease", LEASE);
    let held = |lease: &serde_json::Value| {
        lease["spec"]["holderIdentity"].as_str().is_some_and(|holder| !holder.is_empty())
    };
    cluster.wait("controller that leads", &lease, START_LIMIT, held);
}

/// Waits until the kubelet of the first node knows a driver.
#[track_caller]
pub fn wait_registered(cluster: &mut Cluster, driver: &str) {
    wait_registered_on(cluster, 1, driver);
}

/// Waits until the kubelet of a node knows a driver.
#[track_caller]
fn wait_registered_on(cluster: &mut Cluster, number: u8, driver: &str) {
    let node = Object::new("csinode", &node_name(number));
    let what = format!("{driver} on {}", node_name(number));
    let knows = |node: &serde_json::Value| {
        let drivers = node["spec"]["drivers"].as_array().into_iter().flatten();
        drivers.into_iter().any(|found| found["name"] == driver)
    };
    cluster.wait(&what, &node, START_LIMIT, knows);
}

/// Waits until a process listens on its socket, as the machine sees it.
///
/// # Panics
///
/// When it ends or takes too long, with the end of its log.
#[track_caller]
pub fn wait_socket(process: &mut Process, socket: &Path) {
    let begun = Instant::now();
    while UnixStream::connect(socket).is_err() {
        unwrap(process.check());
        let (waited, place) = (begun.elapsed(), socket.display());
        let (name, log) = (process.name(), || process.log_end(SHOWN_LINES));
        assert!(waited < START_LIMIT, "{name} does not listen on {place}\n{}", log());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// How many claims a test of faults makes: `HAWSER_FAULT_CLAIMS`, or this many.
#[expect(clippy::disallowed_methods, reason = "tests have no other settings, and read them here")]
pub fn fault_claims(unless_set: usize) -> usize {
    let set = std::env::var("HAWSER_FAULT_CLAIMS").ok();
    set.map_or(unless_set, |text| {
        text.parse().unwrap_or_else(|_| panic!("HAWSER_FAULT_CLAIMS is {text:?}, no number"))
    })
}
