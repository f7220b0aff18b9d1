//! Fibre Channel for real: FCP over FCoE (VN2VN) against LIO, one path and two, whole lives, cables
//! that are pulled under load, and the ways to reach the wrong volume.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use hawser_core::attach::{Attach, Attached, Detach, Identity, Multipath};
use hawser_core::{ByteSize, Change, Outcome, Reason};
use hawser_live::lab::guest::fc::San;
use hawser_live::lab::guest::library::info;
use hawser_live::lab::guest::luks::keeps_a_secret;
use hawser_live::lab::guest::paths::{all, connect, disconnect, forced, paths, usable};
use hawser_live::lab::guest::reserve::only_one_writes;
use hawser_live::lab::guest::san::{disks, names, read, try_write, write};
use hawser_live::lab::guest::{Load, Volume, cmd, lio, refusal, settle, wait_for};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(60);

fn both(san: &San, number: u32) -> Volume {
    Volume::new("fibre_channel", san.both_ports(number))
}

fn device(attached: &Change<Attached>) -> PathBuf {
    attached.get().path().to_owned()
}

/// Two lives of a volume, with everything that there is in one.
#[track_caller]
fn lives_twice(san: &San, data: &Value, attach: &Attach, node: &str) {
    let disk = &san.disks[0];
    let mut size = 32;
    for round in 0..2_u8 {
        let volume = Volume::new("fibre_channel", data.clone());
        let made = volume.connect_as(attach).expect("connect");
        let device = device(&made);
        assert!(made.is_made() && device.to_string_lossy().starts_with(node), "{made:?}");
        assert_eq!(made.get().identity(), Some(&Identity::new("wwid", disk.wwid())));
        let pattern = vec![0x50 + round; 8192];
        write(&device, 8192, &pattern);
        assert_eq!(disk.read(8192, 8192), pattern, "it reached the storage");
        assert_eq!(read(&device, 8192, 8192), pattern);

        assert_eq!(volume.connect_as(attach).expect("again"), Change::Already(made.get().clone()));
        assert_eq!(volume.lookup().expect("lookup").as_ref(), Some(made.get()));
        let health = volume.health().expect("health");
        assert!(health.healthy, "{health:?}");

        size += 32;
        disk.grow(size);
        assert_eq!(volume.extend().expect("extend"), ByteSize::mib(size));
        let last = (size << 20) - 4096;
        write(&device, last, &[0x77; 4096]);
        assert_eq!(disk.read(last, 4096), vec![0x77; 4096], "the new end is usable");

        let gone = volume.disconnect_as(attach, &Detach::default()).expect("disconnect");
        assert_eq!(gone, Change::Made(()));
        san.assert_clean();
        let again = volume.disconnect_as(attach, &Detach::default()).expect("again");
        assert_eq!(again, Change::Already(()));
        assert_eq!(volume.lookup().expect("lookup"), None);
        san.assert_clean();
    }
}

#[test]
fn a_volume_over_one_port_lives_twice_and_leaves_nothing() {
    let san = San::new(1);

    lives_twice(&san, &san.one_port(1), &Attach::default(), "/dev/sd");
}

#[test]
fn a_volume_over_two_paths_lives_twice_and_leaves_nothing() {
    let san = San::with_multipath(1, "5");

    lives_twice(&san, &san.both_ports(1), &all(), "/dev/dm-");
}

#[test]
fn every_spelling_leads_to_the_volume() {
    let san = San::with_multipath(1, "5");
    let targets: Vec<&str> = san.cables.iter().map(|cable| cable.target.as_str()).collect();
    let loud: Vec<String> =
        targets.iter().map(|wwpn| format!("0x{}", wwpn.to_uppercase())).collect();
    let zone = |number: usize| json!([[targets[number], 1]]);
    let [one, two] = [0, 1].map(|number| san.cables[number].initiator.as_str());

    for data in [
        json!({ "targetWWNs": loud, "targetLun": "1", "volumeId": "v1" }),
        json!({ "target_wwn": targets, "target_lun": 1, "volume_id": "v1",
            "initiator_target_map": null }),
        json!({ "targetWwns": targets, "targetLuns": [1, 1], "enableWildcardScan": false,
            "initiatorTargetLunMap": { one: zone(0), two: zone(1) } }),
    ] {
        let volume = Volume::new("FC", data.clone());
        let map = connect(&volume);
        assert_eq!((paths(&map).len(), usable(&map)), (2, 2), "{data}");
        disconnect(&volume);
        san.assert_clean();
    }
}

