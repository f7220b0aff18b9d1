//! NVMe over TCP on the kernel's own target: two portals, native multipath, ANA, authentication,
//! growth, and what goes wrong.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "vm_nvme/mod.rs"]
mod vm_nvme;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use hawser_core::attach::{Attach, Identity};
use hawser_core::{Change, Error, Kind, Outcome, Reason};
use hawser_live::lab::guest::nvmet::{self, Disk, Port, Subsystem};
use hawser_live::lab::guest::{Cut, Leftovers, cmd, modprobe, settle, wait_for};
use serde_json::json;

use vm_nvme::{
    LIMIT, Load, MIB, OTHER, UUID, data, device_of, many, read, size, states, volume, with, write,
};

const A: &str = "127.0.1.1:4420";
const B: &str = "127.0.1.2:4420";
const SIX: &str = "[fd00:1ab::1]:4420";

/// One namespace in one subsystem at two portals.
struct Target {
    disk: Disk,
    subsystem: Subsystem,
    ports: Vec<Port>,
}

impl Target {
    #[track_caller]
    fn new(name: &str) -> Self {
        Self::at(name, &[A, B])
    }

    #[track_caller]
    fn at(name: &str, portals: &[&str]) -> Self {
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

    fn nqn(&self) -> &str {
        self.subsystem.nqn()
    }

    fn data(&self) -> serde_json::Value {
        data(self.nqn(), UUID, &[A, B])
    }
}

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
        let then = load.written();
        wait_for("write past the loss", LIMIT, || (load.written() > then + 8).then_some(()));
        // A second connect finds what is there and makes no third controller.
        assert_eq!(volume.connect_as(&many()).unwrap().get().path(), device);
        cut.mend();
        wait_for("returned path", LIMIT, || {
            states(target.nqn()).iter().all(|state| state == "live").then_some(())
        });
    }
    load.stop();
    assert_eq!(nvmet::controllers(target.nqn()).len(), 2);
    assert_eq!(target.disk.read(0, 8), [0x5a; 8]);
    assert!(volume.health().unwrap().healthy);
    volume.disconnect().unwrap();
    before.assert_restored();
}

#[test]
fn a_portal_that_is_dead_from_the_start_is_added_by_the_next_connect() {
    let target = Target::new("late");
    let before = Leftovers::snapshot();
    let volume = volume(target.data());
    let cut = Cut::refused(B.parse().unwrap());

    assert!(volume.connect_as(&many()).unwrap().is_made());
    assert_eq!(nvmet::controllers(target.nqn()).len(), 1);
    cut.mend();
    volume.connect_as(&many()).unwrap();
    assert_eq!(nvmet::controllers(target.nqn()).len(), 2);
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
    let then = load.written();
    wait_for("write past the change", LIMIT, || (load.written() > then + 8).then_some(()));
    load.stop();
    target.ports[1].set_access(1, "optimized");
    wait_for("both ways", LIMIT, || volume.health().unwrap().healthy.then_some(()));
    volume.disconnect().unwrap();
    before.assert_restored();
}

#[test]
fn large_blocks_grow_to_what_the_target_means() {
    modprobe(&["nvme_tcp"]);
    let disk = Disk::with_blocks(64, 4096);
    let mut subsystem = Subsystem::new("nqn.2024-01.com.example:blocks");
    subsystem.add_namespace(1, &disk, UUID).set_nguid(1, "00112233-4455-6677-8899-aabbccddeeff");
    let port = Port::tcp(A.parse().unwrap());
    port.show(&subsystem);
    let before = Leftovers::snapshot();
    let mut data = data(subsystem.nqn(), UUID, &[A]);
    data["volume_nguid"] = json!("00112233445566778899AABBCCDDEEFF");
    let volume = volume(data);
    volume.connect().unwrap();

    disk.grow(96);
    subsystem.revalidate(1);
    let began = Instant::now();
    assert_eq!(volume.extend().unwrap().get(), 96 * MIB);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(volume.extend().unwrap().get(), 96 * MIB, "nothing to do is no error");
    volume.disconnect().unwrap();
    before.assert_restored();
}

/// Spec 16 #18.
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

/// Spec 16 #15.
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

/// Spec 16 #16.
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

/// Spec 16 #16.
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

/// Spec 16 #17.
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
    let then = load.written();
    wait_for("write past the detach", LIMIT, || (load.written() > then + 8).then_some(()));
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

