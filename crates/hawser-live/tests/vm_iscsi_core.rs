//! The short part of iSCSI, for every test run: credentials, two paths, growth, a path that goes and
//! comes back, a number that goes to another volume. `vm_iscsi` and `vm_multipath` have the rest.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hawser_core::attach::{Attach, Detach, Multipath};
use hawser_core::{ByteSize, Change, Reason};
use hawser_live::lab::guest::san::{San, names, read, write};
use hawser_live::lab::guest::{Volume, cmd, lio, wait_for};
use serde_json::{Value, json};

const TWO: [&str; 2] = ["127.0.1.1:3260", "127.0.1.2:3260"];
const SECRET: &str = "correct-horse-battery";
const LIMIT: Duration = Duration::from_secs(60);
const MAPS: &str = "defaults {\n find_multipaths no\n polling_interval 1\n user_friendly_names no\n}\n\
    blacklist {\n devnode \"^(vd|loop|dm-|ram)\"\n}\n";

fn with_secret(mut data: Value, secret: &str) -> Value {
    data["auth_method"] = json!("CHAP");
    data["auth_username"] = json!("user1");
    data["auth_password"] = json!(secret);
    data
}

fn paths_of(multipath: Multipath) -> Attach {
    Attach { multipath, ..Attach::default() }
}

/// Attach, write, grow, attach again, detach, detach again; twice.
fn live_twice(san: &San, volume: &Volume, attach: &Attach, check: impl Fn(&Path)) {
    let disk = &san.disks[0];
    let mut mib = 32;
    for round in 1..=2_u8 {
        let made = volume.connect_as(attach).expect("connect");
        assert!(made.is_made(), "{made:?}");
        let device: PathBuf = made.get().path().to_owned();
        check(&device);
        write(&device, 4096, &[round; 8192]);
        assert_eq!(disk.read(4096, 8192), vec![round; 8192], "it reached the storage");
        assert_eq!(volume.connect_as(attach).unwrap(), Change::Already(made.get().clone()));
        mib += 32;
        disk.grow(mib);
        assert_eq!(volume.extend().expect("extend"), ByteSize::mib(mib));
        let last = (mib << 20) - 4096;
        write(&device, last, &[round; 4096]);
        assert_eq!(disk.read(last, 4096), vec![round; 4096], "the new end is usable");
        assert!(volume.disconnect_as(attach, &Detach::default()).expect("disconnect").is_made());
        san.assert_clean();
        let again = volume.disconnect_as(attach, &Detach::default()).expect("again");
        assert_eq!(again, Change::Already(()));
    }
}

/// How many paths of a map work, by device mapper's own word.
fn usable(map: &Path) -> usize {
    // By its name: a node without the link that udev makes later is none for dmsetup.
    let node = map.file_name().expect("a device").to_string_lossy();
    let name = fs::read_to_string(format!("/sys/block/{node}/dm/name")).expect("a map");
    let status = cmd("dmsetup").args(["status", name.trim()]).ok();
    let words: Vec<&str> = status.split_whitespace().collect();
    words.windows(2).filter(|pair| pair[0].contains(':') && pair[1] == "A").count()
}

#[test]
fn a_volume_behind_a_secret_lives_twice_and_leaves_nothing() {
    let mut san = San::new(&TWO[..1], 1);
    san.target.chap("user1", SECRET);
    let volume = Volume::new("iscsi", with_secret(san.one_way(1), SECRET));
    live_twice(&san, &volume, &paths_of(Multipath::Off), |device| {
        assert!(device.starts_with("/dev") && device.to_string_lossy().contains("/sd"));
    });

    let wrong = Volume::new("iscsi", with_secret(san.one_way(1), "not-the-password"));
    let refused = wrong.connect().expect_err("nobody lets it in");

    assert_eq!(refused.reason(), Some(Reason::AuthFailed), "{refused:?}");
    san.assert_clean();
}

#[test]
fn a_volume_over_two_paths_lives_twice_and_leaves_nothing() {
    let mut san = San::with_multipath(&TWO, 1, MAPS);
    san.target.chap("user1", SECRET);
    let volume = Volume::new("iscsi", with_secret(san.all_ways(1), SECRET));
    let attach = paths_of(Multipath::Enforced);
    live_twice(&san, &volume, &attach, |map| assert_eq!(usable(map), 2));

    let map = volume.connect_as(&attach).expect("connect").into_inner().path().to_owned();
    let cut = san.target.cut(0);
    wait_for("a path to fail", LIMIT, || (usable(&map) == 1).then_some(()));
    write(&map, 0, &[9; 4096]);
    assert!(!volume.health().expect("health").healthy);
    cut.mend();
    wait_for("the path to come back", LIMIT, || (usable(&map) == 2).then_some(()));
    assert_eq!(san.disks[0].read(0, 4096), vec![9; 4096]);

    assert!(volume.disconnect_as(&attach, &Detach::default()).expect("disconnect").is_made());
    san.assert_clean();
}

#[test]
fn case_01_a_number_that_belongs_to_another_volume_now_is_never_handed_out() {
    let mut san = San::new(&TWO[..1], 1);
    let other = lio::Disk::new("other", 32);
    write(other.device(), 0, &[0xEE; 4096]);
    san.remember();
    let mut data = san.one_way(1);
    data["wwn"] = json!(san.disks[0].wwid());
    let volume = Volume::new("iscsi", data.clone());
    volume.connect().expect("connect");
    san.target.swap_lun(1, &other);

    let refused = volume.connect().expect_err("it is another volume");

    assert_eq!(refused.reason(), Some(Reason::IdentityMismatch), "{refused:?}");
    volume.force(true).expect("by force");
    san.assert_clean();
    data["wwn"] = json!(other.wwid());
    let second = Volume::new("iscsi", data);
    let device = second.connect().expect("connect").into_inner().path().to_owned();
    assert_eq!(read(&device, 0, 4096), vec![0xEE; 4096]);
    second.disconnect().expect("disconnect");
    san.assert_clean();
    assert!(names("/sys/class/iscsi_session").is_empty());
}
