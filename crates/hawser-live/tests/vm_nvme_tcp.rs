//! NVMe over TCP on the kernel's own target: two portals, native multipath, ANA, growth, and which
//! device is whose.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "vm_nvme/mod.rs"]
mod vm_nvme;

use std::fs;
use std::path::Path;

use hawser_core::attach::Identity;
use hawser_core::{Change, Outcome, Reason};
use hawser_live::lab::guest::luks::keeps_a_secret;
use hawser_live::lab::guest::nvmet::{self, Disk};
use hawser_live::lab::guest::{Cut, Leftovers, Load, cmd, wait_for};
use serde_json::json;

use vm_nvme::tcp::{A, B, Target};
use vm_nvme::{LIMIT, MIB, OTHER, UUID, asked, device_of, many, read, size, states};
use vm_nvme::{volume, with, write};

const SIX: &str = "[fd00:1ab::1]:4420";

#[test]
fn a_volume_is_attached_written_grown_and_detached_twice_and_nothing_is_left() {
    let target = Target::new("life");
    let before = Leftovers::snapshot();
    let volume = volume(target.data());
    for round in 1..=2_u64 {
        let text = format!("round {round}").into_bytes();

        let made = volume.connect().unwrap();
        let device = made.get().path().to_owned();
        assert!(made.is_made());
        assert_eq!(made.get().identity(), Some(&Identity::new("uuid", UUID)));
        assert_eq!(nvmet::controllers(target.nqn()).len(), 1, "one path was asked for");
        write(&device, 4096, &text);
        assert_eq!(target.disk.read(4096, text.len()), text);
        assert_eq!(read(&device, 4096, text.len()), text);
        assert_eq!(volume.connect().unwrap(), Change::Already(made.into_inner()));
        target.disk.grow(64 + 32 * round);
        target.subsystem.revalidate(1);
        assert_eq!(volume.extend().unwrap().get(), (64 + 32 * round) * MIB);
        assert_eq!(size(&device), (64 + 32 * round) * MIB);
        assert!(volume.health().unwrap().healthy);
        assert_eq!(volume.disconnect().unwrap(), Change::Made(()));
        assert_eq!(volume.disconnect().unwrap(), Change::Already(()));
        assert_eq!(volume.lookup().unwrap(), None);
        before.assert_restored();
    }
}

#[test]
fn what_the_command_attached_by_uuid_or_by_number_it_takes_away_again() {
    let target = Target::new("command");
    let before = Leftovers::snapshot();
    let mut number = with(target.data(), "ns_id", json!(1));
    number.as_object_mut().unwrap().remove("vol_uuid");
    for data in [target.data(), number] {
        for round in 1..=2 {
            let volume = asked(data.clone());
            let text = format!("round {round}").into_bytes();

            let device = volume.connect();
            write(&device, 4096, &text);
            assert_eq!(volume.connect(), device);
            assert_eq!(nvmet::controllers(target.nqn()).len(), 2);
            volume.disconnect();

            assert_eq!(target.disk.read(4096, text.len()), text);
            assert!(nvmet::controllers(target.nqn()).is_empty(), "{data}");
            before.assert_restored();
        }
    }
}

#[test]
fn every_shape_of_connection_info_finds_the_volume() {
    let target = Target::at("shapes", &[A, SIX]);
    let before = Leftovers::snapshot();
    for data in [
        json!({ "nqn": target.nqn(), "transport_type": "tcp", "target_portal": "127.0.1.1",
                "target_port": 4420, "vol_uuid": UUID.replace('-', "") }),
        json!({ "nqn": target.nqn(), "transport_type": "tcp", "target_portal": "127.0.1.1",
                "target_port": "4420", "ns_id": "1" }),
        json!({ "targetNqn": target.nqn(), "volUuid": UUID.to_uppercase(),
                "portals": [{ "address": "fd00:1ab::1", "port": 4420, "transport": "tcp" }] }),
        json!({ "vol_uuid": "volume-1", "alias": "v1", "replica_count": 1, "volume_replicas": [
                { "target_nqn": target.nqn(), "vol_uuid": UUID,
                  "portals": [["fd00:1ab:0::1", 4420, "tcp"]] }] }),
    ] {
        let volume = volume(data.clone());

        let attached = volume.connect().unwrap_or_else(|error| panic!("{data}: {error:?}"));

        assert_eq!(attached.get().identity(), Some(&Identity::new("uuid", UUID)), "{data}");
        assert_eq!(volume.disconnect().unwrap(), Change::Made(()));
        before.assert_restored();
    }
}

