//! DRBD with both ends in one guest: roles, lost peers, split brain, growth, and nothing left.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "vm_drbd/bench.rs"]
mod bench;

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use hawser_core::attach::{Attach, Detach, Identity};
use hawser_core::{ByteSize, Change, Error, Kind, Outcome, Reason};
use hawser_live::lab::guest::drbd::SECRET;
use hawser_live::lab::guest::faults::Kills;
use hawser_live::lab::guest::luks::keeps_a_secret;
use hawser_live::lab::guest::{Cut, Leftovers, cmd, wait_for};
use serde_json::json;

use bench::{Bench, MOUNT, NODE};

const LIMIT: Duration = Duration::from_secs(60);

fn write(at: u64, byte: u8) {
    let file = File::options().write(true).open(NODE).unwrap();
    file.write_all_at(&[byte; 4096], at).unwrap();
    file.sync_all().unwrap();
}

fn size_of(device: &str) -> u64 {
    cmd("blockdev").args(["--getsize64", device]).ok().trim().parse().unwrap()
}

#[track_caller]
fn refusal<T: std::fmt::Debug>(result: Result<T, Error>) -> Error {
    let error = result.expect_err("a refusal");
    assert!(!format!("{error:?} {}", error.sentence()).contains(SECRET), "{error:?}");
    error
}

#[test]
fn it_lives_twice() {
    let bench = Bench::new();
    let volume = bench.volume();
    for round in 1..=2_u8 {
        let began = Instant::now();
        let made = volume.connect().unwrap();
        println!("round {round}: connected in {:?}", began.elapsed());
        assert!(made.is_made(), "round {round}");
        assert_eq!(made.get().path(), Path::new(NODE));
        assert_eq!(made.get().identity(), Some(&Identity::new("drbd", "vol1")));
        let mib = 16 + 16 * u64::from(round);
        let size = size_of(NODE);
        assert!(size > (mib - 1) << 20 && size < mib << 20, "{size}: metadata takes a little");

        write(8192, round);
        assert!(bench.far_has(8192, round), "mirrored when the write returns");

        bench.near.grow(mib + 16);
        bench.far.grow(mib + 16);
        let began = Instant::now();
        let grown = volume.extend().unwrap();
        println!("round {round}: grown in {:?}", began.elapsed());
        assert_eq!(grown, ByteSize::bytes(size_of(NODE)));
        assert!(grown.get() > size, "{grown}");
        assert_eq!(volume.extend().unwrap(), grown, "once more, the same");
        bench.far_end.wait("ds:UpToDate/UpToDate");

        let again = volume.connect().unwrap();
        assert!(!again.is_made());
        assert_eq!(volume.lookup().unwrap().as_ref(), Some(again.get()));
        assert!(volume.health().unwrap().healthy, "{:?}", volume.health());
        let began = Instant::now();
        assert_eq!(volume.disconnect().unwrap(), Change::Made(()));
        println!("round {round}: disconnected in {:?}", began.elapsed());
        assert_eq!(volume.disconnect().unwrap(), Change::Already(()));
        assert_eq!(volume.lookup().unwrap(), None);
        assert!(!volume.health().unwrap().healthy);
        bench.assert_clean();
    }
    bench.far_end.admin(&["primary"]);
    let mut bytes = [0; 4096];
    File::open("/dev/drbd101").unwrap().read_exact_at(&mut bytes, 8192).unwrap();
    assert_eq!(bytes, [2; 4096], "the other host has it all");
}

#[test]
fn a_resource_that_mirrors_already_goes_on_after_the_detach() {
    let bench = Bench::new();
    let near_end = bench.near_end();
    near_end.admin(&["up"]);
    near_end.wait("cs:Connected");
    let volume = bench.volume();
    assert_eq!(volume.lookup().unwrap(), None, "up, and not attached");
    assert_eq!(volume.disconnect().unwrap(), Change::Already(()));

    for round in 1..=2 {
        assert!(volume.connect().unwrap().is_made());
        assert!(near_end.state().contains("ro:Primary/Secondary"), "{}", near_end.state());
        write(0, round);
        assert!(volume.disconnect().unwrap().is_made());
        assert_eq!(volume.disconnect().unwrap(), Change::Already(()));
        assert!(near_end.state().contains("cs:Connected ro:Secondary/Secondary"));
    }

    drop(near_end);
    bench.assert_clean();
}

