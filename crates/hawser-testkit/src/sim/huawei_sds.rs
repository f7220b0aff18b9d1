//! Huawei's `sds_cli`, from its specification alone: `-c attach|detach|querydev -v VOLUME`, answers as
//! `key=value` lines with `ret_code`, `ret_desc` and `dev_addr`. It refuses everything else.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::fake_host::kernel::{DiskSpec, Lun};
use crate::fake_host::{FakeHost, Ran};

/// Where the volume's disk appears.
const DISK: &str = "hioa";

/// A host with the client, which knows one volume.
pub fn install(host: &FakeHost, volume: &str, lun: &Lun) {
    let (volume, lun) = (volume.to_owned(), lun.clone());
    let wanted = Arc::new(AtomicBool::new(false));
    let boot = Arc::clone(&wanted);
    host.kernel().on_reboot(move |_| boot.store(false, Ordering::Relaxed));
    host.tool("sds_cli", move |tree, call| {
        let [c, verb, v, name] = call.args.as_slice() else { return usage() };
        if c != "-c" || v != "-v" {
            return usage();
        }
        let there = tree.disk_names().iter().any(|name| name == DISK);
        let attached = wanted.load(Ordering::Relaxed);
        let (code, words, device) = match (verb.as_str(), *name == volume, attached) {
            ("attach" | "detach" | "querydev", false, _) => (50_150_007, "no such volume", ""),
            ("attach", true, true) => (50_151_401, "already attached", ""),
            ("attach", true, false) => {
                wanted.store(true, Ordering::Relaxed);
                let (lun, wanted) = (lun.clone(), Arc::clone(&wanted));
                tree.later(1, move |tree| {
                    if wanted.load(Ordering::Relaxed) {
                        tree.add_disk(DiskSpec::new(DISK, &lun));
                    }
                });
                (0, "success", "")
            }
            ("detach", true, true) => {
                wanted.store(false, Ordering::Relaxed);
                tree.later(1, |tree| {
                    tree.remove_disk(DISK);
                });
                (0, "success", "")
            }
            ("detach", true, false) => (50_155_007, "not mounted", ""),
            ("querydev", true, true) if there => (0, "success", "/dev/hioa"),
            ("querydev", true, _) => (50_151_001, "not attached", ""),
            _ => return usage(),
        };
        let device = if device.is_empty() { String::new() } else { format!("dev_addr={device}\n") };
        Ran::ok(format!("ret_code={code}\nret_desc={words}\n{device}"))
    });
    host.only_looks(|call| call.detail.contains("querydev"));
}

fn usage() -> Ran {
    Ran::failed(1, "usage: sds_cli -c attach|detach|querydev -v VOLUME")
}
