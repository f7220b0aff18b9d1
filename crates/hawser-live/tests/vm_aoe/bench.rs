//! What the suites of ATA over Ethernet share.
#![allow(dead_code, reason = "each suite uses its part")]

use std::fs;
use std::thread;
use std::time::Duration;

use hawser_live::lab::guest::aoe::{Ether, Vblade};
use hawser_live::lab::guest::faults::Asked;
use hawser_live::lab::guest::{Leftovers, cmd, settle, wait_for};
use serde_json::{Value, json};

pub(crate) const MOUNT: &str = "/mnt/aoe";

/// The way to a target.
pub(crate) fn data_at(slot: u8, more: Value) -> Value {
    let mut data =
        json!({ "target_shelf": 7, "target_lun": slot, "volume_id": format!("v{slot}") });
    for (key, value) in more.as_object().unwrap() {
        data[key] = value.clone();
    }
    data
}

/// A network with one target of 32 MiB. Fields are dropped in order: targets before the network.
pub(crate) struct Bench {
    pub(crate) target: Vblade,
    pub(crate) before: Leftovers,
    _net: Ether,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let net = Ether::new();
        let before = Leftovers::snapshot();
        Self { target: Vblade::new(7, 1, 32), before, _net: net }
    }

    /// Its target, as somebody has it who runs the command.
    pub(crate) fn asked(&self) -> Asked {
        Asked::over("aoe", data_at(1, json!({})), &[])
    }

    /// Nothing is left right after a detach; a target that answers is found again by and by.
    #[track_caller]
    pub(crate) fn assert_clean(&self) {
        self.before.assert_restored();
    }
}

/// Makes the driver forget what nobody uses: a target that answers late makes a device by itself. The
/// driver of Linux 6.12 stops for ever where such a device is read at that moment.
pub(crate) fn flush() {
    settle();
    wait_for("the devices to rest", Duration::from_secs(30), || {
        let disks = fs::read_dir("/sys/block").unwrap().flatten();
        let mut ours =
            disks.filter(|disk| disk.file_name().to_string_lossy().starts_with("etherd"));
        let rests = |disk: fs::DirEntry| {
            let counts = fs::read_to_string(disk.path().join("inflight")).unwrap_or_default();
            counts.split_whitespace().all(|count| count == "0")
        };
        ours.all(rests).then_some(())
    });
    let _ = fs::write("/dev/etherd/flush", "all");
}

/// A test that fails shows what the kernel said, and does not take the others with it.
impl Drop for Bench {
    fn drop(&mut self) {
        if thread::panicking() {
            let said = cmd("dmesg").run().stdout;
            let lines: Vec<&str> = said.lines().collect();
            println!("{}", lines[lines.len().saturating_sub(30)..].join("\n"));
            cmd("umount").args(["-l", MOUNT]).run();
            for entry in fs::read_dir("/run/hawser").into_iter().flatten().flatten() {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}
