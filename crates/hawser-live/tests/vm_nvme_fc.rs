//! NVMe over Fibre Channel: the kernel's loop of Fibre Channel ports, without a fabric; and the
//! kernel's own loop of NVMe.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "vm_nvme/mod.rs"]
mod vm_nvme;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use hawser_core::attach::Identity;
use hawser_core::{Change, Kind, Reason};
use hawser_live::lab::guest::nvmet::{self, Disk, Port, Subsystem};
use hawser_live::lab::guest::{Leftovers, Load, modprobe, wait_for};
use serde_json::{Value, json};

use vm_nvme::{LIMIT, MIB, UUID, many, read, size, states, volume, write};

const NQN: &str = "nqn.2024-01.com.example:fc";
const LOOP: &str = "/sys/class/fcloop/ctl";

/// A cable: a port of the host, and a port of a target at its other end.
#[derive(Clone, Copy)]
struct Cable {
    host: (u64, u64),
    target: (u64, u64),
}

/// The last one is for being pulled.
const CABLES: [Cable; 3] = [
    Cable {
        host: (0x2000_0000_0000_0a01, 0x1000_0000_0000_0a01),
        target: (0x2000_0000_0000_0b01, 0x1000_0000_0000_0b01),
    },
    Cable {
        host: (0x2000_0000_0000_0a02, 0x1000_0000_0000_0a02),
        target: (0x2000_0000_0000_0b02, 0x1000_0000_0000_0b02),
    },
    Cable {
        host: (0x2000_0000_0000_0a03, 0x1000_0000_0000_0a03),
        target: (0x2000_0000_0000_0b03, 0x1000_0000_0000_0b03),
    },
];

fn address((node, port): (u64, u64)) -> String {
    format!("nn-0x{node:016x}:pn-0x{port:016x}")
}

fn names((node, port): (u64, u64)) -> String {
    format!("wwnn=0x{node:016x},wwpn=0x{port:016x}")
}

#[track_caller]
fn tell(file: &str, text: &str) {
    let file = Path::new(LOOP).join(file);
    if let Err(error) = fs::write(&file, text) {
        panic!("writing {text} to {}: {error}", file.display());
    }
}

impl Cable {
    /// The ports and what is between them; they stay.
    #[track_caller]
    fn lay(self) {
        let (node, port) = self.host;
        let host = format!("lpwwnn=0x{node:016x},lpwwpn=0x{port:016x}");
        let rest = "roles=0x60,fcaddr=0x0a0000";
        tell("add_local_port", &names(self.host));
        tell("add_target_port", &names(self.target));
        tell("add_remote_port", &format!("{},{host},{rest}", names(self.target)));
    }

    /// For good: the kernel's loop of 6.12 forgets the target's end with it, and oopses when that
    /// end is pulled.
    #[track_caller]
    fn pull(self) {
        tell("del_remote_port", &names(self.target));
    }
}

fn fabric() {
    if !Path::new(LOOP).exists() {
        modprobe(&["nvme_fc", "nvmet_fc", "nvme_fcloop"]);
        for cable in CABLES {
            cable.lay();
        }
    }
}

fn data(nqn: &str, cables: &[Cable]) -> Value {
    let portal = |cable: &Cable| {
        json!({ "address": address(cable.target), "transport": "fc",
                "host_traddr": address(cable.host) })
    };
    let portals: Vec<Value> = cables.iter().map(portal).collect();
    json!({ "target_nqn": nqn, "vol_uuid": UUID, "portals": portals, "reconnect_delay": 1 })
}

struct Target {
    disk: Disk,
    subsystem: Subsystem,
    _ports: [Port; 3],
}

impl Target {
    fn new() -> Self {
        fabric();
        let disk = Disk::new(64);
        let mut subsystem = Subsystem::new(NQN);
        subsystem.add_namespace(1, &disk, UUID);
        let ports = CABLES.map(|cable| Port::fc(&address(cable.target)));
        for port in &ports {
            port.show(&subsystem);
        }
        Self { disk, subsystem, _ports: ports }
    }
}