#[test]
fn case_11_only_the_volume_that_is_asked_for_appears() {
    let san = San::new(3);
    let volume = both(&san, 2);
    let wanted = Attach { multipath: Multipath::Wanted, ..Attach::default() };

    volume.connect_as(&wanted).expect("connect");
    settle();

    assert_eq!(disks().len(), 2, "others were scanned: {:?}", disks());
    volume.disconnect_as(&wanted, &Detach::default()).expect("disconnect");
    san.assert_clean();
}

#[test]
fn numbers_above_255_are_found() {
    let mut san = San::new(0);
    let disk = lio::Disk::new("far", 32);
    // What a storage system calls 300 in flat space, and what the kernel makes of it.
    san.show(0x4000 + 300, &disk);
    san.show(300, &disk);
    let before = hawser_live::lab::guest::Leftovers::snapshot();
    for (mode, address) in [("SAM2", ":16684"), ("SAM", ":300")] {
        let mut data = san.one_port(300);
        data["addressing_mode"] = json!(mode);
        let volume = Volume::new("fibre_channel", data);

        volume.connect().expect("connect");

        let found = names("/sys/class/scsi_device");
        assert!(found.iter().any(|name| name.ends_with(address)), "{mode}: {found:?}");
        volume.disconnect().expect("disconnect");
        before.assert_restored();
    }
}

#[test]
fn what_is_not_there_is_told_apart() {
    let san = San::new(1);
    let with = |key: &str, value: Value| {
        let mut data = san.one_port(1);
        data[key] = value;
        Volume::new("fibre_channel", data)
    };
    let short = Attach { deadline: Duration::from_secs(5), ..Attach::default() };

    let error = refusal(with("target_lun", json!(77)).connect_as(&short), Reason::LunNotFound);
    assert_ne!(error.outcome(), Outcome::Unknown);
    san.assert_clean();
    let nobody = with("target_wwn", json!("2000020000000fff"));
    refusal(nobody.connect_as(&short), Reason::TargetNotFound);
    san.assert_clean();
    let stranger =
        with("initiator_target_map", json!({ "2000020000000ffe": [san.cables[0].target] }));
    refusal(stranger.connect_as(&short), Reason::TargetUnreachable);
    san.assert_clean();
}

#[test]
fn the_volume_must_be_the_expected_one() {
    let san = San::new(2);
    for wwn in [san.disks[0].wwid(), format!("naa.{}", &san.disks[0].wwid()[1..])] {
        let mut data = san.one_port(1);
        data["wwn"] = json!(wwn);
        let volume = Volume::new("fibre_channel", data);
        volume.connect().unwrap_or_else(|error| panic!("{wwn}: {error:?}"));
        volume.disconnect().expect("disconnect");
        san.assert_clean();
    }
    let mut data = san.one_port(1);
    data["wwn"] = json!(san.disks[1].wwid());
    let volume = Volume::new("fibre_channel", data);

    let error = refusal(volume.connect(), Reason::IdentityMismatch);

    assert_eq!(error.outcome(), Outcome::RolledBack);
    san.assert_clean();
}

#[test]
fn case_01_a_number_that_was_given_away_never_leads_to_the_other_volume() {
    let mut san = San::new(1);
    let other = lio::Disk::new("other", 32);
    let mut data = san.one_port(1);
    data["wwn"] = json!(san.disks[0].wwid());
    let volume = Volume::new("fibre_channel", data.clone());
    let path = device(&volume.connect().expect("connect"));
    write(&path, 0, &[1; 4096]);
    // The array takes the volume away and gives its number to another, and tells nobody.
    san.hide(1);
    san.show(1, &other);

    refusal(volume.connect(), Reason::IdentityMismatch);
    refusal(volume.lookup(), Reason::IdentityMismatch);
    refusal(volume.extend(), Reason::IdentityMismatch);
    assert!(!volume.health().expect("health").healthy);
    refusal(volume.disconnect(), Reason::IdentityMismatch);
    assert!(path.exists(), "nothing was touched");
    // Who expects the other volume gets it, over a disk that the kernel knows as the first one.
    data["wwn"] = json!(other.wwid());
    let second = Volume::new("fibre_channel", data);
    let got = second.connect().expect("the other volume");
    assert_eq!(got.get().identity(), Some(&Identity::new("wwid", other.wwid())));
    write(&device(&got), 0, &[2; 4096]);
    assert_eq!(other.read(0, 4096), vec![2; 4096]);
    second.disconnect().expect("disconnect");
    assert_eq!(volume.disconnect().expect("nothing of it is left"), Change::Already(()));
    assert_eq!(san.disks[0].read(0, 4096), vec![1; 4096], "the first is as it was left");
    assert!(disks().is_empty());
}

