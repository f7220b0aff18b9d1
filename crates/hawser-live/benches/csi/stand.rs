//! A cluster with one of the sides at work in it.

use std::collections::BTreeMap;
use std::time::Duration;

use hawser_live::cluster::driver::objects::{Binding, storage_class};
use hawser_live::cluster::driver::{
    Chart, Crowd, Driver, Half, Hawser, LOCAL, Peer, Records, Sidecar, Stamps, install,
    snapshot_controller, wait_leader,
};
use hawser_live::cluster::{Cluster, Limits, Options, Part, Process};
use serde_json::json;

/// The class of volumes of every side: made when they are claimed.
pub(crate) const CLASS: &str = "bench";

/// Who makes the volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// csi-driver-host-path and sidecars.
    Peer,
    /// Ours and the same sidecars.
    Sidecars,
    /// Ours alone.
    Alone(Stamps),
}

enum Who {
    Peer(Peer),
    Ours(Box<Driver>),
}

/// A side at work. What is killed first when it is dropped comes first here.
pub(crate) struct Stand {
    who: Who,
    pub(crate) crowd: Crowd,
    pub(crate) cluster: Cluster,
}

impl Stand {
    pub(crate) fn start(side: Side, limits: Limits) -> Self {
        println!("--- {side:?}, limits {limits:?}");
        let mut cluster = Cluster::start(options(limits));
        let mut who = match side {
            Side::Peer => Who::Peer(Peer::start(&mut cluster, &Sidecar::ALL, limits)),
            Side::Sidecars => {
                install(&cluster, Chart::WithSidecars, Stamps::ByControllers);
                let hawser = Hawser::new(Half::Both).default_settings();
                let mut driver = Driver::start(&mut cluster, hawser.records(Records::Cluster));
                driver.add_sidecars(&cluster, LOCAL, &Sidecar::OF_NODES, limits);
                Who::Ours(Box::new(driver))
            }
            Side::Alone(stamps) => {
                install(&cluster, Chart::Alone, stamps);
                let hawser = Hawser::new(Half::Both).default_settings().without_sidecars();
                let driver = Driver::start(&mut cluster, hawser.records(Records::Cluster));
                wait_leader(&mut cluster);
                Who::Ours(Box::new(driver))
            }
        };
        let controller = snapshot_controller(&cluster, limits);
        let name = match &mut who {
            Who::Peer(peer) => {
                peer.add(controller);
                Peer::NAME
            }
            Who::Ours(driver) => {
                driver.add(controller);
                LOCAL
            }
        };
        let class = storage_class(CLASS, name, Binding::Immediate, json!({}));
        cluster.kubectl().apply_json(&[class]);
        let crowd = Crowd::of(&cluster);
        // What everybody lists and watches at the start is not what a claim costs.
        std::thread::sleep(REST);
        Self { who, crowd, cluster }
    }

    /// The name of the driver.
    pub(crate) fn driver(&self) -> &'static str {
        match self.who {
            Who::Peer(_) => Peer::NAME,
            Who::Ours(_) => LOCAL,
        }
    }

    /// What the side runs, the driver first, without the controller of snapshots, which is the
    /// cluster's.
    pub(crate) fn processes(&mut self) -> Vec<&mut Process> {
        let all: Vec<&mut Process> = match &mut self.who {
            Who::Peer(peer) => peer.processes(),
            Who::Ours(driver) => driver.processes(),
        };
        all.into_iter().filter(|process| process.name() != "snapshot-controller").collect()
    }

    /// The processor time of everything that runs, by name.
    pub(crate) fn times(&mut self) -> BTreeMap<String, Duration> {
        let time = |process: &mut Process| {
            let time = process.processor_time();
            time.unwrap_or_else(|| panic!("{} has ended", process.name()))
        };
        let mut all = BTreeMap::new();
        for process in self.processes() {
            all.insert(process.name().to_owned(), time(process));
        }
        for part in PARTS {
            let process = self.cluster.part(part);
            all.insert(process.name().to_owned(), time(process));
        }
        all
    }

    /// The resident memory of what the side runs in KiB, by name, the driver first.
    pub(crate) fn memory(&mut self) -> Vec<(String, u64)> {
        self.processes().into_iter().map(memory_of).collect()
    }

    /// The same of what the cluster runs, whoever makes the volumes.
    pub(crate) fn cluster_memory(&mut self) -> Vec<(String, u64)> {
        PARTS.into_iter().map(|part| memory_of(self.cluster.part(part))).collect()
    }
}

fn memory_of(process: &mut Process) -> (String, u64) {
    let kib = process.resident_kib();
    let kib = kib.unwrap_or_else(|| panic!("{} has ended", process.name()));
    (process.name().to_owned(), kib)
}

/// What the cluster runs.
const PARTS: [Part; 6] = [
    Part::Server,
    Part::Etcd,
    Part::Controllers,
    Part::Scheduler,
    Part::Kubelet(1),
    Part::Containerd(1),
];

/// How long a side is left alone after its start.
const REST: Duration = Duration::from_secs(5);

fn options(limits: Limits) -> Options {
    let options = Options::nodes(1).snapshots().audit().limits(limits);
    // In one file: it would begin another one after 100 MB.
    let options = options.server_arg("--audit-log-maxsize=4000");
    let options = options.program("snapshot-controller").program("hostpathplugin");
    Sidecar::ALL.iter().fold(options, |options, sidecar| options.program(sidecar.program()))
}
