//! What the suites of protocols that mount share.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use hawser_core::attach::Attached;
use hawser_core::error::Result;
use hawser_core::{ByteSize, Change, Reason};

use super::{Leftovers, Volume, cmd};

/// Where these suites mount.
pub const BASE: &str = "/var/tmp/mnt";

/// What is there before a test, without what a failed one left.
pub fn clear() -> Leftovers {
    for mount in Leftovers::snapshot().of("mount") {
        if let Some((target, _)) = mount.split_once(' ').filter(|(t, _)| t.starts_with(BASE)) {
            let _ = cmd("umount").args(["-l", target]).run();
        }
    }
    for left in [BASE, "/run/hawser"] {
        let _ = fs::remove_dir_all(left);
    }
    Leftovers::snapshot()
}

/// Everything is as it was: no mount, no note, no folder.
#[track_caller]
pub fn assert_clean(before: &Leftovers) {
    before.assert_restored();
    let left = fs::read_dir(BASE).map(|all| all.flatten().map(|entry| entry.path()).collect());
    assert!(left.is_err(), "left in {BASE}: {:?}", left.map(|all: Vec<PathBuf>| all));
}

/// Where something was attached.
pub fn path_of(attached: &Change<Attached>) -> PathBuf {
    attached.get().path().to_owned()
}

/// Type and options of the file system over a path.
#[track_caller]
pub fn options_at(path: &Path) -> String {
    cmd("findmnt").args(["-n", "-o", "FSTYPE,SOURCE,OPTIONS", "-T"]).arg(path).ok()
}

/// Why it was refused.
#[track_caller]
pub fn reason<T: std::fmt::Debug>(result: Result<T>) -> Option<Reason> {
    result.expect_err("a refusal").reason()
}

/// The whole life of a volume, twice; `at_server` is its file there, and the mount must show `shown`.
#[track_caller]
pub fn live_twice(volume: &Volume, at_server: &Path, shown: &str, before: &Leftovers) {
    for round in 1..=2_u8 {
        let made = volume.connect().expect("connect");
        assert!(made.is_made(), "round {round}");
        let path = path_of(&made);
        assert!(options_at(&path).contains(shown), "{}", options_at(&path));

        let file =
            File::options().read(true).write(true).open(&path).expect("the volume can be opened");
        file.write_all_at(&[round; 4096], 8192).expect("it takes writes");
        file.sync_all().expect("it writes out");
        drop(file);
        let there = fs::read(at_server).expect("the server has it");
        assert_eq!(there[8192..12288], [round; 4096], "what is written is at the server");

        let size = u64::from(round) * (32 << 20);
        let grown = File::options().write(true).open(at_server).and_then(|f| f.set_len(size));
        grown.expect("it grows at the server");
        assert_eq!(volume.extend().expect("extend"), ByteSize::bytes(size));

        assert_eq!(volume.connect().expect("connect again"), Change::Already(made.get().clone()));
        assert_eq!(volume.lookup().expect("lookup").as_ref(), Some(made.get()));
        assert!(volume.health().expect("health").healthy);
        assert_eq!(volume.disconnect().expect("disconnect"), Change::Made(()));
        assert_eq!(volume.disconnect().expect("disconnect"), Change::Already(()));
        assert_eq!(volume.lookup().expect("lookup"), None);
        assert!(!volume.health().expect("health").healthy);
        assert_clean(before);
    }
}
