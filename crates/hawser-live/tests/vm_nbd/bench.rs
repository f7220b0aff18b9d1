//! What the suites of NBD share.
#![allow(dead_code, reason = "each suite uses its part")]

use std::fs;
use std::path::Path;
use std::thread;

use hawser_live::lab::guest::faults::Asked;
use hawser_live::lab::guest::{Leftovers, NbdPlace, Nbdkit, cmd, modprobe, settle};
use serde_json::{Value, json};

pub(crate) const SERVER: &str = "127.0.1.1:10809";
pub(crate) const MOUNT: &str = "/mnt/nbd";

pub(crate) fn tcp() -> NbdPlace {
    NbdPlace::Tcp(SERVER.parse().unwrap())
}

/// The way to a volume over TCP, with more fields or others.
pub(crate) fn data_with(export: &str, more: Value) -> Value {
    let mut data = json!({ "host": "127.0.1.1", "export_name": export, "volume_id": export,
        "timeout": 5, "dead_conn_timeout": 30 });
    for (key, value) in more.as_object().unwrap() {
        data[key] = value.clone();
    }
    data
}

/// A server with one export of 32 MiB.
pub(crate) struct Bench {
    pub(crate) server: Nbdkit,
    pub(crate) before: Leftovers,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::over(Nbdkit::new(tcp()))
    }

    pub(crate) fn over(server: Nbdkit) -> Self {
        modprobe(&["nbd"]);
        server.export("vol1", 32);
        settle();
        Self { server, before: Leftovers::snapshot() }
    }

    /// Its export, as somebody has it who runs the command.
    pub(crate) fn asked(&self) -> Asked {
        Asked::over("nbd", data_with("vol1", json!({})), &[])
    }

    #[track_caller]
    pub(crate) fn assert_clean(&self) {
        self.before.assert_restored();
        for entry in fs::read_dir("/sys/block").unwrap().flatten() {
            let backend = entry.path().join("backend");
            assert!(!backend.exists(), "{} has an export", entry.path().display());
        }
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
        println!("{}\n{}", cmd("pgrep").args(["-a", "nbdkit"]).run().stdout, self.server.log());
        cmd("umount").args(["-l", MOUNT]).run();
        for entry in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
            if entry.path().join("backend").exists() {
                cmd("nbd-client").arg("-d").arg(Path::new("/dev").join(entry.file_name())).run();
            }
        }
        for entry in fs::read_dir("/run/hawser").into_iter().flatten().flatten() {
            let _ = fs::remove_file(entry.path());
        }
    }
}