/// Spec 16 #23.
#[test]
fn case_23_a_device_in_use_is_not_taken_away_by_anything() {
    let target = Target::new("busy");
    let before = Leftovers::snapshot();
    let volume = volume(target.data());
    let device = volume.connect().unwrap().into_inner().path().to_owned();
    settle();
    cmd("mkfs.ext4").arg("-q").arg(&device).ok();
    fs::create_dir_all("/tmp/busy").unwrap();
    cmd("mount").arg(&device).arg("/tmp/busy").ok();

    for refused in [volume.disconnect().unwrap_err(), volume.force(true).unwrap_err()] {
        assert_eq!(refused.reason(), Some(Reason::DeviceBusy), "{refused:?}");
        assert!(refused.sentence().contains("/tmp/busy"), "{refused:?}");
    }
    fs::write("/tmp/busy/file", "written").unwrap();
    cmd("umount").arg("/tmp/busy").ok();
    let opened = fs::File::open(&device).unwrap();
    assert_eq!(volume.disconnect().unwrap_err().reason(), Some(Reason::DeviceBusy));
    drop(opened);
    assert_eq!(volume.disconnect().unwrap(), Change::Made(()));
    before.assert_restored();
}

#[test]
fn without_any_path_only_a_forced_detach_lets_go() {
    let target = Target::new("gone");
    let before = Leftovers::snapshot();
    let volume = volume(target.data());
    volume.connect_as(&many()).unwrap();
    let cuts = [A, B].map(|portal| Cut::silent(portal.parse().unwrap()));
    wait_for("lost paths", LIMIT, || {
        states(target.nqn()).iter().all(|state| state != "live").then_some(())
    });

    let began = Instant::now();
    let refused = volume.disconnect().unwrap_err();
    assert_eq!(refused.reason(), Some(Reason::FlushFailed), "{refused:?}");
    assert!(began.elapsed() < Duration::from_secs(10), "it does not hang: {:?}", began.elapsed());
    let began = Instant::now();
    let forced = volume.force(false).unwrap_err();
    assert_eq!(forced.reason(), Some(Reason::FlushFailed), "{forced:?}");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    before.assert_restored();
    drop(cuts);
    assert_eq!(volume.force(true).unwrap(), Change::Already(()));
}

#[test]
fn targets_that_cannot_be_had_are_told_apart_and_nothing_is_left() {
    let mut target = Target::at("errors", &[A]);
    let before = Leftovers::snapshot();
    let at = |portal: &str, nqn: &str| volume(data(nqn, UUID, &[portal])).connect().unwrap_err();
    let nqn = target.nqn().to_owned();

    let refused = at("127.0.1.9:4420", &nqn);
    assert_eq!(refused.reason(), Some(Reason::PortalRefused), "{refused:?}");
    let unknown = at(A, "nqn.2024-01.com.example:nobody");
    assert_eq!(unknown.reason(), Some(Reason::TargetNotFound), "{unknown:?}");
    let unreachable = at("203.0.113.1:4420", &nqn);
    assert!(
        matches!(unreachable.reason(), Some(Reason::TargetUnreachable | Reason::PortalTimeout)),
        "{unreachable:?}"
    );
    let cut = Cut::silent(A.parse().unwrap());
    let began = Instant::now();
    let silent = at(A, &nqn);
    assert_eq!(silent.reason(), Some(Reason::PortalTimeout), "{silent:?}");
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    cut.mend();
    target.subsystem.allow("nqn.2024-01.com.example:another-host");
    let forbidden = at(A, &nqn);
    assert_eq!(forbidden.reason(), Some(Reason::TargetNotFound), "{forbidden:?}");
    for error in [refused, unknown, unreachable, silent, forbidden] {
        assert_ne!(error.outcome(), Outcome::Unknown, "{error:?}");
    }
    before.assert_restored();
}

