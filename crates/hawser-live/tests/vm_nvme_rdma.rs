//! NVMe over RDMA: the soft RoCE device of the kernel on the guest's network card.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "vm_nvme/mod.rs"]
mod vm_nvme;

use std::fs;

use hawser_core::attach::Identity;
use hawser_core::{Change, Reason};
use hawser_live::lab::guest::nvmet::{self, Disk, Port, Subsystem};
use hawser_live::lab::guest::{Leftovers, cmd, modprobe, wait_for};
use serde_json::{Value, json};

use vm_nvme::{LIMIT, MIB, UUID, many, read, size, volume, write};

const NQN: &str = "nqn.2024-01.com.example:rdma";
const ONE: &str = "10.0.2.15";
const TWO: &str = "10.0.2.16";

fn data(nqn: &str, portals: &[(&str, u16)]) -> Value {
    let portals: Vec<Value> =
        portals.iter().map(|(address, port)| json!([address, port, "RoCEv2"])).collect();
    json!({ "target_nqn": nqn, "vol_uuid": UUID, "portals": portals, "reconnect_delay": 1 })
}

/// An RDMA device over the card, which has a second address; it stays for the whole suite.
fn fabric() {
    modprobe(&["rdma_rxe", "nvme_rdma"]);
    if !fs::exists("/sys/class/infiniband/rxe0").unwrap() {
        cmd("ip").args(["addr", "add", &format!("{TWO}/24"), "dev", "eth0"]).ok();
        cmd("rdma").args(["link", "add", "rxe0", "type", "rxe", "netdev", "eth0"]).ok();
        wait_for("RDMA device", LIMIT, || {
            let state = fs::read_to_string("/sys/class/infiniband/rxe0/ports/1/state");
            state.is_ok_and(|state| state.contains("ACTIVE")).then_some(())
        });
    }
}

#[test]
fn a_host_without_an_rdma_device_says_so() {
    // Runs first, by its name: the device of the other tests stays.
    modprobe(&["nvme_rdma"]);
    let before = Leftovers::snapshot();

    let refused = volume(data(NQN, &[(ONE, 4420)])).connect().unwrap_err();

    let reason = refused.reason();
    assert!(
        matches!(reason, Some(Reason::NoHba | Reason::TargetUnreachable | Reason::PortalTimeout)),
        "{refused:?}"
    );
    before.assert_restored();
}

#[test]
fn a_volume_over_two_portals_is_attached_written_grown_and_detached_twice() {
    fabric();
    let disk = Disk::new(64);
    let mut subsystem = Subsystem::new(NQN);
    subsystem.add_namespace(1, &disk, UUID);
    let ports = [ONE, TWO].map(|ip| Port::rdma(format!("{ip}:4420").parse().unwrap()));
    for port in &ports {
        port.show(&subsystem);
    }
    let before = Leftovers::snapshot();
    let volume = volume(data(NQN, &[(ONE, 4420), (TWO, 4420)]));
    for round in 1..=2_u64 {
        let made = volume.connect_as(&many()).unwrap();
        let device = made.get().path().to_owned();
        assert_eq!(made.get().identity(), Some(&Identity::new("uuid", UUID)));
        assert_eq!(nvmet::controllers(NQN).len(), 2);
        write(&device, 0, b"over RDMA");
        assert_eq!(disk.read(0, 9), b"over RDMA");
        assert_eq!(read(&device, 0, 9), b"over RDMA");
        assert_eq!(volume.connect_as(&many()).unwrap(), Change::Already(made.into_inner()));
        disk.grow(64 + 32 * round);
        subsystem.revalidate(1);
        assert_eq!(volume.extend().unwrap().get(), (64 + 32 * round) * MIB);
        assert_eq!(size(&device), (64 + 32 * round) * MIB);
        assert!(volume.health().unwrap().healthy);
        assert_eq!(volume.disconnect().unwrap(), Change::Made(()));
        assert_eq!(volume.disconnect().unwrap(), Change::Already(()));
        before.assert_restored();
    }
}

#[test]
fn targets_that_cannot_be_had_leave_nothing() {
    fabric();
    let disk = Disk::new(64);
    let mut subsystem = Subsystem::new(NQN);
    subsystem.add_namespace(1, &disk, UUID);
    let port = Port::rdma(format!("{ONE}:4420").parse().unwrap());
    port.show(&subsystem);
    let before = Leftovers::snapshot();

    let closed = volume(data(NQN, &[(ONE, 4499)])).connect().unwrap_err();
    let unknown = volume(data("nqn.2024-01.com.example:nobody", &[(ONE, 4420)])).connect();
    let unknown = unknown.unwrap_err();

    assert!(
        matches!(
            closed.reason(),
            Some(Reason::PortalRefused | Reason::TargetUnreachable | Reason::PortalTimeout)
        ),
        "{closed:?}"
    );
    assert_eq!(unknown.reason(), Some(Reason::TargetNotFound), "{unknown:?}");
    before.assert_restored();
}