#[test]
fn two_portals_are_one_device_and_a_lost_one_is_not_noticed_by_writers() {
    let target = Target::new("paths");
    let before = Leftovers::snapshot();
    let volume = volume(target.data());
    let device = volume.connect_as(&many()).unwrap().into_inner().path().to_owned();
    assert_eq!(nvmet::controllers(target.nqn()).len(), 2);
    let heads = fs::read_dir("/sys/block").unwrap().flatten();
    let heads = heads.filter(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        name.starts_with("nvme") && !name[4..].contains('c')
    });
    assert_eq!(heads.count(), 1, "one device");

    let load = Load::start(&device);
    for portal in [A, B] {
        let cut = Cut::silent(portal.parse().unwrap());
        wait_for("lost path", LIMIT, || {
            states(target.nqn()).iter().any(|state| state != "live").then_some(())
        });
        let sick = volume.health().unwrap();
        assert!(!sick.healthy && sick.message.contains("nvme"), "{sick:?}");
        load.goes_on(LIMIT);
        // A second connect finds what is there and makes no third controller.
        assert_eq!(volume.connect_as(&many()).unwrap().get().path(), device);
        cut.mend();
        wait_for("returned path", LIMIT, || {
            states(target.nqn()).iter().all(|state| state == "live").then_some(())
        });
    }
    load.stop_and_compare(|at, count| target.disk.read(at, count));
    assert_eq!(nvmet::controllers(target.nqn()).len(), 2);
    assert!(volume.health().unwrap().healthy);
    volume.disconnect().unwrap();
    before.assert_restored();
}

#[test]
fn paths_are_used_as_the_target_says() {
    let target = Target::new("ana");
    let before = Leftovers::snapshot();
    let volume = volume(target.data());
    for port in &target.ports {
        port.set_access(1, "inaccessible");
    }

    let refused = volume.connect_as(&many()).unwrap_err();
    assert_eq!(refused.reason(), Some(Reason::TargetUnreachable), "{refused:?}");
    assert!(refused.sentence().contains("inaccessible"), "{refused:?}");
    assert_eq!(refused.outcome(), Outcome::RolledBack);
    before.assert_restored();

    target.ports[1].set_access(1, "non-optimized");
    let device = volume.connect_as(&many()).unwrap().into_inner().path().to_owned();
    write(&device, 0, b"through the other port");
    assert!(volume.health().unwrap().message.contains("inaccessible"));
    let load = Load::start(&device);
    target.ports[0].set_access(1, "optimized");
    target.ports[1].set_access(1, "inaccessible");
    load.goes_on(LIMIT);
    load.stop();
    target.ports[1].set_access(1, "optimized");
    wait_for("both ways", LIMIT, || volume.health().unwrap().healthy.then_some(()));
    volume.disconnect().unwrap();
    before.assert_restored();
}

#[test]
fn luks2_above_it_keeps_what_is_written_from_the_storage() {
    let target = Target::new("luks");
    let before = Leftovers::snapshot();

    keeps_a_secret("nvmeof", target.data(), &many());

    assert!(nvmet::controllers(target.nqn()).is_empty());
    before.assert_restored();
}

/// Case 18 of docs/cases.md.
#[test]
fn case_18_a_volume_with_a_path_down_is_not_grown() {
    let target = Target::new("half-grown");
    let before = Leftovers::snapshot();
    let volume = volume(target.data());
    volume.connect_as(&many()).unwrap();
    let cut = Cut::silent(B.parse().unwrap());
    wait_for("lost path", LIMIT, || {
        states(target.nqn()).iter().any(|state| state != "live").then_some(())
    });
    target.disk.grow(128);
    target.subsystem.revalidate(1);

    let refused = volume.extend().unwrap_err();
    cut.mend();
    wait_for("returned path", LIMIT, || {
        states(target.nqn()).iter().all(|state| state == "live").then_some(())
    });

    assert_eq!(refused.reason(), Some(Reason::PathsDown), "{refused:?}");
    assert_eq!(volume.extend().unwrap().get(), 128 * MIB);
    volume.disconnect().unwrap();
    before.assert_restored();
}

/// Case 15 of docs/cases.md.
#[test]
fn case_15_no_outage_is_long_enough_to_take_the_device_away() {
    let target = Target::new("forever");
    let before = Leftovers::snapshot();
    let nqn = target.nqn();
    // Somebody else's controller has the kernel's 600 seconds.
    let host = fs::read_to_string("/etc/nvme/hostnqn");
    let own = volume(target.data());
    own.connect().unwrap();
    own.disconnect().unwrap();
    assert!(host.is_err() || Path::new("/etc/nvme/hostnqn").exists());
    cmd("nvme").args(["connect", "-t", "tcp", "-a", "127.0.1.1", "-s", "4420", "-n", nqn]).ok();
    let name = nvmet::controllers(nqn).remove(0);
    let limit =
        |name: &str| fs::read_to_string(format!("/sys/class/nvme/{name}/ctrl_loss_tmo")).unwrap();
    assert_eq!(limit(&name).trim(), "600");

    own.connect_as(&many()).unwrap();

    for name in nvmet::controllers(nqn) {
        assert_eq!(limit(&name).trim(), "off", "{name}");
    }
    own.disconnect().unwrap();
    assert_eq!(nvmet::controllers(nqn), [name], "what others made stays");
    cmd("nvme").args(["disconnect", "-n", nqn]).ok();
    before.assert_restored_within(LIMIT);
}