#[test]
fn a_volume_over_two_cables_is_attached_written_grown_and_detached_twice() {
    let target = Target::new();
    let before = Leftovers::snapshot();
    let volume = volume(data(NQN, &CABLES[..2]));
    for round in 1..=2_u64 {
        let made = volume.connect_as(&many()).unwrap();
        let device = made.get().path().to_owned();
        assert_eq!(made.get().identity(), Some(&Identity::new("uuid", UUID)));
        assert_eq!(nvmet::controllers(NQN).len(), 2);
        write(&device, 0, b"over Fibre Channel");
        assert_eq!(target.disk.read(0, 18), b"over Fibre Channel");
        assert_eq!(read(&device, 0, 18), b"over Fibre Channel");
        assert_eq!(volume.connect_as(&many()).unwrap(), Change::Already(made.into_inner()));
        target.disk.grow(64 + 32 * round);
        target.subsystem.revalidate(1);
        assert_eq!(volume.extend().unwrap().get(), (64 + 32 * round) * MIB);
        assert_eq!(size(&device), (64 + 32 * round) * MIB);
        assert!(volume.health().unwrap().healthy);
        assert_eq!(volume.disconnect().unwrap(), Change::Made(()));
        assert_eq!(volume.disconnect().unwrap(), Change::Already(()));
        before.assert_restored_within(Duration::from_secs(5));
    }
}

#[test]
fn a_pulled_cable_is_not_noticed_by_writers_and_goes_with_the_volume() {
    let target = Target::new();
    let before = Leftovers::snapshot();
    let volume = volume(data(NQN, &CABLES[1..]));
    let device = volume.connect_as(&many()).unwrap().into_inner().path().to_owned();
    let load = Load::start(&device);

    CABLES[2].pull();
    wait_for("lost path", LIMIT, || states(NQN).iter().any(|state| state != "live").then_some(()));
    load.goes_on(LIMIT);
    let sick = volume.health().unwrap();
    assert!(!sick.healthy && sick.message.contains("connecting"), "{sick:?}");
    load.stop_and_compare(|at, count| target.disk.read(at, count));
    assert_eq!(volume.disconnect().unwrap(), Change::Made(()));
    before.assert_restored_within(Duration::from_secs(5));
}

#[test]
fn targets_that_cannot_be_had_leave_nothing() {
    let _target = Target::new();
    let before = Leftovers::snapshot();
    let stranger = Cable { target: (0x2000_0000_0000_0c01, 0x1000_0000_0000_0c01), ..CABLES[0] };

    let unseen = volume(data(NQN, &[stranger])).connect().unwrap_err();
    assert_eq!(unseen.reason(), Some(Reason::TargetUnreachable), "{unseen:?}");
    let began = Instant::now();
    let unknown = volume(data("nqn.2024-01.com.example:nobody", &CABLES[..1])).connect();
    let unknown = unknown.unwrap_err();
    assert!(
        matches!(unknown.reason(), Some(Reason::TargetNotFound | Reason::PortalTimeout)),
        "{unknown:?}"
    );
    assert!(began.elapsed() < Duration::from_secs(25), "{:?}", began.elapsed());
    before.assert_restored_within(Duration::from_secs(5));
    // Without a word from which port, every port of the host is tried; these have no class.
    let mut bare = data(NQN, &CABLES[..1]);
    bare["portals"][0].as_object_mut().unwrap().remove("host_traddr");
    let refused = volume(bare).connect().unwrap_err();
    assert_eq!(refused.kind(), Kind::Unsupported, "{refused:?}");
    assert_eq!(refused.reason(), Some(Reason::NoHba), "{refused:?}");
}

#[test]
fn the_kernels_own_loop_is_a_transport_too() {
    let disk = Disk::new(64);
    let mut subsystem = Subsystem::new("nqn.2024-01.com.example:loop");
    subsystem.add_namespace(1, &disk, UUID);
    let port = Port::loopback();
    port.show(&subsystem);
    let before = Leftovers::snapshot();
    let volume = volume(json!({ "target_nqn": subsystem.nqn(), "vol_uuid": UUID,
        "transport_type": "loop" }));

    let made = volume.connect().unwrap();
    write(made.get().path(), 0, b"in the kernel");
    assert_eq!(disk.read(0, 13), b"in the kernel");
    assert_eq!(volume.connect().unwrap(), Change::Already(made.into_inner()));
    assert_eq!(volume.disconnect().unwrap(), Change::Made(()));
    before.assert_restored();
}
