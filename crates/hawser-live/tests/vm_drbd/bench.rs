//! What the suites of DRBD with both ends in one guest share.
#![allow(dead_code, reason = "each suite uses its part")]

use std::fs;
use std::path::Path;
use std::sync::Once;
use std::thread;

use hawser_live::lab::guest::drbd::{Backing, ByHand, End, SECRET, add_addresses, config};
use hawser_live::lab::guest::faults::Asked;
use hawser_live::lab::guest::{Leftovers, Volume, cmd, modprobe};
use serde_json::{Value, json};

pub(crate) const NODE: &str = "/dev/drbd100";
pub(crate) const MOUNT: &str = "/mnt/drbd";

/// What was made once for all tests.
pub(crate) static IN_SYNC: Once = Once::new();

/// The near end is for what is tested, the far end is handled by hand.
pub(crate) struct Bench {
    pub(crate) near: Backing,
    pub(crate) far: Backing,
    pub(crate) config: String,
    pub(crate) far_end: ByHand,
    pub(crate) before: Leftovers,
}

impl Bench {
    /// Both ends hold the same; the far one is up, the near one is not.
    pub(crate) fn new() -> Self {
        // Making both ends the same takes longer than most tests: it is done once.
        IN_SYNC.call_once(|| {
            let bench = Self::raw();
            bench.near_end().create_metadata();
            bench.far_end.create_metadata();
            bench.far_end.admin(&["up"]);
            let near_end = bench.near_end();
            near_end.admin(&["up"]);
            near_end.skip_first_sync();
            drop(near_end);
            bench.far_end.wait("cs:WFConnection");
            bench.far_end.admin(&["down"]);
            bench.near.keep();
            bench.far.keep();
        });
        let mut bench = Self::over(Backing::kept("near"), Backing::kept("far"));
        bench.far_end.admin(&["up"]);
        bench.far_end.wait("cs:WFConnection");
        bench.before = Leftovers::snapshot();
        bench
    }

    /// Two blank disks, and nothing up.
    pub(crate) fn raw() -> Self {
        modprobe(&["drbd"]);
        add_addresses();
        Self::over(Backing::new("near", 32), Backing::new("far", 32))
    }

    pub(crate) fn over(near: Backing, far: Backing) -> Self {
        let end = |host: &str, minor, disk: &Backing, address: &str| End {
            host: host.into(),
            minor,
            disk: disk.node.clone(),
            address: address.into(),
        };
        let here = end("lab", 100, &near, "127.0.1.1:7789");
        let there = end("lab", 101, &far, "127.0.1.2:7790");
        let away = |end: &End| End { host: "away".into(), ..end.clone() };
        let near_config = config("vol1", [&here, &away(&there)]);
        let far_config = config("far", [&there, &away(&here)]);
        let far_end = ByHand::new("far", 101, &far_config);
        Self { near, far, config: near_config, far_end, before: Leftovers::snapshot() }
    }

    /// The near end by hand; down when it is dropped.
    pub(crate) fn near_end(&self) -> ByHand {
        ByHand::new("vol1", 100, &self.config)
    }

    pub(crate) fn volume(&self) -> Volume {
        self.volume_with(json!({}))
    }

    /// The near end, as somebody has it who runs the command.
    pub(crate) fn asked(&self) -> Asked {
        Asked::over("drbd", self.data_with(json!({})), &[])
    }

    pub(crate) fn data_with(&self, more: Value) -> Value {
        let mut data = json!({ "name": "vol1", "device": NODE, "config": self.config,
            "provider_auth": SECRET, "volume_id": "v1" });
        for (key, value) in more.as_object().unwrap() {
            data[key] = value.clone();
        }
        data
    }

    pub(crate) fn volume_with(&self, more: Value) -> Volume {
        Volume::new("drbd", self.data_with(more))
    }

    /// What the far end has on its disk; it is written when the near end's write returns.
    pub(crate) fn far_has(&self, at: u64, byte: u8) -> bool {
        self.far.read(at, 4096) == [byte; 4096]
    }

    #[track_caller]
    pub(crate) fn assert_clean(&self) {
        self.before.assert_restored();
        let left = cmd("drbdsetup").args(["status", "vol1"]).run();
        assert!(!left.status.success(), "{}", left.stdout);
        assert!(!Path::new("/sys/block/drbd100").exists());
    }
}

/// A test that fails shows what the kernel said, and does not take the others with it.
impl Drop for Bench {
    fn drop(&mut self) {
        if !thread::panicking() {
            return;
        }
        let said = cmd("dmesg").run().stdout;
        let lines: Vec<&str> = said.lines().collect();
        println!("{}", lines[lines.len().saturating_sub(40)..].join("\n"));
        cmd("umount").args(["-l", MOUNT]).run();
        cmd("drbdsetup").args(["down", "vol1"]).run();
        for entry in fs::read_dir("/run/hawser").into_iter().flatten().flatten() {
            let _ = fs::remove_file(entry.path());
        }
    }
}
