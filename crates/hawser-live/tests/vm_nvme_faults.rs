//! NVMe over TCP on the kernel's own target: what goes wrong, and keys.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "vm_nvme/mod.rs"]
mod vm_nvme;

use std::fs;
use std::io::Write;
use std::time::{Duration, Instant};

use hawser_core::attach::Attach;
use hawser_core::{Change, Error, Kind, Outcome, Reason};
use hawser_live::lab::guest::faults::Kills;
use hawser_live::lab::guest::nvmet::{self, Disk, Port, Subsystem};
use hawser_live::lab::guest::{Cut, Leftovers, cmd, modprobe, settle, wait_for};
use serde_json::json;

use vm_nvme::tcp::{A, B, Target};
use vm_nvme::{LIMIT, MIB, OTHER, UUID, asked, data, many, read, states, volume, with};

#[test]
fn a_portal_that_is_dead_from_the_start_is_added_by_the_next_connect() {
    let target = Target::new("late");
    let before = Leftovers::snapshot();
    let volume = asked(target.data());
    let cut = Cut::refused(B.parse().unwrap());

    let device = volume.connect();
    assert_eq!(nvmet::controllers(target.nqn()).len(), 1);
    assert_eq!(volume.connect(), device, "what works is handed out all the same");
    assert_eq!(nvmet::controllers(target.nqn()).len(), 1);
    cut.mend();
    assert_eq!(volume.connect(), device);
    assert_eq!(nvmet::controllers(target.nqn()).len(), 2);
    volume.disconnect();
    before.assert_restored();
}

#[test]
fn case_26_a_call_that_is_killed_between_two_steps_is_made_good() {
    let target = Target::new("killed");
    let before = Leftovers::snapshot();

    Kills::of("NVMe over TCP", &asked(target.data()), &before).some(3).run();

    assert!(nvmet::controllers(target.nqn()).is_empty());
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

/// Case 23 of docs/cases.md.
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
    assert_eq!(forced.reason(), Some(Reason::DataLost), "{forced:?}");
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