#[test]
fn a_device_in_use_stays_and_force_is_for_openers_alone() {
    let san = San::new(1);
    let volume = san.volume(1);
    let path = device(&volume.connect().expect("connect"));
    cmd("mkfs.ext4").args(["-q", "-F"]).arg(&path).ok();
    fs::create_dir_all("/mnt/fc").expect("a folder");
    cmd("mount").arg(&path).arg("/mnt/fc").ok();

    for force in [false, true] {
        let detach = Detach { force, ..Detach::default() };
        refusal(volume.disconnect_as(&Attach::default(), &detach), Reason::DeviceBusy);
    }
    fs::write("/mnt/fc/still", "here").expect("it works");
    cmd("umount").arg("/mnt/fc").ok();
    let held = File::open(&path).expect("open");
    let error = refusal(volume.disconnect(), Reason::DeviceBusy);
    assert!(error.sentence().contains("vm_fc"), "{error:?}");

    volume.force(false).expect("force passes who only has it open");
    drop(held);
    san.assert_clean();
}

#[test]
fn luks2_above_a_map_keeps_what_is_written_from_the_storage() {
    let san = San::with_multipath(1, "5");

    keeps_a_secret("fibre_channel", san.both_ports(1), &all());

    san.assert_clean();
}

#[test]
fn of_two_ports_of_this_host_only_the_one_that_reserved_a_volume_writes() {
    let san = San::new(1);
    // To the storage system two ports are two initiators, in one host or in two.
    let [first, second] = [0, 1].map(|number: usize| {
        let volume = format!("v1-{number}");
        let target = &san.cables[number].target;
        info("fibre_channel", json!({ "target_wwn": target, "target_lun": 1, "volume_id": volume }))
    });

    only_one_writes(&first, &second);

    san.assert_clean();
}

#[test]
fn a_read_only_volume_refuses_writes() {
    let san = San::new(1);
    let mut data = san.one_port(1);
    data["access_mode"] = json!("ro");
    let volume = Volume::new("fibre_channel", data);

    let path = device(&volume.connect().expect("connect"));

    assert!(try_write(&path, 0, &[1; 4096]).is_err(), "it took a write");
    assert!(!volume.connect().expect("again").is_made());
    volume.disconnect().expect("disconnect");
    san.assert_clean();
}

#[test]
fn attaches_at_once_end_with_one_device_each() {
    let san = San::with_multipath(2, "5");
    let data: Vec<Value> =
        (1..=2).flat_map(|number| [(); 2].map(|()| san.both_ports(number))).collect();

    let made: Vec<Change<Attached>> = thread::scope(|scope| {
        let running: Vec<_> = data
            .iter()
            .map(|data| {
                scope.spawn(|| {
                    let volume = Volume::new("fibre_channel", data.clone());
                    volume.connect_as(&all()).expect("connect")
                })
            })
            .collect();
        running.into_iter().map(|one| one.join().expect("a thread")).collect()
    });

    for (number, pair) in (1..).zip(made.chunks(2)) {
        assert_eq!(pair.iter().filter(|change| change.is_made()).count(), 1, "{pair:?}");
        assert_eq!(pair[0].get(), pair[1].get());
        write(&device(&pair[0]), 0, &[number; 4096]);
        assert_eq!(san.disks[usize::from(number) - 1].read(0, 4096), vec![number; 4096]);
    }
    thread::scope(|scope| {
        for number in 1..=2 {
            let volume = both(&san, number);
            scope.spawn(move || disconnect(&volume));
        }
    });
    san.assert_clean();
}