#[test]
fn a_resource_that_is_used_elsewhere_is_refused() {
    let bench = Bench::new();
    bench.far_end.admin(&["primary"]);

    let error = refusal(bench.volume().connect());

    assert_eq!(error.reason(), Some(Reason::Reserved), "{error:?}");
    assert_eq!(error.outcome(), Outcome::RolledBack);
    bench.assert_clean();
    bench.far_end.admin(&["secondary"]);
    assert!(bench.volume().connect().unwrap().is_made());
    assert!(bench.volume().disconnect().unwrap().is_made());
    bench.assert_clean();
}

#[test]
fn without_its_peer_it_is_used_only_when_that_was_asked_for() {
    let mut bench = Bench::new();
    bench.far_end.admin(&["down"]);
    bench.before = Leftovers::snapshot();

    let error = refusal(bench.volume().connect());
    assert_eq!(error.reason(), Some(Reason::TargetUnreachable), "{error:?}");
    bench.assert_clean();
    let volume = bench.volume_with(json!({ "allow_degraded": true }));
    assert!(volume.connect().unwrap().is_made());
    write(0, 4);
    assert!(volume.health().unwrap().message.contains("Connecting"), "{:?}", volume.health());
    assert!(!volume.connect().unwrap().is_made());
    assert!(volume.disconnect().unwrap().is_made());
    bench.assert_clean();

    bench.far_end.admin(&["up"]);
    assert!(bench.volume().connect().unwrap().is_made());
    bench.far_end.wait("ds:UpToDate/UpToDate");
    assert!(bench.volume().disconnect().unwrap().is_made());
    assert!(bench.far_has(0, 4), "it caught up");
}

#[test]
fn a_split_brain_is_told_and_neither_side_loses_anything() {
    let bench = Bench::new();
    bench.far_end.admin(&["primary", "--force"]);
    let far = File::options().write(true).open("/dev/drbd101").unwrap();
    far.write_all_at(&[0xfa; 4096], 0).unwrap();
    far.sync_all().unwrap();
    drop(far);
    bench.far_end.admin(&["down"]);
    let alone = bench.volume_with(json!({ "allow_degraded": true }));
    assert!(alone.connect().unwrap().is_made());
    write(0, 0x11);
    assert!(alone.disconnect().unwrap().is_made());
    bench.far_end.admin(&["up"]);

    let error = refusal(bench.volume().connect());

    // One end stands alone, the other may be left waiting for it.
    let said = error.sentence();
    assert!(said.contains("stands alone") || said.contains("no peer"), "{error:?}");
    assert_eq!(error.outcome(), Outcome::RolledBack, "{error:?}");
    bench.assert_clean();
    assert!(bench.far_has(0, 0xfa), "the far side has what it had");
    assert_eq!(bench.near.read(0, 4096), [0x11; 4096], "and so has the near side");
}

#[test]
fn a_wrong_secret_is_refused_and_taken_back() {
    let bench = Bench::new();
    let volume = bench.volume_with(json!({ "provider_auth": "wr0ng-s3cret" }));

    let error = refusal(volume.connect());

    let reasons = [Some(Reason::PathsDown), Some(Reason::TargetUnreachable)];
    assert!(reasons.contains(&error.reason()), "{error:?}");
    assert!(!error.sentence().contains("wr0ng"), "{error:?}");
    bench.assert_clean();
}

