//! ATA over Ethernet against vblade: neighbours, silent targets, swapped volumes, and nothing left.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "vm_aoe/bench.rs"]
mod bench;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use hawser_core::attach::{Attach, Attached, Detach, Identity};
use hawser_core::{ByteSize, Change, Error, Outcome, Reason};
use hawser_live::lab::guest::aoe::{Ether, NEAR, Vblade, set_dead_seconds};
use hawser_live::lab::guest::faults::Kills;
use hawser_live::lab::guest::luks::keeps_a_secret;
use hawser_live::lab::guest::{Leftovers, Volume, cmd, wait_for};
use serde_json::{Value, json};

use bench::{Bench, MOUNT, data_at, flush};

const NODE: &str = "/dev/etherd/e7.1";
const LIMIT: Duration = Duration::from_secs(60);

fn volume_at(slot: u8, more: Value) -> Volume {
    Volume::new("aoe", data_at(slot, more))
}

fn volume() -> Volume {
    volume_at(1, json!({}))
}

fn write(device: &Path, at: u64, byte: u8) {
    let file = File::options().write(true).open(device).unwrap();
    file.write_all_at(&[byte; 4096], at).unwrap();
    file.sync_all().unwrap();
}

fn size_of(device: &Path) -> u64 {
    cmd("blockdev").arg("--getsize64").arg(device).ok().trim().parse().unwrap()
}

fn path(attached: &Change<Attached>) -> PathBuf {
    attached.get().path().to_owned()
}

#[track_caller]
fn refusal<T: std::fmt::Debug>(result: Result<T, Error>) -> Error {
    result.expect_err("a refusal")
}

#[test]
fn it_lives_twice() {
    let mut bench = Bench::new();
    let volume = volume_at(1, json!({ "interfaces": [NEAR] }));
    for round in 1..=2_u8 {
        let began = Instant::now();
        let made = volume.connect().unwrap();
        println!("round {round}: connected in {:?}", began.elapsed());
        assert!(made.is_made(), "round {round}");
        assert_eq!(path(&made), Path::new(NODE));
        let serial = made.get().identity().unwrap().clone();
        assert_eq!(serial.scheme, "serial", "{serial}");
        assert!(serial.value.starts_with("7.1:"), "{serial}");
        let before = 16 + 16 * u64::from(round);
        assert_eq!(size_of(Path::new(NODE)), before << 20);

        write(Path::new(NODE), 8192, round);
        assert_eq!(bench.target.read(8192, 4096), [round; 4096]);

        bench.target.grow(before + 16);
        assert_eq!(volume.extend().unwrap(), ByteSize::mib(before + 16));
        assert_eq!(volume.extend().unwrap(), ByteSize::mib(before + 16), "once more, the same");
        let last = ((before + 16) << 20) - 4096;
        write(Path::new(NODE), last, round + 10);
        assert_eq!(bench.target.read(last, 4096), [round + 10; 4096]);

        let again = volume.connect().unwrap();
        assert!(!again.is_made());
        assert_eq!(volume.lookup().unwrap().as_ref(), Some(again.get()));
        assert!(volume.health().unwrap().healthy, "{:?}", volume.health());
        let began = Instant::now();
        assert_eq!(volume.disconnect().unwrap(), Change::Made(()));
        println!("round {round}: disconnected in {:?}", began.elapsed());
        bench.assert_clean();
        assert_eq!(volume.disconnect().unwrap(), Change::Already(()));
        assert_eq!(volume.lookup().unwrap(), None);
        assert!(!volume.health().unwrap().healthy);
    }
}

#[test]
fn case_22_a_neighbour_whose_name_begins_the_same_way_stays() {
    let bench = Bench::new();
    let neighbour = Vblade::new(7, 10, 16);
    let (ours, theirs) = (volume(), volume_at(10, json!({})));
    ours.connect().unwrap();
    theirs.connect().unwrap();
    let sequence = || fs::read_to_string("/sys/block/etherd!e7.10/diskseq").unwrap();
    let before = sequence();
    let open = File::open("/dev/etherd/e7.10").unwrap();

    assert!(ours.disconnect().unwrap().is_made());

    assert!(!Path::new(NODE).exists());
    assert_eq!(sequence(), before, "the neighbour is the same disk as before");
    open.read_at(&mut vec![0; 4096], 8 << 20).expect("its user notices nothing");
    drop(open);
    write(Path::new("/dev/etherd/e7.10"), 0, 9);
    assert_eq!(neighbour.read(0, 4096), [9; 4096]);
    assert!(theirs.disconnect().unwrap().is_made());
    bench.assert_clean();
}