#[test]
fn writes_go_on_while_cables_are_pulled_and_plugged() {
    let san = San::with_multipath(1, "queue");
    let volume = both(&san, 1);
    let map = connect(&volume);
    let load = Load::start(&map);

    for cable in &san.cables {
        load.goes_on(LIMIT);
        // The kernel's own target waits for ever for the data of a write that was cut off, on the
        // one worker of libfc that the initiator in the same kernel needs to notice the loss.
        load.between_writes(|| cable.plug(false));
        wait_for("a path to fail", LIMIT, || (usable(&map) == 1).then_some(()));
        load.goes_on(LIMIT);
        let health = volume.health().expect("health");
        assert!(!health.healthy, "{health:?}");
        refusal(volume.extend(), Reason::PathsDown);
        cable.plug(true);
        wait_for("the path to come back", LIMIT, || (usable(&map) == 2).then_some(()));
    }

    load.stop_and_compare(|at, count| san.disks[0].read(at, count));
    assert!(volume.health().expect("health").healthy);
    disconnect(&volume);
    san.assert_clean();
}

#[test]
fn a_pulled_cable_costs_seconds_and_its_path_joins_when_asked_again() {
    let san = San::with_multipath(1, "5");
    let volume = both(&san, 1);
    san.cables[1].plug(false);
    wait_for("the port to go", LIMIT, || {
        (san.cables[1].state().as_deref() != Some("Online")).then_some(())
    });
    let begun = Instant::now();

    let map = connect(&volume);

    assert!(begun.elapsed() < Duration::from_secs(15), "took {:?}", begun.elapsed());
    assert_eq!(paths(&map).len(), 1);
    write(&map, 0, &[1; 4096]);
    san.cables[1].plug(true);
    wait_for("the port to come back", LIMIT, || {
        (san.cables[1].state().as_deref() == Some("Online")).then_some(())
    });
    let again = volume.connect_as(&all()).expect("again");
    assert_eq!(device(&again), map);
    assert_eq!(paths(&map).len(), 2);
    disconnect(&volume);
    san.assert_clean();
}

#[test]
fn case_03_and_07_without_any_path_nothing_is_detached_but_by_force_and_loss_is_told() {
    let san = San::with_multipath(1, "queue");
    let volume = both(&san, 1);
    let map = connect(&volume);
    write(&map, 0, &[1; 4096]);
    san.cables.iter().for_each(|cable| cable.plug(false));
    wait_for("all paths to fail", LIMIT, || (usable(&map) == 0).then_some(()));
    let file = File::options().write(true).open(&map).expect("open");
    file.write_all_at(&[2; 4096], 0).expect("into the cache");
    // Closing it would write it out, and hang.
    thread::spawn(move || drop(file));

    let refused = wait_for("the opener to be told from the flush", LIMIT, || {
        let error = volume.disconnect_as(&all(), &Detach::default()).expect_err("no path");
        (error.reason() == Some(Reason::FlushFailed)).then_some(error)
    });
    assert!(refused.sentence().contains("no path"), "{refused:?}");
    assert!(map.exists() && paths(&map).len() == 2, "everything stays");

    let error = volume.disconnect_as(&all(), &forced()).expect_err("data is lost");
    let said = [Some(Reason::DataLost), Some(Reason::Several)];
    assert!(said.contains(&error.reason()), "{error:?}");
    san.before.assert_restored_within(LIMIT);
    assert_eq!(san.disks[0].read(0, 4096), vec![1; 4096], "what was lost is not there");
}

#[test]
fn an_attach_that_is_cut_off_is_finished_by_the_next_call() {
    let san = San::new(1);
    for after in [1, 20, 100, 300] {
        let volume = san.volume(1);
        volume.connect_cut_off(Duration::from_millis(after));
        volume.connect().expect("connect");
        volume.disconnect_cut_off(Duration::from_millis(after));
        volume.disconnect().expect("disconnect");
        san.assert_clean();
        volume.connect_cut_off(Duration::from_millis(after));
        volume.disconnect().expect("disconnect");
        san.assert_clean();
    }
}

#[test]
fn the_host_tells_its_ports_and_that_it_is_ready() {
    let san = San::new(0);

    let told = cmd("hawser").args(["properties"]).ok();
    let told: Value = serde_json::from_str(&told).expect("JSON");
    let ready = cmd("hawser").args(["connectors"]).ok();

    let ports: Vec<&str> =
        told["wwpns"].as_array().expect("ports").iter().flat_map(Value::as_str).collect();
    for cable in &san.cables {
        assert!(ports.contains(&cable.initiator.as_str()), "{told}");
    }
    let line = ready.lines().find(|line| line.contains("FIBRE_CHANNEL")).expect("a line");
    assert!(line.contains("ready") && !line.contains("not ready"), "{line}");
}