#[test]
fn both_ends_prove_themselves_with_keys_and_no_key_is_seen() {
    let mut target = Target::at("keys", &[A]);
    let before = Leftovers::snapshot();
    let host = "nqn.2014-08.org.nvmexpress:uuid:77777777-1111-4222-8333-444455556666";
    let make =
        || cmd("nvme").args(["gen-dhchap-key", "-m", "1", "-n", host]).ok().trim().to_owned();
    let (key, own, wrong) = (make(), make(), make());
    target.subsystem.require_key(host, &key, Some(&own));
    let data = with(target_data(&target, A), "host_nqn", json!(host));
    let keyed = |name: &str, key: &str| with(data.clone(), name, json!(key));

    let right = volume(with(keyed("dhchap_secret", &key), "dhchap_ctrl_secret", json!(own)));
    right.connect().unwrap();
    right.disconnect().unwrap();
    let one_sided = volume(keyed("dhchap_key", &key));
    one_sided.connect().unwrap();
    one_sided.disconnect().unwrap();
    for (data, what) in [
        (data.clone(), "no key"),
        (keyed("dhchap_secret", &wrong), "another key"),
        (with(keyed("dhchap_secret", &key), "dhchap_ctrl_secret", json!(wrong)), "another target"),
    ] {
        let refused = refused_for_the_key(data, what);
        assert_eq!(refused.kind(), Kind::Denied);
        assert!(!format!("{refused:?}").contains("DHHC-1"), "{refused:?}");
    }
    let log = cmd("dmesg").ok();
    assert!(!log.contains(&key) && !log.contains(&own) && !log.contains(&wrong));
    before.assert_restored();
}

/// A target of 6.12 that refuses a key sometimes ends the connection before it says why; the kernel
/// then waits a minute for the answer, and has nothing to tell.
#[track_caller]
fn refused_for_the_key(data: serde_json::Value, what: &str) -> Error {
    let patient = Attach { deadline: Duration::from_secs(120), ..Attach::default() };
    for _ in 0..3 {
        let began = Instant::now();
        let refused = volume(data.clone()).connect_as(&patient).unwrap_err();
        if refused.reason() == Some(Reason::AuthFailed) {
            return refused;
        }
        assert!(began.elapsed() > Duration::from_secs(40), "{what}: {refused:?}");
    }
    panic!("{what}: refused three times without a reason");
}

fn target_data(target: &Target, portal: &str) -> serde_json::Value {
    data(target.nqn(), UUID, &[portal])
}

#[test]
fn devices_for_reading_refuse_writes() {
    let target = Target::new("reading");
    let before = Leftovers::snapshot();
    let volume = volume(target.data());
    let attach = Attach { read_only: true, ..Attach::default() };
    let device = volume.connect_as(&attach).unwrap().into_inner().path().to_owned();

    let opened = fs::OpenOptions::new().write(true).open(&device);
    assert!(opened.and_then(|mut file| file.write_all(&[1; 512])).is_err());
    assert_eq!(read(&device, 0, 4), [0; 4]);
    volume.disconnect().unwrap();
    before.assert_restored();
}

#[test]
fn two_who_connect_at_once_get_what_they_asked_for() {
    let mut target = Target::new("at-once");
    let other = Disk::new(64);
    target.subsystem.add_namespace(2, &other, OTHER);
    let before = Leftovers::snapshot();
    let (one, two) = (target.data(), with(target.data(), "vol_uuid", json!(OTHER)));

    let attached: Vec<_> = std::thread::scope(|scope| {
        let connect = |data: &serde_json::Value| {
            let data = data.clone();
            scope.spawn(move || volume(data).connect_as(&many()).unwrap().into_inner())
        };
        let workers = [connect(&one), connect(&one), connect(&two), connect(&two)];
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });

    assert_eq!(attached[0].path(), attached[1].path());
    assert_eq!(attached[2].path(), attached[3].path());
    assert_ne!(attached[0].path(), attached[2].path());
    assert_eq!(nvmet::controllers(target.nqn()).len(), 2);
    std::thread::scope(|scope| {
        for data in [&one, &two] {
            scope.spawn(move || volume(data.clone()).disconnect().unwrap());
        }
    });
    before.assert_restored();
}

#[test]
fn a_connect_or_disconnect_that_is_cut_off_is_finished_by_the_next_one() {
    let target = Target::new("cut-off");
    let before = Leftovers::snapshot();
    let volume = volume(target.data());
    for millis in [0, 5, 20, 60, 150, 300, 600, 1000] {
        let after = Duration::from_millis(millis);
        volume.connect_cut_off(after);
        // The kernel may still be making a controller that nobody waits for.
        wait_for("clean host", LIMIT, || {
            volume.disconnect().unwrap();
            before.difference(&Leftovers::snapshot()).is_empty().then_some(())
        });
        volume.connect().unwrap();
        volume.disconnect_cut_off(after);
        volume.disconnect().unwrap();
        before.assert_restored_within(LIMIT);
    }
}