#[test]
fn a_device_that_is_merely_there_is_left_alone() {
    let bench = Bench::new();
    fs::write("/dev/etherd/discover", "1").unwrap();
    wait_for("a device nobody asked for", LIMIT, || Path::new(NODE).exists().then_some(()));
    let volume = volume();

    assert_eq!(volume.lookup().unwrap(), None);
    assert_eq!(volume.disconnect().unwrap(), Change::Already(()));
    assert!(Path::new(NODE).exists());
    assert!(volume.connect().unwrap().is_made());
    assert!(volume.disconnect().unwrap().is_made());

    bench.assert_clean();
}

#[test]
fn what_cannot_be_attached_leaves_nothing() {
    let bench = Bench::new();
    let wrong = {
        let mut volume = volume();
        volume.info.identity = Some(Identity::new("serial", "another"));
        volume
    };
    for (volume, reason) in [
        (wrong, Reason::IdentityMismatch),
        (volume_at(2, json!({})), Reason::TargetNotFound),
        (volume_at(1, json!({ "interfaces": "nosuch0" })), Reason::ToolOrModuleMissing),
    ] {
        let error = refusal(volume.connect());
        assert_eq!(error.reason(), Some(reason), "{error:?}");
        assert_ne!(error.outcome(), Outcome::Unknown, "{error:?}");
        assert_eq!(volume.disconnect().unwrap(), Change::Already(()));
        // Asking for one target brings in every other; those stay.
        flush();
        bench.assert_clean();
    }
}

#[test]
fn another_volume_at_the_same_address_is_refused() {
    let mut bench = Bench::new();
    let mut volume = volume();
    let first = volume.connect().unwrap();
    volume.info.identity = first.get().identity().cloned();
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    cmd("hostname").arg("other").ok();
    bench.target.kill();
    bench.target.start();
    cmd("hostname").arg(name.trim()).ok();

    let error = refusal(volume.connect());

    assert_eq!(error.reason(), Some(Reason::IdentityMismatch), "{error:?}");
    assert!(Path::new(NODE).exists(), "left alone");
    assert!(!volume.health().unwrap().healthy);
    let error = refusal(volume.disconnect());
    assert_eq!(error.reason(), Some(Reason::IdentityMismatch), "{error:?}");
    volume.info.identity = None;
    assert!(volume.disconnect().unwrap().is_made());
    bench.assert_clean();
}

#[test]
fn a_device_in_use_is_not_taken_away() {
    let bench = Bench::new();
    let volume = volume();
    volume.connect().unwrap();
    cmd("mkfs.ext4").args(["-q", "-m", "0", NODE]).ok();
    fs::create_dir_all(MOUNT).unwrap();
    cmd("mount").args([NODE, MOUNT]).ok();

    for error in [refusal(volume.disconnect()), refusal(volume.force(true))] {
        assert_eq!(error.reason(), Some(Reason::DeviceBusy), "{error:?}");
        assert!(error.sentence().contains(MOUNT), "{error:?}");
    }
    fs::write(format!("{MOUNT}/file"), "still there").unwrap();
    cmd("umount").arg(MOUNT).ok();
    let open = File::open(NODE).unwrap();
    let error = refusal(volume.disconnect());
    assert!(error.sentence().contains("vm_aoe"), "names who has it open: {error:?}");
    open.read_at(&mut vec![0; 4096], 16 << 20).expect("its user notices nothing");
    drop(open);

    assert!(volume.disconnect().unwrap().is_made());
    fs::remove_dir(MOUNT).unwrap();
    bench.assert_clean();
    assert!(volume.connect().unwrap().is_made());
    assert!(cmd("e2fsck").args(["-f", "-n", NODE]).succeeds());
    assert!(volume.disconnect().unwrap().is_made());
    bench.assert_clean();
}

#[test]
fn luks2_above_it_keeps_what_is_written_from_the_storage() {
    let bench = Bench::new();

    keeps_a_secret("aoe", data_at(1, json!({})), &Attach::default());

    bench.assert_clean();
}

#[test]
fn read_only_is_kept() {
    let bench = Bench::new();
    let volume = volume();
    let attach = Attach { read_only: true, ..Attach::default() };

    volume.connect_as(&attach).unwrap();

    let written = File::options().write(true).open(NODE).and_then(|file| {
        file.write_all_at(&[1; 4096], 0)?;
        file.sync_all()
    });
    assert!(written.is_err(), "{written:?}");
    assert_eq!(refusal(volume.connect()).reason(), Some(Reason::DeviceReadOnly));
    assert!(volume.disconnect_as(&attach, &Detach::default()).unwrap().is_made());
    bench.assert_clean();
    volume.connect().unwrap();
    write(Path::new(NODE), 0, 1);
    assert!(volume.disconnect().unwrap().is_made());
    bench.assert_clean();
}

