//! ATA over Ethernet: a network of two interfaces inside the guest, and vblade on its far end.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Daemon, cmd, modprobe, settle, wait_for};

/// The end that the driver uses.
pub const NEAR: &str = "ao0";
/// The end that targets use.
const FAR: &str = "ao1";
const LIMIT: Duration = Duration::from_secs(20);

/// The network. When it is dropped, the driver has forgotten every device.
#[derive(Debug)]
pub struct Ether {
    _private: (),
}

impl Ether {
    /// A network on which the driver speaks, and on no other.
    #[track_caller]
    pub fn new() -> Self {
        modprobe(&["veth", "aoe"]);
        // The driver may hold on to an interface for minutes, so it is made once and stays.
        if !Path::new("/sys/class/net").join(NEAR).exists() {
            let pair = ["link", "add", NEAR, "mtu", "9000", "type", "veth", "peer", "name", FAR];
            cmd("ip").args(pair).args(["mtu", "9000"]).ok();
        }
        for end in [NEAR, FAR] {
            cmd("ip").args(["link", "set", end, "up"]).ok();
        }
        fs::write("/dev/etherd/interfaces", NEAR).expect("a list of interfaces");
        set_dead_seconds(180);
        Self { _private: () }
    }

    /// Pulls the cable, or puts it back.
    #[track_caller]
    pub fn set_up(&self, up: bool) {
        cmd("ip").args(["link", "set", FAR, if up { "up" } else { "down" }]).ok();
    }
}

impl Default for Ether {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Ether {
    fn drop(&mut self) {
        let _ = fs::write("/dev/etherd/flush", "all");
    }
}

/// After how long the driver gives a silent target up.
#[track_caller]
pub fn set_dead_seconds(seconds: u32) {
    let setting = "/sys/module/aoe/parameters/aoe_deadsecs";
    fs::write(setting, seconds.to_string()).expect("a setting of the driver");
}

/// A target: one file in one slot. Its serial number holds the name of the host that it runs on.
#[derive(Debug)]
pub struct Vblade {
    slot: (u16, u8),
    file: PathBuf,
    daemon: Option<Daemon>,
}

impl Vblade {
    /// A target that answers.
    #[track_caller]
    pub fn new(shelf: u16, slot: u8, mib: u64) -> Self {
        let file = PathBuf::from(format!("/var/tmp/vblade-{shelf}.{slot}.img"));
        let image = File::create(&file).expect("a file for a target");
        image.set_len(mib << 20).expect("room for a target");
        let mut target = Self { slot: (shelf, slot), file, daemon: None };
        target.start();
        target
    }

    /// Starts it, after it was killed.
    #[track_caller]
    pub fn start(&mut self) {
        assert!(self.daemon.is_none(), "it runs");
        let (shelf, slot) = self.slot;
        let mut daemon = cmd("vblade")
            .args([shelf.to_string(), slot.to_string(), FAR.into()])
            .arg(&self.file)
            .start();
        // It has nothing to ask; it has begun when it listens for packets.
        let listens = || {
            let sockets = fs::read_to_string("/proc/net/packet").unwrap_or_default();
            sockets.lines().any(|line| line.contains(" 88a2 ")).then_some(())
        };
        wait_for("vblade", LIMIT, || {
            daemon.assert_alive();
            listens()
        });
        self.daemon = Some(daemon);
    }

    /// Kills it as a crash would.
    #[track_caller]
    pub fn kill(&mut self) {
        self.daemon.take().expect("it runs").kill();
    }

    /// Makes it larger. It knows its size only when it starts.
    #[track_caller]
    pub fn grow(&mut self, mib: u64) {
        // A request of udev that gets lost now would be sent again for many seconds.
        settle();
        self.kill();
        let file = File::options().write(true).open(&self.file).expect("the target's file");
        file.set_len(mib << 20).expect("room for a target");
        self.start();
    }

    /// What is in it.
    #[track_caller]
    pub fn read(&self, at: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let file = File::open(&self.file).expect("the target's file");
        file.read_exact_at(&mut bytes, at).expect("a readable file");
        bytes
    }
}