/// Case 16 of docs/cases.md.
#[test]
fn case_16_a_number_given_to_another_volume_never_answers_for_the_old_one() {
    let mut target = Target::new("reuse");
    let other = Disk::new(64);
    let before = Leftovers::snapshot();
    let old = volume(target.data());
    let new = volume(with(target.data(), "vol_uuid", json!(OTHER)));
    let device = old.connect().unwrap().into_inner().path().to_owned();
    write(&device, 0, b"the old volume");

    target.subsystem.swap_namespace(1, &other, OTHER);
    let refused = old.connect().unwrap_err();
    let reason = refused.reason();
    assert!(matches!(reason, Some(Reason::LunNotFound | Reason::IdentityMismatch)), "{refused:?}");
    let device = new.connect().unwrap().into_inner();
    assert_eq!(device.identity(), Some(&Identity::new("uuid", OTHER)));
    assert_eq!(read(device.path(), 0, 14), [0; 14], "nothing of the old volume");
    write(device.path(), 0, b"the new volume");

    assert_eq!(old.disconnect().unwrap(), Change::Made(()));
    assert_eq!(read(device.path(), 0, 14), b"the new volume", "the other claim keeps it");
    assert_eq!(new.disconnect().unwrap(), Change::Made(()));
    assert_eq!(other.read(0, 14), b"the new volume");
    before.assert_restored();
}

/// Case 16 of docs/cases.md.
#[test]
fn case_16_a_volume_is_not_guessed() {
    let target = Target::new("guess");
    let before = Leftovers::snapshot();
    let mut nothing = target.data();
    nothing.as_object_mut().unwrap().remove("vol_uuid");
    let mut wrong = volume(target.data());
    wrong.info.identity = Some(Identity::new("uuid", OTHER));

    let guess = volume(nothing).connect().unwrap_err();
    let absent = volume(with(target.data(), "vol_uuid", json!(OTHER))).connect().unwrap_err();
    let mismatch = wrong.connect().unwrap_err();

    assert_eq!(guess.reason(), Some(Reason::InvalidParameters), "{guess:?}");
    assert_eq!(absent.reason(), Some(Reason::LunNotFound), "{absent:?}");
    assert_eq!(mismatch.reason(), Some(Reason::IdentityMismatch), "{mismatch:?}");
    assert_eq!(wrong.disconnect().unwrap(), Change::Already(()));
    before.assert_restored();
}

/// Case 17 of docs/cases.md.
#[test]
fn case_17_a_controller_stays_for_the_other_volumes_of_its_subsystem() {
    let mut target = Target::new("shared");
    let other = Disk::new(64);
    target.subsystem.add_namespace(2, &other, OTHER);
    let before = Leftovers::snapshot();
    let one = volume(target.data());
    let two = volume(with(target.data(), "vol_uuid", json!(OTHER)));
    let first = one.connect_as(&many()).unwrap().into_inner().path().to_owned();
    let second = two.connect_as(&many()).unwrap().into_inner().path().to_owned();
    assert_ne!(first, second);

    let load = Load::start(&second);
    assert_eq!(one.disconnect().unwrap(), Change::Made(()));
    load.goes_on(LIMIT);
    load.stop();
    assert_eq!(one.disconnect().unwrap(), Change::Already(()));
    assert_eq!(two.disconnect().unwrap(), Change::Made(()));
    before.assert_restored();

    // A neighbour that nobody attached, but somebody mounted.
    one.connect().unwrap();
    let neighbour = wait_for("the neighbour", LIMIT, || device_of(OTHER));
    cmd("mkfs.ext4").args(["-q", "-F"]).arg(&neighbour).ok();
    fs::create_dir_all("/tmp/neighbour").unwrap();
    cmd("mount").arg(&neighbour).arg("/tmp/neighbour").ok();
    assert_eq!(one.disconnect().unwrap(), Change::Made(()));
    fs::write("/tmp/neighbour/file", "still there").unwrap();
    cmd("umount").arg("/tmp/neighbour").ok();
    one.connect().unwrap();
    one.disconnect().unwrap();
    before.assert_restored();
}