#[test]
fn two_attaches_at_once_make_one_device() {
    let bench = Bench::new();
    let attach = || thread::spawn(|| volume().connect().unwrap());

    let both = [attach(), attach()].map(|thread| thread.join().unwrap());

    assert_eq!(path(&both[0]), path(&both[1]));
    assert_eq!(both.iter().filter(|change| change.is_made()).count(), 1, "{both:?}");
    assert!(volume().disconnect().unwrap().is_made());
    bench.assert_clean();
}

#[test]
fn a_target_that_comes_back_in_time_is_used_on() {
    let mut bench = Bench::new();
    let volume = volume();
    volume.connect().unwrap();
    bench.target.kill();
    let writer = thread::spawn(|| write(Path::new(NODE), 4096, 5));
    thread::sleep(Duration::from_secs(2));
    bench.target.start();

    writer.join().expect("the write that waited went on");

    assert_eq!(bench.target.read(4096, 4096), [5; 4096]);
    assert!(!volume.connect().unwrap().is_made());
    assert!(volume.disconnect().unwrap().is_made());
    bench.assert_clean();
}

#[test]
fn a_target_that_stays_away_is_told_and_given_up_by_force() {
    let mut bench = Bench::new();
    let volume = volume();
    volume.connect().unwrap();
    set_dead_seconds(3);
    bench.target.kill();
    let read = File::open(NODE).and_then(|file| file.read_at(&mut vec![0; 4096], 16 << 20));
    assert!(read.is_err(), "given up by now");

    let error = refusal(volume.disconnect());
    assert_eq!(error.reason(), Some(Reason::FlushFailed), "{error:?}");
    let health = volume.health().unwrap();
    assert!(!health.healthy, "{health:?}");
    let error = refusal(volume.connect());
    assert_eq!(error.reason(), Some(Reason::TargetNotFound), "{error:?}");
    assert!(Path::new("/sys/block/etherd!e7.1").exists(), "nothing was detached");
    let error = refusal(volume.force(false));

    assert_eq!(error.reason(), Some(Reason::DataLost), "{error:?}");
    bench.assert_clean();
    assert_eq!(volume.disconnect().unwrap(), Change::Already(()));
}

#[test]
fn a_dead_device_works_again_when_its_target_is_back_and_it_is_connected_again() {
    let mut bench = Bench::new();
    let volume = volume();
    volume.connect().unwrap();
    set_dead_seconds(3);
    bench.target.kill();
    let read = File::open(NODE).and_then(|file| file.read_at(&mut vec![0; 4096], 16 << 20));
    assert!(read.is_err(), "given up by now");
    bench.target.start();

    let again = volume.connect().unwrap();

    assert!(!again.is_made());
    assert!(volume.health().unwrap().healthy, "{:?}", volume.health());
    write(Path::new(NODE), 0, 3);
    assert_eq!(bench.target.read(0, 4096), [3; 4096]);
    assert!(volume.disconnect().unwrap().is_made());
    bench.assert_clean();
}

#[test]
fn a_pulled_cable_is_no_target() {
    let net = Ether::new();
    let _target = Vblade::new(7, 1, 32);
    net.set_up(false);
    // What the driver heard of it so far.
    fs::write("/dev/etherd/flush", "all").unwrap();
    let before = Leftovers::snapshot();

    let error = refusal(volume().connect());

    assert_eq!(error.reason(), Some(Reason::TargetNotFound), "{error:?}");
    before.assert_restored();
    let error = refusal(volume_at(1, json!({ "interfaces": "ao1" })).connect());
    assert_eq!(error.reason(), Some(Reason::TargetUnreachable), "{error:?}");
    before.assert_restored();
}

#[test]
fn case_26_a_call_that_is_killed_between_two_steps_is_made_good() {
    let bench = Bench::new();

    Kills::of("AOE", &bench.asked(), &bench.before).sweep(&flush).some(3).run();

    bench.assert_clean();
}

#[test]
fn case_26_a_call_that_is_dropped_at_any_moment_is_finished_by_the_next() {
    let bench = Bench::new();
    let volume = volume();
    for step in 0..12 {
        volume.connect_cut_off(Duration::from_millis(5 * step));
        if step % 2 == 0 {
            volume.connect().unwrap();
            write(Path::new(NODE), 0, 1);
        }
        if step % 3 == 0 {
            volume.disconnect_cut_off(Duration::from_millis(5 * step));
        }
        volume.disconnect().unwrap();
        assert_eq!(volume.disconnect().unwrap(), Change::Already(()), "step {step}");
        flush();
        bench.assert_clean();
    }
}
