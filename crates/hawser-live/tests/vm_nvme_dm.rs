//! NVMe over TCP in a kernel whose native multipath is switched off: device mapper makes one device
//! of several controllers.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "vm_nvme/mod.rs"]
mod vm_nvme;

use std::fs;
use std::time::Duration;

use hawser_core::attach::{Attach, Identity, Multipath};
use hawser_core::{Change, Reason};
use hawser_live::lab::guest::nvmet::{self, Disk, Port, Subsystem};
use hawser_live::lab::guest::{Cut, Leftovers, Load, cmd, modprobe, multipathd, settle, wait_for};
use serde_json::json;

use vm_nvme::{LIMIT, MIB, OTHER, UUID, data, many, read, size, states, volume, with, write};

const A: &str = "127.0.1.1:4420";
const B: &str = "127.0.1.2:4420";

/// One namespace in one subsystem at two portals.
struct Target {
    disk: Disk,
    subsystem: Subsystem,
    _ports: [Port; 2],
}

impl Target {
    #[track_caller]
    fn new(name: &str) -> Self {
        modprobe(&["nvme_tcp"]);
        let parameter = fs::read_to_string("/sys/module/nvme_core/parameters/multipath").unwrap();
        assert_eq!(parameter.trim(), "N", "the guest was to be booted with nvme_core.multipath=N");
        let disk = Disk::new(64);
        let mut subsystem = Subsystem::new(&format!("nqn.2024-01.com.example:{name}"));
        subsystem.add_namespace(1, &disk, UUID);
        let ports = [A, B].map(|portal| Port::tcp(portal.parse().unwrap()));
        for port in &ports {
            port.show(&subsystem);
        }
        Self { disk, subsystem, _ports: ports }
    }

    fn data(&self) -> serde_json::Value {
        data(self.subsystem.nqn(), UUID, &[A, B])
    }
}

#[test]
fn two_portals_become_a_map_that_grows_survives_a_lost_path_and_goes_twice() {
    let target = Target::new("map");
    let daemon = multipathd();
    settle();
    let before = Leftovers::snapshot();
    let volume = volume(target.data());
    for round in 1..=2_u64 {
        let made = volume.connect_as(&many()).unwrap();
        let device = made.get().path().to_owned();
        assert!(device.to_string_lossy().starts_with("/dev/dm-"), "{}", device.display());
        assert_eq!(made.get().identity(), Some(&Identity::new("uuid", UUID)));
        assert_eq!(volume.connect_as(&many()).unwrap(), Change::Already(made.into_inner()));
        write(&device, 0, b"through the map");
        assert_eq!(target.disk.read(0, 15), b"through the map");

        let load = Load::start(&device);
        let cut = Cut::silent(A.parse().unwrap());
        wait_for("lost path", LIMIT, || {
            states(target.subsystem.nqn()).iter().any(|state| state != "live").then_some(())
        });
        assert!(!volume.health().unwrap().healthy);
        assert_eq!(volume.extend().unwrap_err().reason(), Some(Reason::PathsDown));
        load.goes_on(LIMIT);
        cut.mend();
        wait_for("returned path", LIMIT, || volume.health().unwrap().healthy.then_some(()));
        load.stop();

        target.disk.grow(64 + 32 * round);
        target.subsystem.revalidate(1);
        assert_eq!(volume.extend().unwrap().get(), (64 + 32 * round) * MIB);
        assert_eq!(size(&device), (64 + 32 * round) * MIB);
        assert_eq!(volume.disconnect().unwrap(), Change::Made(()));
        assert_eq!(volume.disconnect().unwrap(), Change::Already(()));
        before.assert_restored_within(Duration::from_secs(5));
    }
    drop(daemon);
}

#[test]
fn a_map_in_use_is_not_taken_away_and_a_wrong_volume_leaves_none() {
    let target = Target::new("busy-map");
    let daemon = multipathd();
    settle();
    let before = Leftovers::snapshot();
    let volume = volume(target.data());
    let device = volume.connect_as(&many()).unwrap().into_inner().path().to_owned();
    cmd("mkfs.ext4").args(["-q", "-F"]).arg(&device).ok();
    fs::create_dir_all("/tmp/busy").unwrap();
    cmd("mount").arg(&device).arg("/tmp/busy").ok();

    let refused = volume.disconnect().unwrap_err();
    assert_eq!(refused.reason(), Some(Reason::DeviceBusy), "{refused:?}");
    fs::write("/tmp/busy/file", "written").unwrap();
    cmd("umount").arg("/tmp/busy").ok();
    assert_eq!(volume.disconnect().unwrap(), Change::Made(()));
    before.assert_restored_within(Duration::from_secs(5));

    let absent = vm_nvme::volume(with(target.data(), "vol_uuid", json!(OTHER)));
    let refused = absent.connect_as(&many()).unwrap_err();
    assert_eq!(refused.reason(), Some(Reason::LunNotFound), "{refused:?}");
    before.assert_restored_within(Duration::from_secs(5));
    drop(daemon);
}

#[test]
fn without_any_path_a_forced_detach_lets_the_map_go() {
    let target = Target::new("gone-map");
    let daemon = multipathd();
    settle();
    let before = Leftovers::snapshot();
    let volume = volume(target.data());
    volume.connect_as(&many()).unwrap();
    let cuts = [A, B].map(|portal| Cut::silent(portal.parse().unwrap()));
    wait_for("lost paths", LIMIT, || {
        states(target.subsystem.nqn()).iter().all(|state| state != "live").then_some(())
    });

    let refused = volume.disconnect().unwrap_err();
    assert_eq!(refused.reason(), Some(Reason::FlushFailed), "{refused:?}");
    let forced = volume.force(true);
    assert!(forced.is_ok(), "{forced:?}");
    before.assert_restored_within(Duration::from_secs(10));
    drop(cuts);
    drop(daemon);
}

#[test]
fn without_multipathd_one_path_is_a_plain_device_and_more_are_refused_when_enforced() {
    let target = Target::new("plain");
    let before = Leftovers::snapshot();
    let volume = volume(target.data());
    let enforced = Attach { multipath: Multipath::Enforced, ..Attach::default() };

    let refused = volume.connect_as(&enforced).unwrap_err();
    assert_eq!(refused.reason(), Some(Reason::MultipathUnavailable), "{refused:?}");
    before.assert_restored();
    let device = volume.connect_as(&many()).unwrap().into_inner().path().to_owned();
    assert!(device.to_string_lossy().starts_with("/dev/nvme"), "{}", device.display());
    assert_eq!(nvmet::controllers(target.subsystem.nqn()).len(), 1);
    write(&device, 0, b"one path");
    assert_eq!(read(&device, 0, 8), b"one path");
    volume.disconnect().unwrap();
    before.assert_restored();
}
