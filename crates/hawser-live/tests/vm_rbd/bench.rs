//! What the suites of RBD share.
#![allow(dead_code, reason = "each suite uses its part")]

use std::fs;
use std::sync::OnceLock;
use std::thread;
use std::time::Instant;

use hawser_live::lab::guest::faults::Asked;
use hawser_live::lab::guest::{Ceph, Leftovers, Volume, cmd, modprobe, settle};
use serde_json::{Value, json};

pub(crate) const MOUNT: &str = "/mnt/rbd";
pub(crate) const SHARED: &str = "volumes/shared";

/// One cluster for all tests: it takes the better part of a minute.
pub(crate) fn ceph() -> &'static Ceph {
    static CLUSTER: OnceLock<Ceph> = OnceLock::new();
    CLUSTER.get_or_init(|| {
        modprobe(&["rbd"]);
        let began = Instant::now();
        let ceph = Ceph::start();
        ceph.pool("volumes");
        ceph.pool("others");
        println!("a cluster in {:?}", began.elapsed());
        ceph
    })
}

/// The way to an image of this cluster, with more fields or others.
pub(crate) fn data_with(name: &str, more: Value) -> Value {
    let mut data = json!({ "name": name, "hosts": ["10.77.0.1"], "ports": ["6789"],
        "cluster_name": "ceph", "auth_enabled": true, "auth_username": "admin",
        "secret": ceph().key("client.admin"), "volume_id": name });
    for (key, value) in more.as_object().unwrap() {
        data[key] = value.clone();
    }
    data
}

/// An image that lives as long as one test, or one that they share.
pub(crate) struct Bench {
    pub(crate) image: &'static str,
    pub(crate) shared: bool,
    pub(crate) before: Leftovers,
}

impl Bench {
    pub(crate) fn new(image: &'static str) -> Self {
        ceph().image(image, 32);
        settle();
        Self { image, shared: false, before: Leftovers::snapshot() }
    }

    /// For tests that do not care what is in it: making and removing one takes seconds.
    pub(crate) fn shared() -> Self {
        static MADE: OnceLock<()> = OnceLock::new();
        MADE.get_or_init(|| ceph().image(SHARED, 32));
        settle();
        Self { image: SHARED, shared: true, before: Leftovers::snapshot() }
    }

    pub(crate) fn volume(&self) -> Volume {
        Volume::new("rbd", data_with(self.image, json!({})))
    }

    /// Its image, as somebody has it who runs the command.
    pub(crate) fn asked(&self) -> Asked {
        Asked::over("rbd", data_with(self.image, json!({})), &[])
    }

    #[track_caller]
    pub(crate) fn assert_clean(&self) {
        self.before.assert_restored();
        assert_eq!(mapped(), 0);
    }
}

/// A test that fails shows what the kernel said, and does not take the others with it.
impl Drop for Bench {
    fn drop(&mut self) {
        if thread::panicking() {
            let said = cmd("dmesg").run().stdout;
            let lines: Vec<&str> = said.lines().collect();
            println!("{}", lines[lines.len().saturating_sub(25)..].join("\n"));
            cmd("umount").args(["-l", MOUNT]).run();
            for entry in fs::read_dir("/sys/bus/rbd/devices").into_iter().flatten().flatten() {
                let text = format!("{} force", entry.file_name().to_string_lossy());
                let _ = fs::write("/sys/bus/rbd/remove_single_major", text);
            }
            return;
        }
        if !self.shared {
            ceph().remove(self.image);
        }
    }
}

pub(crate) fn mapped() -> usize {
    fs::read_dir("/sys/bus/rbd/devices").unwrap().count()
}
