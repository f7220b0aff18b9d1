//! HGST's `vgc-cluster`, from its specification alone: `domain-list -1`, and `space-set-apphosts -n
//! SPACE -A HOST --action ADD|DELETE`. It refuses everything else.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::fake_host::kernel::{DiskSpec, Lun};
use crate::fake_host::{FakeHost, Ran};

/// A host of the cluster's domain, which knows one space.
pub fn install(host: &FakeHost, space: &str, lun: &Lun) {
    install_for(host, space, lun, "fake");
}

/// The same, where the domain has a host of this name.
pub fn install_for(host: &FakeHost, space: &str, lun: &Lun, member: &str) {
    let (space, lun, member) = (space.to_owned(), lun.clone(), member.to_owned());
    let wanted = Arc::new(AtomicBool::new(false));
    let boot = Arc::clone(&wanted);
    host.kernel().on_reboot(move |_| boot.store(false, Ordering::Relaxed));
    host.tool("vgc-cluster", move |tree, call| {
        let args: Vec<&str> = call.args.iter().map(String::as_str).collect();
        match args.as_slice() {
            ["domain-list", "-1"] => Ran::ok(format!("first\n{member}\n")),
            ["space-set-apphosts", "-n", name, "-A", whom, "--action", action] => {
                if *name != space || *whom != member {
                    return Ran::failed(1, "no such space or host");
                }
                let (there, disk) = (wanted.load(Ordering::Relaxed), space.clone());
                match (*action, there) {
                    ("ADD", true) | ("DELETE", false) => Ran::ok(""),
                    ("ADD", false) => {
                        wanted.store(true, Ordering::Relaxed);
                        let (lun, wanted) = (lun.clone(), Arc::clone(&wanted));
                        tree.later(1, move |tree| {
                            if wanted.load(Ordering::Relaxed) {
                                tree.add_disk(DiskSpec::new(disk, &lun));
                            }
                        });
                        Ran::ok("")
                    }
                    ("DELETE", true) => {
                        wanted.store(false, Ordering::Relaxed);
                        tree.later(1, move |tree| {
                            tree.remove_disk(&disk);
                        });
                        Ran::ok("")
                    }
                    _ => Ran::failed(2, "unknown action"),
                }
            }
            _ => Ran::failed(2, "unknown command"),
        }
    });
    host.only_looks(|call| call.detail.contains("domain-list"));
}
