//! A target over TCP.

use hawser_live::lab::guest::modprobe;
use hawser_live::lab::guest::nvmet::{Disk, Port, Subsystem};

use super::{UUID, data};

pub(crate) const A: &str = "127.0.1.1:4420";
pub(crate) const B: &str = "127.0.1.2:4420";

/// One namespace in one subsystem at two portals.
pub(crate) struct Target {
    pub(crate) disk: Disk,
    pub(crate) subsystem: Subsystem,
    pub(crate) ports: Vec<Port>,
}

impl Target {
    #[track_caller]
    pub(crate) fn new(name: &str) -> Self {
        Self::at(name, &[A, B])
    }

    #[track_caller]
    pub(crate) fn at(name: &str, portals: &[&str]) -> Self {
        modprobe(&["nvme_tcp"]);
        let disk = Disk::new(64);
        let mut subsystem = Subsystem::new(&format!("nqn.2024-01.com.example:{name}"));
        subsystem.add_namespace(1, &disk, UUID);
        let port = |portal: &&str| Port::tcp(portal.parse().unwrap());
        let ports: Vec<Port> = portals.iter().map(port).collect();
        for port in &ports {
            port.show(&subsystem);
        }
        Self { disk, subsystem, ports }
    }

    pub(crate) fn nqn(&self) -> &str {
        self.subsystem.nqn()
    }

    pub(crate) fn data(&self) -> serde_json::Value {
        data(self.nqn(), UUID, &[A, B])
    }
}
