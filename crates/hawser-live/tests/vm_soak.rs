//! The same over and over, on iSCSI: a number that goes to another volume a thousand times in one
//! session, and fifty whole lives with login and logout. At the end nothing is left.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hawser_core::Reason;
use hawser_core::attach::{Attach, Detach, Multipath};
use hawser_live::lab::guest::san::{San, names, read, write};
use hawser_live::lab::guest::{Leftovers, Volume, lio};
use serde_json::json;

const TWO: [&str; 2] = ["127.0.1.1:3260", "127.0.1.2:3260"];
const MAPS: &str = "defaults {\n find_multipaths no\n polling_interval 1\n user_friendly_names no\n}\n\
    blacklist {\n devnode \"^(vd|loop|dm-|ram)\"\n}\n";
const CYCLES: usize = 1000;
const LIVES: usize = 50;
/// How long what the kernel does behind the caller's back may take.
const SETTLED: Duration = Duration::from_secs(20);

/// Where each volume has its own name.
const STAMP: u64 = 16 * 4096;

fn stamp(disk: usize) -> Vec<u8> {
    format!("this is volume {disk} and no other").into_bytes()
}

fn count_left(before: &Leftovers) -> usize {
    let begun = Instant::now();
    loop {
        let left = before.difference(&Leftovers::snapshot());
        if left.is_empty() || begun.elapsed() > SETTLED {
            left.iter().for_each(|line| println!("{line}"));
            return left.len();
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Writes a mark that only this round has, and finds it at the storage.
#[track_caller]
fn mark(device: &Path, disk: &lio::Disk, round: usize) {
    let text = format!("round {round}").into_bytes();
    write(device, 0, &text);
    assert_eq!(disk.read(0, text.len()), text, "round {round} wrote elsewhere");
}

#[test]
fn a_number_that_goes_to_another_volume_a_thousand_times_never_shows_a_wrong_one() {
    let mut san = San::new(&TWO[..1], 2);
    let disks: Vec<lio::Disk> = (0..5).map(|n| lio::Disk::new(&format!("turn{n}"), 8)).collect();
    for (number, disk) in disks.iter().enumerate() {
        write(disk.device(), STAMP, &stamp(number));
    }
    let keeper = san.volume(2);
    keeper.connect().expect("the session stays");
    let session = names("/sys/class/iscsi_session");
    san.remember();
    let begun = Instant::now();

    for round in 0..CYCLES {
        let turn = round % disks.len();
        san.target.swap_lun(1, &disks[turn]);
        let mut data = san.one_way(1);
        data["volume_id"] = json!(format!("turn{turn}"));
        data["wwn"] = json!(disks[turn].wwid());
        let volume = Volume::new("iscsi", data.clone());
        let device = volume.connect().expect("connect").into_inner().path().to_owned();
        let expected = stamp(turn);
        assert_eq!(read(&device, STAMP, expected.len()), expected, "round {round}");
        mark(&device, &disks[turn], round);
        if round % 10 == 9 {
            // The number goes to another volume while this one is attached.
            let other = (turn + 1) % disks.len();
            san.target.swap_lun(1, &disks[other]);
            let refused = volume.connect().expect_err("another volume");
            assert_eq!(refused.reason(), Some(Reason::IdentityMismatch), "{refused:?}");
            let lost = volume.force(false).expect_err("it cannot be written out");
            assert_eq!(lost.reason(), Some(Reason::DataLost), "{lost:?}");
            let untouched = stamp(other);
            assert_eq!(disks[other].read(STAMP, untouched.len()), untouched);
        } else {
            assert!(volume.disconnect().expect("disconnect").is_made());
        }
        if round % 100 == 99 {
            println!("{} cycles in {} s", round + 1, begun.elapsed().as_secs());
        }
    }

    assert_eq!(names("/sys/class/iscsi_session"), session, "it is the session of the beginning");
    let took = begun.elapsed();
    san.target.swap_lun(1, &san.disks[0].clone());
    let left = count_left(&san.before);
    keeper.disconnect().expect("disconnect");
    println!("{CYCLES} cycles in one session in {} s, leftovers {left}", took.as_secs());
    assert_eq!(left, 0);
    assert!(names("/sys/class/iscsi_session").is_empty());
}

fn lives(what: &str, san: &San, attach: &Attach, data: &serde_json::Value) {
    let begun = Instant::now();
    for round in 0..LIVES {
        let volume = Volume::new("iscsi", data.clone());
        let made = volume.connect_as(attach).expect("connect");
        let device: PathBuf = made.get().path().to_owned();
        mark(&device, &san.disks[0], round);
        assert!(volume.disconnect_as(attach, &Detach::default()).expect("disconnect").is_made());
        assert!(names("/sys/class/iscsi_session").is_empty(), "round {round}");
    }
    let took = begun.elapsed();
    let left = count_left(&san.before);
    println!("{LIVES} lives over {what} in {} s, leftovers {left}", took.as_secs());
    assert_eq!(left, 0);
}

#[test]
fn fifty_lives_over_one_path_leave_nothing() {
    let san = San::new(&TWO[..1], 1);
    lives("one path", &san, &Attach::default(), &san.one_way(1));
}

#[test]
fn fifty_lives_over_two_paths_leave_nothing() {
    let san = San::with_multipath(&TWO, 1, MAPS);
    let attach = Attach { multipath: Multipath::Enforced, ..Attach::default() };
    lives("two paths", &san, &attach, &san.all_ways(1));
}
