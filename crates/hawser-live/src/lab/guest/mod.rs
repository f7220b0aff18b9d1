//! What tests inside a guest are written with.
//!
//! Everything here acts on the machine that it runs on: it loads modules, makes targets, cuts
//! networks. It therefore refuses to run anywhere but in a guest of the lab. What goes wrong
//! panics, with what was attempted, because a test is what calls it.

pub mod aoe;
mod ceph;
mod command;
pub mod drbd;
pub mod faults;
pub mod fc;
pub mod file_suite;
mod gluster;
mod leftovers;
pub mod library;
pub mod lio;
mod load;
pub mod luks;
mod nbd;
mod net;
mod nfsd;
pub mod nvmet;
pub mod paths;
mod peer;
pub mod reserve;
mod samba;
pub mod san;
mod services;
mod volume;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub use ceph::Ceph;
pub use command::{Cmd, Daemon, Done, cmd};
pub use gluster::Gluster;
pub use leftovers::Leftovers;
pub use load::Load;
pub use nbd::{NbdPlace, Nbdkit, QemuNbd};
pub use net::Cut;
pub use nfsd::Nfsd;
pub use peer::Peer;
pub use samba::Samba;
pub use services::{iscsid, multipathd};
pub use volume::{Volume, refusal};

/// The name of this guest's iSCSI initiator.
pub fn initiator() -> String {
    format!("iqn.2004-10.com.example:lab{}", number())
}

/// Which guest of the job this is: 1, or 2.
///
/// # Panics
///
/// Anywhere but in a guest of the lab; so a test that asks for anything here cannot harm a machine
/// on which it was started by mistake.
#[track_caller]
pub fn number() -> u8 {
    let text = fs::read_to_string("/run/lab/guest").unwrap_or_default();
    let Ok(number) = text.trim().parse() else {
        panic!("this is no guest of the lab: run it with `cargo run -p hawser-live --bin lab`");
    };
    number
}

/// A scratch disk of the suite, counted from 1.
#[track_caller]
pub fn scratch(disk: u8) -> PathBuf {
    number();
    let link = PathBuf::from(format!("/dev/disk/by-id/virtio-scratch{disk}"));
    assert!(link.exists(), "{} is missing: does the suite ask for it?", link.display());
    link
}

/// Loads kernel modules; what is there stays.
#[track_caller]
pub fn modprobe(modules: &[&str]) {
    cmd("modprobe").arg("-a").args(modules).ok();
}

/// Waits until udev has handled everything that the kernel reported so far.
#[track_caller]
pub fn settle() {
    cmd("udevadm").args(["settle", "--timeout=90"]).limit(Duration::from_secs(100)).ok();
}

/// Waits until something is the case, and answers it.
///
/// # Panics
///
/// When it is not within the limit; `what` says what was waited for.
#[track_caller]
pub fn wait_for<T>(what: &str, limit: Duration, mut fact: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = fact() {
            return found;
        }
        assert!(begun.elapsed() < limit, "no {what} within {limit:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
