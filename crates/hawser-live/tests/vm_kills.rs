//! SIGKILL before every change that the program makes while it attaches and detaches a volume, one after
//! the other. Takes long; the protocols' own suites, and `vm_faults` for iSCSI, kill at some of them.
//! `vm_kills_full` has the protocols that need more packages.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "vm_nbd/bench.rs"]
mod nbd;
#[path = "vm_nfs/bench.rs"]
mod nfs;
#[path = "vm_nvme/mod.rs"]
mod vm_nvme;

use std::fs::File;

use hawser_live::lab::guest::faults::{Asked, Kills, MAPS, TWO};
use hawser_live::lab::guest::san::San;
use hawser_live::lab::guest::{Leftovers, nvmet};
use serde_json::json;

#[test]
fn case_26_an_attach_that_is_killed_at_any_step_is_made_good() {
    let san = San::new(&TWO[..1], 1);
    Kills::of("one path", &Asked::one(&san), &san.before).connects();
}

#[test]
fn case_26_a_detach_that_is_killed_at_any_step_is_made_good() {
    let san = San::new(&TWO[..1], 1);
    Kills::of("one path", &Asked::one(&san), &san.before).disconnects();
}

#[test]
fn case_26_an_attach_of_a_map_that_is_killed_at_any_step_is_made_good() {
    let san = San::with_multipath(&TWO, 1, MAPS);
    Kills::of("two paths", &Asked::all(&san), &san.before).connects();
}

#[test]
fn case_26_a_detach_of_a_map_that_is_killed_at_any_step_is_made_good() {
    let san = San::with_multipath(&TWO, 1, MAPS);
    Kills::of("two paths", &Asked::all(&san), &san.before).disconnects();
}

#[test]
fn case_26_over_nvme_every_call_that_is_killed_at_any_step_is_made_good() {
    let target = vm_nvme::tcp::Target::new("killed");
    let before = Leftovers::snapshot();
    Kills::of("NVMe over TCP", &vm_nvme::asked(target.data()), &before).run();
    assert!(nvmet::controllers(target.nqn()).is_empty());
}

#[test]
fn case_26_over_nbd_every_call_that_is_killed_at_any_step_is_made_good() {
    let bench = nbd::Bench::new();
    Kills::of("NBD", &bench.asked(), &bench.before).run();
    bench.assert_clean();
}

#[test]
fn case_26_over_nfs_every_call_that_is_killed_at_any_step_is_made_good() {
    let bench = nfs::Bench::new();
    Kills::of("NFS", &bench.asked(), &bench.before).run();
    bench.assert_clean();
}

#[test]
fn case_26_of_a_local_image_every_call_that_is_killed_at_any_step_is_made_good() {
    let path = "/var/tmp/killed.img";
    File::create(path).unwrap().set_len(16 << 20).unwrap();
    let before = Leftovers::snapshot();
    let data = json!({ "file_path": path, "volume_id": "killed" });
    Kills::of("LOCAL, an image", &Asked::over("local", data, &[]), &before).run();
}
