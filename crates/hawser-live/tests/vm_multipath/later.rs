//! Paths that are missing at the first attach, and are asked for afterwards.

use std::fs::{self, File};
use std::path::PathBuf;

use hawser_live::lab::guest::paths::{paths, usable};
use hawser_live::lab::guest::san::{San, disks, read, write};
use hawser_live::lab::guest::{Volume, cmd};
use serde_json::{Value, json};

use super::{TWO, configuration, san, volume};

/// Attaches a volume as a program does, by the command.
#[track_caller]
fn ask(volume: &Volume, option: &[&str]) -> Value {
    let info = serde_json::to_string(&volume.info).expect("JSON");
    let command = cmd("hawser").arg("connect").args(option).args(["-o", "json"]).input(info);
    serde_json::from_str(&command.ok()).expect("JSON out")
}

fn detach_by_name(volume: &str) {
    cmd("hawser").args(["disconnect", "--volume", volume]).ok();
}

#[test]
fn a_path_that_was_dead_at_the_first_attach_is_brought_in_by_asking_again() {
    let san = san(&TWO, 1);
    let volume = volume(&san, 1);
    let cut = san.target.cut(1);
    let made = ask(&volume, &["--enforce-multipath"]);
    let map = PathBuf::from(made["path"].as_str().expect("a path"));
    assert_eq!(paths(&map).len(), 1);
    write(&map, 0, &[1; 4096]);

    let held = File::open(&map).expect("open");
    let still = ask(&volume, &["--multipath"]);
    assert_eq!((&still["path"], &still["already"]), (&made["path"], &json!(true)), "{still:#}");
    cut.mend();
    let again = ask(&volume, &["--multipath"]);

    assert_eq!((&again["path"], &again["already"]), (&made["path"], &json!(false)), "{again:#}");
    assert_eq!((paths(&map).len(), usable(&map)), (2, 2));
    assert_eq!(read(&map, 0, 4096), vec![1; 4096]);
    drop(held);
    detach_by_name("v1");
    san.assert_clean();
}

#[test]
fn paths_that_are_asked_for_later_become_a_map_unless_the_one_path_is_used() {
    let san = San::with_multipath(&TWO, 1, &configuration("strict", "5", "no"));
    let volume = volume(&san, 1);
    let one = PathBuf::from(ask(&volume, &[])["path"].as_str().expect("a path"));
    assert!(one.to_string_lossy().starts_with("/dev/sd"), "{}", one.display());
    write(&one, 0, &[7; 4096]);
    cmd("mkfs.ext4").args(["-q", "-F"]).arg(&one).ok();
    fs::create_dir_all("/mnt/one").expect("a folder");
    cmd("mount").arg(&one).arg("/mnt/one").ok();

    let info = serde_json::to_string(&volume.info).expect("JSON");
    let enforced = cmd("hawser").args(["connect", "--enforce-multipath"]).input(info).run();
    assert!(enforced.code() != 0 && enforced.stderr.contains("/mnt/one"), "{}", enforced.stderr);
    let kept = ask(&volume, &["--multipath"]);
    assert_eq!((&kept["path"], &kept["already"]), (&json!(one), &json!(true)), "{kept:#}");
    assert_eq!(disks().len(), 1, "no second path was made");
    cmd("umount").arg("/mnt/one").ok();

    let both = ask(&volume, &["--enforce-multipath"]);
    let map = PathBuf::from(both["path"].as_str().expect("a path"));
    assert_eq!((paths(&map).len(), usable(&map)), (2, 2), "{both:#}");
    cmd("fsck.ext4").args(["-f", "-n"]).arg(&map).ok();
    detach_by_name("v1");
    san.assert_clean();
}