#[test]
fn data_that_is_not_there_is_never_made_up() {
    let mut bench = Bench::raw();
    let error = refusal(bench.volume().connect());
    assert!(error.sentence().contains("no metadata"), "{error:?}");
    bench.assert_clean();
    assert!(bench.near.read(0, 4096).iter().all(|byte| *byte == 0));

    bench.near_end().create_metadata();
    bench.far_end.create_metadata();
    bench.far_end.admin(&["up"]);
    bench.before = Leftovers::snapshot();
    let error = refusal(bench.volume().connect());

    assert!(error.sentence().contains("no data that is up to date"), "{error:?}");
    bench.far_end.wait("cs:WFConnection");
    bench.assert_clean();
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_touched() {
    let bench = Bench::new();
    for (more, kind) in [
        (json!({ "config": "resource vol1 { nonsense" }), Kind::Invalid),
        (
            json!({ "config": bench.config.replace("resource vol1", "resource vol2") }),
            Kind::Invalid,
        ),
        (json!({ "config": bench.config.replace("127.0.1.1", "192.0.2.1") }), Kind::Invalid),
        (json!({ "config": "resource vol1 { handlers { split-brain \"id\"; } }" }), Kind::Invalid),
        (json!({ "device": "/dev/drbd101" }), Kind::Precondition),
        (json!({ "wwn": "3600" }), Kind::Precondition),
    ] {
        let volume = bench.volume_with(more.clone());
        let error = refusal(volume.connect());
        assert_eq!(error.kind(), kind, "{more}: {error:?}");
        bench.assert_clean();
    }
    assert!(bench.far_end.state().contains("cs:WFConnection"), "{}", bench.far_end.state());
}

#[test]
fn a_device_in_use_is_not_taken_away() {
    let bench = Bench::new();
    let volume = bench.volume();
    volume.connect().unwrap();
    cmd("mkfs.ext4").args(["-q", "-m", "0", NODE]).ok();
    fs::create_dir_all(MOUNT).unwrap();
    cmd("mount").args([NODE, MOUNT]).ok();

    for error in [refusal(volume.disconnect()), refusal(volume.force(true))] {
        assert_eq!(error.reason(), Some(Reason::DeviceBusy), "{error:?}");
    }
    fs::write(format!("{MOUNT}/file"), "still there").unwrap();
    cmd("umount").arg(MOUNT).ok();
    let open = File::open(NODE).unwrap();
    for error in [refusal(volume.disconnect()), refusal(volume.force(false))] {
        assert_eq!(error.reason(), Some(Reason::DeviceBusy), "DRBD refuses too: {error:?}");
    }
    open.read_at(&mut vec![0; 4096], 16 << 20).expect("its user notices nothing");
    drop(open);

    assert!(volume.disconnect().unwrap().is_made());
    fs::remove_dir(MOUNT).unwrap();
    bench.assert_clean();
}

#[test]
fn luks2_above_it_keeps_what_is_written_from_the_storage() {
    let bench = Bench::new();

    keeps_a_secret("drbd", bench.data_with(json!({})), &Attach::default());

    bench.assert_clean();
}

#[test]
fn read_only_is_kept() {
    let bench = Bench::new();
    let volume = bench.volume();
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
}

#[test]
fn two_attaches_at_once_are_one() {
    let bench = Bench::new();
    let attach = || {
        let volume = bench.volume();
        thread::spawn(move || volume.connect().unwrap())
    };

    let both = [attach(), attach()].map(|thread| thread.join().unwrap());

    assert_eq!(both.iter().filter(|change| change.is_made()).count(), 1, "{both:?}");
    assert!(bench.volume().disconnect().unwrap().is_made());
    bench.assert_clean();
}

#[test]
fn a_lost_peer_is_told_and_catches_up() {
    let bench = Bench::new();
    let volume = bench.volume();
    volume.connect().unwrap();
    let cuts = ["127.0.1.1:7789", "127.0.1.2:7790"]
        .map(|address| Cut::silent(address.parse::<SocketAddr>().unwrap()));
    let begun = Instant::now();
    write(4096, 7);
    println!("the write went on after {:?}", begun.elapsed());
    wait_for("a lost peer", LIMIT, || {
        let health = volume.health().unwrap();
        (!health.healthy).then(|| println!("{}", health.message))
    });
    assert!(!volume.connect().unwrap().is_made(), "it works on without the peer");
    cuts.into_iter().for_each(Cut::mend);

    wait_for("the peer", LIMIT, || volume.health().unwrap().healthy.then_some(()));
    bench.far_end.wait("ds:UpToDate/UpToDate");

    assert!(bench.far_has(4096, 7), "it caught up");
    assert!(volume.disconnect().unwrap().is_made());
    bench.assert_clean();
}

#[test]
fn case_26_a_call_that_is_killed_between_two_steps_is_made_good() {
    let bench = Bench::new();

    Kills::of("DRBD", &bench.asked(), &bench.before).some(3).run();

    bench.assert_clean();
}

#[test]
fn case_26_a_call_that_is_dropped_at_any_moment_is_finished_by_the_next() {
    let bench = Bench::new();
    let volume = bench.volume();
    for step in 0..8 {
        volume.connect_cut_off(Duration::from_millis(60 * step));
        if step % 2 == 0 {
            volume.connect().unwrap();
            write(0, 1);
        }
        if step % 3 == 0 {
            volume.disconnect_cut_off(Duration::from_millis(40 * step));
        }
        volume.disconnect().unwrap();
        assert_eq!(volume.disconnect().unwrap(), Change::Already(()), "step {step}");
        bench.assert_clean();
    }
}
